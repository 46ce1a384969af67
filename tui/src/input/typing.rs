//! Keys while something is typed: a mark, the filter, letters that choose from a list.

use nix::sys::signal::Signal;

use super::apply::ask;
use super::{Key, Outcome, replay};
use crate::app::Ask;
use crate::filter::parse;
use crate::model::snapshot::Snapshot;
use crate::view::{FilterLine, Pick, Popup, Question, Then, ViewState, kernels_tab};

/// The filters that are remembered.
const HISTORY: usize = 50;

/// Handles a key while something is typed; `None` when nothing is.
pub(super) fn press(key: Key, state: &mut ViewState, snapshot: &Snapshot) -> Option<Outcome> {
    let popup = state.popup.take()?;
    let leaves = key.is("esc") || key.is("ctrl-c");
    match popup {
        Popup::Mark(_) | Popup::Pick(_) if leaves => {}
        Popup::Mark(line) if key.is("enter") => {
            let text = if line.text().trim().is_empty() { "mark" } else { line.text() };
            return Some(ask(state, snapshot, Ask::Mark(text.to_owned()), false));
        }
        Popup::Mark(mut line) => {
            line.press(key);
            state.popup = Some(Popup::Mark(line));
        }
        Popup::Jump(line, _) => return Some(replay::type_time(key, line, state)),
        Popup::Filter(line) if leaves => state.filter = line.before,
        Popup::Filter(line) if key.is("enter") => enter_filter(line, state),
        Popup::Filter(line) => type_filter(key, line, state),
        Popup::Pick(picker) if key.is("enter") => {
            if let Some(pick) = picker.selected() {
                take(pick, state, snapshot);
            }
        }
        Popup::Pick(mut picker) => {
            match key.to_string().as_str() {
                "up" | "ctrl-p" | "shift-tab" => picker.go(-1),
                "down" | "ctrl-n" | "tab" => picker.go(1),
                "pgup" => picker.go(-10),
                "pgdn" => picker.go(10),
                _ => {
                    if picker.line.press(key) {
                        picker.at = 0;
                    }
                }
            }
            state.popup = Some(Popup::Pick(picker));
        }
        other => {
            state.popup = Some(other);
            return None;
        }
    }
    Some(Outcome::Draw)
}

/// Takes in pasted text where something is typed; elsewhere it is no series of commands.
pub fn paste(text: &str, state: &mut ViewState) -> Outcome {
    match &mut state.popup {
        Some(Popup::Mark(line) | Popup::Jump(line, _)) => line.insert(text),
        Some(Popup::Pick(picker)) => picker.line.insert(text),
        Some(Popup::Filter(line)) => {
            line.line.insert(text);
            let line = line.clone();
            try_filter(line, state);
        }
        _ => return Outcome::Nothing,
    }
    Outcome::Draw
}

/// Begins to write a filter, from the one there is.
pub(super) fn begin_filter(state: &mut ViewState) {
    let line = crate::input::Line::new(state.filter.text());
    state.popup =
        Some(Popup::Filter(FilterLine { line, before: state.filter.clone(), error: None, recalled: None }));
}

fn type_filter(key: Key, mut line: FilterLine, state: &mut ViewState) {
    let last = state.filters.len();
    let recalled = match key.to_string().as_str() {
        "up" | "ctrl-p" | "ctrl-r" => Some(line.recalled.unwrap_or(last).saturating_sub(1)),
        "down" | "ctrl-n" => Some((line.recalled.unwrap_or(last) + 1).min(last)),
        _ => None,
    };
    if let Some(at) = recalled {
        line.recalled = Some(at);
        line.line = crate::input::Line::new(state.filters.get(at).map_or("", String::as_str));
    } else {
        line.line.press(key);
    }
    try_filter(line, state);
}

/// Shows what it would show, as far as it can be read; otherwise what was shown before goes on.
fn try_filter(mut line: FilterLine, state: &mut ViewState) {
    match parse(line.line.text()) {
        Ok(filter) => {
            state.filter = filter;
            line.error = None;
        }
        Err(error) => line.error = Some(error),
    }
    state.popup = Some(Popup::Filter(line));
}

fn enter_filter(mut line: FilterLine, state: &mut ViewState) {
    match parse(line.line.text()) {
        Ok(filter) => {
            if !filter.is_empty() {
                remember(&mut state.filters, filter.text());
            }
            state.filter = filter;
        }
        // What is wrong is said once more, and it can be mended.
        Err(error) => {
            line.error = Some(error);
            state.popup = Some(Popup::Filter(line));
        }
    }
}

fn remember(filters: &mut Vec<String>, text: &str) {
    filters.retain(|other| other != text);
    filters.push(text.to_owned());
    if filters.len() > HISTORY {
        filters.remove(0);
    }
}

fn take(pick: Pick, state: &mut ViewState, snapshot: &Snapshot) {
    match pick {
        Pick::Process(pid) => state.show_process(pid),
        Pick::Kernel(id) => {
            state.kernel = Some(id);
            state.tab = kernels_tab();
            state.focus = crate::view::Pane::Kernels;
        }
        Pick::Baseline(which) => {
            state.baseline = which.and_then(|at| state.moments.get(at).cloned());
        }
        Pick::Signal(pid, number) => {
            let name = Signal::try_from(number).map_or("a signal", Signal::as_str);
            let who = snapshot.name_of(pid).unwrap_or("a process gtop does not watch");
            state.popup = Some(Popup::Question(Question {
                pid,
                then: Then::Signal(number),
                title: format!("send {name} to"),
                consequence: consequence(number, who),
            }));
        }
    }
}

/// What a signal does to most programs.
fn consequence(number: i32, who: &str) -> String {
    let what = match Signal::try_from(number) {
        Ok(Signal::SIGKILL) => "ends at once, without a chance to save anything",
        Ok(Signal::SIGTERM) => "is asked to end; most programs do",
        Ok(Signal::SIGINT) => "is interrupted, as by ctrl-c in its terminal; most programs end",
        Ok(Signal::SIGHUP) => {
            "is told that its terminal has gone; most programs end, some read their settings again"
        }
        Ok(Signal::SIGQUIT) => "ends and leaves a core file, if it is allowed to",
        Ok(Signal::SIGSTOP) => "stands still until it is sent SIGCONT; what waits for it waits, too",
        Ok(Signal::SIGCONT) => "goes on, if it stands still",
        _ => "gets a signal whose meaning is its own; a program that does not know it ends",
    };
    format!("{who} {what}.")
}
