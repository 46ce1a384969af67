//! The memory of one process over time, and whether it leaks.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::time::SECOND;

/// Samples kept, a second apart at least.
const MOST: usize = 4096;
/// How long memory may take to come back after a capture.
pub(super) const COMES_BACK: u64 = 10 * SECOND;

/// Samples of one process's memory on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend {
    /// `CLOCK_REALTIME` nanoseconds, bytes.
    samples: VecDeque<(u64, u64)>,
    /// All of them for snapshots, until there is one more.
    shared: Option<Arc<[(u64, u64)]>>,
}

/// When growth is called a leak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Length of a window, nanoseconds.
    pub window: u64,
    /// Windows in a row that must grow.
    pub windows: usize,
    /// A window whose median is within this share of the baseline has not grown.
    pub tolerance: f64,
    /// How much of the baseline it must reach.
    pub times: f64,
    /// … and how much beyond it, bytes.
    pub bytes: u64,
}

/// What the person has written down, once for the whole run.
static WRITTEN: OnceLock<Limits> = OnceLock::new();

impl Limits {
    /// Three windows of a minute, 12 percent, half again as much and 384 MB.
    pub const DEFAULT: Self =
        Self { window: 60 * SECOND, windows: 3, tolerance: 0.12, times: 1.5, bytes: 384_000_000 };

    /// Keeps to these from now on; the first to say so is heard.
    pub fn keep_to(self) {
        let _ = WRITTEN.set(self);
    }

    /// Those that hold.
    pub(super) fn current() -> Self {
        WRITTEN.get().copied().unwrap_or(Self::DEFAULT)
    }
}

/// How the memory of a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// The rolling median that growth is measured against, bytes.
    pub baseline: u64,
    /// The most that was sampled, bytes.
    pub peak: u64,
    /// Change a minute over the last window, bytes; `None` before there are samples of half of one.
    pub per_minute: Option<i64>,
    /// Whether it rose in each third of that window, so that it may go on so.
    pub goes_on: bool,
}

/// How the memory of a process, as NVML tells it, changed over a capture, whatever took it or gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStep {
    /// From before its begin to the first sample after its end, bytes.
    pub taken: i64,
    /// … and to ten seconds later; `None` before that was sampled.
    pub kept: Option<i64>,
}

/// What a trend shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing to say.
    Steady,
    /// It rose at once and stays there.
    Step { at: u64, bytes: i64 },
    /// It grows on and on.
    Leak { baseline: u64, now: u64, since: u64, per_minute: i64 },
}

impl Trend {
    pub(super) fn add(&mut self, time: u64, bytes: u64) {
        match self.samples.back() {
            Some((last, _)) if time.saturating_sub(*last) < SECOND => return,
            _ => self.samples.push_back((time, bytes)),
        }
        self.shared = None;
        if self.samples.len() > MOST {
            self.samples.pop_front();
        }
    }

    /// All samples, oldest first: `CLOCK_REALTIME` nanoseconds and bytes.
    pub(super) fn share(&mut self) -> Arc<[(u64, u64)]> {
        let Self { samples, shared } = self;
        Arc::clone(shared.get_or_insert_with(|| samples.iter().copied().collect()))
    }

    /// The last sample at or before a moment.
    pub(super) fn at(&self, time: u64) -> Option<u64> {
        let after = self.samples.partition_point(|(at, _)| *at <= time);
        after.checked_sub(1).map(|at| self.samples[at].1)
    }

    /// How the memory went over a capture, once it was sampled after its end.
    pub(super) fn step(&self, begun: u64, ended: u64) -> Option<MemoryStep> {
        let before = self.at(begun)?;
        let after = |time: u64| {
            let (_, bytes) = self.samples.get(self.samples.partition_point(|(at, _)| *at < time))?;
            Some(bytes.wrapping_sub(before).cast_signed())
        };
        Some(MemoryStep { taken: after(ended)?, kept: after(ended.saturating_add(COMES_BACK)) })
    }

    /// When the first sample was taken.
    pub(super) fn begin(&self) -> Option<u64> {
        self.samples.front().map(|(time, _)| *time)
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.samples.back().map(|(_, bytes)| *bytes)
    }

    /// Change a minute over the last window, bytes.
    pub(super) fn per_minute(&self, window: u64) -> Option<i64> {
        let (end, last) = *self.samples.back()?;
        let from = self.samples.partition_point(|(at, _)| *at + window < end);
        let (begin, first) = *self.samples.get(from)?;
        let elapsed = end.saturating_sub(begin);
        (elapsed >= window / 2)
            .then(|| ((last as f64 - first as f64) * 60.0 * SECOND as f64 / elapsed as f64) as i64)
    }

    /// Whether each third of the last such time ended higher than it began.
    pub(super) fn goes_on(&self, window: u64) -> bool {
        let Some((end, _)) = self.samples.back() else { return false };
        let at: Vec<Option<u64>> =
            (0..=3).rev().map(|third| self.at(end.saturating_sub(third * window / 3))).collect();
        at.windows(2).all(|pair| matches!(pair, [Some(before), Some(after)] if after > before))
    }

    /// The medians of whole windows, oldest first, the last one up to now.
    fn medians(&self, window: u64, count: usize) -> Vec<u64> {
        let Some((end, _)) = self.samples.back().copied() else { return Vec::new() };
        let mut medians = Vec::new();
        for back in (0..count as u64).rev() {
            let upto = end.saturating_sub(back * window);
            let from = upto.saturating_sub(window);
            let mut inside: Vec<u64> = self
                .samples
                .iter()
                .filter(|(at, _)| *at > from && *at <= upto)
                .map(|(_, bytes)| *bytes)
                .collect();
            if inside.is_empty() {
                continue;
            }
            let middle = inside.len() / 2;
            medians.push(*inside.select_nth_unstable(middle).1);
        }
        medians
    }

    /// How it went; `None` without a sample.
    pub(super) fn course(&self) -> Option<Course> {
        let limits = Limits::current();
        let peak = self.samples.iter().map(|(_, bytes)| *bytes).max()?;
        let baseline = *self.medians(limits.window, limits.windows + 1).first()?;
        let per_minute = self.per_minute(limits.window);
        Some(Course { baseline, peak, per_minute, goes_on: self.goes_on(limits.window) })
    }

    /// Whether it leaks.
    pub(super) fn verdict(&self, limits: &Limits) -> Verdict {
        let medians = self.medians(limits.window, limits.windows + 1);
        let (Some(&baseline), Some(&now), Some((end, _))) =
            (medians.first(), medians.last(), self.samples.back().copied())
        else {
            return Verdict::Steady;
        };
        let from = end.saturating_sub(limits.window * (limits.windows as u64 + 1));
        if let Some((at, bytes)) = self.step_since(from)
            && bytes as f64 >= 0.8 * (now.saturating_sub(baseline)) as f64
            && bytes.unsigned_abs() >= limits.bytes
        {
            return Verdict::Step { at, bytes };
        }
        let enough = medians.len() > limits.windows;
        // A window near the baseline is as it was: nothing grew in it.
        let grows = medians
            .windows(2)
            .all(|pair| pair[1] > pair[0] && pair[1] as f64 > baseline as f64 * (1.0 + limits.tolerance));
        let beyond =
            now as f64 >= baseline as f64 * limits.times && now >= baseline.saturating_add(limits.bytes);
        if enough && grows && beyond {
            let per_minute = self.per_minute(limits.window * limits.windows as u64).unwrap_or(0);
            return Verdict::Leak { baseline, now, since: from, per_minute };
        }
        Verdict::Steady
    }

    /// The largest rise between two samples since a moment, if what came after stayed.
    fn step_since(&self, time: u64) -> Option<(u64, i64)> {
        let from = self.samples.partition_point(|(at, _)| *at < time);
        let samples: Vec<(u64, u64)> = self.samples.range(from..).copied().collect();
        let (at, bytes) = samples
            .windows(2)
            .map(|pair| (pair[1].0, pair[1].1.wrapping_sub(pair[0].1).cast_signed()))
            .max_by_key(|(_, rise)| *rise)?;
        let before = self.at(at.saturating_sub(1))?;
        (self.last()?.wrapping_sub(before).cast_signed() >= bytes / 2).then_some((at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn trend(bytes: impl IntoIterator<Item = u64>) -> Trend {
        let mut trend = Trend::default();
        for (i, bytes) in bytes.into_iter().enumerate() {
            trend.add((i as u64 + 1) * SECOND, bytes);
        }
        trend
    }

    #[test]
    fn growth_that_goes_on_is_a_leak_and_a_little_is_not() {
        let leak = trend((0..300).map(|i| 600 * MIB + i * 8 * MIB));
        let Verdict::Leak { per_minute, .. } = leak.verdict(&Limits::DEFAULT) else {
            panic!("{:?}", leak.verdict(&Limits::DEFAULT));
        };
        assert_eq!(per_minute / MIB.cast_signed(), 480);
        let little = trend((0..300).map(|i| 600 * MIB + i * MIB / 30));
        assert_eq!(little.verdict(&Limits::DEFAULT), Verdict::Steady);
        let of_much = trend((0..300).map(|i| 60_000 * MIB + i * 8 * MIB));
        assert_eq!(of_much.verdict(&Limits::DEFAULT), Verdict::Steady, "within the tolerance");
        let noisy = trend((0..300u64).map(|i| 600 * MIB + i * 7919 % 60 * MIB));
        assert_eq!(noisy.verdict(&Limits::DEFAULT), Verdict::Steady);
    }

    #[test]
    fn each_window_must_grow_beyond_the_tolerance() {
        // A little at first, then more and more: 1,000 MiB, 1,060, 1,300, 1,700.
        let rises = [1_000, 1_060, 1_300, 1_700];
        let trend = trend((0..240).map(|i| (rises[i / 60] + i as u64 % 60) * MIB));
        assert_eq!(trend.verdict(&Limits::DEFAULT), Verdict::Steady, "the second window is as the first");
        let strict = Limits { tolerance: 0.02, ..Limits::DEFAULT };
        assert!(matches!(trend.verdict(&strict), Verdict::Leak { .. }), "{:?}", trend.verdict(&strict));
    }

    #[test]
    fn a_cache_that_is_allocated_at_once_is_a_step() {
        let cache = trend((0..300).map(|i| if i < 200 { 3_000 * MIB } else { 40_000 * MIB }));
        assert_eq!(
            cache.verdict(&Limits::DEFAULT),
            Verdict::Step { at: 201 * SECOND, bytes: 37_000 * MIB.cast_signed() }
        );
    }

    #[test]
    fn what_rose_once_is_not_said_to_go_on() {
        let once = trend((0..120).map(|i| if i < 100 { 3_000 * MIB } else { 3_012 * MIB }));
        let course = once.course().unwrap();
        assert_eq!((course.per_minute, course.goes_on), (Some(12 * MIB.cast_signed()), false));
        let on_and_on = trend((0..120).map(|i| (3_000 + i) * MIB));
        assert!(on_and_on.course().unwrap().goes_on);
    }

    #[test]
    fn samples_are_found_by_time() {
        let trend = trend([10, 20, 30]);
        assert_eq!(
            (trend.at(SECOND / 2), trend.at(2 * SECOND + 5), trend.last()),
            (None, Some(20), Some(30))
        );
        let ends = self::trend((0..30).map(|i| if i < 3 { 100 } else { 90 }));
        let step = |taken, kept| Some(MemoryStep { taken, kept });
        assert_eq!(ends.step(SECOND / 2, SECOND), None, "not sampled before");
        assert_eq!(ends.step(3 * SECOND, 4 * SECOND), step(-10, Some(-10)));
        assert_eq!(ends.step(2 * SECOND, 3 * SECOND), step(0, Some(-10)));
        assert_eq!(ends.step(2 * SECOND, 21 * SECOND), step(-10, None));
        assert_eq!(ends.step(2 * SECOND, 31 * SECOND), None, "not sampled after");
        let mut shared = trend.clone();
        assert_eq!(shared.share()[1..], [(2 * SECOND, 20), (3 * SECOND, 30)]);
        shared.add(4 * SECOND, 40);
        assert_eq!(shared.share().last(), Some(&(4 * SECOND, 40)), "what is shared is not what was");
        assert_eq!(Trend::default().verdict(&Limits::DEFAULT), Verdict::Steady);
        let course = Course { baseline: 20, peak: 30, per_minute: None, goes_on: false };
        assert_eq!(trend.course(), Some(course), "a few seconds say nothing of a minute");
        assert_eq!(Trend::default().course(), None);
    }
}
