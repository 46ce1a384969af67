//! What the mouse does: it clicks what the last frame showed, turns through lists and zooms, and chooses stretches of
//! the timeline. Everything it does a key can do, too.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::apply::move_rows;
use super::{Action, Key, Outcome, apply, press};
use crate::model::snapshot::Snapshot;
use crate::view::{self, Pane, Popup, Range, Target, ViewState, hull};

/// Rows one turn of the wheel moves.
const TURN: isize = 3;

/// Handles one event of the mouse.
pub fn mouse(event: MouseEvent, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let at = Position::new(event.column, event.row);
    match event.kind {
        MouseEventKind::Down(MouseButton::Left) => click(at, state, snapshot),
        MouseEventKind::Drag(MouseButton::Left) => drag(at, state, snapshot),
        MouseEventKind::Up(MouseButton::Left) => {
            state.pressed = None;
            Outcome::Nothing
        }
        MouseEventKind::ScrollUp => turn(at, event.modifiers, -1, state, snapshot),
        MouseEventKind::ScrollDown => turn(at, event.modifiers, 1, state, snapshot),
        MouseEventKind::ScrollLeft => turn(at, KeyModifiers::SHIFT, -1, state, snapshot),
        MouseEventKind::ScrollRight => turn(at, KeyModifiers::SHIFT, 1, state, snapshot),
        _ => Outcome::Nothing,
    }
}

fn click(at: Position, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    state.note = None;
    state.pressed = None;
    let target = state.seen.target(at);
    let lies_over = state.popup.is_some() || !state.pending.is_empty();
    if lies_over && !matches!(target, Some((_, Target::Popup | Target::Key(_) | Target::Pick(_)))) {
        // Beside what lies over the panes: it closes, but a question wants its answer.
        match &state.popup {
            Some(Popup::Question(_) | Popup::Leave) => {}
            Some(Popup::Filter(_)) => {
                return Key::parse("esc").map_or(Outcome::Draw, |esc| press(esc, state, snapshot));
            }
            _ => {
                state.popup = None;
                state.pending.clear();
            }
        }
        return Outcome::Draw;
    }
    match target {
        Some((_, Target::Key(key))) => return press(key, state, snapshot),
        Some((_, Target::Action(action))) => return apply(action, state, snapshot),
        Some((_, Target::Column(sort))) => {
            state.focus = Pane::Kernels;
            state.reversed = sort == state.sort && !state.reversed;
            state.sort = sort;
            state.kernel = None;
        }
        Some((_, Target::Pick(at))) => {
            if let Some(Popup::Pick(picker)) = &mut state.popup {
                picker.at = at;
                return Key::parse("enter").map_or(Outcome::Draw, |enter| press(enter, state, snapshot));
            }
        }
        Some((_, Target::Process(pid))) => state.show_process(pid),
        Some((_, Target::Memory(row))) => {
            state.focus = Pane::Memory;
            state.memory_row = Some(row);
        }
        Some((_, Target::Kernel(id))) => {
            if state.focus == Pane::Kernels && state.kernel == Some(id) {
                return apply(Action::Detail, state, snapshot);
            }
            state.focus = Pane::Kernels;
            state.kernel = Some(id);
        }
        Some((area, Target::Lane(lane))) => {
            state.focus = Pane::Timeline;
            state.timeline.lane = lane;
            state.timeline.range = Range::None;
            let (newest, columns) = (newest(state, snapshot), state.seen.columns);
            state.timeline.point(usize::from(at.x - area.x), newest, columns);
            state.pressed = Some(state.timeline.under_cursor(newest, columns));
        }
        Some((_, Target::Popup)) => return Outcome::Nothing,
        None => match state.seen.pane(at) {
            Some(pane) => state.focus = pane,
            None => return Outcome::Nothing,
        },
    }
    Outcome::Draw
}

fn newest(state: &ViewState, snapshot: &Snapshot) -> u64 {
    state.process(snapshot).map_or(0, view::newest)
}

/// Chooses the stretch from where the button was pressed.
fn drag(at: Position, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let Some(from) = state.pressed else { return Outcome::Nothing };
    let Some(left) = state.seen.targets.iter().find(|(_, target)| matches!(target, Target::Lane(_))) else {
        return Outcome::Nothing;
    };
    let (newest, columns) = (newest(state, snapshot), state.seen.columns);
    state.timeline.point(usize::from(at.x.saturating_sub(left.0.x)), newest, columns);
    state.timeline.range = Range::Closed(hull(from, state.timeline.under_cursor(newest, columns)));
    Outcome::Draw
}

/// The wheel: zooms the timeline around the pointer, with shift or sideways it pans; elsewhere it moves rows.
fn turn(at: Position, held: KeyModifiers, by: isize, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    if state.popup.is_some() {
        let action = if by < 0 { Action::Up } else { Action::Down };
        return match state.popup {
            Some(Popup::Help(_) | Popup::Detail(..)) => apply(action, state, snapshot),
            Some(Popup::Pick(_)) => Key::parse(if by < 0 { "up" } else { "down" })
                .map_or(Outcome::Draw, |key| press(key, state, snapshot)),
            _ => Outcome::Nothing,
        };
    }
    let (newest, columns) = (newest(state, snapshot), state.seen.columns);
    match (state.seen.pane(at), state.seen.target(at)) {
        (Some(Pane::Timeline), _) if held.contains(KeyModifiers::SHIFT) => {
            state.timeline.pan(by * (columns / 10).max(1).cast_signed(), newest, columns);
        }
        (Some(Pane::Timeline), Some((area, Target::Lane(_)))) => {
            state.timeline.zoom_around(usize::from(at.x - area.x), -by, newest, columns);
        }
        (Some(Pane::Timeline), _) => state.timeline.zoom(-by, newest, columns),
        (Some(pane), _) => {
            let focus = std::mem::replace(&mut state.focus, pane);
            move_rows(state, snapshot, by * TURN);
            state.focus = focus;
        }
        (None, _) => return Outcome::Nothing,
    }
    Outcome::Draw
}
