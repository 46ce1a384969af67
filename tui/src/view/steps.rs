//! The steps of a server in a line: how long one takes, how evenly they come, and what of it the GPU stands still.

use gtop_protocol::message::StateCode;

use super::canvas::Part;
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{LaunchLatency, Process, Steps};

/// The steps that go on now, of the context that makes most of them; none while the shim gets no records.
pub(super) fn current(process: &Process) -> Option<&Steps> {
    let blind = matches!(process.state, StateCode::Silent | StateCode::Unavailable);
    process.steps.first().filter(|steps| steps.current && !blind)
}

/// Whether there is anything for a line.
pub(super) fn any(cx: &Cx<'_>) -> bool {
    cx.process.is_some_and(|process| current(process).is_some())
}

/// The parts of the line; what matters least has the highest rank.
pub(super) fn parts(cx: &Cx<'_>) -> Vec<Part> {
    let theme = cx.theme();
    let Some((process, steps)) = cx.process.and_then(|process| Some((process, current(process)?))) else {
        return Vec::new();
    };
    let fine = units::fine_duration;
    let mut parts = vec![
        Part::new(0, vec![theme.span(format!("step p50 {}", fine(steps.p50_ns)), Role::Strong)]),
        Part::new(1, vec![theme.span(format!("p99 {}", fine(steps.p99_ns)), Role::Plain)]),
        Part::new(2, vec![theme.span(format!("jitter {}", fine(steps.jitter_ns)), Role::Plain)]),
        Part::new(
            4,
            vec![
                theme.span(format!("{} a step", units::some(steps.kernels as usize, "kernel")), Role::Plain),
            ],
        ),
        Part::new(
            3,
            vec![theme.span(
                format!(
                    "idle {} inside, {} between",
                    fine(steps.idle_inside_ns),
                    fine(steps.idle_between_ns)
                ),
                Role::Plain,
            )],
        ),
    ];
    if steps.launches > 1 {
        parts.push(Part::new(6, vec![theme.span(format!("{} graph launches", steps.launches), Role::Dim)]));
    }
    if let Some(latency) = &process.latency {
        parts.push(Part::new(5, vec![theme.span(launch_to_kernel(latency), Role::Plain)]));
    }
    let others = process.steps.iter().filter(|steps| steps.current).count().saturating_sub(1);
    if others > 0 {
        let text = format!("{} more with steps", units::some(others, "context"));
        parts.push(Part::new(7, vec![theme.span(text, Role::Dim)]));
    }
    parts
}

/// How long kernels wait after their launch call.
fn launch_to_kernel(latency: &LaunchLatency) -> String {
    let sign = if latency.mean_ns < 0 { "−" } else { "" };
    format!("launch to kernel {sign}{} on average", units::fine_duration(latency.mean_ns.unsigned_abs()))
}
