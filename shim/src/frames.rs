//! The frames between CUPTI's threads and the I/O thread: 64 KiB each, made once, recycled, counted by reference.
#![expect(
    unsafe_code,
    reason = "a frame's bytes are written by one thread and then read by another, in place"
)]

use crate::memory::Region;
use crate::queue::{FreeList, Ring};
use crate::write::Sink;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, fence};

/// Bytes of one frame's body.
pub const FRAME_LEN: usize = 64 << 10;
/// Frames there are: 32 MiB, of which only what was used takes memory.
pub const FRAMES: u32 = 512;

#[derive(Debug)]
struct Meta {
    len: AtomicU32,
    records: AtomicU32,
    holders: AtomicU32,
}

/// The frames and the queue of those that are full.
#[derive(Debug)]
pub struct Frames {
    bytes: Region<AtomicU8>,
    /// Bytes of each frame's body.
    size: usize,
    meta: Vec<Meta>,
    free: FreeList,
    queue: Ring,
    /// The most frames ever in use.
    touched: AtomicU32,
    taken: AtomicUsize,
}

impl Frames {
    /// `count` empty frames for records, or `None` without memory.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        Self::sized(count, FRAME_LEN)
    }

    /// `count` empty frames of `size` bytes, or `None` without memory.
    #[must_use]
    pub fn sized(count: u32, size: usize) -> Option<Self> {
        let mut meta = Vec::new();
        meta.try_reserve_exact(count as usize).ok()?;
        meta.extend((0..count).map(|_| Meta {
            len: AtomicU32::new(0),
            records: AtomicU32::new(0),
            holders: AtomicU32::new(0),
        }));
        Some(Self {
            bytes: Region::new((count as usize).checked_mul(size)?)?,
            size,
            meta,
            free: FreeList::new(count)?,
            queue: Ring::new(count as usize)?,
            touched: AtomicU32::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// How many frames there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.free.count()
    }

    /// Frames that are being filled, wait, or are held for a viewer.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Bytes of frames that were ever used.
    #[must_use]
    pub fn touched_bytes(&self) -> usize {
        (self.touched.load(Relaxed) as usize).saturating_mul(self.size)
    }

    /// Full frames that wait for the I/O thread.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// An empty frame to fill, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<Filling<'_>> {
        let index = self.free.pop()?;
        self.taken.fetch_add(1, Relaxed);
        self.touched.fetch_max(index.saturating_add(1), Relaxed);
        Some(Filling { frames: self, index, first: self.first_byte(index) })
    }

    /// The oldest full frame, if there is one.
    #[must_use]
    pub fn pop(&self) -> Option<Held<'_>> {
        self.queue.pop().map(|index| Held { frames: self, index })
    }

    fn first_byte(&self, index: u32) -> *mut u8 {
        let last = self.bytes.len().saturating_sub(self.size);
        let offset = (index as usize).saturating_mul(self.size).min(last);
        // SAFETY: a whole frame lies within the region from this offset on; there is at least one frame, since
        // `index` came out of the free list.
        unsafe { self.bytes.as_ptr().cast::<u8>().add(offset) }
    }

    fn give_back(&self, index: u32) {
        self.taken.fetch_sub(1, Relaxed);
        self.free.push(index);
    }
}

/// A frame that one thread fills. Dropped without a push, it goes back unsent.
#[derive(Debug)]
pub struct Filling<'a> {
    frames: &'a Frames,
    index: u32,
    first: *mut u8,
}

impl AsMut<[u8]> for Filling<'_> {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the index is out of the free list and in no queue, so these bytes are ours alone.
        unsafe { core::slice::from_raw_parts_mut(self.first, self.frames.size) }
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.frames.give_back(self.index);
    }
}

/// A full frame. Clones share it; the last one gives it back.
#[derive(Debug)]
pub struct Held<'a> {
    frames: &'a Frames,
    index: u32,
}

impl Held<'_> {
    fn meta(&self) -> Option<&Meta> {
        self.frames.meta.get(self.index as usize)
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        let len = self.meta().map_or(0, |meta| meta.len.load(Relaxed) as usize).min(self.frames.size);
        // SAFETY: nobody writes to a frame between its push and its last holder's drop, and the pop that gave it
        // to us came after the writes.
        unsafe { core::slice::from_raw_parts(self.frames.first_byte(self.index), len) }
    }

    /// Records in it.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.meta().map_or(0, |meta| u64::from(meta.records.load(Relaxed)))
    }
}

impl Clone for Held<'_> {
    fn clone(&self) -> Self {
        if let Some(meta) = self.meta() {
            meta.holders.fetch_add(1, Relaxed);
        }
        Self { frames: self.frames, index: self.index }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.meta().is_some_and(|meta| meta.holders.fetch_sub(1, Release) == 1) {
            fence(Acquire);
            self.frames.give_back(self.index);
        }
    }
}

/// The walk's way into the queue.
#[derive(Debug)]
pub struct ToQueue<'a> {
    frames: &'a Frames,
    /// Whether a frame was pushed.
    pub pushed: bool,
}

impl<'a> ToQueue<'a> {
    /// Pushes into the queue of `frames`.
    #[must_use]
    pub const fn new(frames: &'a Frames) -> Self {
        Self { frames, pushed: false }
    }
}

impl<'a> Sink for ToQueue<'a> {
    type Frame = Filling<'a>;

    fn take(&mut self) -> Option<Filling<'a>> {
        self.frames.take()
    }

    fn push(&mut self, frame: Filling<'a>, len: usize, records: u32) -> bool {
        let Some(meta) = self.frames.meta.get(frame.index as usize) else { return false };
        meta.len.store(len.min(self.frames.size) as u32, Relaxed);
        meta.records.store(records, Relaxed);
        meta.holders.swap(1, AcqRel);
        if self.frames.queue.push(frame.index).is_err() {
            return false;
        }
        core::mem::forget(frame);
        self.pushed = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(frames: &Frames, byte: u8) -> bool {
        let mut sink = ToQueue::new(frames);
        sink.take().is_some_and(|mut frame| {
            frame.as_mut()[..3].fill(byte);
            sink.push(frame, 3, 1)
        })
    }

    #[test]
    fn frames_come_in_order_and_go_back_when_nobody_holds_them() {
        let frames = Frames::new(2).unwrap();
        assert!(push(&frames, 1) && push(&frames, 2) && !push(&frames, 3));
        let first = frames.pop().unwrap();
        let shared = first.clone();
        assert_eq!((first.body(), first.records(), frames.queued()), (&[1u8, 1, 1][..], 1, 1));
        drop(first);
        assert!(!push(&frames, 3));
        drop(shared);
        assert!(push(&frames, 3));
        let bodies: Vec<u8> = std::iter::from_fn(|| frames.pop().map(|held| held.body()[0])).collect();
        assert_eq!((bodies, frames.in_use()), (vec![2, 3], 0));
        drop(frames.take());
        assert_eq!((frames.in_use(), frames.touched_bytes()), (0, 2 * FRAME_LEN));
    }
}
