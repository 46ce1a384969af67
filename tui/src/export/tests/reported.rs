//! Values that people have reported of real runs, through a recording, its replay, its summary and every format: what
//! is one record stays one, and to the nanosecond.

use gtop_protocol::message::Kinds;
use gtop_protocol::record::{Copy, Other};
use gtop_protocol::viewer::{Link, LinkState, Watched};
use gtop_protocol::{Kind, KindSet};
use serde_json::Value;

use super::*;
use crate::model::Model;
use crate::model::snapshot::{Snapshot, SourceKind};
use crate::source::recording;
use crate::source::replay::Player;

/// When the call that launched a kernel without times was made.
const LAUNCHED: u64 = 1_615_207_264_505_000_000;
/// A kernel of which everything is known: the call, its start and its end.
const CALLED: u64 = 1_682_666_453_031_160_080;
const STARTED: u64 = 1_682_666_453_031_165_466;
const ENDED: u64 = 1_682_666_453_031_166_842;

/// The rate of the copy, GB a second, as its bytes and its duration tell it.
pub(crate) const RATE: &str = "23.1";

pub(crate) fn rate(bytes: u64, ns: f64) -> String {
    format!("{:.1}", bytes as f64 / ns)
}

/// Rows in [`reported`], and those without believable times.
pub(crate) const REPORTED: (u64, u64) = (7, 1);

fn call(correlation: u64, start: u64, end: u64) -> Other {
    Other {
        cupti_kind: Kind::Runtime.cupti().into(),
        start: start.into(),
        end: end.into(),
        correlation: correlation.into(),
        thread: 77.into(),
        ..Other::default()
    }
}

/// A kernel that came before its call, a copy, two kernels that overlap, and one whose times are zero.
pub(crate) fn reported() -> Tape {
    let mut tape = Tape::new();
    tape.hello(1, 844, b"python3");
    let kinds =
        Kinds { enabled: KindSet::EMPTY.with(Kind::Kernel).with(Kind::Runtime).0, ..Kinds::default() };
    tape.frame(1, 0, FrameKind::Kinds, &body(|w| kinds.write(w).unwrap()));
    tape.name(1, 1, b"operator\"\"_kg");
    tape.records(1, 1, 4, &[call(106_123, LAUNCHED, LAUNCHED + 6_000)]);
    tape.records(1, 2, 1, &[Kernel { correlation: 106_123.into(), ..kernel(1, 0, 0) }]);
    tape.records(1, 3, 1, &[kernel(1, STARTED, ENDED)]);
    tape.records(1, 4, 4, &[call(515, CALLED, CALLED + 4_030)]);
    let copy = Copy {
        start: 1_682_666_453_031_170_714.into(),
        end: 1_682_666_453_031_179_354.into(),
        bytes: 200_000.into(),
        correlation: 517.into(),
        direction: 2,
        stream: 7.into(),
        context: 1.into(),
        ..Copy::default()
    };
    tape.records(1, 5, 2, &[copy]);
    let overlap = [(3_000, 6_776), (5_000, 7_000)].map(|(start, end)| kernel(1, ENDED + start, ENDED + end));
    tape.records(1, 6, 1, &overlap);
    tape
}

/// What is read of a tape at once, and what is played of it.
fn read_and_played(tape: &mut Tape) -> [Snapshot; 2] {
    let Source::Recording(recording) = tape.source() else { unreachable!() };
    let mut model = Model::summary(SourceKind::Live, "x");
    let (now, damage) = recording::read_into(&mut model, *recording).unwrap();
    assert_eq!(damage, None);
    let mut player = Player::open(&tape.folder.path().join("x.gtop")).unwrap();
    player.seek(u64::MAX);
    player.seek(0);
    player.seek(u64::MAX);
    player.fill(None);
    [model.snapshot(now), player.snapshot()]
}

#[test]
fn the_summary_and_the_replay_have_them() {
    for snapshot in read_and_played(&mut reported()) {
        let process = &snapshot.processes[0];
        assert_eq!((process.records.shown, process.records.kernel, process.records.memcpy), (7, 4, 1));
        assert_eq!(process.validity.total[Validity::Zero as usize], 1);
        assert_eq!(process.validity.total[Validity::Valid as usize], 6);
        let kernel = &process.kernels[0];
        assert_eq!((kernel.name.full.as_str(), kernel.calls, kernel.invalid), ("operator\"\"_kg", 3, 1));
        assert_eq!((kernel.min_ns, kernel.max_ns, kernel.total_ns), (1_376, 3_776, 1_376 + 3_776 + 2_000));
        let copy = &process.copies[0];
        assert_eq!((copy.direction, copy.bytes, copy.total_ns), ("DtoH", 200_000, 8_640));
        assert_eq!(copy.rate().map(|rate| format!("{rate:.1}")).as_deref(), Some(RATE));
        assert_eq!(process.latency.map(|latency| latency.min_ns), Some(5_386));
        // From the call of the kernel without times on, and not from 0.
        assert_eq!(process.span, Some((LAUNCHED, 1_682_666_453_031_179_354)));
    }
}

#[test]
fn tables_have_them() {
    let lines = csv(&reported().text(Format::Csv));
    let column = |name: &str| lines[0].iter().position(|column| column.as_deref() == Some(name)).unwrap();
    let rows = &lines[1..];
    assert_eq!(rows.len() as u64, REPORTED.0);
    let of = |row: &[Option<String>], name: &str| row[column(name)].clone();
    let zero: Vec<_> = rows.iter().filter(|row| of(row, "class").as_deref() == Some("zero")).collect();
    assert_eq!(
        (zero.len() as u64, of(zero[0], "start_ns"), of(zero[0], "correlation")),
        (1, None, Some("106123".into()))
    );
    let starts: Vec<u64> = rows.iter().filter_map(|row| of(row, "start_ns")?.parse().ok()).collect();
    assert_eq!(starts.iter().min(), Some(&LAUNCHED));
    let kernel = rows.iter().find(|row| of(row, "start_ns") == Some(STARTED.to_string())).unwrap();
    assert_eq!(of(kernel, "duration_ns").as_deref(), Some("1376"));
    assert_eq!(of(kernel, "name").as_deref(), Some("operator\"\"_kg"));
    let copy = rows.iter().find(|row| of(row, "kind").as_deref() == Some("memcpy")).unwrap();
    let number = |name: &str| of(copy, name).unwrap().parse::<u64>().unwrap();
    assert_eq!(rate(number("bytes"), number("duration_ns") as f64), RATE);
    let lines: Vec<Value> =
        reported().text(Format::Ndjson).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, REPORTED.0);
    let copy = lines.iter().find(|line| line["kind"] == "memcpy").unwrap();
    assert_eq!((&copy["duration_ns"], &copy["bytes"]), (&8_640.into(), &200_000.into()));
    assert_eq!(rate(copy["bytes"].as_u64().unwrap(), copy["duration_ns"].as_f64().unwrap()), RATE);
    assert_eq!(lines.iter().filter(|line| line["class"] == "zero").count() as u64, REPORTED.1);
}

#[test]
fn the_viewers_format_has_them() {
    let trace: Value = serde_json::from_str(&reported().text(Format::Chrome)).unwrap();
    let slices: Vec<&Value> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len() as u64, REPORTED.0 - REPORTED.1);
    let mut durations: Vec<f64> = slices.iter().map(|slice| slice["dur"].as_f64().unwrap()).collect();
    durations.sort_by(f64::total_cmp);
    assert_eq!(durations, [1.376, 2.0, 3.776, 4.03, 6.0, 8.64]);
    assert!(slices.iter().all(|slice| slice["ts"].as_f64().is_some_and(|ts| ts >= 0.0)));
    let copy = slices.iter().find(|slice| slice["cat"] == "memcpy").unwrap();
    assert_eq!(rate(copy["args"]["bytes"].as_u64().unwrap(), copy["dur"].as_f64().unwrap() * 1000.0), RATE);
    let tracks: std::collections::HashSet<u64> = slices
        .iter()
        .filter(|slice| [3.776, 2.0].map(Some).contains(&slice["dur"].as_f64()))
        .map(|slice| slice["tid"].as_u64().unwrap())
        .collect();
    assert_eq!(tracks.len(), 2, "what overlaps lies on two rows");
}

/// A process that ended, and another that was given its id: of 100 and of 30 kernels.
fn reused() -> Tape {
    let mut tape = Tape::new();
    for (stream, count, name) in [(1u32, 100u64, "one"), (2, 30, "two")] {
        let from = u64::from(stream - 1) * 1_000;
        tape.frame(stream, from, FrameKind::Watched, &body(|w| Watched { pid: 844 }.write(w).unwrap()));
        let fields = HelloFields {
            pid: 844,
            start_time: u64::from(stream),
            name: name.as_bytes(),
            ..Default::default()
        };
        let hello = Hello::new(fields);
        tape.frame(stream, from, FrameKind::Hello, &body(|w| hello.write(w).unwrap()));
        let up = Link { state: LinkState::Up as u8, ..Link::default() };
        tape.frame(stream, from, FrameKind::Link, &body(|w| up.write(w).unwrap()));
        // The same number means another name.
        tape.frame(
            stream,
            from,
            FrameKind::Names,
            &body(|w| names::write_one(w, 1, name.as_bytes()).unwrap()),
        );
        let kernels: Vec<_> = (0..count)
            .map(|i| kernel(1, T + from * 1_000_000 + i * 100, T + from * 1_000_000 + i * 100 + 50))
            .collect();
        tape.records(stream, from + 500, 1, &kernels);
        let ended = Link { state: LinkState::Ended as u8, reason: b"it has ended", ..Link::default() };
        tape.frame(stream, from + 900, FrameKind::Link, &body(|w| ended.write(w).unwrap()));
    }
    tape
}

#[test]
fn a_process_that_got_the_id_of_another_is_another() {
    for snapshot in read_and_played(&mut reused()) {
        let mut seen: Vec<_> = snapshot
            .processes
            .iter()
            .map(|process| {
                assert_eq!((process.identity.pid, process.kernels.len()), (844, 1));
                let row = &process.kernels[0];
                (
                    process.identity.name.as_str(),
                    process.identity.start_time,
                    row.name.full.as_str(),
                    row.calls,
                )
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [("one", 1, "one", 100), ("two", 2, "two", 30)]);
    }
    let mut tape = reused();
    for format in [Format::Csv, Format::Ndjson] {
        let text = tape.text(format);
        let lines =
            |name: &str| text.lines().filter(|line| line.contains("844") && line.contains(name)).count();
        assert_eq!((lines("one"), lines("two")), (100, 30));
    }
}
