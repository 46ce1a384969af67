//! Filters, lists to choose from, and the kernels' table, as keys make them.

use ratatui::layout::Size;

use super::tests::state;
use super::*;
use crate::input::{Key, Outcome, paste, press};
use crate::model::snapshot::Event;

/// Presses keys, each a word; a word in quotes is typed letter by letter.
fn keys(text: &str, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let mut outcome = Outcome::Draw;
    for word in text.split(' ') {
        let typed = word.strip_prefix('\'').map(|word| word.replace('_', " "));
        let keys: Vec<Key> = match &typed {
            Some(letters) => letters.chars().map(|c| Key::parse(&c.to_string()).unwrap()).collect(),
            None => vec![Key::parse(word).unwrap()],
        };
        for key in keys {
            state.seen = render(snapshot, state, Size::new(120, 36)).1;
            outcome = press(key, state, snapshot);
        }
    }
    outcome
}

fn shown(text: &str, size: Size) -> String {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys(text, &mut state, &snapshot);
    render_text(&snapshot, &state, size)
}

#[test]
fn a_filter_holds_on_every_pane_and_is_let_go() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("/ 'flash enter", &mut state, &snapshot);
    insta::assert_snapshot!("filter_120x36", render_text(&snapshot, &state, Size::new(120, 36)));
    assert_eq!(state.filters, ["flash"]);
    keys("esc", &mut state, &snapshot);
    assert!(state.filter.is_empty());
    keys("/ 'stream=13_dur>30us", &mut state, &snapshot);
    let text = render_text(&snapshot, &state, Size::new(120, 36));
    assert!(text.contains("s13") && !text.contains("│ s7"), "it is shown while it is written: {text}");
    keys("esc", &mut state, &snapshot);
    assert!(state.filter.is_empty(), "and not meant until enter is pressed");
}

#[test]
fn what_a_condition_says_nothing_of_is_said() {
    let text = shown("3 / 'stream=99 enter", Size::new(120, 40));
    assert!(text.contains("stream not asked of names"), "{text}");
    let text = shown("3 / 'dur>100us enter", Size::new(120, 40));
    assert!(
        text.contains("filter keeps 1 of 61 kernels") && !text.contains("not asked"),
        "by its longest: {text}"
    );
    // Copies have streams although their lanes are by direction.
    let lane = |text: &str| {
        let screen = shown(&format!("2 / '{text} enter"), Size::new(120, 40));
        screen.lines().find(|line| line.contains("│ copy HtoD")).unwrap().to_owned()
    };
    assert!(lane("stream=99").contains("filtered"), "what runs and is not kept is not called idle");
    assert!(!lane("stream=7").contains("filtered") && !lane("stream=7").contains(" 0 %"));
}

#[test]
fn a_filter_that_cannot_be_read_is_pointed_at() {
    insta::assert_snapshot!("filter_error_80x24", shown("/ 'gemm_dur>10", Size::new(80, 24)));
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("/ 'flash enter / 'x ctrl-u 'nam~x enter", &mut state, &snapshot);
    assert!(matches!(&state.popup, Some(Popup::Filter(line)) if line.error.is_some()), "it can be mended");
    assert_eq!(state.filter.text(), "nam", "what could be read goes on");
    keys("up", &mut state, &snapshot);
    assert!(matches!(&state.popup, Some(Popup::Filter(line)) if line.line.text() == "flash"));
    assert_eq!(paste(" | nvjet\n", &mut state), Outcome::Draw);
    keys("enter", &mut state, &snapshot);
    assert_eq!(state.filter.text(), "flash | nvjet");
    assert_eq!(state.filters, ["flash", "flash | nvjet"]);
    assert_eq!(paste("q", &mut state), Outcome::Nothing);
}

#[test]
fn a_few_letters_choose_a_kernel_and_a_process() {
    insta::assert_snapshot!("pick_kernel_80x24", shown("f 'red", Size::new(80, 24)));
    let (mut state, snapshot) = (state(), fixture::eight());
    keys("f 'splitk enter", &mut state, &snapshot);
    assert_eq!((state.kernel, state.tab), (Some(3), kernels_tab()));
    keys("P '905 enter", &mut state, &snapshot);
    assert_eq!(state.pid, Some(905));
    keys("P down esc", &mut state, &snapshot);
    assert_eq!((state.pid, &state.popup), (Some(905), &None));
}

#[test]
fn the_table_of_kernels_in_every_way() {
    for (name, text) in
        [("sorted", "3 s s s S"), ("templates", "3 o"), ("families", "3 o o"), ("graphs", "3 o o o")]
    {
        insta::assert_snapshot!(format!("kernels_{name}_120x40"), shown(text, Size::new(120, 40)));
    }
    let text = shown("3 o o enter", Size::new(80, 24));
    assert!(text.contains("kernels") && text.contains("share"), "{text}");
}

#[test]
fn kernels_are_compared_with_a_mark() {
    let (mut state, mut snapshot) = (state(), fixture::vllm());
    let mark = Event {
        time: fixture::NOW,
        severity: gtop_protocol::message::Severity::Info,
        pid: Some(844),
        topic: "mark".to_owned(),
        text: "deploy".to_owned(),
    };
    snapshot.events = [snapshot.events.to_vec(), vec![mark]].concat().into();
    state.take_moments(&snapshot);
    state.take_moments(&snapshot);
    assert_eq!(state.moments.len(), 1, "each mark is taken once");
    let rows = std::sync::Arc::make_mut(&mut snapshot.processes[0].kernels);
    rows[0].calls += 1_000;
    rows[0].total_ns += 1_000 * 68_700;
    rows[1].calls += 1_000;
    rows[1].total_ns += 1_000 * 20_000;
    keys("3 c 'deploy enter", &mut state, &snapshot);
    let text = render_text(&snapshot, &state, Size::new(120, 40));
    assert!(
        text.contains("since deploy 17:20:41") && text.contains("+18 %") && text.contains("−37 %"),
        "{text}"
    );
    keys("c 'nothing enter", &mut state, &snapshot);
    assert_eq!(state.baseline.map(|baseline| baseline.label), None);
}

#[test]
fn kernels_are_compared_with_a_recording() {
    let snapshot = fixture::vllm();
    let mut before = fixture::vllm();
    let mut rows = before.processes[0].kernels.to_vec();
    rows[0].total_ns = rows[0].total_ns * 100 / 118;
    rows.remove(1);
    before.processes[0].kernels = rows.into();
    before.processes[0].identity = std::sync::Arc::new(crate::model::snapshot::Identity {
        pid: 1,
        ..crate::model::snapshot::Identity::clone(&before.processes[0].identity)
    });
    let baseline = Baseline::of_recording(&before, "before.gtop".to_owned());
    let mut state =
        ViewState { baseline: Some(baseline.clone()), moments: vec![baseline], tab: 2, ..state() };
    state.focus = Pane::Kernels;
    let text = render_text(&snapshot, &state, Size::new(120, 40));
    assert!(text.contains("against before.gtop") && text.contains("+18 %"), "{text}");
    let name = snapshot.processes[0].kernels[1].name.short.clone();
    let row = text.lines().find(|line| line.contains(&name[..12])).unwrap_or_default();
    assert!(row.contains(" ? "), "what the recording has not is not known: {row}");
    keys("c 'nothing enter", &mut state, &snapshot);
    assert!(state.baseline.is_none());
    keys("c 'before enter", &mut state, &snapshot);
    assert_eq!(state.baseline.map(|baseline| baseline.label).as_deref(), Some("before.gtop"));
}

#[test]
fn graphs_are_filtered_and_trust_says_that_it_is_not() {
    let snapshot = fixture::vllm();
    let all = &snapshot.processes[0].graphs_view.rows;
    let first = all[0].id;
    let text = shown(&format!("4 / 'graph={first} enter"), Size::new(120, 40));
    assert!(text.contains(&format!("filter keeps 1 of {}", units::some(all.len(), "graph"))), "{text}");
    assert!(shown("4 / 'graph=4294967295 enter", Size::new(120, 40)).contains("the filter keeps none"));
    let text = shown("6 / 'flash enter", Size::new(120, 40));
    assert!(text.contains("of all records, whatever the filter"), "{text}");
}

#[test]
fn a_signal_is_sent_after_a_question_and_never_by_those_who_only_look() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    assert_eq!(keys("K 'kill enter", &mut state, &snapshot), Outcome::Draw);
    let text = render_text(&snapshot, &state, Size::new(80, 24));
    assert!(text.contains("send SIGKILL to process 844?") && text.contains("ends at once"), "{text}");
    assert_eq!(keys("y", &mut state, &snapshot), Outcome::Signal { pid: 844, number: 9 });
    keys("5 down K enter", &mut state, &snapshot);
    assert!(
        matches!(&state.popup, Some(Popup::Question(question)) if question.pid == 1_203),
        "the selected one"
    );
    let mut looks = ViewState { read_only: true, ..self::state() };
    keys("K", &mut looks, &snapshot);
    assert_eq!(looks.note.as_deref(), Some("read-only: no signal is sent"));
    assert_eq!(looks.popup, None);
}
