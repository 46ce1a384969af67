//! What the shim's walk costs a record, over 64 MiB of distinct real buffers, against stepping alone and against copying
//! as many bytes out of the same records.
//!
//! With `GTOP_TEST_CUPTI` naming a libcupti.so.13 of 13.0.85, the stepping is the real library's.
#![allow(unsafe_code, reason = "stepping through raw buffers with a C function")]
#![allow(missing_docs, reason = "criterion's macros")]

#[path = "../tests/common/buffers.rs"]
mod buffers;
#[path = "../tests/common/real.rs"]
mod real;

use buffers::Buffers;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gtop_protocol::validity::Bounds;
use gtop_protocol::{KindSet, record};
use gtop_shim::frames::{Frames, ToQueue};
use gtop_shim::learn::Learned;
use gtop_shim::names::{InProcess, NameTable};
use gtop_shim::streams::StreamTable;
use gtop_shim::stride::Strides;
use gtop_shim::walk::{self, Env, Next, Step};
use gtop_shim::{CuptiStep, NextRecord};
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BYTES: usize = 64 << 20;

fn step_only(next: NextRecord, version: u32, buffer: &[u8]) -> u64 {
    let mut count = 0;
    // SAFETY: the buffer outlives the step, which only reads.
    let mut step = unsafe { CuptiStep::new(next, buffer.as_ptr().cast_mut(), buffer.len(), version) };
    while let Next::Record(bytes) = step.step() {
        count += u64::from(black_box(bytes)[0] != 0);
    }
    count
}

/// The least that anyone does who keeps anything of the records: as many bytes as the walk writes, taken from both ends
/// of each record, without a look at one of them but the kind.
fn copy_only(strides: &Strides, out: &mut [u8], buffer: &[u8]) -> u64 {
    let (mut count, mut at, mut last, mut size) = (0, 0, 0, 0);
    let mut rest = buffer;
    while let Some(kind) = rest.first_chunk().map(|kind| u32::from_le_bytes(*kind)) {
        if kind != last {
            (last, size) = (kind, strides.get(kind).unwrap());
        }
        let half = if kind == 10 { size_of::<record::Kernel>() / 2 } else { size_of::<record::Copy>() / 2 };
        if out.len() - at < 2 * half {
            at = 0;
        }
        let (record, behind) = rest.split_at(size);
        out[at..at + half].copy_from_slice(&record[8..8 + half]);
        out[at + half..at + 2 * half].copy_from_slice(&record[size - half..]);
        (rest, at, count) = (behind, at + 2 * half, count + 1);
    }
    black_box(out);
    count
}

struct Walk {
    learned: Learned,
    names: NameTable,
    streams: RefCell<StreamTable>,
    frames: Frames,
    correlation: AtomicU64,
}

impl Walk {
    /// All that came is forgotten, so that what comes again comes in order.
    fn restart(&self) {
        self.streams.replace(StreamTable::new().unwrap());
        self.correlation.store(0, Relaxed);
    }

    fn walk(&self, next: NextRecord, version: u32, buffer: &[u8], learn: bool) -> u64 {
        let streams = self.streams.borrow();
        let env = Env {
            names: &self.names,
            streams: &streams,
            correlation: &self.correlation,
            bounds: Bounds { earliest: 1, latest: u64::MAX >> 1 },
            kernel_until: u64::MAX,
            asked: KindSet::SAFE,
            version,
            sources: false,
        };
        // SAFETY: the buffer and the names outlive the walk, which only reads.
        let (step, source) = unsafe {
            let first = buffer.as_ptr().cast_mut();
            (CuptiStep::new(next, first, buffer.len(), version), InProcess::new())
        };
        let mut sink = ToQueue::new(&self.frames);
        let tally = if learn {
            walk::walk(&mut self.learned.step(step), &env, &source, &mut sink)
        } else {
            let mut step = step;
            walk::walk(&mut step, &env, &source, &mut sink)
        };
        assert_eq!(tally.framed, tally.walked);
        // The I/O thread's part: frames come back.
        while let Some(frame) = self.frames.pop() {
            black_box(frame.body().len());
        }
        tally.walked
    }
}

/// What is done with a buffer; gives its records.
type Body<'a> = &'a dyn Fn(&[u8]) -> u64;
/// What is done before all of them.
type Before<'a> = &'a dyn Fn();

/// CPU time of this thread, which a busy machine lengthens less than the clock's.
fn cpu_time(body: impl FnOnce()) -> Duration {
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is writable.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    };
    let before = now();
    body();
    now().saturating_sub(before)
}

/// Time for all buffers. Warm: each is read through just before, untimed, since CUPTI has just written it when
/// the shim gets it. Cold: they come from memory, where stepping alone waits longer for single lines than the
/// walk does for all of them in order.
fn all(buffers: &Buffers, warm: bool, before: Before<'_>, body: Body<'_>) -> Duration {
    before();
    buffers.each.iter().map(|buffer| one(buffer, warm, body)).sum()
}

/// Time for one buffer.
fn one(buffer: &[u8], warm: bool, body: Body<'_>) -> Duration {
    if warm {
        black_box(buffer.iter().fold(0u8, |sum, byte| sum ^ byte));
    }
    cpu_time(|| _ = black_box(body(buffer)))
}

/// Nanoseconds a record for each body: for each buffer its best of many rounds, so that on a busy machine most of what
/// others do is left out. The bodies take turns, so that whatever the machine does meets all.
fn best<const N: usize>(
    buffers: &Buffers,
    warm: bool,
    before: Before<'_>,
    bodies: [Body<'_>; N],
) -> [f64; N] {
    let mut best = [(); N].map(|()| vec![Duration::MAX; buffers.each.len()]);
    for _ in 0..20 {
        for (best, body) in best.iter_mut().zip(bodies) {
            before();
            for (best, buffer) in best.iter_mut().zip(&buffers.each) {
                *best = one(buffer, warm, body).min(*best);
            }
        }
    }
    best.map(|best| best.iter().sum::<Duration>().as_nanos() as f64 / buffers.records as f64)
}

fn bench(criterion: &mut Criterion) {
    let next = real::Real::load().map_or(buffers::by_stride as NextRecord, |real| real.next_record());
    for (name, file) in
        [("vllm", "cupti-13.0.85-vllm-0.24.0.cuptibuf.xz"), ("mixed", "cupti-13.0.85-mixed.cuptibuf.xz")]
    {
        let buffers = buffers::recorded(file, BYTES);
        let version = buffers.version;
        let walk = Walk {
            learned: Learned::default(),
            names: NameTable::new().unwrap(),
            streams: RefCell::new(StreamTable::new().unwrap()),
            frames: Frames::new(512).unwrap(),
            correlation: AtomicU64::new(0),
        };
        let strides = Strides::of(version);
        let out = RefCell::new(vec![0; 128 << 10]);
        let copy = |buffer: &[u8]| copy_only(&strides, &mut out.borrow_mut(), buffer);
        let step = |buffer: &[u8]| step_only(next, version, buffer);
        let by_cupti = |buffer: &[u8]| walk.walk(next, version, buffer, false);
        let learned = |buffer: &[u8]| walk.walk(next, version, buffer, true);
        let restart = || walk.restart();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(buffers.records)).sample_size(10);
        for (warm, how) in [(true, "warm"), (false, "cold")] {
            let sum = |rounds, body: Body<'_>| (0..rounds).map(|_| all(&buffers, warm, &restart, body)).sum();
            let bodies: [(&str, Body<'_>); 4] =
                [("copy", &copy), ("step", &step), ("walk", &by_cupti), ("walk by learnt sizes", &learned)];
            for (what, body) in bodies {
                group.bench_function(format!("{what} {how}"), |bencher| {
                    bencher.iter_custom(|rounds| sum(rounds, body));
                });
            }
            let [copy, step, walk, learned] = best(&buffers, warm, &restart, bodies.map(|(_, body)| body));
            let above = walk - step;
            println!(
                "{name}, {how}: copy {copy:.1} ns, step {step:.1} ns, walk {walk:.1} ns, above stepping {above:.1} ns, \
                 by learnt sizes {learned:.1} ns a record"
            );
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
