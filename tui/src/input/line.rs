//! One line of text that somebody types.

use super::Key;

/// A text and where the next character goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// Bytes before the cursor.
    at: usize,
}

/// The longest line, characters.
const MAX: usize = 500;

impl Line {
    /// A line that says this, with the cursor at its end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut line = Self::default();
        line.insert(text);
        line
    }

    /// What it says.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it says before the cursor and after it.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.at)
    }

    /// Puts text at the cursor; line breaks become blanks, other control characters are left out.
    pub fn insert(&mut self, text: &str) {
        for c in text.chars() {
            let c = if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c };
            if !c.is_control() && self.text.chars().count() < MAX {
                self.text.insert(self.at, c);
                self.at += c.len_utf8();
            }
        }
    }

    /// What a key does to it; whether it meant something.
    pub fn press(&mut self, key: Key) -> bool {
        let before = |line: &Self| line.text[..line.at].chars().next_back().map_or(0, char::len_utf8);
        let after = |line: &Self| line.text[line.at..].chars().next().map_or(0, char::len_utf8);
        match key.to_string().as_str() {
            "backspace" | "ctrl-h" => {
                self.at -= before(self);
                self.text.drain(self.at..self.at + after(self));
            }
            "delete" | "ctrl-d" => {
                self.text.drain(self.at..self.at + after(self));
            }
            "left" | "ctrl-b" => self.at -= before(self),
            "right" | "ctrl-f" => self.at += after(self),
            "home" | "ctrl-a" => self.at = 0,
            "end" | "ctrl-e" => self.at = self.text.len(),
            "ctrl-u" => {
                self.text.drain(..self.at);
                self.at = 0;
            }
            "ctrl-k" => self.text.truncate(self.at),
            "ctrl-w" | "ctrl-backspace" => {
                let left = self.text[..self.at].trim_end();
                let from = left.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
                self.text.drain(from..self.at);
                self.at = from;
            }
            _ => match key.character() {
                Some(c) => self.insert(c.encode_utf8(&mut [0; 4])),
                None => return false,
            },
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(keys: &str) -> (String, String) {
        let mut line = Line::default();
        for key in keys.split(' ') {
            assert!(line.press(Key::parse(key).unwrap()), "{key}");
        }
        let (before, after) = line.parts();
        (before.to_owned(), after.to_owned())
    }

    #[test]
    fn a_line_is_edited() {
        let parts = |before: &str, after: &str| (before.to_owned(), after.to_owned());
        assert_eq!(typed("a b left é"), parts("aé", "b"));
        assert_eq!(typed("a é backspace c"), parts("ac", ""));
        assert_eq!(typed("a b c home delete right"), parts("b", "c"));
        assert_eq!(typed("a space b space ctrl-w"), parts("a ", ""));
        assert_eq!(typed("a b left ctrl-k c home ctrl-k"), parts("", ""));
        assert_eq!(typed("a b left ctrl-u"), parts("", "b"));
        assert!(!Line::default().press(Key::parse("tab").unwrap()));
        assert_eq!(Line::new("a\nb\u{7}c").text(), "a bc");
    }

    proptest! {
        #[test]
        fn no_keys_break_it(keys in prop::collection::vec(0usize..12, 0..60)) {
            let all = ["a", "é", "核", "space", "backspace", "delete", "left", "right", "home", "end", "ctrl-w", "ctrl-u"];
            let mut line = Line::default();
            for key in keys {
                line.press(Key::parse(all[key]).unwrap());
                let (before, after) = line.parts();
                prop_assert_eq!(format!("{before}{after}"), line.text());
            }
        }
    }
}
