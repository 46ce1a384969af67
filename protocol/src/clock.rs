//! What clock pairs tell: which of the host's clocks CUPTI's is, and when one of them jumped.

use crate::message::Clock;

/// How far from a host's clock CUPTI's may be and still be that clock, nanoseconds.
const NEAR_NS: u64 = 1_000_000_000;
/// What two clocks may drift apart between two pairs without anybody having set one: this, and a thousandth of the
/// time between (the kernel slews by at most half of that).
const DRIFT_NS: u64 = 50_000_000;

/// Which clock CUPTI's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// `CLOCK_REALTIME`, CUPTI's own default on Linux.
    Realtime,
    /// `CLOCK_MONOTONIC`, as on WSL.
    Monotonic,
    /// `CLOCK_BOOTTIME`, which goes on in suspend.
    Boottime,
    /// `CLOCK_REALTIME` less the machine's uptime: two clocks were mixed up.
    LessUptime,
    /// None of the host's.
    Other,
}

impl Domain {
    /// The clock of a pair.
    #[must_use]
    pub const fn of(pair: &Clock) -> Self {
        if near(pair.cupti, pair.realtime) {
            Self::Realtime
        } else if near(pair.cupti, pair.monotonic) {
            Self::Monotonic
        } else if near(pair.cupti, pair.boottime) {
            Self::Boottime
        } else if near(pair.cupti, pair.realtime.wrapping_sub(pair.monotonic))
            || near(pair.cupti, pair.realtime.wrapping_sub(pair.boottime))
        {
            Self::LessUptime
        } else {
            Self::Other
        }
    }

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Monotonic => "monotonic",
            Self::Boottime => "boottime",
            Self::LessUptime => "realtime less the machine's uptime",
            Self::Other => "a clock of its own",
        }
    }
}

const fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) < NEAR_NS
}

/// What happened to the clocks between two pairs, nanoseconds; 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jump {
    /// The machine was suspended for so long.
    pub suspended: u64,
    /// Somebody set `CLOCK_REALTIME` forward, or back.
    pub stepped: i64,
    /// CUPTI's clock went on by so much more, or less, than the time in which the GPU could work.
    pub cupti: i64,
}

impl Jump {
    /// What happened between two pairs of one boot, the earlier one first.
    #[must_use]
    pub const fn between(before: &Clock, after: &Clock) -> Self {
        let worked = after.monotonic.wrapping_sub(before.monotonic);
        let slack =
            DRIFT_NS.saturating_add(worked / 1000).saturating_add(before.error).saturating_add(after.error);
        let boot = after.boottime.wrapping_sub(before.boottime);
        let real = after.realtime.wrapping_sub(before.realtime);
        let cupti = after.cupti.wrapping_sub(before.cupti);
        Self {
            suspended: beyond(boot, worked, slack).unsigned_abs(),
            stepped: beyond(real, boot, slack),
            cupti: beyond(cupti, worked, slack),
        }
    }

    /// Whether nothing happened.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.suspended == 0 && self.stepped == 0 && self.cupti == 0
    }
}

/// By how much one clock went on more than another, if that is more than `slack`.
const fn beyond(one: u64, other: u64, slack: u64) -> i64 {
    let more = one.wrapping_sub(other).cast_signed();
    if more.unsigned_abs() > slack { more } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn cuptis_clock_is_told_from_a_pair() {
        let pair = Clock {
            realtime: 1_618_299_047_442_206_100,
            monotonic: 14_317_211_549_313,
            boottime: 14_317_211_549_400,
            ..Clock::default()
        };
        let of = |cupti| Domain::of(&Clock { cupti, ..pair });
        assert_eq!(of(1_618_299_047_442_300_000), Domain::Realtime);
        assert_eq!(of(14_317_211_549_313), Domain::Monotonic);
        assert_eq!(of(1_618_284_730_230_899_000), Domain::LessUptime);
        assert_eq!(of(7), Domain::Other);
        let slept = Clock { boottime: pair.boottime + 3600 * S, ..pair };
        assert_eq!(Domain::of(&Clock { cupti: slept.boottime + 5, ..slept }), Domain::Boottime);
    }

    #[test]
    fn a_suspend_and_a_step_are_told_apart() {
        let at =
            |realtime, monotonic, boottime, cupti| Clock { realtime, monotonic, boottime, cupti, error: 900 };
        let before = at(50_000 * S, 100 * S, 100 * S, 100 * S);
        let slept = at(53_601 * S, 101 * S, 3701 * S, 3701 * S);
        let jump = Jump { suspended: 3600 * S, stepped: 0, cupti: 3600 * S.cast_signed() };
        assert_eq!(Jump::between(&before, &slept), jump);
        let before = Clock { cupti: before.realtime, ..before };
        let set_back = at(46_410 * S, 110 * S, 110 * S, 46_410 * S);
        let hour = 3600 * S.cast_signed();
        assert_eq!(Jump::between(&before, &set_back), Jump { suspended: 0, stepped: -hour, cupti: -hour });
        let slewed = at(50_010 * S + 5_000_000, 110 * S, 110 * S, 50_010 * S + 5_000_000);
        assert!(Jump::between(&before, &slewed).is_none());
    }

    proptest! {
        #[test]
        fn no_pairs_make_it_panic(numbers: [u64; 10]) {
            let [realtime, monotonic, boottime, cupti, error, r, m, b, c, e] = numbers;
            let one = Clock { realtime, monotonic, boottime, cupti, error };
            let other = Clock { realtime: r, monotonic: m, boottime: b, cupti: c, error: e };
            let _ = (Domain::of(&one), Jump::between(&one, &other));
            prop_assert!(Jump::between(&one, &one).is_none());
        }
    }
}
