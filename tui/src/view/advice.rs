//! What a state means for the person in front of the screen, and what to do about it.

use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::{PoolState, Reason, StateCode};
use gtop_protocol::viewer::Halted;

use super::header::{is_untold, mostly_invalid, state_word};
use super::pool;
use super::theme::Role;
use crate::model::snapshot::Process;

/// Words on a state that is not simply well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// The state in a word.
    pub(super) word: String,
    /// How much it matters.
    pub(super) role: Role,
    /// What is the matter.
    pub(super) what: String,
    /// What to do about it.
    pub(super) todo: String,
}

/// What is to say of a process that does not run as far as known.
fn on_mute(process: &Process) -> Advice {
    let (word, role) = state_word(process);
    let (what, todo) = match process.halt.map(|halt| halt.cause) {
        Some(Halted::Stopped) => (
            "a signal has stopped it, so that nothing is heard of it",
            format!(
                "kill -CONT {} lets it go on; what it launched before may still run.",
                process.identity.pid
            ),
        ),
        Some(Halted::Traced) => (
            "a debugger or tracer holds it, so that nothing is heard of it",
            "It goes on when that lets it; what it launched before may still run.".to_owned(),
        ),
        Some(Halted::Blocked | Halted::No) => (
            "nothing is heard of it; its first thread waits in the kernel and cannot be woken",
            "A disk, a network file system or a core dump may hold it.".to_owned(),
        ),
        None => (
            "nothing is heard of its shim",
            "It may be stopped, frozen or starved of CPU, or the way to it is cut.".to_owned(),
        ),
    };
    Advice { word, role, what: what.to_owned(), todo }
}

/// What is to say about the state of a process; `None` when all is well.
pub(super) fn on_state(process: &Process) -> Option<Advice> {
    if process.is_mute() {
        return Some(on_mute(process));
    }
    let why = |plain: &str| process.reason.clone().unwrap_or_else(|| plain.to_owned());
    let pool = pool::worst(process).map_or(PoolState::Unknown, |pool| pool.state);
    let (word, role) = match (process.state, pool) {
        (StateCode::Armed, PoolState::Exhausted) => ("POOL FULL".to_owned(), Role::Alarm),
        (StateCode::Armed, PoolState::Leaking) => ("LEAKING".to_owned(), Role::Warn),
        _ => state_word(process),
    };
    let cure = restart(process);
    let (what, todo) = match process.state {
        StateCode::Armed if pool == PoolState::Exhausted => (
            "graph kernels yield no records any more, and eager kernels have no times".to_owned(),
            cure.as_str(),
        ),
        StateCode::Armed if pool == PoolState::Leaking => (
            "the pool of device buffers fills, and nothing cures it while the process runs".to_owned(),
            cure.as_str(),
        ),
        StateCode::Armed if process.kinds.enabled.is_empty() => (
            "no kind is on, so nothing is recorded".to_owned(),
            "Switch kernels on: the keys stand before their name.",
        ),
        StateCode::Armed if mostly_invalid(process).is_some() => (
            "most records of the last seconds have no believable times".to_owned(),
            "Their classes and causes are on the trust tab; what is drawn is only what can be believed.",
        ),
        StateCode::Armed if process.quiet.is_some() => {
            (why("no kernel record comes"), "Switch runtime on: launch calls tell whether it works.")
        }
        StateCode::Armed => return None,
        StateCode::Loaded if is_untold(process) => (
            "these records came as raw CUPTI buffers, which hold nothing else".to_owned(),
            "State, kinds, pools and memory were not written down.",
        ),
        StateCode::Loaded => (
            why("the shim sleeps; CUPTI was not called"),
            "It costs nothing until somebody watches; gtop asks to be let in.",
        ),
        StateCode::Arming => (why("finding and calling CUPTI"), "The first call can take a while."),
        StateCode::Resting => {
            (why("nobody watches; kernels are not recorded"), "It goes on when somebody watches.")
        }
        StateCode::Tainted => (
            why("resting, and the leak of device buffers has begun"),
            "Recording kernels again fills the pool; only a restart of the process cures it.",
        ),
        StateCode::Silent => (why("the GPU works and no kernel record comes"), silent(process, &cure)),
        StateCode::Unavailable => {
            let what = why("CUPTI cannot be had");
            let todo = todo(&what);
            (what, todo)
        }
    };
    let todo = todo.to_owned();
    Some(Advice { word, role: running(role), what: what.trim_end_matches('.').to_owned(), todo })
}

/// What alone helps against a leak of device buffers.
fn restart(process: &Process) -> String {
    let version = process.cupti.as_ref().map_or(CuptiVersion(130_000), |cupti| cupti.version);
    format!("Only a restart helps: {}; or memcpy and memset on from the start.", version.cure())
}

/// A badge's role for running text.
const fn running(role: Role) -> Role {
    match role {
        Role::BadgeAlarm => Role::Alarm,
        other => other,
    }
}

fn silent<'a>(process: &Process, cure: &'a str) -> &'a str {
    let full = pool::worst(process).is_some_and(|pool| pool.state == PoolState::Exhausted);
    if full { cure } else { "The GPU works and no kernel record comes: rates are unknown, not 0." }
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
        _ => "gtop tries again by itself.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words_and_every_state_but_armed_is_explained() {
        for reason in Reason::ALL.into_iter().filter_map(Reason::text) {
            let state = StateCode::Unavailable;
            let process = Process { state, reason: Some(format!("{reason}: more.")), ..Process::default() };
            let advice = on_state(&process).unwrap();
            assert_eq!(advice.what, format!("{reason}: more"));
            assert!(advice.todo.len() > 20, "{reason}");
        }
        for state in StateCode::ALL {
            let mut process = Process { state, ..Process::default() };
            assert!(on_state(&process).is_some_and(|advice| !advice.what.is_empty()), "{state:?}");
            process.kinds.enabled = gtop_protocol::KindSet::SAFE;
            assert_eq!(on_state(&process).is_none(), state == StateCode::Armed, "{state:?}");
        }
    }
}
