//! Waking the I/O thread, with a system call only when it sleeps.

use crate::fork;
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, fence};
use std::os::fd::{IntoRawFd, RawFd};

/// A thread that sleeps in `poll`.
#[derive(Debug)]
pub(crate) struct Wake {
    /// Its bell, opened by the thread that will sleep, and the file behind that: see [`crate::own`].
    fd: AtomicI32,
    file: AtomicU64,
    asleep: AtomicBool,
}

impl Default for Wake {
    fn default() -> Self {
        Self { fd: AtomicI32::new(-1), file: AtomicU64::new(0), asleep: AtomicBool::new(false) }
    }
}

impl Wake {
    /// To be called by the thread that will sleep, before it does, and again when the host has closed what this opened.
    pub(crate) fn open(&self) -> std::io::Result<()> {
        let bell = sys::unix_socket(libc::SOCK_DGRAM)?.into_raw_fd();
        let file = sys::file_behind(bell);
        if let Err(error) = sys::make_bell(bell) {
            if sys::is_behind(bell, file) {
                sys::close(bell);
            }
            return Err(error);
        }
        fork::closing(self.fd.swap(-1, Release));
        fork::opened(bell, file);
        self.file.store(file, Release);
        self.fd.store(bell, Release);
        Ok(())
    }

    /// Wakes the thread if it sleeps or is about to; `false` if it sleeps and cannot be woken. Never blocks.
    pub(crate) fn notify(&self) -> bool {
        fence(SeqCst);
        if !self.asleep.swap(false, SeqCst) {
            return true;
        }
        let fd = self.fd();
        if fd < 0 {
            self.asleep.store(true, SeqCst);
            return false;
        }
        sys::ring(fd);
        true
    }

    /// To be called before looking for work a last time: a `notify` after this ends the sleep that follows.
    pub(crate) fn prepare(&self) {
        self.asleep.store(true, SeqCst);
        fence(SeqCst);
    }

    /// To be called after the sleep, or instead of it; `rang` unless `poll` has shown that the bell is silent.
    pub(crate) fn woken(&self, rang: bool) {
        self.asleep.store(false, SeqCst);
        let fd = if rang { self.fd() } else { -1 };
        if fd >= 0 {
            sys::hush(fd);
        }
    }

    /// The descriptor to poll; none that can be before it was opened, or when it is no longer ours.
    pub(crate) fn fd(&self) -> RawFd {
        let fd = self.fd.load(Acquire);
        if fd >= 0 && sys::is_behind(fd, self.file.load(Acquire)) { fd } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(wake: &Wake) -> bool {
        let mut fds = [libc::pollfd { fd: wake.fd(), events: libc::POLLIN, revents: 0 }];
        assert!(sys::poll(&mut fds, Some(0)));
        fds[0].revents == libc::POLLIN
    }

    #[test]
    fn a_sleeper_is_woken_once_and_goes_on_after_its_bell_was_closed() {
        let wake = Wake::default();
        wake.prepare();
        assert!(!wake.notify(), "it was never opened");
        wake.open().unwrap();
        for _ in 0..3 {
            assert!(wake.notify() && rings(&wake));
            assert!(wake.notify(), "it is awake by now");
            wake.woken(true);
            assert!(!rings(&wake));
            wake.prepare();
        }
        sys::close(wake.fd());
        assert_eq!((wake.fd(), wake.notify(), wake.notify()), (-1, false, false));
        wake.woken(true);
        wake.open().unwrap();
        wake.prepare();
        assert!(wake.notify() && rings(&wake));
    }
}
