//! Slots a second over the last few readings, since records come in bursts.

/// Readings kept: about five seconds, one reading a second.
const READINGS: usize = 6;
/// Shorter steps between readings say nothing, nanoseconds.
const STEP: u64 = 500_000_000;

/// How fast a counter that only grows does so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Time, nanoseconds, and count, the latest first.
    readings: [(u64, u64); READINGS],
    known: usize,
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

    /// Counts a second over the readings there are; 0 before the second.
    pub(super) fn per_second(&self) -> u64 {
        let Some(oldest) = self.known.checked_sub(1).and_then(|last| self.readings.get(last)) else {
            return 0;
        };
        let taken = self.readings[0].1.saturating_sub(oldest.1);
        let elapsed = self.readings[0].0.saturating_sub(oldest.0);
        let rate = u128::from(taken).saturating_mul(1_000_000_000).checked_div(u128::from(elapsed));
        rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
    }

    /// Whether nothing was counted between the last two readings.
    pub(super) fn stalled(&self) -> bool {
        self.known > 1 && self.readings[0].1 == self.readings[1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn bursts_are_averaged_and_a_pause_is_noticed() {
        let mut rate = Rate::from(0);
        assert_eq!((rate.per_second(), rate.stalled()), (0, false));
        // 100 a second, of which what comes wavers by a fifth.
        for (second, count) in [(1, 120), (2, 180), (3, 320), (4, 380), (5, 500)] {
            rate.read(second * S, count);
        }
        assert_eq!(rate.per_second(), 100);
        rate.read(5 * S + S / 4, 700);
        assert_eq!(rate.per_second(), 100, "too soon after the last reading");
        for second in 6..=10 {
            rate.read(second * S, 500);
            assert!(rate.stalled());
        }
        assert_eq!(rate.per_second(), 0);
    }

    #[test]
    fn a_clock_that_goes_back_begins_afresh() {
        let mut rate = Rate::from(9 * S);
        rate.read(10 * S, 50);
        rate.read(S, 60);
        assert_eq!(rate.per_second(), 0);
        rate.read(2 * S, 70);
        assert_eq!(rate.per_second(), 10);
    }
}
