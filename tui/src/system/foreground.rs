//! Waiting for a command as if gtop were not there: signals sent to gtop reach the command.
#![allow(unsafe_code, reason = "what runs in the child between fork and exec is promised to be safe there")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Signals passed on. Those that stop and continue reach the whole process group anyway.
const PASSED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Holds signals back from gtop, from before the command starts until it has ended.
#[derive(Debug)]
pub struct Foreground {
    signals: SignalFd,
    same_group: bool,
    before: SigSet,
}

impl Foreground {
    /// To be called before the command starts, and before this process has other threads: a signal is taken by any
    /// thread that does not hold it back. `same_group` says whether the terminal's signals reach the command, too.
    pub fn prepare(same_group: bool) -> io::Result<Self> {
        let mut mask: SigSet = PASSED.into_iter().collect();
        mask.add(Signal::SIGCHLD);
        let before = SigSet::thread_get_mask()?;
        mask.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)?, same_group, before })
    }

    /// Lets the command start without holding back what gtop holds back.
    pub fn release(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: the closure makes one system call on memory of its own and allocates nothing.
        unsafe { command.pre_exec(move || Ok(before.thread_set_mask()?)) };
    }

    /// Waits until the command has ended.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_raw(child.id().cast_signed());
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let signal = match self.signals.read_signal() {
                Ok(Some(signal)) => signal,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // What the terminal sends (a positive code) reaches its whole group, and what the command sends to its
            // group is meant for others.
            let from_terminal = signal.ssi_code > 0;
            let sent = !(from_terminal && self.same_group) && signal.ssi_pid != child.id();
            let number =
                i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            if let Some(signal) = number.filter(|signal| sent && PASSED.contains(signal)) {
                // It is not waited for yet, so the pid is still its own, and its group's where it leads one.
                let _ = if self.same_group { kill(pid, signal) } else { killpg(pid, signal) };
            }
        }
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
