//! Streams: how long each was busy, whatever the order in which its records come.

use std::collections::VecDeque;

use gtop_protocol::message::Clock;
use rustc_hash::FxHashMap;

use super::place::{Extent, Piece};
use super::sampling::{Estimate, Folded, Sampling, Windowed};
use super::snapshot::StreamRow;

/// Streams with a row of their own; later ones share a last row, with [`SHARED`] as its id.
const MAX_STREAMS: usize = 1 << 14;
/// The stream id of the shared row.
const SHARED: u32 = u32::MAX;
/// Disjoint intervals kept over all streams of a process, 16 bytes each.
const MAX_INTERVALS: usize = 1 << 19;

/// How many intervals before the last one are near.
const NEAR: usize = 32;

/// Jumps of the clock remembered in one session.
const MAX_GAPS: usize = 64;

/// How long after a jump of the clock the pair that tells of it may come.
const FRESH_NS: u64 = 20_000_000_000;
/// From how long on a record that others lie inside of is suspect, and how many times as long as they it must be.
const LONG_NS: u64 = 100_000_000;
const LONGER: u64 = 1000;

/// Which stream; the device is `None` as long as it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StreamKey {
    pub(super) device: Option<u32>,
    pub(super) context: u32,
    pub(super) stream: u32,
}

/// All streams of a process.
#[derive(Debug, Default)]
pub(super) struct Streams {
    index: FxHashMap<StreamKey, usize>,
    list: Vec<(StreamKey, Stream)>,
    /// Intervals each may keep.
    room: usize,
    last: Option<(StreamKey, usize)>,
    /// The device of each context, from the records that tell.
    devices: FxHashMap<u32, u32>,
    /// Where CUPTI's clock jumped forward in the present session, and by how much.
    gaps: Vec<(u64, u64)>,
}

impl Streams {
    /// Counts believable pieces of GPU work. Tells the kernels of earlier ones that cannot have taken as long as they
    /// say, since others lie deep inside of them; once for each.
    pub(super) fn add(
        &mut self,
        key: StreamKey,
        pieces: &[Piece],
        extent: &Extent,
        mut suspect: impl FnMut(u32),
    ) {
        let at = self.find(key);
        let stream = &mut self.list[at].1;
        stream.add(pieces, extent, self.room);
        if stream.long.is_some() || extent.longest >= LONG_NS {
            for piece in pieces {
                if let Some(kernel) = stream.overlong(piece.start, piece.end, piece.kernel) {
                    suspect(kernel);
                }
            }
        }
    }

    /// Counts work whose end is not known for the estimates of windows, as long as it is likely to have taken.
    pub(super) fn cut_off(&mut self, key: StreamKey, ns: u64) {
        let at = self.find(key);
        self.list[at].1.cut_off_ns += ns;
    }

    /// Takes note of a stream without work, such as one that was synchronised with.
    pub(super) fn touch(&mut self, key: StreamKey) {
        self.find(key);
    }

    /// The device of a context, if a record has told.
    pub(super) fn device_of(&self, context: u32) -> Option<u32> {
        self.devices.get(&context).copied()
    }

    #[inline]
    fn find(&mut self, key: StreamKey) -> usize {
        match self.last {
            Some((last, at)) if last == key => at,
            _ => {
                let at = self.look_up(key);
                self.last = Some((key, at));
                at
            }
        }
    }

    fn look_up(&mut self, mut key: StreamKey) -> usize {
        match key.device {
            Some(device) => {
                if self.devices.len() < MAX_STREAMS && self.devices.insert(key.context, device).is_none() {
                    self.learn_device(key.context, device);
                }
            }
            None => key.device = self.device_of(key.context),
        }
        if self.list.len() >= MAX_STREAMS && !self.index.contains_key(&key) {
            key = StreamKey { device: None, context: 0, stream: SHARED };
        }
        *self.index.entry(key).or_insert_with(|| {
            self.list.push((key, Stream::default()));
            self.room = (MAX_INTERVALS / self.list.len()).clamp(16, 1 << 14);
            self.list.len() - 1
        })
    }

    /// Moves rows of a context whose device was not known to that device.
    fn learn_device(&mut self, context: u32, device: u32) {
        for (at, (key, _)) in self.list.iter_mut().enumerate() {
            if key.context == context && key.device.is_none() && key.stream != SHARED {
                self.index.remove(key);
                key.device = Some(device);
                self.index.insert(*key, at);
            }
        }
        self.last = None;
    }

    /// CUPTI's clock has jumped by `by` nanoseconds somewhere before this pair: what lies between the work before
    /// and the work after is no idleness.
    pub(super) fn jump(&mut self, after: &Clock, by: i64) {
        if by > 0 {
            // Half-way between where the clock would be and where it is.
            let at = after.cupti.saturating_sub(by.unsigned_abs() / 2);
            if self.gaps.len() < MAX_GAPS {
                self.gaps.push((at, by.unsigned_abs()));
            }
            return;
        }
        for (_, stream) in &mut self.list {
            stream.end_session(after.cupti, &self.gaps);
        }
        self.gaps.clear();
    }

    /// Takes what came since the last time for what a window brought, if one is given.
    pub(super) fn fold(&mut self, window: Option<Folded>) {
        for (_, stream) in &mut self.list {
            stream.windowed.fold(stream.settled_ns + stream.recent_ns + stream.cut_off_ns, window);
        }
    }

    /// When the last work of a stream ended, CUPTI's nanoseconds.
    pub(super) fn last_end(&self, context: u32, stream: u32) -> Option<u64> {
        let of = self.list.iter().filter(|(key, _)| (key.context, key.stream) == (context, stream));
        of.map(|(_, stream)| stream.last_end).max()
    }

    /// Every stream, busiest first; where all was seen in windows only, with its share of the time.
    pub(super) fn rows(&self, sampling: &Sampling, now: u64) -> Vec<StreamRow> {
        // What is on between windows and what is not cannot be told apart in a stream's time.
        let scales = sampling.between().is_empty();
        let share = |stream: &Stream| {
            let ns = stream.windowed.per_second(sampling, now).filter(|_| scales)?;
            let part = |ns: f64| (ns / 1e9).min(1.0);
            Some(Estimate { value: part(ns.value), low: part(ns.low), high: part(ns.high) })
        };
        let row = |(key, stream): &(StreamKey, Stream)| StreamRow {
            busy_share: share(stream),
            ..stream.row(*key, &self.gaps)
        };
        let mut rows: Vec<StreamRow> = self.list.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let place = |row: &StreamRow| (row.device, row.context, row.stream);
            b.busy_ns.cmp(&a.busy_ns).then_with(|| place(a).cmp(&place(b)))
        });
        rows
    }
}

/// One stream.
#[derive(Debug, Default)]
struct Stream {
    records: u64,
    /// Span of the sessions before the present one.
    before_ns: u64,
    first_start: Option<u64>,
    last_end: u64,
    /// Time covered by intervals too old to change.
    settled_ns: u64,
    /// Time covered by `recent`.
    recent_ns: u64,
    /// The last long record: start, end and tag.
    long: Option<(u64, u64, u32)>,
    /// Everything before this is settled.
    floor: u64,
    /// Disjoint intervals, ordered, none touching the next.
    recent: VecDeque<(u64, u64)>,
    /// Time of work whose end is not known, as long as it is likely to have taken.
    cut_off_ns: u64,
    /// Busy time, as windows brought it.
    windowed: Windowed,
}

impl Stream {
    fn add(&mut self, pieces: &[Piece], extent: &Extent, room: usize) {
        self.records += pieces.len() as u64;
        self.first_start = Some(self.first_start.map_or(extent.start, |first| first.min(extent.start)));
        self.last_end = self.last_end.max(extent.end);
        for mut apart in pieces.chunk_by(|a, b| a.end < b.start) {
            while let Some((&Piece { start, end, .. }, others)) = apart.split_first() {
                match self.recent.back_mut() {
                    Some((_, last_end)) if start == *last_end => {
                        *last_end = end;
                        self.recent_ns += end - start;
                    }
                    Some((_, last_end)) if start < *last_end => self.put_in(start, end, room),
                    None if start < self.floor => self.put_in(start, end, room),
                    _ => {
                        self.begin(apart, room);
                        break;
                    }
                }
                apart = others;
            }
        }
        self.settle_beyond(room);
    }

    /// Takes in intervals that come after all others, and each after the one before it, as nearly all do.
    fn begin(&mut self, apart: &[Piece], room: usize) {
        self.settle_beyond(room.saturating_sub(apart.len()));
        self.recent.extend(apart.iter().map(|piece| (piece.start, piece.end)));
        self.recent_ns += apart.iter().map(Piece::duration).sum::<u64>();
    }

    #[inline]
    fn overlong(&mut self, start: u64, end: u64, tag: u32) -> Option<u32> {
        if end - start >= LONG_NS {
            self.long = Some((start, end, tag));
            return None;
        }
        let (long_start, long_end, tag) = self.long?;
        let longer = (end - start).saturating_mul(LONGER) <= long_end - long_start;
        if start <= long_start || end >= long_end || !longer {
            return None;
        }
        self.long = None;
        Some(tag)
    }

    /// Joins an interval with those it touches.
    fn put_in(&mut self, start: u64, end: u64, room: usize) {
        // The floor is to be where it would be had they come one by one.
        self.settle_beyond(room);
        // What lies before the floor may or may not have been covered already; it is not counted twice.
        let (mut start, mut end) = (start.max(self.floor), end.max(self.floor));
        let from = self.count_while(|(_, other_end)| *other_end < start);
        let upto = self.count_while(|(other_start, _)| *other_start <= end);
        for (a, b) in self.recent.range(from..upto) {
            self.recent_ns -= b - a;
            (start, end) = (start.min(*a), end.max(*b));
        }
        self.recent_ns += end - start;
        if upto > from {
            self.recent[from] = (start, end);
            self.recent.drain(from + 1..upto);
        } else {
            self.recent.insert(from, (start, end));
        }
    }

    /// Settles the oldest intervals but for so many.
    fn settle_beyond(&mut self, room: usize) {
        let beyond = self.recent.len().saturating_sub(room);
        let Some((_, floor)) = beyond.checked_sub(1).and_then(|last| self.recent.get(last)) else { return };
        self.floor = *floor;
        let ns = self.recent.drain(..beyond).map(|(start, end)| end - start).sum::<u64>();
        self.settled_ns += ns;
        self.recent_ns -= ns;
    }

    /// How many intervals, from the first on, something holds for: nearly always for all but the last few.
    fn count_while(&self, holds: impl Fn(&(u64, u64)) -> bool) -> usize {
        match self.recent.iter().rev().take(NEAR).position(&holds) {
            Some(others) => self.recent.len() - others,
            None => self.recent.partition_point(holds),
        }
    }

    /// Time from the first start to the last end, without jumps of the clock in between.
    fn span(&self, gaps: &[(u64, u64)]) -> u64 {
        let Some(first) = self.first_start else { return 0 };
        let inside = |(at, _): &&(u64, u64)| (first..self.last_end).contains(at);
        let jumped: u64 = gaps.iter().filter(inside).map(|(_, by)| by).sum();
        self.last_end.saturating_sub(first).saturating_sub(jumped)
    }

    /// Begins anew at `now`, an earlier time than the last.
    fn end_session(&mut self, now: u64, gaps: &[(u64, u64)]) {
        // What has come since the clock was set back lies just before `now`, and is no part of what ends here.
        let fresh = now.saturating_sub(FRESH_NS)..=now;
        if self.first_start.is_some_and(|first| fresh.contains(&first)) {
            let earliest = self.recent.iter().map(|(start, _)| *start).find(|start| *start > now);
            self.first_start = earliest.or(self.first_start);
        }
        self.before_ns = self.before_ns.saturating_add(self.span(gaps));
        (self.first_start, self.last_end, self.floor) = (None, 0, 0);
        self.settled_ns += std::mem::take(&mut self.recent_ns);
        self.recent.clear();
    }

    fn row(&self, key: StreamKey, gaps: &[(u64, u64)]) -> StreamRow {
        StreamRow {
            device: key.device,
            context: key.context,
            stream: key.stream,
            busy_ns: self.settled_ns + self.recent_ns,
            span_ns: self.before_ns.saturating_add(self.span(gaps)),
            records: self.records,
            busy_share: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(streams: &mut Streams, key: StreamKey, start: u64, end: u64, kernel: u32) -> Option<u32> {
        let mut suspect = None;
        let piece = Piece { start, end, correlation: 0, node: 0, detail: 0, kernel };
        streams.add(key, &[piece], &Extent::of(&[piece]), |kernel| suspect = Some(kernel));
        suspect
    }

    fn key(device: Option<u32>, context: u32) -> StreamKey {
        StreamKey { device, context, stream: 7 }
    }

    #[test]
    fn a_device_that_is_not_known_is_not_device_zero() {
        let mut streams = Streams::default();
        streams.touch(key(None, 3));
        assert_eq!(streams.rows(&Sampling::default(), 0)[0].device, None);
        add(&mut streams, key(Some(5), 3), 10, 20, 0);
        streams.touch(key(None, 3));
        let rows = streams.rows(&Sampling::default(), 0);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].device, rows[0].records, rows[0].busy_ns), (Some(5), 1, 10));
        assert_eq!(streams.device_of(3), Some(5));
    }

    #[test]
    fn a_record_that_runs_past_the_next_start_counts_once() {
        let mut streams = Streams::default();
        let key = key(Some(0), 1);
        let times = [(0, 1_600_000_000), (30_000, 61_000), (70_000, 90_000), (20, 30)];
        let overlong: Vec<u32> = (1..)
            .zip(times)
            .filter_map(|(tag, (start, end))| add(&mut streams, key, start, end, tag))
            .collect();
        assert_eq!(overlong, [1], "the first is suspect, once");
        let row = streams.rows(&Sampling::default(), 0)[0];
        assert_eq!((row.busy_ns, row.span_ns, row.records), (1_600_000_000, 1_600_000_000, 4));
    }

    #[test]
    fn a_clock_that_jumps_makes_no_idleness() {
        const S: u64 = 1_000_000_000;
        let key = key(Some(0), 1);
        let pair = |cupti| Clock { cupti, ..Clock::default() };
        let mut streams = Streams::default();
        // Busy half of the time, asleep for an hour, busy again; the pair comes when work goes on already.
        let work = |streams: &mut Streams, from: u64| {
            (0..10).for_each(|i| {
                add(streams, key, from + i * S, from + i * S + S / 2, 0);
            });
        };
        work(&mut streams, 100 * S);
        work(&mut streams, 3701 * S);
        streams.jump(&pair(3711 * S), 3591 * S.cast_signed());
        let row = streams.rows(&Sampling::default(), 0)[0];
        assert_eq!((row.busy_ns, row.span_ns), (10 * S, 19 * S + S / 2));

        // Set back by an hour.
        let mut streams = Streams::default();
        work(&mut streams, 10_000 * S);
        work(&mut streams, 6_410 * S);
        streams.jump(&pair(6_420 * S), -3600 * S.cast_signed());
        work(&mut streams, 6_420 * S);
        let row = streams.rows(&Sampling::default(), 0)[0];
        assert_eq!((row.busy_ns, row.span_ns), (15 * S, 2 * (9 * S + S / 2)));
    }

    #[test]
    fn streams_without_end_share_the_last_row() {
        let mut streams = Streams::default();
        for stream in 0..20_000 {
            add(&mut streams, StreamKey { device: Some(0), context: 1, stream }, 10, 11, 0);
        }
        let rows = streams.rows(&Sampling::default(), 0);
        assert_eq!(rows.len(), MAX_STREAMS + 1);
        assert_eq!(rows.iter().map(|row| row.records).sum::<u64>(), 20_000);
    }

    fn piece(start: u64, end: u64) -> Piece {
        Piece { start, end, correlation: 0, node: 0, detail: 0, kernel: 0 }
    }

    fn put(stream: &mut Stream, pieces: &[Piece], room: usize) {
        stream.add(pieces, &Extent::of(pieces), room);
    }

    #[test]
    fn intervals_stay_bounded_and_late_records_are_not_counted_twice() {
        let mut stream = Stream::default();
        for i in 0..100u64 {
            put(&mut stream, &[piece(i * 10, i * 10 + 5)], 16);
        }
        assert_eq!(stream.recent.len(), 16);
        put(&mut stream, &[piece(0, 5)], 16);
        assert_eq!(stream.settled_ns + stream.recent_ns, 500);
    }

    proptest! {
        #[test]
        fn busy_is_the_union_in_any_order(list in prop::collection::vec((0u64..1000, 0u64..50), 1..100)) {
            let mut stream = Stream::default();
            for (start, length) in &list {
                put(&mut stream, &[piece(*start, start + length)], 1000);
            }
            let covered = (0..1050).filter(|t| list.iter().any(|(start, length)| (*start..start + length).contains(t)));
            prop_assert_eq!(stream.recent_ns, covered.count() as u64);
            prop_assert!(stream.recent.iter().zip(stream.recent.iter().skip(1)).all(|(a, b)| a.1 < b.0));
        }

        #[test]
        fn records_together_count_as_one_by_one(
            list in prop::collection::vec((0u64..20, 0u64..40, 0u64..8), 1..200),
            together in 1usize..100,
        ) {
            let mut at = 1000;
            let pieces: Vec<Piece> = list
                .into_iter()
                .map(|(wait, late, length)| {
                    at += wait;
                    let start = at - if late > 30 { 40 * (late - 30) } else { 0 };
                    piece(start, start + length)
                })
                .collect();
            let (mut one, mut other) = (Stream::default(), Stream::default());
            for piece in &pieces {
                put(&mut one, &[*piece], 16);
            }
            for pieces in pieces.chunks(together) {
                put(&mut other, pieces, 16);
            }
            prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
    }
}
