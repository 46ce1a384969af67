//! What is inside of an executable graph: child graphs, and the bodies of conditional nodes, each of which may have others
//! inside.

use gtop_protocol::node_type::{CHILD, CONDITIONAL};

use super::execs::Execs;
use super::graph::{Graph, NODE_TYPES, Run};

/// How deep graphs are followed into each other, and how many are told of one executable graph.
const DEEPEST: usize = 16;
const MOST: usize = 1024;
/// Graphs that may wait for the node they are made for.
const MAX_LOOSE: usize = 1024;

/// A child graph or a body within an executable graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// The index of the node whose graph it is; `None` where that is not known.
    pub node: Option<u32>,
    /// The index of its first node; the others follow. `None` where that is not known.
    pub first: Option<u32>,
    /// Its own nodes by `CUgraphNodeType`, without those of the graphs inside of it.
    pub nodes: [u32; NODE_TYPES],
    /// How many graphs it lies in; 1 is right inside.
    pub depth: u32,
    /// Its nodes and their dependencies under the indices of the executable graph; none where they are not known.
    pub runs: Vec<Run>,
    /// See `runs`.
    pub edges: Vec<Run>,
}

impl Inside {
    /// Forgets which nodes it has one by one, where there is no room for more.
    pub(super) fn forget_runs(&mut self) {
        (self.runs, self.edges) = (Vec::new(), Vec::new());
    }
}

/// Graphs that were made for a node which has not been told yet: the thread, and the graph's handle. A clone's are told
/// before the node they belong to, the innermost first (measured on 13.0.85 and 13.5.25).
#[derive(Debug, Default)]
pub(super) struct Loose(Vec<(u32, u64)>);

impl Loose {
    /// A graph was made within a call that adds a node, or clones.
    pub(super) fn made(&mut self, thread: u32, handle: u64) {
        if self.0.len() >= MAX_LOOSE {
            self.0.remove(0);
        }
        self.0.push((thread, handle));
    }

    pub(super) fn gone(&mut self, handle: u64) {
        self.0.retain(|(_, loose)| *loose != handle);
    }

    /// The graphs of a node that this thread added to the graph `of`: of those made since that one the last for a child, all
    /// for a conditional node.
    pub(super) fn claim(&mut self, thread: u32, of: u64, node_type: u32) -> Vec<u64> {
        let begin = self.0.iter().position(|(_, loose)| *loose == of).map_or(0, |at| at + 1);
        let mine = |at: &usize| self.0[*at].0 == thread;
        let places: Vec<usize> = match node_type {
            CHILD => (begin..self.0.len()).rev().find(mine).into_iter().collect(),
            CONDITIONAL => (begin..self.0.len()).filter(mine).collect(),
            _ => return Vec::new(),
        };
        let mut handles: Vec<u64> = places.iter().rev().map(|at| self.0.remove(*at).1).collect();
        handles.reverse();
        handles
    }
}

impl Execs {
    /// What is inside of an executable graph with this id that is made of `graph` now, in the order in which its nodes are
    /// numbered: behind those of the graph itself come, for each node with graphs, the nodes of these and then of what is
    /// inside of them (measured on 13.0.85 and 13.5.25).
    pub(super) fn inside(&self, graph: &Graph, id: u32) -> Vec<Inside> {
        let mut expansion = Expansion { execs: self, id, next: graph.slots(), found: Vec::new() };
        expansion.expand(graph, Some(0), 1);
        expansion.found
    }
}

struct Expansion<'a> {
    execs: &'a Execs,
    id: u32,
    /// The index of the next node.
    next: Option<u32>,
    found: Vec<Inside>,
}

impl Expansion<'_> {
    /// Follows what is inside of a graph whose first node has the index `first`.
    fn expand(&mut self, graph: &Graph, first: Option<u32>, depth: usize) {
        let mut nodes: Vec<u32> = graph.children.iter().map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        // Where some of its children were not told, nothing is known of the indices behind its own.
        let with_graphs = graph.nodes[CHILD as usize].saturating_add(graph.nodes[CONDITIONAL as usize]);
        if with_graphs as usize > nodes.len() {
            self.next = None;
        }
        for node in nodes {
            let mut begun = Vec::new();
            for (_, handle) in graph.children.iter().filter(|(of, _)| *of == node) {
                if depth > DEEPEST || self.found.len() >= MOST {
                    return;
                }
                let Some(inner) = self.execs.graphs.get(handle) else {
                    self.next = None;
                    continue;
                };
                let at = self.next;
                self.next = at.zip(inner.slots()).and_then(|(at, slots)| at.checked_add(slots));
                let node = first.and_then(|first| first.checked_add(node));
                self.found.push(inner.within(
                    self.id,
                    node,
                    at.filter(|_| self.next.is_some()),
                    depth as u32,
                ));
                begun.push((inner, at));
            }
            for (inner, at) in begun {
                self.expand(inner, at, depth + 1);
            }
        }
    }
}

impl Graph {
    /// How many indices its nodes take; `None` where some may be left out.
    fn slots(&self) -> Option<u32> {
        let told = self.runs.iter().fold(0u32, |sum, run| sum.saturating_add(run.count));
        (!self.changed && told == self.count()).then_some(told)
    }

    /// This graph inside of an executable graph, its first node under the index `first`.
    fn within(&self, id: u32, node: Option<u32>, first: Option<u32>, depth: u32) -> Inside {
        let moved = |of: &[Run]| {
            let Some(first) = first else { return Vec::new() };
            let index = |node: u64| u64::from(id) << 32 | (node & 0xffff_ffff).saturating_add(first.into());
            of.iter().map(|run| Run { first: index(run.first), on: index(run.on), ..*run }).collect()
        };
        Inside { node, first, nodes: self.nodes, depth, runs: moved(&self.runs), edges: moved(&self.edges) }
    }
}
