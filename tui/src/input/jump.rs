//! From one place of the timeline to the next: gaps, marks, where bad times came.

use super::Action;
use crate::model::slices::Slice;
use crate::model::snapshot::{Process, Snapshot};
use crate::view::{self, Kept, Traced, ViewState, units};

/// Records that are looked at for a gap.
const FAR: usize = 100_000;

/// Goes to the next gap on the lane ahead or back: nothing runs for a column's time at least.
pub(super) fn gap(state: &mut ViewState, process: &Process, newest: u64, ahead: bool) {
    let columns = state.seen.columns;
    let column = state.timeline.under_cursor(newest, columns);
    let least = column.1.saturating_sub(column.0).max(1);
    let lanes = view::lanes(process, state);
    let Some(lane) = lanes.get(state.timeline.lane.min(lanes.len().saturating_sub(1))) else { return };
    let mut kept = Kept::new(process, state, lane);
    let found = if ahead {
        next_gap(&mut kept, lane.slices.touching(column.1, u64::MAX), column.1, least)
    } else {
        gap_before(&mut kept, column, least)
    };
    if let Some((from, to)) = found {
        state.note = Some(format!("the gap: nothing runs for {} here", units::duration(to - from)));
        state.timeline.go_to(from, newest, columns);
        return;
    }
    let kept = lane.slices.kept_from().filter(|_| !ahead);
    let ago = |kept: u64| units::duration(newest.saturating_sub(kept));
    let more = kept.map_or_else(String::new, |kept| {
        format!("; before −{} there are sums only, in which gaps cannot be told", ago(kept))
    });
    state.note = Some(nothing("gap as long as a column", ahead) + &more);
}

/// The first time at or after `from` from which on nothing runs for `least`.
fn next_gap<'a>(
    kept: &mut Kept<'_>,
    slices: impl Iterator<Item = &'a Slice>,
    from: u64,
    least: u64,
) -> Option<(u64, u64)> {
    let mut upto: Option<u64> = None;
    for slice in slices.take(FAR) {
        if !kept.keeps(slice) {
            continue;
        }
        if let Some(end) = upto
            && end >= from
            && slice.start.saturating_sub(end) >= least
        {
            return Some((end, slice.start));
        }
        upto = Some(upto.map_or(slice.end, |upto| upto.max(slice.end)));
    }
    None
}

/// The last gap of at least `least` that begins before a column.
fn gap_before(kept: &mut Kept<'_>, column: (u64, u64), least: u64) -> Option<(u64, u64)> {
    let mut later = kept.before(column.1)?;
    for _ in 0..FAR {
        let earlier = kept.before(later.start)?;
        if earlier.end < column.0 && later.start.saturating_sub(earlier.end) >= least {
            return Some((earlier.end, later.start));
        }
        later = earlier;
    }
    None
}

/// Goes to the longest record of the chosen stretch or of the column under the cursor, and near enough to see it.
pub(super) fn longest(state: &mut ViewState, process: &Process, newest: u64) {
    let columns = state.seen.columns;
    let stretch = state.timeline.chosen(newest, columns);
    let (from, to) = stretch.unwrap_or_else(|| state.timeline.under_cursor(newest, columns));
    let lanes = view::lanes(process, state);
    let Some(lane) = lanes.get(state.timeline.lane.min(lanes.len().saturating_sub(1))) else { return };
    let mut kept = Kept::new(process, state, lane);
    let longest = lane
        .slices
        .touching(from, to)
        .take(FAR)
        .filter(|slice| kept.keeps(slice))
        .max_by_key(|slice| slice.end - slice.start);
    let what = if stretch.is_some() { "of the stretch" } else { "of the column" };
    // A record that is only in the sums cannot be gone to.
    let summed = lane.slices.summed(from, to).map(|(sum, _)| sum);
    if let Some(sum) =
        summed.filter(|sum| longest.is_none_or(|slice| slice.end - slice.start < u64::from(sum.longest)))
    {
        let known = process.kernels.iter().find(|row| row.id == sum.longest_name);
        let name = known.map_or("", |row| row.name.short.as_str());
        let length = units::duration(u64::from(sum.longest));
        state.note =
            Some(format!("the longest {what}: {length}  {name}, too old to be kept; it is in sums only"));
        return;
    }
    let Some(&Slice { start, end, detail, .. }) = longest else {
        let why = Traced::of(process, lane).why_blank((from, to));
        state.note = Some(why.unwrap_or("nothing runs here").to_owned());
        return;
    };
    let name = process.details.get(detail).map_or("", |detail| detail.name.short.as_str());
    state.note = Some(format!("the longest {what}: {}  {name}", units::duration(end - start)));
    // A fifth of the screen.
    let around = (end - start).saturating_mul(2);
    state.timeline.show((start.saturating_sub(around), end.saturating_add(around)), newest, columns);
    state.timeline.go_to(start.midpoint(end), newest, columns);
}

/// Goes to the next of some times ahead or back; the action `back` goes the other way.
pub(super) fn time(state: &mut ViewState, times: &[u64], what: &str, newest: u64, ahead: bool, back: Action) {
    let columns = state.seen.columns;
    let (from, to) = state.timeline.under_cursor(newest, columns);
    let found = if ahead {
        times.iter().filter(|time| **time >= to).min()
    } else {
        times.iter().filter(|time| **time < from).max()
    };
    if let Some(time) = found {
        state.timeline.go_to(*time, newest, columns);
        return;
    }
    let others = times.iter().filter(|time| if ahead { **time < from } else { **time >= to }).count();
    let key = state.keymap.key_of(back).filter(|_| others > 0);
    let way = if ahead { "before" } else { "after" };
    let hint = key.map_or_else(String::new, |key| format!("; {key} goes to one of {others} {way}"));
    state.note = Some(nothing(what, ahead) + &hint);
}

/// Times of the marks of a process.
pub(super) fn marks(snapshot: &Snapshot, process: &Process) -> Vec<u64> {
    view::marks(snapshot, process).into_iter().map(|(time, _)| time).collect()
}

fn nothing(what: &str, ahead: bool) -> String {
    format!("there is no {what} {}", if ahead { "later" } else { "earlier" })
}
