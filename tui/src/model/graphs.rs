//! Launches of executable graphs, as far as records tell: all records of one launch share its correlation id.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::slices::Slice;
use super::snapshot::{GraphTotals, LaneKey};
use super::time::{Moment, SECOND};

/// Launches kept to tell late records of a known launch from a new one.
const MAX_LAUNCHES: usize = 1 << 16;
/// Graphs whose last use is kept.
const MAX_GRAPHS: usize = 1 << 16;
/// A graph is live when a record of it came within this many seconds.
const LIVE: u64 = 60;
/// How far records of one launch may lie apart in time; after that its slice is final.
const OPEN_NS: u64 = SECOND;

/// Graph launches of one process.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    launches: u64,
    known: FxHashMap<u64, Launch>,
    /// Correlation ids in the order they were first seen.
    order: VecDeque<u64>,
    /// How many of `order`, from the front, are final.
    closed: usize,
    newest: u64,
    /// The second of the last record of each graph.
    seen: FxHashMap<u32, u64>,
}

/// One launch: from the first start to the last end of its records.
#[derive(Clone, Copy, Debug)]
struct Launch {
    lane: LaneKey,
    slice: Slice,
}

impl Graphs {
    /// Counts a believable record of a graph that ran from `start` to `end`; `first` makes the lane and the slice
    /// of a launch of which this is the first record.
    #[inline]
    pub(super) fn add(
        &mut self,
        (graph, correlation): (u32, u64),
        (start, end): (u64, u64),
        at: Moment,
        first: impl FnOnce() -> (LaneKey, Slice),
    ) {
        self.newest = self.newest.max(end);
        if let Some(known) = self.known.get_mut(&correlation) {
            known.slice.start = known.slice.start.min(start);
            known.slice.end = known.slice.end.max(end);
            return;
        }
        self.launches += 1;
        let (lane, slice) = first();
        self.known.insert(correlation, Launch { lane, slice });
        self.order.push_back(correlation);
        if self.seen.len() < MAX_GRAPHS || self.seen.contains_key(&graph) {
            self.seen.insert(graph, at.second());
        }
    }

    /// Launches that have become final since the last call, through `emit`.
    pub(super) fn close(&mut self, mut emit: impl FnMut(LaneKey, Slice)) {
        while let Some(launch) = self.order.get(self.closed).and_then(|id| self.known.get(id)) {
            let crowded = self.order.len() - self.closed > MAX_LAUNCHES / 2;
            if !crowded && launch.slice.end.saturating_add(OPEN_NS) > self.newest {
                break;
            }
            emit(launch.lane, launch.slice);
            self.closed += 1;
        }
        while self.order.len() > MAX_LAUNCHES && self.closed > 0 {
            if let Some(id) = self.order.pop_front() {
                self.known.remove(&id);
                self.closed -= 1;
            }
        }
    }

    /// Launches that may still grow.
    pub(super) fn open(&self) -> impl Iterator<Item = (LaneKey, Slice)> {
        let ids = self.order.iter().skip(self.closed);
        ids.filter_map(|id| self.known.get(id)).map(|launch| (launch.lane, launch.slice))
    }

    /// The totals; launches are unknown as long as no record could have told (`any` is false).
    pub(super) fn totals(&mut self, at: Moment, any: bool) -> GraphTotals {
        self.seen.retain(|_, second| at.second().saturating_sub(*second) < LIVE);
        GraphTotals {
            live: any.then_some(self.seen.len() as u64),
            launches: any.then_some(self.launches),
            instantiated: None,
            destroyed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneKey = LaneKey::Graphs { device: 0, context: 1, stream: 7 };

    fn add(graphs: &mut Graphs, correlation: u64, start: u64, end: u64) {
        let slice = Slice { start, end, detail: 0, correlation: correlation as u32 };
        graphs.add((41, correlation), (start, end), Moment::of_record(end), || (LANE, slice));
    }

    #[test]
    fn a_launch_is_all_its_records_in_whatever_order() {
        let mut graphs = Graphs::default();
        for (start, end) in [(50, 60), (10, 20), (70, 90), (30, 40)] {
            add(&mut graphs, 9, start, end);
        }
        add(&mut graphs, 10, 100, 110);
        let totals = graphs.totals(Moment::of_record(110), true);
        assert_eq!((totals.launches, totals.live, totals.instantiated), (Some(2), Some(1), None));
        let open: Vec<_> = graphs.open().map(|(_, slice)| (slice.start, slice.end)).collect();
        assert_eq!(open, [(10, 90), (100, 110)]);
        let mut closed = Vec::new();
        graphs.close(|_, slice| closed.push(slice));
        assert!(closed.is_empty());
        add(&mut graphs, 11, 3 * SECOND, 3 * SECOND + 1);
        graphs.close(|_, slice| closed.push(slice));
        assert_eq!(closed.iter().map(|slice| slice.end).collect::<Vec<_>>(), [90, 110]);
        add(&mut graphs, 9, 65, 66);
        assert_eq!(graphs.totals(Moment::of_record(62 * SECOND), true).launches, Some(3));
        assert_eq!(graphs.totals(Moment::of_record(70 * SECOND), true).live, Some(0));
        assert_eq!(graphs.totals(Moment::default(), false).launches, None);
    }

    #[test]
    fn launches_without_end_stay_bounded() {
        let mut graphs = Graphs::default();
        let mut closed = 0;
        for i in 0..200_000 {
            add(&mut graphs, i, 10 + i, 11 + i);
            if i % 1000 == 0 {
                graphs.close(|_, _| closed += 1);
            }
        }
        assert!(graphs.known.len() <= MAX_LAUNCHES + 1000);
        assert!(closed > 100_000);
        assert_eq!(graphs.totals(Moment::default(), true).launches, Some(200_000));
    }
}
