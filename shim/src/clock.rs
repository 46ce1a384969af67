//! CUPTI's clock: bracketed pairs with the host's clocks, and what it says now without asking CUPTI.

use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64};
use gtop_protocol::message::Clock;
use gtop_protocol::validity::Bounds;

/// Readings of which the one with the smallest error is kept.
const TRIES: usize = 7;

/// Reads host and CUPTI clocks together; `None` when CUPTI gives no time.
pub(crate) fn pair(mut cupti: impl FnMut() -> Option<u64>) -> Option<Clock> {
    let mut best: Option<Clock> = None;
    for _ in 0..TRIES {
        let before = sys::realtime();
        let time = cupti()?;
        let after = sys::realtime();
        let (monotonic, boottime) = (sys::monotonic(), sys::clock(libc::CLOCK_BOOTTIME));
        // A step of the host's clock in between makes the reading useless.
        let Some(width) = after.checked_sub(before) else { continue };
        let error = width / 2;
        if best.is_none_or(|best| error < best.error) {
            best = Some(Clock {
                realtime: before.saturating_add(error),
                monotonic: monotonic.saturating_sub(width.saturating_sub(error)),
                boottime: boottime.saturating_sub(width.saturating_sub(error)),
                cupti: time,
                error,
            });
        }
    }
    best
}

/// 0 is unknown.
const LIKE_REALTIME: u8 = 1;
const LIKE_MONOTONIC: u8 = 2;

/// What the last pair tells of CUPTI's clock, for threads that must not call CUPTI.
#[derive(Debug, Default)]
pub(crate) struct CuptiClock {
    domain: AtomicU8,
    offset: AtomicI64,
    armed: AtomicU64,
}

impl CuptiClock {
    /// Takes in a pair. A clock within a second of `CLOCK_REALTIME` follows it, steps included; any other is
    /// taken to run evenly.
    pub(crate) fn learn(&self, pair: &Clock) {
        let from_realtime = pair.cupti.wrapping_sub(pair.realtime).cast_signed();
        let near = from_realtime.unsigned_abs() < 1_000_000_000;
        let from_monotonic = pair.cupti.wrapping_sub(pair.monotonic).cast_signed();
        self.offset.store(if near { from_realtime } else { from_monotonic }, Relaxed);
        self.domain.store(if near { LIKE_REALTIME } else { LIKE_MONOTONIC }, Relaxed);
    }

    /// Collecting begins at this time of CUPTI's clock.
    pub(crate) fn arm(&self, time: u64) {
        self.armed.store(time, Relaxed);
    }

    /// CUPTI's time now, if its clock is known.
    pub(crate) fn now(&self) -> Option<u64> {
        let base = match self.domain.load(Relaxed) {
            LIKE_REALTIME => sys::realtime(),
            LIKE_MONOTONIC => sys::monotonic(),
            _ => return None,
        };
        Some(base.wrapping_add_signed(self.offset.load(Relaxed)))
    }

    /// What is believable for records delivered now.
    pub(crate) fn bounds(&self) -> Bounds {
        self.now().map_or(Bounds::UNKNOWN, |now| Bounds::new(self.armed.load(Relaxed), now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_like_the_hosts_is_followed_and_another_is_not_mistaken_for_it() {
        for (what, read) in
            [("realtime", sys::realtime as fn() -> u64), ("monotonic", sys::monotonic as fn() -> u64)]
        {
            let pair = pair(|| Some(read())).unwrap();
            assert!(pair.error < 1_000_000_000, "{what}");
            let clock = CuptiClock::default();
            assert_eq!((clock.now(), clock.bounds()), (None, Bounds::UNKNOWN));
            clock.learn(&pair);
            let (before, now, after) = (read(), clock.now().unwrap(), read());
            let slack = pair.error + 1_000_000;
            assert!(now + slack >= before && now <= after + slack, "{what}: {before} {now} {after}");
        }
        assert_eq!(pair(|| None), None);
    }

    #[test]
    fn bounds_begin_at_arming() {
        let clock = CuptiClock::default();
        clock.learn(&pair(|| Some(sys::realtime())).unwrap());
        let armed = clock.now().unwrap();
        clock.arm(armed);
        let bounds = clock.bounds();
        assert_eq!(bounds.earliest, armed - Bounds::BEFORE_ARMING_NS);
        assert!(bounds.latest > armed);
    }
}
