//! Each call of CUPTI returns each error, at once or later; calls that hang; a CUPTI for other GPUs.

use std::collections::BTreeSet;

use gtop_protocol::control::Action;
use gtop_protocol::cupti::result_name;
use gtop_protocol::message::Reason;
use gtop_tests::stage::Stage;

use super::{TURNS, alone, case, sockets_of, table, trial, watch, work};

/// How the shim comes to make a call.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// By itself.
    Usual,
    /// With `--early` only.
    Early,
    /// Where CUPTI's interface v2 is asked for.
    V2,
}
use How::{Early, Usual, V2};

/// Every call the shim makes.
const CALLS: [(&str, How); 22] = [
    ("cuptiGetVersion", Usual),
    ("cuptiSubscribe", Usual),
    ("cuptiSubscribe_v2", Usual),
    ("cuptiUnsubscribe", Usual),
    ("cuptiActivityRegisterCallbacks", Usual),
    ("cuptiActivityEnable", Usual),
    ("cuptiActivityDisable", Usual),
    ("cuptiActivityFlushAll", Usual),
    ("cuptiActivityGetNextRecord", Usual),
    ("cuptiActivityGetNumDroppedRecords", Usual),
    ("cuptiGetTimestamp", Usual),
    ("cuptiActivitySetAttribute", Early),
    ("cuptiEnableCallback", Early),
    ("cuptiGetGraphExecId", Early),
    ("cuptiGetContextId", Early),
    ("cuptiGetStreamIdEx", Early),
    ("cuptiActivityRegisterCallbacks_v2", V2),
    ("cuptiActivityEnable_v2", V2),
    ("cuptiActivityDisable_v2", V2),
    ("cuptiActivityGetNumDroppedRecords_v2", V2),
    ("cuptiGetTimestamp_v2", V2),
    ("cuptiSubscribe_v2", V2),
];

/// Errors that CUPTI gives for some call or other, and one that it has no name for.
const ERRORS: [u32; 12] = [1, 3, 7, 8, 12, 15, 21, 27, 35, 39, 999, 0x8000_0000];

/// One call, all errors; what the user saw, each once.
fn every_error(stage: &Stage, call: &str, how: How, after: u64) -> String {
    let mut seen = BTreeSet::new();
    let setup = |version: u32, more: &str| {
        let setup = stage.host(&work(version, more));
        match how {
            Usual => setup,
            Early => setup.early().variable("GTOP_POOL_LIMIT", "8"),
            V2 => setup.variable("GTOP_INTERFACE", "v2"),
        }
    };
    // Which of the two CUPTI is does not matter to a call, so they take turns.
    let versions = [if how == V2 { 130_401 } else { 130_001 }, 130_500]
        .map(|version| (version, alone(setup(version, ""))));
    for (error, (version, alone)) in ERRORS.into_iter().zip(versions.iter().cycle()) {
        let fault =
            format!("[[fault]]\nwhat = \"error\"\ncall = \"{call}\"\nresult = {error}\nafter = {after}");
        let told = trial(stage, alone, setup(*version, &fault), |host| watch(stage, host));
        seen.insert(told.replace(&format!("{} ({error})", result_name(error)), "ERROR (N)"));
    }
    seen.into_iter().collect::<Vec<_>>().join("; or ")
}

#[test]
fn each_call_of_cupti_returns_each_error() {
    let mut cases = Vec::new();
    for (call, how) in CALLS {
        let words = match how {
            Usual => "",
            Early => ", early start",
            V2 => ", interface v2",
        };
        for after in [0, 1] {
            let when = if after == 0 { "" } else { " from the second call on" };
            let name = format!("`{call}` returns each of {} errors{when}{words}", ERRORS.len());
            cases.push(case(name, move |stage| every_error(stage, call, how, after)));
        }
    }
    table(&cases);
}

/// A call that does not come back while a viewer watches and the host works and ends.
fn hangs(stage: &Stage, call: &str) -> String {
    let scenario = work(130_001, &format!("[[fault]]\nwhat = \"slow\"\ncall = \"{call}\"\nby = \"10m\""));
    let mut alone = stage.host(&work(130_001, "")).start();
    alone.say(&format!("turns {TURNS}"));
    let executed = alone.truth().executed;
    let mut host = stage.host(&scenario).start();
    let pid = host.pid();
    let mut witness = stage.witness(pid);
    witness.send(Action::Watch, 0);
    witness.until("the watchdog", |witness| witness.reason == Some(Reason::Hung));
    // Its viewers are still served, and new ones are.
    witness.until("counters", |witness| witness.losses > 0 || witness.state.is_some());
    let mut other = stage.witness(pid);
    other.until("the state", |other| other.reason == Some(Reason::Hung));
    host.say(&format!("turns {TURNS}"));
    assert_eq!(host.truth().executed, executed);
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""), "it ends all the same");
    witness.until_end();
    assert_eq!(witness.goodbye.as_deref(), Some("the process exits"));
    assert_eq!(sockets_of(stage, pid), 0);
    format!("unavailable: {}", Reason::Hung.text().unwrap_or_default())
}

#[test]
fn a_cupti_that_hangs_is_said_to_and_nobody_waits_for_it() {
    let calls = ["cuptiSubscribe", "cuptiActivityEnable", "cuptiActivityFlushAll", "cuptiGetTimestamp"];
    let cases: Vec<_> = calls
        .into_iter()
        .map(|call| case(format!("`{call}` never returns"), move |stage| hangs(stage, call)))
        .collect();
    table(&cases);
}
