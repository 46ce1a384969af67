//! What the person in front of the screen has chosen. Keys change it; drawing only reads it.

use std::sync::Arc;

use gtop_protocol::Kind;
use jiff::tz::TimeZone;
use ratatui::layout::{Position, Rect};

use super::scale::Timeline;
use super::theme::Theme;
use crate::app::Ask;
use crate::input::{Action, Key, Keymap};
use crate::model::snapshot::{Process, Snapshot};

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
}

impl Pane {
    /// Every pane.
    pub const ALL: [Self; 6] =
        [Self::Timeline, Self::Kernels, Self::Trust, Self::Memory, Self::Events, Self::Output];
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
    /// Calls in the last second.
    Rate,
    /// Median duration.
    Median,
    /// 99th percentile of the duration.
    Tail,
    /// Invalid records.
    Invalid,
    /// Name.
    Name,
}

impl Sort {
    const ALL: [Self; 6] = [Self::Share, Self::Rate, Self::Median, Self::Tail, Self::Invalid, Self::Name];

    /// As the pane's title says it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Share => "share of GPU time",
            Self::Rate => "calls a second",
            Self::Median => "median",
            Self::Tail => "99th percentile",
            Self::Invalid => "invalid records",
            Self::Name => "name",
        }
    }

    /// The one after this.
    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A question that must be answered before something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The process it is about.
    pub pid: u32,
    /// What would be asked of its shim.
    pub ask: Ask,
    /// What is about to happen.
    pub title: String,
    /// What it would do, in a sentence.
    pub consequence: String,
}

/// What lies over the panes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Popup {
    /// The keys, from this line on.
    Help(usize),
    /// A question.
    Question(Question),
    /// Something in full, from this line on.
    Detail(String, Vec<String>, usize),
    /// The text of a mark being written.
    Mark(String),
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
    /// Whether the picture stands still.
    pub frozen: bool,
    /// Whether toggles and marks are refused.
    pub read_only: bool,
    /// The command gtop started itself, if so: leaving asks what becomes of it.
    pub launched: Option<String>,
    /// Where the timeline looks.
    pub timeline: Timeline,
    /// By what kernels are sorted.
    pub sort: Sort,
    /// The selected kernel, by its name id.
    pub kernel: Option<u32>,
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
            frozen: false,
            read_only: false,
            launched: None,
            timeline: Timeline::default(),
            sort: Sort::default(),
            kernel: None,
            scroll: [0; Pane::ALL.len()],
            popup: None,
            keymap: Arc::default(),
            pending: Vec::new(),
            pressed: None,
            note: None,
            seen: Seen::default(),
        }
    }
}

impl ViewState {
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
