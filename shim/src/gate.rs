//! Keeps the process from ending in the middle of a call into CUPTI, and from beginning one once it ends.

use super::atomic::{AtomicU64, Ordering, fence};

/// One thread goes in and out; another closes for good. Either the one stays out, or the other sees it inside.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// What the one inside has to say of when it went in; 0 is nobody.
    inside: AtomicU64,
    closed: AtomicU64,
}

impl Gate {
    /// Goes in, saying when, which is not 0; `false` if it is closed.
    pub(crate) fn enter(&self, when: u64) -> bool {
        self.inside.store(when, Ordering::Release);
        // This and the one in `close` keep either from looking before it has said what it does.
        fence(Ordering::SeqCst);
        let open = !self.is_closed();
        if !open {
            self.leave();
        }
        open
    }

    /// Comes out.
    pub(crate) fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.closed.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Since when somebody is inside; 0 is nobody.
    pub(crate) fn since(&self) -> u64 {
        self.inside.load(Ordering::Acquire)
    }
}
