//! Slots a second, over the last forty seconds: records come in bursts, and a program's pace wavers between three and six
//! hundred thousand a second from one second to the next (measured), which evens out by the time that is foretold.

/// Readings kept: forty seconds, one reading a second.
const READINGS: usize = 41;
/// Shorter steps between readings say nothing, nanoseconds.
const STEP: u64 = 1_000_000_000;
/// The shortest time that says something of the pace, nanoseconds.
const SHORT: u64 = 5_000_000_000;
/// A pace so many times another one is no wavering but another load.
const ANOTHER: u64 = 2;

/// How fast a counter that only grows does so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time, nanoseconds, and count, the latest first.
    readings: [(u64, u64); READINGS],
    known: usize,
}

impl Default for Rate {
    fn default() -> Self {
        Self { readings: [(0, 0); READINGS], known: 0 }
    }
}

impl Rate {
    /// A counter that was 0 at `now`.
    pub(super) fn from(now: u64) -> Self {
        let mut rate = Self::default();
        rate.note(now, 0);
        rate
    }

    /// Takes a reading, unless the last one was just now.
    pub(super) fn read(&mut self, now: u64, count: u64) {
        let (last, _) = self.readings[0];
        // A clock that was set back begins afresh.
        if self.known > 0 && now < last {
            self.known = 0;
        }
        if self.known == 0 || now.saturating_sub(last) >= STEP {
            self.note(now, count);
        }
    }

    fn note(&mut self, now: u64, count: u64) {
        self.readings.rotate_right(1);
        self.readings[0] = (now, count);
        self.known = self.known.saturating_add(1).min(READINGS);
    }

    /// Nanoseconds until `left` more are counted; `None` while nothing is.
    pub(super) fn time_for(&self, left: u64) -> Option<u64> {
        let (soon, long) = (self.per_second(SHORT), self.per_second(u64::MAX));
        let another = soon > long.saturating_mul(ANOTHER) || soon.saturating_mul(ANOTHER) < long;
        time_for(left, if another { soon } else { long })
    }

    /// Counts a second over the last `long` nanoseconds, as far as readings go back; 0 before the second.
    fn per_second(&self, long: u64) -> u64 {
        let (now, latest) = self.readings[0];
        let known = self.readings.get(..self.known).unwrap_or_default();
        let far = known.iter().find(|(then, _)| now.saturating_sub(*then) >= long);
        let Some((then, count)) = far.or(known.last()) else { return 0 };
        let taken = u128::from(latest.saturating_sub(*count));
        let elapsed = u128::from(now.saturating_sub(*then));
        let rate = taken.saturating_mul(1_000_000_000).checked_div(elapsed);
        rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
    }

    /// Whether nothing was counted between the last two readings.
    pub(super) fn stalled(&self) -> bool {
        self.known > 1 && self.readings[0].1 == self.readings[1].1
    }
}

fn time_for(left: u64, per_second: u64) -> Option<u64> {
    let time = u128::from(left).saturating_mul(1_000_000_000).checked_div(u128::from(per_second))?;
    u64::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn bursts_are_averaged_and_a_pause_is_noticed() {
        let mut rate = Rate::from(0);
        assert_eq!((rate.time_for(1), rate.stalled()), (None, false));
        // 100 a second, of which what comes wavers by a fifth.
        for (second, count) in [(1, 120), (2, 180), (3, 320), (4, 380), (5, 500)] {
            rate.read(second * S, count);
        }
        assert_eq!(rate.time_for(100), Some(S));
        rate.read(5 * S + S / 4, 700);
        assert_eq!(rate.time_for(100), Some(S), "too soon after the last reading");
        for second in 6..=10 {
            rate.read(second * S, 500);
            assert!(rate.stalled());
        }
        assert_eq!(rate.time_for(1), None);
    }

    #[test]
    fn wavering_evens_out_and_another_load_is_believed() {
        let mut rate = Rate::from(0);
        // A pace that wavers slowly: ten seconds at 80, ten at 120, and so on.
        let mut count = 0;
        for second in 1..=60 {
            count += if (second - 1) / 10 % 2 == 0 { 80 } else { 120 };
            rate.read(second * S, count);
        }
        assert_eq!(rate.time_for(7_200), Some(72 * S), "of the last forty seconds");
        assert_eq!(rate.time_for(100), Some(S));
        for second in 61..=70 {
            count += 1_000;
            rate.read(second * S, count);
        }
        assert_eq!(rate.time_for(5_000), Some(5 * S), "of the last five seconds");
        for second in 71..=76 {
            count += 10;
            rate.read(second * S, count);
        }
        assert_eq!(rate.time_for(50), Some(5 * S), "of the last five seconds");
    }

    #[test]
    fn a_clock_that_goes_back_begins_afresh() {
        let mut rate = Rate::from(9 * S);
        rate.read(10 * S, 50);
        rate.read(S, 60);
        assert_eq!(rate.time_for(10), None);
        rate.read(2 * S, 70);
        assert_eq!(rate.time_for(10), Some(S));
    }
}
