//! What one frame of the screen, or one `stat`, is made from: plain data, cheap to clone, never changed.

use std::sync::Arc;

use gtop_protocol::cupti::{CuptiVersion, Verdict};
use gtop_protocol::message::{Basis, Clock, HostBuffers, Observers, PoolState, Relief, Severity, StateCode};
use gtop_protocol::{KindSet, Validity};

use super::sampling::Estimate;
use super::slices::Slices;

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

/// Where a snapshot comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Live, demo or file.
    pub kind: SourceKind,
    /// For people: `pid 844`, `demo vllm`, a file name.
    pub label: String,
    /// Whether frames come.
    pub link: Link,
    /// What of the input could not be read, with the place, if anything.
    pub damage: Option<String>,
}

/// One watched process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// Whether frames come from this process.
    pub link: Link,
    /// The CUPTI in use; `None` before arming.
    pub cupti: Option<Cupti>,
    /// The shim's state; what it is by default as long as the shim has not said.
    pub state: StateCode,
    /// Whether the shim has said its state and its kinds; a file of raw buffers never does.
    pub heard: Heard,
    /// Why, in words, when that needs saying.
    pub reason: Option<String>,
    /// Since when, `CLOCK_REALTIME` nanoseconds.
    pub since: u64,
    /// Connections that watch it.
    pub watchers: u32,
    /// Whether `ctl arm` holds it armed.
    pub held: bool,
    /// Whether a leak of device buffers has begun.
    pub tainted: bool,
    /// How it is traced in windows, if it is or was.
    pub sampling: Option<Sampling>,
    /// Whether the shim holds the process's one CUPTI subscription: no other tool can start then.
    pub subscribed: bool,
    /// How long the first CUPTI calls took, nanoseconds.
    pub first_call_ns: Option<u64>,
    /// The activity kinds.
    pub kinds: Kinds,
    /// The balance of records.
    pub records: Records,
    /// Which records can be believed.
    pub validity: ValidityStats,
    /// Where among the others records with bad times came, oldest first; the newest of them.
    pub invalid_at: Arc<[Spot]>,
    /// Remarks on believable records.
    pub notes: NoteCounts,
    /// CUPTI's device buffer pool of each context.
    pub pools: Vec<Pool>,
    /// The buffers lent to CUPTI and what the shim costs; `None` until the shim has said.
    pub host_buffers: Option<HostBuffers>,
    /// The last clock pair.
    pub clock: Option<Clock>,
    /// How often a clock was seen to jump.
    pub clock_jumps: u64,
    /// Devices its records name, CUPTI's numbers, ascending.
    pub devices: Vec<u32>,
    /// Kernels by name, by total time, largest first.
    pub kernels: Arc<[KernelRow]>,
    /// Kernels by the executable graph that ran them, the id of which is the row's; by total time, largest first.
    pub by_graph: Arc<[KernelRow]>,
    /// Streams, busiest first.
    pub streams: Vec<StreamRow>,
    /// Copies by direction, by total time, largest first.
    pub copies: Vec<CopyRow>,
    /// Totals of graphs, as far as records tell.
    pub graphs: GraphTotals,
    /// Graphs, captures and failed launches.
    pub graphs_view: GraphsView,
    /// What it has allocated since memory records came; `None` without any.
    pub allocated: Option<Allocated>,
    /// How its memory went, of the device where it has most.
    pub course: Option<Course>,
    /// What was found, weightiest first.
    pub findings: Arc<[Finding]>,
    /// Graph launches at a steady rhythm, by context: those that go on first, then those with the most steps.
    pub steps: Vec<Steps>,
    /// How long kernels waited after their launch call; `None` unless launch records (runtime, driver) come.
    pub latency: Option<LaunchLatency>,
    /// Kernels by device, context and the thread that launched them.
    pub threads: Vec<LaunchingThread>,
    /// The earliest and the latest believable time of any record, CUPTI's nanoseconds.
    pub span: Option<(u64, u64)>,
    /// The lanes of the timeline, in the order they are drawn.
    pub lanes: Vec<Lane>,
    /// What the slices of the lanes are.
    pub details: Details,
    /// Memory of this process on each device, bytes; `None` is unknown.
    pub gpu_memory: Vec<ProcessMemory>,
}

impl Process {
    /// All its memory on all devices, bytes; `None` where any of it is unknown.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let rows = &self.gpu_memory;
        (!rows.is_empty()).then(|| rows.iter().try_fold(0u64, |sum, row| Some(sum + row.used?)))?
    }
}

/// What the shim has said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Its state.
    pub state: bool,
    /// The activity kinds.
    pub kinds: bool,
}

/// Who a process is. Texts are made safe for a terminal: control characters are shown as symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id as this machine numbers it.
    pub pid: u32,
    /// Process id in its own namespace, when that differs.
    pub inner_pid: Option<u32>,
    /// Start time, clock ticks after boot.
    pub start_time: u64,
    /// User id.
    pub uid: u32,
    /// Short name.
    pub name: String,
    /// Command line, arguments joined by blanks.
    pub command: String,
    /// Container id, if in one.
    pub container: Option<String>,
    /// Pod id, if in one.
    pub pod: Option<String>,
    /// MIG device ids it may use.
    pub mig: Vec<String>,
    /// Rank, job ids and the like, from its environment.
    pub environment: Vec<(String, String)>,
    /// The shim's version.
    pub shim_version: String,
    /// Whether the shim refuses control requests.
    pub read_only: bool,
    /// Whether the shim was armed before CUDA began.
    pub early: bool,
}

/// The CUPTI in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cupti {
    /// What it calls itself.
    pub version: CuptiVersion,
    /// The file it was mapped from.
    pub path: String,
    /// 1 or 2.
    pub interface: u8,
    /// Whether it gives device buffers back.
    pub verdict: Verdict,
    /// Why we say so.
    pub reason: &'static str,
}

/// The activity kinds of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Enabled in CUPTI.
    pub enabled: KindSet,
    /// Asked for.
    pub asked: KindSet,
    /// Refused by CUPTI.
    pub refused: KindSet,
    /// The `CUptiResult` of the last refusal.
    pub error: Option<u32>,
    /// Who made the last request.
    pub by: String,
}

/// The balance of records since this viewer joined; `delivered = shown + queue_full + unknown_kind + slow_viewer`
/// when the stream is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Records {
    /// Walked out of CUPTI's buffers.
    pub delivered: u64,
    /// Received here.
    pub shown: u64,
    /// Kernels received.
    pub kernel: u64,
    /// Copies received.
    pub memcpy: u64,
    /// Memory sets received.
    pub memset: u64,
    /// Others received.
    pub other: u64,
    /// CUPTI's own drops.
    pub lost_cupti: u64,
    /// Lost in the shim: its queue was full.
    pub lost_queue_full: u64,
    /// Of kinds the shim does not know.
    pub lost_unknown_kind: u64,
    /// Lost because this viewer was slow.
    pub lost_slow_viewer: u64,
    /// Received in the last second.
    pub per_second: f64,
}

impl Records {
    /// Everything lost, from whatever cause.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_cupti
            .saturating_add(self.lost_queue_full)
            .saturating_add(self.lost_unknown_kind)
            .saturating_add(self.lost_slow_viewer)
    }
}

/// The windows over which rates of invalid records are kept, seconds.
pub const WINDOWS: [u64; 3] = [1, 10, 60];

/// Which records can be believed, counted over all families with timestamps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidityStats {
    /// Records by class since the watch began, indexed by [`Validity`] wire value.
    pub total: [u64; Validity::ALL.len()],
    /// Records by class in the last 1, 10 and 60 s ([`WINDOWS`]).
    pub windows: [[u64; Validity::ALL.len()]; WINDOWS.len()],
    /// Share of invalid records since the watch began; `None` without records or while silent.
    pub rate_total: Option<f64>,
    /// Share of invalid records in each of [`WINDOWS`]; `None` without records or while silent.
    pub rate_windows: [Option<f64>; WINDOWS.len()],
    /// The first invalid record.
    pub first_invalid: Option<FirstInvalid>,
    /// The first invalid record of the present stretch of them, after believable ones for a while.
    pub first_again: Option<FirstInvalid>,
    /// Records by class in each of the last seconds, oldest first.
    pub history: Vec<[u64; Validity::ALL.len()]>,
    /// By kind: kernel, memcpy, memset.
    pub kinds: [Believed; 3],
    /// By executable graph, those with invalid records only, the most first.
    pub graphs: Vec<(u32, Believed)>,
}

/// How many records of one kind, graph or kernel there were, and how many of them were invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Believed {
    /// Since the watch began: all, and the invalid ones.
    pub total: [u64; 2],
    /// In the last 1, 10 and 60 s ([`WINDOWS`]), the second that is being filled besides: all, and the invalid ones.
    pub windows: [[u64; 2]; WINDOWS.len()],
}

impl Believed {
    /// The share of invalid ones; `None` without records.
    #[must_use]
    pub fn rate([all, invalid]: [u64; 2]) -> Option<f64> {
        (all > 0).then(|| invalid as f64 / all as f64)
    }
}

/// The first invalid record of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstInvalid {
    /// Which kernel record it was, counted from 1.
    pub index: u64,
    /// When it was received, `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// Its start as delivered.
    pub start: u64,
    /// Its end as delivered.
    pub end: u64,
    /// Its class.
    pub class: Validity,
    /// Its kernel's name, demangled, or what it is.
    pub name: String,
}

/// Records with bad times that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The newest end of any believable record when they came, CUPTI's nanoseconds: their own times say nothing.
    pub time: u64,
    /// How many.
    pub count: u64,
    /// The class of the first, as [`Validity`] writes it.
    pub class: u8,
}

/// Remarks on believable records, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoteCounts {
    /// Overlaps on one stream.
    pub overlap: u64,
    /// Start equals end.
    pub zero_length: u64,
    /// Came after a later one of its stream.
    pub out_of_order: u64,
    /// Of a kind nobody asked for.
    pub unasked_kind: u64,
    /// Far longer than what ran inside of them on their stream: end times that came late.
    pub overlong: u64,
}

/// CUPTI's device buffer pool of one context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// Buffers allowed.
    pub limit: u64,
    /// Buffers in use by the law.
    pub computed: Option<u64>,
    /// Buffers in use as observed.
    pub observed: Option<u64>,
    /// What it is doing.
    pub state: PoolState,
    /// Why it leaks, in words.
    pub cause: Option<String>,
    /// Slots that will not come back.
    pub slots_used: u64,
    /// Slots the pool holds.
    pub slots_total: u64,
    /// Seconds to exhaustion at the present rate.
    pub exhausts_in: Option<f64>,
    /// Since when it leaks, `CLOCK_REALTIME` nanoseconds.
    pub since: Option<u64>,
    /// The executable graph at fault, if known.
    pub graph: Option<u32>,
    /// Whether a limit was asked for too late to have an effect.
    pub limit_too_late: bool,
}

/// The name of a kernel in its three forms, all safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelName {
    /// As CUPTI gave it.
    pub mangled: String,
    /// Demangled, or the mangled name when that failed.
    pub full: String,
    /// What a person would say: no return type, namespaces and template arguments elided.
    pub short: String,
}

/// One kernel name's statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelRow {
    /// The name id in the stream.
    pub id: u32,
    /// The name.
    pub name: Arc<KernelName>,
    /// Valid records.
    pub calls: u64,
    /// Invalid records of this name.
    pub invalid: u64,
    /// All and invalid records in the last 1, 10 and 60 s ([`WINDOWS`]); zeros for names beyond the first 4,096.
    pub windows: [[u64; 2]; WINDOWS.len()],
    /// Valid records whose end cannot be right: others ran inside of them on the same stream.
    pub overlong: u64,
    /// Time of all valid records, nanoseconds.
    pub total_ns: u64,
    /// Where only windows are seen: what there is likely to be in all.
    pub estimate: Option<KernelEstimate>,
    /// Shortest, nanoseconds.
    pub min_ns: u64,
    /// Median, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: u64,
    /// Longest, nanoseconds.
    pub max_ns: u64,
    /// Share of all kernel time, 0 to 1.
    pub share: f64,
    /// Calls in the last second.
    pub per_second: f64,
    /// Share of kernel time in each of the last seconds, oldest first; for a sparkline.
    pub trend: Vec<f32>,
    /// How often which duration came, shortest first.
    pub bars: Arc<[Bar]>,
}

/// How many durations lie between two: an eighth of a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// The shortest, nanoseconds.
    pub from: u64,
    /// The first that is too long, nanoseconds.
    pub to: u64,
    /// How many there were; beyond four billions of one duration, in proportion.
    pub count: u64,
}

/// What windows say of all calls of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelEstimate {
    /// Calls.
    pub calls: Estimate,
    /// Calls in a second, over all windows.
    pub per_second: Estimate,
    /// Time of all of them, nanoseconds.
    pub total_ns: Estimate,
    /// Share of all kernel time, 0 to 1.
    pub share: Estimate,
}

/// How a process is traced in windows to keep to a price.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The price, parts per million of the process's time; 0 once it is traced in full again.
    pub budget_ppm: u32,
    /// Windows that are in the estimates.
    pub windows: u64,
    /// Windows the shim has begun, for whomever.
    pub began: u64,
    /// Time in the windows of the estimates, nanoseconds.
    pub covered_ns: u64,
    /// Time they stand for, nanoseconds.
    pub span_ns: u64,
    /// Kinds that are on between windows: those are seen in full.
    pub between: KindSet,
    /// Whether kernels are untraced between windows.
    pub relief: Relief,
    /// What the price is told from.
    pub basis: Basis,
    /// The share of a window's time that tracing takes, 0 to 1.
    pub loss: Option<f64>,
    /// What tracing costs, parts per million of the process's time.
    pub price_ppm: Option<u64>,
    /// The upper end of its 95 % interval, or the worst that was ever measured where nothing is known.
    pub price_high_ppm: Option<u64>,
    /// Length of a window now, nanoseconds.
    pub window_ns: u64,
    /// Mean distance of their beginnings now, nanoseconds.
    pub period_ns: u64,
    /// All kernel calls.
    pub calls: Option<Estimate>,
    /// All kernel time, nanoseconds.
    pub total_ns: Option<Estimate>,
    /// A kernel that ran fewer times than this may have been missed by every window (one in twenty would be).
    pub rare_below: Option<u64>,
    /// The last windows, CUPTI's nanoseconds, oldest first; the end of an open one is 0.
    pub recent: Arc<[(u64, u64)]>,
}

/// One stream's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamRow {
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// Stream id.
    pub stream: u32,
    /// Time in which something ran (overlap counts once), nanoseconds.
    pub busy_ns: u64,
    /// From the first start to the last end, nanoseconds.
    pub span_ns: u64,
    /// Valid records.
    pub records: u64,
    /// Where only windows are seen, of all kinds: the share of the time that it is likely to be busy.
    pub busy_share: Option<Estimate>,
}

/// What copies of one direction are likely to sum up to, told from windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyEstimate {
    /// Copies.
    pub calls: Estimate,
    /// Bytes moved.
    pub bytes: Estimate,
    /// Time, nanoseconds.
    pub total_ns: Estimate,
}

/// Copies of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyRow {
    /// `HtoD`, `DtoH`, …
    pub direction: &'static str,
    /// Valid records.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time, nanoseconds.
    pub total_ns: u64,
    /// Where only windows are seen: what there is likely to be in all.
    pub estimate: Option<CopyEstimate>,
}

/// Totals of executable graphs, from records alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphTotals {
    /// Graphs with records in the last 60 s; `None` when nothing can be said.
    pub live: Option<u64>,
    /// Launches seen: distinct correlation ids with a graph.
    pub launches: Option<u64>,
    /// Instantiated; known only with early callbacks.
    pub instantiated: Option<u64>,
    /// Destroyed; known only with early callbacks.
    pub destroyed: Option<u64>,
}

/// Kernels that one thread launched in one context; known where launch records are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchingThread {
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// The thread, as CUPTI names it in API records.
    pub thread: u32,
    /// Kernels, graphs' included.
    pub kernels: u64,
}

pub use super::account::Allocated;
pub use super::explained::MemoryAccount;
pub use super::lifecycle::DeviceMemory;
pub use super::lifecycle::captures::{Capture, Cause};
pub use super::lifecycle::execs::{NODE_TYPES, Run, Sample};
pub use super::lifecycle::failures::{Failure, Root};
pub use super::trend::{Course, Limits};

/// Graphs, captures and launches that failed, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct GraphsView {
    /// What callbacks counted; `None` when there were none, and all that is known is from records.
    pub observers: Option<Observers>,
    /// Executable graphs, those launched most first; not all when there are very many.
    pub rows: Arc<[GraphRow]>,
    /// How many executable graphs there are.
    pub all: usize,
    /// The latest captures, oldest first.
    pub captures: Arc<[Capture]>,
    /// Captures that are open.
    pub open: usize,
    /// Launches and calls that failed, by root cause.
    pub failures: Arc<[Failure]>,
    /// What the driver says of the memory of graphs and pools.
    pub memory: Vec<DeviceMemory>,
    /// Graphs alive over time.
    pub samples: Arc<[Sample]>,
}

/// One executable graph.
#[derive(Clone, Debug, Default)]
pub struct GraphRow {
    /// CUPTI's id, which its records carry.
    pub id: u32,
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// Stream of its launches; `None` is unknown.
    pub stream: Option<u32>,
    /// When it was instantiated, `CLOCK_REALTIME` nanoseconds; `None` when that was not seen.
    pub created: Option<u64>,
    /// The thread that instantiated it.
    pub thread: Option<u32>,
    /// The graph it was made from, CUPTI's id.
    pub source: Option<u32>,
    /// Whether callbacks say that it is alive.
    pub alive: bool,
    /// Launches seen.
    pub launches: u64,
    /// Launches a second since the first one seen; 0 once they have stopped.
    pub per_second: f64,
    /// Start of its last launch, CUPTI's nanoseconds.
    pub last: Option<u64>,
    /// Median time of a launch from its first start to its last end, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: u64,
    /// Nodes that gave records.
    pub seen_nodes: usize,
    /// Nodes by `CUgraphNodeType`; `None` when its making was not seen.
    pub nodes_by_type: Option<[u32; NODE_TYPES]>,
    /// Updates, and those of them that failed.
    pub updates: Option<(u32, u32)>,
    /// Names with most of its time: name, nodes, share.
    pub shares: Vec<(Arc<KernelName>, u32, f64)>,
    /// Its nodes that gave records, by index; empty beyond the first rows.
    pub nodes: Arc<[NodeRow]>,
    /// Its nodes in runs, as they were made.
    pub runs: Option<Arc<[Run]>>,
    /// Their dependencies in runs.
    pub edges: Option<Arc<[Run]>>,
}

/// A node that gave records.
#[derive(Clone, Debug)]
pub struct NodeRow {
    /// Its index in the executable graph.
    pub index: u32,
    /// Its kernel, or what else it does.
    pub name: Arc<KernelName>,
    /// Whether it is a kernel.
    pub is_kernel: bool,
    /// Time of one launch, nanoseconds.
    pub ns: u64,
}

/// Something that is not as it should be, or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, which stays the same.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so.
    pub sentence: String,
    /// How that is known.
    pub evidence: Vec<String>,
    /// What to do.
    pub next: String,
    /// Since when, `CLOCK_REALTIME` nanoseconds; 0 is not known.
    pub since: u64,
}

/// Launches of executable graphs that repeat at a steady rhythm: the steps of a server, over the last minute at most.
/// A step lasts from one beginning to the next; what runs beside the graphs is part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// Whether they go on.
    pub current: bool,
    /// Steps seen.
    pub count: u64,
    /// Median time of a step, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: u64,
    /// By how much a step differs from the one before, on average, nanoseconds.
    pub jitter_ns: u64,
    /// Kernels a step, in graphs and beside them; the median.
    pub kernels: u64,
    /// Graph launches a step; the median.
    pub launches: u64,
    /// Time of a step in which nothing ran, from its first launch to the end of its last one, nanoseconds; the median.
    pub idle_inside_ns: u64,
    /// … from there to the next step; the median.
    pub idle_between_ns: u64,
    /// The executable graphs in which steps begin.
    pub graphs: Vec<u32>,
}

/// From the start of a launch call to the start of its kernel, over kernels whose call is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchLatency {
    /// Kernels joined to their call.
    pub joined: u64,
    /// … that started a little before it, as clocks that differ a little make it seem; valid.
    pub slightly_before: u64,
    /// … that started well before it; invalid, and in no other number here.
    pub well_before: u64,
    /// Shortest, nanoseconds; negative when a kernel seems to have started before its call.
    pub min_ns: i64,
    /// Average, nanoseconds.
    pub mean_ns: i64,
    /// Longest, nanoseconds.
    pub max_ns: i64,
}

/// A device that is not known, in a [`LaneKey`].
pub const UNKNOWN_DEVICE: u32 = u32::MAX;

/// Which lane of the timeline. A device may be [`UNKNOWN_DEVICE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Kernels of one stream.
    Stream {
        /// Device, CUPTI's number.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
    },
    /// Copies of one direction on one device.
    Copy {
        /// Device, CUPTI's number.
        device: u32,
        /// `CUpti_ActivityMemcpyKind`.
        direction: u8,
    },
    /// Memory sets on one device.
    Memset {
        /// Device, CUPTI's number.
        device: u32,
    },
    /// Launches of executable graphs on one stream: from the first start to the last end of each launch.
    Graphs {
        /// Device, CUPTI's number.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
    },
}

/// One lane of the timeline.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Which.
    pub key: LaneKey,
    /// Share of the last second in which something ran.
    pub busy: f64,
    /// From when on all that ran is there, CUPTI's nanoseconds: before that it would seem idle.
    pub since: u64,
    /// Its intervals.
    pub slices: Slices,
}

/// What slices are, by the `detail` id of a slice; append-only and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The id of the first detail kept; older ones are forgotten.
    first: u32,
    chunks: Vec<Arc<[Detail]>>,
}

impl Details {
    /// Details per chunk; all chunks but the last are full.
    pub const CHUNK: usize = 1024;

    /// From full chunks and a last one that may be shorter.
    #[must_use]
    pub const fn new(chunks: Vec<Arc<[Detail]>>) -> Self {
        Self::starting_at(0, chunks)
    }

    /// The same, when details before the one with id `first` are forgotten.
    #[must_use]
    pub const fn starting_at(first: u32, chunks: Vec<Arc<[Detail]>>) -> Self {
        Self { first, chunks }
    }

    /// The detail with this id, unless it is so old that it is forgotten.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Detail> {
        let id = id.checked_sub(self.first)? as usize;
        self.chunks.get(id / Self::CHUNK)?.get(id % Self::CHUNK)
    }
}

/// Everything about a record but its times and correlation id. Records that differ only in those share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The name id of a kernel; for copies and memory sets an id of the model's own, distinct from kernels'.
    pub name_id: u32,
    /// The name; the direction for copies, `memset` for memory sets.
    pub name: Arc<KernelName>,
    /// Grid, blocks.
    pub grid: [u32; 3],
    /// Block, threads.
    pub block: [u32; 3],
    /// Cluster, blocks; zeros when there is none.
    pub cluster: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Static and dynamic shared memory, bytes.
    pub shared: [u32; 2],
    /// Bytes moved or set; `None` for kernels.
    pub bytes: Option<u64>,
    /// Executable graph id; 0 outside graphs.
    pub graph: u32,
    /// Graph node id; 0 outside graphs.
    pub graph_node: u64,
}

impl Detail {
    /// The place of the node in its graph: CUPTI's id has the graph in its upper half.
    #[must_use]
    pub const fn node_index(&self) -> u32 {
        (self.graph_node & 0xffff_ffff) as u32
    }
}

/// Memory of one process on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessMemory {
    /// NVML's device index.
    pub device: u32,
    /// Process id as this machine numbers it.
    pub pid: u32,
    /// Process name.
    pub name: String,
    /// Bytes in use; `None` is unknown, never 0.
    pub used: Option<u64>,
    /// Change a minute, bytes; `None` until there are enough samples.
    pub per_minute: Option<i64>,
    /// Whether gtop watches this process.
    pub watched: bool,
}

/// One device as NVML sees it. Unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// NVML's index.
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// Seconds since the sample was taken.
    pub age: f64,
    /// Total memory, bytes.
    pub memory_total: Option<u64>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
    /// Reserved memory, bytes.
    pub memory_reserved: Option<u64>,
    /// Whether device and host share one memory.
    pub unified: bool,
    /// Share of time with a kernel running, percent.
    pub gpu_percent: Option<u64>,
    /// Power, watts.
    pub watts: Option<f64>,
    /// SM clock, MHz.
    pub sm_mhz: Option<u64>,
    /// Memory clock, MHz.
    pub memory_mhz: Option<u64>,
    /// Degrees Celsius.
    pub celsius: Option<u64>,
    /// Why clocks are held down, in words.
    pub throttle: Vec<&'static str>,
    /// PCIe received and sent, kilobytes a second.
    pub pcie_kbs: [Option<u64>; 2],
    /// NVLink received and sent, kilobytes a second.
    pub nvlink_kbs: [Option<u64>; 2],
    /// Uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Every process on the device, largest first.
    pub processes: Vec<ProcessMemory>,
    /// Used memory over the last minutes, bytes, oldest first; for a sparkline.
    pub history: Vec<u64>,
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
