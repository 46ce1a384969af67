//! One executable graph: which of its nodes yield records, and the holes that those without leave.

use crate::KindSet;
use crate::kind::Kind;

/// Nodes of one graph told apart; nodes from here on count as covered.
const MAX_NODES: usize = 512;
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
    /// Takes in what is known of a node before any record of it; `kind` is `None` for nodes that take no slot.
    pub(super) fn knows(&mut self, index: u32, kind: Option<Kind>) {
        self.end = self.end.max(index.saturating_add(1));
        match kind {
            Some(Kind::Memcpy) => self.copies.add(index),
            Some(Kind::Memset) => self.memsets.add(index),
            _ => self.kernels.add(index),
        }
    }

    /// Notes one record of the node with this index, whose `kind` is `None` when it takes a slot only while it is
    /// traced; gives the slots of nodes without records that it tells of.
    pub(super) fn note(&mut self, index: u32, kind: Option<Kind>, enabled: KindSet) -> u64 {
        self.knows(index, kind);
        if kind != Some(Kind::Kernel) {
            return 0;
        }
        if self.replays == 0 {
            self.first = index;
        }
        if index != self.first {
            return 0;
        }
        self.replays = self.replays.saturating_add(1);
        if enabled.contains(KindSet::SAFE) {
            // What is traced whole has no node that is not covered.
            self.whole = self.whole.saturating_add(1).min(WHOLE);
            return 0;
        }
        // Before the graph was replayed twice nothing is said of nodes that were not seen, since records of one replay
        // come one by one.
        let unseen = match self.replays {
            0..3 => 0,
            3 => self.unseen().saturating_mul(3),
            _ => self.unseen(),
        };
        unseen.saturating_add(self.uncovered(enabled))
    }

    /// Whether records of it came.
    pub(super) const fn was_replayed(&self) -> bool {
        self.replays > 0
    }

    /// Nodes that never yielded a record, and may have taken a slot all the same.
    fn unseen(&self) -> u64 {
        if self.whole == WHOLE {
            return 0;
        }
        let seen = [&self.kernels, &self.copies, &self.memsets].map(Nodes::count);
        u64::from(self.end).min(MAX_NODES as u64).saturating_sub(seen.iter().sum())
    }

    /// Nodes that did, and do not any more.
    fn uncovered(&self, enabled: KindSet) -> u64 {
        let of = |kind, nodes: &Nodes| if enabled.has(kind) { 0 } else { nodes.count() };
        of(Kind::Memcpy, &self.copies).saturating_add(of(Kind::Memset, &self.memsets))
    }
}
