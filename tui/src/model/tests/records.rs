//! What records add up to, and which of them are believed.

use super::*;

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
    assert_eq!(
        (first.index, first.start, first.end, first.class),
        (Some(899_477), 2000, 1000, Validity::Inverted)
    );
    assert_eq!(validity.total[Validity::Inverted as usize], 1);
    assert_eq!(validity.total[Validity::Zero as usize], 10_196);
    assert!(validity.rate_windows[0].unwrap() > 0.96);
    assert!(validity.rate_total.unwrap() < 0.02);
    assert_eq!(process.kernels[0].calls, 899_476 + 327);
    assert_eq!(process.kernels[0].invalid, 10_197);
    assert_eq!(process.kernels[0].min_ns, 5);
    assert_eq!(process.span.unwrap().0, BASE);
    assert!(snapshot.events.iter().any(|event| event.topic == "invalid" && event.text.contains("#899,477")));
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
        assert_eq!(process.validity.total[Validity::Valid as usize], 2, "a kernel and the call");
        assert_eq!(process.validity.total[Validity::BeforeLaunch as usize], 1);
        assert_eq!((process.kernels[0].calls, process.kernels[0].total_ns), (1, 10_600));
        assert_eq!(process.records.kernel, 2);
        let first = process.validity.first_invalid.as_ref().unwrap();
        assert_eq!(first.index, Some(2), "its own number, however long it waited");
    }
}

#[test]
fn a_device_is_known_by_bad_records_too() {
    let bad = Kernel { device: 3.into(), ..bad(Validity::Zero, 0, 0) };
    let snapshot = fed(|s| vec![s.hello(), s.kernels(&[bad])]);
    assert_eq!(snapshot.processes[0].devices, [3]);
}

#[test]
fn bad_records_of_any_kind_are_in_a_class_and_nowhere_else() {
    let kinds = [Kind::Memory, Kind::Sync, Kind::Runtime, Kind::Driver, Kind::Overhead];
    let bad = kinds.map(|kind| Other {
        cupti_kind: kind.cupti().into(),
        validity: Validity::Zero as u8,
        value: 4096.into(),
        ..Other::default()
    });
    let snapshot = fed(|s| vec![s.hello(), s.records(Family::Other, &bad)]);
    let process = &snapshot.processes[0];
    assert_eq!((process.validity.total[Validity::Zero as usize], process.records.other), (5, 5));
    let first = process.validity.first_invalid.as_ref().unwrap();
    assert_eq!((first.name.as_str(), first.index), ("memory record", Some(0)));
    assert!(process.streams.is_empty() && process.validity.kinds[0].total == [0, 0]);
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
    assert_eq!(process.validity.total[Validity::Valid as usize], 3);
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
fn a_kernel_that_was_cut_off_enters_counts_and_nothing_else() {
    let snapshot = fed(|s| {
        let node = |notes, end| Kernel { notes, graph: 2.into(), ..bad(Validity::Valid, BASE, end) };
        vec![s.hello(), s.kernels(&[node(0, BASE + 900), node(Notes::CUT_OFF, BASE + 50_000_900)])]
    });
    let process = &snapshot.processes[0];
    assert_eq!((process.records.kernel, process.notes.cut_off), (2, 1));
    assert_eq!((process.validity.total[0], process.validity.rate_total), (2, Some(0.0)));
    assert_eq!((process.kernels[0].calls, process.kernels[0].max_ns), (1, 900));
    assert_eq!(process.lanes[0].slices.span(), Some((BASE, BASE + 900)));
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
    assert!(lane.len() < 1_800_000, "{}", lane.len());
    assert_eq!(lane.span().map(|(_, end)| end), Some(BASE + all * 10 - 5));
    assert_eq!(snapshot.processes[0].kernels[0].calls, all);
    assert_eq!(snapshot.processes[0].streams[0].busy_ns, all * 5);
}
