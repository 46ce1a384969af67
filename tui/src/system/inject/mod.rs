//! Putting the shim into a process that runs without it, as `CUDA_INJECTION64_PATH` would have done at its start.
//!
//! One thread is borrowed, which waits in a system call of the C library, to call the loader and the shim's entry
//! point on a stack of its own. It is stopped for well under a millisecond, is away from its system call for as long
//! as loading takes, and then goes on waiting as if nothing had been: registers, signal mask, pending signals and
//! `errno` are what they were, and the system call is begun again by the kernel as after a signal without a handler.
//! No other thread is stopped.

#[cfg(target_arch = "x86_64")]
mod borrow;
#[cfg(target_arch = "x86_64")]
mod bpf;
#[cfg(target_arch = "x86_64")]
mod filters;
#[cfg(target_arch = "x86_64")]
mod memory;
mod place;
mod refusal;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(target_arch = "x86_64")]
mod trace;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::attach::Target;
use super::elf::u16_at;
use super::mapped::mapped;
use super::process::{self, Process};
use super::socket::Endpoint;
pub use refusal::Refusal;

/// How long the shim may take to open its socket.
const SOCKET: Duration = Duration::from_secs(5);
/// How long another gtop may take to put it in.
const TURN: Duration = Duration::from_secs(15);
/// How often a thread may end that was looked at.
const LOST: u32 = 10;
/// The name of the thread that traces, by which another gtop knows it.
const TRACER: &str = "gtop-inject";
/// How far apart two look again.
const LOOK_APART: Duration = Duration::from_millis(10);
/// How often to look for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The machine this program is built for, `e_machine` (`elf.h`).
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// As much of a program's file as tells what it is for, bytes.
const HEADER: u64 = 20;
/// … and in which its segments are listed, too.
const PAGE: u64 = 4096;

/// What was done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The thread that was borrowed.
    pub thread: u32,
    /// What it was waiting in.
    pub waited_in: &'static str,
    /// How long it stood still before it made the call.
    pub stopped: Duration,
    /// How long the other threads stood still.
    pub others_stopped: Duration,
    /// How long it was away from its system call in all.
    pub away: Duration,
}

impl std::fmt::Display for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "shim put in through thread {}, which waited in {}: stopped {:.2} ms, away {:.1} ms; other threads \
             stopped {:.0} ms",
            self.thread,
            self.waited_in,
            ms(self.stopped),
            ms(self.away),
            ms(self.others_stopped),
        )
    }
}

/// Puts the shim into a process and waits for its socket. `None` says that it was there already, or that another gtop
/// has put it in meanwhile. Takes as long as loading does, which is milliseconds, and at most some 40 s.
pub fn inject(process: &Process) -> Result<(Option<Injected>, Endpoint), Refusal> {
    let turn = Instant::now() + TURN;
    let mut others = false;
    let mut lost = 0;
    loop {
        match put_in(process, others) {
            Err(Refusal::Busy) if Instant::now() < turn => others = true,
            // Only a thread has ended, or the process has become another program, of which there is more to say.
            Err(Refusal::Gone) if lost < LOST && !process.is_ending() => lost += 1,
            // What fails because it ends fails for no other reason.
            Err(_) if process.is_ending() => return Err(Refusal::Gone),
            done => return done,
        }
        // Two that saw each other stand back both, and not for the same time.
        let apart = RandomState::new().hash_one(0) % LOOK_APART.as_micros() as u64;
        thread::sleep(LOOK_EVERY + Duration::from_micros(apart));
    }
}

/// Tries once; `others` says that another gtop was seen to do it.
fn put_in(process: &Process, others: bool) -> Result<(Option<Injected>, Endpoint), Refusal> {
    if let Ok(endpoint) = Target::of(process.clone()).reach {
        return Ok((None, endpoint));
    }
    check(process)?;
    if others && mapped(process.pid, None)?.shim.is_some() {
        return Ok((None, socket(process)?));
    }
    // A thread that traces others lets them go when it ends, whatever has happened.
    let injected = thread::scope(|scope| {
        let tracer = thread::Builder::new().name(TRACER.into());
        let tracer = tracer.spawn_scoped(scope, || load(process))?;
        tracer.join().unwrap_or_else(|_| Err(io::Error::other("the injecting thread panicked").into()))
    })?;
    tracing::info!(pid = process.pid, %injected, "injected");
    Ok((Some(injected), socket(process)?))
}

/// Waits for the socket of a shim that has begun.
fn socket(process: &Process) -> Result<Endpoint, Refusal> {
    let deadline = Instant::now() + SOCKET;
    loop {
        match Target::of(process.clone()).reach {
            Ok(endpoint) => return Ok(endpoint),
            Err(_) if !process.is_alive() => return Err(Refusal::Gone),
            Err(_) if Instant::now() > deadline => return Err(Refusal::Silent),
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Whether it can be tried, as far as can be seen without touching the process.
pub fn check(process: &Process) -> Result<(), Refusal> {
    let pid = process.pid;
    if !process.is_alive() {
        // Its number may be another's by now.
        return Err(Refusal::Gone);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    match field("State").map(str::trim_start).and_then(|state| state.chars().next()) {
        Some('Z' | 'X') | None => return Err(Refusal::Gone),
        Some('T') => return Err(Refusal::Stopped),
        Some(_) => {}
    }
    if field("Seccomp").is_some_and(|mode| mode.trim() == "1") {
        return Err(Refusal::Seccomp);
    }
    if let Some(refusal) = traced(pid, 0) {
        return Err(refusal);
    }
    let denied = |error| Refusal::of_access(process, error);
    machine(pid).map_err(denied)?.map_or(Ok(()), |what| Err(Refusal::Processor(what)))?;
    let maps = fs::read(format!("/proc/{pid}/maps")).map_err(denied)?;
    let maps = String::from_utf8_lossy(&maps);
    let names = maps.lines().filter_map(|line| Some(line.rsplit_once('/')?.1));
    if let Some(what) = other_libc(names, || is_static(pid)) {
        return Err(Refusal::Libc(what));
    }
    if mapped(pid, None).map_err(denied)?.cuda.is_none() {
        return Err(Refusal::NoCuda);
    }
    Ok(())
}

/// What stands against a process one of whose threads is traced, but by the thread `own`.
fn traced(pid: u32, own: u32) -> Option<Refusal> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let by = tasks.filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok())
    });
    // The kernel gives the thread that does it.
    let by: u32 = by.into_iter().find(|by| ![0, own].contains(by))?;
    match fs::read_to_string(format!("/proc/{by}/comm")) {
        Ok(name) if name.trim_end() != TRACER => Some(Refusal::Traced(process::thread_of(by).unwrap_or(by))),
        // Another gtop, which has ended if nothing is known of it.
        _ => Some(Refusal::Busy),
    }
}

/// `libc.so.6`, or `libc-2.28.so` as it was called before 2.34.
fn is_libc(name: &str) -> bool {
    name.starts_with("libc.so.6") || name.starts_with("libc-2.")
}

/// What C library a process has that maps files of these names, unless it is glibc, or will be: one that has just
/// begun maps little yet.
fn other_libc<'a>(
    mut names: impl Iterator<Item = &'a str> + Clone,
    is_static: impl FnOnce() -> bool,
) -> Option<&'static str> {
    if names.clone().any(is_libc) {
        None
    } else if names.any(|name| name.contains("musl")) {
        Some("its C library is musl")
    } else {
        is_static().then_some("it is linked statically")
    }
}

/// Whether the program of a process asks for no dynamic loader.
fn is_static(pid: u32) -> bool {
    let mut header = Vec::new();
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|exe| exe.take(PAGE).read_to_end(&mut header));
    read.is_ok() && !asks_for_loader(&header)
}

/// Whether a program that begins so has a `PT_INTERP` segment (`elf.h`: `e_phoff`, `e_phentsize`, `e_phnum`).
fn asks_for_loader(header: &[u8]) -> bool {
    const PT_INTERP: u16 = 3;
    let number = |at| u16_at(header, at).map(usize::from);
    let (Some(at), Some(size), Some(count)) = (number(32), number(54), number(56)) else { return false };
    (0..count).any(|segment| u16_at(header, at + segment * size) == Some(PT_INTERP))
}

/// The system call filters of a process, in words, if it has any.
#[must_use]
pub fn filters(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    (field("Seccomp")?.trim() == "2").then(|| match field("Seccomp_filters").map(str::trim) {
        Some("1") | None => "a system call filter (seccomp)".to_owned(),
        Some(count) => format!("{count} system call filters (seccomp)"),
    })
}

/// What is wrong with the processor that a process is for, if something is.
fn machine(pid: u32) -> io::Result<Option<String>> {
    let mut header = Vec::new();
    File::open(format!("/proc/{pid}/exe"))?.take(HEADER).read_to_end(&mut header)?;
    Ok(other_machine(&header))
}

/// As [`machine`], by how the file of its program begins.
fn other_machine(header: &[u8]) -> Option<String> {
    let (Some(class), Some(machine)) = (header.get(4), u16_at(header, 18)) else {
        return Some("its program is no ELF file".to_owned());
    };
    if !header.starts_with(b"\x7fELF") {
        Some("its program is no ELF file".to_owned())
    } else if *class != 2 {
        Some("it is a 32-bit program, and the shim is a 64-bit library".to_owned())
    } else if machine != MACHINE {
        Some(format!("it is a program for another kind of processor (ELF machine {machine}, not {MACHINE})"))
    } else {
        None
    }
}

/// On a thread that traces nothing else, and ends then.
fn load(process: &Process) -> Result<Injected, Refusal> {
    // A child after a fork has its parent's shim, asleep; loading it again under its name wakes it.
    if let Some(library) = mapped(process.pid, None)?.shim {
        return load_file(process, &library);
    }
    let placed = place::place(process)?;
    load_file(process, &placed.path)
}

#[cfg(target_arch = "x86_64")]
fn load_file(process: &Process, path: &Path) -> Result<Injected, Refusal> {
    borrow::load(process, path)
}

#[cfg(not(target_arch = "x86_64"))]
fn load_file(_: &Process, _: &Path) -> Result<Injected, Refusal> {
    let text =
        "gtop can do this on x86-64 only so far; start the process with CUDA_INJECTION64_PATH=$(gtop shim)";
    Err(Refusal::Processor(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process without CUDA, ended with the test.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> (Self, Process) {
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            let process = Process::read(child.id()).unwrap();
            (Self(child), process)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_without_cuda_is_left_alone() {
        let (sleeper, process) = Sleeper::start();
        let refusal = inject(&process).unwrap_err();
        assert!(matches!(refusal, Refusal::NoCuda | Refusal::Denied(_)), "{refusal}");
        let before = Process { start_time: process.start_time - 1, ..process.clone() };
        assert!(matches!(inject(&before), Err(Refusal::Gone)), "another process has its number now");
        drop(sleeper);
        assert!(matches!(inject(&process), Err(Refusal::Gone)));
    }

    #[test]
    fn this_program_is_for_this_machine() {
        assert_eq!(machine(std::process::id()).unwrap(), None);
        assert!(machine(u32::MAX).is_err());
        let header = |class: u8, machine: u16| {
            let mut header = b"\x7fELF".to_vec();
            header.resize(18, 0);
            header[4] = class;
            header.extend(machine.to_le_bytes());
            header
        };
        assert_eq!(other_machine(&header(2, MACHINE)), None);
        assert!(other_machine(&header(1, 3)).unwrap().contains("32-bit"));
        assert!(other_machine(&header(2, 243)).unwrap().contains("ELF machine 243"));
        assert!(other_machine(b"#!/bin/sh\n          ").unwrap().contains("no ELF file"));
        assert!(other_machine(b"").unwrap().contains("no ELF file"));
    }

    #[test]
    fn the_c_library_is_told_by_its_name() {
        assert_eq!(other_libc(["python3.12", "libc.so.6"].into_iter(), || true), None);
        assert_eq!(other_libc(["libc-2.28.so", "ld-2.28.so"].into_iter(), || true), None);
        let musl = other_libc(["busybox", "ld-musl-x86_64.so.1"].into_iter(), || false);
        assert!(musl.unwrap().contains("musl"));
        assert!(other_libc(["server"].into_iter(), || true).unwrap().contains("statically"));
        assert_eq!(other_libc(["server"].into_iter(), || false), None, "its loader has not mapped it yet");
        assert!(!is_static(std::process::id()));
    }

    /// What is said of a program made of this source.
    fn of_program(arguments: &[&str], source: &str) -> Option<Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let (file, program) = (dir.path().join("program.c"), dir.path().join("program"));
        fs::write(&file, source).unwrap();
        let made = Command::new("cc").args(arguments).arg("-o").arg(&program).arg(&file).output();
        let started = made
            .ok()
            .filter(|made| made.status.success())
            .and_then(|_| Command::new(&program).stdin(std::process::Stdio::piped()).spawn().ok());
        let Some(child) = started else {
            println!("skipped: no program can be made with {arguments:?} here");
            return None;
        };
        let sleeper = Sleeper(child);
        Some(inject(&Process::read(sleeper.0.id()).unwrap()).unwrap_err())
    }

    #[test]
    fn programs_of_another_kind_are_refused_as_what_they_are() {
        let waits = "#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1); }";
        if let Some(refusal) = of_program(&["-static"], waits) {
            assert!(matches!(refusal, Refusal::Libc("it is linked statically")), "{refusal}");
        }
        // `pause`, without any library.
        let bare = "void _start(void) { for (;;) __asm__ volatile(\"int $0x80\" :: \"a\"(29)); }";
        if cfg!(target_arch = "x86_64")
            && let Some(refusal) = of_program(&["-m32", "-nostdlib", "-static", "-fno-pic"], bare)
        {
            assert!(matches!(&refusal, Refusal::Processor(what) if what.contains("32-bit")), "{refusal}");
        }
    }
}
