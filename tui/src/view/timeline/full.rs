//! Below the lanes, on a tab of its own: the record under the cursor in full, and in numbers the stretch that was chosen
//! or, where there is room beside it, what is on the screen.

use ratatui::layout::Rect;

use super::super::canvas::Canvas;
use super::super::scale::{Window, newest};
use super::super::{Cx, ViewState, block, detail, lanes, stretch, under_cursor};
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
        block::draw(cx, area, "Chosen stretch", &lines, canvas);
        return;
    }
    let (title, lines) = under(process, &state);
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    if cells >= WIDE {
        let half = area.width / 2;
        block::draw(cx, Rect { width: half - 2, ..area }, &title, &lines, canvas);
        let (title, lines) = on_screen(cx, process, &state, window, height);
        block::draw(cx, Rect { x: area.x + half, width: area.width - half, ..area }, title, &lines, canvas);
        return;
    }
    let above = if height >= 2 * LINES { LINES as u16 } else { area.height };
    block::draw(cx, Rect { height: above, ..area }, &title, &lines, canvas);
    if above < area.height {
        let (title, lines) = on_screen(cx, process, &state, window, height - usize::from(above));
        block::draw(
            cx,
            Rect { y: area.y + above, height: area.height - above, ..area },
            title,
            &lines,
            canvas,
        );
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
    height: usize,
) -> (&'static str, Vec<String>) {
    let newest = newest(process);
    let moves = state.timeline.held.is_none()
        && !state.frozen
        && cx.snapshot.replay.is_none_or(|replay| replay.playing);
    let (from, to, title) = if moves && newest > STEADY {
        let to = newest - newest % STEADY;
        (to.saturating_sub(window.right - window.left), to, "On the screen, twice a second")
    } else {
        (window.left, window.right.min(newest).max(window.left), "On the screen")
    };
    // Beside the lanes and what is said of all of them.
    let names = height.saturating_sub(process.lanes.len() + 12);
    (title, stretch::lines(process, state, (from, to), LOOK, names))
}
