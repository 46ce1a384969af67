//! Waking the I/O thread, with a system call only when it sleeps.

use crate::sys::Event;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, fence};
use std::os::fd::RawFd;

/// A thread that sleeps in `poll`.
#[derive(Debug)]
pub(crate) struct Wake {
    event: Event,
    asleep: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { event: Event::new()?, asleep: AtomicBool::new(false) })
    }

    /// Wakes the thread if it sleeps or is about to. Never blocks.
    pub(crate) fn notify(&self) {
        fence(SeqCst);
        if self.asleep.swap(false, SeqCst) {
            self.event.signal();
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
        self.event.clear();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.fd()
    }
}
