//! A graph and the runs of nodes and dependencies that it is made of.

/// Types of nodes counted apart (`CUgraphNodeType`); the last one holds all further ones.
pub const NODE_TYPES: usize = 15;

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
    pub(super) const fn place(&self, first: u64, id: u64) -> Option<u32> {
        match id.checked_sub(first) {
            Some(place) if place < self.count as u64 => Some(place as u32),
            _ => None,
        }
    }
}

/// Takes one out of each run that has it, at the place that `at` gives.
pub(super) fn take_out(runs: &mut Vec<Run>, at: impl Fn(&Run) -> Option<u32>) {
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

/// The capture that made a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it began and when it ended, `CLOCK_REALTIME` nanoseconds.
    pub begun: u64,
    /// See `begun`.
    pub ended: u64,
    /// Handle of the stream it began on.
    pub stream: u64,
    /// Thread that began it.
    pub thread: u32,
    /// What that thread allocated meanwhile on devices, without what became nodes, bytes; `None` where that is not known.
    pub allocated: Option<u64>,
}

/// What nodes ask for that allocate memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Asked {
    told: u64,
    /// Nodes of which it is not told.
    untold: bool,
}

impl Asked {
    /// Takes in nodes that ask for so much together; 0 is not told.
    pub(super) const fn add(&mut self, bytes: u64) {
        self.told = self.told.saturating_add(bytes);
        self.untold |= bytes == 0;
    }

    /// All of it, if it is known of each node.
    pub(in super::super) const fn all(self) -> Option<u64> {
        if self.untold { None } else { Some(self.told) }
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
    /// That capture, if its begin was seen.
    pub(super) capture: Option<Captured>,
    /// What its nodes allocate.
    pub(super) asked: Asked,
    /// Nodes with graphs of their own by index, and the handles of those: child graphs, and bodies of conditional nodes.
    pub(super) children: Vec<(u32, u64)>,
    /// Whether nodes were taken out of it.
    pub(super) changed: bool,
    /// Below this index its nodes are those of what it was cloned from.
    pub(super) cloned: u32,
}

impl Graph {
    /// All its nodes.
    pub(in super::super) fn count(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, nodes| sum.saturating_add(*nodes))
    }

    /// The type of the node with this id, if it is told one by one.
    pub(super) fn type_of(&self, node: u64) -> Option<u32> {
        self.runs.iter().find(|run| run.place(run.first, node).is_some()).map(|run| run.node_type)
    }

    /// The index behind its last node, as far as its nodes are told one by one.
    pub(super) fn end(&self) -> u32 {
        let end = |run: &Run| ((run.first & 0xffff_ffff) as u32).saturating_add(run.count);
        self.runs.iter().map(end).max().unwrap_or_else(|| self.count())
    }

    /// The same nodes as those of the executable graph with this id: they have the same indices (measured).
    pub(super) fn rebased(mut self, id: u32) -> Self {
        let index = |node: u64| u64::from(id) << 32 | node & 0xffff_ffff;
        for run in self.runs.iter_mut().chain(&mut self.edges) {
            (run.first, run.on) = (index(run.first), index(run.on));
        }
        self
    }

    /// Runs of nodes and edges kept of it.
    pub(super) const fn held(&self) -> usize {
        self.runs.len() + self.edges.len()
    }
}
