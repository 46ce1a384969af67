//! For tests that callbacks take no memory and wait for no lock: an allocator that counts by thread what is asked of it,
//! and a thread that runs while others hold every lock of the shim.
#![expect(unsafe_code, reason = "an allocator")]

use crate::reserve::Reserve;
use crate::shared::Shim;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::sync::mpsc;
use std::time::Duration;

/// Nothing here takes this long unless it waits for a lock.
const PATIENCE: Duration = Duration::from_mins(1);

thread_local!(static ASKED: Cell<u64> = const { Cell::new(0) });

/// The shim's allocator, with a count of what each thread asked of it and gave back.
pub(crate) struct Counting(Reserve);

impl Counting {
    pub(crate) const fn new() -> Self {
        Self(Reserve::new())
    }
}

fn count() {
    let _ = ASKED.try_with(|asked| asked.set(asked.get().wrapping_add(1)));
}

// SAFETY: the promises of the allocator within.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(place, layout) };
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(place, layout, size) }
    }
}

/// Runs `body` on a thread of its own while this one holds all locks of the shim; gives how often it asked for memory or
/// gave some back.
pub(crate) fn while_locked(shim: &Shim, body: impl FnOnce() + Send + 'static) -> u64 {
    let (done, ended) = mpsc::channel();
    shim.with_all_locked(|| {
        std::thread::spawn(move || {
            let before = ASKED.get();
            body();
            let asked = ASKED.get().wrapping_sub(before);
            done.send(asked).unwrap();
        });
        ended.recv_timeout(PATIENCE).expect("it waits for a lock, or failed")
    })
}

mod tests {
    use super::*;
    use crate::config::Config;
    use std::sync::mpsc::TryRecvError;

    #[test]
    fn what_takes_memory_or_a_lock_is_noticed() {
        let shim = Shim::new(Config::default(), None).unwrap();
        assert_eq!(while_locked(shim, || _ = std::hint::black_box(7)), 0);
        assert_eq!(while_locked(shim, || drop(std::hint::black_box(Box::new(7)))), 2);
        let grows = || {
            (0..100)
                .fold(Vec::new(), |mut all, one| {
                    all.push(one);
                    all
                })
                .len()
        };
        assert!(while_locked(shim, move || assert_eq!(grows(), 100)) > 2);
        let (done, ended) = mpsc::channel();
        shim.with_all_locked(|| {
            let waits: [fn(&'static Shim); 5] = [
                |shim| _ = shim.status(),
                |shim| _ = shim.measured(),
                |shim| shim.watchers(1),
                |shim| shim.remove_socket(),
                |shim| shim.log.close(),
            ];
            for wait in waits {
                let done = done.clone();
                std::thread::spawn(move || {
                    wait(shim);
                    done.send(()).unwrap();
                });
            }
            assert_eq!(ended.try_recv(), Err(TryRecvError::Empty));
        });
        (0..5).for_each(|_| ended.recv().unwrap());
    }
}
