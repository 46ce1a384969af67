//! One process: who it is, its state, and what was found of it.

use std::sync::Arc;

use gtop_protocol::KindSet;
use gtop_protocol::cupti::{CuptiVersion, Verdict};
use gtop_protocol::message::{Clock, HostBuffers, PoolState, Severity, StateCode};
use gtop_protocol::viewer::Halted;

use super::{
    Allocated, CopyRow, Course, Details, GraphTotals, GraphsView, KernelRow, Lane, Link, NoteCounts, Pool,
    ProcessMemory, Records, Sampling, Site, Spot, StreamRow, Untraced, ValidityStats,
};

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
    /// Whether nothing of its work could be seen at any time, so that its counts of records are unknown and not 0: it was
    /// not reached, or its shim never had CUPTI.
    pub unseen: bool,
    /// Seconds without any kernel record, where nothing tells whether it is idle or CUPTI has gone quiet.
    pub quiet: Option<f64>,
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
    /// What the shim takes, since it was first heard of.
    pub cost: Option<Cost>,
    /// The same over the last ten seconds.
    pub cost_lately: Option<Cost>,
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
    /// Which libraries allocated it, the most GPU memory first; empty where CUPTI does not say.
    pub sites: Vec<Site>,
    /// How its memory went, of the device where it has most.
    pub course: Option<Course>,
    /// How its memory on each device went, in the order of NVML's indices.
    pub memory_over_time: Vec<MemoryOverTime>,
    /// How much of its memory was accounted for over time; empty without memory records.
    pub explained_over_time: Samples,
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
    /// How far the timeline is known, CUPTI's nanoseconds: to the newest record or, as records come late, to a second
    /// before now. 0 where records are the only clock.
    pub until: u64,
    /// Up to when every record has come, CUPTI's nanoseconds, as far as how late they came lately tells; 0 where nothing
    /// more is awaited.
    pub delivered: u64,
    /// For how long nothing was heard of a shim that should have said something, seconds; `None` while all is well.
    pub unheard: Option<f64>,
    /// What keeps it from running; that its first thread waits is told only of one that is unheard.
    pub halt: Option<Halt>,
    /// When kinds of GPU work were not traced, in the order in which that began.
    pub untraced: Arc<[Untraced]>,
    /// When records were lost on their way here, CUPTI's nanoseconds, in order and without overlap.
    pub lost: Arc<[(u64, u64)]>,
    /// The lanes of the timeline, in the order they are drawn.
    pub lanes: Vec<Lane>,
    /// What the slices of the lanes are.
    pub details: Details,
    /// Memory of this process on each device, bytes; `None` is unknown.
    pub gpu_memory: Vec<ProcessMemory>,
}

impl Process {
    /// Whether it does not run as far as known, so that nothing can be said of what it does now.
    #[must_use]
    pub const fn is_mute(&self) -> bool {
        self.unheard.is_some() || self.halt.is_some()
    }

    /// Whether kernels run, or may, that no record tells of and nobody counts as lost: CUPTI's buffers could not be read, no
    /// kernel record comes while the GPU works, or the pool of its device buffers is used up.
    #[must_use]
    pub fn misses_some(&self) -> bool {
        self.records.unread_bytes > 0 || self.state == StateCode::Silent || self.is_full()
    }

    /// Whether CUPTI has no device buffer left in a context.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pools.iter().any(|pool| pool.state == PoolState::Exhausted)
    }

    /// Why its shim was not reached; `None` where it has told something of itself.
    #[must_use]
    pub fn unreached(&self) -> Option<&str> {
        match &self.link {
            Link::Ended(why) if self.unseen && !self.heard.state => Some(why),
            _ => None,
        }
    }

    /// All its memory on all devices, bytes; `None` where any of it is unknown.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let rows = &self.gpu_memory;
        (!rows.is_empty()).then(|| rows.iter().try_fold(0u64, |sum, row| sum.checked_add(row.used?)))?
    }
}

/// Samples over time, oldest first, a second apart at least: `CLOCK_REALTIME` nanoseconds and bytes.
pub type Samples = Arc<[(u64, u64)]>;

/// Memory of a process on one device over time, as NVML tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryOverTime {
    /// NVML's device index.
    pub device: u32,
    /// The samples.
    pub samples: Samples,
}

/// What the shim takes of a process, as shares of one processor core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time of its own threads.
    pub cpu: f64,
    /// Time within CUPTI's completion callbacks, by the clock; several may run at once.
    pub callbacks: f64,
}

/// What keeps a process from running.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Halt {
    /// What that is; never [`Halted::No`].
    pub cause: Halted,
    /// For how long, seconds.
    pub seconds: f64,
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

/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`.
const DENIED: u32 = 35;

impl Kinds {
    /// What makes CUPTI give the kinds that it refused, where the error tells.
    #[must_use]
    pub fn cure(&self) -> Option<&'static str> {
        (!self.refused.is_empty() && self.error == Some(DENIED)).then_some(
            "run the process as root, or with CAP_SYS_ADMIN, or load the driver with \
             NVreg_RestrictProfilingToAdminUsers=0",
        )
    }
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
