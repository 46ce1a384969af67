//! What of a file cannot be used, and where.

use core::fmt;

/// Where a file stops making sense, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The first byte that could not be used; of a compressed file of buffers, counted after decompression.
    pub offset: u64,
    /// What is wrong there, for people.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}", self.offset, self.what)
    }
}

impl core::error::Error for Damage {}
