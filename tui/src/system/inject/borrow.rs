//! Borrowing a thread: it is stopped, made to call the loader, and put back as it was. No other thread is stopped at
//! all, so that every lock the loader may wait for is given back as always. Whoever does this may be killed at any
//! moment: from each step on, the thread finds back by itself.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::super::mapped::mapped;
use super::super::process::Process;
use super::memory::{Function, Mapping, Memory};
use super::refusal::Refusal;
use super::threads::{Again, Forbidden, Waiting, waiting};
use super::trace::{On, Stop, Traced};
use super::x86_64::{self, Functions, RESULTS, Registers, Results};
use super::{Injected, filters, is_libc, traced};

/// How long to look for a thread.
const SEARCH: Duration = Duration::from_secs(2);
/// From when on threads are taken whose system call is begun again less exactly.
const LESS_EXACT: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
/// Until when a thread that would be late is taken only where its wait has just begun.
const FRESH: Duration = Duration::from_millis(1500);
/// How long the kernel may say no although the memory may be read, as while another process traces a thread.
const DENIED: Duration = Duration::from_secs(1);
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a thread may take to stop.
const STOPPING: Duration = Duration::from_millis(500);
/// How long the call may take: it waits for the loader's lock.
const CALL: Duration = Duration::from_secs(10);
/// What the loader is told: `RTLD_NOW`, and for its inner function who asks (`__RTLD_DLOPEN`).
const NOW: u64 = libc::RTLD_NOW as u64;
const INNER: u64 = 0x8000_0000;
/// Signals that a thread brings on itself; they must not wait.
const OWN_SIGNALS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Longest message of the loader that is shown, bytes.
const MESSAGE: usize = 1024;
/// The function the driver would call.
const ENTRY: &[u8] = b"InitializeInjection";

/// What is known of a process before one of its threads is touched.
struct Target<'a> {
    process: &'a Process,
    memory: Memory,
    functions: Functions,
    forbidden: Forbidden,
    /// Where the C library's code lies.
    libc: Vec<(u64, u64)>,
    /// Bytes of code that nothing uses, at the end of a mapping.
    room: u64,
}

/// Whether a thread would do.
enum Tried {
    Done(Injected),
    /// Not this one, not now.
    NotThis,
    /// The kernel says no, as where another process traces it.
    Denied,
}

/// Has the process load the library at `path`, as it names it, and call its entry point.
pub(super) fn load(process: &Process, path: &Path) -> Result<Injected, Refusal> {
    let target = Target::of(process)?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)?;
    let had = mapped(process.pid, None)?.shim.is_some();
    let began = Instant::now();
    let mut denied = None;
    let mut slept = HashMap::new();
    loop {
        let elapsed = began.elapsed();
        let least = match elapsed {
            _ if elapsed < LESS_EXACT[0] => Again::Exactly,
            _ if elapsed < LESS_EXACT[1] => Again::ByKernel,
            _ => Again::Late,
        };
        for (again, waiting) in target.candidates(least)? {
            // One that waits its whole time once more is taken just after it began to.
            if again == Again::Late && elapsed < FRESH {
                let times = times_slept(process.pid, waiting.tid);
                if slept.insert(waiting.tid, times).is_none_or(|before| before == times) {
                    continue;
                }
            }
            match target.attempt(&waiting, path.as_bytes())? {
                Tried::Done(injected) => return Ok(injected),
                Tried::NotThis => {}
                Tried::Denied => {
                    if let Some(refusal) = traced(process.pid, 0) {
                        return Err(refusal);
                    }
                    // Whoever traced it is gone again, and may have done what is to be done.
                    if !had && mapped(process.pid, None)?.shim.is_some() {
                        return Err(Refusal::Busy);
                    }
                    if denied.get_or_insert_with(Instant::now).elapsed() > DENIED {
                        return Err(Refusal::of_access(process, io::Error::from_raw_os_error(libc::EPERM)));
                    }
                }
            }
        }
        if elapsed > SEARCH {
            let threads = fs::read_dir(format!("/proc/{}/task", process.pid))?.count();
            return Err(Refusal::NoThread(threads));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// How often a thread has gone to sleep.
fn times_slept(pid: u32, tid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let times = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    times.and_then(|times| times.trim().parse().ok()).unwrap_or(0)
}

impl<'a> Target<'a> {
    fn of(process: &'a Process) -> Result<Self, Refusal> {
        let memory = Memory::open(process.pid).map_err(|error| Refusal::of_access(process, error))?;
        let Some(libc) = memory.library(is_libc) else {
            return Err(Refusal::Libc("its C library is not where it should be"));
        };
        let mut libraries = vec![memory.functions(libc)?];
        // Before glibc 2.34 `dlopen` had a library of its own.
        let others = ["ld-linux", "ld-2.", "libdl.so", "libdl-2.", "libpthread"];
        for other in others {
            if let Some(library) = memory.library(|name| name.starts_with(other)) {
                libraries.push(memory.functions(library)?);
            }
        }
        let find = |name: &str| -> Vec<&Function> {
            libraries.iter().filter_map(|functions| functions.get(name)).collect()
        };
        let address = |name: &str| find(name).first().map(|function| function.address);
        let (open, symbol, flags) = match (address("dlopen"), address("dlsym")) {
            (Some(open), Some(symbol)) => (open, symbol, NOW),
            _ => address("__libc_dlopen_mode")
                .zip(address("__libc_dlsym"))
                .map(|(open, symbol)| (open, symbol, NOW | INNER))
                .ok_or(Refusal::Libc("its C library has no loader"))?,
        };
        let functions = Functions {
            open,
            symbol,
            flags,
            error: address("dlerror").unwrap_or(0),
            errno: address("__errno_location").unwrap_or(0),
        };
        let forbidden = Forbidden::of(&memory, find);
        let code =
            |mapping: &&Mapping| mapping.executable && mapping.private && mapping.path.starts_with('/');
        let in_libc =
            |mapping: &&Mapping| is_libc(mapping.name()) || mapping.name().starts_with("libpthread");
        let libc: Vec<(u64, u64)> = memory
            .mappings
            .iter()
            .filter(code)
            .filter(in_libc)
            .map(|mapping| (mapping.start, mapping.end))
            .collect();
        // The C library first: its last page of code is rarely full.
        let (own, rest): (Vec<_>, Vec<_>) = memory.mappings.iter().filter(code).partition(in_libc);
        let room = own.into_iter().chain(rest).find_map(|mapping| room(&memory, mapping));
        let room = room.ok_or(Refusal::Libc("none of its libraries has room for the call"))?;
        Ok(Self { process, memory, functions, forbidden, libc, room })
    }

    /// Threads that may do, the best first.
    fn candidates(&self, least: Again) -> Result<Vec<(Again, Waiting)>, Refusal> {
        let all = waiting(self.process.pid).map_err(|error| Refusal::of_access(self.process, error))?;
        let within = |at: u64| self.libc.iter().any(|(from, to)| (*from..*to).contains(&at));
        let mut found: Vec<(Again, bool, Waiting)> = all
            .into_iter()
            .filter(|waiting| within(waiting.at))
            .filter_map(|waiting| Some((waiting.again()?, waiting.call == libc::SYS_futex, waiting)))
            .filter(|(again, ..)| *again <= least)
            .collect();
        // Neither allocator nor loader waits for anything but a lock.
        found.sort_by_key(|(again, futex, waiting)| (*again, *futex, waiting.tid));
        Ok(found.into_iter().map(|(again, _, waiting)| (again, waiting)).collect())
    }

    fn attempt(&self, waiting: &Waiting, path: &[u8]) -> Result<Tried, Refusal> {
        filters::look(self.process.pid, waiting.tid)?;
        let thread = match Traced::seize(waiting.tid) {
            Ok(thread) => thread,
            Err(nix::errno::Errno::ESRCH) => return Ok(Tried::NotThis),
            Err(nix::errno::Errno::EPERM) => return Ok(Tried::Denied),
            Err(error) => return Err(Refusal::of_access(self.process, error.into())),
        };
        // From here on others see this one. Of two that come at once at least one sees the other, so that never two
        // have a thread each at the one place where the routine lies. It is let go with this thread.
        if let Some(refusal) = traced(self.process.pid, nix::unistd::gettid().as_raw().cast_unsigned()) {
            return Err(refusal);
        }
        let began = Instant::now();
        thread.interrupt()?;
        match thread.wait(began + STOPPING)? {
            Stop::Asked => {}
            Stop::Group(_) => {
                thread.let_go(0)?;
                return Err(Refusal::Stopped);
            }
            Stop::Signal(signal) => {
                thread.let_go(signal)?;
                return Ok(Tried::NotThis);
            }
            Stop::SystemCall => {
                thread.let_go(0)?;
                return Ok(Tried::NotThis);
            }
            Stop::Ended => return Ok(Tried::NotThis),
            // The kernel lets it go when this thread of ours ends.
            Stop::Not => return Err(Refusal::Stuck(waiting.tid)),
        }
        let mut registers = Registers::of(&thread)?;
        let mask = thread.mask()?;
        let waits = registers.waits_in(waiting.call)
            && (registers.at(), registers.stack()) == (waiting.at, waiting.stack);
        if !self.has_signal(waiting.tid, mask) {
            registers.begin_again();
        }
        let borrowed = Borrowed { thread, registers, mask };
        if !self.process.is_alive() {
            borrowed.give_back()?;
            return Err(Refusal::Gone);
        }
        if x86_64::has_shadow_stack(&borrowed.thread) {
            borrowed.give_back()?;
            return Err(Refusal::ShadowStack);
        }
        // Those of the threads it makes, too: they are under the same.
        if let Err(refusal) = filters::check(&borrowed.thread, self.process.pid, waiting.tid) {
            borrowed.give_back()?;
            return Err(refusal);
        }
        let block = x86_64::block(&borrowed.registers, mask, self.functions, path, ENTRY);
        let fits = |mapping: &Mapping| block.address >= mapping.start + 4096;
        let will_do = waits
            && self.memory.at(borrowed.registers.stack()).is_some_and(fits)
            && !self.forbidden.holds(&self.memory, waiting).unwrap_or(true)
            && is_empty(&self.memory, self.room);
        if !will_do {
            borrowed.give_back()?;
            return Ok(Tried::NotThis);
        }
        if let Err(error) = self.memory.write(block.address, &block.bytes) {
            borrowed.give_back()?;
            return Err(error.into());
        }
        self.call(borrowed, waiting, block.address, began).map(Tried::Done)
    }

    /// Whether a signal waits that this thread would take.
    fn has_signal(&self, tid: u32, mask: u64) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/task/{tid}/status", self.process.pid));
        let status = status.unwrap_or_default();
        let pending = status.lines().filter_map(|line| {
            let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        });
        pending.fold(0, |all, set| all | set) & !mask != 0
    }

    /// Lets the thread do the routine, whose block lies at `block`.
    fn call(
        &self,
        borrowed: Borrowed,
        waiting: &Waiting,
        block: u64,
        began: Instant,
    ) -> Result<Injected, Refusal> {
        let thread = &borrowed.thread;
        thread.poke(self.room, &words(x86_64::routine()))?;
        // In this order: with the routine before it, a thread whose signals wait gets them back by itself.
        x86_64::begin(thread, &borrowed.registers, self.room, block)?;
        let own = OWN_SIGNALS.iter().fold(0, |set, signal| set | 1u64 << (signal - 1));
        let mut mask = !own | borrowed.mask;
        thread.set_mask(mask)?;
        thread.go_on(On::ToSystemCall)?;
        let stopped = began.elapsed();
        let deadline = Instant::now() + CALL;
        loop {
            match thread.wait(deadline)? {
                Stop::SystemCall if x86_64::is_done(thread, self.room)? => break,
                Stop::SystemCall | Stop::Asked | Stop::Group(_) => thread.go_on(On::ToSystemCall)?,
                // Nothing holds this back: the process stops, and this thread once it is done.
                Stop::Signal(libc::SIGSTOP) => thread.go_on_with(On::ToSystemCall, libc::SIGSTOP)?,
                Stop::Signal(signal) if thread.was_sent()? => {
                    mask |= 1 << (signal - 1);
                    thread.set_mask(mask)?;
                    thread.go_on_with(On::ToSystemCall, signal)?;
                }
                Stop::Signal(signal) => {
                    self.put_back(borrowed, 0)?;
                    return Err(Refusal::Crashed(signal));
                }
                Stop::Ended => return Err(Refusal::Gone),
                Stop::Not => {
                    thread.interrupt()?;
                    if thread.wait(Instant::now() + STOPPING)? == Stop::Not {
                        return Err(Refusal::Stuck(waiting.tid));
                    }
                    borrowed.thread.let_go(0)?;
                    return Err(Refusal::Slow);
                }
            }
        }
        let results = Results::read(&self.memory.words(block, RESULTS)?);
        let message =
            if results.error == 0 { String::new() } else { self.memory.text(results.error, MESSAGE) };
        // At a stop like the first one, where the kernel looks whether a system call is to be begun again.
        thread.interrupt()?;
        thread.go_on(On::Freely)?;
        let signal = match thread.wait(Instant::now() + STOPPING)? {
            Stop::Asked | Stop::Group(_) => 0,
            Stop::Signal(signal) => signal,
            Stop::Ended => return Err(Refusal::Gone),
            Stop::SystemCall | Stop::Not => return Err(Refusal::Stuck(waiting.tid)),
        };
        self.put_back(borrowed, signal)?;
        let injected = Injected {
            thread: waiting.tid,
            waited_in: waiting.name(),
            stopped,
            others_stopped: Duration::ZERO,
            away: began.elapsed(),
        };
        outcome(results, message).map(|()| injected)
    }

    /// Puts the thread back, takes the routine away, and lets the thread go, with this signal if it is not 0.
    fn put_back(&self, borrowed: Borrowed, signal: i32) -> Result<(), Refusal> {
        borrowed.thread.set_mask(borrowed.mask)?;
        borrowed.registers.put_back(&borrowed.thread)?;
        borrowed.thread.poke(self.room, &vec![0; words(x86_64::routine()).len()])?;
        borrowed.thread.let_go(signal)?;
        Ok(())
    }
}

/// A thread that stands still, and what it was before.
struct Borrowed {
    thread: Traced,
    registers: Registers,
    mask: u64,
}

impl Borrowed {
    /// Lets a thread go of which nothing was taken.
    fn give_back(self) -> Result<(), Refusal> {
        self.registers.put_back(&self.thread)?;
        self.thread.let_go(0)?;
        Ok(())
    }
}

fn outcome(results: Results, message: String) -> Result<(), Refusal> {
    match results {
        Results { stack: stack @ ..0, .. } => {
            Err(Refusal::Memory(io::Error::from_raw_os_error(i32::try_from(-stack).unwrap_or(libc::ENOMEM))))
        }
        Results { function: 0, .. } => Err(Refusal::Loader(message)),
        // It gives 1 in any case.
        Results { result, .. } if result as i32 == 1 => Ok(()),
        Results { .. } => Err(Refusal::Silent),
    }
}

/// The routine in whole words.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Where at the end of a mapping of code nothing is, for the routine.
fn room(memory: &Memory, mapping: &Mapping) -> Option<u64> {
    let len = words(x86_64::routine()).len() as u64 * 8;
    let at = mapping.end.checked_sub(len)?;
    (at >= mapping.start && is_empty(memory, at)).then_some(at)
}

/// Whether there are zeros where the routine would lie, and a few before it.
fn is_empty(memory: &Memory, at: u64) -> bool {
    let before = 16;
    let len = words(x86_64::routine()).len() * 8 + before;
    memory.bytes(at - before as u64, len).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}
