//! Many tiny kernels beside graphs, most after a gap longer than they run: the host is what limits.

use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;

/// Fewer kernels say nothing.
const MANY: u64 = 500;
/// Kernels are tiny up to this, nanoseconds on average.
const TINY: u64 = 20_000;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let eager = facts.work.steps.eager();
    if eager.kernels < MANY || eager.gaps < MANY / 2 {
        return Vec::new();
    }
    let (kernel, gap) = (eager.kernel_ns / eager.kernels, eager.gap_ns / eager.gaps);
    // A few long waits make a long average; here most kernels come late.
    if kernel > TINY || eager.late * 2 <= eager.gaps {
        return Vec::new();
    }
    let finding = found(
        "launch_bound",
        Severity::Warning,
        0,
        format!(
            "launch-bound beside graphs: {} of {} kernels began longer after the one before than they ran",
            eager.late, eager.gaps
        ),
        "Capture these kernels too, or fuse them.",
    );
    vec![finding.with(format!(
        "{:.1} µs on average, gaps of {:.1} µs; nothing ran for {:.1} ms between them in the last while",
        kernel as f64 / 1e3,
        gap as f64 / 1e3,
        eager.gap_ns as f64 / 1e6
    ))]
}
