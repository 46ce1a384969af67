//! The walk against what it must make of the same records, told the plain way: equal frames, byte for byte, and equal
//! counts, of random records and of real ones, stepped in runs and one by one.
#![allow(unsafe_code, reason = "stepping through raw buffers with a C function")]

#[path = "common/buffers.rs"]
mod buffers;
#[path = "common/plain.rs"]
mod plain;

use gtop_protocol::KindSet;
use gtop_protocol::validity::Bounds;
use gtop_shim::learn::Learned;
use gtop_shim::names::{InProcess, NameSource, NameTable};
use gtop_shim::offline::StrideStep;
use gtop_shim::streams::StreamTable;
use gtop_shim::stride::Strides;
use gtop_shim::walk::{self, Env, Tally};
use gtop_shim::write::Sink;
use gtop_shim::{CuptiStep, layout};
use plain::Plain;
use proptest::prelude::*;
use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    static VERSION: Cell<u32> = const { Cell::new(0) };
}

/// Does what `cuptiActivityGetNextRecord` of this thread's version does.
unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    let strides = Strides::of(VERSION.get());
    // SAFETY: the walk calls it with a buffer, its valid bytes, and null or the record before.
    let size_at = |at: *mut u8| strides.get(unsafe { at.cast::<u32>().read_unaligned() });
    // SAFETY: as above.
    unsafe {
        let next = if (*record).is_null() { buffer } else { (*record).add(size_at(*record).unwrap()) };
        let left = valid - next.offset_from_unsigned(buffer);
        if left < 4 || size_at(next).is_none_or(|size| size > left) {
            return 12;
        }
        *record = next;
    }
    0
}

/// Kinds of the walk, and two (contexts and names) that it does not know.
const KINDS: [u32; 12] = [1, 2, 3, 4, 5, 9, 10, 11, 17, 22, 38, 49];

fn each<'a>(strides: &Strides, buffer: &'a [u8]) -> Vec<&'a [u8]> {
    let (mut records, mut rest) = (Vec::new(), buffer);
    while let Some(kind) = rest.first_chunk() {
        let (record, behind) = rest.split_at(strides.get(u32::from_le_bytes(*kind)).unwrap());
        records.push(record);
        rest = behind;
    }
    records
}

/// Frames of given sizes, the last one first; 0 is one that is missing.
struct Frames {
    sizes: Vec<usize>,
    bodies: Vec<Vec<u8>>,
}

impl Sink for Frames {
    type Frame = Vec<u8>;

    fn take(&mut self) -> Option<Vec<u8>> {
        self.sizes.pop().filter(|size| *size > 0).map(|size| vec![0xEE; size])
    }

    fn push(&mut self, mut frame: Vec<u8>, len: usize, _: u32) -> bool {
        frame.truncate(len);
        self.bodies.push(frame);
        true
    }
}

/// What is the same for all buffers of one walk.
#[derive(Clone, Debug)]
struct Setting {
    version: u32,
    bounds: Bounds,
    kernel_until: u64,
    asked: KindSet,
    correlation: u64,
    sizes: Vec<usize>,
}

/// A walk that goes from buffer to buffer.
struct Walk<'a> {
    setting: &'a Setting,
    names: NameTable,
    streams: StreamTable,
    correlation: AtomicU64,
    learned: Learned,
}

impl<'a> Walk<'a> {
    fn new(setting: &'a Setting) -> Self {
        Self {
            setting,
            names: NameTable::new().unwrap(),
            streams: StreamTable::new().unwrap(),
            correlation: AtomicU64::new(setting.correlation),
            learned: Learned::default(),
        }
    }

    /// Teaches it the sizes, so that it goes on in runs.
    fn learn(self) -> Self {
        let strides = Strides::of(self.setting.version);
        let mut buffer = Vec::new();
        for kind in KINDS.into_iter().chain([1]) {
            let size = strides.get(kind).unwrap();
            buffer.extend(kind.to_le_bytes());
            buffer.resize(buffer.len() + size - 4, 0);
        }
        for _ in 0..16 {
            walk::discard(&mut self.learned.step(self.cupti(&buffer)));
        }
        self
    }

    fn cupti(&self, buffer: &[u8]) -> CuptiStep {
        VERSION.set(self.setting.version);
        let first = buffer.as_ptr().cast_mut();
        // SAFETY: the buffer outlives the step in all callers, and nothing writes to it.
        unsafe { CuptiStep::new(next_record, first, buffer.len(), self.setting.version) }
    }

    fn walk(&self, buffer: &[u8], source: &impl NameSource, runs: bool) -> (Vec<Vec<u8>>, Tally) {
        let env = Env {
            names: &self.names,
            streams: &self.streams,
            correlation: &self.correlation,
            bounds: self.setting.bounds,
            kernel_until: self.setting.kernel_until,
            asked: self.setting.asked,
            version: self.setting.version,
            sources: false,
        };
        let mut frames = Frames { sizes: self.setting.sizes.clone(), bodies: Vec::new() };
        let tally = if runs {
            walk::walk(&mut self.learned.step(self.cupti(buffer)), &env, source, &mut frames)
        } else {
            let strides = Strides::of(self.setting.version);
            walk::walk(&mut StrideStep::new(&strides, buffer), &env, source, &mut frames)
        };
        (frames.bodies, tally)
    }
}

/// Walks all three ways and compares; gives the sum of the records walked.
fn same(setting: &Setting, buffers: &[Vec<u8>], source: &impl NameSource) -> u64 {
    let (runs, one_by_one) = (Walk::new(setting).learn(), Walk::new(setting));
    let names = NameTable::new().unwrap();
    let mut plain = Plain::new(&names, source);
    (plain.bounds, plain.kernel_until, plain.asked) = (setting.bounds, setting.kernel_until, setting.asked);
    plain.correlation = setting.correlation;
    let strides = Strides::of(setting.version);
    let mut walked = 0;
    for buffer in buffers {
        plain.frames.clone_from(&setting.sizes);
        let (bodies, tally) = plain.walk(each(&strides, buffer).into_iter());
        for (walk, in_runs) in [(&runs, true), (&one_by_one, false)] {
            let (ours, counts) = walk.walk(buffer, source, in_runs);
            assert_eq!(counts, tally, "in runs: {in_runs}");
            assert!(ours == bodies, "in runs: {in_runs}, other bytes");
            assert_eq!(walk.correlation.load(Relaxed), plain.correlation);
        }
        walked += tally.walked;
    }
    walked
}

#[test]
fn real_buffers_become_the_frames_they_should() {
    for file in [
        "cupti-12.8.90-mixed.cuptibuf.xz",
        "cupti-13.0.85-mixed.cuptibuf.xz",
        "cupti-13.4.92-mixed.cuptibuf.xz",
        "cupti-13.0.85-vllm-0.24.0.cuptibuf.xz",
    ] {
        let recorded = buffers::recorded(file, 1 << 20);
        let setting = Setting {
            version: recorded.version,
            bounds: Bounds::UNKNOWN,
            kernel_until: u64::MAX,
            asked: KindSet::SAFE,
            correlation: 0,
            sizes: vec![64 << 10; 8],
        };
        // SAFETY: the names live as long as the buffers whose records point to them.
        let source = unsafe { InProcess::new() };
        assert_eq!(same(&setting, &recorded.each, &source), recorded.records, "{file}");
    }
}

/// A few names; none below the first page.
struct Few;

impl NameSource for Few {
    fn name(&self, pointer: u64) -> Option<&[u8]> {
        let names: [&[u8]; 4] = [b"gemm", b"gemv", b"a kernel with a longer name", b""];
        (pointer >= 4096).then(|| names[(pointer >> 3) as usize % names.len()])
    }
}

/// A record's bytes: any, or, where it is tame, those that matter made likely.
fn record(strides: &Strides, kind: u32, mut seed: u64, tame: bool) -> Vec<u8> {
    let mut any = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed ^ seed >> 29
    };
    let mut bytes: Vec<u8> = (0..strides.get(kind).unwrap()).map(|_| (any() >> 40) as u8).collect();
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    if !tame {
        return bytes;
    }
    macro_rules! set {
        ($layout:ident: $($field:ident + $more:literal = $value:expr),+ $(,)?) => {
            $({
                let (at, value) = (offset_of!(layout::$layout, $field) + $more, $value.to_le_bytes());
                bytes[at..at + value.len()].copy_from_slice(&value);
            })+
        };
    }
    macro_rules! set_common {
        ($layout:ident) => {
            let start = 1_000_000 + any() % 2000;
            let end = match any() % 16 {
                0 => 0,
                1 => start,
                2 => start - 1,
                _ => start + any() % 100,
            };
            set!($layout: start + 0 = start, end + 0 = end, context + 0 = (any() % 3) as u32,
                stream + 0 = (any() % 40) as u32, correlation + 0 = (any() % 50) as u32,
                device + 0 = (any() % 8) as u32, graph + 0 = (any() % 2) as u32);
        };
    }
    match kind {
        1 => {
            set_common!(Memcpy);
        }
        2 => {
            set_common!(Memset);
            set!(Memset: memory_kind + 0 = (any() % 300) as u16, flags + 0 = (any() % 300) as u16);
        }
        22 => {
            set_common!(PeerMemcpy);
            set!(PeerMemcpy: src_device + 0 = (any() % 8) as u32, dst_device + 0 = (any() % 8) as u32);
        }
        _ => {
            set_common!(Kernel);
            set!(Kernel: name + 0 = (any() % 9000), grid + 4 = (any() % 65_536) as u32,
                grid + 8 = (any() % 65_536) as u32, block + 0 = (any() % 1025) as u32,
                block + 4 = (any() % 1025) as u32, block + 8 = (any() % 65) as u32,
                cluster + 0 = (any() % 9) as u32, cluster + 4 = (any() % 9) as u32,
                cluster + 8 = (any() % 9) as u32, channel_type + 0 = (any() % 4) as u32);
            // Now and then one number alone that does not fit.
            let large = 1u32 << (any() % 32);
            match any() % 40 {
                0 => set!(Kernel: grid + 4 = large),
                1 => set!(Kernel: grid + 8 = large),
                2 => set!(Kernel: block + 0 = large),
                3 => set!(Kernel: block + 4 = large),
                4 => set!(Kernel: block + 8 = large),
                5 => set!(Kernel: device + 0 = large),
                6 => set!(Kernel: cluster + 0 = large),
                7 => set!(Kernel: cluster + 4 = large),
                8 => set!(Kernel: cluster + 8 = large),
                9 => set!(Kernel: channel_type + 0 = large),
                _ => {}
            }
        }
    }
    bytes
}

fn setting() -> impl Strategy<Value = Setting> {
    let bounds = prop_oneof![Just(Bounds::UNKNOWN), Just(Bounds { earliest: 1_000_100, latest: 1_001_900 }),];
    let kernel_until = prop_oneof![Just(u64::MAX), Just(1_001_000u64)];
    let correlation =
        prop_oneof![Just(0u64), Just(30), Just((1 << 32) + 20), any::<u32>().prop_map(u64::from)];
    let size = prop_oneof![4 => 200usize..2000, 1 => 0usize..100];
    let sizes = prop::collection::vec(size, 0..40);
    let version = prop::sample::select(vec![26u32, 130_001, 130_101, 130_301, 130_401]);
    (version, bounds, kernel_until, 0u32..8, correlation, sizes).prop_map(
        |(version, bounds, kernel_until, asked, correlation, sizes)| Setting {
            version,
            bounds,
            kernel_until,
            asked: KindSet(asked),
            correlation,
            sizes,
        },
    )
}

proptest! {
    #[test]
    fn random_records_become_the_frames_they_should(
        setting in setting(),
        buffers in prop::collection::vec(
            prop::collection::vec((prop::sample::select(vec![10u32, 10, 10, 3, 1, 2, 22]), 1usize..40, any::<u64>()), 0..12),
            1..4,
        ),
    ) {
        let strides = Strides::of(setting.version);
        let buffers: Vec<Vec<u8>> = buffers
            .iter()
            .map(|runs| {
                let seeds = runs.iter().flat_map(|(kind, count, seed)| {
                    (0..*count).map(move |at| (*kind, seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                });
                // One record in sixteen is of any bytes at all.
                seeds.flat_map(|(kind, seed)| record(&strides, kind, seed, seed >> 60 > 0)).collect()
            })
            .collect();
        same(&setting, &buffers, &Few);
    }
    #[test]
    fn in_runs_or_one_by_one_it_is_the_same(
        setting in setting(),
        runs in prop::collection::vec((prop::sample::select(KINDS.to_vec()), 1usize..20, any::<u64>()), 0..30),
        cut in 0usize..100,
    ) {
        let strides = Strides::of(setting.version);
        let records = runs.iter().flat_map(|(kind, count, seed)| {
            (0..*count).map(move |at| (*kind, seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        });
        let mut buffer: Vec<u8> = records.flat_map(|(kind, seed)| record(&strides, kind, seed, false)).collect();
        buffer.truncate(buffer.len().saturating_sub(cut));
        let (runs, one_by_one) = (Walk::new(&setting).learn(), Walk::new(&setting));
        prop_assert_eq!(runs.walk(&buffer, &Few, true), one_by_one.walk(&buffer, &Few, false));
    }
}
