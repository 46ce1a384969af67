//! Whether every executable graph has kernels. If so, graphs that are launched without a kernel record are no copies:
//! records are missing.

use gtop_protocol::lifecycle::{Event, What};

/// Graphs with kernels that are remembered. One is instantiated soon after it was made, mostly at once.
const GRAPHS: usize = 128;
/// `CU_GRAPH_NODE_TYPE_KERNEL`.
const KERNEL: u64 = 0;

/// The graphs in which kernels were seen last.
#[derive(Debug)]
pub(super) struct WithKernels {
    graphs: [u32; GRAPHS],
    next: usize,
}

impl Default for WithKernels {
    fn default() -> Self {
        Self { graphs: [0; GRAPHS], next: 0 }
    }
}

impl WithKernels {
    /// Takes in an event; gives whether from now on launches of graphs may be of one without kernels.
    pub(super) fn hear(&mut self, event: &Event) -> bool {
        let known = |graph: u32| graph != 0 && self.graphs.contains(&graph);
        match What::from_wire(event.what) {
            Some(What::Nodes) if u64::from(event.detail.get()) == KERNEL => {
                let graph = event.id.get();
                if !known(graph) {
                    if let Some(place) = self.graphs.get_mut(self.next) {
                        *place = graph;
                    }
                    self.next = self.next.wrapping_add(1).checked_rem(GRAPHS).unwrap_or(0);
                }
                false
            }
            Some(What::NodeRemoved) => {
                let graph = event.id.get();
                self.graphs.iter_mut().filter(|known| **known == graph).for_each(|known| *known = 0);
                false
            }
            // Nodes can be switched off as well.
            Some(What::NodesSet) => true,
            Some(What::ExecCreated) => !known(event.node.get() as u32),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(graph: u32, node_type: u32) -> Event {
        Event { what: What::Nodes as u8, id: graph.into(), detail: node_type.into(), ..Event::default() }
    }

    fn exec(graph: u32) -> Event {
        Event { what: What::ExecCreated as u8, node: u64::from(graph).into(), ..Event::default() }
    }

    #[test]
    fn a_graph_without_kernels_or_of_which_nothing_was_told_is_noticed() {
        let mut graphs = WithKernels::default();
        let mut hear = |event: Event| graphs.hear(&event);
        assert!(!hear(node(7, 1)) && !hear(node(7, 0)) && !hear(exec(7)));
        assert!(!hear(node(8, 2)) && hear(exec(8)), "memory sets alone");
        assert!(hear(exec(9)) && hear(exec(0)), "nothing was told of it");
        hear(Event { what: What::NodeRemoved as u8, id: 7.into(), ..Event::default() });
        assert!(hear(exec(7)), "it may have been its only kernel");
        for graph in 100..100 + GRAPHS as u32 {
            assert!(!hear(node(graph, 0)) && !hear(exec(graph)));
        }
    }
}
