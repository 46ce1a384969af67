//! The memory that a device shares with its host runs out: what then swaps, and at last stands still, is the machine.

use gtop_protocol::message::Severity;

use super::{Facts, change, found, mib};
use crate::model::snapshot::Finding;

/// One part in so many is little.
const LITTLE: u64 = 50;
/// Swap that grows this much a minute is more than what idle programs give up, bytes.
const SWAPS: i64 = 256 << 20;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(device) = facts.unified else { return Vec::new() };
    let (Some(available), Some(total)) = (device.host_available, device.memory_total) else {
        return Vec::new();
    };
    if available.saturating_mul(LITTLE) >= total {
        return Vec::new();
    }
    let swaps = device.swap_per_minute.filter(|bytes| *bytes >= SWAPS);
    let severity = if swaps.is_some() { Severity::Alarm } else { Severity::Warning };
    let and_swap = swaps
        .map_or(String::new(), |bytes| format!(", and swap grows by {} a minute", mib(bytes.unsigned_abs())));
    let finding = found(
        "host_memory_low",
        severity,
        facts.now,
        format!(
            "device {} shares its memory with the host, and {} of {} are left{and_swap}",
            device.index,
            mib(available),
            mib(total)
        ),
        "End what grows before the machine stands still: look at the growth of graphs and at who holds what.",
    );
    let swap = match (device.swap_used, device.swap_per_minute) {
        (None, _) => "how much swap is in use is not known".to_owned(),
        (Some(used), None) => format!("{} of swap are in use", mib(used)),
        (Some(used), Some(bytes)) => format!("{} of swap are in use, {} a minute", mib(used), change(bytes)),
    };
    vec![finding.with(swap)]
}
