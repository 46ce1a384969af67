//! Graphs and executable graphs that are alive, what became of the others, and how their numbers grow.

use std::collections::VecDeque;

use gtop_protocol::lifecycle::{Event, MADE_FOR_A_NODE, What};
use gtop_protocol::node_type;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::time::SECOND;
use super::graph::{Asked, Captured, Graph, NODE_TYPES, Run, take_out};
use super::inside::{Inside, Loose};

/// The places of nodes that allocate and that free among the counts by type.
pub(in crate::model) const ALLOCATE: usize = node_type::ALLOCATE as usize;
const FREE: usize = node_type::FREE as usize;
/// Graphs and executable graphs kept, each.
const MAX_ALIVE: usize = 1 << 17;
/// Runs of nodes and of edges kept of all graphs together.
const MAX_RUNS: usize = 1 << 18;
/// Destroyed things remembered, to tell their use afterwards.
const MAX_GONE: usize = 1 << 14;
/// Samples of the numbers alive, a second apart at least.
const MAX_SAMPLES: usize = 4096;
/// Shapes of executable graphs that are told apart.
const MAX_SHAPES: usize = 1 << 16;
/// Instantiations and updates that are remembered by time.
const MAX_TIMES: usize = 1 << 14;

/// An executable graph.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Exec {
    pub(in super::super) id: u32,
    pub(in super::super) handle: u64,
    pub(in super::super) source_id: u32,
    pub(in super::super) created: u64,
    pub(in super::super) thread: u32,
    pub(in super::super) context: u32,
    pub(in super::super) updates: u32,
    pub(in super::super) updates_failed: u32,
    /// Times it was uploaded ahead of a launch.
    pub(in super::super) uploads: u32,
    /// What it is made of, as its graph was when it was instantiated.
    pub(in super::super) made_of: Graph,
    /// The graphs inside of that.
    pub(in super::super) inside: Vec<Inside>,
}

impl Exec {
    /// Its nodes by type, with those of the graphs inside.
    pub(in super::super) fn nodes(&self) -> [u32; NODE_TYPES] {
        let mut all = self.made_of.nodes;
        for inside in &self.inside {
            all.iter_mut().zip(inside.nodes).for_each(|(sum, nodes)| *sum = sum.saturating_add(nodes));
        }
        all
    }

    /// What its nodes ask for that allocate, bytes; `None` where that is not known of each of them.
    pub(in super::super) fn asks(&self) -> Option<u64> {
        let own = self.made_of.nodes[ALLOCATE] == self.nodes()[ALLOCATE] && !self.made_of.changed;
        self.made_of.asked.all().filter(|_| own)
    }

    /// The capture that made its graph.
    pub(in super::super) const fn capture(&self) -> Option<Captured> {
        self.made_of.capture
    }

    /// All of them.
    pub(in super::super) fn count(&self) -> u32 {
        self.nodes().into_iter().fold(0, u32::saturating_add)
    }

    /// Runs of nodes and edges kept of it.
    fn held(&self) -> usize {
        let inside = self.inside.iter().map(|inside| inside.runs.len() + inside.edges.len());
        self.made_of.held() + inside.sum::<usize>()
    }
}

/// Something that was destroyed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Gone {
    handle: u64,
    pub(in super::super) id: u32,
    pub(in super::super) time: u64,
}

/// A use of something after it was destroyed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Misuse {
    pub(in super::super) event: Event,
    /// When it was destroyed, and its id; `None` when it was never seen.
    pub(in super::super) gone: Option<Gone>,
}

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// Executable graphs alive.
    pub execs: u32,
    /// Graphs alive.
    pub graphs: u32,
    /// Launches of graphs until then, as records tell.
    pub launches: u64,
}

/// An update that failed, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct FailedUpdate {
    pub(in super::super) count: u64,
    pub(in super::super) last: u64,
    /// Times an instantiation on the same thread followed within a second.
    pub(in super::super) then_instantiated: u64,
}

/// All of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Execs {
    pub(in super::super) graphs: FxHashMap<u64, Graph>,
    pub(in super::super) alive: FxHashMap<u64, Exec>,
    /// Handles by CUPTI's id.
    by_id: FxHashMap<u32, u64>,
    gone: VecDeque<Gone>,
    gone_graphs: VecDeque<Gone>,
    loose: Loose,
    /// Runs kept of everything alive.
    runs: usize,
    pub(in super::super) samples: VecDeque<Sample>,
    /// When graphs were instantiated, and how many nodes they had.
    pub(in super::super) instantiations: VecDeque<(u64, u32)>,
    /// The different numbers of nodes by type among them.
    pub(in super::super) shapes: FxHashSet<[u32; NODE_TYPES]>,
    pub(in super::super) failed_updates: FxHashMap<u32, FailedUpdate>,
    last_failed: Option<(u32, u32, u64)>,
    pub(in super::super) launch_after_destroy: Vec<Misuse>,
    pub(in super::super) destroy_after_destroy: Vec<Misuse>,
    /// Graphs that a capture made and that were destroyed without an executable graph, and when the last one was.
    pub(in super::super) dropped_captures: u64,
    pub(in super::super) last_dropped: u64,
    /// Executable graphs with more allocations than frees in them that were destroyed, and when the last one was.
    pub(in super::super) kept_allocations: u64,
    pub(in super::super) last_kept: u64,
    /// When the first of those was made.
    pub(in super::super) first_kept: u64,
    /// What their nodes asked for.
    pub(in super::super) kept: Asked,
    /// When an executable graph that allocates was last created or destroyed.
    pub(in super::super) last_allocating: u64,
    /// Launches of graphs so far, as records tell.
    pub(in super::super) launches: u64,
    /// Destroys of what was never seen to be created.
    pub(in super::super) unknown_destroys: u64,
}

impl Execs {
    pub(super) fn graph(&mut self, what: What, event: &Event) {
        let handle = event.object.get();
        match what {
            What::GraphCreated | What::GraphCloned => {
                let of = if what == What::GraphCloned { event.other.get() } else { 0 };
                let id = event.id.get();
                // A clone is told of as soon as it has a node, and may be told of again.
                if of != 0 && self.graphs.get(&handle).is_some_and(|graph| graph.id == id && graph.cloned > 0)
                {
                    return;
                }
                if event.detail.get() == MADE_FOR_A_NODE {
                    self.loose.made(event.thread.get(), handle);
                }
                let Graph { nodes, runs, edges, asked, changed, .. } = self.copy_of(of);
                let mut graph =
                    Graph { id, nodes, runs, edges, asked, changed, ..Graph::default() }.rebased(id);
                graph.cloned = graph.end();
                self.adopt(event.thread.get(), handle, &mut graph);
                if self.graphs.len() < MAX_ALIVE {
                    self.runs += graph.held();
                    // A handle that is used again without a destroy: that was missed.
                    self.runs -= self.graphs.insert(handle, graph).map_or(0, |before| before.held());
                }
                self.sample(event.time.get());
            }
            What::GraphDestroyed => {
                self.loose.gone(handle);
                match self.graphs.remove(&handle) {
                    Some(graph) => {
                        self.runs -= graph.held();
                        if graph.captured && (graph.instantiated, graph.updated) == (0, 0) {
                            self.dropped_captures += 1;
                            self.last_dropped = event.time.get();
                        }
                        forget(&mut self.gone_graphs, handle, graph.id, event.time.get());
                    }
                    None => self.unknown_destroys += 1,
                }
                self.sample(event.time.get());
            }
            What::Nodes | What::Edges => self.nodes(what, event),
            What::NodeRemoved => self.remove_node(event),
            _ => {}
        }
    }

    /// A graph that was told of until now turns out to be a clone: what its nodes have inside stays theirs.
    fn adopt(&mut self, thread: u32, handle: u64, clone: &mut Graph) {
        let Some(before) = self.graphs.get_mut(&handle).filter(|before| before.id == clone.id) else {
            return;
        };
        clone.children = std::mem::take(&mut before.children);
        let told = before.runs.iter().map(|run| (run.first & 0xffff_ffff) as u32);
        for index in told {
            let at = u64::from(clone.id) << 32 | u64::from(index);
            let Some(node_type) = clone.type_of(at) else { continue };
            if clone.children.iter().all(|(node, _)| *node != index) {
                let inner = self.loose.claim(thread, handle, node_type);
                clone.children.extend(inner.into_iter().map(|inner| (index, inner)));
            }
        }
    }

    /// A capture ended and gave this graph. When the graph was created says nothing: CUPTI may tell of it before the
    /// capture is open (seen on 13.0.85), and a program may create another one meanwhile.
    pub(super) fn captured(&mut self, handle: u64, capture: Option<Captured>) {
        let Some(graph) = self.graphs.get_mut(&handle) else { return };
        graph.capture = match (graph.captured, graph.capture, capture) {
            (false, _, capture) => capture,
            // Captured into once more.
            (true, Some(first), Some(next)) => Some(Captured {
                ended: next.ended,
                allocated: first.allocated.zip(next.allocated).map(|(a, b)| a.saturating_add(b)),
                ..first
            }),
            (true, ..) => None,
        };
        graph.captured = true;
    }

    /// A copy of a graph; without its runs when there is no room for more.
    fn copy_of(&self, handle: u64) -> Graph {
        let Some(graph) = self.graphs.get(&handle) else { return Graph::default() };
        if self.runs + graph.held() <= MAX_RUNS {
            return graph.clone();
        }
        let &Graph { id, nodes, captured, capture, asked, changed, .. } = graph;
        Graph { id, nodes, captured, capture, asked, changed, ..Graph::default() }
    }

    fn nodes(&mut self, what: What, event: &Event) {
        let run = Run {
            first: event.node.get(),
            on: event.other.get(),
            count: event.count.get(),
            node_type: event.detail.get(),
        };
        let full = self.runs >= MAX_RUNS;
        let handle = event.object.get();
        let Some(graph) = self.graphs.get_mut(&handle) else { return };
        let index = (run.first & 0xffff_ffff) as u32;
        // A clone has the nodes of its original, which may be told again.
        let known = index < graph.cloned;
        if what == What::Nodes {
            let of_original = known.then(|| graph.type_of(run.first)).flatten();
            let node_type = of_original.unwrap_or(run.node_type);
            let inner = self.loose.claim(event.thread.get(), handle, node_type);
            graph.children.extend(inner.into_iter().map(|inner| (index, inner)));
        }
        if known {
            return;
        }
        if what == What::Edges {
            if !full {
                self.runs += 1;
                graph.edges.push(run);
            }
            return;
        }
        let place = (run.node_type as usize).min(NODE_TYPES - 1);
        graph.nodes[place] = graph.nodes[place].saturating_add(run.count);
        if place == ALLOCATE {
            graph.asked.add(event.bytes.get());
        }
        if !full {
            self.runs += 1;
            graph.runs.push(run);
        }
    }

    /// A node is taken out of a graph, with what depends on it and what it depends on. Executable graphs that were made
    /// before keep it.
    fn remove_node(&mut self, event: &Event) {
        let Some(graph) = self.graphs.get_mut(&event.object.get()) else { return };
        let node = event.node.get();
        let before = graph.held();
        graph.changed = true;
        graph.children.retain(|(index, _)| u64::from(*index) != node & 0xffff_ffff);
        if let Some(node_type) = graph.type_of(node) {
            let place = (node_type as usize).min(NODE_TYPES - 1);
            graph.nodes[place] = graph.nodes[place].saturating_sub(1);
        }
        take_out(&mut graph.runs, |run| run.place(run.first, node));
        take_out(&mut graph.edges, |run| run.place(run.first, node));
        take_out(&mut graph.edges, |run| run.place(run.on, node));
        self.runs = self.runs + graph.held() - before;
    }

    pub(super) fn exec(&mut self, what: What, event: &Event) {
        let (handle, time) = (event.object.get(), event.time.get());
        match what {
            What::ExecCreated => {
                let source = self.copy_of(event.other.get());
                let id = event.id.get();
                let inside = self.graphs.get(&event.other.get()).map(|graph| self.inside(graph, id));
                if let Some(graph) = self.graphs.get_mut(&event.other.get()) {
                    graph.instantiated += 1;
                }
                if self.instantiations.len() >= MAX_TIMES {
                    self.instantiations.pop_front();
                }
                if let Some((thread, reason, failed)) = self.last_failed.take()
                    && thread == event.thread.get()
                    && time.saturating_sub(failed) < SECOND
                    && let Some(update) = self.failed_updates.get_mut(&reason)
                {
                    update.then_instantiated += 1;
                }
                let mut exec = Exec {
                    id,
                    handle,
                    source_id: source.id,
                    created: time,
                    thread: event.thread.get(),
                    context: event.context.get(),
                    updates: 0,
                    updates_failed: 0,
                    uploads: 0,
                    made_of: source.rebased(id),
                    inside: inside.unwrap_or_default(),
                };
                if self.runs + exec.held() > MAX_RUNS {
                    exec.inside.iter_mut().for_each(Inside::forget_runs);
                }
                self.instantiations.push_back((time, exec.count()));
                if self.shapes.len() < MAX_SHAPES {
                    self.shapes.insert(exec.nodes());
                }
                if exec.nodes()[ALLOCATE] > 0 {
                    self.last_allocating = time;
                }
                if self.alive.len() < MAX_ALIVE {
                    self.runs += exec.held();
                    self.by_id.insert(exec.id, handle);
                    if let Some(before) = self.alive.insert(handle, exec) {
                        self.runs -= before.held();
                        if before.id != id {
                            self.by_id.remove(&before.id);
                        }
                    }
                }
                self.sample(time);
            }
            What::ExecDestroyed => {
                if let Some(exec) = self.alive.remove(&handle) {
                    self.runs -= exec.held();
                    self.by_id.remove(&exec.id);
                    let nodes = exec.nodes();
                    if nodes[ALLOCATE] > 0 {
                        self.last_allocating = time;
                    }
                    if nodes[ALLOCATE] > nodes[FREE] {
                        if self.kept_allocations == 0 {
                            self.first_kept = exec.created;
                        }
                        self.kept_allocations += 1;
                        self.last_kept = time;
                        // Where some are freed it is not known which.
                        self.kept.add(exec.asks().filter(|_| nodes[FREE] == 0).unwrap_or(0));
                    }
                    forget(&mut self.gone, handle, exec.id, time);
                } else {
                    self.unknown_destroys += 1;
                    forget(&mut self.gone, handle, event.id.get(), time);
                }
                self.sample(time);
            }
            What::Uploaded if event.result.get() == 0 => {
                if let Some(exec) = self.alive.get_mut(&handle) {
                    exec.uploads = exec.uploads.saturating_add(1);
                }
            }
            What::Updated => {
                let failed = event.result.get() != 0;
                if let Some(graph) = self.graphs.get_mut(&event.other.get()) {
                    graph.updated += 1;
                }
                if let Some(exec) = self.alive.get_mut(&handle) {
                    exec.updates += 1;
                    exec.updates_failed += u32::from(failed);
                }
                let reason = event.detail.get();
                if failed && (self.failed_updates.len() < 64 || self.failed_updates.contains_key(&reason)) {
                    let update = self.failed_updates.entry(event.detail.get()).or_default();
                    update.count += 1;
                    update.last = time;
                    self.last_failed = Some((event.thread.get(), event.detail.get(), time));
                }
            }
            _ => {}
        }
    }

    /// A launch or destroy that the driver refused: of something that is gone?
    pub(super) fn misused(&mut self, what: What, event: &Event) {
        let handle = event.object.get();
        let (list, gone, alive) = match what {
            What::GraphDestroyFailed => {
                (&mut self.destroy_after_destroy, &self.gone_graphs, self.graphs.contains_key(&handle))
            }
            What::ExecDestroyFailed => {
                (&mut self.destroy_after_destroy, &self.gone, self.alive.contains_key(&handle))
            }
            _ => (&mut self.launch_after_destroy, &self.gone, self.alive.contains_key(&handle)),
        };
        let gone = gone.iter().rev().find(|gone| gone.handle == handle).copied();
        if !alive && list.len() < 64 && (gone.is_some() || what != What::LaunchFailed) {
            list.push(Misuse { event: *event, gone });
        }
    }

    /// A context is gone with all that was in it; executable graphs and graphs outlive it only in name.
    pub(super) fn context_gone(&mut self, event: &Event) {
        let context = event.id.get();
        if context == 0 {
            return;
        }
        let gone: Vec<(u64, u32)> = self
            .alive
            .values()
            .filter(|exec| exec.context == context)
            .map(|exec| (exec.handle, exec.id))
            .collect();
        for (handle, id) in gone {
            self.runs -= self.alive.remove(&handle).map_or(0, |exec| exec.held());
            self.by_id.remove(&id);
            forget(&mut self.gone, handle, id, event.time.get());
        }
        self.sample(event.time.get());
    }

    fn sample(&mut self, time: u64) {
        let (execs, graphs) = (self.alive.len() as u32, self.graphs.len() as u32);
        let now = Sample { time, execs, graphs, launches: self.launches };
        match self.samples.back_mut() {
            // The most of each second: what is made and destroyed again within one is no growth.
            Some(last) if time.saturating_sub(last.time) < SECOND && last.launches == now.launches => {
                (last.execs, last.graphs) = (now.execs, now.graphs);
            }
            Some(last) if time.saturating_sub(last.time) < SECOND / 10 => {
                (last.execs, last.graphs) = (now.execs, now.graphs);
            }
            _ => self.samples.push_back(now),
        }
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
    }

    /// The executable graph with CUPTI's id.
    pub(in super::super) fn by_id(&self, id: u32) -> Option<&Exec> {
        self.alive.get(self.by_id.get(&id)?)
    }

    /// Ids of executable graphs that were destroyed, the latest of them; those used again are alive.
    pub(in super::super) fn destroyed(&self) -> FxHashSet<u32> {
        self.gone.iter().map(|gone| gone.id).filter(|id| !self.by_id.contains_key(id)).collect()
    }

    /// Instantiations since a moment.
    pub(in super::super) fn instantiated_since(&self, time: u64) -> impl Iterator<Item = &(u64, u32)> {
        self.instantiations.iter().filter(move |(at, _)| *at >= time)
    }
}

fn forget(list: &mut VecDeque<Gone>, handle: u64, id: u32, time: u64) {
    if list.len() >= MAX_GONE {
        list.pop_front();
    }
    list.push_back(Gone { handle, id, time });
}
