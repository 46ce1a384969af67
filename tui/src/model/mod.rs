//! What is known of the watched processes: one writer applies frames, readers take snapshots.

mod account;
pub mod bound;
mod chunks;
mod copies;
mod details;
mod events;
mod explained;
mod findings;
mod graph_rows;
mod graphs;
mod histogram;
mod kernels;
pub(crate) mod launch;
pub(crate) mod lifecycle;
mod memory;
pub mod names;
mod place;
mod process;
mod raster;
mod records;
pub mod sampling;
mod short;
mod silence;
pub mod slices;
pub mod snapshot;
mod spots;
mod steps;
mod streams;
pub mod sums;
#[cfg(test)]
mod tests;
pub mod time;
mod timeline;
pub mod together;
mod traced;
mod trend;
mod trust;
pub(crate) mod work;

use std::sync::Arc;

use gtop_protocol::frame::{Frame, FrameKind, RecordSizes, Runs};
use gtop_protocol::message::{DeviceSample, Severity, processes};
use gtop_protocol::viewer::{Earlier, Halted};

use events::Events;
use memory::Memory;
use process::Process;
use snapshot::{Link, ProcessMemory, Snapshot, Source, SourceKind};
use time::{Moment, SECOND};

/// From so many processes on, those that have ended lose their timelines.
const MAX_ENDED: usize = 16;

/// A connection to a process, as [`Model::add`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conn(usize);

/// The one writer of state.
#[derive(Debug)]
pub struct Model {
    kind: SourceKind,
    label: String,
    begins: Option<snapshot::Begins>,
    asks: Option<Arc<snapshot::Asks>>,
    damage: Option<String>,
    processes: Vec<Process>,
    memory: Memory,
    device_note: Option<String>,
    output: Option<snapshot::Output>,
    recording: Option<snapshot::Recording>,
    events: Events,
    /// Bytes of all timelines; 0 where nothing is drawn.
    timelines: usize,
    /// When the first frame came, and the last moment anything happened.
    began: Option<Moment>,
    now: Moment,
}

impl Model {
    /// A model of one source; `label` is for people.
    #[must_use]
    pub fn new(kind: SourceKind, label: &str) -> Self {
        Self {
            kind,
            label: names::safe(label.as_bytes()),
            begins: None,
            asks: None,
            damage: None,
            processes: Vec::new(),
            memory: Memory::default(),
            device_note: None,
            output: None,
            recording: None,
            events: Events::default(),
            timelines: bound::timelines(),
            began: None,
            now: Moment::default(),
        }
    }

    /// A model for a summary: without timelines and courses, which no summary tells of.
    #[must_use]
    pub fn summary(kind: SourceKind, label: &str) -> Self {
        Self { timelines: 0, ..Self::new(kind, label) }
    }

    /// A process to watch, by its id as this machine numbers it; 0 when its frames will tell.
    pub fn add(&mut self, pid: u32) -> Conn {
        // One that could not be watched can be tried again.
        let again = |process: &Process| pid != 0 && process.pid() == pid && process.was_never_heard();
        if let Some(index) = self.processes.iter().position(again) {
            let budget = self.timelines / self.processes.len();
            self.processes[index] = Process::new(pid, budget, self.kind == SourceKind::File);
            return Conn(index);
        }
        // Processes that have ended make room when there are many.
        let crowded = self.processes.len() >= MAX_ENDED;
        let keeps = |process: &Process| !crowded || !matches!(process.link, Link::Ended(_));
        let budget = self.timelines / (self.processes.iter().filter(|process| keeps(process)).count() + 1);
        for process in &mut self.processes {
            process.work.timeline.set_budget(if keeps(process) { budget } else { 0 });
        }
        self.processes.push(Process::new(pid, budget, self.kind == SourceKind::File));
        Conn(self.processes.len() - 1)
    }

    /// Names a process of which nothing was heard.
    pub fn call(&mut self, conn: Conn, name: &str) {
        if let Some(process) = self.processes.get_mut(conn.0) {
            process.call(name);
        }
    }

    /// When watching begins; `None` once it has.
    pub const fn begins(&mut self, when: Option<snapshot::Begins>) {
        self.begins = when;
    }

    /// What a person is asked; `None` once that needs no answer.
    pub fn asks(&mut self, what: Option<snapshot::Asks>) {
        self.asks = what.map(Arc::new);
    }

    /// What the command that gtop started has printed.
    pub fn output(&mut self, output: snapshot::Output) {
        self.output = Some(output);
    }

    /// What is watched, for people.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether no process was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Applies one frame that came from `conn` at `at`. In a file the moment follows from the records instead.
    pub fn apply(&mut self, conn: Conn, frame: &Frame<'_>, at: Moment) {
        let Some(process) = self.processes.get_mut(conn.0) else { return };
        let at = match self.kind {
            SourceKind::File => {
                let newest = process.newest_in(frame).unwrap_or_default();
                Moment::of_record(newest).max(self.now)
            }
            SourceKind::Live | SourceKind::Demo => at,
        };
        match frame.kind() {
            Some(FrameKind::DeviceSample) => {
                if let Ok(sample) = DeviceSample::read(frame.body) {
                    self.device_sample(&sample, at);
                }
            }
            Some(FrameKind::Earlier) => {
                if let Ok(earlier) = Earlier::read(frame.body) {
                    process.earlier(&earlier, at);
                    self.began = Some(at);
                }
            }
            _ => process.apply(frame, at, &mut self.events),
        }
        self.began.get_or_insert(at);
        self.now = self.now.max(at);
    }

    /// Applies every whole frame of `bytes`; gives how many bytes that were.
    ///
    /// # Errors
    /// A header that no frame can have; what came before it has been applied.
    pub fn apply_all(&mut self, conn: Conn, bytes: &[u8], at: Moment) -> Result<usize, TooLong> {
        let mut rest = bytes;
        while let Some((frame, tail)) = Frame::split(rest)? {
            self.apply(conn, &frame, at);
            rest = tail;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Says how the way to a process is.
    pub fn link(&mut self, conn: Conn, link: Link, at: Moment) {
        let Some(process) = self.processes.get_mut(conn.0) else { return };
        if process.link == link {
            return;
        }
        let (severity, text) = match (&process.link, &link) {
            (Link::Lost { .. }, Link::Up) => (Severity::Info, "connected again".to_owned()),
            (Link::Lost { .. }, Link::Lost { .. }) | (_, Link::Up | Link::Connecting) => {
                (Severity::Info, String::new())
            }
            (_, Link::Lost { .. }) => (Severity::Warning, "the connection was lost; trying again".to_owned()),
            (_, Link::Ended(why)) => (Severity::Info, why.clone()),
        };
        if !text.is_empty() {
            self.events.push(at.wall, severity, Some(process.pid()), "link", &text);
        }
        if matches!((&process.link, &link), (Link::Up, Link::Lost { .. } | Link::Ended(_))) {
            process.disconnect(at);
        }
        process.link = link;
    }

    /// Frames of a process before its next one are left out on purpose.
    pub fn left_out(&mut self, conn: Conn) {
        if let Some(process) = self.processes.get_mut(conn.0) {
            process.left_out();
        }
    }

    /// Says what keeps a process from running.
    pub fn halt(&mut self, conn: Conn, cause: Halted, at: Moment) {
        if let Some(process) = self.processes.get_mut(conn.0) {
            process.halt(cause, at, &mut self.events);
        }
    }

    /// Puts a sentence about a process into the event log.
    pub fn event(&mut self, conn: Conn, severity: Severity, topic: &str, text: &str, at: Moment) {
        if let Some(process) = self.processes.get(conn.0) {
            let text = names::safe(text.as_bytes());
            self.events.push(at.wall, severity, Some(process.pid()), topic, &text);
        }
    }

    /// Takes in what NVML says of a device.
    pub fn device_sample(&mut self, sample: &DeviceSample<'_>, at: Moment) {
        self.memory.add(sample, at);
        for (pid, used, _) in processes::read(sample.processes) {
            // Of those that have had this id, the last one has it.
            let of = self.processes.iter_mut().rfind(|process| process.is(pid));
            if let (Some(process), Some(used)) = (of, used) {
                process.used_memory(sample.index, used, at);
            }
        }
    }

    /// Says why there are no device samples, when that needs saying.
    pub fn device_note(&mut self, note: Option<String>) {
        self.device_note = note;
    }

    /// Puts a sentence about gtop itself into the event log.
    pub fn say(&mut self, severity: Severity, topic: &str, text: &str, at: Moment) {
        self.events.push(at.wall, severity, None, topic, &names::safe(text.as_bytes()));
    }

    /// How the recording is that is being made, if one is.
    pub fn recording(&mut self, recording: Option<snapshot::Recording>) {
        self.recording = recording;
    }

    /// Says what of the input could not be read.
    pub fn damaged(&mut self, what: String) {
        self.damage = Some(what);
    }

    /// Whether a process has yet to say what came of arming it.
    #[must_use]
    pub fn is_arming(&self) -> bool {
        self.processes.iter().any(Process::is_arming)
    }

    /// From now on takes only counts of the shims that agree with what they have sent, so that a moment comes at
    /// which [`Model::is_balanced`] holds even while records flow.
    pub fn prepare_to_stop(&mut self) {
        self.processes.iter_mut().for_each(Process::only_whole_counts);
    }

    /// Nothing more of this process comes, though it goes on.
    pub fn stop(&mut self, conn: Conn, at: Moment) {
        if let Some(process) = self.processes.get_mut(conn.0) {
            process.stop(at);
        }
    }

    /// When the last of those was stopped.
    #[must_use]
    pub fn last_stopped(&self) -> Option<Moment> {
        self.processes.iter().filter_map(Process::stopped).max()
    }

    /// Whether every process's records are all accounted for.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.processes.iter().all(Process::balances)
    }

    /// Whether one process's are.
    #[must_use]
    pub fn is_balanced(&self, conn: Conn) -> bool {
        self.processes.get(conn.0).is_some_and(Process::balances)
    }

    /// Everything as it is now, to the last record.
    pub fn snapshot(&mut self, at: Moment) -> Snapshot {
        self.share(at, true)
    }

    /// Everything as it is now, for a screen: tables may be a quarter of a second old.
    pub fn glance(&mut self, at: Moment) -> Snapshot {
        self.share(at, false)
    }

    fn share(&mut self, at: Moment, exact: bool) -> Snapshot {
        let at = if self.kind == SourceKind::File { self.now } else { at };
        let watched = |pid| self.processes.iter().any(|process| process.is(pid));
        let devices = self.memory.rows(at, watched);
        let mut processes: Vec<snapshot::Process> = Vec::with_capacity(self.processes.len());
        for index in 0..self.processes.len() {
            let (upto, later) = self.processes.split_at_mut(index + 1);
            let process = &mut upto[index];
            let mut shared = process.share(at, exact, self.kind != SourceKind::File);
            let own = |row: &&ProcessMemory| {
                process.is(row.pid) && !later.iter().any(|process| process.is(row.pid))
            };
            shared.gpu_memory =
                devices.iter().flat_map(|device| device.processes.iter().filter(own)).cloned().collect();
            // What does not run asks for no records.
            let runs = !shared.is_mute();
            if !runs {
                silence::rates_unknown(&mut shared);
            }
            if self.kind == SourceKind::Live && runs {
                let silent = silence::judge(&mut shared, &devices, process.quiet(at));
                if let Some(reason) = process.begins_silence(silent) {
                    self.events.push(at.wall, Severity::Alarm, Some(process.pid()), "silent", &reason);
                }
            }
            let quiet = process.quiet(at);
            if runs && let Some(doubt) = silence::doubt(&shared, &devices, quiet) {
                shared.quiet = Some(quiet);
                shared.reason = Some(doubt);
            }
            shared.findings = process.findings(at, exact, &devices, &mut self.events);
            processes.push(shared);
        }
        let busy =
            |process: &snapshot::Process| process.streams.iter().map(|stream| stream.busy_ns).sum::<u64>();
        processes.sort_by(|a, b| busy(b).cmp(&busy(a)).then_with(|| a.identity.pid.cmp(&b.identity.pid)));
        Snapshot {
            time: at.wall,
            seconds: self.seconds(at, &processes),
            source: Source {
                kind: self.kind,
                label: self.label.clone(),
                link: overall(&processes),
                begins: self.begins,
                asks: self.asks.clone(),
                damage: self.damage.clone(),
            },
            processes,
            devices,
            device_note: self.device_note.clone(),
            events: self.events.share(),
            output: self.output.clone(),
            recording: self.recording.clone(),
            replay: None,
        }
    }

    /// Seconds that the statistics span.
    fn seconds(&self, at: Moment, processes: &[snapshot::Process]) -> f64 {
        let span = || {
            let spans = processes.iter().filter_map(|process| process.span);
            spans.map(|(first, last)| last - first).max()
        };
        // Raw buffers that were made into a recording tell of no more than their records.
        let is_raw = !processes.is_empty()
            && processes.iter().all(|process| process.identity.pid == 0 && !process.heard.state);
        let ns = match self.kind {
            SourceKind::File => span().unwrap_or_default(),
            SourceKind::Live | SourceKind::Demo if is_raw => span().unwrap_or_default(),
            SourceKind::Live | SourceKind::Demo => {
                // Until the shim is armed there is nothing to see.
                let armed = self.processes.iter().filter_map(Process::armed_at).min();
                armed.or(self.began).map_or(0, |began| at.steady.saturating_sub(began.steady))
            }
        };
        ns as f64 / SECOND as f64
    }
}

/// The best of all links: a screen is live as long as one process is.
fn overall(processes: &[snapshot::Process]) -> Link {
    let rank = |link: &Link| match link {
        Link::Up => 0,
        Link::Connecting => 1,
        Link::Lost { .. } => 2,
        Link::Ended(_) => 3,
    };
    processes.iter().map(|process| &process.link).min_by_key(|link| rank(link)).cloned().unwrap_or_default()
}

/// The latest believable end in the body of a records frame, CUPTI's nanoseconds.
#[must_use]
pub fn newest_record(body: &[u8], sizes: RecordSizes) -> Option<u64> {
    work::newest(Runs::new(body, sizes))
}

pub use gtop_protocol::frame::TooLong;
