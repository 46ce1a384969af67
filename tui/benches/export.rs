//! How many records a second leave for other tools: the records of a real vLLM server, repeated to a million.

use std::fs::File;
use std::path::PathBuf;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gtop::export::{Format, Output, Selection, Source, Written, export};
use gtop_protocol::recording::Recording;

mod fixture;
mod repeated;
use fixture::RECORDS;

/// How often the records are repeated.
const TIMES: u64 = 24;

fn bench(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench.gtop");
    repeated::record(&path, TIMES);
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
