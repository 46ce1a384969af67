//! Stepping from record to record by sizes learnt from CUPTI, whose own function takes 40 to 75 ns a record from
//! 13.3 on: the first buffers are stepped by CUPTI and each kind's size is learnt, later ones are stepped by those
//! sizes, and one buffer in 64 is stepped by CUPTI again and compared. At the first difference it is CUPTI for good.

use crate::collect::CuptiStep;
use crate::walk::{Next, Step, kind_of};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Kinds that can be learnt are below this.
const KINDS: usize = 64;
/// Buffers that are learnt from before anything is believed.
const FIRST: u64 = 16;
/// Of so many buffers one is compared.
const COMPARE: u64 = 64;
/// How often a kind must have been seen with the same size.
const OFTEN: u32 = 16;
/// The kind of no record; should one claim it all the same, it does not fit into any buffer.
const NONE: u32 = u32::MAX;
/// No record is shorter or longer, bytes.
const SIZES: core::ops::RangeInclusive<usize> = 8..=4096;

/// The sizes learnt so far; threads that complete buffers share it.
#[derive(Debug)]
pub struct Learned {
    /// By kind: size in the upper bits, how often it was seen in the lower eight.
    kinds: [AtomicU32; KINDS],
    buffers: AtomicU64,
    differed: AtomicBool,
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            kinds: [const { AtomicU32::new(0) }; KINDS],
            buffers: AtomicU64::new(0),
            differed: AtomicBool::new(false),
        }
    }
}

impl Learned {
    /// Steps through a buffer, in the way whose turn it is.
    #[must_use]
    pub fn step(&self, cupti: CuptiStep) -> LearnedStep<'_> {
        let buffer = self.buffers.fetch_add(1, Relaxed);
        let compare = buffer < FIRST || buffer.is_multiple_of(COMPARE) || self.has_differed();
        LearnedStep { learned: self, cupti, by_size: !compare, at: 0, next: 0, kind: NONE, size: usize::MAX }
    }

    /// Whether CUPTI ever stepped by another size than was learnt.
    #[must_use]
    pub fn has_differed(&self) -> bool {
        self.differed.load(Relaxed)
    }

    /// The size of a record of this kind, once it is believed. Not inlined, so that no size waits for a kind that needs
    /// none looked up.
    #[inline(never)]
    fn size(&self, kind: u32) -> Option<usize> {
        let known = self.kinds.get(kind as usize)?.load(Relaxed);
        (known & 0xff >= OFTEN).then_some((known >> 8) as usize)
    }

    /// CUPTI stepped over a record of this kind by so many bytes.
    #[inline]
    fn saw(&self, kind: u32, size: usize) {
        let Some(slot) = self.kinds.get(kind as usize) else { return };
        let known = slot.load(Relaxed);
        if known == 0 && SIZES.contains(&size) {
            // Should another thread have been first, it is compared the next time.
            let _ = slot.compare_exchange(0, (size as u32) << 8 | 1, Relaxed, Relaxed);
        } else if known >> 8 != size as u32 {
            self.differed.store(true, Release);
        } else if known & 0xff < OFTEN {
            // As many threads as may be here at once stay far below what eight bits hold.
            slot.fetch_add(1, Relaxed);
        }
    }
}

/// Steps through one buffer by learnt sizes, or by CUPTI, learning.
#[derive(Debug)]
pub struct LearnedStep<'a> {
    learned: &'a Learned,
    cupti: CuptiStep,
    by_size: bool,
    /// Where the last record began, and where it ends by the size learnt; both 0 before the first.
    at: usize,
    next: usize,
    /// The kind of the last record and its size. Most records are of the kind of the one before: with the size at hand
    /// the processor need not wait for a record to come from memory before it looks at the next one.
    kind: u32,
    size: usize,
}

impl Step for LearnedStep<'_> {
    #[inline]
    fn step(&mut self) -> Next<'_> {
        if self.by_size {
            let rest = self.cupti.rest(self.next);
            let (Some(kind), left) = (kind_of(rest), rest.len()) else { return Next::End(rest.len()) };
            let size = if kind == self.kind { Some(self.size) } else { self.learned.size(kind) };
            if let Some(size) = size {
                if left < size {
                    return Next::End(left);
                }
                (self.kind, self.size) = (kind, size);
                return Next::Run(self.cupti.rest(self.next), size);
            }
            // A kind not learnt yet: CUPTI goes on from the last record.
            self.by_size = false;
            if self.next > 0 {
                self.cupti.resume(self.at);
            }
        }
        self.by_cupti()
    }

    #[inline]
    fn took(&mut self, records: u64) {
        if self.by_size {
            self.next = self.next.wrapping_add(self.size.wrapping_mul(records.max(1) as usize));
            self.at = self.next.wrapping_sub(self.size);
        }
    }
}

impl LearnedStep<'_> {
    #[inline(never)]
    fn by_cupti(&mut self) -> Next<'_> {
        let before = self.cupti.offset();
        if !matches!(self.cupti.step(), Next::Record(_)) {
            // The record where it stopped is asked for once more, for an answer that lives long enough.
            return self.cupti.step();
        }
        let now = self.cupti.offset().unwrap_or(0);
        if let Some(before) = before
            && let Some(kind) = kind_of(self.cupti.rest(before))
        {
            self.learned.saw(kind, now.saturating_sub(before));
        }
        Next::Record(self.cupti.rest(now))
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "CUPTI's function is a C function over raw buffers")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sizes of a CUPTI of the tests' own, by kind.
    fn truth(kind: u32) -> Option<usize> {
        [None, Some(96), Some(88), None, None, None, None, None, None, None, Some(216)]
            .get(kind as usize)
            .copied()
            .flatten()
    }

    /// Does what `cuptiActivityGetNextRecord` does; from the hundredth buffer's mark on with another size.
    unsafe extern "C" fn next(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
        // SAFETY: the walk gives a buffer, its valid bytes, and null or the record before.
        unsafe {
            let bytes = core::slice::from_raw_parts(buffer, valid);
            let at = if (*record).is_null() {
                0
            } else {
                let at = (*record).offset_from_unsigned(buffer);
                at + truth(kind_of(&bytes[at..]).unwrap_or(0)).unwrap_or(valid)
            };
            let Some(kind) = bytes.get(at..).and_then(kind_of) else { return 12 };
            match truth(kind) {
                None => 21,
                Some(size) if bytes.len() - at < size => 12,
                Some(_) => {
                    *record = buffer.add(at);
                    0
                }
            }
        }
    }

    fn stepper(bytes: &mut [u8]) -> CuptiStep {
        // SAFETY: the bytes outlive the stepper in every test, and `next` does what CUPTI does.
        unsafe { CuptiStep::new(next, bytes.as_mut_ptr(), bytes.len(), 130_001) }
    }

    /// How many bytes there are from the begin of each record to the end of the buffer, and the end.
    fn walk(step: &mut impl Step, end: *const u8) -> (Vec<usize>, String) {
        let mut lengths = Vec::new();
        loop {
            let next = step.step();
            let Ok(run) = next.run() else { return (lengths, format!("{next:?}")) };
            let before = lengths.len();
            lengths.extend(run.records().map(|record| end as usize - record.as_ptr() as usize));
            step.took((lengths.len() - before) as u64);
        }
    }

    fn end(bytes: &[u8]) -> *const u8 {
        bytes.as_ptr_range().end
    }

    fn records(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for kind in kinds {
            let mut record = vec![0xAA; truth(*kind).unwrap()];
            record[..4].copy_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&record);
        }
        bytes
    }

    fn learnt() -> Learned {
        let learned = Learned::default();
        let mut bytes = records(&[10, 1, 10, 2, 10, 10]);
        for _ in 0..FIRST {
            let end = end(&bytes);
            walk(&mut learned.step(stepper(&mut bytes)), end);
        }
        learned
    }

    #[test]
    fn sizes_are_learnt_and_then_used() {
        let learned = learnt();
        assert_eq!([1, 2, 10, 3].map(|kind| learned.size(kind)), [Some(96), Some(88), Some(216), None]);
        let mut bytes = records(&[1, 10, 2]);
        let end = end(&bytes);
        let mut by_size = learned.step(stepper(&mut bytes));
        assert!(by_size.by_size);
        assert_eq!(walk(&mut by_size, end), (vec![400, 304, 88], "End(0)".into()));
        assert!(by_size.by_size && !learned.has_differed());
    }

    #[test]
    fn a_cupti_that_does_not_go_on_ends_the_walk() {
        unsafe extern "C" fn stays(buffer: *mut u8, _: usize, record: *mut *mut u8) -> u32 {
            // SAFETY: as for `next`.
            unsafe { *record = if (*record).is_null() { buffer.add(96) } else { buffer } };
            0
        }
        let mut bytes = records(&[1, 10, 2]);
        let end = end(&bytes);
        // SAFETY: the bytes outlive it; what it steps onto lies within them.
        let stuck = unsafe { CuptiStep::new(stays, bytes.as_mut_ptr(), bytes.len(), 130_001) };
        let learned = Learned::default();
        assert_eq!(walk(&mut learned.step(stuck), end), (vec![304], "Stuck(88)".into()));
    }

    #[test]
    fn another_size_ends_it_for_good() {
        let learned = learnt();
        learned.saw(10, 224);
        assert!(learned.has_differed());
        let mut bytes = records(&[10, 10]);
        assert!((0..200).all(|_| !learned.step(stepper(&mut bytes)).by_size));
    }

    #[test]
    fn one_buffer_in_64_is_compared() {
        let learned = learnt();
        let mut bytes = records(&[10]);
        let compared = (FIRST..FIRST + 640).filter(|_| !learned.step(stepper(&mut bytes)).by_size).count();
        assert_eq!(compared, 10);
    }

    proptest! {
        #[test]
        fn learnt_or_not_it_is_the_same_walk(
            runs in prop::collection::vec((prop::sample::select(vec![1u32, 2, 10]), 1usize..70), 0..12),
            cut in 0usize..300,
        ) {
            let learned = learnt();
            let kinds: Vec<u32> = runs.into_iter().flat_map(|(kind, often)| vec![kind; often]).collect();
            let mut bytes = records(&kinds);
            bytes.truncate(bytes.len().saturating_sub(cut));
            let mut copy = bytes.clone();
            let (end_of_copy, end) = (end(&copy), end(&bytes));
            let (expected, _) = walk(&mut stepper(&mut copy), end_of_copy);
            let mut by_size = learned.step(stepper(&mut bytes));
            prop_assert!(by_size.by_size);
            prop_assert_eq!(walk(&mut by_size, end).0, expected);
        }

        #[test]
        fn a_buffer_that_lies_is_never_read_beyond_its_end(mut bytes: Vec<u8>, plant: Vec<(u16, u8)>) {
            for (at, kind) in plant {
                if let Some(byte) = bytes.get_mut(at as usize) {
                    *byte = kind % 12;
                }
            }
            // On the heap at exactly its length, so that any byte beyond is somebody else's.
            let mut bytes = bytes.into_boxed_slice();
            let (learned, len, end) = (learnt(), bytes.len(), end(&bytes));
            let mut step = learned.step(stepper(&mut bytes));
            let (lengths, end) = walk(&mut step, end);
            prop_assert!(lengths.iter().all(|left| *left <= len), "{}", end);
            prop_assert!(lengths.windows(2).all(|two| two[1] < two[0]), "it always goes on");
        }
    }
}
