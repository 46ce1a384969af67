//! One row of kernels: what is summed up of a name, or of an executable graph.

use std::sync::Arc;

use crate::model::histogram::Histogram;
use crate::model::sampling::{Sampling, Windowed};
use crate::model::snapshot::{KernelEstimate, KernelName, KernelRow, WINDOWS};
use crate::model::time::{Minute, Seconds};

/// Names whose validity by time is kept, half a KiB each.
const MAX_MINUTES: usize = 4096;

/// All that is known of one.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: u32,
    pub(super) name: Arc<KernelName>,
    pub(super) sums: Sums,
    pub(super) invalid: u64,
    /// Calls and time, as windows brought them. What is large lies elsewhere, so that the sums of hundreds of names stay
    /// near.
    pub(super) windowed: Box<[Windowed; 2]>,
    ns: Box<Seconds>,
    count: Box<Seconds>,
    pub(super) overlong: u64,
    /// Those whose end is another's: how many, and how long they are likely to have taken.
    cut_off: [u64; 2],
    /// All and invalid records by second.
    validity: Option<Box<Minute<2>>>,
}

/// What every record changes: one cache line, since hundreds of names take turns.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Sums {
    pub(super) calls: u64,
    pub(super) total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    histogram: Histogram,
}

impl Sums {
    #[inline]
    pub(super) fn add(&mut self, duration: u64, budget: &mut usize) {
        self.calls += 1;
        self.total_ns = self.total_ns.saturating_add(duration);
        self.min_ns = self.min_ns.min(duration);
        self.max_ns = self.max_ns.max(duration);
        self.histogram.add(duration, budget);
    }
}

impl Row {
    /// The row of a name that is not known any better.
    pub(super) fn new(id: u32, name: &str) -> Self {
        let name = KernelName { mangled: name.to_owned(), full: name.to_owned(), short: name.to_owned() };
        Self {
            id,
            name: Arc::new(name),
            sums: Sums {
                calls: 0,
                total_ns: 0,
                min_ns: u64::MAX,
                max_ns: 0,
                histogram: Histogram::default(),
            },
            invalid: 0,
            windowed: Box::default(),
            ns: Box::default(),
            count: Box::default(),
            overlong: 0,
            cut_off: [0; 2],
            validity: None,
        }
    }

    /// Counts a call in the trend.
    #[inline]
    pub(super) fn lately(&mut self, duration: u64, second: u64) {
        self.ns.add(second, duration);
        self.count.add(second, 1);
    }

    /// Calls and time that were counted in full.
    pub(super) fn exact(&self, sampling: &Sampling) -> [f64; 2] {
        let [calls, ns] = self.launched();
        [self.windowed[0].exact(calls, sampling), self.windowed[1].exact(ns, sampling)]
    }

    /// Counts one whose end is another's, as long as they are on average; gives that length, nanoseconds.
    pub(super) fn cut_off(&mut self) -> u64 {
        let mean = self.sums.total_ns.checked_div(self.sums.calls).unwrap_or(0);
        self.cut_off = [self.cut_off[0] + 1, self.cut_off[1].saturating_add(mean)];
        mean
    }

    /// Calls and time, those included whose ends are not known.
    pub(super) fn launched(&self) -> [u64; 2] {
        [self.sums.calls + self.cut_off[0], self.sums.total_ns.saturating_add(self.cut_off[1])]
    }

    /// What windows let expect of the whole time.
    pub(super) fn estimate(&self, sampling: &Sampling, all: [f64; 2], now: u64) -> Option<KernelEstimate> {
        let ([calls, time], [launched, ns]) = (&*self.windowed, self.launched());
        Some(KernelEstimate {
            calls: calls.total(launched, sampling, now)?,
            per_second: calls.per_second(sampling, now)?,
            total_ns: time.total(ns, sampling, now)?,
            share: time.share([time.exact(ns, sampling), all[1]], sampling, now)?,
        })
    }

    /// Counts a record by second, and whether it cannot be believed; of so many names for which `minutes` has room.
    #[inline]
    pub(super) fn validity(&mut self, minutes: &mut usize, second: u64, invalid: u32) {
        if self.validity.is_none() && *minutes < MAX_MINUTES {
            *minutes += 1;
            self.validity = Some(Box::default());
        }
        if let Some(minute) = &mut self.validity {
            minute.add(second, [1, invalid]);
        }
    }

    /// The row as it is shown, with its share of all time and of that of the last seconds.
    pub(super) fn show(&self, second: u64, all: &[u64], total_ns: u64) -> KernelRow {
        let Sums { calls, total_ns: own_ns, min_ns, max_ns, ref histogram } = self.sums;
        let min_ns = if calls == 0 { 0 } else { min_ns };
        let quantile = |q| histogram.quantile(q).clamp(min_ns, max_ns);
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        KernelRow {
            id: self.id,
            name: Arc::clone(&self.name),
            calls,
            invalid: self.invalid,
            overlong: self.overlong,
            windows: self.validity.as_ref().map_or([[0; 2]; WINDOWS.len()], |minute| {
                WINDOWS.map(|seconds| minute.window(second, seconds))
            }),
            total_ns: own_ns,
            estimate: None,
            min_ns,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns,
            share: share(own_ns, total_ns),
            per_second: Some(self.count.last(second).last().copied().unwrap_or_default() as f64),
            trend: self
                .ns
                .last(second)
                .iter()
                .zip(all)
                .map(|(part, whole)| share(*part, *whole) as f32)
                .collect(),
            bars: histogram.bars().into(),
        }
    }
}
