//! The JSON of `gtop stat`: its keys are a promise. What is unknown is null, never 0.

mod fill;

use std::collections::BTreeMap;
use std::io::{self, Write};

use gtop_protocol::message::Relief;
use serde::Serialize;

use super::total::Total;
use crate::model::sampling::Estimate;
use crate::model::snapshot::{self as model, Snapshot};

/// Writes one object and a line break.
pub(super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Stat::of(snapshot))?;
    writeln!(out)
}

#[derive(Serialize)]
struct Stat<'a> {
    schema: &'static str,
    seconds: f64,
    total: Total,
    processes: Vec<OfProcess<'a>>,
}

#[derive(Serialize)]
struct OfProcess<'a> {
    pid: Option<u32>,
    name: Option<&'a str>,
    devices: Vec<Device<'a>>,
    cupti: Option<Cupti<'a>>,
    state: Option<&'static str>,
    reason: Option<&'a str>,
    kinds: Option<Vec<&'static str>>,
    budget_percent: Option<f64>,
    sampling: Option<Sampling>,
    records: Records,
    validity: Trust<'a>,
    notes: Notes,
    pools: Vec<OfPool<'a>>,
    host_buffers: Option<HostBuffers>,
    gpu_memory: Vec<GpuMemory>,
    streams: Vec<Stream>,
    kernels: Vec<Kernel<'a>>,
    graphs: Graphs,
    memcpy: Vec<Memcpy>,
    findings: Vec<Finding<'a>>,
    steps: Vec<Steps<'a>>,
    clock: Option<Clock>,
    launch_latency: Option<Latency>,
    memory_account: Account<'a>,
    threads: Vec<Caller>,
    /// Contexts, streams, events, modules, pools, graphs and executable graphs; null when nothing counts them.
    objects: Option<BTreeMap<&'static str, Objects>>,
    stream_captures: Option<StreamCaptures>,
    /// `stopped` by a signal, `traced` by a debugger, or `blocked` in the kernel and unheard; null when nothing tells.
    halted: Option<&'static str>,
    /// For how long nothing was heard of a shim that should have spoken; null while all is well.
    unheard_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Device<'a> {
    index: u32,
    uuid: Option<&'a str>,
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct Cupti<'a> {
    version: u32,
    path: Option<&'a str>,
    interface: Option<&'static str>,
    /// Whether the process's one subscription is gtop's.
    subscribed: bool,
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Serialize)]
struct Records {
    delivered: u64,
    shown: u64,
    kernel: u64,
    memcpy: u64,
    memset: u64,
    other: u64,
    lost: Lost,
}

/// How a process is traced in windows; estimates stand for `span_seconds`.
#[derive(Serialize)]
struct Sampling {
    windows: u64,
    covered_seconds: f64,
    span_seconds: f64,
    window_ns: u64,
    period_ns: u64,
    /// Kinds that are on between windows, and so counted in full.
    between: Vec<&'static str>,
    /// `full`: nothing is traced between windows; `none`: kernels are, so that windows save nothing.
    relief: Option<&'static str>,
    /// `copies`, `calls` or `assumed`: what the price is told from.
    basis: &'static str,
    /// The share of a window's time that tracing takes.
    loss: Option<f64>,
    price_percent: Option<f64>,
    price_percent_high: Option<f64>,
    calls: Option<Estimated>,
    total_ns: Option<Estimated>,
    rare_below_calls: Option<u64>,
}

/// A value and its 95 % interval.
#[derive(Serialize)]
struct Estimated {
    value: f64,
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct OfKernel {
    calls: Estimated,
    per_second: Estimated,
    total_ns: Estimated,
    share: Estimated,
}

#[derive(Serialize)]
struct OfCopy {
    calls: Estimated,
    bytes: Estimated,
    total_ns: Estimated,
}

impl From<Estimate> for Estimated {
    fn from(Estimate { value, low, high }: Estimate) -> Self {
        Self { value, low, high }
    }
}

fn percent(ppm: u64) -> f64 {
    ppm as f64 / 10_000.0
}

impl Sampling {
    fn of(sampling: &model::Sampling) -> Self {
        Self {
            windows: sampling.windows,
            covered_seconds: sampling.covered_ns as f64 / 1e9,
            span_seconds: sampling.span_ns as f64 / 1e9,
            window_ns: sampling.window_ns,
            period_ns: sampling.period_ns,
            between: sampling.between.iter().map(gtop_protocol::Kind::name).collect(),
            relief: match sampling.relief {
                Relief::Unknown => None,
                Relief::Full => Some("full"),
                Relief::None => Some("none"),
            },
            basis: sampling.basis.name(),
            loss: sampling.loss,
            price_percent: sampling.price_ppm.map(percent),
            price_percent_high: sampling.price_high_ppm.map(percent),
            calls: sampling.calls.map(Estimated::from),
            total_ns: sampling.total_ns.map(Estimated::from),
            rare_below_calls: sampling.rare_below,
        }
    }
}

#[derive(Serialize)]
struct Lost {
    cupti: u64,
    queue_full: u64,
    unknown_kind: u64,
    slow_viewer: u64,
}

#[derive(Serialize)]
struct Trust<'a> {
    valid: u64,
    zero: u64,
    zero_start: u64,
    zero_end: u64,
    inverted: u64,
    sentinel: u64,
    foreign_clock: u64,
    future: u64,
    before_launch: Option<u64>,
    rate_total: Option<f64>,
    rate_window: Option<f64>,
    first_invalid: Option<FirstInvalid<'a>>,
    first_again: Option<FirstInvalid<'a>>,
    kinds: Kinds,
    graphs: Vec<OfGraph>,
    windows: Vec<Window>,
    earlier: Option<Earlier>,
}

/// Records of the last seconds.
#[derive(Serialize)]
struct Window {
    seconds: u64,
    records: u64,
    invalid: u64,
    rate: Option<f64>,
}

/// Invalid records that came before what is counted.
#[derive(Serialize)]
struct Earlier {
    since: String,
    invalid: Option<u64>,
}

/// Records by kind.
#[derive(Serialize)]
struct Kinds {
    kernel: Believed,
    memcpy: Believed,
    memset: Believed,
}

#[derive(Serialize)]
struct Believed {
    records: u64,
    invalid: u64,
}

#[derive(Serialize)]
struct OfGraph {
    graph: u32,
    records: u64,
    invalid: u64,
}

#[derive(Serialize)]
struct Clock {
    domain: &'static str,
    error_ns: u64,
    jumps: u64,
}

#[derive(Serialize)]
struct FirstInvalid<'a> {
    index: Option<u64>,
    start: String,
    end: String,
    class: &'static str,
    name: &'a str,
    time: String,
}

#[derive(Serialize)]
struct Notes {
    overlap: u64,
    zero_length: u64,
    out_of_order: u64,
    unasked_kind: u64,
    cut_off: u64,
    overlong: u64,
}

#[derive(Serialize)]
struct OfPool<'a> {
    device: Option<u32>,
    context: u32,
    limit: u64,
    buffers: Option<u64>,
    source: Option<&'static str>,
    state: &'static str,
    slots_total: u64,
    slots_used: u64,
    exhausts_in_seconds: Option<f64>,
    observed: Option<u64>,
    computed: Option<u64>,
    cause: Option<&'a str>,
    since: Option<String>,
    graph: Option<u32>,
    limit_too_late: bool,
    in_doubt: bool,
    seen: Option<u64>,
}

#[derive(Serialize)]
struct HostBuffers {
    size: u64,
    outstanding: u64,
    completed: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct GpuMemory {
    device: u32,
    used_bytes: Option<u64>,
    total_bytes: Option<u64>,
    source: &'static str,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the keys are a promise")]
struct Stream {
    device: Option<u32>,
    context: u32,
    stream: u32,
    busy_ns: u64,
    span_ns: u64,
    records: u64,
    /// Where all was seen in windows only: the share of the time that it is likely to be busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_share: Option<Estimated>,
}

#[derive(Serialize)]
struct Kernel<'a> {
    name: &'a str,
    mangled: &'a str,
    calls: u64,
    total_ns: u64,
    min_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    share: f64,
    /// What there is likely to be in all, where only windows are seen.
    estimate: Option<OfKernel>,
    invalid: u64,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the keys of the JSON")]
struct Graphs {
    live: Option<u64>,
    launches: Option<u64>,
    instantiated: Option<u64>,
    destroyed: Option<u64>,
    partial: bool,
    graphs_created: Option<u64>,
    graphs_destroyed: Option<u64>,
    captures: Option<u64>,
    captures_failed: Option<u64>,
    updates: Option<u64>,
    updates_failed: Option<u64>,
    list: Vec<Graph>,
}

#[derive(Serialize)]
struct Graph {
    id: u32,
    device: Option<u32>,
    context: u32,
    stream: Option<u32>,
    launches: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    nodes_seen: u64,
    nodes: Option<BTreeMap<&'static str, u32>>,
    instantiated: Option<String>,
    uploads: Option<u32>,
    alive: Option<bool>,
    per_second: f64,
    last_launch: Option<String>,
}

/// Things of one kind, counted by callbacks.
#[derive(Serialize)]
struct Objects {
    created: u64,
    destroyed: u64,
    live: Option<u64>,
    growth_per_minute: Option<f64>,
}

/// Captures that are open, and the last ones that ended, oldest first.
#[derive(Serialize)]
struct StreamCaptures {
    open: Vec<StreamCapture>,
    ended: Vec<StreamCapture>,
}

#[derive(Serialize)]
struct StreamCapture {
    stream: String,
    context: u32,
    thread: u32,
    mode: Option<&'static str>,
    begun: String,
    ended: Option<String>,
    /// The `CUresult` of its end, and in words; null while it is open and when it was abandoned.
    code: Option<u32>,
    result: Option<&'static str>,
    /// Its stream or context was destroyed while it was open.
    abandoned: bool,
    cause: Option<CaptureCause>,
    nodes: u32,
    /// Other streams that took part and did not join back; null when that is not known.
    unjoined_streams: Option<Vec<String>>,
    /// The `CUresult` of instantiating its graph; null when that was not tried.
    instantiated: Option<u32>,
}

/// The call that broke a capture.
#[derive(Serialize)]
struct CaptureCause {
    call: &'static str,
    code: u32,
    result: &'static str,
    thread: u32,
    time: String,
}

#[derive(Serialize)]
struct Finding<'a> {
    rule: &'a str,
    severity: &'static str,
    sentence: &'a str,
    evidence: &'a [String],
    next: &'a str,
    since: Option<String>,
}

#[derive(Serialize)]
struct Memcpy {
    direction: &'static str,
    calls: u64,
    bytes: u64,
    total_ns: u64,
    /// Where copies were seen in windows only: what there is likely to be in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<OfCopy>,
}

#[derive(Serialize)]
struct Latency {
    joined: u64,
    min_ns: i64,
    mean_ns: i64,
    max_ns: i64,
}

/// Kernels by the thread that launched them, where launches are recorded.
#[derive(Serialize)]
struct Caller {
    device: Option<u32>,
    context: u32,
    thread: u32,
    kernels: u64,
}

/// What NVML says the process uses, and what of it is known; null is not known.
#[derive(Serialize)]
struct Account<'a> {
    used_bytes: Option<u64>,
    device_bytes: Option<u64>,
    managed_bytes: Option<u64>,
    pinned_host_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    graphs_reserved_bytes: Option<u64>,
    pools_reserved_bytes: Option<u64>,
    cupti_buffer_bytes: Option<u64>,
    unexplained_bytes: Option<i64>,
    /// By library, where CUPTI says who asked; the most GPU memory first.
    sites: Vec<Site<'a>>,
}

/// What one library has allocated; null is unknown.
#[derive(Serialize)]
struct Site<'a> {
    library: Option<&'a str>,
    gpu_bytes: u64,
    pinned_host_bytes: u64,
    allocations: u64,
}

#[derive(Serialize)]
struct Steps<'a> {
    device: Option<u32>,
    context: u32,
    current: bool,
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
    jitter_ns: u64,
    kernels: u64,
    launches: u64,
    idle_inside_ns: u64,
    idle_between_ns: u64,
    graphs: &'a [u32],
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
