//! Comparing one value with what a condition wants.

use super::{Type, Value};

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `~`: contains, with `*` for anything.
    Like,
    /// `!~`
    NotLike,
}

impl Op {
    /// How each is written, longer ones first.
    pub(super) const ALL: [(&'static str, Self); 8] = [
        ("!=", Self::NotEqual),
        ("!~", Self::NotLike),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("=", Self::Equal),
        ("~", Self::Like),
        ("<", Self::Less),
        (">", Self::More),
    ];

    fn orders<T: PartialOrd>(self, value: &T, wanted: &T) -> bool {
        match self {
            Self::Equal | Self::Like => value == wanted,
            Self::NotEqual | Self::NotLike => value != wanted,
            Self::Less => value < wanted,
            Self::AtMost => value <= wanted,
            Self::More => value > wanted,
            Self::AtLeast => value >= wanted,
        }
    }
}

/// What is wanted of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A word.
    Text(Op, String),
    /// A count, nanoseconds or bytes.
    Number(Op, u64),
    /// From 0 to 1.
    Share(Op, f64),
}

impl Test {
    /// A test of a field of this type; the error says how its values are written.
    pub(super) fn new(op: Op, text: &str, kind: Type) -> Result<Self, String> {
        let ordered = matches!(op, Op::Less | Op::AtMost | Op::More | Op::AtLeast);
        Ok(match kind {
            Type::Text if ordered => return Err("words have no order: use = or ~".to_owned()),
            Type::Text => Self::Text(op, text.to_owned()),
            Type::Count => Self::Number(op, number(text, &COUNTS, "a number, such as 7 or 10k")?),
            Type::Time => Self::Number(op, number(text, &TIMES, "a time with its unit, such as 10us")?),
            Type::Bytes => Self::Number(op, number(text, &SIZES, "a size, such as 64KiB")?),
            Type::Share => {
                let (digits, scale) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
                let share = digits.parse::<f64>().ok().filter(|share| share.is_finite());
                let share = share.ok_or("a share is written 5% or 0.05")?;
                Self::Share(op, share / scale)
            }
        })
    }

    /// Whether a value is as wanted.
    pub(super) fn holds(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Self::Text(op, wanted), Value::Text(names)) => match op {
                Op::Equal => names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
                Op::NotEqual => !names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
                Op::NotLike => !names.iter().any(|name| contains(name, wanted)),
                _ => names.iter().any(|name| contains(name, wanted)),
            },
            (Self::Number(op, wanted), Value::Number(value)) => op.orders(&value, wanted),
            (Self::Number(op, wanted), Value::Between(least, most)) => match op {
                Op::Equal | Op::Like => (least..=most).contains(wanted),
                Op::NotEqual | Op::NotLike => least != most || least != *wanted,
                Op::Less | Op::AtMost => op.orders(&least, wanted),
                Op::More | Op::AtLeast => op.orders(&most, wanted),
            },
            (Self::Share(op, wanted), Value::Share(value)) => op.orders(&value, wanted),
            _ => false,
        }
    }
}

const COUNTS: [(&str, f64); 4] = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
const TIMES: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const SIZES: [(&str, f64); 9] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
    ("", 1.0),
];

/// A number with one of these units.
fn number(text: &str, units: &[(&str, f64)], how: &str) -> Result<u64, String> {
    for (unit, scale) in units {
        let Some(digits) = text.strip_suffix(unit) else { continue };
        if unit.is_empty()
            && let Ok(whole) = digits.parse()
        {
            // Ids need all their digits.
            return Ok(whole);
        }
        if let Some(value) = digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0) {
            return Ok((value * scale).round() as u64);
        }
    }
    Err(format!("`{text}` is not {how}"))
}

/// Whether `text` contains `pattern`, whatever the case; `*` in it stands for anything.
#[must_use]
pub fn contains(text: &str, pattern: &str) -> bool {
    let mut rest = text.as_bytes();
    for piece in pattern.split('*').filter(|piece| !piece.is_empty()) {
        match find(rest, piece.as_bytes()) {
            Some(end) => rest = &rest[end..],
            None => return false,
        }
    }
    true
}

/// Where the first occurrence ends.
fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    let (first, length) = (piece.first()?.to_ascii_lowercase(), piece.len());
    (0..=text.len().checked_sub(length)?)
        .find(|&at| {
            text[at].to_ascii_lowercase() == first && text[at..at + length].eq_ignore_ascii_case(piece)
        })
        .map(|at| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_anywhere_in_their_order() {
        for (text, pattern, found) in [
            ("nvjet_tst_192x8", "TST", true),
            ("nvjet_tst_192x8", "nv*192", true),
            ("nvjet_tst_192x8", "192*nv", false),
            ("x", "", true),
            ("x", "*", true),
            ("", "x", false),
            ("aab", "ab", true),
        ] {
            assert_eq!(contains(text, pattern), found, "{text} {pattern}");
        }
    }

    #[test]
    fn numbers_have_units() {
        let time = |text| number(text, &TIMES, "a time");
        assert_eq!((time("10us"), time("1.5ms"), time("3µs")), (Ok(10_000), Ok(1_500_000), Ok(3_000)));
        assert!(time("10").is_err() && time("us").is_err() && time("-1s").is_err() && time("infs").is_err());
        assert_eq!(number("18446744073709551615", &COUNTS, ""), Ok(u64::MAX));
        assert_eq!(number("64KiB", &SIZES, ""), Ok(65_536));
        assert_eq!(number("10k", &COUNTS, ""), Ok(10_000));
    }
}
