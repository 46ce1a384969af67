//! Recordings of many records: writing, opening, going to any moment, and summing up.
//!
//! `GTOP_BENCH_RECORDS` says of how many millions of records; 4 when it is not set, and few when this is only tested.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gtop::model::Model;
use gtop::model::snapshot::SourceKind;
use gtop::source::recording;
use gtop::source::replay::Player;
use gtop_protocol::recording::Recording;

mod fixture;
mod repeated;
use fixture::RECORDS;

fn open(path: &Path) -> File {
    File::open(path).expect("it is there")
}

fn bench(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench.gtop");
    let millions = std::env::var("GTOP_BENCH_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let times = if std::env::args().any(|arg| arg == "--bench") { millions * 1_000_000 / RECORDS } else { 2 };
    repeated::record(&path, times);
    let bytes = open(&path).metadata().expect("it has a size").len();
    let each = bytes as f64 / (times * RECORDS) as f64;
    println!("{} records, {:.1} MB, {each:.2} bytes a record", times * RECORDS, bytes as f64 / 1e6);
    assert!(each <= 3.0);

    c.bench_function("open", |b| b.iter(|| black_box(Recording::open(open(&path)).expect("it opens"))));

    let recording = || Recording::open(Box::new(open(&path)) as _).expect("it opens");
    let mut player = Player::new(recording(), "bench");
    let (first, last) = player.range();
    let mut place = 0u64;
    c.benchmark_group("jump").sample_size(20).bench_function("anywhere", |b| {
        b.iter(|| {
            // Far from where it was, ahead and back.
            place = (place + 618) % 1000;
            player.seek(first + (last - first) / 1000 * place);
            black_box(player.snapshot());
        });
    });

    let mut group = c.benchmark_group("stat");
    group.throughput(Throughput::Elements(times * RECORDS)).sample_size(10);
    group.bench_function("whole", |b| {
        b.iter(|| {
            let mut model = Model::summary(SourceKind::Live, "bench");
            let opened = Recording::open(open(&path)).expect("it opens");
            let (now, damage) = recording::read_into(&mut model, opened).expect("it reads");
            assert!(damage.is_none());
            let snapshot = model.snapshot(now);
            assert_eq!(snapshot.processes[0].records.shown, times * RECORDS);
        });
    });
    group.finish();

    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(RECORDS * times.min(20))).sample_size(10);
    let other = folder.path().join("written.gtop");
    group.bench_function("on one core", |b| b.iter(|| repeated::record(&other, times.min(20))));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
