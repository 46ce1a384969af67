//! What may be wrong with the process a library is loaded into: no memory for it, no sockets, small stacks, signals.
#![allow(unsafe_code, reason = "signals, stacks and seccomp are C's")]

use super::dl::{self, Injection};
use libc::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The pieces of memory that the library asks for and does not get, counted from 1.
#[derive(Clone, Copy)]
pub(super) struct Starve {
    first: u64,
    last: u64,
}

type Begin = unsafe extern "C" fn(usize, usize, u64, u64);
type Count = unsafe extern "C" fn() -> u64;

impl Starve {
    /// `N` is one piece, `N-` all from one on.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = text.strip_suffix('-').map_or((text, false), |first| (first, true));
        let first = first.parse().map_err(|_| format!("`{text}` is no number of a piece of memory"))?;
        Ok(Self { first, last: if rest { u64::MAX } else { first } })
    }

    /// From now on what the library of this name asks for is counted and, where it says so, not given. The simulated
    /// driver does it if it was preloaded.
    pub(super) fn begin(self, library: &str) -> Result<(), String> {
        let begin = dl::anywhere(c"gtop_sim_starve").ok_or("libcuda.so.1 is not preloaded")?;
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
        let mut range: Option<(usize, usize)> = None;
        for line in maps.lines().filter(|line| line.ends_with(library)) {
            let mut ends = line.split(['-', ' ']).map(|end| usize::from_str_radix(end, 16));
            if let (Some(Ok(from)), Some(Ok(to))) = (ends.next(), ends.next()) {
                range = Some(range.map_or((from, to), |(first, _)| (first, to)));
            }
        }
        let (from, to) = range.ok_or_else(|| format!("{library} is not mapped"))?;
        // SAFETY: the simulated driver defines this function so.
        unsafe { transmute::<*mut c_void, Begin>(begin)(from, to, self.first, self.last) };
        Ok(())
    }
}

/// How many pieces were asked for.
pub(super) fn starved() -> Result<String, String> {
    let count = dl::anywhere(c"gtop_sim_starved").ok_or("libcuda.so.1 is not preloaded")?;
    // SAFETY: the simulated driver defines this function so.
    Ok(unsafe { transmute::<*mut c_void, Count>(count)() }.to_string())
}

/// Calls `InitializeInjection` on a thread with a stack of so many KiB.
pub(super) fn inject_on(injection: &Injection, kib: usize) -> Result<c_int, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(kib * 1024);
        let thread =
            thread.spawn_scoped(scope, || injection.initialize()).map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "it panicked".into())
    })
}

/// What a sandbox does at a system call that it forbids.
#[derive(Clone, Copy)]
pub(super) enum Forbidden {
    /// It fails with `EPERM`.
    Fails,
    /// The process is ended.
    Ends,
}

/// Forbids every later call with this number, as sandboxes do.
pub(super) fn forbid(call: libc::c_long, how: Forbidden) -> Result<(), String> {
    let answer = match how {
        Forbidden::Fails => libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned(),
        Forbidden::Ends => libc::SECCOMP_RET_KILL_PROCESS,
    };
    let number = u32::try_from(call).map_err(|error| error.to_string())?;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the calls, which copy it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

/// Lets the process open so many more descriptors.
pub(super) fn leave_descriptors(free: u64) -> Result<(), String> {
    // The lowest number that is free, and no gaps above: nothing was closed yet.
    // SAFETY: no pointers; the copy is closed again.
    let lowest = unsafe {
        let copy = libc::dup(0);
        libc::close(copy);
        copy
    };
    allow_descriptors(u64::try_from(lowest).map_err(|error| error.to_string())? + free)
}

/// Lets the process have no descriptor from this number on, until it is allowed more again.
pub(super) fn allow_descriptors(most: u64) -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is writable, and then readable.
    let set = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && {
            limit.rlim_cur = most.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
        }
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

/// Closes standard error, as careless daemons do.
pub(super) fn close_stderr() {
    // SAFETY: a number; nothing of ours owns it.
    unsafe { libc::close(libc::STDERR_FILENO) };
}

/// Writes to standard error all the same; the number of the error, or what was written.
pub(super) fn write_stderr() -> String {
    // SAFETY: two readable bytes.
    let written = unsafe { libc::write(libc::STDERR_FILENO, c"no".as_ptr().cast(), 2) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if written < 0 { error.to_string() } else { format!("{written} bytes written") }
}

static ALARMS: AtomicU64 = AtomicU64::new(0);
static STRAY: AtomicU64 = AtomicU64::new(0);

extern "C" fn alarm(_signal: c_int) {
    let mut name = [0u8; 16];
    // SAFETY: the name has room for what the kernel writes; the call is safe in a handler.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    ALARMS.fetch_add(1, Relaxed);
    if matches!(&name, [b'g', b't', b'o', b'p', b'-', b'i' | b'c', ..]) {
        STRAY.fetch_add(1, Relaxed);
    }
}

/// Has an alarm come every millisecond that breaks off system calls.
pub(super) fn alarms() -> Result<(), String> {
    let every = libc::timeval { tv_sec: 0, tv_usec: 1000 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: a zeroed action without flags is a valid one; the handler lives as long as the process.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = alarm as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) == 0
            && libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

/// How many alarms came, and how many of them to a thread of the library.
pub(super) fn count_alarms() -> String {
    format!("{} {}", ALARMS.load(Relaxed), STRAY.load(Relaxed))
}
