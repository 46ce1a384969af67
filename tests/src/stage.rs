//! The private world of one test: a folder with the simulated libraries and the shim, in which sockets lie too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use gtop_protocol::rendezvous;
use tempfile::TempDir;

use crate::build;
use crate::gtop::{Ran, Running};
use crate::host::Setup;
use crate::summary::Summary;
use crate::wait::wait_for;
use crate::witness::Witness;

/// The folder, removed with the test.
pub struct Stage {
    folder: TempDir,
    shim: PathBuf,
}

/// A `gtop stat` that watches, and a connection beside it that sees what the shim says.
pub struct Watch {
    /// The viewer.
    pub stat: Running,
    /// The connection.
    pub witness: Witness,
}

impl Watch {
    /// Ends the viewer as Ctrl-C does; gives its summary.
    pub fn finish(self) -> Summary {
        Summary(self.stat.interrupt().json())
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// A stage with `libcuda.so.1`, `libcupti.so.13` and the shim.
    pub fn new() -> Self {
        // Short, since a socket's path must be.
        let folder = tempfile::Builder::new().prefix("gtop-e2e").tempdir().expect("a folder");
        gtop_sim::artefacts::lay_out(folder.path()).expect("the simulated libraries");
        let mut stage = Self { folder, shim: PathBuf::new() };
        let copy = [OsStr::new("shim"), OsStr::new("--copy"), stage.path().as_os_str()];
        stage.shim = stage.gtop(&copy).good().trim_end().into();
        stage
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The shim's file.
    pub fn shim(&self) -> &Path {
        &self.shim
    }

    /// The folder of the sockets.
    pub fn sockets(&self) -> PathBuf {
        self.path().join("gtop")
    }

    /// A simulated application of this scenario, a built-in name or TOML, with the shim inside.
    pub fn host(&self, scenario: &str) -> Setup<'_> {
        Setup::new(self, scenario)
    }

    /// A program that finds its files and sockets on this stage.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("XDG_RUNTIME_DIR", self.path())
            .env("XDG_CACHE_HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path())
            .env("TMPDIR", self.path())
            .env_remove("CUDA_INJECTION64_PATH");
        command
    }

    /// Runs the viewer with these arguments until it ends.
    pub fn gtop<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ran {
        self.start_gtop(arguments).finish()
    }

    /// Starts the viewer with these arguments.
    pub fn start_gtop<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Running {
        let mut command = self.command(&build::gtop());
        command.args(arguments);
        Running::start(command)
    }

    /// `gtop stat` of a process that goes on until it is told to end; comes back once records are collected for it.
    pub fn watch(&self, pid: u32) -> Watch {
        let mut witness = self.witness(pid);
        witness.until("a state", |witness| witness.state.is_some());
        let before = witness.watchers;
        let stat = self.start_stat(pid);
        witness.until_watched(before + 1);
        Watch { stat, witness }
    }

    /// Starts `gtop stat` of a process that goes on until it is told to end.
    pub fn start_stat(&self, pid: u32) -> Running {
        self.start_gtop(&["stat", "--json", "--for", "10m", "--attach", &pid.to_string()])
    }

    /// `gtop ctl` for a process.
    pub fn ctl(&self, pid: u32, action: &[&str]) -> Ran {
        let pid = pid.to_string();
        let arguments: Vec<&str> =
            ["ctl", "--attach", &pid].into_iter().chain(action.iter().copied()).collect();
        self.gtop(&arguments)
    }

    /// The socket of a process, once somebody listens there.
    pub fn socket(&self, pid: u32) -> PathBuf {
        wait_for("the socket", || {
            let entries = std::fs::read_dir(self.sockets()).ok()?;
            entries.flatten().map(|entry| entry.path()).find(|path| {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                rendezvous::parse_file_name(name).is_some_and(|(owner, _)| owner == pid)
                    && std::os::unix::net::UnixStream::connect(path).is_ok()
            })
        })
    }

    /// A connection to the shim of a process that does not watch yet.
    pub fn witness(&self, pid: u32) -> Witness {
        Witness::connect(&self.socket(pid))
    }
}
