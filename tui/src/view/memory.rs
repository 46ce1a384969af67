//! GPU memory by process on each device: everybody who is there, watched or not, and how it moves.

use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Part, Place, fit};
use super::spark::{bar, sparkline};
use super::state::Pane;
use super::text::{cut_end, left, right, width, wrap};
use super::theme::Role;
use super::{Cx, Target, ViewState, units};
use crate::model::snapshot::{Device, ProcessMemory, Snapshot};

/// Seconds after which a sample is old enough to say so.
const STALE: f64 = 3.0;
/// Cells of a device's memory over time.
const TREND: usize = 10;
/// The fewest cells a column of rows is given when rows stand side by side.
const COLUMN: usize = 56;

/// One line of the pane.
enum Row<'a> {
    /// A device and what is used of it.
    Device(&'a Device),
    /// A process on a device.
    Process(&'a Device, &'a ProcessMemory),
}

impl Row<'_> {
    /// What tells a process on a device from others.
    const fn key(&self) -> Option<(u32, u32)> {
        match self {
            Row::Device(_) => None,
            Row::Process(_, process) => Some((process.device, process.pid)),
        }
    }

    /// What is shown first when there is no room for all: watched processes, then devices, then the largest.
    fn rank(&self) -> (u8, u64) {
        match self {
            Row::Process(_, process) if process.watched => (0, 0),
            Row::Device(_) => (1, 0),
            Row::Process(_, process) => (2, u64::MAX - process.used.unwrap_or(u64::MAX)),
        }
    }
}

fn rows<'a>(cx: &Cx<'a>) -> Vec<Row<'a>> {
    let devices = &cx.snapshot.devices;
    let mut rows = Vec::new();
    for device in devices {
        if devices.len() > 1 || device.processes.is_empty() {
            rows.push(Row::Device(device));
        }
        let kept = device.processes.iter().filter(|process| cx.state.filter.keeps(*process));
        rows.extend(kept.map(|process| Row::Process(device, process)));
    }
    rows
}

/// The place of the selected process; of the first one when none is.
fn selected(rows: &[Row<'_>], chosen: Option<(u32, u32)>) -> Option<usize> {
    let chosen = rows.iter().position(|row| row.key().is_some() && row.key() == chosen);
    chosen.or_else(|| rows.iter().position(|row| row.key().is_some()))
}

/// The process `by` rows away from the selected one.
pub(crate) fn moved(snapshot: &Snapshot, state: &ViewState, by: isize) -> Option<(u32, u32)> {
    let all = snapshot.devices.iter().flat_map(|device| &device.processes);
    let keys: Vec<(u32, u32)> =
        all.filter(|row| state.filter.keeps(*row)).map(|row| (row.device, row.pid)).collect();
    let at = keys.iter().position(|key| Some(*key) == state.memory_row).unwrap_or(0);
    keys.get(at.saturating_add_signed(by).min(keys.len().checked_sub(1)?)).copied()
}

/// How many lines it would take to show all of it on a screen of this width.
pub(super) fn wanted(cx: &Cx<'_>, screen: u16) -> usize {
    let most = (usize::from(screen).saturating_sub(4) / COLUMN).max(1);
    let all = rows(cx).len();
    all.min(4).max(all.div_ceil(most)).max(1)
}

/// How many lines the pane takes with all rows one below the other.
pub(super) fn all(cx: &Cx<'_>) -> usize {
    rows(cx).len().max(1)
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let (cells, height) = (usize::from(place.inner().width), usize::from(place.inner().height));
    let rows = rows(cx);
    let all = rows.len();
    let processes = rows.iter().filter(|row| matches!(row, Row::Process(..))).count();
    // Side by side only when one below the other does not do.
    let columns = rows.len().div_ceil(height.max(1)).clamp(1, (cells / COLUMN).max(1));
    let room = height * columns;
    let at = place.focused.then(|| selected(&rows, cx.state.memory_row)).flatten();
    let top = at.map_or(0, |at| (at + 1).saturating_sub(room.max(1)));
    let selected = at.and_then(|at| rows.get(at)).and_then(Row::key);
    let rows: Vec<Row<'_>> = if top > 0 || cx.state.tab > 0 {
        rows.into_iter().skip(top).take(room).collect()
    } else {
        most_important(rows, room)
    };
    let shown = rows.iter().filter(|row| matches!(row, Row::Process(..))).count();
    let title = match cx.snapshot.devices.as_slice() {
        [one] if cells < 60 => format!("GPU memory  {}", used_and_total(one)),
        [one] => format!("GPU memory by process  {}  {}", device_name(one), used_of_total(one)),
        [] => "GPU memory by process".to_owned(),
        many => format!("GPU memory by process  {} GPUs", many.len()),
    };
    let inner = canvas.pane(place, &title, &note(cx, processes, shown));
    canvas.seen.rows[Pane::Memory as usize] = room;
    canvas.seen.all[Pane::Memory as usize] = all;
    if cx.snapshot.devices.is_empty() {
        let why = cx.snapshot.device_note.as_deref().unwrap_or("no sample yet");
        for (row, line) in wrap(&format!("memory ?: {why}"), cells).into_iter().enumerate() {
            canvas.spans(inner, row, vec![cx.theme().span(line, Role::Warn)]);
        }
        return;
    }
    let gap = 2;
    let column_cells = (cells - (gap * (columns - 1)).min(cells)) / columns;
    for (i, row) in rows.iter().enumerate() {
        let spans = match row {
            Row::Device(device) => device_line(cx, device, column_cells),
            Row::Process(device, process) => process_line(cx, device, process, column_cells),
        };
        let at = (i / height.max(1) * (column_cells + gap)) as u16;
        let column = Rect {
            x: inner.x.saturating_add(at),
            width: (column_cells as u16).min(inner.width.saturating_sub(at)),
            ..inner
        };
        let line = i % height.max(1);
        canvas.spans(column, line, spans);
        if let Some(key) = row.key() {
            canvas.target_row(column, line, Target::Memory(key));
            if selected == Some(key) {
                canvas.restyle(column, line, cx.theme().style(Role::Selected));
            }
        }
    }
}

/// The `room` rows that matter most, in their order.
fn most_important(rows: Vec<Row<'_>>, room: usize) -> Vec<Row<'_>> {
    if rows.len() <= room {
        return rows;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| rows[i].rank());
    order.truncate(room);
    let mut keep = vec![false; rows.len()];
    for i in order {
        keep[i] = true;
    }
    rows.into_iter().zip(keep).filter_map(|(row, keep)| keep.then_some(row)).collect()
}

/// What was left out, how old the samples are, and what a single device is doing.
fn note(cx: &Cx<'_>, processes: usize, shown: usize) -> String {
    let devices = &cx.snapshot.devices;
    let mut notes = Vec::new();
    let all: usize = devices.iter().map(|device| device.processes.len()).sum();
    if processes < all {
        notes.push(format!("filter keeps {processes} of {}", units::some(all, "process")));
    }
    if shown < processes {
        notes.push(format!("{}, {} shown", units::some(processes, "process"), units::count(shown as u64)));
    }
    let oldest = devices.iter().max_by(|a, b| a.age.total_cmp(&b.age));
    if let Some(oldest) = oldest.filter(|device| device.age > STALE) {
        let which = if devices.len() > 1 { format!("#{} ", oldest.index) } else { String::new() };
        notes.push(format!("{which}STALE {}", units::age(oldest.age)));
    }
    match (devices.as_slice(), &cx.snapshot.device_note) {
        ([], _) => {}
        (_, Some(note)) => notes.push(note.clone()),
        ([one], None) => notes.push(doing(one)),
        (_, None) => {}
    }
    notes.retain(|note| !note.is_empty());
    notes.join(" · ")
}

/// `97 % busy · 412 W · 54 °C`.
fn doing(device: &Device) -> String {
    let busy = device.gpu_percent.map(|percent| format!("{percent} % busy"));
    let watts = device.watts.map(|watts| format!("{watts:.0} W"));
    let celsius = device.celsius.map(|celsius| format!("{celsius} °C"));
    let held = (!device.throttle.is_empty()).then(|| format!("held down: {}", device.throttle.join(", ")));
    [busy, watts, celsius, held].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

pub(super) fn device_name(device: &Device) -> String {
    format!("{} #{}", device.name.trim_start_matches("NVIDIA ").trim(), device.index)
}

/// `46.0 of 139.8 GiB`.
fn used_and_total(device: &Device) -> String {
    let gib = |bytes: u64| format!("{:.1}", bytes as f64 / 1_073_741_824.0);
    let used = device.memory_used.map_or_else(|| "?".to_owned(), gib);
    let total = device.memory_total.map_or_else(|| "?".to_owned(), |total| format!("{} GiB", gib(total)));
    let shared = if device.unified { " shared with the host" } else { "" };
    format!("{used} of {total}{shared}")
}

/// `46.0 of 139.8 GiB`, with how it went.
fn used_of_total(device: &Device) -> String {
    let trend = match device.memory_total {
        Some(total) if device.history.len() > 1 => {
            // All of the history, the most of each part.
            let parts = device.history.chunks(device.history.len().div_ceil(TREND));
            let most = parts.map(|part| part.iter().map(|(_, used)| *used).max().unwrap_or(0) as f64);
            let cells = most.len();
            format!(" {}", sparkline(most, total as f64, cells))
        }
        _ => String::new(),
    };
    used_and_total(device) + &trend
}

fn share(used: Option<u64>, total: Option<u64>) -> f64 {
    match (used, total) {
        (Some(used), Some(total)) if total > 0 => used as f64 / total as f64,
        _ => 0.0,
    }
}

/// Cells of the bar and of the name in a row of `cells` cells.
fn measures(cells: usize) -> (usize, usize) {
    if cells < 50 {
        return (0, cells.saturating_sub(25).max(8));
    }
    let bar = (cells / 7).min(24);
    (bar, cells.saturating_sub(bar + 27).clamp(8, 28))
}

fn device_line(cx: &Cx<'_>, device: &Device, cells: usize) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let (bar_cells, name_cells) = measures(cells);
    let bar = bar(share(device.memory_used, device.memory_total), bar_cells);
    let parts = vec![
        Part::new(0, vec![theme.span(left(&device_name(device), name_cells.min(14)), Role::Strong)]),
        Part::new(2, vec![theme.span(bar, Role::Good)]),
        Part::new(0, vec![theme.span(used_of_total(device), Role::Plain)]),
        Part::new(1, vec![theme.span(doing(device), Role::Dim)]),
    ];
    fit(parts, " ", cells).0
}

fn process_line(cx: &Cx<'_>, device: &Device, process: &ProcessMemory, cells: usize) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let (bar_cells, name_cells) = measures(cells);
    let on = if cx.snapshot.devices.len() > 1 { format!("#{} ", device.index) } else { String::new() };
    let pid = format!(" {}", process.pid);
    let name = cut_end(&process.name, name_cells.saturating_sub(width(&pid) + width(&on)));
    let used = process.used.map_or_else(|| "? MiB".to_owned(), units::mib);
    let rate = process.per_minute.map_or_else(|| "?".to_owned(), units::grown);
    let moving = process.per_minute.is_some_and(|rate| rate.unsigned_abs() >= 1 << 20);
    let part = share(process.used, device.memory_total);
    let of_device = if process.used.is_some() { units::percent(part) } else { "?".to_owned() };
    let (name_role, bar_role) =
        if process.watched { (Role::Strong, Role::Good) } else { (Role::Plain, Role::Dim) };
    let mut parts = vec![
        Part::new(0, vec![theme.span(left(&format!("{on}{name}{pid}"), name_cells), name_role)]),
        Part::new(2, vec![theme.span(bar(part, bar_cells), bar_role)]),
        Part::new(0, vec![theme.span(right(&used, 11), Role::Plain)]),
    ];
    if process.watched || cells > 70 {
        let rate = theme.span(right(&format!("{rate}/min"), 12), if moving { Role::Warn } else { Role::Dim });
        parts.push(Part::new(1, vec![rate]));
        parts.push(Part::new(4, vec![theme.span(right(&of_device, 8), Role::Dim)]));
    }
    if !process.watched {
        parts.push(Part::new(1, vec![theme.span(" not watched", Role::Dim)]));
    }
    fit(parts, " ", cells).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_bar() {
        assert!(share(None, Some(5)) < f64::EPSILON);
        assert!(share(Some(5), None) < f64::EPSILON);
        assert!((share(Some(1), Some(4)) - 0.25).abs() < f64::EPSILON);
    }
}
