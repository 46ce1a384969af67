//! Where the timeline looks: how much time a column holds, which stretch is shown, and where the cursor stands.

use crate::model::snapshot::Process;

/// Nanoseconds a column may hold.
const SCALES: [u64; 25] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
const DEFAULT_SCALE: usize = 11;

/// A stretch of time over columns, CUPTI's nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first nanosecond shown.
    pub left: u64,
    /// The first nanosecond after it.
    pub right: u64,
    /// Nanoseconds a column holds.
    pub step: u64,
}

impl Window {
    /// The time a column holds.
    pub(crate) const fn column(self, column: usize) -> (u64, u64) {
        let from = self.left.saturating_add(self.step.saturating_mul(column as u64));
        (from, from.saturating_add(self.step))
    }

    /// The column that holds a time, if it is shown.
    pub(crate) fn column_of(self, time: u64) -> Option<usize> {
        (self.left..self.right).contains(&time).then(|| ((time - self.left) / self.step.max(1)) as usize)
    }
}

/// What was chosen of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Which of the scales.
    scale: usize,
    /// The right edge, when the timeline does not follow the newest record.
    pub(crate) held: Option<u64>,
    /// The cursor's column from the left, when it was moved.
    cursor: Option<usize>,
    /// The lane the cursor stands on.
    pub(crate) lane: usize,
    /// The stretch that was chosen.
    pub(crate) range: Range,
}

/// A stretch of time, chosen for its own statistics; CUPTI's nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Range {
    /// None is.
    #[default]
    None,
    /// From this column to wherever the cursor goes.
    Open((u64, u64)),
    /// This one.
    Closed((u64, u64)),
}

/// The stretch that holds two columns and what lies between them.
pub(crate) fn hull(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}

impl Default for Timeline {
    fn default() -> Self {
        Self { scale: DEFAULT_SCALE, held: None, cursor: None, lane: 0, range: Range::None }
    }
}

impl Timeline {
    /// A timeline whose columns hold about so many nanoseconds at first.
    pub(crate) fn with_column(ns: u64) -> Self {
        let scale = SCALES.iter().position(|step| *step >= ns).unwrap_or(SCALES.len() - 1);
        Self { scale, ..Self::default() }
    }

    /// Nanoseconds a column holds.
    pub(crate) fn step(&self) -> u64 {
        SCALES.get(self.scale).copied().unwrap_or(1_000)
    }

    /// The stretch shown over `columns` when the newest record ends at `newest`. Following, its right edge moves
    /// in whole columns, so that what a column shows does not flicker.
    pub(crate) fn window(&self, newest: u64, columns: usize) -> Window {
        let step = self.step();
        let span = step.saturating_mul(columns as u64);
        let right = self.held.unwrap_or_else(|| newest.div_ceil(step).saturating_mul(step)).max(span);
        Window { left: right - span, right, step }
    }

    /// The cursor's column among `columns`.
    pub(crate) fn cursor(&self, columns: usize) -> usize {
        self.cursor.unwrap_or(columns * 3 / 4).min(columns.saturating_sub(1))
    }

    /// Moves the cursor by columns, and the stretch with it when it reaches an edge.
    pub(crate) fn move_cursor(&mut self, by: isize, newest: u64, columns: usize) {
        if columns == 0 {
            return;
        }
        self.hold(newest, columns);
        let at = self.cursor(columns);
        match at.checked_add_signed(by) {
            Some(to) if to < columns => self.cursor = Some(to),
            _ => {
                self.cursor = Some(at);
                self.pan(by.signum() * (columns.cast_signed() / 4).max(1), newest, columns);
            }
        }
    }

    /// Puts the cursor onto a column, and stops following.
    pub(crate) fn point(&mut self, column: usize, newest: u64, columns: usize) {
        self.hold(newest, columns);
        self.cursor = Some(column.min(columns.saturating_sub(1)));
    }

    /// The time of the column under the cursor.
    pub(crate) fn under_cursor(&self, newest: u64, columns: usize) -> (u64, u64) {
        self.window(newest, columns).column(self.cursor(columns))
    }

    /// The stretch that is chosen now.
    pub(crate) fn chosen(&self, newest: u64, columns: usize) -> Option<(u64, u64)> {
        match self.range {
            Range::None => None,
            Range::Open(from) => Some(hull(from, self.under_cursor(newest, columns))),
            Range::Closed(range) => Some(range),
        }
    }

    /// Begins to choose a stretch at the cursor, ends it there, or lets it go.
    pub(crate) fn choose_range(&mut self, newest: u64, columns: usize) {
        self.range = match (self.range, self.chosen(newest, columns)) {
            (Range::None, _) => {
                self.hold(newest, columns);
                Range::Open(self.under_cursor(newest, columns))
            }
            (Range::Open(_), Some(range)) => Range::Closed(range),
            _ => Range::None,
        };
    }

    /// Shows a stretch, as large as it fits.
    pub(crate) fn show(&mut self, (from, to): (u64, u64), newest: u64, columns: usize) {
        let fits = |step: &&u64| step.saturating_mul(columns as u64) >= to.saturating_sub(from);
        self.scale = SCALES.iter().position(|step| fits(&step)).unwrap_or(SCALES.len() - 1);
        let spare = self.step().saturating_mul(columns as u64).saturating_sub(to.saturating_sub(from));
        let right = to.saturating_add(spare / 2);
        self.held = (right < newest).then_some(right);
        self.cursor = Some(columns / 2);
    }

    /// Moves the stretch by columns. Reaching the newest record at the right follows it again.
    pub(crate) fn pan(&mut self, columns_by: isize, newest: u64, columns: usize) {
        let by = self.step().saturating_mul(columns_by.unsigned_abs() as u64);
        let right = self.window(newest, columns).right;
        let right = if columns_by < 0 { right.saturating_sub(by) } else { right.saturating_add(by) };
        self.held = (right < newest).then_some(right);
    }

    /// Stops following, at what is shown now.
    fn hold(&mut self, newest: u64, columns: usize) {
        self.held = Some(self.window(newest, columns).right);
    }

    /// Follows the newest record again.
    pub(crate) const fn follow(&mut self) {
        self.held = None;
    }

    /// Zooms by steps, in for positive ones; the time under the cursor stays where it is unless the timeline
    /// follows.
    pub(crate) fn zoom(&mut self, by: isize, newest: u64, columns: usize) {
        let scale = self.scale.saturating_add_signed(-by).min(SCALES.len() - 1);
        self.set_scale(scale, newest, columns);
    }

    /// The same around another column, where the cursor then stands unless the timeline follows.
    pub(crate) fn zoom_around(&mut self, column: usize, by: isize, newest: u64, columns: usize) {
        if self.held.is_some() {
            self.point(column, newest, columns);
        }
        self.zoom(by, newest, columns);
    }

    /// Back to the first scale.
    pub(crate) fn zoom_reset(&mut self, newest: u64, columns: usize) {
        self.set_scale(DEFAULT_SCALE, newest, columns);
    }

    fn set_scale(&mut self, scale: usize, newest: u64, columns: usize) {
        let cursor = self.cursor(columns);
        let (from, to) = self.window(newest, columns).column(cursor);
        self.scale = scale;
        if self.held.is_some() {
            let middle = from + (to - from) / 2;
            let right_of_cursor = self.step().saturating_mul((columns - cursor.min(columns)) as u64);
            self.held = Some(middle.saturating_sub(self.step() / 2).saturating_add(right_of_cursor));
        }
    }

    /// Puts the cursor onto a time, moving the stretch if it is not shown.
    pub(crate) fn go_to(&mut self, time: u64, newest: u64, columns: usize) {
        self.hold(newest, columns);
        let window = self.window(newest, columns);
        if let Some(column) = window.column_of(time) {
            self.cursor = Some(column);
        } else {
            self.cursor = Some(columns / 2);
            let right_half = self.step().saturating_mul((columns - columns / 2) as u64);
            self.held = Some(time.saturating_add(right_half));
        }
    }
}

/// How far behind the newest record the picture may end, so that nobody sees a kernel much later than it came, nanoseconds.
const MOST_LATE: u64 = 100_000_000;

/// Where the picture ends, CUPTI's nanoseconds: where everything has come that comes no later than it did lately, since
/// CUPTI hands out the records of each thread together, now those of one lane and now those of another; no more than
/// [`MOST_LATE`] before the newest of them. Where nothing more is awaited, where the newest thing known is; 0 without records.
pub(crate) fn newest(process: &Process) -> u64 {
    match newest_known(process) {
        0 => 0,
        newest if process.delivered > 0 => process.delivered.max(newest.saturating_sub(MOST_LATE)),
        newest => newest,
    }
}

/// The newest of what is known, CUPTI's nanoseconds: the newest record, or later that none came since; 0 without records.
pub(super) fn newest_known(process: &Process) -> u64 {
    match newest_record(process) {
        0 => 0,
        newest => newest.max(process.until),
    }
}

/// By how much the newest record is newer than the end of the picture, nanoseconds; in steps, so that it does not flicker.
pub(super) fn behind_newest(process: &Process) -> u64 {
    const STEP: u64 = 10_000_000;
    newest_record(process).saturating_sub(newest(process)).div_ceil(STEP).saturating_mul(STEP)
}

/// The newest end on any lane, CUPTI's nanoseconds; 0 without records.
pub(super) fn newest_record(process: &Process) -> u64 {
    process.lanes.iter().filter_map(|lane| lane.slices.span()).map(|(_, last)| last).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slices::{Slice, Slices};
    use crate::model::snapshot::{Lane, LaneKey};
    use proptest::prelude::*;

    #[test]
    fn following_moves_in_whole_columns() {
        let timeline = Timeline::default();
        let a = timeline.window(100_000_001, 100);
        let b = timeline.window(100_499_999, 100);
        assert_eq!(a, b);
        assert_eq!((a.right, a.step), (100_500_000, 500_000));
        assert_eq!(timeline.window(0, 10).left, 0);
    }

    #[test]
    fn the_picture_ends_where_everything_has_come() {
        let lane = |stream, end| {
            let slices = vec![Slice { start: 100, end, detail: 0, correlation: 0 }];
            let key = LaneKey::Stream { device: 0, context: 1, stream };
            Lane { key, busy: 0.0, since: 0, slices: Slices::new(vec![slices.into()]) }
        };
        let lanes = vec![lane(7, 100_000_000), lane(8, 35_000_000)];
        let mut process = Process { lanes, until: 100_000_000, delivered: 35_000_000, ..Process::default() };
        assert_eq!((newest(&process), behind_newest(&process)), (35_000_000, 70_000_000));
        process.delivered = 1;
        assert_eq!((newest(&process), behind_newest(&process)), (1, 100_000_000), "not before what there is");
        process.until = 900_000_000;
        assert_eq!(newest(&process), 800_000_000, "not longer than that");
        process.until = 100_000_000;
        process.delivered = 120_000_000;
        assert_eq!((newest(&process), behind_newest(&process)), (120_000_000, 0), "nothing ran since");
        process.delivered = 0;
        assert_eq!((newest(&process), behind_newest(&process)), (100_000_000, 0), "nothing more comes");
        process.lanes.clear();
        assert_eq!(newest(&process), 0);
    }

    #[test]
    fn the_cursor_leaves_live_and_the_right_end_returns_to_it() {
        let (newest, columns) = (1_000_000_000, 100);
        let mut timeline = Timeline::default();
        timeline.move_cursor(-1, newest, columns);
        assert_eq!((timeline.held, timeline.cursor(columns)), (Some(newest), 74));
        timeline.pan(-25, newest, columns);
        assert_eq!(timeline.held, Some(newest - 25 * 500_000));
        timeline.pan(25, newest, columns);
        assert_eq!(timeline.held, None);
    }

    #[test]
    fn zooming_keeps_the_time_under_the_cursor() {
        let (newest, columns) = (10_000_000_000, 80);
        let mut timeline = Timeline::default();
        timeline.move_cursor(-30, newest, columns);
        let cursor = timeline.cursor(columns);
        let (from, to) = timeline.window(newest, columns).column(cursor);
        for by in [1, 1, -3, 2] {
            timeline.zoom(by, newest, columns);
            let (a, b) = timeline.window(newest, columns).column(cursor);
            assert!(a <= from + (to - from) / 2 && from + (to - from) / 2 <= b, "{by}");
        }
    }

    #[test]
    fn going_to_a_time_shows_it() {
        let mut timeline = Timeline::default();
        for time in [5_000_000_000, 4_999_000_000, 1_000_000_000] {
            timeline.go_to(time, 5_000_100_000, 60);
            let window = timeline.window(5_000_100_000, 60);
            assert_eq!(window.column_of(time), Some(timeline.cursor(60)), "{time}");
        }
    }

    #[test]
    fn a_stretch_is_chosen_from_the_cursor_to_the_cursor_and_shown() {
        let (newest, columns) = (1_000_000_000, 100);
        let mut timeline = Timeline::default();
        timeline.choose_range(newest, columns);
        let first = timeline.under_cursor(newest, columns);
        timeline.move_cursor(-10, newest, columns);
        let last = timeline.under_cursor(newest, columns);
        assert_eq!(timeline.chosen(newest, columns), Some((last.0, first.1)), "backwards too");
        timeline.choose_range(newest, columns);
        timeline.move_cursor(-10, newest, columns);
        assert_eq!(timeline.chosen(newest, columns), Some((last.0, first.1)), "it is closed");
        timeline.show((last.0, first.1), newest, columns);
        let window = timeline.window(newest, columns);
        assert!(window.left <= last.0 && window.right >= first.1 && window.step == 100_000, "{window:?}");
        timeline.choose_range(newest, columns);
        assert_eq!(timeline.chosen(newest, columns), None);
    }

    proptest! {
        #[test]
        fn no_walk_overflows(newest: u64, columns in 0usize..400, walk in prop::collection::vec((0u8..9, -50isize..50), 0..40)) {
            let mut timeline = Timeline::default();
            for (what, by) in walk {
                match what {
                    0 => timeline.move_cursor(by, newest, columns),
                    1 => timeline.pan(by, newest, columns),
                    2 => timeline.zoom(by, newest, columns),
                    3 => timeline.zoom_reset(newest, columns),
                    4 => timeline.go_to(newest.rotate_left(by.unsigned_abs() as u32), newest, columns),
                    5 => timeline.choose_range(newest, columns),
                    6 => timeline.point(by.unsigned_abs(), newest, columns),
                    7 => timeline.show((newest / 2, newest), newest, columns),
                    _ => timeline.follow(),
                }
                let window = timeline.window(newest, columns);
                prop_assert!(window.left <= window.right);
                prop_assert!(timeline.cursor(columns) <= columns.saturating_sub(1));
            }
        }
    }
}
