//! Why the shim cannot be put into a process, and what to do about it.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use super::super::embed::EmbedError;
use super::super::process::{Process, printable, readable};

/// Why not.
#[derive(Debug)]
pub enum Refusal {
    /// It has ended, or another process has its number.
    Gone,
    /// The kernel does not let this user do it; why, as far as can be seen.
    Denied(String),
    /// A debugger or tracer holds it.
    Traced(u32),
    /// Another gtop is just putting the shim in.
    Busy,
    /// A signal has stopped it.
    Stopped,
    /// It has no CUDA to watch.
    NoCuda,
    /// Its libraries are not those of glibc.
    Libc(&'static str),
    /// It is for another kind of processor, or in another mode, than this program.
    Processor(String),
    /// Its processor checks where functions return to.
    ShadowStack,
    /// It may make next to no system calls (seccomp's strict mode).
    Seccomp,
    /// A filter of system calls (seccomp) is in the way.
    Filter(Filtered),
    /// There is no place for the shim that it can see.
    Place(PathBuf, io::Error),
    /// The shim's file could not be made.
    Shim(EmbedError),
    /// No thread could be borrowed; how many there are.
    NoThread(usize),
    /// A thread did not stop.
    Stuck(u32),
    /// The loader says no.
    Loader(String),
    /// It was loaded, and did not begin.
    Silent,
    /// The borrowed thread has not come back; it goes on by itself.
    Slow,
    /// A signal came of the call.
    Crashed(i32),
    /// There was no memory for the call.
    Memory(io::Error),
    /// The system says no.
    System(io::Error),
}

/// What a filter of system calls does to the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// It ends the process at this call.
    Killed(&'static str),
    /// It forbids this call, without which the shim cannot serve.
    Forbidden(&'static str),
    /// It cannot be read, so that this is not known.
    Unread,
    /// The threads of the process are under different ones.
    Several,
}

impl fmt::Display for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(call) => write!(
                f,
                "its system call filter (seccomp) would end it at `{call}`, which the shim calls; it was left alone. \
                 Start it under a filter that allows the call"
            ),
            Self::Forbidden(call) => write!(
                f,
                "its system call filter (seccomp) forbids `{call}`, without which the shim cannot serve; it was left \
                 alone. Start it under a filter that allows the call"
            ),
            Self::Unread => write!(
                f,
                "it runs under system call filters (seccomp) that this gtop cannot read, so that one may end it at \
                 what the shim calls; it was left alone. Do it as root of this machine outside any container, or \
                 start it with `gtop run`"
            ),
            Self::Several => write!(
                f,
                "its threads run under different system call filters (seccomp), so that one may end it at what the \
                 shim calls; it was left alone. Start it with `gtop run`"
            ),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            _ if error.kind() == io::ErrorKind::NotFound => Self::Gone,
            _ => Self::System(error),
        }
    }
}

impl From<nix::errno::Errno> for Refusal {
    fn from(error: nix::errno::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl Refusal {
    /// The refusal that an error means where the kernel was asked for the right to do it.
    pub(super) fn of_access(process: &Process, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Denied(denied(process)),
            _ => error.into(),
        }
    }
}

/// Why this user may not, as far as can be seen.
fn denied(process: &Process) -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = scope.and_then(|scope| scope.trim().parse().ok()).unwrap_or(0);
    let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filtered = own.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    why_denied(process.uid, nix::unistd::geteuid().as_raw(), scope, filtered)
}

fn why_denied(uid: u32, own: u32, scope: u8, filtered: bool) -> String {
    match scope {
        3 => "kernel.yama.ptrace_scope is 3: nobody may do this until the machine is started again".to_owned(),
        2 => "kernel.yama.ptrace_scope is 2: this takes CAP_SYS_PTRACE, as root has it".to_owned(),
        1 if own != 0 => "kernel.yama.ptrace_scope is 1: only the parent of a process and root may do this; use \
                          sudo, or `sysctl kernel.yama.ptrace_scope=0`"
            .to_owned(),
        _ if own != uid && own != 0 => format!("it belongs to uid {uid}; do it as that user or as root"),
        _ if filtered => "this gtop runs under a system call filter, as in a container, or lacks CAP_SYS_PTRACE; \
                          use `docker run --cap-add SYS_PTRACE`, or do it from the host"
            .to_owned(),
        _ if own == 0 => "this takes CAP_SYS_PTRACE, which this root, as in a container, does not have".to_owned(),
        _ => "the process does not let itself be looked into (it has changed its user, or asked for that); do it \
              as root"
            .to_owned(),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "it has ended"),
            Self::Denied(why) => write!(f, "{why}"),
            Self::Traced(by) => {
                write!(f, "process {by} traces it already, as a debugger or strace does; end that first")
            }
            Self::Busy => write!(f, "another gtop is putting the shim into it; try again when it has"),
            Self::Stopped => write!(f, "it is stopped; let it go on first (`kill -CONT`)"),
            Self::NoCuda => write!(f, "it has not begun to use CUDA; try again when it has"),
            Self::Libc(what) => write!(f, "{what}, and the shim needs the shared glibc"),
            Self::Processor(what) => write!(f, "{what}"),
            Self::ShadowStack => write!(f, "its threads have shadow stacks, on which no call can be put"),
            Self::Seccomp => write!(f, "it has given up all system calls but read and write (seccomp)"),
            Self::Filter(filtered) => write!(f, "{filtered}"),
            Self::Place(place, error) => {
                write!(f, "no place for the shim that it can see: {}: {error}", readable(place))
            }
            Self::Shim(error) => write!(f, "{error}"),
            Self::NoThread(threads) => write!(
                f,
                "none of its {threads} threads came to wait in a system call of the C library, outside allocator and \
                 loader, within 2 s; it was left alone, try again"
            ),
            Self::Stuck(tid) => {
                write!(f, "its thread {tid} sleeps where nothing can wake it; it was left alone")
            }
            Self::Loader(message) => {
                write!(f, "its loader refuses the shim: {}", printable(message.as_bytes()))
            }
            Self::Silent => write!(f, "the shim was loaded and did not begin"),
            Self::Slow => write!(
                f,
                "the call has not come back within 10 s, since something in it holds the loader's lock; it goes on \
                 by itself, look again later"
            ),
            Self::Crashed(signal) => {
                write!(f, "loading the shim ended in signal {signal}; the thread was put back as it was")
            }
            Self::Memory(error) => write!(f, "it gets no memory for the call: {error}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_to_do() {
        assert!(why_denied(1000, 1000, 1, false).contains("sysctl kernel.yama.ptrace_scope=0"));
        assert!(why_denied(1000, 0, 3, false).contains("nobody"));
        assert!(why_denied(1000, 1001, 0, false).contains("uid 1000"));
        assert!(why_denied(0, 0, 0, true).contains("--cap-add SYS_PTRACE"));
        assert!(why_denied(0, 0, 1, false).contains("CAP_SYS_PTRACE"));
        assert!(why_denied(1000, 1000, 0, false).contains("as root"));
    }

    #[test]
    fn an_error_about_a_process_that_is_gone_says_so() {
        assert!(matches!(Refusal::from(nix::errno::Errno::ESRCH), Refusal::Gone));
        let process = Process { uid: 7, ..Process::default() };
        let denied = Refusal::of_access(&process, io::Error::from_raw_os_error(libc::EPERM));
        assert!(matches!(denied, Refusal::Denied(_)), "{denied}");
    }
}
