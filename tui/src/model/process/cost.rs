//! What the shim takes of a process: processor time of its own threads, and time in CUPTI's callbacks.

use std::collections::VecDeque;

use gtop_protocol::message::HostBuffers;

use super::super::snapshot::Cost;
use super::super::time::{Moment, SECOND};

/// How far back "lately" goes, nanoseconds.
const LATELY: u64 = 10 * SECOND;
/// Readings kept of that time; they come about twice a second.
const READINGS: usize = 64;

/// What was read at one time.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: u64,
    cpu_ns: u64,
    callback_ns: u64,
}

impl Reading {
    /// What was taken from an earlier reading on; `None` where no time has passed.
    fn since(&self, before: &Self) -> Option<Cost> {
        let elapsed = self.at.checked_sub(before.at).filter(|elapsed| *elapsed > 0)? as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / elapsed;
        Some(Cost {
            cpu: share(self.cpu_ns, before.cpu_ns),
            callbacks: share(self.callback_ns, before.callback_ns),
        })
    }
}

/// The readings of one process.
#[derive(Debug, Default)]
pub(super) struct Costs {
    first: Option<Reading>,
    /// The oldest first.
    lately: VecDeque<Reading>,
}

impl Costs {
    /// Takes in what the shim says.
    pub(super) fn heard(&mut self, buffers: &HostBuffers, at: Moment) {
        let now = Reading { at: at.steady, cpu_ns: buffers.cpu_ns, callback_ns: buffers.callback_ns };
        // Another shim, or an earlier time of a recording.
        if self.lately.back().is_some_and(|last| now.at < last.at || now.cpu_ns < last.cpu_ns) {
            *self = Self::default();
        }
        self.first.get_or_insert(now);
        self.lately.push_back(now);
        let from = now.at.saturating_sub(LATELY);
        while self.lately.len() > READINGS || self.lately.get(1).is_some_and(|second| second.at <= from) {
            self.lately.pop_front();
        }
    }

    /// Since the first reading.
    pub(super) fn whole(&self) -> Option<Cost> {
        self.lately.back()?.since(self.first.as_ref()?)
    }

    /// Over the last ten seconds.
    pub(super) fn lately(&self) -> Option<Cost> {
        self.lately.back()?.since(self.lately.front()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(costs: &mut Costs, half_seconds: u64, cpu_ms: u64, callback_ms: u64) {
        let buffers = HostBuffers {
            cpu_ns: cpu_ms * 1_000_000,
            callback_ns: callback_ms * 1_000_000,
            ..Default::default()
        };
        costs.heard(&buffers, Moment { wall: 0, steady: half_seconds * SECOND / 2 });
    }

    #[test]
    fn what_it_takes_is_told_of_the_whole_time_and_of_the_last_ten_seconds() {
        let mut costs = Costs::default();
        read(&mut costs, 100, 5_000, 70);
        assert_eq!((costs.whole(), costs.lately()), (None, None));
        // Twenty seconds of 4 % and 2 %, and ten of nothing.
        (1..=40).for_each(|half| read(&mut costs, 100 + half, 5_000 + half * 20, 70 + half * 10));
        assert_eq!(costs.lately(), Some(Cost { cpu: 0.04, callbacks: 0.02 }));
        (41..=60).for_each(|half| read(&mut costs, 100 + half, 5_800, 470));
        assert_eq!(costs.lately(), Some(Cost { cpu: 0.0, callbacks: 0.0 }));
        let whole = costs.whole().unwrap();
        assert!((whole.cpu - 0.8 / 30.0).abs() < 1e-9 && (whole.callbacks - 0.4 / 30.0).abs() < 1e-9);
        assert!(costs.lately.len() <= 22);
        // Another shim begins at nothing.
        read(&mut costs, 161, 1, 0);
        assert_eq!(costs.whole(), None);
    }
}
