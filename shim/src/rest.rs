//! What resting does to CUPTI, decided in one place from what is known: which kinds stay on, and whether the
//! process's one subscription is given back so that another tool can start.

use gtop_protocol::cupti::Verdict;
use gtop_protocol::kind::{Kind, KindSet};

/// What is known of the executable graphs of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Graphs {
    /// Each was instantiated before CUPTI was first called, and none is instantiated any more.
    Late,
    /// One may have been instantiated after CUPTI was first called, or may yet be.
    Unknown,
    /// One that was instantiated after CUPTI was first called sets memory.
    SetMemory,
}

/// Why the shim is to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nobody watches any more.
    Unwatched,
    /// Somebody asked for it.
    Asked,
    /// Somebody asked for it, and accepts that it may start the leak.
    Insisted,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The kinds left on.
    pub(crate) left_on: KindSet,
    /// Whether the subscription is given back once CUPTI holds no host buffer of ours.
    pub(crate) release: bool,
    /// Whether it may start the leak.
    pub(crate) leaks: bool,
}

/// Decides. `on` is what was asked for while watching; the verdict is none before CUPTI was called.
///
/// On a version that is not known to be sound, a copy or memory set in a graph made since CUPTI was first called must
/// not go uncovered: memcpy stays on, and where such a graph is known to set memory so does everything, since kernel
/// cannot be switched off while memset is on (measured, 13.0.85, pool of 4: a graph of a copy and a kernel, kernel and
/// memset switched 243 times with memcpy on, gave every record; with a memory set in it the pool ran out). With the
/// kinds stays the subscription: both go only where no graph can be early, or when somebody insists.
pub(crate) fn rest(verdict: Option<Verdict>, graphs: Graphs, why: Why, on: KindSet) -> Rest {
    let gone = Rest { left_on: KindSet::EMPTY, release: true, leaks: false };
    let kept = |left_on| Rest { left_on, release: false, leaks: false };
    match (verdict, graphs, why) {
        (None | Some(Verdict::Sound), ..) | (_, Graphs::Late, _) => gone,
        (_, _, Why::Insisted) => Rest { leaks: true, ..gone },
        (_, Graphs::SetMemory, _) if on.has(Kind::Memset) => kept(on),
        (_, Graphs::Unknown | Graphs::SetMemory, _) => {
            kept(KindSet(on.0 & KindSet::EMPTY.with(Kind::Memcpy).0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Graphs::{Late, SetMemory, Unknown};
    use Verdict::{Defective, Sound};
    use Why::{Asked, Insisted, Unwatched};

    const GONE: Rest = Rest { left_on: KindSet::EMPTY, release: true, leaks: false };
    const MEMCPY: KindSet = KindSet::EMPTY.with(Kind::Memcpy);
    const KERNEL: KindSet = KindSet::EMPTY.with(Kind::Kernel);

    const fn kept(left_on: KindSet) -> Rest {
        Rest { left_on, release: false, leaks: false }
    }

    #[test]
    fn the_whole_table() {
        // Of the graphs that may be: late, unknown, one sets memory.
        let table = [
            (None, Unwatched, [GONE, GONE, GONE]),
            (None, Asked, [GONE, GONE, GONE]),
            (None, Insisted, [GONE, GONE, GONE]),
            (Some(Sound), Unwatched, [GONE, GONE, GONE]),
            (Some(Sound), Asked, [GONE, GONE, GONE]),
            (Some(Sound), Insisted, [GONE, GONE, GONE]),
            (Some(Defective), Unwatched, [GONE, kept(MEMCPY), kept(KindSet::SAFE)]),
            (Some(Defective), Asked, [GONE, kept(MEMCPY), kept(KindSet::SAFE)]),
            (Some(Defective), Insisted, [GONE, Rest { leaks: true, ..GONE }, Rest { leaks: true, ..GONE }]),
            // What nobody measured is treated as if it leaked.
            (Some(Verdict::Unknown), Unwatched, [GONE, kept(MEMCPY), kept(KindSet::SAFE)]),
            (Some(Verdict::Unknown), Asked, [GONE, kept(MEMCPY), kept(KindSet::SAFE)]),
            (
                Some(Verdict::Unknown),
                Insisted,
                [GONE, Rest { leaks: true, ..GONE }, Rest { leaks: true, ..GONE }],
            ),
        ];
        for (verdict, why, expected) in table {
            let found = [Late, Unknown, SetMemory].map(|graphs| rest(verdict, graphs, why, KindSet::SAFE));
            assert_eq!(found, expected, "{verdict:?} {why:?}");
        }
    }

    #[test]
    fn only_kinds_that_were_asked_for_stay_on() {
        for (on, graphs, left_on) in [
            (KERNEL, SetMemory, KindSet::EMPTY),
            (KERNEL, Unknown, KindSet::EMPTY),
            (KindSet::SAFE.without(Kind::Memset), SetMemory, MEMCPY),
            (KindSet::SAFE.with(Kind::Overhead), Unknown, MEMCPY),
        ] {
            assert_eq!(rest(Some(Defective), graphs, Unwatched, on), kept(left_on), "{on} {graphs:?}");
        }
    }
}
