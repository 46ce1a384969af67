//! The client's side of the buffers: its two callbacks, and the buffer being filled.
#![allow(unsafe_code, reason = "the client's callbacks are C functions and its buffers raw memory")]

use crate::cupti::Cupti;
use crate::layout::Record;
use crate::truth::{Class, Kind};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// `CUpti_BuffersCallbackRequestFunc`.
pub(crate) type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(crate) type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// `CUpti_BuffersCallbackRequestFunc_v2`.
pub(crate) type RequestV2 = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *mut RequestInfo);
/// `CUpti_BuffersCallbackCompleteFunc_v2`.
pub(crate) type CompleteV2 = unsafe extern "C" fn(*mut u8, usize, usize, *mut CompleteInfo);

/// `CUpti_BufferCallbackRequestInfo`.
#[repr(C)]
pub(crate) struct RequestInfo {
    size: usize,
}

/// `CUpti_BufferCallbackCompleteInfo`; without fields of the client's choice there are no layouts.
#[repr(C)]
pub(crate) struct CompleteInfo {
    size: usize,
    thread: u64,
    layouts: *mut c_void,
    layout_count: usize,
}

/// What the client registered, through either interface.
#[derive(Clone, Copy)]
pub(crate) enum Callbacks {
    V1 { request: Request, complete: Complete },
    V2 { request: RequestV2, complete: CompleteV2 },
}

impl Callbacks {
    /// Asks the client for a buffer: where it lies, its size, and the most records it may hold.
    fn request(self) -> (*mut u8, usize, usize) {
        let (mut at, mut size, mut max_records) = (null_mut(), 0, 0);
        let mut info = RequestInfo { size: size_of::<RequestInfo>() };
        INSIDE.set(true);
        // SAFETY: the client registered this function for this purpose; the places outlive the call.
        unsafe {
            match self {
                Self::V1 { request, .. } => request(&raw mut at, &raw mut size, &raw mut max_records),
                Self::V2 { request, .. } => {
                    request(&raw mut at, &raw mut size, &raw mut max_records, &raw mut info);
                }
            }
        }
        INSIDE.set(false);
        (at, size, max_records)
    }

    /// Gives the client a buffer back.
    fn complete(self, buffer: &Buffer) {
        let mut info =
            CompleteInfo { size: size_of::<CompleteInfo>(), thread: 1, layouts: null_mut(), layout_count: 0 };
        INSIDE.set(true);
        // SAFETY: the client registered this function for this purpose; the buffer came from it and goes back whole.
        unsafe {
            match self {
                Self::V1 { complete, .. } => complete(null_mut(), 0, buffer.at, buffer.size, buffer.used),
                Self::V2 { complete, .. } => complete(buffer.at, buffer.size, buffer.used, &raw mut info),
            }
        }
        INSIDE.set(false);
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside one of the client's buffer callbacks.
pub(crate) fn inside_callback() -> bool {
    INSIDE.get()
}

/// What lies in a buffer, by kind and by class.
#[derive(Default)]
struct Tally {
    kinds: [u32; Kind::ALL.len()],
    classes: [u32; Class::ALL.len()],
    unasked: u32,
    unknown: u32,
    hidden: u32,
    hidden_from: Option<usize>,
}

/// A buffer of the client.
struct Buffer {
    at: *mut u8,
    size: usize,
    used: usize,
    records: usize,
    max_records: usize,
    tally: Tally,
}

// SAFETY: the memory was handed over by the client until it is completed, and belongs to no thread.
unsafe impl Send for Buffer {}

/// One record on its way to the client.
pub(crate) struct Outgoing<'a> {
    pub(crate) record: &'a Record,
    /// None for a record of no known kind.
    pub(crate) kind: Option<Kind>,
    pub(crate) class: Class,
    pub(crate) unasked: bool,
}

/// Where records of one thread, or of all, are gathered for the client.
#[derive(Default)]
pub(crate) struct Host {
    buffer: Option<Buffer>,
    completed: u64,
    kept: Vec<Buffer>,
}

impl Host {
    /// Appends a record, completing the buffer and asking for another where it does not fit.
    pub(crate) fn put(&mut self, cupti: &Cupti, outgoing: &Outgoing<'_>) {
        let bytes = outgoing.record.bytes();
        if self.buffer.as_ref().is_some_and(|buffer| !buffer.fits(bytes.len())) {
            self.complete(cupti);
        }
        if self.buffer.is_none() {
            self.buffer = request(cupti);
        }
        match &mut self.buffer {
            Some(buffer) if buffer.fits(bytes.len()) => buffer.push(outgoing),
            _ => {
                cupti.dropped.fetch_add(1, Relaxed);
                if let Some(kind) = outgoing.kind {
                    cupti.ledger.dropped.add(kind as usize, 1);
                }
            }
        }
    }

    /// Hands the buffer back with what is in it. Without a record in it, CUPTI keeps it.
    pub(crate) fn flush(&mut self, cupti: &Cupti) {
        if self.buffer.as_ref().is_some_and(|buffer| buffer.used > 0) {
            self.complete(cupti);
        }
    }

    /// Hands the buffer back even if nothing is in it, as a forced flush does to get buffers back.
    pub(crate) fn give_back(&mut self, cupti: &Cupti) {
        self.complete(cupti);
    }

    fn complete(&mut self, cupti: &Cupti) {
        let Some(buffer) = self.buffer.take() else { return };
        if cupti.faults.keeps_buffer() {
            cupti.ledger.withhold(&buffer.tally.kinds);
            self.kept.push(buffer);
            return;
        }
        self.completed += 1;
        if let Some(every) = cupti.faults.empty_every
            && self.completed.is_multiple_of(every)
            && let Some(empty) = request(cupti)
        {
            deliver(cupti, &empty);
        }
        deliver(cupti, &buffer);
    }

    /// Writes into the buffers that were kept, as a library does that still owns them.
    pub(crate) fn write_late(&mut self) {
        for buffer in &self.kept {
            // SAFETY: the client may not touch or free a buffer it gave and never got back.
            unsafe { std::ptr::write_bytes(buffer.at, 0xAA, buffer.size) };
        }
    }
}

impl Buffer {
    const fn fits(&self, bytes: usize) -> bool {
        self.size - self.used >= bytes && (self.max_records == 0 || self.records < self.max_records)
    }

    fn push(&mut self, outgoing: &Outgoing<'_>) {
        let bytes = outgoing.record.bytes();
        // SAFETY: `fits` was asked, so the bytes end inside the buffer that the client handed over.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(self.used), bytes.len()) };
        let tally = &mut self.tally;
        match outgoing.kind {
            None => {
                tally.unknown += 1;
                tally.hidden_from.get_or_insert(self.used);
            }
            Some(_) if tally.hidden_from.is_some() => tally.hidden += 1,
            Some(kind) => {
                tally.kinds[kind as usize] += 1;
                tally.unasked += u32::from(outgoing.unasked);
                if kind.is_work() {
                    tally.classes[outgoing.class as usize] += 1;
                }
            }
        }
        self.used += bytes.len();
        self.records += 1;
    }
}

fn request(cupti: &Cupti) -> Option<Buffer> {
    let callbacks = cupti.callbacks()?;
    let (at, size, max_records) = callbacks.request();
    if at.is_null() || size == 0 {
        cupti.ledger.refused.fetch_add(1, Relaxed);
        if !cupti.version.may_refuse_buffer() {
            cupti.crash(
                "the client answered a request with no buffer, which CUPTI before 12.9 does not survive",
            );
        }
        return None;
    }
    cupti.ledger.requested.fetch_add(1, Relaxed);
    Some(Buffer { at, size, used: 0, records: 0, max_records, tally: Tally::default() })
}

fn deliver(cupti: &Cupti, buffer: &Buffer) {
    let ledger = &cupti.ledger;
    let tally = &buffer.tally;
    ledger.completed.fetch_add(1, Relaxed);
    ledger.empty.fetch_add(u64::from(buffer.used == 0), Relaxed);
    ledger.delivered_bytes.fetch_add(buffer.used as u64, Relaxed);
    for (kind, count) in tally.kinds.iter().enumerate() {
        ledger.delivered.add(kind, u64::from(*count));
    }
    for (class, count) in tally.classes.iter().enumerate() {
        ledger.classes.add(class, u64::from(*count));
    }
    ledger.unasked.fetch_add(u64::from(tally.unasked), Relaxed);
    ledger.unknown.fetch_add(u64::from(tally.unknown), Relaxed);
    ledger.hidden.fetch_add(u64::from(tally.hidden), Relaxed);
    if let Some(from) = tally.hidden_from {
        ledger.hidden_bytes.fetch_add((buffer.used - from) as u64, Relaxed);
    }
    if let Some(callbacks) = cupti.callbacks() {
        callbacks.complete(buffer);
    }
}
