//! What else callbacks told, below the list of graphs where it leaves room: captures, launches that failed, what was
//! made and is gone, and how many graphs were alive over time.

use gtop_protocol::calls::{call_name, result_name};
use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::chart::{Chart, Layer};
use super::text::cut_end;
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{Capture, Counted, Failure, GraphsView, MemoryStep, Process};

/// The fewest lines of a chart, and the most.
const CHART: usize = 8;
const CHARTED: u16 = 20;

/// Draws as much of it as there is room for.
pub(super) fn draw(cx: &Cx<'_>, process: &Process, area: Rect, canvas: &mut Canvas<'_>) {
    let view = &process.graphs_view;
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let mut row = 0;
    for (title, lines) in sections(cx, view) {
        // A heading, a line and one on what is left out.
        if lines.is_empty() || row + 4 > height {
            continue;
        }
        let room = (height - row - 1).min(lines.len().min(12) + 1);
        let fits = if lines.len() > room - 1 { room - 2 } else { lines.len() };
        canvas.put(area, 0, row + 1, title, cx.theme().style(Role::Strong));
        row += 2;
        for line in lines.iter().take(fits) {
            canvas.put(area, 1, row, &cut_end(line, cells.saturating_sub(1)), cx.theme().style(Role::Plain));
            row += 1;
        }
        if fits < lines.len() {
            let more = format!("… and {}", units::some(lines.len() - fits, "more line"));
            canvas.put(area, 1, row, &more, cx.theme().style(Role::Dim));
            row += 1;
        }
    }
    if let Some(chart) = alive(view).filter(|_| row + 1 + CHART <= height) {
        let y = area.y + row as u16 + 1;
        let place = Rect { y, height: (area.y + area.height - y).min(CHARTED), ..area };
        chart.draw(cx, cx.snapshot.time, place, canvas);
    }
}

fn sections(cx: &Cx<'_>, view: &GraphsView) -> Vec<(&'static str, Vec<String>)> {
    if view.observers.is_none() {
        let words =
            ["captures, updates, launches that failed and how many graphs are alive: what callbacks tell"];
        return vec![("Known after gtop run --early alone", words.map(str::to_owned).to_vec())];
    }
    let captures = view.captures.iter().rev().map(|capture| capture_line(cx, capture)).collect();
    vec![
        ("Launches and calls that failed", view.failures.iter().map(failure_line).collect()),
        ("Made, gone and alive", counted_lines(&view.counted)),
        ("Captures, the newest first", captures),
    ]
}

fn capture_line(cx: &Cx<'_>, capture: &Capture) -> String {
    let took = capture
        .ended
        .map_or_else(|| "open".to_owned(), |ended| units::duration(ended.saturating_sub(capture.begun)));
    let broken = capture.cause.map_or_else(String::new, |cause| format!(", by {}", call_name(cause.code)));
    let result = match (capture.ended, capture.instantiated) {
        (None, _) if capture.cause.is_some() => format!("broken{broken}"),
        (None, _) => String::new(),
        (Some(_), _) if capture.abandoned => "its stream or context went".to_owned(),
        (Some(_), _) if capture.result != 0 => format!("{}{broken}", result_name(capture.result)),
        (Some(_), Some(0)) => "instantiated".to_owned(),
        (Some(_), Some(error)) => format!("not instantiated: {}", result_name(error)),
        (Some(_), None) => "not instantiated so far".to_owned(),
    };
    let unjoined = capture.streams.iter().filter(|(_, joined)| !joined).count();
    let streams = match (capture.streams.len(), unjoined) {
        (0, _) => String::new(),
        (all, 0) => format!(", {} joined", units::some(all, "other stream")),
        (all, open) => format!(", {open} of {} not joined", units::some(all, "other stream")),
    };
    let allocated = capture.allocated.filter(|bytes| *bytes > 0);
    let allocated =
        allocated.map_or_else(String::new, |bytes| format!(", {} allocated", units::bytes(bytes)));
    let memory = capture.memory.map_or_else(String::new, memory_step);
    format!(
        "{}  thread {:>8}  {:<8}  {:>6} nodes  {took:>8}  {result}{streams}{allocated}{memory}",
        units::clock(capture.begun, &cx.state.zone),
        capture.thread,
        capture.mode_name().unwrap_or("?"),
        units::count(capture.nodes.into()),
    )
}

/// What NVML says of the whole process over a capture that failed.
fn memory_step(step: MemoryStep) -> String {
    let back = match step {
        MemoryStep { taken, kept: Some(kept) } if taken > 0 && kept <= 0 => ", came back".to_owned(),
        MemoryStep { taken, kept: Some(kept) } if taken != kept => {
            format!(", {} after ten seconds", units::grown(kept))
        }
        MemoryStep { taken, kept: Some(_) } if taken > 0 => ", not come back".to_owned(),
        _ => String::new(),
    };
    format!(", memory of the process {}{back}", units::grown(step.taken))
}

fn failure_line(failure: &Failure) -> String {
    let limit = failure.limit.as_ref().map_or_else(String::new, |limit| format!(": {limit}"));
    let kernel = failure.name.as_ref().map_or_else(String::new, |name| format!(" of {}", name.short));
    format!(
        "{:>7}×  {}{kernel}  {}, {}{limit}",
        units::count(failure.count),
        call_name(failure.code),
        result_name(failure.result),
        failure.root.name(),
    )
}

fn counted_lines(counted: &[Counted]) -> Vec<String> {
    let made = counted.iter().filter(|row| row.created > 0);
    let mut lines: Vec<String> = made
        .map(|row| {
            format!(
                "{:<10}{:>10}{:>10}{:>10}{:>12}",
                row.kind,
                units::count(row.created),
                units::count(row.destroyed),
                row.live.map_or_else(|| "?".to_owned(), units::count),
                row.growth_per_minute.map_or_else(|| "?".to_owned(), |growth| format!("{growth:+.0}")),
            )
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, format!("{:<10}{:>10}{:>10}{:>10}{:>12}", "", "made", "gone", "alive", "a minute"));
    }
    lines
}

/// How many executable graphs were alive over time.
fn alive(view: &GraphsView) -> Option<Chart> {
    let samples: Vec<(u64, u64)> =
        view.samples.iter().map(|sample| (sample.time, u64::from(sample.execs))).collect();
    let most = samples.iter().map(|(_, execs)| *execs).max().filter(|_| samples.len() > 1)?;
    Some(Chart {
        title: "Executable graphs alive".to_owned(),
        layers: vec![Layer { sign: '█', role: Role::Plain, samples }],
        scale: (0, most.max(1)),
        words: units::count,
        // A sample is of a change.
        holds: u64::MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_failed_capture_says_whether_it_came_back() {
        const MIB: i64 = 1 << 20;
        let said = |taken: i64, kept: Option<i64>| {
            memory_step(MemoryStep { taken: taken * MIB, kept: kept.map(|kept| kept * MIB) })
        };
        for (taken, kept, words) in [
            (300, None, ", memory of the process +300 MiB"),
            (300, Some(300), ", memory of the process +300 MiB, not come back"),
            (300, Some(120), ", memory of the process +300 MiB, +120 MiB after ten seconds"),
            (300, Some(0), ", memory of the process +300 MiB, came back"),
            (300, Some(-8), ", memory of the process +300 MiB, came back"),
            (0, Some(0), ", memory of the process +0"),
            (0, Some(300), ", memory of the process +0, +300 MiB after ten seconds"),
        ] {
            assert_eq!(said(taken, kept), words);
        }
    }
}
