//! The list of this machine's GPU processes, to choose one from.

use std::sync::Arc;

use color_eyre::eyre::Result;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::text::Span;
use tokio::sync::watch;

use super::canvas::Canvas;
use super::plain::{Came, Plain};
use super::text::{cut_end, left, right, width, wrap};
use super::theme::{self, Role, Theme};
use super::units;
use crate::input::Key;

/// One process to choose. Texts are safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Process id.
    pub pid: u32,
    /// User name, or uid.
    pub user: String,
    /// Short name.
    pub name: String,
    /// Command line.
    pub command: String,
    /// GPU memory, bytes; `None` is unknown.
    pub memory: Option<u64>,
    /// Why it cannot be watched, in a word or two and at length.
    pub obstacle: Option<(&'static str, String)>,
    /// Whether the shim, which it lacks, could be put in.
    pub inject: bool,
}

/// What the person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To watch this process.
    Watch(u32),
    /// To leave.
    Leave,
    /// This signal came.
    Signal(i32),
}

/// The list on the screen.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    /// The chosen process; it stays chosen when others come and go.
    chosen: Option<u32>,
    /// The first row shown.
    top: usize,
}

impl List {
    fn index(self, rows: &[Candidate]) -> usize {
        rows.iter().position(|row| Some(row.pid) == self.chosen).unwrap_or(0)
    }

    fn go(&mut self, rows: &[Candidate], to: usize) {
        self.chosen = rows.get(to.min(rows.len().saturating_sub(1))).map(|row| row.pid);
    }

    /// What a key does.
    fn press(&mut self, rows: &[Candidate], key: Key) -> Option<Choice> {
        let at = self.index(rows);
        let is = |names: &[&str]| names.iter().any(|name| key.is(name));
        if is(&["q", "esc", "ctrl-c"]) {
            return Some(Choice::Leave);
        } else if is(&["enter"]) {
            let row = rows.get(at)?;
            return (row.obstacle.is_none() || row.inject).then_some(Choice::Watch(row.pid));
        } else if is(&["down", "j"]) {
            self.go(rows, at + 1);
        } else if is(&["up", "k"]) {
            self.go(rows, at.saturating_sub(1));
        } else if is(&["pgdn"]) {
            self.go(rows, at + 10);
        } else if is(&["pgup"]) {
            self.go(rows, at.saturating_sub(10));
        } else if is(&["end", "G"]) {
            self.go(rows, usize::MAX);
        } else if is(&["home", "g"]) {
            self.go(rows, 0);
        }
        None
    }
}

/// Lets the person choose; `rows` may change meanwhile. `None` is not looked yet.
pub async fn choose(
    mut rows: watch::Receiver<Option<Arc<[Candidate]>>>,
    theme: Option<Theme>,
) -> Result<Choice> {
    let theme = theme.unwrap_or_else(Theme::detect);
    let mut plain = Plain::take()?;
    let mut list = List::default();
    let mut open = true;
    loop {
        let shown = rows.borrow_and_update().clone();
        plain.show(|size| render(shown.as_deref(), &mut list, theme, size))?;
        tokio::select! {
            biased;
            came = plain.next() => match came? {
                Came::Key(key) => {
                    if let Some(choice) = list.press(shown.as_deref().unwrap_or_default(), key) {
                        return Ok(choice);
                    }
                }
                Came::Signal(signal) => return Ok(Choice::Signal(signal)),
                Came::Gone => return Ok(Choice::Leave),
                Came::Other => {}
            },
            changed = rows.changed(), if open => open = changed.is_ok(),
        }
    }
}

/// Draws the list; `None` is not looked yet.
fn render(rows: Option<&[Candidate]>, list: &mut List, theme: Theme, size: Size) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    let area = buffer.area;
    let mut canvas = Canvas::new(&mut buffer, theme);
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    canvas.spans(
        area,
        0,
        vec![theme.span(" gtop ", Role::Strong), theme.span(format!(" {}", total(rows)), Role::Dim)],
    );
    match rows {
        None => canvas.put(area, 1, 2, "looking …", theme.style(Role::Dim)),
        Some([]) => {
            let text = "No process here uses a GPU. Start one with the shim: gtop run -- CMD";
            for (row, line) in wrap(text, cells.saturating_sub(2)).iter().enumerate() {
                canvas.put(area, 1, row + 2, line, theme.style(Role::Plain));
            }
        }
        Some(rows) => table(rows, list, area, &mut canvas),
    }
    if height > 1 {
        let keys = [("enter", "watch"), ("↑ ↓", "choose"), ("q", "leave")];
        let spans = keys.iter().flat_map(|(key, what)| {
            [theme.span(format!(" {key} "), Role::Key), theme.span(format!("{what} "), Role::Dim)]
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

/// What all rows come to together. Memory that is not known is no zero.
fn total(rows: Option<&[Candidate]>) -> String {
    let what = "processes that use a GPU here";
    let Some(rows) = rows.filter(|rows| rows.len() > 1) else { return what.to_owned() };
    let memory = units::known(rows.iter().map(|row| row.memory), |memory| units::bytes(memory.iter().sum()));
    let good = rows.iter().filter(|row| row.obstacle.is_none()).count();
    format!("{} {what}, {good} with the shim; GPU memory {memory}", rows.len())
}

/// Rows, and below them why the chosen process cannot be watched.
fn table(rows: &[Candidate], list: &mut List, area: Rect, canvas: &mut Canvas<'_>) {
    let theme = canvas.theme;
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let at = list.index(rows);
    let obstacle = rows.get(at).and_then(|row| row.obstacle.as_ref());
    let mut why = obstacle.map(|(_, why)| wrap(why, cells.saturating_sub(2))).unwrap_or_default();
    if rows.get(at).is_some_and(|row| row.inject) {
        why.push(cut_end("enter asks whether to put it in now", cells.saturating_sub(2)));
    }
    // The title, the heads, the reason with a blank line above it, the keys.
    let room = height.saturating_sub(3 + why.len() + usize::from(!why.is_empty())).max(1);
    list.top = list.top.min(rows.len().saturating_sub(room)).min(at).max((at + 1).saturating_sub(room));

    let user = rows.iter().map(|row| width(&row.user)).max().unwrap_or(0).clamp(4, 12);
    let head = format!(" {:>8} {} {:>10} {:<11} ", "PID", left("USER", user), "GPU MEMORY", "WATCH");
    canvas.put(area, 0, 1, &format!("{head}PROCESS"), theme.style(Role::Dim));
    for (line, (index, row)) in rows.iter().enumerate().skip(list.top).take(room).enumerate() {
        let memory = row.memory.map_or("?".to_owned(), units::bytes);
        let (word, role) = match &row.obstacle {
            None => ("yes", Role::Good),
            Some((word, _)) => (*word, Role::Dim),
        };
        let process = format!("{}  {}", row.name, row.command);
        let text = if row.obstacle.is_none() { Role::Plain } else { Role::Dim };
        let front = format!(" {:>8} {} {} ", row.pid, left(&row.user, user), right(&memory, 10));
        let spans: Vec<Span<'_>> = vec![
            theme.span(front, text),
            theme.span(left(word, 11), role),
            theme.span(format!(" {}", cut_end(&process, cells.saturating_sub(width(&head)))), text),
        ];
        canvas.spans(area, line + 2, spans);
        if index == at {
            canvas.restyle(area, line + 2, theme.style(Role::Selected));
        }
    }
    let below = 2 + room.min(rows.len()) + 1;
    for (line, text) in why.iter().enumerate().take(height.saturating_sub(below + 1)) {
        canvas.put(area, 1, below + line, text, theme.style(Role::Warn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Candidate> {
        let row = |pid, memory, obstacle: Option<(&'static str, &str)>| Candidate {
            pid,
            user: "ada".into(),
            name: "EngineCore".into(),
            command: "vllm serve Qwen/Qwen2.5-1.5B --port 8000".into(),
            memory,
            obstacle: obstacle.map(|(word, why)| (word, why.to_owned())),
            inject: obstacle.is_some_and(|(word, _)| word == "no shim"),
        };
        vec![
            row(844, Some(43_720 << 20), None),
            row(1203, Some(2310 << 20), Some(("no shim", "it was started without CUDA_INJECTION64_PATH"))),
            row(7, None, Some(("denied", "it belongs to uid 1001"))),
        ]
    }

    fn text(rows: Option<&[Candidate]>, list: &mut List, theme: Theme, columns: u16, height: u16) -> String {
        let buffer = render(rows, list, theme, Size::new(columns, height));
        let lines = buffer.content.chunks(usize::from(columns));
        let lines = lines.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
        lines.map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    fn key(name: &str) -> Key {
        Key::parse(name).unwrap()
    }

    #[test]
    fn the_list_shows_who_can_be_watched_and_why_the_others_cannot() {
        let (rows, mut list) = (rows(), List::default());
        assert_eq!(list.press(&rows, key("down")), None);
        let text = text(Some(&rows), &mut list, Theme::MONO, 80, 10);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0].trim(),
            "gtop  3 processes that use a GPU here, 1 with the shim; GPU memory 45.0 GiB + ?"
        );
        assert!(lines[2].contains("844 ada") && lines[2].contains("yes"), "{text}");
        assert!(lines[3].contains("1203 ada") && lines[3].contains("no shim"), "{text}");
        assert!(lines[4].contains('?') && lines[4].contains("denied"), "{text}");
        assert_eq!(lines[6], " it was started without CUDA_INJECTION64_PATH", "{text}");
        assert_eq!(lines[7], " enter asks whether to put it in now", "{text}");
        assert!(lines[9].contains("enter watch"), "{text}");
    }

    #[test]
    fn only_what_can_be_watched_is_taken() {
        let (rows, mut list) = (rows(), List::default());
        assert_eq!(list.press(&rows, key("enter")), Some(Choice::Watch(844)));
        assert_eq!(list.press(&rows, key("j")), None);
        assert_eq!(list.press(&rows, key("enter")), Some(Choice::Watch(1203)), "it is asked about");
        assert_eq!(list.press(&rows, key("G")), None);
        assert_eq!(list.press(&rows, key("enter")), None);
        assert_eq!(list.chosen, Some(7));
        assert_eq!(list.press(&rows, key("down")), None);
        assert_eq!(list.chosen, Some(7), "there is no row below");
        assert_eq!(list.press(&rows[..1], key("enter")), Some(Choice::Watch(844)), "the chosen one is gone");
        assert_eq!(list.press(&[], key("enter")), None);
        assert_eq!(list.press(&rows, key("q")), Some(Choice::Leave));
    }

    #[test]
    fn no_size_and_no_list_breaks_it() {
        let many: Vec<_> = (0..300).map(|pid| Candidate { pid, ..rows()[1].clone() }).collect();
        for theme in [Theme::DARK, Theme::MONO, Theme::ASCII] {
            for columns in [1, 2, 10, 40, 80, 300] {
                for height in [1, 2, 3, 4, 5, 24, 100] {
                    for rows in [None, Some(&[][..]), Some(&rows()), Some(&many)] {
                        let mut list = List { chosen: Some(299), top: 1000 };
                        let text = text(rows, &mut list, theme, columns, height);
                        assert!(!theme.ascii || text.is_ascii(), "{text}");
                        if rows.is_some_and(|rows| rows.len() == 300) && columns == 80 && height >= 5 {
                            assert!(text.contains(" 299 "), "the chosen row is in sight: {text}");
                        }
                    }
                }
            }
        }
    }
}
