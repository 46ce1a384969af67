//! A small log for people who ask for one: a file, never the host's standard error.

use crate::own::Own;
use crate::sys;
use crate::text::Text;
use core::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// The log ends at this size, bytes, so that a shim that runs for a year fills no disk.
const MOST: usize = 1 << 20;

/// Where the shim's own messages go. Written by the shim's threads only, never in a callback.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Option<(Own<File>, usize)>>);

impl Log {
    /// A log in this file; without one, or if it cannot be opened, nothing is kept.
    pub(crate) fn open(path: Option<&Path>) -> Self {
        let file = path.and_then(|path| {
            File::options()
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path)
                .ok()
        });
        // A pipe that nobody reads any more would end the process.
        let is_pipe = |file: &File| file.metadata().map_or(true, |meta| meta.file_type().is_fifo());
        Self(Mutex::new(file.filter(|file| !is_pipe(file)).and_then(Own::new).map(|file| (file, 0))))
    }

    /// Runs `body` while nobody can write.
    #[cfg(test)]
    pub(crate) fn with_locked<T>(&self, body: impl FnOnce() -> T) -> T {
        let _guard = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        body()
    }

    /// Keeps nothing more.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Writes one line.
    pub(crate) fn line(&self, message: fmt::Arguments<'_>) {
        let mut guard = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some((file, written)) = guard.as_mut() else { return };
        let mut line = Text::<1024>::EMPTY;
        let now = sys::realtime();
        let _ = write!(line, "{}.{:06} [{}] ", now / 1_000_000_000, now % 1_000_000_000 / 1000, sys::pid());
        let _ = line.write_fmt(message);
        let _ = line.write_str("\n");
        *written = written.saturating_add(line.as_bytes().len());
        if *written > MOST || append(file, line.as_bytes()).is_none() {
            *guard = None;
        }
    }
}

/// Writes at the end of the file, unless it is no longer ours or would grow longer than the process may write: that is
/// answered with a signal.
fn append(file: &Own<File>, line: &[u8]) -> Option<()> {
    let mut file = file.get()?;
    let len = file.metadata().ok()?.len().saturating_add(line.len() as u64);
    if len > sys::longest_file() {
        return None;
    }
    file.write_all(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_the_file_and_the_file_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::open(Some(&path));
        log.line(format_args!("armed in {} ms", 62));
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("] armed in 62 ms\n"));
        for _ in 0..2000 {
            log.line(format_args!("{:1000}", ' '));
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= MOST as u64);
        Log::open(None).line(format_args!("nowhere"));
        Log::open(Some(folder.path())).line(format_args!("not a file"));
    }
}
