//! One executable graph: which of its nodes yield records, and the holes that those without leave.

use crate::KindSet;
use crate::kind::Kind;
use crate::node_type::{CHILD, CONDITIONAL};

/// Nodes of one graph told apart; nodes from here on count as covered.
pub(super) const MAX_NODES: usize = 512;
/// After so many replays that were traced whole, what yielded no record takes no slot: it is neither a kernel nor a copy
/// nor a memory set. Events of collectives, for one (a graph of a vLLM worker with another beside it).
const WHOLE: u8 = 8;

/// What is known of one executable graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Graph {
    /// The executable graph's id; 0 for a place that is free.
    pub(super) id: u32,
    /// The index of the kernel whose records count the replays.
    first: u32,
    /// One more than the highest index seen.
    pub(super) end: u32,
    replays: u64,
    /// Replays during which kernels, copies and memory sets were all traced, up to [`WHOLE`].
    whole: u8,
    /// Whether holes were counted for nodes of which is not known whether they leave any.
    pub(super) doubted: bool,
    /// Kernels, and what takes a slot only while it is traced, or none at all.
    kernels: Nodes,
    copies: Nodes,
    memsets: Nodes,
    /// Copies of which nobody told the direction.
    untold: Nodes,
    /// Nodes with graphs inside: children, and conditional ones.
    children: Nodes,
    conditionals: Nodes,
    /// How many of those there are, also behind the nodes told apart.
    holders: u32,
    /// Nodes below this index are those of what it was cloned from.
    cloned: u32,
}

/// What a record tells of nodes that yield none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holes {
    /// Slots that nodes took whose kind is off.
    pub(super) sure: u64,
    /// Slots that nodes may have taken: copies of unknown direction, and nodes that were never seen.
    pub(super) doubtful: u64,
    /// A node that was in doubt is one that leaves a hole.
    pub(super) proven: bool,
    /// The last node that was in doubt leaves none.
    pub(super) cleared: bool,
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

    fn has(&self, index: u32) -> bool {
        self.0.get(index as usize / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Those in either.
    fn or(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// Those in this one alone.
    fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
        self
    }
}

impl Graph {
    /// How many of its nodes have graphs inside.
    pub(super) const fn holders(&self) -> u64 {
        self.holders as u64
    }

    /// Takes in that a node has graphs inside.
    pub(super) fn holds(&mut self, index: u32, node_type: u32) {
        self.holders = self.holders.saturating_add(1);
        if node_type == CHILD { self.children.add(index) } else { self.conditionals.add(index) }
    }

    /// The type of a node as far as it tells what is inside of it; of others 0.
    pub(super) fn holder_type(&self, index: u32) -> u32 {
        match (self.children.has(index), self.conditionals.has(index)) {
            (true, _) => CHILD,
            (_, true) => CONDITIONAL,
            _ => 0,
        }
    }

    /// The same graph as a clone.
    pub(super) const fn cloned(mut self) -> Self {
        self.cloned = self.end;
        self
    }

    /// Whether it is known what it was cloned from.
    pub(super) const fn is_clone(&self) -> bool {
        self.cloned > 0
    }

    /// Whether the node with this index is one of what it was cloned from.
    pub(super) const fn has_of_original(&self, index: u32) -> bool {
        index < self.cloned
    }

    /// Takes in the nodes of a graph that lies inside of it, the first of them under the index `first`.
    pub(super) fn take_in(&mut self, inner: &Self, first: u32) {
        self.end = self.end.max(first.saturating_add(inner.end));
        for index in 0..inner.end.min(MAX_NODES as u32) {
            let at = first.saturating_add(index);
            let pairs = [
                (&mut self.kernels, &inner.kernels),
                (&mut self.copies, &inner.copies),
                (&mut self.memsets, &inner.memsets),
                (&mut self.untold, &inner.untold),
            ];
            for (nodes, of) in pairs {
                if of.has(index) {
                    nodes.add(at);
                }
            }
        }
    }

    /// Takes in what is known of a node before any record of it; `kind` is `None` for nodes that take no slot.
    pub(super) fn knows(&mut self, index: u32, kind: Option<Kind>) {
        self.end = self.end.max(index.saturating_add(1));
        match kind {
            Some(Kind::Memcpy) => self.copies.add(index),
            Some(Kind::Memset) => self.memsets.add(index),
            _ => self.kernels.add(index),
        }
    }

    /// Takes in that a node is a copy, from and to where nobody knows.
    pub(super) fn knows_copy(&mut self, index: u32) {
        self.end = self.end.max(index.saturating_add(1));
        self.untold.add(index);
    }

    /// Notes one record of the node with this index, whose `kind` is `None` when it takes a slot only while it is
    /// traced; gives the slots of nodes without records that it tells of.
    pub(super) fn note(&mut self, index: u32, kind: Option<Kind>, enabled: KindSet) -> Holes {
        let mut holes = Holes::default();
        let in_doubt = self.doubted && !self.known().has(index);
        self.knows(index, kind);
        if in_doubt {
            holes.proven = matches!(kind, Some(Kind::Memcpy | Kind::Memset));
            // Nodes that were never seen are none as soon as everything is traced.
            holes.cleared = self.untold.without(&self.known()).count() == 0
                && (self.unseen() == 0 || enabled.contains(KindSet::SAFE));
            self.doubted = !holes.proven && !holes.cleared;
        }
        if kind != Some(Kind::Kernel) {
            return holes;
        }
        if self.replays == 0 {
            self.first = index;
        }
        if index != self.first {
            return holes;
        }
        self.replays = self.replays.saturating_add(1);
        if enabled.contains(KindSet::SAFE) {
            // What is traced whole has no node that is not covered.
            self.whole = self.whole.saturating_add(1).min(WHOLE);
            return holes;
        }
        // Before the graph was replayed twice nothing is said of nodes that were not seen, since records of one replay
        // come one by one.
        let unseen = match self.replays {
            0..3 => 0,
            3 => self.unseen().saturating_mul(3),
            _ => self.unseen(),
        };
        let untold = if enabled.has(Kind::Memcpy) { 0 } else { self.untold.without(&self.known()).count() };
        holes.sure = self.uncovered(enabled);
        holes.doubtful = unseen.saturating_add(untold);
        self.doubted |= holes.doubtful > 0;
        holes
    }

    /// Whether records of it came.
    pub(super) const fn was_replayed(&self) -> bool {
        self.replays > 0
    }

    /// Whether it leaks as soon as nothing is traced.
    pub(super) fn leaks_untraced(&self) -> bool {
        self.id != 0 && self.uncovered(KindSet::EMPTY) > 0
    }

    /// Whether it may.
    pub(super) fn may_leak_untraced(&self) -> bool {
        self.id != 0 && self.unseen().saturating_add(self.untold.without(&self.known()).count()) > 0
    }

    /// Nodes of which is known whether they leave a hole.
    fn known(&self) -> Nodes {
        self.kernels.or(&self.copies).or(&self.memsets)
    }

    /// Nodes that never yielded a record, and of which nothing else is known.
    fn unseen(&self) -> u64 {
        if self.whole == WHOLE {
            return 0;
        }
        let seen = self.known().or(&self.untold).count();
        u64::from(self.end).min(MAX_NODES as u64).saturating_sub(seen)
    }

    /// Nodes that did, and do not any more.
    fn uncovered(&self, enabled: KindSet) -> u64 {
        let of = |kind, nodes: &Nodes| if enabled.has(kind) { 0 } else { nodes.count() };
        of(Kind::Memcpy, &self.copies).saturating_add(of(Kind::Memset, &self.memsets))
    }
}
