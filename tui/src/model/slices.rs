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
mod tests;
