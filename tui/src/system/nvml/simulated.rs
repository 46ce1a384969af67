//! The device of a demo: its memory is what the simulated process says it uses.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::backend::{Backend, Unavailable};
use super::sample::{DeviceSample, ProcessSample};

/// The variable that has the helper read a file instead of the driver: `TOTAL USED PID`, bytes, as the demo's child
/// writes it.
pub const MEMORY: &str = "GTOP_DEMO_MEMORY";

/// Reads that file.
#[derive(Debug)]
pub(super) struct Simulated(PathBuf);

impl Simulated {
    /// The backend, if the helper serves a demo.
    pub(super) fn from_environment() -> Option<Self> {
        std::env::var_os(MEMORY).map(|file| Self(file.into()))
    }
}

impl Backend for Simulated {
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable> {
        let text = fs::read_to_string(&self.0).map_err(|error| Unavailable::Other(error.to_string()))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(total)), Some(Ok(used)), Some(Ok(pid))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(Unavailable::Other("the simulated device has not begun".into()));
        };
        let process = ProcessSample {
            pid: pid as u32,
            name: "simulated".into(),
            used: Some(used),
            ..ProcessSample::default()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(vec![DeviceSample {
            time: now.as_nanos() as u64,
            uuid: "GPU-simulated".into(),
            name: "simulated H200".into(),
            memory_total: Some(total),
            memory_used: Some(used),
            processes: vec![process],
            ..DeviceSample::default()
        }])
    }
}
