//! The law of CUPTI's device buffers, and the state of each context's pool that follows from it.
//!
//! Measured on an H200: one device buffer holds 100,000 slots; every traced node takes one; on a defective
//! version nothing is recycled from the buffer that holds the first uncovered slot on. An uncovered node (a
//! device copy or memory set whose kind was off) yields no record, but it leaves a hole: node ids of one
//! executable graph are `graph id << 32 | index` with dense indexes (seen in every recorded buffer), so the
//! indexes that never come are the nodes that nobody covers. Nodes behind the last one seen stay unseen, and
//! holes can be nodes that take no slot (host, event, empty): what is counted here is an estimate and says so. A node
//! that was seen to be a copy or a memory set is a hole from the moment its kind is off.

use crate::KindSet;
use crate::kind::Kind;
use crate::message::{LeakCause, Pool, PoolState};
use crate::record::{self, NO_DEVICE};

/// Slots in one device buffer (`cupti_activity.h`, `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`: 3,200,000 bytes).
pub const SLOTS_PER_BUFFER: u64 = 100_000;
/// Buffers a context may have when nobody set a limit before it was created
/// (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`).
pub const DEFAULT_LIMIT: u64 = 250;
/// Buffers a context allocates at once (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE`).
pub const PREALLOCATED: u64 = 3;
/// `overheadKind` of CUPTI's own allocations (`CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE`, `3 << 16`).
pub const OVERHEAD_RESOURCE: u32 = 3 << 16;
/// Contexts told apart; records of further ones are not accounted.
pub const MAX_CONTEXTS: usize = 16;

/// Kernels with zero timestamps that a forced flush may give without exhaustion (measured: 70 of 400,000).
const FORCED_FLUSH_ZEROS: u64 = 100;
/// A pool with less than one in so many slots left, from which nothing comes, counts as exhausted.
const NEARLY: u64 = 1000;
/// Nodes of one graph told apart; nodes from here on count as covered.
const MAX_NODES: usize = 512;

/// What is known of one executable graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Graph {
    id: u32,
    /// The index of the kernel whose records count the replays.
    first: u32,
    end: u32,
    replays: u64,
    kernels: Nodes,
    copies: Nodes,
    memsets: Nodes,
}

/// Nodes of one graph, a bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Nodes([u64; MAX_NODES / 64]);

impl Nodes {
    fn add(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

impl Graph {
    /// Notes one record of the node with this index; gives the slots of nodes without records that it tells of.
    fn note(&mut self, index: u32, kind: Kind, enabled: KindSet) -> u64 {
        self.end = self.end.max(index.saturating_add(1));
        match kind {
            Kind::Memcpy => self.copies.add(index),
            Kind::Memset => self.memsets.add(index),
            _ => self.kernels.add(index),
        }
        if kind != Kind::Kernel {
            return 0;
        }
        if self.replays == 0 {
            self.first = index;
        }
        if index != self.first {
            return 0;
        }
        self.replays = self.replays.saturating_add(1);
        // Before the graph was replayed twice nothing is said of nodes that were not seen, since records of one replay
        // come one by one.
        let unseen = match self.replays {
            0..3 => 0,
            3 => self.unseen().saturating_mul(3),
            _ => self.unseen(),
        };
        unseen.saturating_add(self.uncovered(enabled))
    }

    /// Nodes that never yielded a record.
    fn unseen(&self) -> u64 {
        let seen = [&self.kernels, &self.copies, &self.memsets].map(Nodes::count);
        u64::from(self.end).min(MAX_NODES as u64).saturating_sub(seen.iter().sum())
    }

    /// Nodes that did, and do not any more.
    fn uncovered(&self, enabled: KindSet) -> u64 {
        let of = |kind, nodes: &Nodes| if enabled.has(kind) { 0 } else { nodes.count() };
        of(Kind::Memcpy, &self.copies).saturating_add(of(Kind::Memset, &self.memsets))
    }
}

/// What is known of one context.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    id: u32,
    device: u16,
    /// Slots taken since the first record, holes included.
    slots: u64,
    /// The slot from whose buffer on nothing is recycled.
    leak_from: Option<u64>,
    /// Nodes of the largest graph that leaks: when fewer slots are left its replays yield no whole set of records.
    replay: u64,
    cause: LeakCause,
    graph: u32,
    since: Option<u64>,
    /// Device buffers seen allocated, when overhead records are on.
    allocations: u64,
    /// Slots and time at the last reading of the rate.
    rate_slots: u64,
    rate_time: u64,
    slots_per_second: u64,
    /// Whether no slot was taken between the last two readings of the rate.
    stalled: bool,
    /// Kernels with zero timestamps, which an exhausted pool gives (measured: eager kernels, every one).
    zeros: u64,
}

/// The pools of one process. `S` stores the graphs: a slice that never grows, so that nothing is allocated here.
#[derive(Debug)]
pub struct Model<S> {
    graphs: S,
    contexts: [Context; MAX_CONTEXTS],
    count: usize,
    defective: bool,
    limit: u64,
    limit_too_late: bool,
    kinds: KindSet,
    /// Allocations of device buffers that no context can be told for.
    unplaced: u64,
}

impl<S: AsMut<[Graph]> + AsRef<[Graph]>> Model<S> {
    /// A model for a CUPTI that is `defective` or not. A larger `graphs` tells more graphs apart.
    pub fn new(graphs: S, defective: bool) -> Self {
        Self {
            graphs,
            contexts: [Context::default(); MAX_CONTEXTS],
            count: 0,
            defective,
            limit: DEFAULT_LIMIT,
            limit_too_late: false,
            kinds: KindSet::EMPTY,
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
    /// (measured), so it is assumed for contexts that have graphs.
    pub fn kinds_changed(&mut self, kinds: KindSet, now: u64) {
        let all_off = !self.kinds.is_empty() && kinds.is_empty();
        self.kinds = kinds;
        if !all_off || !self.defective || self.graphs.as_ref().iter().all(|graph| graph.id == 0) {
            return;
        }
        for context in self.contexts.iter_mut().take(self.count) {
            leak(context, LeakCause::AllOff, 0, now);
        }
    }

    /// Takes in a kernel record received at `now`, `CLOCK_REALTIME` nanoseconds.
    pub fn kernel(&mut self, kernel: &record::Kernel, now: u64) {
        let node = (kernel.graph.get(), kernel.graph_node.get());
        self.slot(kernel.context.get(), kernel.device.get(), node, Kind::Kernel, now);
        let zero = kernel.start.get() == 0 && kernel.end.get() == 0;
        if zero && let Some(context) = self.context(kernel.context.get(), kernel.device.get(), now) {
            context.zeros = context.zeros.saturating_add(1);
        }
    }

    /// Takes in a copy record.
    pub fn copy(&mut self, copy: &record::Copy, now: u64) {
        let node = (copy.graph.get(), copy.graph_node.get());
        self.slot(copy.context.get(), copy.device.get(), node, Kind::Memcpy, now);
    }

    /// Takes in a memory-set record.
    pub fn memset(&mut self, memset: &record::Memset, now: u64) {
        let node = (memset.graph.get(), memset.graph_node.get());
        self.slot(memset.context.get(), memset.device.get(), node, Kind::Memset, now);
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

    /// Reads the slot rates; to be called about once a second.
    pub fn tick(&mut self, now: u64) {
        for context in self.contexts.iter_mut().take(self.count) {
            let elapsed = now.saturating_sub(context.rate_time);
            if elapsed < 500_000_000 {
                continue;
            }
            let taken = context.slots.saturating_sub(context.rate_slots);
            context.slots_per_second = taken.saturating_mul(1_000_000_000).checked_div(elapsed).unwrap_or(0);
            context.stalled = taken == 0;
            context.rate_slots = context.slots;
            context.rate_time = now;
        }
    }

    /// The pools as they are.
    pub fn pools(&self) -> impl Iterator<Item = Pool> {
        self.contexts.iter().take(self.count).map(|context| self.pool(context))
    }

    fn pool(&self, context: &Context) -> Pool {
        let total = self.limit.saturating_mul(SLOTS_PER_BUFFER);
        let used = context.used();
        // One record for each buffer and about one more (measured: 9 at a limit of 8, 17 at 16).
        let placed = self.kinds.has(Kind::Overhead) && self.unplaced == 0;
        let observed = placed.then(|| context.allocations.saturating_sub(1));
        let computed = used.div_ceil(SLOTS_PER_BUFFER).max(PREALLOCATED).min(self.limit);
        let state = match context.leak_from {
            _ if !self.defective => PoolState::Safe,
            // What is used is an estimate, and behind exhaustion no record comes that could complete it.
            Some(_) if context.zeros > FORCED_FLUSH_ZEROS || used.saturating_add(context.replay) > total => {
                PoolState::Exhausted
            }
            // The last records before it may not come either (measured, 13.0.85: 850 kernels of 12,500,000).
            Some(_) if context.stalled && total.saturating_sub(used) <= total / NEARLY => {
                PoolState::Exhausted
            }
            Some(_) => PoolState::Leaking,
            None if self.kinds.contains(KindSet::SAFE) => PoolState::Safe,
            None if observed.is_some_and(|observed| observed >= self.limit) => PoolState::Exhausted,
            None => PoolState::Unknown,
        };
        let left = total.saturating_sub(used);
        let exhausts_in = (state == PoolState::Leaking && context.slots_per_second > 0)
            .then(|| (u128::from(left) * 1_000_000_000).checked_div(u128::from(context.slots_per_second)))
            .flatten()
            .and_then(|nanos| u64::try_from(nanos).ok());
        Pool {
            device: context.device,
            context: context.id,
            limit: self.limit,
            computed: self.defective.then_some(computed),
            observed,
            state: state as u8,
            cause: context.cause as u8,
            slots_used: used,
            slots_total: total,
            exhausts_in,
            since: context.since,
            graph: context.graph,
            limit_too_late: u8::from(self.limit_too_late),
        }
    }

    /// One record took a slot; a graph's record, of graph and node, may tell of holes.
    fn slot(&mut self, context: u32, device: u16, (graph, node): (u32, u64), kind: Kind, now: u64) {
        let (holes, nodes) =
            if graph == 0 || !self.defective { (0, 0) } else { self.graph_holes(graph, node, kind) };
        let Some(context) = self.context(context, device, now) else { return };
        if holes > 0 {
            leak(context, LeakCause::KindOff, graph, now);
            context.replay = context.replay.max(nodes);
        }
        context.slots = context.slots.saturating_add(1).saturating_add(holes);
    }

    /// Slots of holes that this record newly tells of, and the nodes its graph has as far as they are known.
    fn graph_holes(&mut self, id: u32, node: u64, kind: Kind) -> (u64, u64) {
        let enabled = self.kinds;
        let graphs = self.graphs.as_mut();
        let len = graphs.len();
        let start = (id as usize).checked_rem(len).unwrap_or(0);
        // A few probes: a table that is full forgets graphs rather than time.
        for probe in 0..8usize {
            let Some(at) = start.saturating_add(probe).checked_rem(len) else { return (0, 0) };
            let Some(graph) = graphs.get_mut(at) else { return (0, 0) };
            if graph.id == 0 {
                graph.id = id;
            }
            if graph.id == id {
                let holes = graph.note((node & 0xffff_ffff) as u32, kind, enabled);
                return (holes, u64::from(graph.end));
            }
        }
        (0, 0)
    }

    fn context(&mut self, id: u32, device: u16, now: u64) -> Option<&mut Context> {
        let known = self.contexts.iter().take(self.count).position(|context| context.id == id);
        let at = if let Some(at) = known {
            at
        } else {
            let first = self.count == 0;
            let fresh = self.contexts.get_mut(self.count)?;
            let allocations = if first { core::mem::take(&mut self.unplaced) } else { 0 };
            *fresh = Context { id, device, allocations, rate_time: now, ..Context::default() };
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
    /// Slots that will not come back.
    fn used(&self) -> u64 {
        self.leak_from.map_or(0, |from| self.slots.saturating_sub(from))
    }
}

/// Marks the context as leaking from the buffer being filled on, unless it leaks already.
fn leak(context: &mut Context, cause: LeakCause, graph: u32, now: u64) {
    if context.leak_from.is_none() {
        let into_buffer = context.slots.checked_rem(SLOTS_PER_BUFFER).unwrap_or(0);
        context.leak_from = Some(context.slots.saturating_sub(into_buffer));
        context.cause = cause;
        context.graph = graph;
        context.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_764_000_000_000_000_000;

    fn model(defective: bool, limit: u64, kinds: KindSet) -> Model<Vec<Graph>> {
        let mut model = Model::new(vec![Graph::default(); 64], defective);
        model.set_limit(limit, false);
        model.kinds_changed(kinds, NOW);
        model
    }

    fn kernel(graph: u32, index: u64) -> record::Kernel {
        record::Kernel {
            start: (NOW - 100).into(),
            end: NOW.into(),
            context: 1.into(),
            graph: graph.into(),
            graph_node: (if graph == 0 { 0 } else { u64::from(graph) << 32 | index }).into(),
            ..record::Kernel::default()
        }
    }

    /// Replays a graph whose node 0 is an uncovered copy and whose further nodes are kernels, with eager kernels
    /// beside, and gives the graph kernels seen when the model says the pool is exhausted.
    fn kernels_until_exhausted(limit: u64, kernels: u64, eager: u64) -> u64 {
        let mut model = model(true, limit, KindSet::EMPTY.with(Kind::Kernel));
        let exhausted = |model: &Model<Vec<Graph>>| {
            model.pools().next().is_some_and(|pool| pool.state == PoolState::Exhausted as u8)
        };
        for replay in 0u64.. {
            for index in 1..=kernels {
                model.kernel(&kernel(2, index), NOW);
                if exhausted(&model) {
                    return replay * kernels + index;
                }
            }
            for _ in 0..eager {
                model.kernel(&kernel(0, 0), NOW);
                if exhausted(&model) {
                    return (replay + 1) * kernels;
                }
            }
        }
        0
    }

    #[test]
    fn the_law_gives_the_measured_record_counts() {
        // Measured on 13.0.85: exactly 400,000 at a limit of 8, 800,000 at 16, 133,333 of each with an eager kernel
        // at 4, 784,304 with 50 kernels a copy. It must be said with the records that come, since none comes after.
        for (limit, kernels, eager, measured) in
            [(8, 1, 0, 400_000), (16, 1, 0, 800_000), (4, 1, 1, 133_333), (8, 50, 0, 784_304)]
        {
            let seen = kernels_until_exhausted(limit, kernels, eager);
            assert!(
                (measured - 60..=measured).contains(&seen),
                "limit {limit}, {kernels} kernels: {seen}, not {measured}"
            );
        }
    }

    #[test]
    fn covered_nodes_and_sound_versions_are_safe() {
        let mut covered = model(true, 8, KindSet::SAFE);
        let mut sound = model(false, 8, KindSet::EMPTY.with(Kind::Kernel));
        for _ in 0..1_000_000 {
            let copy = record::Copy {
                context: 1.into(),
                graph: 2.into(),
                graph_node: (2u64 << 32).into(),
                ..record::Copy::default()
            };
            covered.copy(&copy, NOW);
            covered.kernel(&kernel(2, 1), NOW);
            sound.kernel(&kernel(2, 1), NOW);
        }
        assert_eq!(covered.pools().next().map(|pool| pool.state), Some(PoolState::Safe as u8));
        assert_eq!(sound.pools().next().map(|pool| pool.state), Some(PoolState::Safe as u8));
        assert!(!covered.leaks());
    }

    #[test]
    fn copies_that_were_seen_are_holes_once_their_kind_is_off() {
        let mut model = model(true, 8, KindSet::SAFE);
        let copy = record::Copy {
            context: 1.into(),
            graph: 2.into(),
            graph_node: (2u64 << 32).into(),
            ..record::Copy::default()
        };
        let replay = |model: &mut Model<Vec<Graph>>, covered: bool| {
            if covered {
                model.copy(&copy, NOW);
            }
            model.kernel(&kernel(2, 1), NOW);
        };
        (0..150_000).for_each(|_| replay(&mut model, true));
        model.kinds_changed(KindSet::SAFE.without(Kind::Memcpy), NOW);
        // Copies from before are still under way.
        model.copy(&copy, NOW);
        assert!(!model.leaks(), "nothing was replayed since");
        (0..1000).for_each(|_| replay(&mut model, false));
        let pool = model.pools().next().unwrap();
        assert_eq!((pool.state, pool.cause), (PoolState::Leaking as u8, LeakCause::KindOff as u8));
        assert_eq!(pool.slots_used, 2001, "from the buffer on that was being filled");
        model.kinds_changed(KindSet::SAFE, NOW);
        (0..1000).for_each(|_| replay(&mut model, true));
        assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(4001), "it helps no more");
    }

    #[test]
    fn the_time_left_follows_from_the_rate() {
        let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
        for _ in 0..100_000 {
            model.kernel(&kernel(2, 1), NOW);
        }
        model.tick(NOW + 1_000_000_000);
        let pool = model.pools().next().unwrap();
        assert_eq!((pool.state, pool.graph), (PoolState::Leaking as u8, 2));
        let seconds = pool.exhausts_in.unwrap() as f64 / 1e9;
        assert!((seconds - 3.0).abs() < 0.01, "200,000 of 800,000 slots in a second leave three: {seconds}");
    }

    #[test]
    fn a_limit_set_too_late_changes_nothing_and_is_told() {
        let mut model = model(true, DEFAULT_LIMIT, KindSet::SAFE);
        model.kernel(&kernel(0, 0), NOW);
        model.set_limit(8, true);
        let pool = model.pools().next().unwrap();
        assert_eq!((pool.limit, pool.limit_too_late), (250, 1));
    }

    #[test]
    fn all_off_starts_a_leak_where_graphs_are() {
        let mut model = model(true, 8, KindSet::SAFE);
        model.kernel(&kernel(2, 1), NOW);
        model.kinds_changed(KindSet::COVERING, NOW);
        assert!(!model.leaks());
        model.kinds_changed(KindSet::EMPTY, NOW);
        assert!(model.leaks());
        assert_eq!(model.pools().next().map(|pool| pool.cause), Some(LeakCause::AllOff as u8));
    }

    #[test]
    fn buffers_are_observed_where_overhead_records_are_on() {
        let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
        model.kernel(&kernel(0, 0), NOW);
        let overhead = record::Other {
            cupti_kind: 17.into(),
            code: OVERHEAD_RESOURCE.into(),
            ..record::Other::default()
        };
        for _ in 0..9 {
            model.other(&overhead, NOW);
        }
        assert_eq!(model.pools().next().and_then(|pool| pool.observed), Some(8));
        model.kinds_changed(KindSet::SAFE, NOW);
        assert_eq!(model.pools().next().and_then(|pool| pool.observed), None);
    }

    #[test]
    fn allocations_without_a_context_belong_to_the_only_one_or_to_nobody() {
        let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
        let overhead = record::Other {
            cupti_kind: 17.into(),
            code: OVERHEAD_RESOURCE.into(),
            ..record::Other::default()
        };
        for _ in 0..3 {
            model.other(&overhead, NOW);
        }
        assert_eq!(model.pools().count(), 0, "no pool of a context 0");
        model.kernel(&kernel(0, 0), NOW);
        model.other(&overhead, NOW);
        assert_eq!(model.pools().next().and_then(|pool| pool.observed), Some(3));
        let mut elsewhere = kernel(0, 0);
        elsewhere.context = 7.into();
        model.kernel(&elsewhere, NOW);
        model.other(&overhead, NOW);
        assert!(model.pools().all(|pool| pool.observed.is_none()), "whose it is cannot be told any more");
    }

    #[test]
    fn a_pool_that_is_all_but_full_and_stands_still_is_exhausted() {
        let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
        let state =
            |model: &Model<Vec<Graph>>| model.pools().next().map(|pool| PoolState::from_wire(pool.state));
        for _ in 0..399_800 {
            model.kernel(&kernel(2, 1), NOW);
        }
        model.tick(NOW + 1_000_000_000);
        assert_eq!(state(&model), Some(PoolState::Leaking), "400 slots of 800,000 are left");
        model.tick(NOW + 2_000_000_000);
        assert_eq!(state(&model), Some(PoolState::Exhausted), "and nothing comes any more");
        model.kernel(&kernel(2, 1), NOW);
        model.tick(NOW + 3_000_000_000);
        assert_eq!(state(&model), Some(PoolState::Leaking), "it was only a pause");
    }

    #[test]
    fn two_contexts_are_told_apart() {
        let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
        for _ in 0..10 {
            model.kernel(&kernel(2, 1), NOW);
            model.kernel(&record::Kernel { context: 2.into(), ..kernel(3, 0) }, NOW);
        }
        let states: Vec<u8> = model.pools().map(|pool| pool.state).collect();
        assert_eq!(states, [PoolState::Leaking as u8, PoolState::Unknown as u8]);
    }

    #[test]
    fn limits_beyond_reason_are_limits_all_the_same() {
        for limit in [0, 1, u64::MAX] {
            let mut model = model(true, limit, KindSet::EMPTY.with(Kind::Kernel));
            for _ in 0..60_000 {
                model.kernel(&kernel(2, 1), NOW);
            }
            model.tick(NOW + 1_000_000_000);
            let pool = model.pools().next().unwrap();
            let state = if limit == u64::MAX { PoolState::Leaking } else { PoolState::Exhausted };
            assert_eq!((pool.limit, pool.state), (limit, state as u8));
            assert!(pool.computed.is_some_and(|computed| computed <= limit));
        }
    }

    #[test]
    fn a_flood_of_other_overhead_counts_as_no_buffer() {
        let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
        model.kernel(&kernel(0, 0), NOW);
        let overhead = |code: u32| record::Other {
            cupti_kind: 17.into(),
            code: code.into(),
            ..record::Other::default()
        };
        (0..4).for_each(|_| model.other(&overhead(OVERHEAD_RESOURCE), NOW));
        (0..100_000).for_each(|_| model.other(&overhead(1 << 16), NOW));
        assert_eq!(model.pools().next().and_then(|pool| pool.observed), Some(3));
    }
}
