//! CUPTI's buffers as they are, for viewers that ask for them: copied whole, with the names their pointers stand for.

use crate::buffers::BUFFER_LEN;
use crate::frames::{Frames, Held, ToQueue};
use crate::layout;
use crate::names::{NameSource, NameTable, pointer_hash};
use crate::walk::{Step, Tally};
use crate::write::Sink;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};
use gtop_protocol::control::Raw;
use gtop_protocol::message::raw_names;
use gtop_protocol::wire::{Full, Writer};
use std::sync::OnceLock;
use zerocopy::FromBytes;

/// Bytes of one copy: the buffer, and more names than it can hold kernels.
const COPY_LEN: usize = BUFFER_LEN + (32 << 10);
/// Copies that may wait to be sent: 4.5 MiB, of which only what was used takes memory.
const COPIES: u32 = 16;
/// Name pointers told apart in one buffer; one that is forgotten is written again.
const POINTERS: usize = 256;

/// The copies of one process.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    wanted: AtomicU8,
    frames: OnceLock<Frames>,
    pub(crate) copied: AtomicU64,
    pub(crate) missed: AtomicU64,
}

/// What is copied.
pub(crate) struct Buffer<'a> {
    /// Its valid part.
    pub(crate) bytes: &'a [u8],
    pub(crate) version: u32,
    pub(crate) tally: &'a Tally,
}

impl Copies {
    /// From now on these are wanted. Not from CUPTI's threads: the first time memory is reserved.
    pub(crate) fn want(&self, wanted: Raw) {
        if wanted != Raw::None && self.frames.get().is_none() {
            let Some(frames) = Frames::sized(COPIES, COPY_LEN) else { return };
            let _ = self.frames.set(frames);
        }
        self.wanted.store(wanted as u8, Relaxed);
    }

    /// Whether a buffer with so many bad records is wanted.
    pub(crate) fn takes(&self, invalid: u64) -> bool {
        Raw::from_wire(u32::from(self.wanted.load(Relaxed))).takes(invalid)
    }

    /// Copies a buffer whose names were just interned; `false` when it could not be.
    pub(crate) fn keep(
        &self,
        buffer: &Buffer<'_>,
        stepper: &mut impl Step,
        names: &NameTable,
        source: &impl NameSource,
    ) -> bool {
        let kept = self.frames.get().is_some_and(|frames| {
            let mut sink = ToQueue::new(frames);
            let Some(mut frame) = sink.take() else { return false };
            let written = write(frame.as_mut(), buffer, stepper, names, source);
            written.is_ok_and(|len| sink.push(frame, len, 0))
        });
        let counter = if kept { &self.copied } else { &self.missed };
        counter.fetch_add(1, Relaxed);
        kept
    }

    /// The oldest copy that waits, if there is one.
    pub(crate) fn pop(&self) -> Option<Held<'_>> {
        self.frames.get()?.pop()
    }

    /// Copies that wait.
    pub(crate) fn queued(&self) -> usize {
        self.frames.get().map_or(0, Frames::queued)
    }

    /// Bytes of copies that were ever used.
    pub(crate) fn touched_bytes(&self) -> usize {
        self.frames.get().map_or(0, Frames::touched_bytes)
    }
}

/// Writes the body of a frame, a [`RawBuffer`](gtop_protocol::message::RawBuffer) field by field: it is filled in
/// place. Gives its length.
fn write(
    frame: &mut [u8],
    buffer: &Buffer<'_>,
    stepper: &mut impl Step,
    names: &NameTable,
    source: &impl NameSource,
) -> Result<usize, Full> {
    let mut head = Writer::new(frame);
    head.u32(buffer.version)?;
    head.u64(buffer.tally.walked)?;
    head.u64(buffer.tally.invalid)?;
    head.blob(buffer.bytes)?;
    let at = head.len();
    let (len, rest) = frame.get_mut(at..).and_then(<[u8]>::split_first_chunk_mut::<4>).ok_or(Full)?;
    let mut pairs = Writer::new(rest);
    let mut known = [0u64; POINTERS];
    while let Ok(run) = stepper.step().run() {
        let kernels = matches!(run.kind(), 10 | 3);
        let mut count = 0u64;
        for record in run.records() {
            count = count.saturating_add(1);
            let Some((kernel, _)) = kernels.then(|| layout::Kernel::ref_from_prefix(record).ok()).flatten()
            else {
                continue;
            };
            let pointer = kernel.name.get();
            let Some(known) = known.get_mut(pointer_hash(pointer) as usize % POINTERS) else { continue };
            if *known != pointer {
                *known = pointer;
                raw_names::write_one(&mut pairs, pointer, names.resolve(pointer, source))?;
            }
        }
        stepper.took(count);
    }
    *len = (pairs.len() as u32).to_le_bytes();
    Ok(at.saturating_add(4).saturating_add(pairs.len()))
}
