//! The JSON of `gtop stat`: its keys are a promise. What is unknown is null, never 0.

mod fill;
mod graphs;
mod sampled;
mod trust;
mod work;

use std::collections::BTreeMap;
use std::io::{self, Write};

use graphs::{Failed, Finding, Graphs, Objects, StreamCaptures};
use sampled::Sampling;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use trust::{Clock, Notes, OfPool, Trust};
use work::{Account, Caller, Kernel, Latency, Memcpy, Steps, Stream};

use super::total::Total;
use crate::model::snapshot::Snapshot;

/// Writes one object and a line break.
pub(super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Stat::of(snapshot))?;
    writeln!(out)
}

/// Writes the JSON schema of that object, which says what each key is, and a line break.
pub(super) fn write_schema(out: &mut impl Write) -> io::Result<()> {
    let settings =
        SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.inline_subschemas = true);
    serde_json::to_writer_pretty(&mut *out, &settings.into_generator().into_root_schema_for::<Stat<'_>>())?;
    writeln!(out)
}

/// What `gtop stat --json` prints. What is not known is null, never 0; lists are whole, the weightiest first; durations
/// are nanoseconds, sizes bytes, rates and shares 0 to 1, and moments strings of nanoseconds since 1970, which a double
/// does not hold.
#[derive(Serialize, JsonSchema)]
struct Stat<'a> {
    /// Name and version of this form; keys are added, and none is taken away or changes what it means.
    schema: &'static str,
    /// Time that the summary is of, seconds.
    seconds: f64,
    /// All processes together.
    total: Total,
    /// The processes, each by itself.
    processes: Vec<OfProcess<'a>>,
}

/// One process.
#[derive(Serialize, JsonSchema)]
struct OfProcess<'a> {
    /// Process id; null for raw buffers.
    pid: Option<u32>,
    /// Its name, as the system has it.
    name: Option<&'a str>,
    /// Devices it works on.
    devices: Vec<Device<'a>>,
    /// The CUPTI that is loaded in it.
    cupti: Option<Cupti<'a>>,
    /// What the shim in it does: `loaded`, `arming`, `armed`, `resting`, `tainted`, `silent` or `unavailable`.
    state: Option<&'static str>,
    /// Why it is in this state, where that needs one.
    reason: Option<&'a str>,
    /// Activity kinds that are on.
    kinds: Option<Vec<&'static str>>,
    /// The price that was asked for, percent.
    budget_percent: Option<f64>,
    /// How it is traced under a budget, in windows.
    sampling: Option<Sampling>,
    /// Records, from CUPTI's buffers to here; at rest `delivered` is `shown` and what was lost but for `lost.cupti`. Null
    /// where nothing of the process could be seen at any time.
    records: Records,
    /// Which timestamps can be believed. A bad record counts here and in `records`, and in nothing else.
    validity: Trust<'a>,
    /// Records that are odd, and good all the same.
    notes: Notes,
    /// CUPTI's device buffer pool of each context.
    pools: Vec<OfPool<'a>>,
    /// Buffers of the host that CUPTI fills.
    host_buffers: Option<HostBuffers>,
    /// Its memory on each device.
    gpu_memory: Vec<GpuMemory>,
    /// Streams, and how busy they were.
    streams: Vec<Stream>,
    /// Kernels, the one with the most time first.
    kernels: Vec<Kernel<'a>>,
    /// Executable graphs.
    graphs: Graphs,
    /// Copies by direction.
    memcpy: Vec<Memcpy>,
    /// What was found to be wrong, or worth knowing.
    findings: Vec<Finding<'a>>,
    /// Launches of graphs that repeat at a steady rhythm, such as a server's decode steps.
    steps: Vec<Steps<'a>>,
    /// The clock that timestamps are of.
    clock: Option<Clock>,
    /// From a launch's call to the begin of its kernel, where launches are recorded.
    launch_latency: Option<Latency>,
    /// Where its memory went.
    memory_account: Account<'a>,
    /// Kernels by the thread that launched them, where launches are recorded.
    threads: Vec<Caller>,
    /// Contexts, streams, events, modules, pools, graphs and executable graphs by name; null when nothing counts them.
    objects: Option<BTreeMap<&'static str, Objects>>,
    /// Captures of streams; null when nothing follows them.
    stream_captures: Option<StreamCaptures>,
    /// `stopped` by a signal, `traced` by a debugger, or `blocked` in the kernel and unheard; null when nothing tells.
    halted: Option<&'static str>,
    /// For how long nothing was heard of a shim that should have spoken; null while all is well.
    unheard_seconds: Option<f64>,
    /// Launches and calls that failed, by root cause; null when nothing follows them.
    failures: Option<Vec<Failed<'a>>>,
    /// What the shim takes of it; null where none said.
    shim: Option<Shim>,
}

/// A device.
#[derive(Serialize, JsonSchema)]
struct Device<'a> {
    /// Its index for CUDA in this process.
    index: u32,
    /// Its UUID.
    uuid: Option<&'a str>,
    /// Its name.
    name: Option<&'a str>,
}

/// A CUPTI.
#[derive(Serialize, JsonSchema)]
struct Cupti<'a> {
    /// What `cuptiGetVersion` says, such as 130001.
    version: u32,
    /// The file it was loaded from.
    path: Option<&'a str>,
    /// How it is subscribed to: `v1` or `v2`.
    interface: Option<&'static str>,
    /// Whether the process's one subscription is gtop's.
    subscribed: bool,
    /// `sound`, `defective` or `unknown`: whether it loses device buffers.
    verdict: &'static str,
    /// What the verdict stands on.
    reason: &'static str,
}

/// Records.
#[derive(Serialize, JsonSchema)]
struct Records {
    /// Walked out of CUPTI's buffers since gtop joined.
    delivered: Option<u64>,
    /// Arrived here.
    shown: Option<u64>,
    /// Kernels that arrived.
    kernel: Option<u64>,
    /// Copies that arrived.
    memcpy: Option<u64>,
    /// Memory sets that arrived.
    memset: Option<u64>,
    /// Records of further kinds that arrived.
    other: Option<u64>,
    /// Those that did not, by what lost them.
    lost: Lost,
}

/// Records lost.
#[derive(Serialize, JsonSchema)]
struct Lost {
    /// By CUPTI, which says so; never delivered.
    cupti: Option<u64>,
    /// In the shim, whose queue was full.
    queue_full: Option<u64>,
    /// Of a kind nobody here can read.
    unknown_kind: Option<u64>,
    /// Because this end read too slowly.
    slow_viewer: Option<u64>,
    /// Bytes, not records: what of CUPTI's buffers could not be read, behind a record that CUPTI does not step over. How
    /// many records they held is not known.
    unread_bytes: Option<u64>,
}

/// What the shim takes of the process; shares are of one processor core, over the time that the summary is of.
#[derive(Serialize, JsonSchema)]
struct Shim {
    /// Processor time of its own threads since it was loaded.
    cpu_ns: u64,
    /// Time within CUPTI's completion callbacks since then, by the clock.
    callback_ns: u64,
    /// Memory that it has put to use.
    memory_bytes: u64,
    /// Share that its own threads took; null before two readings.
    cpu_share: Option<f64>,
    /// Share of the time within callbacks, of which several may run at once; null before two readings.
    callback_share: Option<f64>,
}

/// Buffers of the host.
#[derive(Serialize, JsonSchema)]
struct HostBuffers {
    /// Size of each.
    size: u64,
    /// With CUPTI now.
    outstanding: u64,
    /// Filled and walked so far.
    completed: u64,
    /// Bytes in them so far.
    bytes: u64,
}

/// Memory of the process on one device.
#[derive(Serialize, JsonSchema)]
struct GpuMemory {
    /// The device.
    device: u32,
    /// What it uses.
    used_bytes: Option<u64>,
    /// What there is.
    total_bytes: Option<u64>,
    /// Who says so.
    source: &'static str,
}

impl<'a> Stat<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            schema: "gtop.stat/1",
            seconds: snapshot.seconds,
            total: Total::of(snapshot),
            processes: snapshot.processes.iter().map(|process| OfProcess::of(process, snapshot)).collect(),
        }
    }
}
