//! Copies by direction.

use gtop_protocol::Kind;
use gtop_protocol::record::direction_name;

use super::sampling::{Folded, Sampling, Windowed};
use super::snapshot::{CopyEstimate, CopyRow};

/// Directions that have a name, and one place for all others.
const DIRECTIONS: usize = 11;

/// Totals of copies.
#[derive(Debug, Default)]
pub(super) struct Copies {
    rows: [CopyRow; DIRECTIONS],
    /// Calls, bytes and time, as windows brought them.
    windowed: [[Windowed; 3]; DIRECTIONS],
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

    /// Takes what came since the last time for what a window brought, if one is given.
    pub(super) fn fold(&mut self, window: Option<Folded>) {
        for (row, [calls, bytes, time]) in self.rows.iter().zip(&mut self.windowed) {
            calls.fold(row.calls, window);
            bytes.fold(row.bytes, window);
            time.fold(row.total_ns, window);
        }
    }

    /// Directions with copies, by time, largest first; what was seen in windows only is scaled to the time until `now`.
    pub(super) fn rows(&self, sampling: &Sampling, now: u64) -> Vec<CopyRow> {
        let in_full = sampling.between().has(Kind::Memcpy);
        let estimate = |row: &CopyRow, [calls, bytes, time]: &[Windowed; 3]| {
            Some(CopyEstimate {
                calls: calls.total(row.calls, sampling, now)?,
                bytes: bytes.total(row.bytes, sampling, now)?,
                total_ns: time.total(row.total_ns, sampling, now)?,
            })
        };
        let named = |(direction, (row, windowed)): (usize, (&CopyRow, &[Windowed; 3]))| CopyRow {
            direction: direction_name(direction as u8),
            estimate: if in_full { None } else { estimate(row, windowed) },
            ..*row
        };
        let all = self.rows.iter().zip(&self.windowed).enumerate();
        let mut rows: Vec<CopyRow> = all.map(named).filter(|row| row.calls > 0).collect();
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
        let rows = copies.rows(&Sampling::default(), 0);
        let names: Vec<_> = rows.iter().map(|row| (row.direction, row.calls)).collect();
        assert_eq!(names, [("HtoD", 1), ("DtoH", 1), ("unknown", 2)]);
        assert_eq!(rows[1].rate().map(|rate| format!("{rate:.1}")).as_deref(), Some("23.1"));
        assert_eq!(CopyRow { bytes: 1, ..CopyRow::default() }.rate(), None);
    }
}
