//! Code loaded late: inside a capture, or while requests are served.

use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;
use crate::view::units::count;

/// Loads after the first launch that are worth a word.
const LATE: u64 = 8;

/// `CU_MODULE_EAGER_LOADING`, `CU_MODULE_LAZY_LOADING` (`cuda.h`).
const EAGER: u8 = 1;
const LAZY: u8 = 2;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let lifecycle = facts.lifecycle;
    let mut findings = Vec::new();
    let mode = lifecycle.observers.map_or(0, |observers| observers.loading);
    let next = match mode {
        EAGER => "Load before: run each kernel once, and load its library, before the capture.",
        _ => "Load before: run each kernel once before the capture, or set CUDA_MODULE_LOADING=EAGER.",
    };
    let mode = match mode {
        EAGER => "the driver loads eagerly: a library or module was loaded by the program",
        LAZY => "the driver loads lazily: code comes at the first launch of its kernel",
        _ => "whether the driver loads lazily is not known",
    };
    if let Some(first) = lifecycle.first_load {
        findings.push(
            found(
                "lazy_load_in_capture",
                Severity::Warning,
                first.time.get(),
                format!(
                    "{} modules were loaded while a stream captured, which can break the capture",
                    count(lifecycle.loads_in_capture)
                ),
                next,
            )
            .with(format!("the first on thread {}, {} bytes", first.thread, count(first.bytes.get())))
            .with(mode.to_owned()),
        );
    }
    if lifecycle.late_loads >= LATE {
        findings.push(
            found(
                "lazy_load_late",
                Severity::Info,
                lifecycle.last_late,
                format!("{} modules were loaded after the first graph was launched: each first launch waits for one", count(lifecycle.late_loads)),
                next,
            )
            .with(format!("the last one {}", facts.ago(lifecycle.last_late)))
            .with(mode.to_owned()),
        );
    }
    findings
}
