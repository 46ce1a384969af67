//! What must be known before the first row is written: who the processes are, all names, and which clock is theirs.

use gtop_protocol::frame::{FrameKind, RecordSizes};
use gtop_protocol::message::{Clock, DeviceSample, Hello, names};
use gtop_protocol::recording::{Entry, MACHINE};
use gtop_protocol::viewer::Watched;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::names::demangled;
use crate::source::recording::MAX_PROCESSES;

/// By how much a clock pair must differ from what is in force before times are mapped anew: pairs have errors, and
/// times that are mapped alike keep their distances to the nanosecond.
pub(super) const SLACK_NS: u64 = 1_000_000;
/// Process ids from here on are nobody's (`PID_MAX_LIMIT`).
const NOBODY: u32 = 1 << 22;

/// Bytes of names of all processes, and the names of one: far more than shims give.
const MAX_NAME_BYTES: usize = 64 << 20;
const MAX_NAMES: usize = 1 << 17;

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

/// What is to be added to CUPTI's time, nanoseconds; the realtime clock is CUPTI's own unless somebody changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset(pub(super) i64);

impl Offset {
    /// Takes in a clock pair.
    pub(super) fn hear(&mut self, pair: &Clock) {
        let now = pair.realtime.wrapping_sub(pair.cupti).cast_signed();
        if now.abs_diff(self.0) > SLACK_NS.saturating_add(pair.error) {
            self.0 = now;
        }
    }

    /// The time since the epoch.
    pub(super) const fn wall(self, cupti: u64) -> u64 {
        cupti.wrapping_add_signed(self.0)
    }

    /// Both times since the epoch; `None` where a mapping that cannot be leads before it, or so far behind it that
    /// nothing holds the time.
    pub(super) fn span(self, start: u64, end: u64) -> Option<(u64, u64)> {
        let wall = |cupti: u64| cupti.checked_add_signed(self.0).filter(|wall| i64::try_from(*wall).is_ok());
        wall(start).zip(wall(end))
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
    /// The smallest offset of any clock.
    pub(super) least: Option<Offset>,
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
                self.least = Some(self.least.map_or(now, |least| Offset(least.0.min(now.0))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_mapped_anew_only_where_they_moved() {
        let pair = |cupti: u64, realtime: u64| Clock { cupti, realtime, error: 500, ..Clock::default() };
        let mut offset = Offset::default();
        offset.hear(&pair(1_000_000_000, 1_000_000_700));
        assert_eq!(offset, Offset(0), "CUPTI's clock is the realtime clock");
        offset.hear(&pair(5_000, 9_000_000_000));
        assert_eq!(offset.wall(6_000), 9_000_001_000);
        offset.hear(&pair(1_005_000, 9_001_000_900));
        assert_eq!(offset.wall(6_000), 9_000_001_000, "pairs have errors");
        offset.hear(&pair(2_005_000, 4_002_000_000));
        assert_eq!(offset.wall(2_005_000), 4_002_000_000, "somebody set the clock");
        assert_eq!(Offset(-5).span(6, 8), Some((1, 3)));
        assert_eq!((Offset(-5).span(4, 8), Offset(i64::MAX).span(0, 1)), (None, None));
    }
}
