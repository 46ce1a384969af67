//! The allocator: the system's, and a small reserve for when that has nothing. The standard library ends the process
//! where memory for a path or for the start of a thread cannot be had, and a host must not end for gtop's sake.
#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::alloc::System;

/// The most a piece of the reserve holds, bytes: a path.
const SLOT: usize = 4096;
/// Pieces; memory that is never touched costs nothing.
const SLOTS: usize = 64;
/// The alignment of a piece.
const ALIGN: usize = 64;

#[repr(align(64))]
struct Slots(UnsafeCell<[[u8; SLOT]; SLOTS]>);

/// The system's allocator with a reserve behind it.
pub(crate) struct Reserve {
    slots: Slots,
    /// Which pieces are taken, a bit each.
    taken: AtomicU64,
}

// SAFETY: a piece belongs to whoever took its bit.
unsafe impl Sync for Reserve {}

impl Reserve {
    #[expect(clippy::large_stack_arrays, reason = "it is made for a static")]
    pub(crate) const fn new() -> Self {
        Self { slots: Slots(UnsafeCell::new([[0; SLOT]; SLOTS])), taken: AtomicU64::new(0) }
    }

    /// A piece, or null if all are taken or none is large enough.
    #[cold]
    fn take(&self, size: usize, align: usize) -> *mut u8 {
        if size > SLOT || align > ALIGN {
            return null_mut();
        }
        let mut taken = self.taken.load(Relaxed);
        while taken != u64::MAX {
            let at = taken.trailing_ones();
            let with = taken | 1u64.wrapping_shl(at);
            match self.taken.compare_exchange_weak(taken, with, Acquire, Relaxed) {
                Ok(_) => return self.begin().wrapping_add(SLOT.wrapping_mul(at as usize)),
                Err(now) => taken = now,
            }
        }
        null_mut()
    }

    fn begin(&self) -> *mut u8 {
        self.slots.0.get().cast()
    }

    /// The number of the piece that begins here.
    #[inline]
    fn slot(&self, place: *mut u8) -> Option<u32> {
        let offset = (place as usize).wrapping_sub(self.begin() as usize);
        (offset < SLOT * SLOTS).then_some((offset / SLOT) as u32)
    }
}

// SAFETY: System's own promises, and for pieces of the reserve: one owner each, as large and as aligned as asked for.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() { self.take(layout.size(), layout.align()) } else { place }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let place = unsafe { System.alloc_zeroed(layout) };
        if !place.is_null() {
            return place;
        }
        let place = self.take(layout.size(), layout.align());
        if !place.is_null() {
            // SAFETY: a piece of at least that size.
            unsafe { place.write_bytes(0, layout.size()) };
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        match self.slot(place) {
            Some(at) => {
                self.taken.fetch_and(!1u64.wrapping_shl(at), Release);
            }
            // SAFETY: the caller's promise.
            None => unsafe { System.dealloc(place, layout) },
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let ours = self.slot(place).is_some();
        if ours && size <= SLOT {
            return place;
        }
        if !ours {
            // SAFETY: the caller's promise.
            let moved = unsafe { System.realloc(place, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that this size, rounded up to the alignment, fits.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: not of size 0, by the caller's promise.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both have that many bytes and belong to the caller and to nobody.
            unsafe {
                moved.copy_from_nonoverlapping(place, layout.size().min(size));
                self.dealloc(place, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_lent_once_and_come_back() {
        let reserve = Box::new(Reserve::new());
        let pieces: Vec<*mut u8> = (0..SLOTS).map(|_| reserve.take(SLOT, ALIGN)).collect();
        let different: std::collections::BTreeSet<_> = pieces.iter().collect();
        assert_eq!(different.len(), SLOTS);
        assert!(
            pieces
                .iter()
                .all(|piece| (*piece as usize).is_multiple_of(ALIGN) && reserve.slot(*piece).is_some())
        );
        assert!(reserve.take(1, 1).is_null(), "all are lent");
        // SAFETY: taken above.
        unsafe { reserve.dealloc(pieces[7], Layout::new::<u8>()) };
        assert_eq!(reserve.take(1, 1), pieces[7]);
        assert!(reserve.take(SLOT + 1, 1).is_null());
    }

    #[test]
    fn a_piece_that_grows_takes_its_bytes_along() {
        let reserve = Box::new(Reserve::new());
        let small = Layout::from_size_align(100, 8).unwrap();
        let place = reserve.take(100, 8);
        // SAFETY: of that size, and then of the sizes it grew to.
        unsafe {
            place.write_bytes(7, 100);
            assert_eq!(reserve.realloc(place, small, SLOT), place, "there is room");
            let whole = Layout::from_size_align(SLOT, 8).unwrap();
            let moved = reserve.realloc(place, whole, 2 * SLOT);
            assert!(reserve.slot(moved).is_none() && *moved.add(99) == 7);
            assert_eq!(reserve.taken.load(Relaxed), 0);
            reserve.dealloc(moved, Layout::from_size_align(2 * SLOT, 8).unwrap());
        }
    }
}
