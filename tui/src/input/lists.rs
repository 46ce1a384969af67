//! Lists to choose from: kernels, processes, moments to compare with, signals.

use nix::sys::signal::Signal;

use super::apply::refuses;
use crate::model::snapshot::{Snapshot, SourceKind};
use crate::view::{self, Baseline, Item, Pane, Pick, Picker, Popup, ViewState, units};

fn open(state: &mut ViewState, title: &str, items: Vec<Item>) {
    state.popup = Some(Popup::Pick(Picker::new(title, items)));
}

/// Kernels of the process shown, by share.
pub(super) fn kernels(state: &mut ViewState, snapshot: &Snapshot) {
    let Some(process) = state.process(snapshot) else {
        state.note = Some("no process is watched".to_owned());
        return;
    };
    let item = |row: &crate::model::snapshot::KernelRow| Item {
        label: row.name.short.clone(),
        hint: format!("{:>8}  {}", units::percent(row.share), state.families.of(&row.name)),
        pick: Pick::Kernel(row.id),
    };
    let items = process.kernels.iter().map(item).collect();
    open(state, "Find a kernel", items);
}

/// The watched processes, busiest first.
pub(super) fn processes(state: &mut ViewState, snapshot: &Snapshot) {
    open(state, "Show a process", view::process_items(snapshot));
}

/// Now, the marks that were seen, and nothing.
pub(super) fn moments(state: &mut ViewState, snapshot: &Snapshot) {
    let Some(process) = state.process(snapshot) else {
        state.note = Some("no process is watched".to_owned());
        return;
    };
    let pid = process.identity.pid;
    let label = units::clock(snapshot.time, &state.zone);
    let mut now = Baseline::of(process, label, true);
    now.is_now = true;
    state.moments.retain(|moment| !moment.is_now);
    state.moments.push(now);
    let mut items = Vec::new();
    for (at, moment) in state.moments.iter().enumerate().rev() {
        if moment.pid.is_none_or(|of| of == pid) {
            let (label, hint) = if moment.is_now {
                (format!("now, {}", moment.label), "what changes from here on")
            } else if moment.earlier {
                (moment.label.clone(), "what has changed since this mark")
            } else {
                (moment.label.clone(), "another recording")
            };
            items.push(Item { label, hint: hint.to_owned(), pick: Pick::Baseline(Some(at)) });
        }
    }
    items.push(Item {
        label: "nothing".to_owned(),
        hint: "do not compare".to_owned(),
        pick: Pick::Baseline(None),
    });
    open(state, "Compare kernels with", items);
}

/// The signals somebody may want to send.
const SIGNALS: [(Signal, &str); 9] = [
    (Signal::SIGTERM, "ask it to end"),
    (Signal::SIGINT, "interrupt it, as ctrl-c does"),
    (Signal::SIGKILL, "end it at once"),
    (Signal::SIGHUP, "say that its terminal has gone"),
    (Signal::SIGQUIT, "end it and leave a core file"),
    (Signal::SIGSTOP, "have it stand still"),
    (Signal::SIGCONT, "have it go on"),
    (Signal::SIGUSR1, "its own meaning"),
    (Signal::SIGUSR2, "its own meaning"),
];

/// Signals for the selected process: that of the row in the memory pane, or the one that is shown.
pub(super) fn signals(state: &mut ViewState, snapshot: &Snapshot) {
    let process = state.process(snapshot);
    if refuses(state, process) {
        state.note = Some("read-only: no signal is sent".to_owned());
        return;
    }
    if snapshot.source.kind == SourceKind::File {
        state.note = Some("a recording has no process to send a signal to".to_owned());
        return;
    }
    let row = || view::memory_moved(snapshot, state, 0).map(|(_, pid)| pid);
    let shown = process.map(|process| process.identity.pid);
    let pid = if state.focus == Pane::Memory { row().or(shown) } else { shown };
    let Some(pid) = pid.filter(|pid| *pid != 0) else {
        state.note = Some("no process to send a signal to".to_owned());
        return;
    };
    let item = |(signal, hint): &(Signal, &str)| Item {
        label: signal.as_str().to_owned(),
        hint: (*hint).to_owned(),
        pick: Pick::Signal(pid, *signal as i32),
    };
    let who = snapshot.name_of(pid).unwrap_or_default();
    open(state, &format!("Send a signal to {who} {pid}"), SIGNALS.iter().map(item).collect());
}
