//! What a state means for the person in front of the screen, and what to do about it.

use gtop_protocol::Kind;
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::{PoolState, Reason, StateCode};
use gtop_protocol::viewer::Halted;

use super::header::{is_over, is_untold, mostly_invalid, state_word};
use super::theme::Role;
use super::{Cx, pool};
use crate::input::Action;
use crate::model::snapshot::{Link, Pool, Process};

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

/// What is to say of a process of which nothing more comes.
fn on_end(process: &Process, why: &str) -> Advice {
    let (word, todo) = if process.heard.state {
        ("ENDED", "What is shown is what came until then.".to_owned())
    } else {
        ("NOT WATCHED", format!("gtop doctor --attach {} looks for what is missing.", process.identity.pid))
    };
    Advice { word: word.to_owned(), role: Role::Alarm, what: why.to_owned(), todo }
}

/// The key that does something to a process, where one can be asked for it.
fn key(cx: &Cx<'_>, action: Action) -> Option<String> {
    cx.state.keymap.key_of(action).filter(|_| cx.can_ask())
}

/// What is to say about the state of a process; `None` when all is well.
pub(super) fn on_state(cx: &Cx<'_>, process: &Process) -> Option<Advice> {
    if let (true, Link::Ended(why)) = (is_over(cx, process), &process.link) {
        return Some(on_end(process, why));
    }
    if process.is_mute() {
        return Some(on_mute(process));
    }
    let why = |plain: &str| process.reason.clone().unwrap_or_else(|| plain.to_owned());
    let worst = pool::worst(process);
    let doubtful = worst.filter(|pool| pool::may_leak(pool));
    let pool = worst.map_or(PoolState::Unknown, |pool| pool.state);
    let (word, role) = match (process.state, pool) {
        (StateCode::Armed, PoolState::Exhausted) => ("POOL FULL".to_owned(), Role::Alarm),
        (StateCode::Armed, PoolState::Leaking) => ("LEAKING".to_owned(), Role::Warn),
        (StateCode::Armed, _) if tells_of_doubt(process, doubtful) => ("MAY LEAK".to_owned(), Role::Warn),
        _ => state_word(process),
    };
    let cure = restart(process);
    let again = key(cx, Action::Rest);
    let (what, todo) = match process.state {
        StateCode::Armed if pool == PoolState::Exhausted => {
            ("graph kernels yield no records any more, and eager kernels have no times".to_owned(), cure)
        }
        StateCode::Armed if pool == PoolState::Leaking => {
            ("the pool of device buffers fills, and nothing cures it while the process runs".to_owned(), cure)
        }
        StateCode::Armed if process.kinds.enabled.is_empty() => (
            "no kind is on, so nothing is recorded".to_owned(),
            "Switch kernels on: the keys stand before their name.".to_owned(),
        ),
        StateCode::Armed if mostly_invalid(process).is_some() => (
            "most records of the last seconds have no believable times".to_owned(),
            "Their classes and causes are on the trust tab; what is drawn is only what can be believed."
                .to_owned(),
        ),
        StateCode::Armed if let Some(pool) = doubtful => on_doubt(cx, process, pool, &cure),
        StateCode::Armed if process.quiet.is_some() => (
            why("no kernel record comes"),
            "Switch runtime on: launch calls tell whether it works.".to_owned(),
        ),
        StateCode::Armed => return None,
        StateCode::Loaded if is_untold(process) => (
            "these records came as raw CUPTI buffers, which hold nothing else".to_owned(),
            "State, kinds, pools and memory were not written down.".to_owned(),
        ),
        StateCode::Loaded => (
            why("the shim sleeps; CUPTI was not called"),
            "It costs nothing until somebody watches; gtop asks to be let in.".to_owned(),
        ),
        StateCode::Arming => {
            (why("finding and calling CUPTI"), "The first call can take a while.".to_owned())
        }
        StateCode::Resting => on_rest(process, again),
        StateCode::Tainted => (
            "resting, and the leak of device buffers has begun: memcpy or memset was switched off".to_owned(),
            match again {
                Some(key) => format!("{key} watches again, which fills the pool further. {cure}"),
                None => format!("Recording kernels again fills the pool further. {cure}"),
            },
        ),
        StateCode::Silent => (
            why("the GPU works and no kernel record comes"),
            if pool == PoolState::Exhausted { cure } else { on_silence(process) },
        ),
        StateCode::Unavailable => {
            let what = why("CUPTI cannot be had");
            let by_itself = match again {
                Some(key) => format!("{key} tries again, as gtop does by itself."),
                None => "gtop tries again by itself.".to_owned(),
            };
            let todo = what_helps(&what, &by_itself);
            (what, todo)
        }
    };
    Some(Advice { word, role: running(role), what: what.trim_end_matches('.').to_owned(), todo })
}

/// Whether that device buffers may leak is what matters most about an armed process.
fn tells_of_doubt(process: &Process, doubtful: Option<&Pool>) -> bool {
    doubtful.is_some() && !process.kinds.enabled.is_empty() && mostly_invalid(process).is_none()
}

/// That device buffers may leak, how that can be told, and what helps then.
fn on_doubt(cx: &Cx<'_>, process: &Process, pool: &Pool, cure: &str) -> (String, String) {
    let graph = pool.graph.map_or_else(|| "graphs".to_owned(), |graph| format!("graph {graph}"));
    let what = format!(
        "nodes of {graph} are not traced, and leak device buffers unless they copy from or to the host"
    );
    let overhead =
        key(cx, Action::Toggle(Kind::Overhead)).filter(|_| !process.kinds.enabled.has(Kind::Overhead));
    let tells = overhead.map_or_else(String::new, |key| format!("{key} (overhead) tells whether they do. "));
    let todo = format!("{tells}To switch memcpy or memset on undoes nothing. {cure}");
    (what, todo)
}

/// That it rests, though somebody looks on: it was told to.
fn on_rest(process: &Process, again: Option<String>) -> (String, String) {
    let reason = process.reason.clone();
    match again {
        Some(key) => (
            reason.unwrap_or_else(|| "told to rest, so that kernels are not recorded".to_owned()),
            format!("{key} watches again."),
        ),
        None => (
            reason.unwrap_or_else(|| "kernels are not recorded".to_owned()),
            "It goes on when somebody watches.".to_owned(),
        ),
    }
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

fn on_silence(process: &Process) -> String {
    format!("Rates are unknown, not 0. gtop doctor --attach {} looks for causes.", process.identity.pid)
}

/// What to do about a shim that cannot have CUPTI, by the reason it gives; `again` is how it is tried again.
pub(crate) fn what_helps(reason: &str, again: &str) -> String {
    let known = Reason::ALL
        .into_iter()
        .filter_map(|known| known.text().map(|text| (known, text)))
        .find(|(_, text)| reason.starts_with(text))
        .map(|(known, _)| known);
    match known {
        Some(Reason::Busy) => format!("End that tool (nsys, ncu, torch.profiler, DCGM); {again}"),
        Some(Reason::NoCupti) => {
            "Install nvidia-cuda-cupti beside the program or set GTOP_CUPTI to a libcupti.so, then restart it."
                .to_owned()
        }
        Some(Reason::NoCuda) => format!("Wait until it uses the GPU; {again}"),
        Some(Reason::SecondCopy) => {
            "Restart it with one copy only: gtop run --cupti LIB takes its place.".to_owned()
        }
        Some(Reason::NoMemory) => format!("The process is short of memory; {again}"),
        Some(Reason::Forked) => {
            "A fork without exec cannot be watched; watch its parent or its child.".to_owned()
        }
        Some(Reason::Hung) => "Nothing more is called; the process goes on without being watched.".to_owned(),
        _ => again.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Snapshot, SourceKind};
    use crate::view::ViewState;
    use gtop_protocol::KindSet;

    fn said(process: &Process, kind: SourceKind) -> Option<Advice> {
        let (mut snapshot, state) = (Snapshot::default(), ViewState::default());
        snapshot.source.kind = kind;
        on_state(&Cx { snapshot: &snapshot, process: Some(process), state: &state }, process)
    }

    fn live(process: &Process) -> Option<Advice> {
        said(process, SourceKind::Live)
    }

    #[test]
    fn every_reason_has_words_and_every_state_but_armed_is_explained() {
        for reason in Reason::ALL.into_iter().filter_map(Reason::text) {
            let state = StateCode::Unavailable;
            let process = Process { state, reason: Some(format!("{reason}: more.")), ..Process::default() };
            let advice = live(&process).unwrap();
            assert_eq!(advice.what, format!("{reason}: more"));
            assert!(advice.todo.len() > 20, "{reason}");
        }
        for state in StateCode::ALL {
            let mut process = Process { state, ..Process::default() };
            assert!(live(&process).is_some_and(|advice| !advice.what.is_empty()), "{state:?}");
            process.kinds.enabled = KindSet::SAFE;
            assert_eq!(live(&process).is_none(), state == StateCode::Armed, "{state:?}");
        }
    }

    #[test]
    fn the_key_that_helps_is_named_where_there_is_one() {
        let busy = Reason::Busy.text().map(str::to_owned);
        let states = [
            (StateCode::Resting, None, "T watches again."),
            (StateCode::Tainted, None, "T watches again, which fills the pool further."),
            (StateCode::Unavailable, busy, "T tries again, as gtop does by itself."),
        ];
        for (state, reason, words) in states {
            let process = Process { state, reason, ..Process::default() };
            let todo = live(&process).unwrap().todo;
            assert!(todo.contains(words), "{todo}");
            let advice = said(&process, SourceKind::File).unwrap();
            assert!(!advice.todo.contains("T "), "nobody can be asked: {}", advice.todo);
            assert!(!advice.what.contains("nobody watches") && !advice.what.contains("PID"));
        }
    }

    #[test]
    fn a_pool_that_may_leak_has_its_cure_beside_it() {
        let pool = Pool { in_doubt: true, state: PoolState::Unknown, graph: Some(2), ..Pool::default() };
        let mut process = Process { state: StateCode::Armed, pools: vec![pool], ..Process::default() };
        process.kinds.enabled = KindSet::EMPTY.with(Kind::Kernel);
        let advice = live(&process).unwrap();
        assert_eq!((advice.word.as_str(), advice.role), ("MAY LEAK", Role::Warn));
        for part in ["t o (overhead) tells", "undoes nothing", "Only a restart helps", "13.3"] {
            assert!(advice.todo.contains(part), "{part}: {}", advice.todo);
        }
        process.kinds.enabled = process.kinds.enabled.with(Kind::Overhead);
        assert!(!live(&process).unwrap().todo.contains("overhead"));
    }

    #[test]
    fn what_has_ended_is_not_told_to_restart() {
        let link = Link::Ended("process 7 ended".to_owned());
        let mut process = Process { state: StateCode::Silent, link, ..Process::default() };
        process.heard.state = true;
        let advice = live(&process).unwrap();
        assert_eq!((advice.word.as_str(), advice.what.as_str()), ("ENDED", "process 7 ended"));
        assert_eq!(
            said(&process, SourceKind::File).unwrap().word,
            "SILENT",
            "how it was at the end of the file"
        );
        process.heard.state = false;
        assert_eq!(live(&process).unwrap().word, "NOT WATCHED");
    }
}
