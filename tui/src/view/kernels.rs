//! Kernels by name: how often, how long, which share of the GPU's time, and how that share went.

use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::names::labels;
use super::spark::sparkline;
use super::state::{Pane, Sort};
use super::text::{left, right, width};
use super::theme::{Role, Theme};
use super::{Cx, Target, units};
use crate::model::snapshot::{KernelName, KernelRow, Process};

/// Cells of the sparkline.
const TREND: usize = 8;
/// The fewest cells a name is worth.
const MIN_NAME: usize = 14;

/// The kernels in the order of `sort`; equal ones by name, so that rows do not dance.
pub(crate) fn sorted(process: &Process, sort: Sort) -> Vec<&KernelRow> {
    let mut rows: Vec<&KernelRow> = process.kernels.iter().collect();
    let by_name = |a: &KernelRow, b: &KernelRow| a.name.short.cmp(&b.name.short).then(a.id.cmp(&b.id));
    match sort {
        Sort::Share => rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| by_name(a, b))),
        Sort::Rate => rows.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then_with(|| by_name(a, b))),
        Sort::Median => rows.sort_by(|a, b| b.p50_ns.cmp(&a.p50_ns).then_with(|| by_name(a, b))),
        Sort::Tail => rows.sort_by(|a, b| b.p99_ns.cmp(&a.p99_ns).then_with(|| by_name(a, b))),
        Sort::Invalid => rows.sort_by(|a, b| b.invalid.cmp(&a.invalid).then_with(|| by_name(a, b))),
        Sort::Name => rows.sort_by(|a, b| by_name(a, b)),
    }
    rows
}

/// The place of the selected kernel among `rows`; the first when none is.
pub(crate) fn selected(rows: &[&KernelRow], kernel: Option<u32>) -> usize {
    rows.iter().position(|row| Some(row.id) == kernel).unwrap_or(0)
}

/// One column beside the name.
struct Column {
    head: &'static str,
    cells: usize,
    /// The higher, the sooner it gives way.
    rank: u8,
    text: fn(&KernelRow) -> String,
}

/// In the order they are drawn.
const COLUMNS: [Column; 10] = [
    Column { head: "calls", cells: 13, rank: 6, text: |row| units::count(row.calls) },
    Column { head: "calls/s", cells: 8, rank: 3, text: |row| units::glance(row.per_second) },
    Column { head: "total", cells: 9, rank: 7, text: |row| valid(row, row.total_ns) },
    Column { head: "min", cells: 9, rank: 8, text: |row| valid(row, row.min_ns) },
    Column { head: "p50", cells: 9, rank: 1, text: |row| valid(row, row.p50_ns) },
    Column { head: "p99", cells: 9, rank: 2, text: |row| valid(row, row.p99_ns) },
    Column { head: "max", cells: 9, rank: 9, text: |row| valid(row, row.max_ns) },
    Column { head: "invalid", cells: 9, rank: 4, text: |row| units::count(row.invalid) },
    Column { head: "share", cells: 8, rank: 0, text: |row| valid_or(row, || units::percent(row.share)) },
    Column { head: "trend", cells: TREND + 2, rank: 5, text: |_| String::new() },
];

/// A time of believable records, `?` when there is none.
fn valid(row: &KernelRow, ns: u64) -> String {
    valid_or(row, || units::duration(ns))
}

fn valid_or(row: &KernelRow, text: impl FnOnce() -> String) -> String {
    if row.calls == 0 { "?".to_owned() } else { text() }
}

/// The columns that fit beside a name in `cells` cells, and the cells left for the name; `longest` is the longest.
fn columns(cells: usize, any_invalid: bool, longest: usize) -> (Vec<&'static Column>, usize) {
    let wanted = longest.clamp(MIN_NAME, if cells >= 110 { 36 } else { 26 });
    let mut shown: Vec<&Column> =
        COLUMNS.iter().filter(|column| column.head != "invalid" || any_invalid).collect();
    loop {
        let taken: usize = shown.iter().map(|column| column.cells).sum::<usize>() + 2;
        let least = if shown.len() > 2 { wanted } else { MIN_NAME };
        if shown.is_empty() || taken + least <= cells {
            return (shown, cells.saturating_sub(taken));
        }
        if let Some(worst) = (0..shown.len()).max_by_key(|&i| shown[i].rank) {
            shown.remove(worst);
        }
    }
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let rows = cx.process.map_or_else(Vec::new, |process| sorted(process, cx.state.sort));
    let height = usize::from(place.inner().height);
    let room = height.saturating_sub(1);
    let at = selected(&rows, cx.state.kernel);
    let top = if place.focused { (at + 1).saturating_sub(room.max(1)) } else { 0 };
    let shown: Vec<&&KernelRow> = rows.iter().skip(top).take(room).collect();
    let note = match rows.len() {
        0 => String::new(),
        all if all == shown.len() => format!("all {}", units::some(all, "kernel")),
        all => format!("{}, {} shown", units::some(all, "kernel"), shown.len()),
    };
    let title = format!("Kernels by {}", cx.state.sort.name());
    let inner = canvas.pane(place, &title, &note);
    canvas.seen.rows[Pane::Kernels as usize] = room;
    canvas.seen.all[Pane::Kernels as usize] = rows.len();
    if rows.is_empty() {
        canvas.spans(inner, 0, vec![theme.span(empty(cx), Role::Dim)]);
        return;
    }
    let longest = rows.iter().map(|row| width(&row.name.short)).max().unwrap_or(0);
    let any_invalid = rows.iter().any(|row| row.invalid > 0);
    let (columns, name_cells) = columns(usize::from(inner.width), any_invalid, longest);
    let heads = columns.iter().fold(left("  kernel", name_cells + 2), |line, column| {
        line + &if column.head == "trend" {
            format!("  {}", left(column.head, TREND))
        } else {
            right(column.head, column.cells)
        }
    });
    canvas.spans(inner, 0, vec![theme.span(heads, Role::Dim)]);
    let names: Vec<&KernelName> = shown.iter().map(|row| row.name.as_ref()).collect();
    let peak = rows.iter().flat_map(|row| row.trend.iter().copied()).fold(0.0, f32::max);
    for (i, (row, label)) in shown.iter().zip(labels(&names, name_cells)).enumerate() {
        let here = place.focused && top + i == at;
        let mut spans = vec![Span::styled(if here { "▸ " } else { "■ " }, theme.kernel(&row.name.full))];
        spans.push(theme.span(left(&label, name_cells), Role::Plain));
        for column in &columns {
            spans.push(cell(theme, column, row, peak));
        }
        canvas.spans(inner, i + 1, spans);
        canvas.target_row(inner, i + 1, Target::Kernel(row.id));
        if here {
            canvas.restyle(inner, i + 1, theme.style(Role::Selected));
        }
    }
}

fn cell(theme: Theme, column: &Column, row: &KernelRow, peak: f32) -> Span<'static> {
    match column.head {
        "trend" => Span::styled(format!("  {}", trend(row, peak)), theme.kernel(&row.name.full)),
        "invalid" if row.invalid > 0 => theme.span(right(&(column.text)(row), column.cells), Role::Alarm),
        "share" => theme.span(right(&(column.text)(row), column.cells), Role::Strong),
        _ => theme.span(right(&(column.text)(row), column.cells), Role::Plain),
    }
}

fn trend(row: &KernelRow, peak: f32) -> String {
    sparkline(row.trend.iter().map(|share| f64::from(*share)), f64::from(peak), TREND)
}

/// Why there is nothing to list.
fn empty(cx: &Cx<'_>) -> &'static str {
    match cx.process {
        None => "no process is watched",
        Some(process) if process.cupti.is_none() => "none yet: CUPTI was not called",
        Some(_) => "no kernel record yet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_way_and_the_name_stays() {
        let heads = |cells, invalid| {
            columns(cells, invalid, 40).0.iter().map(|column| column.head).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(heads(200, false), "calls calls/s total min p50 p99 max share trend");
        assert_eq!(heads(76, false), "calls/s p50 p99 share trend");
        assert_eq!(heads(76, true), "calls/s p50 p99 invalid share");
        assert_eq!(heads(36, false), "p50 share");
        assert_eq!(heads(25, false), "share");
        assert_eq!(heads(10, false), "");
        assert_eq!(columns(76, true, 6).0.len(), 6, "short names leave room");
    }

    #[test]
    fn rows_of_equal_weight_keep_their_order() {
        let row = |id, short: &str, total_ns| KernelRow {
            id,
            name: KernelName { short: short.into(), ..KernelName::default() }.into(),
            total_ns,
            ..KernelRow::default()
        };
        let process = Process {
            kernels: vec![row(1, "b", 5), row(2, "a", 5), row(3, "c", 9)].into(),
            ..Process::default()
        };
        let ids = |sort| sorted(&process, sort).iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(Sort::Share), [3, 2, 1]);
        assert_eq!(ids(Sort::Name), [2, 1, 3]);
        assert_eq!(selected(&sorted(&process, Sort::Share), Some(1)), 2);
        assert_eq!(selected(&sorted(&process, Sort::Share), Some(99)), 0);
    }
}
