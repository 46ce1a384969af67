//! The JSON of `gtop stat` as tests look at it.

use std::ops::Index;

use gtop_sim::{Class, Kind, Truth};
use serde_json::{Value, json};

/// What `gtop stat --json` printed.
#[derive(Debug)]
pub struct Summary(pub Value);

impl Summary {
    /// The object of a process.
    pub fn of(&self, pid: u32) -> &Value {
        let processes = self.0["processes"].as_array().expect("a list");
        let found = processes.iter().find(|process| process["pid"] == pid);
        found.unwrap_or_else(|| panic!("no process {pid} in {}", self.0))
    }

    /// The process ids, sorted.
    pub fn pids(&self) -> Vec<u32> {
        let processes = self.0["processes"].as_array().expect("a list").iter();
        let mut pids: Vec<u32> = processes.map(|process| count(&process["pid"]) as u32).collect();
        pids.sort_unstable();
        pids
    }
}

/// The one process there is.
impl Index<&str> for Summary {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        let processes = self.0["processes"].as_array().expect("a list");
        assert_eq!(processes.len(), 1, "{}", self.0);
        &processes[0][key]
    }
}

/// A number of things.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Makes sure that every delivered record is shown, or lost for a known cause.
pub fn assert_balance(records: &Value) {
    let lost = &records["lost"];
    let lost = ["queue_full", "unknown_kind", "slow_viewer"].map(|cause| count(&lost[cause]));
    let (delivered, shown) = (count(&records["delivered"]), count(&records["shown"]));
    assert_eq!(delivered, shown + lost.iter().sum::<u64>(), "{records}");
    let families = ["kernel", "memcpy", "memset", "other"].map(|family| count(&records[family]));
    assert_eq!(shown, families.iter().sum::<u64>(), "{records}");
}

/// Makes sure that no more records are shown and lost than came. What a process delivers while it goes on may be under way
/// when it is told of.
pub fn assert_covered(records: &Value) {
    let lost = ["queue_full", "unknown_kind", "slow_viewer"].map(|cause| count(&records["lost"][cause]));
    let told = count(&records["shown"]) + lost.iter().sum::<u64>();
    assert!(told <= count(&records["delivered"]), "{records}");
}

/// Makes sure that the records are what the simulator delivered, by kind, and that nothing is lost or bad.
pub fn assert_truth(process: &Value, truth: &Truth) {
    let [kernel, memcpy, memset] =
        [Kind::Kernel, Kind::Memcpy, Kind::Memset].map(|kind| truth.delivered(kind));
    let all = kernel + memcpy + memset;
    assert!(all > 0, "{truth:?}");
    assert_eq!(all, truth.delivered.values().sum::<u64>(), "no other kind is on");
    assert_eq!(
        process["records"],
        json!({
            "delivered": all, "shown": all,
            "kernel": kernel, "memcpy": memcpy, "memset": memset, "other": 0,
            "lost": {"cupti": 0, "queue_full": 0, "unknown_kind": 0, "slow_viewer": 0, "unread_bytes": 0},
        })
    );
    let validity = &process["validity"];
    assert_eq!((count(&validity["valid"]), truth.class(Class::Valid)), (all, all), "{validity}");
    assert_eq!((&validity["rate_total"], &validity["first_invalid"]), (&json!(0.0), &Value::Null));
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
}
