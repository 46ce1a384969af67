//! Made-up snapshots for tests: a server at work and everything that can be wrong with one.

use std::sync::Arc;

use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::{Basis, Clock, HostBuffers, Observers, PoolState, Relief, Severity, StateCode};
use gtop_protocol::{Kind, KindSet, Validity};

use crate::model::sampling::Estimate;
use crate::model::slices::{Slice, Slices};
use crate::model::snapshot::{
    Allocated, Bar, Believed, CopyRow, Course, Cupti, Detail, Details, Device, DeviceMemory, Event,
    FirstInvalid, GraphRow, GraphTotals, GraphsView, Identity, KernelEstimate, KernelName, KernelRow, Kinds,
    Lane, LaneKey, LaunchingThread, Link, NODE_TYPES, NodeRow, NoteCounts, Pool, Process, ProcessMemory,
    Records, Sampling, Snapshot, Source, SourceKind, Steps, ValidityStats,
};

/// 17:20:41 UTC on some day, nanoseconds.
pub(super) const NOW: u64 = 1_795_886_441_000_000_000;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Short and full names, median in nanoseconds.
const KERNELS: [(&str, &str, u64); 9] = [
    (
        "flash_fwd_sm90<64,128,128,bf16>",
        "void flash::flash_fwd_sm90_kernel<flash::FlashFwdSm90<64, 128, 128, cutlass::bfloat16_t>>(Params)",
        58_200,
    ),
    ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "nvjet_tst_192x8_64x8_4x1_v_bz_TNT", 31_500),
    (
        "FlashAttnFwdCombine<8,128,bf16>",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<8, 128, cutlass::bfloat16_t>>(Params)",
        14_100,
    ),
    ("splitKreduce_kernel<32,16>", "void cublasLt::splitKreduce_kernel<32, 16, int, float>(Params)", 12_800),
    ("triton_red_fused_add_rms_norm_0", "triton_red_fused_add_rms_norm_0", 9_000),
    ("triton_poi_fused_mul_silu_slice_1", "triton_poi_fused_mul_silu_slice_1", 7_700),
    (
        "reshape_and_cache_flash_kernel",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, 0>(Params)",
        4_400,
    ),
    (
        "vectorized_elementwise_kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)",
        1_900,
    ),
    (
        "vectorized_elementwise_kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
        1_700,
    ),
];
const COUNT: usize = 61;

fn name(i: usize) -> Arc<KernelName> {
    let (short, full) = match KERNELS.get(i) {
        Some((short, full, _)) => ((*short).to_owned(), (*full).to_owned()),
        None => (
            format!("triton_poi_fused_{i}_view_transpose"),
            format!("triton_poi_fused_{i}_view_transpose(float*)"),
        ),
    };
    Arc::new(KernelName { mangled: full.clone(), full, short })
}

fn median(i: usize) -> u64 {
    KERNELS.get(i).map_or(1_500, |(_, _, median)| *median)
}

fn kernels() -> Arc<[KernelRow]> {
    let calls = |i: usize| if i < 7 { 396_000 - i as u64 * 1_000 } else { 30_600 / (i as u64 - 5) };
    let all: u64 = (0..COUNT).map(|i| calls(i) * median(i)).sum();
    (0..COUNT)
        .map(|i| {
            let total_ns = calls(i) * median(i);
            let share = total_ns as f64 / all as f64;
            KernelRow {
                estimate: None,
                id: i as u32,
                name: name(i),
                calls: calls(i),
                invalid: 0,
                windows: [[0; 2]; 3],
                overlong: 0,
                total_ns,
                min_ns: median(i) * 9 / 10,
                p50_ns: median(i),
                p99_ns: median(i) * 6 / 5,
                max_ns: median(i) * 3,
                share,
                per_second: calls(i) as f64 / 60.0,
                trend: (0..12).map(|t| (share * (1.0 + 0.1 * f64::from(t % 3))) as f32).collect(),
                bars: bars(median(i), calls(i)),
            }
        })
        .collect()
}

/// Most durations near the median, some a little longer, a few much longer.
fn bars(median: u64, calls: u64) -> Arc<[Bar]> {
    let share = [(16, 2), (17, 10), (18, 50), (19, 25), (20, 8), (22, 3), (40, 1), (54, 1)];
    let bar = |(sixteenths, percent)| {
        let from = median * sixteenths / 18;
        Bar { from, to: from + median / 18 + 1, count: calls * percent / 100 }
    };
    share.into_iter().map(bar).collect()
}

/// What ran in graph 41, and in one that is seldom launched.
fn by_graph() -> Arc<[KernelRow]> {
    let rows = kernels();
    let row = |graph: u32, part: u64| {
        let name = format!("graph {graph}");
        let graphs = rows.iter().take(7);
        KernelRow {
            id: graph,
            name: Arc::new(KernelName { mangled: name.clone(), full: name.clone(), short: name }),
            calls: graphs.clone().map(|row| row.calls / part).sum(),
            total_ns: graphs.map(|row| row.total_ns / part).sum(),
            share: 0.9 / part as f64,
            min_ns: 4_000,
            p50_ns: 12_800,
            p99_ns: 71_000,
            max_ns: 174_600,
            ..rows[0].clone()
        }
    };
    [row(41, 1), row(17, 50)].into()
}

fn details() -> Details {
    let kernel = |i: usize| Detail {
        name_id: i as u32,
        name: name(i),
        grid: [132, 1 + i as u32 % 3, 1],
        block: [384, 1, 1],
        cluster: [0; 3],
        registers: 168,
        shared: [1024, 200_704],
        bytes: None,
        graph: if i < 7 { 41 } else { 0 },
        graph_node: if i < 7 { 77 + i as u64 } else { 0 },
    };
    let other = |name_id: u32, short: &str, bytes: u64| Detail {
        name_id,
        name: Arc::new(KernelName { mangled: short.into(), full: short.into(), short: short.into() }),
        grid: [0; 3],
        block: [0; 3],
        cluster: [0; 3],
        registers: 0,
        shared: [0; 2],
        bytes: Some(bytes),
        graph: 0,
        graph_node: 0,
    };
    let mut all: Vec<Detail> = (0..COUNT).map(kernel).collect();
    all.push(other(1_000_001, "HtoD", 65_536));
    all.push(other(1_000_002, "DtoH", 4_096));
    all.push(other(1_000_003, "memset", 512));
    all.push(Detail { graph: 41, bytes: None, ..other(1_000_004, "graph 41", 0) });
    Details::new(vec![all.into()])
}

/// Milliseconds of history on the lanes.
const HISTORY: u64 = 100;
/// One step of the server, nanoseconds.
const STEP: u64 = 4_310_000;

/// A lane of records of `one` nanoseconds or so with gaps of `gap` or so.
fn lane(key: LaneKey, seed: u64, detail: impl Fn(&mut Dice) -> u32, one: u64, gap: u64) -> Lane {
    let mut dice = Dice(seed);
    let (from, to) = (NOW - HISTORY * 1_000_000, NOW);
    let mut slices = Vec::new();
    let (mut at, mut busy) = (from, 0);
    while at < to {
        let detail = detail(&mut dice);
        let length = if one == 0 { median(detail as usize) } else { one / 2 + dice.below(one) };
        let end = (at + length).min(to);
        slices.push(Slice { start: at, end, detail, correlation: slices.len() as u32 });
        busy += end - at;
        at = end + 100 + dice.below(gap);
    }
    let slices: Vec<Arc<[Slice]>> = slices.chunks(1024).map(Into::into).collect();
    Lane { key, busy: busy as f64 / (to - from) as f64, since: 0, slices: Slices::new(slices) }
}

fn graphs(key: LaneKey) -> Lane {
    let launches = HISTORY * 1_000_000 / STEP;
    let slices: Vec<Slice> = (0..launches)
        .map(|i| {
            let start = NOW - (launches - i) * STEP;
            Slice { start, end: start + STEP * 9 / 10, detail: COUNT as u32 + 3, correlation: i as u32 }
        })
        .collect();
    Lane { key, busy: 0.9, since: 0, slices: Slices::new(vec![slices.into()]) }
}

fn lanes(device: u32) -> Vec<Lane> {
    let seed = u64::from(device) * 100;
    let stream = |stream| LaneKey::Stream { device, context: 1, stream };
    let copy = |direction| LaneKey::Copy { device, direction };
    vec![
        lane(stream(7), seed + 1, |dice| dice.below(7) as u32, 0, 400),
        lane(stream(13), seed + 2, |dice| 7 + dice.below(20) as u32, 20_000, 200_000),
        lane(stream(20), seed + 3, |dice| 30 + dice.below(3) as u32, 9_000, 900_000),
        lane(copy(1), seed + 4, |_| COUNT as u32, 30_000, 1_500_000),
        lane(copy(2), seed + 5, |_| COUNT as u32 + 1, 12_000, 1_200_000),
        lane(LaneKey::Memset { device }, seed + 6, |_| COUNT as u32 + 2, 3_000, 2_500_000),
        graphs(LaneKey::Graphs { device, context: 1, stream: 7 }),
    ]
}

/// Graphs as an early start shows them.
fn graphs_view() -> GraphsView {
    let row = |i: u64| {
        let mut nodes = [0; NODE_TYPES];
        (nodes[0], nodes[1], nodes[2]) = (337 - i as u32, 2, 1);
        GraphRow {
            id: 41 + 3 * i as u32,
            device: Some(0),
            context: 1,
            stream: Some(7),
            created: Some(NOW - (140 - 2 * i) * 1_000_000_000),
            thread: Some(851),
            source: Some(40 + 3 * i as u32),
            alive: true,
            launches: 40_u64.checked_div(i).unwrap_or(48_000),
            per_second: if i == 0 { 232.0 } else { 0.0 },
            last: Some(NOW),
            p50_ns: STEP * 9 / 10 - i * 80_000,
            p99_ns: STEP - i * 80_000,
            seen_nodes: 337,
            nodes_by_type: Some(nodes),
            updates: Some((0, 0)),
            shares: (0..4).map(|kernel| (name(kernel), 28, 0.314 / (1 + kernel) as f64)).collect(),
            nodes: (0..6)
                .map(|index| NodeRow {
                    index,
                    name: name(index as usize),
                    is_kernel: true,
                    ns: median(index as usize),
                })
                .collect(),
            ..GraphRow::default()
        }
    };
    GraphsView {
        observers: Some(Observers {
            on: 1,
            whole: 1,
            calls: 96_000,
            calls_ns: 9_600_000,
            contexts: 1,
            streams: 24,
            modules: 61,
            graphs: 53,
            graphs_destroyed: 53,
            execs: 53,
            execs_destroyed: 2,
            captures: 53,
            captures_ended: 53,
            launches: 48_211,
            ..Observers::default()
        }),
        rows: (0..12).map(row).collect(),
        all: 51,
        ..GraphsView::default()
    }
}

fn cupti(version: u32) -> Cupti {
    let version = CuptiVersion(version);
    Cupti {
        version,
        path: "/usr/lib/python3/site-packages/nvidia/cuda_cupti/lib/libcupti.so.13".to_owned(),
        interface: 1,
        verdict: version.verdict(),
        reason: version.reason(),
    }
}

fn server(pid: u32, name: &str) -> Process {
    let mut validity =
        ValidityStats { rate_total: Some(0.0), rate_windows: [Some(0.0); 3], ..ValidityStats::default() };
    validity.total[0] = 2_380_275;
    validity.windows = [[110_000, 0, 0, 0, 0, 0, 0, 0, 0]; 3];
    Process {
        identity: Arc::new(Identity {
            pid,
            name: name.to_owned(),
            command: "vllm serve Qwen2.5-1.5B".to_owned(),
            shim_version: "0.1.0".to_owned(),
            ..Identity::default()
        }),
        link: Link::Up,
        cupti: Some(cupti(130_001)),
        state: StateCode::Armed,
        since: NOW - 159_000_000_000,
        watchers: 1,
        subscribed: true,
        first_call_ns: Some(62_000_000),
        kinds: Kinds { enabled: KindSet::SAFE, asked: KindSet::SAFE, ..Kinds::default() },
        records: Records {
            delivered: 2_380_275,
            shown: 2_380_275,
            kernel: 2_300_000,
            memcpy: 80_000,
            memset: 275,
            per_second: 72_140.0,
            ..Records::default()
        },
        validity,
        notes: NoteCounts { overlap: 1_204, ..NoteCounts::default() },
        pools: vec![Pool {
            device: Some(0),
            context: 1,
            limit: 250,
            computed: Some(3),
            state: PoolState::Safe,
            slots_total: 25_000_000,
            ..Pool::default()
        }],
        host_buffers: Some(HostBuffers {
            size: 262_144,
            outstanding: 2,
            completed: 9_120,
            bytes: 16 * MIB,
            callback_ns: 51_000_000,
            cpu_ns: 390_000_000,
            memory: 24 * MIB,
            ..HostBuffers::default()
        }),
        devices: vec![0],
        kernels: kernels(),
        steps: vec![Steps {
            device: Some(0),
            context: 1,
            current: true,
            count: 13_921,
            p50_ns: STEP,
            p99_ns: STEP * 6 / 5,
            jitter_ns: STEP / 40,
            kernels: 362,
            launches: 1,
            idle_inside_ns: STEP / 50,
            idle_between_ns: STEP / 8,
            graphs: vec![41],
        }],
        by_graph: by_graph(),
        graphs: GraphTotals {
            live: Some(51),
            launches: Some(48_211),
            instantiated: Some(53),
            destroyed: Some(2),
        },
        graphs_view: graphs_view(),
        copies: vec![CopyRow {
            direction: "HtoD",
            calls: 40_000,
            bytes: GIB,
            total_ns: 1_200_000_000,
            estimate: None,
        }],
        lanes: lanes(0),
        details: details(),
        ..Process::default()
    }
}

fn device(index: u32) -> Device {
    Device {
        index,
        uuid: format!("GPU-00000000-0000-0000-0000-00000000000{index}"),
        name: "NVIDIA H200".to_owned(),
        age: 0.4,
        memory_total: Some(150_110_011_392),
        memory_used: Some(46_030 * MIB),
        memory_reserved: Some(600 * MIB),
        gpu_percent: Some(97),
        watts: Some(412.0),
        sm_mhz: Some(1_980),
        memory_mhz: Some(3_201),
        celsius: Some(54),
        history: (0..8).map(|t| (30 + 2 * t) * GIB).collect(),
        ..Device::default()
    }
}

fn memory(device: u32, pid: u32, name: &str, used: Option<u64>, watched: bool) -> ProcessMemory {
    let per_minute = used.map(|_| 0);
    ProcessMemory { device, pid, name: name.to_owned(), used, per_minute, watched }
}

fn event(seconds_ago: u64, severity: Severity, topic: &str, text: &str) -> Event {
    let time = NOW - seconds_ago * 1_000_000_000;
    Event { time, severity, pid: Some(844), topic: topic.to_owned(), text: text.to_owned() }
}

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
        source: Source { kind: SourceKind::Live, label: "pid 844".to_owned(), link: Link::Up, damage: None },
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
        Some(Allocated { device, managed, pinned, peak: 43_008 * MIB, count: 812, unknown_frees: 0 });
    process.graphs_view.memory = vec![DeviceMemory {
        graph_used: 512 * MIB,
        graph_reserved: 768 * MIB,
        pool_used: 96 * MIB,
        pool_reserved: 128 * MIB,
        ..DeviceMemory::default()
    }];
    process.course =
        Some(Course { baseline: 43_700 * MIB, peak: 44_100 * MIB, per_minute: Some(8 << 20), goes_on: true });
    let thread = |context, thread, kernels| LaunchingThread { device: Some(0), context, thread, kernels };
    process.threads = vec![thread(1, 4_711, 2_287_000), thread(1, 4_712, 12_000), thread(2, 4_712, 1_000)];
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
            per_second: about(row.per_second, part),
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
        index: 25_000_001,
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
        index: 25_010_000,
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
        index: 1_204_332,
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
