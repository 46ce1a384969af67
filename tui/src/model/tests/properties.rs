//! What holds of any records, in any order, and of any bytes.

use proptest::prelude::*;

use super::*;

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

/// Kinds of frames, the viewer's own among them, and some that nobody knows.
fn any_kind() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..20, 256u16..264]
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
        let whole = sum(&kernels, Box::new(std::iter::repeat(usize::MAX)));
        let many = sum(&kernels, Box::new(cuts.into_iter().cycle()));
        let in_order = |snapshot: &Snapshot| {
            let process = &snapshot.processes[0];
            format!("{:?} {:?} {:?}", process.steps, process.notes, process.graphs_view.rows)
        };
        prop_assert_eq!(in_order(&whole), in_order(&many));
        let one = totals(&whole);
        prop_assert_eq!(&one, &totals(&many));
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
    fn no_bytes_make_the_model_panic(bodies in prop::collection::vec((any_kind(), prop::collection::vec(any::<u8>(), 0..300)), 1..20)) {
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
