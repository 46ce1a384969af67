//! The one list of keys. The footer, the help and what a key does all come from it.

use gtop_protocol::Kind;

use super::{Action, Key};

mod bound;

pub use bound::{Bound, Found, KeyError, Keymap};

/// Where a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// On the panes.
    Panes,
    /// While a question is asked.
    Question,
    /// While gtop asks what becomes of the command it launched.
    Leave,
}

/// Under which heading the help lists a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Leaving, help, freezing.
    General,
    /// Tabs, panes, processes.
    Places,
    /// Moving in a pane.
    Moving,
    /// The timeline.
    Timeline,
    /// Moving in the time of a recording.
    Replay,
    /// What is asked of the shim.
    Kinds,
    /// The kernels' table.
    Kernels,
    /// Questions.
    Questions,
}

impl Group {
    /// Every group, in the order of the help.
    pub const ALL: [Self; 8] = [
        Self::General,
        Self::Places,
        Self::Moving,
        Self::Kernels,
        Self::Timeline,
        Self::Replay,
        Self::Kinds,
        Self::Questions,
    ];

    /// The heading.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::General => "General",
            Self::Places => "Tabs and panes",
            Self::Moving => "Moving",
            Self::Kernels => "Kernels",
            Self::Timeline => "Timeline",
            Self::Replay => "Replay (space plays it, or lets it stand still)",
            Self::Kinds => "What is recorded",
            Self::Questions => "Questions",
        }
    }
}

/// What some keys do.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The action.
    pub action: Action,
    /// The keys, each a key or a sequence of keys with blanks between.
    pub keys: &'static [&'static str],
    /// What it does, for the help.
    pub what: &'static str,
    /// One word for the footer, if it is shown there.
    pub hint: Option<&'static str>,
    /// Its heading in the help.
    pub group: Group,
    /// Where it holds.
    pub context: Context,
}

const fn on_panes(
    group: Group,
    action: Action,
    keys: &'static [&'static str],
    hint: Option<&'static str>,
    what: &'static str,
) -> Binding {
    Binding { action, keys, what, hint, group, context: Context::Panes }
}

const fn on_question(
    context: Context,
    action: Action,
    keys: &'static [&'static str],
    hint: &'static str,
    what: &'static str,
) -> Binding {
    Binding { action, keys, what, hint: Some(hint), group: Group::Questions, context }
}

/// All keys.
pub const BINDINGS: &[Binding] = &[
    on_panes(Group::General, Action::Help, &["?"], Some("help"), "show or hide this help"),
    on_panes(Group::General, Action::Filter, &["/"], Some("filter"), "show only what matches, on every pane"),
    on_panes(Group::General, Action::Freeze, &["space"], Some("freeze"), "stop the picture, or let it go on"),
    on_panes(Group::General, Action::Record, &["R"], None, "record into a new file, or end the recording"),
    on_panes(Group::General, Action::Quit, &["q", "ctrl-c"], Some("quit"), "leave gtop"),
    on_panes(Group::General, Action::Copy, &["y"], None, "copy what is selected (OSC 52)"),
    on_panes(
        Group::General,
        Action::Screenshot,
        &["ctrl-s"],
        None,
        "write the screen into .svg and .txt files",
    ),
    on_panes(Group::General, Action::Dot, &["D"], None, "write the chosen graph into a .dot file"),
    on_panes(Group::General, Action::Theme, &["ctrl-t"], None, "the next theme"),
    on_panes(Group::General, Action::Suspend, &["ctrl-z"], None, "suspend gtop"),
    on_panes(Group::General, Action::Redraw, &["ctrl-l"], None, "draw everything again"),
    on_panes(Group::Places, Action::NextPane, &["tab"], Some("pane"), "give the keys to the next pane"),
    on_panes(Group::Places, Action::PreviousPane, &["shift-tab"], None, "give the keys to the previous pane"),
    on_panes(Group::Places, Action::Tab(1), &["1"], None, "Overview: everything at a glance"),
    on_panes(Group::Places, Action::Tab(2), &["2"], None, "Timeline: what ran when"),
    on_panes(Group::Places, Action::Tab(3), &["3"], None, "Kernels: by name, family or graph"),
    on_panes(Group::Places, Action::Tab(4), &["4"], None, "Graphs: executable graphs"),
    on_panes(Group::Places, Action::Tab(5), &["5"], None, "Memory: who has it"),
    on_panes(Group::Places, Action::Tab(6), &["6"], None, "Trust: what can be believed"),
    on_panes(Group::Places, Action::Tab(7), &["7"], None, "Events: findings and the log"),
    on_panes(Group::Places, Action::Tab(8), &["8"], None, "Output: of the command gtop started"),
    on_panes(Group::Places, Action::NextProcess, &["p"], None, "show the next process"),
    on_panes(Group::Places, Action::SideBySide, &["a"], None, "processes side by side, or one"),
    on_panes(Group::Places, Action::FindProcess, &["P"], None, "list the processes, and choose one"),
    on_panes(Group::Places, Action::Signal, &["K"], None, "send a process a signal; asks first"),
    on_panes(Group::Moving, Action::Up, &["up", "k"], None, "up a row or lane"),
    on_panes(Group::Moving, Action::Down, &["down", "j"], None, "down a row or lane"),
    on_panes(Group::Moving, Action::PageUp, &["pgup", "ctrl-u"], None, "a page up"),
    on_panes(Group::Moving, Action::PageDown, &["pgdn", "ctrl-d"], None, "a page down"),
    on_panes(Group::Moving, Action::First, &["home", "g"], None, "the first row"),
    on_panes(Group::Moving, Action::Last, &["end", "G"], None, "the last row; timeline: go live"),
    on_panes(Group::Moving, Action::Detail, &["enter"], Some("more"), "show what is selected in full"),
    on_panes(
        Group::Moving,
        Action::Close,
        &["esc"],
        None,
        "close what lies over; then let range and filter go",
    ),
    on_panes(Group::Kernels, Action::Sort, &["s"], Some("sort"), "sort by the next column"),
    on_panes(Group::Kernels, Action::SortReverse, &["S"], None, "the other way round"),
    on_panes(
        Group::Kernels,
        Action::Group,
        &["o"],
        Some("group"),
        "group by kernel, template, family, graph",
    ),
    on_panes(
        Group::Kernels,
        Action::Compare,
        &["c"],
        Some("compare"),
        "compare with now, a mark or the recording of --compare",
    ),
    on_panes(Group::Kernels, Action::ShowKernel, &["x"], None, "go to its last record on the timeline"),
    on_panes(Group::Kernels, Action::FindKernel, &["f"], Some("find"), "find one by a few of its letters"),
    on_panes(Group::Timeline, Action::Left, &["left", "h"], None, "cursor left; leaves live"),
    on_panes(Group::Timeline, Action::Right, &["right", "l"], None, "cursor right"),
    on_panes(Group::Timeline, Action::PageLeft, &["shift-left", "H"], None, "a quarter of the screen back"),
    on_panes(
        Group::Timeline,
        Action::PageRight,
        &["shift-right", "L"],
        None,
        "a quarter of the screen ahead",
    ),
    on_panes(Group::Timeline, Action::Live, &["."], None, "go live: follow the newest record again"),
    on_panes(
        Group::Timeline,
        Action::ChooseRange,
        &["r"],
        Some("stretch"),
        "choose a stretch from here; again: to here; again: none",
    ),
    on_panes(
        Group::Timeline,
        Action::ShowRange,
        &["z"],
        None,
        "zoom to the chosen stretch, or to all there is",
    ),
    on_panes(Group::Timeline, Action::PreviousRecord, &["N"], None, "the previous record of the lane"),
    on_panes(Group::Timeline, Action::NextRecord, &["n"], None, "the next record of the lane"),
    on_panes(
        Group::Timeline,
        Action::Longest,
        &["w"],
        None,
        "the longest record of the column, or of the stretch",
    ),
    on_panes(Group::Timeline, Action::PreviousGap, &["E"], None, "the gap before, where nothing runs"),
    on_panes(Group::Timeline, Action::NextGap, &["e"], Some("gap"), "the next gap, where nothing runs"),
    on_panes(Group::Timeline, Action::PreviousInvalid, &["I"], None, "where bad times came before"),
    on_panes(Group::Timeline, Action::NextInvalid, &["i"], None, "where bad times came next"),
    on_panes(Group::Timeline, Action::PreviousMark, &["\""], None, "the mark before"),
    on_panes(Group::Timeline, Action::NextMark, &["'"], None, "the next mark"),
    on_panes(Group::Timeline, Action::ZoomIn, &["+"], Some("zoom"), "zoom in: less time in a column"),
    on_panes(Group::Timeline, Action::ZoomOut, &["-"], Some("zoom"), "zoom out: more time in a column"),
    on_panes(Group::Timeline, Action::ZoomReset, &["="], None, "the first zoom again"),
    on_panes(
        Group::Replay,
        Action::StepBack,
        &["["],
        Some("step"),
        "the moment before at which records came",
    ),
    on_panes(Group::Replay, Action::StepAhead, &["]"], Some("step"), "the next moment at which records came"),
    on_panes(Group::Replay, Action::Slower, &["<"], Some("speed"), "play slower, down to ×0.1"),
    on_panes(Group::Replay, Action::Faster, &[">"], Some("speed"), "play faster, up to ×100"),
    on_panes(Group::Replay, Action::Jump, &["J"], Some("go to"), "go to a time: 90s, 17:31:04"),
    on_panes(Group::Replay, Action::FirstInvalid, &["B"], None, "go to the first record with bad times"),
    on_panes(Group::Replay, Action::NextOfKernel, &["X"], None, "the next record of the chosen kernels"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Kernel), &["t k"], Some("kinds"), "kernels on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Memcpy), &["t m"], None, "memory copies on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Memset), &["t s"], None, "memory sets on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Overhead), &["t o"], None, "CUPTI's own overhead on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Sync), &["t y"], None, "synchronisation on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Memory), &["t a"], None, "allocations and frees on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Runtime), &["t r"], None, "runtime API calls on or off"),
    on_panes(Group::Kinds, Action::Toggle(Kind::Driver), &["t d"], None, "driver API calls on or off"),
    on_panes(
        Group::Kinds,
        Action::Budget,
        &["b"],
        None,
        "trace in windows, for at most 1 % of its time, or in full",
    ),
    on_panes(Group::Kinds, Action::Rest, &["T"], None, "rest, for another tool; again: watch, or try to"),
    on_panes(Group::Kinds, Action::Mark, &["m"], Some("mark"), "put a mark into the stream of every viewer"),
    on_question(Context::Question, Action::Yes, &["y"], "yes, do it", "do it, knowing what it does"),
    on_question(Context::Question, Action::No, &["n", "esc", "q"], "no, leave it", "leave it as it is"),
    on_question(Context::Leave, Action::Yes, &["l"], "leave it running", "leave gtop, the command goes on"),
    on_question(Context::Leave, Action::Stop, &["s"], "stop it", "leave gtop and stop the command"),
    on_question(Context::Leave, Action::No, &["esc", "n", "q"], "stay", "stay in gtop"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn lookup(context: Context, keys: &[Key]) -> Found {
        Keymap::default().lookup(context, keys)
    }

    #[test]
    fn every_key_is_written_well_and_means_one_thing() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            assert!(!binding.keys.is_empty() && !binding.what.is_empty(), "{:?}", binding.action);
            for written in binding.keys {
                let keys: Vec<Key> = written.split(' ').map(|key| Key::parse(key).expect(written)).collect();
                assert!(seen.insert((binding.context, *written)), "{written} is there twice");
                assert_eq!(lookup(binding.context, &keys), Found::Action(binding.action), "{written}");
                for begun in 1..keys.len() {
                    let begun = lookup(binding.context, &keys[..begun]);
                    assert_eq!(begun, Found::Prefix, "a shorter key hides {written}");
                }
            }
        }
    }

    #[test]
    fn every_kind_can_be_toggled_by_its_letter() {
        for kind in Kind::ALL {
            let letter = crate::view::kind_letter(kind).to_string();
            let keys = [Key::parse("t"), Key::parse(&letter)].map(Option::unwrap);
            assert_eq!(lookup(Context::Panes, &keys), Found::Action(Action::Toggle(kind)));
        }
    }

    #[test]
    fn unknown_keys_mean_nothing() {
        let keys = ["t", "x"].map(|key| Key::parse(key).unwrap());
        assert_eq!(lookup(Context::Panes, &keys), Found::Nothing);
        assert_eq!(lookup(Context::Question, &keys[..1]), Found::Nothing);
    }
}
