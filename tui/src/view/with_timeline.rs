//! The timeline as an instrument: jumps, marks, chosen stretches, what is under the cursor, several processes.

use std::sync::Arc;

use ratatui::layout::Size;

use super::tests::state;
use super::*;
use crate::input::{Key, Outcome, press};
use crate::model::snapshot::{Event, Spot};

const SIZE: Size = Size { width: 120, height: 40 };

fn keys(text: &str, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let mut outcome = Outcome::Draw;
    for key in text.split(' ') {
        state.seen = render(snapshot, state, SIZE).1;
        outcome = press(Key::parse(key).unwrap(), state, snapshot);
    }
    state.seen = render(snapshot, state, SIZE).1;
    outcome
}

/// A server with two marks, and records with bad times in two places.
fn marked() -> Snapshot {
    let mut snapshot = fixture::vllm();
    let mark = |ago: u64, text: &str| Event {
        time: fixture::NOW - ago,
        severity: gtop_protocol::message::Severity::Info,
        pid: Some(844),
        topic: "mark".to_owned(),
        text: text.to_owned(),
    };
    snapshot.events = [mark(40_000_000, "deploy"), mark(20_000_000, "load")].into();
    let spot = |ago: u64, count| Spot { time: fixture::NOW - ago, count, class: 1, ..Spot::default() };
    snapshot.processes[0].invalid_at = [spot(30_000_000, 3), spot(10_000_000, 1)].into();
    snapshot
}

#[test]
fn the_longest_record_is_gone_to() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("2", &mut state, &snapshot);
    let lane = &snapshot.processes[0].lanes[0].slices;
    let longest_in = |(from, to): (u64, u64)| {
        lane.touching(from, to).map(|slice| slice.end - slice.start).max().unwrap_or_default()
    };
    let under = |state: &ViewState| {
        let at = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
        lane.touching(at.0, at.1).map(|slice| slice.end - slice.start).max().unwrap_or_default()
    };
    let column = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
    let longest = longest_in(column);
    assert!(longest > 0);
    keys("w", &mut state, &snapshot);
    assert_eq!(under(&state), longest);
    let told = format!("the longest of the column: {}", units::duration(longest));
    assert!(state.note.as_deref().is_some_and(|note| note.starts_with(&told)), "{:?}", state.note);
    assert!(state.timeline.step() <= longest, "near enough to see it");
    // Of a stretch, it is asked for in all of it.
    keys("= . r H r", &mut state, &snapshot);
    let stretch = state.timeline.chosen(fixture::NOW, state.seen.columns).unwrap();
    keys("w", &mut state, &snapshot);
    assert_eq!(under(&state), longest_in(stretch));
    assert!(state.note.as_deref().is_some_and(|note| note.starts_with("the longest of the stretch")));
    keys("/ n o n e enter w", &mut state, &snapshot);
    assert_eq!(state.note.as_deref(), Some("nothing runs here"));
}

#[test]
fn marks_and_bad_times_stand_above_the_lanes_and_are_gone_to() {
    let (mut state, snapshot) = (state(), marked());
    keys("2", &mut state, &snapshot);
    insta::assert_snapshot!("timeline_marked_120x40", render_text(&snapshot, &state, SIZE));
    let at = |state: &ViewState| {
        let (from, to) = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
        move |ago: u64| (from..to).contains(&(fixture::NOW - ago))
    };
    keys("\"", &mut state, &snapshot);
    assert!(at(&state)(20_000_000));
    keys("\"", &mut state, &snapshot);
    assert!(at(&state)(40_000_000));
    let text = render_text(&snapshot, &state, SIZE);
    assert!(text.contains("mark deploy"), "{text}");
    keys("\"", &mut state, &snapshot);
    assert_eq!(state.note.as_deref(), Some("there is no mark earlier; ' goes to one of 1 after"));
    keys("i", &mut state, &snapshot);
    assert!(at(&state)(30_000_000));
    let text = render_text(&snapshot, &state, SIZE);
    assert!(text.contains("3 records with bad times came here (zero)"), "{text}");
    keys("' i", &mut state, &snapshot);
    assert!(at(&state)(10_000_000));
    keys("I", &mut state, &snapshot);
    assert!(at(&state)(30_000_000));
}

#[test]
fn gaps_are_gone_to() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("2 down down + + + + E", &mut state, &snapshot);
    let lane = &snapshot.processes[0].lanes[2];
    let step = state.timeline.step();
    let idle = |state: &ViewState| {
        let (from, to) = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
        lane.slices.covered(to, to + step / 2) == 0 && lane.slices.before(from + 1).is_some()
    };
    let (first, _) = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
    assert!(idle(&state));
    keys("E", &mut state, &snapshot);
    assert!(idle(&state));
    let (second, _) = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
    assert!(second < first);
    keys("e", &mut state, &snapshot);
    let (third, _) = state.timeline.under_cursor(fixture::NOW, state.seen.columns);
    assert!(third.abs_diff(first) <= step, "back to the gap before");
}

#[test]
fn launches_are_a_rate_only_where_more_than_one_began() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("2", &mut state, &snapshot);
    let at_right = |state: &ViewState| {
        let text = render_text(&snapshot, state, SIZE);
        let line = text.lines().find(|line| line.contains("graphs s7")).unwrap();
        line.trim_end_matches(['│', ' ']).rsplit("  ").next().unwrap().trim().to_owned()
    };
    let launch = snapshot.processes[0].lanes[6].slices.iter().rev().nth(3).copied().unwrap();
    state.timeline = super::scale::Timeline::with_column(10_000);
    state.timeline.held = Some(launch.start + 500_000);
    assert_eq!(at_right(&state), "once");
    state.timeline.held = Some(launch.end - 1_000);
    assert_eq!(at_right(&state), "runs");
}

#[test]
fn beyond_the_newest_record_the_numbers_are_of_what_is_shown() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("2", &mut state, &snapshot);
    let columns = state.seen.columns as u64;
    let beyond = 10 * state.timeline.step();
    state.timeline.held = Some(fixture::NOW + beyond);
    let text = render_text(&snapshot, &state, SIZE);
    let length = units::duration((columns - 10) * state.timeline.step());
    assert!(text.contains(&format!("{length} from −{length} to the newest record")), "{text}");
    assert!(text.contains("● −0 s"), "{text}");
}

#[test]
fn a_stretch_is_counted() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("2 r left left left left left left left left left left r", &mut state, &snapshot);
    insta::assert_snapshot!("timeline_range_120x40", render_text(&snapshot, &state, SIZE));
    keys("enter", &mut state, &snapshot);
    assert!(matches!(&state.popup, Some(Popup::Detail(title, ..)) if title == "Chosen stretch"));
    let copied = keys("y", &mut state, &snapshot);
    assert!(matches!(copied, Outcome::Copy(text) if text.contains("something ran")));
    keys("esc esc", &mut state, &snapshot);
    assert_eq!(state.timeline.range, Range::None);
    assert_eq!(state.filter, crate::filter::Filter::default());
}

#[test]
fn what_is_copied_is_what_is_selected() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    assert!(
        matches!(keys("3 y", &mut state, &snapshot), Outcome::Copy(text) if text.starts_with("void flash::"))
    );
    assert!(state.note.as_deref().is_some_and(|note| note.starts_with("copied")));
    keys("1", &mut state, &fixture::nothing());
    assert_eq!(keys("y", &mut state, &fixture::nothing()), Outcome::Draw);
}

#[test]
fn records_that_overlap_have_rows_of_their_own() {
    use crate::model::slices::{Slice, Slices};
    let mut snapshot = fixture::vllm();
    let slice = |ago: u64, length| {
        let start = fixture::NOW - ago;
        Slice { start, end: start + length, detail: 0, correlation: 0 }
    };
    let lane = &mut snapshot.processes[0].lanes[1];
    lane.slices = Slices::new(vec![[slice(20_000_000, 9_000_000), slice(15_000_000, 8_000_000)].into()]);
    let text = render_text(&snapshot, &ViewState { tab: 1, ..state() }, SIZE);
    assert!(text.contains("  overlap "), "{text}");
    let text = render_text(&fixture::vllm(), &ViewState { tab: 1, ..state() }, SIZE);
    assert!(!text.contains("  overlap "), "{text}");
}

#[test]
fn processes_stand_side_by_side() {
    let (mut state, snapshot) = (state(), fixture::eight());
    state.seen = render(&snapshot, &state, Size::new(200, 60)).1;
    keys("a", &mut state, &snapshot);
    let text = render_text(&snapshot, &state, Size::new(200, 60));
    insta::assert_snapshot!("side_by_side_200x60", text);
    for (width, height) in [(1, 1), (40, 10), (80, 24), (300, 100)] {
        let (_, seen) = render(&snapshot, &state, Size::new(width, height));
        assert!(seen.panes.iter().all(|(_, area)| area.right() <= width && area.bottom() <= height));
    }
    keys("a", &mut state, &snapshot);
    assert!(!state.together);
    keys("a", &mut state, &fixture::vllm());
    assert_eq!(state.note.as_deref(), Some("there is no other process"));
}

#[test]
fn every_theme_says_the_same_and_marks_what_is_wrong_with_a_character() {
    let snapshot = fixture::exhausted();
    let dark = render_text(&snapshot, &state(), SIZE);
    for (name, theme) in Theme::ALL {
        let state = ViewState { theme, ..state() };
        let (buffer, _) = render(&snapshot, &state, SIZE);
        for cell in &buffer.content {
            let fine = cell.fg != cell.bg || cell.fg == ratatui::style::Color::Reset;
            assert!(fine, "{name}: ink and ground are the same at {:?}", cell.symbol());
        }
        let text = render_text(&snapshot, &state, SIZE);
        assert!(text.contains("SILENT") && text.contains("invalid"), "{name}: {text}");
        assert!(text.contains(if theme.ascii { 'X' } else { '✖' }), "{name}: {text}");
        assert!(theme.ascii || text == dark, "{name}");
    }
}

#[test]
fn the_theme_is_changed_by_a_key() {
    let (mut state, snapshot) = (state(), fixture::vllm());
    keys("ctrl-t", &mut state, &snapshot);
    assert_eq!((state.theme, state.note.as_deref()), (Theme::LIGHT, Some("theme light")));
}

#[test]
fn a_configuration_is_where_the_screen_begins() {
    let text = "tab = 3\ntheme = \"mono\"\nsort = \"name\"\nfilter = \"flash\"\ncolumn = \"2ms\"\nread_only = true\n\
                [keys]\nhelp = \"f1\"\n";
    let config = crate::config::parse(text).unwrap();
    let state = ViewState::new(&config, Some(Theme::ASCII));
    assert_eq!((state.tab, state.focus, state.theme), (2, Pane::Kernels, Theme::ASCII));
    assert_eq!((state.timeline.step(), state.read_only), (2_000_000, true));
    let screen = render_text(&fixture::vllm(), &state, Size::new(120, 36));
    assert!(screen.contains("f1 help") && screen.contains("filter keeps 3 of 61"), "{screen}");
    assert_eq!(Arc::strong_count(&config.keymap), 2, "it is shared");
}

#[test]
fn an_idle_process_looks_idle_and_what_is_not_known_is_not_idle() {
    use crate::model::snapshot::{Untraced, Why};
    const LATER: u64 = 3_000_000_000;
    let mut snapshot = fixture::vllm();
    let state = ViewState { tab: 1, ..state() };
    let row_of = |snapshot: &Snapshot, name: &str| {
        let text = render_text(snapshot, &state, SIZE);
        text.lines().find(|line| line.contains(&format!("│ {name} "))).unwrap().to_owned()
    };
    let shades = |line: &str| line.matches(['░', '▒', '▓', '█', '─']).count();
    assert!(shades(&row_of(&snapshot, "s7")) > 20);
    snapshot.processes[0].until = fixture::NOW + LATER;
    for name in ["s7", "copy HtoD", "graphs s7"] {
        let line = row_of(&snapshot, name);
        assert!(line.contains(if name.starts_with('g') { " 0/s" } else { " 0 %" }), "{line}");
        assert_eq!(shades(&line), 0, "{line}");
    }
    let text = render_text(&snapshot, &state, SIZE);
    assert!(text.contains("idle, ") && text.contains("● LIVE"), "{text}");
    // Its kind is off: nothing is known.
    let off = Untraced { kind: gtop_protocol::Kind::Kernel, from: fixture::NOW, to: u64::MAX, why: Why::Off };
    snapshot.processes[0].untraced = [off].into();
    for name in ["s7", "graphs s7"] {
        let line = row_of(&snapshot, name);
        assert!(line.ends_with("? │") && line.contains('⋅') && !line.contains('%'), "{line}");
    }
    assert!(row_of(&snapshot, "copy HtoD").contains(" 0 %"), "copies are on");
    let text = render_text(&snapshot, &state, SIZE);
    assert!(text.contains("not traced: kernel is off"), "{text}");
    // Records came whose times say nothing.
    snapshot.processes[0].untraced = [].into();
    snapshot.processes[0].validity.kinds[0].total = [9, 9];
    snapshot.processes[0].invalid_at =
        [Spot { time: fixture::NOW + LATER / 2, count: 9, class: 1, ..Spot::default() }].into();
    assert!(row_of(&snapshot, "s7").contains(" 0 %"), "but not in the last second");
    let text = render_text(&snapshot, &state, SIZE);
    assert!(
        text.contains("nothing believable, and records with bad times came") && !text.contains("idle, "),
        "{text}"
    );
    let mut close = snapshot.clone();
    close.processes[0].invalid_at =
        [Spot { time: fixture::NOW + LATER - 1_000_000, count: 9, class: 1, ..Spot::default() }].into();
    assert!(row_of(&close, "s7").ends_with("? │"), "{}", row_of(&close, "s7"));
    // Nothing is heard.
    snapshot.processes[0].unheard = Some(14.0);
    let text = render_text(&snapshot, &state, SIZE);
    assert!(text.contains("● STALE") && !text.contains("LIVE") && text.contains("? rec/s"), "{text}");
}
