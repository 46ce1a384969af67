//! What only a library can tell, asked in processes of their own: one that hangs or crashes is an answer too.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::child;
use crate::command::block_on;
use crate::probe::load::Gpu;
use crate::system::attach::INJECTION;
use crate::system::nvml;

/// How long CUDA, or a library, may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long NVML may take.
const NVML: Duration = Duration::from_secs(10);

/// What CUDA says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuda {
    /// The CUDA version the driver supports, 13000 for 13.0.
    pub driver: i32,
    /// The devices.
    pub devices: Vec<Gpu>,
}

/// What a libcupti says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Library {
    /// What `cuptiGetVersion` returned.
    Version(u32),
    /// It cannot be loaded, or does not answer; why.
    Silent(String),
}

/// Whoever can be asked.
pub trait Ask {
    /// What CUDA says, or why it cannot be used.
    fn cuda(&mut self) -> Result<Cuda, String>;
    /// What NVML says of every device, or why it says nothing.
    fn devices(&mut self) -> Result<Vec<nvml::DeviceSample>, String>;
    /// What the libcupti at this path says. It is loaded for that: only for files that a stranger cannot have made.
    fn library(&mut self, path: &Path) -> Library;
}

/// This machine's libraries, each asked in a process of its own.
#[derive(Debug, Default)]
pub struct Live;

impl Ask for Live {
    fn cuda(&mut self) -> Result<Cuda, String> {
        run(child::command("cuda"))?
    }

    fn devices(&mut self) -> Result<Vec<nvml::DeviceSample>, String> {
        let client = nvml::Client::start(nvml::Options::default()).map_err(|error| error.to_string())?;
        let mut samples = client.subscribe();
        let answered = async {
            let answered = samples.wait_for(|samples| samples.status != nvml::Status::Starting);
            let _ = timeout(NVML, answered).await;
        };
        block_on(answered).map_err(|error| error.to_string())?;
        let latest = client.latest();
        match latest.note(std::time::Instant::now()) {
            None => Ok(latest.devices.to_vec()),
            Some(why) => Err(why),
        }
    }

    fn library(&mut self, path: &Path) -> Library {
        let mut command = child::command("cupti");
        command.arg(path);
        run(command).unwrap_or_else(Library::Silent)
    }
}

/// The answer of a process.
fn run<T: for<'de> Deserialize<'de>>(mut command: Command) -> Result<T, String> {
    command.env_remove(INJECTION).stdin(Stdio::null()).stderr(Stdio::null());
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let answered = async { timeout(PATIENCE, command.output()).await };
    let output = match block_on(answered).map_err(|error| error.to_string())? {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("it did not answer within {PATIENCE:?}")),
    };
    serde_json::from_slice(&output.stdout).map_err(|_| format!("it crashed: {}", output.status))
}
