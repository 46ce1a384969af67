//! Whether the numbers can be believed: invalid records, what was lost, the pool, CUPTI's verdict, and the kinds
//! with what toggling each would do.

use gtop_protocol::clock::Domain;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::StateCode;
use gtop_protocol::{Kind, Validity};
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Part, Place, fit};
use super::effect::effect;
use super::spark::gauge;
use super::state::Pane;
use super::text::{cut_end, width, wrap};
use super::theme::{Role, Theme};
use super::{Cx, advice, causes, kinds, pool, rates, sampled, units};
use crate::model::snapshot::{Process, Records, WINDOWS};

/// One line, and when it gives way: the higher `rank`, the sooner.
struct Row {
    rank: u8,
    spans: Vec<Span<'static>>,
    /// Whether it goes on from the row before.
    goes_on: bool,
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let inner = place.inner();
    let (cells, height) = (usize::from(inner.width), usize::from(inner.height));
    let mut rows = cx.process.map_or_else(Vec::new, |process| rows(cx, process, cells, height));
    let all = rows.len();
    let scrolls = place.focused && cx.state.tab > 0;
    let top = if scrolls { cx.state.top(Pane::Trust, all, height) } else { 0 };
    if !scrolls {
        while rows.len() > height {
            let Some(worst) = (0..rows.len()).max_by_key(|&i| (rows[i].rank, i)) else { break };
            let cut = rows.remove(worst).goes_on || rows.get(worst).is_some_and(|next| next.goes_on);
            if let Some(last) = worst.checked_sub(1).and_then(|before| rows.get_mut(before)).filter(|_| cut) {
                end_with_ellipsis(&mut last.spans, cells);
            }
        }
    }
    let shown = rows.len().min(height + top) - top.min(rows.len());
    let mut notes = Vec::new();
    if shown < all {
        notes.push(format!("{} more", units::some(all - shown, "line")));
    }
    // What can be believed is asked of all records.
    if !cx.state.filter.is_empty() && cx.state.tab > 0 {
        notes.push("of all records, whatever the filter".to_owned());
    }
    let note = notes.join(" · ");
    let inner = canvas.pane(place, "Trust", &note);
    canvas.seen.rows[Pane::Trust as usize] = height;
    canvas.seen.all[Pane::Trust as usize] = all;
    if cx.process.is_none() {
        canvas.spans(inner, 0, vec![cx.theme().span("no process is watched", Role::Dim)]);
    }
    for (i, row) in rows.into_iter().skip(top).enumerate() {
        canvas.spans(inner, i, row.spans);
    }
}

/// Draws the most important of it in the one or two lines of a small screen.
pub(super) fn draw_folded(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let Some(process) = cx.process else { return };
    let theme = cx.theme();
    let cells = usize::from(area.width).saturating_sub(2);
    let inner = Rect { x: area.x.saturating_add(1), width: cells as u16, ..area };
    let mut lines: Vec<Vec<Part>> = Vec::new();
    if let Some(advice) = advice::on_state(process) {
        let what = cut_end(&format!("{}: {}", advice.word, advice.what), cells);
        lines.push(vec![Part::new(0, vec![theme.span(what, advice.role)])]);
        if area.height > 1 {
            lines.push(vec![Part::new(0, vec![theme.span(cut_end(&advice.todo, cells), Role::Strong)])]);
        }
    }
    let validity = &process.validity;
    let mut first = vec![
        Part::new(0, invalid_spans(theme, process, &[2])),
        Part::new(2, vec![theme.span(classes(process), Role::Plain)]),
        Part::new(1, vec![first_bad(cx, process, 0)]),
    ];
    let mut second = Vec::new();
    if let Some(pool) = pool::worst(process) {
        let (word, role) = pool::word(pool);
        let filled = gauge(pool::share(pool), 8);
        second.push(Part::new(
            0,
            vec![
                theme.span(format!("pool {filled} {} ", pool::fraction(pool)), Role::Plain),
                theme.span(word, role),
            ],
        ));
    }
    second.push(Part::new(2, vec![theme.span(verdict(process).0, verdict_role(process))]));
    if let Some(line) = kinds::harms(process).into_iter().next() {
        second.push(Part::new(1, vec![theme.span(line.trim_end_matches(": asks").to_owned(), Role::Warn)]));
    }
    second.push(Part::new(3, vec![theme.span(lost(&process.records), lost_role(&process.records))]));
    let bad = validity.rate_windows[2].is_none_or(|rate| rate > 0.0);
    if area.height == 1 && !bad && lines.is_empty() {
        first.truncate(1);
        first.append(&mut second);
    }
    lines.push(first);
    lines.push(second);
    for (i, parts) in lines.into_iter().take(usize::from(area.height)).enumerate() {
        let (spans, _) = fit(parts, " · ", cells);
        canvas.spans(inner, i, spans);
    }
}

/// A badge's role for running text.
const fn role_of(role: Role) -> Role {
    match role {
        Role::BadgeAlarm => Role::Alarm,
        other => other,
    }
}

fn rows(cx: &Cx<'_>, process: &Process, cells: usize, height: usize) -> Vec<Row> {
    let theme = cx.theme();
    let mut rows = Vec::new();
    let mut push = |rank, goes_on, spans| rows.push(Row { rank, spans, goes_on });
    let advice = advice::on_state(process);
    let in_trouble = advice.is_some();
    if let Some(advice) = advice {
        for (i, line) in wrap(&format!("{}: {}", advice.word, advice.what), cells).into_iter().enumerate() {
            push(if i < 2 { 0 } else { 4 }, i > 0, vec![theme.span(line, advice.role)]);
        }
        for (i, line) in wrap(&advice.todo, cells).into_iter().enumerate() {
            push(if i < 2 { 0 } else { 2 }, i > 0, vec![theme.span(line, Role::Strong)]);
        }
    }
    let windows: &[usize] = if cells >= 52 { &[0, 1, 2] } else { &[2] };
    push(0, false, invalid_spans(theme, process, windows));
    push(1, false, vec![theme.span(classes(process), Role::Plain)]);
    push(1, false, vec![first_bad(cx, process, cells)]);
    let roomy = cells >= 76 && height >= 24;
    if roomy {
        if let Some(again) = first_again(cx, process) {
            push(3, false, vec![again]);
        }
        for line in
            rates::over_time(theme, process, cells).into_iter().chain(rates::whose(theme, process, cells))
        {
            push(5, false, line);
        }
    }
    for cause in causes::causes(process, cx.snapshot) {
        for (i, line) in wrap(&format!("likely: {cause}"), cells).into_iter().enumerate() {
            push(3, i > 0, vec![theme.span(line, Role::Warn)]);
        }
    }
    let rank = if process.records.lost() > 0 { 1 } else { 3 };
    let balance = if roomy { balance(&process.records) } else { lost(&process.records) };
    for (i, line) in wrap(&balance, cells).into_iter().enumerate() {
        push(rank, i > 0, vec![theme.span(line, lost_role(&process.records))]);
    }
    if let Some(text) = notes(process) {
        push(7, false, vec![theme.span(text, Role::Dim)]);
    }
    push(9, false, Vec::new());
    pool_rows(cx, process, cells, &mut push);
    let (verdict, reason) = verdict(process);
    push(3, false, vec![theme.span(verdict, verdict_role(process))]);
    for line in wrap(reason, cells).into_iter().filter(|line| !line.is_empty()) {
        push(5, true, vec![theme.span(line, Role::Dim)]);
    }
    if let Some(spans) = sampled::line(theme, process, cells) {
        push(2, false, spans);
    }
    if let Some(spans) = cost(theme, process, cells) {
        push(6, false, spans);
    }
    if let Some(clock) = clock(cx, process) {
        push(7, false, vec![clock]);
    }
    if roomy {
        push(7, false, vec![others(theme, process)]);
    }
    if let Some(refused) = kinds::refused(process) {
        for (i, line) in wrap(&refused, cells).into_iter().enumerate() {
            push(1, i > 0, vec![theme.span(line, Role::Alarm)]);
        }
    }
    push(9, false, Vec::new());
    let room = height.saturating_sub(rows.len());
    if room >= Kind::ALL.len() && cells >= 44 {
        // What each toggle would do in full, as far as there is room: first for those that would do harm.
        let sentences = |which: fn(&Process, Kind) -> bool| {
            let lines = |kind: Kind| {
                let wanted = cells >= 76 && which(process, kind);
                if wanted { kinds::sentence(theme, process, kind, cells) } else { Vec::new() }
            };
            Kind::ALL.map(lines)
        };
        let choices = [
            sentences(|_, _| true),
            sentences(|process, kind| effect(process, kind).asks),
            sentences(|_, _| false),
        ];
        let fits = |lines: &&[Vec<Vec<Span<'static>>>; Kind::ALL.len()]| {
            lines.iter().map(Vec::len).sum::<usize>() + Kind::ALL.len() <= room
        };
        for (kind, lines) in Kind::ALL.into_iter().zip(choices.iter().find(fits).into_iter().flatten()) {
            rows.push(Row { rank: 0, spans: kinds::long(cx, process, kind), goes_on: false });
            rows.extend(lines.iter().map(|spans| Row { rank: 6, spans: spans.clone(), goes_on: true }));
        }
    } else {
        let per_row = (cells / 18).clamp(1, 4);
        for row in Kind::ALL.chunks(per_row) {
            let spans =
                row.iter().flat_map(|kind| kinds::short(cx, process, *kind, cells / per_row)).collect();
            rows.push(Row { rank: if in_trouble { 4 } else { 1 }, spans, goes_on: false });
        }
        rows.extend(kinds::harms(process).into_iter().map(|line| Row {
            rank: if in_trouble { 4 } else { 0 },
            spans: vec![theme.span(line, Role::Warn)],
            goes_on: false,
        }));
    }
    rows
}

/// Marks a line as cut short.
fn end_with_ellipsis(spans: &mut Vec<Span<'static>>, cells: usize) {
    let taken: usize = spans.iter().map(Span::width).sum();
    if let Some(last) = spans.last_mut() {
        let room = last.width() + cells.saturating_sub(taken);
        last.content = cut_end(&format!("{} …", last.content), room.max(1)).into();
    }
}

/// `invalid 60 s 0 %  total 0 %`.
fn invalid_spans(theme: Theme, process: &Process, windows: &[usize]) -> Vec<Span<'static>> {
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
fn classes(process: &Process) -> String {
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
fn first_bad(cx: &Cx<'_>, process: &Process, cells: usize) -> Span<'static> {
    let theme = cx.theme();
    let validity = &process.validity;
    let all: u64 = validity.total.iter().sum();
    let clock = |time| units::clock(time, &cx.state.zone);
    let short = |time| clock(time).get(..5).unwrap_or_default().to_owned();
    if let Some(earlier) = validity.earlier {
        let came = earlier.count.map_or("?".to_owned(), units::count);
        let mut texts = vec![format!("first bad ? ({came} before {})", short(earlier.since))];
        if let Some(first) = &validity.first_invalid {
            let rest = format!("{} at {}", first.class.name().replace('_', " "), clock(first.time));
            texts.push(format!("{}; since then #{} {rest}", texts[0], units::maybe_count(first.index)));
        }
        return theme.span(widest(texts, cells), Role::Alarm);
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
fn widest(mut texts: Vec<String>, cells: usize) -> String {
    while texts.len() > 1 && texts.last().is_some_and(|text| width(text) > cells) {
        texts.pop();
    }
    texts.pop().unwrap_or_default()
}

/// The first of the present stretch, when there was one before.
fn first_again(cx: &Cx<'_>, process: &Process) -> Option<Span<'static>> {
    let again = process.validity.first_again.as_ref()?;
    let text = format!(
        "again from #{} {} {} on, after believable ones for a while",
        units::maybe_count(again.index),
        again.class.name().replace('_', " "),
        units::clock(again.time, &cx.state.zone)
    );
    Some(cx.theme().span(text, Role::Alarm))
}

/// Both sides of the balance: what the shim walked, and what became of it.
fn balance(records: &Records) -> String {
    let count = units::count;
    let known = records.shown.saturating_add(records.lost()).saturating_sub(records.lost_cupti);
    let under_way = match records.delivered.checked_sub(known) {
        Some(0) => String::new(),
        Some(some) => format!(" + {} under way", count(some)),
        // The shim says its count a few times a second.
        None => format!(" − {} that came after that count", count(known - records.delivered)),
    };
    format!(
        "lost {}: {} delivered = {} shown + {} queue full + {} unknown kind + {} slow viewer{under_way}; {} dropped in \
         CUPTI",
        count(records.lost()),
        count(records.delivered),
        count(records.shown),
        count(records.lost_queue_full),
        count(records.lost_unknown_kind),
        count(records.lost_slow_viewer),
        count(records.lost_cupti)
    )
}

/// Which clock CUPTI's is, how well it is known, and whether it has jumped.
fn clock(cx: &Cx<'_>, process: &Process) -> Option<Span<'static>> {
    let pair = process.clock.as_ref()?;
    let domain = Domain::of(pair);
    let age = cx.snapshot.time.saturating_sub(pair.realtime) as f64 / 1e9;
    let mut parts = vec![format!("clock  {} ±{}", domain.name(), units::duration(pair.error))];
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

/// Who else uses CUPTI in the process.
fn others(theme: Theme, process: &Process) -> Span<'static> {
    if process.state == StateCode::Unavailable {
        let reason = process.reason.clone().unwrap_or_default();
        return theme.span(format!("other subscriber  {reason}"), Role::Warn);
    }
    let text = match (process.state, process.subscribed) {
        (StateCode::Loaded | StateCode::Arming, _) => "other subscriber  ? CUPTI was not called yet",
        (_, true) => "other subscriber  none: CUPTI serves one tool, and that is gtop",
        (_, false) => "other subscriber  ? gtop gave its subscription back: another tool can have CUPTI now",
    };
    theme.span(text.to_owned(), Role::Dim)
}

fn lost_role(records: &Records) -> Role {
    if records.lost() == 0 { Role::Plain } else { Role::Alarm }
}

/// `lost 0`, or by cause.
fn lost(records: &Records) -> String {
    if records.lost() == 0 {
        return "lost 0".to_owned();
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
    format!("lost {} ({share}): {}", units::count(records.lost()), causes.join(", "))
}

fn notes(process: &Process) -> Option<String> {
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

fn pool_rows(
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
        if let Some(trouble) = pool::trouble(pool, &cx.state.zone) {
            for (i, line) in wrap(&trouble, cells).into_iter().enumerate() {
                push(if first && i < 2 { 1 } else { 8 }, i > 0, vec![theme.span(line, Role::Warn)]);
            }
        }
    }
}

/// The verdict on this CUPTI, and why.
fn verdict(process: &Process) -> (String, &'static str) {
    let Some(cupti) = &process.cupti else { return ("CUPTI  not called yet".to_owned(), "") };
    let word = match cupti.verdict {
        Verdict::Sound => "sound",
        Verdict::Defective => "DEFECTIVE",
        Verdict::Unknown => "unmeasured",
    };
    (format!("CUPTI {} {word}", cupti.version), cupti.reason)
}

fn verdict_role(process: &Process) -> Role {
    match process.cupti.as_ref().map(|cupti| cupti.verdict) {
        Some(Verdict::Sound) => Role::Good,
        Some(Verdict::Defective | Verdict::Unknown) => Role::Warn,
        None => Role::Dim,
    }
}

/// What watching costs inside the process.
fn cost(theme: Theme, process: &Process, cells: usize) -> Option<Vec<Span<'static>>> {
    let buffers = process.host_buffers.as_ref()?;
    let part = |rank, text: String| Part::new(rank, vec![theme.span(text, Role::Dim)]);
    let parts = vec![
        part(0, format!("shim  CPU {}", units::duration(buffers.cpu_ns))),
        part(1, format!("callbacks {}", units::duration(buffers.callback_ns))),
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
