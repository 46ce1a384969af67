//! Which processes can be attached to, and what to do about those that cannot.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::inject::Refusal;
use super::mapped::{self, mapped};
use super::namespace;
use super::process::{self, Exhausted, Nature, Process, family, readable, variable};
use super::socket::{self, Endpoint, Refused};

/// The variable by which the CUDA driver loads a library into the processes it serves.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Processes that are told of one number inside of containers.
const INNER_TOLD: usize = 3;

/// One process, and whether it can be attached to.
#[derive(Debug)]
pub struct Target {
    /// The process.
    pub process: Process,
    /// The way to its shim, or why there is none.
    pub reach: Result<Endpoint, Missing>,
}

/// Why a process cannot be attached to.
#[derive(Debug)]
pub enum Missing {
    /// It is not there.
    Gone,
    /// It is not there; it is the number of these inside of a pid namespace of their own.
    Inner(Vec<Process>),
    /// It was there, and has ended meanwhile.
    Ended,
    /// It has ended, and its parent has not asked what became of it.
    Zombie {
        /// The parent.
        parent: u32,
    },
    /// It is one of the kernel's.
    Kernel,
    /// It is this gtop.
    Own,
    /// It is no process but a thread of one.
    Thread {
        /// The process.
        of: u32,
    },
    /// It may not be asked by this user.
    Denied {
        /// Whose it is.
        uid: u32,
    },
    /// It was started without the variable.
    NotInjected {
        /// Whether it uses a GPU, as far as known.
        uses_gpu: Option<bool>,
    },
    /// The variable names the library of another tool, which is loaded.
    OtherTool(PathBuf),
    /// The variable is set, and the library is not there.
    NotMapped {
        /// What the variable says.
        library: PathBuf,
        /// Whether CUDA has begun, so that the library should be loaded too.
        cuda: bool,
        /// Whether the process could open the file.
        exists: bool,
    },
    /// The shim is loaded and no socket can be found.
    NoSocket {
        /// Where one was looked for.
        looked: Vec<PathBuf>,
        /// That the process has no descriptor left, if so.
        exhausted: Option<Exhausted>,
    },
    /// There is a socket, and it is not to be trusted or does not work.
    Refused(Refused),
    /// The shim was to be put in and could not be.
    NotInjectable(Refusal),
}

impl Missing {
    /// Whether there is nothing that anything could be done about.
    #[must_use]
    pub const fn is_no_target(&self) -> bool {
        matches!(
            self,
            Self::Gone
                | Self::Inner(_)
                | Self::Ended
                | Self::Zombie { .. }
                | Self::Kernel
                | Self::Own
                | Self::Thread { .. }
        )
    }

    /// The reason, and what would put the shim in where it can be.
    #[must_use]
    pub fn with_advice(&self) -> String {
        match self {
            Self::NotInjected { uses_gpu: Some(true) | None } => {
                format!("{self}, or put it in as it runs with --inject")
            }
            _ => self.to_string(),
        }
    }

    /// The reason in a word or two.
    #[must_use]
    pub const fn short(&self) -> &'static str {
        match self {
            Self::Gone | Self::Inner(_) | Self::Ended | Self::Zombie { .. } => "gone",
            Self::Kernel => "kernel",
            Self::Own => "gtop",
            Self::Thread { .. } => "thread",
            Self::Denied { .. } => "denied",
            Self::NotInjected { .. } => "no shim",
            Self::OtherTool(_) => "other tool",
            Self::NotMapped { .. } => "not loaded",
            Self::NoSocket { .. } => "no socket",
            Self::Refused(_) | Self::NotInjectable(_) => "refused",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "there is no such process"),
            Self::Inner(processes) => {
                write!(f, "there is no such process here; inside of a container it is the number of")?;
                for (i, Process { pid, name, .. }) in processes.iter().take(INNER_TOLD).enumerate() {
                    write!(f, "{} {pid} ({name})", if i > 0 { "," } else { "" })?;
                }
                let more = processes.len().saturating_sub(INNER_TOLD);
                if more > 0 {
                    write!(f, " and {more} more")?;
                }
                write!(f, ": use that number, or --ns with the pid of any process of the container")
            }
            Self::Ended => write!(f, "it has ended"),
            Self::Zombie { parent } => {
                write!(
                    f,
                    "it has ended; only its number is left, until its parent {parent} asks what became of it"
                )
            }
            Self::Kernel => write!(f, "it is a thread of the kernel, which runs no CUDA"),
            Self::Own => write!(f, "it is this gtop itself"),
            Self::Thread { of } => write!(f, "it is a thread of process {of}; use --attach {of}"),
            // Root without the capability, as in a container, gains nothing by sudo.
            Self::Denied { uid } if nix::unistd::geteuid().is_root() => {
                write!(f, "it belongs to uid {uid} and may not be looked into; this takes CAP_SYS_PTRACE")
            }
            Self::Denied { uid } => {
                write!(
                    f,
                    "it belongs to uid {uid} and may not be looked into; attach as that user or as root"
                )
            }
            Self::NotInjected { uses_gpu } => {
                write!(f, "it was started without {INJECTION}, so the shim was never loaded")?;
                if *uses_gpu == Some(false) {
                    write!(f, ", and it does not use a GPU")?;
                }
                write!(f, "; start it with `gtop run -- CMD`, or with {INJECTION}=$(gtop shim)")
            }
            Self::OtherTool(library) => {
                write!(
                    f,
                    "{INJECTION} names another tool's library, {}; CUDA loads only one",
                    readable(library)
                )
            }
            Self::NotMapped { library, cuda, exists } => {
                write!(f, "{INJECTION}={} is set, but that library is not loaded: ", readable(library))?;
                match (exists, cuda) {
                    (false, _) => write!(f, "there is no such file in the file system of the process"),
                    (true, false) => {
                        write!(f, "the process has not begun to use CUDA; try again when it has")
                    }
                    (true, true) => write!(f, "CUDA was loaded without it, or could not open it"),
                }
            }
            Self::NoSocket { exhausted: Some(exhausted), .. } => {
                write!(
                    f,
                    "the shim is loaded, but could open no socket: {exhausted}, and then --inject has it try again"
                )
            }
            Self::NoSocket { looked, exhausted: None } => {
                write!(f, "the shim is loaded, but it has no socket")?;
                let folders: Vec<_> = looked.iter().map(readable).collect();
                write!(f, " in {}; its GTOP_LOG says why, and --inject has it try again", folders.join(", "))
            }
            Self::Refused(refused) => write!(f, "its socket is not used: {refused}"),
            Self::NotInjectable(refusal) => write!(f, "the shim cannot be put into it: {refusal}"),
        }
    }
}

impl Target {
    /// Looks whether a process can be attached to.
    #[must_use]
    pub fn of(process: Process) -> Self {
        let search = socket::find(&process);
        let reach = match (search.found, search.refused) {
            (Some(endpoint), _) => Ok(endpoint),
            (None, Some(refused)) => Err(Missing::Refused(refused)),
            (None, None) => Err(missing(&process, search.looked)),
        };
        // Last: whatever was seen of a process that is just ending is no reason. A socket may outlive it.
        let ended = if reach.is_ok() { !process.is_alive() } else { process.is_ending() };
        let reach = match (ended, process::nature(process.pid)) {
            (false, _) => reach,
            (true, Nature::Ended) => Err(Missing::Zombie { parent: process.parent }),
            (true, _) => Err(Missing::Ended),
        };
        Self { process, reach }
    }

    /// Whether the process has not begun to use CUDA, and may yet do so, or a process below it.
    #[must_use]
    pub const fn may_begin(&self) -> bool {
        matches!(
            self.reach,
            Err(Missing::NotInjected { uses_gpu: Some(false) }
                | Missing::NotMapped { cuda: false, exists: true, .. })
        )
    }

    /// Whether it runs without the shim, which could be put in.
    #[must_use]
    pub const fn can_inject(&self) -> bool {
        matches!(
            self.reach,
            Err(Missing::NotInjected { uses_gpu: Some(true) }
                | Missing::NotMapped { cuda: true, .. }
                | Missing::NoSocket { .. }
                | Missing::OtherTool(_))
        )
    }

    /// Whether it uses a GPU without the shim, and nothing is about to load that.
    #[must_use]
    pub fn lacks_the_shim(&self) -> bool {
        let Process { pid, parent, .. } = self.process;
        self.can_inject()
            && !matches!(self.reach, Err(Missing::NotMapped { exists: true, .. }))
            && !mapped::is_copy(pid, parent)
    }

    /// Whether it is worth showing: it can be attached to, or it uses a GPU, or that cannot be known.
    #[must_use]
    pub fn matters(&self) -> bool {
        let Process { pid, parent, .. } = self.process;
        self.reach.is_ok() || (mapped::uses_gpu(pid).unwrap_or(false) && !mapped::is_copy(pid, parent))
    }
}

/// The process and those of its descendants that matter. A server often holds no GPU itself, but its workers do.
pub fn targets(pid: u32) -> Result<Vec<Target>, Missing> {
    let all = Process::all();
    let found = family(&all, pid);
    if found.is_empty() {
        return Err(match process::thread_of(pid) {
            Some(of) => Missing::Thread { of },
            None => match namespace::known_inside_as(pid) {
                none if none.is_empty() => Missing::Gone,
                inside => Missing::Inner(inside),
            },
        });
    }
    // Each is asked once: what ends meanwhile would answer otherwise the second time.
    let targets = found.into_iter().cloned().map(Target::of);
    let (mut matter, mut others): (Vec<Target>, Vec<Target>) = targets.partition(Target::matters);
    if matter.is_empty() {
        others.truncate(1);
        matter = others;
    }
    Ok(matter)
}

/// Every process of this machine that matters, but for this one and its children.
#[must_use]
pub fn machine() -> Vec<Target> {
    let all = Process::all();
    let own: Vec<u32> = family(&all, std::process::id()).iter().map(|process| process.pid).collect();
    let others = all.into_iter().filter(|process| !own.contains(&process.pid));
    // Kernel threads have no command line and map nothing.
    others.filter(|process| !process.command.is_empty()).map(Target::of).filter(Target::matters).collect()
}

/// Why a process without a socket has none.
fn missing(process: &Process, looked: Vec<PathBuf>) -> Missing {
    let pid = process.pid;
    if pid == std::process::id() {
        return Missing::Own;
    }
    if process::nature(pid) == Nature::Kernel {
        return Missing::Kernel;
    }
    let injection = process::environment(pid).map(|environment| {
        variable(&environment, INJECTION).filter(|library| !library.is_empty()).map(OsStr::to_owned)
    });
    let library = injection.as_ref().ok().and_then(Clone::clone).map(PathBuf::from);
    let Ok(mapped) = mapped(pid, library.as_deref().and_then(Path::to_str)) else {
        return Missing::Denied { uid: process.uid };
    };
    if mapped.shim.is_some() {
        return Missing::NoSocket { looked, exhausted: Exhausted::of(pid) };
    }
    match (injection, library) {
        (Err(_), _) => Missing::Denied { uid: process.uid },
        (Ok(_), None) => Missing::NotInjected { uses_gpu: mapped::uses_gpu(pid) },
        (Ok(_), Some(library)) if mapped.asked => Missing::OtherTool(library),
        (Ok(_), Some(library)) => {
            let exists = in_root(pid, &library)
                .is_some_and(|file| fs::metadata(file).is_ok_and(|file| file.size() > 0));
            Missing::NotMapped {
                library,
                cuda: mapped.cuda.is_some() && !mapped::is_idle(process.pid),
                exists,
            }
        }
    }
}

/// The path of a file as this process reaches the other's file system.
fn in_root(pid: u32, file: &Path) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/proc/{pid}/root")).join(file.strip_prefix("/").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::embed;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    /// A process that is ended with the test.
    struct Idler(Child);

    impl Idler {
        fn start(variables: &[(&str, &Path)]) -> Self {
            let mut command = Command::new("cat");
            command.env_remove(INJECTION).envs(variables.iter().map(|(name, value)| (*name, *value)));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // Once it answers, it runs and its libraries are mapped.
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            Self(child)
        }

        fn missing(&self) -> Missing {
            Target::of(Process::read(self.0.id()).unwrap()).reach.unwrap_err()
        }
    }

    impl Drop for Idler {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn three_ways_of_not_being_watched_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let shim = embed::copy_to(dir.path()).unwrap();

        let unset = Idler::start(&[]).missing();
        assert!(matches!(unset, Missing::NotInjected { uses_gpu: Some(false) }), "{unset}");

        let unmapped = Idler::start(&[(INJECTION, &shim)]).missing();
        assert!(matches!(unmapped, Missing::NotMapped { cuda: false, exists: true, .. }), "{unmapped}");

        // Mapped, as CUDA would map it; but nobody called its entry point, so that there is no socket.
        let silent = Idler::start(&[(INJECTION, &shim), ("LD_PRELOAD", &shim)]).missing();
        assert!(matches!(silent, Missing::NoSocket { .. }), "{silent}");

        let texts = [unset, unmapped, silent].map(|missing| missing.to_string());
        assert!(texts[0].contains("started without") && texts[0].contains("gtop run"), "{}", texts[0]);
        assert!(texts[1].contains("not begun to use CUDA"), "{}", texts[1]);
        assert!(texts[2].contains("is loaded, but it has no socket"), "{}", texts[2]);
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let missing = Idler::start(&[(INJECTION, Path::new("/no/such/shim.so"))]).missing();
        assert!(matches!(missing, Missing::NotMapped { exists: false, .. }), "{missing}");
        assert!(missing.to_string().contains("/no/such/shim.so"), "{missing}");
    }

    #[test]
    fn another_tools_library_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("libother.so");
        fs::copy(embed::copy_to(dir.path()).unwrap(), &other).unwrap();
        let missing = Idler::start(&[(INJECTION, &other), ("LD_PRELOAD", &other)]).missing();
        assert!(matches!(&missing, Missing::OtherTool(library) if *library == other), "{missing}");
    }

    #[test]
    fn a_process_that_is_gone_is_gone() {
        assert!(matches!(targets(u32::MAX), Err(Missing::Gone)));
        let inner = |pid: u32| Process { pid, name: "python".to_owned(), ..Process::default() };
        let told = Missing::Inner([5312, 5400, 5401, 5402].map(inner).into()).to_string();
        assert!(
            told.contains("the number of 5312 (python), 5400 (python), 5401 (python) and 1 more: use"),
            "{told}"
        );
        let idler = Idler::start(&[]);
        let process = Process::read(idler.0.id()).unwrap();
        drop(idler);
        assert!(matches!(Target::of(process).reach, Err(Missing::Ended)));
    }

    #[test]
    fn a_parent_without_a_gpu_is_shown_for_itself() {
        let idler = Idler::start(&[]);
        let found = targets(idler.0.id()).unwrap();
        assert_eq!(found.iter().map(|target| target.process.pid).collect::<Vec<_>>(), [idler.0.id()]);
    }
}
