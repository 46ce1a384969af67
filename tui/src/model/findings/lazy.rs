//! Code loaded late: inside a capture, or while requests are served.

use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;

/// Loads after the first launch that are worth a word.
const LATE: u64 = 8;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let lifecycle = facts.lifecycle;
    let mut findings = Vec::new();
    let next = "Load before: run each kernel once before the capture, or set CUDA_MODULE_LOADING=EAGER.";
    if let Some(first) = lifecycle.first_load {
        findings.push(
            found(
                "lazy_load_in_capture",
                Severity::Warning,
                first.time.get(),
                format!(
                    "{} modules were loaded while a stream captured, which can break the capture",
                    lifecycle.loads_in_capture
                ),
                next,
            )
            .with(format!("the first on thread {}, {} bytes", first.thread, first.bytes)),
        );
    }
    if lifecycle.late_loads >= LATE {
        findings.push(
            found(
                "lazy_load_late",
                Severity::Info,
                lifecycle.last_late,
                format!("{} modules were loaded after the first graph was launched: each first launch waits for one", lifecycle.late_loads),
                next,
            )
            .with(format!("the last one {}", facts.ago(lifecycle.last_late))),
        );
    }
    findings
}
