//! Which memory the nodes of captured graphs point to, and which allocations there are, so that a free under a graph can
//! be told; and calls that wait for the device without need. Bounded and without a lock: what finds no place is not known,
//! and nothing is said of it.

use super::Observe;
use super::callback::tell;
use super::decode::{self, Parameters};
use super::doing::{self, Doing};
use crate::memory::Region;
use crate::sys;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use gtop_protocol::calls::{Call, Sort};
use gtop_protocol::lifecycle::{Event, What};

/// Addresses that nodes point to. All are looked at for each free, and for each allocation once one of them was freed:
/// a microsecond, where a free takes many.
const POINTERS: usize = 2048;
/// Allocations known at once.
const ALLOCATIONS: usize = 1 << 14;
/// What is told of memory that nodes point to, at most: who allocates and frees there without end says nothing by it.
const TOLD: u32 = 4096;
/// Places looked at for one.
const PROBES: usize = 32;
/// A call that waited this long without need is counted, nanoseconds.
const IMPLICIT_NS: u64 = 1_000_000;
/// More bytes than this take their own time to be copied.
const SMALL: u64 = 64 << 10;

/// Addresses and allocations.
#[derive(Debug)]
pub(super) struct Pointed {
    pointers: Region<AtomicU64>,
    count: AtomicU32,
    /// Address and size, one after the other; a size of 0 is none.
    allocations: Region<AtomicU64>,
    told: AtomicU32,
    /// Whether anything that a node points to was freed, so that allocations matter.
    freed: AtomicBool,
    given_up: AtomicBool,
}

impl Pointed {
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            pointers: Region::new(POINTERS)?,
            count: AtomicU32::new(0),
            allocations: Region::new(ALLOCATIONS.checked_mul(2)?)?,
            told: AtomicU32::new(0),
            freed: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    fn known(&self) -> &[AtomicU64] {
        let count = self.count.load(Acquire) as usize;
        self.pointers.get(..count.min(POINTERS)).unwrap_or_default()
    }

    /// A node points here. Gives whether what becomes of the address will be known.
    fn point(&self, address: u64) -> bool {
        if self.given_up.load(Relaxed) {
            return false;
        }
        if self.known().iter().any(|known| known.load(Relaxed) == address) {
            return true;
        }
        let next = |count: u32| ((count as usize) < POINTERS).then_some(count.saturating_add(1));
        let Ok(place) = self.count.fetch_update(AcqRel, Relaxed, next) else { return false };
        // Until it is written the place holds 0, at which nothing lies.
        if let Some(pointer) = self.pointers.get(place as usize) {
            pointer.store(address, Release);
        }
        true
    }

    /// Nodes are set anew, so that what they point to is not known any more. Gives whether that is news.
    pub(super) fn give_up(&self) -> bool {
        !self.given_up.swap(true, Relaxed)
    }

    /// Whether a node points into this memory.
    fn covers(&self, address: u64, bytes: u64) -> bool {
        let within = |known: &AtomicU64| known.load(Relaxed).wrapping_sub(address) < bytes;
        !self.given_up.load(Relaxed) && self.known().iter().any(within)
    }

    /// Whether one more may be told.
    fn may_tell(&self) -> bool {
        self.told.fetch_add(1, Relaxed) < TOLD
    }

    /// The places where an allocation may be: address and size of each.
    fn places(&self, address: u64) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
        let first = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        (0..PROBES as u64).filter_map(move |probe| {
            let place = (first.wrapping_add(probe) as usize % ALLOCATIONS).checked_mul(2)?;
            Some((self.allocations.get(place)?, self.allocations.get(place.checked_add(1)?)?))
        })
    }

    /// Memory was allocated.
    fn add(&self, address: u64, bytes: u64) {
        if address == 0 {
            return;
        }
        let same = self.places(address).find(|(at, _)| at.load(Acquire) == address);
        let place = same.or_else(|| {
            self.places(address).find(|(at, size)| {
                let before = at.load(Acquire);
                (before == 0 || size.load(Acquire) == 0)
                    && at.compare_exchange(before, address, AcqRel, Relaxed).is_ok()
            })
        });
        if let Some((_, size)) = place {
            size.store(bytes, Release);
        }
    }

    /// Memory is about to be freed: its size, or 0 when it is not known.
    fn take(&self, address: u64) -> u64 {
        let place = self.places(address).find(|(at, _)| at.load(Acquire) == address);
        place.map_or(0, |(_, size)| size.swap(0, AcqRel))
    }
}

/// Calls that waited without need since they were last told.
#[derive(Debug, Default)]
pub(super) struct Implicit {
    count: AtomicU32,
    ns: AtomicU64,
    /// The second of the last one told.
    told: AtomicU64,
}

impl Implicit {
    /// A call that has copied so many bytes, or none, took so long: how many there were and how long they took together,
    /// once a second.
    fn add(&self, now: u64, ns: u64, bytes: u64) -> Option<(u32, u64)> {
        if ns < IMPLICIT_NS || bytes > SMALL {
            return None;
        }
        self.count.fetch_add(1, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        let second = now.checked_div(1_000_000_000).unwrap_or(0);
        if self.told.swap(second, Relaxed) == second {
            return None;
        }
        Some((self.count.swap(0, Relaxed), self.ns.swap(0, Relaxed)))
    }
}

/// A copy or memory set has become a node of the graph that is captured.
pub(super) fn node_made(observe: &Observe, event: Event) {
    let known = [event.object.get(), event.other.get()]
        .into_iter()
        .filter(|address| *address != 0 && observe.pointed.point(*address))
        .count();
    if known > 0 {
        tell(observe, What::NodeMemory, event, None);
    }
}

/// Memory is about to be freed: from the end of the call on another thread may have been given it.
pub(super) fn free_begins(observe: &Observe, call: &Call, parameters: Parameters) {
    let mut event = Event::default();
    decode::read(call, 0, parameters, &mut event);
    let address = event.object.get();
    let freeing = observe.pointed.take(address);
    if observe.pointed.covers(address, freeing) {
        observe.pointed.freed.store(true, Relaxed);
    }
    doing::set(Doing { freeing, ..doing::get() });
}

/// What a call that has ended means for memory that nodes point to, and whether it waited without need.
pub(super) fn call_ended(observe: &Observe, call: &Call, event: Event, freeing: u64) {
    let (address, ok) = (event.object.get(), event.result.get() == 0);
    let (what, bytes) = match call.sort {
        Sort::Allocate if ok => {
            // What is freed in the order of a stream is not followed.
            if !matches!(call.code, 598 | 599 | 611 | 612) {
                observe.pointed.add(address, event.bytes.get());
            }
            if !observe.pointed.freed.load(Relaxed) {
                return;
            }
            (What::Allocated, event.bytes.get())
        }
        Sort::Free if ok => (What::Freed, freeing),
        Sort::Free => return observe.pointed.add(address, freeing),
        Sort::Wait if ok && matches!(call.code, 276 | 397) => (What::ImplicitWait, 0),
        _ => return,
    };
    if observe.pointed.covers(address, bytes) {
        if observe.pointed.may_tell() {
            tell(observe, what, Event { bytes: bytes.into(), ..event }, None);
        } else if observe.pointed.give_up() {
            tell(observe, What::NodesSet, event, None);
        }
    }
    // A free waits for all that runs, and so does a copy from pageable memory.
    if what != What::Allocated
        && let Some((count, ns)) = observe.implicit.add(sys::realtime(), event.ns.get(), event.bytes.get())
    {
        tell(observe, What::ImplicitWait, Event { count: count.into(), bytes: ns.into(), ..event }, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_is_told_only_where_a_node_points() {
        let pointed = Pointed::new().unwrap();
        pointed.add(0x7f00_0000_0000, 4096);
        pointed.add(0x7f00_0000_1000, 4096);
        assert!(pointed.point(0x7f00_0000_0800));
        assert!(pointed.point(0x7f00_0000_0800), "known already");
        let first = pointed.take(0x7f00_0000_0000);
        assert_eq!((first, pointed.covers(0x7f00_0000_0000, first)), (4096, true));
        let second = pointed.take(0x7f00_0000_1000);
        assert_eq!((second, pointed.covers(0x7f00_0000_1000, second)), (4096, false));
        assert_eq!((pointed.take(0x7f00_0000_0000), pointed.covers(0x7f00_0000_0000, 0)), (0, false));
        assert!(pointed.give_up() && !pointed.give_up());
        assert!(!pointed.covers(0x7f00_0000_0000, 4096) && !pointed.point(1));
    }

    #[test]
    fn what_finds_no_place_is_not_known_and_harms_nothing() {
        let pointed = Pointed::new().unwrap();
        let address = |i: u64| 0x7f00_0000_0000 + (i << 9);
        (0..100_000).for_each(|i| pointed.add(address(i), 512));
        let known = (0..100_000).filter(|i| pointed.take(address(*i)) == 512).count();
        assert!((ALLOCATIONS / 2..=ALLOCATIONS).contains(&known), "{known}");
        // The places of what is gone are used again.
        (100_000..104_000).for_each(|i| pointed.add(address(i), 512));
        let known = (100_000..104_000).filter(|i| pointed.take(address(*i)) == 512).count();
        assert!(known > 3_500, "{known}");
        let pointers = (1..10_000).filter(|i| pointed.point(*i)).count();
        assert_eq!(pointers, POINTERS);
    }

    #[test]
    fn waits_are_told_once_a_second_with_all_of_them() {
        let implicit = Implicit::default();
        assert_eq!(implicit.add(5_000_000_000, IMPLICIT_NS - 1, 0), None);
        assert_eq!(implicit.add(5_000_000_000, 2 * IMPLICIT_NS, SMALL + 1), None, "copying took the time");
        assert_eq!(implicit.add(5_000_000_000, 2 * IMPLICIT_NS, 0), Some((1, 2 * IMPLICIT_NS)));
        for i in 1..=3 {
            assert_eq!(implicit.add(5_000_000_000 + i, IMPLICIT_NS, 4), None);
        }
        assert_eq!(implicit.add(6_000_000_000, IMPLICIT_NS, 4), Some((4, 4 * IMPLICIT_NS)));
    }
}
