//! What was found, above the event log: a sentence each, how that is known, and what to do.

use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::Canvas;
use super::events::mark;
use super::state::Pane;
use super::text::wrap;
use super::theme::Role;
use super::{Cx, alone, units};

/// Draws the tab of events: findings above, if there are any, the log below.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let count = cx.process.map_or(0, |process| process.findings.len());
    let most = area.height * 2 / 3;
    if count == 0 || most < 3 {
        return alone(cx, Pane::Events, area, canvas);
    }
    let cells = usize::from(area.width).saturating_sub(2);
    let lines = lines(cx, cells, usize::from(most) - 1);
    let shown = lines.len().min(usize::from(most) - 1);
    let left_out = lines.len() - shown;
    let note =
        if left_out > 0 { format!(", {} left out", units::some(left_out, "line")) } else { String::new() };
    let title = format!("{}{note}", units::some(count, "finding"));
    canvas.put(area, 1, 0, &title, cx.theme().style(Role::Strong));
    let inner = Rect { x: area.x + 1, y: area.y + 1, width: cells as u16, height: shown as u16 };
    for (row, spans) in lines.into_iter().take(shown).enumerate() {
        canvas.spans(inner, row, spans);
    }
    let taken = shown as u16 + 1;
    let rest = Rect { y: area.y + taken, height: area.height - taken, ..area };
    alone(cx, Pane::Events, rest, canvas);
}

/// The lines of all findings of the process shown; only sentences when there are fewer than `room` lines for all.
fn lines(cx: &Cx<'_>, cells: usize, room: usize) -> Vec<Vec<Span<'static>>> {
    let Some(process) = cx.process else { return Vec::new() };
    let whole = of(cx, &process.findings, cells, true);
    if whole.len() <= room { whole } else { of(cx, &process.findings, cells, false) }
}

fn of(
    cx: &Cx<'_>,
    findings: &[crate::model::snapshot::Finding],
    cells: usize,
    whole: bool,
) -> Vec<Vec<Span<'static>>> {
    let theme = cx.theme();
    let mut lines = Vec::new();
    for finding in findings {
        let (mark, role) = mark(finding.severity);
        for (i, line) in wrap(&finding.sentence, cells.saturating_sub(2)).into_iter().enumerate() {
            let head = if i == 0 { format!("{mark} ") } else { "  ".to_owned() };
            lines.push(vec![theme.span(head, role), theme.span(line, role)]);
        }
        if !whole {
            continue;
        }
        let parts = finding.evidence.iter().map(|evidence| ("·", evidence, Role::Dim));
        for (head, text, role) in parts.chain([("→", &finding.next, Role::Plain)]) {
            for (i, line) in wrap(text, cells.saturating_sub(4)).into_iter().enumerate() {
                let head = if i == 0 { format!("  {head} ") } else { "    ".to_owned() };
                lines.push(vec![theme.span(head, Role::Dim), theme.span(line, role)]);
            }
        }
    }
    lines
}
