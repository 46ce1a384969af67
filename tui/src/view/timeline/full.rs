//! Below the lanes, on a tab of its own: the record under the cursor in full, and in numbers the stretch that was chosen
//! or, where there is room beside it, what is on the screen.

use ratatui::layout::Rect;

use super::super::canvas::Canvas;
use super::super::scale::{Window, newest};
use super::super::text::{cut_end, width, wrap};
use super::super::theme::Role;
use super::super::{Cx, ViewState, detail, lanes, stretch, under_cursor, units};
use crate::input::Action;
use crate::model::snapshot::Process;

/// From so many cells on two blocks stand side by side. Else the upper one takes so many lines, where as many are left.
const WIDE: usize = 100;
const LINES: usize = 11;
/// Records on the screen that are looked at one by one.
const LOOK: usize = 20_000;
/// How often the numbers of what is on the screen change while it moves, nanoseconds: they are to be read.
const STEADY: u64 = 500_000_000;

/// Draws the blocks for which there is room.
pub(super) fn draw(cx: &Cx<'_>, process: &Process, window: Window, area: Rect, canvas: &mut Canvas<'_>) {
    // The frame being drawn has its own number of columns.
    let state = ViewState { seen: canvas.seen.clone(), ..cx.state.clone() };
    if let Some(lines) = stretch::chosen(process, &state) {
        block(cx, area, "Chosen stretch", &lines, canvas);
        return;
    }
    let (title, lines) = under(process, &state);
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    if cells >= WIDE {
        let half = area.width / 2;
        block(cx, Rect { width: half - 2, ..area }, &title, &lines, canvas);
        let (title, lines) = on_screen(cx, process, &state, window);
        block(cx, Rect { x: area.x + half, width: area.width - half, ..area }, title, &lines, canvas);
        return;
    }
    let above = if height >= 2 * LINES { LINES as u16 } else { area.height };
    block(cx, Rect { height: above, ..area }, &title, &lines, canvas);
    if above < area.height {
        let (title, lines) = on_screen(cx, process, &state, window);
        block(cx, Rect { y: area.y + above, height: area.height - above, ..area }, title, &lines, canvas);
    }
}

/// The record under the cursor, or why there is none.
fn under(process: &Process, state: &ViewState) -> (String, Vec<String>) {
    if let Some((what, lines)) = detail::record(state, process) {
        return (format!("Under the cursor: {what}"), lines);
    }
    let column = state.timeline.under_cursor(newest(process), state.seen.columns);
    let lanes = lanes(process, state);
    let lane = lanes.get(state.timeline.lane.min(lanes.len().saturating_sub(1)));
    let words = lane.map_or_else(Vec::new, |lane| under_cursor::nothing(process, state, lane, column));
    ("Under the cursor".to_owned(), words)
}

/// What is on the screen in numbers; while that moves, of as long a stretch a moment ago.
fn on_screen(
    cx: &Cx<'_>,
    process: &Process,
    state: &ViewState,
    window: Window,
) -> (&'static str, Vec<String>) {
    let newest = newest(process);
    let moves = state.timeline.held.is_none()
        && !state.frozen
        && cx.snapshot.replay.is_none_or(|replay| replay.playing);
    let (to, title) = if moves && newest > STEADY {
        (newest - newest % STEADY, "On the screen, twice a second")
    } else {
        (window.right.min(newest), "On the screen")
    };
    let from = to.saturating_sub(window.right - window.left);
    (title, stretch::lines(process, state, (from, to), LOOK))
}

/// A rule with a title, and lines below it as far as there is room.
fn block(cx: &Cx<'_>, area: Rect, title: &str, lines: &[String], canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let cells = usize::from(area.width);
    let rule = format!("── {title} ");
    let rule = format!("{rule}{}", "─".repeat(cells.saturating_sub(width(&rule))));
    canvas.put(area, 0, 0, &rule, theme.style(Role::Dim));
    let room = usize::from(area.height).saturating_sub(1);
    let wrapped: Vec<String> = lines
        .iter()
        .flat_map(|line| match width(line) {
            fits if fits <= cells => vec![line.clone()],
            // A row of columns.
            _ if line.starts_with(' ') => vec![cut_end(line, cells)],
            _ => wrap(line, cells),
        })
        .collect();
    let fits = if wrapped.len() > room { room.saturating_sub(1) } else { room };
    for (row, line) in wrapped.iter().take(fits).enumerate() {
        canvas.put(area, 0, row + 1, line, theme.style(Role::Plain));
    }
    if wrapped.len() > fits {
        let key = cx.state.keymap.key_of(Action::Detail).unwrap_or_default();
        let more = format!("{} more ({key} shows all)", units::some(wrapped.len() - fits, "line"));
        canvas.put(area, 0, fits + 1, &more, theme.style(Role::Dim));
    }
}
