//! What lies over the panes: help, questions, details, the kinds, the text of a mark.

use gtop_protocol::Kind;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::canvas::Canvas;
use super::state::{FilterLine, Pane, Popup, Question, Then};
use super::text::{cut_end, left, width, wrap};
use super::theme::Role;
use super::{Cx, Target, help, kinds, pick, units};
use crate::input::{Action, Bound, Context, Group, Key, Line};

pub(super) type Lines = Vec<Vec<Span<'static>>>;

/// Draws it, if there is something.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    match &cx.state.popup {
        Some(Popup::Help(top)) => {
            let lines = help::lines(cx, area);
            boxed(cx, area, canvas, "Keys", "esc closes", lines, *top, Role::Focus, 0);
        }
        Some(Popup::Question(question)) => ask(cx, area, canvas, question),
        Some(Popup::Detail(title, text, top)) => {
            let cells = usize::from(area.width).saturating_sub(8).min(110);
            let lines = text
                .iter()
                .flat_map(|line| wrap_if_needed(line, cells))
                .map(|line| vec![Span::raw(line)])
                .collect();
            boxed(cx, area, canvas, title, "esc closes", lines, *top, Role::Focus, 0);
        }
        Some(Popup::Mark(line)) => {
            let lines =
                vec![prompt(cx, "", line), vec![cx.theme().span("enter sends it, esc does not", Role::Dim)]];
            boxed(cx, area, canvas, "Mark: a word for this moment", "", lines, 0, Role::Focus, 0);
        }
        Some(Popup::Jump(line, wrong)) => {
            let hint = "90s since the beginning, or 17:31:04; enter goes there";
            let second = wrong.as_ref().map_or_else(
                || cx.theme().span(hint, Role::Dim),
                |wrong| cx.theme().span(wrong.clone(), Role::Alarm),
            );
            let lines = vec![prompt(cx, "", line), vec![second]];
            boxed(cx, area, canvas, "Go to a time", "", lines, 0, Role::Focus, 0);
        }
        Some(Popup::Pick(picker)) => pick::draw(cx, area, canvas, picker),
        Some(Popup::Filter(line)) => filter_line(cx, area, canvas, line),
        Some(Popup::Leave) => {
            let command = cx.state.launched.as_deref().unwrap_or("the command");
            let mut lines = vec![vec![Span::raw(format!("gtop started {command}."))], Vec::new()];
            lines.extend(choices(cx, Context::Leave));
            boxed(cx, area, canvas, "Leave", "", lines, 0, Role::Focus, 0);
        }
        None if cx.state.keymap.begins(&cx.state.pending, Group::Kinds) => kind_menu(cx, area, canvas),
        None => {}
    }
}

/// Lines that fit keep their columns.
fn wrap_if_needed(line: &str, cells: usize) -> Vec<String> {
    if width(line) <= cells { vec![line.to_owned()] } else { wrap(line, cells) }
}

/// A box in the middle of the screen, as large as its lines, at least `least` cells wide, and no larger than the
/// screen; gives the area inside.
#[expect(clippy::too_many_arguments, reason = "a box is given by where it is, what it says and how")]
pub(super) fn boxed(
    cx: &Cx<'_>,
    screen: Rect,
    canvas: &mut Canvas<'_>,
    title: &str,
    note: &str,
    lines: Lines,
    top: usize,
    role: Role,
    least: usize,
) -> Rect {
    let theme = cx.theme();
    let widest = lines.iter().map(|line| line.iter().map(Span::width).sum::<usize>()).max().unwrap_or(0);
    let want = widest.max(width(title) + 4).max(width(note) + 4).max(20).max(least) + 4;
    let (columns, rows) = (usize::from(screen.width), usize::from(screen.height));
    let (cells, height) = (want.min(columns), (lines.len() + 2).min(rows));
    let area = Rect {
        x: screen.x + ((columns - cells) / 2) as u16,
        y: screen.y + ((rows - height) / 2) as u16,
        width: cells as u16,
        height: height as u16,
    };
    canvas.clear(area);
    canvas.target(area, Target::Popup);
    let edge = theme.style(role);
    let bar = "─".repeat(cells.saturating_sub(2));
    canvas.put(area, 0, 0, &format!("╭{bar}╮"), edge);
    canvas.put(
        area,
        2,
        0,
        &cut_end(&format!(" {title} "), cells.saturating_sub(4)),
        theme.style(Role::Strong),
    );
    let inside = height.saturating_sub(2);
    let top = top.min(lines.len().saturating_sub(inside));
    let hidden = lines.len().saturating_sub(inside);
    canvas.seen.below = hidden;
    canvas.seen.page = inside;
    for row in 1..height.saturating_sub(1) {
        canvas.put(area, 0, row, "│", edge);
        canvas.put(area, cells.saturating_sub(1), row, "│", edge);
    }
    if height > 1 {
        canvas.put(area, 0, height - 1, &format!("╰{bar}╯"), edge);
        let more = if hidden > 0 {
            match hidden - top {
                0 => format!("↑ this is the end · {note}"),
                below => format!("↑↓ {} more · {note}", units::some(below, "line")),
            }
        } else {
            note.to_owned()
        };
        if !more.is_empty() && cells > width(&more) + 6 {
            canvas.put(
                area,
                cells - width(&more) - 4,
                height - 1,
                &format!(" {more} "),
                theme.style(Role::Dim),
            );
        }
    }
    let inner = Rect {
        x: area.x.saturating_add(2),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(2),
    };
    for (row, spans) in lines.into_iter().skip(top).take(inside).enumerate() {
        canvas.spans(inner, row, spans);
    }
    inner
}

/// A line being typed, with its cursor.
pub(super) fn prompt(cx: &Cx<'_>, before: &str, line: &Line) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let (head, tail) = line.parts();
    let mut rest = tail.chars();
    let under = rest.next().map_or_else(|| "█".to_owned(), String::from);
    let cursor = theme.style(if tail.is_empty() { Role::Plain } else { Role::Selected });
    vec![
        theme.span(before.to_owned(), Role::Key),
        theme.span(head.to_owned(), Role::Plain),
        Span::styled(under, cursor),
        theme.span(rest.as_str().to_owned(), Role::Plain),
    ]
}

/// The filter being written, in the footer; above it what is wrong, or what can be asked.
fn filter_line(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>, filter: &FilterLine) {
    let theme = cx.theme();
    let rows = usize::from(area.height);
    let cells = usize::from(area.width);
    let (head, _) = filter.line.parts();
    // The cursor stays in sight: what is left of it gives way.
    let skip = (width(head) + 3).saturating_sub(cells);
    let bottom = Rect { y: area.y + area.height - 1, height: 1, ..area };
    let above = Rect { y: bottom.y.saturating_sub(1), ..bottom };
    canvas.clear(bottom);
    canvas.target(bottom, Target::Popup);
    if rows > 1 {
        canvas.clear(above);
        if let Some(error) = &filter.error {
            let before: String = filter.line.text().chars().take(error.at).collect();
            let at = (width(&before) + 1).saturating_sub(skip);
            let what = error.what.as_str();
            let style = theme.style(Role::Warn);
            // Right of the caret where there is room, else left of it.
            if at + width(what) + 2 <= cells {
                canvas.put(above, at, 0, &format!("↓ {what}"), style);
            } else {
                let room = at.max(cells.saturating_sub(1) / 2);
                canvas.put(above, 0, 0, &cut_end(what, room.saturating_sub(1)), style);
                canvas.put(above, at, 0, "↓", style);
            }
        } else {
            let help = " flash   name~gemm   dur>10us   stream=7   graph!=0   family=attention   a | b   !a   (↑ earlier \
                        ones)";
            canvas.put(above, 0, 0, &cut_end(help, cells), theme.style(Role::Dim));
        }
    }
    let mut spans = prompt(cx, "/", &filter.line);
    if skip > 0 {
        let text: String = head.chars().skip(skip).collect();
        spans[1] = theme.span(text, Role::Plain);
    }
    canvas.spans(bottom, 0, spans);
}

fn ask(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>, question: &Question) {
    let theme = cx.theme();
    let cells = usize::from(area.width).saturating_sub(8).min(72);
    let mut lines: Lines = question
        .consequence
        .lines()
        .flat_map(|line| wrap(line, cells))
        .map(|line| vec![theme.span(line, Role::Plain)])
        .collect();
    lines.push(Vec::new());
    lines.extend(choices(cx, Context::Question));
    // The answers are kept in sight on small screens.
    let room = usize::from(area.height).saturating_sub(2);
    let top = lines.len().saturating_sub(room);
    let title = match question.then {
        Then::Ask(_) if question.is_of_the_source() => format!("▲ {}", question.title),
        Then::Ask(_) => format!("▲ {} in process {}?", question.title, question.pid),
        Then::Signal(_) => format!("▲ {} process {}?", question.title, question.pid),
    };
    boxed(cx, area, canvas, &title, "", lines, top, Role::Alarm, 0);
}

/// The answers of a question.
fn choices(cx: &Cx<'_>, context: Context) -> Lines {
    let theme = cx.theme();
    cx.state
        .keymap
        .iter()
        .filter(|bound| bound.binding.context == context)
        .map(|bound| {
            let what = bound.binding.hint.unwrap_or(bound.binding.what);
            vec![theme.span(left(&bound.written().join(" "), 10), Role::Key), theme.span(what, Role::Plain)]
        })
        .collect()
}

fn kind_menu(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let lines = match cx.process {
        Some(process) => Kind::ALL.into_iter().map(|kind| kinds::long(cx, process, kind)).collect(),
        None => vec![vec![theme.span("no process is watched", Role::Dim)]],
    };
    boxed(cx, area, canvas, "Toggle an activity kind", "esc closes", lines, 0, Role::Focus, 0);
}

/// Whether the footer names keys of a group: those of the pane that has the keys, and of what can be done at all.
fn is_worth_a_hint(cx: &Cx<'_>, group: Group) -> bool {
    match group {
        Group::Kernels => cx.state.focus == Pane::Kernels,
        Group::Timeline => cx.state.focus == Pane::Timeline,
        Group::Replay => cx.snapshot.replay.is_some(),
        Group::Kinds => cx.snapshot.replay.is_none(),
        Group::General | Group::Places | Group::Moving | Group::Questions => true,
    }
}

/// The footer: the keys worth knowing, or the answer to the last one.
pub(super) fn footer(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    if let Some(note) = &cx.state.note {
        canvas.spans(area, 0, vec![Span::raw(" "), theme.span(note.clone(), Role::Warn)]);
        return;
    }
    // What lies over the panes takes all keys.
    let words = match &cx.state.popup {
        None => None,
        Some(Popup::Mark(_) | Popup::Jump(..) | Popup::Filter(_) | Popup::Pick(_)) => {
            Some("enter takes it, esc does not")
        }
        Some(Popup::Question(_) | Popup::Leave) => Some("one of the keys above"),
        Some(Popup::Help(_) | Popup::Detail(..)) => Some("arrows scroll, any other key closes"),
    };
    if let Some(words) = words {
        canvas.spans(area, 0, vec![Span::raw(" "), theme.span(words, Role::Dim)]);
        return;
    }
    let mut hints: Vec<(Vec<Key>, &str)> = Vec::new();
    let is_shown =
        |bound: &&Bound| bound.binding.context == Context::Panes && is_worth_a_hint(cx, bound.binding.group);
    for bound in cx.state.keymap.iter().filter(is_shown) {
        let (Some(hint), Some(key)) = (bound.binding.hint, bound.keys.first().and_then(|keys| keys.first()))
        else {
            continue;
        };
        match hints.last_mut() {
            Some((keys, last)) if *last == hint => keys.push(*key),
            _ => hints.push((vec![*key], hint)),
        }
    }
    let freeze = match cx.snapshot.replay.as_ref() {
        Some(replay) if replay.playing => "pause",
        Some(_) => "play",
        None if cx.state.frozen => "go on",
        None => "freeze",
    };
    if let Some((_, hint)) = hints.iter_mut().find(|(_, hint)| *hint == "freeze") {
        *hint = freeze;
    }
    let mut spans = vec![Span::styled(" ", Style::new())];
    let mut taken = 1;
    if !cx.state.filter.is_empty() {
        let text = format!("/{} ", cut_end(cx.state.filter.text(), usize::from(area.width) / 3));
        let close = cx.state.keymap.key_of(Action::Close).unwrap_or_default();
        let wide = width(&text) + width(&close) + " clears it  ".len();
        canvas.target(Rect { width: (taken + wide) as u16, ..area }, Target::Action(Action::Filter));
        taken += wide;
        spans.push(theme.span(text, Role::Warn));
        spans.push(theme.span(close, Role::Key));
        spans.push(theme.span(" clears it  ", Role::Dim));
    }
    for (keys, hint) in hints {
        let written: Vec<String> = keys.iter().map(Key::to_string).collect();
        let wide = width(&written.join(" ")) + 1 + width(hint) + 2;
        if taken + wide > usize::from(area.width) {
            break;
        }
        // A click on a key is that key; one on the word is the last of them.
        let mut at = taken;
        for (i, (key, text)) in keys.iter().zip(&written).enumerate() {
            let last = i + 1 == keys.len();
            let cells = if last { taken + wide - at } else { width(text) + 1 };
            let x = area.x.saturating_add(at as u16);
            canvas.target(Rect { x, width: cells as u16, ..area }, Target::Key(*key));
            at += cells;
        }
        taken += wide;
        spans.push(theme.span(written.join(" "), Role::Key));
        spans.push(theme.span(format!(" {hint}  "), Role::Dim));
    }
    canvas.spans(area, 0, spans);
}
