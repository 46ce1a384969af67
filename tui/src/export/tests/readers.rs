//! Exports read back by other tools: DuckDB, and the schema that Perfetto publishes, both from PyPI.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::model::Model;
use crate::model::snapshot::SourceKind;

const FORMATS: [(&str, Format); 5] = [
    ("perfetto", Format::Perfetto),
    ("chrome", Format::Chrome),
    ("parquet", Format::Parquet),
    ("csv", Format::Csv),
    ("ndjson", Format::Ndjson),
];

/// The folder with the tools' packages; without it tests are skipped unless they are required.
fn readers() -> Option<std::ffi::OsString> {
    let found = std::env::var_os("GTOP_TEST_READERS").filter(|folder| Path::new(folder).is_dir());
    if found.is_none() {
        let required =
            std::env::var("GTOP_REQUIRE").is_ok_and(|list| list.split(',').any(|one| one == "duckdb"));
        assert!(
            !required,
            "GTOP_REQUIRE=duckdb, but GTOP_TEST_READERS names no folder with duckdb and perfetto"
        );
        eprintln!("skipped: GTOP_TEST_READERS names no folder with the packages duckdb and perfetto");
    }
    found
}

fn read_back<A: AsRef<OsStr>>(readers: &OsStr, arguments: &[A]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_back.py");
    let output =
        Command::new("python3").arg(script).args(arguments).env("PYTHONPATH", readers).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn read_files(readers: &OsStr, format: &str, files: &[PathBuf]) -> Value {
    let mut arguments = vec![OsStr::new(format)];
    arguments.extend(files.iter().map(|file| file.as_os_str()));
    read_back(readers, &arguments)
}

#[test]
fn hostile_names_and_bad_times_come_back_from_every_format() {
    let Some(readers) = readers() else { return };
    let mut tape = tape();
    let mut names: Vec<String> =
        hostile().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    for (name, format) in FORMATS {
        let (_, files) = tape.export(format, &Selection::default(), None);
        let read = read_files(&readers, name, &files);
        assert_eq!(read["rows"], ROWS.0, "{name}");
        assert_eq!(read["kind"], json!({"kernel": 15, "memcpy": 2, "memset": 1}), "{name}");
        let classes = json!({"valid": 14, "zero": 1, "inverted": 1, "sentinel": 1, "zero_start": 1});
        assert_eq!(read["class"], classes, "{name}");
        let mut back: Vec<String> = serde_json::from_value(read["names"].clone()).unwrap();
        back.sort();
        assert_eq!(back, names, "{name}");
        let busy = 11 * 1_376 + 1 + 8_640 + 100;
        assert_eq!((&read["busy_ns"], &read["bytes"]), (&json!(busy), &json!(200_000)), "{name}");
        assert_eq!(read["first"], T + 1_000_000, "{name}");
        if format == Format::Perfetto {
            assert_eq!((&read["unknown"], &read["nested"]), (&json!([]), &json!(0)));
        }
    }
}

#[test]
fn a_real_server_has_the_same_counts_everywhere() {
    let Some(readers) = readers() else { return };
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/cupti-13.0.85-vllm-0.24.0.cuptibuf.xz");
    let mut model = Model::new(SourceKind::File, "");
    let conn = model.add(0);
    crate::source::file::read(&fixture, &mut |bytes| {
        let (frame, _) = Frame::split(bytes).unwrap().unwrap();
        model.apply(conn, &frame, crate::model::time::Moment::default());
    })
    .unwrap();
    let stat = model.snapshot(crate::model::time::Moment::default()).processes[0].records;
    let folder = tempfile::tempdir().unwrap();
    let mut first: Option<Value> = None;
    for (name, format) in FORMATS {
        let output = Output { path: folder.path().join(name), ..plain(format) };
        let source = Source::Buffers(fixture.clone());
        export(source, &Selection::default(), &output, &mut |_| {}).unwrap();
        output.written.put_in_place().unwrap();
        let files: Vec<PathBuf> = output.written.parts().into_iter().map(|part| part.path).collect();
        let mut read = read_files(&readers, name, &files);
        assert_eq!(
            read["kind"],
            json!({"kernel": stat.kernel, "memcpy": stat.memcpy, "memset": stat.memset})
        );
        assert_eq!(
            (&read["rows"], &read["class"]),
            (&json!(stat.shown), &json!({"valid": stat.shown})),
            "{name}"
        );
        if let Some(overlaps) = read.get("overlaps").or_else(|| read.get("nested")) {
            assert_eq!(overlaps, 0, "{name}");
        }
        if format == Format::Perfetto {
            assert_eq!(read["unknown"], json!([]));
            assert!(read["tracks"].to_string().contains("process / GPU 0 / stream "), "{}", read["tracks"]);
        }
        let kept = ["busy_ns", "first", "bytes"].map(|key| read[key].take());
        let kept = json!(kept);
        assert_eq!(&kept, first.get_or_insert_with(|| kept.clone()), "{name}");
    }
}

/// The query that the README shows, over the recordings of three machines.
#[test]
fn a_fleet_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = Output { path: folder.path().to_owned(), ..plain(Format::Parquet) };
    for (host, kernels, long) in [("node-a", 3, 700), ("node-b", 5, 300), ("node-c", 1, 100)] {
        let mut tape = Tape::of(host.as_bytes());
        tape.hello(1, 844, b"EngineCore");
        tape.name(1, 1, b"gemm");
        tape.name(1, 2, b"softmax");
        let records: Vec<_> = (0..kernels)
            .flat_map(|at| {
                let start = T + at * 10_000;
                [kernel(1, start, start + long), kernel(2, start + 5_000, start + 5_100), kernel(1, 0, 0)]
            })
            .collect();
        tape.records(1, 1, 1, &records);
        // The next day.
        tape.records(1, 80_000_000, 1, &[kernel(2, T + 80_000_000_000_000, T + 80_000_000_000_100)]);
        export(tape.source(), &Selection::default(), &output, &mut |_| {}).unwrap();
        output.written.put_in_place().unwrap();
    }
    let files: Vec<String> = output
        .written
        .parts()
        .iter()
        .map(|part| part.path.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files.len(), 6);
    assert_eq!(files[1], "host=node-a/date=2023-04-29/x-20230428T072053-2.parquet");
    let Some(readers) = readers() else { return };
    let readme = include_str!("../../../../README.md");
    let (_, query) = readme.split_once("```sql\n").unwrap();
    let (query, _) = query.split_once("```").unwrap();
    assert!(query.contains("'fleet/"), "{query}");
    let query = query.replace("'fleet/", &format!("'{}/", folder.path().display()));
    let rows = read_back(&readers, &["query", &query, ""]);
    let share = |row: &Value| row[2].as_f64().unwrap();
    let rows = rows.as_array().unwrap();
    let names: Vec<(&str, &str)> =
        rows.iter().map(|row| (row[0].as_str().unwrap(), row[1].as_str().unwrap())).collect();
    assert_eq!(
        names,
        [
            ("node-a", "gemm"),
            ("node-a", "softmax"),
            ("node-b", "gemm"),
            ("node-b", "softmax"),
            ("node-c", "softmax"),
            ("node-c", "gemm"),
        ]
    );
    assert!((share(&rows[0]) - 2_100.0 / 2_500.0).abs() < 1e-9, "{rows:?}");
    assert!((share(&rows[5]) - 100.0 / 300.0).abs() < 1e-9, "{rows:?}");
}
