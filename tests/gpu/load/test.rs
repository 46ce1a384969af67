//! gtop-load says exactly what it launched, and says so clearly where there is no GPU.

use std::process::Command;

use serde_json::{Value, json};

/// What `gtop-load` reports for these arguments; none, with the reason printed, on a machine without a GPU.
fn report(arguments: &[&str]) -> Option<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_gtop-load")).args(arguments).output().unwrap();
    let (said, complaint) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    if output.status.code() == Some(3) {
        assert!(said.is_empty(), "{said}");
        assert!(complaint.starts_with("gtop-load: ") && complaint.lines().count() == 1, "{complaint}");
        let required = std::env::var("GTOP_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "gpu"), "a GPU is required: {complaint}");
        eprint!("skipped: {complaint}");
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    assert!(said.starts_with("ready pid="), "{said}");
    Some(serde_json::from_str(said.lines().last().unwrap()).unwrap())
}

#[test]
fn the_counts_are_those_of_the_turns() {
    let rows = [
        (
            "mixed",
            json!({"kernel": 700, "memset": 200, "memcpy": 400, "graph_kernel": 400, "graph_launches": 100}),
        ),
        (
            "d2d",
            json!({"kernel": 100, "memset": 0, "memcpy": 100, "graph_kernel": 100, "graph_launches": 100}),
        ),
        (
            "memset",
            json!({"kernel": 100, "memset": 100, "memcpy": 0, "graph_kernel": 100, "graph_launches": 100}),
        ),
        (
            "h2d",
            json!({"kernel": 100, "memset": 0, "memcpy": 100, "graph_kernel": 100, "graph_launches": 100}),
        ),
        (
            "d2h",
            json!({"kernel": 100, "memset": 0, "memcpy": 100, "graph_kernel": 100, "graph_launches": 100}),
        ),
        ("plain", json!({"kernel": 100_000, "memset": 0, "memcpy": 0, "graph_launches": 100})),
        ("stream", json!({"kernel": 100, "memset": 0, "memcpy": 0, "graph_launches": 0})),
    ];
    for (workload, wanted) in rows {
        let Some(report) = report(&[workload, "--replays", "100"]) else { return };
        for (what, count) in wanted.as_object().unwrap() {
            assert_eq!(&report["launched"][what], count, "{workload}: {what}");
        }
    }
}

#[test]
fn children_forked_while_the_gpu_works_are_all_reaped() {
    let Some(report) = report(&["d2d", "--eager", "--seconds", "0.5", "--fork", "20"]) else { return };
    assert_eq!(report["forks"]["reaped"], 20);
    assert_eq!(report["forks"]["unwell"], 0);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_gtop-load")).arg("nothing-of-the-kind").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
