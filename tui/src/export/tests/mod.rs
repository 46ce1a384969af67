//! What goes into a recording comes out in every format.

mod large;
mod lead;
mod readers;
pub(crate) mod reported;
mod viewers;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gtop_protocol::Validity;
use gtop_protocol::frame::{Frame, FrameKind, MAX_BODY, write_frame};
use gtop_protocol::message::{Clock, Hello, HelloFields, names};
use gtop_protocol::record::{Copy, Kernel, Memset};
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Recording, Writer};
use serde_json::Value;
use tempfile::TempDir;
use zerocopy::IntoBytes;

use super::*;
use crate::source::recording::{MAX_PROCESSES, TOO_MANY, When};

/// 2023-04-28 07:20:53 UTC.
pub(crate) const T: u64 = 1_682_666_453_000_000_000;

/// A recording to be made.
pub(crate) struct Tape {
    pub(super) folder: TempDir,
    writer: Option<Writer<File>>,
    seq: u64,
    /// By how much somebody has set the clock, nanoseconds.
    set: i64,
}

impl Tape {
    pub(crate) fn new() -> Self {
        Self::of(b"node-1")
    }

    /// A recording of a machine.
    pub(super) fn of(host: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("x.gtop")).unwrap();
        let head = HeadFields { host, began: T, label: b"a test", ..HeadFields::default() };
        let writer = Writer::begin(file, &head, Keep::default(), At { wall: T, steady: 0 }).unwrap();
        Self { folder, writer: Some(writer), seq: 0, set: 0 }
    }

    pub(super) fn frame(&mut self, stream: u32, ms: u64, kind: FrameKind, body: &[u8]) {
        let mut bytes = vec![0; body.len() + 16];
        self.seq += 1;
        let len = write_frame(&mut bytes, kind, self.seq, |w| w.bytes(body)).unwrap();
        let (frame, _) = Frame::split(&bytes[..len]).unwrap().unwrap();
        let wall = (T + ms * 1_000_000).wrapping_add_signed(self.set);
        let at = At { wall, steady: ms * 1_000_000 };
        self.writer.as_mut().unwrap().write(&Entry { at, stream, frame }).unwrap();
    }

    pub(crate) fn hello(&mut self, stream: u32, pid: u32, name: &[u8]) {
        let hello = Hello::new(HelloFields { pid, name, ..HelloFields::default() });
        self.frame(stream, 0, FrameKind::Hello, &body(|w| hello.write(w).unwrap()));
    }

    pub(crate) fn name(&mut self, stream: u32, id: u32, name: &[u8]) {
        self.frame(stream, 0, FrameKind::Names, &body(|w| names::write_one(w, id, name).unwrap()));
    }

    pub(crate) fn records<R: IntoBytes + zerocopy::Immutable>(
        &mut self,
        stream: u32,
        ms: u64,
        family: u8,
        records: &[R],
    ) {
        let mut body = vec![family, 0, 0, 0];
        body.extend_from_slice(&(records.len() as u32).to_le_bytes());
        for record in records {
            body.extend_from_slice(record.as_bytes());
        }
        self.frame(stream, ms, FrameKind::Records, &body);
    }

    /// Exports it; gives what came of it and the files.
    pub(crate) fn export(
        &mut self,
        format: Format,
        selection: &Selection,
        max_size: Option<u64>,
    ) -> (Done, Vec<PathBuf>) {
        let out = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        let output = Output { path: out.join("out"), max_size, ..plain(format) };
        let done = export(self.source(), selection, &output, &mut |_| {}).unwrap();
        output.written.put_in_place().unwrap();
        let files = output.written.parts().into_iter().map(|part| part.path).collect();
        (done, files)
    }

    /// The recording, ended.
    pub(super) fn source(&mut self) -> Source {
        if let Some(writer) = self.writer.take() {
            writer.finish().unwrap();
        }
        let file = File::open(self.folder.path().join("x.gtop")).unwrap();
        Source::Recording(Box::new(Recording::open(file).unwrap()))
    }

    /// The one file of an export of everything.
    pub(super) fn text(&mut self, format: Format) -> String {
        let (_, files) = self.export(format, &Selection::default(), None);
        fs::read_to_string(&files[0]).unwrap()
    }
}

/// An output without limits and without a path.
pub(super) fn plain(format: Format) -> Output {
    let (path, stem, written) = (PathBuf::new(), "x".to_owned(), Written::default());
    Output { format, path, stem, max_size: None, dry: false, written }
}

fn body(write: impl FnOnce(&mut gtop_protocol::wire::Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; MAX_BODY];
    let mut w = gtop_protocol::wire::Writer::new(&mut bytes);
    write(&mut w);
    let len = w.len();
    bytes.truncate(len);
    bytes
}

pub(crate) fn kernel(name: u32, start: u64, end: u64) -> Kernel {
    let class = gtop_protocol::validity::classify(start, end, gtop_protocol::validity::Bounds::UNKNOWN);
    Kernel {
        start: start.into(),
        end: end.into(),
        name: name.into(),
        stream: 7.into(),
        context: 1.into(),
        correlation: 515.into(),
        validity: class as u8,
        ..Kernel::default()
    }
}

/// Names that break what others write.
pub(super) fn hostile() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        b"operator\"\"_kg".as_slice(),
        b"a\\b",
        b"bytes \x01\x02\x03 and\ttab",
        b"two\nlines\r\nthree",
        b"surrogate \xed\xa0\x80 and \xff",
        b"{\"device\": \"cpu\"}",
        b",;\"',=1+1",
        b" spaces ",
        "中文 ÄÖ 🦀".as_bytes(),
        b"_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.push([b"k<".as_slice(), "int, ".repeat(2000).as_bytes(), b">"].concat());
    names
}

/// A recording with hostile names, valid and invalid records of every family.
pub(crate) fn tape() -> Tape {
    let mut tape = Tape::new();
    tape.hello(1, 844, b"Engine\"Core\n");
    let mut kernels = Vec::new();
    for (at, name) in hostile().iter().enumerate() {
        let id = at as u32 + 1;
        tape.name(1, id, name);
        let start = T + 1_000_000 * u64::from(id);
        kernels.push(kernel(id, start, start + 1_376));
    }
    kernels.push(kernel(1, 0, 0));
    kernels.push(kernel(2, 9_000, 5_000));
    kernels.push(kernel(3, T, u64::MAX));
    kernels.push(kernel(999, T + 500_000_000, T + 500_000_001));
    tape.records(1, 30, 1, &kernels);
    let copy = Copy {
        start: (T + 31_170_714).into(),
        end: (T + 31_179_354).into(),
        bytes: 200_000.into(),
        correlation: 517.into(),
        direction: 2,
        stream: 7.into(),
        context: 1.into(),
        graph: 4751.into(),
        graph_node: (u64::MAX - 1).into(),
        ..Copy::default()
    };
    tape.records(1, 40, 2, &[copy, Copy { start: 0.into(), validity: Validity::ZeroStart as u8, ..copy }]);
    let memset = Memset { start: (T + 50_000_000).into(), end: (T + 50_000_100).into(), ..Memset::default() };
    tape.records(1, 60, 3, &[memset]);
    tape
}

/// Rows in [`tape`], and those without believable times.
pub(crate) const ROWS: (u64, u64) = (18, 4);

/// The lines of a CSV file as RFC 4180 has it.
fn csv(text: &str) -> Vec<Vec<Option<String>>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), None::<String>);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                let text = field.get_or_insert_default();
                while let Some(c) = rest.next() {
                    if c == '"' && rest.next_if_eq(&'"').is_none() {
                        break;
                    }
                    text.push(c);
                }
            }
            ',' => row.push(field.take()),
            '\n' => {
                row.push(field.take());
                rows.push(std::mem::take(&mut row));
            }
            c => field.get_or_insert_default().push(c),
        }
    }
    rows
}

#[test]
fn every_record_is_a_row_with_its_name() {
    let mut tape = tape();
    let (done, _) = tape.export(Format::Csv, &Selection::default(), None);
    assert_eq!((done.rows, done.invalid, done.damage), (ROWS.0, ROWS.1, None));
    let rows = csv(&tape.text(Format::Csv));
    let lines: Vec<Value> =
        tape.text(Format::Ndjson).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len() as u64, lines.len() as u64), (ROWS.0 + 1, ROWS.0));
    let column = |name: &str| rows[0].iter().position(|column| column.as_deref() == Some(name)).unwrap();
    for (row, line) in rows[1..].iter().zip(&lines) {
        assert_eq!(row.len(), rows[0].len());
        for (name, value) in rows[0].iter().zip(row) {
            let json = &line[name.as_deref().unwrap()];
            let text = json.as_str().map(str::to_owned).or_else(|| json.as_u64().map(|n| n.to_string()));
            assert_eq!(&text, value, "{name:?}");
        }
        assert_eq!((&line["pid"], &line["host"]), (&844.into(), &"node-1".into()));
        assert_eq!(line["process"], "Engine\"Core\n");
    }
    for (name, row) in hostile().iter().zip(&rows[1..]) {
        assert_eq!(row[column("mangled")].as_deref(), Some(&*String::from_utf8_lossy(name)));
        assert_eq!(row[column("class")].as_deref(), Some("valid"));
        assert_eq!(row[column("duration_ns")].as_deref(), Some("1376"));
    }
    let full = lines[9]["name"].as_str().unwrap();
    assert!(full.starts_with("void at::native::vectorized_elementwise_kernel<2, "), "{full}");
    let bad: Vec<_> = lines.iter().filter(|line| line["class"] != "valid").collect();
    let classes: Vec<_> = bad.iter().map(|line| line["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["zero", "inverted", "sentinel", "zero_start"]);
    for line in bad {
        assert!(line["start_ns"].is_null() && line["end_ns"].is_null() && line["duration_ns"].is_null());
        assert!(line["raw_start"].is_string() && line["arrived_ns"].is_string(), "{line}");
    }
    assert_eq!(lines[12]["raw_start"], "9000");
    assert_eq!(lines[14]["name"], Value::Null, "nobody told it");
    assert_eq!((&lines[15]["bytes"], &lines[15]["direction"]), (&200_000.into(), &"DtoH".into()));
    assert_eq!(
        (&lines[15]["graph"], lines[15]["graph_node"].as_str()),
        (&4751.into(), Some("18446744073709551614"))
    );
}

#[test]
fn a_selection_takes_what_begins_in_it() {
    let mut tape = tape();
    let after = |ms| Some(When::After(std::time::Duration::from_millis(ms)));
    let mut rows = |from, until, name: Option<&str>| {
        let selection = Selection { from, until, name: name.map(Glob::new), sample: false };
        tape.export(Format::Ndjson, &selection, None).0.rows
    };
    assert_eq!(rows(None, None, Some("*")), ROWS.0);
    assert_eq!(rows(None, None, Some("copy DtoH")), 2);
    assert_eq!(rows(None, None, Some("_ZN2at6native*")), 1);
    assert_eq!(rows(None, None, Some("*vectorized_elementwise_kernel<2, *")), 1);
    assert_eq!(rows(None, None, Some("operator\"\"_kg")), 2, "and an invalid one");
    assert_eq!(rows(after(3), after(5), None), 2);
    assert_eq!(rows(after(31), after(45), None), 2, "a copy, and one that came then");
    assert_eq!(rows(None, after(20), None), 11);
    assert_eq!(rows(after(60_000), None, None), 0);
}

#[test]
fn a_selection_of_times_is_the_same_over_many_chunks() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    for second in 0..20u64 {
        let starts = (0..100).map(|at| T + second * 1_000_000_000 + at * 10_000_000);
        let kernels: Vec<_> = starts.map(|start| kernel(1, start, start + 5)).collect();
        // Each second is delivered a second later.
        tape.records(1, second * 1000 + 2000, 1, &kernels);
    }
    let after = |ms| Some(When::After(std::time::Duration::from_millis(ms)));
    for (from, until, count) in [(0, 3500, 350), (5000, 6000, 100), (17_500, 99_000, 250)] {
        let selection = Selection { from: after(from), until: after(until), ..Selection::default() };
        let (done, _) = tape.export(Format::Csv, &selection, None);
        // The recording begins when its first frame came, and the records with it.
        assert_eq!(done.rows, count, "{from} to {until}");
    }
}

#[test]
fn a_selection_of_times_goes_on_where_somebody_has_set_the_clock() {
    for by in [-3_600_000_000_000, 3_600_000_000_000] {
        let mut tape = Tape::new();
        tape.hello(1, 7, b"x");
        for second in 0..20u64 {
            let began = T + second * 1_000_000_000;
            let began = if second < 10 { began } else { began.wrapping_add_signed(by) };
            let starts = (0..100).map(|at| began + at * 10_000_000);
            let kernels: Vec<_> = starts.map(|start| kernel(1, start, start + 5)).collect();
            // What began before the clock was set is delivered behind it.
            tape.set = if second < 9 { 0 } else { by };
            tape.records(1, second * 1000 + 1500, 1, &kernels);
        }
        let after = |ms| Some(When::After(std::time::Duration::from_millis(ms)));
        for (from, until, count) in [
            (after(0), None, 2000),
            (None, after(u64::MAX), 2000),
            (after(9_000), after(11_000), 200),
            (after(3_500), after(12_000), 850),
            (after(11_250), None, 875),
        ] {
            let selection = Selection { from, until, ..Selection::default() };
            let (done, _) = tape.export(Format::Chrome, &selection, None);
            assert_eq!(done.rows, count, "{selection:?} with a clock set by {by}");
        }
    }
}

#[test]
fn times_of_another_clock_are_mapped_to_the_epoch() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    let pair = Clock { realtime: T + 1_000, monotonic: 5_000, cupti: 5_000, error: 10, ..Clock::default() };
    tape.frame(1, 0, FrameKind::Clock, &body(|w| pair.write(w).unwrap()));
    tape.records(1, 1, 1, &[kernel(1, 6_000, 6_500)]);
    // Somebody sets the clock back by an hour.
    let pair = Clock { realtime: pair.realtime - 3_600_000_000_000, monotonic: 7_000, cupti: 7_000, ..pair };
    tape.frame(1, 2, FrameKind::Clock, &body(|w| pair.write(w).unwrap()));
    tape.records(1, 3, 1, &[kernel(1, 8_000, 8_500)]);
    let text = tape.text(Format::Ndjson);
    let starts: Vec<u64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["start_ns"].as_str().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(starts, [T + 2_000, T + 2_000 - 3_600_000_000_000]);
}

#[test]
fn a_time_that_no_clock_shows_has_no_place() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    // By this pair the first record begins before the epoch, and ends in it.
    let pair = Clock { realtime: 0, cupti: T + 3, error: 10, ..Clock::default() };
    tape.frame(1, 0, FrameKind::Clock, &body(|w| pair.write(w).unwrap()));
    tape.records(1, 1, 1, &[kernel(1, T, T + 5), kernel(1, T + 9, T + 12)]);
    for format in [Format::Csv, Format::Chrome, Format::Parquet, Format::Perfetto] {
        let (done, _) = tape.export(format, &Selection::default(), None);
        assert_eq!((done.rows, done.invalid), (2, 1), "{format:?}");
    }
    let text = tape.text(Format::Ndjson);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["class"], &rows[0]["start_ns"]), (&"foreign_clock".into(), &Value::Null));
    assert_eq!((rows[1]["start_ns"].as_str(), rows[1]["end_ns"].as_str()), (Some("6"), Some("9")));
}

#[test]
fn processes_without_end_are_left_out_and_that_is_said() {
    let mut tape = Tape::new();
    (1..=MAX_PROCESSES as u32 + 1).for_each(|stream| tape.frame(stream, 0, FrameKind::Notice, &[]));
    let (done, _) = tape.export(Format::Csv, &Selection::default(), None);
    assert_eq!(done.damage.as_deref(), Some(TOO_MANY));
}

#[test]
fn large_exports_are_cut_into_parts_that_are_whole() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    tape.name(1, 1, b"k");
    let kernels: Vec<_> = (0..8000).map(|at| kernel(1, T + at * 10, T + at * 10 + 5)).collect();
    tape.records(1, 1, 1, &kernels);
    let (done, files) = tape.export(Format::Csv, &Selection::default(), Some(200_000));
    assert_eq!(
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect::<Vec<_>>()[..2],
        ["out", "out.2"]
    );
    let rows: usize = files.iter().map(|path| csv(&fs::read_to_string(path).unwrap()).len() - 1).sum();
    assert_eq!((done.rows, rows), (8000, 8000));
    let sizes: Vec<u64> = files.iter().map(|path| path.metadata().unwrap().len()).collect();
    assert!(files.len() > 2 && sizes.iter().all(|size| *size < 400_000), "{sizes:?}");
}

#[test]
fn an_estimate_is_near_and_writes_nothing() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    tape.name(1, 1, b"a name of some length");
    for second in 0..200u64 {
        let starts = (0..500).map(|at| T + second * 1_000_000_000 + at * 10_000);
        let kernels: Vec<_> = starts.map(|start| kernel(1, start, start + 5_000)).collect();
        tape.records(1, second * 1000 + 1000, 1, &kernels);
    }
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Csv, Format::Chrome, Format::Perfetto] {
        let (_, files) = tape.export(format, &Selection::default(), None);
        let whole = files.iter().map(|file| file.metadata().unwrap().len()).sum::<u64>() as f64;
        let output = Output { dry: true, path: folder.path().join("none"), ..plain(format) };
        let selection = Selection { sample: true, ..Selection::default() };
        let done = export(tape.source(), &selection, &output, &mut |_| {}).unwrap();
        assert!(done.seen < done.of / 4 && done.of == 100_000, "{done:?}");
        let bytes: u64 = output.written.parts().iter().map(|part| part.bytes).sum();
        let estimate = bytes as f64 * done.of as f64 / done.seen as f64;
        assert!((estimate / whole - 1.0).abs() < 0.2, "{format:?}: {estimate} for {whole}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn raw_buffers_are_exported_too() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/cupti-12.8.90-mixed.cuptibuf.xz");
    let folder = tempfile::tempdir().unwrap();
    let output = Output { path: folder.path().join("out"), ..plain(Format::Ndjson) };
    let done = export(Source::Buffers(path), &Selection::default(), &output, &mut |_| {}).unwrap();
    assert_eq!((done.rows, done.invalid), (5_359 + 1_118 + 1_006, 0));
}
