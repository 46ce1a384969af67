//! Kernels by name, by family or by graph: how often, how long, which share of the GPU's time, and how that went. What
//! was seen in windows only is scaled to all of the time, with its 95 % interval.

use gtop_protocol::Kind;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::names::labels;
use super::rows::{Group, Row, rows, selected};
use super::sampled::{self, about};
use super::spark::sparkline;
use super::state::{Pane, Sort};
use super::subjects::Kernel;
use super::text::{cut_end, left, right, width};
use super::theme::{Role, Theme};
use super::{Cx, Target, units};
use super::{block, detail, durations};
use crate::model::snapshot::{KernelName, KernelRow};

/// The fewest lines for what is selected, in full.
const IN_FULL: usize = 8;
/// Cells of the sparkline.
const TREND: usize = 8;
/// The fewest cells a name is worth.
const MIN_NAME: usize = 14;
/// The fewest cells behind it in which the full name is worth something.
const WITH_FULL_NAME: usize = 24;
/// A longer name is told without it.
const LONG_NAME: usize = 56;
/// From so many lines on there is room for the durations of the selected kernel; the fewest and the most they take.
const WITH_DURATIONS: usize = 18;
const DURATIONS: (usize, usize) = (8, 16);
/// From so many lines left on there is room for that on the overview, too.
const SPARE: usize = 24;

/// One column beside the name.
struct Column {
    head: &'static str,
    cells: usize,
    /// Cells for an estimate with its interval; 0 when there is none of it.
    estimated: usize,
    /// The higher, the sooner it gives way.
    rank: u8,
    sort: Sort,
    text: fn(&KernelRow) -> String,
}

impl Column {
    fn cells(&self, also: Also) -> usize {
        let cells = if also.estimated { self.cells.max(self.estimated) } else { self.cells };
        // The arrow of the order needs a cell, and a blank before the head.
        if self.is_order(also.sort) { cells.max(width(self.head) + 2) } else { cells }
    }

    /// Whether it shows what the rows are sorted by.
    fn is_order(&self, sort: Option<Sort>) -> bool {
        sort == Some(self.sort) && !matches!(self.head, "total" | "trend")
    }
}

/// In the order they are drawn.
const COLUMNS: [Column; 11] = [
    column("calls", 13, 14, 6, Sort::Calls, |row| match row.estimate {
        Some(estimate) => about(estimate.calls, units::glance),
        None => units::count(row.calls),
    }),
    column("calls/s", 8, 13, 3, Sort::Rate, |row| match row.estimate {
        Some(estimate) => about(estimate.per_second, units::glance),
        None => row.per_second.map_or_else(|| "?".to_owned(), units::glance),
    }),
    column("total", 9, 14, 7, Sort::Share, |row| match row.estimate {
        Some(estimate) => about(estimate.total_ns, |ns| units::duration(ns as u64)),
        None => valid(row, row.total_ns),
    }),
    column("min", 9, 0, 8, Sort::Shortest, |row| valid(row, row.min_ns)),
    column("p50", 9, 0, 1, Sort::Median, |row| valid(row, row.p50_ns)),
    column("p99", 9, 0, 2, Sort::Tail, |row| valid(row, row.p99_ns)),
    column("max", 9, 0, 9, Sort::Longest, |row| valid(row, row.max_ns)),
    column("invalid", 9, 0, 4, Sort::Invalid, |row| units::count(row.invalid)),
    column("share", 8, 13, 0, Sort::Share, |row| match row.estimate {
        Some(estimate) => sampled::share(Some(estimate.share)),
        None => valid_or(row, || units::percent(row.share)),
    }),
    column("change", 9, 0, 0, Sort::Change, |_| String::new()),
    column("trend", TREND + 2, 0, 5, Sort::Share, |_| String::new()),
];

const fn column(
    head: &'static str,
    cells: usize,
    estimated: usize,
    rank: u8,
    sort: Sort,
    text: fn(&KernelRow) -> String,
) -> Column {
    Column { head, cells, estimated, rank, sort, text }
}

/// A time of believable records, `?` when there is none.
fn valid(row: &KernelRow, ns: u64) -> String {
    valid_or(row, || units::duration(ns))
}

fn valid_or(row: &KernelRow, text: impl FnOnce() -> String) -> String {
    if row.calls == 0 { "?".to_owned() } else { text() }
}

/// What there is to be seen besides what always is.
#[derive(Clone, Copy, Default)]
struct Also {
    invalid: bool,
    change: bool,
    estimated: bool,
    sort: Option<Sort>,
}

/// The columns that fit beside a name in `cells` cells, and the cells left for the name; `longest` is the longest.
fn columns(cells: usize, also: Also, longest: usize) -> (Vec<&'static Column>, usize) {
    let wanted = longest.clamp(MIN_NAME, if cells >= 110 { 36 } else { 26 });
    let there = |column: &&Column| match column.head {
        "invalid" => also.invalid || column.is_order(also.sort),
        "change" => also.change,
        _ => true,
    };
    let mut shown: Vec<&Column> = COLUMNS.iter().filter(there).collect();
    loop {
        let taken: usize = shown.iter().map(|column| column.cells(also)).sum::<usize>() + 2;
        let least = if shown.len() > 2 { wanted } else { MIN_NAME };
        if shown.is_empty() || taken + least <= cells {
            return (shown, cells.saturating_sub(taken));
        }
        // What the rows are sorted by is the last to give way.
        let rank = |column: &Column| if column.is_order(also.sort) { 0 } else { column.rank };
        if let Some(worst) = (0..shown.len()).max_by_key(|&i| rank(shown[i])) {
            shown.remove(worst);
        }
    }
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let rows = cx.process.map_or_else(Vec::new, |process| rows(process, cx.state));
    let height = usize::from(place.inner().height);
    let roomy = if cx.state.tab > 0 { height >= WITH_DURATIONS } else { height >= rows.len() + SPARE };
    let durations = if roomy && !rows.is_empty() {
        height.saturating_sub(rows.len() + 2).clamp(DURATIONS.0, DURATIONS.1)
    } else {
        0
    };
    let room = height.saturating_sub(1 + durations);
    let at = selected(&rows, cx.state.kernel);
    let top = if place.focused { (at + 1).saturating_sub(room.max(1)) } else { 0 };
    let shown: Vec<&Row<'_>> = rows.iter().skip(top).take(room).collect();
    let inner = canvas.pane(place, &title(cx), &note(cx, &rows, shown.len()));
    canvas.seen.rows[Pane::Kernels as usize] = room;
    canvas.seen.all[Pane::Kernels as usize] = rows.len();
    if rows.is_empty() {
        canvas.spans(inner, 0, vec![theme.span(empty(cx), Role::Dim)]);
        return;
    }
    let longest = rows.iter().map(|row| width(&row.stats.name.short)).max().unwrap_or(0);
    let also = Also {
        invalid: rows.iter().any(|row| row.stats.invalid > 0),
        change: cx.state.baseline.is_some() && cx.state.group != Group::Graph,
        estimated: rows.iter().any(|row| row.stats.estimate.is_some()),
        sort: Some(cx.state.sort),
    };
    let (columns, room) = columns(usize::from(inner.width), also, longest);
    // Numbers far from the names they belong to are hard to read.
    let name_cells = room.min(widest(&rows, longest));
    let columns: Vec<(&Column, usize)> =
        columns.into_iter().map(|column| (column, column.cells(also))).collect();
    heads(cx, inner, &columns, name_cells, canvas);
    let names: Vec<&KernelName> = shown.iter().map(|row| row.stats.name.as_ref()).collect();
    let peak = rows.iter().flat_map(|row| row.stats.trend.iter().copied()).fold(0.0, f32::max);
    let labels = labels(&names, name_cells);
    let beside = beside(&labels, name_cells);
    for (i, (row, label)) in shown.iter().zip(&labels).enumerate() {
        let here = place.focused && top + i == at;
        let style = theme.kernel(&row.stats.name.full);
        let mut spans = vec![Span::styled(if here { "▸ " } else { "■ " }, style)];
        spans.extend(named(theme, label, &row.stats.name, name_cells, beside));
        for (column, cells) in &columns {
            spans.push(cell(cx, column, *cells, row, peak));
        }
        canvas.spans(inner, i + 1, spans);
        canvas.target_row(inner, i + 1, Target::Kernel(row.stats.id));
        if here {
            canvas.restyle(inner, i + 1, theme.style(Role::Selected));
        }
    }
    if durations > 0 {
        let top = inner.height.saturating_sub(durations as u16);
        let area = Rect { y: inner.y.saturating_add(top), height: durations as u16, ..inner };
        durations::draw(cx, area, &rows[at].stats, canvas);
        // What is selected is told in full where the list leaves room for it.
        let spare = usize::from(top).saturating_sub(shown.len() + 1);
        if spare >= IN_FULL {
            let (title, lines) = detail::row(cx.state, &rows[at]);
            let area = Rect { y: area.y - spare as u16 + 1, height: spare as u16 - 1, ..inner };
            block::draw(cx, area, &title, &lines, canvas);
        }
    }
}

/// The most cells names can take: the longest short form, and the longest full name behind it.
fn widest(rows: &[Row<'_>], longest: usize) -> usize {
    let names = rows.iter().map(|row| &row.stats.name);
    let full = names.filter(|name| !name.full.starts_with(&name.short)).map(|name| name.full.len()).max();
    longest + full.map_or(0, |full| full + 2) + 2
}

/// A name in so many cells. Where the short forms leave many of them the full name stands behind, from the cell `beside`.
fn named(theme: Theme, label: &str, name: &KernelName, cells: usize, beside: usize) -> [Span<'static>; 2] {
    if width(label) > beside || name.full.starts_with(label) {
        return [theme.span(left(label, cells), Role::Plain), Span::default()];
    }
    let full = left(&format!("  {}", cut_end(&name.full, cells - beside - 2)), cells - beside);
    [theme.span(left(label, beside), Role::Plain), theme.span(full, Role::Dim)]
}

/// The cells of the short forms beside which there is room for full names in so many cells; a few long ones do without.
fn beside(labels: &[String], cells: usize) -> usize {
    let most = cells.saturating_sub(WITH_FULL_NAME + 2).min(LONG_NAME);
    labels.iter().map(|label| width(label)).filter(|cells| *cells <= most).max().unwrap_or(0)
}

fn title(cx: &Cx<'_>) -> String {
    let what = match cx.state.group {
        Group::Kernel => "Kernels",
        Group::Template => "Templates",
        Group::Family => "Families",
        Group::Graph => "Graphs",
    };
    let order = if cx.state.reversed { ", the least first" } else { "" };
    let compared = match (&cx.state.baseline, cx.state.group) {
        (Some(baseline), group) if group != Group::Graph => {
            format!("  {} {}", if baseline.earlier { "since" } else { "against" }, baseline.label)
        }
        _ => String::new(),
    };
    format!("{what} by {}{order}{compared}", cx.state.sort.name())
}

fn note(cx: &Cx<'_>, rows: &[Row<'_>], shown: usize) -> String {
    let mut notes = Vec::new();
    let group = cx.state.group.name();
    match rows.len() {
        0 => {}
        all if all == shown => notes.push(format!("all {}", units::some(all, group))),
        all => notes.push(format!("{}, {} shown", units::some(all, group), units::count(shown as u64))),
    }
    let rare = cx.process.and_then(|process| process.sampling.as_ref()?.rare_below);
    if let Some(rare) = rare.filter(|_| rows.iter().any(|row| row.stats.estimate.is_some())) {
        notes.push(format!("below {} calls maybe unseen", units::count(rare)));
    }
    let all = cx.process.map_or(0, |process| process.kernels.len());
    let kept: usize = rows.iter().map(|row| row.members).sum();
    if !cx.state.filter.is_empty() && cx.state.group != Group::Graph {
        notes.insert(
            0,
            format!("filter keeps {} of {}", units::count(kept as u64), units::some(all, "kernel")),
        );
        let row = cx.process.and_then(|process| process.kernels.iter().find(|row| row.calls > 0));
        let unanswered =
            row.map_or_else(Vec::new, |row| cx.state.filter.unanswered(&Kernel(row, &cx.state.families)));
        if !unanswered.is_empty() {
            notes.insert(0, format!("{} not asked of names", unanswered.join(" ")));
        }
    }
    if rows.iter().any(|row| row.stats.rate().is_none()) {
        notes.extend(why_no_rate(cx));
    }
    notes.join(" · ")
}

/// Why calls a second are not known, where that needs saying.
fn why_no_rate(cx: &Cx<'_>) -> Option<String> {
    let process = cx.process?;
    let windows = process.sampling.as_ref().is_some_and(|sampling| sampling.budget_ppm > 0);
    let why = match () {
        () if process.is_full() => "the pool is full",
        () if process.heard.kinds && !process.kinds.enabled.has(Kind::Kernel) => "kernel is off",
        () if windows => "too few windows yet",
        () => return None,
    };
    Some(format!("calls/s ?: {why}"))
}

fn heads(cx: &Cx<'_>, inner: Rect, columns: &[(&Column, usize)], name_cells: usize, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let arrow = match (cx.theme().ascii, cx.state.reversed) {
        (false, false) => "↓",
        (false, true) => "↑",
        // A letter would be one of the word's.
        (true, false) => ">",
        (true, true) => "<",
    };
    let written = |head: &str, sort: Sort| {
        let sorted = sort == cx.state.sort && !matches!(head, "total" | "trend");
        (if sorted { format!("{head}{arrow}") } else { head.to_owned() }, sorted)
    };
    let role = |sorted| if sorted { Role::Plain } else { Role::Dim };
    let (name, sorted) = written(cx.state.group.name(), Sort::Name);
    let mut spans = vec![theme.span(left(&format!("  {name}"), name_cells + 2), role(sorted))];
    let mut at = name_cells + 2;
    let mut target = |from: usize, cells: usize, sort: Sort| {
        let x = inner.x.saturating_add(from as u16);
        let area = Rect { x, width: cells as u16, height: 1, ..inner };
        canvas.target(area.intersection(inner), Target::Column(sort));
    };
    target(0, at, Sort::Name);
    for (column, cells) in columns {
        let (head, sorted) = written(column.head, column.sort);
        let text = match column.head {
            "trend" => format!("  {}", left(&head, TREND)),
            _ => right(&head, *cells),
        };
        target(at, *cells, column.sort);
        at += cells;
        spans.push(theme.span(text, role(sorted)));
    }
    canvas.spans(inner, 0, spans);
}

fn cell(cx: &Cx<'_>, column: &Column, cells: usize, row: &Row<'_>, peak: f32) -> Span<'static> {
    let theme: Theme = cx.theme();
    let stats = &row.stats;
    match column.head {
        "trend" => {
            let trend = sparkline(stats.trend.iter().map(|share| f64::from(*share)), f64::from(peak), TREND);
            Span::styled(format!("  {trend}"), theme.kernel(&stats.name.full))
        }
        "change" => {
            let change = cx.state.baseline.as_ref().and_then(|baseline| row.change(baseline));
            let role = match change {
                Some(change) if change >= 0.05 => Role::Warn,
                Some(change) if change <= -0.05 => Role::Good,
                Some(_) => Role::Plain,
                None => Role::Dim,
            };
            let text = change.map_or_else(|| "?".to_owned(), units::change);
            theme.span(right(&text, cells), role)
        }
        "invalid" if stats.invalid > 0 => theme.span(right(&(column.text)(stats), cells), Role::Alarm),
        "share" => theme.span(right(&(column.text)(stats), cells), Role::Strong),
        _ => theme.span(right(&(column.text)(stats), cells), Role::Plain),
    }
}

/// Why there is nothing to list.
fn empty(cx: &Cx<'_>) -> &'static str {
    match cx.process {
        None => "no process is watched",
        Some(process) if process.cupti.is_none() => "none yet: CUPTI was not called",
        Some(process) if process.kernels.is_empty() => "no kernel record yet",
        Some(_) if cx.state.filter.is_empty() => "no kernel ran in a graph",
        Some(_) => "the filter keeps none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_way_and_the_name_stays() {
        let heads = |cells, invalid, change| {
            let (columns, _) = columns(cells, Also { invalid, change, ..Also::default() }, 40);
            columns.iter().map(|column| column.head).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(heads(200, false, false), "calls calls/s total min p50 p99 max share trend");
        assert_eq!(heads(76, false, false), "calls/s p50 p99 share trend");
        assert_eq!(heads(76, true, false), "calls/s p50 p99 invalid share");
        assert_eq!(heads(76, false, true), "calls/s p50 p99 share change");
        let by = |cells, sort| {
            let (columns, _) = columns(cells, Also { sort: Some(sort), ..Also::default() }, 40);
            columns.iter().map(|column| column.head).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(by(76, Sort::Invalid), "calls/s p50 p99 invalid share", "what is sorted by is shown");
        assert_eq!(by(25, Sort::Longest), "max");
        assert_eq!(heads(36, false, false), "p50 share");
        assert_eq!(heads(25, false, false), "share");
        assert_eq!(heads(10, false, false), "");
        assert_eq!(
            columns(76, Also { invalid: true, ..Also::default() }, 6).0.len(),
            6,
            "short names leave room"
        );
    }
}
