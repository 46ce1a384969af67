//! What came last on each stream, so that disorder and overlap can be noted across buffers and threads.

use crate::memory::Region;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::Notes;
use zerocopy::FromZeros;

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

/// One stream as a buffer's walk sees it.
#[derive(Clone, Copy)]
struct Local {
    key: u64,
    used: bool,
    start: u64,
    end: u64,
}

/// The streams met in one buffer. What they saw goes to the table when it is dropped.
pub(crate) struct Streams<'a> {
    table: &'a StreamTable,
    locals: [Local; AT_HAND],
}

impl<'a> Streams<'a> {
    pub(crate) const fn new(table: &'a StreamTable) -> Self {
        Self { table, locals: [Local { key: 0, used: false, start: 0, end: 0 }; AT_HAND] }
    }

    /// The notes on a believable record: whether it starts before one that came earlier on its stream, or else
    /// before one that came earlier has ended.
    #[inline]
    pub(crate) fn note(&mut self, context: u32, stream: u32, start: u64, end: u64) -> u8 {
        let key = u64::from(context) << 32 | u64::from(stream);
        let at = (stream ^ context.rotate_left(3)) as usize % AT_HAND;
        let Some(local) = self.locals.get_mut(at) else { return 0 };
        if local.key != key || !local.used {
            Self::switch(self.table, local, key);
        }
        let mut notes = if start == end { Notes::ZERO_LENGTH } else { 0 };
        if start < local.start {
            notes |= Notes::OUT_OF_ORDER;
        } else {
            local.start = start;
            if start < local.end {
                notes |= Notes::OVERLAP;
            }
        }
        local.end = local.end.max(end);
        notes
    }

    #[inline(never)]
    fn switch(table: &StreamTable, local: &mut Local, key: u64) {
        Self::give_back(table, local);
        *local = Local { key, used: true, start: 0, end: 0 };
        if let Some(latest) = table.find(key) {
            local.start = latest.start.load(Relaxed);
            local.end = latest.end.load(Relaxed);
        }
    }

    fn give_back(table: &StreamTable, local: &Local) {
        if local.used
            && let Some(latest) = table.find(local.key)
        {
            latest.start.fetch_max(local.start, Relaxed);
            latest.end.fetch_max(local.end, Relaxed);
        }
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        for local in &self.locals {
            Self::give_back(self.table, local);
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
        assert_eq!(buffer.note(1, 7, 100, 200), 0);
        assert_eq!(buffer.note(1, 7, 200, 300), 0);
        assert_eq!(buffer.note(1, 7, 250, 280), Notes::OVERLAP);
        assert_eq!(buffer.note(1, 7, 150, 160), Notes::OUT_OF_ORDER);
        assert_eq!(buffer.note(1, 8, 150, 150), Notes::ZERO_LENGTH);
        drop(buffer);
        let mut next = Streams::new(&table);
        assert_eq!(next.note(1, 7, 260, 400), Notes::OVERLAP);
        assert_eq!(next.note(2, 7, 100, 400), 0);
        assert_eq!(next.note(1, 7, 400, 500), 0);
    }

    #[test]
    fn more_streams_than_places_lose_only_their_notes() {
        let table = StreamTable::new().unwrap();
        let mut buffer = Streams::new(&table);
        for round in 1..4u64 {
            for stream in 0..5000 {
                assert_eq!(buffer.note(1, stream, round * 10, round * 10 + 5), 0);
            }
        }
    }
}
