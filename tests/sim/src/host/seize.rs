//! A host that closes every descriptor it does not know, as daemons do, and opens its own under the same numbers.
#![allow(unsafe_code, reason = "descriptors by number are C's")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// The numbers that are closed, and those under which something is opened.
const ALL: std::ops::Range<i32> = 3..1024;
const TAKEN: std::ops::Range<i32> = 3..40;
/// What somebody has sent to the host.
const SENT: &[u8] = b"untouched";

/// What the host has open now.
pub(super) enum Seized {
    /// One end of a connection under every number, the other here.
    Connection(OwnedFd),
    /// A socket that listens, with one who waits to be let in.
    Listener(PathBuf, OwnedFd),
}

/// Under all numbers the same: `connections`, or `listeners`.
pub(super) fn seize(what: &str) -> Result<Seized, String> {
    let text = |error: std::io::Error| error.to_string();
    close(ALL);
    let (ours, seized) = match what {
        "connections" => {
            let (ours, mut theirs) = UnixStream::pair().map_err(text)?;
            theirs.write_all(SENT).map_err(text)?;
            theirs.set_nonblocking(true).map_err(text)?;
            (OwnedFd::from(ours), Seized::Connection(high(theirs.into())?))
        }
        "listeners" => {
            let path = std::env::temp_dir().join(format!("seized-{}", std::process::id()));
            let listener = UnixListener::bind(&path).map_err(text)?;
            listener.set_nonblocking(true).map_err(text)?;
            let waits = UnixStream::connect(&path).map_err(text)?;
            (OwnedFd::from(listener), Seized::Listener(path, high(waits.into())?))
        }
        _ => return Err(format!("`{what}` is nothing to seize descriptors with")),
    };
    let ours = high(ours)?;
    for number in TAKEN {
        // SAFETY: numbers, as above.
        if unsafe { libc::dup2(ours.as_raw_fd(), number) } != number {
            return Err(std::io::Error::last_os_error().to_string());
        }
    }
    // SAFETY: the child calls what is allowed after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = TAKEN.filter(|fd| !is_open(*fd)).count();
        // SAFETY: it ends here.
        unsafe { libc::_exit(i32::from(gone > 0)) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status == 0 { Ok(seized) } else { Err("a child lost descriptors".into()) }
}

impl Seized {
    /// Whether all of it is as it was; closes it.
    pub(super) fn give_back(self) -> Result<String, String> {
        let gone: Vec<i32> = TAKEN.filter(|fd| !is_open(*fd)).collect();
        if !gone.is_empty() {
            return Err(format!("{gone:?} were closed"));
        }
        // SAFETY: one of the copies that were made; the others are closed below.
        let first = unsafe { OwnedFd::from_raw_fd(TAKEN.start) };
        let result = match self {
            Self::Connection(theirs) => {
                let (mut ours, mut theirs) = (UnixStream::from(first), UnixStream::from(theirs));
                let mut text = [0; 64];
                let read = ours.read(&mut text).map_err(|error| error.to_string())?;
                let came = theirs.read(&mut text[read..]).map_err(|error| error.kind());
                let _ = ours.into_raw_fd();
                match (&text[..read], came) {
                    (SENT, Err(ErrorKind::WouldBlock)) => Ok("untouched".into()),
                    other => Err(format!("{other:?}")),
                }
            }
            Self::Listener(path, _waits) => {
                let listener = UnixListener::from(first);
                let let_in = listener.accept().map(|_| "untouched".into()).map_err(|error| error.to_string());
                let _ = listener.into_raw_fd();
                let _ = std::fs::remove_file(path);
                let_in
            }
        };
        close(TAKEN);
        result
    }
}

fn close(fds: std::ops::Range<i32>) {
    for fd in fds {
        // SAFETY: a number; whose it is, is the question.
        unsafe { libc::close(fd) };
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// The same under a number that is not among those taken.
fn high(fd: OwnedFd) -> Result<OwnedFd, String> {
    // SAFETY: a number.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, TAKEN.end + 60) };
    if copy < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    drop(fd);
    // SAFETY: a descriptor just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
