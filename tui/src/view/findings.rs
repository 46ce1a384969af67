//! What was found, above the event log: a sentence each, how that is known, and what to do. One is selected and shown in
//! full first; the others as far as there is room.

use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::Canvas;
use super::events::{kept, mark};
use super::state::{Pane, ViewState};
use super::text::{cut_end, wrap};
use super::theme::Role;
use super::{Cx, TABS, Theme, alone, units};
use crate::model::snapshot::{Finding, Process};

/// From so many lines on it is said what was looked for.
const TALL: u16 = 24;
/// Events that are left room for below.
const EVENTS: usize = 3;

/// Findings that come before the events in the list of what is selected: there are some on their tab alone.
pub(super) fn before(state: &ViewState, process: Option<&Process>) -> usize {
    let here = TABS.get(state.tab).is_some_and(|tab| tab.pane == Some(Pane::Events));
    process.filter(|_| here).map_or(0, |process| process.findings.len())
}

/// The finding that is selected, if one is.
pub(super) fn selected<'a>(state: &ViewState, process: Option<&'a Process>) -> Option<&'a Finding> {
    let at = state.scroll[Pane::Events as usize];
    process?.findings.get(at).filter(|_| at < before(state, process))
}

/// A finding in full.
pub(super) fn detail(finding: &Finding, state: &ViewState) -> (String, Vec<String>) {
    let mut lines = vec![finding.sentence.clone(), String::new()];
    lines.extend(finding.evidence.iter().map(|evidence| format!("· {evidence}")));
    if finding.since > 0 {
        lines.push(format!("· since {}", units::clock(finding.since, &state.zone)));
    }
    lines.extend([String::new(), format!("→ {}", finding.next)]);
    (format!("Finding {}", finding.rule), lines)
}

/// Draws the tab of events: findings above, if there are any, the log below.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let findings = cx.process.map_or(&[][..], |process| &process.findings);
    let events = kept(cx).len().clamp(1, EVENTS) + 2;
    let most = usize::from(area.height).saturating_sub(events);
    if findings.is_empty() && area.height >= TALL {
        let rest = nothing(cx, area, canvas);
        return alone(cx, Pane::Events, rest, canvas);
    }
    if findings.is_empty() || most < 2 {
        return alone(cx, Pane::Events, area, canvas);
    }
    let cells = usize::from(area.width).saturating_sub(2);
    let chosen = cx.state.scroll[Pane::Events as usize];
    let levels = levels(findings, chosen, cells, most - 1);
    let hidden = levels.iter().filter(|level| level.is_none()).count();
    let mut title = units::some(findings.len(), "finding");
    if hidden > 0 {
        title = format!("{title}, {hidden} not shown");
    }
    if levels.iter().any(|level| *level != Some(Level::Whole)) {
        title = format!("{title}  (↑ ↓ select, enter: in full)");
    }
    canvas.put(area, 1, 0, &title, cx.theme().style(Role::Strong));
    let shown = findings.iter().zip(&levels).enumerate();
    let lines: Vec<_> = shown
        .filter_map(|(i, (finding, level))| Some(lines(cx.theme(), finding, (*level)?, cells, i == chosen)))
        .flatten()
        .collect();
    let height = lines.len().min(most - 1) as u16;
    let inner = Rect { x: area.x + 1, y: area.y + 1, width: cells as u16, height };
    for (row, spans) in lines.into_iter().take(usize::from(height)).enumerate() {
        canvas.spans(inner, row, spans);
    }
    let rest = Rect { y: area.y + height + 1, height: area.height - height - 1, ..area };
    alone(cx, Pane::Events, rest, canvas);
}

/// Says what would be found; gives what is left.
fn nothing(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) -> Rect {
    let Some(process) = cx.process else { return area };
    let early = match process.graphs_view.observers {
        Some(_) => "",
        None => "; what becomes of graphs and captures is told after an early start alone (gtop run --early)",
    };
    let words = if process.unseen {
        "No finding: nothing of its work could be seen.".to_owned()
    } else {
        format!(
            "No finding. Looked for: memory that grows, device buffers of CUPTI that leak, graphs that grow, go unused or \
         are kept, captures that break, launches and updates that fail, waits while the device idles, streams that \
         wait for each other{early}."
        )
    };
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let lines = wrap(&words, usize::from(inner.width));
    let taken = (lines.len() as u16).min(area.height);
    for (row, line) in lines.into_iter().enumerate() {
        canvas.spans(inner, row, vec![cx.theme().span(line, Role::Dim)]);
    }
    Rect { y: area.y + taken, height: area.height - taken, ..area }
}

/// How much of a finding is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// The beginning of its sentence.
    Line,
    /// Its sentence.
    Sentence,
    /// … and what to do.
    Next,
    /// … and how it is known.
    Whole,
}

/// How much of each finding `room` lines show; nothing of those there is no line for. The chosen one comes first.
fn levels(findings: &[Finding], chosen: usize, cells: usize, room: usize) -> Vec<Option<Level>> {
    let first = chosen.min(findings.len() - 1);
    if findings.len() > room {
        let from = first.saturating_sub(room / 2).min(findings.len() - room);
        let shown = |i| (from..from + room).contains(&i);
        return (0..findings.len()).map(|i| shown(i).then_some(Level::Line)).collect();
    }
    let mut levels = vec![Level::Line; findings.len()];
    let mut left = room - findings.len();
    let mut raise = |at: usize, to: Level, levels: &mut Vec<Level>| {
        let more = height(&findings[at], to, cells).saturating_sub(height(&findings[at], levels[at], cells));
        if levels[at] < to && more <= left {
            left -= more;
            levels[at] = to;
        }
    };
    for level in [Level::Whole, Level::Next, Level::Sentence] {
        raise(first, level, &mut levels);
    }
    for level in [Level::Sentence, Level::Next, Level::Whole] {
        (0..findings.len()).for_each(|at| raise(at, level, &mut levels));
    }
    levels.into_iter().map(Some).collect()
}

/// Lines that so much of a finding takes.
fn height(finding: &Finding, level: Level, cells: usize) -> usize {
    if level == Level::Line { 1 } else { lines(Theme::MONO, finding, level, cells, false).len() }
}

fn lines(
    theme: Theme,
    finding: &Finding,
    level: Level,
    cells: usize,
    selected: bool,
) -> Vec<Vec<Span<'static>>> {
    let (mark, role) = mark(finding.severity);
    let room = cells.saturating_sub(3);
    let at = if selected { "▸" } else { " " };
    let sentence = match level {
        Level::Line => vec![cut_end(&finding.sentence, room)],
        _ => wrap(&finding.sentence, room),
    };
    let mut lines = Vec::new();
    for (i, line) in sentence.into_iter().enumerate() {
        let head = if i == 0 { format!("{at}{mark} ") } else { "   ".to_owned() };
        lines.push(vec![theme.span(head, role), theme.span(line, role)]);
    }
    let evidence = finding.evidence.iter().filter(|_| level == Level::Whole);
    let parts = evidence.map(|evidence| ("·", evidence, Role::Dim));
    let next = (level >= Level::Next).then_some(("→", &finding.next, Role::Plain));
    for (head, text, role) in parts.chain(next) {
        for (i, line) in wrap(text, room.saturating_sub(2)).into_iter().enumerate() {
            let head = if i == 0 { format!("   {head} ") } else { "     ".to_owned() };
            lines.push(vec![theme.span(head, Role::Dim), theme.span(line, role)]);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::message::Severity;

    fn findings(count: usize) -> Vec<Finding> {
        let finding = |i| Finding {
            rule: "rule",
            severity: Severity::Warning,
            sentence: format!("finding {i} says something that takes more than one line of forty cells"),
            evidence: vec!["it was seen".to_owned(), "twice".to_owned()],
            next: "do this".to_owned(),
            since: 0,
        };
        (0..count).map(finding).collect()
    }

    #[test]
    fn the_chosen_one_is_whole_and_the_others_as_far_as_there_is_room() {
        use Level::{Line, Next, Sentence, Whole};
        let all = findings(3);
        assert_eq!(height(&all[0], Whole, 40), 5);
        let of = |chosen, room| levels(&all, chosen, 40, room);
        assert_eq!(of(0, 15), [Some(Whole); 3]);
        assert_eq!(of(1, 11), [Some(Next), Some(Whole), Some(Next)]);
        assert_eq!(of(1, 9), [Some(Sentence), Some(Whole), Some(Sentence)]);
        assert_eq!(of(2, 5), [Some(Line), Some(Line), Some(Next)]);
        assert_eq!(of(2, 3), [Some(Line); 3]);
        assert_eq!(of(2, 2), [None, Some(Line), Some(Line)]);
        assert_eq!(of(9, 2), [None, Some(Line), Some(Line)], "an event is selected");
    }
}
