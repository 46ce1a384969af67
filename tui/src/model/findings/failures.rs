//! Launches and allocations that failed, by root cause.

use gtop_protocol::calls::{call_name, result_name};
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::lifecycle::failures::{Failure, Root};
use crate::model::snapshot::Finding;
use crate::view::units::count;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    // What a capture forbids is told with the capture it broke.
    let groups = facts.lifecycle.failures.groups.iter().filter(|failure| failure.root != Root::Capture);
    groups.take(16).map(|failure| say(facts, failure)).collect()
}

fn say(facts: &Facts<'_>, failure: &Failure) -> Finding {
    let call = call_name(failure.code);
    let what =
        facts.kernel(failure.kernel).map_or_else(|| call.to_owned(), |kernel| format!("kernel {kernel}"));
    let next = match failure.root {
        Root::Grid | Root::Block => "Compute the grid and block from the device's limits.",
        Root::Registers => "Give the kernel launch bounds, or use fewer threads a block.",
        Root::SharedMemory => {
            "Opt in to more shared memory (cudaFuncAttributeMaxDynamicSharedMemorySize), or use less."
        }
        Root::Cooperative => "Ask how many blocks fit at once (cuOccupancyMaxActiveBlocksPerMultiprocessor).",
        Root::Cluster => "Use at most 8 blocks a cluster, or opt in to a size that is not portable.",
        Root::OutOfMemory => "See the memory tab for who holds what.",
        Root::InvalidImage => "Build for this device's compute capability.",
        Root::WrongContext => "Make the context current that the function and the stream belong to.",
        Root::Earlier => "Find the first failure: this context is broken from there on.",
        Root::InvalidHandle | Root::Capture | Root::Other => "Look at the call and its arguments.",
    };
    let dimensions = |of: [u32; 3]| of.map(|n| n.to_string()).join("×");
    let mut finding = found(
        "launch_failed",
        Severity::Warning,
        failure.times[0],
        format!("{what} failed: {}", failure.root.name()),
        next,
    )
    .with(format!(
        "{call}: {} ({}), {} times, thread {}",
        result_name(failure.result),
        failure.result,
        count(failure.count),
        failure.thread
    ));
    if failure.block != [0; 3] || failure.grid != [0; 3] {
        finding = finding.with(format!(
            "grid {}, block {}, dynamic shared memory {} B",
            dimensions(failure.grid),
            dimensions(failure.block),
            count(failure.bytes)
        ));
    } else if failure.bytes > 0 {
        finding = finding.with(format!("{} bytes asked for", count(failure.bytes)));
    }
    match &failure.limit {
        Some(limit) => finding.with(limit.clone()),
        None => finding,
    }
}
