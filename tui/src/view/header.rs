//! The two lines above every tab: who is watched in which state, and the numbers one must never lose sight of.

use gtop_protocol::Validity;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::StateCode;
use gtop_protocol::viewer::Halted;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Part, fit};
use super::text::{cut_end, width};
use super::theme::Role;
use super::{Cx, Tab, Target, live, pool, sampled, steps, units};
use crate::input::Action;
use crate::model::snapshot::{Begins, Halt, Identity, Link, Process, SourceKind};

/// From so many columns on the first line has room for the pool; below, one that is not well stands in the second, where
/// tabs have no names.
const WIDE: usize = 100;

/// Draws as many of the two lines as there is room for.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let cells = usize::from(area.width);
    let (right, right_width) = fit(live::parts(cx), "  ", cells.saturating_sub(28).max(14));
    let badge = right_width.min(cells) as u16 + 1;
    let room = cells.saturating_sub(right_width + 3);
    spread(canvas, area, 0, who(cx, cells, room), right, right_width);
    let live = Rect { x: area.x + area.width.saturating_sub(badge), width: badge, height: 1, ..area };
    canvas.target(live.intersection(area), Target::Action(Action::Live));
    let (right, right_width) = fit(numbers(cx, cells), " · ", cells.saturating_sub(14));
    let tabs = tabs(cx, cells.saturating_sub(right_width + 3));
    if area.height > 1 {
        let mut x = area.x.saturating_add(1);
        for (spans, number) in &tabs {
            let wide = spans.iter().map(Span::width).sum::<usize>() as u16;
            if let Some(number) = number {
                let tab = Rect { x, y: area.y + 1, width: wide, height: 1 };
                canvas.target(tab, Target::Action(Action::Tab(*number as u8)));
            }
            x = x.saturating_add(wide);
        }
    }
    let tabs = tabs.into_iter().flat_map(|(spans, _)| spans).collect();
    spread(canvas, area, 1, vec![Part::new(0, tabs)], right, right_width);
}

/// Parts from the left, as many as fit beside what stands at the right.
fn spread(
    canvas: &mut Canvas<'_>,
    area: Rect,
    row: usize,
    parts: Vec<Part>,
    right: Vec<Span<'static>>,
    right_width: usize,
) {
    let cells = usize::from(area.width);
    let room = cells.saturating_sub(right_width + usize::from(right_width > 0) * 2 + 1);
    let (left, _) = fit(parts, " · ", room);
    let mut spans = vec![Span::raw(" ")];
    spans.extend(left);
    canvas.spans(Rect { width: (room + 1) as u16, ..area }, row, spans);
    if right_width < cells {
        let at = (cells - right_width - usize::from(right_width + 1 < cells)) as u16;
        canvas.spans(Rect { x: area.x + at, width: area.width - at, ..area }, row, right);
    }
}

/// The name of a process; buffers of CUPTI's do not tell whose they are.
pub(super) fn name_of(identity: &Identity) -> String {
    if identity.name.is_empty() { "unnamed process".to_owned() } else { identity.name.clone() }
}

/// Who is watched, in `room` of `cells` cells.
fn who(cx: &Cx<'_>, cells: usize, room: usize) -> Vec<Part> {
    let theme = cx.theme();
    let demo = cx.snapshot.source.kind == SourceKind::Demo;
    let gtop = if demo { format!("gtop {}", cx.snapshot.source.label) } else { "gtop".to_owned() };
    let mut parts = vec![Part::new(6, vec![theme.span(gtop, Role::Strong)])];
    let Some(process) = cx.process else {
        parts.push(Part::new(0, vec![theme.span(source_words(cx), Role::Plain)]));
        return parts;
    };
    let identity = &process.identity;
    let state = state_span(cx, process);
    let mut pid = if identity.pid == 0 { String::new() } else { format!(" {}", identity.pid) };
    // A number that is cut short would be another process's.
    if width(&pid) + 2 > room {
        pid.clear();
    }
    let most = if cells < 60 {
        // On a small screen the name gives way to the state, and both to the number.
        let beside = room.saturating_sub(width(&pid));
        beside.saturating_sub(3 + state.width()).clamp(6, 12).min(beside)
    } else {
        24
    };
    let mut name = vec![theme.span(cut_end(&name_of(identity), most), Role::Strong)];
    name.push(theme.span(pid, Role::Plain));
    if let Some(inner) = identity.inner_pid {
        let inner = format!(" ({inner} inside)");
        if cells >= 60 || name.iter().map(Span::width).sum::<usize>() + width(&inner) <= room {
            name.push(theme.span(inner, Role::Dim));
        }
    }
    let (count, index) = (cx.snapshot.processes.len(), cx.state.process_index(cx.snapshot).unwrap_or(0));
    let place = format!("{} of {count}", index + 1);
    if count > 1 && cells >= 60 {
        name.push(theme.span(format!(" {place}"), Role::Dim));
    }
    parts.push(Part::new(0, name));
    parts.push(Part::new(1, vec![state]));
    if count > 1 && cells < 60 {
        parts.push(Part::new(2, vec![theme.span(place, Role::Dim)]));
    }
    if let Some(budget) = sampled::badge(process) {
        parts.push(Part::new(2, vec![theme.span(budget, Role::Warn)]));
    }
    parts.push(Part::new(3, vec![kinds_span(cx, process)]));
    parts.push(Part::new(5, vec![theme.span(device_words(cx, process), Role::Plain)]));
    parts.push(Part::new(2, cupti_spans(cx, process)));
    parts.extend(pool_part(cx, process).filter(|_| cells >= WIDE));
    parts
}

/// `H200 #0`, or the count of devices.
fn device_words(cx: &Cx<'_>, process: &Process) -> String {
    match process.devices.as_slice() {
        [] => String::new(),
        [one] => {
            let known = cx.snapshot.devices.iter().find(|device| device.index == *one);
            let name = known.map_or("GPU", |device| device.name.trim_start_matches("NVIDIA ").trim());
            format!("{} #{one}", cut_end(name, 20))
        }
        many => format!("{} GPUs", many.len()),
    }
}

/// The pool, but of a process that has ended: it has given its buffers back.
fn pool_part(cx: &Cx<'_>, process: &Process) -> Option<Part> {
    let (text, role) = pool::glance(process).filter(|_| !is_over(cx, process))?;
    Some(Part::new(if role == Role::Plain { 4 } else { 1 }, vec![cx.theme().span(text, role)]))
}

fn cupti_spans(cx: &Cx<'_>, process: &Process) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let Some(cupti) = &process.cupti else {
        return vec![theme.span("CUPTI not called", Role::Dim)];
    };
    let (word, role) = match cupti.verdict {
        Verdict::Sound => ("sound", Role::Good),
        Verdict::Defective => ("DEFECTIVE", Role::Warn),
        Verdict::Unknown => ("unmeasured", Role::Warn),
    };
    // Interface v1 is what everyone has.
    let interface = if cupti.interface == 2 { "v2 " } else { "" };
    vec![theme.span(format!("CUPTI {} {interface}", cupti.version), Role::Plain), theme.span(word, role)]
}

/// Whether there are records and nothing said in which state the shim was: so it is with raw CUPTI buffers.
pub(super) fn is_untold(process: &Process) -> bool {
    process.state == StateCode::Loaded && !process.heard.state && process.records.shown > 0
}

/// The share of records of the last ten seconds that cannot be believed, where that is most of them, and their commonest
/// class.
pub(super) fn mostly_invalid(process: &Process) -> Option<(f64, Validity)> {
    let [_, share, _] = process.validity.rate_windows;
    let [_, recent, _] = process.validity.windows;
    let bad = Validity::ALL.into_iter().filter(|class| !class.is_valid());
    let class = bad.max_by_key(|class| recent[*class as usize])?;
    share.filter(|share| *share > 0.5).map(|share| (share, class))
}

pub(super) fn halted_word(halt: Halt) -> &'static str {
    match halt.cause {
        Halted::Traced => "IN A DEBUGGER",
        Halted::Blocked => "BLOCKED",
        Halted::Stopped | Halted::No => "STOPPED",
    }
}

/// The state in one word, and how much it matters.
pub(super) fn state_word(process: &Process) -> (String, Role) {
    if is_untold(process) {
        return ("STATE ?".to_owned(), Role::Dim);
    }
    if let Some(halt) = process.halt {
        return (halted_word(halt).to_owned(), Role::BadgeAlarm);
    }
    if process.unheard.is_some() {
        return (format!("{}?", process.state.name().to_uppercase()), Role::Warn);
    }
    if matches!(process.state, StateCode::Armed | StateCode::Silent) && process.is_full() {
        let [_, recent, _] = process.validity.windows;
        let zeros = recent[Validity::Zero as usize] > 0;
        let word = match process.state {
            _ if zeros => "SILENT graphs · ZEROS eager",
            StateCode::Silent => "SILENT",
            _ => "POOL FULL",
        };
        return (word.to_owned(), Role::BadgeAlarm);
    }
    if process.state == StateCode::Armed {
        if let Some((share, class)) = mostly_invalid(process) {
            let class = class.name().replace('_', " ").to_uppercase();
            return (format!("INVALID {} {class}", units::percent(share)), Role::BadgeAlarm);
        }
        if process.quiet.is_some() {
            return ("ARMED, QUIET?".to_owned(), Role::Warn);
        }
    }
    let word = process.state.name().to_uppercase();
    let role = match process.state {
        StateCode::Armed => Role::Good,
        StateCode::Arming => Role::Warn,
        StateCode::Loaded | StateCode::Resting => Role::Dim,
        StateCode::Tainted | StateCode::Silent | StateCode::Unavailable => Role::BadgeAlarm,
    };
    (word, role)
}

/// Whether nothing more comes of a process. A file that was read to its end tells how it was then.
pub(super) fn is_over(cx: &Cx<'_>, process: &Process) -> bool {
    let read = cx.snapshot.source.kind == SourceKind::File && cx.snapshot.replay.is_none();
    !read && matches!(process.link, Link::Ended(_))
}

/// The state in one word; of a process that has ended, the last one.
pub(super) fn state_or_last(cx: &Cx<'_>, process: &Process) -> (String, Role) {
    let (word, role) = state_word(process);
    match role {
        _ if !is_over(cx, process) => (word, role),
        _ if !process.heard.state => ("not watched".to_owned(), Role::Warn),
        Role::BadgeAlarm => (format!("was {word}"), Role::Alarm),
        _ => (format!("was {word}"), Role::Dim),
    }
}

fn state_span(cx: &Cx<'_>, process: &Process) -> Span<'static> {
    let (word, role) = state_or_last(cx, process);
    let dot = match process.state {
        _ if is_over(cx, process) => "○",
        StateCode::Armed | StateCode::Silent | StateCode::Unavailable | StateCode::Tainted => "●",
        StateCode::Loaded | StateCode::Arming | StateCode::Resting => "○",
    };
    cx.theme().span(format!("{dot} {word}"), role)
}

/// The kinds that are on, or why none can be.
fn kinds_span(cx: &Cx<'_>, process: &Process) -> Span<'static> {
    let theme = cx.theme();
    if is_over(cx, process) {
        return Span::raw("");
    }
    if process.state == StateCode::Unavailable {
        let reason = process.reason.as_deref().unwrap_or("no reason given");
        let reason = reason.split(':').next().unwrap_or(reason);
        return theme.span(cut_end(reason, 40), Role::Alarm);
    }
    match process.kinds.enabled {
        none if none.is_empty() && is_untold(process) => theme.span("kinds ?", Role::Dim),
        none if none.is_empty() => theme.span("no kind on", Role::Dim),
        kinds => theme.span(kinds.to_string(), Role::Plain),
    }
}

/// What can be said of the source when there is no process.
pub(super) fn source_words(cx: &Cx<'_>) -> String {
    let source = &cx.snapshot.source;
    let label = if source.label.is_empty() { "the source" } else { &source.label };
    if source.begins == Some(Begins::Used) {
        return format!("waiting until {label} or a process below it uses CUDA");
    }
    if let Some(begins) = source.begins {
        return format!("{} · {label}", begins_in_words(cx, begins));
    }
    match &source.link {
        Link::Connecting => format!("connecting to {label}"),
        Link::Up => format!("{label}: no process yet"),
        Link::Lost { retries, .. } => format!("{label} lost, attempt {retries}"),
        Link::Ended(why) => format!("{label} ended: {why}"),
    }
}

/// When watching begins, and what to do so that it does: first, since a command may be long.
fn begins_in_words(cx: &Cx<'_>, begins: Begins) -> String {
    let key = cx.state.keymap.key_of(Action::Rest);
    match (begins, key) {
        (Begins::At(at), key) => {
            let left = units::age(at.saturating_sub(cx.state.now.max(cx.snapshot.time)) as f64 / 1e9);
            let now = key.map(|key| format!(", {key}: now")).unwrap_or_default();
            format!("watched in {left}{now}")
        }
        (Begins::Used, _) => "watched once it uses CUDA".to_owned(),
        (Begins::Asked { .. }, Some(key)) => format!("{key} begins to watch"),
        (Begins::Asked { pid }, None) => format!("`gtop --attach {pid}` elsewhere begins"),
    }
}

/// A piece of the line of tabs, and the number of the tab it stands for.
type TabPiece = (Vec<Span<'static>>, Option<usize>);

fn cells_of(pieces: &[TabPiece]) -> usize {
    pieces.iter().flat_map(|(spans, _)| spans).map(Span::width).sum()
}

/// The tabs; where there is no room, the present one among the others' names in brief, or their numbers, or it alone.
fn tabs(cx: &Cx<'_>, cells: usize) -> Vec<TabPiece> {
    type Name = fn(&Tab) -> &'static str;
    let theme = cx.theme();
    let named = |i: usize, name: &str, role| {
        let number = theme.span((i + 1).to_string(), Role::Key);
        if name.is_empty() { vec![number] } else { vec![number, theme.span(format!(" {name}"), role)] }
    };
    let title = |i: usize| named(i, cx.tabs()[i].title, Role::Strong);
    let shorter: [Name; 3] = [|tab| tab.title, |tab| tab.brief, |_| ""];
    for name in shorter {
        let mut pieces: Vec<TabPiece> = Vec::new();
        for i in 0..cx.tabs().len() {
            if i > 0 {
                pieces.push((vec![Span::raw(" ")], None));
            }
            let here = i == cx.state.tab;
            if here {
                pieces.push((vec![theme.span("▸", Role::Strong)], None));
            }
            let other = || named(i, name(&cx.tabs()[i]), Role::Dim);
            pieces.push((if here { title(i) } else { other() }, Some(i + 1)));
        }
        if cells_of(&pieces) <= cells {
            return pieces;
        }
    }
    let here = cx.state.tab.min(cx.tabs().len() - 1);
    let mut pieces = vec![(title(here), Some((here + 1) % cx.tabs().len() + 1))];
    let rest = format!(" ({} tabs)", cx.tabs().len());
    if cells_of(&pieces) + width(&rest) <= cells {
        pieces.push((vec![theme.span(rest, Role::Dim)], None));
    }
    pieces
}

/// Rate, lost, invalid and step time; of a process that has ended, what came of it.
fn numbers(cx: &Cx<'_>, cells: usize) -> Vec<Part> {
    let theme = cx.theme();
    let Some(process) = cx.process else { return Vec::new() };
    let unknown = process.is_mute() || matches!(process.state, StateCode::Silent | StateCode::Unavailable);
    let rate = match unknown {
        _ if is_over(cx, process) => format!("{} records", units::glance(process.records.shown as f64)),
        true => "? rec/s".to_owned(),
        false => format!("{} rec/s", units::glance(process.records.per_second)),
    };
    let lost = if process.unseen { "?".to_owned() } else { units::count(process.records.lost()) };
    let more = units::and_more(process.misses_some());
    let mut parts = vec![
        Part::new(2, vec![theme.span(rate, Role::Plain)]),
        Part::new(1, vec![theme.span(format!("lost {lost}{more}"), lost_role(process))]),
        Part::new(0, vec![invalid(cx, process)]),
    ];
    if let Some(steps) = steps::current(process) {
        let text = format!("step {}", units::fine_duration(steps.p50_ns));
        parts.push(Part::new(3, vec![theme.span(text, Role::Plain)]));
    }
    parts.extend(pool_part(cx, process).filter(|part| cells < WIDE && part.rank < 4));
    parts
}

/// How much it matters what is lost, or may be.
pub(super) fn lost_role(process: &Process) -> Role {
    if process.records.is_whole() && !process.misses_some() { Role::Plain } else { Role::Alarm }
}

fn invalid(cx: &Cx<'_>, process: &Process) -> Span<'static> {
    let validity = &process.validity;
    // The worse of ten seconds and of sixty: a step shows at once, and what is over does not go at once.
    let [_, lately, minute] = validity.rate_windows;
    let lately = lately.zip(minute).map(|(lately, minute)| lately.max(minute)).or(minute);
    let rate = if is_over(cx, process) { validity.rate_total } else { lately };
    let bad = rate.is_some_and(|rate| rate > 0.0);
    let (word, role) = match rate {
        None => ("invalid", Role::Warn),
        Some(_) if bad => ("INVALID", Role::Alarm),
        Some(_) => ("invalid", Role::Plain),
    };
    cx.theme().span(format!("{word} {}", units::maybe_percent(rate)), role)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Pool;
    use gtop_protocol::message::PoolState;

    #[test]
    fn the_word_for_what_is_not_well_is_never_green() {
        let mut process = Process { state: StateCode::Armed, ..Process::default() };
        let word = |process: &Process| state_word(process);
        assert_eq!(word(&process), ("ARMED".to_owned(), Role::Good));
        process.quiet = Some(3.0);
        assert_eq!(word(&process), ("ARMED, QUIET?".to_owned(), Role::Warn));
        process.validity.rate_windows[1] = Some(0.97);
        process.validity.windows[1][Validity::Inverted as usize] = 97;
        assert_eq!(word(&process), ("INVALID 97.0 % INVERTED".to_owned(), Role::BadgeAlarm));
        process.pools = vec![Pool { state: PoolState::Exhausted, ..Pool::default() }];
        assert_eq!(word(&process), ("POOL FULL".to_owned(), Role::BadgeAlarm));
        process.validity.windows[1][Validity::Zero as usize] = 5;
        assert_eq!(word(&process), ("SILENT graphs · ZEROS eager".to_owned(), Role::BadgeAlarm));
        process.validity.windows[1] = [0; Validity::ALL.len()];
        process.state = StateCode::Silent;
        assert_eq!(word(&process), ("SILENT".to_owned(), Role::BadgeAlarm));
        process.unheard = Some(1.6);
        assert_eq!(word(&process), ("SILENT?".to_owned(), Role::Warn));
        for (cause, said) in
            [(Halted::Stopped, "STOPPED"), (Halted::Traced, "IN A DEBUGGER"), (Halted::Blocked, "BLOCKED")]
        {
            process.halt = Some(Halt { cause, seconds: 0.4 });
            assert_eq!(word(&process), (said.to_owned(), Role::BadgeAlarm));
        }
    }
}
