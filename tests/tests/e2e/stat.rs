//! `gtop stat --attach` against the simulator's ground truth, record by record.

use gtop_sim::{Kind, Truth};
use gtop_tests::host::Host;
use gtop_tests::stage::Stage;
use serde_json::{Value, json};

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Whether every delivered record is shown or lost for a cause.
fn assert_balance(process: &Value) {
    let (records, lost) = (&process["records"], &process["records"]["lost"]);
    let accounted = count(&records["shown"])
        + count(&lost["queue_full"])
        + count(&lost["unknown_kind"])
        + count(&lost["slow_viewer"]);
    assert_eq!(count(&records["delivered"]), accounted, "{records}");
    let families = ["kernel", "memcpy", "memset", "other"].map(|family| count(&records[family]));
    assert_eq!(count(&records["shown"]), families.iter().sum::<u64>(), "{records}");
}

/// Whether the summary is the truth, and nothing of it is lost or bad.
fn assert_truth(process: &Value, truth: &Truth) {
    assert_balance(process);
    let delivered = |kind| truth.delivered(kind);
    assert_eq!(
        process["records"],
        json!({
            "delivered": delivered(Kind::Kernel) + delivered(Kind::Memcpy) + delivered(Kind::Memset),
            "shown": delivered(Kind::Kernel) + delivered(Kind::Memcpy) + delivered(Kind::Memset),
            "kernel": delivered(Kind::Kernel),
            "memcpy": delivered(Kind::Memcpy),
            "memset": delivered(Kind::Memset),
            "other": 0,
            "lost": {"cupti": 0, "queue_full": 0, "unknown_kind": 0, "slow_viewer": 0},
        })
    );
    assert_eq!(process["validity"]["rate_total"], 0.0, "{}", process["validity"]);
    assert_eq!(process["validity"]["first_invalid"], Value::Null);
}

/// Watches a host with `gtop stat` while it does `work`.
fn stat_while(stage: &Stage, host: &mut Host, work: impl FnOnce(&mut Host)) -> Value {
    let stat = stage.start_gtop(&["stat", "--json", "--for", "10m", "--attach", &host.pid().to_string()]);
    let mut witness = stage.witness(host.pid());
    witness.until_watched(1);
    work(host);
    stat.interrupt().json()
}

#[test]
fn mixed_is_summarised_to_the_record() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let stat = stat_while(&stage, &mut host, |host| {
        host.say("turns 500");
    });
    let process = &stat["processes"][0];
    assert_truth(process, &host.truth());
    assert_eq!(process["pid"], host.pid());
    assert_eq!(process["state"], "armed");
}
