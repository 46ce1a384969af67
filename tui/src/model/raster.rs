//! Slices of a lane laid onto the columns of a screen.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::slices::{Cell, Slice};
use super::sums::Sum;

/// Columns that are being filled with slices in the order of their starts.
pub(super) struct Raster {
    from: u64,
    to: u64,
    /// Nanoseconds of one column.
    width: f64,
    cells: Vec<Cell>,
    /// Time of each name in each column.
    shares: FxHashMap<(u32, u32), f64>,
    /// The share of one column and name that is being added up, before it goes to `shares`: slices come by start,
    /// so many in a row belong together.
    run: Option<((u32, u32), f64)>,
    /// Up to here time is covered, nanoseconds from the left edge.
    covered: f64,
}

impl Raster {
    pub(super) fn new(from: u64, to: u64, columns: usize) -> Self {
        Self {
            from,
            to,
            width: (to - from) as f64 / columns as f64,
            cells: vec![Cell::default(); columns],
            shares: FxHashMap::default(),
            run: None,
            covered: 0.0,
        }
    }

    fn column(&self, time: f64) -> usize {
        ((time / self.width) as usize).min(self.cells.len() - 1)
    }

    /// The one column that everything from `first` to `last` falls into, if it does and nothing before it reaches
    /// into it.
    pub(super) fn column_of_all(&self, first: u64, last: u64) -> Option<usize> {
        if first < self.from || last >= self.to {
            return None;
        }
        let (start, end) = ((first - self.from) as f64, (last - self.from) as f64);
        let column = self.column(start);
        (start >= self.covered && end < (column + 1) as f64 * self.width).then_some(column)
    }

    /// Adds what many slices sum up to that all fall into `column`: their number, the time they cover and that of
    /// each name, and their latest end.
    pub(super) fn add_all(
        &mut self,
        column: usize,
        count: usize,
        covered: u64,
        by_name: &[(u32, u64)],
        end: u64,
    ) {
        self.cells[column].count += count as u32;
        self.cells[column].busy += (covered as f64 / self.width) as f32;
        for (name, ns) in by_name {
            self.share((column as u32, *name), *ns as f64);
        }
        self.covered = self.covered.max((end - self.from) as f64);
    }

    /// Adds one slice that touches the raster; slices must come by start.
    pub(super) fn add(&mut self, slice: &Slice, name: u32) {
        let start = slice.start.saturating_sub(self.from) as f64;
        let end = (slice.end.min(self.to) - self.from) as f64;
        let first = self.column(start);
        let beyond = if end > start { up(end / self.width) } else { first + 1 };
        for column in first..beyond.min(self.cells.len()) {
            let (left, right) = (column as f64 * self.width, (column + 1) as f64 * self.width);
            let fresh = end.min(right) - start.max(left).max(self.covered);
            self.cells[column].count += 1;
            self.cells[column].busy += (fresh.max(0.0) / self.width) as f32;
            self.share((column as u32, name), (end.min(right) - start.max(left)).max(0.0));
        }
        self.covered = self.covered.max(end);
    }

    /// Adds what is left of slices that are no longer kept: sums over `wide` nanoseconds, as if evenly.
    pub(super) fn add_sum(&mut self, sum: &Sum, wide: u64) {
        let ago = |time: u64| match time.checked_sub(self.from) {
            Some(after) => after as f64,
            None => -((self.from - time) as f64),
        };
        let start = ago(sum.start);
        let end = start + wide as f64;
        let first = self.column(start.max(0.0));
        let beyond = up(end.min((self.to - self.from) as f64) / self.width);
        for column in first..beyond.min(self.cells.len()) {
            let (left, right) = (column as f64 * self.width, (column + 1) as f64 * self.width);
            let part = (end.min(right) - start.max(left)).max(0.0) / wide as f64;
            let cell = &mut self.cells[column];
            cell.busy += (f64::from(sum.busy) * part / self.width) as f32;
            cell.count = cell.count.saturating_add(up(f64::from(sum.count) * part) as u32);
            self.share((column as u32, sum.name), f64::from(sum.name_ns) * part);
        }
    }

    #[inline]
    fn share(&mut self, key: (u32, u32), share: f64) {
        match &mut self.run {
            Some((last, sum)) if *last == key => *sum += share,
            _ => {
                self.flush();
                self.run = Some((key, share));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((key, share)) = self.run.take() {
            *self.shares.entry(key).or_default() += share;
        }
    }

    /// Gives each cell the name with the largest share of its column; of equal ones the lowest.
    pub(super) fn finish(mut self) -> Vec<Cell> {
        self.flush();
        let mut best = vec![(0.0, Reverse(u32::MAX)); self.cells.len()];
        for ((column, name), share) in self.shares {
            let (cell, best) = (&mut self.cells[column as usize], &mut best[column as usize]);
            let better = cell.name.is_none() || (share, Reverse(name)) > *best;
            if better {
                (cell.name, *best) = (Some(name), (share, Reverse(name)));
            }
        }
        self.cells.iter_mut().for_each(|cell| cell.busy = cell.busy.min(1.0));
        self.cells
    }
}

/// The next whole number up; the processors gtop is built for by default have no instruction for it.
fn up(value: f64) -> usize {
    let whole = value as usize;
    whole + usize::from((whole as f64) < value)
}
