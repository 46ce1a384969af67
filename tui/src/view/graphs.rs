//! The graphs: each executable graph with its launches and what it is made of, and beside the selected one its nodes.

use gtop_protocol::calls::result_name;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::account::flow;
use super::canvas::{Canvas, Part, Place, fit};
use super::graph_tree::tree;
use super::scale::newest_known;
use super::spark::sparkline;
use super::state::Pane;
use super::text::{cut_end, width};
use super::theme::Role;
use super::{Cx, ViewState, graphs_below, steps, subjects, units};
use crate::model::snapshot::{Capture, GraphRow, GraphsView, Process};

/// From this width on the selected graph's nodes stand beside the list.
const WIDE: u16 = 100;
/// From this height on nothing is left out above the list.
const TALL: u16 = 24;
/// Open captures that are told apart on a tall screen.
const OPEN: usize = 4;
/// Cells of the number alive over time, and the most time they stand for, nanoseconds.
const OVER_TIME: usize = 16;
const LONGEST: u64 = 600_000_000_000;

/// The head of the last column of the list.
const MOST: &str = "most of its time";

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let Some(process) = cx.process else {
        let inner = canvas.pane(place, "Graphs", "");
        canvas.spans(inner, 0, vec![theme.span("no process yet", Role::Dim)]);
        return;
    };
    let view = &process.graphs_view;
    let rows = kept(view, cx.state);
    let at = cx.state.top(Pane::Graphs, rows.len(), 1);
    let inner = canvas.pane(place, "Graphs", &note(cx, view, rows.len()));
    canvas.seen.rows[Pane::Graphs as usize] = 1;
    canvas.seen.all[Pane::Graphs as usize] = rows.len();
    let mut row = 0;
    for line in totals(cx, process, usize::from(inner.width), inner.height >= TALL) {
        canvas.spans(inner, row, line);
        row += 1;
    }
    if rows.is_empty() {
        let why = if view.rows.is_empty() {
            "no executable graph was launched or made yet"
        } else {
            "the filter keeps none"
        };
        canvas.spans(inner, row, vec![theme.span(why, Role::Dim)]);
        return;
    }
    let beside = if inner.width >= WIDE { inner.width * 2 / 5 } else { 0 };
    let list = Rect { y: inner.y + row as u16, height: inner.height.saturating_sub(row as u16), ..inner };
    let nodes = Rect { x: list.x + (list.width - beside), width: beside, ..list };
    let column = Rect { width: list.width - beside, ..list };
    draw_list(cx, (&rows, at), newest_known(process), column, canvas);
    let listed = (rows.len() as u16).saturating_add(1).min(column.height);
    let below = Rect { y: column.y + listed, height: column.height - listed, ..column };
    graphs_below::draw(cx, process, below, canvas);
    if beside > 0
        && let Some(selected) = rows.get(at)
    {
        let room = usize::from(nodes.height);
        let lines = tree(selected, newest_known(process));
        for (row, line) in lines.iter().take(room).enumerate() {
            let text = if row + 1 == room && lines.len() > room {
                format!("… and {}  (enter)", units::some(lines.len() - row, "more line"))
            } else {
                line.clone()
            };
            let role = if row == 0 { Role::Strong } else { Role::Plain };
            canvas.put(
                nodes,
                1,
                row,
                &cut_end(&text, usize::from(beside).saturating_sub(2)),
                theme.style(role),
            );
        }
    }
}

/// The graphs that the filter keeps.
fn kept<'a>(view: &'a GraphsView, state: &ViewState) -> Vec<&'a GraphRow> {
    view.rows.iter().filter(|row| state.filter.keeps(&subjects::Executable(row, &state.families))).collect()
}

fn note(cx: &Cx<'_>, view: &GraphsView, kept: usize) -> String {
    let mut told = told(view);
    if view.rows.len() < view.all {
        let left_out =
            format!("{} of {} listed", units::count(view.rows.len() as u64), units::count(view.all as u64));
        told = if told.is_empty() { left_out } else { format!("{left_out} · {told}") };
    }
    if cx.state.filter.is_empty() {
        return told;
    }
    let filtered =
        format!("filter keeps {} of {}", units::count(kept as u64), units::some(view.rows.len(), "graph"));
    if told.is_empty() { filtered } else { format!("{filtered} · {told}") }
}

/// How whole the picture is.
fn told(view: &GraphsView) -> String {
    let Some(seen) = view.observers else {
        return "partial: from records alone; gtop run --early tells the whole".to_owned();
    };
    let mut told = Vec::new();
    if seen.whole == 0 {
        told.push("watched from the middle on".to_owned());
    } else if seen.lost + seen.forgotten > 0 {
        told.push(format!("events lost: {}", units::count(seen.lost + seen.forgotten)));
    }
    let given_up = given_up(seen.given_up | seen.kernels_given_up);
    if !given_up.is_empty() {
        told.push(format!("too many to watch: {}", given_up.join(", ")));
    } else if view.unfollowed {
        told.push("freed memory not followed".to_owned());
    }
    told.join(" · ")
}

/// What is no longer watched because it cost too much, by the bits of [`Observers::given_up`].
///
/// [`Observers::given_up`]: gtop_protocol::message::Observers::given_up
fn given_up(bits: u8) -> Vec<&'static str> {
    const CLASSES: [&str; 5] = ["launches", "events", "queries", "waits", "graph launches"];
    (0..).zip(CLASSES).filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, class)| class).collect()
}

/// The counts in a line or two; in as many as it takes where the screen is tall.
fn totals(cx: &Cx<'_>, process: &Process, cells: usize, tall: bool) -> Vec<Vec<Span<'static>>> {
    let theme = cx.theme();
    let totals = &process.graphs;
    let known = |count: Option<u64>| count.map_or("?".to_owned(), units::count);
    let fitted = |parts: Vec<(u8, String)>, gap: &str, role: Role| {
        let part = |(rank, text)| Part::new(rank, vec![theme.span(text, role)]);
        fit(parts.into_iter().map(part).collect(), gap, cells).0
    };
    let parts = vec![
        (0, format!("live {}", known(totals.live))),
        (0, format!("launches {}", known(totals.launches))),
        (2, format!("instantiated {}", known(totals.instantiated))),
        (3, format!("destroyed {}", known(totals.destroyed))),
        (5, process.graphs_view.shapes.map_or_else(String::new, |shapes| units::some(shapes, "shape"))),
        (1, growth(&process.graphs_view, cx.snapshot.time)),
        (4, over_time(&process.graphs_view, cx.snapshot.time)),
    ];
    let mut lines = vec![fitted(parts, "   ", Role::Plain)];
    if tall && steps::any(cx) {
        lines.push(fit(steps::parts(cx), steps::GAP, cells).0);
    }
    let Some(seen) = process.graphs_view.observers else { return lines };
    let pair = |made: u64, gone: u64| format!("{}−{}", units::count(made), units::count(gone));
    let cost = seen.calls_ns.checked_div(seen.calls).unwrap_or(0);
    let failed = |all: u64, failed: u64, more: &str| {
        format!("{} ({} failed{more})", units::count(all), units::count(failed))
    };
    let parts = vec![
        (1, format!("captures {}", failed(seen.captures, seen.captures_failed, &pace(&process.graphs_view)))),
        (2, format!("updates {}", failed(seen.updates, seen.updates_failed, ""))),
        (0, format!("made−gone: graphs {}", pair(seen.graphs, seen.graphs_destroyed))),
        (3, format!("streams {}", pair(seen.streams, seen.streams_destroyed))),
        (4, format!("modules {}", pair(seen.modules, seen.modules_unloaded))),
        (5, format!("contexts {}", pair(seen.contexts, seen.contexts_destroyed))),
        (6, format!("pools {}", pair(seen.pools, seen.pools_destroyed))),
        (7, format!("a callback {}", units::duration(cost))),
    ];
    if tall {
        let part = |(_, text)| Part::new(0, vec![theme.span(text, Role::Dim)]);
        lines.extend(flow(parts.into_iter().map(part).collect(), cells));
    } else {
        lines.push(fitted(parts, "  ", Role::Dim));
    }
    let open = process.graphs_view.captures.iter().filter(|capture| capture.ended.is_none());
    for capture in open.take(if tall { OPEN } else { 1 }) {
        lines.push(vec![theme.span(cut_end(&open_capture(capture, cx.snapshot.time), cells), Role::Plain)]);
    }
    for memory in &process.graphs_view.memory {
        lines.push(vec![theme.span(
            format!(
                "device {}: graphs use {} of {} reserved, default pool uses {} of {}",
                memory.device,
                units::bytes(memory.graph_used),
                units::bytes(memory.graph_reserved),
                units::bytes(memory.pool_used),
                units::bytes(memory.pool_reserved)
            ),
            Role::Dim,
        )]);
    }
    lines
}

/// A capture that is open: where, for how long, and whether it can still be ended well.
fn open_capture(capture: &Capture, now: u64) -> String {
    let mode = capture.mode_name().unwrap_or("unknown");
    let unjoined = capture.streams.iter().filter(|(_, joined)| !joined).count();
    let streams = match (capture.streams.len(), unjoined) {
        (0, _) => String::new(),
        (all, 0) => format!(", {} joined", units::some(all, "other stream")),
        (all, open) => format!(", {open} of {} not joined yet", units::some(all, "other stream")),
    };
    let broken = capture.cause.map_or(String::new(), |cause| {
        let (call, result) = (gtop_protocol::calls::call_name(cause.code), result_name(cause.result));
        match cause.result {
            900..=907 => format!(", INVALIDATED by {call}: {result}"),
            _ => format!(", of which {call} failed: {result}"),
        }
    });
    format!(
        "capture open on stream {:#x} by thread {} for {}, {mode} mode, {}{streams}{broken}",
        capture.stream,
        capture.thread,
        units::age(now.saturating_sub(capture.begun) as f64 / 1e9),
        units::some(capture.nodes as usize, "node")
    )
}

/// How the number alive changed over the last minute, or since the first was made if that is less; samples are of
/// changes.
fn growth(view: &GraphsView, now: u64) -> String {
    const MINUTE: u64 = 60_000_000_000;
    if let Some(counted) = view.counted.iter().find(|row| row.kind == "execs") {
        return counted.growth_per_minute.map_or_else(String::new, |growth| format!("{growth:+.0}/min"));
    }
    let Some(last) = view.samples.last() else { return String::new() };
    let before = view.samples.partition_point(|sample| sample.time + MINUTE < now);
    let Some(from) = view.samples.get(before.saturating_sub(1)) else { return String::new() };
    let lasted = now.saturating_sub(from.time).min(MINUTE);
    if lasted < MINUTE / 6 {
        return String::new();
    }
    let change = f64::from(last.execs) - f64::from(from.execs);
    format!("{:+.0}/min", change * MINUTE as f64 / lasted as f64)
}

/// How many captures began in the last minute.
fn pace(view: &GraphsView) -> String {
    view.captures_per_minute.map_or_else(String::new, |pace| format!(", {pace:.0}/min"))
}

/// How many were alive over the last minutes, as a line of bars, and over how long.
fn over_time(view: &GraphsView, now: u64) -> String {
    let Some(first) = view.samples.first() else { return String::new() };
    let lasted = now.saturating_sub(first.time).min(LONGEST);
    if lasted < OVER_TIME as u64 {
        return String::new();
    }
    let at = |column: usize| {
        let time = now - lasted + lasted * (column as u64 + 1) / OVER_TIME as u64;
        let after = view.samples.partition_point(|sample| sample.time <= time);
        after.checked_sub(1).map_or(0.0, |at| f64::from(view.samples[at].execs))
    };
    let values: Vec<f64> = (0..OVER_TIME).map(at).collect();
    let peak = values.iter().copied().fold(0.0, f64::max);
    let bars = sparkline(values.into_iter(), peak, OVER_TIME);
    format!("alive {bars} {} at most in {}", units::count(peak as u64), units::age(lasted as f64 / 1e9))
}

fn draw_list(
    cx: &Cx<'_>,
    (rows, at): (&[&GraphRow], usize),
    newest: u64,
    area: Rect,
    canvas: &mut Canvas<'_>,
) {
    let theme = cx.theme();
    let cells = usize::from(area.width);
    let (wide, with_age, roomy) = (cells >= 56, cells >= 84, cells >= 104);
    let head = if roomy {
        "   graph  launches      /s      p50      p99  nodes     age    last     memory  most of its time"
    } else if with_age {
        "   graph  launches      /s      p50      p99  nodes     age  most of its time"
    } else if wide {
        "   graph  launches      /s      p50      p99  nodes  most of its time"
    } else {
        "   graph  launches      p50  nodes  most of its time"
    };
    // A few letters of a name say nothing.
    let named = cells >= width(head);
    let head = if named { head } else { head.trim_end_matches(MOST).trim_end() };
    canvas.put(area, 0, 0, &cut_end(head, cells), theme.style(Role::Dim));
    let room = usize::from(area.height).saturating_sub(1);
    let top = at.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    for (line, (i, row)) in rows.iter().enumerate().skip(top).take(room).enumerate() {
        let launched = row.launches > 0;
        // The time of a launch is known once the next one has come, or a second after it.
        let time = |ns: u64| if launched && ns > 0 { units::duration(ns) } else { "–".to_owned() };
        let nodes = row
            .nodes_by_type
            .map_or(row.seen_nodes as u64, |nodes| nodes.iter().map(|n| u64::from(*n)).sum());
        let most = row
            .shares
            .first()
            .map_or(String::new(), |(name, _, share)| format!("{} {}", units::percent(*share), name.short));
        let gone = row.alive == Some(false);
        let id = if gone { format!("×{}", row.id) } else { row.id.to_string() };
        let text = if wide {
            let age = |created: u64| units::age(cx.snapshot.time.saturating_sub(created) as f64 / 1e9);
            let age = if gone { "gone".to_owned() } else { row.created.map_or("?".to_owned(), age) };
            let age = if with_age { format!("{age:>6}  ") } else { String::new() };
            let last = row.last.map(|last| units::age(newest.saturating_sub(last) as f64 / 1e9));
            let age = if roomy {
                let last = last.unwrap_or_else(|| "–".to_owned());
                format!("{age}{last:>6}  {:>9}  ", row.memory().map_or_else(|| "?".to_owned(), units::bytes))
            } else {
                age
            };
            format!(
                "{id:>8}  {:>8}  {:>6}  {:>7}  {:>7}  {nodes:>5}  {age}",
                units::glance(row.launches as f64),
                row.per_second.map_or_else(|| "?".to_owned(), units::glance),
                time(row.p50_ns),
                time(row.p99_ns),
            )
        } else {
            format!(
                "{id:>8}  {:>8}  {:>7}  {nodes:>5}  ",
                units::glance(row.launches as f64),
                time(row.p50_ns)
            )
        };
        let room = cells.saturating_sub(width(&text));
        let text = if named { format!("{text}{}", cut_end(&most, room)) } else { text };
        let role = match (i == at, gone) {
            (true, _) => Role::Strong,
            (false, true) => Role::Dim,
            (false, false) => Role::Plain,
        };
        canvas.put(area, 0, line + 1, if i == at { "▸" } else { " " }, theme.style(role));
        canvas.put(area, 1, line + 1, text.get(1..).unwrap_or(&text), theme.style(role));
    }
}

/// The executable graph that is chosen.
pub(super) fn chosen<'a>(process: &'a Process, state: &ViewState) -> Option<&'a GraphRow> {
    let rows = kept(&process.graphs_view, state);
    rows.get(state.top(Pane::Graphs, rows.len(), 1)).copied()
}

/// The selected graph in full, and the captures that failed.
pub(super) fn detail(process: &Process, state: &ViewState) -> Option<(String, Vec<String>)> {
    let view = &process.graphs_view;
    let row = chosen(process, state)?;
    let mut lines = tree(row, newest_known(process));
    let failed: Vec<&Capture> = view.captures.iter().filter(|capture| capture.failed()).collect();
    if !failed.is_empty() {
        lines.push(String::new());
        lines.push(format!("{} of the last {} captures failed:", failed.len(), view.captures.len()));
    }
    for capture in failed.iter().rev().take(8) {
        let cause = capture.cause.map_or(String::new(), |cause| {
            format!(
                ", first by {}: {}",
                gtop_protocol::calls::call_name(cause.code),
                result_name(cause.result)
            )
        });
        lines.push(format!("thread {}: {}{cause}", capture.thread, result_name(capture.result)));
    }
    Some((format!("Graph {}", row.id), lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::message::Observers;

    #[test]
    fn an_open_capture_says_what_became_of_it_so_far() {
        use crate::model::snapshot::Cause;
        let mut capture =
            Capture { stream: 0x77, thread: 851, begun: 1_000_000_000, nodes: 5, ..Capture::default() };
        let said = |capture: &Capture| open_capture(capture, 3_000_000_000);
        assert!(
            said(&capture).starts_with("capture open on stream 0x77 by thread 851 for 2"),
            "{}",
            said(&capture)
        );
        capture.streams = vec![(1, true), (2, false)];
        assert!(said(&capture).contains("1 of 2 other streams not joined yet"), "{}", said(&capture));
        capture.cause = Some(Cause { code: 0, result: 900, thread: 851, time: 0, stream: 0, kernel: 0 });
        assert!(said(&capture).contains("INVALIDATED by"), "{}", said(&capture));
    }

    #[test]
    fn what_is_not_watched_is_told() {
        let of = |whole: u8, lost: u64, given_up: u8, unfollowed: bool| {
            let observers = Some(Observers { whole, lost, given_up, ..Observers::default() });
            told(&GraphsView { observers, unfollowed, ..GraphsView::default() })
        };
        assert_eq!(of(1, 0, 0, false), "");
        assert_eq!(of(1, 0, 0, true), "freed memory not followed");
        assert_eq!(of(1, 3, 1, true), "events lost: 3 · too many to watch: launches");
        assert_eq!(of(1, 0, 0b1_1010, false), "too many to watch: events, waits, graph launches");
        let old = Observers { whole: 1, kernels_given_up: 1, ..Observers::default() };
        let old = GraphsView { observers: Some(old), ..GraphsView::default() };
        assert_eq!(told(&old), "too many to watch: launches", "of a shim that says no more");
        assert_eq!(of(0, 3, 0, false), "watched from the middle on");
        assert!(told(&GraphsView::default()).starts_with("partial"));
    }
}
