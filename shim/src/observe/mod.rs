//! What callbacks tell of contexts, streams, modules, graphs and captures. Callbacks come on the application's threads:
//! they count, put one event into a bounded queue, and leave. They call nothing of CUDA, and of CUPTI only what gives
//! an id.

mod abi;
mod callback;
mod decode;
mod doing;
mod driver;
mod log;
mod pointed;
mod start;

pub(crate) use callback::callback;
pub(crate) use driver::Driver;
pub(crate) use log::EventLog;
pub(crate) use start::{Enable, Functions, GetId, GetNodeId, GetStreamId, start};

use crate::memory::Region;
use crate::names::NameTable;
use crate::queue::{FreeList, Ring};
use crate::wake::Wake;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
use gtop_protocol::lifecycle::{EVENT_LEN, Event, What};
use gtop_protocol::message::Observers;
use pointed::{Implicit, Pointed};
use zerocopy::{FromBytes, IntoBytes};

/// Events that may wait for the I/O thread.
const WAITING: u32 = 8192;
/// 64-bit words of one event.
const WORDS: usize = EVENT_LEN.div_ceil(8);
/// Failures that become events in one second; further ones are only counted.
const FAILURES_A_SECOND: u64 = 200;
/// Launches of kernels and copies a second beyond which they are no longer watched.
const MOST_LAUNCHES: u64 = 100_000;

/// Things counted, each an [`AtomicU64`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Contexts,
    ContextsDestroyed,
    Streams,
    StreamsDestroyed,
    Modules,
    ModulesUnloaded,
    Graphs,
    GraphsDestroyed,
    Execs,
    ExecsDestroyed,
    Pools,
    PoolsDestroyed,
    Captures,
    CapturesEnded,
    CapturesFailed,
    Updates,
    UpdatesFailed,
    Launches,
    LaunchesFailed,
    Kernels,
    KernelsFailed,
}

const COUNTS: usize = Count::KernelsFailed as usize + 1;

/// Counts, and events on their way.
#[derive(Debug)]
pub(crate) struct Observe {
    events: Region<AtomicU64>,
    free: FreeList,
    queue: Ring,
    counts: [AtomicU64; COUNTS],
    calls: AtomicU64,
    calls_ns: AtomicU64,
    lost: AtomicU64,
    /// The second in the upper half, failures in it in the lower.
    failures: AtomicU64,
    /// Copies and memory sets outside of captures.
    copies: AtomicU64,
    /// What nodes point to.
    pointed: Pointed,
    implicit: Implicit,
    /// Captures that are open in the process.
    pub(crate) open: AtomicU32,
    /// Devices with contexts, a bit each.
    devices: AtomicU32,
    /// What the driver says of when code is loaded; 0 is unknown.
    loading: AtomicU8,
    on: AtomicBool,
    whole: AtomicBool,
    given_up: AtomicBool,
    functions: Functions,
    names: &'static NameTable,
    wake: &'static Wake,
}

/// The observers the callback feeds. Null before the start and in a child after a fork.
static CURRENT: AtomicPtr<Observe> = AtomicPtr::new(core::ptr::null_mut());

/// The observers, once there are any.
#[expect(unsafe_code, reason = "the process's one set of observers behind a pointer")]
pub(crate) fn current() -> Option<&'static Observe> {
    // SAFETY: null, or what `install` stored, which lives for ever.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

fn install(observe: &'static Observe) {
    CURRENT.store(core::ptr::from_ref(observe).cast_mut(), Release);
}

/// From now on the callback does nothing. Async-signal-safe.
pub(crate) fn uninstall() {
    CURRENT.swap(core::ptr::null_mut(), AcqRel);
}

/// The subscription is over, and its callbacks with it.
pub(crate) fn stopped() {
    if let Some(observe) = current() {
        observe.on.store(false, Relaxed);
    }
}

impl Observe {
    fn new(functions: Functions, names: &'static NameTable, wake: &'static Wake) -> Option<Self> {
        Some(Self {
            events: Region::new((WAITING as usize).checked_mul(WORDS)?)?,
            free: FreeList::new(WAITING)?,
            queue: Ring::new(WAITING as usize)?,
            counts: [const { AtomicU64::new(0) }; COUNTS],
            calls: AtomicU64::new(0),
            calls_ns: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            pointed: Pointed::new()?,
            implicit: Implicit::default(),
            open: AtomicU32::new(0),
            devices: AtomicU32::new(0),
            loading: AtomicU8::new(0),
            on: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            functions,
            names,
            wake,
        })
    }

    pub(crate) fn count(&self, what: Count) {
        if let Some(count) = self.counts.get(what as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts a copy or memory set that became no node.
    fn copied(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    fn get(&self, what: Count) -> u64 {
        self.counts.get(what as usize).map_or(0, |count| count.load(Relaxed))
    }

    /// Puts an event into the queue, or counts it as lost.
    pub(crate) fn push(&self, event: &Event) {
        let Some(index) = self.free.pop() else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let mut bytes = [0; WORDS * 8];
        if let Some(front) = bytes.get_mut(..EVENT_LEN) {
            front.copy_from_slice(event.as_bytes());
        }
        for (word, value) in self.words(index).iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*value), Relaxed);
        }
        if self.queue.push(index).is_err() {
            self.free.push(index);
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        // Nodes come by the thousand; what matters comes after them.
        let many = matches!(What::from_wire(event.what), Some(What::Nodes | What::Edges));
        if !many || self.queue.len() >= WAITING as usize / 4 {
            self.wake.notify();
        }
    }

    /// Whether another failure may become an event in this second, nanoseconds.
    pub(crate) fn may_tell(&self, now: u64) -> bool {
        let second = now.checked_div(1_000_000_000).unwrap_or(0) & 0xffff_ffff;
        let before = self.failures.load(Relaxed);
        let told = if before >> 32 == second { before & 0xffff_ffff } else { 0 };
        // Two threads at once may tell one more.
        self.failures.store(second << 32 | told.saturating_add(1).min(0xffff_ffff), Relaxed);
        let may = told < FAILURES_A_SECOND;
        if !may {
            self.lost.fetch_add(1, Relaxed);
        }
        may
    }

    /// Takes the oldest event out of the queue.
    fn pop(&self) -> Option<Event> {
        let index = self.queue.pop()?;
        let mut bytes = [0; WORDS * 8];
        for (value, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words(index)) {
            *value = word.load(Relaxed).to_ne_bytes();
        }
        self.free.push(index);
        Event::read_from_prefix(&bytes).ok().map(|(event, _)| event)
    }

    fn words(&self, index: u32) -> &[AtomicU64] {
        let first = (index as usize).saturating_mul(WORDS);
        self.events.get(first..first.saturating_add(WORDS)).unwrap_or_default()
    }

    /// What is counted so far; `forgotten` is the log's.
    pub(crate) fn counted(&self, forgotten: u64) -> Observers {
        Observers {
            on: u8::from(self.on.load(Relaxed)),
            whole: u8::from(self.whole.load(Relaxed)),
            calls: self.calls.load(Relaxed),
            calls_ns: self.calls_ns.load(Relaxed),
            lost: self.lost.load(Relaxed),
            forgotten,
            contexts: self.get(Count::Contexts),
            contexts_destroyed: self.get(Count::ContextsDestroyed),
            streams: self.get(Count::Streams),
            streams_destroyed: self.get(Count::StreamsDestroyed),
            modules: self.get(Count::Modules),
            modules_unloaded: self.get(Count::ModulesUnloaded),
            graphs: self.get(Count::Graphs),
            graphs_destroyed: self.get(Count::GraphsDestroyed),
            execs: self.get(Count::Execs),
            execs_destroyed: self.get(Count::ExecsDestroyed),
            pools: self.get(Count::Pools),
            pools_destroyed: self.get(Count::PoolsDestroyed),
            captures: self.get(Count::Captures),
            captures_ended: self.get(Count::CapturesEnded),
            captures_failed: self.get(Count::CapturesFailed),
            updates: self.get(Count::Updates),
            updates_failed: self.get(Count::UpdatesFailed),
            launches: self.get(Count::Launches),
            launches_failed: self.get(Count::LaunchesFailed),
            kernels: self.get(Count::Kernels),
            kernels_failed: self.get(Count::KernelsFailed),
            kernels_given_up: u8::from(self.given_up.load(Relaxed)),
            loading: self.loading.load(Relaxed),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shared::keep;

    /// Observers without a CUPTI.
    pub(crate) fn observers() -> &'static Observe {
        observers_with(Functions::default())
    }

    pub(crate) fn observers_with(functions: Functions) -> &'static Observe {
        let names = keep(NameTable::new().unwrap()).unwrap();
        let wake = keep(Wake::default()).unwrap();
        keep(Observe::new(functions, names, wake).unwrap()).unwrap()
    }

    #[test]
    fn events_come_out_as_they_went_in_and_too_many_are_counted() {
        let observe = observers();
        for i in 0..WAITING + 10 {
            observe.push(&Event {
                time: u64::from(i).into(),
                block: [1.into(), 2.into(), 3.into()],
                ..Event::default()
            });
        }
        assert_eq!(observe.counted(0).lost, 10);
        for i in 0..WAITING {
            let event = observe.pop().unwrap();
            assert_eq!((event.time.get(), event.block[2].get()), (u64::from(i), 3));
        }
        assert!(observe.pop().is_none());
    }

    #[test]
    fn failures_without_end_are_told_at_a_bounded_rate() {
        let observe = observers();
        let told = (0..1000u64).filter(|i| observe.may_tell(5_000_000_000 + i)).count();
        assert_eq!((told as u64, observe.counted(0).lost), (FAILURES_A_SECOND, 1000 - FAILURES_A_SECOND));
        assert!(observe.may_tell(6_000_000_000));
    }
}
