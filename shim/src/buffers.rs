//! The buffers lent to CUPTI: one mapping for the life of the process, lent last-in first-out, never freed, so
//! that a buffer CUPTI keeps stays good for ever.
#![expect(unsafe_code, reason = "CUPTI writes the buffers through raw pointers")]

use crate::memory::Region;
use crate::queue::FreeList;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Bytes of one buffer.
pub const BUFFER_LEN: usize = 256 << 10;
/// Buffers there are: 64 MiB, of which only what was lent takes memory (measured: up to 64 out at once).
pub const BUFFERS: u32 = 256;

const HERE: u8 = 0;
const LENT: u8 = 1;
const BACK: u8 = 2;

/// The buffers.
#[derive(Debug)]
pub struct Buffers {
    bytes: Region<AtomicU8>,
    /// What CUPTI gets when all are lent and it must have something. Nobody reads it.
    spare: Region<AtomicU8>,
    state: Vec<AtomicU8>,
    free: FreeList,
    touched: AtomicU32,
    /// Buffers lent since loading.
    pub lent: AtomicU64,
    /// Buffers that came back since loading.
    pub completed: AtomicU64,
    /// Times none was left.
    pub exhausted: AtomicU64,
}

/// A pointer CUPTI gave back.
#[derive(Debug)]
pub enum Returned<'a> {
    /// A buffer that was lent.
    Ours(Back<'a>),
    /// The buffer for records nobody can keep.
    Spare,
    /// Nothing that was lent, or something given back before.
    Foreign,
}

impl Buffers {
    /// `count` buffers, or `None` without memory.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        let mut state = Vec::new();
        state.try_reserve_exact(count as usize).ok()?;
        state.extend((0..count).map(|_| AtomicU8::new(HERE)));
        Some(Self {
            bytes: Region::new((count as usize).checked_mul(BUFFER_LEN)?)?,
            spare: Region::new(BUFFER_LEN)?,
            state,
            free: FreeList::new(count)?,
            touched: AtomicU32::new(0),
            lent: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
        })
    }

    /// Lends a buffer. When none is left it is null if CUPTI may be refused, else the spare.
    pub fn lend(&self, may_refuse: bool) -> *mut u8 {
        let Some(index) = self.free.pop() else {
            self.exhausted.fetch_add(1, Relaxed);
            return if may_refuse { core::ptr::null_mut() } else { self.spare.as_ptr().cast() };
        };
        if let Some(state) = self.state.get(index as usize) {
            state.store(LENT, Release);
        }
        self.touched.fetch_max(index.saturating_add(1), Relaxed);
        self.lent.fetch_add(1, Relaxed);
        let offset = (index as usize).saturating_mul(BUFFER_LEN);
        // SAFETY: a whole buffer lies within the region from this offset on, since `index` is below the count.
        unsafe { self.bytes.as_ptr().cast::<u8>().add(offset) }
    }

    /// Takes back what CUPTI completed.
    pub fn take_back(&self, pointer: *mut u8) -> Returned<'_> {
        if core::ptr::eq(pointer, self.spare.as_ptr().cast()) {
            return Returned::Spare;
        }
        let offset = (pointer as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        let index = offset / BUFFER_LEN;
        let lent = offset.is_multiple_of(BUFFER_LEN)
            && self
                .state
                .get(index)
                .is_some_and(|state| state.compare_exchange(LENT, BACK, Acquire, Relaxed).is_ok());
        if !lent {
            return Returned::Foreign;
        }
        self.completed.fetch_add(1, Relaxed);
        Returned::Ours(Back { buffers: self, index: index as u32 })
    }

    /// Buffers CUPTI holds now.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        let completed = self.completed.load(Relaxed);
        self.lent.load(Relaxed).saturating_sub(completed)
    }

    /// Bytes of buffers that were ever lent.
    #[must_use]
    pub fn touched_bytes(&self) -> usize {
        (self.touched.load(Relaxed) as usize).saturating_mul(BUFFER_LEN)
    }
}

/// A buffer that came back; it can be lent again when this is dropped.
#[derive(Debug)]
pub struct Back<'a> {
    buffers: &'a Buffers,
    index: u32,
}

impl Back<'_> {
    /// Its first byte.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        let offset = (self.index as usize).saturating_mul(BUFFER_LEN);
        // SAFETY: as in `lend`.
        unsafe { self.buffers.bytes.as_ptr().cast::<u8>().add(offset) }
    }
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.buffers.state.get(self.index as usize) {
            state.store(HERE, Release);
        }
        self.buffers.free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_once_and_taken_back_once() {
        let buffers = Buffers::new(2).unwrap();
        let (first, second) = (buffers.lend(true), buffers.lend(true));
        assert_ne!(first, second);
        assert_eq!((buffers.lend(true).is_null(), buffers.exhausted.load(Relaxed)), (true, 1));
        assert_eq!(buffers.outstanding(), 2);
        let back = buffers.take_back(first);
        assert!(matches!(back, Returned::Ours(_)));
        assert!(matches!(buffers.take_back(first), Returned::Foreign), "it is back already");
        drop(back);
        assert_eq!((buffers.outstanding(), buffers.lend(true)), (1, first));
        let inside = first.wrapping_add(8);
        assert!(matches!(buffers.take_back(inside), Returned::Foreign));
        assert!(matches!(buffers.take_back(core::ptr::null_mut()), Returned::Foreign));
    }

    #[test]
    fn a_cupti_that_cannot_be_refused_gets_a_buffer_to_lose() {
        let buffers = Buffers::new(1).unwrap();
        buffers.lend(false);
        let spare = buffers.lend(false);
        assert!(!spare.is_null());
        assert!(matches!(buffers.take_back(spare), Returned::Spare));
        assert_eq!((buffers.exhausted.load(Relaxed), buffers.outstanding()), (1, 1));
    }
}
