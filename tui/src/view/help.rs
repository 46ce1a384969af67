//! The help: every key by its group, and what signs, the mouse and the filter mean.

use ratatui::layout::Rect;
use ratatui::text::Span;

use super::Cx;
use super::popup::Lines;
use super::state::Pane;
use super::text::{left, wrap};
use super::theme::Role;
use crate::filter::Field;
use crate::input::{Bound, Group};

/// Cells of the keys in the help, and of one of its columns.
const KEY_CELLS: usize = 19;
const HELP_CELLS: usize = 57;

/// What the mouse does, and how the filter is written, for the help.
const MOUSE: &[(&str, &str)] = &[
    ("click", "tabs, keys, headings, rows, the badge"),
    ("wheel", "zooms the timeline, moves lists"),
    ("shift + wheel", "pans the timeline"),
    ("drag", "chooses a stretch of the timeline"),
];
const FILTER: &[(&str, &str)] = &[
    ("flash", "a word in names and sentences"),
    ("a b   a | b   !a", "both, one of them, not; ( ) hold together"),
    ("= != < <= > >=", "compare a field with a value"),
    ("~ !~", "contains, * is anything"),
];

/// A launch of a graph, as it is drawn in Unicode.
const LAUNCH: &str = "├────┤";

/// What signs and words on the screen stand for.
const SIGNS: &[(&str, &str)] = &[
    ("░ ▒ ▓ █", "how much of a column something runs: a little to all of it"),
    (LAUNCH, "one launch of a graph"),
    ("overlap", "kernels that run beside those of the line above"),
    ("⋅", "not traced, or records were lost: nothing is known"),
    ("⋅ among ░ ▒", "records were lost somewhere in that stretch"),
    ("╌", "no records came of that time yet: idle, or they are still on their way"),
    ("live, 90 ms late", "up to so long ago every record has come"),
    ("?   ≥ 5 %", "not known; at least so much, since some cannot be believed"),
    ("63.2 %", "busy, of what is shown or of the last second"),
    ("63.2±4.1 %", "an estimate, and half of its 95 % interval"),
    ("name~3fa1", "tells kernels apart that are called the same: part of a hash"),
    ("filtered", "something runs there, and nothing that the filter keeps"),
    ("· ▲ ✖", "for your information, a warning, an alarm"),
    ("rec/s  lost", "records that came in a second; that did not come here"),
    ("invalid", "of the last minute, with times that cannot be"),
    ("step 2.6 ms", "from a server's graph launch to its next one"),
    ("pool 3/250", "CUPTI's device buffers in use, of the most there are"),
    ("share  trend", "of the time of all kernels; that over the last seconds"),
    ("DEFECTIVE", "this CUPTI may leak device buffers: the tab of trust"),
    ("ARMED RESTING", "records come; kernels are off: unwatched, or told to"),
    ("SILENT", "the GPU works and no records come"),
    ("TAINTED", "resting, and CUPTI's device buffers leak"),
    ("STOPPED  STALE", "the process does not run; nothing is heard of it"),
];
/// Where the rest is said.
const ELSEWHERE: &[(&str, &str)] = &[
    ("gtop config", "--sample: a gtop.toml of other keys, themes, families"),
    ("gtop --help", "summaries, recordings, exports, doctor, probe"),
];

/// The groups of keys, those of what is in front of the person first; and those that hold elsewhere only.
fn groups(cx: &Cx<'_>) -> (Vec<Group>, Vec<Group>) {
    let replay = cx.snapshot.replay.is_some();
    let rank = |group: &Group| match (group, cx.state.focus) {
        (Group::General, _) => 0,
        (Group::Replay, _) => 1,
        (Group::Kernels, Pane::Kernels) | (Group::Timeline, Pane::Timeline) => 2,
        _ => 3,
    };
    let holds = |group: &Group| match group {
        Group::Replay => replay,
        Group::Questions => false,
        _ => true,
    };
    let (mut groups, elsewhere): (Vec<Group>, Vec<Group>) = Group::ALL.into_iter().partition(holds);
    groups.sort_by_key(rank);
    (groups, elsewhere)
}

/// The keys by group, from the one list; side by side where that saves scrolling.
pub(super) fn lines(cx: &Cx<'_>, area: Rect) -> Lines {
    let theme = cx.theme();
    let keys = |lines: &mut Lines, group: Group| {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(vec![theme.span(group.name(), Role::Strong)]);
        let bounds: Vec<&Bound> =
            cx.state.keymap.iter().filter(|bound| bound.binding.group == group).collect();
        for same in bounds.chunk_by(|a, b| a.binding.what == b.binding.what) {
            let keys: Vec<String> = same.iter().flat_map(|bound| bound.written()).collect();
            let gap = if keys.len() > 3 { " " } else { "  " };
            lines.push(vec![
                theme.span(left(&format!(" {}", keys.join(gap)), KEY_CELLS), Role::Key),
                Span::raw(same[0].binding.what),
            ]);
        }
    };
    let (here, elsewhere) = groups(cx);
    let mut lines = Lines::new();
    for group in here {
        keys(&mut lines, group);
    }
    let fields = Field::ALL.map(|(_, name, _, what)| (name, what));
    let filter = [FILTER, &fields].concat();
    for (heading, words) in
        [("Signs and words", SIGNS), ("Mouse", MOUSE), ("The filter", &filter), ("Elsewhere", ELSEWHERE)]
    {
        lines.extend([Vec::new(), vec![theme.span(heading, Role::Strong)]]);
        lines.extend(words.iter().map(|(what, words)| {
            let (begins, ends) = theme.bracket();
            let what =
                if *what == LAUNCH { format!("{begins}────{ends}") } else { (*what).to_owned() };
            vec![theme.span(left(&format!(" {what}"), KEY_CELLS), Role::Key), Span::raw(*words)]
        }));
    }
    for group in elsewhere {
        keys(&mut lines, group);
    }
    let (cells, height) = (usize::from(area.width).saturating_sub(4), usize::from(area.height));
    let side_by_side = lines.len() + 2 > height && cells >= 2 * HELP_CELLS;
    let column = if side_by_side { cells / 2 } else { cells };
    // What is too long for its column goes on below.
    let mut lines: Lines = lines.into_iter().flat_map(|line| folded(line, column)).collect();
    if !side_by_side {
        return lines;
    }
    // The heading nearest to the middle begins the second column.
    let middle = lines.len() / 2;
    let blanks = (0..lines.len()).filter(|i| lines[*i].is_empty());
    let blank = blanks.min_by_key(|blank| blank.abs_diff(middle)).unwrap_or(middle);
    let mut second = lines.split_off(blank);
    second.remove(0);
    for (i, line) in second.into_iter().enumerate() {
        if i >= lines.len() {
            lines.push(Vec::new());
        }
        let taken: usize = lines[i].iter().map(Span::width).sum();
        lines[i].push(Span::raw(" ".repeat(column.saturating_sub(taken))));
        lines[i].extend(line);
    }
    lines
}

/// A line of keys and words in `cells` cells, its words on several lines if they must.
fn folded(mut line: Vec<Span<'static>>, cells: usize) -> Lines {
    let room = cells.saturating_sub(KEY_CELLS + 1).max(8);
    match line.as_slice() {
        [_, words] if words.width() > room => {
            let words = wrap(&words.content, room);
            line.truncate(1);
            let mut lines: Lines = Vec::new();
            for (i, part) in words.into_iter().enumerate() {
                let before = if i == 0 { line.remove(0) } else { Span::raw(" ".repeat(KEY_CELLS)) };
                lines.push(vec![before, Span::raw(part)]);
            }
            lines
        }
        _ => vec![line],
    }
}
