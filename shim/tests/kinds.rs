//! Arming, resting and switching kinds, by CUPTI version and by who asks.

mod common;

use common::{Host, PER_TURN, Setup, Viewer, mixed};
use gtop_protocol::control::{Action, YES};
use gtop_protocol::message::{Outcome, PoolState, StateCode};
use gtop_protocol::{Kind, KindSet};

const MEMCPY: u32 = 1 << Kind::Memcpy as u32;

/// A viewer that only looks, once the shim rests.
fn looker(host: &Host) -> Viewer {
    let mut viewer = host.viewer();
    viewer.until("rest", |viewer| matches!(viewer.state, Some(StateCode::Resting | StateCode::Tainted)));
    viewer
}

/// A graph of a copy and a kernel: it sets no memory.
const COPYING: &str = r#"cupti = 130001
[[graph]]
name = "step"
nodes = [ { copy = "d2d", bytes = 64, ns = 500 }, { kernel = "k", ns = 500 } ]
[[thread]]
steps = [ { launch = "step" } ]
"#;

#[test]
fn a_defective_cupti_rests_with_copies_on() {
    let mut host = Setup::new(COPYING).variable("GTOP_EARLY", "1").start();
    let mut watcher = host.watcher();
    host.say("turns 100");
    watcher.ask(Action::Flush);
    watcher.until_delivered(100 * 2);
    drop(watcher);
    let mut looker = looker(&host);
    looker.until("the kinds", |viewer| viewer.enabled == KindSet::EMPTY.with(Kind::Memcpy));
    assert_eq!((looker.watchers, looker.tainted), (0, false));
    host.say("turns 100");
    // What comes meanwhile is counted, and nobody's.
    looker.until("the discarded", |viewer| viewer.loss.discarded == 100);
    let mut again = host.watcher();
    again.until_delivered(0);
    assert_eq!((again.received(), again.enabled), (0, KindSet::SAFE));
    host.say("turns 1000");
    again.ask(Action::Flush);
    again.until("a thousand turns", |viewer| viewer.kernels.len() == 1000 && viewer.balances());
    let truth = host.truth();
    assert_eq!(truth["device_buffers"][0]["growth_mib"], 0, "{truth}");
    assert_eq!(truth["misuse"].to_string(), "[]");
    looker.until("armed", |viewer| viewer.state == Some(StateCode::Armed));
    assert_eq!(looker.received(), 0);
}

#[test]
fn a_defective_cupti_with_a_graph_that_sets_memory_rests_with_everything_on() {
    let mut host = Setup::new(&mixed(130_001)).variable("GTOP_EARLY", "1").start();
    let mut watcher = host.watcher();
    host.say("turns 100");
    watcher.ask(Action::Flush);
    watcher.until_delivered(100 * PER_TURN);
    let kernel = 1 << Kind::Kernel as u32;
    let (outcome, text) = watcher.ask(Action::Disable(kernel));
    assert_eq!((outcome, watcher.enabled), (Outcome::NeedsYes, KindSet::SAFE), "{text}");
    assert!(text.contains("memset off"), "{text}");
    let mut looker = host.viewer();
    looker.until("a state", |viewer| viewer.state.is_some());
    drop(watcher);
    looker.until("the reason", |viewer| viewer.has_notice("resting", "a graph sets memory"));
    assert_eq!((looker.enabled, looker.tainted), (KindSet::SAFE, false));
    host.say("turns 100");
    looker.until("the discarded", |viewer| viewer.loss.discarded == 100 * PER_TURN);
    let mut again = host.watcher();
    host.say("turns 1000");
    again.ask(Action::Flush);
    again.until("a thousand turns", |viewer| viewer.kernels.len() == 5000 && viewer.balances());
    let truth = host.truth();
    assert_eq!(truth["device_buffers"][0]["growth_mib"], 0, "{truth}");
    assert_eq!(truth["misuse"].to_string(), "[]");
    assert_eq!(again.ask_with(Action::Disable(kernel), YES).0, Outcome::Done);
    again.until("the taint", |viewer| viewer.tainted);
}

#[test]
fn records_of_before_are_nobodys() {
    // 13.2 is flushed once a second at most, so that much is with CUPTI when the watcher leaves.
    let scenario = "cupti = 130202\n[[thread]]\nsteps = [ { kernel = \"k\", ns = 500 } ]\n";
    let mut host = Setup::new(scenario).variable("GTOP_KINDS", "kernel").start();
    let watcher = host.watcher();
    host.say("turns 100");
    drop(watcher);
    let mut looker = looker(&host);
    looker.until("all of it, and rest", |viewer| viewer.loss.walked == 100 && viewer.enabled.is_empty());
    assert!(looker.subscribed, "nothing is given back");
    let mut again = host.watcher();
    again.until_delivered(0);
    host.say("turns 10");
    again.ask(Action::Flush);
    again.until_delivered(10);
    assert_eq!((again.kernels.len(), again.valid_kernels()), (10, 10));
}

#[test]
fn what_the_kinds_left_on_bring_before_arming_is_nobodys() {
    let mut host = Setup::new(COPYING).variable("GTOP_EARLY", "1").start();
    drop(host.watcher());
    let mut looker = looker(&host);
    looker.until("copies alone", |viewer| viewer.enabled == KindSet::EMPTY.with(Kind::Memcpy));
    for round in 1..=5 {
        host.say("turns 100");
        let mut again = host.watcher();
        again.until_delivered(0);
        assert_eq!((again.loss.discarded, again.received()), (round * 100, 0));
        drop(again);
        looker.until("armed", |viewer| viewer.state == Some(StateCode::Armed));
        looker.until("rest", |viewer| viewer.state == Some(StateCode::Resting));
    }
}

#[test]
fn a_sound_cupti_rests_with_all_kinds_off() {
    for version in [26, 130_500] {
        let mut host = Setup::new(&mixed(version)).start();
        let mut watcher = host.watcher();
        assert_eq!(watcher.ask(Action::Rest).0, Outcome::Done);
        watcher.until("rest", |viewer| viewer.state == Some(StateCode::Resting));
        watcher.until("no kind", |viewer| viewer.enabled.is_empty());
        host.say("turns 100");
        let (outcome, _) = watcher.ask(Action::Watch);
        assert_eq!((outcome, watcher.state), (Outcome::Done, Some(StateCode::Armed)));
        host.say("turns 10");
        watcher.ask(Action::Flush);
        // The graph is late, so its copy and its memory set come as kernels.
        watcher.until("ten turns", |viewer| viewer.kernels.len() >= 70 && viewer.balances());
        assert_eq!(watcher.kernels.len(), 70, "{version}");
        assert!(watcher.has_notice("resting", "all kinds are off"));
    }
}

#[test]
fn arming_by_request_holds_until_rest() {
    let host = Setup::new(&mixed(130_500)).start();
    let mut ctl = host.viewer();
    assert_eq!(ctl.ask(Action::Arm).0, Outcome::Done);
    drop(ctl);
    drop(host.watcher());
    let mut other = host.viewer();
    other.until("a state", |viewer| viewer.state.is_some());
    assert_eq!(other.state, Some(StateCode::Armed), "{}", host.log());
    assert_eq!(other.ask(Action::Rest).0, Outcome::Done);
    other.until("rest", |viewer| viewer.state == Some(StateCode::Resting));
}

#[test]
fn switching_copies_off_on_a_defective_cupti_asks_first() {
    let mut host = Setup::new(&mixed(130_001)).variable("GTOP_EARLY", "1").start();
    let mut viewer = host.watcher();
    let (outcome, text) = viewer.ask(Action::Disable(MEMCPY));
    assert_eq!(outcome, Outcome::NeedsYes);
    assert!(text.contains("13.0.85") && text.contains("leak"), "{text}");
    assert_eq!(viewer.enabled, KindSet::SAFE, "nothing was done");
    let kernel = 1 << Kind::Kernel as u32;
    assert_eq!(viewer.ask(Action::Disable(kernel)).0, Outcome::Done, "no graph has set memory so far");
    assert_eq!(viewer.ask(Action::Enable(kernel)).0, Outcome::Done);
    // A record tells that the graph's copy stays within the device.
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until("a copy", |viewer| viewer.loss.memcpy > 0);
    assert_eq!(viewer.ask_with(Action::Disable(MEMCPY), YES).0, Outcome::Done);
    viewer.until("the taint", |viewer| viewer.tainted);
    assert_eq!(viewer.enabled, KindSet::SAFE.without(Kind::Memcpy));
    host.say("turns 1000");
    viewer.ask(Action::Flush);
    viewer.until("a leak", |viewer| viewer.pools.iter().any(|pool| pool.state == PoolState::Leaking as u8));
    viewer.until("a warning", |viewer| viewer.has_notice("pool", "leaks device buffers"));

    assert_eq!(viewer.ask(Action::Rest).0, Outcome::Done);
    viewer.until("tainted", |viewer| viewer.state == Some(StateCode::Tainted));
    let mut second = host.viewer();
    let (outcome, text) = second.ask(Action::Watch);
    assert_eq!(outcome, Outcome::NeedsYes);
    assert!(text.contains("restart"), "{text}");
    assert_eq!(second.ask_with(Action::Watch, YES).0, Outcome::Done);
}

#[test]
fn before_the_version_is_known_switching_copies_off_asks_too() {
    let host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.viewer();
    assert_eq!(viewer.ask(Action::Disable(MEMCPY)).0, Outcome::NeedsYes);
    let host = Setup::new(&mixed(130_500)).start();
    let mut viewer = host.watcher();
    assert_eq!(viewer.ask(Action::Disable(MEMCPY)).0, Outcome::Done, "a sound one does not mind");
    assert_eq!(viewer.enabled, KindSet::SAFE.without(Kind::Memcpy));
}

#[test]
fn the_last_request_wins_and_everyone_sees_whose_it_was() {
    let host = Setup::new(&mixed(130_500)).start();
    let (mut first, mut second) = (host.watcher(), host.watcher());
    let overhead = KindSet::EMPTY.with(Kind::Overhead);
    let asked = Action::Enable(overhead.0);
    assert_eq!(first.ask(asked).0, Outcome::Done);
    second.until("overhead", |viewer| viewer.enabled.has(Kind::Overhead));
    assert_eq!(second.by, "the test");
    assert_eq!(second.ask(Action::Disable(overhead.0)).0, Outcome::Done);
    first.until("no overhead", |viewer| !viewer.enabled.has(Kind::Overhead));
    assert!(first.has_notice("kinds", "asked for by the test"));
    assert_eq!(first.enabled, first.asked);
}

#[test]
fn unknown_kinds_in_a_request_are_not_asked_of_cupti() {
    let mut host = Setup::new(&mixed(130_500)).start();
    let mut viewer = host.watcher();
    assert_eq!(viewer.ask(Action::Enable(u32::MAX)).0, Outcome::Done);
    viewer.until("all kinds", |viewer| viewer.enabled == KindSet(0xff));
    assert_eq!(host.truth()["misuse"].to_string(), "[]");
}

#[test]
fn a_kind_that_cupti_refuses_leaves_the_others_on() {
    let scenario = mixed(130_500)
        + "[[fault]]
what = \"error\"
call = \"cuptiActivityEnable\"
result = 35
kind = 1
";
    let mut host = Setup::new(&scenario).variable("GTOP_EARLY", "1").start();
    let mut viewer = host.watcher();
    viewer.until("the refusal", |viewer| viewer.refused.has(Kind::Memcpy));
    assert_eq!((viewer.state, viewer.enabled), (Some(StateCode::Armed), KindSet::SAFE.without(Kind::Memcpy)));
    let (outcome, text) = viewer.ask(Action::Enable(MEMCPY));
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("INSUFFICIENT_PRIVILEGES (35)"), "{text}");
    assert!(viewer.has_notice("kinds", "CUPTI refused memcpy: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"));
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until_delivered(60);
}

#[test]
fn a_process_that_is_read_only_lets_people_watch_and_no_more() {
    let host = Setup::new(&mixed(130_500)).variable("GTOP_READ_ONLY", "1").start();
    let mut viewer = host.watcher();
    for action in [
        Action::Enable(MEMCPY),
        Action::Disable(MEMCPY),
        Action::Arm,
        Action::Rest,
        Action::Flush,
        Action::Budget(10_000),
        Action::Mark(b"deploy"),
    ] {
        let (outcome, text) = viewer.ask(action);
        assert_eq!(outcome, Outcome::Refused, "{action:?}");
        assert!(text.contains("GTOP_READ_ONLY"));
    }
    assert_eq!(viewer.ask(Action::Unwatch).0, Outcome::Done);
}

#[test]
fn a_mark_reaches_every_viewer() {
    let host = Setup::new(&mixed(130_500)).start();
    let (mut first, mut second) = (host.viewer(), host.watcher());
    assert_eq!(first.ask(Action::Mark(b"deploy 7")).0, Outcome::Done);
    second.until("the mark", |viewer| viewer.has_notice("mark", "deploy 7 (the test)"));
    first.until("the mark", |viewer| viewer.has_notice("mark", "deploy 7"));
}

#[test]
fn an_early_start_arms_before_the_application_begins() {
    let mut host = Setup::new("defect").variable("GTOP_EARLY", "1").variable("GTOP_POOL_LIMIT", "4").start();
    let calls = host.truth()["calls"].clone();
    assert_eq!((calls["cuptiSubscribe"].as_u64(), calls["cuptiActivityEnable"].as_u64()), (Some(1), Some(3)));
    let mut viewer = host.watcher();
    assert!(host.log().contains("armed early in"), "{}", host.log());
    assert_eq!(host.truth()["device_buffers"][0]["limit"], 4, "{}", host.truth());
    host.say("turns 100");
    viewer.ask(Action::Flush);
    viewer.until("a pool", |viewer| !viewer.pools.is_empty());
    assert_eq!((viewer.pools[0].limit, viewer.pools[0].state), (4, PoolState::Safe as u8));
}

#[test]
fn what_was_said_before_anyone_joined_is_told_to_each_who_does() {
    let mut host = Setup::new(&mixed(130_001))
        .variable("GTOP_EARLY", "1")
        .variable("GTOP_POOL_LIMIT", "4")
        .variable("GTOP_KINDS", "kernel,memcpy")
        .variable("GTOP_BUDGET", "much")
        .variable("GTOP_LINGER", "soon")
        .start();
    host.say("turns 1");
    for _ in 0..3 {
        let mut viewer = host.viewer();
        assert_eq!(viewer.ask(Action::Mark(b"here")).0, Outcome::Done);
        let said: Vec<_> = viewer.notices.iter().map(|(topic, text)| format!("{topic}: {text}")).collect();
        for part in [
            "pool: device buffers limited to 4 a context",
            "armed: armed early in ",
            "kinds: kernel is on without memset on CUPTI 13.0.85",
            "config: GTOP_BUDGET: \"much\"",
            "config: GTOP_LINGER: \"soon\"",
        ] {
            assert_eq!(said.iter().filter(|said| said.starts_with(part)).count(), 1, "{part}: {said:?}");
        }
        assert!(said.iter().any(|said| said.starts_with("early: ") && said.contains("little or nothing")));
        assert!(
            said.iter().filter(|said| said.contains("here")).count() <= 1,
            "marks are of the moment: {said:?}"
        );
    }
}

#[test]
fn a_pool_limit_without_an_early_start_is_said_to_be_too_late() {
    let mut host = Setup::new(&mixed(130_001)).variable("GTOP_POOL_LIMIT", "4").start();
    let mut viewer = host.watcher();
    viewer.until("the notice", |viewer| viewer.has_notice("pool", "comes too late"));
    host.say("turns 100");
    viewer.ask(Action::Flush);
    viewer.until("a pool", |viewer| !viewer.pools.is_empty());
    assert_eq!((viewer.pools[0].limit, viewer.pools[0].limit_too_late), (250, 1));
    assert_eq!(host.truth()["calls"]["cuptiActivitySetAttribute"].as_u64(), None);
}

#[test]
fn a_thousand_watchers_that_come_and_go_leave_nothing_behind() {
    // Armed all the while, as it is where viewers come and go: each lingers.
    let mut host = Setup::new(&mixed(130_500)).variable("GTOP_LINGER", "").start();
    let once = |host: &mut Host| {
        let mut viewer = host.watcher();
        host.say("turns 3");
        viewer.until_delivered(3 * PER_TURN);
    };
    for _ in 0..20 {
        once(&mut host);
    }
    let before = host.resident();
    for _ in 0..1000 {
        drop(host.watcher());
    }
    once(&mut host);
    let grown = host.resident().saturating_sub(before);
    assert!(grown < 5 << 20, "grown by {grown} bytes");
}
