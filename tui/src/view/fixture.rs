//! Made-up snapshots for tests: a server at work and everything that can be wrong with one.

mod kernels;
mod lanes;
mod server;

use std::sync::Arc;

use gtop_protocol::message::{Basis, Clock, PoolState, Relief, Severity, StateCode};
use gtop_protocol::{Kind, KindSet, Validity};

use crate::model::sampling::Estimate;
use crate::model::slices::{Slice, Slices};
use crate::model::snapshot::{
    Allocated, Believed, Course, DeviceMemory, FirstInvalid, KernelEstimate, KernelRow, Kinds, LaneKey,
    LaunchingThread, Link, MemoryOverTime, Pool, Records, Samples, Sampling, Site, Snapshot, Source,
    SourceKind, ValidityStats,
};
use kernels::KERNELS;
use lanes::lanes;
use server::{device, event, memory, server};

/// 17:20:41 UTC on some day, nanoseconds.
pub(super) const NOW: u64 = 1_795_886_441_000_000_000;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A server at work, watched from the start of the minute.
pub(super) fn vllm() -> Snapshot {
    let mut device = device(0);
    device.processes = vec![
        memory(0, 844, "EngineCore", Some(43_720 * MIB), true),
        memory(0, 1_203, "python", Some(2_310 * MIB), false),
    ];
    Snapshot {
        time: NOW,
        seconds: 60.0,
        source: Source {
            kind: SourceKind::Live,
            label: "pid 844".to_owned(),
            link: Link::Up,
            ..Source::default()
        },
        processes: vec![server(844, "EngineCore")],
        devices: vec![device],
        device_note: None,
        events: vec![
            event(159, Severity::Info, "armed", "armed late in 62 ms; kernel, memcpy and memset are on"),
            event(
                43,
                Severity::Warning,
                "kinds",
                "memcpy must stay on: graph 17 copies device to device, and CUPTI 13.0.85 never frees the \
                 buffers of such nodes",
            ),
        ]
        .into(),
        recording: None,
        replay: None,
        output: None,
    }
}

/// The same server with its allocations and launches recorded, after an early start.
pub(super) fn accounted() -> Snapshot {
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    let own = snapshot.devices[0].processes[0].clone();
    process.gpu_memory = vec![own];
    let (device, managed, pinned) = (40_960 * MIB, 256 * MIB, 1_024 * MIB);
    process.allocated =
        Some(Allocated { device, managed, pinned, peak: 43_008 * MIB, count: 812, ..Allocated::default() });
    let site = |library: &str, gpu, pinned, count| Site {
        library: (!library.is_empty()).then(|| library.to_owned()),
        gpu,
        pinned,
        count,
    };
    process.sites = vec![
        site(
            "/opt/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so",
            40_704 * MIB,
            1_024 * MIB,
            780,
        ),
        site("/usr/lib/x86_64-linux-gnu/libnccl.so.2", 448 * MIB, 0, 24),
        site("", 64 * MIB, 0, 8),
    ];
    process.graphs_view.memory = vec![DeviceMemory {
        graph_used: 512 * MIB,
        graph_reserved: 768 * MIB,
        pool_used: 96 * MIB,
        pool_reserved: 128 * MIB,
        ..DeviceMemory::default()
    }];
    process.course =
        Some(Course { baseline: 43_700 * MIB, peak: 44_100 * MIB, per_minute: Some(8 << 20), goes_on: true });
    // Three minutes in which the cache is allocated at once and then a little comes every few seconds.
    let second = |t: u64| NOW - (170 - t) * 1_000_000_000;
    let grows = |from: u64, cache: u64| {
        move |t| (second(t), if t < 40 { from } else { from + cache + (t - 40) / 8 * 4 * MIB })
    };
    let samples: Samples = (0..=170).map(grows(5_000 * MIB, 38_656 * MIB)).collect();
    process.memory_over_time = vec![MemoryOverTime { device: 0, samples }];
    process.explained_over_time = (60..=170).map(grows(3_316 * MIB, 38_656 * MIB)).collect();
    snapshot.devices[0].history = (0..=170).map(grows(7_310 * MIB, 38_656 * MIB)).collect();
    let thread = |context, thread, kernels| LaunchingThread { device: Some(0), context, thread, kernels };
    process.threads = vec![thread(1, 4_711, 2_287_000), thread(1, 4_712, 12_000), thread(2, 4_712, 1_000)];
    snapshot
}

/// The same server in the middle of it: records of some streams are still to come, and some were lost.
pub(super) fn lagging() -> Snapshot {
    const MS: u64 = 1_000_000;
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    process.until = NOW;
    process.delivered = NOW - 16 * MS;
    process.lost = [(NOW - 60 * MS, NOW - 47 * MS)].into();
    for (lane, late) in process.lanes.iter_mut().zip([9, 3, 0, 12, 5, 0, 9]) {
        let came = |slice: &&Slice| {
            let end =
                if matches!(lane.key, LaneKey::Memset { .. }) { NOW - 30 * MS } else { NOW - late * MS };
            slice.end <= end
        };
        let slices: Vec<Slice> = lane.slices.iter().filter(came).copied().collect();
        lane.slices = Slices::new(slices.chunks(Slices::CHUNK).map(Into::into).collect());
    }
    snapshot
}

/// The same server at a budget of one percent: three of its windows lie in the time that is shown.
pub(super) fn sampled() -> Snapshot {
    const MS: u64 = 1_000_000;
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    let about =
        |value: f64, part: f64| Estimate { value, low: value * (1.0 - part), high: value * (1.0 + part) };
    let ago = |ms: u64| NOW - ms * MS;
    let windows =
        vec![(ago(96), ago(88)), (ago(72), ago(61)), (ago(47), ago(38)), (ago(30), ago(21)), (ago(9), 0)];
    for (i, row) in Arc::make_mut(&mut process.kernels).iter_mut().enumerate() {
        let part = 0.02 + 0.01 * i as f64;
        row.estimate = Some(KernelEstimate {
            calls: about(row.calls as f64 * 40.0, part),
            per_second: about(row.per_second.unwrap_or_default(), part),
            total_ns: about(row.total_ns as f64 * 40.0, part),
            share: about(row.share, part),
        });
    }
    for lane in &mut process.lanes {
        if matches!(lane.key, LaneKey::Stream { .. } | LaneKey::Graphs { .. }) {
            let traced = |slice: &&Slice| {
                let holds =
                    |(begin, end): &(u64, u64)| *begin <= slice.start && (*end == 0 || slice.start < *end);
                windows.iter().any(holds)
            };
            let slices: Vec<Slice> = lane.slices.iter().filter(traced).copied().collect();
            lane.slices = Slices::new(vec![slices.into()]);
        }
    }
    process.sampling = Some(Sampling {
        budget_ppm: 10_000,
        windows: 41,
        began: 41,
        covered_ns: 1_000 * MS,
        span_ns: 60_000 * MS,
        between: KindSet::EMPTY.with(Kind::Memcpy).with(Kind::Memset),
        relief: Relief::Full,
        basis: Basis::Copies,
        loss: Some(0.21),
        price_ppm: Some(3_500),
        price_high_ppm: Some(8_100),
        window_ns: 25 * MS,
        period_ns: 1_500 * MS,
        calls: Some(about(92e6, 0.02)),
        total_ns: Some(about(38e9, 0.03)),
        rare_below: Some(179),
        recent: windows.into(),
    });
    snapshot
}

/// The same server when its pool has run out: graphs silent, eager kernels zero.
pub(super) fn exhausted() -> Snapshot {
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    process.state = StateCode::Silent;
    process.reason = Some("CUPTI's device buffers are exhausted".to_owned());
    process.kinds.enabled = KindSet::EMPTY.with(gtop_protocol::Kind::Kernel);
    process.validity.total[Validity::Zero as usize] = 266_674;
    process.validity.total[Validity::Inverted as usize] = 1;
    process.validity.total[Validity::ForeignClock as usize] = 2;
    process.validity.total[Validity::Future as usize] = 3;
    process.validity.rate_windows = [None; 3];
    process.validity.rate_total = Some(0.011);
    process.validity.first_invalid = Some(FirstInvalid {
        index: Some(25_000_001),
        time: NOW - 97_000_000_000,
        start: 0,
        end: 0,
        class: Validity::Zero,
        name: KERNELS[7].1.to_owned(),
    });
    process.pools[0] = Pool {
        computed: Some(250),
        state: PoolState::Exhausted,
        cause: Some("memcpy was off while graph 17 was replayed".to_owned()),
        slots_used: 25_000_000,
        since: Some(NOW - 400_000_000_000),
        graph: Some(17),
        ..process.pools[0].clone()
    };
    process.validity.first_again = Some(FirstInvalid {
        index: Some(25_010_000),
        time: NOW - 20_000_000_000,
        ..process.validity.first_invalid.clone().unwrap()
    });
    process.validity.history = (0..60)
        .map(|second| {
            let mut classes = [0; Validity::ALL.len()];
            classes[Validity::Valid as usize] = if second < 38 { 1_900 } else { 20 };
            classes[Validity::Zero as usize] = if second < 38 { 0 } else { 3_100 };
            classes
        })
        .collect();
    let share = |all, invalid| Believed { total: [all, invalid], windows: [[3_120, 3_100]; 3] };
    process.validity.kinds = [share(25_300_000, 266_680), Believed::default(), Believed::default()];
    process.validity.graphs = vec![(17, share(12_500_000, 12))];
    process.clock = Some(Clock {
        realtime: NOW - 4_000_000_000,
        monotonic: 9_000_000_000_000,
        boottime: 9_000_000_000_000,
        cupti: NOW - 4_000_000_000,
        error: 120,
    });
    let mut rows: Vec<KernelRow> = process.kernels.to_vec();
    rows[7].invalid = 266_674;
    rows[7].windows = [[3_100, 3_100], [31_000, 31_000], [70_000, 68_200]];
    process.kernels = rows.into();
    let mut events = snapshot.events.to_vec();
    events.push(event(
        97,
        Severity::Alarm,
        "pool",
        "CUPTI's device buffers are exhausted (250 of 250, +988 MiB). Kernel times of this process are lost \
         until it restarts. Restart it with gtop run --cupti and CUPTI 13.3 or later, or keep memcpy and memset \
         on from the start.",
    ));
    snapshot.events = events.into();
    snapshot
}

/// The pool is leaking and will be full in a while; some records were lost.
pub(super) fn leaking() -> Snapshot {
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    process.kinds.enabled = KindSet::EMPTY.with(gtop_protocol::Kind::Kernel);
    process.records.lost_queue_full = 12;
    process.records.lost_slow_viewer = 4_000;
    process.records.delivered += 4_012;
    process.validity.rate_windows = [Some(0.0), Some(0.0), Some(0.000_001_3)];
    process.validity.rate_total = Some(0.000_001_3);
    process.validity.total[Validity::Inverted as usize] = 3;
    process.validity.first_invalid = Some(FirstInvalid {
        index: Some(1_204_332),
        time: NOW - 31_000_000_000,
        start: NOW,
        end: NOW - 1,
        class: Validity::Inverted,
        name: KERNELS[0].1.to_owned(),
    });
    process.pools[0] = Pool {
        observed: Some(91),
        computed: Some(90),
        state: PoolState::Leaking,
        since: Some(NOW - 40_000_000_000),
        exhausts_in: Some(38.2),
        exhausts_earliest: Some(33.9),
        exhausts_latest: Some(43.7),
        graph: Some(17),
        ..process.pools[0].clone()
    };
    snapshot
}

/// The pool may leak: a graph's copies are not traced, and nothing told where they copy to.
pub(super) fn doubtful() -> Snapshot {
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    process.kinds.enabled = KindSet::EMPTY.with(gtop_protocol::Kind::Kernel);
    process.pools[0] = Pool {
        observed: None,
        computed: Some(91),
        state: PoolState::Unknown,
        in_doubt: true,
        since: Some(NOW - 40_000_000_000),
        exhausts_in: Some(38.2),
        graph: Some(17),
        ..process.pools[0].clone()
    };
    snapshot
}

/// Another tool holds CUPTI.
pub(super) fn busy() -> Snapshot {
    let mut snapshot = vllm();
    let process = &mut snapshot.processes[0];
    process.state = StateCode::Unavailable;
    process.reason =
        Some("busy: another tool holds CUPTI (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)".to_owned());
    process.cupti = None;
    process.kinds = Kinds::default();
    process.records = Records::default();
    process.validity = ValidityStats::default();
    process.pools.clear();
    process.host_buffers = None;
    process.kernels = Arc::default();
    process.by_graph = Arc::default();
    process.lanes.clear();
    snapshot
}

/// Connecting, and nothing else known.
pub(super) fn nothing() -> Snapshot {
    Snapshot { source: Source { label: "pid 844".to_owned(), ..Source::default() }, ..Snapshot::default() }
}

/// A server on a machine whose driver library is missing.
pub(super) fn no_nvml() -> Snapshot {
    Snapshot {
        devices: Vec::new(),
        device_note: Some("NVML is missing: libnvidia-ml.so.1 was not found".to_owned()),
        ..vllm()
    }
}

/// A server over eight devices; one device's driver is stuck, and one process's memory is unknown.
pub(super) fn eight() -> Snapshot {
    let mut snapshot = vllm();
    snapshot.devices = (0..8).map(device).collect();
    for device in &mut snapshot.devices {
        let index = device.index;
        device.age = if index == 5 { 74.0 } else { 0.4 };
        device.processes =
            vec![memory(index, 900 + index, "VLLM::Worker", Some((40 + u64::from(index)) * GIB), true)];
    }
    snapshot.devices[7].processes[0].used = None;
    snapshot.devices[7].processes[0].per_minute = None;
    snapshot.devices[3].processes[0].per_minute = Some(812 * MIB.cast_signed());
    snapshot.processes = (0..8)
        .map(|index| {
            let mut process = server(900 + index, "VLLM::Worker");
            process.devices = vec![index];
            process.lanes = if index == 0 { [lanes(0), lanes(1)].concat() } else { lanes(index) };
            process
        })
        .collect();
    snapshot
}

/// A shared machine with 208 processes on its devices, and `devices` of these.
pub(super) fn crowd(devices: u32) -> Snapshot {
    let mut snapshot = vllm();
    snapshot.devices = (0..devices).map(device).collect();
    for i in 0..208 {
        if let Some(device) = snapshot.devices.get_mut(i as usize % devices.max(1) as usize) {
            let used = Some((208 - u64::from(i)) * 37 * MIB);
            device.processes.push(memory(device.index, 5_000 + i, "python3", used, i == 100));
        }
    }
    snapshot
}

/// The server's process is gone, and the viewer tries to come back.
pub(super) fn lost() -> Snapshot {
    let mut snapshot = vllm();
    snapshot.processes[0].link = Link::Lost { since: NOW - 4_000_000_000, retries: 3 };
    snapshot
}

/// The process in this state, for telling states apart.
pub(super) fn in_state(state: StateCode) -> Snapshot {
    let mut snapshot = vllm();
    snapshot.processes[0].state = state;
    snapshot.processes[0].heard.state = true;
    snapshot
}
