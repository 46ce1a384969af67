//! A part of a recording is exported as the same part of an export of all of it.

use std::ops::Range;
use std::time::Duration;

use gtop_protocol::message::{DeviceSample, Kinds, Loss};
use gtop_protocol::record::Other;
use gtop_protocol::{Kind, KindSet};
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// What comes.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A kernel that ran so long ago, in milliseconds.
    Kernel(u64),
    /// A kernel whose call came so long before it, and that began so long after or before its call.
    Called(u64, i64),
    /// A kernel whose call comes so long behind it; the same.
    Calls(u64, i64),
    Invalid,
    Lost,
    Device,
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => (0u64..5_000).prop_map(What::Kernel),
        3 => (0u64..50_000, -30_000i64..3_000).prop_map(|(before, began)| What::Called(before, began)),
        1 => (0u64..2_500, -30_000i64..100).prop_map(|(behind, began)| What::Calls(behind, began)),
        2 => Just(What::Invalid),
        1 => Just(What::Lost),
        1 => Just(What::Device),
    ]
}

/// A recording of what comes at such milliseconds on such streams; with calls, unless nobody asked for them.
fn recorded(events: &[(u64, u32, What)], calls: bool) -> Tape {
    let mut tape = Tape::new();
    let mut frames: Vec<(u64, u32, Vec<u8>, FrameKind)> = Vec::new();
    let records = |family: u8, record: &[u8]| [&[family, 0, 0, 0, 1, 0, 0, 0], record].concat();
    for stream in 1..=2 {
        tape.hello(stream, 800 + stream, b"x");
        tape.name(stream, 1, b"k");
        let enabled = if calls { KindSet::EMPTY.with(Kind::Runtime) } else { KindSet::EMPTY };
        let kinds = Kinds { enabled: enabled.with(Kind::Kernel).0, ..Kinds::default() };
        frames.push((0, stream, body(|w| kinds.write(w).unwrap()), FrameKind::Kinds));
    }
    for (number, &(at, stream, what)) in events.iter().enumerate() {
        let mut kernel = |at: u64, start: u64| {
            let kernel = Kernel { correlation: (number as u64).into(), ..kernel(1, start, start + 5_000) };
            frames.push((at, stream, records(1, kernel.as_bytes()), FrameKind::Records));
        };
        let now = T + at * MS;
        let called = match what {
            What::Kernel(ago) => {
                kernel(at, now - ago * MS);
                None
            }
            What::Called(before, began) => {
                let call = at.saturating_sub(before);
                kernel(at, (T + call * MS).saturating_add_signed(began * MS.cast_signed()));
                Some(call)
            }
            What::Calls(behind, began) => {
                kernel(at, now.saturating_add_signed(began * MS.cast_signed()));
                Some(at + behind)
            }
            What::Invalid => {
                kernel(at, 0);
                None
            }
            What::Lost => {
                let loss = Loss { queue_full: number as u64, ..Loss::default() };
                frames.push((at, stream, body(|w| loss.write(w).unwrap()), FrameKind::Loss));
                None
            }
            What::Device => {
                let sample = DeviceSample { time: now - 7, memory_used: Some(at), ..DeviceSample::default() };
                frames.push((at, 0, body(|w| sample.write(w).unwrap()), FrameKind::DeviceSample));
                None
            }
        };
        if let Some(at) = called.filter(|_| calls) {
            let call = Other {
                cupti_kind: Kind::Runtime.cupti().into(),
                start: (T + at * MS).into(),
                end: (T + at * MS + 900).into(),
                correlation: (number as u64).into(),
                ..Other::default()
            };
            frames.push((at, stream, records(4, call.as_bytes()), FrameKind::Records));
        }
    }
    frames.sort_by_key(|(at, ..)| *at);
    for (at, stream, body, kind) in frames {
        tape.frame(stream, at, kind, &body);
    }
    tape
}

/// Rows or counters with their times.
type Timed = Vec<(u64, String)>;

/// What an export comes to, in order: its rows, and its counters.
fn told(tape: &mut Tape, selection: &Selection) -> (Timed, Timed, Done) {
    let (done, files) = tape.export(Format::Ndjson, selection, None);
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let at = row["start_ns"].as_str().or(row["arrived_ns"].as_str()).unwrap().parse().unwrap();
        (at, line.to_owned())
    };
    let mut rows: Vec<_> = fs::read_to_string(&files[0]).unwrap().lines().map(row).collect();
    let (_, files) = tape.export(Format::Chrome, selection, None);
    let trace: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    let origin: u64 = trace["otherData"]["origin_ns"].as_str().unwrap().parse().unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let counters = events.filter(|event| event["ph"] == "C");
    let counters = counters.map(|event| {
        let at = origin.wrapping_add_signed((event["ts"].as_f64().unwrap() * 1e3).round() as i64);
        (at, format!("{} {} {}", event["pid"], event["name"], event["args"]))
    });
    let mut counters: Vec<_> = counters.collect();
    rows.sort();
    counters.sort();
    (rows, counters, done)
}

fn selection(range: &Range<u64>) -> Selection {
    let after = |ms| Some(When::After(Duration::from_millis(ms)));
    Selection { from: after(range.start), until: after(range.end), ..Selection::default() }
}

/// Without the sums over everything before, where these cannot be known: of calls from long before, what only they tell.
fn known(counters: Timed, calls: bool) -> Timed {
    counters.into_iter().filter(|(_, counter)| !calls || !counter.contains("since the start")).collect()
}

/// What of them lies in these milliseconds.
fn within(all: &[(u64, String)], range: &Range<u64>) -> Timed {
    let range = T + range.start * MS..T + range.end * MS;
    all.iter().filter(|(at, _)| range.contains(at)).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_part_is_the_part_of_the_whole(
        events in proptest::collection::vec((0u64..150_000, 1u32..=2, what()), 1..400),
        calls: bool,
        ranges in proptest::collection::vec((1u64..150_000, 1u64..60_000), 4),
    ) {
        let mut tape = recorded(&events, calls);
        let (rows, counters, _) = told(&mut tape, &Selection::default());
        let counters = known(counters, calls);
        for (from, long) in ranges {
            let range = from..from + long;
            let (some, ups_and_downs, _) = told(&mut tape, &selection(&range));
            prop_assert_eq!(some, within(&rows, &range), "{:?}", range);
            prop_assert_eq!(known(ups_and_downs, calls), within(&counters, &range), "{:?}", range);
        }
    }
}

#[test]
fn a_part_of_a_long_recording_is_found_without_reading_all_of_it() {
    let events: Vec<_> = (0..4_000)
        .map(|at| {
            let what = match at % 100 {
                0..3 => What::Invalid,
                3 => What::Called(40_000, -500),
                _ => What::Called(10, 1),
            };
            (at * 100, 1 + (at % 2) as u32, what)
        })
        .collect();
    for calls in [false, true] {
        let mut tape = recorded(&events, calls);
        let (rows, counters, all) = told(&mut tape, &Selection::default());
        let counters = known(counters, calls);
        let range = 300_000..310_000;
        let (some, ups_and_downs, done) = told(&mut tape, &selection(&range));
        assert_eq!(some, within(&rows, &range));
        assert_eq!(known(ups_and_downs, calls), within(&counters, &range));
        let early = some.iter().filter(|(_, row)| row.contains("before_launch")).count();
        assert_eq!(early, usize::from(calls));
        assert!(done.seen < all.seen / 2, "{} of {}", done.seen, all.seen);
    }
}

#[test]
fn device_samples_of_times_that_cannot_be_have_no_place() {
    let mut tape = Tape::new();
    let times = [T + 5, 0, 5, T - 7_200_000_000_000, T * 4, 1 << 63, u64::MAX];
    for (at, time) in times.into_iter().enumerate() {
        let sample = DeviceSample { time, power_mw: Some(at as u64), ..DeviceSample::default() };
        tape.frame(0, 1, FrameKind::DeviceSample, &body(|w| sample.write(w).unwrap()));
    }
    let (rows, counters, done) = told(&mut tape, &Selection::default());
    assert_eq!((rows.len(), done.samples), (0, 6));
    assert_eq!(counters, [(T + 5, "0 \"GPU 0 power\" {\"value\":0}".to_owned())]);
    // In a part of a recording they are looked for by when they came.
    assert_eq!(told(&mut tape, &selection(&(0..9))).2.samples, 6);
    assert_eq!(told(&mut tape, &selection(&(2..9))).2.samples, 0);
    let (_, files) = tape.export(Format::Perfetto, &Selection::default(), None);
    assert!(fs::metadata(&files[0]).unwrap().len() > 0);
}
