//! Where doctor reads from: one root folder for `/proc`, `/dev` and libraries, so that any machine can be told by a
//! tree of files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::system::process::{self, printable, variable};

/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 65_536;

/// Variables of an environment.
type Environment = Vec<(OsString, OsString)>;

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder that stands for `/`.
    pub root: PathBuf,
    /// The environment of whoever asks.
    pub environment: Environment,
    /// The user who asks.
    pub uid: u32,
    /// The shim that this gtop gives to processes, if it could be put somewhere.
    pub shim: Result<PathBuf, String>,
}

/// A process, or a program that would be started here.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its id; `None` is a program that would be started here.
    pub pid: Option<u32>,
    /// Its short name, safe for a terminal.
    pub name: String,
    /// Its effective user.
    pub uid: u32,
    /// The environment it was started with.
    pub environment: Environment,
    /// What it has mapped, as `/proc/PID/maps` shows it.
    pub maps: String,
    /// Its root folder, as it is reached from here.
    pub root: PathBuf,
    /// Whether that is the same as ours.
    pub same_root: bool,
}

impl Machine {
    /// The machine this runs on.
    #[must_use]
    pub fn this(shim: Result<PathBuf, String>) -> Self {
        Self {
            root: PathBuf::from("/"),
            environment: std::env::vars_os().collect(),
            uid: nix::unistd::geteuid().as_raw(),
            shim,
        }
    }

    /// A path of the machine as it is reached from here.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        below(&self.root, path.as_ref())
    }

    /// The text of a file; `None` when it cannot be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read(self.path(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// The names in a folder, sorted.
    #[must_use]
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let names = entries.take(MOST_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// A program that would be started here.
    #[must_use]
    pub fn here(&self) -> Subject {
        Subject {
            pid: None,
            name: "a program started here".to_owned(),
            uid: self.uid,
            environment: self.environment.clone(),
            maps: self.text("/proc/self/maps").unwrap_or_default(),
            root: self.root.clone(),
            same_root: true,
        }
    }

    /// A process.
    pub fn subject(&self, pid: u32) -> io::Result<Subject> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| fs::read(self.path(folder.join(name)));
        let status = String::from_utf8_lossy(&read("status")?).into_owned();
        let environment = process::variables(&read("environ")?);
        let maps = String::from_utf8_lossy(&read("maps")?).into_owned();
        let root = self.path(folder.join("root"));
        // The link itself says nothing: it reads `/` in every mount namespace.
        let same = |name: &str| {
            let of = |pid: &str| fs::read_link(self.path(format!("/proc/{pid}/{name}"))).ok();
            of("self").is_some() && of("self") == of(&pid.to_string())
        };
        Ok(Subject {
            pid: Some(pid),
            name: printable(read("comm")?.trim_ascii_end()),
            uid: effective_uid(&status).unwrap_or(u32::MAX),
            environment,
            maps,
            root,
            same_root: same("ns/mnt") && same("root"),
        })
    }
}

impl Subject {
    /// A variable of its environment, if it is set to something.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        variable(&self.environment, name).filter(|value| !value.is_empty())
    }

    /// A path of its file system as it is reached from here.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        below(&self.root, path)
    }

    /// The first mapped file whose name passes.
    #[must_use]
    pub fn mapped(&self, passes: impl Fn(&str) -> bool) -> Option<&str> {
        self.mapped_files().find(|path| path.rsplit('/').next().is_some_and(&passes))
    }

    /// The paths of all mapped files; a file that is mapped in parts comes several times.
    pub fn mapped_files(&self) -> impl Iterator<Item = &str> {
        self.maps.lines().filter_map(|line| {
            let path = line.get(line.find('/')?..)?;
            Some(path.strip_suffix(" (deleted)").unwrap_or(path))
        })
    }

    /// The folders in a variable such as `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        let list = self.variable(name).unwrap_or_default().as_bytes();
        let folders = list.split(|byte| *byte == b':').map(|folder| PathBuf::from(OsStr::from_bytes(folder)));
        folders.filter(|folder| folder.is_absolute()).collect()
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The second number behind `Uid:` in `/proc/PID/status`.
fn effective_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1)?.parse().ok())
}
