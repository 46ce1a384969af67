//! The event log: what happened, in sentences, newest first.

use gtop_protocol::message::Severity;
use ratatui::text::Span;

use super::canvas::{Canvas, Place};
use super::state::Pane;
use super::text::{cut_end, width, wrap};
use super::theme::Role;
use super::{Cx, findings, units};
use crate::model::snapshot::Event;

/// How many lines it would take to show the newest events, alarms in full.
pub(super) fn wanted(cx: &Cx<'_>, cells: usize) -> usize {
    let lines = |event: &Event| match event.severity {
        Severity::Alarm => event_lines(cx, event, cells, 4).len(),
        Severity::Info | Severity::Warning => 1,
    };
    kept(cx).iter().rev().take(3).map(|event| lines(event)).sum()
}

/// How many lines all events in full would take, of the newest as many as make up `most`.
pub(super) fn in_full(cx: &Cx<'_>, cells: usize, most: usize) -> usize {
    let mut lines = 0;
    for event in kept(cx).iter().rev() {
        if lines >= most {
            break;
        }
        lines += event_lines(cx, event, cells, usize::MAX).len();
    }
    lines.min(most)
}

/// The events that the filter keeps, oldest first.
pub(super) fn kept<'a>(cx: &Cx<'a>) -> Vec<&'a Event> {
    cx.snapshot.events.iter().filter(|event| cx.state.filter.keeps(*event)).collect()
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let events = kept(cx);
    let (cells, height) = (usize::from(place.inner().width), usize::from(place.inner().height));
    // On their tab findings come first.
    let before = findings::before(cx.state, cx.process);
    let top = cx.state.top(Pane::Events, before + events.len(), 1).saturating_sub(before);
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    let mut shown = 0;
    for (i, event) in events.iter().rev().skip(top).enumerate() {
        let room = height.saturating_sub(lines.len());
        if room == 0 {
            break;
        }
        // A sentence may take all the lines that are left once every other event has one.
        let waiting = events.len() - top - i - 1;
        let may = room.saturating_sub(waiting).clamp(1, room).max(if height > 2 { room.min(3) } else { 1 });
        lines.extend(event_lines(cx, event, cells, may));
        shown += 1;
    }
    let mut note = match events.len() {
        0 => String::new(),
        all if all == shown => format!("all {}", units::count(all as u64)),
        all => format!("{}, {} shown", units::some(all, "event"), units::count(shown as u64)),
    };
    let all = cx.snapshot.events.len();
    if events.len() < all {
        let kept =
            format!("filter keeps {} of {}", units::count(events.len() as u64), units::some(all, "event"));
        note = if note.is_empty() { kept } else { format!("{kept} · {note}") };
    }
    let inner = canvas.pane(place, "Events", &note);
    canvas.seen.rows[Pane::Events as usize] = 1;
    canvas.seen.all[Pane::Events as usize] = before + events.len();
    if events.is_empty() {
        let why = if all == 0 { "nothing has happened yet" } else { "the filter keeps none" };
        canvas.spans(inner, 0, vec![cx.theme().span(why, Role::Dim)]);
    }
    for (row, spans) in lines.into_iter().enumerate() {
        canvas.spans(inner, row, spans);
    }
}

/// One line for screens that have no room for the pane: the newest event.
pub(super) fn draw_folded(cx: &Cx<'_>, area: ratatui::layout::Rect, canvas: &mut Canvas<'_>) {
    let cells = usize::from(area.width).saturating_sub(2);
    let inner = ratatui::layout::Rect { x: area.x.saturating_add(1), width: cells as u16, ..area };
    let events = kept(cx);
    let Some(event) = events.last() else { return };
    let more = events.len() - 1;
    let more = if more > 0 { format!(" (+{})", units::some(more, "event")) } else { String::new() };
    if let Some(spans) = event_lines(cx, event, cells.saturating_sub(more.len()), 1).pop() {
        let mut spans = spans;
        spans.push(cx.theme().span(more, Role::Dim));
        canvas.spans(inner, 0, spans);
    }
}

/// The mark of a severity and how it looks.
pub(super) const fn mark(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Info => ("·", Role::Plain),
        Severity::Warning => ("▲", Role::Warn),
        Severity::Alarm => ("✖", Role::Alarm),
    }
}

fn event_lines(cx: &Cx<'_>, event: &Event, cells: usize, may: usize) -> Vec<Vec<Span<'static>>> {
    let theme = cx.theme();
    let (mark, role) = mark(event.severity);
    let who = match event.pid {
        Some(pid) if cx.snapshot.processes.len() > 1 => format!("{pid} "),
        _ => String::new(),
    };
    let head = format!("{} {mark} {who}", units::clock(event.time, &cx.state.zone));
    let indent = width(&head);
    let room = cells.saturating_sub(indent);
    let wrapped = wrap(&event.text, room);
    let cut = wrapped.len() > may;
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    for (i, line) in wrapped.iter().take(may).enumerate() {
        let text = if cut && i + 1 == may {
            cut_end(&format!("{line} {}", wrapped.get(i + 1).map_or("", String::as_str)), room)
        } else {
            line.clone()
        };
        let start = if i == 0 { theme.span(head.clone(), Role::Dim) } else { Span::raw(" ".repeat(indent)) };
        lines.push(vec![start, theme.span(text, role)]);
    }
    lines
}
