//! Chrome's JSON: strict, exact to the nanosecond, and without overlaps.

use std::collections::HashMap;

use gtop_protocol::frame::FrameKind;
use gtop_protocol::message::{DeviceSample, Loss, Pool, pools};
use gtop_protocol::record::Copy;
use serde_json::Value;

use super::*;

fn chrome(tape: &mut Tape) -> Value {
    serde_json::from_str(&tape.text(Format::Chrome)).unwrap()
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn differences_are_exact_as_doubles() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    tape.name(1, 1, b"k");
    // Values of a real kernel and a real copy.
    tape.records(1, 100, 1, &[kernel(1, 1_682_666_453_031_165_466, 1_682_666_453_031_166_842)]);
    let copy = Copy {
        start: 1_682_666_453_031_170_714.into(),
        end: 1_682_666_453_031_179_354.into(),
        bytes: 200_000.into(),
        direction: 2,
        ..Copy::default()
    };
    tape.records(1, 101, 2, &[copy]);
    let trace = chrome(&mut tape);
    let slices = events(&trace, "X");
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap();
    assert_eq!((number(slices[0], "dur"), number(slices[1], "dur")), (1.376, 8.64));
    let apart = (number(slices[1], "ts") - number(slices[0], "ts")) * 1000.0;
    assert!((apart - 5_248.0).abs() < 0.5, "{apart}");
    let origin: u64 = trace["otherData"]["origin_ns"].as_str().unwrap().parse().unwrap();
    let start = origin + (number(slices[0], "ts") * 1000.0).round() as u64;
    assert_eq!(start, 1_682_666_453_031_165_466);
    assert_eq!(slices[1]["args"]["bytes"], 200_000);
}

#[test]
fn records_without_times_stay_off_the_axis() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    tape.records(1, 1, 1, &[kernel(1, T + 1000, T + 7000), kernel(1, 0, 0)]);
    let trace = chrome(&mut tape);
    assert_eq!(events(&trace, "X").len(), 1);
    let invalid: Vec<_> =
        events(&trace, "M").into_iter().filter(|event| event["name"] == "invalid_record").collect();
    assert_eq!((invalid.len(), &invalid[0]["args"]["class"]), (1, &"zero".into()));
    assert!(invalid[0].get("ts").is_none());
    let earliest =
        events(&trace, "X").iter().map(|event| event["ts"].as_f64().unwrap()).fold(f64::MAX, f64::min);
    assert!((0.0..1e6).contains(&earliest), "{earliest}");
}

#[test]
fn no_row_has_overlaps_and_nothing_is_dropped() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    let spans = [(3_000, 6_776), (5_000, 7_000), (6_000, 9_000), (6_776, 8_000), (100, 200)];
    tape.records(1, 1, 1, &spans.map(|(start, end)| kernel(1, T + start, T + end)));
    let trace = chrome(&mut tape);
    let mut rows: HashMap<String, Vec<(i64, i64)>> = HashMap::new();
    for event in events(&trace, "X") {
        let ns = |key: &str| (event[key].as_f64().unwrap() * 1000.0).round() as i64;
        rows.entry(event["tid"].to_string()).or_default().push((ns("ts"), ns("ts") + ns("dur")));
    }
    assert_eq!(rows.values().map(Vec::len).sum::<usize>(), spans.len());
    for spans in rows.values_mut() {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
    }
}

#[test]
fn hostile_names_come_back() {
    let trace = chrome(&mut tape());
    let names: Vec<&str> = events(&trace, "X")
        .iter()
        .map(|event| event["args"]["mangled"].as_str().unwrap_or_else(|| event["name"].as_str().unwrap()))
        .collect();
    for (name, back) in hostile().iter().zip(names) {
        assert_eq!(back, String::from_utf8_lossy(name));
    }
    let process = events(&trace, "M").into_iter().find(|event| event["name"] == "process_name").unwrap();
    assert_eq!(process["args"]["name"], "Engine\"Core\n");
}

#[test]
fn two_processes_that_had_the_same_pid_are_two() {
    let mut tape = Tape::new();
    tape.hello(1, 844, b"one");
    tape.hello(2, 844, b"two");
    tape.records(1, 1, 1, &[kernel(1, T + 1000, T + 2000)]);
    tape.records(2, 2, 1, &[kernel(1, T + 1500, T + 2500)]);
    let trace = chrome(&mut tape);
    let pids: Vec<u64> = events(&trace, "X").iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    assert!(pids[0] == 844 && pids[1] > 1 << 22, "{pids:?}");
    let rows = tape.text(Format::Ndjson);
    assert_eq!(rows.matches("\"pid\":844").count(), 2);
}

#[test]
fn counters_are_told() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    let sample = DeviceSample {
        time: T,
        memory_used: Some(5 << 30),
        power_mw: Some(350_500),
        ..DeviceSample::default()
    };
    tape.frame(0, 1, FrameKind::DeviceSample, &body(|w| sample.write(w).unwrap()));
    let pool = Pool { context: 3, observed: Some(17), ..Pool::default() };
    tape.frame(1, 1, FrameKind::Pools, &body(|w| pools::write_one(w, &pool).unwrap()));
    let loss = Loss { queue_full: 9, joined_queue_full: 4, dropped: 2, ..Loss::default() };
    tape.frame(1, 2, FrameKind::Loss, &body(|w| loss.write(w).unwrap()));
    tape.records(1, 3, 1, &[kernel(1, T + 1000, T + 2000), kernel(1, 0, 0)]);
    tape.records(1, 2000, 1, &[kernel(1, T + 3000, T + 4000)]);
    let trace = chrome(&mut tape);
    let of = |name: &str| {
        let found = events(&trace, "C").into_iter().find(|event| event["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {:?}", events(&trace, "C")))["args"]["value"].as_f64()
    };
    assert_eq!(of("GPU 0 memory used"), Some(5_368_709_120.0));
    assert_eq!(of("GPU 0 power"), Some(350.5));
    assert_eq!(of("device buffers in use, context 3"), Some(17.0));
    assert_eq!(of("lost records"), Some(7.0));
    assert_eq!(of("invalid records"), Some(50.0));
}
