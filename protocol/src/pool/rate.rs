//! Slots a second, over the last forty seconds: records come in bursts, and a program's pace wavers between three and six
//! hundred thousand a second from one second to the next (measured), which evens out by the time that is foretold. How far
//! it does is told by how much it wavered: no estimate from the same counts can be surer than that.

/// Readings kept: forty seconds, one reading a second.
const READINGS: usize = 41;
/// Shorter steps between readings say nothing, nanoseconds.
const STEP: u64 = 1_000_000_000;
/// The shortest time that says something of the pace, nanoseconds.
const SHORT: u64 = 5_000_000_000;
/// A pace so many times another one is no wavering but another load.
const ANOTHER: u64 = 2;

/// Readings told together, to see whether the pace wavers for longer than from one to the next.
const TOGETHER: [usize; 4] = [1, 2, 4, 8];
/// The fewest of them that say how much it wavers.
const FEWEST: usize = 4;

/// When a counter gets somewhere, nanoseconds from the last reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foretold {
    pub(super) time: u64,
    /// What likely holds the true time, by how much the pace wavered so far: nothing before there are enough readings, and no
    /// end where it may as well stand still. Where a pace is kept for long, so that few were seen, it is too narrow: it
    /// held in 166 of 201 forecasts on an H200.
    pub(super) earliest: Option<u64>,
    pub(super) latest: Option<u64>,
}

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

    /// When `left` more are counted; `None` while nothing is.
    pub(super) fn foretell(&self, left: u64) -> Option<Foretold> {
        let (soon, long) = (self.since(SHORT), self.since(u64::MAX));
        let (soon_pace, long_pace) = (per_second(soon), per_second(long));
        let another =
            soon_pace > long_pace.saturating_mul(ANOTHER) || soon_pace.saturating_mul(ANOTHER) < long_pace;
        let (readings, pace) = if another { (soon, soon_pace) } else { (long, long_pace) };
        let time = time_for(left, pace)?;
        let Some(off) = wavering(readings, time) else {
            return Some(Foretold { time, earliest: None, latest: None });
        };
        let at = |paces: f64| (paces > 0.0).then(|| (time as f64 / paces) as u64);
        Some(Foretold { time, earliest: at(1.0 + off), latest: at(1.0 - off) })
    }

    /// The readings of the last `long` nanoseconds, as far as they go back, and the one before.
    fn since(&self, long: u64) -> &[(u64, u64)] {
        let (now, _) = self.readings[0];
        let known = self.readings.get(..self.known).unwrap_or_default();
        let far = known.iter().position(|(then, _)| now.saturating_sub(*then) >= long);
        far.and_then(|far| known.get(..=far)).unwrap_or(known)
    }

    /// Whether nothing was counted between the last two readings.
    pub(super) fn stalled(&self) -> bool {
        self.known > 1 && self.readings[0].1 == self.readings[1].1
    }
}

/// Counts a second over these readings; 0 where there are not two.
fn per_second(readings: &[(u64, u64)]) -> u64 {
    let (elapsed, taken) = grown(readings);
    let rate = u128::from(taken).saturating_mul(1_000_000_000).checked_div(u128::from(elapsed));
    rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
}

/// Nanoseconds and counts from the last of these readings to the first, which is the latest.
fn grown(readings: &[(u64, u64)]) -> (u64, u64) {
    match (readings.first(), readings.last()) {
        (Some((now, latest)), Some((then, count))) => {
            (now.saturating_sub(*then), latest.saturating_sub(*count))
        }
        _ => (0, 0),
    }
}

/// By what share of itself the mean pace of the next `ahead` nanoseconds may differ from that over these readings, in 95 % of
/// cases where they are many beside the time for which a pace is kept: both means waver, the less the longer they are.
fn wavering(readings: &[(u64, u64)], ahead: u64) -> Option<f64> {
    let (elapsed, taken) = grown(readings);
    let pace = taken as f64 / elapsed as f64;
    let steps = readings.len().saturating_sub(1);
    let of = |together: usize| {
        let count = steps.checked_div(together).filter(|count| *count >= FEWEST)?;
        // A variance that grows with time as that of a count does whose parts know nothing of each other.
        let apart = |at: usize| {
            let first = at.saturating_mul(together);
            let (time, count) = grown(readings.get(first..=first.saturating_add(together))?);
            let off = count as f64 - pace * time as f64;
            (time > 0).then(|| off * off / time as f64)
        };
        let sum: f64 = (0..count).map_while(apart).sum();
        let freedom = count.saturating_sub(1);
        Some(student(freedom) * (sum / freedom as f64).sqrt())
    };
    let most = TOGETHER.into_iter().filter_map(of).reduce(f64::max)?;
    let off = most * (1.0 / elapsed as f64 + 1.0 / ahead.max(1) as f64).sqrt() / pace;
    off.is_finite().then_some(off)
}

/// Student's t for 95 % with so many degrees of freedom, three at least: Cornish and Fisher's expansion, to a hundredth.
fn student(freedom: usize) -> f64 {
    let few = 1.0 / freedom.max(3) as f64;
    1.96 + few * (2.372 + few * (2.823 + few * (2.556 + few * 1.59)))
}

fn time_for(left: u64, per_second: u64) -> Option<u64> {
    let time = u128::from(left).saturating_mul(1_000_000_000).checked_div(u128::from(per_second))?;
    u64::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn time(rate: &Rate, left: u64) -> Option<u64> {
        rate.foretell(left).map(|foretold| foretold.time)
    }

    #[test]
    fn bursts_are_averaged_and_a_pause_is_noticed() {
        let mut rate = Rate::from(0);
        assert_eq!((time(&rate, 1), rate.stalled()), (None, false));
        // 100 a second, of which what comes wavers by a fifth.
        for (second, count) in [(1, 120), (2, 180), (3, 320), (4, 380), (5, 500)] {
            rate.read(second * S, count);
        }
        assert_eq!(time(&rate, 100), Some(S));
        rate.read(5 * S + S / 4, 700);
        assert_eq!(time(&rate, 100), Some(S), "too soon after the last reading");
        for second in 6..=10 {
            rate.read(second * S, 500);
            assert!(rate.stalled());
        }
        assert_eq!(time(&rate, 1), None);
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
        assert_eq!(time(&rate, 7_200), Some(72 * S), "of the last forty seconds");
        assert_eq!(time(&rate, 100), Some(S));
        for second in 61..=70 {
            count += 1_000;
            rate.read(second * S, count);
        }
        assert_eq!(time(&rate, 5_000), Some(5 * S), "of the last five seconds");
        for second in 71..=76 {
            count += 10;
            rate.read(second * S, count);
        }
        assert_eq!(time(&rate, 50), Some(5 * S), "of the last five seconds");
    }

    #[test]
    fn a_clock_that_goes_back_begins_afresh() {
        let mut rate = Rate::from(9 * S);
        rate.read(10 * S, 50);
        rate.read(S, 60);
        assert_eq!(time(&rate, 10), None);
        rate.read(2 * S, 70);
        assert_eq!(time(&rate, 10), Some(S));
    }

    #[test]
    fn a_steady_pace_leaves_no_doubt_and_a_short_past_says_nothing_of_it() {
        let mut rate = Rate::from(0);
        for second in 1..=8 {
            rate.read(second * S, second * 100);
            let sure = (second >= 4).then_some(9 * S);
            assert_eq!(rate.foretell(900), Some(Foretold { time: 9 * S, earliest: sure, latest: sure }));
        }
        // One that stands still every other second for a while may do so for long.
        let mut rate = Rate::from(0);
        for (second, count) in [(1, 0), (2, 800), (3, 800), (4, 800)] {
            rate.read(second * S, count);
        }
        let Foretold { time, earliest, latest } = rate.foretell(200).unwrap();
        assert_eq!((time, latest), (S, None));
        assert!(earliest.unwrap() < S / 2);
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, t) in [(3, 3.182), (4, 2.776), (6, 2.447), (10, 2.228), (20, 2.086), (39, 2.023)] {
            assert!((student(freedom) - t).abs() < 0.01, "{freedom}");
        }
    }

    /// A pool of 25 million slots fills at a pace that wavers as was measured, between three and six hundred thousand a
    /// second, each pace kept for so many seconds. How often the end lay between the ends that were foretold in the
    /// seconds before, and how far apart these were in the middle of the time, as shares.
    fn filled(seed: u64, kept: u64) -> (f64, f64) {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            300_000 + random % 300_000
        };
        let total = 25_000_000;
        let (mut rate, mut said) = (Rate::from(0), Vec::new());
        let (mut count, mut second, mut pace) = (0, 0, 0);
        let end = loop {
            if second % kept == 0 {
                pace = draw();
            }
            if count + pace >= total {
                break second * S + (total - count) * S / pace;
            }
            (second, count) = (second + 1, count + pace);
            rate.read(second * S, count);
            said.extend(rate.foretell(total - count).map(|foretold| (second * S, foretold)));
        };
        let ranges: Vec<(u64, u64)> = said
            .iter()
            .filter_map(|(now, foretold)| {
                Some((now + foretold.earliest?, foretold.latest.map_or(u64::MAX, |latest| now + latest)))
            })
            .collect();
        let held = ranges.iter().filter(|(from, until)| (from..=until).contains(&&end)).count();
        let (from, until) = ranges[ranges.len() / 2];
        (held as f64 / ranges.len() as f64, (until - from) as f64 / end as f64)
    }

    #[test]
    fn the_true_end_lies_where_it_was_foretold() {
        for kept in [1, 2, 3] {
            let runs: Vec<_> = (1..=100).map(|seed| filled(seed, kept)).collect();
            let held = runs.iter().map(|(held, _)| held).sum::<f64>() / runs.len() as f64;
            let mut apart: Vec<f64> = runs.iter().map(|(_, apart)| *apart).collect();
            apart.sort_by(f64::total_cmp);
            assert!(held > 0.9 && apart[50] < 0.25, "{kept} s: {held}, {} apart", apart[50]);
        }
        // Of a pace that is kept for long too few are seen, and the range is known to be too narrow.
        let held = (1..=100).map(|seed| filled(seed, 8).0).sum::<f64>() / 100.0;
        assert!((0.6..0.9).contains(&held), "{held}");
    }
}
