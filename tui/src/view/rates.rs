//! Invalid records over time, and whose they are: by class, kind, executable graph and kernel.

use gtop_protocol::Validity;
use gtop_protocol::message::StateCode;
use ratatui::text::Span;

use super::chart::{Chart, Layer};
use super::spark::sparkline;
use super::text::{cut_end, left, right};
use super::theme::{Role, Theme};
use super::units;
use crate::model::snapshot::{Believed, Process};
use crate::model::time::SECOND;

/// Cells before and behind a graph.
const NAME: usize = 15;
const NUMBERS: usize = 34;
/// Kernels and graphs named.
const NAMED: usize = 3;

/// Records of each second of the last minute, and how many of them were invalid.
pub(super) fn chart(process: &Process, now: u64) -> Option<Chart> {
    let history = &process.validity.history;
    let of = |classes: fn(&[u64; Validity::ALL.len()]) -> u64| -> Vec<(u64, u64)> {
        // The second that is being filled is not whole.
        let whole = history.iter().rev().skip(1).enumerate();
        let ago = |seconds: usize| now.saturating_sub(seconds as u64 * SECOND);
        let mut samples: Vec<(u64, u64)> = whole.map(|(i, second)| (ago(i), classes(second))).collect();
        samples.reverse();
        // What was before anything came is not known to have been nothing.
        samples.into_iter().skip_while(|(_, count)| *count == 0).collect()
    };
    let all = of(|second| second.iter().sum());
    let (first, peak) = (all.first()?.0, all.iter().map(|(_, count)| *count).max()?);
    let mut invalid = of(|second| second.iter().skip(1).sum());
    invalid.retain(|(time, _)| *time >= first);
    let title = if invalid.is_empty() {
        "Records a second  ░ all of them valid".to_owned()
    } else {
        "Records a second  █ invalid  ░ valid".to_owned()
    };
    let layer = |sign, role, samples| Layer { sign, role, samples };
    Some(Chart {
        title,
        layers: vec![layer('█', Role::Alarm, invalid), layer('░', Role::Plain, all)],
        scale: (0, peak.max(1)),
        words: units::count,
        holds: SECOND,
    })
}

/// The share of records that were invalid in each second of the last minute, a line for each class that was seen in
/// it; the newest second at the right.
pub(super) fn over_time(theme: Theme, process: &Process, cells: usize) -> Vec<Vec<Span<'static>>> {
    let history = &process.validity.history;
    let width = cells.saturating_sub(NAME + NUMBERS).min(60);
    if history.is_empty() || width < 10 {
        return Vec::new();
    }
    let row = |class: Validity| {
        let share = |second: &[u64; Validity::ALL.len()]| {
            let all: u64 = second.iter().sum();
            (all > 0).then(|| second[class as usize] as f64 / all as f64)
        };
        let of = |second| share(second).unwrap_or(0.0);
        // The second that is being filled may have little in it.
        let now = history.len().checked_sub(2).and_then(|last| history.get(last)).and_then(share);
        let sum: u64 = history.iter().map(|second| second[class as usize]).sum();
        (sum > 0).then(|| {
            vec![
                theme.span(left(&format!("  {}", class.name().replace('_', " ")), NAME), Role::Alarm),
                theme.span(sparkline(history.iter().map(of), 1.0, width), Role::Alarm),
                theme.span(
                    format!(" {} now, {} in 60 s", units::maybe_percent(now), units::count(sum)),
                    Role::Plain,
                ),
            ]
        })
    };
    let mut rows: Vec<Vec<Span<'static>>> =
        Validity::ALL.into_iter().filter(|class| !class.is_valid()).filter_map(row).collect();
    let totals = history.iter().map(|second| second.iter().sum::<u64>() as f64);
    let peak = totals.clone().fold(0.0, f64::max);
    rows.insert(
        0,
        vec![
            theme.span(left("  records", NAME), Role::Plain),
            theme.span(sparkline(totals, peak, width), Role::Plain),
            theme.span(format!(" {}/s at most", units::glance(peak)), Role::Dim),
        ],
    );
    rows
}

/// What has invalid records, the most first: kinds, graphs and kernels with their rates over 1, 10 and 60 s and since
/// the start. Empty when nothing has.
pub(super) fn whose(theme: Theme, process: &Process, cells: usize) -> Vec<Vec<Span<'static>>> {
    let validity = &process.validity;
    let mut rows: Vec<(String, Believed)> = Vec::new();
    for (kind, counts) in ["kernel", "memcpy", "memset"].into_iter().zip(&validity.kinds) {
        rows.push((format!("kind {kind}"), *counts));
    }
    let graphs = validity.graphs.iter().take(NAMED);
    rows.extend(graphs.map(|(graph, counts)| (format!("graph {graph}"), *counts)));
    let mut kernels: Vec<_> = process.kernels.iter().filter(|row| row.invalid > 0).collect();
    kernels.sort_by_key(|row| std::cmp::Reverse(row.invalid));
    rows.extend(kernels.into_iter().take(NAMED).map(|row| {
        let total = [row.calls.saturating_add(row.invalid), row.invalid];
        (row.name.short.clone(), Believed { total, windows: row.windows })
    }));
    rows.retain(|(_, counts)| counts.total[1] > 0);
    if rows.is_empty() || cells < 60 {
        return Vec::new();
    }
    let name = cells.saturating_sub(4 * 9 + 14).clamp(12, 44);
    let line = |what: &str, rates: [String; 4], count: String, role| {
        let rates: String = rates.iter().map(|rate| right(rate, 9)).collect();
        vec![theme.span(format!("  {}{rates}{}", left(&cut_end(what, name), name), right(&count, 12)), role)]
    };
    let head = ["1 s", "10 s", "60 s", "total"].map(str::to_owned);
    let mut lines = vec![line("invalid by", head, "records".to_owned(), Role::Dim)];
    // What does not come cannot be judged.
    let silent = process.state == StateCode::Silent;
    let rate = |window| Believed::rate(window).filter(|_| !silent);
    lines.extend(rows.iter().map(|(what, counts)| {
        let [one, ten, sixty] = counts.windows.map(rate).map(units::maybe_percent);
        let total = units::maybe_percent(Believed::rate(counts.total));
        line(what, [one, ten, sixty, total], units::count(counts.total[1]), Role::Alarm)
    }));
    lines
}
