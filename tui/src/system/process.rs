//! Processes of this machine, as `/proc` tells of them: who they are, whose children they are, what they were given.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use gtop_protocol::viewer::Halted;
use procfs::{ProcError, ProcResult};

/// Environment variables worth showing: which part of a job a process is, and which devices it may use. Everything
/// else in an environment may be a secret and is never shown.
pub const ENVIRONMENT_SHOWN: [&str; 22] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_STEP_ID",
    "JOB_COMPLETION_INDEX",
    "PBS_JOBID",
    "LSB_JOBID",
    "RAY_JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "VLLM_DP_RANK",
    "POD_NAME",
    "POD_NAMESPACE",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
];

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id as this machine numbers it.
    pub pid: u32,
    /// The parent's process id.
    pub parent: u32,
    /// Start time, clock ticks after boot (field 22 of `/proc/PID/stat`); tells a reused pid apart.
    pub start_time: u64,
    /// Effective user id, as this machine numbers it.
    pub uid: u32,
    /// Short name, safe for a terminal.
    pub name: String,
    /// Command line, arguments joined by blanks, safe for a terminal.
    pub command: String,
    /// Every pid it has, the outermost namespace first (`NSpid`).
    pub pids: Vec<u32>,
}

impl Process {
    /// The process with this pid.
    pub fn read(pid: u32) -> ProcResult<Self> {
        let pid = i32::try_from(pid).map_err(|_| ProcError::NotFound(None))?;
        Self::from(&procfs::process::Process::new(pid)?)
    }

    /// Every process that can be seen from here. One that ends meanwhile is left out.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
        all.filter_map(|process| Self::from(&process.ok()?).ok()).collect()
    }

    fn from(process: &procfs::process::Process) -> ProcResult<Self> {
        let (stat, status) = (process.stat()?, process.status()?);
        let positive = |pid: i32| u32::try_from(pid).unwrap_or_default();
        let command = process.cmdline().unwrap_or_default();
        Ok(Self {
            pid: positive(stat.pid),
            parent: positive(stat.ppid),
            start_time: stat.starttime,
            uid: status.euid,
            name: printable(stat.comm.as_bytes()),
            command: printable(command.join(" ").trim_end().as_bytes()),
            pids: status.nspid.unwrap_or_default().into_iter().map(positive).collect(),
        })
    }

    /// Its pid in its own namespace.
    #[must_use]
    pub fn inner_pid(&self) -> u32 {
        self.pids.last().copied().unwrap_or(self.pid)
    }

    /// Whether this process still runs: it has not ended, and its pid is not another one's.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.starttime == self.start_time && !has_ended(&now))
    }

    /// What keeps it from running, if anything does; a debugger that stops one thread alone is not seen.
    #[must_use]
    pub fn halted(&self) -> Halted {
        let now = stat(self.pid).filter(|now| now.starttime == self.start_time);
        now.map_or(Halted::No, |now| halted_of(now.state))
    }

    /// Whether this process has ended or is just ending, so that nothing that is seen of it means anything. To be
    /// asked when something has failed: while its threads end one after the other it waits, for 50 ms at most.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        const TRIES: usize = 25;
        for _ in 0..TRIES {
            match stat(self.pid) {
                Some(now) if now.starttime != self.start_time || has_ended(&now) => return true,
                Some(now) if !is_exiting(&now) => return false,
                Some(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
                None => return true,
            }
            let tasks =
                procfs::process::Process::new(self.pid.cast_signed()).and_then(|process| process.tasks());
            let mut stats = tasks.into_iter().flatten().filter_map(|task| task.ok()?.stat().ok());
            if stats.all(|stat| is_exiting(&stat)) {
                return true;
            }
        }
        false
    }
}

/// That a process has opened all the files and sockets that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    pid: u32,
    limit: usize,
}

impl Exhausted {
    /// Whether it has; `None` also where that cannot be known.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let limit = line.split_whitespace().next()?.parse().ok()?;
        let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        (open >= limit).then_some(Self { pid, limit })
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, limit } = self;
        write!(
            f,
            "all {limit} files and sockets are open that the process may have (its `ulimit -n`); have it close some, or raise \
             that with `prlimit --nofile=4096 --pid {pid}`"
        )
    }
}

/// What kind of process one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It runs a program.
    Program,
    /// It has ended and only its number is left.
    Ended,
    /// It is a thread of the kernel.
    Kernel,
}

/// What kind of process this is; one that cannot be read runs a program as far as known.
#[must_use]
pub fn nature(pid: u32) -> Nature {
    /// `PF_KTHREAD` (`linux/sched.h`).
    const KERNEL_THREAD: u32 = 0x0020_0000;
    match stat(pid) {
        Some(stat) if has_ended(&stat) => Nature::Ended,
        Some(stat) if stat.flags & KERNEL_THREAD != 0 => Nature::Kernel,
        _ => Nature::Program,
    }
}

fn stat(pid: u32) -> Option<procfs::process::Stat> {
    i32::try_from(pid).ok().and_then(|pid| procfs::process::Process::new(pid).ok()?.stat().ok())
}

/// What keeps a process in this state, as `/proc/PID/stat` has it, from running.
#[must_use]
pub const fn halted_of(state: char) -> Halted {
    match state {
        'T' => Halted::Stopped,
        't' => Halted::Traced,
        'D' => Halted::Blocked,
        _ => Halted::No,
    }
}

/// Whether only the number is left. The first thread of a process may end before the others, and looks alike.
fn has_ended(stat: &procfs::process::Stat) -> bool {
    (matches!(stat.state, 'Z' | 'X') || is_exiting(stat)) && stat.num_threads <= 1
}

/// Whether a thread gives back what it has, its memory first.
const fn is_exiting(stat: &procfs::process::Stat) -> bool {
    /// `PF_EXITING` (`linux/sched.h`).
    const EXITING: u32 = 4;
    stat.flags & EXITING != 0
}

/// The process whose thread this is, unless it is one itself.
#[must_use]
pub fn thread_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())?;
    (process != tid).then_some(process)
}

/// The process and everything that descends from it, parents before children; empty when it is not among `all`.
#[must_use]
pub fn family(all: &[Process], pid: u32) -> Vec<&Process> {
    let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut seen = HashSet::new();
    let mut family = Vec::new();
    let mut queue: VecDeque<&Process> = all.iter().filter(|process| process.pid == pid).collect();
    while let Some(process) = queue.pop_front() {
        if seen.insert(process.pid) {
            family.push(process);
            queue.extend(children.get(&process.pid).into_iter().flatten());
        }
    }
    family
}

/// Every process that can be seen from here, with its parent. It reads one small file of each, so that it can be done
/// again and again.
#[must_use]
pub fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, parent_in(&fs::read(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// The parent in what `/proc/PID/stat` holds: the second field after the name, which may hold anything.
fn parent_in(stat: &[u8]) -> Option<u32> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[name_ends + 1..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The process and everything that descends from it, by pid, parents before children.
#[must_use]
pub fn descendants(parents: &[(u32, u32)], root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (child, parent) in parents.iter().filter(|(child, _)| *child != root) {
        children.entry(*parent).or_default().push(*child);
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// The environment a process was started with; what it changed itself is not seen.
pub fn environment(pid: u32) -> std::io::Result<Vec<(OsString, OsString)>> {
    Ok(variables(&fs::read(format!("/proc/{pid}/environ"))?))
}

/// The variables in what `/proc/PID/environ` holds.
#[must_use]
pub fn variables(environ: &[u8]) -> Vec<(OsString, OsString)> {
    let pairs = environ.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    });
    pairs.collect()
}

/// The value of one variable.
#[must_use]
pub fn variable<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    environment.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_os_str())
}

/// The variables of [`ENVIRONMENT_SHOWN`] that are set, safe for a terminal.
#[must_use]
pub fn shown(environment: &[(OsString, OsString)]) -> Vec<(String, String)> {
    let value = |name: &&str| {
        Some((*name).to_owned()).zip(variable(environment, name).map(OsStr::as_bytes).map(printable))
    };
    ENVIRONMENT_SHOWN.iter().filter_map(value).collect()
}

/// The user id inside a process's user namespace that is `uid` out here (`/proc/PID/uid_map`).
#[must_use]
pub fn inner_uid(pid: u32, uid: u32) -> Option<u32> {
    map_uid(&fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?, uid)
}

fn map_uid(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let (inner, outer, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        uid.checked_sub(outer).filter(|offset| *offset < count).and_then(|offset| inner.checked_add(offset))
    })
}

/// Tells this run of the machine from every other.
pub fn boot_id() -> std::io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Text of other people for a terminal: control characters are shown as symbols instead of obeyed.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    let visible = |character: char| match character {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        // Controls of the second kind, and marks that turn or hide the text around them.
        '\u{80}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            '\u{fffd}'
        }
        other => other,
    };
    String::from_utf8_lossy(bytes).chars().map(visible).collect()
}

/// A path or another text of other people for a terminal, as [`printable`] has it.
#[must_use]
pub fn readable(text: impl AsRef<OsStr>) -> String {
    printable(text.as_ref().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let pid = std::process::id();
        let own = Process::read(pid).unwrap();
        assert_eq!((own.pid, own.uid), (pid, nix::unistd::geteuid().as_raw()));
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.start_time > 0 && own.is_alive());
        assert!(own.pids.contains(&pid), "{own:?}");
        assert!(Process::all().contains(&own));
        assert!(parents().contains(&(pid, own.parent)));
        let reused = Process { start_time: own.start_time + 1, ..own };
        assert!(!reused.is_alive());
        assert!(matches!(Process::read(u32::MAX), Err(ProcError::NotFound(_))));
    }

    #[test]
    fn what_waits_to_be_reaped_has_ended() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::read(child.id()).unwrap();
        assert!(process.is_alive());
        drop(child.stdin.take());
        while nature(process.pid) != Nature::Ended {
            std::thread::yield_now();
        }
        assert!(!process.is_alive(), "its number is still there");
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn what_is_stopped_is_seen_and_goes_on() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::read(child.id()).unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        for (signal, halted) in [
            (nix::sys::signal::Signal::SIGSTOP, Halted::Stopped),
            (nix::sys::signal::Signal::SIGCONT, Halted::No),
        ] {
            nix::sys::signal::kill(pid, signal).unwrap();
            while process.halted() != halted {
                std::thread::yield_now();
            }
        }
        let reused = Process { start_time: process.start_time + 1, ..process };
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        assert_eq!(reused.halted(), Halted::No, "another process has the pid");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn descendants_are_found_once_each_and_parents_come_first() {
        let process = |pid, parent| Process { pid, parent, ..Default::default() };
        let all = [process(1, 0), process(9, 3), process(2, 1), process(3, 2), process(4, 2), process(5, 1)];
        let pids = |pid| family(&all, pid).iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(2), [2, 3, 4, 9]);
        assert_eq!(pids(5), [5]);
        assert!(pids(77).is_empty());
        let pairs: Vec<(u32, u32)> = all.iter().map(|process| (process.pid, process.parent)).collect();
        assert_eq!(
            (descendants(&pairs, 2), descendants(&[(6, 7), (7, 6)], 6)),
            (vec![2, 3, 4, 9], vec![6, 7])
        );
        assert_eq!(parent_in(b"77 (a b) c) S 5 77 77 0"), Some(5));
        assert_eq!(parent_in(b"77 (cut"), None);
        // Processes come and go while they are read, so that two can each seem to be the other's parent.
        let ring = [process(6, 7), process(7, 6)];
        assert_eq!(family(&ring, 6).len(), 2);
    }

    #[test]
    fn an_environment_is_read_and_mostly_kept_to_ourselves() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env_clear()
            .envs([("RANK", "3"), ("HF_TOKEN", "secret"), ("SLURM_JOB_ID", "7\x1b[2J")])
            .spawn()
            .unwrap();
        // Just after its start a process shows no environment yet.
        let environment = loop {
            let environment = environment(child.id()).unwrap();
            if !environment.is_empty() {
                break environment;
            }
            std::thread::yield_now();
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(variable(&environment, "HF_TOKEN"), Some(OsStr::new("secret")));
        let expected =
            [("RANK", "3"), ("SLURM_JOB_ID", "7\u{241b}[2J")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(shown(&environment), expected);
    }

    #[test]
    fn uids_are_mapped() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(map_uid(map, 1000), Some(0));
        assert_eq!(map_uid(map, 100_999), Some(1000));
        assert_eq!(map_uid(map, 1001), None);
        assert_eq!(map_uid("0 0 4294967295\n", 1000), Some(1000));
        assert_eq!(map_uid("nonsense\n0", 0), None);
        assert!(inner_uid(std::process::id(), nix::unistd::geteuid().as_raw()).is_some());
    }

    #[test]
    fn boots_have_an_id() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }

    #[test]
    fn nothing_printable_commands_the_terminal() {
        assert_eq!(printable("a\x1b]0;x\x07\u{9b}2J\u{202e}é\0".as_bytes()), "a␛]0;x␇\u{fffd}2J\u{fffd}é␀");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }

    /// The code of this crate, but for its tests: each file by its path.
    fn code(folder: &std::path::Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                code(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let own = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
                found.push((path.to_str().unwrap().to_owned(), own));
            }
        }
    }

    #[test]
    fn no_path_reaches_a_terminal_as_it_is() {
        /// What is only handed on to a program, and tests in files of their own.
        const NOT_SHOWN: [&str; 3] = ["system/remote.rs", "system/nvml/fake.rs", "/tests"];
        let mut files = Vec::new();
        code(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        assert!(files.len() > 100);
        files.retain(|(path, _)| !NOT_SHOWN.iter().any(|part| path.contains(part)));
        for (path, text) in files {
            // Use `readable` instead.
            let at = text.lines().position(|line| line.contains(".display()"));
            assert_eq!(at.map(|line| line + 1), None, "{path}");
        }
    }
}
