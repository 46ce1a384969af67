//! Records as people have met them, with the numbers of their reports.

use gtop_protocol::message::Reason;
use gtop_protocol::validity::{Bounds, classify};

use super::*;

#[test]
fn zeros_whose_launch_is_known_do_not_stretch_the_axis() {
    let launch = call(106_123, 1_615_207_264_505_000_000, 1_615_207_264_505_006_000);
    let zero = Kernel { correlation: 106_123.into(), ..bad(Validity::Zero, 0, 0) };
    let snapshot = fed(|s| {
        let kinds = s.kinds(&[Kind::Kernel, Kind::Runtime]);
        vec![s.hello(), kinds, s.records(Family::Other, &[launch]), s.kernels(&[zero])]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.span, Some((1_615_207_264_505_000_000, 1_615_207_264_505_006_000)));
    assert_eq!((process.validity.total[Validity::Zero as usize], process.records.kernel), (1, 1));
    assert_eq!((process.kernels[0].invalid, process.kernels[0].calls), (1, 0));
    assert!(process.lanes.is_empty(), "nothing is drawn where it might have run");
    assert_eq!(process.invalid_at.len(), 1, "but that it came is kept");
}

/// Ten thousand records, a hundred of each of seven kinds of trouble among them, as the shim judges them.
fn seven_troubles() -> Vec<Kernel> {
    let noted = |notes: u8, start, end| Kernel { notes, ..kernel(1, start, end) };
    (0..10_000u64)
        .map(|i| {
            let (start, end) = (BASE + i * 10_000, BASE + i * 10_000 + 8_000);
            match i % 100 {
                0 => noted(Notes::OVERLAP, start - 5_000, end),
                1 => noted(Notes::OVERLAP, start - 10_000, start),
                2 => bad(Validity::Zero, 0, 0),
                3 => bad(Validity::BeforeLaunch, start - 9_000_000, end - 9_000_000),
                4 => noted(Notes::ZERO_LENGTH, start, start),
                5 => bad(Validity::Future, start, start + 5 * Bounds::AHEAD_NS),
                6 => noted(Notes::OUT_OF_ORDER, start - 2_000_000, end - 2_000_000),
                _ => kernel(1, start, end),
            }
        })
        .collect()
}

#[test]
fn seven_troubles_are_counted_apart_and_the_timeline_does_not_depend_on_their_order() {
    assert_eq!(classify(0, 0, Bounds::UNKNOWN), Validity::Zero);
    let seen = |kernels: &[Kernel]| {
        let snapshot = fed(|s| {
            let mut frames = vec![s.hello()];
            frames.extend(kernels.chunks(500).map(|some| s.kernels(some)));
            frames
        });
        let process = &snapshot.processes[0];
        let total = process.validity.total;
        let [zero, early, future] =
            [Validity::Zero, Validity::BeforeLaunch, Validity::Future].map(|class| total[class as usize]);
        let notes = process.notes;
        let counts = [notes.overlap, zero, early, notes.zero_length, future, notes.out_of_order, total[0]];
        let lane = &process.lanes[0].slices;
        let (from, to) = lane.span().unwrap();
        (counts, lane.raster(from, to, 137, |detail| detail), lane.covered(from, to))
    };
    let mut kernels = seven_troubles();
    let in_order = seen(&kernels);
    assert_eq!(in_order.0, [200, 100, 100, 100, 100, 100, 9_700], "overlaps and equal starts are one count");
    let mut dice = 7u64;
    for i in (1..kernels.len()).rev() {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        kernels.swap(i, (dice >> 33) as usize % (i + 1));
    }
    assert_eq!(seen(&kernels), in_order);
}

#[test]
fn long_names_are_kept_once() {
    let name = |i: u32| format!("{}{i:050}", "k".repeat(1950));
    let snapshot = fed(|s| {
        let mut frames = vec![s.hello()];
        for i in 1..=200 {
            frames.push(s.frame(FrameKind::Names, |w| names::write_one(w, i, name(i).as_bytes())));
        }
        let kernels: Vec<Kernel> = (0..1_000_000)
            .map(|i| kernel(1 + i % 200, BASE + u64::from(i) * 100, BASE + u64::from(i) * 100 + 50))
            .collect();
        frames.extend(kernels.chunks(1000).map(|some| s.kernels(some)));
        frames
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.kernels.len(), 200);
    let forms =
        |name: &super::super::snapshot::KernelName| name.full.len() + name.mangled.len() + name.short.len();
    let bytes: usize = process.kernels.iter().map(|row| forms(&row.name)).sum();
    assert!(bytes < 5 << 20, "{bytes}");
    for slice in process.lanes[0].slices.iter().step_by(97) {
        let detail = process.details.get(slice.detail).unwrap();
        let row = process.kernels.iter().find(|row| row.id == detail.name_id).unwrap();
        assert!(std::sync::Arc::ptr_eq(&detail.name, &row.name), "shared by all records");
    }
    let shorts: std::collections::HashSet<_> =
        process.kernels.iter().map(|row| row.name.short.as_str()).collect();
    assert_eq!(shorts.len(), 200, "and told apart in forty cells");
}

#[test]
fn a_collector_that_comes_back_to_life_tells_of_every_launch() {
    const NODES: u64 = 2_745;
    let state = |s: &mut Stream, state: StateCode, reason: Reason| {
        let state = State { state: state as u8, reason: reason as u16, ..State::default() };
        s.frame(FrameKind::State, |w| state.write(w))
    };
    let snapshot = fed(|s| vec![s.hello(), state(s, StateCode::Silent, Reason::Quiet)]);
    let process = &snapshot.processes[0];
    assert_eq!((process.state, process.validity.rate_total), (StateCode::Silent, None));
    let snapshot = fed(|s| {
        let mut frames = vec![s.hello(), state(s, StateCode::Silent, Reason::Quiet)];
        frames.push(state(s, StateCode::Armed, Reason::None));
        for launch in 0..34u64 {
            let node = |i: u64| {
                let start = BASE + launch * 10_000_000 + i * 1_000;
                let graph = Kernel {
                    graph: 2.into(),
                    graph_node: (2 << 32 | i).into(),
                    ..kernel(1, start, start + 900)
                };
                Kernel { correlation: (launch + 1).into(), ..graph }
            };
            let kernels: Vec<Kernel> = (0..NODES).map(node).collect();
            frames.extend(kernels.chunks(1000).map(|some| s.kernels(some)));
        }
        let eager: Vec<Kernel> =
            (0..4).map(|i| kernel(2, BASE + SECOND + i * 1_000, BASE + SECOND + i * 1_000 + 900)).collect();
        frames.push(s.kernels(&eager));
        frames
    });
    let process = &snapshot.processes[0];
    assert_eq!((process.state, process.records.kernel), (StateCode::Armed, 93_334));
    let row = &process.graphs_view.rows[0];
    assert_eq!((row.launches, row.seen_nodes as u64), (34, NODES));
    assert_eq!(process.graphs.launches, Some(34));
}
