//! `--dump-raw`: CUPTI's buffers, through the socket into files, and what `gtop stat` reads in them.

use std::path::{Path, PathBuf};

use gtop_sim::Kind;
use gtop_tests::host::Host;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, count};
use gtop_tests::wait::wait_for;
use serde_json::{Value, json};

/// The `.cuptibuf` files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    assert!(files.iter().all(|file| file.extension().is_some_and(|it| it == "cuptibuf")), "{files:?}");
    files
}

/// What `gtop stat` reads; the last buffer may be cut, since the viewer was interrupted.
fn stat(stage: &Stage, file: &Path) -> Summary {
    let ran = stage.gtop(&["stat".as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert!(matches!(ran.code(), Some(0 | 4)), "{ran:?}");
    Summary(serde_json::from_str(&ran.out).unwrap())
}

/// Watches with `--dump-raw` and these arguments while the host works until buffers come, and then for 500 turns more,
/// and until `done` is true of the files. Gives the kernel records delivered in those turns, and what was written.
fn dumped(
    stage: &Stage,
    scenario: &str,
    arguments: &[&str],
    done: impl Fn(u64, &[Summary]) -> bool,
) -> Vec<Summary> {
    let mut host = stage.host(scenario).start();
    let folder = stage.path().join("raw");
    let (pid, to) = (host.pid().to_string(), folder.to_str().unwrap().to_owned());
    let arguments = [&["--attach", &pid, "--dump-raw", &to], arguments].concat();
    let gtop = stage.start_gtop(&arguments);
    let mut witness = stage.witness(host.pid());
    witness.until_watched(1);
    let mut work = |host: &mut Host, turns: u64| {
        host.say(&format!("turns {turns}"));
        let truth = host.truth();
        let owed: u64 = truth.delivered.values().sum();
        witness.until("the records", |witness| witness.loss.walked >= owed);
        truth.delivered(Kind::Kernel)
    };
    // The wish for buffers comes behind the one to watch.
    let before = wait_for("a buffer", || {
        let delivered = work(&mut host, 100);
        (!files(&folder).is_empty()).then_some(delivered)
    });
    let after = (0..5).map(|_| work(&mut host, 100)).last().unwrap_or_default();
    let read = wait_for("the files", || {
        let read: Vec<Summary> = files(&folder).iter().map(|file| stat(stage, file)).collect();
        done(after - before, &read).then_some(read)
    });
    assert_eq!(witness.host_buffers.raw_missed, 0);
    let ran = gtop.interrupt();
    assert_eq!(ran.code(), Some(0), "{ran:?}");
    read
}

#[test]
fn all_buffers_hold_what_was_delivered() {
    let stage = Stage::new();
    let files = dumped(&stage, "mixed", &[], |delivered, files| {
        files.iter().map(|file| count(&file["records"]["kernel"])).sum::<u64>() >= delivered
    });
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!((&file["cupti"]["version"], &file["pid"]), (&json!(130_001), &Value::Null));
    let names: Vec<&str> =
        file["kernels"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| !name.starts_with("kernel #")), "{names:?}");
}

#[test]
fn only_buffers_with_bad_records_when_that_is_asked_for() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[thread]]
steps = [ { kernel = "k", ns = 500, times = 50 } ]
[[fault]]
what = "timestamps"
class = "inverted"
every = 30000
"#;
    // Each time the bad record's buffer alone, of at most a thousand records.
    let files = dumped(&stage, scenario, &["--dump-raw-which", "bad"], |_, files| {
        files.iter().map(|file| count(&file["validity"]["inverted"])).sum::<u64>() >= 1
    });
    let [file] = &files[..] else { panic!("{files:?}") };
    let (bad, all) = (count(&file["validity"]["inverted"]), count(&file["records"]["kernel"]));
    assert!(all > bad && all < bad * 1500, "{bad} of {all}");
}

#[test]
fn a_folder_that_cannot_be_is_wrong_usage() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let pid = host.pid().to_string();
    stage.gtop(&["--attach", &pid, "--dump-raw", "/dev/null/x"]).fails(2, &["--dump-raw /dev/null/x"]);
    stage.gtop(&["--attach", &pid, "--dump-raw-which", "bad"]).fails(2, &["--dump-raw"]);
    stage.gtop(&["run", "--dump-raw", "/dev/null/x", "--", "true"]).fails(125, &["--dump-raw /dev/null/x"]);
}
