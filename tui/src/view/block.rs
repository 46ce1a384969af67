//! A block of text below a rule with its title: what does not fit is counted.

use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::text::{cut_end, width, wrap};
use super::theme::Role;
use super::{Cx, units};
use crate::input::Action;

/// Draws a rule with a title, and lines below it as far as there is room.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, title: &str, lines: &[String], canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let cells = usize::from(area.width);
    let rule = format!("── {title} ");
    let rule = format!("{rule}{}", "─".repeat(cells.saturating_sub(width(&rule))));
    canvas.put(area, 0, 0, &rule, theme.style(Role::Dim));
    let room = usize::from(area.height).saturating_sub(1);
    let wrapped: Vec<String> = lines
        .iter()
        .flat_map(|line| match width(line) {
            fits if fits <= cells => vec![line.clone()],
            // A row of columns.
            _ if line.starts_with(' ') => vec![cut_end(line, cells)],
            _ => wrap(line, cells),
        })
        .collect();
    let fits = if wrapped.len() > room { room.saturating_sub(1) } else { room };
    for (row, line) in wrapped.iter().take(fits).enumerate() {
        canvas.put(area, 0, row + 1, line, theme.style(Role::Plain));
    }
    if wrapped.len() > fits {
        let key = cx.state.keymap.key_of(Action::Detail).unwrap_or_default();
        let more = format!("{} more ({key} shows all)", units::some(wrapped.len() - fits, "line"));
        canvas.put(area, 0, fits + 1, &more, theme.style(Role::Dim));
    }
}
