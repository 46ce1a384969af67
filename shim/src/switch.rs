//! The order in which kinds are switched so that the program lives.
//!
//! Measured on an H200 with a bare collector under 13,000 to 20,000 eager memory sets of 64 KiB a second, kinds
//! switched every 10 to 20 ms: with memset on, switching kernel crashed the program inside CUPTI in up to 3 % of the
//! switches (null pointer, in the program's own `cuMemsetD8Async`; 12.9.79, 13.0.85, 13.1.115, 13.2.86, 13.3.75 and
//! 13.4.92; not 13.5.25), all kinds off in between or not. With memset off around it: none in 7,500 on the six that crash.
//! The same order also delivers eager kernels from the first one on; memset first and kernel right after it lost up
//! to all of them for as long as was looked (13.0.85, 13.5.25).

use core::time::Duration;
use gtop_protocol::kind::{Kind, KindSet};

/// Time for calls that began before a switch to leave CUPTI. Measured with 5 ms: no crash in 7,500 switches; where
/// three processes shared the GPU, so that calls wait for its queue, one in 640 on 13.3.75.
pub(crate) const SETTLE: Duration = Duration::from_millis(20);
/// Time between a forced flush and switching kinds on. Measured with 50 ms on 13.3.75 and 13.5.25: 8 % of the kernel
/// records that follow carry zeros and eager kernels are missing; without the forced flush none.
pub(crate) const AFTER_FORCED: Duration = Duration::from_secs(1);

/// One step of switching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Off(Kind),
    On(Kind),
    /// Let [`SETTLE`] pass.
    Settle,
}

/// The steps from the kinds that are on to those wanted: kernel is never switched while memset is on.
pub(crate) fn steps(from: KindSet, to: KindSet) -> impl Iterator<Item = Step> {
    let (off, on) = (from.minus(to), to.minus(from));
    let kernel = off.has(Kind::Kernel) || on.has(Kind::Kernel);
    let memset_off = from.has(Kind::Memset) && (kernel || off.has(Kind::Memset));
    let memset_on = to.has(Kind::Memset) && (memset_off || on.has(Kind::Memset));
    let other = |kind: &Kind| !matches!(kind, Kind::Kernel | Kind::Memset);
    let step = |wanted: bool, step: Step| wanted.then_some(step).into_iter();
    step(memset_off, Step::Off(Kind::Memset))
        .chain(off.iter().filter(other).map(Step::Off))
        .chain(on.iter().filter(other).map(Step::On))
        .chain(step(kernel && from.has(Kind::Memset), Step::Settle))
        .chain(step(off.has(Kind::Kernel), Step::Off(Kind::Kernel)))
        .chain(step(on.has(Kind::Kernel), Step::On(Kind::Kernel)))
        .chain(step(kernel && memset_on, Step::Settle))
        .chain(step(memset_on, Step::On(Kind::Memset)))
}

/// Whether these steps leave memory sets uncovered for a moment although they are wanted before and after.
pub(crate) fn uncovers_for_a_moment(from: KindSet, to: KindSet) -> bool {
    to.has(Kind::Memset) && steps(from, to).any(|step| step == Step::Off(Kind::Memset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMCPY: KindSet = KindSet::EMPTY.with(Kind::Memcpy);
    const KERNEL: KindSet = KindSet::EMPTY.with(Kind::Kernel);

    fn all() -> u32 {
        KindSet::parse("all").map_or(0, |all| all.0)
    }

    #[test]
    fn kernel_goes_on_before_memset_and_off_after_it() {
        use Step::{Off, On, Settle};
        let of = |from, to| steps(from, to).collect::<Vec<_>>();
        let (k, c, s) = (Kind::Kernel, Kind::Memcpy, Kind::Memset);
        assert_eq!(of(KindSet::EMPTY, KindSet::SAFE), [On(c), On(k), Settle, On(s)]);
        assert_eq!(of(KindSet::SAFE, KindSet::EMPTY), [Off(s), Off(c), Settle, Off(k)]);
        assert_eq!(of(KindSet::SAFE, MEMCPY), [Off(s), Settle, Off(k)]);
        assert_eq!(of(MEMCPY, KindSet::SAFE), [On(k), Settle, On(s)]);
        assert_eq!(of(KindSet::SAFE, KindSet::SAFE.without(k)), [Off(s), Settle, Off(k), Settle, On(s)]);
        assert_eq!(of(KindSet::SAFE, KindSet::SAFE.without(s)), [Off(s)]);
        assert_eq!(of(KERNEL, KERNEL.with(s)), [On(s)]);
        assert_eq!(of(KERNEL, KindSet::EMPTY), [Off(k)]);
        assert_eq!(of(KindSet::SAFE, KindSet::SAFE), []);
    }

    proptest! {
        #[test]
        fn any_switch_arrives_and_never_touches_kernel_while_memset_is_on(from: u32, to: u32) {
            let (from, to) = (KindSet(from & all()), KindSet(to & all()));
            let (mut on, mut settled) = (from, true);
            for step in steps(from, to) {
                match step {
                    Step::Off(kind) | Step::On(kind) if kind == Kind::Kernel => {
                        prop_assert!(!on.has(Kind::Memset) && (settled || !from.has(Kind::Memset)));
                        on = if matches!(step, Step::On(_)) { on.with(kind) } else { on.without(kind) };
                        settled = false;
                    }
                    Step::Off(kind) => {
                        prop_assert!(on.has(kind));
                        on = on.without(kind);
                        settled &= kind != Kind::Memset;
                    }
                    Step::On(kind) => {
                        prop_assert!(!on.has(kind) && (kind != Kind::Memset || settled));
                        on = on.with(kind);
                    }
                    Step::Settle => settled = true,
                }
            }
            prop_assert_eq!(on, to);
        }
    }
}
