//! Tracing in short windows, so that it costs a process no more than a price: when windows open and close, how long
//! they are and how far apart. It is told the time and what was measured, and calls nothing.
//!
//! A window takes from the process the share of its time that tracing slows it by, its loss. Windows of length L
//! that begin once in a period P on average cost `loss * L / P` of the process's whole time. The blanks between them
//! are of random length, so that nothing that repeats can hide in them.

use gtop_protocol::message::{Basis, Relief};

/// The worst loss that was ever measured: a graph of tiny kernels took 155 % longer (H200, CUPTI 13.5.25).
pub(crate) const WORST_LOSS: f64 = 1.55 / 2.55;
/// Less than this is not believed of any process.
const LEAST_LOSS: f64 = 0.02;
/// How long windows are at least, switching apart, in which kernels are seen too: several steps of a decoding server.
const WINDOW_NS: u64 = 25_000_000;
/// … and at most, however long the steps are.
const LONGEST_WINDOW_NS: u64 = 400_000_000;
/// The least time between two windows: what one brought is delivered by then.
const LEAST_BLANK_NS: u64 = 300_000_000;
/// The longest period, so that something comes to be seen.
const LONGEST_PERIOD_NS: u64 = 30_000_000_000;
/// Windows that are remembered.
pub(crate) const RECENT: usize = 32;

/// What was measured of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// The share of a window's time that tracing takes, and the upper end of its 95 % interval.
    pub(crate) loss: Option<(f64, f64)>,
    pub(crate) basis: Basis,
    pub(crate) relief: Relief,
    pub(crate) step: Step,
}

/// How far apart in time the launches of one graph are: a step of a program that repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing repeats, as far as is known.
    #[default]
    None,
    /// Graphs are launched, and none twice in one window: a step takes longer than that.
    Longer,
    /// The longest time between two launches of one graph in one window, nanoseconds.
    Takes(u64),
}

impl Measured {
    /// Nothing yet.
    pub(crate) const NOTHING: Self =
        Self { loss: None, basis: Basis::Assumed, relief: Relief::Unknown, step: Step::None };
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Open,
    Close,
}

/// A window, CUPTI's nanoseconds; the end of an open one is 0.
pub(crate) type Window = (u64, u64);

/// The windows of a process that keeps to a price.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// The price, parts per million of the process's time; never 0.
    pub(crate) ppm: u32,
    /// Windows begun.
    pub(crate) windows: u64,
    pub(crate) window_ns: u64,
    pub(crate) period_ns: u64,
    pub(crate) measured: Measured,
    /// The last windows, the newest last.
    recent: [Window; RECENT],
    random: u64,
    open: bool,
    /// When the window opens or closes, `CLOCK_MONOTONIC` nanoseconds.
    due: u64,
    opened: u64,
    switching_ns: u64,
}

impl Budget {
    /// Begins at `now`, `CLOCK_MONOTONIC` nanoseconds: the first window is due at once.
    pub(crate) fn new(ppm: u32, windows: u64, seed: u64, now: u64) -> Self {
        let mut this = Self {
            ppm: ppm.max(1),
            windows,
            window_ns: WINDOW_NS,
            period_ns: 0,
            measured: Measured::NOTHING,
            recent: [(0, 0); RECENT],
            random: seed | 1,
            open: false,
            due: now,
            opened: now,
            switching_ns: 0,
        };
        this.plan();
        this
    }

    /// Whether a window is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// When something is to be done next.
    pub(crate) const fn due(&self) -> u64 {
        self.due
    }

    /// What is to be done at `now`.
    pub(crate) const fn turn(&self, now: u64) -> Option<Turn> {
        match (now >= self.due, self.open) {
            (false, _) => None,
            (true, false) => Some(Turn::Open),
            (true, true) => Some(Turn::Close),
        }
    }

    /// A window has been opened: `began` is when switching kinds on began and `now` when it was done; `at` is
    /// CUPTI's time.
    pub(crate) fn opened(&mut self, began: u64, now: u64, at: u64) {
        self.open = true;
        self.opened = now;
        self.switching_ns = now.saturating_sub(began);
        self.windows = self.windows.saturating_add(1);
        self.recent.rotate_left(1);
        if let Some(last) = self.recent.last_mut() {
            *last = (at, 0);
        }
        self.due = now.saturating_add(self.window_ns);
    }

    /// A window has been closed: at `began` kinds began to be switched off, which was done at `now`; at `at`, CUPTI's
    /// time, kernel went off.
    pub(crate) fn closed(&mut self, began: u64, now: u64, at: u64) {
        self.open = false;
        self.switching_ns = self.switching_ns.saturating_add(now.saturating_sub(began));
        if let Some(last) = self.recent.last_mut() {
            last.1 = at.max(last.0.saturating_add(1));
        }
        self.plan();
        // Blanks differ, so that the phase drifts through anything that repeats.
        let spare = self.period_ns.saturating_sub(self.window_ns).saturating_sub(LEAST_BLANK_NS);
        let blank = LEAST_BLANK_NS.saturating_add(self.draw(spare.saturating_mul(2)));
        self.due = now.saturating_add(blank);
    }

    /// The window opened at `now` lasts so long.
    pub(crate) const fn lasts(&mut self, now: u64, ns: u64) {
        self.due = now.saturating_add(ns);
    }

    /// The open window is not to be closed any more.
    pub(crate) const fn never_closes(&mut self) {
        self.due = u64::MAX;
        self.measured = Measured { relief: Relief::None, ..self.measured };
    }

    /// Takes in what was measured meanwhile.
    pub(crate) const fn measure(&mut self, measured: Measured) {
        self.measured = measured;
    }

    /// The last windows, oldest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = Window> {
        self.recent.iter().copied().filter(|(begin, _)| *begin > 0)
    }

    /// The price as windows are now, parts per million: what is likeliest, if anything is known, and at most.
    pub(crate) fn price(&self) -> (Option<u64>, u64) {
        let covered = if self.measured.relief == Relief::None {
            1.0
        } else {
            self.window_ns.saturating_add(self.switching_ns) as f64 / self.period_ns.max(1) as f64
        };
        let ppm = |loss: f64| (loss * covered * 1e6) as u64;
        match self.measured.loss.filter(|_| self.measured.relief != Relief::None) {
            Some((loss, high)) => (Some(ppm(loss)), ppm(high)),
            None => (None, ppm(WORST_LOSS)),
        }
    }

    /// How long windows are, and how far apart. Those of twice a step's length hold a whole step, whatever their phase.
    fn plan(&mut self) {
        let wanted = match self.measured.step {
            Step::None => WINDOW_NS,
            Step::Longer => self.window_ns.saturating_mul(2),
            Step::Takes(ns) => ns.saturating_mul(9) / 4,
        };
        self.window_ns = wanted.clamp(WINDOW_NS, LONGEST_WINDOW_NS);
        let loss = self.measured.loss.map_or(WORST_LOSS, |(_, high)| high).clamp(LEAST_LOSS, WORST_LOSS);
        let cost = self.window_ns.saturating_add(self.switching_ns) as f64 * loss;
        let period = (cost * 1e6 / f64::from(self.ppm)) as u64;
        let shortest = self.window_ns.saturating_add(LEAST_BLANK_NS).saturating_add(LEAST_BLANK_NS);
        self.period_ns = period.clamp(shortest, LONGEST_PERIOD_NS);
    }

    /// A random number up to `most` (xorshift; nothing depends on its quality but that phases differ).
    fn draw(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        (share * most as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Runs until `end`, each switch taking so long; gives the windows, the first excepted.
    fn run(budget: &mut Budget, end: u64, switch: u64) -> Vec<Window> {
        let mut now = 0;
        let mut windows = Vec::new();
        let mut begin = 0;
        while now < end {
            now = now.max(budget.due());
            match budget.turn(now).unwrap() {
                Turn::Open => {
                    begin = now;
                    budget.opened(now, now + switch, now);
                }
                Turn::Close => {
                    budget.closed(now, now + switch, now);
                    windows.push((begin, now + switch));
                }
            }
            now += switch;
        }
        windows.remove(0);
        windows
    }

    proptest! {
        #[test]
        fn windows_keep_to_the_price(
            ppm in 2_000u32..200_000,
            loss in 0.0f64..0.6,
            seed: u64,
            switch in 0..5 * MS,
        ) {
            let mut budget = Budget::new(ppm, 0, seed, 0);
            budget.measure(Measured { loss: Some((loss, loss)), ..Measured::NOTHING });
            let end = 6_000_000 * MS;
            let windows = run(&mut budget, end, switch);
            let covered: u64 = windows.iter().map(|(begin, end)| end - begin).sum();
            let price = loss * covered as f64 / end as f64 * 1e6;
            prop_assert!(price <= f64::from(ppm) * 1.15, "{price} {ppm}");
            let far = windows.windows(2).all(|pair| pair[1].0 >= pair[0].1 + LEAST_BLANK_NS - switch);
            prop_assert!(far, "what one window brought is delivered before the next");
        }
    }

    #[test]
    fn nothing_that_repeats_hides_in_the_blanks() {
        let mut budget = Budget::new(10_000, 0, 7, 0);
        let windows = run(&mut budget, 2_000_000 * MS, 0);
        let period = 1000 * MS;
        let mut tenths = [0u32; 10];
        for (begin, _) in &windows {
            tenths[(begin % period * 10 / period) as usize] += 1;
        }
        let mean = windows.len() as u32 / 10;
        assert!(tenths.iter().all(|count| *count > mean / 2 && *count < mean * 2), "{tenths:?}");
    }

    #[test]
    fn windows_hold_a_whole_step() {
        let mut budget = Budget::new(10_000, 0, 1, 0);
        let mut length = |step| {
            budget.measure(Measured { step, ..Measured::NOTHING });
            budget.closed(0, 0, 1);
            budget.window_ns / MS
        };
        assert_eq!(length(Step::Takes(4 * MS)), 25, "several of them");
        assert_eq!(length(Step::Takes(40 * MS)), 90);
        assert_eq!([length(Step::Longer), length(Step::Longer), length(Step::Longer)], [180, 360, 400]);
        assert_eq!(length(Step::None), 25);
        assert!(budget.period_ns >= 25 * MS);
    }

    #[test]
    fn what_is_not_known_is_taken_to_be_the_worst() {
        let mut budget = Budget::new(10_000, 0, 1, 0);
        assert_eq!(budget.price(), (None, 10_000));
        assert_eq!(budget.period_ns / MS, 1519, "25 ms at a loss of 0.608");
        budget.opened(0, 0, 5);
        budget.measure(Measured {
            loss: Some((0.2, 0.25)),
            basis: Basis::Copies,
            relief: Relief::Full,
            step: Step::None,
        });
        budget.closed(25 * MS, 25 * MS, 30);
        assert_eq!(budget.period_ns / MS, 625);
        assert_eq!(budget.price(), (Some(8_000), 10_000));
        budget.measure(Measured { relief: Relief::None, ..budget.measured });
        assert_eq!(budget.price(), (None, 607_843), "windows save nothing: full tracing, at its worst");
        assert_eq!(budget.recent().collect::<Vec<_>>(), [(5, 30)]);
    }
}
