//! Text in a fixed number of bytes: what does not fit is cut, nothing is allocated.

use core::fmt::{self, Write};

/// At most `N` bytes of text.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub(crate) const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// The formatted text, cut at `N` bytes.
    #[must_use]
    pub(crate) fn new(text: fmt::Arguments<'_>) -> Self {
        let mut this = Self::EMPTY;
        let _ = this.write_fmt(text);
        this
    }

    /// These bytes, cut at `N`.
    #[must_use]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut this = Self::EMPTY;
        this.push(bytes);
        this
    }

    /// Appends what fits.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = N.saturating_sub(self.len).min(bytes.len());
        let end = self.len.saturating_add(room);
        if let (Some(to), Some(from)) = (self.bytes.get_mut(self.len..end), bytes.get(..room)) {
            to.copy_from_slice(from);
            self.len = end;
        }
    }

    /// The text.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether there is none.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A count with its thousands apart: `19,999`.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut divisor = 1u64;
        while self.0.checked_div(divisor).is_some_and(|rest| rest >= 1000) {
            divisor = divisor.saturating_mul(1000);
        }
        write!(f, "{}", self.0.checked_div(divisor).unwrap_or(0))?;
        while divisor > 1 {
            divisor /= 1000;
            write!(f, ",{:03}", self.0.checked_div(divisor).unwrap_or(0) % 1000)?;
        }
        Ok(())
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().utf8_chunks().try_for_each(|chunk| f.write_str(chunk.valid()))
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_not_refused() {
        let text = Text::<8>::new(format_args!("armed in {} ms", 62));
        assert_eq!(text.as_bytes(), b"armed in");
        assert_eq!(Text::<8>::from_bytes(b"ok").to_string(), "ok");
        assert!(Text::<8>::EMPTY.is_empty());
    }

    #[test]
    fn thousands_are_set_apart() {
        let of = |value| Grouped(value).to_string();
        assert_eq!([0, 999, 1_000, 19_999, 1_000_050].map(of), ["0", "999", "1,000", "19,999", "1,000,050"]);
        assert_eq!(of(u64::MAX), "18,446,744,073,709,551,615");
    }
}
