//! What a state means for the person in front of the screen, and what to do about it.

use gtop_protocol::message::{PoolState, Reason, StateCode};

use super::pool;
use crate::model::snapshot::Process;

/// A sentence or two on a state that is not simply well.
pub(super) fn on_state(process: &Process) -> Option<String> {
    let reason = process.reason.as_deref();
    let with = |what: &str, todo: &str| match reason {
        Some(reason) => Some(format!("{what}: {reason}. {todo}")),
        None => Some(format!("{what}. {todo}")),
    };
    match process.state {
        StateCode::Armed if process.kinds.enabled.is_empty() => {
            Some("Armed with no kind on: t k switches kernels on.".to_owned())
        }
        StateCode::Armed => None,
        StateCode::Loaded => {
            with("The shim sleeps", "CUPTI was not called; it costs nothing until somebody watches.")
        }
        StateCode::Arming => with("Finding and calling CUPTI", "The first call can take a while."),
        StateCode::Resting => with("Nobody watches", "Kernels are not recorded, so nothing moves here."),
        StateCode::Tainted => with(
            "Resting, and the leak of device buffers has begun",
            "Recording kernels again fills the pool; only a restart of the process cures it.",
        ),
        StateCode::Silent => with("The GPU works and no kernel record comes", silent(process)),
        StateCode::Unavailable => {
            let reason = reason.unwrap_or("no reason was given");
            Some(format!("{}. {}", reason.trim_end_matches('.'), todo(reason)))
        }
    }
}

fn silent(process: &Process) -> &'static str {
    let full = pool::worst(process).is_some_and(|pool| pool.state == PoolState::Exhausted);
    if full {
        "Its device buffers are used up: restart it under CUPTI 13.3 or later (gtop run --cupti), or keep memcpy \
         and memset on from the start."
    } else {
        "Rates are unknown, not 0."
    }
}

/// What to do about a shim that cannot have CUPTI.
fn todo(reason: &str) -> &'static str {
    let known = Reason::ALL
        .into_iter()
        .filter_map(|known| known.text().map(|text| (known, text)))
        .find(|(_, text)| reason.starts_with(text))
        .map(|(known, _)| known);
    match known {
        Some(Reason::Busy) => {
            "End that tool (nsys, ncu, torch.profiler, a DCGM profiling job); gtop then tries again by itself."
        }
        Some(Reason::NoCupti) => {
            "Install nvidia-cuda-cupti beside the program or set GTOP_CUPTI to a libcupti.so, then restart it."
        }
        Some(Reason::NoCuda) => "Wait until it uses the GPU; gtop tries again by itself.",
        Some(Reason::SecondCopy) => "Restart it with one copy only: gtop run --cupti LIB takes its place.",
        Some(Reason::NoMemory) => "The process is short of memory; gtop tries again by itself.",
        Some(Reason::Forked) => "A fork without exec cannot be watched; watch its parent or its child.",
        Some(Reason::Hung) => "Nothing more is called; the process goes on without being watched.",
        _ => "gtop tries again by itself; gtop doctor says more.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words_and_every_state_but_armed_is_explained() {
        for reason in Reason::ALL.into_iter().filter_map(Reason::text) {
            let process = Process {
                state: StateCode::Unavailable,
                reason: Some(format!("{reason}: more")),
                ..Process::default()
            };
            let text = on_state(&process).unwrap();
            assert!(text.starts_with(reason) && text.len() > reason.len() + 20, "{text}");
        }
        for state in StateCode::ALL {
            let mut process = Process { state, ..Process::default() };
            process.kinds.enabled = gtop_protocol::KindSet::SAFE;
            assert_eq!(on_state(&process).is_none(), state == StateCode::Armed, "{state:?}");
        }
    }
}
