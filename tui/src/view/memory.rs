//! GPU memory by process on each device: everybody who is there, watched or not, and how it moves.

use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::state::Pane;
use super::text::{cut_end, left, right, width};
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{Device, ProcessMemory};

/// Seconds after which a sample is old enough to say so.
const STALE: f64 = 3.0;
/// The least of a device's memory that is worth an eighth of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One line of the pane.
enum Row<'a> {
    /// A device and what is used of it.
    Device(&'a Device),
    /// A process on a device.
    Process(&'a Device, &'a ProcessMemory),
}

impl Row<'_> {
    /// What is shown first when there is no room for all: watched processes, then devices, then the largest.
    fn rank(&self) -> (u8, u64) {
        match self {
            Row::Process(_, process) if process.watched => (0, 0),
            Row::Device(_) => (1, 0),
            Row::Process(_, process) => (2, u64::MAX - process.used.unwrap_or(u64::MAX)),
        }
    }
}

/// How many lines it would take to show all of it.
pub(super) fn wanted(cx: &Cx<'_>) -> usize {
    rows(cx).len().max(1)
}

fn rows<'a>(cx: &Cx<'a>) -> Vec<Row<'a>> {
    let devices = &cx.snapshot.devices;
    let mut rows = Vec::new();
    for device in devices {
        if devices.len() > 1 || device.processes.is_empty() {
            rows.push(Row::Device(device));
        }
        rows.extend(device.processes.iter().map(|process| Row::Process(device, process)));
    }
    rows
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let (cells, height) = (usize::from(place.inner().width), usize::from(place.inner().height));
    let rows = rows(cx);
    let all = rows.len();
    let processes = rows.iter().filter(|row| matches!(row, Row::Process(..))).count();
    let top = if place.focused { cx.state.top(Pane::Memory, all, height) } else { 0 };
    let rows: Vec<Row<'_>> = if top > 0 || cx.state.tab > 0 {
        rows.into_iter().skip(top).take(height).collect()
    } else {
        most_important(rows, height)
    };
    let shown = rows.iter().filter(|row| matches!(row, Row::Process(..))).count();
    let mut notes = Vec::new();
    if shown < processes {
        notes.push(format!("{processes} processes, {shown} shown"));
    }
    if let Some(age) = stale(cx) {
        notes.push(age);
    }
    let title = match cx.snapshot.devices.as_slice() {
        [one] => format!("GPU memory by process  {}", device_words(one)),
        [] => "GPU memory by process".to_owned(),
        many => format!("GPU memory by process  {} GPUs", many.len()),
    };
    let inner = canvas.pane(place, &title, &notes.join(" · "));
    canvas.seen.rows[Pane::Memory as usize] = height;
    canvas.seen.all[Pane::Memory as usize] = all;
    if cx.snapshot.devices.is_empty() {
        unknown(cx, inner, canvas);
        return;
    }
    let name_cells = (cells / 4).clamp(8, 26);
    for (i, row) in rows.iter().enumerate() {
        let spans = match row {
            Row::Device(device) => device_line(cx, device, name_cells, cells),
            Row::Process(device, process) => process_line(cx, device, process, name_cells, cells),
        };
        canvas.spans(inner, i, spans);
    }
}

/// Without NVML: what CUPTI's side knows is nothing, and that is said.
fn unknown(cx: &Cx<'_>, inner: ratatui::layout::Rect, canvas: &mut Canvas<'_>) {
    let why = cx.snapshot.device_note.as_deref().unwrap_or("no sample yet");
    canvas.spans(inner, 0, vec![cx.theme().span(format!("memory ?  {why}"), Role::Warn)]);
}

/// The `height` rows that matter most, in their order.
fn most_important(rows: Vec<Row<'_>>, height: usize) -> Vec<Row<'_>> {
    if rows.len() <= height {
        return rows;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| rows[i].rank());
    order.truncate(height);
    rows.into_iter().enumerate().filter(|(i, _)| order.contains(i)).map(|(_, row)| row).collect()
}

/// The age of the oldest sample when it is not fresh, or what else is to say about the samples.
fn stale(cx: &Cx<'_>) -> Option<String> {
    let oldest = cx.snapshot.devices.iter().map(|device| device.age).fold(0.0, f64::max);
    match &cx.snapshot.device_note {
        _ if cx.snapshot.devices.is_empty() => None,
        Some(note) => Some(format!("{note}, {} old", units::age(oldest))),
        None => (oldest > STALE).then(|| format!("STALE {}", units::age(oldest))),
    }
}

/// `H200 #0  46.0 of 139.8 GiB`.
fn device_words(device: &Device) -> String {
    format!("{}  {}", device_name(device), used_of_total(device))
}

fn device_name(device: &Device) -> String {
    format!("{} #{}", device.name.trim_start_matches("NVIDIA ").trim(), device.index)
}

fn used_of_total(device: &Device) -> String {
    let used = device.memory_used.map_or_else(|| "?".to_owned(), gib);
    let total = device.memory_total.map_or_else(|| "?".to_owned(), |total| format!("{} GiB", gib(total)));
    let shared = if device.unified { " shared with the host" } else { "" };
    format!("{used} of {total}{shared}")
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1_073_741_824.0)
}

/// `▇▇▇▍   `: the share of the device's memory, in eighths of a cell.
fn bar(share: f64, cells: usize) -> String {
    let eighths =
        ((share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize).max(usize::from(share > 0.0));
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    left(&bar, cells)
}

fn share(used: Option<u64>, total: Option<u64>) -> f64 {
    match (used, total) {
        (Some(used), Some(total)) if total > 0 => used as f64 / total as f64,
        _ => 0.0,
    }
}

fn device_line(cx: &Cx<'_>, device: &Device, name_cells: usize, cells: usize) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let bar_cells = (cells / 6).min(24);
    let mut spans = vec![
        theme.span(left(&device_name(device), name_cells), Role::Strong),
        Span::raw(" "),
        theme.span(bar(share(device.memory_used, device.memory_total), bar_cells), Role::Good),
        theme.span(format!(" {}", used_of_total(device)), Role::Plain),
    ];
    let mut more = Vec::new();
    if let Some(percent) = device.gpu_percent {
        more.push(format!("{percent} % busy"));
    }
    if let Some(watts) = device.watts {
        more.push(format!("{watts:.0} W"));
    }
    if let Some(celsius) = device.celsius {
        more.push(format!("{celsius} °C"));
    }
    let more = more.join("  ");
    let taken: usize = spans.iter().map(Span::width).sum();
    if !more.is_empty() && taken + 2 + width(&more) <= cells {
        spans.push(theme.span(format!("  {more}"), Role::Dim));
    }
    spans
}

fn process_line(
    cx: &Cx<'_>,
    device: &Device,
    process: &ProcessMemory,
    name_cells: usize,
    cells: usize,
) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let bar_cells = (cells / 6).min(24);
    let indent = if cx.snapshot.devices.len() > 1 { "  " } else { "" };
    let pid = format!(" {}", process.pid);
    let name = cut_end(&process.name, name_cells.saturating_sub(width(&pid) + indent.len()));
    let role = if process.watched { Role::Strong } else { Role::Plain };
    let used = process.used.map_or_else(|| "? MiB".to_owned(), units::mib);
    let rate = process.per_minute.map_or_else(|| "?".to_owned(), units::per_minute);
    let moving = process.per_minute.is_some_and(|rate| rate.unsigned_abs() >= 1 << 20);
    let mut spans = vec![
        theme.span(left(&format!("{indent}{name}{pid}"), name_cells), role),
        Span::raw(" "),
        theme.span(
            bar(share(process.used, device.memory_total), bar_cells),
            if process.watched { Role::Good } else { Role::Dim },
        ),
        theme.span(right(&used, 13), Role::Plain),
        theme.span(right(&format!("{rate}/min"), 13), if moving { Role::Warn } else { Role::Dim }),
    ];
    if !process.watched {
        spans.push(theme.span("  not watched", Role::Dim));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_exact_to_an_eighth_and_never_hides_a_process() {
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(0.0001, 4), "▏   ");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.55, 4), "██▎ ");
        assert_eq!(bar(7.0, 4), "████");
        assert!(share(None, Some(5)) < f64::EPSILON);
    }
}
