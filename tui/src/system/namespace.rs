//! Pid namespaces: which process has which number inside of a container.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use super::process::Process;

/// Why a process is not found by its number inside of a namespace.
#[derive(Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The process that names the namespace is not there.
    NoNamespace(u32),
    /// It may not be asked for its namespace.
    Denied(u32),
    /// Nobody has the number there.
    Nobody {
        /// The number.
        pid: u32,
        /// The process that names the namespace.
        of: u32,
    },
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNamespace(of) => write!(f, "--ns {of}: there is no such process"),
            Self::Denied(of) => write!(
                f,
                "--ns {of}: its namespace may not be asked for; do it as its user or as root, or take the pid that \
                 `grep NSpid /proc/*/status` shows first"
            ),
            Self::Nobody { pid, of } => {
                write!(f, "no process has the pid {pid} in the pid namespace of process {of}")
            }
        }
    }
}

/// The pid namespace of a process, as its link names it (`pid_namespaces(7)`).
fn namespace(pid: u32) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid"))
}

/// The process that has the number `pid` in the pid namespace of the process `of`, as this machine numbers it.
///
/// # Errors
/// There is no such process, or the namespace may not be asked for, which takes the rights of a debugger.
pub fn outer_pid(of: u32, pid: u32) -> Result<u32, Unknown> {
    if Process::read(of).is_err() {
        return Err(Unknown::NoNamespace(of));
    }
    let wanted = namespace(of).map_err(|_| Unknown::Denied(of))?;
    let candidates = Process::all().into_iter().filter(|process| process.inner_pid() == pid);
    let found =
        candidates.map(|process| process.pid).find(|pid| namespace(*pid).is_ok_and(|its| its == wanted));
    found.ok_or(Unknown::Nobody { pid, of })
}

/// Processes that have this number in a namespace of their own, and another one here.
#[must_use]
pub fn known_inside_as(pid: u32) -> Vec<Process> {
    let inside =
        |process: &Process| process.pids.len() > 1 && process.inner_pid() == pid && process.pid != pid;
    Process::all().into_iter().filter(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_our_own_namespace_numbers_are_as_they_are() {
        let own = std::process::id();
        let inner = Process::read(own).unwrap().inner_pid();
        assert_eq!(outer_pid(own, inner), Ok(own));
        assert_eq!(outer_pid(own, u32::MAX), Err(Unknown::Nobody { pid: u32::MAX, of: own }));
        assert_eq!(outer_pid(u32::MAX, 1), Err(Unknown::NoNamespace(u32::MAX)));
    }
}
