//! A question on a screen of its own, asked before there is anything to show.

use color_eyre::eyre::Result;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};

use super::canvas::Canvas;
use super::plain::{Came, Plain};
use super::text::wrap;
use super::theme::{self, Role, Theme};
use crate::input::Key;

/// What the person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Yes.
    Yes,
    /// No.
    No,
    /// This signal came.
    Signal(i32),
}

/// What a key means.
fn press(key: Key) -> Option<Reply> {
    let is = |names: &[&str]| names.iter().any(|name| key.is(name));
    if is(&["y"]) {
        Some(Reply::Yes)
    } else if is(&["n", "q", "esc", "ctrl-c"]) {
        Some(Reply::No)
    } else {
        None
    }
}

/// Asks until there is an answer. The terminal is restored when this returns.
pub async fn ask(title: &str, lines: &[String], theme: Option<Theme>) -> Result<Reply> {
    let theme = theme.unwrap_or_else(Theme::detect);
    let mut plain = Plain::take()?;
    loop {
        plain.show(|size| render(title, lines, theme, size))?;
        match plain.next().await? {
            Came::Key(key) => {
                if let Some(reply) = press(key) {
                    return Ok(reply);
                }
            }
            Came::Signal(signal) => return Ok(Reply::Signal(signal)),
            Came::Gone => return Ok(Reply::No),
            Came::Other => {}
        }
    }
}

/// Draws the question; on a small screen its end, with the answers, stays in sight.
fn render(title: &str, lines: &[String], theme: Theme, size: Size) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    let area = buffer.area;
    let mut canvas = Canvas::new(&mut buffer, theme);
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let width = cells.saturating_sub(2).min(96);
    let mut text: Vec<String> = Vec::new();
    for line in lines {
        text.extend(wrap(line, width));
        text.push(String::new());
    }
    canvas.spans(
        area,
        0,
        vec![theme.span(" gtop  ", Role::Strong), theme.span(title.to_owned(), Role::Alarm)],
    );
    let room = height.saturating_sub(4);
    let hidden = text.len().saturating_sub(room);
    for (row, line) in text.iter().skip(hidden).take(room).enumerate() {
        canvas.put(area, 1, row + 2, line, theme.style(Role::Plain));
    }
    if height > 1 {
        let keys = [("y", "put it in and watch"), ("n", "leave it as it is")];
        let spans = keys.iter().flat_map(|(key, what)| {
            [theme.span(format!(" {key} "), Role::Key), theme.span(format!("{what} "), Role::Plain)]
        });
        canvas.spans(area, height - 1, spans.collect());
    }
    if theme.ascii {
        for cell in &mut buffer.content {
            cell.set_char(theme::ascii(cell.symbol()));
        }
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(size: Size, theme: Theme) -> String {
        let lines =
            ["One thread is stopped for a moment.".to_owned(), "It costs 16 MiB — for good.".to_owned()];
        let buffer = render("Put the shim into process 844?", &lines, theme, size);
        let rows = buffer.content.chunks(usize::from(size.width));
        let rows = rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn the_question_its_cost_and_the_answers_are_on_the_screen() {
        let text = text(Size::new(80, 24), Theme::MONO);
        for part in ["process 844?", "stopped for a moment", "16 MiB", " y put it in", " n leave it"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_size_breaks_it_and_the_answers_stay_in_sight() {
        for columns in [1, 2, 10, 40, 300] {
            for rows in [1, 2, 3, 4, 5, 100] {
                let text = text(Size::new(columns, rows), Theme::ASCII);
                assert!(text.is_ascii(), "{text}");
                assert!(columns < 40 || rows < 2 || text.contains(" y "), "{text}");
            }
        }
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        assert_eq!(press(Key::parse("y").unwrap()), Some(Reply::Yes));
        for no in ["n", "q", "esc", "ctrl-c"] {
            assert_eq!(press(Key::parse(no).unwrap()), Some(Reply::No));
        }
        assert_eq!(press(Key::parse("enter").unwrap()), None);
    }
}
