//! What came last on each stream, so that disorder and overlap can be noted across buffers and threads.

use crate::memory::Region;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::Notes;
use zerocopy::FromZeros;
use zerocopy::byteorder::little_endian::U32;

/// Streams followed; records of further ones get no such notes.
const STREAMS: usize = 1024;
/// Streams a buffer's walk keeps at hand.
const AT_HAND: usize = 32;

/// The latest times of one stream.
#[derive(Debug, FromZeros)]
#[repr(C)]
struct Latest {
    /// The stream's key + 1; 0 while free. Once taken it stays taken.
    key: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

/// The streams of a process.
#[derive(Debug)]
pub struct StreamTable(Region<Latest>);

impl StreamTable {
    /// An empty table, or `None` when memory for it cannot be had.
    #[must_use]
    pub fn new() -> Option<Self> {
        Region::new(STREAMS).map(Self)
    }

    fn find(&self, key: u64) -> Option<&Latest> {
        let mark = key.wrapping_add(1);
        for probe in 0..16u64 {
            let latest = self.0.get(spread(key).wrapping_add(probe) as usize % STREAMS)?;
            let found = match latest.key.load(Relaxed) {
                0 => latest.key.compare_exchange(0, mark, Relaxed, Relaxed).err().unwrap_or(mark),
                found => found,
            };
            if found == mark {
                return Some(latest);
            }
        }
        None
    }
}

const fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// A stream and its context as one number.
#[inline]
pub(crate) fn key(context: U32, stream: U32) -> u64 {
    u64::from(context.get()) | u64::from(stream.get()) << 32
}

/// Where a walk keeps what it knows of a stream: neighbouring ones, and those of neighbouring contexts, each have a place
/// of their own.
#[inline]
const fn place(key: u64) -> usize {
    (key >> 32 ^ key << 3) as usize % AT_HAND
}

/// A key whose place is not that of key 0.
const ELSEWHERE: u64 = 1 << 32;
const _: () = assert!(place(ELSEWHERE) != place(0));

/// One stream as a buffer's walk sees it.
#[derive(Clone, Copy)]
struct Local {
    /// A key whose place is another as long as there is no stream here.
    key: u64,
    /// The latest start, and the latest end, which is never before it.
    start: u64,
    end: u64,
}

impl Local {
    /// The notes on a record that starts before the latest end.
    #[inline(never)]
    fn disorder(&mut self, start: u64, end: u64) -> u8 {
        self.end = self.end.max(end);
        if start < self.start {
            return Notes::OUT_OF_ORDER;
        }
        self.start = start;
        Notes::OVERLAP
    }
}

/// The streams met in one buffer. What they saw goes to the table when it is dropped.
pub(crate) struct Streams<'a> {
    table: &'a StreamTable,
    locals: [Local; AT_HAND],
}

impl<'a> Streams<'a> {
    pub(crate) fn new(table: &'a StreamTable) -> Self {
        let nobody = |at| Local { key: if place(0) == at { ELSEWHERE } else { 0 }, start: 0, end: 0 };
        Self { table, locals: core::array::from_fn(nobody) }
    }

    /// The notes on a believable record: whether it starts before one that came earlier on its stream, or else
    /// before one that came earlier has ended.
    #[inline]
    pub(crate) fn note(&mut self, key: u64, start: u64, end: u64) -> u8 {
        let Some(local) = self.locals.get_mut(place(key)) else { return 0 };
        if local.key != key {
            Self::switch(self.table, local, key);
        }
        let length = if start == end { Notes::ZERO_LENGTH } else { 0 };
        // Whatever came earlier has ended.
        if start >= local.end {
            (local.start, local.end) = (start, end);
            return length;
        }
        length | local.disorder(start, end)
    }

    #[inline(never)]
    fn switch(table: &StreamTable, local: &mut Local, key: u64) {
        Self::give_back(table, place(key), local);
        *local = Local { key, start: 0, end: 0 };
        if let Some(latest) = table.find(key) {
            local.start = latest.start.load(Relaxed);
            // Another thread may have raised the start already and the end not yet.
            local.end = latest.end.load(Relaxed).max(local.start);
        }
    }

    fn give_back(table: &StreamTable, at: usize, local: &Local) {
        if place(local.key) == at
            && let Some(latest) = table.find(local.key)
        {
            latest.start.fetch_max(local.start, Relaxed);
            latest.end.fetch_max(local.end, Relaxed);
        }
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        for (at, local) in self.locals.iter().enumerate() {
            Self::give_back(self.table, at, local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disorder_and_overlap_are_told_apart_across_buffers() {
        let table = StreamTable::new().unwrap();
        let mut buffer = Streams::new(&table);
        assert_eq!(buffer.note(key(1.into(), 7.into()), 100, 200), 0);
        assert_eq!(buffer.note(key(1.into(), 7.into()), 200, 300), 0);
        assert_eq!(buffer.note(key(1.into(), 7.into()), 250, 280), Notes::OVERLAP);
        assert_eq!(buffer.note(key(1.into(), 7.into()), 150, 160), Notes::OUT_OF_ORDER);
        assert_eq!(buffer.note(key(1.into(), 8.into()), 150, 150), Notes::ZERO_LENGTH);
        drop(buffer);
        let mut next = Streams::new(&table);
        assert_eq!(next.note(key(1.into(), 7.into()), 260, 400), Notes::OVERLAP);
        assert_eq!(next.note(key(2.into(), 7.into()), 100, 400), 0);
        assert_eq!(next.note(key(1.into(), 7.into()), 400, 500), 0);
    }

    #[test]
    fn more_streams_than_places_lose_only_their_notes() {
        let table = StreamTable::new().unwrap();
        let mut buffer = Streams::new(&table);
        for round in 1..4u64 {
            for stream in 0..5000 {
                assert_eq!(buffer.note(key(1.into(), stream.into()), round * 10, round * 10 + 5), 0);
            }
        }
    }
}
