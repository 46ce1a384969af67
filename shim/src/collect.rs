//! The two callbacks CUPTI makes, on its own threads and several at once: lend a buffer, walk a full one.
#![expect(unsafe_code, reason = "called by CUPTI, with raw buffers")]

use crate::buffers::{BUFFER_LEN, BUFFERS, Buffers, Returned};
use crate::clock::CuptiClock;
use crate::frames::{FRAMES, Frames, ToQueue};
use crate::learn::Learned;
use crate::names::{InProcess, NameTable};
use crate::quiet;
use crate::raw::{self, Copies};
use crate::streams::StreamTable;
use crate::stride::Strides;
use crate::sys;
use crate::table::{NextRecord, Stepping, Steps};
use crate::wake::Wake;
use crate::walk::{self, Env, Next, Step, Tally};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use gtop_protocol::KindSet;
use gtop_protocol::cupti::CuptiVersion;

/// What became of all records, in records unless it says otherwise.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) walked: AtomicU64,
    pub(crate) framed: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) unknown_kind: AtomicU64,
    pub(crate) unknown_bytes: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) cupti_dropped: AtomicU64,
    pub(crate) kernel: AtomicU64,
    pub(crate) memcpy: AtomicU64,
    pub(crate) memset: AtomicU64,
    pub(crate) graph_memset: AtomicU64,
    pub(crate) other: AtomicU64,
    pub(crate) launches: AtomicU64,
    /// Nanoseconds spent in the completion callback.
    pub(crate) callback_ns: AtomicU64,
    /// Completion callbacks that panicked.
    pub(crate) panics: AtomicU64,
}

impl Counters {
    fn add(&self, tally: &Tally) {
        for (counter, count) in [
            (&self.walked, tally.walked),
            (&self.framed, tally.framed),
            (&self.queue_full, tally.queue_full),
            (&self.unknown_kind, tally.unknown_kind),
            (&self.unknown_bytes, tally.unknown_bytes),
            (&self.discarded, tally.discarded),
            (&self.kernel, tally.kernel),
            (&self.memcpy, tally.memcpy),
            (&self.memset, tally.memset),
            (&self.graph_memset, tally.graph_memset),
            (&self.other, tally.other),
            (&self.launches, tally.launches),
        ] {
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        }
    }
}

/// Everything the callbacks need; made once, at the first arming.
#[derive(Debug)]
pub(crate) struct Collector {
    pid: u32,
    pub(crate) version: CuptiVersion,
    pub(crate) steps: Steps,
    pub(crate) frames: Frames,
    pub(crate) names: NameTable,
    streams: StreamTable,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    /// Sizes of records, learnt from CUPTI.
    pub(crate) learned: Learned,
    pub(crate) clock: CuptiClock,
    pub(crate) copies: Copies,
    correlation: AtomicU64,
    /// Kinds that were ever asked for, [`KindSet`] bits.
    pub(crate) asked: AtomicU32,
    /// CUPTI's nanoseconds when kernel was last switched on; 0 where that is not known.
    kernel_since: AtomicU64,
    /// CUPTI's nanoseconds when kernel was last switched off; all ones while it is on, or where that is not known.
    kernel_until: AtomicU64,
    /// Whether CUPTI was told to track which library asks for memory, since memory records were last switched on.
    pub(crate) sources: AtomicBool,
    /// Whether records go into frames; otherwise they are counted and dropped.
    pub(crate) streaming: AtomicBool,
    /// `CLOCK_MONOTONIC` nanoseconds when a buffer last came back.
    pub(crate) last_completed: AtomicU64,
    wake: &'static Wake,
}

impl Collector {
    /// A collector, or `None` without memory for it.
    pub(crate) fn new(steps: Steps, version: CuptiVersion, wake: &'static Wake) -> Option<Self> {
        Some(Self {
            pid: sys::pid(),
            version,
            steps,
            frames: Frames::new(FRAMES)?,
            names: NameTable::new()?,
            streams: StreamTable::new()?,
            buffers: Buffers::new(BUFFERS)?,
            counters: Counters::default(),
            learned: Learned::default(),
            clock: CuptiClock::default(),
            copies: Copies::default(),
            correlation: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            kernel_since: AtomicU64::new(0),
            kernel_until: AtomicU64::new(u64::MAX),
            sources: AtomicBool::new(false),
            streaming: AtomicBool::new(false),
            last_completed: AtomicU64::new(0),
            wake,
        })
    }

    /// Kernel goes off now: graphs that run on overwrite the ends of what was traced of them.
    pub(crate) fn kernel_goes_off(&self) {
        self.kernel_until.store(self.clock.now().unwrap_or(u64::MAX), Relaxed);
    }

    /// Kernel goes on now, or has stayed on.
    pub(crate) fn kernel_goes_on(&self) {
        self.kernel_until.store(u64::MAX, Relaxed);
    }

    /// Kernel is on from now on.
    pub(crate) fn kernel_is_on(&self) {
        self.kernel_since.store(self.clock.now().unwrap_or(0), Relaxed);
    }

    /// When kernel was last switched on and off, CUPTI's nanoseconds; `None` where it is on or that is not known.
    pub(crate) fn kernel_switched(&self) -> [Option<u64>; 2] {
        let (since, until) = (self.kernel_since.load(Relaxed), self.kernel_until.load(Relaxed));
        [(since > 0).then_some(since), (until < u64::MAX).then_some(until)]
    }

    fn lend(&self) -> *mut u8 {
        self.buffers.lend(self.version.may_refuse_buffer())
    }

    /// Takes a buffer back and walks its valid part.
    ///
    /// # Safety
    /// If `pointer` is a lent buffer, CUPTI must be done with it, and its first `valid` bytes must be records
    /// whose name pointers live until this returns.
    unsafe fn complete(&self, pointer: *mut u8, valid: usize, stepping: Stepping) {
        let began = sys::monotonic();
        let back = match self.buffers.take_back(pointer) {
            Returned::Ours(back) => back,
            Returned::Spare => {
                // Several threads may have written to it at once: what it holds is lost, in bytes.
                self.counters.unknown_bytes.fetch_add(valid.min(BUFFER_LEN) as u64, Relaxed);
                return;
            }
            Returned::Foreign => return,
        };
        let stepper = || CuptiStep {
            stepping,
            first: back.pointer(),
            valid: valid.min(BUFFER_LEN),
            version: self.version.0,
            record: core::ptr::null_mut(),
        };
        let mut sink = ToQueue::new(&self.frames);
        let tally = if self.streaming.load(Acquire) {
            let env = Env {
                names: &self.names,
                streams: &self.streams,
                correlation: &self.correlation,
                bounds: self.clock.bounds(),
                kernel_until: self.kernel_until.load(Relaxed),
                asked: KindSet(self.asked.load(Relaxed)),
                version: self.version.0,
                sources: self.sources.load(Relaxed),
            };
            // SAFETY: by this function's own promise.
            let names = unsafe { InProcess::new() };
            let mut first = self.learned.step(stepper());
            let tally = walk::walk(&mut first, &env, &names, &mut sink);
            if self.copies.takes(tally.invalid) {
                let all = stepper();
                let whole = raw::Buffer { bytes: all.rest(0), version: self.version.0, tally: &tally };
                sink.pushed |= self.copies.keep(&whole, &mut stepper(), &self.names, &names);
            }
            tally
        } else {
            walk::discard(&mut self.learned.step(stepper()))
        };
        drop(back);
        self.counters.add(&tally);
        let ended = sys::monotonic();
        self.last_completed.store(ended, Relaxed);
        self.counters.callback_ns.fetch_add(ended.saturating_sub(began), Relaxed);
        if sink.pushed {
            let _ = self.wake.notify();
        }
    }
}

/// Steps with CUPTI's own function, which knows the size of each record.
#[derive(Debug)]
pub struct CuptiStep {
    stepping: Stepping,
    first: *mut u8,
    valid: usize,
    version: u32,
    record: *mut u8,
}

impl CuptiStep {
    /// Steps through the first `valid` bytes at `first`.
    ///
    /// # Safety
    /// Those bytes must be readable and stay as they are while this lives, and `next_record` must be that of a
    /// CUPTI of this version or do what it does.
    #[must_use]
    pub const unsafe fn new(next_record: NextRecord, first: *mut u8, valid: usize, version: u32) -> Self {
        Self { stepping: Stepping::V1(next_record), first, valid, version, record: core::ptr::null_mut() }
    }

    /// Where the last record begins; none before the first.
    #[inline]
    pub(crate) fn offset(&self) -> Option<usize> {
        (!self.record.is_null()).then(|| (self.record as usize).wrapping_sub(self.first as usize))
    }

    /// Goes on behind the record at this offset, at which one of these bytes' records must begin.
    pub(crate) fn resume(&mut self, offset: usize) {
        if offset < self.valid {
            self.record = self.first.wrapping_add(offset);
        }
    }

    /// The bytes at an offset, up to the end of the valid ones.
    #[inline]
    pub(crate) fn rest(&self, offset: usize) -> &[u8] {
        let len = self.valid.saturating_sub(offset);
        // SAFETY: within the valid bytes, or empty.
        unsafe { core::slice::from_raw_parts(self.first.add(self.valid.wrapping_sub(len)), len) }
    }

    /// Bytes behind the record where the stepping stopped. CUPTI does not say how long that record is; we know
    /// for the versions we know.
    #[cold]
    fn left(&self) -> usize {
        if self.record.is_null() {
            return self.valid;
        }
        let rest = self.rest((self.record as usize).wrapping_sub(self.first as usize));
        let kind = rest.first_chunk().map_or(0, |kind| u32::from_le_bytes(*kind));
        rest.len().saturating_sub(Strides::of(self.version).get(kind).unwrap_or(0))
    }
}

/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: no record is left.
const NO_MORE: u32 = 12;

impl Step for CuptiStep {
    #[inline]
    fn step(&mut self) -> Next<'_> {
        let before = self.record;
        if self.valid == 0 {
            return Next::End(0);
        }
        // SAFETY: by the promise made when this was built; it writes one pointer.
        let result = unsafe { self.stepping.next(self.first, self.valid, &mut self.record) };
        if result != 0 {
            self.record = before;
            // The last record's own size is not known here, so whether bytes are left behind it cannot be told
            // at the regular end.
            return if result == NO_MORE { Next::End(0) } else { Next::Stuck(self.left()) };
        }
        let offset = (self.record as usize).wrapping_sub(self.first as usize);
        // Back, or nowhere, would be for ever.
        if offset >= self.valid || self.record <= before {
            self.record = before;
            return Next::Stuck(self.left());
        }
        Next::Record(self.rest(offset))
    }
}

/// The collector the callbacks feed. CUPTI has no way to pass one along.
static CURRENT: AtomicPtr<Collector> = AtomicPtr::new(core::ptr::null_mut());

/// From now on the callbacks feed this one.
pub(crate) fn install(collector: &'static Collector) {
    CURRENT.store(core::ptr::from_ref(collector).cast_mut(), core::sync::atomic::Ordering::Release);
}

/// From now on the callbacks do nothing. Async-signal-safe.
pub(crate) fn uninstall() {
    CURRENT.swap(core::ptr::null_mut(), AcqRel);
}

fn current() -> Option<&'static Collector> {
    // SAFETY: null, or what `install` stored, which lives for ever.
    let collector = unsafe { CURRENT.load(Acquire).as_ref() }?;
    // A child that no fork handler ran in must leave its parent's memory alone.
    (collector.pid == sys::pid()).then_some(collector)
}

/// Lends CUPTI a buffer, through v1.
pub(crate) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI gives three places to write to.
    unsafe { lend(buffer, size, records) };
}

/// Lends CUPTI a buffer, through v2.
pub(crate) unsafe extern "C" fn requested_v2(
    buffer: *mut *mut u8,
    size: *mut usize,
    records: *mut usize,
    _info: *mut c_void,
) {
    // SAFETY: as above.
    unsafe { lend(buffer, size, records) };
}

/// # Safety
/// Each place is null or can be written to.
unsafe fn lend(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let lent = quiet::contain(|| current().map(Collector::lend)).flatten().unwrap_or(core::ptr::null_mut());
    if buffer.is_null() || size.is_null() || records.is_null() {
        return;
    }
    // SAFETY: none is null.
    unsafe {
        *buffer = lent;
        *size = if lent.is_null() { 0 } else { BUFFER_LEN };
        *records = 0;
    }
}

/// Takes a buffer back from CUPTI, through v1.
pub(crate) unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    // SAFETY: CUPTI is done with a buffer it completes, and its records live while we are called.
    unsafe { take_back(buffer, valid, |collector| Some(collector.steps.v1())) };
}

/// Takes a buffer back from CUPTI, through v2.
pub(crate) unsafe extern "C" fn completed_v2(
    buffer: *mut u8,
    _size: usize,
    valid: usize,
    _info: *mut c_void,
) {
    // SAFETY: as above.
    unsafe { take_back(buffer, valid, |collector| collector.steps.v2()) };
}

/// # Safety
/// As [`Collector::complete`].
unsafe fn take_back(buffer: *mut u8, valid: usize, stepping: fn(&Collector) -> Option<Stepping>) {
    let done = quiet::contain(|| {
        if let Some(collector) = current()
            && let Some(stepping) = stepping(collector)
        {
            // SAFETY: by this function's own promise.
            unsafe { collector.complete(buffer, valid, stepping) };
        }
    });
    if done.is_none()
        && let Some(collector) = current()
    {
        collector.counters.panics.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
