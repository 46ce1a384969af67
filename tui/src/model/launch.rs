//! Kernels and the API calls that launched them: how long they waited, which thread launched them, and kernels that
//! cannot have started when they say, because that was long before their call.

use std::collections::{BTreeMap, VecDeque};

use gtop_protocol::record::Kernel;
use rustc_hash::FxHashMap;

use super::snapshot::{LaunchLatency, LaunchingThread};
use super::time::{Moment, SECOND};
use super::work::known_device;

/// How far before its call a kernel may seem to start. Clock errors are hundreds of nanoseconds; foreign clocks
/// are hours away.
pub(super) const TOLERANCE_NS: u64 = 1_000_000;
/// How long a kernel waits for its launch record before it is taken as it is.
pub(crate) const PATIENCE: u64 = 2 * SECOND;
/// Calls and kernels kept, each.
const MAX_KEPT: usize = 1 << 16;
/// Threads told apart, with the devices and contexts they launch on.
const MAX_THREADS: usize = 1024;

/// The join of kernels with their calls. It is idle until launch records come.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    calls: FxHashMap<u64, Call>,
    call_order: VecDeque<u64>,
    /// With the number that was handed in with each.
    waiting: FxHashMap<u64, Vec<(Kernel, Option<u64>)>>,
    waiting_order: VecDeque<(Moment, u64)>,
    stats: Stats,
}

/// A call that may have launched kernels.
#[derive(Clone, Copy, Debug)]
struct Call {
    start: u64,
    thread: u32,
}

#[derive(Debug, Default)]
struct Stats {
    /// Kernels by device, context and thread that launched them.
    threads: BTreeMap<(Option<u32>, u32, u32), u64>,
    joined: u64,
    slightly_before: u64,
    well_before: u64,
    min: i64,
    max: i64,
    sum: i128,
}

/// What became of a kernel that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Believable.
    Fine,
    /// It started well before its call.
    TooEarly,
    /// It waits for its launch record and will come back.
    Waits,
}

impl Launches {
    /// Judges a kernel whose times look right; or keeps it until its launch record comes.
    pub(crate) fn judge(&mut self, kernel: &Kernel, index: Option<u64>, at: Moment) -> Verdict {
        let correlation = kernel.correlation.get();
        if let Some(&call) = self.calls.get(&correlation) {
            return self.stats.join(call, kernel);
        }
        if self.waiting_order.len() >= MAX_KEPT {
            return Verdict::Fine;
        }
        self.waiting.entry(correlation).or_default().push((*kernel, index));
        self.waiting_order.push_back((at, correlation));
        Verdict::Waits
    }

    /// Takes in a believable API call; gives the kernels that waited for it, each with its number and verdict.
    pub(crate) fn call(
        &mut self,
        correlation: u64,
        start: u64,
        thread: u32,
    ) -> impl Iterator<Item = (Kernel, Option<u64>, Verdict)> + use<'_> {
        // A runtime call and the driver call inside it share the id; the first to start is the launch.
        let call = *self
            .calls
            .entry(correlation)
            .and_modify(|call| call.start = call.start.min(start))
            .or_insert_with(|| {
                self.call_order.push_back(correlation);
                Call { start, thread }
            });
        if self.call_order.len() > MAX_KEPT
            && let Some(oldest) = self.call_order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        let stats = &mut self.stats;
        let waited = self.waiting.remove(&correlation).unwrap_or_default();
        waited.into_iter().map(move |(kernel, index)| {
            let verdict = stats.join(call, &kernel);
            (kernel, index, verdict)
        })
    }

    /// Kernels that have waited long enough at `at`, each with its number; all of them without a moment.
    pub(crate) fn give_up(&mut self, at: Option<Moment>) -> Vec<(Kernel, Option<u64>)> {
        let mut kernels = Vec::new();
        while let Some((since, correlation)) = self.waiting_order.front() {
            if at.is_some_and(|at| at.steady.saturating_sub(since.steady) < PATIENCE) {
                break;
            }
            kernels.extend(self.waiting.remove(correlation).unwrap_or_default());
            self.waiting_order.pop_front();
        }
        kernels
    }

    /// Kernels by device, context and thread; empty without launch records.
    pub(super) fn threads(&self) -> Vec<LaunchingThread> {
        let rows = self.stats.threads.iter().map(|(&(device, context, thread), &kernels)| LaunchingThread {
            device,
            context,
            thread,
            kernels,
        });
        rows.collect()
    }

    /// What there is to show.
    pub(super) fn latency(&self) -> Option<LaunchLatency> {
        let stats = &self.stats;
        let known = stats.joined + stats.well_before > 0;
        known.then(|| LaunchLatency {
            joined: stats.joined,
            slightly_before: stats.slightly_before,
            well_before: stats.well_before,
            min_ns: stats.min,
            mean_ns: (stats.sum / i128::from(stats.joined.max(1))) as i64,
            max_ns: stats.max,
        })
    }
}

impl Stats {
    fn join(&mut self, call: Call, kernel: &Kernel) -> Verdict {
        let Call { start: call, thread } = call;
        let start = kernel.start.get();
        let place = (known_device(kernel.device), kernel.context.get(), thread);
        if self.threads.len() < MAX_THREADS || self.threads.contains_key(&place) {
            *self.threads.entry(place).or_default() += 1;
        }
        if call.saturating_sub(start) > TOLERANCE_NS {
            self.well_before += 1;
            return Verdict::TooEarly;
        }
        let latency = start.wrapping_sub(call).cast_signed();
        (self.min, self.max) = match self.joined {
            0 => (latency, latency),
            _ => (self.min.min(latency), self.max.max(latency)),
        };
        self.joined += 1;
        self.slightly_before += u64::from(latency < 0);
        self.sum += i128::from(latency);
        Verdict::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(correlation: u64, start: u64) -> Kernel {
        Kernel {
            correlation: correlation.into(),
            start: start.into(),
            end: (start + 1).into(),
            ..Kernel::default()
        }
    }

    #[test]
    fn a_small_negative_latency_is_skew_and_a_large_one_is_not_believed() {
        let mut launches = Launches::default();
        let at = Moment::default();
        assert_eq!(launches.call(1, 10_000_000, 77).count(), 0);
        assert_eq!(launches.judge(&kernel(1, 9_999_400), None, at), Verdict::Fine);
        assert_eq!(
            launches.latency().map(|latency| (latency.min_ns, latency.slightly_before)),
            Some((-600, 1))
        );
        assert_eq!(launches.judge(&kernel(1, 8_000_000), None, at), Verdict::TooEarly);
        let latency = launches.latency().unwrap();
        assert_eq!((latency.joined, latency.well_before, latency.max_ns), (1, 1, -600));
        let place = LaunchingThread { device: Some(0), context: 0, thread: 77, kernels: 2 };
        assert_eq!(launches.threads(), [place]);
    }

    #[test]
    fn a_kernel_that_comes_before_its_launch_waits_for_it() {
        let mut launches = Launches::default();
        let at = Moment::of_record(5 * SECOND);
        assert_eq!(launches.judge(&kernel(515, 1_682_666_453_031_165_466), None, at), Verdict::Waits);
        assert_eq!(launches.judge(&kernel(516, 7), None, at), Verdict::Waits);
        let back: Vec<_> =
            launches.call(515, 1_682_666_453_031_160_080, 0).map(|(_, _, verdict)| verdict).collect();
        assert_eq!(back, [Verdict::Fine]);
        assert_eq!(launches.latency().map(|latency| latency.mean_ns), Some(5_386));
        assert!(launches.give_up(Some(Moment::of_record(6 * SECOND))).is_empty());
        assert_eq!(launches.give_up(Some(Moment::of_record(7 * SECOND))), [(kernel(516, 7), None)]);
        assert!(launches.waiting.is_empty() && launches.waiting_order.is_empty());
    }

    #[test]
    fn calls_and_kernels_without_partner_stay_bounded() {
        let mut launches = Launches::default();
        for i in 0..200_000 {
            launches.judge(&kernel(i, 5), None, Moment::default());
            launches.call(1_000_000 + i, 5, 0).for_each(drop);
        }
        assert!(launches.calls.len() <= MAX_KEPT && launches.waiting_order.len() <= MAX_KEPT);
        assert_eq!(launches.give_up(None).len(), MAX_KEPT);
    }
}
