//! What the shell may have left too little of: file descriptors, and the stack of the first thread.

use std::fs::File;
use std::io::{self, Write};
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};

/// Descriptors that gtop opens besides the three it is started with: a recording of one process takes 17 (measured), and
/// each process more takes one.
const NEEDED: usize = 28;

/// Bytes of the stack that gtop works on, whatever `ulimit -s` says: what systems give to the first thread.
const STACK: usize = 8 << 20;

/// Why gtop cannot begin.
#[derive(Debug, thiserror::Error)]
#[error(
    "only {free} more files and sockets can be opened here{}, and gtop needs {NEEDED}: raise that, as \
     with `ulimit -n 1024`, and start it again",
    .limit.map(|limit| format!(" (of {limit} in all: ulimit -n)")).unwrap_or_default()
)]
pub struct TooFew {
    /// How many can be opened, fewer than are needed.
    free: usize,
    /// How many this process may have.
    limit: Option<u64>,
}

/// Whether there are descriptors for all that gtop does, so that it does nothing by halves.
pub fn enough_descriptors() -> Result<(), TooFew> {
    let mut held = Vec::with_capacity(NEEDED);
    while held.len() < NEEDED {
        match File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(error) if is_exhausted(&error) => {
                let free = held.len();
                drop(held);
                return Err(TooFew { free, limit: limit("Max open files") });
            }
            // A world without that file tells nothing.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// One of this process's limits, if it has that and there is a descriptor left to find out with.
fn limit(name: &str) -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether there was no descriptor left, of this process's or of the system's.
fn is_exhausted(error: &io::Error) -> bool {
    [Errno::EMFILE, Errno::ENFILE].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}

/// Does all the work on a stack that is large enough: that of the first thread is as large as the shell says.
pub fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if limit("Max stack size").is_some_and(|bytes| bytes < STACK as u64) {
        on_own_stack(work)
    } else {
        work()
    }
}

/// Does it on another thread. Signals are that thread's, too: the first one holds them back.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let Ok(before) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
        return work();
    };
    thread::scope(|scope| {
        let body = move || {
            let _ = before.thread_set_mask();
            work()
        };
        let builder = thread::Builder::new().name("gtop".into()).stack_size(STACK);
        match builder.spawn_scoped(scope, body).map(thread::ScopedJoinHandle::join) {
            Ok(Ok(done)) => done,
            // Its message is on the screen already.
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => {
                let _ = writeln!(io::stderr(), "gtop: there is no thread to work on: {error}");
                std::process::exit(3)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_numbers() {
        let text = TooFew { free: 7, limit: Some(10) }.to_string();
        assert!(text.contains("only 7 more") && text.contains("of 10 in all"), "{text}");
        assert!(text.contains("needs 28") && text.contains("ulimit -n 1024"), "{text}");
        assert!(enough_descriptors().is_ok(), "of a test there is nothing amiss");
    }

    #[test]
    #[expect(clippy::large_stack_arrays, reason = "that there is room for one is what is tested")]
    fn work_has_room_and_its_signals() {
        let mask = SigSet::thread_get_mask().unwrap();
        let (size, inside) = on_own_stack(|| {
            let room = [1u8; 4 << 20];
            (room.iter().map(|byte| usize::from(*byte)).sum::<usize>(), SigSet::thread_get_mask().unwrap())
        });
        assert_eq!((size, inside), (4 << 20, mask));
    }
}
