//! The watched processes in the list to choose one from: a row each, and what they come to together.

use gtop_protocol::Validity;
use gtop_protocol::message::StateCode;
use ratatui::text::Span;

use super::pick::{Item, Pick, Picker};
use super::text::{left, right};
use super::theme::{Role, Theme};
use super::{header, sampled, units};
use crate::model::snapshot::{LaneKey, Link, Process, Snapshot, WINDOWS};

/// The columns beside the name, and their cells; where there is no room the last ones are left out.
const COLUMNS: [(&str, usize); 5] =
    [("STATE", 11), ("REC/S", 8), ("BUSY", 10), ("INVALID", 7), ("MEMORY", 14)];
/// Cells that a name is left at least.
const NAME: usize = 18;
/// The window of the invalid records, the longest there is.
const WINDOW: usize = WINDOWS.len() - 1;

/// What is chosen from: the watched processes, in the order they are in.
pub(crate) fn items(snapshot: &Snapshot) -> Vec<Item> {
    let item = |process: &Process| Item {
        label: format!("{:>7} {}", process.identity.pid, process.identity.name),
        hint: String::new(),
        pick: Pick::Process(process.identity.pid),
    };
    snapshot.processes.iter().map(item).collect()
}

/// Adds those that have come since the list was opened. Nothing moves under the person's hands: the others stay where
/// they are, and those that have gone, too.
pub(super) fn take_newcomers(picker: &mut Picker, snapshot: &Snapshot) {
    for item in items(snapshot) {
        if !picker.items.iter().any(|known| known.pick == item.pick) {
            picker.items.push(item);
        }
    }
}

/// How many columns there is room for beside the names.
fn columns(cells: usize) -> &'static [(&'static str, usize)] {
    let mut taken = NAME;
    let fits = COLUMNS.iter().take_while(|(_, wide)| {
        taken += wide + 1;
        taken <= cells
    });
    &COLUMNS[..fits.count()]
}

/// Cells of the columns that `cells` cells have room for.
pub(super) fn width(cells: usize) -> usize {
    columns(cells).iter().map(|(_, wide)| wide + 1).sum()
}

/// The line above the rows; the column of names is called `name`.
pub(super) fn head(theme: Theme, name: &str, cells: usize) -> Vec<Span<'static>> {
    let shown = columns(cells);
    let hidden = COLUMNS.len() - shown.len();
    let name = if hidden > 0 { format!("  +{hidden} columns") } else { name.to_owned() };
    let titles = shown.iter().enumerate().map(|(i, (title, wide))| aligned(i, title, *wide));
    vec![theme.span(left(&name, cells - width(cells)) + &titles.collect::<String>(), Role::Dim)]
}

/// Words are at the left of their column, numbers at the right.
fn aligned(column: usize, text: &str, wide: usize) -> String {
    if column == 0 { format!(" {}", left(text, wide)) } else { format!(" {}", right(text, wide)) }
}

fn cells_of(theme: Theme, texts: [(String, Role); 5], cells: usize) -> Vec<Span<'static>> {
    let shown = columns(cells).iter().zip(texts).enumerate();
    shown.map(|(i, ((_, wide), (text, role)))| theme.span(aligned(i, &text, *wide), role)).collect()
}

/// The columns of one process; `None` is one that is watched no more.
pub(super) fn row(theme: Theme, process: Option<&Process>, cells: usize) -> Vec<Span<'static>> {
    let Some(process) = process else {
        let unknown = || ("?".to_owned(), Role::Dim);
        let state = ("gone".to_owned(), Role::Dim);
        return cells_of(theme, [state, unknown(), unknown(), unknown(), unknown()], cells);
    };
    let invalid = invalid(process);
    let alarm = if invalid.is_some_and(|[_, bad]| bad > 0) { Role::Alarm } else { Role::Plain };
    let texts = [
        state(process),
        (rate(process).map_or("?".to_owned(), units::glance), Role::Plain),
        (busy(process), Role::Plain),
        (units::maybe_percent(invalid.and_then(share)), alarm),
        (process.memory().map_or("?".to_owned(), units::bytes), Role::Plain),
    ];
    cells_of(theme, texts, cells)
}

/// What all of them come to. Shares of the time of several devices and processes have no sum.
pub(super) fn total(theme: Theme, snapshot: &Snapshot, cells: usize) -> Vec<Span<'static>> {
    let all = &snapshot.processes;
    let name = format!("  {}", units::some(all.len(), "process"));
    let armed = all.iter().filter(|process| process.link == Link::Up && process.state == StateCode::Armed);
    let rates = units::known(all.iter().map(rate), |rates| units::glance(rates.iter().sum()));
    let counts: Vec<[u64; 2]> = all.iter().filter_map(invalid).collect();
    let counts = counts.iter().fold([0, 0], |sum, [all, bad]| [sum[0] + all, sum[1] + bad]);
    let memory = all.iter().map(Process::memory);
    let memory = units::known(memory, |memory| units::bytes(memory.iter().sum()));
    let alarm = if counts[1] > 0 { Role::Alarm } else { Role::Strong };
    let texts = [
        (format!("{} armed", armed.count()), Role::Strong),
        (rates, Role::Strong),
        (String::new(), Role::Strong),
        (units::maybe_percent(share(counts)), alarm),
        (memory, Role::Strong),
    ];
    let mut spans = vec![theme.span(left(&name, cells - width(cells)), Role::Strong)];
    spans.extend(cells_of(theme, texts, cells));
    spans
}

/// How it is, the way to it first.
fn state(process: &Process) -> (String, Role) {
    let (word, role) = match &process.link {
        Link::Ended(_) if process.heard.state => ("ended", Role::Dim),
        Link::Ended(_) => ("not watched", Role::Warn),
        Link::Lost { .. } => ("lost", Role::Alarm),
        Link::Connecting => ("connecting", Role::Dim),
        Link::Up if process.heard.state => return header::state_word(process),
        Link::Up => ("?", Role::Dim),
    };
    (word.to_owned(), role)
}

/// Whether its numbers are of now.
fn is_known(process: &Process) -> bool {
    process.link == Link::Up
        && !process.is_mute()
        && !matches!(process.state, StateCode::Silent | StateCode::Unavailable)
}

/// Records a second.
fn rate(process: &Process) -> Option<f64> {
    is_known(process).then_some(process.records.per_second)
}

/// The share of the last second in which something ran. Where several lanes were at work they may have been so at the
/// same time or not: then it is at least that of the busiest.
fn busy(process: &Process) -> String {
    if !is_known(process) {
        return "?".to_owned();
    }
    if process.sampling.as_ref().is_some_and(|sampling| sampling.budget_ppm > 0) {
        let streams = process.streams.iter().filter_map(|stream| stream.busy_share);
        return sampled::share(streams.max_by(|a, b| a.value.total_cmp(&b.value)));
    }
    if process.records.per_second <= 0.0 {
        return units::percent(0.0);
    }
    let lanes = process.lanes.iter().filter(|lane| !matches!(lane.key, LaneKey::Graphs { .. }));
    let lanes: Vec<f64> = lanes.map(|lane| lane.busy).filter(|busy| *busy > 0.0).collect();
    let most = units::percent(lanes.iter().copied().fold(0.0, f64::max));
    if lanes.len() > 1 { format!("≥ {most}") } else { most }
}

/// Records with times and those of them that cannot be believed; `None` without any, or while that is not known.
fn invalid(process: &Process) -> Option<[u64; 2]> {
    process.validity.rate_windows[WINDOW]?;
    let counts = &process.validity.windows[WINDOW];
    let bad = Validity::ALL.into_iter().filter(|class| !class.is_valid());
    Some([counts.iter().sum(), bad.map(|class| counts[class as usize]).sum()])
}

fn share([all, bad]: [u64; 2]) -> Option<f64> {
    (all > 0).then(|| bad as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratatui::layout::Size;

    use super::super::{Popup, ViewState, fixture, render_text};
    use super::*;
    use crate::input::{Key, press};
    use crate::model::snapshot::{Heard, Identity, ProcessMemory};

    /// So many workers: one in silence, one that is gone, one without the shim, one the memory of which is unknown.
    fn workers(count: u32) -> Snapshot {
        let mut snapshot = fixture::vllm();
        let server = snapshot.processes[0].clone();
        let worker = |i: u32| {
            let pid = 5_000 + i;
            let mut process = server.clone();
            process.identity =
                Arc::new(Identity { pid, name: "VLLM::Worker".into(), ..(*server.identity).clone() });
            process.heard = Heard { state: true, kinds: true };
            process.records.per_second = 110_000.0 - f64::from(i) * 300.0;
            process.lanes.truncate(1);
            process.lanes[0].busy = 0.932 - f64::from(i) / 400.0;
            process.gpu_memory =
                vec![ProcessMemory { pid, used: Some(40 << 30), ..ProcessMemory::default() }];
            match i {
                1 => process.lanes.push(process.lanes[0].clone()),
                2 => {
                    process.state = StateCode::Silent;
                    process.validity.rate_windows = [None; 3];
                }
                3 => process.link = Link::Ended("it has ended".into()),
                4 => {
                    process.link = Link::Ended("it lacks the shim".into());
                    process.heard = Heard::default();
                    process.validity = crate::model::snapshot::ValidityStats::default();
                }
                5 => process.gpu_memory[0].used = None,
                6 => {
                    process.validity.windows[WINDOW][Validity::Zero as usize] = 330;
                    process.validity.rate_windows[WINDOW] = Some(0.003);
                }
                _ => {}
            }
            process
        };
        snapshot.processes = (0..count).map(worker).collect();
        snapshot
    }

    fn state() -> ViewState {
        ViewState { now: fixture::NOW + 30_000_000, ..ViewState::default() }
    }

    fn keys(text: &str, state: &mut ViewState, snapshot: &Snapshot) {
        for key in text.split(' ') {
            press(Key::parse(key).unwrap(), state, snapshot);
        }
    }

    #[test]
    fn each_has_a_row_and_all_have_one() {
        for (count, columns, rows) in [(8, 80, 24), (8, 120, 36), (208, 120, 36)] {
            let (mut state, snapshot) = (state(), workers(count));
            keys("P", &mut state, &snapshot);
            let text = render_text(&snapshot, &state, Size::new(columns, rows));
            insta::assert_snapshot!(format!("processes_{count}_{columns}x{rows}"), text);
        }
    }

    #[test]
    fn one_of_two_hundred_and_eight_is_chosen() {
        let (mut state, snapshot) = (state(), workers(208));
        keys("P 5 1 5 0 enter", &mut state, &snapshot);
        assert_eq!((state.pid, &state.popup), (Some(5150), &None));
        keys("P pgdn pgdn down", &mut state, &snapshot);
        let text = render_text(&snapshot, &state, Size::new(120, 20));
        assert!(text.contains("▸    5021 VLLM::Worker"), "{text}");
        assert!(text.contains("208 processes"), "the total stays in sight: {text}");
    }

    #[test]
    fn who_comes_is_added_and_nobody_moves() {
        let (mut state, mut snapshot) = (state(), workers(3));
        keys("P down", &mut state, &snapshot);
        snapshot = workers(5);
        snapshot.processes.reverse();
        snapshot.processes.remove(4);
        state.take_newcomers(&snapshot);
        let Some(Popup::Pick(picker)) = &state.popup else { panic!("{:?}", state.popup) };
        let pids: Vec<Pick> = picker.items.iter().map(|item| item.pick).collect();
        assert_eq!(pids, [5000, 5001, 5002, 5004, 5003].map(Pick::Process));
        let text = render_text(&snapshot, &state, Size::new(120, 36));
        assert!(text.contains("▸    5001 VLLM::Worker"), "{text}");
        let gone = text.lines().find(|line| line.contains("5000 VLLM::Worker  ")).unwrap();
        assert!(gone.contains("gone"), "{gone}");
    }

    #[test]
    fn what_has_no_room_is_said_and_no_size_breaks_it() {
        let snapshot = workers(8);
        for theme in [Theme::DARK, Theme::MONO, Theme::ASCII] {
            for columns in [1, 5, 12, 20, 30, 40, 50, 60, 70, 80, 200] {
                for rows in [1, 2, 3, 5, 8, 24, 100] {
                    let mut state = ViewState { theme, ..state() };
                    keys("P", &mut state, &snapshot);
                    let text = render_text(&snapshot, &state, Size::new(columns, rows));
                    assert!(!theme.ascii || text.is_ascii(), "{text}");
                }
            }
        }
        let mut state = state();
        keys("P", &mut state, &snapshot);
        let text = render_text(&snapshot, &state, Size::new(60, 24));
        assert!(text.contains("+2 columns"), "{text}");
    }
}
