//! Copies by direction.

use gtop_protocol::record::direction_name;

use super::snapshot::CopyRow;

/// Directions that have a name, and one place for all others.
const DIRECTIONS: usize = 11;

/// Totals of copies.
#[derive(Debug, Default)]
pub(super) struct Copies {
    rows: [CopyRow; DIRECTIONS],
}

/// A `CUpti_ActivityMemcpyKind` this version has a name for, or 0.
pub(super) const fn known_direction(direction: u8) -> u8 {
    if (direction as usize) < DIRECTIONS { direction } else { 0 }
}

impl Copies {
    /// Counts a believable copy.
    pub(super) fn add(&mut self, direction: u8, bytes: u64, duration: u64) {
        let row = &mut self.rows[usize::from(known_direction(direction))];
        row.calls += 1;
        row.bytes = row.bytes.saturating_add(bytes);
        row.total_ns = row.total_ns.saturating_add(duration);
    }

    /// Directions with copies, by time, largest first.
    pub(super) fn rows(&self) -> Vec<CopyRow> {
        let named = |(direction, row): (usize, &CopyRow)| CopyRow {
            direction: direction_name(direction as u8),
            ..*row
        };
        let mut rows: Vec<CopyRow> =
            self.rows.iter().enumerate().map(named).filter(|row| row.calls > 0).collect();
        rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.direction.cmp(b.direction)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_kept_apart_and_strange_ones_together() {
        let mut copies = Copies::default();
        copies.add(2, 200_000, 8_640);
        copies.add(1, 1, 9_000);
        copies.add(99, 1, 1);
        copies.add(0, 1, 1);
        let rows = copies.rows();
        let names: Vec<_> = rows.iter().map(|row| (row.direction, row.calls)).collect();
        assert_eq!(names, [("HtoD", 1), ("DtoH", 1), ("unknown", 2)]);
        assert!((rows[1].bytes as f64 / rows[1].total_ns as f64 - 23.1).abs() < 0.1);
    }
}
