//! Viewers that die, stop or come in crowds; the host, its work and the other viewers never notice.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use gtop_protocol::control::Action;
use gtop_protocol::frame::{FrameKind, Header};
use gtop_protocol::message::StateCode;
use gtop_tests::host::Host;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, count};
use gtop_tests::wait::wait_for;
use gtop_tests::witness::Witness;
use nix::sys::signal::Signal;

use super::{case, table};

/// Work that any machine keeps up with.
const STEADY: &str = r#"
cupti = 130001
[[graph]]
name = "step"
nodes = [ { copy = "d2d", bytes = 64, ns = 500 }, { kernel = "graph_kernel", ns = 500, times = 4 } ]
[[thread]]
every = "1ms"
steps = [ { kernel = "eager_kernel", ns = 1000, times = 2 }, { launch = "step" } ]
[[thread]]
stream = 9
every = "2ms"
steps = [ { copy = "h2d", bytes = 64, ns = 500 }, { memset = 64, ns = 500 } ]
"#;

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Stops the work; every record of it must have come to this witness or be counted, which most are only where the machine
/// stood still meanwhile, and the host must be well.
fn assert_unharmed(host: &mut Host, witness: &mut Witness) {
    host.say("stop");
    witness.ask(Action::Flush);
    let truth = host.truth();
    witness.until_delivered(truth.delivered.values().sum());
    let missing = witness.loss.queue_full + witness.loss.dropped;
    let few = missing < witness.delivered() / 2;
    assert!(few && (missing > 0 || witness.gaps == 0), "{:?}", witness.loss);
    assert_eq!(truth.delivered, truth.expected);
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
}

/// A viewer is killed at any moment, again and again.
fn killed(stage: &Stage) -> String {
    let mut host = stage.host(STEADY).real_time().start();
    let mut witness = stage.witness(host.pid()).watching();
    host.say("run");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..times(100) {
        let victim = stage.start_stat(host.pid());
        match dice.roll(4) {
            // While it starts,
            0 => {}
            // as it joins,
            1 => witness.until("a second watcher", |witness| witness.watchers == 2),
            // or while records stream to it.
            _ => {
                witness.until("a second watcher", |witness| witness.watchers == 2);
                for _ in 0..=dice.roll(5) {
                    assert!(witness.read_one());
                }
            }
        }
        victim.signal(Signal::SIGKILL);
        assert_eq!(victim.finish().code(), None);
        witness.until("its leave", |witness| witness.watchers == 1);
    }
    assert_unharmed(&mut host, &mut witness);
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
    "the other viewer has every record".into()
}

/// Connections end in the middle of a frame.
fn cut(stage: &Stage) -> String {
    let mut host = stage.host(STEADY).real_time().start();
    let mut witness = stage.witness(host.pid()).watching();
    host.say("run");
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..1000 {
        let mut victim = stage.witness(host.pid());
        if dice.roll(2) == 0 {
            // Half a request.
            let header = Header { len: 100, kind: FrameKind::Request as u16, seq: 1 }.to_bytes();
            victim.stream.write_all(&header[..=dice.roll(15) as usize]).unwrap();
        } else {
            victim.send(Action::Watch, 0);
        }
        let mut part = vec![0; 1 + dice.roll(3000) as usize];
        let read = victim.stream.read(&mut part).unwrap();
        assert!(read > 0);
        drop(victim);
        // Without this the socket's buffer of the one that stays would fill up.
        if witness.watchers > 1 || dice.roll(8) == 0 {
            witness.until("the others' leave", |witness| witness.watchers == 1);
        }
    }
    witness.until("the others' leave", |witness| witness.watchers == 1);
    assert_unharmed(&mut host, &mut witness);
    "the other viewer has every record".into()
}

/// A thousand viewers come and go, with a rest after each ten.
fn come_and_go(stage: &Stage) -> String {
    let mut host = stage.host(STEADY).real_time().start();
    let mut witness = stage.witness(host.pid());
    host.say("run");
    let mut at_rest = None;
    for wave in 0..100u32 {
        let viewers: Vec<_> = (0..10).map(|_| stage.witness(host.pid()).watching()).collect();
        witness.until_watched(10);
        drop(viewers);
        witness.until("rest", |witness| witness.watchers == 0 && witness.state == Some(StateCode::Resting));
        // The first wave started control's thread and opened what stays open.
        let (descriptors, threads) = *at_rest.get_or_insert((host.descriptors(), host.threads()));
        wait_for(&format!("{descriptors} descriptors and {threads} threads after wave {wave}"), || {
            ((host.descriptors(), host.threads()) == (descriptors, threads)).then_some(())
        });
    }
    let truth = host.truth();
    assert_eq!((truth.misuse.len(), truth.crash), (0, None));
    host.say("stop");
    assert!(host.end("return").status.success());
    "armed, and resting in between".into()
}

/// A viewer is stopped while a million records a second come.
fn stopped(stage: &Stage) -> String {
    let mut host = stage.host("storm").real_time().start();
    let stuck = stage.watch(host.pid());
    let mut quick = stage.witness(host.pid()).watching();
    quick.until_watched(2);
    stuck.stat.signal(Signal::SIGSTOP);
    let (stands, began) = (seconds_stopped(), Instant::now());
    drop(stuck.witness);
    host.say("run");
    while quick.delivered() <= 2_000_000 || began.elapsed() < stands {
        assert!(quick.read_one(), "the stream ended");
    }
    host.say("stop");
    quick.ask(Action::Flush);
    let truth = host.truth();
    let delivered = truth.delivered.values().sum();
    quick.until_delivered(delivered);
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
    assert_eq!(truth.delivered, truth.expected, "all of it was recorded");
    stuck.stat.signal(Signal::SIGCONT);
    let given_up = stands > Duration::from_mins(1);
    if given_up {
        // It finds its connection closed and comes again.
        quick.until_watched(2);
    }
    let stat = Summary(stuck.stat.interrupt().json());
    // It was ended while frames were on their way, so not all is shown or lost yet.
    let records = &stat["records"];
    let (shown, lost) = (count(&records["shown"]), count(&records["lost"]["slow_viewer"]));
    assert!((lost > 0 || given_up) && shown > 0 && shown + lost <= delivered, "{records} of {delivered}");
    assert!(host.end("return").status.success());
    "how many records it lost by its own slowness".into()
}

/// How long a viewer stands still at least; a long test by hand sets `GTOP_STOPPED`, seconds. After a minute in which
/// it took nothing, the shim gives it up.
fn seconds_stopped() -> Duration {
    let seconds = std::env::var("GTOP_STOPPED").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Times to do something again; a long test by hand sets `GTOP_TIMES` to do ten or a hundred times as much.
fn times(of: u64) -> u64 {
    let more = std::env::var("GTOP_TIMES").ok().and_then(|times| times.parse::<u64>().ok());
    of * more.unwrap_or(1)
}

#[test]
fn viewers_do_anything() {
    let kills = format!("{} viewers are killed at random moments", times(100));
    table(&[
        case("a viewer is stopped (SIGSTOP) at a million records a second", stopped),
        case(kills, killed),
        case("1,000 connections end in the middle of a frame", cut),
        case("1,000 viewers come and go", come_and_go),
    ]);
}

#[test]
fn one_viewer_too_many_is_told_so() {
    let stage = Stage::new();
    let host = stage.host(STEADY).start();
    let mut crowd: Vec<Witness> = (0..16).map(|_| stage.witness(host.pid()).watching()).collect();
    let pid = host.pid().to_string();
    stage.gtop(&["stat", "--attach", &pid]).fails(3, &["as many viewers as it can"]);
    // Who does not watch is let in beside them all, but not without end.
    stage.ctl(host.pid(), &["mark", "x"]).good();
    let doctor = stage.gtop(&["doctor", "--attach", &pid]);
    assert!(doctor.out.contains("the shim is loaded"), "{doctor:?}");
    let more: Vec<Witness> = (0..4).map(|_| stage.witness(host.pid())).collect();
    stage.ctl(host.pid(), &["mark", "x"]).fails(3, &["hung up", "as many viewers as it can"]);
    drop(more);
    crowd.truncate(15);
    assert_eq!(stage.watch(host.pid()).finish()["state"], "armed");
}
