//! What must be known before the first row is written: who the processes are, all names, and which clock is theirs.

use gtop_protocol::frame::{FrameKind, RecordSizes};
use gtop_protocol::message::{Clock, DeviceSample, Hello, names};
use gtop_protocol::recording::{At, Entry, MACHINE};
use gtop_protocol::viewer::Watched;
use rustc_hash::{FxHashMap, FxHashSet};

use super::clocks::{LATEST, Offset};
use crate::model::names::demangled;
use crate::model::time::SECOND;
use crate::source::recording::MAX_PROCESSES;

/// Process ids from here on are nobody's (`PID_MAX_LIMIT`).
const NOBODY: u32 = 1 << 22;

/// Bytes of names of all processes, and the names of one: far more than shims give.
const MAX_NAME_BYTES: usize = 64 << 20;
const MAX_NAMES: usize = 1 << 17;

/// How far the time of a device sample may lie from that at which it came: who recorded it had just read it.
const SAMPLE_AGE: u64 = 3600 * SECOND;

/// Whether a device sample can be of the time that it says.
pub(super) fn is_believable(sample: &DeviceSample<'_>, at: At) -> bool {
    sample.time <= LATEST && sample.time.abs_diff(at.wall) <= SAMPLE_AGE
}

/// One watched process.
#[derive(Debug)]
pub struct Process {
    /// As its machine numbers it.
    pub pid: Option<u32>,
    /// `/proc/PID/comm`.
    pub name: Option<String>,
    /// Its pid; or a number beyond all pids where that is unknown, or another process of the file has had it.
    pub key: u32,
    /// The mapping of its clock as it was first told.
    pub(super) offset: Option<Offset>,
    /// The sizes of its records; zeros while nothing told them.
    pub(super) sizes: RecordSizes,
    names: FxHashMap<u32, usize>,
}

impl Process {
    /// For people.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.name.as_deref().unwrap_or("process");
        match self.pid {
            Some(pid) if pid == self.key => name.to_owned(),
            Some(pid) => format!("{name} (another process {pid})"),
            None => name.to_owned(),
        }
    }
}

/// A kernel's name.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) full: String,
    pub(super) mangled: String,
}

/// Everything that is told once and used by many rows.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) host: Option<String>,
    processes: FxHashMap<u32, Process>,
    names: Vec<Name>,
    by_name: FxHashMap<Vec<u8>, usize>,
    name_bytes: usize,
    /// Whether there are more processes than are told apart.
    pub(super) crowded: bool,
    pids: FxHashSet<u32>,
    /// The mapping of each stream's clock.
    now: FxHashMap<u32, Offset>,
    /// The smallest and the largest offset of any clock.
    pub(super) offsets: Option<[Offset; 2]>,
    /// When NVML was read first, nanoseconds since the epoch.
    pub(super) sampled: Option<u64>,
}

impl Survey {
    /// Takes in a frame. Records need not be in it.
    pub(super) fn take(&mut self, entry: &Entry<'_>) {
        let body = entry.frame.body;
        if entry.stream == MACHINE {
            if entry.frame.kind() == Some(FrameKind::DeviceSample)
                && let Ok(sample) = DeviceSample::read(body)
                && is_believable(&sample, entry.at)
            {
                self.sampled = Some(self.sampled.map_or(sample.time, |first| first.min(sample.time)));
            }
            return;
        }
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&entry.stream) {
            self.crowded = true;
            return;
        }
        let fresh = NOBODY + entry.stream % NOBODY;
        let process = self.processes.entry(entry.stream).or_insert_with(|| Process {
            pid: None,
            name: None,
            key: fresh,
            offset: None,
            sizes: RecordSizes([0; 4]),
            names: FxHashMap::default(),
        });
        match entry.frame.kind() {
            Some(FrameKind::Watched) => {
                if let Ok(Watched { pid }) = Watched::read(body) {
                    introduce(process, pid, &mut self.pids);
                }
            }
            Some(FrameKind::Hello) => {
                let Ok(hello) = Hello::read(body) else { return };
                introduce(process, hello.fields.pid, &mut self.pids);
                if !hello.fields.name.is_empty() {
                    process.name = Some(String::from_utf8_lossy(hello.fields.name).into_owned());
                }
                process.sizes = hello.sizes;
            }
            Some(FrameKind::Clock) => {
                let Ok(pair) = Clock::read(body) else { return };
                let mut now = self.now.get(&entry.stream).copied().unwrap_or_default();
                now.hear(&pair);
                self.now.insert(entry.stream, now);
                process.offset.get_or_insert(now);
                let [least, most] = self.offsets.unwrap_or([now; 2]);
                self.offsets = Some([Offset(least.0.min(now.0)), Offset(most.0.max(now.0))]);
            }
            Some(FrameKind::Names) => {
                for (id, raw) in names::read(body) {
                    let known = self.by_name.get(raw).copied();
                    let many = process.names.len() >= MAX_NAMES && !process.names.contains_key(&id);
                    if many || known.is_none() && self.name_bytes + raw.len() > MAX_NAME_BYTES {
                        continue;
                    }
                    let at = known.unwrap_or_else(|| {
                        let mangled = String::from_utf8_lossy(raw).into_owned();
                        self.names
                            .push(Name { full: demangled(raw).unwrap_or_else(|| mangled.clone()), mangled });
                        self.by_name.insert(raw.to_vec(), self.names.len() - 1);
                        self.name_bytes += raw.len();
                        self.names.len() - 1
                    });
                    process.names.insert(id, at);
                }
            }
            _ => {}
        }
    }

    /// The process of a stream.
    pub(super) fn process(&self, stream: u32) -> Option<&Process> {
        self.processes.get(&stream)
    }

    /// A name of a process.
    pub(super) fn name(&self, process: &Process, id: u32) -> Option<&Name> {
        self.names.get(*process.names.get(&id)?)
    }
}

fn introduce(process: &mut Process, pid: u32, pids: &mut FxHashSet<u32>) {
    if pid != 0 && process.pid.is_none() {
        process.pid = Some(pid);
        if pids.insert(pid) {
            process.key = pid;
        }
    }
}
