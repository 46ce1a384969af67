//! The captures that are open in the process, so that nothing of CUDA is called while there is one, and calls within one
//! are told as such. Without a lock: begun and ended on any thread.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use gtop_protocol::lifecycle::LAST_DEFAULT_STREAM;

/// Captures told apart at once. Further ones are only counted.
const SLOTS: usize = 64;
/// In the key of a capture whose stream is that of a thread alone.
const OF_THREAD: u64 = 1 << 63;

#[derive(Debug)]
struct Slot {
    /// Which stream captures; 0 is none.
    key: AtomicU64,
    thread: AtomicU32,
    context: AtomicU32,
}

/// Captures that are open.
#[derive(Debug)]
pub(super) struct OpenCaptures {
    slots: [Slot; SLOTS],
    count: AtomicU32,
    /// How many of them have no slot.
    apart: AtomicU32,
}

fn key(stream: u64, thread: u32) -> u64 {
    if stream > LAST_DEFAULT_STREAM { stream } else { OF_THREAD | u64::from(thread) }
}

fn one_less(count: &AtomicU32) -> bool {
    count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok()
}

impl OpenCaptures {
    pub(super) const fn new() -> Self {
        let slots = [const {
            Slot { key: AtomicU64::new(0), thread: AtomicU32::new(0), context: AtomicU32::new(0) }
        }; SLOTS];
        Self { slots, count: AtomicU32::new(0), apart: AtomicU32::new(0) }
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Whether this thread began one.
    pub(super) fn of_thread(&self, thread: u32) -> bool {
        let is_its = |slot: &Slot| slot.key.load(Acquire) != 0 && slot.thread.load(Relaxed) == thread;
        self.any() && self.slots.iter().any(is_its)
    }

    /// A thread began one on a stream.
    pub(super) fn begin(&self, stream: u64, thread: u32, context: u32) {
        let key = key(stream, thread);
        // One on the same stream was lost from sight: a stream captures once at a time.
        let mut slot = self.slots.iter().find(|slot| slot.key.load(Acquire) == key);
        if slot.is_none() {
            self.count.fetch_add(1, Relaxed);
            slot = self.slots.iter().find(|slot| slot.key.compare_exchange(0, key, AcqRel, Relaxed).is_ok());
        }
        match slot {
            Some(slot) => {
                slot.context.store(context, Relaxed);
                slot.thread.store(thread, Release);
            }
            None => {
                self.apart.fetch_add(1, Relaxed);
            }
        }
    }

    /// Whether this thread began the one on this stream.
    pub(super) fn is_of(&self, stream: u64, thread: u32) -> bool {
        let key = key(stream, thread);
        let is_it = |slot: &Slot| slot.key.load(Acquire) == key && slot.thread.load(Relaxed) == thread;
        self.any() && self.slots.iter().any(is_it)
    }

    /// One on this stream ended, on this thread. Gives whether there was one.
    pub(super) fn end(&self, stream: u64, thread: u32) -> bool {
        let key = key(stream, thread);
        self.close(|slot| slot.key.load(Acquire) == key) || (one_less(&self.apart) && one_less(&self.count))
    }

    /// A stream is gone.
    pub(super) fn stream_gone(&self, stream: u64) {
        if self.any() && stream > LAST_DEFAULT_STREAM {
            self.close(|slot| slot.key.load(Acquire) == stream);
        }
    }

    /// A context is gone, with all its streams.
    pub(super) fn context_gone(&self, context: u32) {
        if self.any() && context != 0 {
            self.close(|slot| slot.context.load(Relaxed) == context);
        }
    }

    /// Frees the slots of which this holds; gives whether there was one.
    fn close(&self, is_over: impl Fn(&Slot) -> bool) -> bool {
        let mut closed = false;
        for slot in self.slots.iter().filter(|slot| is_over(slot)) {
            let key = slot.key.load(Acquire);
            if key != 0 && slot.key.compare_exchange(key, 0, AcqRel, Relaxed).is_ok() {
                closed = true;
                one_less(&self.count);
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_may_end_on_another_thread_and_with_its_stream_or_context() {
        let open = OpenCaptures::new();
        open.begin(0x70, 5, 1);
        assert!(open.of_thread(5) && !open.of_thread(6));
        assert!(open.is_of(0x70, 5) && !open.is_of(0x70, 6) && !open.is_of(0x71, 5));
        assert!(open.end(0x70, 6));
        assert!(!open.any() && !open.of_thread(5));
        assert!(!open.end(0x70, 5), "there is none");
        open.begin(0x70, 5, 1);
        open.begin(0x71, 5, 2);
        open.begin(0x72, 6, 2);
        open.stream_gone(0x70);
        assert!(open.of_thread(5));
        open.context_gone(2);
        assert!(!open.any());
        // Each thread's own default stream is another one.
        open.begin(0, 5, 1);
        open.begin(2, 6, 1);
        assert!(open.end(0, 5) && !open.of_thread(5) && open.of_thread(6));
        open.begin(2, 6, 1);
        assert!(open.end(2, 6) && !open.any(), "the first one's end was missed");
    }

    #[test]
    fn more_than_there_is_room_for_are_counted() {
        let open = OpenCaptures::new();
        let all = SLOTS as u64 + 9;
        (0..all).for_each(|i| open.begin(0x1000 + i, 5, 1));
        (0..all).for_each(|i| {
            assert!(open.any());
            assert!(open.end(0x1000 + i, 5));
        });
        assert!(!open.any() && !open.end(0x1000, 5));
    }
}
