//! Tracing in windows: what the shim says of it, and how what was seen in windows is scaled to all of the time.
//!
//! A total is the rate inside windows times the time they stand for, its interval that of a ratio of sums over the
//! windows (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, section 6.4).

use std::collections::VecDeque;

use gtop_protocol::message::{self, Basis, Relief, windows};
use gtop_protocol::{Kind, KindSet};

use super::snapshot;

/// Windows kept for the timeline.
const KEPT: usize = 4096;

/// A value, and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The likeliest.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Sums over windows of one quantity: of itself, its square, and its products with the window's length and with the
/// kernel time of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    own: f64,
    squares: f64,
    by_length: f64,
    by_time: f64,
}

impl Sums {
    /// Adds what one window brought.
    fn add(&mut self, value: f64, window: Folded) {
        self.own += value;
        self.squares += value * value;
        self.by_length += value * window.length;
        self.by_time += value * window.time;
    }
}

/// How much of a growing count windows brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windowed {
    /// The count when windows were last folded.
    folded: u64,
    in_windows: Sums,
}

impl Windowed {
    /// How much has come since the last fold.
    pub(super) const fn fresh(&self, count: u64) -> u64 {
        count.saturating_sub(self.folded)
    }

    /// Takes what has come since the last fold for what a window brought, if one is given.
    pub(super) fn fold(&mut self, count: u64, window: Option<Folded>) {
        let fresh = self.fresh(count);
        self.folded = count;
        if let Some(window) = window.filter(|_| fresh > 0) {
            self.in_windows.add(fresh as f64, window);
        }
    }

    /// What was counted in full.
    pub(super) fn exact(&self, count: u64, sampling: &Sampling) -> f64 {
        // What came since the last fold belongs to a window, or to full tracing.
        let known = if sampling.is_on() { self.folded } else { count };
        (known as f64 - self.in_windows.own).max(0.0)
    }

    /// What there is likely to be in all until `now`.
    pub(super) fn total(&self, count: u64, sampling: &Sampling, now: u64) -> Option<Estimate> {
        sampling.total(self.exact(count, sampling), &self.in_windows, now)
    }

    /// How much there is in a second.
    pub(super) fn per_second(&self, sampling: &Sampling, now: u64) -> Option<Estimate> {
        let Estimate { value, low, high } = sampling.total(0.0, &self.in_windows, now)?;
        let seconds = sampling.stands_for(now) / 1e9;
        Some(Estimate { value: value / seconds, low: low / seconds, high: high / seconds })
    }

    /// The share of all kernel time, of a kernel's time.
    pub(super) fn share(&self, exact: [f64; 2], sampling: &Sampling, now: u64) -> Option<Estimate> {
        sampling.share(exact, &self.in_windows, now)
    }
}

/// A window of which everything has come: its length and the kernel time in it, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folded {
    pub(super) length: f64,
    pub(super) time: f64,
}

/// What to do with the counts of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fold {
    /// What came since the last fold belongs to no window that counts.
    Skip,
    /// It came in a window of this length, nanoseconds.
    Window(f64),
}

/// The windows of a process.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    told: Option<Told>,
    /// The newest window, and whether it counts.
    newest: Option<((u64, u64), bool)>,
    /// Since when windows stand for the whole time, CUPTI's nanoseconds.
    since: Option<u64>,
    /// Time that windows stood for before that.
    before: u64,
    count: f64,
    length: f64,
    length_squares: f64,
    time: Sums,
    calls: Sums,
    kept: VecDeque<(u64, u64)>,
}

/// What the shim said last.
#[derive(Clone, Copy, Debug)]
struct Told {
    budget_ppm: u32,
    windows: u64,
    time: u64,
    between: KindSet,
    relief: Relief,
    basis: Basis,
    loss_ppm: Option<u64>,
    price_ppm: Option<u64>,
    price_high_ppm: Option<u64>,
    window_ns: u64,
    period_ns: u64,
}

impl Sampling {
    /// Kinds that are on between windows.
    pub(super) fn between(&self) -> KindSet {
        self.told.map_or(KindSet::EMPTY, |told| told.between)
    }

    /// The last times in which no kernel was traced.
    pub(super) fn blanks(&self) -> impl Iterator<Item = (u64, u64)> {
        /// As many as one frame may tell of.
        const NEWS: usize = 32;
        let traced =
            self.between().has(Kind::Kernel) || self.told.is_some_and(|told| told.relief == Relief::None);
        let pairs = self.kept.iter().zip(self.kept.iter().skip(1));
        let news = pairs.skip(self.kept.len().saturating_sub(NEWS + 1)).filter(move |_| !traced);
        news.map(|((_, end), (begin, _))| (*end, *begin)).filter(|(end, begin)| end < begin)
    }

    /// Takes in what the shim says, and has the rows folded as `fold` is told.
    pub(super) fn heard(&mut self, said: &message::Sampling<'_>, mut fold: impl FnMut(&mut Self, Fold)) {
        let was = self.told.replace(Told {
            budget_ppm: said.budget_ppm,
            windows: said.windows,
            time: said.time,
            between: KindSet(said.between),
            relief: Relief::from_wire(said.relief),
            basis: Basis::from_wire(said.basis),
            loss_ppm: said.loss_ppm,
            price_ppm: said.price_ppm,
            price_high_ppm: said.price_high_ppm,
            window_ns: said.window_ns,
            period_ns: said.period_ns,
        });
        let on = said.budget_ppm > 0;
        let began = on && was.is_none_or(|was| was.budget_ppm == 0);
        for (begin, end) in windows::read(said.recent) {
            self.keep(begin, end);
            match &mut self.newest {
                Some(((newest, until), _)) if begin == *newest => *until = end.max(*until),
                Some(((newest, _), _)) if begin < *newest => {}
                // What is first heard of counts in full: it lay before, or the first window is still open.
                _ if began => self.newest = Some(((begin, end), false)),
                _ => {
                    self.finish(begin, &mut fold);
                    self.newest = Some(((begin, end), true));
                }
            }
        }
        if !on && was.is_some_and(|was| was.budget_ppm > 0) {
            self.finish(said.time, &mut fold);
            self.before += self.since.take().map_or(0, |since| said.time.saturating_sub(since));
            self.newest = None;
            self.keep(said.time, 0);
        }
    }

    /// The newest window is over, and what it brought has come.
    fn finish(&mut self, now: u64, fold: &mut impl FnMut(&mut Self, Fold)) {
        let Some(((begin, end), counts)) = self.newest else { return };
        let end = if end == 0 { now } else { end };
        if counts {
            fold(self, Fold::Window(end.saturating_sub(begin) as f64));
        } else {
            fold(self, Fold::Skip);
            self.since.get_or_insert(end);
        }
    }

    /// Keeps a window for the timeline. One that never closed lasts until the next: full tracing between two budgets
    /// is kept as a window too.
    fn keep(&mut self, begin: u64, end: u64) {
        match self.kept.back_mut() {
            Some((newest, until)) if *newest == begin => *until = end.max(*until),
            Some((newest, _)) if *newest > begin => {}
            last => {
                if let Some((_, until @ 0)) = last {
                    *until = begin;
                }
                self.kept.push_back((begin, end));
                if self.kept.len() > KEPT {
                    self.kept.pop_front();
                }
            }
        }
    }

    /// Counts a window: all kernel calls and all kernel time in it.
    pub(super) fn add(&mut self, calls: f64, window: Folded) {
        self.count += 1.0;
        self.length += window.length;
        self.length_squares += window.length * window.length;
        self.time.add(window.time, window);
        self.calls.add(calls, window);
    }

    /// Whether only windows are seen now.
    pub(super) fn is_on(&self) -> bool {
        self.told.is_some_and(|told| told.budget_ppm > 0)
    }

    /// Whether records of a kind come in windows only, so that what came in a second says nothing of the second.
    pub(super) fn hides(&self, kind: Kind) -> bool {
        self.told
            .is_some_and(|told| told.budget_ppm > 0 && told.relief != Relief::None && !told.between.has(kind))
    }

    /// Whether scaling means anything.
    fn scales(&self) -> bool {
        let relieved = self.told.is_some_and(|told| told.relief != Relief::None);
        self.count >= 2.0 && self.length > 0.0 && relieved
    }

    /// The time that windows stand for until `now`, CUPTI's nanoseconds.
    fn stands_for(&self, now: u64) -> f64 {
        let until = now.max(self.told.map_or(0, |told| told.time));
        (self.before + self.since.map_or(0, |since| until.saturating_sub(since))) as f64
    }

    /// Spread of a ratio of sums and Student's quantile for it.
    fn half(&self, residuals: f64, whole: f64, stands_for: f64) -> f64 {
        let unseen = (1.0 - self.length / stands_for).clamp(0.0, 1.0);
        let variance = residuals.max(0.0) * self.count / (self.count - 1.0) / (whole * whole) * unseen;
        student(self.count - 1.0) * variance.sqrt()
    }

    /// A total until `now`: `exact` that was counted in full, and what windows brought, scaled.
    fn total(&self, exact: f64, sums: &Sums, now: u64) -> Option<Estimate> {
        let stands_for = self.stands_for(now);
        if !self.scales() || stands_for <= 0.0 {
            return None;
        }
        let rate = sums.own / self.length;
        let residuals = sums.squares - 2.0 * rate * sums.by_length + rate * rate * self.length_squares;
        let half = self.half(residuals, self.length, stands_for) * stands_for;
        let value = exact + rate * stands_for;
        // What was seen was there.
        let least = exact + sums.own;
        Some(Estimate { value, low: (value - half).max(least), high: value + half })
    }

    /// The share that `row` has of all kernel time.
    fn share(&self, exact: [f64; 2], row: &Sums, now: u64) -> Option<Estimate> {
        let stands_for = self.stands_for(now);
        if !self.scales() || stands_for <= 0.0 || self.time.own <= 0.0 {
            return None;
        }
        let scale = stands_for / self.length;
        let (part, whole) = (exact[0] + row.own * scale, exact[1] + self.time.own * scale);
        let share = row.own / self.time.own;
        let residuals = row.squares - 2.0 * share * row.by_time + share * share * self.time.squares;
        let weight = self.time.own * scale / whole;
        let half = self.half(residuals, self.time.own, stands_for) * weight;
        let value = part / whole;
        Some(Estimate { value, low: (value - half).max(0.0), high: (value + half).min(1.0) })
    }

    /// What a snapshot holds; `exact` are all kernel calls and kernel time that were counted in full.
    pub(super) fn share_with(&self, exact: [f64; 2], now: u64) -> Option<snapshot::Sampling> {
        let told = self.told.filter(|told| told.budget_ppm > 0 || self.count > 0.0)?;
        let span = self.stands_for(now);
        let covered = if span > 0.0 { (self.length / span).min(1.0) } else { 0.0 };
        Some(snapshot::Sampling {
            budget_ppm: told.budget_ppm,
            windows: self.count as u64,
            began: told.windows,
            covered_ns: self.length as u64,
            span_ns: span as u64,
            between: told.between,
            relief: told.relief,
            basis: told.basis,
            loss: told.loss_ppm.map(|ppm| ppm as f64 / 1e6),
            price_ppm: told.price_ppm,
            price_high_ppm: told.price_high_ppm,
            window_ns: told.window_ns,
            period_ns: told.period_ns,
            calls: self.total(exact[0], &self.calls, now),
            total_ns: self.total(exact[1], &self.time, now),
            rare_below: (covered > 0.0 && covered < 1.0)
                .then(|| (0.05_f64.ln() / (1.0 - covered).ln()).ceil() as u64),
            recent: self.kept.iter().copied().collect::<Vec<_>>().into(),
        })
    }
}

/// The ratio of the sums of pairs that stand for the windows of a random sample, at most `most`; nothing without two.
#[must_use]
pub fn ratio(pairs: &[(f64, f64)], most: f64) -> Option<Estimate> {
    let count = pairs.len() as f64;
    let whole: f64 = pairs.iter().map(|(_, whole)| whole).sum();
    if pairs.len() < 2 || whole <= 0.0 {
        return None;
    }
    let value = pairs.iter().map(|(part, _)| part).sum::<f64>() / whole;
    let residuals: f64 = pairs.iter().map(|(part, whole)| (part - value * whole).powi(2)).sum();
    let half = student(count - 1.0) * (residuals * count / (count - 1.0)).sqrt() / whole;
    Some(Estimate { value, low: (value - half).max(0.0), high: (value + half).min(most) })
}

/// The 97.5 % quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let whole = freedom.max(1.0) as usize;
    // Beyond ten the first term of the expansion by 1/freedom is good to a thousandth.
    FEW.get(whole - 1).copied().unwrap_or(1.96 + 2.46 / freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of known totals: kernels in steps at a steady pace with a kernel that is in every tenth step, seen in
    /// windows at random phase. Gives the estimates of calls, of time, of one share, and the truth.
    fn watch(seed: u64, windows: usize) -> ([Estimate; 3], [f64; 3]) {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |most: f64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1u64 << 53) as f64 * most
        };
        // Launches: time, whether it is the rare kernel, length.
        let span = windows as f64 * 1.5e9;
        let mut launches = Vec::new();
        let (mut at, mut step) = (draw(5e6), 0u64);
        while at < span {
            step += 1;
            for kernel in 0..5u64 {
                launches.push((at, false, 100.0 + kernel as f64));
                at += 800_000.0 + draw(80_000.0);
            }
            if step.is_multiple_of(10) {
                launches.push((at, true, 5_000.0));
            }
            at += draw(2e6);
        }
        let mut sampling = Sampling::default();
        let (mut common, mut rare) = (Sums::default(), Sums::default());
        let mut new = [0.0; 3];
        let mut begin = 0.0;
        let mut list = Vec::new();
        while begin < span {
            list.push((begin + 1.0, begin + 25e6));
            begin += 25e6 + 3e8 + draw(2.0 * (1.5e9 - 25e6 - 3e8));
        }
        for (i, (begin, end)) in list.iter().enumerate() {
            let mut bytes = [0; 16];
            let mut w = gtop_protocol::wire::Writer::new(&mut bytes);
            message::windows::write_one(&mut w, *begin as u64, *end as u64).unwrap();
            let time = *end as u64;
            let said = message::Sampling { budget_ppm: 10_000, time, recent: &bytes, ..Default::default() };
            sampling.heard(&said, |sampling, fold| {
                if let Fold::Window(length) = fold {
                    let window = Folded { length, time: new[1] + new[2] };
                    sampling.add(new[0], window);
                    common.add(new[1], window);
                    rare.add(new[2], window);
                }
                new = [0.0; 3];
            });
            if i > 0 {
                let from = launches.partition_point(|(at, ..)| at < begin);
                for (_, is_rare, ns) in launches[from..].iter().take_while(|(at, ..)| at < end) {
                    new[0] += 1.0;
                    new[if *is_rare { 2 } else { 1 }] += ns;
                }
            }
        }
        let now = span as u64;
        let since = list[0].1;
        let after = || launches.iter().filter(|(at, ..)| *at >= since);
        let time =
            |wanted: bool| after().filter(|(_, rare, _)| *rare == wanted).map(|(.., ns)| ns).sum::<f64>();
        let calls = sampling.total(0.0, &sampling.calls, now).unwrap();
        let all = sampling.total(0.0, &sampling.time, now).unwrap();
        let share = sampling.share([0.0, 0.0], &rare, now).unwrap();
        let truth =
            [after().count() as f64, time(false) + time(true), time(true) / (time(false) + time(true))];
        assert!(common.own > 0.0);
        ([calls, all, share], truth)
    }

    #[test]
    fn the_truth_lies_within_the_interval_for_nine_seeds_of_ten() {
        let seeds = 100;
        let mut within = [0; 3];
        for seed in 1..=seeds {
            let (estimates, truth) = watch(seed, 40);
            for ((count, estimate), truth) in within.iter_mut().zip(estimates).zip(truth) {
                *count += i32::from((estimate.low..=estimate.high).contains(&truth));
                assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            }
            assert!(estimates[0].high < truth[0] * 1.5, "the interval says something");
        }
        assert!(within.iter().all(|count| *count >= 90), "{within:?} of {seeds}");
    }

    #[test]
    fn windows_that_save_nothing_are_not_scaled() {
        let mut sampling = Sampling::default();
        let mut bytes = [0; 64];
        let mut w = gtop_protocol::wire::Writer::new(&mut bytes);
        for begin in [10, 100, 200, 300] {
            message::windows::write_one(&mut w, begin, begin + 5).unwrap();
        }
        let none = Relief::None as u8;
        let first = message::Sampling { budget_ppm: 1, time: 20, recent: &bytes[..16], ..Default::default() };
        let said = message::Sampling { relief: none, time: 400, recent: &bytes, ..first };
        let fold = |sampling: &mut Sampling, fold| {
            if let Fold::Window(length) = fold {
                sampling.add(1.0, Folded { length, time: 1.0 });
            }
        };
        sampling.heard(&first, fold);
        sampling.heard(&message::Sampling { relief: 0, ..said }, fold);
        assert!(sampling.total(0.0, &sampling.calls, 400).is_some());
        assert!(sampling.hides(Kind::Kernel));
        sampling.heard(&said, fold);
        assert_eq!(sampling.total(0.0, &sampling.calls, 400), None);
        assert!(!sampling.hides(Kind::Kernel), "kernels come all the time");
        let shown = sampling.share_with([0.0; 2], 400).unwrap();
        assert_eq!((shown.windows, shown.recent.len(), shown.span_ns), (2, 4, 385));
    }

    #[test]
    fn a_ratio_of_sums_has_an_interval() {
        assert_eq!(ratio(&[(1.0, 2.0)], 1.0), None);
        assert_eq!(ratio(&[(1.0, 2.0); 9], 1.0), Some(Estimate { value: 0.5, low: 0.5, high: 0.5 }));
        // The mean of 4 and 6 with one degree of freedom: 5 ± 12.706.
        let estimate = ratio(&[(4.0, 1.0), (6.0, 1.0)], f64::INFINITY).unwrap();
        assert_eq!((estimate.value, estimate.low), (5.0, 0.0));
        assert!((estimate.high - 17.706).abs() < 1e-9);
    }

    #[test]
    fn what_comes_after_windows_is_exact_again() {
        let mut sampling = Sampling::default();
        let mut bytes = [0; 32];
        let mut w = gtop_protocol::wire::Writer::new(&mut bytes);
        message::windows::write_one(&mut w, 10, 15).unwrap();
        message::windows::write_one(&mut w, 100, 0).unwrap();
        let first = message::Sampling { budget_ppm: 1, time: 20, recent: &bytes[..16], ..Default::default() };
        let mut folds = Vec::new();
        let mut fold = |_: &mut Sampling, fold| folds.push(fold);
        sampling.heard(&first, &mut fold);
        sampling.heard(&message::Sampling { time: 100, recent: &bytes, ..first }, &mut fold);
        sampling.heard(&message::Sampling { time: 130, ..Default::default() }, &mut fold);
        assert_eq!(folds, [Fold::Skip, Fold::Window(30.0)]);
        assert_eq!(
            sampling.stands_for(10_000) as u64,
            115,
            "from the end of the first window to the last word"
        );
        assert_eq!(sampling.kept, [(10, 15), (100, 130), (130, 0)], "from then on everything is traced");
    }
}
