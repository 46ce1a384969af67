//! The screen in a real terminal: this test program starts itself in a pseudo terminal with snapshots made up here.

use std::sync::Arc;

use crate::app::channel;
use crate::view::{Options, fixture, run};

#[path = "../../../tests/src/pty.rs"]
#[expect(unreachable_pub, reason = "shared with the end-to-end tests")]
mod pty;

use pty::Pty;

/// Set in the program that draws; says what its engine does.
const ROLE: &str = "GTOP_TEST_SCREEN";

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
        let end = run(handle, Options { read_only: role == "read-only", ..Options::default() }).await;
        drop(engine);
        end
    });
    match end {
        Ok(end) => println!("the screen ended: {end:?}"),
        Err(error) => println!("the screen failed: {error}"),
    }
}

/// What a shell needs: the main screen, a cursor, lines that are edited and echoed.
fn assert_restored(pty: &Pty) {
    assert!(pty.is_cooked());
    pty.look(|screen| {
        assert!(!screen.alternate_screen());
        assert!(!screen.hide_cursor());
        assert!(!screen.bracketed_paste());
        assert!(!screen.inverse() && !screen.bold());
    });
    assert_eq!(pty.written(b"\x1b[?1049l"), 1, "left the alternate screen once");
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
    pty.wait_for("6 Trust (7 tabs)");
    pty.press("q");
    pty.wait_for("the screen ended: Quit");
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
    pty.press("x");
    pty.wait_for("x does nothing here");
    pty.forget();
    // The answer to the next key comes from a frame of its own; any frame between would have been counted before it.
    pty.press("Y");
    pty.wait_for("Y does nothing here");
    assert_eq!(pty.written(b"\x1b[?2026h"), 1, "one frame for one key");
}
