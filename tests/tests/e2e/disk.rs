//! Recordings on disks that are full, limited or read-only: they end, or are read, and nothing else takes harm.

use std::path::Path;
use std::process::Command;

use gtop_tests::build;
use gtop_tests::gtop::Running;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};

fn text(path: &Path) -> &str {
    path.to_str().expect("the test's paths are UTF-8")
}

/// A shell on the stage, started by `by`, where `$GTOP` is the viewer and `$DIR` a folder.
fn shell(stage: &Stage, by: &[&str], dir: &Path, script: &str) -> Running {
    let mut command = stage.command(Path::new(by[0]));
    command.args(&by[1..]).args(["sh", "-c", script]).env("GTOP", build::gtop()).env("DIR", dir);
    Running::start(command)
}

/// Whether there is such a tool and it may do its work here.
fn can(by: &[&str], work: &str) -> bool {
    let ran = Command::new(by[0]).args(&by[1..]).args(["sh", "-c", work]).output();
    let can = ran.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: `{}` does not work here", by.join(" "));
    }
    can
}

/// Mounts of its own, away from all others; and what to try there.
const APART: [&str; 2] = ["unshare", "--mount"];
const MOUNT: &str = "mount -t tmpfs none /mnt";

/// A recorder that runs out of room, while another viewer watches the same process.
fn runs_out_of_room(by: &[&str], prepare: &str, says: &str) {
    let stage = Stage::new();
    let mut host = stage.host("vllm").start();
    let dir = stage.path().join("small");
    std::fs::create_dir(&dir).unwrap();
    let watch = stage.watch(host.pid());
    let mut witness = stage.witness(host.pid());
    witness.until("a state", |witness| witness.state.is_some());
    let before = witness.watchers;
    let script = format!("{prepare} exec \"$GTOP\" record --attach {} -o \"$DIR/run.gtop\"", host.pid());
    let recorder = shell(&stage, by, &dir, &script);
    witness.until_watched(before + 1);
    for _ in 0..20 {
        host.say("turns 20");
    }
    let ended = recorder.interrupt();
    ended.fails(3, &["run.gtop", says]);
    // A watcher of a host that does nothing but launch may be too slow, and then says so.
    let watched = watch.finish();
    assert_balance(&watched["records"]);
    let delivered: u64 = host.truth().delivered.values().sum();
    assert_eq!(count(&watched["records"]["delivered"]), delivered);
    let left = dir.join("run.gtop");
    if left.exists() {
        // What is kept is a whole recording, of as many records as was said.
        let kept = Summary(stage.gtop(&["stat", text(&left), "--json"]).json());
        // There may have been room for what comes before records alone.
        let shown = kept["total"]["shown"].as_u64().unwrap_or(0);
        let said: String = ended.err.chars().filter(|c| *c != ',').collect();
        assert!(said.contains(&format!("kept and whole: {shown} record")), "{shown}: {said}");
    } else {
        assert!(ended.err.contains("nothing was kept"), "{ended:?}");
    }
    assert_eq!(host.end("return").status.code(), Some(0));
}

#[test]
fn a_limit_on_files_ends_the_recording_and_nothing_else() {
    let limited = ["prlimit", "--fsize=8000"];
    if can(&limited, "true") {
        runs_out_of_room(&limited, "", "ulimit -f");
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    if can(&APART, MOUNT) {
        runs_out_of_room(
            &APART,
            "mount -t tmpfs -o size=8k none \"$DIR\" &&",
            "the disk is full (No space left",
        );
    }
}

#[test]
fn who_watches_and_records_onto_a_full_disk_is_told_so() {
    let stage = Stage::new();
    let host = stage.host("mixed").real_time().start();
    let pid = host.pid().to_string();
    let full = ["/dev/full: the disk is full", "nothing was kept"];
    let stat = ["stat", "--for", "100ms", "--record", "/dev/full", "--attach", &pid];
    let ran = stage.gtop(&stat);
    ran.fails(3, &full);
    assert!(ran.out.contains(&pid), "the summary is there all the same: {ran:?}");
    let picture = stage.path().join("x.txt");
    let draw =
        ["--screenshot", text(&picture), "--after", "100ms", "--record", "/dev/full", "--attach", &pid];
    stage.gtop(&draw).fails(3, &full);
    assert!(picture.exists());
    let ran = stage.gtop(&["run", "--no-view", "--record", "/dev/full", "--", "true"]);
    assert_eq!(ran.code(), Some(0), "that of the command: {ran:?}");
    assert!(full.iter().all(|word| ran.err.contains(word)), "{ran:?}");
    // Where nothing was watched no file is left.
    let file = stage.path().join("none.gtop");
    for command in [&["stat"][..], &[]] {
        let arguments = [command, &["--record", text(&file), "--attach", "4194304"]].concat();
        stage.gtop(&arguments).fails(3, &["no such process"]);
        assert!(!file.exists(), "{command:?}");
    }
}

#[test]
fn a_recording_is_read_where_nothing_can_be_written() {
    if !can(&APART, MOUNT) {
        return;
    }
    let stage = Stage::new();
    let run = stage.path().join("run.gtop");
    stage.gtop(&["record", "--demo", "recorded", "-o", text(&run)]).good();
    let read = Summary(stage.gtop(&["stat", text(&run), "--json"]).json());
    let dir = stage.path().join("fixed");
    std::fs::create_dir(&dir).unwrap();
    let there = |command: &str| {
        let fixed = "mount -t tmpfs none \"$DIR\" && cp \"$DIR/../run.gtop\" \"$DIR\" && \
                     mount -o remount,ro \"$DIR\" && cd \"$DIR\" &&";
        shell(&stage, &APART, &dir, &format!("{fixed} exec \"$GTOP\" {command}")).finish()
    };
    assert_eq!(there("stat run.gtop --json").json(), read.0);
    let rows = there("export run.gtop --to csv -o -").good().lines().count() as u64;
    assert_eq!(rows, count(&read.0["total"]["shown"]) + 1, "and the header");
    there("replay run.gtop --at 2s --screenshot ../then.txt").good();
    let picture = std::fs::read_to_string(stage.path().join("then.txt")).unwrap();
    assert!(picture.contains("REPLAY"), "{picture}");
    there("export run.gtop --to parquet -o x.parquet").fails(3, &["x.parquet", "Read-only file system"]);
    there("record run.gtop -o y.gtop").fails(3, &["y.gtop", "Read-only file system"]);
}
