//! Choosing one of many by a few of its letters.

use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::canvas::Canvas;
use super::state::Target;
use super::text::{cut_end, left, width};
use super::theme::Role;
use super::{Cx, popup, processes, units};
use crate::input::Line;

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// To show this process.
    Process(u32),
    /// To select this kernel, by its name id.
    Kernel(u32),
    /// To compare kernels with one of the moments that are kept; `None` is with nothing.
    Baseline(Option<usize>),
    /// To send a process this signal.
    Signal(u32, i32),
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is called, and where letters are looked for.
    pub label: String,
    /// What else helps to choose.
    pub hint: String,
    /// What it is.
    pub pick: Pick,
}

/// A list to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picker {
    /// What is chosen, for the title.
    pub title: String,
    /// The letters.
    pub line: Line,
    /// All there are, the likeliest first.
    pub items: Vec<Item>,
    /// Which of those found is selected.
    pub at: usize,
}

/// An item that has the letters: its place, how well it fits, and where in its label they are.
struct Found {
    item: usize,
    score: i32,
    letters: Vec<usize>,
}

impl Picker {
    /// A list to choose from, before a letter is typed.
    #[must_use]
    pub fn new(title: impl Into<String>, items: Vec<Item>) -> Self {
        Self { title: title.into(), line: Line::default(), items, at: 0 }
    }

    /// The selected one.
    #[must_use]
    pub fn selected(&self) -> Option<Pick> {
        let found = self.found();
        found.get(self.at.min(found.len().saturating_sub(1))).map(|found| self.items[found.item].pick)
    }

    /// Whether processes are chosen from.
    pub(super) fn is_of_processes(&self) -> bool {
        matches!(self.items.first(), Some(Item { pick: Pick::Process(_), .. }))
    }

    /// Moves among those found.
    pub fn go(&mut self, by: isize) {
        let last = self.found().len().saturating_sub(1);
        self.at = self.at.min(last).saturating_add_signed(by).min(last);
    }

    /// Those that have the letters, the best first; without letters all in their order.
    fn found(&self) -> Vec<Found> {
        let letters = self.line.text();
        let fits = |(item, of): (usize, &Item)| {
            let (score, letters) = fit(&of.label, letters)?;
            Some(Found { item, score, letters })
        };
        let mut found: Vec<Found> = self.items.iter().enumerate().filter_map(fits).collect();
        if !letters.trim().is_empty() {
            found.sort_by_key(|found| (-found.score, found.item));
            // Letters strewn about anywhere are not what is meant when somewhere they stand together.
            let best = found.first().map_or(0, |found| found.score);
            found.retain(|found| found.score * 3 >= best);
        }
        found
    }
}

/// How well the letters fit when they are looked for in this order, and where they are, in characters. Letters side by
/// side and at the beginnings of words are worth most.
fn fit(label: &str, letters: &str) -> Option<(i32, Vec<usize>)> {
    let wanted: Vec<char> =
        letters.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect();
    let label: Vec<char> = label.chars().collect();
    let lower = |c: char| c.to_lowercase().next().unwrap_or(c);
    let Some(first) = wanted.first() else { return Some((0, Vec::new())) };
    let starts = (0..label.len()).filter(|&at| lower(label[at]) == *first);
    let from = |start: usize| {
        let mut places = Vec::with_capacity(wanted.len());
        let mut at = start;
        for letter in &wanted {
            at = (at..label.len()).find(|&at| lower(label[at]) == *letter)?;
            places.push(at);
            at += 1;
        }
        let mut score = -i32::try_from(places[0] / 4).unwrap_or(0);
        for (i, &place) in places.iter().enumerate() {
            let begins = place == 0 || !label[place - 1].is_alphanumeric();
            let follows = i > 0 && place == places[i - 1] + 1;
            score += 1 + if follows { 6 } else { 0 } + if begins { 4 } else { 0 };
        }
        Some((score, places))
    };
    starts.filter_map(from).max_by_key(|(score, _)| *score)
}

/// Draws the list over the panes.
pub(super) fn draw(cx: &Cx<'_>, screen: Rect, canvas: &mut Canvas<'_>, picker: &Picker) {
    let theme = cx.theme();
    let found = picker.found();
    let at = picker.at.min(found.len().saturating_sub(1));
    // Processes have a heading above them and a sum below, and take all the room there is.
    let processes = picker.is_of_processes();
    let cells = usize::from(screen.width).saturating_sub(if processes { 4 } else { 8 }).min(90);
    let room = usize::from(screen.height).saturating_sub(6);
    let room = if processes { room.saturating_sub(2).max(1) } else { room.clamp(1, 20) };
    let top = (at + 1).saturating_sub(room);
    let hints = picker.items.iter().map(|item| width(&item.hint)).max().unwrap_or(0).min(cells / 2);
    let hints = if processes { processes::width(cells) } else { hints + 2 };
    let label_cells = cells.saturating_sub(hints + 2);
    let mut lines = vec![popup::prompt(cx, "find ", &picker.line)];
    if processes {
        lines.push(processes::head(theme, "      PID PROCESS", cells));
    }
    let first = lines.len();
    for (row, one) in found.iter().enumerate().skip(top).take(room) {
        let item = &picker.items[one.item];
        let mark = if row == at { "▸ " } else { "  " };
        let mut spans = vec![theme.span(mark, Role::Strong)];
        let label = left(&item.label, label_cells);
        for (i, c) in label.chars().enumerate() {
            let role = if one.letters.contains(&i) { Role::Key } else { Role::Plain };
            spans.push(theme.span(c.to_string(), role));
        }
        if let Pick::Process(pid) = item.pick {
            let process = cx.snapshot.processes.iter().find(|process| process.identity.pid == pid);
            spans.extend(processes::row(theme, process, cells));
        } else {
            spans.push(theme.span(format!("  {}", cut_end(&item.hint, hints - 2)), Role::Dim));
        }
        if row == at {
            for span in &mut spans {
                span.style = span.style.add_modifier(Modifier::BOLD);
            }
        }
        lines.push(spans);
    }
    if found.is_empty() {
        lines.push(vec![theme.span("nothing has these letters", Role::Dim)]);
    }
    // As high as without letters, so that it does not jump about.
    lines.resize(lines.len().max(picker.items.len().min(room) + first), Vec::new());
    if processes {
        lines.push(processes::total(theme, cx.snapshot, cells));
    }
    let note = match found.len() {
        all if all == picker.items.len() => {
            format!("{} · enter takes it, esc does not", units::count(all as u64))
        }
        some => {
            format!("{some} of {} · enter takes it, esc does not", units::count(picker.items.len() as u64))
        }
    };
    let inner = popup::boxed(cx, screen, canvas, &picker.title, &note, lines, 0, Role::Focus, cells);
    for row in 0..found.len().saturating_sub(top).min(room) {
        canvas.target_row(inner, row + first, Target::Pick(top + row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Key;

    fn picker() -> Picker {
        let labels = ["flash_fwd_sm90<64>", "nvjet_tst_192x8", "splitKreduce<32>", "triton_red_fused_add"];
        let item = |(i, label): (usize, &&str)| Item {
            label: (*label).to_owned(),
            hint: String::new(),
            pick: Pick::Kernel(i as u32),
        };
        Picker::new("Kernel", labels.iter().enumerate().map(item).collect())
    }

    fn best(letters: &str) -> Option<Pick> {
        let mut picker = picker();
        picker.line.insert(letters);
        picker.selected()
    }

    #[test]
    fn a_few_letters_find_it() {
        for (letters, at) in [("", 0), ("tst", 1), ("red", 3), ("kred", 2), ("FLASH90", 0), ("t r f a", 3)] {
            assert_eq!(best(letters), Some(Pick::Kernel(at)), "{letters}");
        }
        assert_eq!(best("zz"), None);
    }

    #[test]
    fn letters_are_found_where_they_fit_best() {
        assert_eq!(fit("ab_b", "b").unwrap().1, [3], "the beginning of a word");
        assert_eq!(fit("axb ab", "ab").unwrap().1, [4, 5], "side by side");
    }

    #[test]
    fn it_moves_among_what_is_found() {
        let mut picker = picker();
        picker.go(9);
        assert_eq!(picker.selected(), Some(Pick::Kernel(3)));
        picker.line.press(Key::parse("f").unwrap());
        assert_eq!(picker.selected(), Some(Pick::Kernel(3)), "flash and fused");
        picker.go(-9);
        assert_eq!(picker.selected(), Some(Pick::Kernel(0)));
    }
}
