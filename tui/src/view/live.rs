//! Whether the picture is live, how old it is, and its time: the right end of the first line.

use ratatui::text::Span;

use super::canvas::Part;
use super::scale::newest;
use super::text::cut_end;
use super::theme::Role;
use super::{Cx, header, units};
use crate::model::snapshot::{Link, Process, Replay, SourceKind};

/// The link that matters: the process's own, else the source's.
pub(super) fn link<'a>(cx: &'a Cx<'_>) -> &'a Link {
    match cx.process {
        Some(process) if process.link != Link::Connecting => &process.link,
        _ => &cx.snapshot.source.link,
    }
}

/// Whether the age of something is on the screen, so that it must be drawn again although nothing came.
pub(super) fn shows_age(cx: &Cx<'_>) -> bool {
    let unheard = cx.process.is_some_and(Process::is_mute);
    cx.state.frozen
        || cx.state.stalled.is_some()
        || unheard
        || matches!(link(cx), Link::Lost { .. } | Link::Connecting)
}

/// How far the timeline is behind the newest record, when it does not follow.
fn behind(cx: &Cx<'_>) -> Option<String> {
    let held = cx.state.timeline.held?;
    let newest = cx.process.map_or(0, newest);
    let ns = newest.saturating_sub(held);
    // Held where the newest record is, or beyond it.
    if ns == 0 {
        return Some("0 s".to_owned());
    }
    Some(if ns < 1_000_000_000 { units::duration(ns) } else { units::age(ns as f64 / 1e9) })
}

/// Whether the picture is live, how old it is, and its time.
pub(super) fn parts(cx: &Cx<'_>) -> Vec<Part> {
    let theme = cx.theme();
    let age = units::age(cx.state.age(cx.snapshot));
    let badge = |word: &str, role| {
        let text = if theme.ascii { format!("[{word}]") } else { format!("● {word}") };
        theme.span(text, role)
    };
    let since = |since: u64| units::age(cx.state.now.saturating_sub(since) as f64 / 1e9);
    let file = cx.snapshot.source.kind == SourceKind::File;
    let (badge, more) = match link(cx) {
        _ if cx.state.frozen => (badge("FROZEN", Role::Warn), Some(format!("−{age}"))),
        Link::Lost { since: from, retries } => {
            (badge("RECONNECTING", Role::Alarm), Some(format!("{}, attempt {retries}", since(*from))))
        }
        Link::Ended(_) if file => (badge("FILE", Role::Plain), None),
        Link::Ended(why) if cx.process.is_some_and(|process| !process.heard.state) => {
            (badge("NOT WATCHED", Role::Warn), Some(cut_end(why, 30)))
        }
        Link::Ended(why) => (badge("ENDED", Role::Alarm), Some(cut_end(why, 30))),
        Link::Connecting if cx.snapshot.source.begins.is_some() => (badge("NOT WATCHED", Role::Warn), None),
        Link::Connecting => (badge("CONNECTING", Role::Warn), None),
        Link::Up if cx.state.stalled.is_some() => {
            let stalled = cx.state.stalled.unwrap_or_default().as_secs_f64();
            (badge("STALE", Role::Alarm), Some(units::age(stalled)))
        }
        Link::Up if let Some(halt) = cx.process.and_then(|process| process.halt) => {
            (badge(header::halted_word(halt), Role::Alarm), Some(units::age(halt.seconds)))
        }
        Link::Up if let Some(unheard) = cx.process.and_then(|process| process.unheard) => {
            (badge("STALE", Role::Alarm), Some(units::age(unheard)))
        }
        Link::Up => match behind(cx) {
            Some(behind) => (badge(&format!("−{behind}"), Role::Warn), None),
            None => (badge("LIVE", Role::Good), None),
        },
    };
    let (badge, more) = match &cx.snapshot.replay {
        Some(replay) => (badge_of(cx, replay), None),
        None => (badge, more),
    };
    let mut parts = vec![Part::new(0, vec![badge])];
    if let Some(since) = cx.snapshot.replay.and_then(|replay| replay.since) {
        let text = format!("counted since {}", units::clock(since, &cx.state.zone));
        parts.push(Part::new(1, vec![theme.span(text, Role::Warn)]));
    }
    if let Some(more) = more {
        parts.push(Part::new(1, vec![theme.span(more, Role::Plain)]));
    }
    if let Some(recording) = &cx.snapshot.recording {
        let text = format!("REC {}", units::bytes(recording.bytes));
        parts.push(Part::new(1, vec![theme.span(text, Role::Warn)]));
    }
    parts.push(Part::new(2, vec![theme.span(units::clock(cx.snapshot.time, &cx.state.zone), Role::Plain)]));
    parts
}

/// Where in a recording this is: `▶ REPLAY 0:12.3/1:40 ×2`.
fn badge_of(cx: &Cx<'_>, replay: &Replay) -> Span<'static> {
    let theme = cx.theme();
    let time = |ns: u64| {
        let tenths = ns / 100_000_000;
        format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
    };
    let sign = match (replay.playing, theme.ascii) {
        (true, false) => "▶",
        (false, false) => "‖",
        (true, true) => ">",
        (false, true) => "=",
    };
    let speed = if replay.speed > 0.99 && replay.speed < 1.01 {
        String::new()
    } else {
        format!(" {}{}", if theme.ascii { "x" } else { "×" }, replay.speed)
    };
    let more = if replay.growing { "…" } else { "" };
    let text = format!("{sign} REPLAY {}/{}{more}{speed}", time(replay.position), time(replay.length));
    theme.span(text, if replay.playing { Role::Good } else { Role::Warn })
}
