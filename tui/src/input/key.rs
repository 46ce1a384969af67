//! One key, and how it is written: `q`, `ctrl-c`, `shift-left`, `enter`.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key with its modifiers. Shift is not one of them for characters: it is in the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

const NAMES: [(&str, KeyCode); 28] = [
    ("space", KeyCode::Char(' ')),
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pgup", KeyCode::PageUp),
    ("pgdn", KeyCode::PageDown),
    ("shift-tab", KeyCode::BackTab),
    ("insert", KeyCode::Insert),
    ("delete", KeyCode::Delete),
    ("f1", KeyCode::F(1)),
    ("f2", KeyCode::F(2)),
    ("f3", KeyCode::F(3)),
    ("f4", KeyCode::F(4)),
    ("f5", KeyCode::F(5)),
    ("f6", KeyCode::F(6)),
    ("f7", KeyCode::F(7)),
    ("f8", KeyCode::F(8)),
    ("f9", KeyCode::F(9)),
    ("f10", KeyCode::F(10)),
    ("f11", KeyCode::F(11)),
    ("f12", KeyCode::F(12)),
];

impl Key {
    /// The key of a terminal's event; `None` for releases.
    #[must_use]
    pub fn from_event(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let mut modifiers =
            event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        if matches!(event.code, KeyCode::Char(_) | KeyCode::BackTab) {
            modifiers -= KeyModifiers::SHIFT;
        }
        Some(Self { code: event.code, modifiers })
    }

    /// The key written like this, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((_, code)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Some(Self { code: *code, modifiers: KeyModifiers::NONE });
        }
        for (prefix, modifier) in
            [("ctrl-", KeyModifiers::CONTROL), ("alt-", KeyModifiers::ALT), ("shift-", KeyModifiers::SHIFT)]
        {
            if let Some(rest) = text.strip_prefix(prefix) {
                let key = Self::parse(rest)?;
                return Some(Self { modifiers: key.modifiers | modifier, ..key });
            }
        }
        let mut chars = text.chars();
        let code = KeyCode::Char(chars.next()?);
        chars.next().is_none().then_some(Self { code, modifiers: KeyModifiers::NONE })
    }

    /// The character it types, if it types one.
    #[must_use]
    pub fn character(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if self.modifiers.is_empty() => Some(c),
            _ => None,
        }
    }

    /// Whether it is the key written like this.
    #[must_use]
    pub fn is(self, text: &str) -> bool {
        Self::parse(text) == Some(self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, name) in
            [(KeyModifiers::CONTROL, "ctrl-"), (KeyModifiers::ALT, "alt-"), (KeyModifiers::SHIFT, "shift-")]
        {
            if self.modifiers.contains(modifier) {
                f.write_str(name)?;
            }
        }
        if let Some((name, _)) = NAMES.iter().find(|(_, code)| *code == self.code) {
            return f.write_str(name);
        }
        write!(f, "{}", self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_and_read() {
        for text in
            ["q", "?", "G", "space", "ctrl-c", "shift-left", "shift-tab", "enter", "pgdn", "é", "-", "f12"]
        {
            assert_eq!(Key::parse(text).map(|key| key.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Key::parse("qq"), None);
        assert_eq!(Key::parse(""), None);
    }

    #[test]
    fn shift_is_in_the_character_and_releases_are_no_keys() {
        let event = KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert!(Key::from_event(event).is_some_and(|key| key.is("G")));
        let back = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert!(Key::from_event(back).is_some_and(|key| key.is("shift-tab")));
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(Key::from_event(release), None);
    }
}
