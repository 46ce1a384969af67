//! What each line of trust says.

use gtop_protocol::Validity;
use gtop_protocol::clock::Domain;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::StateCode;
use ratatui::text::Span;

use super::role_of;
use crate::model::snapshot::{Process, Records, WINDOWS};
use crate::view::canvas::{Part, fit};
use crate::view::header::is_untold;
use crate::view::spark::gauge;
use crate::view::text::{width, wrap};
use crate::view::theme::{Role, Theme};
use crate::view::{Cx, pool, units};

/// `invalid 60 s 0 %  total 0 %`.
pub(super) fn invalid_spans(theme: Theme, process: &Process, windows: &[usize]) -> Vec<Span<'static>> {
    let validity = &process.validity;
    let role = |rate: Option<f64>| match rate {
        None => Role::Warn,
        Some(rate) if rate > 0.0 => Role::Alarm,
        Some(_) => Role::Good,
    };
    let worst = validity.rate_windows[2].or(validity.rate_total).unwrap_or(0.0);
    let mut spans = vec![theme.span(if worst > 0.0 { "INVALID" } else { "invalid" }, Role::Strong)];
    for &window in windows {
        let rate = validity.rate_windows[window];
        spans.push(theme.span(format!(" {} s ", WINDOWS[window]), Role::Plain));
        spans.push(theme.span(units::maybe_percent(rate), role(rate)));
    }
    spans.push(theme.span("  total ", Role::Plain));
    spans.push(theme.span(units::maybe_percent(validity.rate_total), role(validity.rate_total)));
    spans
}

/// The classes seen, the commonest two always, the rest in one number.
pub(super) fn classes(process: &Process) -> String {
    if process.unseen {
        return "zero ?  inverted ?  other ?".to_owned();
    }
    let total = &process.validity.total;
    let of = |class: Validity| total[class as usize];
    let mut named = vec![(Validity::Zero, of(Validity::Zero)), (Validity::Inverted, of(Validity::Inverted))];
    let mut others: Vec<(Validity, u64)> = Validity::ALL
        .into_iter()
        .filter(|class| !matches!(class, Validity::Valid | Validity::Zero | Validity::Inverted))
        .map(|class| (class, of(class)))
        .filter(|(_, count)| *count > 0)
        .collect();
    others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (shown, rest) = others.split_at(others.len().min(1));
    named.extend(shown);
    let mut text: Vec<String> = named
        .iter()
        .map(|(class, count)| format!("{} {}", class.name().replace('_', " "), units::count(*count)))
        .collect();
    let rest: u64 = rest.iter().map(|(_, count)| count).sum();
    text.push(format!("other {}", units::count(rest)));
    text.join("  ")
}

/// The first bad record, as fully as there is room for; where others came before what is counted, that it is unknown.
pub(super) fn first_bad(cx: &Cx<'_>, process: &Process, cells: usize) -> Span<'static> {
    let theme = cx.theme();
    let validity = &process.validity;
    let all: u64 = validity.total.iter().sum();
    let clock = |time| units::clock(time, &cx.state.zone);
    let short = |time| clock(time).get(..5).unwrap_or_default().to_owned();
    if let Some(earlier) = validity.earlier {
        let since = short(earlier.since);
        let before = match earlier.count {
            Some(count) => format!("first bad lies before {since} ({})", units::count(count)),
            None => format!("first bad ? before {since}"),
        };
        let mut texts = vec![before];
        if let Some(first) = &validity.first_invalid {
            let rest = format!("{} at {}", first.class.name().replace('_', " "), clock(first.time));
            texts.push(format!("{}; since then #{} {rest}", texts[0], units::maybe_count(first.index)));
        } else {
            texts.push(format!("{}; since then none", texts[0]));
        }
        let known = earlier.count.is_some() || validity.first_invalid.is_some();
        return theme.span(widest(texts, cells), if known { Role::Alarm } else { Role::Plain });
    }
    match &validity.first_invalid {
        None if all == 0 => theme.span("first bad  ? no records yet", Role::Dim),
        None => theme.span(format!("first bad  none in {}", units::count(all)), Role::Plain),
        Some(first) => {
            let which =
                format!("#{} {}", units::maybe_count(first.index), first.class.name().replace('_', " "));
            let values = format!("start {} end {}", first.start, first.end);
            let texts = vec![
                format!("first bad {which} {}", short(first.time)),
                format!("first bad {which} {}", clock(first.time)),
                format!("first bad {which} {}  {values}", clock(first.time)),
                format!("first bad {which} {}  {values}  {}", clock(first.time), first.name),
            ];
            theme.span(widest(texts, cells), Role::Alarm)
        }
    }
}

/// The longest text there is room for, of texts that become longer; the shortest if there is for none.
pub(super) fn widest(mut texts: Vec<String>, cells: usize) -> String {
    while texts.len() > 1 && texts.last().is_some_and(|text| width(text) > cells) {
        texts.pop();
    }
    texts.pop().unwrap_or_default()
}

/// The first of the present stretch, when there was one before.
pub(super) fn first_again(cx: &Cx<'_>, process: &Process) -> Option<Span<'static>> {
    let again = process.validity.first_again.as_ref()?;
    let text = format!(
        "again from #{} {} {} on, after believable ones for a while",
        units::maybe_count(again.index),
        again.class.name().replace('_', " "),
        units::clock(again.time, &cx.state.zone)
    );
    Some(cx.theme().span(text, Role::Alarm))
}

/// What is lost, and both sides of the balance.
pub(super) fn balance(process: &Process) -> String {
    let records = &process.records;
    if process.unseen {
        return lost(process);
    }
    let count = units::count;
    let dropped = Some(records.lost_cupti).filter(|dropped| *dropped > 0);
    let dropped = dropped.map(|dropped| format!("; {} dropped in CUPTI", count(dropped))).unwrap_or_default();
    let more = units::and_more(process.misses_some());
    let unknown = [unread(records), unseen(process)].into_iter().flatten();
    let unknown: String = unknown.flat_map(|unknown| ["; ".to_owned(), unknown]).collect();
    format!("lost {}{more}: {}{dropped}{unknown}", count(records.lost()), records.sum())
}

/// Which clock CUPTI's is, how well it is known, and whether it has jumped.
pub(super) fn clock(cx: &Cx<'_>, process: &Process) -> Option<Span<'static>> {
    let pair = process.clock.as_ref()?;
    let domain = Domain::of(pair);
    let age = cx.snapshot.time.saturating_sub(pair.realtime) as f64 / 1e9;
    let mut parts = vec![format!("clock  {} within {}", domain.name(), units::duration(pair.error))];
    if domain != Domain::Realtime {
        let off = pair.cupti.wrapping_sub(pair.realtime).cast_signed() as f64 / 1e9;
        parts.push(format!("{off:+.2} s from realtime"));
    }
    parts.push(format!("{} ago", units::age(age)));
    let wrong = matches!(domain, Domain::LessUptime | Domain::Other) || process.clock_jumps > 0;
    if process.clock_jumps > 0 {
        parts.push(format!("jumped {}×", process.clock_jumps));
    }
    Some(cx.theme().span(parts.join(", "), if wrong { Role::Warn } else { Role::Dim }))
}

/// Who else uses CUPTI in the process, and how that looks.
pub(super) fn others(process: &Process) -> (String, Role) {
    let busy = || process.reason.as_deref().filter(|reason| reason.starts_with("busy"));
    let (who, role) = match (process.state, process.subscribed) {
        _ if is_untold(process) => ("? raw buffers do not tell", Role::Dim),
        (StateCode::Unavailable, _) => match busy() {
            // Who it is stands last in the reason.
            Some(reason) => match reason.split_once("; ") {
                Some((_, holder)) => (holder, Role::Warn),
                None => ("some tool that does not say its name", Role::Warn),
            },
            None => ("? CUPTI cannot be asked", Role::Dim),
        },
        (StateCode::Loaded | StateCode::Arming, _) => ("? CUPTI was not called yet", Role::Dim),
        (_, true) => ("none: CUPTI serves one tool, and that is gtop", Role::Dim),
        (_, false) => ("? gtop gave its subscription back: another tool can have CUPTI now", Role::Dim),
    };
    (format!("other subscriber: {who}"), role)
}

/// `lost 0`, or by cause.
pub(super) fn lost(process: &Process) -> String {
    let records = &process.records;
    if process.unseen {
        return "lost ? nothing could be seen".to_owned();
    }
    let more = units::and_more(process.misses_some());
    let unknown: Vec<String> = [unread(records), unseen(process)].into_iter().flatten().collect();
    if records.lost() == 0 {
        return match unknown.join(", ") {
            none if none.is_empty() => "lost 0".to_owned(),
            unknown => format!("lost 0{more}: {unknown}"),
        };
    }
    let causes = [
        ("in CUPTI", records.lost_cupti),
        ("queue full", records.lost_queue_full),
        ("unknown kind", records.lost_unknown_kind),
        ("slow viewer", records.lost_slow_viewer),
    ];
    let causes: Vec<String> = causes
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!("{cause} {}", units::count(count)))
        .collect();
    let share = units::maybe_percent(records.lost_share());
    let causes: Vec<String> = causes.into_iter().chain(unknown).collect();
    format!("lost {}{more} ({share}): {}", units::count(records.lost()), causes.join(", "))
}

/// That kernels run without a record, which CUPTI does not count as dropped.
fn unseen(process: &Process) -> Option<String> {
    let what = "kernels of which CUPTI gave no record";
    (process.misses_some() && process.records.unread_bytes == 0).then(|| what.to_owned())
}

/// What of CUPTI's buffers could not be read, and so how much may be lost beyond what is counted.
fn unread(records: &Records) -> Option<String> {
    let bytes = Some(records.unread_bytes).filter(|bytes| *bytes > 0)?;
    Some(format!("{} of buffers not read, with ? records", units::bytes(bytes)))
}

pub(super) fn notes(process: &Process) -> Option<String> {
    let notes = &process.notes;
    let all = [
        ("overlap", notes.overlap),
        ("zero length", notes.zero_length),
        ("out of order", notes.out_of_order),
        ("unasked kind", notes.unasked_kind),
        ("suspect length", notes.overlong),
        ("cut off", notes.cut_off),
    ];
    let some: Vec<String> = all
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what} {}", units::glance(count as f64)))
        .collect();
    (!some.is_empty()).then(|| format!("notes  {}", some.join("  ")))
}

pub(super) fn pool_rows(
    cx: &Cx<'_>,
    process: &Process,
    cells: usize,
    push: &mut impl FnMut(u8, bool, Vec<Span<'static>>),
) {
    let theme = cx.theme();
    let Some(worst) = pool::worst(process) else {
        push(3, false, vec![theme.span("pool   ? no context seen yet", Role::Dim)]);
        return;
    };
    let several = process.pools.len() > 1;
    for pool in std::iter::once(worst).chain(process.pools.iter().filter(|pool| !std::ptr::eq(*pool, worst)))
    {
        let first = std::ptr::eq(pool, worst);
        let (word, role) = pool::word(pool);
        let which = if several { format!("pool c{}", pool.context) } else { "pool  ".to_owned() };
        let text = format!(" {} ", pool::fraction(pool));
        let room = cells.saturating_sub(which.len() + 1 + text.len() + word.len()).min(24);
        push(
            if first { 0 } else { 8 },
            false,
            vec![
                theme.span(format!("{which} "), Role::Plain),
                theme.span(
                    gauge(pool::share(pool), room),
                    if role == Role::Good { role } else { role_of(role) },
                ),
                theme.span(text, Role::Plain),
                theme.span(word, role),
            ],
        );
        if cells >= 52
            && let Some(readings) = pool::readings(pool)
        {
            push(6, true, vec![theme.span(format!("       {readings}"), Role::Dim)]);
        }
        if let Some(trouble) = pool::trouble(process, pool, &cx.state.zone) {
            let role = if role == Role::Dim { role } else { Role::Warn };
            for (i, line) in wrap(&trouble, cells).into_iter().enumerate() {
                push(if first && i < 2 { 1 } else { 8 }, i > 0, vec![theme.span(line, role)]);
            }
        }
    }
}

/// The verdict on this CUPTI, and why.
pub(super) fn verdict(process: &Process) -> (String, &'static str) {
    let Some(cupti) = &process.cupti else { return ("CUPTI  not called yet".to_owned(), "") };
    let word = match cupti.verdict {
        Verdict::Sound => "sound",
        Verdict::Defective => "DEFECTIVE",
        Verdict::Unknown => "unmeasured",
    };
    (format!("CUPTI {} {word}", cupti.version), cupti.reason)
}

pub(super) fn verdict_role(process: &Process) -> Role {
    match process.cupti.as_ref().map(|cupti| cupti.verdict) {
        Some(Verdict::Sound) => Role::Good,
        Some(Verdict::Defective | Verdict::Unknown) => Role::Warn,
        None => Role::Dim,
    }
}

/// What watching costs inside the process.
pub(super) fn cost(theme: Theme, process: &Process, cells: usize) -> Option<Vec<Span<'static>>> {
    let buffers = process.host_buffers.as_ref()?;
    let part = |rank, text: String| Part::new(rank, vec![theme.span(text, Role::Dim)]);
    let (cpu, callbacks) = match process.cost_lately {
        Some(lately) => {
            (units::percent(lately.cpu), format!("{} of a core", units::percent(lately.callbacks)))
        }
        None => (units::duration(buffers.cpu_ns), units::duration(buffers.callback_ns)),
    };
    let parts = vec![
        part(0, format!("shim  CPU {cpu}")),
        part(1, format!("callbacks {callbacks}")),
        part(2, units::bytes(buffers.memory)),
        part(
            3,
            match (buffers.raw_copied, buffers.raw_missed) {
                (0, 0) => String::new(),
                (copied, missed) => format!("raw buffers {copied}, missed {missed}"),
            },
        ),
    ];
    Some(fit(parts, "  ", cells).0)
}

#[cfg(test)]
mod tests {
    use gtop_protocol::message::HostBuffers;

    use super::*;
    use crate::model::snapshot::Cost;

    #[test]
    fn what_the_shim_takes_is_a_share_once_it_was_read_twice() {
        let buffers = HostBuffers {
            cpu_ns: 390_000_000,
            callback_ns: 51_000_000,
            memory: 1 << 20,
            ..Default::default()
        };
        let mut process = Process { host_buffers: Some(buffers), ..Process::default() };
        let said = |process: &Process| -> String {
            let spans = cost(Theme::DARK, process, 80).unwrap();
            spans.iter().map(|span| span.content.as_ref()).collect()
        };
        assert_eq!(said(&process), "shim  CPU 390 ms  callbacks 51.0 ms  1.0 MiB");
        process.cost_lately = Some(Cost { cpu: 0.012, callbacks: 0.0004 });
        assert_eq!(said(&process), "shim  CPU 1.2 %  callbacks <0.1 % of a core  1.0 MiB");
    }

    #[test]
    fn the_sum_of_records_is_seen_to_agree_whichever_count_is_newer() {
        let said = |records: Records| balance(&Process { records, ..Process::default() });
        let records = Records { delivered: 1_200, shown: 1_200, ..Records::default() };
        assert_eq!(said(records), "lost 0: 1,200 delivered = 1,200 shown");
        assert_eq!(
            said(Records { shown: 1_234, ..records }),
            "lost 0: 1,200 delivered + 34 since that count = 1,234 shown"
        );
        assert_eq!(
            said(Records { shown: 1_100, lost_slow_viewer: 60, lost_cupti: 5, ..records }),
            "lost 65: 1,200 delivered = 1,100 shown + 60 slow viewer + 40 under way; 5 dropped in CUPTI"
        );
        let state = StateCode::Silent;
        let silent = Process { state, records, ..Process::default() };
        assert_eq!(
            balance(&silent),
            "lost 0 + ?: 1,200 delivered = 1,200 shown; kernels of which CUPTI gave no record"
        );
        assert_eq!(lost(&silent), "lost 0 + ?: kernels of which CUPTI gave no record");
        let unseen = Process { unseen: true, ..Process::default() };
        assert_eq!(balance(&unseen), "lost ? nothing could be seen");
        assert_eq!(classes(&unseen), "zero ?  inverted ?  other ?");
    }
}
