//! Recordings: what was seen live is read again to the record, whatever becomes of the file and of who writes it.

use std::fs::File;
use std::path::{Path, PathBuf};

use gtop_protocol::message::StateCode;
use gtop_protocol::recording::{Counts, Recording};
use gtop_tests::gtop::Ran;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, assert_truth, count};
use gtop_tests::wait::wait_for;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn text(path: &Path) -> &str {
    path.to_str().expect("the test's paths are UTF-8")
}

/// What `gtop stat` says of a file.
fn stat(stage: &Stage, path: &Path) -> Ran {
    stage.gtop(&["stat", text(path), "--json"])
}

/// The records that can be read of a file now.
fn records(path: &Path) -> u64 {
    let mut counts = Counts::default();
    if let Ok(recording) = File::open(path).map_err(Into::into).and_then(Recording::open) {
        recording.chunks().iter().for_each(|chunk| counts.add(&chunk.counts()));
    }
    counts.total()
}

/// A recording of so many turns of a scenario.
fn recorded(stage: &Stage, scenario: &str, turns: u32, more: &[&str]) -> (PathBuf, u64) {
    let path = stage.path().join("run.gtop");
    let mut host = stage.host(scenario).start();
    let pid = host.pid().to_string();
    let mut witness = stage.witness(host.pid());
    witness.until("a state", |witness| witness.state.is_some());
    let before = witness.watchers;
    let arguments = [&["record", "--attach", &pid, "-o", text(&path)], more].concat();
    let gtop = stage.start_gtop(&arguments);
    witness.until_watched(before + 1);
    for _ in 0..10 {
        host.say(&format!("turns {}", turns / 10));
    }
    let said = gtop.interrupt().good();
    let truth = host.truth();
    let delivered = truth.delivered.values().sum::<u64>();
    let counted =
        said.split(" records in").next().and_then(|said| said.rsplit(' ').next()).unwrap_or_default();
    if more.is_empty() {
        // The last chunk is among them.
        assert_eq!(counted.replace(',', "").parse(), Ok(records(&path)), "{said}");
    }
    (path, delivered)
}

#[test]
fn what_was_recorded_is_summarised_as_it_was_live() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[graph]]
name = "step"
nodes = [ { copy = "d2d", bytes = 64, ns = 500 }, { kernel = "k\"1\"", ns = 500 } ]
[[thread]]
steps = [ { launch = "step" }, { copy = "h2d", bytes = 64, ns = 500 }, { memset = 64, ns = 300 } ]
[[fault]]
what = "timestamps"
class = "zero"
at = [7, 11]
"#;
    let mut host = stage.host(scenario).early().start();
    let (pid, path) = (host.pid().to_string(), stage.path().join("run.gtop"));
    let mut witness = stage.witness(host.pid());
    witness.until("a state", |witness| witness.state.is_some());
    let before = witness.watchers;
    let live =
        stage.start_gtop(&["stat", "--json", "--for", "10m", "--attach", &pid, "--record", text(&path)]);
    witness.until_watched(before + 1);
    host.say("turns 300");
    stage.ctl(host.pid(), &["mark", "half"]).good();
    host.say("turns 300");
    witness.until("a pool", |witness| !witness.pools.is_empty());
    let live = Summary(live.interrupt().json());
    assert_balance(&live["records"]);
    assert_eq!(live["validity"]["zero"], 2);
    let read = stat(&stage, &path).json();
    assert_eq!(read, live.0, "every number");
}

#[test]
fn a_recording_that_was_killed_has_all_but_the_last_second() {
    let stage = Stage::new();
    let path = stage.path().join("run.gtop");
    let mut host = stage.host("vllm").start();
    let mut witness = stage.witness(host.pid());
    witness.until("a state", |witness| witness.state.is_some());
    let gtop = stage.start_gtop(&["record", "--attach", &host.pid().to_string(), "--output", text(&path)]);
    let before = witness.watchers;
    witness.until_watched(before + 1);
    host.say("turns 20");
    let owed = host.truth().expected.values().sum::<u64>();
    wait_for("the records in the file", || (records(&path) == owed).then_some(()));
    gtop.signal(Signal::SIGKILL);
    gtop.finish();
    let ran = stat(&stage, &path);
    ran.fails(4, &["breaks off", "what comes before was used"]);
    let stat = Summary(serde_json::from_str(&ran.out).unwrap());
    assert_truth(stat.of(host.pid()), &host.truth());
    assert_eq!(host.end("return").status.code(), Some(0));
}

#[test]
fn parts_and_cuts_are_recordings_that_balance() {
    let stage = Stage::new();
    let (path, delivered) = recorded(&stage, "vllm", 600, &["--max-size", "24k"]);
    let part = |number: u32| match number {
        1 => path.clone(),
        _ => path.with_file_name(format!("run.{number}.gtop")),
    };
    let (mut sum, mut parts) = (0, 0);
    while part(parts + 1).exists() {
        parts += 1;
        let stat = Summary(stat(&stage, &part(parts)).json());
        let records = &stat["records"];
        if parts > 1 {
            assert_balance(records);
            assert_eq!(stat["state"], "armed");
        }
        // This viewer may have been too slow for a host that does nothing but launch.
        sum += count(&records["shown"]) + count(&records["lost"]["slow_viewer"]);
        let kernels = stat["kernels"].as_array().unwrap();
        assert!(kernels.iter().all(|kernel| kernel["name"] != Value::Null), "{kernels:?}");
    }
    assert_eq!((sum, parts > 1), (delivered, true), "{parts} parts");

    let picture = stage.path().join("then.txt");
    let replay = |path: &Path, at: &str| {
        let arguments = ["replay", text(path), "--at", at, "--screenshot", text(&picture)];
        stage.gtop(&arguments).good();
        std::fs::read_to_string(&picture).unwrap()
    };
    let then = replay(&part(2), "0s");
    assert!(then.contains("REPLAY 0:0") && then.contains("ARMED"), "{then}");

    let cut = stage.path().join("cut.gtop");
    let whole = stage.path().join("whole.gtop");
    stage.gtop(&["record", text(&part(2)), "-o", text(&whole)]).good();
    let (one, other) = (stat(&stage, &part(2)).json(), stat(&stage, &whole).json());
    assert_eq!(one["processes"][0]["kernels"], other["processes"][0]["kernels"]);
    let ran = stage.gtop(&["record", text(&part(1)), "-o", text(&cut), "--from", "1h"]);
    ran.fails(3, &["nothing between these times", "behind its end"]);
    let ran = stage.gtop(&["export", text(&whole), "--to", "csv", "-o", text(&cut), "--from", "1h"]);
    ran.fails(3, &["nothing between these times", "behind its end"]);
}

#[test]
fn a_recording_cannot_be_had_everywhere_and_does_no_harm() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let pid = host.pid().to_string();
    let taken = stage.path().join("taken.gtop");
    std::fs::write(&taken, "precious").unwrap();
    let record = |path: &str| stage.gtop(&["record", "--attach", &pid, "-o", path, "--for", "300ms"]);
    record(text(&taken)).fails(3, &["taken.gtop", "nothing is overwritten"]);
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "precious");
    record("/no/such/folder/x.gtop").fails(3, &["/no/such/folder/x.gtop: No such file"]);
    record("/dev/full").fails(3, &["/dev/full: the disk is full (No space left", "nothing was kept"]);
    // Until the last of them is gone for the shim, too, it is armed for that one.
    let rests = [Some(StateCode::Loaded), Some(StateCode::Resting)];
    stage.witness(host.pid()).until("rest", |witness| rests.contains(&witness.state));
    let stat = stage.watch(host.pid());
    host.say("turns 50");
    assert_truth(stat.finish().of(host.pid()), &host.truth());
    assert_eq!(host.end("return").status.code(), Some(0));
}

#[test]
fn damaged_recordings_are_read_as_far_as_they_go() {
    let stage = Stage::new();
    let (path, delivered) = recorded(&stage, "mixed", 500, &[]);
    let whole = std::fs::read(&path).unwrap();
    let damaged = stage.path().join("damaged.gtop");
    for step in 0..12 {
        let mut bytes = whole.clone();
        if step % 2 == 0 {
            bytes.truncate(whole.len() * (step + 1) / 13);
        } else {
            let at = whole.len() * step / 13;
            bytes[at] ^= 1 << (step % 8);
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let ran = stat(&stage, &damaged);
        assert!(matches!(ran.code(), Some(0 | 4)), "{step}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{step}: {ran:?}");
        if ran.code() == Some(0) {
            assert_eq!(Summary(ran.json())["records"]["shown"], json!(delivered), "{step}");
        } else {
            assert!(ran.err.contains("damaged at byte"), "{step}: {ran:?}");
        }
    }
    std::fs::write(&damaged, [&whole[..8], &[9, 0], &whole[10..]].concat()).unwrap();
    stat(&stage, &damaged).fails(4, &["format 9", "use the gtop that wrote it"]);
    std::fs::write(&damaged, b"hello, world").unwrap();
    stat(&stage, &damaged).fails(4, &["no file gtop can read"]);
}
