//! The screen, drawn from a snapshot and from what the person in front of it has chosen.
//!
//! One pane a file; a tab is a line in `TABS`. Panes draw on a `canvas` that lets nothing out of its area, ask
//! `theme` for every style, and say what they had to leave out.

mod account;
mod advice;
mod axis;
mod block;
mod canvas;
mod causes;
mod chart;
mod chooser;
mod consent;
mod detail;
mod durations;
mod effect;
mod events;
mod family;
mod findings;
#[cfg(test)]
mod fixture;
mod graph_tree;
mod graphs;
mod graphs_below;
mod header;
mod help;
#[cfg(test)]
mod in_terminal;
mod kept;
mod kernels;
mod kinds;
mod live;
mod memory;
mod names;
mod output;
mod overview;
mod pick;
mod plain;
mod pool;
mod popup;
mod processes;
mod rates;
mod rows;
mod run;
mod sampled;
mod scale;
mod screenshot;
mod spark;
mod state;
mod steps;
mod stretch;
mod subjects;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod timeline;
mod trust;
mod under_cursor;
pub(crate) mod units;
mod untraced;
#[cfg(test)]
mod with_filter;
#[cfg(test)]
mod with_keys;
#[cfg(test)]
mod with_mouse;
#[cfg(test)]
mod with_question;
#[cfg(test)]
mod with_sizes;
#[cfg(test)]
mod with_timeline;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(crate) use advice::what_helps;
pub(crate) use axis::marks;
use canvas::{Border, Canvas, Place};
pub use chooser::{Candidate, Choice, choose};
pub use consent::{Reply, ask};
pub(crate) use detail::{detail, last_of};
pub(crate) use effect::{ask_title, effect, giving_up};
pub use family::{FAMILIES, Families, OTHER};
pub(crate) use kept::{Kept, lanes};
pub(crate) use memory::moved as memory_moved;
pub use pick::{Item, Pick, Picker};
pub(crate) use processes::items as process_items;
pub use rows::{Baseline, Group};
pub(crate) use rows::{Row, rows, selected};
pub use run::{End, Options, run};
pub(crate) use scale::newest;
pub(crate) use scale::{Range, hull};
pub use scale::{Timeline, Window};
pub use screenshot::{render, render_svg, render_text};
pub use state::{FilterLine, Pane, Popup, Question, Seen, Sort, Target, Then, ViewState, kind_letter};
use theme::Role;
pub use theme::Theme;
pub(crate) use untraced::Traced;

use crate::model::snapshot::{Link, Process, Snapshot, SourceKind};

/// What every pane draws from.
#[derive(Clone, Copy)]
struct Cx<'a> {
    snapshot: &'a Snapshot,
    process: Option<&'a Process>,
    state: &'a ViewState,
}

impl Cx<'_> {
    fn tabs(&self) -> &'static [Tab] {
        tabs(self.snapshot)
    }

    /// Whether there is a shim that can be asked for something.
    fn can_ask(&self) -> bool {
        let ended = self.process.is_some_and(|process| matches!(process.link, Link::Ended(_)));
        !ended && self.snapshot.replay.is_none() && self.snapshot.source.kind != SourceKind::File
    }

    const fn theme(&self) -> Theme {
        self.state.theme
    }
}

/// A tab: a title, how it is drawn, and the pane the keys go to when it is opened.
pub(crate) struct Tab {
    pub(crate) title: &'static str,
    /// The title where there is little room.
    brief: &'static str,
    pub(crate) pane: Option<Pane>,
    draw: fn(&Cx<'_>, Rect, &mut Canvas<'_>),
}

/// The tabs, in the order of their numbers.
pub(crate) const TABS: &[Tab] = &[
    Tab { title: "Overview", brief: "Over", pane: None, draw: overview::draw },
    Tab {
        title: "Timeline",
        brief: "Time",
        pane: Some(Pane::Timeline),
        draw: |cx, area, canvas| alone(cx, Pane::Timeline, area, canvas),
    },
    Tab {
        title: "Kernels",
        brief: "Kern",
        pane: Some(Pane::Kernels),
        draw: |cx, area, canvas| alone(cx, Pane::Kernels, area, canvas),
    },
    Tab {
        title: "Graphs",
        brief: "Graph",
        pane: Some(Pane::Graphs),
        draw: |cx, area, canvas| alone(cx, Pane::Graphs, area, canvas),
    },
    Tab {
        title: "Memory",
        brief: "Mem",
        pane: Some(Pane::Memory),
        draw: |cx, area, canvas| account::draw(cx, area, canvas),
    },
    Tab {
        title: "Trust",
        brief: "Trust",
        pane: Some(Pane::Trust),
        draw: |cx, area, canvas| alone(cx, Pane::Trust, area, canvas),
    },
    Tab {
        title: "Events",
        brief: "Event",
        pane: Some(Pane::Events),
        draw: |cx, area, canvas| findings::draw(cx, area, canvas),
    },
    Tab {
        title: "Output",
        brief: "Out",
        pane: Some(Pane::Output),
        draw: |cx, area, canvas| alone(cx, Pane::Output, area, canvas),
    },
];

/// The tabs there are now: the last one is for a command that gtop started.
pub(crate) fn tabs(snapshot: &Snapshot) -> &'static [Tab] {
    &TABS[..TABS.len() - usize::from(snapshot.output.is_none())]
}

/// The place of the tab of the kernels.
pub(crate) fn kernels_tab() -> usize {
    TABS.iter().position(|tab| tab.pane == Some(Pane::Kernels)).unwrap_or(0)
}

/// The place of the tab of the timeline.
pub(crate) fn timeline_tab() -> usize {
    TABS.iter().position(|tab| tab.pane == Some(Pane::Timeline)).unwrap_or(0)
}

/// One pane on the whole area.
fn alone(cx: &Cx<'_>, pane: Pane, area: Rect, canvas: &mut Canvas<'_>) {
    let border = if area.height >= 8 && area.width >= 60 { Border::Box } else { Border::Rule };
    draw_pane(cx, Place { pane, area, border, focused: true }, canvas);
}

fn draw_pane(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    #[cfg(test)]
    in_terminal::break_on_purpose(place.pane);
    match place.pane {
        Pane::Timeline => timeline::draw(cx, place, canvas),
        Pane::Kernels => kernels::draw(cx, place, canvas),
        Pane::Graphs => graphs::draw(cx, place, canvas),
        Pane::Trust => trust::draw(cx, place, canvas),
        Pane::Memory => memory::draw(cx, place, canvas),
        Pane::Events => events::draw(cx, place, canvas),
        Pane::Output => output::draw(cx, place, canvas),
    }
}

/// Draws one frame into `buffer`, and says what was drawn where.
pub fn draw(snapshot: &Snapshot, state: &ViewState, buffer: &mut Buffer) -> Seen {
    let area = buffer.area;
    let cx = Cx { snapshot, process: state.process(snapshot), state };
    let mut canvas = Canvas::new(buffer, state.theme);
    if area.is_empty() {
        return canvas.seen;
    }
    let head = match area.height {
        1..4 => 1,
        _ => 2,
    };
    let foot = u16::from(area.height >= 5);
    let body = Rect { y: area.y + head, height: area.height - head - foot, ..area };
    header::draw(&cx, Rect { height: head, ..area }, &mut canvas);
    let tab = TABS.get(state.tab).unwrap_or(&TABS[0]);
    if state.together && snapshot.processes.len() > 1 {
        side_by_side(&cx, tab, body, &mut canvas);
    } else {
        (tab.draw)(&cx, body, &mut canvas);
    }
    if foot > 0 {
        popup::footer(&cx, Rect { y: area.y + area.height - 1, height: 1, ..area }, &mut canvas);
    }
    popup::draw(&cx, area, &mut canvas);
    let seen = canvas.seen;
    if state.theme.ascii {
        for cell in &mut buffer.content {
            cell.set_char(theme::ascii(cell.symbol()));
        }
    }
    seen
}

/// The same tab of several processes beside one another, the one that is shown first; as many as fit.
fn side_by_side(cx: &Cx<'_>, tab: &Tab, area: Rect, canvas: &mut Canvas<'_>) {
    /// The fewest columns of a process.
    const LEAST: u16 = 56;
    let all = &cx.snapshot.processes;
    let fit = usize::from((area.width / LEAST).max(1)).min(all.len());
    let first = cx.state.process_index(cx.snapshot).unwrap_or(0);
    let wide = area.width / fit as u16;
    for place in 0..fit {
        let process = &all[(first + place) % all.len()];
        let x = area.x + wide * place as u16;
        let width = if place + 1 == fit { area.x + area.width - x } else { wide - 1 };
        let column = Rect { x, width, ..area };
        let identity = &process.identity;
        let (state, role) = header::state_or_last(cx, process);
        let hidden = all.len() - fit;
        let more =
            if place + 1 == fit && hidden > 0 { format!("  +{hidden} not shown") } else { String::new() };
        let title = vec![
            cx.theme().span(format!(" {} {} ", header::name_of(identity), identity.pid), Role::Strong),
            cx.theme().span(state, role),
            cx.theme().span(more, Role::Dim),
        ];
        canvas.spans(column, 0, title);
        let below = Rect { y: column.y + 1, height: column.height.saturating_sub(1), ..column };
        let cx = Cx { process: Some(process), ..*cx };
        if place == 0 {
            (tab.draw)(&cx, below, canvas);
        } else {
            // Keys and clicks are for the first.
            let seen = canvas.seen.clone();
            (tab.draw)(&cx, below, canvas);
            canvas.seen = seen;
        }
        let target = Target::Process(identity.pid);
        canvas.target(Rect { height: 1, ..column }, target);
    }
}

/// Whether an age is on the screen, so that it must be drawn again although nothing came.
#[must_use]
pub fn shows_age(snapshot: &Snapshot, state: &ViewState) -> bool {
    live::shows_age(&Cx { snapshot, process: state.process(snapshot), state })
}
