//! What an action does to what the screen shows, and what it asks for.

use gtop_protocol::message::StateCode;
use gtop_protocol::{Kind, KindSet};

use super::{Action, Context, Found, Key, Line, jump, lists, replay, typing};
use crate::app::{Answer, Ask};
use crate::filter::Filter;
use crate::model::snapshot::{Begins, Process, Snapshot};
use crate::recorder;
use crate::view::{self, Pane, Popup, Question, Then, ViewState};

/// What the event loop must do after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Draw, at most.
    Draw,
    /// Nothing has changed.
    Nothing,
    /// Leave; the flag says whether to stop the launched command, too.
    Quit {
        /// Whether to stop it.
        stop: bool,
    },
    /// Suspend, as `ctrl-z` does elsewhere.
    Suspend,
    /// Draw everything, whatever the terminal shows.
    Redraw,
    /// Ask the shim of a process for something.
    Ask {
        /// The process.
        pid: u32,
        /// What.
        ask: Ask,
        /// Whether its harm was shown and accepted.
        yes: bool,
    },
    /// Put this onto the clipboard.
    Copy(String),
    /// Write the screen into files.
    Screenshot,
    /// Write the selected executable graph into a file.
    Dot,
    /// Send a process a signal.
    Signal {
        /// The process.
        pid: u32,
        /// The signal.
        number: i32,
    },
}

/// Handles one key.
pub fn press(key: Key, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    state.note = None;
    if let Some(outcome) = typing::press(key, state, snapshot) {
        return outcome;
    }
    let context = match &state.popup {
        Some(Popup::Question(_)) => Context::Question,
        Some(Popup::Leave) => Context::Leave,
        _ => Context::Panes,
    };
    if context != Context::Panes {
        return match state.keymap.lookup(context, &[key]) {
            Found::Action(action) => apply(action, state, snapshot),
            _ if key.is("ctrl-c") => apply(Action::Quit, state, snapshot),
            _ => Outcome::Draw,
        };
    }
    state.pending.push(key);
    match state.keymap.lookup(Context::Panes, &state.pending) {
        Found::Action(action) => {
            state.pending.clear();
            apply(action, state, snapshot)
        }
        Found::Prefix => Outcome::Draw,
        Found::Nothing => {
            let keys: Vec<String> = state.pending.drain(..).map(|key| key.to_string()).collect();
            if keys.last().is_none_or(|last| last != "esc") {
                let help = state.keymap.key_of(Action::Help);
                let help = help.map_or_else(String::new, |key| format!("; {key} shows all keys"));
                state.note = Some(format!("{} does nothing here{help}", keys.join(" ")));
            }
            Outcome::Draw
        }
    }
}

/// What a shim answered to a request of this screen: shown, and asked again with a yes if it needs one.
pub fn answered(pid: u32, ask: Ask, answer: &Answer, state: &mut ViewState) {
    use gtop_protocol::message::Outcome as Shim;
    match answer.outcome {
        Shim::NeedsYes => {
            state.pending.clear();
            state.popup = Some(Popup::Question(Question {
                pid,
                title: view::ask_title(&ask),
                then: Then::Ask(ask),
                consequence: answer.text.clone(),
            }));
        }
        // It has come later than another note that it has nothing to do with.
        Shim::Done if answer.text.is_empty() && state.note != Some(asked(&ask)) => {}
        Shim::Done => state.note = (!answer.text.is_empty()).then(|| answer.text.clone()),
        Shim::Refused => state.note = Some(format!("refused: {}", answer.text)),
        Shim::Failed => state.note = Some(format!("failed: {}", answer.text)),
    }
}

/// Does one action.
pub fn apply(action: Action, state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    if let Some(done) = apply_to_popup(action, state) {
        return done;
    }
    if let Some(done) = replay::apply(action, state, snapshot) {
        return done;
    }
    let process = state.process(snapshot);
    let newest = process.map_or(0, view::newest);
    let columns = state.seen.columns;
    match action {
        Action::Quit if state.launched.is_some() => state.popup = Some(Popup::Leave),
        Action::Quit => return Outcome::Quit { stop: false },
        Action::Suspend => return Outcome::Suspend,
        Action::Redraw => return Outcome::Redraw,
        Action::Help => state.popup = Some(Popup::Help(0)),
        Action::Freeze => state.frozen = !state.frozen,
        Action::NextPane => move_focus(state, 1),
        Action::PreviousPane => move_focus(state, -1),
        Action::Tab(number) => choose_tab(state, snapshot, usize::from(number)),
        Action::NextProcess => next_process(state, snapshot),
        Action::Left => state.timeline.move_cursor(-1, newest, columns),
        Action::Right => state.timeline.move_cursor(1, newest, columns),
        Action::PageLeft => state.timeline.pan(-quarter(columns), newest, columns),
        Action::PageRight => state.timeline.pan(quarter(columns), newest, columns),
        Action::ZoomIn => state.timeline.zoom(1, newest, columns),
        Action::ZoomOut => state.timeline.zoom(-1, newest, columns),
        Action::ZoomReset => state.timeline.zoom_reset(newest, columns),
        Action::NextRecord | Action::PreviousRecord => {
            if let Some(process) = process {
                step_record(state, process, newest, action == Action::NextRecord);
            }
        }
        Action::NextGap | Action::PreviousGap => {
            if let Some(process) = process {
                jump::gap(state, process, newest, action == Action::NextGap);
            }
        }
        Action::Longest => {
            if let Some(process) = process {
                jump::longest(state, process, newest);
            }
        }
        Action::NextInvalid | Action::PreviousInvalid => {
            if let Some(process) = process {
                let times: Vec<u64> = process.invalid_at.iter().map(|spot| spot.time).collect();
                let ahead = action == Action::NextInvalid;
                let back = if ahead { Action::PreviousInvalid } else { Action::NextInvalid };
                jump::time(state, &times, "record with bad times", newest, ahead, back);
            }
        }
        Action::NextMark | Action::PreviousMark => {
            if let Some(process) = process {
                let times = jump::marks(snapshot, process);
                let ahead = action == Action::NextMark;
                let back = if ahead { Action::PreviousMark } else { Action::NextMark };
                jump::time(state, &times, "mark", newest, ahead, back);
            }
        }
        Action::Theme => {
            state.theme = state.theme.next();
            state.note = Some(format!("theme {}", state.theme.name()));
        }
        Action::Copy => return copy(state, view::detail(state, snapshot)),
        Action::Screenshot => return Outcome::Screenshot,
        Action::Dot if state.focus == Pane::Graphs => return Outcome::Dot,
        Action::Dot => state.note = Some("choose a graph on the tab of graphs".to_owned()),
        Action::SideBySide if snapshot.processes.len() < 2 => {
            state.note = Some("there is no other process".to_owned());
        }
        Action::SideBySide => state.together = !state.together,
        Action::Up => move_rows(state, snapshot, -1),
        Action::Down => move_rows(state, snapshot, 1),
        Action::PageUp => move_rows(state, snapshot, -page(state)),
        Action::PageDown => move_rows(state, snapshot, page(state)),
        Action::First => move_rows(state, snapshot, isize::MIN / 2),
        Action::Last if state.focus == Pane::Timeline => go_live(state),
        Action::Last => move_rows(state, snapshot, isize::MAX / 2),
        Action::Live => go_live(state),
        Action::ChooseRange => state.timeline.choose_range(newest, columns),
        Action::ShowRange => {
            let all = || {
                let oldest =
                    process?.lanes.iter().filter_map(|lane| lane.slices.span()).map(|span| span.0).min()?;
                Some((oldest, newest))
            };
            if let Some(range) = state.timeline.chosen(newest, columns).or_else(all) {
                state.timeline.show(range, newest, columns);
            }
        }
        Action::Close if state.timeline.range != view::Range::None => {
            state.timeline.range = view::Range::None;
        }
        Action::Close => state.filter = Filter::default(),
        Action::Sort => {
            state.sort = state.sort.next(state.baseline.is_some());
            state.kernel = None;
        }
        Action::SortReverse => {
            state.reversed = !state.reversed;
            state.kernel = None;
        }
        Action::Group => state.group = state.group.next(),
        Action::Detail => {
            state.popup = view::detail(state, snapshot).map(|(title, lines)| Popup::Detail(title, lines, 0));
        }
        Action::Toggle(kind) => return toggle(state, snapshot, kind),
        Action::Rest => return rest(state, snapshot),
        Action::Record => {
            let (name, pid) =
                process.map_or(("none", 0), |process| (process.identity.name.as_str(), process.identity.pid));
            let path = recorder::default_path(name, pid, &jiff::ZonedDateTime::now());
            return Outcome::Ask { pid, ask: Ask::Record(path), yes: false };
        }
        Action::Budget => return budget(state, snapshot),
        Action::Mark if refuses(state, process) => {
            state.note = Some("read-only: marks are refused".to_owned());
        }
        Action::Mark if process.is_none() => state.note = Some("no process to mark".to_owned()),
        Action::Mark => state.popup = Some(Popup::Mark(Line::default())),
        Action::ShowKernel => show_kernel(state, snapshot),
        Action::Filter => typing::begin_filter(state),
        Action::FindKernel => lists::kernels(state, snapshot),
        Action::FindProcess => lists::processes(state, snapshot),
        Action::Compare => lists::moments(state, snapshot),
        Action::Signal => lists::signals(state, snapshot),
        // Of questions, and of replays.
        Action::Yes
        | Action::No
        | Action::Stop
        | Action::StepAhead
        | Action::StepBack
        | Action::Faster
        | Action::Slower
        | Action::Jump
        | Action::FirstInvalid
        | Action::NextOfKernel => {}
    }
    Outcome::Draw
}

/// What an action does while something lies over the panes; `None` when it goes on to the panes.
fn apply_to_popup(action: Action, state: &mut ViewState) -> Option<Outcome> {
    let popup = state.popup.take()?;
    let page = state.seen.page.saturating_sub(1).max(1);
    let moved = |top: usize| match action {
        Action::Up => Some(top.saturating_sub(1)),
        Action::Down => Some(top.saturating_add(1)),
        // A line of the page before stays in sight.
        Action::PageUp => Some(top.saturating_sub(page)),
        Action::PageDown => Some(top.saturating_add(page)),
        Action::First => Some(0),
        Action::Last => Some(usize::MAX),
        _ => None,
    };
    let most = state.seen.below;
    let moved = |top: usize| moved(top.min(most)).map(|top| top.min(most));
    match popup {
        Popup::Question(question) if question.is_of_the_source() => {
            state.settled = true;
            let ask = Ask::Inject(action == Action::Yes);
            Some(Outcome::Ask { pid: question.pid, ask, yes: true })
        }
        Popup::Question(question) if action == Action::Yes => Some(match question.then {
            Then::Ask(ask) => Outcome::Ask { pid: question.pid, ask, yes: true },
            Then::Signal(number) => Outcome::Signal { pid: question.pid, number },
        }),
        Popup::Leave if action == Action::Yes => Some(Outcome::Quit { stop: false }),
        Popup::Leave if action == Action::Stop => Some(Outcome::Quit { stop: true }),
        Popup::Help(top) => Some(scrolled(state, action, moved(top).map(Popup::Help))),
        Popup::Detail(title, lines, top) if action == Action::Copy => {
            state.popup = Some(Popup::Detail(title.clone(), lines.clone(), top));
            Some(copy(state, Some((title, lines))))
        }
        // The key that a kernel's details name.
        Popup::Detail(..) if action == Action::ShowKernel => None,
        Popup::Detail(title, lines, top) => {
            let next = moved(top).map(|top| Popup::Detail(title, lines, top));
            Some(scrolled(state, action, next))
        }
        Popup::Question(_)
        | Popup::Leave
        | Popup::Mark(_)
        | Popup::Jump(..)
        | Popup::Filter(_)
        | Popup::Pick(_) => Some(Outcome::Draw),
    }
}

/// Scrolls or closes; a key that does something else closes and does nothing, but for suspending.
fn scrolled(state: &mut ViewState, action: Action, next: Option<Popup>) -> Outcome {
    state.popup = next;
    match action {
        Action::Suspend => Outcome::Suspend,
        Action::Redraw => Outcome::Redraw,
        _ => Outcome::Draw,
    }
}

/// Copies what is selected in full.
fn copy(state: &mut ViewState, detail: Option<(String, Vec<String>)>) -> Outcome {
    let Some((_, lines)) = detail else {
        state.note = Some("nothing is selected that could be copied".to_owned());
        return Outcome::Draw;
    };
    let text = lines.join("\n").trim_end().to_owned();
    let count = text.chars().count();
    state.note =
        Some(format!("copied {count} characters, if the terminal lets programs write to the clipboard"));
    Outcome::Copy(text)
}

/// Goes to the last record of the selected kernel, on the timeline.
fn show_kernel(state: &mut ViewState, snapshot: &Snapshot) {
    let Some(process) = state.process(snapshot) else { return };
    let rows = view::rows(process, state);
    let kernel = rows.get(view::selected(&rows, state.kernel)).map(|row| row.stats.id);
    let found = kernel.and_then(|kernel| view::last_of(process, kernel));
    let Some((lane, slice)) = found else {
        state.note = Some("no record of it is among those kept last".to_owned());
        return;
    };
    let Some(lane) = view::lanes(process, state).iter().position(|of| of.key == lane) else { return };
    state.kernel = kernel;
    state.tab = view::timeline_tab();
    state.focus = Pane::Timeline;
    state.timeline.lane = lane;
    // The table has no columns of time; the timeline has about as many as this.
    let columns = if state.seen.columns == 0 { 100 } else { state.seen.columns };
    let newest = view::newest(process);
    // It takes a fifth of the screen.
    let around = slice.end.saturating_sub(slice.start).saturating_mul(2);
    let stretch = (slice.start.saturating_sub(around), slice.end.saturating_add(around));
    state.timeline.show(stretch, newest, columns);
    state.timeline.go_to(slice.start.midpoint(slice.end), newest, columns);
}

fn go_live(state: &mut ViewState) {
    state.timeline.follow();
    state.frozen = false;
}

fn quarter(columns: usize) -> isize {
    (columns / 4).max(1).cast_signed()
}

fn page(state: &ViewState) -> isize {
    state.seen.rows[state.focus as usize].max(1).cast_signed()
}

fn move_focus(state: &mut ViewState, by: isize) {
    let panes: Vec<Pane> = state.seen.panes.iter().map(|(pane, _)| *pane).collect();
    if panes.is_empty() {
        return;
    }
    let at = panes.iter().position(|pane| *pane == state.focus).unwrap_or(0).cast_signed();
    let next = (at + by).rem_euclid(panes.len().cast_signed());
    state.focus = panes[next.cast_unsigned()];
}

fn choose_tab(state: &mut ViewState, snapshot: &Snapshot, number: usize) {
    let tabs = view::tabs(snapshot);
    let Some(tab) = number.checked_sub(1).filter(|tab| *tab < tabs.len()) else {
        state.note = Some(format!("there are {} tabs", tabs.len()));
        return;
    };
    state.tab = tab;
    if let Some(pane) = tabs[tab].pane {
        state.focus = pane;
    }
}

fn next_process(state: &mut ViewState, snapshot: &Snapshot) {
    let count = snapshot.processes.len();
    if let Some(index) = state.process_index(snapshot).filter(|_| count > 1) {
        let next = &snapshot.processes[(index + 1) % count];
        state.show_process(next.identity.pid);
    } else {
        state.note = Some("there is no other process".to_owned());
    }
}

pub(super) fn move_rows(state: &mut ViewState, snapshot: &Snapshot, by: isize) {
    let process = state.process(snapshot);
    let shift = |at: usize, last: usize| at.saturating_add_signed(by).min(last);
    match (state.focus, process) {
        (Pane::Timeline, Some(process)) => {
            state.timeline.lane =
                shift(state.timeline.lane, view::lanes(process, state).len().saturating_sub(1));
        }
        (Pane::Kernels, Some(process)) => {
            let rows = view::rows(process, state);
            let at = view::selected(&rows, state.kernel);
            state.kernel = rows.get(shift(at, rows.len().saturating_sub(1))).map(|row| row.stats.id);
        }
        (Pane::Memory, _) => state.memory_row = view::memory_moved(snapshot, state, by),
        (pane, _) => {
            // The newest line of an output is at the bottom: it is scrolled from there.
            let by = if pane == Pane::Output { -by } else { by };
            let pane = pane as usize;
            let last = state.seen.all[pane].saturating_sub(state.seen.rows[pane]);
            state.scroll[pane] = state.scroll[pane].min(last).saturating_add_signed(by).min(last);
        }
    }
}

fn step_record(state: &mut ViewState, process: &Process, newest: u64, ahead: bool) {
    let columns = state.seen.columns;
    let window = state.timeline.window(newest, columns);
    let (from, to) = window.column(state.timeline.cursor(columns));
    let lanes = view::lanes(process, state);
    let Some(lane) = lanes.get(state.timeline.lane.min(lanes.len().saturating_sub(1))) else {
        return;
    };
    let mut kept = view::Kept::new(process, state, lane);
    let found = if ahead { kept.after(to.saturating_sub(1)) } else { kept.before(from) };
    if let Some(slice) = found {
        state.timeline.go_to(slice.start, newest, columns);
    } else {
        state.note =
            Some(format!("there is no {} record on this lane", if ahead { "later" } else { "earlier" }));
    }
}

pub(super) fn refuses(state: &ViewState, process: Option<&Process>) -> bool {
    state.read_only || process.is_some_and(|process| process.identity.read_only)
}

fn toggle(state: &mut ViewState, snapshot: &Snapshot, kind: Kind) -> Outcome {
    let Some(process) = state.process(snapshot) else {
        state.note = Some("no process whose kinds could be toggled".to_owned());
        return Outcome::Draw;
    };
    if refuses(state, Some(process)) {
        state.note = Some("read-only: kinds cannot be changed".to_owned());
        return Outcome::Draw;
    }
    let effect = view::effect(process, kind);
    let set = KindSet::EMPTY.with(kind);
    let asked = if effect.on_now { Ask::Disable(set) } else { Ask::Enable(set) };
    if effect.asks {
        state.popup = Some(Popup::Question(Question {
            pid: process.identity.pid,
            title: view::ask_title(&asked),
            then: Then::Ask(asked),
            consequence: effect.sentence,
        }));
        return Outcome::Draw;
    }
    ask(state, snapshot, asked, false)
}

/// The price that `b` asks for, parts per million.
const PRICE: u32 = 10_000;

/// Traces in windows, or in full again.
fn budget(state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let process = state.process(snapshot);
    if refuses(state, process) {
        state.note = Some("read-only: how it is traced cannot be changed".to_owned());
        return Outcome::Draw;
    }
    let now = process.and_then(|process| process.sampling.as_ref()).map_or(0, |sampling| sampling.budget_ppm);
    ask(state, snapshot, Ask::Budget(if now == 0 { PRICE } else { 0 }), false)
}

/// Gives CUPTI to other tools, or watches again.
fn rest(state: &mut ViewState, snapshot: &Snapshot) -> Outcome {
    let Some(process) = state.process(snapshot) else {
        if snapshot.source.begins.is_some_and(|begins| begins != Begins::Used) {
            return Outcome::Ask { pid: 0, ask: Ask::Watch, yes: false };
        }
        state.note = Some("no process that could rest".to_owned());
        return Outcome::Draw;
    };
    if !matches!(process.state, StateCode::Armed | StateCode::Silent | StateCode::Arming) {
        return ask(state, snapshot, Ask::Watch, false);
    }
    if refuses(state, Some(process)) {
        state.note = Some("read-only: it cannot be made to rest".to_owned());
        return Outcome::Draw;
    }
    let Some(consequence) = view::giving_up(process) else {
        return ask(state, snapshot, Ask::Rest, false);
    };
    let (pid, asked) = (process.identity.pid, Ask::Rest);
    let title = view::ask_title(&asked);
    state.popup = Some(Popup::Question(Question { pid, title, then: Then::Ask(asked), consequence }));
    Outcome::Draw
}

/// What is noted until the answer comes.
fn asked(ask: &Ask) -> String {
    format!("asked: {}", view::ask_title(ask))
}

pub(super) fn ask(state: &mut ViewState, snapshot: &Snapshot, ask: Ask, yes: bool) -> Outcome {
    let Some(process) = state.process(snapshot) else { return Outcome::Draw };
    state.note = Some(asked(&ask));
    Outcome::Ask { pid: process.identity.pid, ask, yes }
}
