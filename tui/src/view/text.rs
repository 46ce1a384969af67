//! Fitting text into cells: widths as a terminal counts them, padding, and cuts that keep what tells names apart.

use unicode_width::UnicodeWidthStr;

/// Cells a text takes.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The longest beginning of `text` that fits into `cells`.
fn head(text: &str, cells: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| width(&text[..*end]) <= cells).last().unwrap_or(0);
    &text[..end]
}

/// The longest end of `text` that fits into `cells` and does not begin with a combining character.
fn tail(text: &str, cells: usize) -> &str {
    let starts = text.char_indices().rev().map(|(at, c)| (at, c.len_utf8()));
    let fitting = starts.take_while(|(at, _)| width(&text[*at..]) <= cells);
    let whole = fitting.filter(|(at, bytes)| width(&text[*at..*at + *bytes]) > 0);
    &text[whole.last().map_or(text.len(), |(at, _)| at)..]
}

/// `text`, or its beginning and `…`, in at most `cells` cells.
pub(crate) fn cut_end(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        text.to_owned()
    } else if cells == 0 {
        String::new()
    } else {
        format!("{}…", head(text, cells - 1))
    }
}

/// `text`, or its beginning, `middle` and its end, in at most `cells` cells. The end gets a little more than the
/// beginning: kernel names differ most in their last arguments.
pub(crate) fn cut_middle(text: &str, cells: usize, middle: &str) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let Some(rest) = cells.checked_sub(width(middle)).filter(|rest| *rest > 0) else {
        return cut_end(text, cells);
    };
    let first = head(text, rest / 2);
    format!("{first}{middle}{}", tail(text, rest - width(first)))
}

/// `text` at the left of exactly `cells` cells, cut when it is longer.
pub(crate) fn left(text: &str, cells: usize) -> String {
    let text = cut_end(text, cells);
    let pad = cells.saturating_sub(width(&text));
    text + &" ".repeat(pad)
}

/// `text` at the right of exactly `cells` cells, cut when it is longer.
pub(crate) fn right(text: &str, cells: usize) -> String {
    let text = cut_end(text, cells);
    " ".repeat(cells.saturating_sub(width(&text))) + &text
}

/// Units that stay on the line of their number.
const UNITS: [&str; 9] = ["%", "ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB"];

/// The words of a text; a number and its unit are one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(' ');
        let mut end = rest.find(' ').unwrap_or(rest.len());
        let unit = rest[end..].strip_prefix(' ').and_then(|behind| behind.split(' ').next());
        if rest[..end].ends_with(|last: char| last.is_ascii_digit())
            && let Some(unit) = unit
            && UNITS.contains(&unit.trim_end_matches([',', '.', ';', ':', ')']))
        {
            end += 1 + unit.len();
        }
        let (word, behind) = rest.split_at(end);
        rest = behind;
        (!word.is_empty()).then_some(word)
    })
}

/// `text` in lines of at most `cells` cells, broken at blanks, and inside words that are longer.
pub(crate) fn wrap(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    if cells == 0 {
        return lines;
    }
    for mut word in words(text) {
        let line = lines.last_mut().map_or(0, |line| width(line));
        if line > 0 && line + 1 + width(word) > cells {
            lines.push(String::new());
        }
        while width(word) > cells {
            // A character wider than the line stands alone: something must be taken each time.
            let first = word.chars().next().map_or(0, char::len_utf8);
            let part = head(word, cells).len().max(first);
            if let Some(line) = lines.last_mut() {
                line.push_str(&word[..part]);
            }
            word = &word[part..];
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    if lines.len() > 1 && lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cut_name_keeps_its_head_and_its_tail() {
        assert_eq!(cut_middle("flash_fwd_sm90<64,128,128,bf16>", 20, "…"), "flash_fwd…,128,bf16>");
        assert_eq!(cut_middle("short", 20, "…"), "short");
        assert_eq!(cut_middle("abcdef", 1, "…"), "…");
        assert_eq!(cut_end("abcdef", 4), "abc…");
        assert_eq!(cut_end("abcdef", 0), "");
    }

    #[test]
    fn wide_and_combining_characters_are_measured() {
        assert_eq!(left("核心", 5), "核心 ");
        assert_eq!(left("核心核心", 5), "核心…");
        assert_eq!(right("e\u{301}", 3), "  e\u{301}");
        assert_eq!(cut_middle("aaaae\u{301}bbb", 6, "…"), "aa…bbb");
    }

    #[test]
    fn wrapping_breaks_at_blanks_and_inside_long_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("核", 1), ["核"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("ran 31.3 ms (63.9 %), idle", 13), ["ran 31.3 ms", "(63.9 %),", "idle"]);
        assert_eq!(wrap("of 128 B", 5), ["of", "128 B"]);
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_its_place(text in ".{0,60}", cells in 0usize..40) {
            prop_assert!(width(&cut_end(&text, cells)) <= cells);
            prop_assert!(width(&cut_middle(&text, cells, "…")) <= cells);
        }

        #[test]
        fn wrapping_loses_no_word(text in "[a-z0-9% ]{0,80}", cells in 1usize..20) {
            let lines = wrap(&text, cells);
            prop_assert!(lines.iter().all(|line| width(line) <= cells));
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
