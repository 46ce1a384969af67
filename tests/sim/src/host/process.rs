//! How the host ends, and how it forks.
#![allow(unsafe_code, reason = "fork, signals and the ways to end are C's")]

use super::dl::{Driver, Injection};
use libc::{c_int, pid_t};
use std::path::Path;
use std::process::ExitCode;

/// A way to end.
#[derive(Clone, Copy)]
pub(super) enum Exit {
    /// Return from `main`.
    Return,
    /// `exit`, which runs what `atexit` registered.
    Handlers,
    /// `_exit`, which does not.
    Underscore,
    /// `abort`.
    Abort,
    /// A signal.
    Signal(c_int),
}

impl Exit {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "return" => Self::Return,
            "exit" => Self::Handlers,
            "_exit" => Self::Underscore,
            "abort" => Self::Abort,
            _ => match text.strip_prefix("signal ").and_then(|number| number.parse().ok()) {
                Some(signal) => Self::Signal(signal),
                None => return Err(format!("`{text}` is no way to end")),
            },
        })
    }

    /// Ends, except that the caller has to return from `main`.
    pub(super) fn go(self) -> ExitCode {
        // SAFETY: each of these ends the process as an application would.
        unsafe {
            match self {
                Self::Return => {}
                Self::Handlers => libc::exit(0),
                Self::Underscore => libc::_exit(0),
                Self::Abort => libc::abort(),
                Self::Signal(signal) => {
                    // Not to Rust's own handler of faults, which a host in C does not have.
                    libc::signal(signal, libc::SIG_DFL);
                    libc::raise(signal);
                }
            }
        }
        ExitCode::SUCCESS
    }
}

/// A child that is stuck ends after so many seconds, and its status says so.
const PATIENCE: u32 = 20;

/// Forks a child that ends, or lives on, as `how` says.
pub(super) fn fork(how: &str, injection: Option<&Injection>, driver: &Driver) -> Result<String, String> {
    let (how, file) = how.split_once(' ').unwrap_or((how, ""));
    let file = Path::new(file);
    let lives = matches!(how, "hold" | "inject" | "work");
    if !lives && !matches!(how, "exit" | "_exit" | "exec" | "again") {
        return Err(format!("`{how}` is nothing a child does"));
    }
    // SAFETY: the child does what applications do after a fork, however unwise; that is what is tested.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => child(how, file, injection, driver),
        1.. if lives => Ok(format!("child {pid}")),
        1.. => Ok(format!("child {pid} {}", wait(pid))),
        _ => Err("fork failed".into()),
    }
}

fn child(how: &str, file: &Path, injection: Option<&Injection>, driver: &Driver) -> ! {
    // SAFETY: as above; every way ends in a call that does not return.
    unsafe {
        match how {
            "exit" => {
                libc::alarm(PATIENCE);
                libc::exit(0)
            }
            "exec" => {
                libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), std::ptr::null::<libc::c_char>());
                libc::_exit(127)
            }
            "again" => {
                libc::alarm(PATIENCE);
                if let Some(injection) = injection {
                    injection.initialize();
                }
                libc::exit(0)
            }
            "inject" => {
                if let Some(injection) = injection {
                    injection.initialize();
                }
                loop {
                    libc::pause();
                }
            }
            "work" => {
                libc::alarm(PATIENCE);
                while !file.as_os_str().is_empty() && !file.exists() {
                    libc::usleep(1000);
                }
                if let Some(injection) = injection {
                    injection.initialize();
                }
                loop {
                    let _ = driver.command("turns 1");
                    libc::usleep(1000);
                }
            }
            "hold" => loop {
                libc::pause();
            },
            _ => libc::_exit(0),
        }
    }
}

/// Kills a child.
pub(super) fn reap(pid: &str) -> Result<String, String> {
    let pid: pid_t = pid.parse().ok().filter(|pid| *pid > 1).ok_or("reap whom?")?;
    // SAFETY: a signal to a process; if it is none of ours the call fails.
    if unsafe { libc::kill(pid, libc::SIGKILL) } != 0 {
        return Err(format!("there is no process {pid}"));
    }
    Ok(format!("child {pid} {}", wait(pid)))
}

/// Waits for a child and returns its exit code, or the number of the signal that ended it with a minus.
fn wait(pid: pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}
