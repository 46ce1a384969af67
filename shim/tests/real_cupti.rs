//! Recorded buffers of 13.0.85, stepped over by the real library.

#[path = "common/buffers.rs"]
mod buffers;
#[path = "common/real.rs"]
mod real;

use gtop_protocol::KindSet;
use gtop_protocol::frame::{RecordSizes, Runs};
use gtop_protocol::record::{self, Family};
use gtop_protocol::validity::{Bounds, Validity};
use gtop_shim::CuptiStep;
use gtop_shim::frames::{Frames, ToQueue};
use gtop_shim::names::{InProcess, NameTable};
use gtop_shim::streams::StreamTable;
use gtop_shim::stride::Strides;
use gtop_shim::walk::{self, Env, Next, Step};
use std::sync::atomic::AtomicU64;

#[test]
#[expect(unsafe_code, reason = "a foreign library steps through raw buffers")]
fn the_real_library_and_the_walk_agree() {
    let Some(real) = real::Real::load() else { return };
    for file in ["cupti-13.0.85-mixed.cuptibuf.xz", "cupti-13.0.85-vllm-0.24.0.cuptibuf.xz"] {
        let recorded = buffers::recorded(file, 1 << 20);
        let (names, streams) = (NameTable::new().unwrap(), StreamTable::new().unwrap());
        let frames = Frames::new(256).unwrap();
        let correlation = AtomicU64::new(0);
        let env = Env {
            names: &names,
            streams: &streams,
            correlation: &correlation,
            bounds: Bounds::UNKNOWN,
            kernel_until: u64::MAX,
            asked: KindSet::SAFE,
            version: real.version(),
            sources: false,
        };
        let (mut walked, mut kernels) = (0, 0u64);
        for buffer in &recorded.each {
            let mut bytes = buffer.clone();
            // SAFETY: the bytes outlive the step; the names outlive the bytes.
            let (mut step, source) = unsafe {
                let first = bytes.as_mut_ptr();
                (CuptiStep::new(real.next_record(), first, bytes.len(), real.version()), InProcess::new())
            };
            let tally = walk::walk(&mut step, &env, &source, &mut ToQueue::new(&frames));
            assert_eq!((tally.walked, tally.unknown_bytes, tally.queue_full), (tally.framed, 0, 0));
            walked += tally.walked;
            while let Some(frame) = frames.pop() {
                for run in Runs::new(frame.body(), RecordSizes::OURS) {
                    if run.family() == Some(Family::Kernel) {
                        for kernel in run.records().map(record::read::<record::Kernel>) {
                            kernels += 1;
                            assert_eq!(kernel.validity, Validity::Valid as u8);
                            assert!(names.get(kernel.name.get()).is_some_and(|name| !name.is_empty()));
                        }
                    }
                }
            }
        }
        assert_eq!(walked, recorded.records, "{file}");
        assert!(kernels > walked / 2);
    }
}

#[test]
#[expect(unsafe_code, reason = "a foreign library steps through raw buffers")]
fn what_the_real_library_says_at_the_end_is_understood() {
    let Some(real) = real::Real::load() else { return };
    let ends = |bytes: &mut Vec<u8>| {
        // SAFETY: the bytes outlive the step.
        let mut step =
            unsafe { CuptiStep::new(real.next_record(), bytes.as_mut_ptr(), bytes.len(), real.version()) };
        let mut records = 0;
        loop {
            match step.step() {
                Next::Record(_) => records += 1,
                Next::Run(..) => panic!("CUPTI steps from record to record"),
                Next::End(left) => return (records, "end", left),
                Next::Stuck(left) => return (records, "stuck", left),
            }
        }
    };
    let recorded = buffers::recorded("cupti-13.0.85-mixed.cuptibuf.xz", 1);
    let whole = &recorded.each[0];
    let first = Strides::of(130_001).get(u32::from(whole[0])).unwrap();
    assert_eq!(ends(&mut Vec::new()), (0, "end", 0));
    assert_eq!(ends(&mut whole[..first].to_vec()), (1, "end", 0));
    assert_eq!(ends(&mut whole[..first + 8].to_vec()).0, 1, "a record cut short is none");
    for unknown in [0u32, 63, 1000] {
        let mut bytes = whole[..first].to_vec();
        bytes.extend(unknown.to_le_bytes());
        bytes.resize(first + 100, 0);
        assert_eq!(ends(&mut bytes), (1, "stuck", 100), "kind {unknown}");
    }
}
