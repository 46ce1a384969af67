//! The live kernel timeline: a lane for each stream, copy direction and graph launches, shaded by how busy each
//! column is and coloured by kernel, and what runs under the cursor in words.

mod full;
mod lane;
mod plot;

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::sampled::{self, Sampled};
use super::scale::{Window, behind_newest, newest, newest_known};
use super::state::Pane;
use super::text::{left, right, width};
use super::theme::Role;
use super::untraced::Traced;
use super::{Cx, Kept, Target, axis, header, lanes, under_cursor, units};
use crate::input::Action;
use crate::model::snapshot::{LaneKey, Process};
pub(super) use lane::{is_doubtful, title as lane_title};

/// From so many lines on there is room for a record in full.
const WITH_FULL: usize = 16;
/// Cells for what stands at the right of a lane, and for that with its interval.
const BUSY: usize = 8;
const ABOUT: usize = 13;

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let inner = place.inner();
    let (cells, height) = (usize::from(inner.width), usize::from(inner.height));
    let Some(process) = cx.process.filter(|process| !process.lanes.is_empty()) else {
        let inner = canvas.pane(place, "Timeline", "");
        let words = match cx.process {
            None => header::source_words(cx),
            Some(_) => "nothing to draw yet: no believable record came".to_owned(),
        };
        canvas.spans(inner, 0, vec![cx.theme().span(words, Role::Dim)]);
        return;
    };
    let lanes = lanes(process, cx.state);
    let names: Vec<String> = lanes.iter().map(|lane| lane::name(process, lane.key)).collect();
    let name_cells = names.iter().map(|name| width(name)).max().unwrap_or(0).clamp(4, 18).min(cells / 4);
    let busy_cells =
        if lanes.iter().any(|lane| Sampled::of(process, lane.key).is_some()) { ABOUT } else { BUSY };
    let columns = cells.saturating_sub(name_cells + 1 + busy_cells);
    let newest = newest(process);
    let window = cx.state.timeline.window(newest, columns);
    let lane_at = cx.state.timeline.lane.min(lanes.len().saturating_sub(1));
    // On a tab of its own there is room for what is under the cursor, or for the chosen stretch, in full.
    let alone = cx.state.tab > 0;
    let full = if alone && height >= WITH_FULL {
        height.saturating_sub(lanes.len() + 3).clamp((height / 2).min(16), height * 3 / 4)
    } else {
        0
    };
    let axis = usize::from(height >= if alone { 5 } else { lanes.len() + 2 });
    let room = height.saturating_sub(1 + axis + full).max(1);
    let rows = plot::stack(&lanes, window, room);
    let row_at = rows.iter().position(|(lane, _)| *lane == lane_at).unwrap_or(0);
    let top = (row_at + 1).saturating_sub(room);
    let shown = rows.len().saturating_sub(top).min(room);

    let title = format!("Timeline  {}/column  {}", units::duration(window.step), follow(cx, window, newest));
    let inner = canvas.pane(place, &title, &notes(cx, process, window, lanes.len(), rows.len() - shown));
    if lanes.is_empty() {
        canvas.spans(inner, 0, vec![cx.theme().span("the filter keeps no lane", Role::Dim)]);
        return;
    }
    canvas.seen.rows[Pane::Timeline as usize] = room;
    canvas.seen.all[Pane::Timeline as usize] = lanes.len();
    canvas.seen.columns = columns;

    let plot = Rect {
        x: inner.x.saturating_add((name_cells + 1) as u16),
        width: (columns as u16).min(inner.width.saturating_sub(name_cells as u16 + 1)),
        ..inner
    };
    let cursor = cx.state.timeline.cursor(columns);
    let measured = lane::measured(cx, window, newest);
    if axis > 0 {
        axis::draw(cx, process, window, newest, plot, canvas);
        range(cx, window, newest, plot, 0, canvas);
    }
    let mut colours = plot::Colours::default();
    for (line, (at, level)) in rows.iter().skip(top).take(shown).enumerate() {
        let (lane, row) = (lanes[*at], line + axis);
        let here = *at == lane_at;
        canvas.target_row(plot, row, Target::Lane(*at));
        if level.as_ref().is_none_or(|level| level.first) {
            let role = if here && place.focused { Role::Strong } else { Role::Plain };
            canvas.spans(inner, row, vec![cx.theme().span(left(&names[*at], name_cells), role)]);
            let text = right(&lane::at_right(cx, process, lane, measured), busy_cells);
            canvas.put(inner, name_cells + 1 + columns, row, &text, Style::new());
        } else {
            canvas.spans(inner, row, vec![cx.theme().span("  overlap", Role::Dim)]);
        }
        if let LaneKey::Graphs { .. } = lane.key {
            plot::brackets(cx, process, lane, window, plot, row, canvas);
        } else {
            let cells = match level {
                Some(level) => {
                    let mut kept = Kept::of(process, cx.state, lane, &level.slices);
                    kept.raster(window.left, window.right, columns)
                }
                None => Kept::new(process, cx.state, lane).raster(window.left, window.right, columns),
            };
            let shaded = plot::shaded(process, lane, cells, window);
            plot::shades(cx, process, lane.key, shaded, plot, row, canvas, &mut colours);
        }
        if axis == 0 {
            range(cx, window, newest, plot, row, canvas);
        }
        if here && columns > 0 {
            let cell = Rect { x: plot.x.saturating_add(cursor as u16), width: 1, ..plot };
            canvas.restyle(cell.intersection(plot), row, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    if height > 1 {
        let column = window.column(cursor);
        let mut spans = under_cursor::spans(cx, process, lanes[lane_at], column, newest, cells);
        if let Some(words) = axis::at(cx, process, column) {
            spans.insert(0, cx.theme().span(format!("{words}  "), Role::Warn));
        }
        readout(canvas, inner, shown + axis, name_cells + 1 + cursor, spans);
    }
    if full > 0 {
        let y = inner.y.saturating_add(inner.height.saturating_sub(full as u16));
        full::draw(cx, process, window, Rect { y, height: full as u16, ..inner }, canvas);
    }
}

/// Underlines the chosen stretch.
fn range(cx: &Cx<'_>, window: Window, newest: u64, plot: Rect, row: usize, canvas: &mut Canvas<'_>) {
    let columns = usize::from(plot.width);
    let Some((from, to)) = cx.state.timeline.chosen(newest, columns) else { return };
    let step = window.step.max(1);
    let column = |time: u64| (time.saturating_sub(window.left) / step).min(columns as u64) as u16;
    let (left, right) = (column(from), column(to.saturating_add(step - 1)));
    if right > left && to > window.left && from < window.right {
        let area = Rect { x: plot.x.saturating_add(left), width: right - left, ..plot };
        let modifier = if row == 0 { Modifier::REVERSED } else { Modifier::UNDERLINED };
        canvas.restyle(area, row, Style::new().add_modifier(modifier));
    }
}

/// Whether the timeline follows the newest record, or how far behind it stands.
fn follow(cx: &Cx<'_>, window: Window, newest: u64) -> String {
    let (word, back) =
        if cx.snapshot.replay.is_some() { ("newest", "to the newest") } else { ("live", "live") };
    match cx.state.timeline.held {
        None if cx.state.frozen => "frozen".to_owned(),
        None if cx.process.is_some_and(|process| header::is_over(cx, process)) => "ended".to_owned(),
        None => match cx.process.map_or(0, behind_newest) {
            0 => word.to_owned(),
            late if late < 1_000_000_000 => format!("{word}, {} ms late", late / 1_000_000),
            late => format!("{word}, {} late", units::age(late as f64 / 1e9)),
        },
        Some(_) => {
            let ago = units::duration(newest.saturating_sub(window.right));
            let key = cx.state.keymap.key_of(Action::Live);
            key.map_or_else(|| format!("−{ago}"), |key| format!("−{ago} ({key} goes {back})"))
        }
    }
}

/// What the pane does not show.
fn notes(cx: &Cx<'_>, process: &Process, window: Window, all: usize, hidden: usize) -> String {
    let mut notes = Vec::new();
    let older = process.lanes.iter().filter(|lane| lane.slices.summed(window.left, window.right).is_some());
    let kept = older.filter_map(|lane| lane.slices.kept_from()).max();
    if let Some(kept) = kept.filter(|kept| *kept > window.left) {
        let ago = units::duration(newest(process).saturating_sub(kept));
        let filtered = if cx.state.filter.is_empty() { "" } else { ", which the filter cannot ask" };
        notes.push(format!("before −{ago} sums only{filtered}"));
    }
    let (left, right) = (window.left, window.right.min(newest_known(process)));
    let traced: Vec<Traced<'_>> = process.lanes.iter().map(|lane| Traced::of(process, lane)).collect();
    let lost = traced.iter().any(|traced| traced.has_losses(left, right));
    if lost || traced.iter().any(|traced| traced.has_blanks(left, right)) {
        notes.push(format!(
            "{} {}",
            sampled::BLANK,
            if lost { "not known: records were lost" } else { "not traced" }
        ));
    }
    if traced.iter().any(|traced| traced.is_awaited((right.saturating_sub(1), right))) {
        notes.push(format!("{} not delivered yet", sampled::AWAITED));
    }
    if !cx.state.filter.is_empty() {
        notes.push(match process.lanes.len() {
            lanes if lanes == all => "filtered".to_owned(),
            lanes => format!("filter keeps {all} of {}", units::some(lanes, "lane")),
        });
    }
    if hidden > 0 {
        notes.push(format!("{}, {} shown", units::some(all, "lane"), all.saturating_sub(hidden)));
    }
    let invalid: u64 = process.validity.total.iter().skip(1).sum();
    if invalid > 0 {
        notes.push(format!("{} invalid not drawn", units::count(invalid)));
    }
    notes.join(" · ")
}

/// What is under the cursor: right of it where there is room, else left of it, else from the left edge.
fn readout(canvas: &mut Canvas<'_>, inner: Rect, row: usize, column: usize, spans: Vec<Span<'static>>) {
    let cells = usize::from(inner.width);
    let wide: usize = spans.iter().map(Span::width).sum();
    let (at, line) = if column + 2 + wide <= cells {
        (column, [vec![Span::raw("└ ")], spans].concat())
    } else if wide + 2 <= column + 1 {
        (column - wide - 1, [spans, vec![Span::raw(" ┘")]].concat())
    } else {
        (0, spans)
    };
    let rest =
        Rect { x: inner.x.saturating_add(at as u16), width: inner.width.saturating_sub(at as u16), ..inner };
    canvas.spans(rest, row, line);
    if wide > cells && cells > 0 {
        canvas.put(inner, cells - 1, row, "…", Style::new());
    }
}
