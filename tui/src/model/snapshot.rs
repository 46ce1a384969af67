//! What one frame of the screen, or one `stat`, is made from: plain data, cheap to clone, never changed.

mod devices;
mod lanes;
mod process;
mod trust;
mod work;

use std::sync::Arc;

use gtop_protocol::message::Severity;

pub use super::account::{Allocated, Site};
pub use super::explained::MemoryAccount;
pub use super::lifecycle::DeviceMemory;
pub use super::lifecycle::captures::{Capture, Cause};
pub use super::lifecycle::counts::Counted;
pub use super::lifecycle::execs::Sample;
pub use super::lifecycle::failures::{Failure, Root};
pub use super::lifecycle::graph::{Captured, NODE_TYPES, Run};
pub use super::lifecycle::inside::Inside;
pub use super::trend::{Course, Limits, MemoryStep};
pub use devices::{Device, ProcessMemory};
pub use lanes::{Detail, Details, Lane, LaneKey, UNKNOWN_DEVICE, Untraced, Why};
pub use process::{
    Cost, Cupti, Finding, Halt, Heard, Identity, Kinds, LaunchLatency, LaunchingThread, MemoryOverTime,
    Process, Samples, Steps,
};
pub use trust::{
    Believed, EarlierInvalid, FirstInvalid, NoteCounts, Pool, Records, Sampling, Spot, Unbelieved,
    ValidityStats, WINDOWS,
};
pub use work::{
    Bar, CopyEstimate, CopyRow, GraphRow, GraphTotals, GraphsView, KernelEstimate, KernelName, KernelRow,
    NodeRow, StreamRow,
};

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken, `CLOCK_REALTIME` nanoseconds; for a file, the time of its newest record.
    pub time: u64,
    /// Seconds the statistics span: since the watch began, or the file's span.
    pub seconds: f64,
    /// Where it comes from.
    pub source: Source,
    /// The watched processes, busiest first.
    pub processes: Vec<Process>,
    /// What NVML says of every device of the machine.
    pub devices: Vec<Device>,
    /// Why there are no device samples, or how old they are, when that needs saying.
    pub device_note: Option<String>,
    /// The event log, oldest first.
    pub events: Arc<[Event]>,
    /// What the command that gtop started prints, if it started one.
    pub output: Option<Output>,
    /// The recording that is being made, if one is.
    pub recording: Option<Recording>,
    /// Where in a recording this is, if it is one that is played.
    pub replay: Option<Replay>,
}

/// A moment of a recording that is played.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replay {
    /// Nanoseconds since the recording's beginning.
    pub position: u64,
    /// How long the recording is, nanoseconds.
    pub length: u64,
    /// How fast it is played.
    pub speed: f64,
    /// Whether it is played or stands still.
    pub playing: bool,
    /// Whether the recording is still being made.
    pub growing: bool,
    /// Since when records are counted, `CLOCK_REALTIME` nanoseconds; since the beginning if nothing is said.
    pub since: Option<u64>,
}

/// How a recording is that is being made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The file being written, safe for a terminal.
    pub file: String,
    /// Bytes written.
    pub bytes: u64,
}

/// The end of a command's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Where all of it is.
    pub path: String,
    /// Its last lines, oldest first, safe for a terminal.
    pub lines: Arc<[String]>,
}

impl Snapshot {
    /// NVML's view of the device that a process calls `cupti`; `None` when that cannot be told for certain. CUDA
    /// numbers the devices a process may see, and not always in NVML's order.
    #[must_use]
    pub fn device_of(&self, process: &Process, cupti: u32) -> Option<&Device> {
        let by_index = |index: u32| self.devices.iter().find(|device| device.index == index);
        let visible = process.identity.environment.iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
        if let Some((_, list)) = visible {
            let entry = list.split(',').nth(cupti as usize)?.trim();
            return match entry.parse() {
                Ok(index) => by_index(index),
                Err(_) => {
                    self.devices.iter().find(|device| !entry.is_empty() && device.uuid.starts_with(entry))
                }
            };
        }
        if let [only] = self.devices.as_slice() {
            return Some(only);
        }
        match (process.devices.as_slice(), process.gpu_memory.as_slice()) {
            ([_], [only]) => by_index(only.device),
            _ => None,
        }
    }
}

impl Snapshot {
    /// When a watched process began, clock ticks after boot.
    #[must_use]
    pub fn start_time_of(&self, pid: u32) -> Option<u64> {
        let watched = self.processes.iter().find(|process| process.identity.pid == pid);
        watched.map(|process| process.identity.start_time)
    }

    /// The name of a process, watched or seen on a device.
    #[must_use]
    pub fn name_of(&self, pid: u32) -> Option<&str> {
        let watched = self.processes.iter().find(|process| process.identity.pid == pid);
        let mut seen = self.devices.iter().flat_map(|device| &device.processes);
        let watched = watched.map(|process| process.identity.name.as_str());
        watched.or_else(|| seen.find(|process| process.pid == pid).map(|process| process.name.as_str()))
    }
}

/// Which kind of source feeds the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// A shim's socket.
    #[default]
    Live,
    /// A shim over the simulator.
    Demo,
    /// A file.
    File,
}

/// The state of the way to the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Not connected yet.
    #[default]
    Connecting,
    /// Frames come, or could.
    Up,
    /// Lost, and trying again.
    Lost {
        /// `CLOCK_REALTIME` nanoseconds.
        since: u64,
        /// Attempts made.
        retries: u32,
    },
    /// Over: the process ended, or the file was read to its end.
    Ended(String),
}

/// When watching begins of what is not watched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// At this time, `CLOCK_REALTIME` nanoseconds.
    At(u64),
    /// When somebody asks for it.
    Asked {
        /// The command's process.
        pid: u32,
    },
    /// When the process that was named or one below it uses CUDA.
    Used,
}

/// Something that a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    /// The process it is about, or the first of them.
    pub pid: u32,
    /// The question.
    pub title: String,
    /// What a yes would do, a paragraph each.
    pub lines: Vec<String>,
}

/// Where a snapshot comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Live, demo or file.
    pub kind: SourceKind,
    /// For people: `pid 844`, `demo vllm`, a file name.
    pub label: String,
    /// Whether frames come.
    pub link: Link,
    /// When watching begins, if it has not on purpose.
    pub begins: Option<Begins>,
    /// Whether the shim is to be put into processes that have come, if that is for a person to say.
    pub asks: Option<Arc<Asks>>,
    /// What of the input could not be read, with the place, if anything.
    pub damage: Option<String>,
}

/// One line of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// How much it matters.
    pub severity: Severity,
    /// The process it is about; `None` is gtop itself.
    pub pid: Option<u32>,
    /// A short name that stays the same: `armed`, `mark`, `pool`, `loss`, `link`, …
    pub topic: String,
    /// The sentence, safe for a terminal.
    pub text: String,
}
