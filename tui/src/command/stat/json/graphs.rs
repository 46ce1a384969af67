//! Graphs, captures, and what was found about them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Executable graphs in all.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the keys of the JSON")]
pub(super) struct Graphs {
    /// Alive; null where nothing tells.
    pub(super) live: Option<u64>,
    /// Launches.
    pub(super) launches: Option<u64>,
    /// Made.
    pub(super) instantiated: Option<u64>,
    /// Destroyed.
    pub(super) destroyed: Option<u64>,
    /// Not all is known: gtop joined late, or lost events.
    pub(super) partial: bool,
    /// Graphs made.
    pub(super) graphs_created: Option<u64>,
    /// Graphs destroyed.
    pub(super) graphs_destroyed: Option<u64>,
    /// Captures begun.
    pub(super) captures: Option<u64>,
    /// Captures that failed.
    pub(super) captures_failed: Option<u64>,
    /// Updates of executable graphs.
    pub(super) updates: Option<u64>,
    /// Updates that failed.
    pub(super) updates_failed: Option<u64>,
    /// Each of them.
    pub(super) list: Vec<Graph>,
    /// Captures begun in the last minute; less is scaled up, and null is less than ten seconds.
    pub(super) captures_per_minute: Option<f64>,
    /// How many different numbers of nodes by type all those had that were made; null when not all is known.
    pub(super) shapes: Option<u64>,
}

/// An executable graph.
#[derive(Serialize, JsonSchema)]
pub(super) struct Graph {
    /// Its id for CUPTI.
    pub(super) id: u32,
    /// Its device.
    pub(super) device: Option<u32>,
    /// Its context.
    pub(super) context: u32,
    /// The stream of its last launch.
    pub(super) stream: Option<u32>,
    /// Launches.
    pub(super) launches: u64,
    /// A launch's median time, from the first kernel's start to the last one's end.
    pub(super) p50_ns: Option<u64>,
    /// The 99th percentile.
    pub(super) p99_ns: Option<u64>,
    /// Nodes that gave records.
    pub(super) nodes_seen: u64,
    /// Nodes by type, with those inside of child graphs and of conditional nodes; null where nothing tells.
    pub(super) nodes: Option<BTreeMap<&'static str, u32>>,
    /// Copies by direction among the nodes that gave records, the most first.
    pub(super) copies_seen: Vec<CopiesSeen>,
    /// When it was made.
    pub(super) instantiated: Option<String>,
    /// Times it was uploaded ahead of a launch.
    pub(super) uploads: Option<u32>,
    /// Whether it still is there; null where nothing tells.
    pub(super) alive: Option<bool>,
    /// Launches a second; null where its records may not come.
    pub(super) per_second: Option<f64>,
    /// When it was launched last.
    pub(super) last_launch: Option<String>,
    /// The thread that made it.
    pub(super) thread: Option<u32>,
    /// The id of the graph that it was made from.
    pub(super) source: Option<u32>,
    /// The begin of the capture that gave that graph, as in `stream_captures`; null when none was seen to.
    pub(super) captured: Option<String>,
    /// What the thread that captured allocated meanwhile on devices, without what became nodes; null when that is not
    /// known.
    pub(super) allocated_bytes: Option<u64>,
    /// What its nodes that allocate ask for, which the driver may put into the same memory one after the other; null when
    /// that is not known of each of them.
    pub(super) node_bytes: Option<u64>,
}

/// Copies of one direction in a graph.
#[derive(Serialize, JsonSchema)]
pub(super) struct CopiesSeen {
    /// The direction: `HtoD`, `DtoH`, `DtoD` and so on.
    pub(super) direction: &'static str,
    /// Nodes.
    pub(super) nodes: u32,
}

/// Things of one kind, counted by callbacks.
#[derive(Serialize, JsonSchema)]
pub(super) struct Objects {
    /// Made.
    pub(super) created: u64,
    /// Destroyed.
    pub(super) destroyed: u64,
    /// Alive; null when gtop joined late.
    pub(super) live: Option<u64>,
    /// How their number grows, a minute.
    pub(super) growth_per_minute: Option<f64>,
}

/// Captures of streams.
#[derive(Serialize, JsonSchema)]
pub(super) struct StreamCaptures {
    /// Those that are open.
    pub(super) open: Vec<StreamCapture>,
    /// The last ones that ended, oldest first.
    pub(super) ended: Vec<StreamCapture>,
}

/// A capture.
#[derive(Serialize, JsonSchema)]
pub(super) struct StreamCapture {
    /// The stream's handle.
    pub(super) stream: String,
    /// Its context.
    pub(super) context: u32,
    /// The thread that began it.
    pub(super) thread: u32,
    /// `global`, `thread-local` or `relaxed`.
    pub(super) mode: Option<&'static str>,
    /// When it began.
    pub(super) begun: String,
    /// When it ended.
    pub(super) ended: Option<String>,
    /// The `CUresult` of its end; null while it is open and when it was abandoned.
    pub(super) code: Option<u32>,
    /// The same in words.
    pub(super) result: Option<&'static str>,
    /// Its stream or context was destroyed while it was open.
    pub(super) abandoned: bool,
    /// The call that broke it.
    pub(super) cause: Option<CaptureCause>,
    /// Nodes captured.
    pub(super) nodes: u32,
    /// Other streams that took part and did not join back; null when that is not known.
    pub(super) unjoined_streams: Option<Vec<String>>,
    /// The `CUresult` of instantiating its graph; null when that was not tried.
    pub(super) instantiated: Option<u32>,
    /// All other streams that took part; null when that is not known.
    pub(super) streams: Option<Vec<String>>,
    /// What its thread allocated meanwhile on devices, without what became nodes; null while it is open, and when that is
    /// not known.
    pub(super) allocated_bytes: Option<u64>,
    /// Of one that failed: how the memory of the process, as NVML tells it, changed from before it began to the first
    /// sample after its end, whatever took it; null when that was not sampled.
    pub(super) memory_step_bytes: Option<i64>,
    /// … and to ten seconds after its end, which tells whether it came back; null before that was sampled.
    pub(super) memory_kept_bytes: Option<i64>,
}

/// The call that broke a capture.
#[derive(Serialize, JsonSchema)]
pub(super) struct CaptureCause {
    /// The call.
    pub(super) call: &'static str,
    /// Its `CUresult`.
    pub(super) code: u32,
    /// The same in words.
    pub(super) result: &'static str,
    /// The thread it was made on.
    pub(super) thread: u32,
    /// When.
    pub(super) time: String,
    /// The handle of its stream; null when it has none, or that is the default stream.
    pub(super) stream: Option<String>,
    /// The kernel launched before it on its thread, within a capture.
    pub(super) kernel: Option<String>,
}

/// Launches and calls that failed for one cause, of one kernel or call.
#[derive(Serialize, JsonSchema)]
pub(super) struct Failed<'a> {
    /// The call.
    pub(super) call: &'static str,
    /// Its `CUresult`.
    pub(super) code: u32,
    /// The same in words.
    pub(super) result: &'static str,
    /// The root cause, in words.
    pub(super) cause: &'static str,
    /// The limit that was broken, where it can be told.
    pub(super) limit: Option<&'a str>,
    /// The kernel.
    pub(super) kernel: Option<&'a str>,
    /// How often.
    pub(super) count: u64,
    /// The first time.
    pub(super) first: String,
    /// The last time.
    pub(super) last: String,
    /// The thread of the first.
    pub(super) thread: u32,
    /// The grid of the first, where it is a kernel's launch.
    pub(super) grid: Option<[u32; 3]>,
    /// Its block.
    pub(super) block: Option<[u32; 3]>,
    /// Blocks of its cluster; null is none.
    pub(super) cluster: Option<u32>,
    /// Its dynamic shared memory, or what another call asked for.
    pub(super) bytes: u64,
}

/// A finding.
#[derive(Serialize, JsonSchema)]
pub(super) struct Finding<'a> {
    /// The rule's name.
    pub(super) rule: &'a str,
    /// `info`, `warning` or `alarm`.
    pub(super) severity: &'static str,
    /// What is so.
    pub(super) sentence: &'a str,
    /// What it stands on.
    pub(super) evidence: &'a [String],
    /// What to do.
    pub(super) next: &'a str,
    /// Since when.
    pub(super) since: Option<String>,
}
