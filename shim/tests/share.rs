//! CUPTI has one subscriber: how the shim shares it with a profiler that wants it too.

mod common;

use common::{Host, PER_TURN, Setup, Viewer, mixed};
use gtop_protocol::KindSet;
use gtop_protocol::control::{Action, YES};
use gtop_protocol::message::{Outcome, Reason, StateCode};

/// Watches, and leaves again, so that the shim rests.
fn watched_once(host: &mut Host) -> Viewer {
    let mut watcher = host.watcher();
    host.say("turns 10");
    watcher.ask(Action::Flush);
    watcher.until("the records", |viewer| viewer.received() >= 10 && viewer.balances());
    drop(watcher);
    rested(host)
}

fn rested(host: &Host) -> Viewer {
    let mut viewer = host.viewer();
    viewer.until("rest", |viewer| matches!(viewer.state, Some(StateCode::Resting | StateCode::Tainted)));
    viewer
}

#[test]
fn a_profiler_can_start_while_a_sound_cupti_rests_and_gtop_comes_back_after_it() {
    let mut host = Setup::new(&mixed(130_500)).variable("GTOP_EARLY", "1").start();
    assert_eq!(host.say("hold CUPTI for torch"), "39", "before: armed early");
    let mut viewer = host.watcher();
    assert_eq!(host.say("hold CUPTI for torch"), "39", "during");
    for _ in 0..3 {
        drop(viewer);
        let mut looker = rested(&host);
        looker.until("the release", |viewer| !viewer.subscribed);
        assert_eq!(host.say("hold CUPTI for torch"), "0", "while gtop rests");
        viewer = host.viewer();
        let (outcome, text) = viewer.ask(Action::Watch);
        assert_eq!(outcome, Outcome::Failed);
        assert!(text.contains("calls itself \"CUPTI for torch\""), "{text}");
        viewer.until("busy", |viewer| viewer.reason == Some(Reason::Busy));
        host.say("release");
        // A retry by request need not wait for the next try.
        assert_eq!(viewer.ask(Action::Watch).0, Outcome::Done);
        let before = viewer.received();
        host.say("turns 10");
        viewer.ask(Action::Flush);
        let owed = before + 10 * PER_TURN;
        viewer.until("the records", |viewer| viewer.received() == owed && viewer.balances());
    }
    let truth = host.truth();
    assert_eq!(
        (&truth["crash"], truth["misuse"].as_array().map(Vec::len)),
        (&serde_json::Value::Null, Some(0))
    );
    assert_eq!(truth["device_buffers"][0]["growth_mib"], 0, "{truth}");
}

#[test]
fn a_defective_cupti_is_kept_unless_somebody_insists() {
    let mut host = Setup::new(&mixed(130_001)).variable("GTOP_EARLY", "1").start();
    let mut viewer = watched_once(&mut host);
    assert!(viewer.subscribed);
    assert_eq!(host.say("hold torch"), "39");
    let (outcome, text) = viewer.ask(Action::Rest);
    assert_eq!(outcome, Outcome::Done);
    assert!(text.contains("still find CUPTI in use") && text.contains("leaks device buffers"), "{text}");
    assert!(text.ends_with("restarted"), "the sentence is whole: {text}");
    assert_eq!(host.say("hold torch"), "39");
    let (outcome, text) = viewer.ask_with(Action::Rest, YES);
    assert_eq!((outcome, text.as_str()), (Outcome::Done, "tainted; other tools can use CUPTI"));
    viewer.until("no kind", |viewer| viewer.enabled == KindSet::EMPTY && !viewer.subscribed);
    assert!(viewer.tainted);
    assert_eq!(host.say("hold torch"), "0");
    // Only who knows what it costs arms again.
    assert_eq!(viewer.ask(Action::Watch).0, Outcome::NeedsYes);
    host.say("release");
    assert_eq!(viewer.ask_with(Action::Watch, YES).0, Outcome::Done);
}

#[test]
fn a_promise_that_graphs_are_late_frees_a_defective_cupti() {
    let mut host = Setup::new(&mixed(130_001)).variable("GTOP_GRAPHS", "late").start();
    let mut viewer = watched_once(&mut host);
    viewer.until("the release", |viewer| !viewer.subscribed);
    assert!(!viewer.tainted);
    assert_eq!(host.say("hold torch"), "0");
    host.say("release");
    assert_eq!(viewer.ask(Action::Watch).0, Outcome::Done);
    assert_eq!(host.truth()["device_buffers"][0]["growth_mib"], 0);
}

#[test]
fn a_subscription_is_kept_while_cupti_holds_buffers() {
    let scenario = format!("{}[[fault]]\nwhat = \"keep_buffers\"\ncount = 1\n", mixed(130_500));
    let mut host = Setup::new(&scenario).start();
    let watcher = host.watcher();
    host.say("turns 10");
    drop(watcher);
    let mut viewer = rested(&host);
    viewer.until("the word", |viewer| viewer.has_notice("resting", "once it has given its buffers back"));
    assert_eq!((host.say("hold torch").as_str(), viewer.subscribed), ("39", true));
    let (_, text) = viewer.ask(Action::Rest);
    assert!(text.contains("as soon as it returns its buffers"), "{text}");
    assert_eq!(viewer.ask(Action::Watch).0, Outcome::Done, "and it can be armed again");
}
