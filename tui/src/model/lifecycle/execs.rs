//! Graphs and executable graphs that are alive, what became of the others, and how their numbers grow.

use std::collections::VecDeque;

use gtop_protocol::lifecycle::{Event, What};
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::time::SECOND;

/// Types of nodes counted apart (`CUgraphNodeType`); the last one holds all further ones.
pub const NODE_TYPES: usize = 15;
/// Their places: `CU_GRAPH_NODE_TYPE_MEM_ALLOC`, `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub(in super::super) const ALLOCATE: usize = 10;
const FREE: usize = 11;
/// Graphs and executable graphs kept, each.
const MAX_ALIVE: usize = 1 << 17;
/// Runs of nodes and of edges kept of all graphs together.
const MAX_RUNS: usize = 1 << 18;
/// Destroyed things remembered, to tell their use afterwards.
const MAX_GONE: usize = 1 << 14;
/// Samples of the numbers alive, a second apart at least.
const MAX_SAMPLES: usize = 4096;
/// Instantiations and updates that are remembered by time.
const MAX_TIMES: usize = 1 << 14;

/// A run of nodes of one type with ids that follow each other, or of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The id of the first node.
    pub first: u64,
    /// The first node it depends on; for edges.
    pub on: u64,
    /// How many.
    pub count: u32,
    /// `CUgraphNodeType`; for nodes.
    pub node_type: u32,
}

impl Run {
    /// The place in it of what has this id, if its first has that one.
    const fn place(&self, first: u64, id: u64) -> Option<u32> {
        match id.checked_sub(first) {
            Some(place) if place < self.count as u64 => Some(place as u32),
            _ => None,
        }
    }
}

/// Takes one out of each run that has it, at the place that `at` gives.
fn take_out(runs: &mut Vec<Run>, at: impl Fn(&Run) -> Option<u32>) {
    let mut i = 0;
    while let Some(run) = runs.get(i).copied() {
        let Some(place) = at(&run) else {
            i += 1;
            continue;
        };
        let after = place + 1;
        let rest = Run {
            first: run.first.wrapping_add(u64::from(after)),
            on: run.on.wrapping_add(u64::from(after)),
            count: run.count - after,
            ..run
        };
        let left = [Run { count: place, ..run }, rest].into_iter().filter(|run| run.count > 0);
        runs.splice(i..=i, left);
    }
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Graph {
    pub(in super::super) id: u32,
    pub(in super::super) nodes: [u32; NODE_TYPES],
    pub(in super::super) runs: Vec<Run>,
    pub(in super::super) edges: Vec<Run>,
    /// Executable graphs made from it.
    pub(in super::super) instantiated: u32,
    /// Executable graphs updated with it.
    pub(in super::super) updated: u32,
    /// Whether a capture made it.
    pub(in super::super) captured: bool,
    /// Nodes it had from the beginning, as a clone.
    cloned: u32,
}

impl Graph {
    /// All its nodes.
    pub(in super::super) fn count(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, nodes| sum.saturating_add(*nodes))
    }

    /// The same nodes as those of the executable graph with this id: they have the same indices (measured).
    fn rebased(mut self, id: u32) -> Self {
        let index = |node: u64| u64::from(id) << 32 | node & 0xffff_ffff;
        for run in self.runs.iter_mut().chain(&mut self.edges) {
            (run.first, run.on) = (index(run.first), index(run.on));
        }
        self
    }

    /// Runs of nodes and edges kept of it.
    const fn held(&self) -> usize {
        self.runs.len() + self.edges.len()
    }
}

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
    /// Runs kept of everything alive.
    runs: usize,
    pub(in super::super) samples: VecDeque<Sample>,
    /// When graphs were instantiated, and how many nodes they had.
    pub(in super::super) instantiations: VecDeque<(u64, u32)>,
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
                let Graph { nodes, runs, edges, .. } = self.copy_of(of);
                let mut graph = Graph { id, nodes, runs, edges, ..Graph::default() }.rebased(id);
                graph.cloned = graph.count();
                if self.graphs.len() < MAX_ALIVE {
                    self.runs += graph.held();
                    // A handle that is used again without a destroy: that was missed.
                    self.runs -= self.graphs.insert(handle, graph).map_or(0, |before| before.held());
                }
                self.sample(event.time.get());
            }
            What::GraphDestroyed => {
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

    /// A capture ended and gave this graph. When the graph was created says nothing: CUPTI may tell of it before the
    /// capture is open (seen on 13.0.85), and a program may create another one meanwhile.
    pub(super) fn captured(&mut self, handle: u64) {
        if let Some(graph) = self.graphs.get_mut(&handle) {
            graph.captured = true;
        }
    }

    /// A copy of a graph; without its runs when there is no room for more.
    fn copy_of(&self, handle: u64) -> Graph {
        let Some(graph) = self.graphs.get(&handle) else { return Graph::default() };
        if self.runs + graph.held() <= MAX_RUNS {
            return graph.clone();
        }
        Graph { id: graph.id, nodes: graph.nodes, ..Graph::default() }
    }

    fn nodes(&mut self, what: What, event: &Event) {
        let run = Run {
            first: event.node.get(),
            on: event.other.get(),
            count: event.count.get(),
            node_type: event.detail.get(),
        };
        let full = self.runs >= MAX_RUNS;
        let Some(graph) = self.graphs.get_mut(&event.object.get()) else { return };
        // A clone has the nodes of its original, which may be told again.
        if (run.first & 0xffff_ffff) < u64::from(graph.cloned) {
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
        if let Some(node_type) =
            graph.runs.iter().find(|run| run.place(run.first, node).is_some()).map(|run| run.node_type)
        {
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
                if let Some(graph) = self.graphs.get_mut(&event.other.get()) {
                    graph.instantiated += 1;
                }
                if self.instantiations.len() >= MAX_TIMES {
                    self.instantiations.pop_front();
                }
                self.instantiations.push_back((time, source.count()));
                if let Some((thread, reason, failed)) = self.last_failed.take()
                    && thread == event.thread.get()
                    && time.saturating_sub(failed) < SECOND
                    && let Some(update) = self.failed_updates.get_mut(&reason)
                {
                    update.then_instantiated += 1;
                }
                let exec = Exec {
                    id: event.id.get(),
                    handle,
                    source_id: source.id,
                    created: time,
                    thread: event.thread.get(),
                    context: event.context.get(),
                    updates: 0,
                    updates_failed: 0,
                    uploads: 0,
                    made_of: source.rebased(event.id.get()),
                };
                if exec.made_of.nodes[ALLOCATE] > 0 {
                    self.last_allocating = time;
                }
                if self.alive.len() < MAX_ALIVE {
                    self.runs += exec.made_of.held();
                    self.by_id.insert(exec.id, handle);
                    if let Some(before) = self.alive.insert(handle, exec) {
                        self.runs -= before.made_of.held();
                        if before.id != event.id.get() {
                            self.by_id.remove(&before.id);
                        }
                    }
                }
                self.sample(time);
            }
            What::ExecDestroyed => {
                if let Some(exec) = self.alive.remove(&handle) {
                    self.runs -= exec.made_of.held();
                    self.by_id.remove(&exec.id);
                    if exec.made_of.nodes[ALLOCATE] > 0 {
                        self.last_allocating = time;
                    }
                    if exec.made_of.nodes[ALLOCATE] > exec.made_of.nodes[FREE] {
                        if self.kept_allocations == 0 {
                            self.first_kept = exec.created;
                        }
                        self.kept_allocations += 1;
                        self.last_kept = time;
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
            self.runs -= self.alive.remove(&handle).map_or(0, |exec| exec.made_of.held());
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
