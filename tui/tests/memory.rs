//! What a viewer takes of memory: bounded by what is written down, with everything older than that in sums.

use gtop::config;
use gtop::model::Model;
use gtop::model::snapshot::SourceKind;
use gtop::model::time::Moment;
use gtop_protocol::frame::{FrameKind, MAX_BODY, write_frame};
use gtop_protocol::message::{Hello, HelloFields};
use gtop_protocol::record::{Family, Kernel};
use zerocopy::IntoBytes;

/// Millions of bytes, the least that can be chosen, and records: several times what that holds.
const MEGABYTES: u64 = 64;
const RECORDS: u64 = 3_000_000;
const STREAMS: u64 = 4;
const IN_FRAME: u64 = 2_000;
/// Nanoseconds between two records of a stream.
const EVERY: u64 = 2_000;
const BASE: u64 = 1_764_000_000_000_000_000;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("VmRSS") << 10
}

#[test]
fn memory_stays_within_what_is_written_down_and_the_oldest_detail_becomes_sums() {
    config::parse(&format!("memory_megabytes = {MEGABYTES}")).expect("it can be chosen").keep_to();
    let mut model = Model::new(SourceKind::Live, "many");
    let conn = model.add(1);
    let mut frame = vec![0; MAX_BODY];
    let hello = HelloFields { pid: 1, name: b"many", ..HelloFields::default() };
    let len = write_frame(&mut frame, FrameKind::Hello, 1, |w| Hello::new(hello).write(w)).expect("it fits");
    let began = Moment { wall: BASE, steady: 0 };
    assert_eq!(model.apply_all(conn, &frame[..len], began), Ok(len));
    let before = resident();
    let (mut most, mut frozen) = (0, None);
    for number in 0..RECORDS / IN_FRAME {
        let record = |i: u64| {
            let index = number * IN_FRAME + i;
            let start = BASE + index / STREAMS * EVERY;
            Kernel {
                start: start.into(),
                end: (start + 1_500).into(),
                correlation: index.into(),
                name: ((index % 500) as u32).into(),
                context: 1.into(),
                stream: ((index % STREAMS) as u32).into(),
                grid_x: ((index % 700) as u32).into(),
                ..Kernel::default()
            }
        };
        let len = write_frame(&mut frame, FrameKind::Records, number + 2, |w| {
            w.u32(Family::Kernel as u32)?;
            w.u32(IN_FRAME as u32)?;
            (0..IN_FRAME).try_for_each(|i| w.bytes(record(i).as_bytes()))
        })
        .expect("a frame holds them");
        let passed = (number + 1) * IN_FRAME / STREAMS * EVERY;
        let now = Moment { wall: BASE + passed, steady: passed };
        assert_eq!(model.apply_all(conn, &frame[..len], now), Ok(len));
        if number % 100 == 99 {
            let snapshot = model.snapshot(now);
            // As a person does who looks at something while it goes on.
            if number == 699 {
                frozen = Some(snapshot);
            }
            most = most.max(resident() - before);
        }
    }
    assert!(most < MEGABYTES * 1_000_000, "{most} bytes");
    assert!(frozen.is_some());
    let passed = RECORDS / STREAMS * EVERY;
    let snapshot = model.snapshot(Moment { wall: BASE + passed, steady: passed });
    let lanes = &snapshot.processes[0].lanes;
    let count = |lane: &gtop::model::snapshot::Lane| {
        let summed = lane.slices.summed(0, u64::MAX).map_or(0, |(sum, _)| u64::from(sum.count));
        (summed, lane.slices.len() as u64)
    };
    let counts: Vec<(u64, u64)> = lanes.iter().map(count).collect();
    assert_eq!(counts.iter().map(|(summed, kept)| summed + kept).sum::<u64>(), RECORDS, "{counts:?}");
    assert!(counts.iter().all(|(summed, kept)| *summed > 0 && *kept > 0), "{counts:?}");
}
