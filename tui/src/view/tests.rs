//! The screen on a test buffer: how it looks, and that no size breaks it.

use std::collections::HashMap;
use std::sync::Arc;

use gtop_protocol::message::StateCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::style::Color;

use super::*;
use crate::input::{Key, Outcome, press};
use crate::model::snapshot::{Begins, Link};

/// A moment after the newest record of the fixtures.
pub(super) fn state() -> ViewState {
    ViewState { now: fixture::NOW + 30_000_000, ..ViewState::default() }
}

fn shown(snapshot: &Snapshot, columns: u16, rows: u16) -> String {
    render_text(snapshot, &state(), Size::new(columns, rows))
}

/// Presses keys, drawing between them as the event loop does; returns what the last one asked for.
pub(super) fn keys(text: &str, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let mut outcome = Outcome::Draw;
    for key in text.split(' ') {
        state.seen = render(snapshot, state, Size::new(120, 36)).1;
        outcome = press(Key::parse(key).unwrap(), state, snapshot);
    }
    outcome
}

macro_rules! overview {
    ($($name:ident $snapshot:expr, $columns:literal x $rows:literal;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(shown(&$snapshot, $columns, $rows));
        }
    )*};
}

overview! {
    overview_vllm_40x10 fixture::vllm(), 40 x 10;
    overview_vllm_80x24 fixture::vllm(), 80 x 24;
    overview_vllm_120x36 fixture::vllm(), 120 x 36;
    overview_vllm_120x40 fixture::vllm(), 120 x 40;
    overview_vllm_200x60 fixture::vllm(), 200 x 60;
    overview_exhausted_80x24 fixture::exhausted(), 80 x 24;
    overview_exhausted_120x36 fixture::exhausted(), 120 x 36;
    overview_leaking_120x36 fixture::leaking(), 120 x 36;
    overview_leaking_80x24 fixture::leaking(), 80 x 24;
    overview_doubtful_80x24 fixture::doubtful(), 80 x 24;
    overview_doubtful_120x36 fixture::doubtful(), 120 x 36;
    overview_busy_80x24 fixture::busy(), 80 x 24;
    overview_busy_120x36 fixture::busy(), 120 x 36;
    overview_nothing_40x10 fixture::nothing(), 40 x 10;
    overview_nothing_120x36 fixture::nothing(), 120 x 36;
    overview_no_nvml_120x36 fixture::no_nvml(), 120 x 36;
    overview_eight_120x36 fixture::eight(), 120 x 36;
    overview_eight_200x60 fixture::eight(), 200 x 60;
    overview_crowd_120x36 fixture::crowd(8), 120 x 36;
    overview_lost_80x24 fixture::lost(), 80 x 24;
    overview_sampled_80x24 fixture::sampled(), 80 x 24;
    overview_sampled_120x36 fixture::sampled(), 120 x 36;
}

#[test]
fn what_was_traced_in_windows_is_scaled_and_the_rest_is_blank() {
    for (tab, name) in [(1, "timeline"), (2, "kernels"), (5, "trust")] {
        let state = ViewState { tab, focus: TABS[tab].pane.unwrap(), ..state() };
        let text = render_text(&fixture::sampled(), &state, Size::new(120, 40));
        insta::assert_snapshot!(format!("sampled_{name}_120x40"), text);
    }
    let (mut state, snapshot) = (state(), fixture::sampled());
    keys(
        "2 down left left left left left left left left left left left left left left left",
        &mut state,
        &snapshot,
    );
    let text = render_text(&snapshot, &state, Size::new(120, 40));
    assert!(text.contains("not traced: between two windows"), "{text}");
}

#[test]
fn each_pane_alone() {
    for (tab, name) in tabs(&fixture::vllm()).iter().map(|tab| tab.title.to_lowercase()).enumerate().skip(1) {
        for size in [Size::new(40, 10), Size::new(80, 24), Size::new(120, 40), Size::new(200, 60)] {
            let state = ViewState { tab, focus: TABS[tab].pane.unwrap(), ..state() };
            let text = render_text(&fixture::vllm(), &state, size);
            insta::assert_snapshot!(format!("pane_{name}_{}x{}", size.width, size.height), text);
        }
    }
}

#[test]
fn the_trust_tab_when_the_pool_has_run_out() {
    let tab = TABS.iter().position(|tab| tab.pane == Some(Pane::Trust)).unwrap();
    let state = ViewState { tab, focus: Pane::Trust, ..state() };
    for size in [Size::new(80, 30), Size::new(120, 60)] {
        let text = render_text(&fixture::exhausted(), &state, size);
        insta::assert_snapshot!(format!("trust_exhausted_{}x{}", size.width, size.height), text);
    }
    let text = render_text(&fixture::leaking(), &state, Size::new(120, 50));
    insta::assert_snapshot!("trust_leaking_120x50", text);
}

#[test]
fn the_memory_tab_says_where_it_went_and_who_launches() {
    let tab = TABS.iter().position(|tab| tab.pane == Some(Pane::Memory)).unwrap();
    let state = ViewState { tab, focus: Pane::Memory, ..state() };
    for size in [Size::new(80, 24), Size::new(120, 40), Size::new(200, 60), Size::new(300, 100)] {
        let text = render_text(&fixture::accounted(), &state, size);
        insta::assert_snapshot!(format!("memory_accounted_{}x{}", size.width, size.height), text);
    }
}

#[test]
fn what_may_still_come_and_what_was_lost_is_not_drawn_as_idle() {
    let mut state = ViewState { tab: timeline_tab(), focus: Pane::Timeline, ..state() };
    let live = render_text(&fixture::lagging(), &state, Size::new(120, 40));
    assert!(live.contains("live, 20 ms late") && !live.contains('╌'), "what is followed has come:\n{live}");
    // Who looks beyond that sees what has come there.
    state.timeline.held = Some(fixture::NOW);
    for (theme, name) in [(Theme::DARK, "lagging"), (Theme::ASCII, "lagging_ascii")] {
        let state = ViewState { theme, ..state.clone() };
        let text = render_text(&fixture::lagging(), &state, Size::new(120, 40));
        insta::assert_snapshot!(format!("timeline_{name}_120x40"), text);
    }
}

#[test]
fn a_subscription_that_was_given_back_is_not_claimed() {
    let tab = TABS.iter().position(|tab| tab.pane == Some(Pane::Trust)).unwrap();
    let state = ViewState { tab, focus: Pane::Trust, ..state() };
    let mut resting = fixture::in_state(StateCode::Resting);
    let line = |snapshot: &Snapshot| {
        let text = render_text(snapshot, &state, Size::new(120, 50));
        text.lines().find(|line| line.contains("other subscriber")).unwrap().to_owned()
    };
    assert!(line(&resting).contains("none: CUPTI serves one tool, and that is gtop"));
    resting.processes[0].subscribed = false;
    assert!(line(&resting).contains("gave its subscription back"));
}

#[test]
fn popups() {
    let snapshot = fixture::vllm();
    let at = |text: &str| {
        let mut state = state();
        keys(text, &mut state, &snapshot);
        render_text(&snapshot, &state, Size::new(80, 24))
    };
    insta::assert_snapshot!("popup_help", at("?"));
    insta::assert_snapshot!("popup_kinds", at("t"));
    insta::assert_snapshot!("popup_question", at("t m"));
    insta::assert_snapshot!("popup_kernel", at("tab down enter"));
    insta::assert_snapshot!("popup_record", at("enter"));
    insta::assert_snapshot!("popup_mark", at("m d e p l o y"));
}

#[test]
fn without_colours_and_unicode() {
    for (name, snapshot) in [("vllm", fixture::vllm()), ("exhausted", fixture::exhausted())] {
        let state = ViewState { theme: Theme::ASCII, ..state() };
        let text = render_text(&snapshot, &state, Size::new(80, 24));
        assert!(text.is_ascii(), "{text}");
        insta::assert_snapshot!(format!("ascii_{name}_80x24"), text);
    }
}

#[test]
fn no_theme_hides_anything_and_none_says_it_by_colour_alone() {
    for snapshot in [fixture::vllm(), fixture::exhausted(), fixture::sampled(), fixture::eight()] {
        let mut texts = Vec::new();
        for (name, theme) in Theme::ALL {
            let (buffer, _) = render(&snapshot, &ViewState { theme, ..state() }, Size::new(120, 36));
            for cell in buffer.content() {
                let hidden = cell.fg == cell.bg && cell.fg != Color::Reset;
                assert!(!hidden, "{name}: {:?} cannot be read", cell.symbol());
                for colour in [cell.fg, cell.bg] {
                    let shown = match colour {
                        Color::Reset => true,
                        Color::Indexed(_) => !["16", "mono", "ascii"].contains(&name),
                        // Not every terminal can show it, and tmux may change it.
                        Color::Rgb(..) => false,
                        _ => name == "16",
                    };
                    assert!(shown, "{name}: {colour:?}");
                }
            }
            let text: String = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
            if theme.ascii {
                assert!(text.is_ascii());
            } else {
                texts.push(text);
            }
        }
        assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "the same words in every theme");
    }
    // What is wrong has a mark of its own in all of them.
    for (_, theme) in Theme::ALL {
        let state = ViewState { theme, ..state() };
        let text = render_text(&fixture::exhausted(), &state, Size::new(120, 36));
        assert!(text.contains(if theme.ascii { " X " } else { " ✖ " }), "{text}");
        assert!(text.contains("266,680 invalid not drawn"), "{text}");
    }
}

#[test]
fn every_state_can_be_told_apart_without_colours_and_unicode() {
    let state = ViewState { theme: Theme::ASCII, ..state() };
    for (columns, rows) in [(40, 10), (80, 24), (120, 36)] {
        let head = |snapshot: &Snapshot| {
            let text = render_text(snapshot, &state, Size::new(columns, rows));
            text.lines().take(2).collect::<Vec<_>>().join("\n")
        };
        let mut seen = HashMap::new();
        for code in StateCode::ALL {
            let text = head(&fixture::in_state(code));
            assert!(text.contains(&code.name().to_uppercase()), "{text}");
            assert_eq!(seen.insert(text, code), None);
        }
    }
    let badge = |snapshot: &Snapshot, frozen| {
        let state = ViewState { frozen, ..state.clone() };
        let text = render_text(snapshot, &state, Size::new(40, 10));
        text.lines().next().unwrap().rsplit('[').next().unwrap().split(']').next().unwrap().to_owned()
    };
    let mut ended = fixture::vllm();
    ended.processes[0].link = Link::Ended("the process ended".to_owned());
    ended.processes[0].heard.state = true;
    let waiting = |begins| {
        let mut snapshot = fixture::nothing();
        snapshot.source.begins = Some(begins);
        snapshot
    };
    for (begins, says) in [
        (Begins::At(fixture::NOW + 42_000_000_000), "watched in 42 s"),
        (Begins::Asked { pid: 7 }, "T begins to watch"),
    ] {
        let state = ViewState { now: fixture::NOW, ..state.clone() };
        let text = render_text(&waiting(begins), &state, Size::new(40, 10));
        assert!(text.lines().next().unwrap().contains(says), "{text}");
    }
    let badges = [
        badge(&fixture::vllm(), false),
        badge(&fixture::vllm(), true),
        badge(&fixture::lost(), false),
        badge(&fixture::nothing(), false),
        badge(&waiting(Begins::Asked { pid: 7 }), false),
        badge(&ended, false),
    ];
    assert_eq!(badges, ["LIVE", "FROZEN", "RECONNECTING", "CONNECTING", "NOT WATCHED", "ENDED"]);
}

#[test]
fn what_has_ended_is_not_shown_as_if_it_went_on() {
    let mut snapshot = fixture::in_state(StateCode::Armed);
    snapshot.processes[0].link = Link::Ended("process 844 ended".to_owned());
    let text = shown(&snapshot, 120, 36);
    insta::assert_snapshot!("overview_ended_120x36", text);
    let head: Vec<&str> = text.lines().take(5).collect();
    let head = head.join("\n");
    assert!(head.contains("○ was ARMED") && head.contains("ENDED"), "{head}");
    for wrong in ["● ARMED", "rec/s", "kernel memcpy memset", "live"] {
        assert!(!head.contains(wrong), "{wrong}: {head}");
    }
    assert!(!text.contains("off would leak") && !text.contains("t k "), "there is nobody to ask: {text}");
    // Beside others, too.
    snapshot.processes.push(fixture::eight().processes[1].clone());
    let beside = render_text(&snapshot, &ViewState { together: true, ..state() }, Size::new(120, 36));
    assert!(beside.contains("EngineCore 844 was ARMED"), "{beside}");
    // A file tells how it was at its end.
    snapshot.source.kind = crate::model::snapshot::SourceKind::File;
    assert!(shown(&snapshot, 120, 36).contains("● ARMED"));
}

#[test]
fn the_tabs_keep_their_names_and_the_pool_its_place() {
    for (mut snapshot, pool) in
        [(fixture::vllm(), "pool 3/250 "), (fixture::leaking(), "pool 91/250 LEAKING")]
    {
        snapshot.output = Some(crate::model::snapshot::Output::default());
        let text = shown(&snapshot, 120, 36);
        let lines: Vec<&str> = text.lines().take(2).collect();
        assert!(format!("{} ", lines[0]).contains(pool), "{}", lines[0]);
        for name in ["▸1 Overview", "2 Time", "5 Mem", "7 Event", "8 Out"] {
            assert!(lines[1].contains(name), "{name}: {}", lines[1]);
        }
        for number in ["rec/s", "lost", "invalid"] {
            assert!(lines[1].to_lowercase().contains(number), "{number}: {}", lines[1]);
        }
    }
}

#[test]
fn a_small_screen_tells_in_how_long_the_pool_is_full() {
    for (snapshot, left) in [
        (fixture::leaking(), "LEAKING · full in 38 s"),
        (fixture::doubtful(), "MAY LEAK · full in 38 s at worst"),
    ] {
        let text = shown(&snapshot, 80, 24);
        assert!(text.contains(left), "{text}");
    }
}

#[test]
fn who_holds_cupti_is_told_in_full() {
    let mut snapshot = fixture::busy();
    snapshot.processes[0].reason = Some(
        "busy: another tool holds CUPTI: cuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39); it \
         calls itself \"nsys\""
            .to_owned(),
    );
    let state = ViewState { tab: 5, focus: Pane::Trust, ..state() };
    let text = render_text(&snapshot, &state, Size::new(120, 50));
    assert!(text.contains("other subscriber: it calls itself \"nsys\""), "{text}");
    snapshot.processes[0].reason = Some("busy: another tool holds CUPTI: cuptiSubscribe".to_owned());
    let text = render_text(&snapshot, &state, Size::new(120, 50));
    assert!(text.contains("other subscriber: some tool that does not say its name"), "{text}");
}

#[test]
fn the_keys_of_kinds_stay_on_the_tab_however_much_is_said_of_the_state() {
    let silent = fixture::exhausted();
    let mut busy = fixture::busy();
    let long = "and of the tool that holds it nothing more is known than that it came first; ".repeat(6);
    busy.processes[0].reason = Some(format!("busy: another tool holds CUPTI: {long}"));
    for snapshot in [silent, busy] {
        let state = ViewState { tab: 5, focus: Pane::Trust, ..state() };
        for size in [Size::new(120, 36), Size::new(80, 24)] {
            let text = render_text(&snapshot, &state, size);
            for key in ["t k", "t m", "t s", "t d"] {
                assert!(text.contains(key), "{key}: {text}");
            }
        }
    }
}

#[test]
fn a_process_id_is_whole_or_left_out() {
    let snapshot = fixture::vllm();
    let mut long = snapshot.clone();
    Arc::make_mut(&mut long.processes[0].identity).pid = 9_194_304;
    for (snapshot, pid) in [(snapshot, "844"), (long, "9194304")] {
        for columns in 10..60 {
            let text = render_text(&snapshot, &state(), Size::new(columns, 5));
            let first = text.lines().next().unwrap_or_default();
            let digits: Vec<&str> = first.split(|c: char| !c.is_ascii_digit()).collect();
            let cut = digits.iter().find(|part| !part.is_empty() && pid.starts_with(**part) && **part != pid);
            assert_eq!(cut, None, "{columns}: {first}");
        }
    }
    assert!(render_text(&fixture::vllm(), &state(), Size::new(20, 5)).contains("Engin… 844"));
}

#[test]
fn a_frame_is_the_same_whatever_was_in_the_buffer_before() {
    let area = Rect::new(0, 0, 80, 24);
    let (fresh, _) = render(&fixture::vllm(), &state(), Size::new(80, 24));
    let mut again = Buffer::empty(area);
    draw(&fixture::vllm(), &state(), &mut again);
    assert_eq!(fresh, again);
}

#[test]
fn memory_says_what_is_shared_stale_unknown_and_not_watched() {
    let mut snapshot = fixture::vllm();
    snapshot.devices[0].unified = true;
    assert!(shown(&snapshot, 120, 36).contains("45.0 of 139.8 GiB shared with the host"));
    snapshot.devices[0].age = 12.0;
    snapshot.devices[0].memory_used = None;
    let text = shown(&snapshot, 120, 36);
    assert!(text.contains("? of 139.8 GiB") && text.contains("STALE 12 s"), "{text}");
    let text = shown(&fixture::eight(), 120, 36);
    assert!(text.contains("? MiB") && text.contains("?/min") && text.contains("#5 STALE 74 s"), "{text}");
    assert!(shown(&fixture::crowd(8), 120, 36).contains("208 processes"));
    for columns in [40, 80, 120, 200] {
        let state = ViewState { tab: 4, ..state() };
        let text = render_text(&fixture::vllm(), &state, Size::new(columns, 12));
        assert!(text.contains("not watched"), "{text}");
    }
}

#[test]
fn a_picture_is_well_formed() {
    let svg = render_svg(&fixture::exhausted(), &state(), Size::new(80, 24));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
    assert!(svg.contains("SILENT") && !svg.contains("<64,"));
    assert_eq!(render_text(&fixture::vllm(), &state(), Size::new(0, 0)), "");
    assert!(render_svg(&fixture::vllm(), &state(), Size::new(0, 0)).contains("</svg>"));
}
