//! Graphs inside of others: child graphs, and bodies of conditional nodes. An executable graph has their nodes behind those
//! of the graph that it was made of.

use super::graph::MAX_NODES;
use super::{Graph, Model};
use crate::node_type::{CHILD, holds_graphs};

/// Graphs inside of others that are told apart.
const MOST: usize = 256;
/// Graphs inside of one that are followed, and how deep they may lie in each other.
const MOST_INSIDE: u32 = 64;
const DEEPEST: u32 = 8;

/// A graph inside of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Inner {
    /// The graph that it lies in; 0 while that is not told.
    of: u32,
    /// The index of its node there; before that is told the thread that made it.
    node: u32,
    graph: u32,
}

/// Those there are, in the order in which they were made.
#[derive(Debug)]
pub(super) struct Inners {
    list: [Inner; MOST],
    count: usize,
    /// How many of them lie in none that is told.
    loose: usize,
}

impl Inners {
    pub(super) const fn new() -> Self {
        Self { list: [Inner { of: 0, node: 0, graph: 0 }; MOST], count: 0, loose: 0 }
    }

    fn all(&self) -> &[Inner] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// A thread made a graph for a node that is told after it. What there is no room for is not known.
    pub(super) fn made(&mut self, thread: u32, graph: u32) {
        if let Some(place) = self.list.get_mut(self.count) {
            *place = Inner { of: 0, node: thread, graph };
            self.count = self.count.saturating_add(1);
            self.loose = self.loose.saturating_add(1);
        }
    }

    /// A thread added a node to the graph `of`. The graphs inside of it are of those made since that one: the last for a
    /// child, all for a conditional node (measured on 13.0.85 and 13.5.25: a clone's are told before the node they belong to,
    /// the innermost first).
    pub(super) fn claim(&mut self, thread: u32, of: u32, node: u32, node_type: u32) {
        if self.loose == 0 || !holds_graphs(node_type) {
            return;
        }
        let list = self.list.get_mut(..self.count).unwrap_or_default();
        let since = list
            .iter()
            .position(|inner| (inner.of, inner.graph) == (0, of))
            .map_or(0, |at| at.saturating_add(1));
        let most = if node_type == CHILD { 1 } else { MOST };
        let later = list.get_mut(since..).unwrap_or_default().iter_mut().rev();
        for inner in later.filter(|inner| (inner.of, inner.node) == (0, thread)).take(most) {
            (inner.of, inner.node) = (of, node);
            self.loose = self.loose.saturating_sub(1);
        }
    }

    /// A graph is gone.
    pub(super) fn gone(&mut self, graph: u32) {
        let mut kept = 0usize;
        for at in 0..self.count {
            let Some(inner) = self.list.get(at).copied() else { break };
            if inner.graph == graph || inner.of == graph {
                self.loose = self.loose.saturating_sub(usize::from(inner.of == 0));
            } else if let Some(place) = self.list.get_mut(kept) {
                *place = inner;
                kept = kept.saturating_add(1);
            }
        }
        self.count = kept;
    }

    /// The next node of a graph with graphs inside, behind the one with the index `after`.
    pub(super) fn next_node(&self, of: u32, after: Option<u32>) -> Option<u32> {
        let nodes = self.all().iter().filter(|inner| inner.of == of && of != 0).map(|inner| inner.node);
        nodes.filter(|node| after.is_none_or(|after| *node > after)).min()
    }

    /// The graphs inside of a node.
    pub(super) fn within(&self, of: u32, node: u32) -> impl Iterator<Item = u32> {
        self.all().iter().filter(move |inner| (inner.of, inner.node) == (of, node)).map(|inner| inner.graph)
    }
}

/// What is inside of an executable graph, as far as it was followed.
struct Inside {
    /// Its nodes, and those found so far.
    whole: Graph,
    /// The index of the next one.
    next: u32,
    /// How many more graphs are followed.
    left: u32,
}

impl<S: AsMut<[Graph]> + AsRef<[Graph]>> Model<S> {
    /// An executable graph `id` was made of the graph `source`, whose nodes it has under the same indices, and behind them
    /// those of the graphs inside (measured).
    pub fn exec(&mut self, id: u32, source: u32) {
        if !self.defective || id == 0 {
            return;
        }
        let Some(made_of) = self.graph(source, false).copied() else { return };
        let mut inside = Inside { whole: made_of, next: made_of.end, left: MOST_INSIDE };
        // Where some of what is inside is not known, nor are indices behind it.
        let whole = if self.expand(source, 0, &mut inside) { inside.whole } else { made_of };
        if let Some(graph) = self.graph(id, true) {
            *graph = whole;
            graph.id = id;
        }
    }

    /// Adds the nodes inside of a graph: for each node with graphs those of these graphs, and then what is inside of them.
    /// Gives whether all of it is known.
    fn expand(&mut self, of: u32, depth: u32, inside: &mut Inside) -> bool {
        let Some(holders) = self.graph(of, false).map(|graph| graph.holders()) else { return false };
        let (mut seen, mut node) = (0u64, None);
        while let Some(at) = self.inners.next_node(of, node) {
            (seen, node) = (seen.saturating_add(1), Some(at));
            let count = self.inners.within(of, at).count();
            for which in 0..count {
                let id = self.inners.within(of, at).nth(which).unwrap_or(0);
                let Some(graph) = self.graph(id, false) else { return false };
                inside.whole.take_in(graph, inside.next);
                inside.next = inside.next.saturating_add(graph.end);
            }
            for which in 0..count {
                let id = self.inners.within(of, at).nth(which).unwrap_or(0);
                let Some(left) = inside.left.checked_sub(1).filter(|_| depth < DEEPEST) else { return false };
                inside.left = left;
                if !self.expand(id, depth.saturating_add(1), inside) {
                    return false;
                }
            }
        }
        seen == holders
    }

    /// A thread made a graph for a node of another one, which is told after it.
    pub fn made_inside(&mut self, thread: u32, id: u32) {
        if self.defective && id != 0 {
            self.inners.made(thread, id);
        }
    }

    /// The graph `id` is a clone of another one, which this thread makes: it has the same nodes, which may be told again, and
    /// in another call.
    pub fn cloned(&mut self, thread: u32, id: u32, of: u32) {
        if !self.defective || id == 0 {
            return;
        }
        let Some(original) = self.graph(of, false).copied() else { return };
        let Some(graph) = self.graph(id, true).filter(|graph| !graph.is_clone()) else { return };
        let told = graph.end.min(MAX_NODES as u32);
        *graph = original.cloned();
        graph.id = id;
        // Of those that were told before, the call did not say what they are.
        for index in 0..told {
            if self.inners.within(id, index).next().is_none() {
                self.inners.claim(thread, id, index, original.holder_type(index));
            }
        }
    }

    /// A thread added a node to a graph: what was made for it lies inside.
    pub fn node_added(&mut self, thread: u32, id: u32, node: u64, node_type: u32) {
        if !self.defective || id == 0 {
            return;
        }
        let index = (node & 0xffff_ffff) as u32;
        let as_original = self.graph(id, false).filter(|graph| graph.has_of_original(index));
        let node_type = match as_original.map(|graph| graph.holder_type(index)) {
            Some(of_original) => of_original,
            None => node_type,
        };
        self.inners.claim(thread, id, index, node_type);
    }
}
