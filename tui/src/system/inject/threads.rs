//! Which thread of a process can be borrowed: one that waits in a system call of the C library which can be begun
//! again exactly, called by neither the allocator nor the loader. None is stopped to find that out.

use std::fs;

use super::memory::{Function, Memory};

/// A thread that waits in a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) tid: u32,
    /// The number of the system call and its arguments.
    pub(super) call: i64,
    pub(super) args: [u64; 6],
    /// Its stack pointer and the address behind the system call.
    pub(super) stack: u64,
    pub(super) at: u64,
}

/// How well a system call is begun again, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    /// By itself: it waits for something, or until a moment, or the kernel keeps its rest of time with its arguments.
    Exactly,
    /// By the kernel alone, which remembers the moment it ends; without an injector that lives it waits its whole
    /// time once more.
    ByKernel,
    /// With its whole time once more: it may end as much later as it had waited.
    Late,
}

/// The threads of a process that wait in a system call now, as `/proc/PID/task/TID/syscall` tells.
pub(super) fn waiting(pid: u32) -> std::io::Result<Vec<Waiting>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
            Ok(text) => found.extend(parse(tid, &text)),
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// `NUMBER ARG… SP PC`, in hexadecimal but for the number; `running`, or -1 outside a system call.
fn parse(tid: u32, text: &str) -> Option<Waiting> {
    let mut words = text.split_whitespace();
    let call = words.next()?.parse().ok().filter(|call| *call >= 0)?;
    let mut hexadecimal = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = hexadecimal()?;
    }
    Some(Waiting { tid, call, args, stack: hexadecimal()?, at: hexadecimal()? })
}

impl Waiting {
    /// How well its system call is begun again, if it may be broken off.
    pub(super) fn again(&self) -> Option<Again> {
        let [_, a1, a2, a3, a4, a5] = self.args;
        let for_ever = |milliseconds: u64| (milliseconds as u32).cast_signed() < 0;
        match self.call {
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_wait4
            | libc::SYS_waitid => Some(Again::Exactly),
            libc::SYS_futex => match a1 as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
                // The C library waits for a lock so, and the allocator and the loader wait for nothing else.
                libc::FUTEX_WAIT if a2 as u32 == CONTENDED => None,
                libc::FUTEX_WAIT if a3 == 0 => Some(Again::Exactly),
                // Until a moment.
                libc::FUTEX_WAIT_BITSET => Some(Again::Exactly),
                _ => None,
            },
            libc::SYS_clock_nanosleep if a1 & libc::TIMER_ABSTIME as u64 != 0 => Some(Again::Exactly),
            libc::SYS_clock_nanosleep | libc::SYS_nanosleep => Some(Again::ByKernel),
            // What is left of their time is written back; a mask of signals for their duration is not exact.
            libc::SYS_ppoll if a3 == 0 => Some(Again::Exactly),
            libc::SYS_pselect6 if a5 == 0 => Some(Again::Exactly),
            libc::SYS_epoll_pwait if a4 == 0 && for_ever(a3) => Some(Again::Exactly),
            libc::SYS_epoll_pwait if a4 == 0 => Some(Again::Late),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll if for_ever(a2) => Some(Again::Exactly),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => Some(Again::ByKernel),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait if for_ever(a3) => Some(Again::Exactly),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => Some(Again::Late),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select | libc::SYS_pause => Some(Again::Exactly),
            _ => None,
        }
    }

    /// The system call, for people.
    pub(super) fn name(&self) -> &'static str {
        match self.call {
            libc::SYS_read | libc::SYS_readv => "read",
            libc::SYS_recvfrom | libc::SYS_recvmsg => "receive",
            libc::SYS_accept | libc::SYS_accept4 => "accept",
            libc::SYS_wait4 | libc::SYS_waitid => "wait",
            libc::SYS_futex => "futex",
            libc::SYS_clock_nanosleep | libc::SYS_nanosleep => "nanosleep",
            libc::SYS_ppoll => "poll",
            libc::SYS_pselect6 => "select",
            libc::SYS_epoll_pwait => "epoll_wait",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => "poll",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => "epoll_wait",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => "select",
            _ => "a system call",
        }
    }
}

/// The value of a lock of the C library for which a thread waits (`lowlevellock.h`).
const CONTENDED: u32 = 2;
/// How far up its stack a thread is searched, bytes. An allocator sleeps near its own frames; the loader runs
/// constructors, which may do anything. Further up, old addresses of the allocator lie on most stacks.
const ALLOCATOR_REACH: u64 = 192;
const LOADER_REACH: u64 = 256 << 10;
/// Functions of the allocator lie side by side, those that nobody outside may call before the others.
const ALLOCATOR_MARGIN: u64 = 16 << 10;
const ALLOCATOR: [&str; 8] =
    ["malloc", "free", "calloc", "realloc", "memalign", "malloc_trim", "mallopt", "malloc_info"];
/// The loader does its work below the first two; the third calls back with its locks held.
const LOADER: [&str; 3] = ["_dl_catch_exception", "_dl_catch_error", "dl_iterate_phdr"];
/// Allocators that take the place of the C library's.
const OTHER_ALLOCATORS: [&str; 4] = ["jemalloc", "tcmalloc", "mimalloc", "hoard"];

/// The code of a process in which a thread must not be while it is borrowed.
#[derive(Debug, Default)]
pub(super) struct Forbidden {
    allocator: Vec<(u64, u64)>,
    loader: Vec<(u64, u64)>,
}

impl Forbidden {
    /// The ranges, from the functions of the C library and the loader.
    pub(super) fn of<'a>(memory: &Memory, find: impl Fn(&str) -> Vec<&'a Function>) -> Self {
        let range = |function: &Function| (function.address, function.address + function.size.max(1));
        let loader = LOADER.iter().flat_map(|name| find(name)).map(range).collect();
        let own: Vec<_> = ALLOCATOR.iter().flat_map(|name| find(name)).map(range).collect();
        let mut allocator = Vec::new();
        if let (Some(first), Some(last)) =
            (own.iter().map(|range| range.0).min(), own.iter().map(|range| range.1).max())
        {
            allocator.push((first.saturating_sub(ALLOCATOR_MARGIN), last));
        }
        let others = memory.mappings.iter().filter(|mapping| {
            mapping.executable && OTHER_ALLOCATORS.iter().any(|name| mapping.name().contains(name))
        });
        allocator.extend(others.map(|mapping| (mapping.start, mapping.end)));
        Self { allocator, loader }
    }

    /// Whether a thread seems to be in such code. What lies on a stack from earlier calls can only make it seem so
    /// where it is not.
    pub(super) fn holds(&self, memory: &Memory, waiting: &Waiting) -> std::io::Result<bool> {
        let stack = waiting.stack;
        // No allocator waits for anything but a lock or a moment.
        let sleeps = matches!(waiting.name(), "futex" | "nanosleep");
        let Some(mapping) = memory.at(stack) else { return Ok(true) };
        let len = LOADER_REACH.min(mapping.end - stack) / 8;
        let words = memory.words(stack, len as usize)?;
        for (at, word) in words.iter().enumerate() {
            let within = |ranges: &[(u64, u64)]| ranges.iter().any(|(from, to)| (*from..*to).contains(word));
            let near = sleeps && (at as u64) * 8 < ALLOCATOR_REACH;
            if (within(&self.loader) || (near && within(&self.allocator))) && follows_call(memory, *word) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether the instruction before this address may be a call, so that it may be an address to return to.
fn follows_call(memory: &Memory, address: u64) -> bool {
    let Ok(code) = memory.bytes(address.saturating_sub(7), 7) else { return false };
    if cfg!(not(target_arch = "x86_64")) {
        return true;
    }
    // `call rel32`, and `call` by register or memory, which have 2, 3, 4, 6 or 7 bytes.
    let indirect = |at: usize| code[at] == 0xff && code[at + 1] & 0x38 == 0x10;
    code[2] == 0xe8 || [5, 4, 3, 1, 0].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUTEX: &str = "202 0x7f1c 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe 0x7f1a\n";

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let waiting = parse(7, FUTEX).unwrap();
        assert_eq!((waiting.tid, waiting.call, waiting.args[1]), (7, 202, 0x189));
        assert_eq!((waiting.stack, waiting.at), (0x7ffe, 0x7f1a));
        for other in ["running\n", "-1 0x7ffe00 0x7f1a2b\n", "", "0 0x1\n", "x"] {
            assert_eq!(parse(7, other), None, "{other}");
        }
    }

    #[test]
    fn only_calls_that_can_be_begun_again_will_do() {
        let again = |call, args| Waiting { tid: 1, call, args, stack: 0, at: 0 }.again();
        let minus_one = u64::from(u32::MAX);
        assert_eq!(again(libc::SYS_read, [0; 6]), Some(Again::Exactly));
        assert_eq!(again(libc::SYS_futex, [0, 0x189, 0, 5, 0, 0]), Some(Again::Exactly));
        assert_eq!(again(libc::SYS_futex, [0, 0x80, 1, 0, 0, 0]), Some(Again::Exactly));
        assert_eq!(again(libc::SYS_futex, [0, 0x80, 1, 5, 0, 0]), None, "for a while");
        assert_eq!(again(libc::SYS_futex, [0, 0x80, 2, 0, 0, 0]), None, "a lock");
        assert_eq!(again(libc::SYS_futex, [0, 6, 0, 0, 0, 0]), None, "a lock of the kernel's");
        assert_eq!(again(libc::SYS_clock_nanosleep, [1, 1, 0, 0, 0, 0]), Some(Again::Exactly));
        assert_eq!(again(libc::SYS_clock_nanosleep, [1, 0, 0, 0, 0, 0]), Some(Again::ByKernel));
        assert_eq!(again(libc::SYS_epoll_pwait, [0, 0, 0, minus_one, 0, 8]), Some(Again::Exactly));
        assert_eq!(again(libc::SYS_epoll_pwait, [0, 0, 0, 10, 0, 8]), Some(Again::Late));
        assert_eq!(again(libc::SYS_epoll_pwait, [0, 0, 0, 10, 1, 8]), None, "a mask of its own");
        assert_eq!(again(libc::SYS_mmap, [0; 6]), None);
        assert_eq!(again(libc::SYS_rt_sigsuspend, [0; 6]), None);
        assert!(Again::Exactly < Again::ByKernel && Again::ByKernel < Again::Late);
    }

    #[test]
    fn a_thread_that_waits_is_seen_from_outside() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (say, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            say.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = wait.recv();
        });
        let tid = tid.recv().unwrap().cast_unsigned();
        let found = loop {
            let waiting = waiting(std::process::id()).unwrap();
            if let Some(found) = waiting.into_iter().find(|w| w.tid == tid && w.call == libc::SYS_futex) {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found.again(), Some(Again::Exactly), "{found:?}");
        drop(go);
        thread.join().unwrap();
    }
}
