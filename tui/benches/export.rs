//! How many records a second leave for other tools: the records of a real vLLM server, repeated to a million.

use std::fs::File;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gtop::export::{Format, Output, Selection, Source, Written, export};
use gtop::source::file;
use gtop_protocol::frame::{Frame, FrameKind, Header, RecordSizes, Runs};
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Recording, Writer};

/// Records in the fixture, how often they are repeated, and how long they last, in nanoseconds.
const RECORDS: u64 = 42_176;
const TIMES: u64 = 24;
const LASTS: u64 = 400_000_000;

/// The body of a records frame, so much later.
fn later(body: &[u8], by: u64) -> Vec<u8> {
    let mut moved = body.to_vec();
    for run in Runs::new(body, RecordSizes::OURS) {
        let from = run.bytes.as_ptr() as usize - body.as_ptr() as usize;
        for at in (from..from + run.bytes.len()).step_by(run.size) {
            for field in [at, at + 8] {
                let bytes: [u8; 8] = moved[field..field + 8].try_into().expect("eight bytes");
                let time = u64::from_le_bytes(bytes) + by;
                moved[field..field + 8].copy_from_slice(&time.to_le_bytes());
            }
        }
    }
    moved
}

fn record(path: &Path) {
    let fixture = "../tests/fixtures/cupti-13.0.85-vllm-0.24.0.cuptibuf.xz";
    let mut frames = Vec::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    file::read(&fixture, &mut |frame| frames.push(frame.to_vec())).expect("the fixture reads");
    let head = HeadFields { host: b"bench", ..HeadFields::default() };
    let file = File::create(path).expect("a new file");
    let began = At { wall: 1_764_000_000_000_000_000, steady: 0 };
    let mut writer = Writer::begin(file, &head, Keep::default(), began).expect("it begins");
    for time in 0..TIMES {
        let each = LASTS / frames.len() as u64;
        for (number, bytes) in frames.iter().enumerate() {
            let Ok(Some((frame, _))) = Frame::split(bytes) else { continue };
            let passed = time * LASTS + number as u64 * each;
            let at = At { wall: began.wall + passed, steady: passed };
            let is_records = frame.kind() == Some(FrameKind::Records);
            if is_records || time == 0 {
                let body = if is_records { later(frame.body, time * LASTS) } else { frame.body.to_vec() };
                let header = Header { seq: time * frames.len() as u64 + number as u64 + 1, ..frame.header };
                let frame = Frame { header, body: &body };
                writer.write(&Entry { at, stream: 1, frame }).expect("it is written");
            }
        }
    }
    writer.finish().expect("it ends");
}

fn bench(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench.gtop");
    record(&path);
    let mut group = c.benchmark_group("export");
    group.throughput(Throughput::Elements(RECORDS * TIMES)).sample_size(10);
    for (name, format) in [
        ("perfetto", Format::Perfetto),
        ("parquet", Format::Parquet),
        ("chrome", Format::Chrome),
        ("csv", Format::Csv),
        ("ndjson", Format::Ndjson),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let recording = Recording::open(File::open(&path).expect("it is there")).expect("it opens");
                let output = Output {
                    format,
                    path: PathBuf::from("bench"),
                    stem: String::new(),
                    max_size: None,
                    dry: true,
                    written: Written::default(),
                };
                let source = Source::Recording(Box::new(recording));
                let done = export(source, &Selection::default(), &output, &mut |_| {}).expect("it exports");
                assert_eq!(done.rows, RECORDS * TIMES);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
