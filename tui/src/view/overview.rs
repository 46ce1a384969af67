//! The overview: everything at a glance. Panes give way by what matters least, and say so.
//!
//! ```text
//!  header (two lines)                         header
//!  steps, where a server makes any
//! ╭ timeline ──────────────────────╮          trust (two lines)
//! ╰────────────────────────────────╯         ─ timeline ─────────
//! ╭ kernels ───────────╮╭ trust ───╮
//! ╰────────────────────╯╰──────────╯         ─ kernels ──────────
//!  graphs, where the kernels leave room
//! ╭ memory ────────────────────────╮         ─ memory ───────────
//! ╭ events ────────────────────────╮          one event
//!  footer                                     footer
//! ```

use ratatui::layout::Rect;

use super::canvas::{Border, Canvas, Place, fit};
use super::state::Pane;
use super::theme::Role;
use super::{Cx, advice, draw_pane, events, memory, steps, trust};

/// From how many columns on panes stand side by side, and from how many rows on they have boxes.
const WIDE: u16 = 100;
const TALL: u16 = 27;

/// As many rows as graphs need to be worth it. They come where the kernels and trust leave room.
const GRAPHS: usize = 9;

fn any_graphs(cx: &Cx<'_>) -> bool {
    cx.process.is_some_and(|process| !process.graphs_view.rows.is_empty())
}

/// Takes `height` rows from the top of `rest`.
fn take(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let top = Rect { height, ..*rest };
    rest.y = rest.y.saturating_add(height);
    rest.height -= height;
    top
}

/// Draws the tab.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let border = if area.width >= WIDE && area.height >= TALL { Border::Box } else { Border::Rule };
    let frame = if border == Border::Box { 2 } else { 1 };
    let side = area.width >= WIDE && area.height >= 14;
    let mut rest = area;
    let mut left_out: Vec<&str> = Vec::new();

    if !side {
        let troubled = cx.process.is_some_and(|process| advice::on_state(cx, process).is_some());
        let lines = match area.height {
            0..4 => 0,
            4..12 => 1,
            12..18 => 2,
            _ => 2 + u16::from(troubled),
        };
        trust::draw_folded(cx, take(&mut rest, lines), canvas);
        if lines == 0 {
            left_out.push("trust");
        }
    }

    if area.height >= TALL && steps::any(cx) {
        let line = take(&mut rest, 1);
        let inner = Rect { x: line.x + 1, width: line.width.saturating_sub(2), ..line };
        canvas.spans(inner, 0, fit(steps::parts(cx), steps::GAP, usize::from(inner.width)).0);
    }

    // What each pane would like, given to them by importance as far as it goes.
    let lanes = cx.process.map_or(1, |process| process.lanes.len().max(1));
    let height = usize::from(area.height);
    let timeline = match height {
        0..12 => 0,
        12..17 => lanes.min(2) + 1 + frame,
        17..27 => lanes.min((height / 5).max(3)) + 1 + frame,
        _ => lanes.min((height / 4).max(7)) + 1 + usize::from(height >= 34) + frame,
    };
    let memory = match height {
        0..17 => 0,
        17..27 => memory::wanted(cx, area.width).min(2) + frame,
        _ => memory::wanted(cx, area.width).min((height / 8).max(2)) + frame,
    };
    let mut events = match height {
        0..10 => 0,
        10..27 => 1,
        _ => {
            events::wanted(cx, usize::from(area.width).saturating_sub(4)).clamp(2, (height / 8).max(2))
                + frame
        }
    };
    if timeline == 0 {
        left_out.push("timeline");
    }
    if memory == 0 {
        left_out.push("memory");
    }
    if events == 0 {
        left_out.push("events");
    }
    let place = |pane, area| Place { pane, area, border, focused: cx.state.focus == pane };

    if timeline > 0 {
        let area = take(&mut rest, timeline as u16);
        draw_pane(cx, place(Pane::Timeline, area), canvas);
    }
    let below = memory + events + usize::from(!left_out.is_empty());
    let height = rest.height.saturating_sub(below as u16);
    let kernels = cx.process.map_or(0, |process| process.kernels.len()) + 1 + frame;
    let trust_width = (area.width / 3).clamp(38, 60);
    let least = if side {
        kernels.max(trust::wanted(cx, usize::from(trust_width).saturating_sub(2 * frame)))
    } else {
        kernels
    };
    let spare = usize::from(height).saturating_sub(least);
    let with_graphs = side && spare >= GRAPHS && any_graphs(cx);
    let mut given = 0;
    if events > 0 && spare > 0 && !with_graphs {
        // What kernels leave goes to events.
        let most = events + spare;
        let cells = usize::from(area.width).saturating_sub(2 * frame);
        let wanted = (events::in_full(cx, cells, most) + frame).min(most);
        given = if wanted > frame + 1 { wanted.saturating_sub(events) } else { 0 };
        events += given;
    }
    let mut middle = take(&mut rest, height - given as u16);
    if middle.height > 1 {
        if side {
            let graphs = with_graphs.then(|| {
                let above = middle.height - spare as u16;
                let area = take(&mut middle, above);
                std::mem::replace(&mut middle, area)
            });
            let kernels = Rect { width: middle.width - trust_width, ..middle };
            draw_pane(cx, place(Pane::Kernels, kernels), canvas);
            middle.x += kernels.width;
            middle.width = trust_width;
            draw_pane(cx, place(Pane::Trust, middle), canvas);
            if let Some(area) = graphs {
                draw_pane(cx, place(Pane::Graphs, area), canvas);
            }
        } else {
            draw_pane(cx, place(Pane::Kernels, middle), canvas);
        }
    } else {
        left_out.push("kernels");
    }
    if memory > 0 {
        let area = take(&mut rest, memory as u16);
        draw_pane(cx, place(Pane::Memory, area), canvas);
    }
    if events == 1 {
        events::draw_folded(cx, take(&mut rest, 1), canvas);
    } else if events > 1 {
        let area = take(&mut rest, events as u16);
        draw_pane(cx, place(Pane::Events, area), canvas);
    }
    if !left_out.is_empty() {
        let words = format!(" not shown: {}", left_out.join(", "));
        canvas.spans(rest, 0, vec![cx.theme().span(words, Role::Dim)]);
    }
}
