//! A process without a GPU to watch: this program once more, with the real shim over the simulated CUPTI inside.

use std::ffi::{CStr, OsString, c_void};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use gtop_protocol::KindSet;
use gtop_shim::Config;
use gtop_sim::{Pace, Simulation, Truth};
use tempfile::TempDir;

use super::attach::{Target, targets};
use super::nvml;
use crate::source::sample;

/// The hidden command of the process that is watched.
pub const SUBCOMMAND: &str = "__demo";

/// How long the child may take to open its socket.
const PATIENCE: Duration = Duration::from_secs(10);
/// An H200's memory, bytes (measured: 143,771 MiB).
const TOTAL: u64 = 143_771 << 20;
/// What the simulated program holds besides device buffers: weights, cache and context of a small model, bytes.
const HELD: u64 = 43_000 << 20;
/// Device memory a device buffer takes (measured: 4 MiB).
const DEVICE_BUFFER: u64 = 4 << 20;

/// A running demo; the child and its folder go with it.
#[derive(Debug)]
pub struct Demo {
    child: Child,
    /// Closing it tells the child to end, whatever becomes of us.
    stdin: Option<ChildStdin>,
    folder: TempDir,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// There is no such scenario.
    #[error("{0}")]
    Scenario(String),
    /// The child cannot be started.
    #[error("the simulated process cannot be started: {0}")]
    Io(#[from] io::Error),
    /// The child has no socket.
    #[error("the simulated process cannot be watched: {0}")]
    Missing(String),
}

/// What is wrong with a scenario. The recording that comes with gtop is in the list of those that there are, too.
fn in_words(error: &str) -> String {
    let more =
        if error.starts_with("there is no scenario") { sample::NAME } else { return error.to_owned() };
    format!("{error}, {more}")
}

impl Demo {
    /// Starts the scenario of this name, or of this TOML file, in a process of its own.
    pub fn start(scenario: &str) -> Result<Self, DemoError> {
        let text = fs::read_to_string(scenario).unwrap_or_else(|_| scenario.to_owned());
        gtop_sim::scenario(&text).map_err(|error| DemoError::Scenario(in_words(&error.to_string())))?;
        // Short, since a socket's path must be.
        let folder = tempfile::Builder::new().prefix("gtop-demo-").tempdir_in(short_temp_dir())?;
        let mut child = Command::new("/proc/self/exe")
            .arg(SUBCOMMAND)
            .arg(text)
            .arg(memory_file(folder.path()))
            .env("XDG_RUNTIME_DIR", folder.path())
            .env_remove("CUDA_INJECTION64_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, folder })
    }

    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The way to the child's shim, once it has opened its socket.
    pub fn targets(&mut self) -> Result<Vec<Target>, DemoError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let why = match targets(self.pid()) {
                Ok(found) if found.iter().any(|target| target.reach.is_ok()) => return Ok(found),
                Ok(found) => reasons(&found),
                Err(missing) => missing.to_string(),
            };
            if let Some(status) = self.child.try_wait()? {
                return Err(DemoError::Missing(format!("it ended at once, {status}")));
            }
            if Instant::now() > deadline {
                return Err(DemoError::Missing(why));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// How the NVML helper is to sample the simulated device.
    #[must_use]
    pub fn devices(&self) -> nvml::Options {
        let memory = memory_file(self.folder.path());
        nvml::Options { environment: vec![(nvml::MEMORY.into(), memory.into())], ..nvml::Options::default() }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn reasons(found: &[Target]) -> String {
    let mut text = String::new();
    for missing in found.iter().filter_map(|target| target.reach.as_ref().err()) {
        let _ = write!(text, "{missing} ");
    }
    text
}

fn short_temp_dir() -> PathBuf {
    let temp = std::env::temp_dir();
    if temp.as_os_str().len() < 40 { temp } else { PathBuf::from("/tmp") }
}

fn memory_file(folder: &Path) -> PathBuf {
    folder.join("memory")
}

fn resolve(name: &CStr) -> *mut c_void {
    gtop_sim::resolve(name)
}

/// The child: the simulated GPU at work under the real shim, until its input closes.
#[must_use]
pub fn child_main(args: &[OsString]) -> ExitCode {
    let [scenario, memory] = args else { return ExitCode::from(2) };
    match run(&scenario.to_string_lossy(), Path::new(memory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(scenario: &str, memory: &Path) -> io::Result<()> {
    // What a list of processes shows.
    nix::sys::prctl::set_name(c"gtop-demo")?;
    let scenario = gtop_sim::scenario(scenario).map_err(io::Error::other)?;
    let kinds = KindSet::parse(&scenario.watch.kinds.join(" ")).map_err(io::Error::other)?;
    let config = Config {
        early: scenario.watch.early,
        kinds: (!kinds.is_empty()).then_some(kinds),
        pool_limit: scenario.watch.early.then_some(scenario.pool_limit),
        ..Config::from_environment()
    };
    let runtime = config.runtime_dir.clone().unwrap_or_default();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(runtime)?;
    let mut simulation = Simulation::load(&scenario, Pace::Real).map_err(io::Error::other)?;
    if !gtop_shim::start_with(resolve, config) {
        return Err(io::Error::other("the shim did not start"));
    }
    simulation.run();
    let (closed, wait) = channel();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = closed.send(());
    });
    loop {
        write_memory(memory, &simulation.truth())?;
        if wait.recv_timeout(Duration::from_millis(500)) != Err(RecvTimeoutError::Timeout) {
            simulation.stop();
            return Ok(());
        }
    }
}

/// Says how much device memory the process has: its own, and what CUPTI took for device buffers.
fn write_memory(file: &Path, truth: &Truth) -> io::Result<()> {
    let buffers: u64 = truth.device_buffers.iter().map(|context| context.allocated).sum();
    let used = HELD + buffers * DEVICE_BUFFER;
    let mut fresh = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new("/tmp")))?;
    write!(fresh, "{TOTAL} {used} {}", std::process::id())?;
    fresh.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_that_comes_with_gtop_is_among_what_there_is() {
        let error = Demo::start("nosuch").unwrap_err().to_string();
        assert!(error.starts_with("there is no scenario `nosuch`; there are "), "{error}");
        assert!(error.ends_with(", recorded"), "{error}");
        let error = Demo::start("cupti = \"x\"").unwrap_err().to_string();
        assert!(!error.contains("recorded"), "{error}");
    }
}
