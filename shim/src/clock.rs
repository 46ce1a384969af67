//! CUPTI's clock: bracketed pairs with the host's clocks, and what it says now without asking CUPTI.

use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64};
use gtop_protocol::clock::Domain;
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
const LIKE_BOOTTIME: u8 = 3;
/// How far CUPTI's clock may move against the time in which a GPU works before it is read again, nanoseconds.
const JUMP_NS: u64 = 50_000_000;

/// The host's clocks at one moment, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    realtime: u64,
    monotonic: u64,
    boottime: u64,
}

impl Host {
    fn now() -> Self {
        Self {
            realtime: sys::realtime(),
            monotonic: sys::monotonic(),
            boottime: sys::clock(libc::CLOCK_BOOTTIME),
        }
    }
}

/// What the last pair tells of CUPTI's clock, for threads that must not call CUPTI.
#[derive(Debug, Default)]
pub(crate) struct CuptiClock {
    domain: AtomicU8,
    offset: AtomicI64,
    /// `CLOCK_MONOTONIC` when collecting began; 0 is unknown.
    armed: AtomicU64,
    /// The least and the most that CUPTI's clock was ahead of `CLOCK_MONOTONIC` since then. They differ after somebody
    /// has set the clock or the machine has slept: records from before and from after are then both believable.
    least: AtomicI64,
    most: AtomicI64,
    jumped: AtomicBool,
}

impl CuptiClock {
    /// Takes in a pair. A clock that is one of the host's follows it, steps included; any other is taken to run
    /// evenly.
    pub(crate) fn learn(&self, pair: &Clock) {
        let (domain, base) = match Domain::of(pair) {
            Domain::Realtime => (LIKE_REALTIME, pair.realtime),
            Domain::Boottime => (LIKE_BOOTTIME, pair.boottime),
            Domain::Monotonic | Domain::LessUptime | Domain::Other => (LIKE_MONOTONIC, pair.monotonic),
        };
        self.offset.store(pair.cupti.wrapping_sub(base).cast_signed(), Relaxed);
        self.domain.store(domain, Relaxed);
    }

    /// Collecting begins at this time of CUPTI's clock; 0 when that is not known.
    pub(crate) fn arm(&self, time: u64) {
        self.arm_at(time, Host::now());
    }

    fn arm_at(&self, time: u64, host: Host) {
        let ahead = self.now_at(host).map_or(0, |now| now.wrapping_sub(host.monotonic).cast_signed());
        self.least.store(ahead, Relaxed);
        self.most.store(ahead, Relaxed);
        self.armed.store(if time == 0 { 0 } else { time.wrapping_add_signed(ahead.wrapping_neg()) }, Relaxed);
    }

    /// CUPTI's time now, if its clock is known.
    pub(crate) fn now(&self) -> Option<u64> {
        self.now_at(Host::now())
    }

    fn now_at(&self, host: Host) -> Option<u64> {
        let base = match self.domain.load(Relaxed) {
            LIKE_REALTIME => host.realtime,
            LIKE_MONOTONIC => host.monotonic,
            LIKE_BOOTTIME => host.boottime,
            _ => return None,
        };
        Some(base.wrapping_add_signed(self.offset.load(Relaxed)))
    }

    /// What is believable for records delivered now.
    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds_at(Host::now())
    }

    fn bounds_at(&self, host: Host) -> Bounds {
        let Some(now) = self.now_at(host) else { return Bounds::UNKNOWN };
        let ahead = now.wrapping_sub(host.monotonic).cast_signed();
        let (before_least, before_most) =
            (self.least.fetch_min(ahead, Relaxed), self.most.fetch_max(ahead, Relaxed));
        if ahead.abs_diff(before_least) > JUMP_NS && ahead.abs_diff(before_most) > JUMP_NS {
            self.jumped.store(true, Relaxed);
        }
        let armed = match self.armed.load(Relaxed) {
            0 => 0,
            armed => armed.wrapping_add_signed(before_least.min(ahead)),
        };
        Bounds::new(armed, host.monotonic.wrapping_add_signed(before_most.max(ahead)))
    }

    /// Whether the clock has jumped since this was last asked, so that it must be read again.
    pub(crate) fn has_jumped(&self) -> bool {
        self.jumped.load(Relaxed) && self.jumped.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::Validity;
    use gtop_protocol::validity::classify;

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
        // Two clocks are read one after the other.
        assert!(bounds.earliest.abs_diff(armed - Bounds::BEFORE_ARMING_NS) < 1_000_000_000);
        assert!(bounds.latest > armed);
    }

    const HOUR: u64 = 3_600_000_000_000;
    const HOST: Host = Host { realtime: 500_000 * HOUR, monotonic: 9 * HOUR, boottime: 9 * HOUR };

    fn armed() -> CuptiClock {
        let clock = CuptiClock::default();
        clock.learn(&Clock {
            realtime: HOST.realtime,
            monotonic: HOST.monotonic,
            boottime: HOST.boottime,
            cupti: HOST.realtime,
            error: 0,
        });
        clock.arm_at(HOST.realtime, HOST);
        clock
    }

    #[test]
    fn records_around_a_step_of_the_clock_are_all_believed() {
        let later = |by: u64, step: i64| Host {
            realtime: (HOST.realtime + by).wrapping_add_signed(step),
            monotonic: HOST.monotonic + by,
            boottime: HOST.boottime + by,
        };
        let clock = armed();
        let step = -HOUR.cast_signed();
        clock.bounds_at(later(60_000_000_000, 0));
        assert!(!clock.has_jumped());
        let bounds = clock.bounds_at(later(61_000_000_000, step));
        assert!(clock.has_jumped() && !clock.has_jumped(), "it is read again once");
        let (before, after) = (HOST.realtime + 60_500_000_000, HOST.realtime + 61_000_000_000 - HOUR);
        for start in [before, after] {
            assert!(classify(start - 1000, start, bounds).is_valid(), "{start}");
        }
        let foreign = HOST.realtime - 28 * HOUR;
        assert_eq!(classify(foreign, foreign + 9, bounds), Validity::ForeignClock);
        let future = HOST.realtime + 2 * HOUR;
        assert_eq!(classify(future, future + 9, bounds), Validity::Future);
        clock.arm_at(HOST.realtime + 62_000_000_000 - HOUR, later(62_000_000_000, step));
        let bounds = clock.bounds_at(later(63_000_000_000, step));
        assert_eq!(classify(before, before + 9, bounds), Validity::Future, "armed again, the past is past");
    }

    #[test]
    fn a_clock_that_goes_on_in_suspend_is_followed() {
        let clock = CuptiClock::default();
        let slept = Host { boottime: HOST.boottime + HOUR, ..HOST };
        clock.learn(&Clock {
            realtime: slept.realtime,
            monotonic: slept.monotonic,
            boottime: slept.boottime,
            cupti: slept.boottime,
            error: 0,
        });
        let again = Host { boottime: slept.boottime + 2 * HOUR, ..slept };
        assert_eq!(clock.now_at(again), Some(again.boottime));
    }
}
