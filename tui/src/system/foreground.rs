//! Waiting for a command as if gtop were not there: signals sent to gtop reach the command, and what ends gtop ends it as
//! the shell expects.
#![allow(unsafe_code, reason = "what runs in the child between fork and exec is promised to be safe there")]

use std::cell::RefCell;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, killpg, raise, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

/// Signals passed on. Those that stop and continue reach the whole process group anyway.
const PASSED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// A process of our group that holds all signals back, so that those sent to the whole group are seen on it: they have
/// reached the command already.
#[derive(Debug)]
struct Canary(Pid);

impl Canary {
    fn start() -> io::Result<Self> {
        let parent = nix::unistd::getpid();
        // Held back from before the fork on: none is missed, and none ends it.
        let before = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        // SAFETY: the child makes system calls only, and does not return.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            // SAFETY: numbers and a C string; it ends with this thread, and holds nothing of ours open.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::prctl(libc::PR_SET_NAME, c"gtop-signals".as_ptr());
                libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                if libc::getppid() != parent.as_raw() {
                    libc::_exit(0);
                }
                loop {
                    libc::pause();
                }
            }
        }
        before.thread_set_mask()?;
        match forked? {
            ForkResult::Parent { child } => Ok(Self(child)),
            ForkResult::Child => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Whether this signal was sent to the whole group. One is seen once.
    fn has_seen(&mut self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        let seen = pending & (1 << (signal as i32 - 1)) != 0;
        if seen && let Ok(fresh) = Self::start() {
            *self = fresh;
        }
        seen
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// The signal that gtop ends by, once everything is put in order; 0 for none.
static ENDS_BY: AtomicI32 = AtomicI32::new(0);

/// That this signal came and gtop is to end. Gives its exit code, as the shell says that a signal ended a program.
#[must_use]
pub fn ends_by(signal: i32) -> u8 {
    ENDS_BY.store(signal, Ordering::SeqCst);
    128u8.saturating_add(signal as u8)
}

/// The last that is done: SIGQUIT, which asks for a picture of the memory, ends gtop as if it had never been caught.
pub fn end() {
    if ENDS_BY.load(Ordering::SeqCst) == libc::SIGQUIT {
        // SAFETY: no handler of ours is set but the default again, and nothing is done behind this.
        let reset = unsafe { signal(Signal::SIGQUIT, SigHandler::SigDfl) };
        if reset.is_ok() {
            let _ = raise(Signal::SIGQUIT);
        }
    }
}

/// Holds signals back from gtop, from before the command starts until it has ended.
#[derive(Debug)]
pub struct Foreground {
    signals: SignalFd,
    same_group: bool,
    /// Where the command is in our group.
    canary: RefCell<Option<Canary>>,
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
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)?;
        let canary = RefCell::new(same_group.then(Canary::start).transpose()?);
        Ok(Self { signals, same_group, canary, before })
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
            let to_group = |signal: Signal| {
                self.canary.borrow_mut().as_mut().is_some_and(|canary| canary.has_seen(signal))
            };
            if let Some(signal) =
                number.filter(|signal| sent && PASSED.contains(signal) && !to_group(*signal))
            {
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
