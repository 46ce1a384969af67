//! Captures whose graph was thrown away, and memory that graphs keep after they are destroyed.

use gtop_protocol::message::Severity;

use super::{Facts, found, mib};
use crate::model::snapshot::Finding;
use crate::view::units::count;

/// Fewer may be a trial.
const MANY: u64 = 3;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let execs = &facts.lifecycle.execs;
    let mut findings = Vec::new();
    if execs.dropped_captures >= MANY {
        findings.push(
            found(
                "captured_and_dropped",
                Severity::Info,
                execs.last_dropped,
                format!(
                    "{} captures ended and their graph was destroyed without being instantiated",
                    count(execs.dropped_captures)
                ),
                "Capture only what is replayed: each capture costs the host as much as running it.",
            )
            .with(format!("the last one {}", facts.ago(execs.last_dropped))),
        );
    }
    // Where the driver says that graphs use nothing, the program has freed it by other means.
    let memory = &facts.lifecycle.memory;
    let freed = !memory.is_empty() && memory.iter().all(|device| device.graph_used == 0);
    if execs.kept_allocations > 0 && !freed {
        let mut finding =
            found(
                "memory_kept_after_destroy",
                Severity::Warning,
                execs.last_kept,
                format!(
                    "memory kept after destroy: {} executable graphs that allocate more often than they free are gone, and \
                     what they allocated is not",
                    count(execs.kept_allocations)
                ),
                "Free what a graph allocated (a free node, or cuMemFreeAsync after it), instantiate with auto-free on \
                 launch, and trim (cuDeviceGraphMemTrim).",
            )
            .with(format!("the last one {}", facts.ago(execs.last_kept)));
        if let Some(bytes) = execs.kept.all() {
            finding = finding.with(format!("their nodes allocated {}", mib(bytes)));
        }
        finding.evidence.extend(facts.meanwhile(execs.first_kept));
        findings.push(finding);
    }
    findings
}
