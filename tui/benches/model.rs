//! How many records a second the model takes in, and what a snapshot costs: frames of a real vLLM server.

mod fixture;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gtop::model::snapshot::{SourceKind, UNKNOWN_DEVICE};
use gtop::model::time::Moment;
use gtop::model::{Conn, Model};
use gtop::view::{ViewState, render};
use gtop_protocol::frame::Frame;
use ratatui::layout::Size;

use fixture::{RECORDS, frames};

fn new() -> (Model, Conn) {
    let mut model = Model::new(SourceKind::Live, "bench");
    let conn = model.add(1);
    (model, conn)
}

fn feed(model: &mut Model, conn: Conn, frames: &[Vec<u8>]) {
    let now = Moment { wall: 1_764_000_000_000_000_000, steady: 1_000_000_000 };
    for bytes in frames {
        if let Ok(Some((frame, _))) = Frame::split(bytes) {
            model.apply(conn, &frame, now);
        }
    }
}

fn bench(c: &mut Criterion) {
    let frames = frames();
    let mut group = c.benchmark_group("model");
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function("apply", |b| {
        b.iter_batched(new, |(mut model, conn)| feed(&mut model, conn, &frames), BatchSize::LargeInput);
    });
    group.finish();

    let (mut model, conn) = new();
    feed(&mut model, conn, &frames);
    let now = Moment { wall: 1_764_000_000_000_000_000, steady: 2_000_000_000 };
    c.bench_function("snapshot", |b| b.iter(|| black_box(model.snapshot(now))));
    c.bench_function("glance", |b| b.iter(|| black_box(model.glance(now))));

    let snapshot = model.snapshot(now);
    let process = &snapshot.processes[0];
    let lane = process.lanes.iter().max_by_key(|lane| lane.slices.len()).expect("there are lanes");
    let (from, to) = lane.slices.span().expect("it has slices");
    let name = |detail| process.details.get(detail).map_or(UNKNOWN_DEVICE, |detail| detail.name_id);
    c.bench_function("raster of 40,000 slices", |b| {
        b.iter(|| black_box(lane.slices.raster(from, to, 100, name)));
    });
    let recent = to - 50_000_000;
    c.bench_function("raster of 50 ms", |b| b.iter(|| black_box(lane.slices.raster(recent, to, 100, name))));
}

/// A whole frame of the screen: each tab, and the timeline so far out that all that is kept falls into a few columns.
fn draw(c: &mut Criterion) {
    let frames = frames();
    let (mut model, conn) = new();
    feed(&mut model, conn, &frames);
    let now = Moment { wall: 1_764_000_000_000_000_000, steady: 2_000_000_000 };
    let snapshot = model.snapshot(now);
    let mut bench = |name: &str, state: &ViewState| {
        c.bench_function(&format!("draw {name} 200x60"), |b| {
            b.iter(|| black_box(render(&snapshot, state, Size::new(200, 60))));
        });
    };
    for (tab, name) in ["overview", "timeline", "kernels", "graphs", "memory", "trust"].iter().enumerate() {
        bench(name, &ViewState { tab, ..ViewState::default() });
    }
    let far = gtop::config::parse("tab = 2\ncolumn = \"1s\"\n").expect("a configuration");
    bench("timeline far out", &ViewState::new(&far, None));
}

criterion_group!(benches, bench, draw);
criterion_main!(benches);
