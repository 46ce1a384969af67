//! Graphs inside of others, as they are told.

use super::*;

/// Tells of the graphs of a program as CUPTI 13.0.85 does: nodes made in a call have its type, and a graph that is cloned for
/// a node is told before that node.
struct Program {
    model: Model<Vec<Graph>>,
}

impl Program {
    fn node(&mut self, id: u32, index: u64, node_type: u32) {
        let node = u64::from(id) << 32 | index;
        self.model.node_added(5, id, node, node_type);
        self.model.node(id, node, node_type, None);
    }

    /// A clone, made for a node, of a graph with so many nodes, of which those in `inner` have clones of their own inside.
    fn child(&mut self, [id, of]: [u32; 2], nodes: u64, inner: &[(u64, [u32; 2], u64)]) {
        self.model.made_inside(5, id);
        for index in 0..nodes {
            if let Some((_, child, nodes)) = inner.iter().find(|(at, ..)| *at == index) {
                self.child(*child, *nodes, &[]);
            }
            self.node(id, index, 4);
            self.model.cloned(5, id, of);
        }
    }
}

#[test]
fn nodes_of_child_graphs_count_from_the_first_replay_on() {
    let mut told = Program { model: model(true, 8, KindSet::EMPTY.with(Kind::Kernel)) };
    // One graph has a kernel and a memory set; the next a kernel and that one inside; the last the second inside, and a
    // kernel.
    told.node(1, 0, 0);
    told.node(1, 1, 2);
    told.node(2, 0, 0);
    told.child([10, 1], 2, &[]);
    told.node(2, 1, 4);
    told.child([11, 2], 2, &[(1, [12, 10], 2)]);
    told.node(3, 0, 4);
    told.node(3, 1, 0);
    // Behind its own two nodes the executable graph has two of the child, and then the two that are inside of that.
    told.model.exec(7, 3);
    for graph in [1, 2, 3, 10, 11, 12] {
        told.model.graph_gone(graph);
    }
    assert!(!told.model.leaks(), "nothing was replayed yet");
    told.model.kernel(&kernel(7, 1), NOW);
    let pool = told.model.pools().next().unwrap();
    assert_eq!((pool.state, pool.graph, pool.slots_used), (PoolState::Leaking as u8, 7, 2));
    // No node but the memory set, the sixth, is one without records.
    for _ in 0..3 {
        for index in [2, 4, 1] {
            told.model.kernel(&kernel(7, index), NOW);
        }
    }
    assert_eq!(told.model.pools().next().map(|pool| pool.slots_used), Some(4 * 2 + 6));
}

#[test]
fn a_clone_has_clones_inside_and_what_was_told_before_it_was_known_to_be_one() {
    let mut told = Program { model: model(true, 8, KindSet::EMPTY.with(Kind::Kernel)) };
    told.node(1, 0, 2);
    told.child([10, 1], 1, &[]);
    told.node(2, 0, 4);
    told.node(2, 1, 0);
    // The clone of the second, whose call says of no node what it is.
    told.child([11, 10], 1, &[]);
    told.node(3, 0, 0);
    told.model.cloned(5, 3, 2);
    told.node(3, 1, 0);
    told.model.exec(7, 3);
    told.model.kernel(&kernel(7, 1), NOW);
    let pool = told.model.pools().next().unwrap();
    assert_eq!((pool.state, pool.slots_used), (PoolState::Leaking as u8, 2));
}

#[test]
fn where_some_graph_inside_is_not_known_nothing_is_said_of_those_inside() {
    for known in [true, false] {
        let mut told = Program { model: model(true, 8, KindSet::EMPTY.with(Kind::Kernel)) };
        told.node(1, 0, 2);
        told.node(2, 0, 0);
        told.child([10, 1], 1, &[]);
        told.node(2, 1, 4);
        if !known {
            // Of this child nobody told.
            told.node(2, 2, 4);
        }
        told.model.exec(7, 2);
        told.model.kernel(&kernel(7, 0), NOW);
        assert_eq!(told.model.leaks(), known);
    }
    // Nor where there are more than there is room for, and nothing breaks.
    let mut told = Program { model: model(true, 8, KindSet::EMPTY.with(Kind::Kernel)) };
    told.node(1, 0, 2);
    told.node(2, 0, 0);
    for i in 0..300u32 {
        told.child([1_000 + i, 1], 1, &[]);
        told.node(2, u64::from(i) + 1, 4);
    }
    told.model.exec(7, 2);
    told.model.kernel(&kernel(7, 0), NOW);
    assert!(!told.model.leaks());
    // A graph that is said to lie in itself ends nowhere.
    told.model.graph_gone(2);
    told.model.made_inside(5, 4);
    told.node(4, 0, 13);
    told.model.made_inside(6, 4);
    told.model.node_added(6, 4, 4 << 32, 4);
    told.model.exec(8, 4);
}
