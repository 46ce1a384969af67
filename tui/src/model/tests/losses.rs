//! Where records may be missing, and up to when all have come.

use super::*;

const MS: u64 = SECOND / 1_000;

/// Kernels of a stream, one a millisecond that lasts half of it, from one millisecond after `BASE` to another.
fn run(on: u32, from: u64, to: u64) -> Vec<Kernel> {
    let one = |ms| Kernel { stream: on.into(), ..kernel(1, BASE + ms * MS, BASE + ms * MS + MS / 2) };
    (from..to).map(one).collect()
}

fn lost(model: &mut Model) -> Vec<(u64, u64)> {
    let lost = model.snapshot(at(2)).processes[0].lost.to_vec();
    lost.into_iter().map(|(from, to)| ((from - BASE) / (MS / 2), (to - BASE) / (MS / 2))).collect()
}

#[test]
fn a_lost_frame_is_between_its_neighbours_or_where_these_overlap_anywhere_in_them() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    feed(&mut model, conn, &stream.kernels(&run(7, 0, 100)), at(1));
    feed(&mut model, conn, &stream.kernels(&run(8, 0, 90)), at(1));
    stream.seq += 1;
    feed(&mut model, conn, &stream.kernels(&run(7, 130, 200)), at(1));
    assert_eq!(lost(&mut model), [(199, 260)], "between the newest and the next");
    stream.seq += 1;
    feed(&mut model, conn, &stream.kernels(&run(8, 120, 190)), at(1));
    assert_eq!(lost(&mut model), [(199, 399)], "of this stream or of that");
    let process = model.snapshot(at(2)).processes.remove(0);
    assert_eq!(process.records.shown, 330, "what came counts");
}

#[test]
fn what_the_shim_had_no_room_for_is_about_where_it_counted() {
    let (mut model, conn, mut stream) = model();
    let count = |stream: &mut Stream, queue_full| {
        stream.frame(FrameKind::Loss, |w| Loss { walked: 500, queue_full, ..Default::default() }.write(w))
    };
    feed(&mut model, conn, &stream.hello(), at(1));
    feed(&mut model, conn, &stream.kernels(&run(7, 0, 50)), at(1));
    feed(&mut model, conn, &count(&mut stream, 0), at(1));
    feed(&mut model, conn, &stream.kernels(&run(7, 50, 60)), at(1));
    feed(&mut model, conn, &count(&mut stream, 40), at(1));
    assert_eq!(lost(&mut model), [(100, 119)]);
    feed(&mut model, conn, &stream.kernels(&run(7, 70, 80)), at(1));
    feed(&mut model, conn, &count(&mut stream, 40), at(1));
    feed(&mut model, conn, &stream.kernels(&run(7, 90, 95)), at(1));
    feed(&mut model, conn, &count(&mut stream, 40), at(1));
    assert_eq!(lost(&mut model), [(100, 119), (140, 159)], "what waited then came before them");
}

#[test]
fn how_late_records_come_tells_up_to_when_all_have_come() {
    let (mut model, conn, mut stream) = model();
    model.link(conn, Link::Up, at(0));
    feed(&mut model, conn, &stream.hello(), at(0));
    let second = |second: u64| second * 1_000;
    let delivered = |model: &mut Model, moment| model.snapshot(moment).processes[0].delivered - BASE;
    // Those of one stream come 300 ms after their end, those of the other at once.
    feed(&mut model, conn, &stream.kernels(&run(8, second(1) - 300, second(1) - 290)), at(1));
    feed(&mut model, conn, &stream.kernels(&run(7, second(1) - 10, second(1))), at(1));
    assert_eq!(delivered(&mut model, at(1)), second(1) * MS - 300 * MS + MS / 2);
    feed(&mut model, conn, &stream.kernels(&run(7, second(5) - 10, second(5))), at(5));
    assert_eq!(delivered(&mut model, at(5)), second(5) * MS - 300 * MS + MS / 2, "and may do so again");
    feed(&mut model, conn, &stream.kernels(&run(7, second(14) - 10, second(14))), at(14));
    assert_eq!(
        delivered(&mut model, at(14)),
        second(14) * MS - 10 * MS + MS / 2,
        "they have not for a while"
    );
    model.link(conn, Link::Ended("over".to_owned()), at(15));
    assert_eq!(model.snapshot(at(15)).processes[0].delivered, 0, "nothing more is awaited");
}
