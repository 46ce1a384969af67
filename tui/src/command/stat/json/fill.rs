//! What each key is filled with.

mod graphs;

use gtop_protocol::Validity;
use gtop_protocol::clock::Domain;

use super::graphs::Graphs;
use super::sampled::{Estimated, OfCopy, OfKernel, Sampling, percent};
use super::trust::{Believed, Clock, Earlier, FirstInvalid, Kinds, Notes, OfGraph, OfPool, Trust, Window};
use super::work::{Account, Caller, Kernel, Latency, Memcpy, Site, Steps, Stream};
use super::{Cupti, Device, GpuMemory, HostBuffers, Lost, OfProcess, Records, Shim};
use crate::model::snapshot::{self as model, Pool, Process, Snapshot, SourceKind};
use graphs::{failed, finding, graph, objects, stream_captures};

/// Which of the windows is `rate_window`: the one of ten seconds.
const WINDOW: usize = 1;

impl<'a> OfProcess<'a> {
    pub(super) fn of(process: &'a Process, snapshot: &'a Snapshot) -> Self {
        let known = |text: &'a str| (!text.is_empty()).then_some(text);
        let records = &process.records;
        let of_seen = of_seen(process);
        let graphs = &process.graphs;
        let seen = process.graphs_view.observers;
        // Raw buffers, and a recording made of them, need no state, and what was asked for when it was made is not in it.
        let is_raw = snapshot.source.kind == SourceKind::File || process.identity.pid == 0;
        let has_state = process.heard.state || !(is_raw || process.unseen);
        Self {
            pid: (process.identity.pid != 0).then_some(process.identity.pid),
            name: known(&process.identity.name),
            devices: process.devices.iter().map(|index| device(process, snapshot, *index)).collect(),
            cupti: process.cupti.as_ref().map(|cupti| Cupti {
                version: cupti.version.0,
                path: known(&cupti.path),
                interface: [None, Some("v1"), Some("v2")]
                    .get(usize::from(cupti.interface))
                    .copied()
                    .flatten(),
                subscribed: process.subscribed,
                verdict: cupti.verdict.name(),
                reason: cupti.reason,
            }),
            state: has_state.then_some(process.state.name()),
            reason: process.reason.as_deref().or_else(|| process.unreached()).or_else(|| full(process)),
            kinds: process
                .heard
                .kinds
                .then(|| process.kinds.enabled.iter().map(gtop_protocol::Kind::name).collect()),
            budget_percent: process
                .sampling
                .as_ref()
                .filter(|sampling| sampling.budget_ppm > 0)
                .map(|sampling| percent(u64::from(sampling.budget_ppm))),
            sampling: process.sampling.as_ref().map(Sampling::of),
            records: Records {
                delivered: of_seen(records.delivered),
                shown: of_seen(records.shown),
                kernel: of_seen(records.kernel),
                memcpy: of_seen(records.memcpy),
                memset: of_seen(records.memset),
                other: of_seen(records.other),
                lost: Lost {
                    cupti: of_seen(records.lost_cupti),
                    queue_full: of_seen(records.lost_queue_full),
                    unknown_kind: of_seen(records.lost_unknown_kind),
                    slow_viewer: of_seen(records.lost_slow_viewer),
                    unread_bytes: of_seen(records.unread_bytes),
                },
            },
            validity: trust(process),
            notes: Notes {
                overlap: of_seen(process.notes.overlap),
                zero_length: of_seen(process.notes.zero_length),
                out_of_order: of_seen(process.notes.out_of_order),
                unasked_kind: of_seen(process.notes.unasked_kind),
                cut_off: of_seen(process.notes.cut_off),
                overlong: of_seen(process.notes.overlong),
            },
            pools: process.pools.iter().map(pool).collect(),
            host_buffers: process.host_buffers.map(|buffers| HostBuffers {
                size: buffers.size,
                outstanding: buffers.outstanding,
                completed: buffers.completed,
                bytes: buffers.bytes,
            }),
            shim: process.host_buffers.map(|buffers| Shim {
                cpu_ns: buffers.cpu_ns,
                callback_ns: buffers.callback_ns,
                memory_bytes: buffers.memory,
                cpu_share: process.cost.map(|cost| cost.cpu),
                callback_share: process.cost.map(|cost| cost.callbacks),
            }),
            gpu_memory: gpu_memory(process, snapshot),
            streams: streams(process),
            kernels: kernels(process),
            graphs: Graphs {
                live: graphs.live,
                launches: graphs.launches,
                instantiated: graphs.instantiated,
                destroyed: graphs.destroyed,
                partial: seen.is_none_or(|seen| !seen.is_complete()),
                graphs_created: seen.map(|seen| seen.graphs),
                graphs_destroyed: seen.map(|seen| seen.graphs_destroyed),
                captures: seen.map(|seen| seen.captures),
                captures_failed: seen.map(|seen| seen.captures_failed),
                updates: seen.map(|seen| seen.updates),
                updates_failed: seen.map(|seen| seen.updates_failed),
                list: process.graphs_view.rows.iter().map(graph).collect(),
                captures_per_minute: process.graphs_view.captures_per_minute,
                shapes: process.graphs_view.shapes.map(|shapes| shapes as u64),
            },
            memcpy: memcpy(process),
            findings: process.findings.iter().map(finding).collect(),
            steps: process.steps.iter().map(steps).collect(),
            clock: clock(process),
            launch_latency: process.latency.map(|latency| Latency {
                joined: latency.joined,
                min_ns: latency.min_ns,
                mean_ns: latency.mean_ns,
                max_ns: latency.max_ns,
                slightly_before: latency.slightly_before,
                well_before: latency.well_before,
            }),
            memory_account: account(process),
            threads: threads(process),
            objects: seen.map(|_| objects(process)),
            stream_captures: seen.map(|_| stream_captures(process)),
            halted: process.halt.and_then(|halt| halt.cause.name()),
            unheard_seconds: process.unheard,
            failures: seen.map(|_| process.graphs_view.failures.iter().map(failed).collect()),
        }
    }
}

/// Why the state of a process says too little of it whose pool is used up: records come, and tell nothing of graphs.
fn full(process: &Process) -> Option<&'static str> {
    process.is_full().then_some(
        "CUPTI's device buffers are used up: kernels of graphs go unseen, others come without times",
    )
}

/// What a count of records of this process is worth: nothing is known of one that could not be seen.
fn of_seen(process: &Process) -> impl Fn(u64) -> Option<u64> + Copy {
    let seen = !process.unseen;
    move |count| seen.then_some(count)
}

fn device<'a>(process: &Process, snapshot: &'a Snapshot, index: u32) -> Device<'a> {
    let device = snapshot.device_of(process, index);
    Device {
        index,
        uuid: device.map(|device| device.uuid.as_str()),
        name: device.map(|device| device.name.as_str()),
    }
}

fn trust(process: &Process) -> Trust<'_> {
    let validity = &process.validity;
    let of_seen = of_seen(process);
    let of = |class: Validity| of_seen(validity.total[class as usize]);
    let before_launch = of(Validity::BeforeLaunch).filter(|count| process.latency.is_some() || *count > 0);
    Trust {
        valid: of(Validity::Valid),
        zero: of(Validity::Zero),
        zero_start: of(Validity::ZeroStart),
        zero_end: of(Validity::ZeroEnd),
        inverted: of(Validity::Inverted),
        sentinel: of(Validity::Sentinel),
        foreign_clock: of(Validity::ForeignClock),
        future: of(Validity::Future),
        before_launch,
        rate_total: validity.rate_total,
        rate_window: validity.rate_windows[WINDOW],
        first_invalid: validity.first_invalid.as_ref().map(first),
        first_again: validity.first_again.as_ref().map(first),
        kinds: {
            let believed = |[records, invalid]: [u64; 2]| Believed {
                records: of_seen(records),
                invalid: of_seen(invalid),
            };
            let [kernel, memcpy, memset] = validity.kinds.map(|kind| believed(kind.total));
            Kinds { kernel, memcpy, memset }
        },
        graphs: validity
            .graphs
            .iter()
            .map(|(graph, counts)| {
                let [records, invalid] = counts.total;
                OfGraph { graph: *graph, records, invalid }
            })
            .collect(),
        windows: windows(validity, of_seen),
        earlier: validity
            .earlier
            .map(|earlier| Earlier { since: earlier.since.to_string(), invalid: earlier.count }),
    }
}

fn windows(validity: &model::ValidityStats, of_seen: impl Fn(u64) -> Option<u64>) -> Vec<Window> {
    let windows = model::WINDOWS.into_iter().zip(&validity.windows).zip(&validity.rate_windows);
    let window = |((seconds, classes), rate): ((u64, &[u64; _]), &Option<f64>)| {
        let records = classes.iter().sum::<u64>();
        let invalid = records - classes[Validity::Valid as usize];
        Window { seconds, records: of_seen(records), invalid: of_seen(invalid), rate: *rate }
    };
    windows.map(window).collect()
}

fn first(first: &model::FirstInvalid) -> FirstInvalid<'_> {
    FirstInvalid {
        index: first.index,
        start: first.start.to_string(),
        end: first.end.to_string(),
        class: first.class.name(),
        name: &first.name,
        time: first.time.to_string(),
    }
}

fn clock(process: &Process) -> Option<Clock> {
    let pair = process.clock.as_ref()?;
    Some(Clock { domain: Domain::of(pair).name(), error_ns: pair.error, jumps: process.clock_jumps })
}

fn pool(pool: &Pool) -> OfPool<'_> {
    let (buffers, source) = match (pool.observed, pool.computed) {
        (Some(observed), _) => (Some(observed), Some("observed")),
        (None, Some(computed)) => (Some(computed), Some("computed")),
        (None, None) => (None, None),
    };
    OfPool {
        device: pool.device,
        context: pool.context,
        limit: pool.limit,
        buffers,
        source,
        state: pool.state.name(),
        slots_total: pool.slots_total,
        slots_used: pool.slots_used,
        exhausts_in_seconds: pool.exhausts_in,
        observed: pool.observed,
        computed: pool.computed,
        cause: pool.cause.as_deref(),
        since: pool.since.map(|since| since.to_string()),
        graph: pool.graph,
        limit_too_late: pool.limit_too_late,
        in_doubt: pool.in_doubt,
        seen: pool.seen,
        exhausts_in_seconds_low: pool.exhausts_earliest,
        exhausts_in_seconds_high: pool.exhausts_latest,
    }
}

fn gpu_memory(process: &Process, snapshot: &Snapshot) -> Vec<GpuMemory> {
    let total = |index| snapshot.devices.iter().find(|device| device.index == index)?.memory_total;
    let rows = process.gpu_memory.iter().map(|row| GpuMemory {
        device: row.device,
        used_bytes: row.used,
        total_bytes: total(row.device),
        source: "nvml",
    });
    rows.collect()
}

fn streams(process: &Process) -> Vec<Stream> {
    let rows = process.streams.iter().map(|row| Stream {
        device: row.device,
        context: row.context,
        stream: row.stream,
        busy_ns: row.busy_ns,
        span_ns: row.span_ns,
        records: row.records,
        busy_share: row.busy_share.map(Estimated::from),
    });
    rows.collect()
}

fn kernels(process: &Process) -> Vec<Kernel<'_>> {
    // A kernel of which no record can be believed has no shortest time.
    let rows = process.kernels.iter().map(|row| {
        let known = |ns| (row.calls > 0).then_some(ns);
        Kernel {
            name: &row.name.full,
            mangled: &row.name.mangled,
            calls: row.calls,
            total_ns: row.total_ns,
            min_ns: known(row.min_ns),
            p50_ns: known(row.p50_ns),
            p99_ns: known(row.p99_ns),
            max_ns: known(row.max_ns),
            share: row.share,
            estimate: row.estimate.map(|estimate| OfKernel {
                calls: estimate.calls.into(),
                per_second: estimate.per_second.into(),
                total_ns: estimate.total_ns.into(),
                share: estimate.share.into(),
            }),
            invalid: row.invalid,
        }
    });
    rows.collect()
}

fn account(process: &Process) -> Account<'_> {
    let account = process.memory_account();
    let on_devices = [account.device, account.pool, account.mapped].into_iter().flatten();
    Account {
        used_bytes: account.used,
        device_bytes: account.device.map(|_| on_devices.fold(0, u64::saturating_add)),
        managed_bytes: account.managed,
        pinned_host_bytes: account.pinned,
        peak_bytes: account.peak,
        graphs_reserved_bytes: account.graphs_reserved,
        pools_reserved_bytes: account.pools.map(|[reserved, _]| reserved),
        cupti_buffer_bytes: account.cupti,
        unexplained_bytes: account.unexplained,
        pool_bytes: account.pool,
        mapped_bytes: account.mapped,
        sites: process
            .sites
            .iter()
            .map(|site| Site {
                library: site.library.as_deref(),
                gpu_bytes: site.gpu,
                pinned_host_bytes: site.pinned,
                allocations: site.count,
            })
            .collect(),
    }
}

fn steps(steps: &model::Steps) -> Steps<'_> {
    Steps {
        device: steps.device,
        context: steps.context,
        current: steps.current,
        count: steps.count,
        p50_ns: steps.p50_ns,
        p99_ns: steps.p99_ns,
        jitter_ns: steps.jitter_ns,
        kernels: steps.kernels,
        launches: steps.launches,
        idle_inside_ns: steps.idle_inside_ns,
        idle_between_ns: steps.idle_between_ns,
        graphs: &steps.graphs,
    }
}

fn threads(process: &Process) -> Vec<Caller> {
    let rows = process.threads.iter().map(|row| Caller {
        device: row.device,
        context: row.context,
        thread: row.thread,
        kernels: row.kernels,
    });
    let mut rows: Vec<Caller> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.kernels));
    rows
}

fn memcpy(process: &Process) -> Vec<Memcpy> {
    let rows = process.copies.iter().map(|row| Memcpy {
        direction: row.direction,
        calls: row.calls,
        bytes: row.bytes,
        total_ns: row.total_ns,
        estimate: row.estimate.map(|estimate| OfCopy {
            calls: estimate.calls.into(),
            bytes: estimate.bytes.into(),
            total_ns: estimate.total_ns.into(),
        }),
    });
    rows.collect()
}
