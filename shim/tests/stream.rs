//! Records on their way from a host with the shim inside to its viewers, and the balance of them.

mod common;

use common::{Host, PER_TURN, Setup, mixed};
use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, StateCode};
use gtop_protocol::{Kind, KindSet, Notes, Validity};

fn calls(host: &mut Host) -> u64 {
    let truth = host.truth();
    truth["calls"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn the_first_watcher_arms_and_gets_every_record() {
    let mut host = Setup::new(&mixed(130_001)).start();
    host.say("turns 10");
    let mut viewer = host.viewer();
    viewer.until("a state", |viewer| viewer.state.is_some());
    assert_eq!((viewer.state, viewer.cupti), (Some(StateCode::Loaded), None));
    assert_eq!(viewer.pid, host.pid());
    assert_eq!(calls(&mut host), 0, "nothing of CUPTI is called before anyone watches");
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!((outcome, text.as_str()), (Outcome::Done, "armed: kernel memcpy memset"), "{}", host.log());
    host.say("turns 1000");
    assert_eq!(viewer.ask(Action::Flush).0, Outcome::Done);
    viewer.until_delivered(1000 * PER_TURN);
    assert_eq!((viewer.state, viewer.cupti), (Some(StateCode::Armed), Some(130_001)));
    assert!(viewer.cupti_path.ends_with("libcupti.so.13"), "{}", viewer.cupti_path);
    assert_eq!(viewer.loss.offered, 1000 * PER_TURN);
    assert_eq!(viewer.valid_kernels(), viewer.kernels.len());
    assert!(viewer.kernels.iter().all(|kernel| viewer.names.contains_key(&kernel.name.get())));
    assert!(viewer.kernels.iter().all(|kernel| kernel.notes & Notes::UNASKED_KIND == 0));
    assert!(viewer.clock.is_some());
    viewer.until("the host buffers", |viewer| viewer.host_buffers.size == 262_144);
    assert_eq!((viewer.enabled, viewer.gaps), (KindSet::SAFE, 0));
    viewer.until("the notice", |viewer| viewer.has_notice("armed", "armed late in"));
    assert_eq!(host.truth()["misuse"].as_array().map(Vec::len), Some(0));
}

#[test]
fn every_version_of_cupti_gives_the_same_records() {
    for version in [22, 26, 28, 130_001, 130_101, 130_202, 130_301, 130_401, 130_500] {
        let mut host = Setup::new(&mixed(version)).variable("GTOP_EARLY", "1").start();
        let mut viewer = host.watcher();
        host.say("turns 50");
        viewer.ask(Action::Flush);
        viewer.until_delivered(50 * PER_TURN);
        assert_eq!(viewer.kernels.len() as u64, 50 * 5, "{version}");
        assert_eq!((viewer.copies.len(), viewer.memsets.len()), (100, 50), "{version}");
        let truth = host.truth();
        assert_eq!((truth["misuse"].to_string(), truth["crash"].to_string()), ("[]".into(), "null".into()));
    }
}

#[test]
fn a_quiet_process_delivers_without_being_asked() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    host.say("turns 3");
    viewer.until_delivered(3 * PER_TURN);
}

#[test]
fn each_viewer_has_a_balance_from_its_own_joining() {
    let mut host = Setup::new(&mixed(130_500)).start();
    let mut first = host.watcher();
    host.say("turns 100");
    first.ask(Action::Flush);
    first.until_delivered(100 * PER_TURN);
    let mut second = host.watcher();
    second.until("the counters", |viewer| viewer.losses > 0);
    assert_eq!((second.delivered(), second.loss.walked), (0, 100 * PER_TURN));
    assert!(second.names.len() >= 2, "names so far come to whoever joins late");
    host.say("turns 50");
    second.ask(Action::Flush);
    first.until_delivered(150 * PER_TURN);
    second.until_delivered(50 * PER_TURN);
    assert_eq!(second.watchers, 2);
    assert_eq!(first.ask(Action::Unwatch).0, Outcome::Done);
    host.say("turns 10");
    second.ask(Action::Flush);
    second.until_delivered(60 * PER_TURN);
    assert_eq!(first.received(), 150 * PER_TURN);
}

#[test]
fn a_storm_on_several_threads_balances_to_the_record() {
    let mut host = Setup::new("storm").real_time().start();
    let mut viewer = host.watcher();
    host.say("run");
    viewer.until("half a million records", |viewer| viewer.loss.walked > 500_000);
    host.say("stop");
    viewer.ask(Action::Flush);
    let truth = host.truth();
    let delivered: u64 =
        truth["delivered"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    // Whatever a machine too slow for the storm loses is in the balance too.
    viewer.until_delivered(delivered);
    println!("queue full {}, slow viewer {}", viewer.loss.queue_full, viewer.loss.dropped);
    assert_eq!(viewer.gaps > 0, viewer.loss.dropped > 0);
}

#[test]
fn copies_nobody_asked_for_are_noted() {
    let mut host =
        Setup::new(&mixed(26)).variable("GTOP_EARLY", "1").variable("GTOP_KINDS", "kernel").start();
    let mut viewer = host.watcher();
    host.say("turns 20");
    viewer.ask(Action::Flush);
    viewer.until_delivered(20 * 7);
    assert_eq!((viewer.kernels.len(), viewer.copies.len(), viewer.memsets.len()), (100, 20, 20));
    assert!(viewer.copies.iter().all(|copy| copy.notes & Notes::UNASKED_KIND != 0));
    assert!(viewer.kernels.iter().all(|kernel| kernel.notes & Notes::UNASKED_KIND == 0));
}

#[test]
fn copies_between_devices_name_the_other_one() {
    let scenario = "cupti = 130001
[[thread]]
steps = [ { copy = \"p2p\", bytes = 4096, ns = 500 }, { kernel = \"k\", ns = 100 } ]
";
    let mut host = Setup::new(scenario).start();
    let mut viewer = host.watcher();
    host.say("turns 5");
    viewer.until_delivered(10);
    assert_eq!(viewer.copies.len(), 5);
    assert!(viewer.copies.iter().all(|copy| copy.direction == 10 && copy.peer_device != copy.device));
}

#[test]
fn the_other_kinds_come_when_asked_for() {
    let scenario = "cupti = 130001
[[thread]]
steps = [ { kernel = \"k\", ns = 100 }, { alloc = 4096 }, { sync = true } ]
";
    let mut host = Setup::new(scenario).start();
    let mut viewer = host.watcher();
    let all = KindSet::parse("runtime,driver,sync,memory,overhead").unwrap();
    let (outcome, text) = viewer.ask(Action::Enable(all.0));
    assert_eq!(outcome, Outcome::Done, "{text}");
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until("ten kernels and what goes with them", |viewer| {
        viewer.kernels.len() == 10 && viewer.others.len() >= 20 && viewer.losses > 0 && viewer.balances()
    });
    for kind in [Kind::Runtime, Kind::Sync, Kind::Memory] {
        let count = viewer.others.iter().filter(|other| other.cupti_kind == kind.cupti()).count();
        assert!(count >= 10, "{}: {count}", kind.name());
    }
    assert!(viewer.others.iter().all(|other| other.validity == Validity::Valid as u8));
    assert_eq!(viewer.loss.other as usize, viewer.others.len());
}

#[test]
fn a_name_that_changes_behind_its_pointer_is_seen() {
    let scenario = "cupti = 130001
[[thread]]
steps = [ { kernel = \"first_name\", ns = 100 } ]
[[fault]]
what = \"reuse_name\"
name = \"first_name\"
becomes = \"other_name\"
after = 100
";
    let mut host = Setup::new(scenario).start();
    let mut viewer = host.watcher();
    host.say("turns 100");
    viewer.ask(Action::Flush);
    viewer.until_delivered(100);
    host.say("turns 50");
    viewer.ask(Action::Flush);
    viewer.until_delivered(150);
    let named =
        |name: &str| viewer.kernels.iter().filter(|kernel| viewer.names[&kernel.name.get()] == name).count();
    assert_eq!((named("first_name"), named("other_name")), (100, 50));
}

#[test]
fn correlation_ids_go_on_where_cupti_wraps() {
    let scenario = "cupti = 130001
[[thread]]
steps = [ { kernel = \"k\", ns = 100 } ]
[[fault]]
what = \"correlation\"
start = 4294967200
";
    let mut host = Setup::new(scenario).start();
    let mut viewer = host.watcher();
    host.say("turns 200");
    viewer.ask(Action::Flush);
    viewer.until_delivered(200);
    // 0 means that there is none, and stays so.
    let ids: Vec<u64> =
        viewer.kernels.iter().map(|kernel| kernel.correlation.get()).filter(|id| *id > 0).collect();
    assert!(
        ids.is_sorted() && ids[0] == 4_294_967_200 && ids.last() == Some(&(4_294_967_200 + 199)),
        "{ids:?}"
    );
}

#[test]
fn timestamps_are_classed_and_none_is_lost() {
    for (class, validity) in [
        ("zero", Validity::Zero),
        ("zero_start", Validity::ZeroStart),
        ("zero_end", Validity::ZeroEnd),
        ("inverted", Validity::Inverted),
        ("sentinel", Validity::Sentinel),
        ("foreign_clock", Validity::ForeignClock),
        ("future", Validity::Future),
    ] {
        let scenario = format!(
            "cupti = 130001
[[thread]]
every = \"1ms\"
steps = [ {{ kernel = \"k\", ns = 100, times = 20 }} ]
[[fault]]
what = \"timestamps\"
class = \"{class}\"
every = 10
"
        );
        let mut host = Setup::new(&scenario).real_time().start();
        let mut viewer = host.watcher();
        host.say("run");
        viewer.until("kernels", |viewer| viewer.kernels.len() > 1000);
        host.say("stop");
        viewer.ask(Action::Flush);
        let truth = host.truth();
        viewer.until_delivered(truth["delivered"]["kernel"].as_u64().unwrap());
        let bad = viewer.kernels.iter().filter(|kernel| kernel.validity == validity as u8).count();
        assert_eq!(truth["classes"][class].as_u64(), Some(bad as u64), "{class}: {}", truth["classes"]);
        assert_eq!(viewer.valid_kernels() + bad, viewer.kernels.len(), "{class}");
    }
}
