//! The model as a whole, fed with frames made by hand and with the walk of real buffers.

use gtop_protocol::frame::{Frame, FrameKind, MAX_BODY, write_frame};
use gtop_protocol::message::{
    Clock, Hello, HelloFields, Kinds, Loss, Notice, Pool, State, StateCode, names, pools,
};
use gtop_protocol::record::{Copy, Family, Kernel, Memset, NO_DEVICE, Other};
use gtop_protocol::wire::{Full, Writer};
use gtop_protocol::{Kind, Notes, Validity};
use proptest::prelude::*;
use zerocopy::{Immutable, IntoBytes};

use super::snapshot::{LaneKey, Link, Snapshot, SourceKind};
use super::time::{Moment, SECOND};
use super::{Conn, Model};

const BASE: u64 = 1_764_000_000_000_000_000;

/// Makes frames of one connection.
#[derive(Default)]
struct Stream {
    seq: u64,
}

impl Stream {
    fn frame(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        self.seq += 1;
        let mut buf = vec![0; MAX_BODY];
        let len = write_frame(&mut buf, kind, self.seq, body).unwrap();
        buf.truncate(len);
        buf
    }

    fn hello(&mut self) -> Vec<u8> {
        let fields = HelloFields {
            pid: 42,
            name: b"Engine\x1bCore",
            command: b"vllm\0serve\0x",
            environment: b"RANK=3\0X",
            cupti_version: Some(130_001),
            cupti_interface: 1,
            ..Default::default()
        };
        self.frame(FrameKind::Hello, |w| Hello::new(fields).write(w))
    }

    fn records<R: IntoBytes + Immutable>(&mut self, family: Family, records: &[R]) -> Vec<u8> {
        self.frame(FrameKind::Records, |w| {
            w.u32(family as u32)?;
            w.u32(records.len() as u32)?;
            records.iter().try_for_each(|record| w.bytes(record.as_bytes()))
        })
    }

    fn kernels(&mut self, kernels: &[Kernel]) -> Vec<u8> {
        self.records(Family::Kernel, kernels)
    }

    fn kinds(&mut self, kinds: &[Kind]) -> Vec<u8> {
        let enabled = kinds.iter().map(|kind| 1 << *kind as u32).sum();
        self.frame(FrameKind::Kinds, |w| Kinds { enabled, ..Default::default() }.write(w))
    }
}

fn kernel(name: u32, start: u64, end: u64) -> Kernel {
    Kernel {
        start: start.into(),
        end: end.into(),
        name: name.into(),
        context: 1.into(),
        stream: 7.into(),
        device: 0.into(),
        ..Kernel::default()
    }
}

fn bad(validity: Validity, start: u64, end: u64) -> Kernel {
    Kernel { validity: validity as u8, ..kernel(1, start, end) }
}

fn call(correlation: u64, start: u64, end: u64) -> Other {
    Other {
        start: start.into(),
        end: end.into(),
        correlation: correlation.into(),
        cupti_kind: Kind::Runtime.cupti().into(),
        device: NO_DEVICE.into(),
        ..Other::default()
    }
}

fn at(second: u64) -> Moment {
    Moment { wall: BASE + second * SECOND, steady: second * SECOND }
}

fn model() -> (Model, Conn, Stream) {
    let mut model = Model::new(SourceKind::Live, "pid 844");
    let conn = model.add(844);
    (model, conn, Stream::default())
}

fn feed(model: &mut Model, conn: Conn, bytes: &[u8], at: Moment) {
    assert_eq!(model.apply_all(conn, bytes, at), Ok(bytes.len()));
}

/// A live model fed with these frames at one moment.
fn fed(frames: impl FnOnce(&mut Stream) -> Vec<Vec<u8>>) -> Snapshot {
    let (mut model, conn, mut stream) = model();
    for frame in frames(&mut stream) {
        feed(&mut model, conn, &frame, at(1));
    }
    model.snapshot(at(1))
}

#[test]
fn a_process_is_who_its_hello_says() {
    let snapshot = fed(|s| vec![s.hello()]);
    let process = &snapshot.processes[0];
    let identity = &process.identity;
    assert_eq!((identity.pid, identity.inner_pid), (844, Some(42)));
    assert_eq!((identity.name.as_str(), identity.command.as_str()), ("Engine␛Core", "vllm serve x"));
    assert_eq!(identity.environment, [("RANK".to_owned(), "3".to_owned())]);
    assert_eq!(process.cupti.as_ref().map(|cupti| cupti.verdict.name()), Some("defective"));
    assert_eq!(process.validity.rate_total, None, "no records, no rate");
}

#[test]
fn the_step_to_bad_records_shows_in_the_window_with_the_first_of_them() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    let good: Vec<_> = (0..10_000).map(|i| kernel(1, BASE + i * 10, BASE + i * 10 + 5)).collect();
    for second in 1..=90 {
        let count = if second == 90 { 9_476 } else { 10_000 };
        feed(&mut model, conn, &stream.kernels(&good[..count]), at(second));
    }
    let mut broken = vec![bad(Validity::Inverted, 2000, 1000)];
    broken.extend(
        (0..10_523)
            .map(|i| if i % 32 == 0 && i / 32 < 327 { good[i / 32] } else { bad(Validity::Zero, 0, 0) }),
    );
    for part in broken.chunks(1000) {
        feed(&mut model, conn, &stream.kernels(part), at(95));
    }
    let snapshot = model.snapshot(at(95));
    let (validity, process) = (&snapshot.processes[0].validity, &snapshot.processes[0]);
    let first = validity.first_invalid.as_ref().unwrap();
    assert_eq!((first.index, first.start, first.end, first.class), (899_477, 2000, 1000, Validity::Inverted));
    assert_eq!(validity.total[Validity::Inverted as usize], 1);
    assert_eq!(validity.total[Validity::Zero as usize], 10_196);
    assert!(validity.rate_windows[0].unwrap() > 0.96);
    assert!(validity.rate_total.unwrap() < 0.02);
    assert_eq!(process.kernels[0].calls, 899_476 + 327);
    assert_eq!(process.kernels[0].invalid, 10_197);
    assert_eq!(process.kernels[0].min_ns, 5);
    assert_eq!(process.span.unwrap().0, BASE);
    assert!(snapshot.events.iter().any(|event| event.topic == "invalid" && event.text.contains("#899477")));
}

#[test]
fn a_kernel_without_times_is_counted_and_not_drawn() {
    let launch = (1_615_207_264_505_000_000, 1_615_207_264_505_006_000);
    let snapshot = fed(|s| {
        let lost = Kernel { correlation: 106_123.into(), ..bad(Validity::Zero, 0, 0) };
        vec![
            s.hello(),
            s.kinds(&[Kind::Kernel, Kind::Runtime]),
            s.records(Family::Other, &[call(106_123, launch.0, launch.1)]),
            s.kernels(&[lost]),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.span, Some(launch));
    assert_eq!(process.validity.total[Validity::Zero as usize], 1);
    assert!(process.lanes.is_empty() && process.streams.is_empty());
    assert_eq!((process.records.kernel, process.records.other, process.records.shown), (1, 1, 2));
}

#[test]
fn a_kernel_a_little_before_its_launch_is_valid_and_one_long_before_is_not() {
    let (launch, kernels) = ((10_000_000, 10_003_000), [(9_999_400, 10_010_000), (8_000_000, 8_001_000)]);
    for kernel_first in [false, true] {
        let snapshot = fed(|s| {
            let kernels =
                kernels.map(|(start, end)| Kernel { correlation: 1.into(), ..kernel(1, start, end) });
            let (hello, kinds) = (s.hello(), s.kinds(&[Kind::Kernel, Kind::Runtime]));
            let mut frames =
                vec![s.records(Family::Other, &[call(1, launch.0, launch.1)]), s.kernels(&kernels)];
            if kernel_first {
                frames.reverse();
            }
            [vec![hello, kinds], frames].concat()
        });
        let process = &snapshot.processes[0];
        let latency = process.latency.unwrap();
        assert_eq!(
            (latency.min_ns, latency.joined, latency.slightly_before, latency.well_before),
            (-600, 1, 1, 1)
        );
        assert_eq!(process.validity.total[Validity::Valid as usize], 1);
        assert_eq!(process.validity.total[Validity::BeforeLaunch as usize], 1);
        assert_eq!((process.kernels[0].calls, process.kernels[0].total_ns), (1, 10_600));
        assert_eq!(process.records.kernel, 2);
    }
}

#[test]
fn a_kernel_whose_launch_never_comes_is_shown_all_the_same() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    feed(&mut model, conn, &stream.kinds(&[Kind::Kernel, Kind::Driver]), at(1));
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 5)]), at(1));
    assert!(model.glance(at(2)).processes[0].kernels.is_empty());
    assert_eq!(model.glance(at(4)).processes[0].kernels.len(), 1);
}

#[test]
fn the_known_good_sample_is_all_valid() {
    let (launch, run) = (1_682_666_453_031_160_080, (1_682_666_453_031_165_466, 1_682_666_453_031_166_842));
    let moved = (1_682_666_453_031_170_714, 1_682_666_453_031_179_354);
    let snapshot = fed(|s| {
        let kernel = Kernel { correlation: 515.into(), ..kernel(1, run.0, run.1) };
        let copy = Copy {
            start: moved.0.into(),
            end: moved.1.into(),
            bytes: 200_000.into(),
            direction: 2,
            correlation: 517.into(),
            context: 1.into(),
            stream: 7.into(),
            ..Copy::default()
        };
        vec![
            s.hello(),
            s.kinds(&[Kind::Kernel, Kind::Memcpy, Kind::Runtime]),
            s.kernels(&[kernel]),
            s.records(Family::Copy, &[copy]),
            s.records(Family::Other, &[call(515, launch, launch + 4030)]),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.validity.total[Validity::Valid as usize], 2);
    assert_eq!(process.validity.rate_total, Some(0.0));
    assert_eq!(process.latency.map(|latency| (latency.joined, latency.mean_ns)), Some((1, 5_386)));
    assert_eq!((process.kernels[0].total_ns, process.copies[0].total_ns), (1_376, 8_640));
    assert_eq!((process.copies[0].direction, process.copies[0].bytes), ("DtoH", 200_000));
    assert_eq!((process.streams[0].busy_ns, process.streams[0].records), (1_376 + 8_640, 2));
}

#[test]
fn an_unknown_device_is_moved_once_it_is_known() {
    let sync = Other {
        start: BASE.into(),
        end: (BASE + 1).into(),
        cupti_kind: Kind::Sync.cupti().into(),
        context: 3.into(),
        stream: 7.into(),
        device: NO_DEVICE.into(),
        ..Other::default()
    };
    let before = fed(|s| vec![s.hello(), s.records(Family::Other, &[sync])]);
    assert_eq!(before.processes[0].streams[0].device, None);
    assert!(before.processes[0].devices.is_empty());
    let on_five = Kernel { context: 3.into(), device: 5.into(), ..kernel(1, BASE, BASE + 9) };
    let after = fed(|s| vec![s.hello(), s.records(Family::Other, &[sync]), s.kernels(&[on_five])]);
    let rows: Vec<_> = after.processes[0].streams.iter().map(|row| (row.device, row.context)).collect();
    assert_eq!((rows, &after.processes[0].devices), (vec![(Some(5), 3)], &vec![5]));
}

#[test]
fn a_graph_launch_is_one_launch_however_many_nodes_it_has() {
    let snapshot = fed(|s| {
        let node = |i: u64| Kernel {
            correlation: 9.into(),
            graph: 2.into(),
            graph_node: (100 + i).into(),
            ..kernel(1, BASE + i * 100, BASE + i * 100 + 50)
        };
        let copy = |i: u64| Copy {
            start: (BASE + 5000 + i * 10).into(),
            end: (BASE + 5005 + i * 10).into(),
            correlation: 9.into(),
            graph: 2.into(),
            direction: 8,
            context: 1.into(),
            stream: 7.into(),
            ..Copy::default()
        };
        let (kernels, copies): (Vec<_>, Vec<_>) = ((0..24).map(node).collect(), (0..7).map(copy).collect());
        vec![s.hello(), s.kernels(&kernels), s.records(Family::Copy, &copies)]
    });
    let process = &snapshot.processes[0];
    assert_eq!(
        (process.graphs.launches, process.graphs.live, process.graphs.instantiated),
        (Some(1), Some(1), None)
    );
    let count = |wanted: LaneKey| process.lanes.iter().find(|lane| lane.key == wanted).unwrap().slices.len();
    assert_eq!(count(LaneKey::Stream { device: 0, context: 1, stream: 7 }), 24);
    assert_eq!(count(LaneKey::Copy { device: 0, direction: 8 }), 7);
    let launches = process.lanes.last().unwrap();
    assert_eq!(launches.key, LaneKey::Graphs { device: 0, context: 1, stream: 7 });
    assert_eq!(launches.slices.span(), Some((BASE, BASE + 5065)));
    let detail = process.details.get(launches.slices.iter().next().unwrap().detail).unwrap();
    assert_eq!((detail.graph, detail.graph_node), (2, 100));
}

#[test]
fn rates_are_unknown_while_the_shim_is_silent() {
    let silent = |s: &mut Stream| {
        s.frame(FrameKind::State, |w| {
            State {
                state: StateCode::Silent as u8,
                reason: 9,
                error: 39,
                detail: b"nsys",
                ..Default::default()
            }
            .write(w)
        })
    };
    let snapshot = fed(|s| vec![s.hello(), s.kernels(&[kernel(1, BASE, BASE + 1)]), silent(s)]);
    let process = &snapshot.processes[0];
    assert_eq!((process.state, process.validity.rate_total), (StateCode::Silent, None));
    assert_eq!(process.validity.rate_windows, [None; 3]);
    let reason = process.reason.as_deref().unwrap();
    assert_eq!(reason, "CUPTI has gone quiet (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED 39): nsys");
    assert!(snapshot.events.iter().any(|event| event.topic == "state" && event.text.contains("silent")));
}

#[test]
fn the_balance_counts_every_loss_by_its_cause_and_says_it() {
    let loss = Loss {
        walked: 3310,
        joined_walked: 1000,
        queue_full: 1286,
        offered: 1024,
        cupti_dropped: 5,
        ..Default::default()
    };
    let kernels: Vec<_> = (0..1024).map(|i| kernel(1, BASE + i, BASE + i + 1)).collect();
    let snapshot = fed(|s| vec![s.hello(), s.kernels(&kernels), s.frame(FrameKind::Loss, |w| loss.write(w))]);
    let records = &snapshot.processes[0].records;
    assert_eq!((records.delivered, records.shown, records.lost_queue_full), (2310, 1024, 1286));
    assert!(records.balances());
    assert_eq!(records.lost(), 1291);
    let event = snapshot.events.iter().find(|event| event.topic == "loss").unwrap();
    assert!(event.text.starts_with("1291 records lost; in all: queue full 1286"), "{}", event.text);
}

#[test]
fn notes_are_counted_on_believable_records_only() {
    let noted = |notes, validity: Validity| Kernel { notes, ..bad(validity, BASE, BASE) };
    let snapshot = fed(|s| {
        vec![
            s.hello(),
            s.kernels(&[
                noted(Notes::ZERO_LENGTH | Notes::OVERLAP, Validity::Valid),
                noted(Notes::UNASKED_KIND | Notes::OUT_OF_ORDER, Validity::Valid),
                noted(Notes::OVERLAP, Validity::ForeignClock),
            ]),
        ]
    });
    let counts = &snapshot.processes[0].notes;
    assert_eq!((counts.zero_length, counts.overlap, counts.unasked_kind, counts.out_of_order), (1, 1, 1, 1));
}

#[test]
fn a_gap_in_the_sequence_is_said_and_a_damaged_frame_left_out() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    stream.seq += 3;
    feed(&mut model, conn, &stream.frame(FrameKind::Clock, |w| w.u32(7).and_then(|()| w.u8(1))), at(2));
    let text = |wanted: &str| {
        let events = model.snapshot(at(2)).events;
        events.iter().find(|event| event.topic == wanted).map(|event| event.text.clone())
    };
    let mut text = text;
    assert!(text("gap").unwrap().starts_with("3 frames were dropped"));
    assert_eq!(text("damage").unwrap(), "a damaged Clock frame was left out");
}

#[test]
fn a_link_that_breaks_and_comes_back_is_said_and_goes_on_counting() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    model.link(conn, Link::Up, at(1));
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1); 10]), at(1));
    model.link(conn, Link::Lost { since: 5, retries: 0 }, at(2));
    model.link(conn, Link::Lost { since: 5, retries: 1 }, at(3));
    model.link(conn, Link::Up, at(4));
    let mut again = Stream::default();
    feed(&mut model, conn, &again.hello(), at(4));
    feed(&mut model, conn, &again.kernels(&[kernel(1, BASE, BASE + 1); 5]), at(4));
    let loss = Loss { walked: 500, joined_walked: 495, ..Default::default() };
    feed(&mut model, conn, &again.frame(FrameKind::Loss, |w| loss.write(w)), at(4));
    model.link(conn, Link::Ended("process 844 ended".into()), at(5));
    let snapshot = model.snapshot(at(5));
    assert_eq!((snapshot.processes[0].records.shown, snapshot.processes[0].records.delivered), (15, 15));
    let links: Vec<_> = snapshot
        .events
        .iter()
        .filter(|event| event.topic == "link")
        .map(|event| event.text.as_str())
        .collect();
    assert_eq!(links, ["the connection was lost; trying again", "connected again", "process 844 ended"]);
    assert!(snapshot.events.iter().all(|event| event.topic != "gap"), "numbers begin anew");
    assert_eq!(snapshot.source.link, Link::Ended("process 844 ended".into()));
}

#[test]
fn state_that_comes_again_replaces_itself() {
    let snapshot = fed(|s| {
        let pool = |limit| Pool {
            limit,
            context: 1,
            device: u16::MAX,
            cause: 1,
            exhausts_in: Some(SECOND / 2),
            ..Default::default()
        };
        let notice = Notice { time: 3, severity: 2, topic: b"mark", text: b"a\x07b" };
        vec![
            s.hello(),
            s.hello(),
            s.frame(FrameKind::Pools, |w| {
                pools::write_one(w, &pool(8)).and_then(|()| pools::write_one(w, &pool(9)))
            }),
            s.frame(FrameKind::Pools, |w| pools::write_one(w, &pool(250))),
            s.frame(FrameKind::Clock, |w| Clock { realtime: 5, cupti: 5, ..Default::default() }.write(w)),
            s.frame(FrameKind::Notice, |w| notice.write(w)),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.pools.len(), 1);
    assert_eq!(
        (process.pools[0].limit, process.pools[0].device, process.pools[0].exhausts_in),
        (250, None, Some(0.5))
    );
    assert!(process.pools[0].cause.is_some());
    assert_eq!(process.clock.map(|clock| clock.cupti), Some(5));
    assert_eq!((snapshot.events[0].text.as_str(), snapshot.events[0].pid), ("a␇b", Some(844)));
}

#[test]
fn names_that_come_after_their_records_reach_every_row() {
    let snapshot = fed(|s| {
        vec![
            s.hello(),
            s.kernels(&[kernel(4, BASE, BASE + 10)]),
            s.frame(FrameKind::Names, |w| names::write_one(w, 4, b"_Z4gemmPf")),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.kernels[0].name.full, "gemm(float*)");
    let detail = process.lanes[0].slices.iter().next().unwrap().detail;
    assert_eq!(process.details.get(detail).map(|detail| detail.name.short.as_str()), Some("gemm"));
}

#[test]
fn the_newest_stay_when_there_are_more_than_fit() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    let all = 1_900_000u64;
    let mut i = 0;
    while i < all {
        let part: Vec<_> = (i..i + 10_000).map(|i| kernel(1, BASE + i * 10, BASE + i * 10 + 5)).collect();
        feed(&mut model, conn, &stream.kernels(&part), at(1));
        i += 10_000;
    }
    let snapshot = model.snapshot(at(1));
    let lane = &snapshot.processes[0].lanes[0].slices;
    assert!(lane.len() < 1_760_000, "{}", lane.len());
    assert_eq!(lane.span().map(|(_, end)| end), Some(BASE + all * 10 - 5));
    assert_eq!(snapshot.processes[0].kernels[0].calls, all);
    assert_eq!(snapshot.processes[0].streams[0].busy_ns, all * 5);
}

/// What must not depend on how records were cut into frames or in which order they came.
fn totals(snapshot: &Snapshot) -> String {
    let process = &snapshot.processes[0];
    let kernels: Vec<_> = process
        .kernels
        .iter()
        .map(|row| {
            (row.id, row.calls, row.invalid, row.total_ns, row.min_ns, row.p50_ns, row.p99_ns, row.max_ns)
        })
        .collect();
    let lanes: Vec<_> = process
        .lanes
        .iter()
        .map(|lane| (lane.key, lane.slices.iter().map(|slice| (slice.start, slice.end)).collect::<Vec<_>>()))
        .collect();
    let graphs = (process.graphs.launches, process.graphs.live);
    let counts = (process.records.shown, process.validity.total, process.span);
    format!("{kernels:?} {lanes:?} {:?} {:?} {graphs:?} {counts:?}", process.streams, process.copies)
}

fn any_kernel() -> impl Strategy<Value = Kernel> {
    (0u32..5, 0u64..100_000, 0u64..2000, 0u8..12, 1u32..4, 0u64..6).prop_map(
        |(name, start, length, validity, stream, graph)| Kernel {
            stream: stream.into(),
            graph: (graph as u32).into(),
            correlation: (1000 * u64::from(stream) + graph).into(),
            validity: validity.saturating_sub(6),
            ..kernel(name, BASE + start, BASE + start + length)
        },
    )
}

proptest! {
    #[test]
    fn totals_do_not_depend_on_frames_or_order(
        kernels in prop::collection::vec(any_kernel(), 1..200),
        cuts in prop::collection::vec(1usize..60, 1..10),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let sum = |kernels: &[Kernel], mut cuts: Box<dyn Iterator<Item = usize>>| {
            fed(|s| {
                let (mut frames, mut rest) = (vec![s.hello()], kernels);
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                    frames.push(s.kernels(now));
                    rest = later;
                }
                frames
            })
        };
        let one = totals(&sum(&kernels, Box::new(std::iter::repeat(usize::MAX))));
        let many = totals(&sum(&kernels, Box::new(cuts.into_iter().cycle())));
        prop_assert_eq!(&one, &many);
        let mut other = kernels.clone();
        other.rotate_left(shuffled.index(kernels.len()));
        let half = other.len() / 2;
        other[half..].reverse();
        let other = totals(&sum(&other, Box::new(std::iter::repeat(usize::MAX))));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn flipped_bits_never_make_the_model_panic(
        kernels in prop::collection::vec(any_kernel(), 1..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..30),
        file: bool,
    ) {
        let mut stream = Stream::default();
        let mut bytes = stream.hello();
        bytes.extend(stream.frame(FrameKind::Names, |w| names::write_one(w, 4, b"_ZN2at6native13reduce_kernelILi512EEEvT1_")));
        bytes.extend(stream.kinds(&[Kind::Kernel, Kind::Runtime]));
        bytes.extend(stream.kernels(&kernels));
        let copies = [Copy { start: 5.into(), end: 9.into(), ..Copy::default() }; 3];
        bytes.extend(stream.records(Family::Copy, &copies));
        let sets = [Memset { start: 5.into(), end: u64::MAX.into(), ..Memset::default() }; 3];
        bytes.extend(stream.records(Family::Memset, &sets));
        bytes.extend(stream.records(Family::Other, &[call(1001, BASE, BASE + 1)]));
        bytes.extend(stream.frame(FrameKind::Loss, |w| Loss { walked: 9, ..Default::default() }.write(w)));
        for (index, bit) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let mut model = Model::new(if file { SourceKind::File } else { SourceKind::Live }, "x");
        let conn = model.add(0);
        // Lengths that lie end the reading; what comes before is applied.
        let _ = model.apply_all(conn, &bytes, at(1));
        model.glance(at(2));
        model.snapshot(at(3));
    }

    #[test]
    fn no_bytes_make_the_model_panic(bodies in prop::collection::vec((0u16..14, prop::collection::vec(any::<u8>(), 0..300)), 1..20)) {
        let mut model = Model::new(SourceKind::Live, "x");
        let conn = model.add(0);
        let mut hello = Stream::default();
        feed(&mut model, conn, &hello.hello(), at(1));
        for (kind, body) in bodies {
            let header = gtop_protocol::frame::Header { len: body.len() as u32, kind, seq: 2 };
            model.apply(conn, &Frame { header, body: &body }, at(1));
        }
        model.snapshot(at(2));
    }
}

#[test]
fn many_gaps_are_one_event_in_ten_seconds() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    for _ in 0..50 {
        stream.seq += 3;
        feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1)]), at(2));
    }
    stream.seq += 3;
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1)]), at(20));
    let events = model.snapshot(at(20)).events;
    let gaps: Vec<&str> =
        events.iter().filter(|event| event.topic == "gap").map(|event| event.text.as_str()).collect();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps[1].starts_with("150 frames"), "{gaps:?}");
}
