//! What the person in front of the screen has chosen. Keys change it; drawing only reads it.

use std::sync::Arc;
use std::time::Duration;

use gtop_protocol::Kind;
use jiff::tz::TimeZone;
use ratatui::layout::{Position, Rect};

use super::family::Families;
use super::pick::Picker;
use super::rows::{Baseline, Group};
use super::scale::Timeline;
use super::theme::Theme;
use crate::app::Ask;
use crate::config::Config;
use crate::filter::{Filter, FilterError};
use crate::input::{Action, Key, Keymap, Line};
use crate::model::snapshot::{Process, Snapshot};

/// Moments that are kept to compare with.
const MOMENTS: usize = 32;

/// The panes of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pane {
    /// Lanes of kernels, copies and graph launches.
    #[default]
    Timeline,
    /// Kernels by name.
    Kernels,
    /// Whether to believe it.
    Trust,
    /// Memory by process.
    Memory,
    /// The event log.
    Events,
    /// What the command that gtop started prints.
    Output,
    /// Executable graphs.
    Graphs,
}

impl Pane {
    /// Every pane.
    pub const ALL: [Self; 7] =
        [Self::Timeline, Self::Kernels, Self::Trust, Self::Memory, Self::Events, Self::Output, Self::Graphs];
}

/// What the last frame showed: what the keys act on.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The panes that were drawn, and where.
    pub panes: Vec<(Pane, Rect)>,
    /// Columns of the timeline's lanes.
    pub columns: usize,
    /// Rows each pane had, by [`Pane`].
    pub rows: [usize; Pane::ALL.len()],
    /// Rows each pane would need to show all, by [`Pane`].
    pub all: [usize; Pane::ALL.len()],
    /// How far what lies over the panes can be scrolled, lines.
    pub below: usize,
    /// How much of it is on the screen, lines.
    pub page: usize,
    /// What can be clicked, and where; the last one holds where several lie over one another.
    pub targets: Vec<(Rect, Target)>,
}

/// What a click means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// What this key does.
    Key(Key),
    /// This action.
    Action(Action),
    /// A kernel's row, by its name id.
    Kernel(u32),
    /// The heading of a column of the kernels.
    Column(Sort),
    /// A process on a device, by NVML's index and its id.
    Memory((u32, u32)),
    /// This process.
    Process(u32),
    /// One of those found in a list to choose from.
    Pick(usize),
    /// A lane of the timeline, the columns of which begin at the left of the area.
    Lane(usize),
    /// What lies over the panes.
    Popup,
}

impl Seen {
    /// What lies at a place of the screen, and its area.
    #[must_use]
    pub fn target(&self, at: Position) -> Option<(Rect, Target)> {
        self.targets.iter().rev().find(|(area, _)| area.contains(at)).copied()
    }

    /// The pane at a place of the screen.
    #[must_use]
    pub fn pane(&self, at: Position) -> Option<Pane> {
        self.panes.iter().find(|(_, area)| area.contains(at)).map(|(pane, _)| *pane)
    }
}

/// By what the kernels are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Share of GPU time.
    #[default]
    Share,
    /// Calls.
    Calls,
    /// Calls in the last second.
    Rate,
    /// Shortest duration.
    Shortest,
    /// Median duration.
    Median,
    /// 99th percentile of the duration.
    Tail,
    /// Longest duration.
    Longest,
    /// Invalid records.
    Invalid,
    /// How the mean duration has changed.
    Change,
    /// Name.
    Name,
}

impl Sort {
    /// Every order, with its name for people and its name in `gtop.toml`.
    pub const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::Share, "share of GPU time", "share"),
        (Self::Calls, "calls", "calls"),
        (Self::Rate, "calls a second", "rate"),
        (Self::Shortest, "shortest duration", "min"),
        (Self::Median, "median duration", "p50"),
        (Self::Tail, "99th percentile of durations", "p99"),
        (Self::Longest, "longest duration", "max"),
        (Self::Invalid, "invalid records", "invalid"),
        (Self::Change, "change", "change"),
        (Self::Name, "name", "name"),
    ];

    /// As the pane's title says it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(sort, ..)| *sort == self).map_or("", |(_, name, _)| name)
    }

    /// The one after this; by change only when there is something to compare with.
    pub(crate) fn next(self, compared: bool) -> Self {
        let at = Self::ALL.iter().position(|(sort, ..)| *sort == self).unwrap_or(0);
        let next = Self::ALL[(at + 1) % Self::ALL.len()].0;
        if next == Self::Change && !compared { Self::Name } else { next }
    }
}

/// A question that must be answered before something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The process it is about.
    pub pid: u32,
    /// What would be done.
    pub then: Then,
    /// What is about to happen.
    pub title: String,
    /// What it would do, in a sentence.
    pub consequence: String,
}

impl Question {
    /// Whether it came by itself, and not behind a key.
    pub(crate) fn is_of_the_source(&self) -> bool {
        self.then == Then::Ask(Ask::Inject(true))
    }
}

/// What is done after a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// The shim of the process is asked for this.
    Ask(Ask),
    /// The process is sent this signal.
    Signal(i32),
}

/// A filter being written.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterLine {
    /// What is written.
    pub line: Line,
    /// What was shown before.
    pub before: Filter,
    /// What is wrong with it.
    pub error: Option<FilterError>,
    /// Which of the remembered ones it was taken from.
    pub recalled: Option<usize>,
}

/// What lies over the panes.
#[derive(Clone, Debug, PartialEq)]
pub enum Popup {
    /// The keys, from this line on.
    Help(usize),
    /// A question.
    Question(Question),
    /// Something in full, from this line on.
    Detail(String, Vec<String>, usize),
    /// The text of a mark being written.
    Mark(Line),
    /// A time of a recording being written, and what is wrong with it.
    Jump(Line, Option<String>),
    /// A filter being written.
    Filter(FilterLine),
    /// One of many being chosen.
    Pick(Picker),
    /// Whether to leave the launched command running or to stop it.
    Leave,
}

/// What the person has chosen.
#[derive(Clone, Debug)]
pub struct ViewState {
    /// How the screen may look.
    pub theme: Theme,
    /// The zone of the times shown.
    pub zone: TimeZone,
    /// The present, `CLOCK_REALTIME` nanoseconds: what ages are counted from.
    pub now: u64,
    /// The tab, an index of the list of tabs.
    pub tab: usize,
    /// The pane the keys go to.
    pub focus: Pane,
    /// The process shown, if one was chosen.
    pub pid: Option<u32>,
    /// Whether several processes are shown side by side.
    pub together: bool,
    /// Whether the picture stands still.
    pub frozen: bool,
    /// For how long nothing has been told of what is watched, when that is too long.
    pub stalled: Option<Duration>,
    /// Whether toggles and marks are refused.
    pub read_only: bool,
    /// The command gtop started itself, if so: leaving asks what becomes of it.
    pub launched: Option<String>,
    /// Where the timeline looks.
    pub timeline: Timeline,
    /// By what kernels are sorted.
    pub sort: Sort,
    /// Whether the least comes first.
    pub reversed: bool,
    /// What the rows of the kernels' table are.
    pub group: Group,
    /// The families of kernels.
    pub families: Families,
    /// The selected kernel, by its name id.
    pub kernel: Option<u32>,
    /// The selected process on a device, by NVML's index and its id.
    pub memory_row: Option<(u32, u32)>,
    /// What is shown, on every pane.
    pub filter: Filter,
    /// Filters that were used, the newest last.
    pub filters: Vec<String>,
    /// Kernels at the marks that were seen, the newest last.
    pub moments: Vec<Baseline>,
    /// The time of the newest mark among them, `CLOCK_REALTIME` nanoseconds.
    pub last_mark: u64,
    /// What kernels are compared with.
    pub baseline: Option<Baseline>,
    /// The first row shown of the panes that only scroll, by [`Pane`].
    pub scroll: [usize; Pane::ALL.len()],
    /// What lies over the panes.
    pub popup: Option<Popup>,
    /// What keys do.
    pub keymap: Arc<Keymap>,
    /// Keys of a sequence that has begun.
    pub pending: Vec<Key>,
    /// Where on the timeline the mouse was pressed, as a column's time, as long as it is.
    pub pressed: Option<(u64, u64)>,
    /// A short answer shown in the footer until the next key.
    pub note: Option<String>,
    /// Whether the question that came by itself has its answer.
    pub settled: bool,
    /// What the last frame showed.
    pub seen: Seen,
}

impl Default for ViewState {
    fn default() -> Self {
        Self {
            theme: Theme::DARK,
            zone: TimeZone::UTC,
            now: 0,
            tab: 0,
            focus: Pane::default(),
            pid: None,
            together: false,
            frozen: false,
            stalled: None,
            read_only: false,
            launched: None,
            timeline: Timeline::default(),
            sort: Sort::default(),
            reversed: false,
            group: Group::default(),
            families: Families::default(),
            kernel: None,
            memory_row: None,
            filter: Filter::default(),
            filters: Vec::new(),
            moments: Vec::new(),
            last_mark: 0,
            baseline: None,
            scroll: [0; Pane::ALL.len()],
            popup: None,
            keymap: Arc::default(),
            pending: Vec::new(),
            pressed: None,
            note: None,
            settled: false,
            seen: Seen::default(),
        }
    }
}

impl ViewState {
    /// The screen as somebody wants it at first.
    #[must_use]
    pub fn new(config: &Config, theme: Option<Theme>) -> Self {
        let tab = usize::from(config.tab).saturating_sub(1).min(super::TABS.len() - 1);
        Self {
            theme: theme.or(config.theme).unwrap_or_else(Theme::detect),
            zone: TimeZone::system(),
            read_only: config.read_only,
            tab,
            focus: super::TABS[tab].pane.unwrap_or_default(),
            sort: config.sort,
            group: config.group,
            timeline: Timeline::with_column(config.column),
            filter: crate::filter::parse(&config.filter).unwrap_or_default(),
            keymap: Arc::clone(&config.keymap),
            families: config.families.clone(),
            ..Self::default()
        }
    }

    /// The process shown: the chosen one while it is there, else the busiest.
    #[must_use]
    pub fn process<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Process> {
        self.process_index(snapshot).and_then(|index| snapshot.processes.get(index))
    }

    /// Its place among the processes.
    pub(crate) fn process_index(&self, snapshot: &Snapshot) -> Option<usize> {
        let chosen = snapshot.processes.iter().position(|process| Some(process.identity.pid) == self.pid);
        chosen.or_else(|| (!snapshot.processes.is_empty()).then_some(0))
    }

    /// Shows another process.
    pub(crate) fn show_process(&mut self, pid: u32) {
        self.pid = Some(pid);
        self.kernel = None;
        self.timeline.follow();
    }

    /// Adds processes that have come to the list of them, if that is open.
    pub(crate) fn take_newcomers(&mut self, snapshot: &Snapshot) {
        if let Some(Popup::Pick(picker)) = &mut self.popup
            && picker.is_of_processes()
        {
            super::processes::take_newcomers(picker, snapshot);
        }
    }

    /// Asks what the source asks. A question that comes by itself waits until nobody types (`calm`): a key was meant for
    /// something else then.
    pub(crate) fn take_question(&mut self, snapshot: &Snapshot, calm: bool) {
        let is_shown = matches!(&self.popup, Some(Popup::Question(question)) if question.is_of_the_source());
        let Some(asks) = &snapshot.source.asks else {
            self.settled = false;
            self.popup.take_if(|_| is_shown);
            return;
        };
        if is_shown || !self.settled && calm && self.popup.is_none() && self.pending.is_empty() {
            self.popup = Some(Popup::Question(Question {
                pid: asks.pid,
                title: asks.title.clone(),
                then: Then::Ask(Ask::Inject(true)),
                consequence: asks.lines.join("\n"),
            }));
        }
    }

    /// Keeps the kernels as they are at marks that have come, to compare with them later.
    pub fn take_moments(&mut self, snapshot: &Snapshot) {
        let newest = self.last_mark;
        let marks = snapshot.events.iter().filter(|event| event.topic == "mark" && event.time > newest);
        for mark in marks {
            self.last_mark = self.last_mark.max(mark.time);
            let of = |process: &&Process| mark.pid.is_none_or(|pid| process.identity.pid == pid);
            for process in snapshot.processes.iter().filter(of) {
                let label = format!("{} {}", mark.text, super::units::clock(mark.time, &self.zone));
                self.moments.push(Baseline::of(process, label, true));
            }
        }
        let mut old = self.moments.iter().filter(|moment| moment.earlier).count().saturating_sub(MOMENTS);
        self.moments.retain(|moment| {
            let goes = moment.earlier && old > 0;
            old -= usize::from(goes);
            !goes
        });
    }

    /// How old the picture is, seconds.
    pub(crate) fn age(&self, snapshot: &Snapshot) -> f64 {
        self.now.saturating_sub(snapshot.time) as f64 / 1e9
    }

    /// The first row of a pane that shows `rows` of `all` rows and only scrolls.
    pub(crate) fn top(&self, pane: Pane, all: usize, rows: usize) -> usize {
        self.scroll[pane as usize].min(all.saturating_sub(rows))
    }
}

/// The letter that toggles a kind after `t`.
#[must_use]
pub const fn kind_letter(kind: Kind) -> char {
    match kind {
        Kind::Kernel => 'k',
        Kind::Memcpy => 'm',
        Kind::Memset => 's',
        Kind::Overhead => 'o',
        Kind::Sync => 'y',
        Kind::Memory => 'a',
        Kind::Runtime => 'r',
        Kind::Driver => 'd',
    }
}
