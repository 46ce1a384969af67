//! Many tiny kernels beside graphs, with longer gaps than kernels: the host is what limits.

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
    if kernel > TINY || gap <= kernel {
        return Vec::new();
    }
    let finding = found(
        "launch_bound",
        Severity::Warning,
        0,
        format!(
            "launch-bound beside graphs: {} kernels of {:.1} µs on average with gaps of {:.1} µs between them",
            eager.kernels,
            kernel as f64 / 1e3,
            gap as f64 / 1e3
        ),
        "Capture these kernels too, or fuse them.",
    );
    vec![
        finding.with(format!(
            "nothing ran for {:.1} ms between them in the last while",
            eager.gap_ns as f64 / 1e6
        )),
    ]
}
