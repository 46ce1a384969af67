//! The mouse on drawn screens: what is clicked is what is there.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Size;

use super::tests::state;
use super::*;
use crate::input::{Outcome, mouse};

const SIZE: Size = Size { width: 120, height: 36 };

/// One event at a place, after a frame.
fn event(kind: MouseEventKind, (column, row): (u16, u16), state: &mut ViewState) -> Outcome {
    let snapshot = fixture::vllm();
    state.seen = render(&snapshot, state, SIZE).1;
    mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }, state, &snapshot)
}

fn click(at: (u16, u16), state: &mut ViewState) -> Outcome {
    event(MouseEventKind::Down(MouseButton::Left), at, state)
}

/// The place of the first cell of `text` on the screen.
fn place(text: &str, state: &ViewState) -> (u16, u16) {
    let screen = render_text(&fixture::vllm(), state, SIZE);
    let found = screen.lines().enumerate().find_map(|(row, line)| Some((line.find(text)?, row, line)));
    let (at, row, line) = found.unwrap_or_else(|| panic!("no {text} on\n{screen}"));
    (text::width(&line[..at]) as u16, row as u16)
}

#[test]
fn tabs_headings_and_rows_are_clicked() {
    let mut state = state();
    click(place("3 Kernels", &state), &mut state);
    assert_eq!((state.tab, state.focus), (2, Pane::Kernels));
    let row = place("FlashAttnFwdCombine", &state);
    click(row, &mut state);
    assert_eq!((state.kernel, &state.popup), (Some(2), &None));
    click(row, &mut state);
    assert!(matches!(state.popup, Some(Popup::Detail(..))), "a second click shows it in full");
    click((0, 0), &mut state);
    assert_eq!(state.popup, None, "a click beside it closes it");
    assert_eq!(state.tab, 2, "and does nothing else");
}

#[test]
fn keys_of_the_footer_are_clicked() {
    let mut state = state();
    click(place("? help", &state), &mut state);
    assert!(matches!(state.popup, Some(Popup::Help(_))));
    event(MouseEventKind::ScrollDown, (60, 18), &mut state);
    assert_eq!(state.popup, Some(Popup::Help(1)));
    state.popup = None;
    click(place("space freeze", &state), &mut state);
    assert!(state.frozen);
    click(place("t kinds", &state), &mut state);
    assert_eq!(state.pending.len(), 1, "the kinds are offered");
    click((0, 0), &mut state);
    assert!(state.pending.is_empty());
}

#[test]
fn a_question_is_not_clicked_away() {
    let mut state = state();
    for key in ["t", "m"] {
        crate::input::press(crate::input::Key::parse(key).unwrap(), &mut state, &fixture::vllm());
    }
    assert_eq!(click((0, 0), &mut state), Outcome::Draw);
    assert!(matches!(state.popup, Some(Popup::Question(_))));
}

#[test]
fn the_timeline_is_pointed_at_dragged_and_zoomed() {
    let mut state = state();
    let (name, row) = place("s13", &state);
    let at = (name + 40, row);
    click(at, &mut state);
    assert_eq!((state.focus, state.timeline.lane), (Pane::Timeline, 1));
    let screen = render_text(&fixture::vllm(), &state, SIZE);
    assert!(screen.contains("● −0") || screen.contains("● −"), "it has left live: {screen}");
    event(MouseEventKind::Drag(MouseButton::Left), (at.0 + 10, row), &mut state);
    let columns = state.seen.columns;
    let (from, to) = state.timeline.chosen(fixture::NOW, columns).unwrap();
    assert_eq!((to - from) / state.timeline.step(), 11, "both ends are in it");
    assert_eq!(event(MouseEventKind::Up(MouseButton::Left), at, &mut state), Outcome::Nothing);
    assert_eq!(event(MouseEventKind::Drag(MouseButton::Left), at, &mut state), Outcome::Nothing);

    let under = |state: &ViewState| state.timeline.under_cursor(fixture::NOW, columns);
    let step = state.timeline.step();
    event(MouseEventKind::ScrollUp, at, &mut state);
    assert!(state.timeline.step() < step);
    let (from, to) = under(&state);
    event(MouseEventKind::ScrollDown, at, &mut state);
    let (left, right) = under(&state);
    assert!(left <= from && to <= right, "the time under the pointer stays there");

    click(place("● −", &state), &mut state);
    assert_eq!(state.timeline.held, None, "a click on the badge goes live");
}

#[test]
fn the_wheel_moves_the_rows_under_it_and_not_the_focus() {
    let mut state = state();
    event(MouseEventKind::ScrollDown, place("triton_red", &state), &mut state);
    assert_eq!((state.kernel, state.focus), (Some(3), Pane::Timeline));
    assert_eq!(event(MouseEventKind::Moved, (1, 1), &mut state), Outcome::Nothing);
}

#[test]
fn no_place_of_any_screen_breaks_it() {
    let snapshot = fixture::eight();
    for (width, height) in [(1, 1), (40, 10), (80, 24), (200, 60)] {
        for tab in 0..tabs(&snapshot).len() {
            let mut state = ViewState { tab, ..state() };
            for at in (0..u32::from(width) * u32::from(height)).step_by(97) {
                let (column, row) = ((at % u32::from(width)) as u16, (at / u32::from(width)) as u16);
                state.seen = render(&snapshot, &state, Size::new(width, height)).1;
                for kind in [
                    MouseEventKind::Down(MouseButton::Left),
                    MouseEventKind::Drag(MouseButton::Left),
                    MouseEventKind::ScrollUp,
                    MouseEventKind::ScrollDown,
                ] {
                    let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
                    if let Outcome::Quit { .. } = mouse(event, &mut state, &snapshot) {
                        assert!(row + 1 == height, "only the footer can end it");
                    }
                }
                (state.popup, state.tab) = (None, tab);
            }
        }
    }
}
