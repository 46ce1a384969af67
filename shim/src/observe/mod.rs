//! What callbacks tell of contexts, streams, modules, graphs and captures. Callbacks come on the application's threads:
//! they count, put one event into a bounded queue, and leave. They call nothing of CUDA, and of CUPTI only what gives
//! an id.

mod abi;
mod budget;
mod callback;
mod compute;
mod cost;
mod decode;
mod doing;
mod driver;
mod legacy;
mod limits;
mod log;
mod open;
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
use budget::{Budget, Budgets, Spent};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
use cost::{Class, Costs};
use gtop_protocol::lifecycle::{EVENT_LEN, Event, What};
use gtop_protocol::message::Observers;
use open::OpenCaptures;
use pointed::{Implicit, Pointed};
use zerocopy::{FromBytes, IntoBytes};

/// Events that may wait for the I/O thread.
const WAITING: u32 = 8192;
/// 64-bit words of one event.
const WORDS: usize = EVENT_LEN.div_ceil(8);

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
    Events,
    EventsDestroyed,
}

const COUNTS: usize = Count::EventsDestroyed as usize + 1;

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
    untold: AtomicU64,
    budgets: Budgets,
    costs: Costs,
    /// What nodes point to.
    pointed: Pointed,
    implicit: Implicit,
    open: OpenCaptures,
    /// Devices with contexts, a bit each.
    devices: AtomicU32,
    /// What the driver says of when code is loaded; 0 is unknown.
    loading: AtomicU8,
    on: AtomicBool,
    whole: AtomicBool,
    /// Whether CUPTI leaves it to calls to say which type a node has.
    types_by_calls: AtomicBool,
    /// Whether launches of graphs may be of one without kernels.
    bare: AtomicBool,
    /// What is no longer watched, a bit for each class of calls.
    given_up: AtomicU8,
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

/// Launches that callbacks have told of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launched {
    /// Of graphs of which each has kernels, and of single kernels.
    pub(crate) of_kernels: u64,
    /// Of graphs, where one may have none.
    pub(crate) others: u64,
}

/// What was launched so far.
pub(crate) fn launched() -> Launched {
    let Some(observe) = current() else { return Launched::default() };
    let (graphs, kernels) = (observe.get(Count::Launches), observe.get(Count::Kernels));
    let told = observe.whole.load(Relaxed) && observe.lost.load(Relaxed) == 0;
    if told && !observe.bare.load(Relaxed) {
        Launched { of_kernels: kernels.saturating_add(graphs), others: 0 }
    } else {
        Launched { of_kernels: kernels, others: graphs }
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
            untold: AtomicU64::new(0),
            budgets: Budgets::new(),
            costs: Costs::new(),
            pointed: Pointed::new()?,
            implicit: Implicit::default(),
            open: OpenCaptures::new(),
            devices: AtomicU32::new(0),
            loading: AtomicU8::new(0),
            on: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            types_by_calls: AtomicBool::new(false),
            bare: AtomicBool::new(false),
            given_up: AtomicU8::new(0),
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
            let _ = self.wake.notify();
        }
    }

    /// Whether another event of a sort may be told at `now`, nanoseconds. If not, it is counted.
    fn may_tell(&self, budget: Budget, now: u64) -> bool {
        let spent = self.budgets.spend(budget, now);
        if spent == Spent::Told {
            return true;
        }
        // An update says what an executable graph is made of from then on; the others leave nothing behind.
        let count = if matches!(budget, Budget::Updates) { &self.lost } else { &self.untold };
        count.fetch_add(1, Relaxed);
        if spent == Spent::First && matches!(budget, Budget::Streams) {
            self.streams_untold();
        }
        false
    }

    /// Says that it is not known any more which streams take part in open captures.
    fn streams_untold(&self) {
        let time = crate::sys::realtime().into();
        self.push(&Event { time, what: What::StreamsUntold as u8, ..Event::default() });
    }

    /// Whether nodes may be made whose type nothing tells.
    fn lacks_types(&self) -> bool {
        let tell_types = Class::Launches.bit() | Class::Order.bit();
        self.types_by_calls.load(Relaxed) && self.given_up.load(Relaxed) & tell_types != 0
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

    /// What is counted so far; `forgotten` is what the log has no more.
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
            kernels_given_up: self.given_up.load(Relaxed) & Class::Launches.bit(),
            loading: self.loading.load(Relaxed),
            events: self.get(Count::Events),
            events_destroyed: self.get(Count::EventsDestroyed),
            untold: self.untold.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shared::{Shim, keep};

    /// Observers without a CUPTI.
    pub(crate) fn observers() -> &'static Observe {
        observers_with(Functions::default())
    }

    /// Observers that wake the I/O thread of a shim.
    pub(crate) fn observers_of(shim: &'static Shim) -> &'static Observe {
        let names = keep(NameTable::new().unwrap()).unwrap();
        keep(Observe::new(Functions::default(), names, &shim.wake).unwrap()).unwrap()
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
        let tell =
            |budget, count: u64| (0..count).filter(|i| observe.may_tell(budget, 5_000_000_000 + i)).count();
        let told = tell(Budget::Failures, 1000) as u64;
        let counted = observe.counted(0);
        assert_eq!((told > 0, counted.untold, counted.lost), (true, 1000 - told, 0));
        assert!(observe.pop().is_none());
        // That streams take part untold is said, once.
        let told = tell(Budget::Streams, 9000);
        let said: Vec<u8> = core::iter::from_fn(|| observe.pop()).map(|event| event.what).collect();
        assert_eq!((told < 9000, said), (true, vec![What::StreamsUntold as u8]));
        // An update that is not told leaves what is known of its graph wrong.
        let told = tell(Budget::Updates, 9000) as u64;
        assert_eq!(observe.counted(0).lost, 9000 - told);
    }
}
