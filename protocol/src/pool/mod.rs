//! The law of CUPTI's device buffers, and the state of each context's pool that follows from it.
//!
//! Measured on an H200: one device buffer holds 100,000 slots; every traced node takes one; on a defective
//! version nothing is recycled from the buffer that holds the first uncovered slot on. An uncovered node (a
//! device copy or memory set whose kind was off) yields no record, but it leaves a hole: node ids of one
//! executable graph are `graph id << 32 | index` with dense indexes (seen in every recorded buffer), so the
//! indexes that never come are the nodes that nobody covers. Nodes behind the last one seen stay unseen, and
//! holes can be nodes that take no slot (host, event, empty): what is counted here is an estimate and says so. Where
//! kernels, copies and memory sets are all traced there are no holes, and what yields nothing then never was one. A
//! node that was seen to be a copy or a memory set is a hole from the moment its kind is off.
//!
//! Not every hole leaks: copies from and to the host take a slot only while they are traced (measured). So where holes
//! are all of nodes that may be such, the pool may leak, and what is counted is the worst case; it is a leak once a
//! record tells of a node that takes one, buffers are seen to be allocated at that pace, or kernels end as they do
//! behind exhaustion. Records that go on coming where the worst case leaves no slot say that it was none.

mod graph;
mod inner;
mod rate;

pub use graph::Graph;

use crate::KindSet;
use crate::kind::Kind;
use crate::message::{LeakCause, Pool, PoolState};
use crate::node_type::holds_graphs;
use crate::record::{self, NO_DEVICE};
use graph::Holes;
use inner::Inners;
use rate::Rate;

/// Slots in one device buffer (`cupti_activity.h`, `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`: 3,200,000 bytes).
pub const SLOTS_PER_BUFFER: u64 = 100_000;
/// Buffers a context may have when nobody set a limit before it was created
/// (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`).
pub const DEFAULT_LIMIT: u64 = 250;
/// Buffers a context allocates at once (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE`).
pub const PREALLOCATED: u64 = 3;
/// `overheadKind` of CUPTI's own allocations (`CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE`, `3 << 16`).
pub const OVERHEAD_RESOURCE: u32 = 3 << 16;
/// `CUPTI_ACTIVITY_MEMCPY_KIND_HTOD` and `_DTOH`.
const HOST_COPIES: [u8; 2] = [1, 2];
/// Contexts told apart; records of further ones are not accounted.
pub const MAX_CONTEXTS: usize = 16;

/// Kernels with zero timestamps that a forced flush may give without exhaustion (measured: 70 of 400,000).
const FORCED_FLUSH_ZEROS: u64 = 100;
/// A pool with less than one in so many slots left, from which nothing comes, counts as exhausted.
const NEARLY: u64 = 1000;
/// Buffers that must be seen allocated, and so many of four that should be, before a leak in doubt is one.
const GROWN: u64 = 3;
const OF_FOUR: u64 = 3;

/// What is known of one context.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    id: u32,
    device: u16,
    /// Slots taken since the first record, holes included.
    slots: u64,
    /// The slot from whose buffer on nothing is recycled.
    leak_from: Option<u64>,
    /// The same where it is in doubt, the graph at fault, and since when.
    doubt_from: Option<(u64, u32, u64)>,
    /// Records went on where no slot could have been left: what is in doubt does not count.
    refuted: bool,
    /// Nodes of the largest graph that leaks: when fewer slots are left its replays yield no whole set of records.
    replay: u64,
    cause: LeakCause,
    graph: u32,
    since: Option<u64>,
    /// Device buffers seen allocated since overhead records are on, and the slots taken before that.
    allocations: u64,
    watched_from: u64,
    rate: Rate,
    /// Kernels with zero timestamps, which an exhausted pool gives (measured: eager kernels, every one).
    zeros: u64,
}

/// The pools of one process. `S` stores the graphs: a slice that never grows, so that nothing is allocated here.
#[derive(Debug)]
pub struct Model<S> {
    graphs: S,
    inners: Inners,
    contexts: [Context; MAX_CONTEXTS],
    count: usize,
    defective: bool,
    limit: u64,
    limit_too_late: bool,
    kinds: KindSet,
    /// Whether overhead records are on since the first kind was, so that every buffer was seen.
    whole: bool,
    started: bool,
    /// Allocations of device buffers that no context can be told for.
    unplaced: u64,
}

impl<S: AsMut<[Graph]> + AsRef<[Graph]>> Model<S> {
    /// A model for a CUPTI that is `defective` or not. A larger `graphs` tells more graphs apart.
    pub fn new(graphs: S, defective: bool) -> Self {
        Self {
            graphs,
            inners: Inners::new(),
            contexts: [Context::default(); MAX_CONTEXTS],
            count: 0,
            defective,
            limit: DEFAULT_LIMIT,
            limit_too_late: false,
            kinds: KindSet::EMPTY,
            whole: false,
            started: false,
            unplaced: 0,
        }
    }

    /// Someone set the pool limit, buffers a context. Once a context exists it has no effect, whatever CUPTI
    /// reads back (measured).
    pub const fn set_limit(&mut self, limit: u64, context_exists: bool) {
        if context_exists {
            self.limit_too_late = true;
        } else {
            self.limit = limit;
        }
    }

    /// The kinds are now `kinds`. Switching all off starts the leak where a graph was made while tracing
    /// (measured), so it is assumed for contexts where graphs have copies or memory sets that leave a hole.
    pub fn kinds_changed(&mut self, kinds: KindSet, now: u64) {
        let all_off = !self.kinds.is_empty() && kinds.is_empty();
        let watched = (self.kinds.has(Kind::Overhead), kinds.has(Kind::Overhead));
        self.kinds = kinds;
        self.watch(watched);
        if !all_off || !self.defective {
            return;
        }
        let graphs = self.graphs.as_ref();
        let leaks = graphs.iter().any(Graph::leaks_untraced);
        let may = graphs.iter().find(|graph| graph.may_leak_untraced()).map(|graph| graph.id);
        for context in self.contexts.iter_mut().take(self.count) {
            if leaks {
                context.begin(context.buffer(), LeakCause::AllOff, 0, now);
            } else if let Some(graph) = may {
                context.doubt(graph, now);
            }
        }
    }

    /// Overhead records were on and are now on.
    fn watch(&mut self, (before, now): (bool, bool)) {
        let first = !self.started && !self.kinds.is_empty();
        self.started |= first;
        self.whole = now && (first || self.whole);
        if now && !before {
            self.unplaced = 0;
            for context in self.contexts.iter_mut().take(self.count) {
                (context.allocations, context.watched_from) = (0, context.slots);
            }
        }
    }

    /// A graph that was not replayed is gone; executable graphs made of it are not.
    pub fn graph_gone(&mut self, id: u32) {
        self.inners.gone(id);
        if let Some(graph) = self.graph(id, false)
            && !graph.was_replayed()
        {
            *graph = Graph::default();
        }
    }

    /// A node of a graph that was told of: `node` is CUPTI's id of it, `node_type` a `CUgraphNodeType` (0 kernel,
    /// 1 copy, 2 memory set). A copy takes a slot where it stays within the device; where nobody told, that is in doubt
    /// until a record of it comes.
    pub fn node(&mut self, id: u32, node: u64, node_type: u32, within_device: Option<bool>) {
        if !self.defective || id == 0 {
            return;
        }
        let index = (node & 0xffff_ffff) as u32;
        let Some(graph) = self.graph(id, true).filter(|graph| !graph.has_of_original(index)) else { return };
        if holds_graphs(node_type) {
            graph.holds(index, node_type);
        }
        match node_type {
            0 => graph.knows(index, Some(Kind::Kernel)),
            1 => match within_device {
                Some(true) => graph.knows(index, Some(Kind::Memcpy)),
                Some(false) => graph.knows(index, None),
                None => graph.knows_copy(index),
            },
            2 => graph.knows(index, Some(Kind::Memset)),
            _ => graph.knows(index, None),
        }
    }

    /// Takes in a kernel record received at `now`, `CLOCK_REALTIME` nanoseconds.
    pub fn kernel(&mut self, kernel: &record::Kernel, now: u64) {
        let node = (kernel.graph.get(), kernel.graph_node.get());
        self.slot(kernel.context.get(), kernel.device.get(), node, Some(Kind::Kernel), now);
        let zero = kernel.start.get() == 0 && kernel.end.get() == 0;
        if zero && let Some(context) = self.context(kernel.context.get(), kernel.device.get(), now) {
            context.zeros = context.zeros.saturating_add(1);
        }
    }

    /// Takes in a copy record.
    pub fn copy(&mut self, copy: &record::Copy, now: u64) {
        let node = (copy.graph.get(), copy.graph_node.get());
        // Copies from and to the host leave no uncovered slot when they are not traced (measured).
        let kind = (!HOST_COPIES.contains(&copy.direction)).then_some(Kind::Memcpy);
        self.slot(copy.context.get(), copy.device.get(), node, kind, now);
    }

    /// Takes in a memory-set record.
    pub fn memset(&mut self, memset: &record::Memset, now: u64) {
        let node = (memset.graph.get(), memset.graph_node.get());
        self.slot(memset.context.get(), memset.device.get(), node, Some(Kind::Memset), now);
    }

    /// Takes in any other record; CUPTI's own allocations make device buffers visible.
    pub fn other(&mut self, other: &record::Other, now: u64) {
        if other.cupti_kind.get() != Kind::Overhead.cupti() || other.code.get() != OVERHEAD_RESOURCE {
            return;
        }
        // CUPTI names no context in these records (measured, 13.0.85), and the first come before any other record.
        let id = other.context.get();
        let context = match (id, self.count) {
            (0, 1) => self.contexts.first_mut(),
            (0, _) => {
                self.unplaced = self.unplaced.saturating_add(1);
                return;
            }
            _ => self.context(id, other.device.get(), now),
        };
        if let Some(context) = context {
            context.allocations = context.allocations.saturating_add(1);
        }
    }

    /// Whether any pool is known to leak.
    #[must_use]
    pub fn leaks(&self) -> bool {
        self.contexts.iter().take(self.count).any(|context| context.leak_from.is_some())
    }

    /// Reads the slot rates and settles doubts; to be called about once a second.
    pub fn tick(&mut self, now: u64) {
        let (placed, whole, total) = (self.is_placed(), self.whole, self.total());
        for context in self.contexts.iter_mut().take(self.count) {
            context.rate.read(now, context.slots);
            let Some((from, graph, since)) = context.doubt_from else { continue };
            if placed && context.grows_as_feared(from, whole) {
                context.begin(from, LeakCause::Observed, graph, since);
            } else if context.used() > total.saturating_add(total / NEARLY).saturating_add(context.replay)
                && context.zeros <= FORCED_FLUSH_ZEROS
            {
                (context.doubt_from, context.refuted) = (None, true);
            }
        }
    }

    /// Whether allocations of buffers are seen, and whose they are is known.
    const fn is_placed(&self) -> bool {
        self.kinds.has(Kind::Overhead) && self.unplaced == 0
    }

    const fn total(&self) -> u64 {
        self.limit.saturating_mul(SLOTS_PER_BUFFER)
    }

    /// The pools as they are.
    pub fn pools(&self) -> impl Iterator<Item = Pool> {
        self.contexts.iter().take(self.count).map(|context| self.pool(context))
    }

    fn pool(&self, context: &Context) -> Pool {
        let total = self.total();
        let used = context.used();
        let placed = self.is_placed();
        // One record for each buffer and about one more (measured: 9 at a limit of 8, 17 at 16, 4 in sound runs). Fewer
        // than those that are always there were not seen from the first one on.
        let whole = placed && self.whole && context.allocations > PREALLOCATED;
        let observed = whole.then(|| context.allocations.saturating_sub(1));
        let seen = placed.then_some(context.allocations);
        let computed = used.div_ceil(SLOTS_PER_BUFFER).max(PREALLOCATED).min(self.limit);
        let no_times = context.zeros > FORCED_FLUSH_ZEROS;
        let nearly = total.saturating_sub(used) <= total / NEARLY;
        let in_doubt = context.leak_from.is_none() && context.doubt_from.is_some();
        let state = match context.leak_from {
            _ if !self.defective => PoolState::Safe,
            // What is used is an estimate, and behind exhaustion no record comes that could complete it.
            Some(_) if no_times || used.saturating_add(context.replay) > total => PoolState::Exhausted,
            // The last records before it may not come either (measured, 13.0.85: 850 kernels of 12,500,000).
            Some(_) if context.rate.stalled() && nearly => PoolState::Exhausted,
            Some(_) => PoolState::Leaking,
            None if in_doubt && nearly && (no_times || context.rate.stalled()) => PoolState::Exhausted,
            None if in_doubt => PoolState::Unknown,
            None if self.kinds.contains(KindSet::SAFE) => PoolState::Safe,
            None if observed.or(seen).is_some_and(|buffers| buffers >= self.limit) => PoolState::Exhausted,
            None => PoolState::Unknown,
        };
        let left = total.saturating_sub(used);
        let fills = state == PoolState::Leaking || (in_doubt && state == PoolState::Unknown);
        let foretold = fills.then(|| context.rate.foretell(left)).flatten();
        let doubt = context.doubt_from.filter(|_| in_doubt);
        let cause = if in_doubt { LeakCause::KindOff } else { context.cause };
        Pool {
            device: context.device,
            context: context.id,
            limit: self.limit,
            computed: (self.defective && !context.refuted).then_some(computed),
            observed,
            state: state as u8,
            cause: cause as u8,
            // Records without times go on coming behind exhaustion, and take none.
            slots_used: used.min(total),
            slots_total: total,
            exhausts_in: foretold.map(|foretold| foretold.time),
            since: doubt.map_or(context.since, |(.., since)| Some(since)),
            graph: doubt.map_or(context.graph, |(_, graph, _)| graph),
            limit_too_late: u8::from(self.limit_too_late),
            in_doubt: u8::from(in_doubt),
            seen: seen.filter(|_| !whole),
            exhausts_earliest: foretold.map(|foretold| foretold.earliest),
            exhausts_latest: foretold.and_then(|foretold| foretold.latest),
        }
    }

    /// One record took a slot; a graph's record, of graph and node, may tell of holes.
    fn slot(&mut self, context: u32, device: u16, (graph, node): (u32, u64), kind: Option<Kind>, now: u64) {
        let (holes, nodes) = if graph == 0 || !self.defective {
            (Holes::default(), 0)
        } else {
            self.graph_holes(graph, node, kind)
        };
        let elsewhere = if holes.cleared { self.doubted() } else { None };
        let Some(context) = self.context(context, device, now) else { return };
        if let Some((from, of, since)) = context.doubt_from.filter(|(_, of, _)| *of == graph) {
            if holes.proven {
                context.begin(from, LeakCause::KindOff, of, since);
            } else if holes.cleared {
                context.doubt_from = elsewhere.map(|other| (from, other, since));
            }
        }
        let doubtful = if context.refuted { 0 } else { holes.doubtful };
        if holes.sure > 0 {
            context.begin(context.buffer(), LeakCause::KindOff, graph, now);
        } else if doubtful > 0 {
            context.doubt(graph, now);
        }
        let all = holes.sure.saturating_add(doubtful);
        if all > 0 {
            context.replay = context.replay.max(nodes);
        }
        context.slots = context.slots.saturating_add(1).saturating_add(all);
    }

    /// A graph of which is not known whether its nodes leave holes.
    fn doubted(&self) -> Option<u32> {
        self.graphs.as_ref().iter().find(|graph| graph.doubted).map(|graph| graph.id)
    }

    /// Slots of holes that this record newly tells of, and the nodes its graph has as far as they are known.
    fn graph_holes(&mut self, id: u32, node: u64, kind: Option<Kind>) -> (Holes, u64) {
        let enabled = self.kinds;
        let Some(graph) = self.graph(id, true) else { return (Holes::default(), 0) };
        let holes = graph.note((node & 0xffff_ffff) as u32, kind, enabled);
        (holes, u64::from(graph.end))
    }

    /// What is known of a graph; with `make`, in a place of its own from now on.
    fn graph(&mut self, id: u32, make: bool) -> Option<&mut Graph> {
        let graphs = self.graphs.as_mut();
        let len = graphs.len();
        let start = (id as usize).checked_rem(len)?;
        // A few probes: a table that is full forgets graphs rather than time.
        let places = (0..8usize).filter_map(|probe| start.saturating_add(probe).checked_rem(len));
        let find = |wanted: u32| {
            let mut places = places.clone();
            places.find(|at| graphs.get(*at).is_some_and(|graph| graph.id == wanted))
        };
        // A place that one that is gone has left lies before what was put behind it.
        let at = find(id).or_else(|| find(0))?;
        let graph = graphs.get_mut(at)?;
        if graph.id == 0 {
            if !make {
                return None;
            }
            graph.id = id;
        }
        Some(graph)
    }

    fn context(&mut self, id: u32, device: u16, now: u64) -> Option<&mut Context> {
        let known = self.contexts.iter().take(self.count).position(|context| context.id == id);
        let at = if let Some(at) = known {
            at
        } else {
            let first = self.count == 0;
            let fresh = self.contexts.get_mut(self.count)?;
            let allocations = if first { core::mem::take(&mut self.unplaced) } else { 0 };
            *fresh = Context { id, device, allocations, rate: Rate::from(now), ..Context::default() };
            let at = self.count;
            self.count = at.saturating_add(1);
            at
        };
        let context = self.contexts.get_mut(at)?;
        if context.device == NO_DEVICE {
            context.device = device;
        }
        Some(context)
    }
}

impl Context {
    /// Slots that will not come back; where that is in doubt, at worst.
    fn used(&self) -> u64 {
        let from = self.leak_from.or(self.doubt_from.map(|(from, ..)| from));
        from.map_or(0, |from| self.slots.saturating_sub(from))
    }

    /// The first slot of the buffer that is being filled.
    fn buffer(&self) -> u64 {
        self.slots.saturating_sub(self.slots.checked_rem(SLOTS_PER_BUFFER).unwrap_or(0))
    }

    /// Marks it as leaking from a slot on, unless it leaks already.
    fn begin(&mut self, from: u64, cause: LeakCause, graph: u32, now: u64) {
        if self.leak_from.is_none() {
            (self.leak_from, self.doubt_from) = (Some(from), None);
            (self.cause, self.graph, self.since) = (cause, graph, Some(now));
        }
    }

    /// Notes that a graph may leak from the buffer that is being filled on, unless something leaks already.
    fn doubt(&mut self, graph: u32, now: u64) {
        if self.leak_from.is_none() && self.doubt_from.is_none() && !self.refuted {
            self.doubt_from = Some((self.buffer(), graph, now));
        }
    }

    /// Whether as many buffers were seen allocated as a leak from this slot on would take.
    fn grows_as_feared(&self, from: u64, whole: bool) -> bool {
        let first = if whole { PREALLOCATED } else { 0 };
        let filled = self.slots.saturating_sub(from.max(self.watched_from)) / SLOTS_PER_BUFFER;
        let feared = filled.saturating_sub(first);
        let grown = self.allocations.saturating_sub(if whole { first.saturating_add(1) } else { 0 });
        grown >= GROWN && feared >= GROWN && grown.saturating_mul(4) >= feared.saturating_mul(OF_FOUR)
    }
}

#[cfg(test)]
mod tests;
