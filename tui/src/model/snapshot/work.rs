//! Tables of what ran: kernels, streams, copies, graphs.

use std::sync::Arc;

use gtop_protocol::message::Observers;

use super::{Capture, Captured, Counted, DeviceMemory, Failure, Inside, NODE_TYPES, Run, Sample, WINDOWS};
use crate::model::sampling::Estimate;

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
    /// Calls in the last whole second; `None` before there was one with kernels traced, while they do not come, or in
    /// windows only.
    pub per_second: Option<f64>,
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

impl KernelRow {
    /// Calls a second as far as known: counted, else what windows let expect.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.per_second.or(self.estimate.map(|likely| likely.per_second.value))
    }
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

impl CopyRow {
    /// Bytes a nanosecond of copying, which are GB a second; `None` where no time passed.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.total_ns > 0).then(|| self.bytes as f64 / self.total_ns as f64)
    }
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

/// Graphs, captures and launches that failed, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct GraphsView {
    /// What callbacks counted; `None` when there were none, and all that is known is from records.
    pub observers: Option<Observers>,
    /// Executable graphs, those launched most first, those that are destroyed last; on a screen not all when there are
    /// very many.
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
    /// Whether it is no longer followed what nodes point to.
    pub unfollowed: bool,
    /// Contexts, streams, events, modules, pools, graphs and executable graphs: created, destroyed, alive, and how that
    /// changes; empty when nothing counts them.
    pub counted: Vec<Counted>,
    /// Captures begun in the last minute; less than a minute is scaled up. `None` when nothing counts them, or not for
    /// long.
    pub captures_per_minute: Option<f64>,
    /// How many different numbers of nodes by type there were among all executable graphs that were made; `None` when
    /// callbacks were not on from the start.
    pub shapes: Option<usize>,
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
    /// Whether it is alive, as callbacks say; `None` where its making and its end were not seen.
    pub alive: Option<bool>,
    /// Launches seen.
    pub launches: u64,
    /// Launches a second over the last five seconds; `None` where its records may not come.
    pub per_second: Option<f64>,
    /// Start of its last launch, CUPTI's nanoseconds.
    pub last: Option<u64>,
    /// Median time of a launch from its first start to its last end, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: u64,
    /// Nodes that gave records.
    pub seen_nodes: usize,
    /// Nodes by `CUgraphNodeType`, with those inside of child graphs and of conditional nodes; `None` when its making was
    /// not seen.
    pub nodes_by_type: Option<[u32; NODE_TYPES]>,
    /// Updates, and those of them that failed.
    pub updates: Option<(u32, u32)>,
    /// Uploads ahead of a launch; `None` when its making was not seen.
    pub uploads: Option<u32>,
    /// The capture that made the graph it was made from; `None` when none was seen to.
    pub capture: Option<Captured>,
    /// What its nodes ask for that allocate memory, bytes; `None` where that is not known of each of them.
    pub asks: Option<u64>,
    /// Copies among the nodes that gave records, by direction, the most first.
    pub copies: Vec<(&'static str, u32)>,
    /// Names with most of its time: name, nodes, share.
    pub shares: Vec<(Arc<KernelName>, u32, f64)>,
    /// Its nodes that gave records, by index; empty beyond the first rows.
    pub nodes: Arc<[NodeRow]>,
    /// The graphs inside of it, in the order of their nodes.
    pub inside: Arc<[Inside]>,
    /// Its own nodes in runs, as they were made.
    pub runs: Option<Arc<[Run]>>,
    /// Their dependencies in runs.
    pub edges: Option<Arc<[Run]>>,
}

impl GraphRow {
    /// The memory that it takes as far as it is told: what was allocated while it was captured and what its nodes ask for,
    /// bytes; `None` where either is not known.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        Some(self.capture?.allocated?.saturating_add(self.asks?))
    }
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
