//! The intervals of one timeline lane, and how they fall onto the columns of a screen.

use std::sync::Arc;

use super::chunks::{Chunks, Placed};
use super::raster::Raster;
use super::sums::{Sum, Sums};

/// One believable record on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Start, CUPTI's nanoseconds.
    pub start: u64,
    /// End, CUPTI's nanoseconds; never before start.
    pub end: u64,
    /// What it is: an id of the process's details.
    pub detail: u32,
    /// The low half of its correlation id.
    pub correlation: u32,
}

/// What one column of a lane shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Share of the column's time in which something ran, 0 to 1 (a union: overlap counts once).
    pub busy: f32,
    /// The name with the largest share of the column, when anything ran.
    pub name: Option<u32>,
    /// How many records touch the column.
    pub count: u32,
}

/// The slices of a lane, ordered by start; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    chunks: Chunks,
    len: usize,
    /// What is left of those too old to keep.
    older: Sums,
}

impl Slices {
    /// Slices of one chunk. Two chunks may be joined or split when slices are put in between.
    pub const CHUNK: usize = 512;

    /// From chunks that are each ordered by start and follow one another.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "whoever makes chunks has no other use for them")]
    pub fn new(chunks: Vec<Arc<[Slice]>>) -> Self {
        let mut slices = Self::default();
        let filled = chunks.iter().filter(|chunk| !chunk.is_empty());
        slices.chunks.replace(0, filled.map(|chunk| Placed::new(chunk)));
        slices.chunks.settle(0);
        slices.len = chunks.iter().map(|chunk| chunk.len()).sum();
        slices
    }

    /// Puts in `more`, which must be ordered. The order in which slices are put in makes no difference to
    /// what is there afterwards.
    pub(super) fn merge(&mut self, more: &[Slice]) {
        let mut rest = more;
        let mut touched = self.chunks.len();
        while let Some(first) = rest.first() {
            // The chunk that the next slice falls into: the first that ends behind it, or the last one when that
            // has room.
            let ends_before = |chunk: &Placed| {
                chunk.last < first.start || chunk.slices.last().is_some_and(|last| last <= first)
            };
            let mut at = self.chunks.partition_point(ends_before);
            if at == self.chunks.len()
                && self.chunks.last().is_some_and(|last| last.slices.len() < Self::CHUNK)
            {
                at -= 1;
            }
            let next = self.chunks.get(at + 1).and_then(|chunk| chunk.slices.first());
            let (now, later) =
                rest.split_at(next.map_or(rest.len(), |next| rest.partition_point(|new| new < next)));
            let old = self.chunks.get(at).map_or(&[][..], |chunk| &chunk.slices);
            let merged = merge_two(old, now);
            // At the end chunks are filled up; in between they are split evenly, so that none gets tiny.
            let pieces = merged.len().div_ceil(Self::CHUNK);
            let size = if next.is_none() { Self::CHUNK } else { merged.len().div_ceil(pieces) };
            self.chunks.replace(at, merged.chunks(size).map(Placed::new));
            self.len += now.len();
            touched = touched.min(at);
            rest = later;
        }
        self.chunks.settle(touched);
    }

    /// Keeps no more than sums of the oldest chunks, at most `most` on each level; gives the number of their slices.
    pub(super) fn forget_oldest(&mut self, name_of: impl Fn(u32) -> u32, most: usize) -> usize {
        let before = self.len;
        for chunk in self.chunks.take_oldest() {
            self.older.fold(&chunk.slices, &name_of, most);
            self.len -= chunk.slices.len();
        }
        before - self.len
    }

    /// Whether neither slices nor sums are left.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_empty() && self.older.is_empty()
    }

    /// The start of the oldest slice that is kept, when older ones are summed up.
    #[must_use]
    pub fn kept_from(&self) -> Option<u64> {
        let (_, end) = self.older.span()?;
        Some(self.chunks.first().map_or(end, |chunk| chunk.first))
    }

    /// Up to where slices are summed up, CUPTI's nanoseconds, if any are.
    pub(super) fn summed_upto(&self) -> Option<u64> {
        self.older.span().map(|(_, reach)| reach)
    }

    /// What is left of slices too old to keep in the time from `from` to `to`, and how long a stretch it is of.
    #[must_use]
    pub fn summed(&self, from: u64, to: u64) -> Option<(Sum, u64)> {
        self.older.total(from, to)
    }

    /// The start of the last slice of the oldest chunk: what is lost when that is forgotten.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.chunks.first().map(|chunk| chunk.last)
    }

    /// The slices of the oldest chunk.
    pub(super) fn oldest_chunk(&self) -> &[Slice] {
        self.chunks.first().map_or(&[], |chunk| &chunk.slices)
    }

    /// All slices, by start.
    #[must_use = "an iterator does nothing by itself"]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Slice> {
        self.chunks.iter().flat_map(|chunk| chunk.slices.iter())
    }

    /// How many slices there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first start and the last end, nanoseconds.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let ends = self.chunks.first().zip(self.chunks.last());
        let kept = ends.map(|(first, last)| (first.first, last.reach));
        match (kept, self.older.span()) {
            (Some(kept), Some(older)) => Some((kept.0.min(older.0), kept.1.max(older.1))),
            (kept, older) => kept.or(older),
        }
    }

    /// The slice that runs at `time`, or else the last one that started before it.
    #[must_use]
    pub fn at(&self, time: u64) -> Option<Slice> {
        // A long slice may still run although later ones have started and ended; nobody looks further back.
        const BACK: usize = 64;
        let last = self.upto(time)?;
        let running = self.backwards(last).take(BACK).find(|slice| slice.end > time);
        running.or_else(|| self.backwards(last).next()).copied()
    }

    /// The first slice that starts after `time`.
    #[must_use]
    pub fn after(&self, time: u64) -> Option<Slice> {
        let chunk = self.chunks.get(self.chunks.partition_point(|chunk| chunk.last <= time))?;
        chunk.slices.get(chunk.slices.partition_point(|slice| slice.start <= time)).copied()
    }

    /// The last slice that starts before `time`.
    #[must_use]
    pub fn before(&self, time: u64) -> Option<Slice> {
        let last = self.upto(time.checked_sub(1)?)?;
        self.backwards(last).next().copied()
    }

    /// Where the last slice is that starts at or before `time`: its chunk and its place in it.
    fn upto(&self, time: u64) -> Option<(usize, usize)> {
        let chunk = self.chunks.partition_point(|chunk| chunk.first <= time).checked_sub(1)?;
        let slices = &self.chunks.get(chunk)?.slices;
        let place = slices.partition_point(|slice| slice.start <= time).checked_sub(1)?;
        Some((chunk, place))
    }

    fn backwards(&self, (chunk, place): (usize, usize)) -> impl Iterator<Item = &Slice> {
        let earlier = self.chunks.range(0..chunk).rev().flat_map(|chunk| chunk.slices.iter().rev());
        let here =
            self.chunks.range(chunk..chunk + 1).flat_map(move |chunk| chunk.slices[..=place].iter().rev());
        here.chain(earlier)
    }

    /// The chunks that may touch the time from `from` to `to`.
    fn chunks_between(&self, from: u64, to: u64) -> impl Iterator<Item = &Placed> {
        let start = self.chunks.partition_point(|chunk| chunk.reach < from);
        let touching = self.chunks.range(start..self.chunks.len()).take_while(move |chunk| chunk.first < to);
        touching.filter(move |chunk| chunk.end >= from)
    }

    /// The slices that touch the time from `from` to `to`, by start.
    #[must_use = "an iterator does nothing by itself"]
    pub fn touching(&self, from: u64, to: u64) -> impl Iterator<Item = &Slice> {
        let all = self.chunks_between(from, to).flat_map(|chunk| &chunk.slices);
        all.filter(move |slice| slice.start < to && (slice.end > from || slice.start >= from))
    }

    /// The slices from `from` to `to` laid in rows so that none overlaps another, as far as `rows` rows go; what is
    /// too much for them lies in the last. `None` where nothing overlaps, and where there are too many to tell apart.
    #[must_use]
    pub fn stacked(&self, from: u64, to: u64, rows: usize) -> Option<Vec<Self>> {
        const MANY: usize = 8192;
        if !self.chunks_between(from, to).any(Placed::overlaps) {
            return None;
        }
        let mut ends = vec![0; rows];
        let mut stack: Vec<Vec<Slice>> = vec![Vec::new(); rows];
        for (number, slice) in self.touching(from, to).enumerate() {
            if number >= MANY {
                return None;
            }
            let row = ends.iter().position(|end| *end <= slice.start).unwrap_or(rows.checked_sub(1)?);
            ends[row] = ends[row].max(slice.end);
            stack[row].push(*slice);
        }
        stack.retain(|row| !row.is_empty());
        if stack.len() < 2 {
            return None;
        }
        let chunks = |row: Vec<Slice>| row.chunks(Self::CHUNK).map(Into::into).collect();
        Some(stack.into_iter().map(|row| Self::new(chunks(row))).collect())
    }

    /// Time from `from` to `to` in which something ran, nanoseconds (overlap counts once).
    #[must_use]
    pub fn covered(&self, from: u64, to: u64) -> u64 {
        let (mut sum, mut upto) = (self.older.covered(from, to), from);
        let mut at = self.chunks.partition_point(|chunk| chunk.reach < from);
        while let Some(chunk) = self.chunks.get(at).filter(|chunk| chunk.first < to) {
            match self.chunks.group(at) {
                Some(group) if group.first >= upto && group.end <= to => {
                    sum += group.covered;
                    upto = upto.max(group.end);
                    at = Chunks::after_group(at);
                }
                _ => {
                    sum += chunk.covers(&mut upto, to);
                    at += 1;
                }
            }
        }
        sum
    }

    /// The least and the most time from `from` to `to` in which something can have run, nanoseconds; the same where all
    /// slices of that time are kept.
    #[must_use]
    pub fn covered_between(&self, from: u64, to: u64) -> (u64, u64) {
        let kept = |from| self.covered(from, to).saturating_sub(self.older.covered(from, to));
        let Some((_, reach)) = self.older.span().filter(|(first, reach)| *first < to && *reach > from) else {
            return (kept(from), kept(from));
        };
        // What is kept may lie in time that is in the sums already.
        let (low, high) = self.older.bounds(from, to);
        let least = (low + kept(reach.clamp(from, to))).max(kept(from));
        (least, (high + kept(from)).min(to - from))
    }

    /// Spreads the slices over `columns` columns of the time from `from` to `to`, nanoseconds; `name_of` gives a
    /// detail's name, the same one each time.
    #[must_use]
    pub fn raster(&self, from: u64, to: u64, columns: usize, name_of: impl Fn(u32) -> u32) -> Vec<Cell> {
        if to <= from || columns == 0 {
            return vec![Cell::default(); columns];
        }
        let mut raster = Raster::new(from, to, columns);
        let mut at = self.chunks.partition_point(|chunk| chunk.reach < from);
        while let Some(chunk) = self.chunks.get(at).filter(|chunk| chunk.first < to) {
            if let Some(group) = self.chunks.group(at)
                && let Some(column) = raster.column_of_all(group.first, group.end)
            {
                raster.add_all(column, group.count, group.covered, group.by_name(&name_of), group.end);
                at = Chunks::after_group(at);
                continue;
            }
            at += 1;
            if let Some(column) = raster.column_of_all(chunk.first, chunk.end) {
                let by_name = chunk.by_name(&name_of);
                raster.add_all(column, chunk.slices.len(), chunk.covered, by_name, chunk.end);
                continue;
            }
            for slice in &chunk.slices {
                if slice.start >= to {
                    break;
                }
                if slice.end > from || slice.start >= from {
                    raster.add(slice, name_of(slice.detail));
                }
            }
        }
        self.older.raster(from, to, &mut raster);
        raster.finish()
    }

    /// The same for the slices that `keep` keeps. It looks at each of them, and takes its time where there are many.
    #[must_use]
    pub fn raster_where(
        &self,
        from: u64,
        to: u64,
        columns: usize,
        name_of: impl Fn(u32) -> u32,
        mut keep: impl FnMut(&Slice) -> bool,
    ) -> Vec<Cell> {
        if to <= from || columns == 0 {
            return vec![Cell::default(); columns];
        }
        let mut raster = Raster::new(from, to, columns);
        for slice in self.touching(from, to) {
            if keep(slice) {
                raster.add(slice, name_of(slice.detail));
            }
        }
        raster.finish()
    }
}

/// Two ordered lists as one.
fn merge_two(old: &[Slice], new: &[Slice]) -> Vec<Slice> {
    if old.last() <= new.first() {
        return [old, new].concat();
    }
    let mut merged = Vec::with_capacity(old.len() + new.len());
    let mut new = new.iter().copied().peekable();
    for old in old {
        while let Some(slice) = new.next_if(|slice| slice < old) {
            merged.push(slice);
        }
        merged.push(*old);
    }
    merged.extend(new);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustc_hash::FxHashMap;
    use std::cmp::Reverse;

    fn slice(&(start, end, detail): &(u64, u64, u32)) -> Slice {
        Slice { start, end, detail, correlation: 0 }
    }

    fn slices(list: &[(u64, u64, u32)]) -> Slices {
        Slices::new(vec![list.iter().map(slice).collect()])
    }

    #[test]
    fn coverage_is_a_union_and_the_longest_name_wins() {
        let cells = slices(&[(0, 50, 1), (25, 75, 2), (100, 200, 3)]).raster(0, 400, 4, |detail| detail);
        assert_eq!(cells.iter().map(|cell| cell.busy).collect::<Vec<_>>(), [0.75, 1.0, 0.0, 0.0]);
        assert_eq!(cells.iter().map(|cell| cell.name).collect::<Vec<_>>(), [Some(1), Some(3), None, None]);
        assert_eq!(cells[0].count, 2);
    }

    #[test]
    fn looking_up_by_time() {
        let lane = slices(&[(10, 20, 1), (30, 40, 2)]);
        assert_eq!(lane.at(15).map(|slice| slice.detail), Some(1));
        assert_eq!(lane.at(25).map(|slice| slice.detail), Some(1));
        assert_eq!(lane.at(5), None);
        assert_eq!(lane.after(10).map(|slice| slice.detail), Some(2));
        assert_eq!(lane.before(30).map(|slice| slice.detail), Some(1));
        assert_eq!(lane.before(10), None);
        assert_eq!(lane.span(), Some((10, 40)));
    }

    #[test]
    fn a_long_slice_is_found_under_short_ones() {
        let lane = slices(&[(0, 100, 1), (10, 20, 2), (30, 40, 3)]);
        assert_eq!(lane.at(35).map(|slice| slice.detail), Some(3));
        assert_eq!(lane.at(50).map(|slice| slice.detail), Some(1));
        assert_eq!(lane.at(200).map(|slice| slice.detail), Some(3));
    }

    #[test]
    fn what_overlaps_lies_in_rows_of_its_own() {
        let lane = slices(&[(0, 50, 1), (25, 75, 2), (60, 80, 3), (70, 90, 4)]);
        let rows = lane.stacked(0, 100, 2).unwrap();
        let details = |row: &Slices| row.iter().map(|slice| slice.detail).collect::<Vec<_>>();
        assert_eq!(rows.iter().map(details).collect::<Vec<_>>(), [vec![1, 3], vec![2, 4]]);
        assert!(slices(&[(0, 50, 1), (50, 75, 2)]).stacked(0, 100, 2).is_none());
        assert!(lane.stacked(0, 100, 0).is_none());
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut lane = Slices::default();
        let all: Vec<Slice> = (0..2000).map(|i| slice(&(i * 10, i * 10 + 5, 0))).collect();
        lane.merge(&all);
        assert_eq!(lane.oldest(), Some(5110));
        assert_eq!(lane.forget_oldest(|detail| detail, 100), 1024, "a group of two chunks");
        assert_eq!((lane.len(), lane.kept_from()), (976, Some(10_240)));
        assert_eq!(lane.span(), Some((0, 19_995)), "their sums are left");
        assert_eq!(lane.covered(0, 20_000), 10_000 - 1024 * 5 + lane.older.covered(0, 20_000));
        assert_eq!((lane.forget_oldest(|detail| detail, 100), lane.len()), (512, 464));
    }

    #[test]
    fn the_end_of_time_overflows_nothing() {
        const FAR: u64 = 1 << 63;
        let list: Vec<_> = (0..2_000).map(|i| slice(&(FAR - 1_000 + i, FAR - 1_000 + i + 1, 1))).collect();
        let mut lane = Slices::default();
        lane.merge(&list);
        lane.merge(&[slice(&(u64::MAX - 5, u64::MAX, 2))]);
        for forgotten in [false, true] {
            if forgotten {
                lane.forget_oldest(|detail| detail, 16);
            }
            let cells = lane.raster(FAR - 1_000, FAR + 1_000, 20, |detail| detail);
            let busy: f32 = cells.iter().map(|cell| cell.busy).sum();
            // What is forgotten is spread over stretches of a millisecond.
            assert!(busy <= 20.0 && (forgotten || busy > 19.9), "{busy}");
            for (from, to) in [(0, u64::MAX), (FAR, FAR + 1), (u64::MAX - 1, u64::MAX)] {
                let (low, high) = lane.covered_between(from, to);
                assert!(low <= high && high <= to - from, "{low} {high}");
                assert_eq!(lane.raster(from, to, 3, |detail| detail).len(), 3);
                assert!(lane.covered(from, to) <= to - from);
            }
        }
    }

    /// What [`Slices::raster`] means, column by column.
    fn raster_by_definition(list: &[Slice], from: u64, to: u64, columns: u64) -> Vec<Cell> {
        let width = (to - from) / columns;
        let cell = |column| {
            let (left, right) = (from + column * width, from + (column + 1) * width);
            let mut shares = FxHashMap::<u32, u64>::default();
            let (mut busy, mut count, mut upto) = (0, 0, left);
            for slice in list {
                let (start, end) = (slice.start.max(left), slice.end.min(right));
                let instant = slice.start == slice.end && slice.start >= left && slice.start < right;
                if start < end || instant {
                    count += 1;
                    *shares.entry(slice.detail).or_default() += end - start;
                    busy += end.saturating_sub(start.max(upto));
                    upto = upto.max(end);
                }
            }
            let name = shares.into_iter().max_by_key(|(name, share)| (*share, Reverse(*name)));
            Cell { busy: busy as f32 / width as f32, name: name.map(|(name, _)| name), count }
        };
        (0..columns).map(cell).collect()
    }

    proptest! {
        #[test]
        fn any_order_of_arrival_gives_the_same_lane(
            list in prop::collection::vec((0u64..5000, 0u64..300, 0u32..4), 0..1500),
            cuts in prop::collection::vec(1usize..400, 1..20),
            window in (0u64..4000, 1u64..40, 1u64..2000),
        ) {
            let list: Vec<_> = list.iter().map(|(start, length, detail)| slice(&(*start, start + length, *detail))).collect();
            let (mut lane, mut rest, mut cuts) = (Slices::default(), list.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                let mut now = now.to_vec();
                now.sort_unstable();
                lane.merge(&now);
                rest = later;
            }
            let mut sorted = list;
            sorted.sort_unstable();
            prop_assert_eq!(lane.len(), sorted.len());
            prop_assert!(lane.iter().eq(sorted.iter()));
            prop_assert_eq!(lane.span().map(|(_, end)| end), sorted.iter().map(|slice| slice.end).max());

            let (from, columns, width) = window;
            let to = from + columns * width;
            let (mut sum, mut upto) = (0, from);
            for slice in &sorted {
                sum += slice.end.min(to).saturating_sub(slice.start.max(upto));
                upto = upto.max(slice.end);
            }
            prop_assert_eq!(lane.covered(from, to), sum);

            let odd: Vec<Slice> = sorted.iter().filter(|slice| slice.detail % 2 == 1).copied().collect();
            let cells = lane.raster_where(from, to, columns as usize, |detail| detail, |slice| slice.detail % 2 == 1);
            for (cell, expected) in cells.iter().zip(raster_by_definition(&odd, from, to, columns)) {
                prop_assert_eq!((cell.name, cell.count), (expected.name, expected.count));
            }
            let cells = lane.raster(from, to, columns as usize, |detail| detail);
            for (cell, expected) in cells.iter().zip(raster_by_definition(&sorted, from, to, columns)) {
                prop_assert_eq!((cell.name, cell.count), (expected.name, expected.count));
                prop_assert!((cell.busy - expected.busy).abs() < 1e-4, "{} {}", cell.busy, expected.busy);
            }
            for time in [from, to] {
                prop_assert_eq!(lane.after(time).map(|slice| slice.start), sorted.iter().find(|slice| slice.start > time).map(|slice| slice.start));
                prop_assert_eq!(lane.before(time), sorted.iter().rev().find(|slice| slice.start < time).copied());
            }
        }
    }
}
