//! The queue, the stack and the gate under every interleaving of a few threads.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "the same source as the library, over loom's atomics"
)]
#[path = "../src/queue.rs"]
mod queue;

#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "the same source as the library, over loom's atomics"
)]
#[path = "../src/gate.rs"]
mod gate;

use gate::Gate;
use loom::sync::Arc;
use loom::thread;
use queue::{FreeList, Ring};

fn bounded(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

#[test]
fn two_producers_lose_nothing_and_keep_their_order() {
    bounded(|| {
        let ring = Arc::new(Ring::new(4).unwrap());
        let producers: Vec<_> = [10, 20]
            .into_iter()
            .map(|first| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    ring.push(first).unwrap();
                    ring.push(first + 1).unwrap();
                })
            })
            .collect();
        let mut seen = Vec::new();
        seen.extend(ring.pop());
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(std::iter::from_fn(|| ring.pop()));
        let place = |value| seen.iter().position(|one| *one == value).unwrap();
        assert_eq!(seen.len(), 4);
        assert!(place(10) < place(11) && place(20) < place(21), "{seen:?}");
    });
}

#[test]
fn a_full_queue_refuses_and_takes_again_after_a_pop() {
    bounded(|| {
        let ring = Arc::new(Ring::new(2).unwrap());
        ring.push(1).unwrap();
        ring.push(2).unwrap();
        let other = Arc::clone(&ring);
        let producer = thread::spawn(move || other.push(3).is_ok());
        let first = ring.pop();
        let pushed = producer.join().unwrap();
        assert_eq!(first, Some(1));
        assert_eq!(ring.pop(), Some(2));
        assert_eq!(ring.pop(), pushed.then_some(3));
        assert_eq!(ring.pop(), None);
    });
}

#[test]
fn a_number_is_never_given_twice() {
    bounded(|| {
        let free = Arc::new(FreeList::new(2).unwrap());
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let free = Arc::clone(&free);
                thread::spawn(move || {
                    let taken = free.pop();
                    if let Some(index) = taken {
                        free.push(index);
                    }
                    free.pop()
                })
            })
            .collect();
        let mut taken: Vec<u32> = takers.into_iter().filter_map(|taker| taker.join().unwrap()).collect();
        taken.extend(std::iter::from_fn(|| free.pop()));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn nobody_is_inside_once_a_closed_gate_was_seen_empty() {
    bounded(|| {
        let (gate, gone) = (Arc::new(Gate::default()), Arc::new(atomic::AtomicU32::new(0)));
        let worker = {
            let (gate, gone) = (Arc::clone(&gate), Arc::clone(&gone));
            thread::spawn(move || {
                for _ in 0..2 {
                    if gate.enter(7) {
                        assert_eq!(gone.load(atomic::Ordering::Relaxed), 0, "what it calls is gone");
                        gate.leave();
                    }
                }
            })
        };
        gate.close();
        if gate.since() == 0 {
            gone.store(1, atomic::Ordering::Relaxed);
        }
        worker.join().unwrap();
        assert!(gate.is_closed() && !gate.enter(8));
        assert_eq!(gate.since(), 0);
    });
}
