//! One frame as text or as SVG, from the same drawing as the screen.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Modifier};

use super::{Seen, ViewState, draw, text};
use crate::model::snapshot::Snapshot;

/// Draws one frame of this size.
#[must_use]
pub fn render(snapshot: &Snapshot, state: &ViewState, size: Size) -> (Buffer, Seen) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    let seen = draw(snapshot, state, &mut buffer);
    (buffer, seen)
}

/// One frame as lines of text, without blanks at their ends.
#[must_use]
pub fn render_text(snapshot: &Snapshot, state: &ViewState, size: Size) -> String {
    let (buffer, _) = render(snapshot, state, size);
    let mut text = String::new();
    for row in rows(&buffer) {
        let line: String = row.iter().map(|(_, cell)| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One frame as an SVG picture, for pages and reports.
#[must_use]
pub fn render_svg(snapshot: &Snapshot, state: &ViewState, size: Size) -> String {
    // DejaVu Sans Mono at 14: with these, boxes and bars of neighbouring cells touch.
    const CELL: (f64, f64) = (8.43, 16.3);
    const MARGIN: f64 = 12.0;
    let (buffer, _) = render(snapshot, state, size);
    let (wide, high) = (f64::from(size.width) * CELL.0, f64::from(size.height) * CELL.1);
    let (full_wide, full_high) = (wide + 2.0 * MARGIN, high + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_wide:.1} {full_high:.1}\" \
         width=\"{full_wide:.0}\" height=\"{full_high:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
         fill=\"{GROUND}\"/>\n<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for (y, row) in rows(&buffer).into_iter().enumerate() {
        let top = MARGIN + y as f64 * CELL.1;
        let mut at = 0;
        while at < row.len() {
            let look = Look::of(row[at].1);
            let end = (at..row.len()).find(|&i| Look::of(row[i].1) != look).unwrap_or(row.len());
            let run: String = row[at..end].iter().map(|(_, cell)| cell.symbol()).collect();
            let left = MARGIN + row[at].0 as f64 * CELL.0;
            let span = text::width(&run) as f64 * CELL.0;
            if look.ground != GROUND {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{span:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                    CELL.1, look.ground
                );
            }
            if !run.trim().is_empty() {
                let _ = writeln!(
                    svg,
                    "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{span:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                     fill=\"{}\"{}>{}</text>",
                    top + 13.0,
                    look.ink,
                    look.attributes(),
                    escape(&run)
                );
            }
            at = end;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// The cells of each row with their columns, without those hidden by a wide character.
fn rows(buffer: &Buffer) -> Vec<Vec<(usize, &Cell)>> {
    let columns = usize::from(buffer.area.width);
    if columns == 0 {
        return Vec::new();
    }
    let visible = |row: &'_ [Cell]| -> Vec<usize> {
        let mut next = 0;
        let mut at = Vec::with_capacity(row.len());
        for (i, cell) in row.iter().enumerate() {
            if i >= next {
                at.push(i);
                next = i + text::width(cell.symbol()).max(1);
            }
        }
        at
    };
    buffer
        .content
        .chunks(columns)
        .map(|row| visible(row).into_iter().map(|i| (i, &row[i])).collect())
        .collect()
}

const GROUND: &str = "#16181d";
const INK: &str = "#d4d7dd";

/// How a cell looks.
#[derive(PartialEq, Eq)]
struct Look {
    ink: String,
    ground: String,
    bold: bool,
    dim: bool,
    underlined: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (mut ink, mut ground) = (colour(cell.fg, INK), colour(cell.bg, GROUND));
        if cell.modifier.contains(Modifier::REVERSED) {
            std::mem::swap(&mut ink, &mut ground);
        }
        Self {
            ink,
            ground,
            bold: cell.modifier.contains(Modifier::BOLD),
            dim: cell.modifier.contains(Modifier::DIM),
            underlined: cell.modifier.contains(Modifier::UNDERLINED),
        }
    }

    fn attributes(&self) -> String {
        let mut text = String::new();
        if self.bold {
            text += " font-weight=\"bold\"";
        }
        if self.dim {
            text += " opacity=\"0.55\"";
        }
        if self.underlined {
            text += " text-decoration=\"underline\"";
        }
        text
    }
}

/// A colour as SVG writes it. The sixteen first colours depend on the terminal and are not used by our themes.
fn colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Indexed(index @ 16..=231) => {
            let index = u32::from(index - 16);
            let level = |step: u32| if step == 0 { 0 } else { 55 + step * 40 };
            format!("#{:02x}{:02x}{:02x}", level(index / 36), level(index / 6 % 6), level(index % 6))
        }
        Color::Indexed(index @ 232..) => {
            let grey = 8 + (u32::from(index) - 232) * 10;
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        _ => default.to_owned(),
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_xterm() {
        assert_eq!(colour(Color::Indexed(16), INK), "#000000");
        assert_eq!(colour(Color::Indexed(231), INK), "#ffffff");
        assert_eq!(colour(Color::Indexed(214), INK), "#ffaf00");
        assert_eq!(colour(Color::Indexed(245), INK), "#8a8a8a");
        assert_eq!(colour(Color::Reset, INK), INK);
    }

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(escape("a<b> & c\u{1}"), "a&lt;b&gt; &amp; c\u{fffd}");
    }
}
