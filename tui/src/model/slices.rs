//! The intervals of one timeline lane, and how they fall onto the columns of a screen.

use std::collections::HashMap;
use std::sync::Arc;

/// One believable record on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    chunks: Vec<Arc<[Slice]>>,
}

impl Slices {
    /// From chunks that are each ordered by start and follow one another.
    #[must_use]
    pub const fn new(chunks: Vec<Arc<[Slice]>>) -> Self {
        Self { chunks }
    }

    /// All slices, by start.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Slice> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// How many slices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The first start and the last end, nanoseconds.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.iter().next()?.start;
        let last = self.chunks.last()?.iter().map(|slice| slice.end).max()?;
        Some((first, last))
    }

    /// The slice that runs at `time`, or else the last one that ended before it.
    #[must_use]
    pub fn at(&self, time: u64) -> Option<Slice> {
        self.iter().rev().find(|slice| slice.start <= time).copied()
    }

    /// The first slice that starts after `time`.
    #[must_use]
    pub fn after(&self, time: u64) -> Option<Slice> {
        self.iter().find(|slice| slice.start > time).copied()
    }

    /// The last slice that starts before `time`.
    #[must_use]
    pub fn before(&self, time: u64) -> Option<Slice> {
        self.iter().rev().find(|slice| slice.start < time).copied()
    }

    /// Spreads the slices over `columns` columns of the time from `from` to `to`, nanoseconds; `name_of` gives a
    /// detail's name.
    #[must_use]
    pub fn raster(&self, from: u64, to: u64, columns: usize, name_of: impl Fn(u32) -> u32) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); columns];
        if to <= from || columns == 0 {
            return cells;
        }
        let width = (to - from) as f64 / columns as f64;
        let mut shares: Vec<HashMap<u32, f64>> = vec![HashMap::new(); columns];
        let mut covered = from;
        for slice in self.iter().filter(|slice| slice.end >= from && slice.start < to) {
            let column_of = |time: u64| (((time - from) as f64 / width) as usize).min(columns - 1);
            let (start, end) = (slice.start.max(from), slice.end.min(to));
            for column in column_of(start)..=column_of(end.saturating_sub(1).max(start)) {
                let left = from as f64 + column as f64 * width;
                let overlap = |a: u64, b: u64| (b as f64).min(left + width) - (a as f64).max(left);
                cells[column].count += 1;
                *shares[column].entry(name_of(slice.detail)).or_default() += overlap(start, end).max(0.0);
                let fresh = start.max(covered);
                if fresh < end {
                    cells[column].busy += (overlap(fresh, end).max(0.0) / width) as f32;
                }
            }
            covered = covered.max(end);
        }
        for (cell, share) in cells.iter_mut().zip(shares) {
            cell.busy = cell.busy.min(1.0);
            cell.name = share
                .into_iter()
                .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
                .map(|(name, _)| name);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(list: &[(u64, u64, u32)]) -> Slices {
        let slices: Vec<Slice> =
            list.iter().map(|&(start, end, detail)| Slice { start, end, detail, correlation: 0 }).collect();
        Slices::new(vec![slices.into()])
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
        assert_eq!(lane.span(), Some((10, 40)));
    }
}
