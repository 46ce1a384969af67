//! The whole program in a terminal: `gtop demo` is the real shim over a simulated CUPTI, a real socket and the real
//! screen.

use std::ffi::OsStr;

#[path = "../../tests/src/pty.rs"]
#[expect(dead_code, unreachable_pub, reason = "shared with other tests")]
mod pty;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pty::Pty;

fn demo(scenario: &str) -> Pty {
    let args = ["demo", scenario];
    Pty::start(OsStr::new(env!("CARGO_BIN_EXE_gtop")), &args, &[], 120, 36)
}

/// The processes that have this one as their parent.
fn children(parent: i32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default().to_owned();
        fields.split(' ').nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

fn assert_restored(pty: &Pty) {
    assert!(pty.is_cooked());
    pty.look(|screen| assert!(!screen.alternate_screen() && !screen.hide_cursor()));
}

#[test]
fn the_demo_is_seen_toggled_marked_and_left() {
    let mut pty = demo("mixed");
    pty.wait_for("● ARMED · kernel memcpy memset");
    pty.wait_for("gemm");
    pty.wait("a record on the timeline", |screen| screen.contents().contains("valid"));
    pty.wait_for("invalid 60 s 0 %");

    // Kernels may be switched off at once; the screen shows what the shim then says is on.
    pty.press("tk");
    pty.wait_for("● ARMED · memcpy memset");
    pty.press("tk");
    pty.wait_for("● ARMED · kernel memcpy memset");

    // Copies may not: the consequence is shown, and only a yes does it.
    pty.press("tm");
    pty.wait_for("Switching memcpy on again does not undo it.");
    pty.press("n");
    pty.wait("the question gone", |screen| !screen.contents().contains("yes, do it"));
    pty.wait_for("● ARMED · kernel memcpy memset");
    pty.press("tm");
    pty.wait_for("yes, do it");
    pty.press("y");
    pty.wait_for("● ARMED · kernel memset");

    // What each tab is for, and a stretch chosen by the mouse.
    for (tab, words) in [
        ("2", "Under the cursor"),
        ("3", "Kernels by share of GPU time"),
        ("4", "launches"),
        ("5", "GPU memory"),
        ("6", "first bad"),
        ("7", "armed"),
    ] {
        pty.press(tab);
        pty.wait_for(&format!("▸{tab} "));
        pty.wait_for(words);
    }
    pty.press("2");
    pty.wait_for("Under the cursor");
    pty.press("\x1b[<0;30;5M\x1b[<32;60;5M\x1b[<0;60;5m");
    pty.wait_for("Chosen stretch");
    pty.press("\x1b");
    pty.wait("the stretch let go", |screen| !screen.contents().contains("Chosen stretch"));

    pty.press("mdeploy of today\r");
    pty.press("7");
    pty.wait_for("deploy of today");

    let children = children(pty.pid());
    assert!(!children.is_empty(), "the demo's process and the NVML helper");
    pty.press("q");
    assert!(pty.exit().success());
    assert_restored(&pty);
    for child in children {
        assert!(!is_running(child), "{child} was left behind");
    }
}

/// The name of a recording of real buffers among the fixtures.
const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/cupti-13.0.85-mixed.cuptibuf.xz");

#[test]
fn the_screen_says_what_the_summary_says() {
    let program = OsStr::new(env!("CARGO_BIN_EXE_gtop"));
    let stat = std::process::Command::new(program).args(["stat", RECORDED, "--json"]).output().unwrap();
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).unwrap();
    let process = &stat["processes"][0];
    let args = ["replay", RECORDED, "--speed", "100", "--tab", "kernels", "--theme", "mono"];
    let mut pty = Pty::start(program, &args, &[], 200, 60);
    pty.wait_for("‖ REPLAY");
    let kernels = process["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty());
    for kernel in kernels {
        // Thousands are set apart on the screen.
        let calls = kernel["calls"].as_u64().unwrap();
        let share = format!("{:.1} %", kernel["share"].as_f64().unwrap() * 100.0);
        pty.wait(&format!("row with {calls} and {share}"), |screen| {
            let row = |line: &str| {
                let words: Vec<String> = line.split_whitespace().map(|word| word.replace(',', "")).collect();
                words.contains(&calls.to_string()) && line.contains(&share)
            };
            screen.contents().lines().any(row)
        });
    }
    pty.press("q");
    assert!(pty.exit().success());
    assert_restored(&pty);
}

#[test]
fn a_signal_ends_it_with_the_code_a_shell_expects() {
    let mut pty = demo("quiet");
    pty.wait_for("● LIVE");
    pty.signal(libc::SIGTERM);
    assert_eq!(pty.exit().exit_code(), 128 + 15);
    assert_restored(&pty);
}

#[test]
fn a_signal_that_asks_for_a_picture_of_the_memory_ends_it_by_that_signal() {
    let mut pty = demo("quiet");
    pty.wait_for("● LIVE");
    pty.signal(libc::SIGQUIT);
    let end = pty.exit();
    assert!(end.signal().is_some_and(|signal| signal.contains("Quit")), "{end:?}");
    assert_restored(&pty);
}

#[test]
fn read_only_only_looks() {
    let program = OsStr::new(env!("CARGO_BIN_EXE_gtop"));
    let mut pty = Pty::start(program, &["demo", "quiet", "--read-only"], &[], 80, 24);
    pty.wait_for("● ARMED");
    pty.press("tk");
    pty.wait_for("read-only: kinds cannot be changed");
    // What is stopped is not called idle.
    let is_watched = |pid: &i32| pty.look(|screen| screen.contents().contains(&format!(" {pid} ")));
    let watched = children(pty.pid()).into_iter().find(is_watched).unwrap();
    let signal = |signal| kill(Pid::from_raw(watched), signal).unwrap();
    signal(Signal::SIGSTOP);
    pty.wait_for("● STOPPED");
    signal(Signal::SIGCONT);
    pty.wait_for("● ARMED");
    pty.press("q");
    assert!(pty.exit().success());
}

#[test]
fn the_recording_that_comes_along_is_played_jumped_in_and_left() {
    let mut pty = demo("recorded");
    pty.wait_for("▶ REPLAY 0:00");
    pty.wait_for("nvjet_sm90");
    pty.wait_for("ARMED");
    pty.press(" ");
    pty.wait_for("‖ REPLAY 0:00");
    pty.press("J2s\r");
    pty.wait_for("‖ REPLAY 0:02.0/0:0");
    pty.press("J0s\r");
    pty.wait_for("‖ REPLAY 0:00.0/0:0");
    pty.press("m");
    pty.wait_for("this is a recording: what it shows is over");
    // Played to its end it stands still.
    pty.press(">>>>>> ");
    pty.wait("the end", |screen| {
        let text = screen.contents();
        text.contains("REPLAY 0:02.9/0:02.9") && !text.contains('▶')
    });
    pty.press("q");
    assert!(pty.exit().success());
    assert_restored(&pty);
}
