//! Moments, and counts by time in rings of fixed size.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gtop_protocol::message::Clock;

/// Nanoseconds of one second.
pub const SECOND: u64 = 1_000_000_000;

/// When something reached the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// `CLOCK_REALTIME` nanoseconds; for people. Someone may set it.
    pub wall: u64,
    /// Nanoseconds of a clock that nobody sets; for windows and ages.
    pub steady: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Self { wall, steady: BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64 }
    }

    /// A moment of a file, whose only clock is that of its records.
    #[must_use]
    pub const fn of_record(wall: u64) -> Self {
        Self { wall, steady: wall }
    }

    /// The whole second of the steady clock.
    #[must_use]
    pub const fn second(self) -> u64 {
        self.steady / SECOND
    }
}

/// CUPTI's time at a host time, by the last clock pair; the same when there is none, because CUPTI's clock is
/// the realtime clock unless somebody changed it.
#[must_use]
pub fn cupti_time(clock: Option<&Clock>, wall: u64) -> u64 {
    clock.map_or(wall, |pair| pair.cupti.wrapping_add(wall.wrapping_sub(pair.realtime)))
}

/// The host's time at a CUPTI time; the inverse of [`cupti_time`].
#[must_use]
pub fn wall_time(clock: Option<&Clock>, cupti: u64) -> u64 {
    clock.map_or(cupti, |pair| pair.realtime.wrapping_add(cupti.wrapping_sub(pair.cupti)))
}

/// Counts of `N` things in each tenth of a second of the last minute.
#[derive(Clone, Debug, Default)]
pub struct Tenths<const N: usize> {
    /// Empty until something is counted.
    slots: Vec<[u32; N]>,
    newest: u64,
}

/// Tenths of a second in the ring: one minute and the tenth that is being filled.
const TENTHS: usize = 601;
const TENTH: u64 = SECOND / 10;

impl<const N: usize> Tenths<N> {
    /// Adds `counts` at `at`; what is older than the newest moment is counted there.
    pub fn add(&mut self, at: Moment, counts: &[u64; N]) {
        if self.slots.is_empty() {
            self.slots = vec![[0; N]; TENTHS];
        }
        self.advance(at);
        let slot = &mut self.slots[(self.newest % TENTHS as u64) as usize];
        for (sum, count) in slot.iter_mut().zip(counts) {
            *sum = sum.saturating_add((*count).min(u64::from(u32::MAX)) as u32);
        }
    }

    /// The counts of the last `tenths` tenths of a second, the current one included.
    #[must_use]
    pub fn window(&mut self, at: Moment, tenths: u64) -> [u64; N] {
        let mut sums = [0; N];
        if self.slots.is_empty() {
            return sums;
        }
        self.advance(at);
        for back in 0..tenths.min(TENTHS as u64).min(self.newest + 1) {
            let slot = &self.slots[((self.newest - back) % TENTHS as u64) as usize];
            for (sum, count) in sums.iter_mut().zip(slot) {
                *sum += u64::from(*count);
            }
        }
        sums
    }

    /// The counts of each of the last sixty seconds, oldest first; the last one is being filled.
    #[must_use]
    pub fn seconds(&mut self, at: Moment) -> Vec<[u64; N]> {
        if self.slots.is_empty() {
            return Vec::new();
        }
        self.advance(at);
        let mut seconds = vec![[0; N]; 60];
        let filling = self.newest / 10;
        for back in 0..(TENTHS as u64).min(self.newest + 1) {
            let tenth = self.newest - back;
            let Some(second) = 59u64.checked_sub(filling - tenth / 10) else { break };
            let slot = &self.slots[(tenth % TENTHS as u64) as usize];
            for (sum, count) in seconds[second as usize].iter_mut().zip(slot) {
                *sum += u64::from(*count);
            }
        }
        seconds
    }

    fn advance(&mut self, at: Moment) {
        let tenth = at.steady / TENTH;
        if tenth <= self.newest {
            return;
        }
        let steps = (tenth - self.newest).min(TENTHS as u64);
        for step in 0..steps {
            self.slots[((tenth - step) % TENTHS as u64) as usize] = [0; N];
        }
        self.newest = tenth;
    }
}

/// Counts of `N` things in each second of the last minute; a window holds the second that is being filled and as many
/// whole ones before it.
#[derive(Clone, Debug)]
pub struct Minute<const N: usize> {
    slots: [[u32; N]; MINUTE],
    newest: u64,
    /// The slot of the newest second.
    at: usize,
}

/// Seconds in the ring: one minute and the second that is being filled.
const MINUTE: usize = 61;

impl<const N: usize> Default for Minute<N> {
    fn default() -> Self {
        Self { slots: [[0; N]; MINUTE], newest: 0, at: 0 }
    }
}

impl<const N: usize> Minute<N> {
    /// Adds `counts` in `second`; what is older than the newest second is counted there.
    #[inline]
    pub fn add(&mut self, second: u64, counts: [u32; N]) {
        if second > self.newest {
            self.advance(second);
        }
        let slot = &mut self.slots[self.at];
        for (sum, count) in slot.iter_mut().zip(counts) {
            *sum = sum.saturating_add(count);
        }
    }

    /// The counts of the last `seconds` whole seconds before `second`, and of that one.
    #[must_use]
    pub fn window(&self, second: u64, seconds: u64) -> [u64; N] {
        let mut sums = [0; N];
        let second = second.max(self.newest);
        for back in 0..=seconds.min(MINUTE as u64 - 1).min(second) {
            let of = second - back;
            if of <= self.newest && self.newest - of < MINUTE as u64 {
                for (sum, count) in sums.iter_mut().zip(&self.slots[(of % MINUTE as u64) as usize]) {
                    *sum += u64::from(*count);
                }
            }
        }
        sums
    }

    #[cold]
    fn advance(&mut self, second: u64) {
        for step in 0..(second - self.newest).min(MINUTE as u64) {
            self.slots[((second - step) % MINUTE as u64) as usize] = [0; N];
        }
        self.newest = second;
        self.at = (second % MINUTE as u64) as usize;
    }
}

/// Whole seconds in a [`Seconds`] ring that can be asked for.
pub const TREND: usize = 16;

/// Sums in each of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seconds {
    slots: [u64; TREND + 1],
    newest: u64,
    /// The slot of the newest second.
    at: usize,
}

impl Seconds {
    /// Adds `amount` in `second`; what is older than the newest second is counted there.
    #[inline]
    pub fn add(&mut self, second: u64, amount: u64) {
        if second > self.newest {
            self.advance(second);
        }
        self.slots[self.at] += amount;
    }

    /// The sums of the last [`TREND`] complete seconds before `second`, oldest first.
    #[must_use]
    pub fn last(&self, second: u64) -> [u64; TREND] {
        let mut sums = [0; TREND];
        for (i, sum) in sums.iter_mut().enumerate() {
            let Some(of) = second.checked_sub((TREND - i) as u64) else { continue };
            if of <= self.newest && self.newest - of <= TREND as u64 {
                *sum = self.slots[(of % (TREND as u64 + 1)) as usize];
            }
        }
        sums
    }

    #[cold]
    fn advance(&mut self, second: u64) {
        let ring = TREND as u64 + 1;
        for step in 0..(second - self.newest).min(ring) {
            self.slots[((second - step) % ring) as usize] = 0;
        }
        self.newest = second;
        self.at = (second % ring) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Moment {
        Moment::of_record(tenths * TENTH)
    }

    #[test]
    fn windows_slide_and_forget() {
        let mut ring = Tenths::<1>::default();
        ring.add(at(1000), &[5]);
        ring.add(at(1004), &[7]);
        assert_eq!(ring.window(at(1004), 10), [12]);
        assert_eq!(ring.window(at(1012), 10), [7]);
        assert_eq!(ring.window(at(1012), 100), [12]);
        assert_eq!(ring.window(at(1604), 600), [0]);
        ring.add(at(1000), &[1]);
        assert_eq!(ring.window(at(1604), 1), [1], "an earlier moment counts as the newest");
        assert_eq!(ring.window(at(1_000_000), 600), [0]);
    }

    #[test]
    fn a_minute_is_kept_by_seconds() {
        let mut ring = Minute::<2>::default();
        for second in 100..130 {
            ring.add(second, [2, 1]);
        }
        assert_eq!([0, 1, 10, 60].map(|seconds| ring.window(129, seconds)[0]), [2, 4, 22, 60]);
        assert_eq!(ring.window(135, 10), [10, 5]);
        assert_eq!(ring.window(1000, 60), [0, 0]);
        ring.add(1000, [7, 7]);
        assert_eq!(ring.window(1000, 60), [7, 7]);
        let mut tenths = Tenths::<1>::default();
        (1000..1025).for_each(|tenth| tenths.add(at(tenth), &[1]));
        let seconds = tenths.seconds(at(1031));
        assert_eq!((seconds.len(), &seconds[55..]), (60, [[0], [10], [10], [5], [0]].as_slice()));
    }

    #[test]
    fn seconds_keep_the_last_sixteen() {
        let mut ring = Seconds::default();
        for second in 100..120 {
            ring.add(second, second);
        }
        assert_eq!(ring.last(120), std::array::from_fn(|i| 104 + i as u64));
        assert_eq!(ring.last(122)[13..], [119, 0, 0]);
        assert_eq!(ring.last(200), [0; TREND]);
    }

    #[test]
    fn clock_pairs_map_both_ways() {
        let pair = Clock { realtime: 1_000_000, cupti: 400, ..Clock::default() };
        assert_eq!(cupti_time(Some(&pair), 1_000_050), 450);
        assert_eq!(wall_time(Some(&pair), 450), 1_000_050);
        assert_eq!(wall_time(Some(&pair), 399), 999_999);
        assert_eq!(wall_time(None, 7), 7);
    }
}
