//! Very many records: at full speed, and for an hour at the rate of a server. The accounts are exact, memory stays flat.

use std::time::{Duration, Instant};

use gtop_protocol::control::Action;
use gtop_protocol::message::Outcome;
use gtop_tests::gtop::Running;
use gtop_tests::host::{Host, resident};
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};
use gtop_tests::witness::Witness;

/// Records of the soak at full speed.
const RECORDS: u64 = 30_000_000;
/// What memory may grow by after the first tenth, bytes: a seventh of a byte a record.
const GROWTH: u64 = 4 << 20;
/// What the viewer keeps of the past at most, bytes: its budgets for the timeline and for histograms, and slack.
const WINDOW: u64 = 64 << 20;

/// Two threads, a thousand kernels each and turn.
const FULL_SPEED: &str = r#"
cupti = 130500
[[graph]]
name = "burst"
nodes = [ { kernel = "_Z5soakAPKfPf", ns = 800, gap = 100, times = 60 }, { kernel = "_Z5soakBPKfPf", ns = 700, times = 40 } ]
[[thread]]
stream = 13
steps = [ { launch = "burst", times = 10 } ]
[[thread]]
stream = 17
steps = [ { launch = "burst", times = 10 } ]
"#;

/// Stops the work, looks whether all is accounted for, and ends the host.
fn settle(mut host: Host, witness: &mut Witness) {
    witness.ask(Action::Flush);
    let truth = host.truth();
    witness.until_delivered(truth.delivered.values().sum());
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
    assert_eq!(truth.delivered, truth.expected);
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
}

/// Resident memory of the host, bytes, but for what its shim has put to use of the room that it has set aside: how many of
/// its frames and buffers were ever lent depends on how quickly they were taken.
fn beyond(host: &Host, witness: &mut Witness) -> u64 {
    let resident = host.resident();
    let before = witness.host_buffers.cpu_ns;
    witness.until("what the shim has in use", |witness| witness.host_buffers.cpu_ns != before);
    resident.saturating_sub(witness.host_buffers.memory)
}

#[test]
fn thirty_million_records_at_full_speed() {
    let stage = Stage::new();
    let mut host = stage.host(FULL_SPEED).start();
    let mut witness = stage.witness(host.pid()).watching();
    let mut settled = None;
    let began = Instant::now();
    while witness.delivered() < RECORDS {
        host.say("turns 10");
        witness.ask(Action::Flush);
        if settled.is_none() && witness.delivered() > RECORDS / 10 {
            settled = Some(beyond(&host, &mut witness));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let (before, after) = (settled.unwrap(), beyond(&host, &mut witness));
    println!(
        "{} records in {seconds:.1} s, {} lost by this viewer, {} for lack of frames; the host's memory went from {} \
         to {} MiB, and {} in frames and buffers",
        witness.delivered(),
        witness.loss.dropped,
        witness.loss.queue_full,
        before >> 20,
        after >> 20,
        witness.host_buffers.memory >> 20
    );
    assert!(after <= before + GROWTH, "memory grew from {before} to {after} bytes");
    settle(host, &mut witness);
}

/// Two hundred may leave a fifth of the 5 MiB that a thousand may.
#[test]
fn watches_leave_nothing_behind() {
    let stage = Stage::new();
    let mut host = stage.host("[[thread]]\nsteps = [ { kernel = \"k\", ns = 1000 } ]\n").start();
    let mut witness = stage.witness(host.pid());
    let mut settled = None;
    for round in 0..220 {
        assert_eq!(witness.ask(Action::Watch).0, Outcome::Done);
        host.say("turns 10");
        assert_eq!(witness.ask(Action::Rest).0, Outcome::Done);
        if round == 20 {
            settled = Some(host.resident());
        }
    }
    let (before, after) = (settled.unwrap(), host.resident());
    assert!(after <= before + (1 << 20), "memory grew from {before} to {after} bytes");
    assert_eq!(witness.ask(Action::Watch).0, Outcome::Done);
    settle(host, &mut witness);
}

/// `tests/soak` runs it. `GTOP_SOAK` is a number of seconds, by default those of an hour.
#[test]
#[ignore = "takes an hour; tests/soak runs it"]
fn an_hour_at_the_rate_of_a_server() {
    let seconds = std::env::var("GTOP_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(3600);
    let lasts = Duration::from_secs(seconds);
    let stage = Stage::new();
    let mut host = stage.host("vllm").real_time().start();
    let viewer: Running =
        stage.start_gtop(&["stat", "--json", "--for", "100h", "--attach", &host.pid().to_string()]);
    let mut witness = stage.witness(host.pid()).watching();
    witness.until_watched(2);
    host.say("run");
    let (began, mut said) = (Instant::now(), 0);
    let mut settled = None;
    while began.elapsed() < lasts {
        assert!(witness.read_one(), "the stream ended");
        let tenths = began.elapsed().as_millis() * 10 / lasts.as_millis().max(1);
        if tenths > said {
            said = tenths;
            let memory = [beyond(&host, &mut witness), resident(viewer.pid())];
            let rate = witness.delivered() as f64 / began.elapsed().as_secs_f64();
            println!(
                "{:>5} s  {:>12} records, {rate:.0}/s, {} lost by this viewer; host {} MiB, viewer {} MiB",
                began.elapsed().as_secs(),
                witness.delivered(),
                witness.loss.dropped,
                memory[0] >> 20,
                memory[1] >> 20
            );
            settled.get_or_insert(memory);
        }
    }
    let before = settled.expect("at least a tenth of the time");
    let after = [beyond(&host, &mut witness), resident(viewer.pid())];
    assert!(after[0] <= before[0] + GROWTH, "the host grew from {} to {} bytes", before[0], after[0]);
    assert!(after[1] <= before[1] + WINDOW, "the viewer grew from {} to {} bytes", before[1], after[1]);
    host.say("stop");
    witness.ask(Action::Flush);
    let delivered: u64 = host.truth().delivered.values().sum();
    let stat = Summary(viewer.interrupt().json());
    println!("{}", stat["records"]);
    assert_balance(&stat["records"]);
    assert!(count(&stat["records"]["delivered"]) <= delivered);
    settle(host, &mut witness);
}
