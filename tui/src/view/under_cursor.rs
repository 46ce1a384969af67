//! What runs under the timeline's cursor, in words.

use ratatui::text::Span;

use super::canvas::{Part, fit};
use super::theme::Role;
use super::timeline::is_doubtful;
use super::untraced::Traced;
use super::{Cx, Kept, ViewState, units};
use crate::model::slices::Slice;
use crate::model::snapshot::{Detail, Lane, LaneKey, Process};

/// What of a lane falls into a column.
pub(super) enum Found {
    /// The record with the largest part of the column, and how many others touch it.
    Running(Slice, u32),
    /// Nothing; the last record that ended before it.
    IdleSince(Slice),
    /// Nothing, and nothing that is shown shortly before it.
    Nothing,
}

/// Records looked at for the longest one of a column.
const LOOK: usize = 512;

/// Looks a column up. The record named is of the name that gives the column its colour.
pub(super) fn find(kept: &mut Kept<'_>, process: &Process, (from, to): (u64, u64)) -> Found {
    let name_of = |detail| process.details.get(detail).map_or(u32::MAX, |detail| detail.name_id);
    let before =
        kept.lane.slices.at(from).filter(|slice| kept.keeps(slice)).or_else(|| kept.shortly_before(from));
    let cell = kept.raster(from, to, 1).first().copied().unwrap_or_default();
    let overlap = |slice: &Slice| slice.end.min(to).saturating_sub(slice.start.max(from));
    let slices = &kept.lane.slices;
    let first = before.filter(|slice| slice.end > from).or_else(|| slices.after(from.saturating_sub(1)));
    let inside: Vec<Slice> = std::iter::successors(first, |slice| slices.after(slice.start))
        .take(LOOK)
        .take_while(|slice| slice.start < to)
        .collect();
    let most = inside
        .into_iter()
        .filter(|slice| kept.keeps(slice) && Some(name_of(slice.detail)) == cell.name)
        .max_by_key(|slice| (overlap(slice), std::cmp::Reverse(slice.start)));
    match most {
        Some(most) => Found::Running(most, cell.count.saturating_sub(1)),
        None => before.map_or(Found::Nothing, Found::IdleSince),
    }
}

/// One line on what is under the cursor.
pub(super) fn spans(
    cx: &Cx<'_>,
    process: &Process,
    lane: &Lane,
    column: (u64, u64),
    newest: u64,
    cells: usize,
) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let traced = Traced::of(process, lane);
    let blank = traced.why_blank(column);
    match find(&mut Kept::new(process, cx.state, lane), process, column) {
        Found::Running(slice, others) => {
            let Some(detail) = process.details.get(slice.detail) else {
                return vec![theme.span("a record whose name has not come yet", Role::Dim)];
            };
            let name = super::text::cut_middle(&name(lane, detail), 40, "…");
            let style = theme.kernel(&detail.name.full).patch(theme.style(Role::Strong));
            let mut parts = vec![Part::new(0, vec![Span::styled(name, style)])];
            parts.extend(
                words(slice, detail, newest)
                    .into_iter()
                    .map(|(rank, word)| Part::new(rank, vec![theme.span(word, Role::Plain)])),
            );
            if traced.has_losses(column.0, column.1) {
                parts.push(Part::new(2, vec![theme.span("records were lost about here", Role::Warn)]));
            }
            if others > 0 {
                let more = format!("+{} more here", units::count(u64::from(others)));
                parts.push(Part::new(4, vec![theme.span(more, Role::Dim)]));
            }
            fit(parts, "  ", cells).0
        }
        Found::IdleSince(_) | Found::Nothing if lane.slices.summed(column.0, column.1).is_some() => {
            let (name, words) = summed(process, lane, column).unwrap_or_default();
            let name = super::text::cut_middle(&name, 40, "…");
            vec![theme.span(name, Role::Strong), theme.span(format!("  {words}"), Role::Plain)]
        }
        Found::IdleSince(_) | Found::Nothing if blank.is_some() => {
            vec![theme.span(blank.unwrap_or_default(), Role::Dim)]
        }
        Found::IdleSince(slice) if is_doubtful(process, lane.key, (slice.end, column.1)) => {
            let ago = units::duration(column.0.saturating_sub(slice.end));
            let words = format!("not known: for {ago} nothing believable, and records with bad times came");
            vec![theme.span(words, Role::Warn)]
        }
        Found::IdleSince(slice) => {
            let ago = units::duration(column.0.saturating_sub(slice.end));
            // With a filter the next one may be far away.
            let next = lane.slices.after(column.0).filter(|_| cx.state.filter.is_empty());
            let gap = next.map_or_else(String::new, |next| {
                format!(", in a gap of {}", units::duration(next.start.saturating_sub(slice.end)))
            });
            vec![theme.span(format!("idle, {ago} after the last record{gap}"), Role::Dim)]
        }
        Found::Nothing => {
            let filtered = !cx.state.filter.is_empty();
            let words =
                if filtered { "the filter keeps nothing here" } else { "idle; nothing earlier is kept" };
            vec![theme.span(words, Role::Dim)]
        }
    }
}

/// What is to say in full of a column on which no record is.
pub(super) fn nothing(process: &Process, state: &ViewState, lane: &Lane, column: (u64, u64)) -> Vec<String> {
    if let Some((name, words)) = summed(process, lane, column) {
        let busy = lane.slices.covered(column.0, column.1) as f64 / (column.1 - column.0).max(1) as f64;
        return vec![
            name,
            words,
            format!("busy about {}; the records themselves are too old to be kept", units::percent(busy)),
        ];
    }
    let words = match Traced::of(process, lane).why_blank(column) {
        Some(why) => why,
        None if lane
            .slices
            .at(column.0)
            .is_some_and(|last| is_doubtful(process, lane.key, (last.end.min(column.0), column.1))) =>
        {
            "not known: nothing believable, and records with bad times came"
        }
        None if state.filter.is_empty() => "nothing runs here",
        None => "the filter keeps nothing here",
    };
    vec![words.to_owned()]
}

/// What is left of records too old to keep: the name with the most time, and the rest in words.
fn summed(process: &Process, lane: &Lane, (from, to): (u64, u64)) -> Option<(String, String)> {
    let (sum, wide) = lane.slices.summed(from, to)?;
    let name = |id: u32| {
        let known = process.kernels.iter().find(|row| row.id == id);
        known.map_or_else(|| "copies, sets or launches".to_owned(), |row| row.name.short.clone())
    };
    let words = format!(
        "most of {} in sums of {}  longest {} {}",
        units::some(sum.count as usize, "record"),
        units::duration(wide),
        units::duration(u64::from(sum.longest)),
        if sum.longest_name == sum.name { String::new() } else { name(sum.longest_name) },
    );
    Some((name(sum.name), words))
}

/// The name of a record: the graph for launches of graphs.
pub(super) fn name(lane: &Lane, detail: &Detail) -> String {
    match lane.key {
        LaneKey::Graphs { .. } => format!("launch of graph {}", detail.graph),
        _ => detail.name.short.clone(),
    }
}

/// Duration, start, sizes and graph, with their ranks. Only believable records are on lanes.
fn words(slice: Slice, detail: &Detail, newest: u64) -> Vec<(u8, String)> {
    let length = slice.end.saturating_sub(slice.start);
    let mut words = vec![(0, units::duration(length))];
    if let Some(bytes) = detail.bytes {
        words.push((1, units::bytes(bytes)));
        if length > 0 {
            words.push((2, format!("{:.1} GB/s", bytes as f64 / length as f64)));
        }
    } else if detail.grid != [0; 3] {
        words.push((3, format!("grid {}", dimensions(detail.grid))));
        words.push((3, format!("block {}", dimensions(detail.block))));
        if detail.graph > 0 {
            words.push((2, format!("graph {} node {}", detail.graph, detail.node_index())));
        }
    }
    words.push((1, format!("at −{}", units::duration(newest.saturating_sub(slice.start)))));
    words.push((1, "valid".to_owned()));
    words
}

/// `132`, `8×4`, `8×4×2`: trailing ones are left out.
pub(super) fn dimensions([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (0 | 1, 0 | 1) => x.to_string(),
        (_, 0 | 1) => format!("{x}×{y}"),
        _ => format!("{x}×{y}×{z}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slices::Slices;
    use crate::view::ViewState;

    fn lane(list: &[(u64, u64)]) -> Lane {
        let slices: Vec<Slice> =
            list.iter().map(|&(start, end)| Slice { start, end, detail: 0, correlation: 0 }).collect();
        let key = LaneKey::Stream { device: 0, context: 1, stream: 7 };
        Lane { key, busy: 0.0, since: 0, slices: Slices::new(vec![slices.into()]) }
    }

    fn found(lane: &Lane, column: (u64, u64)) -> (u64, u32) {
        let (process, state) = (Process::default(), ViewState::default());
        match find(&mut Kept::new(&process, &state, lane), &process, column) {
            Found::Running(slice, others) => (slice.start, others),
            Found::IdleSince(slice) => (slice.end, u32::MAX),
            Found::Nothing => (0, u32::MAX),
        }
    }

    #[test]
    fn the_record_with_the_most_of_the_column_is_named() {
        let lane = lane(&[(0, 15), (20, 25), (30, 90), (95, 96)]);
        assert_eq!(found(&lane, (10, 40)), (30, 2));
        assert_eq!(found(&lane, (10, 29)), (0, 1));
        assert_eq!(found(&lane, (40, 50)), (30, 0));
        assert_eq!(found(&lane, (90, 95)), (90, u32::MAX));
        assert_eq!(found(&lane, (91, 94)), (90, u32::MAX));
        assert_eq!(found(&lane, (95, 100)), (95, 0));
    }

    #[test]
    fn dimensions_leave_out_what_is_one() {
        assert_eq!(dimensions([132, 1, 1]), "132");
        assert_eq!(dimensions([8, 4, 1]), "8×4");
        assert_eq!(dimensions([8, 1, 2]), "8×1×2");
    }
}
