//! CUPTI's two interfaces: v1 unless v2 is asked for or the only way in, and never both.

mod common;

use common::{Host, PER_TURN, Setup, Viewer, mixed};
use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, Reason, StateCode};
use serde_json::Value;

/// The first driver that bears several subscribers, and the one that was measured not to.
const SEVERAL: &str = "610.43.02";
const ONE: &str = "580.159.04";

/// Ten turns, all of whose records arrive.
fn works(host: &mut Host, viewer: &mut Viewer) {
    let before = viewer.received();
    host.say("turns 10");
    viewer.ask(Action::Flush);
    let owed = before + 10 * PER_TURN;
    viewer.until("the records", |viewer| viewer.received() == owed && viewer.balances());
}

/// Nothing was called that CUPTI forbids, and no activity call of the other interface.
fn is_well(host: &mut Host, interface: u8) {
    let truth = host.truth();
    assert_eq!((&truth["crash"], &truth["misuse"]), (&Value::Null, &Value::Array(Vec::new())));
    let calls: Vec<&str> = truth["calls"].as_object().unwrap().keys().map(String::as_str).collect();
    let v2 = ["cuptiActivityRegisterCallbacks_v2", "cuptiActivityEnable_v2", "cuptiGetTimestamp_v2"];
    let v1 = ["cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiGetTimestamp"];
    let (own, other) = if interface == 1 { (v1, v2) } else { (v2, v1) };
    assert!(own.iter().all(|call| calls.contains(call)), "{calls:?}");
    assert!(!other.iter().any(|call| calls.contains(call)), "{calls:?}");
}

fn rests(host: &Host) -> Viewer {
    let mut viewer = host.viewer();
    viewer.until("rest", |viewer| viewer.state == Some(StateCode::Resting));
    viewer
}

#[test]
fn it_is_v1_unless_v2_is_asked_for() {
    for (variable, driver, interface, others) in
        [("", SEVERAL, 1, ["39", "39"]), ("v2", ONE, 2, ["39", "39"]), ("v2", SEVERAL, 2, ["39", "0"])]
    {
        let setup = Setup::new(&mixed(130_500)).driver(driver);
        let mut host = setup.variable("GTOP_EARLY", "1").variable("GTOP_INTERFACE", variable).start();
        let mut viewer = host.watcher();
        viewer.until("the interface", |viewer| viewer.interface == interface);
        works(&mut host, &mut viewer);
        assert_eq!(host.say("hold torch"), others[0], "a user of v1 beside v{interface} on {driver}");
        assert_eq!(host.say("share xla"), others[1], "a user of v2 beside v{interface} on {driver}");
        works(&mut host, &mut viewer);
        host.say("release");
        drop(viewer);
        rests(&host).until("the release", |viewer| !viewer.subscribed);
        assert_eq!(host.say("hold torch"), "0", "while gtop rests");
        host.say("release");
        let mut viewer = host.watcher();
        works(&mut host, &mut viewer);
        is_well(&mut host, interface);
    }
}

#[test]
fn beside_a_v2_user_it_is_v2() {
    let mut host = Setup::new(&mixed(130_500)).driver(SEVERAL).start();
    assert_eq!(host.say("share CUPTI for xla"), "0");
    let mut viewer = host.watcher();
    viewer.until("the interface", |viewer| viewer.interface == 2);
    viewer.until("the word", |viewer| viewer.has_notice("interface", "beside \"CUPTI for xla\""));
    works(&mut host, &mut viewer);
    drop(viewer);
    // What the other has not finished stays its own, so that the buffers may take a while to come back.
    let mut viewer = rests(&host);
    viewer.until("the word", |viewer| viewer.has_notice("resting", "all kinds are off"));
    host.say("release");
    viewer.until("the release", |viewer| !viewer.subscribed);
    let mut viewer = host.watcher();
    viewer.until("the interface", |viewer| viewer.interface == 1);
    works(&mut host, &mut viewer);
    let truth = host.truth();
    assert_eq!((&truth["crash"], &truth["misuse"]), (&Value::Null, &Value::Array(Vec::new())));
}

#[test]
fn a_v2_user_is_left_alone_where_the_driver_bears_one_subscriber() {
    let mut host = Setup::new(&mixed(130_500)).driver(ONE).start();
    assert_eq!(host.say("share CUPTI for xla"), "0");
    let mut viewer = host.viewer();
    let (outcome, text) = viewer.ask(Action::Watch);
    assert_eq!(outcome, Outcome::Failed);
    assert!(text.contains("it calls itself \"CUPTI for xla\""), "{text}");
    viewer.until("busy", |viewer| viewer.reason == Some(Reason::Busy));
    assert_eq!(viewer.interface, 0, "none is in use");
}

#[test]
fn where_there_is_no_v2_it_is_v1_and_said() {
    let mut host = Setup::new(&mixed(130_202)).driver(SEVERAL).variable("GTOP_INTERFACE", "v2").start();
    let mut viewer = host.watcher();
    viewer.until("the word", |viewer| {
        viewer.has_notice("interface", "needs CUPTI 13.3 or newer, this is 13.2.86: v1 is used")
    });
    assert_eq!(viewer.interface, 1);
    host.say("turns 10");
    viewer.ask(Action::Flush);
    is_well(&mut host, 1);
}

#[test]
fn a_v2_that_fails_is_said_to_and_harms_nobody() {
    for (call, result) in [
        ("cuptiSubscribe_v2", 27),
        ("cuptiActivityRegisterCallbacks_v2", 1),
        ("cuptiActivityEnable_v2", 35),
        ("cuptiActivityDisable_v2", 999),
        ("cuptiGetTimestamp_v2", 15),
        ("cuptiActivityGetNumDroppedRecords_v2", 15),
        ("cuptiActivityGetEnabledKinds", 27),
    ] {
        let fault = format!("[[fault]]\nwhat = \"error\"\ncall = \"{call}\"\nresult = {result}\n");
        let setup = Setup::new(&format!("{}{fault}", mixed(130_500))).driver(SEVERAL);
        let mut host = setup.variable("GTOP_INTERFACE", "v2").start();
        let mut viewer = host.viewer();
        viewer.ask(Action::Watch);
        host.say("turns 10");
        viewer.ask(Action::Flush);
        drop(viewer);
        let truth = host.truth();
        assert_eq!((&truth["crash"], &truth["misuse"]), (&Value::Null, &Value::Array(Vec::new())), "{call}");
        let (status, _, errors) = host.exit("return");
        assert_eq!((status.code(), errors.as_str()), (Some(0), ""), "{call}");
    }
}
