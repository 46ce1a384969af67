//! What is written is read again with the library's own reader.

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::*;
use crate::export::tests::reported::{RATE, REPORTED, rate, reported};
use crate::export::tests::{T, Tape, hostile, kernel, tape};
use crate::export::{Format, Selection};

fn rows(tape: &mut Tape) -> (SerializedFileReader<File>, Vec<Row>) {
    let (_, files) = tape.export(Format::Parquet, &Selection::default(), None);
    let reader = SerializedFileReader::new(File::open(&files[0]).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    (reader, rows)
}

fn text(row: &Row, name: &str) -> Option<String> {
    let (_, field) = row.get_column_iter().find(|(column, _)| *column == name).unwrap();
    match field {
        Field::Str(text) => Some(text.clone()),
        Field::Null => None,
        other => panic!("{name} is {other:?}"),
    }
}

fn number(row: &Row, name: &str) -> Option<i64> {
    let (_, field) = row.get_column_iter().find(|(column, _)| *column == name).unwrap();
    match field {
        Field::Long(number) => Some(*number),
        Field::Null => None,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn reported_values_are_rows_to_the_nanosecond() {
    let (_, rows) = rows(&mut reported());
    assert_eq!(rows.len() as u64, REPORTED.0);
    let mut lengths: Vec<i64> = rows.iter().filter_map(|row| number(row, "duration_ns")).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [1_376, 2_000, 3_776, 4_030, 6_000, 8_640]);
    let zero = rows.iter().find(|row| text(row, "class").as_deref() == Some("zero")).unwrap();
    assert_eq!((number(zero, "correlation"), number(zero, "start_ns")), (Some(106_123), None));
    let copy = rows.iter().find(|row| text(row, "kind").as_deref() == Some("memcpy")).unwrap();
    assert_eq!((number(copy, "bytes"), text(copy, "direction").as_deref()), (Some(200_000), Some("DtoH")));
    assert_eq!(rate(200_000, number(copy, "duration_ns").unwrap() as f64), RATE);
}

#[test]
fn texts_come_back_whatever_is_in_them() {
    let (_, rows) = rows(&mut tape());
    let mut names: Vec<String> =
        hostile().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let mut read: Vec<String> = rows.iter().filter_map(|row| text(row, "mangled")).collect();
    for list in [&mut names, &mut read] {
        list.sort();
        list.dedup();
    }
    assert!(names.iter().all(|name| read.contains(name)), "{read:?}");
}

#[test]
fn texts_of_several_groups_and_of_none_come_back() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    // As many names as take three bits, and some records of which nobody has told the name.
    let count = GROUP as u64 + 500;
    for name in 1..=6u32 {
        tape.name(1, name, format!("name{name}").as_bytes());
    }
    let called = |i: u64| ((i / 3 + i * i) % 8) as u32;
    let records: Vec<_> = (0..count).map(|i| kernel(called(i), T + i * 10, T + i * 10 + 5)).collect();
    for (ms, some) in records.chunks(1_000).enumerate() {
        tape.records(1, ms as u64 + 1, 1, some);
    }
    let (reader, rows) = rows(&mut tape);
    assert_eq!((rows.len() as u64, reader.metadata().num_row_groups()), (count, 2));
    for (i, row) in (0..count).zip(&rows) {
        let name = Some(called(i)).filter(|name| (1..=6).contains(name)).map(|name| format!("name{name}"));
        assert_eq!(text(row, "name"), name, "row {i}");
        assert_eq!(text(row, "direction"), None);
        assert_eq!(text(row, "kind").as_deref(), Some("kernel"));
    }
    let statistics = |name: &str| {
        let group = reader.metadata().row_group(1);
        let column = group.columns().iter().find(|column| column.column_path().string() == name).unwrap();
        column.statistics().cloned().unwrap()
    };
    let names = statistics("name");
    assert_eq!((names.min_bytes_opt(), names.max_bytes_opt()), (Some(&b"name1"[..]), Some(&b"name6"[..])));
    assert_eq!(statistics("direction").null_count_opt(), Some(500));
    assert_eq!(statistics("kind").null_count_opt(), Some(0));
}

#[test]
fn a_group_of_long_texts_is_ended_early() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    let long = |name: u32| format!("{name}{}", "x".repeat(15_000));
    for name in 1..=600u32 {
        tape.name(1, name, long(name).as_bytes());
    }
    for name in 1..=600u32 {
        tape.records(1, u64::from(name), 1, &[kernel(name, T, T + 1)]);
    }
    let (reader, rows) = rows(&mut tape);
    assert!(reader.metadata().num_row_groups() > 1);
    for (name, row) in (1..=600).zip(&rows) {
        assert_eq!(text(row, "name").as_deref(), Some(long(name).as_str()));
    }
}
