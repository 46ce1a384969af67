//! How the clocks of a recording lie to each other: CUPTI's, the one on the wall, which somebody may set, and the steady one.

use gtop_protocol::message::Clock;
use gtop_protocol::recording::At;

/// By how much a clock pair must differ from what is in force before times are mapped anew: pairs have errors, and
/// times that are mapped alike keep their distances to the nanosecond.
const SLACK_NS: u64 = 1_000_000;
/// The latest time that has a place: what others read holds no more.
pub(super) const LATEST: u64 = i64::MAX as u64;
/// What is to be added to CUPTI's time, nanoseconds; the realtime clock is CUPTI's own unless somebody changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset(pub(super) i64);

impl Offset {
    /// Takes in a clock pair.
    pub(super) fn hear(&mut self, pair: &Clock) {
        let now = pair.realtime.wrapping_sub(pair.cupti).cast_signed();
        if now.abs_diff(self.0) > SLACK_NS.saturating_add(pair.error) {
            self.0 = now;
        }
    }

    /// The time since the epoch.
    pub(super) const fn wall(self, cupti: u64) -> u64 {
        cupti.wrapping_add_signed(self.0)
    }

    /// Both times since the epoch; `None` where a mapping that cannot be leads before it, or so far behind it that
    /// nothing holds the time.
    pub(super) fn span(self, start: u64, end: u64) -> Option<(u64, u64)> {
        let wall = |cupti: u64| cupti.checked_add_signed(self.0).filter(|wall| *wall <= LATEST);
        wall(start).zip(wall(end))
    }
}

/// How the times of the epoch lie on the steady clock, whoever sets the other one.
#[derive(Default)]
pub(super) struct Steady {
    /// When the frame at hand came.
    at: u64,
    /// By how much the clock on the wall is ahead, and was before it was set: what came just now may be older.
    ahead: Option<[i64; 2]>,
}

impl Steady {
    /// Takes in when a frame came.
    pub(super) fn hear(&mut self, at: At) {
        self.at = at.steady;
        let ahead = at.wall.wrapping_sub(at.steady).cast_signed();
        let [now, _] = *self.ahead.get_or_insert([ahead; 2]);
        if now.abs_diff(ahead) > SLACK_NS {
            self.ahead = Some([ahead, now]);
        }
    }

    /// The steady time, the nearest to when it came.
    pub(super) fn of(&self, wall: u64) -> u64 {
        let steady = self.ahead.unwrap_or_default().map(|ahead| wall.saturating_sub_signed(ahead));
        steady.into_iter().min_by_key(|steady| steady.abs_diff(self.at)).unwrap_or(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_mapped_anew_only_where_they_moved() {
        let pair = |cupti: u64, realtime: u64| Clock { cupti, realtime, error: 500, ..Clock::default() };
        let mut offset = Offset::default();
        offset.hear(&pair(1_000_000_000, 1_000_000_700));
        assert_eq!(offset, Offset(0), "CUPTI's clock is the realtime clock");
        offset.hear(&pair(5_000, 9_000_000_000));
        assert_eq!(offset.wall(6_000), 9_000_001_000);
        offset.hear(&pair(1_005_000, 9_001_000_900));
        assert_eq!(offset.wall(6_000), 9_000_001_000, "pairs have errors");
        offset.hear(&pair(2_005_000, 4_002_000_000));
        assert_eq!(offset.wall(2_005_000), 4_002_000_000, "somebody set the clock");
        assert_eq!(Offset(-5).span(6, 8), Some((1, 3)));
        assert_eq!((Offset(-5).span(4, 8), Offset(i64::MAX).span(0, 1)), (None, None));
    }
}
