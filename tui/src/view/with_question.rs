//! A question that comes by itself.

use std::sync::Arc;

use ratatui::layout::Size;

use super::{Popup, ViewState, fixture, render_text};
use crate::app::Ask;
use crate::input::{Key, Outcome, press};
use crate::model::snapshot::{Asks, Snapshot};

fn asking() -> Snapshot {
    let lines = vec!["One thread is stopped for a moment.".to_owned(), "It stays for good.".to_owned()];
    let asks = Asks { pid: 844, title: "Put the shim into process 844?".to_owned(), lines };
    let mut snapshot = fixture::nothing();
    snapshot.source.asks = Some(Arc::new(asks));
    snapshot
}

fn answer(key: &str, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    press(Key::parse(key).unwrap(), state, snapshot)
}

#[test]
fn it_waits_until_nobody_types_and_has_one_answer() {
    for (key, yes) in [("y", true), ("n", false), ("esc", false), ("ctrl-c", false)] {
        let (snapshot, mut state) = (asking(), ViewState::default());
        state.take_question(&snapshot, false);
        assert_eq!(state.popup, None, "a key was meant for something else");
        state.take_question(&snapshot, true);
        for size in [Size::new(80, 24), Size::new(40, 10)] {
            let text = render_text(&snapshot, &state, size);
            assert!(
                text.contains("▲ Put the shim into process 844?") && text.contains("yes, do it"),
                "{text}"
            );
        }
        // The key is for it, whoever has it elsewhere.
        let outcome = answer(key, &mut state, &snapshot);
        assert!(
            matches!(outcome, Outcome::Ask { pid: 844, ask: Ask::Inject(said), .. } if said == yes),
            "{key}"
        );
        state.take_question(&snapshot, true);
        assert_eq!(state.popup, None, "until the answer has come back it is not asked again");
    }
}

#[test]
fn it_changes_and_goes_with_what_is_asked_and_lies_over_nothing_else() {
    let (mut snapshot, mut state) = (asking(), ViewState::default());
    answer("?", &mut state, &snapshot);
    state.take_question(&snapshot, true);
    assert!(matches!(state.popup, Some(Popup::Help(_))));
    answer("esc", &mut state, &snapshot);
    state.take_question(&snapshot, true);
    let two = Asks {
        title: "Put the shim into 2 processes?".to_owned(),
        ..(**snapshot.source.asks.as_ref().unwrap()).clone()
    };
    snapshot.source.asks = Some(Arc::new(two));
    state.take_question(&snapshot, false);
    assert!(
        matches!(&state.popup, Some(Popup::Question(question)) if question.title.contains("2 processes"))
    );
    snapshot.source.asks = None;
    state.take_question(&snapshot, false);
    assert_eq!(state.popup, None);
    // Another one is a question of its own.
    state.take_question(&asking(), true);
    assert!(matches!(state.popup, Some(Popup::Question(_))));
}
