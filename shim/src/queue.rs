//! Two bounded lock-free structures of small numbers: a queue with many producers, and a stack of free numbers.
//!
//! Numbers stand for frames and buffers that lie elsewhere. Nothing here blocks or allocates after it was made.

use super::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug)]
struct Slot {
    /// Says whose turn the slot is: equal to the position for a producer, one more for a consumer.
    turn: AtomicUsize,
    value: AtomicU32,
}

/// A first-in, first-out queue for any number of producers and consumers. Each position of an ever-growing count
/// has one slot, whose turn number tells whether it is free, full or still in use from the round before.
#[derive(Debug)]
pub struct Ring {
    slots: Vec<Slot>,
    head: AtomicUsize,
    tail: AtomicUsize,
}

impl Ring {
    /// An empty queue for `capacity` numbers, rounded up to a power of two; `None` without memory.
    #[must_use]
    pub fn new(capacity: usize) -> Option<Self> {
        let capacity = capacity.max(2).checked_next_power_of_two()?;
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity).ok()?;
        slots.extend((0..capacity).map(|i| Slot { turn: AtomicUsize::new(i), value: AtomicU32::new(0) }));
        Some(Self { slots, head: AtomicUsize::new(0), tail: AtomicUsize::new(0) })
    }

    fn slot(&self, position: usize) -> Option<&Slot> {
        self.slots.get(position & self.slots.len().wrapping_sub(1))
    }

    /// Appends a number.
    pub fn push(&self, value: u32) -> Result<(), Full> {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position).ok_or(Full)?;
            let turn = slot.turn.load(Ordering::Acquire);
            let next = position.wrapping_add(1);
            if turn == position {
                match self.tail.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        slot.value.store(value, Ordering::Relaxed);
                        slot.turn.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if turn.wrapping_sub(position).cast_signed() < 0 {
                return Err(Full);
            } else {
                position = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest number, if there is one.
    pub fn pop(&self) -> Option<u32> {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position)?;
            let turn = slot.turn.load(Ordering::Acquire);
            let next = position.wrapping_add(1);
            if turn == next {
                match self.head.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        let value = slot.value.load(Ordering::Relaxed);
                        slot.turn.store(position.wrapping_add(self.slots.len()), Ordering::Release);
                        return Some(value);
                    }
                    Err(now) => position = now,
                }
            } else if turn.wrapping_sub(next).cast_signed() < 0 {
                return None;
            } else {
                position = self.head.load(Ordering::Relaxed);
            }
        }
    }

    /// Numbers waiting; exact only while nobody pushes or pops.
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).wrapping_sub(head).min(self.slots.len())
    }

    /// Whether nothing waits; exact only while nobody pushes or pops.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A last-in, first-out stack of the numbers below a count, so that the memory used last is used again first.
#[derive(Debug)]
pub struct FreeList {
    /// Upper half: a count of changes, against the same head being taken for an old one. Lower half: the number on
    /// top + 1, or 0.
    top: AtomicU64,
    /// Below each number, the next one + 1.
    below: Vec<AtomicU32>,
}

impl FreeList {
    /// All numbers below `count`, 0 on top; `None` without memory.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        let mut below = Vec::new();
        below.try_reserve_exact(count as usize).ok()?;
        below.extend(
            (0..count).map(|i| AtomicU32::new(if i.wrapping_add(1) < count { i.wrapping_add(2) } else { 0 })),
        );
        Some(Self { top: AtomicU64::new(u64::from(count > 0)), below })
    }

    /// How many numbers there are, free or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.below.len()
    }

    /// Takes the number on top.
    pub fn pop(&self) -> Option<u32> {
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let index = ((top & 0xffff_ffff) as u32).checked_sub(1)?;
            let below = self.below.get(index as usize)?.load(Ordering::Relaxed);
            match self.top.compare_exchange_weak(
                top,
                changed(top, below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(now) => top = now,
            }
        }
    }

    /// Puts a number back that was taken. A number beyond the count is ignored.
    pub fn push(&self, index: u32) {
        let Some(below) = self.below.get(index as usize) else { return };
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            below.store((top & 0xffff_ffff) as u32, Ordering::Relaxed);
            let next = changed(top, index.wrapping_add(1));
            match self.top.compare_exchange_weak(top, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

const fn changed(top: u64, lower: u32) -> u64 {
    (top & 0xffff_ffff_0000_0000).wrapping_add(1 << 32) | lower as u64
}
