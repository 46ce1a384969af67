//! What panes draw on. Nothing can be written outside the area given, whatever the sizes are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::state::{Pane, Seen, Target};
use super::text;
use super::theme::{Role, Theme};

/// The screen of one frame.
pub(crate) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    /// How it may look.
    pub(crate) theme: Theme,
    /// What was drawn where.
    pub(crate) seen: Seen,
}

/// How a pane is set apart from its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Border {
    /// A box around it.
    Box,
    /// A rule above it.
    Rule,
}

/// What a pane is drawn into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Which pane.
    pub(crate) pane: Pane,
    /// The area, border included.
    pub(crate) area: Rect,
    /// Its border.
    pub(crate) border: Border,
    /// Whether the keys go to it.
    pub(crate) focused: bool,
}

impl Place {
    /// The area inside the border.
    pub(crate) const fn inner(self) -> Rect {
        let Rect { x, y, width, height } = self.area;
        match self.border {
            Border::Box => Rect {
                x: x.saturating_add(2),
                y: y.saturating_add(1),
                width: width.saturating_sub(4),
                height: height.saturating_sub(2),
            },
            Border::Rule => Rect {
                x: x.saturating_add(1),
                y: y.saturating_add(1),
                width: width.saturating_sub(2),
                height: height.saturating_sub(1),
            },
        }
    }
}

impl<'a> Canvas<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer, theme: Theme) -> Self {
        Self { buffer, theme, seen: Seen::default() }
    }

    /// Writes a line into row `row` of `area`, cut at its right end; rows outside are not written.
    pub(crate) fn line(&mut self, area: Rect, row: usize, line: &Line<'_>) {
        let area = area.intersection(self.buffer.area);
        if row < usize::from(area.height) && area.width > 0 {
            self.buffer.set_line(area.x, area.y + row as u16, line, area.width);
        }
    }

    /// Writes spans into row `row` of `area`.
    pub(crate) fn spans(&mut self, area: Rect, row: usize, spans: Vec<Span<'_>>) {
        self.line(area, row, &Line::from(spans));
    }

    /// Writes a text at column `column` of row `row` of `area`.
    pub(crate) fn put(&mut self, area: Rect, column: usize, row: usize, text: &str, style: Style) {
        if column < usize::from(area.width) {
            let column = column as u16;
            let rest = Rect { x: area.x.saturating_add(column), width: area.width - column, ..area };
            self.line(rest, row, &Line::from(Span::styled(text.to_owned(), style)));
        }
    }

    /// Adds a style to row `row` of `area`.
    pub(crate) fn restyle(&mut self, area: Rect, row: usize, style: Style) {
        if row < usize::from(area.height) {
            let row = Rect { y: area.y.saturating_add(row as u16), height: 1, ..area };
            self.buffer.set_style(row, style);
        }
    }

    /// Has clicks on an area mean something.
    pub(crate) fn target(&mut self, area: Rect, target: Target) {
        let area = area.intersection(self.buffer.area);
        if !area.is_empty() {
            self.seen.targets.push((area, target));
        }
    }

    /// Has clicks on row `row` of `area` mean something.
    pub(crate) fn target_row(&mut self, area: Rect, row: usize, target: Target) {
        if row < usize::from(area.height) {
            self.target(Rect { y: area.y.saturating_add(row as u16), height: 1, ..area }, target);
        }
    }

    /// Wipes an area, for what lies over the panes.
    pub(crate) fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for position in area.positions() {
            if let Some(cell) = self.buffer.cell_mut(position) {
                cell.reset();
            }
        }
    }

    /// Draws the border of a pane with its title and, as far as there is room, a note at the right, and returns the
    /// area inside.
    pub(crate) fn pane(&mut self, place: Place, title: &str, note: &str) -> Rect {
        let area = place.area.intersection(self.buffer.area);
        let edge = self.theme.style(if place.focused { Role::Focus } else { Role::Border });
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let bar = "─".repeat(width);
        self.put(area, 0, 0, &bar, edge);
        if place.border == Border::Box && width > 1 && height > 1 {
            self.put(area, 0, height - 1, &bar, edge);
            for row in 1..height - 1 {
                self.put(area, 0, row, "│", edge);
                self.put(area, width - 1, row, "│", edge);
            }
            for (column, row, corner) in
                [(0, 0, "╭"), (width - 1, 0, "╮"), (0, height - 1, "╰"), (width - 1, height - 1, "╯")]
            {
                self.put(area, column, row, corner, edge);
            }
        }
        let room = width.saturating_sub(4);
        let mark = if place.focused { "▸" } else { " " };
        let title = text::cut_end(title, room.saturating_sub(2));
        if room > 4 {
            self.put(area, 1, 0, mark, edge);
            self.put(area, 2, 0, &format!("{title} "), self.theme.style(Role::Strong));
        }
        let note_room = room.saturating_sub(text::width(&title) + 3);
        // Whole remarks give way, the last ones first; the first one is cut if it must.
        let fits = |upto: &usize| text::width(&note[..*upto]) < note_room;
        let ends = note.match_indices(" · ").map(|(at, _)| at).chain([note.len()]);
        let note = ends.filter(fits).last().map_or(note, |end| &note[..end]);
        if !note.is_empty() && note_room > 7 {
            let note = text::cut_end(note, note_room - 1);
            let column = width - 2 - text::width(&note) - 1;
            self.put(area, column, 0, &format!(" {note} "), self.theme.style(Role::Dim));
        }
        let inner = place.inner().intersection(area);
        self.seen.panes.push((place.pane, area));
        inner
    }
}

/// A piece of a line that gives way when there is no room: the higher `rank`, the sooner.
pub(crate) struct Part {
    /// What is written.
    pub(crate) spans: Vec<Span<'static>>,
    /// 0 never gives way (it is cut).
    pub(crate) rank: u8,
}

impl Part {
    pub(crate) fn new(rank: u8, spans: Vec<Span<'static>>) -> Self {
        Self { spans, rank }
    }

    pub(super) fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

/// As many of the parts as fit into `cells`, in their order, with `gap` between them; and the width taken.
pub(crate) fn fit(mut parts: Vec<Part>, gap: &str, cells: usize) -> (Vec<Span<'static>>, usize) {
    let taken = |parts: &[Part]| {
        parts.iter().map(Part::width).sum::<usize>() + text::width(gap) * parts.len().saturating_sub(1)
    };
    parts.retain(|part| part.width() > 0);
    while taken(&parts) > cells {
        let Some(worst) = (0..parts.len()).max_by_key(|&i| (parts[i].rank, i)).filter(|&i| parts[i].rank > 0)
        else {
            break;
        };
        parts.remove(worst);
    }
    let width = taken(&parts).min(cells);
    let mut spans = Vec::new();
    for (i, part) in parts.into_iter().enumerate() {
        if i > 0 {
            spans.push(Span::raw(gap.to_owned()));
        }
        spans.extend(part.spans);
    }
    (spans, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_give_way_by_rank() {
        let parts = || {
            vec![
                Part::new(2, vec!["aaa".into()]),
                Part::new(0, vec!["bb".into()]),
                Part::new(1, vec!["c".into()]),
            ]
        };
        let text = |cells| {
            let (spans, width) = fit(parts(), " ", cells);
            (Line::from(spans).to_string(), width)
        };
        assert_eq!(text(8), ("aaa bb c".into(), 8));
        assert_eq!(text(7), ("bb c".into(), 4));
        assert_eq!(text(3), ("bb".into(), 2));
        assert_eq!(text(1), ("bb".into(), 1));
    }

    #[test]
    fn nothing_is_written_outside() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 2));
        let mut canvas = Canvas::new(&mut buffer, Theme::DARK);
        let outside = Rect::new(2, 1, 50, 50);
        canvas.put(outside, 0, 0, "long text", Style::new());
        canvas.put(outside, 60, 0, "x", Style::new());
        canvas.put(outside, 0, 9, "x", Style::new());
        canvas.restyle(outside, 60, Style::new());
        canvas.clear(Rect::new(3, 0, 9, 1));
        for width in 0..8 {
            for height in 0..5 {
                let area = Rect::new(1, 1, width, height);
                for border in [Border::Box, Border::Rule] {
                    let inner = canvas.pane(
                        Place { pane: Pane::Events, area, border, focused: true },
                        "title",
                        "a note",
                    );
                    assert_eq!(inner.intersection(area), inner);
                }
            }
        }
        assert_eq!(buffer.area, Rect::new(0, 0, 4, 2));
    }
}
