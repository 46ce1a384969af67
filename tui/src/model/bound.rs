//! How much memory gtop may take, and what of it is for the timelines.

use std::sync::OnceLock;

/// Bytes by default.
pub const DEFAULT: u64 = 256_000_000;

/// What the person has written down, once for the whole run.
static WRITTEN: OnceLock<u64> = OnceLock::new();

/// Keeps to about so many bytes from now on; the first to say so is heard.
pub fn keep_to(bytes: u64) {
    let _ = WRITTEN.set(bytes);
}

/// Bytes that the timelines of all processes may take together. A frozen screen holds as much again, and so may the one
/// that is drawn; the rest is for everything that does not grow with time, and for what is on its way.
pub(super) fn timelines() -> usize {
    usize::try_from(WRITTEN.get().copied().unwrap_or(DEFAULT) / 6).unwrap_or(usize::MAX)
}
