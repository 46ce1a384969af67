//! The lanes of the timeline: believable records by stream and direction, the newest of them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::details::{Interner, Key};
use super::slices::{Slice, Slices};
use super::snapshot::{Details, KernelName, Lane, LaneKey};
use super::sums::Sum;
use super::time::SECOND;

/// Slices of a lane that wait to be put in order.
const PENDING: usize = 4096;
/// Lanes a process may have; records of further ones are counted everywhere but not drawn.
const MAX_LANES: usize = 1024;

/// The timeline of one process.
#[derive(Debug)]
pub(super) struct Timeline {
    lanes: Vec<LaneState>,
    index: FxHashMap<LaneKey, usize>,
    last: Option<(LaneKey, usize)>,
    details: Interner,
    /// Slices in all lanes, those that wait included.
    len: usize,
    budget: usize,
    /// The latest end of any slice ever put in, CUPTI's nanoseconds.
    newest: u64,
    /// The earliest start of any slice ever put in.
    oldest: u64,
    /// When the records ran that were put in since that was last asked.
    fresh: Option<Fresh>,
    /// Since when everything that runs is put in, CUPTI's nanoseconds; what is older is what was still under way.
    since: u64,
}

/// When some records ran, CUPTI's nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    /// The earliest start and the latest end.
    pub(super) span: (u64, u64),
    /// The earliest end.
    pub(super) first_end: u64,
}

#[derive(Debug)]
struct LaneState {
    key: LaneKey,
    slices: Slices,
    pending: Vec<Slice>,
}

impl Timeline {
    /// A timeline that keeps to about `budget` bytes.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            lanes: Vec::new(),
            index: FxHashMap::default(),
            last: None,
            details: Interner::default(),
            len: 0,
            budget,
            newest: 0,
            oldest: u64::MAX,
            fresh: None,
            since: 0,
        }
    }

    /// Says since when everything that runs is put in, CUPTI's nanoseconds.
    pub(super) const fn counted_since(&mut self, since: u64) {
        self.since = since;
    }

    /// The latest end of any slice ever put in, CUPTI's nanoseconds.
    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// The latest end of any kernel that is kept, CUPTI's nanoseconds; 0 where there is none.
    pub(super) fn newest_kernel(&mut self) -> u64 {
        self.kernels().filter_map(Slices::span).map(|(_, end)| end).max().unwrap_or(0)
    }

    /// When the first kernel after a time starts, among those that are kept.
    pub(super) fn first_kernel_after(&mut self, time: u64) -> Option<u64> {
        self.kernels().filter_map(|slices| slices.after(time)).map(|slice| slice.start).min()
    }

    /// The kernels of each stream, in order.
    fn kernels(&mut self) -> impl Iterator<Item = &Slices> {
        self.lanes.iter_mut().for_each(LaneState::settle);
        let streams = self.lanes.iter().filter(|lane| matches!(lane.key, LaneKey::Stream { .. }));
        streams.map(|lane| &lane.slices)
    }

    /// When the records ran that were put in since this was last asked.
    pub(super) const fn take_fresh(&mut self) -> Option<Fresh> {
        self.fresh.take()
    }

    /// Changes the number of bytes to keep to.
    pub(super) const fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    /// The id of a detail.
    #[inline]
    pub(super) fn detail(&mut self, key: &Key, name: impl FnOnce() -> Arc<KernelName>) -> u32 {
        self.details.id(key, name)
    }

    /// Puts in a name that came after records had used its id.
    pub(super) fn rename(&mut self, name_id: u32, name: &Arc<KernelName>) {
        self.details.rename(name_id, name);
    }

    /// Puts a slice on a lane.
    #[inline]
    pub(super) fn add(&mut self, key: LaneKey, slice: Slice) {
        let lane = match self.last {
            Some((last, lane)) if last == key => lane,
            _ => match self.find(key) {
                Some(lane) => lane,
                None => return,
            },
        };
        self.newest = self.newest.max(slice.end);
        self.oldest = self.oldest.min(slice.start);
        // A launch of a graph is put in when it is over, and no record of its own.
        if !matches!(key, LaneKey::Graphs { .. }) {
            let fresh =
                self.fresh.get_or_insert(Fresh { span: (slice.start, slice.end), first_end: slice.end });
            fresh.span = (fresh.span.0.min(slice.start), fresh.span.1.max(slice.end));
            fresh.first_end = fresh.first_end.min(slice.end);
        }
        self.len += 1;
        let lane = &mut self.lanes[lane];
        lane.pending.push(slice);
        if lane.pending.len() >= PENDING {
            lane.settle();
            self.forget();
        }
    }

    fn find(&mut self, key: LaneKey) -> Option<usize> {
        let known = self.index.get(&key).copied();
        let lane = match known {
            Some(lane) => lane,
            None if self.lanes.len() >= MAX_LANES && !self.give_up_a_lane() => return None,
            None => {
                self.lanes.push(LaneState { key, slices: Slices::default(), pending: Vec::new() });
                self.index.insert(key, self.lanes.len() - 1);
                self.lanes.len() - 1
            }
        };
        self.last = Some((key, lane));
        Some(lane)
    }

    /// Lets go of the lane that has had no slice for the longest time, sums and all; whether there was one.
    fn give_up_a_lane(&mut self) -> bool {
        let bare = |lane: &&LaneState| lane.slices.is_empty() && lane.pending.is_empty();
        let last = |lane: &LaneState| lane.slices.span().map(|(_, end)| end);
        let Some(key) = self.lanes.iter().filter(bare).min_by_key(|lane| last(lane)).map(|lane| lane.key)
        else {
            return false;
        };
        self.lanes.retain(|lane| lane.key != key);
        self.index_lanes();
        true
    }

    fn index_lanes(&mut self) {
        self.last = None;
        self.index = self.lanes.iter().enumerate().map(|(i, lane)| (lane.key, i)).collect();
    }

    /// Sums that each level of a lane may keep: a fifth of the budget in all.
    fn sums(&self) -> usize {
        (self.budget / 5 / Sum::BYTES / self.lanes.len().max(1)).clamp(16, 2048)
    }

    /// Forgets the oldest slices until the budget is kept, and the details that only they used.
    fn forget(&mut self) {
        let mut chunks = 0usize;
        let most = self.sums();
        while self.bytes() > self.budget {
            let lane = self.lanes.iter_mut().min_by_key(|lane| lane.slices.oldest().unwrap_or(u64::MAX));
            let details = &self.details;
            let name_of = |detail| details.name_id(detail).unwrap_or(u32::MAX);
            let gone = lane.map_or(0, |lane| lane.slices.forget_oldest(name_of, most));
            if gone == 0 {
                break;
            }
            self.len -= gone;
            chunks += 1;
            if chunks.is_multiple_of(16) {
                self.forget_details();
            }
        }
        if chunks > 0 {
            self.forget_details();
            self.drop_empty_lanes();
        }
        if self.details.next() > u32::MAX / 2 {
            // Ids must not wrap around while a slice still uses the old ones: begin anew.
            let Self { newest, oldest, since, .. } = *self;
            *self = Self { newest, oldest, since, ..Self::new(self.budget) };
        }
    }

    /// Lets go of details older than any slice. Within a lane ids rise with age only roughly, so each oldest
    /// chunk is looked at and one generation is left as a margin.
    fn forget_details(&mut self) {
        let oldest = |lane: &LaneState| {
            let all = lane.slices.oldest_chunk().iter().chain(lane.pending.iter());
            all.map(|slice| slice.detail).min()
        };
        let needed = self.lanes.iter().filter_map(oldest).min().unwrap_or(self.details.next());
        self.details.forget_before(needed.saturating_sub(Interner::GENERATION));
    }

    /// A lane goes when nothing at all is left of it.
    fn drop_empty_lanes(&mut self) {
        let before = self.lanes.len();
        self.lanes.retain(|lane| !lane.slices.is_forgotten() || !lane.pending.is_empty());
        if self.lanes.len() != before {
            self.index_lanes();
        }
    }

    const fn bytes(&self) -> usize {
        self.len * size_of::<Slice>() + self.details.len() * Interner::BYTES
    }

    /// For how much of this time the busiest lane worked, nanoseconds; records that came since the last snapshot may be
    /// missing.
    pub(super) fn covered(&self, from: u64, to: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.slices.covered(from, to)).max().unwrap_or(0)
    }

    /// What a snapshot holds: the lanes in the order they are drawn, with their busy share of the second that
    /// ends at `until`, or at the newest record. `extra` are slices that may still
    /// change and are only shown.
    pub(super) fn share(&mut self, until: u64, extra: &[(LaneKey, Slice)]) -> (Vec<Lane>, Details) {
        self.lanes.iter_mut().for_each(LaneState::settle);
        self.forget();
        let to = self.newest.max(until);
        // Where all there is came at once, it is what came.
        let begin = if self.since < to { self.oldest.max(self.since) } else { self.oldest };
        let from = to.saturating_sub(SECOND).max(begin.min(to));
        let mut lanes: Vec<(LaneKey, Slices)> =
            self.lanes.iter().map(|lane| (lane.key, lane.slices.clone())).collect();
        let mut extra: Vec<(LaneKey, Slice)> = extra.to_vec();
        extra.sort_unstable();
        for group in extra.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((key, _)) = group.first() else { continue };
            let more: Vec<Slice> = group.iter().map(|(_, slice)| *slice).collect();
            match lanes.iter_mut().find(|(lane, _)| lane == key) {
                Some((_, slices)) => slices.merge(&more),
                None => lanes.push((*key, Slices::new(vec![more.into()]))),
            }
        }
        let busy = |slices: &Slices| match to - from {
            0 => 0.0,
            window => slices.covered(from, to) as f64 / window as f64,
        };
        let mut lanes: Vec<Lane> = lanes
            .into_iter()
            .map(|(key, slices)| Lane { key, busy: busy(&slices), since: begin, slices })
            .collect();
        lanes.sort_by_key(|lane| lane.key);
        (lanes, self.details.share())
    }
}

impl LaneState {
    fn settle(&mut self) {
        if !self.pending.is_empty() {
            self.pending.sort_unstable();
            self.slices.merge(&self.pending);
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(stream: u32) -> LaneKey {
        LaneKey::Stream { device: 0, context: 1, stream }
    }

    fn slice(start: u64, length: u64, detail: u32) -> Slice {
        Slice { start, end: start + length, detail, correlation: 0 }
    }

    #[test]
    fn busy_is_of_the_last_second_and_falls_when_nothing_runs() {
        let mut timeline = Timeline::new(1 << 20);
        for i in 0..100 {
            timeline.add(lane(7), slice(10 * SECOND + i * 10_000_000, 5_000_000, 0));
        }
        let busy = |timeline: &mut Timeline, until| timeline.share(until, &[]).0[0].busy;
        assert!((busy(&mut timeline, 10 * SECOND) - 0.5).abs() < 0.01);
        assert!((busy(&mut timeline, 10 * SECOND + SECOND / 2) - 0.5).abs() < 0.01, "records lag");
        assert!((busy(&mut timeline, 11 * SECOND + SECOND / 2) - 0.25).abs() < 0.01);
        assert!(busy(&mut timeline, 20 * SECOND) < 1e-9);
    }

    #[test]
    fn busy_is_of_what_there_is_when_that_is_less() {
        let mut timeline = Timeline::new(1 << 20);
        timeline.add(lane(9), slice(SECOND, 1000, 0));
        for i in 0..30 {
            timeline.add(lane(7), slice(10 * SECOND + i * 10_000_000, 5_000_000, 0));
        }
        let busy = |timeline: &mut Timeline| timeline.share(10 * SECOND, &[]).0[0].busy;
        assert!((busy(&mut timeline) - 0.15).abs() < 0.01);
        timeline.counted_since(10 * SECOND);
        assert!((busy(&mut timeline) - 0.5).abs() < 0.02);
        assert_eq!(timeline.share(10 * SECOND, &[]).0[0].since, 10 * SECOND);
        timeline.counted_since(11 * SECOND);
        assert!((busy(&mut timeline) - 0.15).abs() < 0.01, "they came later than they ran");
    }

    #[test]
    fn the_budget_holds_and_the_newest_stay() {
        let budget = 1 << 20;
        let mut timeline = Timeline::new(budget);
        for i in 0..200_000u64 {
            timeline.add(lane(if i % 100 == 0 { 9 } else { 7 }), slice(1000 + i * 10, 5, 0));
        }
        timeline.add(lane(13), slice(1, 5, 0));
        let (lanes, _) = timeline.share(3_000_000, &[]);
        assert!(timeline.bytes() <= budget);
        assert!(timeline.len > 30_000);
        assert_eq!(lanes.len(), 3);
        assert!(lanes[2].slices.is_empty(), "the old slice of stream 13 is gone");
        assert_eq!(lanes[2].slices.summed(0, 10).map(|(sum, _)| (sum.count, sum.busy)), Some((1, 5)));
        assert_eq!(lanes[0].slices.span().map(|(_, end)| end), Some(1000 + 1_999_990 + 5));
        let oldest = |lane: &Lane| lane.slices.kept_from();
        assert!(oldest(&lanes[0]).unwrap().abs_diff(oldest(&lanes[1]).unwrap()) < 600_000);
        timeline.add(lane(7), slice(2_100_000, 1, 0));
        assert_eq!(timeline.share(3_000_000, &[]).0[0].slices.span().unwrap().1, 2_100_001);
    }

    #[test]
    fn streams_without_end_make_room_for_new_ones() {
        let mut timeline = Timeline::new(20_000);
        for i in 0..3_000u32 {
            for n in 0..4 {
                timeline.add(lane(i), slice(1_000 + u64::from(i) * 100 + n * 10, 5, 0));
            }
            timeline.share(1_000_000, &[]);
        }
        let (lanes, _) = timeline.share(1_000_000, &[]);
        assert!(lanes.len() <= MAX_LANES && lanes.iter().any(|of| of.key == lane(2_999)));
        assert!(lanes.iter().all(|of| of.key != lane(0)), "the oldest went");
    }

    #[test]
    fn details_without_end_stay_within_the_budget() {
        let budget = 16 << 20;
        let mut timeline = Timeline::new(budget);
        for i in 0..300_000u64 {
            let detail = timeline.detail(&Key { bytes: i, ..Key::default() }, Arc::default);
            timeline.add(lane(7), slice(1000 + i * 10, 5, detail));
        }
        let (lanes, details) = timeline.share(4_000_000, &[]);
        assert!(timeline.bytes() <= budget);
        for slice in lanes[0].slices.iter() {
            assert_eq!(
                details.get(slice.detail).and_then(|detail| detail.bytes),
                Some((slice.start - 1000) / 10)
            );
        }
    }
}
