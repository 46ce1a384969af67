//! The state of CUPTI in the process: what was enabled and when, attributes, the subscriber, the device buffers.

use crate::callbacks::Callback;
use crate::client::Callbacks;
use crate::clock::Clock;
use crate::fault::Faults;
use crate::layout::kind;
use crate::pool::{Pool, Sequence};
use crate::scenario::Scenario;
use crate::truth::{DeviceBuffers, Ledger};
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Attributes that the model honours (`cupti_activity.h`).
pub(crate) mod attribute {
    pub(crate) const DEVICE_BUFFER_SIZE: u32 = 0;
    pub(crate) const POOL_LIMIT: u32 = 2;
    pub(crate) const PREALLOCATE: u32 = 6;
    pub(crate) const PER_THREAD_BUFFERS: u32 = 9;
    /// Attributes of one byte; the others are `size_t`.
    pub(crate) const ALLOCATION_SOURCE: u32 = 14;
    pub(crate) const BYTES: [u32; 4] = [5, 8, 9, ALLOCATION_SOURCE];
}

/// Locks a mutex whatever happened to whoever held it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context of the application and the device buffers CUPTI keeps for it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: u32,
    pub(crate) device: u32,
    /// What the attributes said when the context was created; none before.
    created: Mutex<Option<[u64; 3]>>,
    pool: Mutex<Option<Pool>>,
    flush_noted: AtomicU64,
    owed_overheads: AtomicU64,
}

/// One simulated CUPTI.
pub(crate) struct Cupti {
    pub(crate) version: Version,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) ledger: Ledger,
    pub(crate) contexts: Vec<Context>,
    /// Records dropped for lack of host buffers and not yet asked for.
    pub(crate) dropped: AtomicU64,
    pub(crate) correlation: AtomicU32,
    /// Kernel records made by now.
    pub(crate) kernel_records: AtomicU64,
    pub(crate) subscriber: Mutex<Option<Subscriber>>,
    /// Callbacks and domains the subscriber enabled.
    pub(crate) callbacks_on: AtomicU64,
    /// Nanoseconds between two flushes of CUPTI's own, 0 for none.
    pub(crate) flush_period: AtomicU64,
    /// Whether `GRAPH_TRACE` was ever enabled, which nothing takes back.
    pub(crate) graph_level: AtomicU64,
    attach_takes: Duration,
    attached_at: AtomicU64,
    kinds: [AtomicU64; kind::COUNT as usize],
    attributes: Mutex<BTreeMap<u32, u64>>,
    callbacks: RwLock<Option<Callbacks>>,
    aborts: bool,
}

/// The interface through which a client subscribed. The two must not mix in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Interface {
    #[default]
    V1,
    /// Whether it lets others in.
    V2 { several: bool },
}

/// Calls of v1 that have a counterpart in v2.
const OF_V1: [&str; 7] = [
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityGetNumDroppedRecords",
    "cuptiActivityGetAttribute",
    "cuptiActivitySetAttribute",
    "cuptiGetTimestamp",
];

/// The client that subscribed.
#[derive(Clone, Default)]
pub(crate) struct Subscriber {
    pub(crate) interface: Interface,
    /// Callbacks that were enabled, by domain and id.
    pub(crate) enabled: BTreeSet<(u32, u32)>,
    /// Domains that were enabled whole.
    pub(crate) domains: BTreeSet<u32>,
    pub(crate) callback: Option<Callback>,
    /// What the callback gets as its first argument.
    pub(crate) user: usize,
}

impl Cupti {
    pub(crate) fn new(scenario: &Scenario, clock: Clock, aborts: bool) -> Self {
        let version = Version(scenario.cupti);
        let attributes = BTreeMap::from([
            (attribute::DEVICE_BUFFER_SIZE, 3_200_000),
            (1, 8_388_608),
            (attribute::POOL_LIMIT, scenario.pool_limit),
            (5, 0),
            (attribute::PREALLOCATE, 3),
            (8, 0),
            (attribute::PER_THREAD_BUFFERS, u64::from(version.per_thread_buffers())),
            (attribute::ALLOCATION_SOURCE, 0),
        ]);
        let faults = Faults::new(&scenario.faults);
        Self {
            version,
            ledger: Ledger::default(),
            contexts: scenario
                .contexts
                .iter()
                .map(|context| Context {
                    id: context.id,
                    device: context.device,
                    created: Mutex::new(None),
                    pool: Mutex::new(None),
                    flush_noted: AtomicU64::new(0),
                    owed_overheads: AtomicU64::new(0),
                })
                .collect(),
            dropped: AtomicU64::new(0),
            correlation: AtomicU32::new(faults.first_correlation),
            kernel_records: AtomicU64::new(0),
            subscriber: Mutex::new(None),
            callbacks_on: AtomicU64::new(0),
            flush_period: AtomicU64::new(0),
            graph_level: AtomicU64::new(0),
            attach_takes: Duration::from_nanos(scenario.attach.0),
            attached_at: AtomicU64::new(0),
            kinds: [const { AtomicU64::new(0) }; kind::COUNT as usize],
            attributes: Mutex::new(attributes),
            callbacks: RwLock::new(None),
            faults,
            clock,
            aborts,
        }
    }

    /// What the first call of CUPTI does: it attaches to the driver, which sets up the contexts that exist.
    pub(crate) fn attach(&self) {
        if self.attached_at.load(Relaxed) == 0 {
            let now = self.clock.now();
            if self.attached_at.compare_exchange(0, now, Relaxed, Relaxed).is_ok() {
                std::thread::sleep(self.attach_takes);
                for context in &self.contexts {
                    context.set_up(self.is_on(kind::OVERHEAD));
                }
            }
        }
    }

    /// Whether CUPTI was called before `time`.
    pub(crate) fn attached(&self, time: u64) -> bool {
        let at = self.attached_at.load(Relaxed);
        at != 0 && at <= time
    }

    /// The application creates its contexts; their device buffers take the attributes as they are now.
    pub(crate) fn create_contexts(&self) {
        let attributes = lock(&self.attributes);
        let values = [attribute::DEVICE_BUFFER_SIZE, attribute::POOL_LIMIT, attribute::PREALLOCATE]
            .map(|attribute| attributes.get(&attribute).copied().unwrap_or(0));
        drop(attributes);
        for context in &self.contexts {
            lock(&context.created).get_or_insert(values);
            if self.attached_at.load(Relaxed) != 0 {
                context.set_up(self.is_on(kind::OVERHEAD));
            }
        }
    }

    /// The context with this id.
    pub(crate) fn context(&self, id: u32) -> Option<usize> {
        self.contexts.iter().position(|context| context.id == id)
    }

    /// Switches a kind on or off from now on.
    pub(crate) fn switch(&self, kind: u32, on: bool) {
        if let Some(state) = self.kinds.get(kind as usize) {
            let was_on = state.load(Relaxed) & 1 == 1;
            if was_on != on {
                state.store(self.clock.now() << 1 | u64::from(on), Relaxed);
                if on {
                    self.faults.enabled(kind);
                }
            }
        }
    }

    /// Whether a kind was on at `time`, as far as its last change tells.
    pub(crate) fn on(&self, kind: u32, time: u64) -> bool {
        let state = self.kinds.get(kind as usize).map_or(0, |state| state.load(Relaxed));
        (state & 1 == 1) == (time >= state >> 1) && state != 0
    }

    /// Whether kernels were ever traced.
    pub(crate) fn kernels_were_on(&self) -> bool {
        self.kinds[kind::KERNEL as usize].load(Relaxed) != 0
    }

    /// Whether any kind is on.
    pub(crate) fn any_on(&self) -> bool {
        (1..kind::COUNT).any(|kind| self.is_on(kind))
    }

    /// Another tool subscribes under this name and registers callbacks of its own. False if it cannot, because the
    /// client is subscribed.
    pub(crate) fn take_over(&self, name: &str) -> bool {
        if lock(&self.subscriber).is_some() {
            return false;
        }
        self.faults.occupy(name);
        let mut callbacks = self.callbacks.write().unwrap_or_else(PoisonError::into_inner);
        if callbacks.take().is_some() && self.ledger.outstanding() > 0 {
            self.crash("buffers of one client are with CUPTI while another registers its callbacks");
        }
        true
    }

    /// Another tool subscribes under this name through v2, lets others in, and traces for itself. False if it cannot,
    /// because the client is subscribed and does not let it.
    pub(crate) fn take_a_share(&self, name: &str) -> bool {
        let lets = |held: &Subscriber| held.interface == Interface::V2 { several: true };
        if lock(&self.subscriber).as_ref().is_some_and(|held| !lets(held)) {
            return false;
        }
        self.faults.share(name);
        true
    }

    /// Whether this call would mix the two interfaces.
    pub(crate) fn mixes(&self, call: &str) -> bool {
        let Some(interface) = lock(&self.subscriber).as_ref().map(|held| held.interface) else {
            return false;
        };
        let mixes = match interface {
            Interface::V1 => call.ends_with("_v2") && call != "cuptiSubscribe_v2",
            Interface::V2 { .. } => OF_V1.contains(&call),
        };
        if mixes {
            self.ledger.misused(&format!("{call} under a subscription of the other interface"));
        }
        mixes
    }

    /// Kinds that any subscriber has on.
    pub(crate) fn kinds_on(&self) -> u32 {
        let own = (1..kind::COUNT).filter(|kind| self.is_on(*kind)).count() as u32;
        // The other tool traces kernels.
        own + u32::from(self.faults.shared() && !self.is_on(kind::KERNEL))
    }

    /// Switches everything off and forgets the client, as `cuptiFinalize` does.
    pub(crate) fn detach(&self) {
        for kind in 0..kind::COUNT {
            self.switch(kind, false);
        }
        *self.callbacks.write().unwrap_or_else(PoisonError::into_inner) = None;
        *lock(&self.subscriber) = None;
        self.callbacks_on.store(0, Relaxed);
        self.attached_at.store(0, Relaxed);
    }

    /// Whether a kind is on now.
    pub(crate) fn is_on(&self, kind: u32) -> bool {
        self.kinds.get(kind as usize).is_some_and(|state| state.load(Relaxed) & 1 == 1)
    }

    pub(crate) fn get_attribute(&self, attribute: u32) -> Option<u64> {
        lock(&self.attributes).get(&attribute).copied()
    }

    /// Sets an attribute; it reads back, whether or not anything still heeds it.
    pub(crate) fn set_attribute(&self, attribute: u32, value: u64) {
        lock(&self.attributes).insert(attribute, value);
    }

    /// Whether memory records say who asked.
    pub(crate) fn tracks_sources(&self) -> bool {
        self.get_attribute(attribute::ALLOCATION_SOURCE) == Some(1)
    }

    pub(crate) fn callbacks(&self) -> Option<Callbacks> {
        *self.callbacks.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, callbacks: Callbacks) {
        *self.callbacks.write().unwrap_or_else(PoisonError::into_inner) = Some(callbacks);
    }

    /// The real library would have crashed here: ends the process, or notes it where the simulation runs inside a
    /// test.
    pub(crate) fn crash(&self, text: &str) {
        self.ledger.crashed(text);
        if self.aborts {
            eprintln!("simulated CUPTI: {text}");
            std::process::abort();
        }
    }

    pub(crate) fn device_buffers(&self) -> Vec<DeviceBuffers> {
        self.contexts.iter().filter_map(Context::device_buffers).collect()
    }

    /// How much longer records take to come for the buffers that never come back (measured: from 66 to 250 ms
    /// while 200 of them fill).
    pub(crate) fn lag(&self) -> u64 {
        const NS_A_BUFFER: u64 = 920_000;
        let queued: u64 =
            self.contexts.iter().map(|context| context.pool(|pool| pool.queued()).unwrap_or(0)).sum();
        queued.saturating_sub(2 * self.contexts.len() as u64) * NS_A_BUFFER
    }
}

impl Context {
    /// Allocates the first device buffers, once the context exists and CUPTI is attached.
    fn set_up(&self, overhead: bool) {
        if let Some([bytes, limit, preallocated]) = *lock(&self.created) {
            lock(&self.pool).get_or_insert_with(|| {
                let pool = Pool::new(bytes, limit, preallocated);
                if overhead {
                    // One for each buffer, and one for what CUPTI keeps beside them.
                    self.owed_overheads.store(pool.preallocated() + 1, Relaxed);
                }
                pool
            });
        }
    }

    /// How many records of allocations at set-up are to be made; they are owed once.
    pub(crate) fn owed_overheads(&self) -> u64 {
        if self.owed_overheads.load(Relaxed) == 0 { 0 } else { self.owed_overheads.swap(0, Relaxed) }
    }

    /// Does something while the device buffers, if there are any, are held.
    pub(crate) fn with_pool(&self, with: impl FnOnce(Option<&mut Pool>)) {
        with(lock(&self.pool).as_mut());
    }

    /// Gives back a number of slots of one device buffer.
    pub(crate) fn collect(&self, (buffer, slots): (Sequence, u64)) {
        if slots > 0 {
            self.pool(|pool| pool.collect(buffer, slots));
        }
    }

    /// Does something with the device buffers, if there are any.
    pub(crate) fn pool<T>(&self, with: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        lock(&self.pool).as_mut().map(with)
    }

    /// Whether a flush for lack of device buffers is to be noted at `time`: at most one in a millisecond
    /// (measured: 5,000 in 5 s).
    pub(crate) fn notes_flush(&self, time: u64) -> bool {
        let last = self.flush_noted.load(Relaxed);
        time >= last + 1_000_000 && self.flush_noted.compare_exchange(last, time, Relaxed, Relaxed).is_ok()
    }

    fn device_buffers(&self) -> Option<DeviceBuffers> {
        self.pool(|pool| DeviceBuffers {
            context: self.id,
            limit: pool.limit(),
            allocated: pool.allocated(),
            queued: pool.queued(),
            slots: pool.taken(),
            exhausted: pool.exhausted(),
            growth_mib: pool.growth_mib(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_take_longer_while_buffers_do_not_come_back() {
        let scenario = Scenario::parse("").unwrap();
        let cupti = Cupti::new(&scenario, Clock::stepped(), false);
        cupti.attach();
        cupti.create_contexts();
        let fill = |buffers: u64| {
            cupti.contexts[0].with_pool(|pool| {
                let pool = pool.unwrap();
                (0..buffers * pool.slots())
                    .for_each(|_| assert_ne!(pool.take(), crate::pool::Slot::Exhausted));
            });
            cupti.lag()
        };
        assert_eq!(fill(0), 0);
        // Measured: records are 66 ms old while a million kernels and as many copies are in, 250 ms at eleven million.
        let (early, late) = (fill(20), fill(200));
        assert_eq!((late - early) / 1_000_000, 250 - 66);
    }

    #[test]
    fn a_kind_was_on_from_its_enable_to_its_disable() {
        let cupti = Cupti::new(&Scenario::parse("").unwrap(), Clock::stepped(), false);
        let at = cupti.clock.now();
        assert!(!cupti.on(kind::KERNEL, at));
        cupti.clock.reach(at + 10);
        cupti.switch(kind::KERNEL, true);
        assert_eq!([at + 9, at + 10].map(|time| cupti.on(kind::KERNEL, time)), [false, true]);
        cupti.clock.reach(at + 20);
        cupti.switch(kind::KERNEL, false);
        assert_eq!([at + 19, at + 20].map(|time| cupti.on(kind::KERNEL, time)), [true, false]);
    }
}
