//! The device buffers of one context: slots, the recycling queue, and the pool they come from.
//!
//! Buffers go back to the pool in the order they were filled, each once every slot in it was collected. On a
//! defective version the slot of a graph copy or memset whose kind is off is never collected, so its buffer and
//! all behind it stay in the queue. That is the whole of the defect; what is seen of it follows.

use std::collections::VecDeque;

/// Bytes of device memory that one buffer takes (measured: 3,200,000 bytes come as 4 MiB).
pub(crate) const BUFFER_MIB: u64 = 4;
/// Bytes of one slot.
pub(crate) const SLOT_BYTES: u64 = 32;

/// A buffer in the recycling queue.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    used: u64,
    collected: u64,
}

/// Which buffer a slot lies in, counted since the context began.
pub(crate) type Sequence = u64;

/// What became of a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In a buffer that was there.
    Taken(Sequence),
    /// In a buffer that had to be allocated first.
    Allocated(Sequence),
    /// None: every buffer up to the limit is in the queue.
    Exhausted,
}

/// The device buffers of a context.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: u64,
    limit: u64,
    preallocated: u64,
    allocated: u64,
    free: u64,
    first: Sequence,
    queue: VecDeque<Buffer>,
    taken: u64,
    exhausted: bool,
}

impl Pool {
    /// A pool of buffers of `bytes` each, `preallocated` of them at once and never more than `limit`.
    pub(crate) fn new(bytes: u64, limit: u64, preallocated: u64) -> Self {
        let preallocated = preallocated.min(limit);
        Self {
            slots: (bytes / SLOT_BYTES).max(1),
            limit,
            preallocated,
            allocated: preallocated,
            free: preallocated,
            first: 0,
            queue: VecDeque::new(),
            taken: 0,
            exhausted: false,
        }
    }

    /// Takes the next slot.
    pub(crate) fn take(&mut self) -> Slot {
        let last = self.first + self.queue.len() as u64;
        if let Some(buffer) = self.queue.back_mut()
            && buffer.used < self.slots
        {
            buffer.used += 1;
            self.taken += 1;
            return Slot::Taken(last - 1);
        }
        let fresh = self.free == 0;
        if !fresh {
            self.free -= 1;
        } else if self.allocated < self.limit {
            self.allocated += 1;
        } else {
            self.exhausted = true;
            return Slot::Exhausted;
        }
        self.exhausted = false;
        self.taken += 1;
        self.queue.push_back(Buffer { used: 1, collected: 0 });
        if fresh { Slot::Allocated(last) } else { Slot::Taken(last) }
    }

    /// Gives back `count` slots of one buffer, and every buffer at the head of the queue that is done.
    pub(crate) fn collect(&mut self, buffer: Sequence, count: u64) {
        if let Some(buffer) = buffer.checked_sub(self.first).and_then(|i| self.queue.get_mut(i as usize)) {
            buffer.collected += count;
        }
        while let Some(head) = self.queue.front()
            && head.used == self.slots
            && head.collected == self.slots
        {
            self.queue.pop_front();
            self.first += 1;
            self.free += 1;
        }
    }

    /// Slots in one buffer.
    pub(crate) const fn slots(&self) -> u64 {
        self.slots
    }

    /// The limit that holds: the one that stood when the context was created.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Buffers allocated when the context was created.
    pub(crate) const fn preallocated(&self) -> u64 {
        self.preallocated
    }

    /// Buffers allocated by now.
    pub(crate) const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Slots taken since the context began.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Buffers that wait in the recycling queue, the one being filled included.
    pub(crate) fn queued(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Whether the last request found no buffer.
    pub(crate) const fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// MiB of device memory by which it grew since the context was created.
    pub(crate) const fn growth_mib(&self) -> u64 {
        (self.allocated - self.preallocated) * BUFFER_MIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(limit: u64) -> Pool {
        Pool::new(10 * SLOT_BYTES, limit, 3)
    }

    fn sequence(slot: Slot) -> Option<Sequence> {
        match slot {
            Slot::Taken(sequence) | Slot::Allocated(sequence) => Some(sequence),
            Slot::Exhausted => None,
        }
    }

    #[test]
    fn collected_buffers_come_back_and_nothing_grows() {
        let mut pool = pool(4);
        for _ in 0..1_000 {
            let buffer = sequence(pool.take()).unwrap();
            pool.collect(buffer, 1);
        }
        assert_eq!((pool.allocated(), pool.growth_mib(), pool.exhausted()), (3, 0, false));
    }

    #[test]
    fn one_uncollected_slot_holds_everything_behind_it() {
        let mut pool = pool(8);
        let mut recorded = 0;
        for i in 0..200 {
            let Some(buffer) = sequence(pool.take()) else { break };
            if i == 25 {
                continue;
            }
            pool.collect(buffer, 1);
            recorded += 1;
        }
        // Two buffers came back before the third, which holds the uncollected slot.
        assert_eq!(recorded, 2 * 10 + 8 * 10 - 1);
        assert_eq!((pool.allocated(), pool.exhausted(), pool.growth_mib()), (8, true, 20));
    }
}
