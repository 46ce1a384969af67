//! How a lane is drawn: shades by how busy each column is, coloured by kernel, in rows where records overlap, and
//! launches of graphs as brackets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gtop_protocol::record::direction_name;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::super::canvas::Canvas;
use super::super::sampled;
use super::super::scale::Window;
use super::super::state::Pane;
use super::super::text::width;
use super::super::theme::Role;
use super::super::untraced::Traced;
use super::super::{Cx, Kept};
use crate::model::slices::{Cell, Slices};
use crate::model::snapshot::{Lane, LaneKey, Process};

/// Shades from idle to busy.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];

/// A row of a lane whose records overlap.
pub(super) struct Level {
    pub(super) slices: Slices,
    pub(super) first: bool,
}

/// The lanes as rows, by their places: one each, more where records overlap and there is room for them.
pub(super) fn stack(lanes: &[&Lane], window: Window, room: usize) -> Vec<(usize, Option<Level>)> {
    let mut spare = room.saturating_sub(lanes.len());
    let mut rows = Vec::new();
    for (at, lane) in lanes.iter().enumerate() {
        let levels = match lane.key {
            LaneKey::Graphs { .. } => None,
            _ if spare == 0 => None,
            _ => lane.slices.stacked(window.left, window.right, spare.min(2) + 1),
        };
        let Some(levels) = levels else {
            rows.push((at, None));
            continue;
        };
        spare = spare.saturating_sub(levels.len() - 1);
        for (level, slices) in levels.into_iter().enumerate() {
            rows.push((at, Some(Level { slices, first: level == 0 })));
        }
    }
    rows
}

/// The columns of a lane with their shades: of a column that was traced in part, that part counts.
pub(super) fn shaded(
    process: &Process,
    lane: &Lane,
    cells: Vec<Cell>,
    window: Window,
) -> Vec<(Cell, &'static str)> {
    let traced = Traced::of(process, lane);
    let one = |(column, cell): (usize, Cell)| {
        let (from, to) = window.column(column);
        // What came of a time in which records were lost is at least what ran.
        let seen = traced.traced(from, to);
        if cell.count == 0 && traced.why_blank((from, to)).is_some() {
            let awaited = traced.is_awaited((from, to));
            return (cell, if awaited { sampled::AWAITED } else { sampled::BLANK });
        }
        let busy = cell.busy * ((to - from) as f32 / seen.max(1) as f32);
        (cell, shade(Cell { busy: busy.min(1.0), ..cell }))
    };
    cells.into_iter().enumerate().map(one).collect()
}

/// Styles of names already looked up in this frame.
#[derive(Default)]
pub(super) struct Colours(HashMap<u32, Style>);

impl Colours {
    fn of(&mut self, cx: &Cx<'_>, process: &Process, lane: LaneKey, name: u32) -> Style {
        match self.0.entry(name) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let kernel = process.kernels.iter().find(|row| row.id == name);
                *new.insert(match (kernel, lane) {
                    (Some(row), _) => cx.theme().kernel(&row.name.full),
                    (None, LaneKey::Copy { direction, .. }) => cx.theme().kernel(direction_name(direction)),
                    (None, _) => cx.theme().kernel("memset"),
                })
            }
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "a row of the plot is given by what is drawn, when, where and how"
)]
pub(super) fn shades(
    cx: &Cx<'_>,
    process: &Process,
    lane: LaneKey,
    cells: Vec<(Cell, &'static str)>,
    plot: Rect,
    row: usize,
    canvas: &mut Canvas<'_>,
    colours: &mut Colours,
) {
    let highlighted = cx.state.kernel.filter(|_| cx.state.focus == Pane::Kernels);
    let mut spans: Vec<Span<'static>> = Vec::with_capacity(cells.len());
    for (cell, shade) in cells {
        let blank = if shade == sampled::BLANK || shade == sampled::AWAITED {
            cx.theme().style(Role::Dim)
        } else {
            Style::new()
        };
        let mut style = cell.name.map_or(blank, |name| colours.of(cx, process, lane, name));
        if highlighted.is_some() && cell.name != highlighted {
            style = style.add_modifier(Modifier::DIM);
        }
        spans.push(Span::styled(shade, style));
    }
    canvas.spans(plot, row, spans);
}

/// The shade of a column. Something that ran is never drawn as nothing.
fn shade(cell: Cell) -> &'static str {
    if cell.count == 0 {
        return SHADES[0];
    }
    let step = (f64::from(cell.busy) * 4.0).round() as usize;
    SHADES[step.clamp(1, 4)]
}

/// Launches of graphs as brackets; launches too short for a bracket are shaded.
pub(super) fn brackets(
    cx: &Cx<'_>,
    process: &Process,
    lane: &Lane,
    window: Window,
    plot: Rect,
    row: usize,
    canvas: &mut Canvas<'_>,
) {
    let columns = usize::from(plot.width);
    let mut kept = Kept::new(process, cx.state, lane);
    let cells = kept.raster(window.left, window.right, columns);
    let mut cells: Vec<&str> =
        shaded(process, lane, cells, window).into_iter().map(|(_, shade)| shade).collect();
    let mut labels = Vec::new();
    let step = window.step.max(1);
    let (begins, ends) = cx.theme().bracket();
    // From the newest shown backwards; more of them than columns could not be told apart.
    let newest = window.right.checked_sub(1).and_then(|last| lane.slices.at(last));
    let backwards = std::iter::successors(newest, |slice| lane.slices.before(slice.start));
    for slice in backwards.take(columns).take_while(|slice| slice.end > window.left) {
        let from = slice.start.saturating_sub(window.left) / step;
        let to = slice.end.saturating_sub(1).saturating_sub(window.left) / step;
        let (from, to) = (from as usize, (to as usize).min(columns.saturating_sub(1)));
        if to < from + 2 || from >= columns || !kept.keeps(&slice) {
            continue;
        }
        for cell in &mut cells[from..=to] {
            *cell = "─";
        }
        if slice.start >= window.left {
            cells[from] = begins;
        }
        if slice.end <= window.right {
            cells[to] = ends;
        }
        let graph = process.details.get(slice.detail).map_or(0, |detail| detail.graph);
        let label = format!(" g{graph} ");
        if to - from > width(&label) + 2 {
            labels.push((from + (to - from + 1 - width(&label)) / 2, label));
        }
    }
    canvas.put(plot, 0, row, &cells.concat(), cx.theme().style(Role::Dim));
    for (column, label) in labels {
        canvas.put(plot, column, row, &label, cx.theme().style(Role::Plain));
    }
}
