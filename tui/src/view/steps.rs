//! The steps of a server in a line: how long one takes, how evenly they come, and what of it the GPU stands still.

use gtop_protocol::message::StateCode;

use super::canvas::Part;
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{LaunchLatency, Process, Steps};

/// Between the parts of the line.
pub(super) const GAP: &str = "  ";

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
    let part = |rank, text: String| Part::new(rank, vec![theme.span(text, Role::Plain)]);
    // Kernels that cannot be believed, or read, are in no step: there were more of them, and they ran where it seems idle.
    let bad = process.validity.rate_windows[1].is_some_and(|rate| rate > 0.0);
    let (least, most) = if bad || process.records.unread_bytes > 0 { ("≥", "≤") } else { ("", "") };
    let mut parts = vec![
        Part::new(0, vec![theme.span(format!("step p50 {}", fine(steps.p50_ns)), Role::Strong)]),
        part(1, format!("p99 {}", fine(steps.p99_ns))),
        part(2, format!("jitter {}", fine(steps.jitter_ns))),
        part(4, format!("{least}{}/step", units::some(steps.kernels as usize, "kernel"))),
        part(
            3,
            format!(
                "idle {most}{} in, {most}{} between",
                fine(steps.idle_inside_ns),
                fine(steps.idle_between_ns)
            ),
        ),
    ];
    if let Some(latency) = &process.latency {
        parts.push(part(5, launch_to_kernel(latency)));
    }
    if steps.launches > 1 {
        parts.push(part(6, format!("{} graph launches", steps.launches)));
    }
    let others = process.steps.iter().filter(|steps| steps.current).count().saturating_sub(1);
    if others > 0 {
        parts.push(part(7, format!("{} more", units::some(others, "context"))));
    }
    parts
}

/// How long kernels wait after their launch call, on average.
fn launch_to_kernel(latency: &LaunchLatency) -> String {
    let sign = if latency.mean_ns < 0 { "−" } else { "" };
    format!("launch→kernel {sign}{}", units::fine_duration(latency.mean_ns.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Size;

    use super::*;
    use crate::view::{ViewState, fixture, render_text};

    #[test]
    fn steps_are_on_the_overview_with_all_that_is_known_of_them() {
        let mut snapshot = fixture::vllm();
        let shown = |snapshot: &_, width, height| {
            render_text(snapshot, &ViewState::default(), Size::new(width, height))
        };
        let latency = LaunchLatency { joined: 9, mean_ns: 5_200, ..LaunchLatency::default() };
        snapshot.processes[0].latency = Some(latency);
        let text = shown(&snapshot, 120, 36);
        for what in
            ["step p50 4.31 ms", "p99 5.17 ms", "jitter 108 µs", "362 kernels/step", "idle 86.2 µs in"]
        {
            assert!(text.contains(what), "{what}: {text}");
        }
        assert!(text.contains("launch→kernel 5.20 µs"), "{text}");
        assert!(shown(&snapshot, 80, 24).contains("step 4.31 ms"), "at the least the median");
        // Kernels that cannot be believed are missing in it.
        let rate = snapshot.processes[0].validity.rate_windows[1].replace(0.14);
        let text = shown(&snapshot, 120, 36);
        assert!(text.contains("≥362 kernels/step") && text.contains("idle ≤86.2 µs in"), "{text}");
        snapshot.processes[0].validity.rate_windows[1] = rate;
        // What has stopped, or comes from a shim that sees nothing, is no step.
        snapshot.processes[0].state = StateCode::Silent;
        assert!(!shown(&snapshot, 120, 36).contains("step p50"));
        snapshot.processes[0].state = StateCode::Armed;
        snapshot.processes[0].steps[0].current = false;
        assert!(!shown(&snapshot, 120, 36).contains("step p50"));
    }
}
