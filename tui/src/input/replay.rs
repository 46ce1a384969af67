//! Keys that move in the time of a recording, and those that mean nothing there.

use super::{Action, Key, Line, Outcome};
use crate::app::Ask;
use crate::model::snapshot::Snapshot;
use crate::replay::Wish;
use crate::source::recording::When;
use crate::source::replay::Find;
use crate::view::{self, Popup, ViewState};

/// Does an action that is of a replay, or that has no meaning in one; `None` for all others.
pub(super) fn apply(action: Action, state: &mut ViewState, snapshot: &Snapshot) -> Option<Outcome> {
    let replay = snapshot.replay.is_some();
    let wish = match action {
        Action::Freeze if replay => Wish::PlayPause,
        Action::StepAhead => Wish::Step { ahead: true },
        Action::StepBack => Wish::Step { ahead: false },
        Action::Faster => Wish::Speed { faster: true },
        Action::Slower => Wish::Speed { faster: false },
        Action::NextMark if replay => Wish::Find(Find::Mark { ahead: true }),
        Action::PreviousMark if replay => Wish::Find(Find::Mark { ahead: false }),
        Action::FirstInvalid => Wish::Find(Find::Invalid),
        Action::NextOfKernel => Wish::Find(Find::Kernel(kernels(state, snapshot))),
        Action::Jump if replay => {
            state.popup = Some(Popup::Jump(Line::default(), None));
            return Some(Outcome::Draw);
        }
        Action::Jump => Wish::PlayPause,
        Action::Toggle(_) | Action::Rest | Action::Mark | Action::Record | Action::Signal if replay => {
            state.note = Some("this is a recording: what it shows is over".to_owned());
            return Some(Outcome::Draw);
        }
        _ => return None,
    };
    if !replay {
        state.note = Some("only a replay can be moved in time; `gtop replay FILE` is one".to_owned());
        return Some(Outcome::Draw);
    }
    Some(ask(wish))
}

const fn ask(wish: Wish) -> Outcome {
    Outcome::Ask { pid: 0, ask: Ask::Replay(wish), yes: false }
}

/// The mangled names of the kernels the filter shows, or of the chosen one without a filter.
fn kernels(state: &ViewState, snapshot: &Snapshot) -> Vec<String> {
    let Some(process) = state.process(snapshot) else { return Vec::new() };
    let rows = view::rows(process, state);
    let name = |row: &view::Row<'_>| row.stats.name.mangled.clone();
    if state.filter.is_empty() {
        return rows.get(view::selected(&rows, state.kernel)).map(name).into_iter().collect();
    }
    rows.iter().map(name).collect()
}

/// Handles a key while a time is typed.
pub(super) fn type_time(key: Key, mut line: Line, state: &mut ViewState) -> Outcome {
    if key.is("esc") || key.is("ctrl-c") {
        return Outcome::Draw;
    }
    let mut wrong = None;
    if key.is("enter") {
        match When::parse(line.text().trim()) {
            Ok(when) => return ask(Wish::Jump(when)),
            Err(error) => wrong = Some(error),
        }
    } else {
        line.press(key);
    }
    state.popup = Some(Popup::Jump(line, wrong));
    Outcome::Draw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Replay;

    fn wish(outcome: Option<Outcome>) -> Option<Wish> {
        match outcome {
            Some(Outcome::Ask { ask: Ask::Replay(wish), .. }) => Some(wish),
            _ => None,
        }
    }

    #[test]
    fn a_replay_is_moved_and_nothing_else_is() {
        let (mut state, live) = (ViewState::default(), Snapshot::default());
        assert_eq!(apply(Action::Freeze, &mut state, &live), None);
        assert_eq!(apply(Action::StepAhead, &mut state, &live), Some(Outcome::Draw));
        assert!(state.note.take().unwrap().contains("only a replay"));
        let replay = Snapshot { replay: Some(Replay::default()), ..Snapshot::default() };
        assert_eq!(wish(apply(Action::Freeze, &mut state, &replay)), Some(Wish::PlayPause));
        assert_eq!(wish(apply(Action::StepBack, &mut state, &replay)), Some(Wish::Step { ahead: false }));
        assert_eq!(apply(Action::Signal, &mut state, &replay), Some(Outcome::Draw));
        assert!(state.note.take().unwrap().contains("a recording"));
    }

    #[test]
    fn a_time_that_is_none_can_be_mended() {
        let mut state = ViewState::default();
        let enter = Key::parse("enter").unwrap();
        assert_eq!(type_time(enter, Line::new("90"), &mut state), Outcome::Draw);
        let Some(Popup::Jump(line, Some(error))) = state.popup.take() else { panic!("it is still asked") };
        assert!(error.contains("unit"), "{error}");
        type_time(Key::parse("s").unwrap(), line, &mut state);
        let Some(Popup::Jump(line, None)) = state.popup.take() else { panic!("it is still typed") };
        let jump = type_time(enter, line, &mut state);
        assert_eq!(wish(Some(jump)), Some(Wish::Jump(When::parse("90s").unwrap())));
    }
}
