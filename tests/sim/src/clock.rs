//! The clock of the simulated GPU, in nanoseconds since 1970 like CUPTI's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Either the machine's clock, or one that stands still until the simulation moves it.
#[derive(Debug)]
pub(crate) enum Clock {
    /// `CLOCK_REALTIME`.
    Real,
    /// Moved by hand.
    Stepped(AtomicU64),
}

impl Clock {
    pub(crate) fn stepped() -> Self {
        Self::Stepped(AtomicU64::new(realtime()))
    }

    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Real => realtime(),
            Self::Stepped(now) => now.load(Relaxed),
        }
    }

    pub(crate) const fn is_real(&self) -> bool {
        matches!(self, Self::Real)
    }

    /// Moves a stepped clock forward to `time`.
    pub(crate) fn reach(&self, time: u64) {
        if let Self::Stepped(now) = self {
            now.fetch_max(time, Relaxed);
        }
    }
}

fn realtime() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
