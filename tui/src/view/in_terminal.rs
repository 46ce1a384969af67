//! The screen in a real terminal: this test program starts itself in a pseudo terminal with snapshots made up here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::app::channel;
use crate::view::{Options, Pane, fixture, run};

#[path = "../../../tests/src/pty.rs"]
#[expect(unreachable_pub, reason = "shared with the end-to-end tests")]
mod pty;

use pty::Pty;

/// Set in the program that draws; says what its engine does.
const ROLE: &str = "GTOP_TEST_SCREEN";

/// Whether the pane of memory breaks when it is drawn next.
static BREAKS: AtomicBool = AtomicBool::new(false);

/// Breaks a pane if a test wants that.
pub(super) fn break_on_purpose(pane: Pane) {
    assert!(pane != Pane::Memory || !BREAKS.swap(false, Ordering::SeqCst), "a pane broke on purpose");
}

fn start(role: &str, env: &[(&str, &str)]) -> Pty {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "view::in_terminal::screen", "--nocapture"];
    Pty::start(program.as_os_str(), &args, &[env, &[(ROLE, role)]].concat(), 120, 36)
}

/// The program in the terminal; does nothing when it runs as an ordinary test.
#[test]
fn screen() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let end = runtime.block_on(async {
        let (handle, engine) = channel();
        engine.snapshots.send_replace(Arc::new(fixture::vllm()));
        if role == "panics" {
            // On SIGUSR1, a thread that has nothing to do with the screen panics.
            let mut now =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
            tokio::spawn(async move {
                now.recv().await;
                std::thread::spawn(|| panic!("something went wrong on purpose")).join()
            });
        }
        if role == "stalls" {
            // Something is told once more, and then nothing any more.
            let mut now =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
            let snapshots = engine.snapshots.clone();
            tokio::spawn(async move {
                now.recv().await;
                snapshots.send_replace(Arc::new(fixture::vllm()));
            });
        }
        BREAKS.store(role == "breaks", Ordering::SeqCst);
        let end = run(handle, Options { read_only: role == "read-only", ..Options::default() }).await;
        drop(engine);
        end
    });
    match end {
        Ok(end) => println!("the screen ended: {end:?}"),
        Err(error) => println!("the screen failed: {error}"),
    }
}

/// What leaves the alternate screen.
const LEAVES: &[u8] = b"\x1b[?1049l";

/// What a shell needs: the main screen, a cursor, lines that are edited and echoed.
fn assert_restored(pty: &Pty) {
    assert!(pty.is_cooked());
    pty.look(|screen| {
        assert!(!screen.alternate_screen());
        assert!(!screen.hide_cursor());
        assert!(!screen.bracketed_paste());
        assert!(!screen.inverse() && !screen.bold());
    });
    assert_eq!(pty.written(LEAVES), 1, "left the alternate screen once");
}

#[test]
fn keys_are_answered_and_leaving_restores_the_terminal() {
    let mut pty = start("plain", &[]);
    pty.wait("a screen full", |screen| screen.contents().lines().count() == 36);
    pty.look(|screen| assert!(screen.alternate_screen() && screen.hide_cursor()));
    pty.press("?");
    pty.wait_for("show or hide this help");
    pty.press("\x1b");
    pty.wait("help gone", |screen| !screen.contents().contains("show or hide this help"));
    for (tab, title) in super::tabs(&fixture::vllm()).iter().enumerate() {
        pty.press(&(tab + 1).to_string());
        pty.wait_for(&format!("▸{} {}", tab + 1, title.title));
    }
    pty.press("1tm");
    pty.wait_for("switch memcpy off in process 844?");
    pty.press("n ");
    pty.wait_for("● FROZEN");
    pty.press(" ");
    pty.wait_for("● LIVE");
    pty.press("q");
    pty.wait_for("the screen ended: Quit { stop: false }");
    assert!(pty.exit().success());
    assert_restored(&pty);
}

#[test]
fn pasted_text_is_no_command() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    pty.press("\x1b[200~q quit now\x1b[201~?");
    pty.wait_for("show or hide this help");
    pty.press("qq");
    pty.wait_for("the screen ended: Quit");
}

#[test]
fn signals_end_it_and_restore_the_terminal() {
    for (signal, name) in [(libc::SIGTERM, 15), (libc::SIGHUP, 1), (libc::SIGINT, 2)] {
        let mut pty = start("plain", &[]);
        pty.wait_for("EngineCore 844");
        pty.signal(signal);
        pty.wait_for(&format!("the screen ended: Signal({name})"));
        assert!(pty.exit().success());
        assert_restored(&pty);
    }
}

#[test]
fn a_panic_anywhere_restores_the_terminal_and_its_message_comes_last() {
    let mut pty = start("panics", &[]);
    pty.wait_for("EngineCore 844");
    pty.signal(libc::SIGUSR1);
    pty.wait_for("something went wrong on purpose");
    pty.wait_for("the screen failed: a part of gtop has panicked");
    pty.exit();
    assert_restored(&pty);
    let text = pty.text();
    assert!(!text.contains("EngineCore"), "{text}");
}

#[test]
fn a_pane_that_breaks_gives_the_terminal_back_once_and_says_why() {
    let mut pty = start("breaks", &[]);
    pty.wait_for("a pane broke on purpose");
    assert!(!pty.exit().success());
    assert_restored(&pty);
    let text = pty.text();
    assert!(!text.contains("EngineCore"), "{text}");
}

/// Waits until the program is stopped, or goes on.
fn wait_stopped(pty: &Pty, stopped: bool) {
    let deadline = std::time::Instant::now() + pty::DEADLINE;
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pty.pid())).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    while (state() == Some('T')) != stopped {
        assert!(std::time::Instant::now() < deadline, "{:?}", state());
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

#[test]
fn suspending_gives_the_terminal_to_the_shell_and_going_on_takes_it_back() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    for by_key in [true, false] {
        pty.forget();
        if by_key {
            pty.press("\x1a");
        } else {
            pty.signal(libc::SIGTSTP);
        }
        wait_stopped(&pty, true);
        pty.wait("main screen", |screen| !screen.alternate_screen());
        assert_restored(&pty);
        pty.signal(libc::SIGCONT);
        pty.wait("its screen again", |screen| {
            screen.alternate_screen() && screen.contents().contains("EngineCore 844")
        });
        assert!(!pty.is_cooked());
    }
    // Stopped by somebody else, it could not give the terminal back, and does so afterwards.
    pty.forget();
    pty.signal(libc::SIGSTOP);
    wait_stopped(&pty, true);
    assert_eq!(pty.written(LEAVES), 0);
    pty.signal(libc::SIGCONT);
    pty.wait_written(LEAVES);
    pty.press("?");
    pty.wait_for("show or hide this help");
}

#[test]
fn resizing_to_anything_is_survived() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    let sizes = [(80, 24), (0, 0), (40, 10), (1, 1), (300, 100), (132, 39), (0, 5), (172, 18), (2, 2)];
    for (columns, rows) in sizes.into_iter().cycle().take(2_000) {
        pty.resize(columns, rows);
    }
    pty.resize(100, 30);
    pty.press("6");
    pty.wait_for("▸6 Trust");
    pty.press("q");
    pty.wait_for("the screen ended: Quit");
}

#[test]
fn resizing_at_random_while_keys_come_is_survived() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    let keys = [
        "1", "2", "3", "4", "5", "6", "7", "+", "-", "j", "k", "n", "e", "w", "z", "s", "o", "?", "\x1b",
        "\t",
    ];
    let mut dice = 11_u64;
    let mut roll = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    for round in 0..10_000 {
        let (columns, rows) = match roll(8) {
            0 => [(0, 0), (1, 1), (132, 39), (172, 18)][roll(4) as usize],
            1 => (roll(300) as u16, roll(100) as u16),
            _ => (roll(90) as u16, roll(30) as u16),
        };
        pty.resize(columns, rows);
        // No more than the terminal holds while the program is busy.
        if round % 10 == 0 {
            pty.press(keys[roll(keys.len() as u64) as usize]);
        }
    }
    pty.resize(100, 30);
    pty.press("\x1b\x1b=7");
    pty.wait("a whole screen", |screen| {
        let text = screen.contents();
        let (first, last) =
            (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
        text.lines().count() == 30 && first.contains("EngineCore 844") && last.contains("? help")
    });
    pty.wait_for("Events");
    pty.press("q");
    pty.wait_for("the screen ended: Quit");
    assert!(pty.exit().success());
    assert_restored(&pty);
}

#[test]
fn it_is_filtered_zoomed_and_clicked() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    pty.press("2");
    pty.wait_for("500 µs/column");
    pty.press("+");
    pty.wait("less time in a column", |screen| !screen.contents().contains("500 µs/column"));
    pty.press("=");
    pty.wait_for("500 µs/column");
    // The wheel turned up over the lanes does the same as the key.
    pty.press("\x1b[<64;40;6M");
    pty.wait("less time in a column", |screen| !screen.contents().contains("500 µs/column"));
    pty.press("/flash\r");
    pty.wait_for("/flash esc clears it");
    pty.press("3");
    pty.wait_for("filter keeps 3 of");
    pty.press("\x1b");
    pty.wait("all kernels", |screen| !screen.contents().contains("filter keeps"));
    // A click on a tab: the place of its number on the second line.
    let column = pty.look(|screen| {
        let line = screen.contents().lines().nth(1).unwrap_or_default().to_owned();
        line.chars().position(|c| c == '6').unwrap_or(0) + 1
    });
    pty.press(&format!("\x1b[<0;{column};2M\x1b[<0;{column};2m"));
    pty.wait_for("▸6 Trust");
    pty.press("q");
    pty.wait_for("the screen ended: Quit");
}

#[test]
fn a_source_that_is_stuck_is_said_to_be_and_keys_are_answered() {
    let mut pty = start("stalls", &[]);
    pty.wait_for("● LIVE");
    pty.signal(libc::SIGUSR1);
    pty.wait_for("● STALE  3");
    pty.press("?");
    pty.wait_for("show or hide this help");
    pty.press("\x1b");
    pty.wait("a higher age", |screen| {
        screen.contents().contains("● STALE  ") && !screen.contents().contains("● STALE  3")
    });
    pty.press("q");
    pty.wait_for("the screen ended: Quit");
}

/// The colours of ink on the screen.
fn inks(pty: &Pty) -> Vec<vt100::Color> {
    pty.look(|screen| {
        let (rows, columns) = screen.size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        cells.filter_map(|(row, column)| screen.cell(row, column)).map(vt100::Cell::fgcolor).collect()
    })
}

#[test]
fn a_terminal_with_a_light_ground_is_drawn_on_for_it_and_loses_no_key() {
    let (dark, light) = (vt100::Color::Idx(39), vt100::Color::Idx(25));
    let question = crate::input::QUESTION.as_bytes();
    let unknown = [("COLORFGBG", ""), ("COLORTERM", "truecolor")];
    let mut pty = start("plain", &unknown);
    pty.wait_for("EngineCore 844");
    assert_eq!(pty.written(question), 1);
    assert!(inks(&pty).contains(&dark));
    // Between keys, as late as a terminal far away answers.
    pty.press("3\x1b]11;rgb:fdfd/f6f6/e3e3\x1b\\?");
    pty.wait_for("show or hide this help");
    pty.press("\x1b");
    pty.wait_for("▸3 Kernels");
    assert!(inks(&pty).contains(&light) && !inks(&pty).contains(&dark));
    for (name, value) in [("COLORFGBG", "15;0"), ("NO_COLOR", "1")] {
        let pty = start("plain", &[(name, value)]);
        pty.wait_for("EngineCore 844");
        assert_eq!(pty.written(question), 0, "{name} says it");
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    pty.close();
    pty.exit();
}

#[test]
fn without_colours_the_selected_row_still_stands_out() {
    let mut pty = start("plain", &[("NO_COLOR", "1")]);
    pty.wait_for("EngineCore 844");
    pty.press("\t");
    pty.wait("a selected row", |screen| {
        let (rows, columns) = screen.size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        let cells: Vec<_> = cells.filter_map(|(row, column)| screen.cell(row, column)).collect();
        let plain = |cell: &&vt100::Cell| cell.fgcolor() == vt100::Color::Default;
        cells.iter().all(plain) && cells.iter().filter(|cell| cell.inverse()).count() > 60
    });
}

#[test]
fn an_ascii_terminal_gets_ascii() {
    let pty = start("plain", &[("LC_ALL", "C")]);
    pty.wait_for("[LIVE]");
    assert!(pty.text().is_ascii());
}

#[test]
fn nothing_is_drawn_when_nothing_changes() {
    let mut pty = start("plain", &[]);
    pty.wait_for("EngineCore 844");
    pty.press("U");
    pty.wait_for("U does nothing here");
    pty.forget();
    // The answer to the next key comes from a frame of its own; any frame between would have been counted before it.
    pty.press("Y");
    pty.wait_for("Y does nothing here");
    assert_eq!(pty.written(b"\x1b[?2026h"), 1, "one frame for one key");
}
