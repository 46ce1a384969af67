//! The live kernel timeline: a lane for each stream, copy direction and graph launches, shaded by how busy each
//! column is and coloured by kernel, and what runs under the cursor in words.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gtop_protocol::record::direction_name;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::sampled::{self, Sampled};
use super::scale::{Window, newest};
use super::state::Pane;
use super::text::{cut_end, left, right, width, wrap};
use super::theme::Role;
use super::untraced::Traced;
use super::{Cx, Kept, Target, ViewState, axis, header, lanes, stretch, under_cursor, units};
use crate::input::Action;
use crate::model::slices::{Cell, Slices};
use crate::model::snapshot::{Lane, LaneKey, Process};

/// Shades from idle to busy.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
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
    let names: Vec<String> = lanes.iter().map(|lane| lane_name(process, lane.key)).collect();
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
    let rows = stack(&lanes, window, room);
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
    let measured = measured(cx, window, newest);
    if axis > 0 {
        axis::draw(cx, process, window, newest, plot, canvas);
        range(cx, window, newest, plot, 0, canvas);
    }
    let mut colours = Colours::default();
    for (line, (at, level)) in rows.iter().skip(top).take(shown).enumerate() {
        let (lane, row) = (lanes[*at], line + axis);
        let here = *at == lane_at;
        canvas.target_row(plot, row, Target::Lane(*at));
        if level.as_ref().is_none_or(|level| level.first) {
            let role = if here && place.focused { Role::Strong } else { Role::Plain };
            canvas.spans(inner, row, vec![cx.theme().span(left(&names[*at], name_cells), role)]);
            let text = right(&at_right(cx, process, lane, measured), busy_cells);
            canvas.put(inner, name_cells + 1 + columns, row, &text, Style::new());
        } else {
            canvas.spans(inner, row, vec![cx.theme().span("  overlap", Role::Dim)]);
        }
        if let LaneKey::Graphs { .. } = lane.key {
            brackets(cx, process, lane, window, plot, row, canvas);
        } else {
            let cells = match level {
                Some(level) => {
                    let mut kept = Kept::of(process, cx.state, lane, &level.slices);
                    kept.raster(window.left, window.right, columns)
                }
                None => Kept::new(process, cx.state, lane).raster(window.left, window.right, columns),
            };
            let shaded = shaded(process, lane.key, cells, window);
            shades(cx, process, lane.key, shaded, plot, row, canvas, &mut colours);
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
        in_full(cx, process, Rect { y, height: full as u16, ..inner }, canvas);
    }
}

/// A row of a lane whose records overlap.
struct Level {
    slices: Slices,
    first: bool,
}

/// The lanes as rows, by their places: one each, more where records overlap and there is room for them.
fn stack(lanes: &[&Lane], window: Window, room: usize) -> Vec<(usize, Option<Level>)> {
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

/// The chosen stretch in numbers, or else the record under the cursor in full.
fn in_full(cx: &Cx<'_>, process: &Process, area: Rect, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let cells = usize::from(area.width);
    // The frame being drawn has its own number of columns.
    let state = ViewState { seen: canvas.seen.clone(), ..cx.state.clone() };
    let (title, lines) = if let Some(lines) = stretch::lines(process, &state) {
        ("Chosen stretch".to_owned(), lines)
    } else if let Some((what, lines)) = super::detail::record(&state, process) {
        (format!("Under the cursor: {what}"), lines)
    } else {
        let column = state.timeline.under_cursor(newest(process), state.seen.columns);
        let lanes = lanes(process, &state);
        let lane = lanes.get(state.timeline.lane.min(lanes.len().saturating_sub(1)));
        let words = lane.map_or_else(Vec::new, |lane| under_cursor::nothing(process, &state, lane, column));
        ("Under the cursor".to_owned(), words)
    };
    let rule = format!("── {title} ");
    let rule = format!("{rule}{}", "─".repeat(cells.saturating_sub(width(&rule))));
    canvas.put(area, 0, 0, &rule, theme.style(Role::Dim));
    let room = usize::from(area.height).saturating_sub(1);
    let wrapped: Vec<String> = lines
        .iter()
        .flat_map(|line| if width(line) <= cells { vec![line.clone()] } else { wrap(line, cells) })
        .collect();
    let fits = if wrapped.len() > room { room.saturating_sub(1) } else { room };
    for (row, line) in wrapped.iter().take(fits).enumerate() {
        canvas.put(area, 0, row + 1, line, theme.style(Role::Plain));
    }
    if wrapped.len() > fits {
        let key = cx.state.keymap.key_of(Action::Detail).unwrap_or_default();
        let more = format!("{} more ({key} shows all)", units::some(wrapped.len() - fits, "line"));
        canvas.put(area, 0, fits + 1, &more, theme.style(Role::Dim));
    }
}

/// Whether the timeline follows the newest record, or how far behind it stands.
fn follow(cx: &Cx<'_>, window: Window, newest: u64) -> String {
    let (word, back) =
        if cx.snapshot.replay.is_some() { ("newest", "to the newest") } else { ("live", "live") };
    match cx.state.timeline.held {
        None if cx.state.frozen => "frozen".to_owned(),
        None => word.to_owned(),
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
    let kept = process.lanes.iter().filter_map(|lane| lane.slices.kept_from()).max();
    if let Some(kept) = kept.filter(|kept| *kept > window.left) {
        let ago = units::duration(newest(process).saturating_sub(kept));
        let filtered = if cx.state.filter.is_empty() { "" } else { ", which the filter cannot ask" };
        notes.push(format!("before −{ago} sums only{filtered}"));
    }
    let (left, right) = (window.left, window.right.min(newest(process)));
    if process.lanes.iter().any(|lane| Traced::of(process, lane.key).has_blanks(left, right)) {
        notes.push(format!("{} not traced", sampled::BLANK));
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

/// A lane's name: what is the same for all lanes is left out.
fn lane_name(process: &Process, key: LaneKey) -> String {
    let device_of = |key: LaneKey| match key {
        LaneKey::Stream { device, .. }
        | LaneKey::Copy { device, .. }
        | LaneKey::Memset { device }
        | LaneKey::Graphs { device, .. } => device,
    };
    let context_of = |key: LaneKey| match key {
        LaneKey::Stream { context, .. } | LaneKey::Graphs { context, .. } => Some(context),
        LaneKey::Copy { .. } | LaneKey::Memset { .. } => None,
    };
    let device = device_of(key);
    let several_devices = process.lanes.iter().any(|lane| device_of(lane.key) != device);
    let several_contexts =
        |context| process.lanes.iter().filter_map(|lane| context_of(lane.key)).any(|other| other != context);
    let on = if several_devices { format!("#{device} ") } else { String::new() };
    let within = match context_of(key) {
        Some(context) if several_contexts(context) => format!("c{context} "),
        _ => String::new(),
    };
    let what = match key {
        LaneKey::Stream { stream, .. } => format!("s{stream}"),
        LaneKey::Copy { direction, .. } => format!("copy {}", direction_name(direction)),
        LaneKey::Memset { .. } => "memset".to_owned(),
        LaneKey::Graphs { stream, .. } => format!("graphs s{stream}"),
    };
    on + &within + &what
}

/// Over what the numbers at the right of the lanes are taken: what is shown, or while it is followed at least a
/// second, so that they can be read.
fn measured(cx: &Cx<'_>, window: Window, newest: u64) -> (u64, u64) {
    match cx.state.timeline.held {
        Some(_) => (window.left, window.right),
        None => (window.left.min(newest.saturating_sub(1_000_000_000)), newest),
    }
}

/// The busy share of a lane; for graph launches how many there were a second. What was traced in windows is told from
/// them; where records were lost, or came with times that cannot be believed, it is at least what is said.
fn at_right(cx: &Cx<'_>, process: &Process, lane: &Lane, (from, to): (u64, u64)) -> String {
    // Not before the lane began or everything was put in, or it would seem idle in the first second.
    let first = lane.slices.span().map_or(0, |(first, _)| first);
    let from = from.max(first).max(if lane.since < to { lane.since } else { 0 });
    let traced = Traced::of(process, lane.key);
    let (all, seen) = (to.saturating_sub(from), traced.traced(from, to));
    let lost = traced.seen(from, to) < seen;
    let nanoseconds = seen.max(1) as f64;
    let kept = || Kept::new(process, cx.state, lane).raster(from, to, 1).first().copied().unwrap_or_default();
    let graphs = matches!(lane.key, LaneKey::Graphs { .. });
    let filters = !cx.state.filter.is_empty();
    if seen == 0 && all > 0 {
        return "?".to_owned();
    }
    if let Some(sampled) = Sampled::of(process, lane.key).filter(|sampled| sampled.seen(from, to) < all) {
        // The filter does not tell what it would keep of what was not seen.
        return match sampled.launches(lane, to).filter(|_| graphs) {
            _ if filters => "?".to_owned(),
            Some(launches) => sampled::about(launches, |rate| format!("{}/s", units::glance(rate))),
            None if graphs => "?".to_owned(),
            None => sampled::share(sampled.busy(lane, to)),
        };
    }
    let doubtful = lost || is_doubtful(process, lane.key, (from, to));
    let none = (doubtful || filters) && kept().count == 0;
    if doubtful && none {
        return "?".to_owned();
    }
    // Not idle: what ran is not what the filter keeps.
    let known = lane.slices.kept_from().is_none_or(|kept| kept <= from);
    if none && known && lane.slices.covered(from, to) > 0 {
        return "filtered".to_owned();
    }
    let number = if graphs {
        format!("{}/s", units::glance(f64::from(kept().count) / nanoseconds * 1e9))
    } else if filters {
        units::percent(f64::from(kept().busy) * all as f64 / nanoseconds)
    } else {
        units::percent(lane.slices.covered(from, to) as f64 / nanoseconds)
    };
    if doubtful { format!("≥{number}") } else { number }
}

/// Whether records of a lane's kind came in this time whose own times cannot be believed: they ran somewhere.
pub(super) fn is_doubtful(process: &Process, lane: LaneKey, (from, to): (u64, u64)) -> bool {
    let kind = match lane {
        LaneKey::Stream { .. } | LaneKey::Graphs { .. } => 0,
        LaneKey::Copy { .. } => 1,
        LaneKey::Memset { .. } => 2,
    };
    let [_, invalid] = process.validity.kinds[kind].total;
    let mut spots = process.invalid_at.iter().rev().skip_while(|spot| spot.time > to);
    invalid > 0 && spots.next().is_some_and(|spot| spot.time >= from)
}

/// The columns of a lane with their shades: of a column that was traced in part, that part counts.
fn shaded(process: &Process, lane: LaneKey, cells: Vec<Cell>, window: Window) -> Vec<(Cell, &'static str)> {
    let traced = Traced::of(process, lane);
    let one = |(column, cell): (usize, Cell)| {
        let (from, to) = window.column(column);
        // What came of a time in which records were lost is at least what ran.
        let seen = traced.traced(from, to);
        if cell.count == 0 && traced.why_blank((from, to)).is_some() {
            return (cell, sampled::BLANK);
        }
        let busy = cell.busy * ((to - from) as f32 / seen.max(1) as f32);
        (cell, shade(Cell { busy: busy.min(1.0), ..cell }))
    };
    cells.into_iter().enumerate().map(one).collect()
}

/// Styles of names already looked up in this frame.
#[derive(Default)]
struct Colours(HashMap<u32, Style>);

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
fn shades(
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
        let blank = if shade == sampled::BLANK { cx.theme().style(Role::Dim) } else { Style::new() };
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
fn brackets(
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
        shaded(process, lane.key, cells, window).into_iter().map(|(_, shade)| shade).collect();
    let mut labels = Vec::new();
    let step = window.step.max(1);
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
            cells[from] = "├";
        }
        if slice.end <= window.right {
            cells[to] = "┤";
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

/// The name of a lane for a heading.
pub(super) fn lane_title(process: &Process, lane: &Lane) -> String {
    cut_end(&lane_name(process, lane.key), 40)
}
