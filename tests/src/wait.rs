//! Waiting for what must come, with a deadline that only a test that hangs ever sees.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Looks again and again until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
