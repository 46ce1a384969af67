//! What toggling a kind would do to a process, said before it is done. The facts were measured on an H200 with
//! CUPTI 12.4 to 13.5.

use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::PoolState;
use gtop_protocol::{Kind, KindSet};

use super::pool;
use crate::app::Ask;
use crate::model::snapshot::{Pool, Process};

/// What toggling a kind would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Whether the kind is on, so that toggling switches it off.
    pub(crate) on_now: bool,
    /// Whether it harms, or may: it is asked first.
    pub(crate) asks: bool,
    /// In a few words, for the trust pane.
    pub(crate) short: &'static str,
    /// In full.
    pub(crate) sentence: String,
}

/// The kinds whose absence makes graph nodes uncovered.
const COVERING: [Kind; 2] = [Kind::Memcpy, Kind::Memset];

/// What toggling `kind` would do to `process`.
pub(crate) fn effect(process: &Process, kind: Kind) -> Effect {
    let on = process.kinds.enabled.has(kind);
    let effect = |asks, short, sentence: String| Effect { on_now: on, asks, short, sentence };
    let verdict = process.cupti.as_ref().map(|cupti| cupti.verdict);
    let version =
        process.cupti.as_ref().map_or_else(|| "CUPTI".to_owned(), |cupti| format!("CUPTI {}", cupti.version));
    let harmful = match verdict {
        Some(Verdict::Defective) => Some("never frees the device buffers of such nodes"),
        Some(Verdict::Unknown) => {
            Some("was not measured and may never free the device buffers of such nodes")
        }
        Some(Verdict::Sound) | None => None,
    };
    let name = kind.name();
    match (kind, on, harmful) {
        (Kind::Memcpy | Kind::Memset, true, Some(how)) => effect(
            true,
            "off would leak: asks",
            format!(
                "Graphs made since CUPTI was first called that {} are not covered while {name} is off, and \
                 {version} {how}: the pool fills, device memory grows, and kernel records stop or turn to zeros \
                 until the process restarts. Switching {name} on again does not undo it.",
                if kind == Kind::Memcpy { "copy device to device" } else { "set memory" }
            ),
        ),
        (Kind::Kernel, false, Some(_)) if at_risk(process) => effect(
            true,
            "on again fills the pool: asks",
            format!(
                "The leak {} in this process: {version} will not free its device buffers, and every kernel record \
                 takes another slot until the pool is full.",
                if has_begun(process) { "has begun" } else { "may have begun" }
            ),
        ),
        (Kind::Kernel, false, Some(how)) if covers_missing(process) => {
            let missing = missing(process);
            effect(
                true,
                "on without copies leaks: asks",
                format!(
                    "With {missing} off, graph nodes of that kind stay uncovered, and {version} {how}: the pool \
                     fills until kernel records stop. Switch {missing} on first."
                ),
            )
        }
        (Kind::Kernel, true, _) => {
            effect(false, "off: no timeline", "No kernel is seen while kernel is off; safe to do.".to_owned())
        }
        (Kind::Kernel, false, _) => effect(
            false,
            "on: shows kernels",
            "Kernels are recorded; the process pays for each of them while it is on.".to_owned(),
        ),
        (Kind::Memcpy | Kind::Memset, true, None) => {
            effect(false, "off: not shown", format!("No {name} is seen while it is off; safe on {version}."))
        }
        (Kind::Memcpy | Kind::Memset, false, Some(_)) if at_risk(process) => effect(
            false,
            "on: no cure for the leak",
            format!(
                "Shows {name} records; the leak that {} goes on all the same.",
                if has_begun(process) { "has begun" } else { "may have begun" }
            ),
        ),
        (Kind::Memcpy | Kind::Memset, false, _) => effect(
            false,
            "on: covers graphs",
            format!("Shows {name} records and covers the nodes of graphs."),
        ),
        (Kind::Overhead, false, _) => effect(
            false,
            "on: new buffers seen",
            "Device buffers that come from then on are seen; costs next to nothing while the pool is sound."
                .to_owned(),
        ),
        (Kind::Overhead, true, _) => {
            effect(false, "off: pool computed", "The pool is computed from the records alone.".to_owned())
        }
        (_, true, _) => {
            effect(false, "off: safe", format!("No {name} record is seen while it is off; safe."))
        }
        (_, false, _) => effect(
            false,
            "on: costs each call",
            format!("One record for each {name} event: the process pays for each of them while it is on."),
        ),
    }
}

/// What giving CUPTI to other tools would do to `process`, where it may harm.
pub(crate) fn giving_up(process: &Process) -> Option<String> {
    let cupti = process.cupti.as_ref().filter(|cupti| cupti.verdict != Verdict::Sound)?;
    Some(format!(
        "Another tool can have CUPTI only when memcpy and memset go off too. On {}, {} from then on leaks the device \
         buffers of every graph with such nodes that was made since CUPTI was first called, until the process \
         restarts. With “no” it goes on as it is; gtop rests without that risk when its last viewer leaves.",
        format_args!("CUPTI {}", cupti.version),
        if cupti.verdict == Verdict::Defective { "that" } else { "which was not measured, that perhaps" },
    ))
}

/// What a request does, as a title: `switch memcpy off`.
pub(crate) fn ask_title(ask: &Ask) -> String {
    match ask {
        Ask::Enable(kinds) => format!("switch {} on", list(*kinds)),
        Ask::Disable(kinds) => format!("switch {} off", list(*kinds)),
        Ask::Arm => "arm".to_owned(),
        Ask::Watch => "watch again".to_owned(),
        Ask::Budget(0) => "trace in full".to_owned(),
        Ask::Budget(ppm) => format!("trace in windows, for at most {} %", f64::from(*ppm) / 10_000.0),
        Ask::Rest => "rest and give CUPTI to other tools".to_owned(),
        Ask::Mark(text) => format!("mark “{text}”"),
        Ask::Flush => "flush".to_owned(),
        Ask::Inject(_) => "put the shim in".to_owned(),
        Ask::Record(_) => "record, or end the recording".to_owned(),
        Ask::Replay(_) => "move in the recording".to_owned(),
        Ask::Close => "end".to_owned(),
    }
}

fn list(kinds: KindSet) -> String {
    kinds.iter().map(Kind::name).collect::<Vec<_>>().join(" and ")
}

fn missing(process: &Process) -> String {
    list(uncovered(process).collect())
}

fn covers_missing(process: &Process) -> bool {
    uncovered(process).next().is_some()
}

/// The covering kinds that are off, and that arming would not switch on.
fn uncovered(process: &Process) -> impl Iterator<Item = Kind> {
    let on = process.kinds.enabled.union(process.kinds.asked);
    COVERING.into_iter().filter(move |kind| !on.has(*kind))
}

/// Whether a leak has begun, which nothing that is switched undoes (measured, 13.0.85).
fn has_begun(process: &Process) -> bool {
    let leaks =
        |pool: &Pool| matches!(pool.state, PoolState::Leaking | PoolState::Exhausted) && !pool.in_doubt;
    process.pools.iter().any(leaks)
}

/// … or may have.
fn at_risk(process: &Process) -> bool {
    process.tainted || has_begun(process) || process.pools.iter().any(pool::may_leak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Cupti, Kinds};
    use gtop_protocol::cupti::CuptiVersion;

    fn process(version: u32, enabled: KindSet) -> Process {
        let version = CuptiVersion(version);
        Process {
            cupti: Some(Cupti {
                version,
                path: String::new(),
                interface: 1,
                verdict: version.verdict(),
                reason: version.reason(),
            }),
            kinds: Kinds { enabled, ..Kinds::default() },
            ..Process::default()
        }
    }

    /// Which kinds ask, by their letters' names.
    fn asking(process: &Process) -> Vec<&'static str> {
        Kind::ALL.into_iter().filter(|kind| effect(process, *kind).asks).map(Kind::name).collect()
    }

    #[test]
    fn a_defective_or_unmeasured_cupti_asks_where_it_would_leak() {
        for version in [28, 130_001, 130_202, 18] {
            assert_eq!(asking(&process(version, KindSet::SAFE)), ["memcpy", "memset"], "{version}");
            let mut resting = process(version, KindSet::EMPTY.with(Kind::Memcpy));
            resting.kinds.asked = KindSet::SAFE;
            assert_eq!(asking(&resting), ["memcpy"], "{version}: armed again, kernel has all it needs");
            assert_eq!(asking(&process(version, KindSet::EMPTY)), ["kernel"], "{version}");
            let copies_off = KindSet::SAFE.without(Kind::Memcpy);
            assert_eq!(asking(&process(version, copies_off)), ["memset"], "{version}");
        }
    }

    #[test]
    fn a_sound_cupti_never_asks() {
        for version in [26, 130_300, 130_500] {
            for enabled in [KindSet::SAFE, KindSet::EMPTY, KindSet(0xff)] {
                assert!(asking(&process(version, enabled)).is_empty(), "{version}");
            }
        }
    }

    #[test]
    fn a_tainted_process_asks_before_kernels_come_back() {
        let mut tainted = process(130_001, KindSet::COVERING);
        tainted.tainted = true;
        assert_eq!(asking(&tainted), ["kernel", "memcpy", "memset"]);
    }

    #[test]
    fn nothing_that_is_switched_on_is_called_a_cure_once_a_leak_may_have_begun() {
        let mut process = process(130_001, KindSet::EMPTY.with(Kind::Kernel));
        assert_eq!(effect(&process, Kind::Memcpy).short, "on: covers graphs");
        for (state, in_doubt) in
            [(PoolState::Unknown, true), (PoolState::Leaking, false), (PoolState::Exhausted, false)]
        {
            process.pools = vec![Pool { state, in_doubt, ..Pool::default() }];
            for kind in COVERING {
                assert_eq!(effect(&process, kind).short, "on: no cure for the leak", "{state:?}");
            }
            process.kinds.enabled = KindSet::EMPTY;
            let again = effect(&process, Kind::Kernel);
            assert!(again.asks && again.sentence.contains(if in_doubt { "may have" } else { "has begun" }));
            assert!(!again.sentence.contains("first"), "{}", again.sentence);
            process.kinds.enabled = KindSet::EMPTY.with(Kind::Kernel);
        }
    }

    #[test]
    fn every_effect_says_something() {
        for enabled in [KindSet::EMPTY, KindSet(0xff)] {
            for kind in Kind::ALL {
                let effect = effect(&process(130_001, enabled), kind);
                assert!(!effect.short.is_empty() && effect.sentence.len() > 20);
                assert_eq!(effect.on_now, enabled.has(kind));
            }
        }
    }
}
