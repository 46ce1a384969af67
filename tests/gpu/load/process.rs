//! What gtop-load does as a process: it ends cleanly when asked to, and forks children while the GPU works.
#![expect(unsafe_code, reason = "fork, exec and signal handlers are C")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From here on SIGINT and SIGTERM end the work, and its result is still printed.
pub(crate) fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
}

/// Whether the work was asked to end.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// How long a child may take to be gone after the work is done.
const PATIENCE: Duration = Duration::from_secs(10);

/// Children forked during the run: every other one ends at once, every other one becomes `/bin/true`.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    wanted: u64,
    started: u64,
    reaped: u64,
    /// Reaped, but with a signal or another exit code than 0.
    unwell: u64,
    running: Vec<libc::pid_t>,
    longest: Duration,
}

impl Forks {
    /// Will fork `wanted` children.
    pub(crate) fn new(wanted: u64) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Forks one child if any is left to fork, and reaps those that have ended.
    pub(crate) fn tick(&mut self) -> io::Result<()> {
        if self.started < self.wanted {
            let before = Instant::now();
            let child = fork(self.started % 2 == 1)?;
            self.longest = self.longest.max(before.elapsed());
            self.started += 1;
            self.running.push(child);
        }
        self.reap();
        Ok(())
    }

    /// Forks what is left and waits until all children are gone, or 10 s.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        while self.started < self.wanted {
            self.tick()?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.running.is_empty() && Instant::now() < deadline {
            self.reap();
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn reap(&mut self) {
        self.running.retain(|&child| {
            let mut status = 0;
            // SAFETY: waits for a child of ours, `status` lives through the call.
            if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } != child {
                return true;
            }
            self.reaped += 1;
            self.unwell += u64::from(status != 0);
            false
        });
    }

    /// What became of the children.
    pub(crate) fn json(&self) -> Value {
        json!({
            "started": self.started,
            "reaped": self.reaped,
            "unwell": self.unwell,
            "longest_us": self.longest.as_micros() as u64,
        })
    }
}

/// Forks a child that ends at once, by `_exit` or by becoming `/bin/true`.
fn fork(exec: bool) -> io::Result<libc::pid_t> {
    let path = c"/bin/true";
    let arguments = [path.as_ptr(), ptr::null()];
    // SAFETY: the child calls nothing but execv and _exit, both safe after fork in a process with threads.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            if exec {
                libc::execv(path.as_ptr(), arguments.as_ptr());
            }
            libc::_exit(i32::from(exec));
        }
        if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_child_is_reaped_and_was_well() {
        let mut forks = Forks::new(6);
        forks.tick().unwrap();
        forks.finish().unwrap();
        assert_eq!((forks.started, forks.reaped, forks.unwell), (6, 6, 0));
        assert!(forks.running.is_empty());
    }
}
