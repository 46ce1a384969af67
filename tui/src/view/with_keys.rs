//! What keys do to the screen, and what they ask for.

use gtop_protocol::{Kind, KindSet};
use ratatui::layout::Size;

use super::tests::{keys, state};
use super::*;
use crate::app::{Answer, Ask};
use crate::input::{self, BINDINGS, Outcome};

#[test]
fn toggling_asks_exactly_where_it_would_harm() {
    let snapshot = fixture::vllm();
    let mut state = state();
    let kernel = Ask::Disable(KindSet::EMPTY.with(Kind::Kernel));
    assert_eq!(keys("t k", &mut state, &snapshot), Outcome::Ask { pid: 844, ask: kernel, yes: false });
    assert_eq!(keys("t m", &mut state, &snapshot), Outcome::Draw);
    assert!(
        matches!(&state.popup, Some(Popup::Question(question)) if question.consequence.contains("13.0.85"))
    );
    assert_eq!(keys("n", &mut state, &snapshot), Outcome::Draw);
    assert_eq!(state.popup, None);
    let memcpy = Ask::Disable(KindSet::EMPTY.with(Kind::Memcpy));
    assert_eq!(keys("t m y", &mut state, &snapshot), Outcome::Ask { pid: 844, ask: memcpy, yes: true });
}

#[test]
fn a_shim_that_wants_a_yes_is_asked_again_with_one() {
    let snapshot = fixture::vllm();
    let mut state = state();
    let ask = Ask::Disable(KindSet::EMPTY.with(Kind::Kernel));
    let outcome = gtop_protocol::message::Outcome::NeedsYes;
    let answer = Answer { outcome, text: "it would do harm".to_owned() };
    input::answered(844, ask.clone(), &answer, &mut state);
    assert_eq!(keys("y", &mut state, &snapshot), Outcome::Ask { pid: 844, ask, yes: true });
}

#[test]
fn an_answer_without_words_takes_away_only_that_it_was_asked() {
    let snapshot = fixture::vllm();
    let mut state = state();
    let ask = Ask::Disable(KindSet::EMPTY.with(Kind::Overhead));
    let outcome = gtop_protocol::message::Outcome::Done;
    let mut answered = |note: Option<&str>, text: &str| {
        state.note = note.map(str::to_owned);
        let answer = Answer { outcome, text: text.to_owned() };
        input::answered(844, ask.clone(), &answer, &mut state);
        state.note.take()
    };
    let asked = format!("asked: {}", super::ask_title(&ask));
    assert_eq!(answered(Some(&asked), ""), None);
    assert_eq!(answered(Some("of a later key"), "").as_deref(), Some("of a later key"));
    assert_eq!(answered(Some(&asked), "done so").as_deref(), Some("done so"));
    assert!(matches!(keys("t o", &mut state, &snapshot), Outcome::Ask { .. }));
    assert!(state.note.is_some_and(|note| note.starts_with("asked: ")));
}

#[test]
fn read_only_refuses_toggles_and_marks() {
    let snapshot = fixture::vllm();
    let mut read_only = fixture::vllm();
    std::sync::Arc::make_mut(&mut read_only.processes[0].identity).read_only = true;
    for (mine, snapshot) in [(true, &snapshot), (false, &read_only)] {
        for text in ["t k", "t m", "m"] {
            let mut state = ViewState { read_only: mine, ..state() };
            assert_eq!(keys(text, &mut state, snapshot), Outcome::Draw);
            assert_eq!(state.popup, None);
            assert!(state.note.is_some_and(|note| note.starts_with("read-only")), "{text}");
        }
    }
}

#[test]
fn leaving_a_launched_command_asks_what_becomes_of_it() {
    let snapshot = fixture::vllm();
    let mut state = ViewState { launched: Some("vllm serve".to_owned()), ..state() };
    assert_eq!(keys("q", &mut state, &snapshot), Outcome::Draw);
    assert_eq!(keys("esc", &mut state, &snapshot), Outcome::Draw);
    assert_eq!(keys("q s", &mut state, &snapshot), Outcome::Quit { stop: true });
    assert_eq!(keys("ctrl-c l", &mut state, &snapshot), Outcome::Quit { stop: false });
    let mut alone = super::ViewState::default();
    assert_eq!(keys("q", &mut alone, &snapshot), Outcome::Quit { stop: false });
}

#[test]
fn the_help_lists_every_action_and_the_footer_takes_its_keys_from_the_list() {
    let (snapshot, mut state) = (fixture::vllm(), state());
    keys("?", &mut state, &snapshot);
    let text = render_text(&snapshot, &state, Size::new(200, 100));
    for binding in BINDINGS {
        assert!(text.contains(binding.what), "{}", binding.what);
    }
    let footer = |focus, replay| {
        let snapshot = Snapshot { replay, ..fixture::vllm() };
        let text = render_text(&snapshot, &ViewState { focus, ..self::state() }, Size::new(200, 36));
        text.lines().last().unwrap().to_owned()
    };
    let replay =
        crate::model::snapshot::Replay { playing: true, ..crate::model::snapshot::Replay::default() };
    let (timeline, kernels) = (footer(Pane::Timeline, None), footer(Pane::Kernels, None));
    let replayed = footer(Pane::Events, Some(replay));
    for hint in BINDINGS.iter().filter(|b| b.context == input::Context::Panes).filter_map(|b| b.hint) {
        assert!([&timeline, &kernels, &replayed].iter().any(|footer| footer.contains(hint)), "{hint}");
    }
    // A pane's keys are said while it has the keys, and nothing is said that cannot be done.
    assert!(timeline.contains("zoom") && !timeline.contains("sort") && kernels.contains("s sort"));
    assert!(replayed.contains("space pause") && replayed.contains("[ ] step") && !replayed.contains("mark"));
}

#[test]
fn freezing_panning_and_going_live_are_said() {
    let snapshot = fixture::vllm();
    let mut state = state();
    let head = |state: &ViewState| {
        let text = render_text(&snapshot, state, Size::new(120, 36));
        text.lines().take(4).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    assert!(head(&state).contains("● LIVE"));
    keys("space", &mut state, &snapshot);
    assert!(state.frozen && head(&state).contains("● FROZEN"));
    keys("G", &mut state, &snapshot);
    assert!(!state.frozen && head(&state).contains("● LIVE"));
    keys("H", &mut state, &snapshot);
    assert!(head(&state).contains("(. goes live)"), "{}", head(&state));
    keys("end", &mut state, &snapshot);
    assert!(head(&state).contains("/column  live"));
}

#[test]
fn a_selected_kernel_stays_selected_when_the_order_changes() {
    let snapshot = fixture::vllm();
    let mut state = state();
    keys("tab down down", &mut state, &snapshot);
    assert_eq!((state.focus, state.kernel), (Pane::Kernels, Some(2)));
    keys("s", &mut state, &snapshot);
    assert_eq!(state.kernel, None, "another order is looked at from its top");
    keys("down down", &mut state, &snapshot);
    assert!(state.kernel.is_some());
    keys("end", &mut state, &snapshot);
    assert!(state.kernel.is_some_and(|kernel| kernel != 2));
    keys("home", &mut state, &snapshot);
    assert!(render_text(&snapshot, &state, Size::new(120, 36)).contains("▸ "));
}

#[test]
fn the_next_record_is_gone_to() {
    let snapshot = fixture::vllm();
    let mut state = state();
    keys("+ + + + + + + j n n", &mut state, &snapshot);
    let text = render_text(&snapshot, &state, Size::new(120, 36));
    assert!(text.contains("valid"), "{text}");
    keys("p", &mut state, &snapshot);
    assert_eq!(state.note.as_deref(), Some("there is no other process"));
    let eight = fixture::eight();
    keys("p p", &mut state, &eight);
    assert_eq!(state.pid, Some(902));
}
