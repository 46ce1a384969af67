//! Waking the I/O thread, with a system call only when it sleeps.

use crate::sys::Event;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, fence};
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// A thread that sleeps in `poll`.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    /// Opened by the thread that will sleep.
    event: OnceLock<Event>,
    asleep: AtomicBool,
}

impl Wake {
    /// To be called by the thread that will sleep, before it does; gives the descriptor.
    pub(crate) fn open(&self) -> std::io::Result<RawFd> {
        let event = Event::new()?;
        Ok(self.event.get_or_init(|| event).fd())
    }

    /// Wakes the thread if it sleeps or is about to. Never blocks.
    pub(crate) fn notify(&self) {
        fence(SeqCst);
        if self.asleep.swap(false, SeqCst)
            && let Some(event) = self.event.get()
        {
            event.signal();
        }
    }

    /// To be called before looking for work a last time: a `notify` after this ends the sleep that follows.
    pub(crate) fn prepare(&self) {
        self.asleep.store(true, SeqCst);
        fence(SeqCst);
    }

    /// To be called after the sleep, or instead of it.
    pub(crate) fn woken(&self) {
        self.asleep.store(false, SeqCst);
        if let Some(event) = self.event.get() {
            event.clear();
        }
    }

    /// The descriptor to poll; none that can be before it was opened.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.get().map_or(-1, Event::fd)
    }
}
