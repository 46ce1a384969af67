//! Slots a second, over the last forty seconds: records come in bursts, and a program's pace wavers between three and six
//! hundred thousand a second from one second to the next (measured), which evens out by the time that is foretold. How far
//! it does is told by how much it wavered, and before much was seen by how much one was measured to waver.

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
/// How much a pace is taken to waver before enough was seen of it: what its sum over a time is off, squared, as a share of the
/// pace squared and of that time, nanoseconds. Measured on an H200 over eight seconds at a time, as nearly every program
/// goes on evenly at first.
const USUAL: f64 = 0.13e9;
/// How many readings that weighs as much as.
const WEIGHS: usize = 8;

/// When a counter gets somewhere, nanoseconds from the last reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foretold {
    pub(super) time: u64,
    /// What likely holds the true time, by how much the pace wavered so far and how much one was seen to waver elsewhere: no
    /// end where it may as well stand still.
    pub(super) earliest: u64,
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
        let off = wavering(readings, time);
        let at = |paces: f64| (time as f64 / paces) as u64;
        let latest = (off < 1.0).then(|| at(1.0 - off));
        Some(Foretold { time, earliest: at(1.0 + off), latest })
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

/// By what share of itself the mean pace of the next `ahead` nanoseconds may differ from that over these readings: both means
/// waver, the less the longer they are, by what was seen and what is usual.
fn wavering(readings: &[(u64, u64)], ahead: u64) -> f64 {
    let (elapsed, taken) = grown(readings);
    let pace = taken as f64 / elapsed as f64;
    let steps = readings.len().saturating_sub(1);
    let of = |together: usize| {
        let count = steps.checked_div(together).unwrap_or(0);
        // A variance that grows with time as that of a count does whose parts know nothing of each other.
        let apart = |at: usize| {
            let first = at.saturating_mul(together);
            let (time, count) = grown(readings.get(first..=first.saturating_add(together))?);
            let off = count as f64 - pace * time as f64;
            (time > 0).then(|| off * off / time as f64)
        };
        let sum: f64 = (0..count).map_while(apart).sum();
        let freedom = WEIGHS.saturating_add(count.saturating_sub(1));
        student(freedom) * ((WEIGHS as f64 * USUAL * pace * pace + sum) / freedom as f64).sqrt()
    };
    let most = TOGETHER.into_iter().map(of).fold(0.0, f64::max);
    most * (1.0 / elapsed as f64 + 1.0 / ahead.max(1) as f64).sqrt() / pace
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
    fn a_pace_is_believed_the_more_the_longer_it_was_steady() {
        let mut rate = Rate::from(0);
        let mut apart = Vec::new();
        for second in 1..=40 {
            rate.read(second * S, second * 100);
            let Foretold { time, earliest, latest } = rate.foretell(4_000).unwrap();
            assert_eq!(time, 40 * S);
            assert!(earliest < time);
            apart.push(latest.map_or(u64::MAX, |latest| latest - earliest));
        }
        assert!(apart.is_sorted_by(|one, next| one >= next), "{apart:?}");
        assert!(apart[0] > 30 * S && apart[39] < 12 * S, "{apart:?}");
        // One that stands still every other second for a while may do so for long.
        let mut rate = Rate::from(0);
        for (second, count) in [(1, 0), (2, 800), (3, 800), (4, 800)] {
            rate.read(second * S, count);
        }
        let Foretold { time, earliest, latest } = rate.foretell(200).unwrap();
        assert_eq!((time, latest), (S, None));
        assert!(earliest < S * 2 / 3);
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
        weigh(&said, end)
    }

    /// How often the end lay between those that were foretold, and how far apart these were in the middle.
    fn weigh(said: &[(u64, Foretold)], end: u64) -> (f64, f64) {
        let ranges = said.iter().map(|(now, foretold)| {
            (now + foretold.earliest, foretold.latest.map_or(u64::MAX, |latest| now + latest))
        });
        let ranges: Vec<(u64, u64)> = ranges.collect();
        let held = ranges.iter().filter(|(from, until)| (from..=until).contains(&&end)).count();
        let (from, until) = ranges[ranges.len() / 2];
        (held as f64 / ranges.len() as f64, (until - from) as f64 / end as f64)
    }

    /// Slots taken of 25 million by copies within a device and their kernels on an H200, once a second as the shim told them.
    const RECORDED: [u64; 53] = [
        577_064, 1_139_828, 1_690_530, 2_243_524, 2_748_508, 3_248_264, 3_786_836, 4_313_766, 4_832_930,
        5_327_834, 5_757_236, 6_116_284, 6_472_906, 6_794_990, 7_188_002, 7_634_386, 8_109_882, 8_592_656,
        9_085_134, 9_584_890, 10_087_072, 10_579_550, 11_059_898, 11_465_040, 11_942_962, 12_457_274,
        12_966_734, 13_490_750, 14_005_062, 14_526_652, 15_033_686, 15_557_702, 16_035_624, 16_549_936,
        17_044_840, 17_544_596, 18_046_778, 18_415_530, 18_830_376, 19_269_482, 19_589_714, 19_909_946,
        20_235_030, 20_618_338, 21_096_260, 21_566_904, 22_003_584, 22_304_408, 22_738_662, 23_221_436,
        23_696_932, 24_194_262, 24_677_036,
    ];

    #[test]
    fn what_was_recorded_lies_where_it_was_foretold() {
        const TOTAL: u64 = 25_000_000;
        let mut rate = Rate::from(0);
        let mut said = Vec::new();
        let mut now = 0;
        for count in RECORDED {
            now += S;
            rate.read(now, count);
            said.push((now, rate.foretell(TOTAL - count).unwrap()));
        }
        let last = RECORDED[RECORDED.len() - 1];
        let end = now + (TOTAL - last) * S / (last - RECORDED[RECORDED.len() - 2]);
        let (held, apart) = weigh(&said, end);
        assert!(held > 0.95 && apart < 0.25, "{held}, {apart} apart");
    }

    #[test]
    fn the_true_end_lies_where_it_was_foretold() {
        // Of a pace that is kept for long too few are seen.
        for (kept, least) in [(1, 0.95), (2, 0.95), (3, 0.95), (8, 0.85)] {
            let runs: Vec<_> = (1..=100).map(|seed| filled(seed, kept)).collect();
            let held = runs.iter().map(|(held, _)| held).sum::<f64>() / runs.len() as f64;
            let mut apart: Vec<f64> = runs.iter().map(|(_, apart)| *apart).collect();
            apart.sort_by(f64::total_cmp);
            assert!(held > least && apart[50] < 0.25, "{kept} s: {held}, {} apart", apart[50]);
        }
    }
}
