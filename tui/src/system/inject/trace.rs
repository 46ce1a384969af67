//! One thread of another process under ptrace. The kernel lets a thread go when the thread that traces it ends,
//! however that happens: nothing here ties the life of the one to that of the other.
#![allow(unsafe_code, reason = "ptrace and waitpid take pointers and numbers")]

use std::mem;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_uint, c_void, pid_t, sock_filter};
use nix::errno::Errno;

/// `PTRACE_EVENT_STOP`, which says that a stop comes of a request or of a stopping signal (`linux/ptrace.h`).
const EVENT_STOP: c_int = 128;
/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`; a mask of the kernel has eight bytes.
const GET_MASK: c_uint = 0x420a;
const SET_MASK: c_uint = 0x420b;
const MASK_BYTES: usize = 8;
/// `PTRACE_SECCOMP_GET_FILTER`; a filter has at most `BPF_MAXINSNS` steps.
const GET_FILTER: c_uint = 0x420c;
const MOST_STEPS: usize = 4096;
/// How often to look whether a thread has stopped.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// Why a traced thread stands still, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Because it was asked to.
    Asked,
    /// Because its process was stopped by this signal.
    Group(c_int),
    /// At a system call, while each is waited for.
    SystemCall,
    /// Before this signal is delivered.
    Signal(c_int),
    /// It has ended.
    Ended,
    /// It runs, or sleeps where nothing can wake it.
    Not,
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// Until something stops it.
    Freely,
    /// Until its next system call.
    ToSystemCall,
}

/// A thread this thread traces. To be used on one thread alone.
#[derive(Debug)]
pub(super) struct Traced(pid_t);

/// One ptrace request.
fn request(what: c_uint, tid: pid_t, address: *mut c_void, data: *mut c_void) -> Result<c_long, Errno> {
    // SAFETY: the callers give addresses that are valid for the request, as its description in ptrace(2) says.
    Errno::result(unsafe { libc::ptrace(what, tid, address, data) })
}

/// A number where ptrace takes a pointer.
fn number(value: u64) -> *mut c_void {
    ptr::without_provenance_mut(value as usize)
}

impl Traced {
    /// Begins to trace a thread, which runs on. No option ties it to this process.
    pub(super) fn seize(tid: u32) -> Result<Self, Errno> {
        let tid = tid.cast_signed();
        let options = number(u64::from(libc::PTRACE_O_TRACESYSGOOD.cast_unsigned()));
        request(libc::PTRACE_SEIZE, tid, ptr::null_mut(), options).map(|_| Self(tid))
    }

    /// Has it stop as soon as it can; a system call it waits in is broken off, to be begun again.
    pub(super) fn interrupt(&self) -> Result<(), Errno> {
        request(libc::PTRACE_INTERRUPT, self.0, ptr::null_mut(), ptr::null_mut()).map(|_| ())
    }

    /// Waits until it stops, at most until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Result<Stop, Errno> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is writable.
            let changed = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
            match Errno::result(changed) {
                Ok(0) if Instant::now() >= deadline => return Ok(Stop::Not),
                Ok(0) => thread::sleep(LOOK_EVERY),
                Ok(_) => return Ok(meaning(status)),
                Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok(Stop::Ended),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets it go on.
    pub(super) fn go_on(&self, on: On) -> Result<(), Errno> {
        self.go_on_with(on, 0)
    }

    /// Lets it go on with the signal before which it stands still; one that it holds back waits.
    pub(super) fn go_on_with(&self, on: On, signal: c_int) -> Result<(), Errno> {
        let what = match on {
            On::Freely => libc::PTRACE_CONT,
            On::ToSystemCall => libc::PTRACE_SYSCALL,
        };
        request(what, self.0, ptr::null_mut(), number(u64::from(signal.cast_unsigned()))).map(|_| ())
    }

    /// Whether the signal before which it stands still was sent by somebody: the thread did not bring it on itself.
    pub(super) fn was_sent(&self) -> Result<bool, Errno> {
        // SAFETY: all zeros is a valid value to fill.
        let mut about: libc::siginfo_t = unsafe { mem::zeroed() };
        request(libc::PTRACE_GETSIGINFO, self.0, ptr::null_mut(), (&raw mut about).cast())?;
        Ok(about.si_code <= 0)
    }

    /// Lets it go for good; it must stand still, and goes on, with this signal if it is not 0.
    pub(super) fn let_go(self, signal: c_int) -> Result<(), Errno> {
        let signal = number(u64::from(signal.cast_unsigned()));
        request(libc::PTRACE_DETACH, self.0, ptr::null_mut(), signal).map(|_| ())
    }

    /// The signals it holds back, one bit each, the first for signal 1.
    pub(super) fn mask(&self) -> Result<u64, Errno> {
        let mut mask = 0u64;
        request(GET_MASK, self.0, number(MASK_BYTES as u64), (&raw mut mask).cast()).map(|_| mask)
    }

    /// Has it hold back these signals.
    pub(super) fn set_mask(&self, mut mask: u64) -> Result<(), Errno> {
        request(SET_MASK, self.0, number(MASK_BYTES as u64), (&raw mut mask).cast()).map(|_| ())
    }

    /// Copies one set of registers into `into`; gives how many bytes it has.
    pub(super) fn register_set(&self, set: c_int, into: &mut [u8]) -> Result<usize, Errno> {
        let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        request(libc::PTRACE_GETREGSET, self.0, number(set as u64), (&raw mut vector).cast())
            .map(|_| vector.iov_len)
    }

    /// Gives it one set of registers.
    pub(super) fn set_register_set(&self, set: c_int, from: &[u8]) -> Result<(), Errno> {
        // The kernel only reads from it.
        let mut vector = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        request(libc::PTRACE_SETREGSET, self.0, number(set as u64), (&raw mut vector).cast()).map(|_| ())
    }

    /// One of its system call filters, the newest first; `ENOENT` behind the last. Takes `CAP_SYS_ADMIN`, and that
    /// this process is under no filter.
    pub(super) fn filter(&self, index: u32) -> Result<Vec<sock_filter>, Errno> {
        let index = || number(u64::from(index));
        let steps = usize::try_from(request(GET_FILTER, self.0, index(), ptr::null_mut())?).unwrap_or(0);
        if steps > MOST_STEPS {
            return Err(Errno::E2BIG);
        }
        // No filter that is attached changes.
        let mut filter = vec![sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; steps];
        request(GET_FILTER, self.0, index(), filter.as_mut_ptr().cast())?;
        Ok(filter)
    }

    /// Writes whole words into its memory, code included, of which it then has a copy of its own.
    pub(super) fn poke(&self, address: u64, words: &[u64]) -> Result<(), Errno> {
        for (at, word) in words.iter().enumerate() {
            let address = number(address + 8 * at as u64);
            request(libc::PTRACE_POKEDATA, self.0, address, number(*word))?;
        }
        Ok(())
    }
}

fn meaning(status: c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (libc::SIGTRAP, EVENT_STOP) => Stop::Asked,
        (signal, EVENT_STOP) => Stop::Group(signal),
        (signal, _) if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        (signal, _) => Stop::Signal(signal),
    }
}
