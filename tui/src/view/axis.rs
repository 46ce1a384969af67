//! The line above the lanes: how long ago a column was, marks, and where records with bad times came.

use gtop_protocol::Validity;
use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::scale::Window;
use super::text::{cut_end, width};
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{Process, Snapshot};
use crate::model::time::cupti_time;

/// Columns from tick to tick.
const TICK: usize = 20;

/// Marks of a process on CUPTI's clock, with their texts, in the order of the log.
pub(crate) fn marks<'a>(snapshot: &'a Snapshot, process: &Process) -> Vec<(u64, &'a str)> {
    let of = |pid: Option<u32>| pid.is_none_or(|pid| pid == process.identity.pid);
    let marks = snapshot.events.iter().filter(|event| event.topic == "mark" && of(event.pid));
    marks.map(|event| (cupti_time(process.clock.as_ref(), event.time), event.text.as_str())).collect()
}

/// Draws it into the first row of `plot`.
pub(super) fn draw(
    cx: &Cx<'_>,
    process: &Process,
    window: Window,
    newest: u64,
    plot: Rect,
    canvas: &mut Canvas<'_>,
) {
    let columns = usize::from(plot.width);
    let dim = cx.theme().style(Role::Dim);
    let marks: Vec<(usize, String)> = marks(cx.snapshot, process)
        .into_iter()
        .filter_map(|(time, text)| Some((window.column_of(time).filter(|column| *column < columns)?, text)))
        .map(|(column, text)| (column, cut_end(&format!("▼{text}"), (columns - column).min(TICK))))
        .collect();
    for column in (0..columns).step_by(TICK) {
        let (from, _) = window.column(column);
        let text = match newest.checked_sub(from) {
            Some(0) | None => "╷0".to_owned(),
            Some(ago) => format!("╷−{}", units::told_apart(ago, window.step.saturating_mul(TICK as u64))),
        };
        let end = column + width(&text);
        // A mark's word is worth more than a tick's.
        let hidden = marks.iter().any(|(at, word)| *at < end && column < at + width(word));
        if end <= columns && !hidden {
            canvas.put(plot, column, 0, &text, dim);
        }
    }
    for spot in process.invalid_at.iter() {
        if let Some(column) = window.column_of(spot.time).filter(|column| *column < columns) {
            canvas.put(plot, column, 0, "✖", cx.theme().style(Role::Alarm));
        }
    }
    for (column, word) in marks {
        canvas.put(plot, column, 0, &word, cx.theme().style(Role::Warn));
    }
}

/// In words, what is at a column besides what runs there.
pub(super) fn at(cx: &Cx<'_>, process: &Process, (from, to): (u64, u64)) -> Option<String> {
    let here = |time: u64| (from..to).contains(&time);
    if let Some((_, text)) = marks(cx.snapshot, process).into_iter().find(|(time, _)| here(*time)) {
        return Some(format!("mark {text}"));
    }
    let mut spots = process.invalid_at.iter().filter(|spot| here(spot.time));
    let first = spots.next()?;
    let count = first.count + spots.map(|spot| spot.count).sum::<u64>();
    let class = Validity::from_wire(first.class).map_or("unknown class", Validity::name);
    Some(format!("{} with bad times came here ({class})", units::some(count as usize, "record")))
}
