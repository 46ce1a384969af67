//! Lifecycles as they come, whole or in pieces, and as they should not come.

use super::*;
use execs::Run;

/// What is told, one event after the other.
#[derive(Default)]
struct Told(Lifecycle);

impl Told {
    fn say(&mut self, what: What, event: Event) {
        self.0.apply(&Event { what: what as u8, ..event }, 0);
    }

    fn graph(&mut self, handle: u64, id: u32, kernels: u32) {
        let event = Event { object: handle.into(), id: id.into(), ..Event::default() };
        self.say(What::GraphCreated, event);
        if kernels > 0 {
            self.say(What::Nodes, Event { count: kernels.into(), ..event });
        }
    }

    fn exec(&mut self, handle: u64, id: u32, graph: u64) {
        let event = Event { object: handle.into(), id: id.into(), other: graph.into(), ..Event::default() };
        self.say(What::ExecCreated, event);
    }

    fn destroy(&mut self, what: What, handle: u64) {
        self.say(what, Event { object: handle.into(), ..Event::default() });
    }
}

#[test]
fn a_captured_graph_that_is_dropped_is_known_by_the_end_of_its_capture() {
    let mut told = Told::default();
    let mut say = |what: What, graph: u64, flags: u8| {
        told.say(what, Event { object: graph.into(), flags, ..Event::default() });
    };
    // As CUPTI tells it: the graph comes before the capture is open.
    for graph in 1..=2 {
        say(What::GraphCreated, graph, 0);
        say(What::CaptureBegun, 0, IN_CAPTURE);
        say(What::CaptureEnded, graph, IN_CAPTURE);
    }
    // One that the program made beside an open capture is no capture's.
    say(What::GraphCreated, 3, IN_CAPTURE | CAPTURE_OPEN);
    // One that an executable graph was updated with was of use, whether the update went well or not.
    say(What::GraphCreated, 4, 0);
    say(What::CaptureBegun, 0, IN_CAPTURE);
    say(What::CaptureEnded, 4, IN_CAPTURE);
    told.say(
        What::Updated,
        Event { object: 9.into(), other: 4.into(), result: 910.into(), ..Event::default() },
    );
    let mut say = |what: What, graph: u64, flags: u8| {
        told.say(what, Event { object: graph.into(), flags, ..Event::default() });
    };
    (1..=4).for_each(|graph| say(What::GraphDestroyed, graph, 0));
    assert_eq!(told.0.execs.dropped_captures, 2);
}

#[test]
fn what_was_made_before_anybody_looked_is_destroyed_and_nothing_more() {
    let mut told = Told::default();
    told.destroy(What::GraphDestroyed, 7);
    told.destroy(What::ExecDestroyed, 8);
    told.say(What::Nodes, Event { object: 7.into(), count: 5.into(), ..Event::default() });
    told.say(What::Updated, Event { object: 8.into(), result: 910.into(), ..Event::default() });
    let execs = &told.0.execs;
    assert_eq!((execs.unknown_destroys, execs.graphs.len(), execs.alive.len()), (2, 0, 0));
}

#[test]
fn handles_and_ids_that_are_used_again_are_the_new_ones() {
    let mut told = Told::default();
    told.graph(1, 10, 3);
    told.exec(2, 11, 1);
    told.destroy(What::ExecDestroyed, 2);
    told.exec(2, 12, 1);
    assert!(told.0.execs.by_id(11).is_none());
    assert_eq!(told.0.execs.by_id(12).map(|exec| exec.made_of.count()), Some(3));
    // A destroy that was missed: the same handle for another executable graph.
    told.exec(2, 13, 1);
    assert!(told.0.execs.by_id(12).is_none());
    assert_eq!((told.0.execs.by_id(13).map(|exec| exec.id), told.0.execs.alive.len()), (Some(13), 1));
}

#[test]
fn an_executable_graph_has_the_nodes_of_its_graph_under_its_own_id() {
    const ALLOCATE: u32 = 10;
    let mut told = Told::default();
    told.graph(1, 10, 0);
    let node = |index: u64, node_type: u32, count: u32| Event {
        object: 1.into(),
        id: 10.into(),
        node: (10 << 32 | index).into(),
        detail: node_type.into(),
        count: count.into(),
        ..Event::default()
    };
    told.say(What::Nodes, node(0, ALLOCATE, 1));
    told.say(What::Nodes, node(1, 0, 3));
    let edge = Event { node: (10 << 32 | 1).into(), other: (10 << 32).into(), ..node(0, 0, 3) };
    told.say(What::Edges, edge);
    told.exec(2, 11, 1);
    told.destroy(What::GraphDestroyed, 1);
    let exec = told.0.execs.by_id(11).unwrap();
    assert_eq!((exec.source_id, exec.made_of.nodes[0], exec.made_of.nodes[ALLOCATE as usize]), (10, 3, 1));
    assert_eq!(exec.made_of.runs.iter().map(|run| run.first).collect::<Vec<_>>(), [11 << 32, 11 << 32 | 1]);
    assert_eq!((exec.made_of.edges[0].first, exec.made_of.edges[0].on), (11 << 32 | 1, 11 << 32));
    told.destroy(What::ExecDestroyed, 2);
    assert_eq!(told.0.execs.kept_allocations, 1, "it allocated and freed nothing");
}

#[test]
fn a_graph_without_nodes_is_a_graph() {
    let mut told = Told::default();
    told.graph(1, 10, 0);
    told.exec(2, 11, 1);
    assert_eq!(told.0.execs.by_id(11).map(|exec| exec.made_of.count()), Some(0));
}

#[test]
fn children_in_children_and_bodies_of_conditions_are_graphs_of_their_own() {
    const CHILD: u32 = 4;
    const CONDITIONAL: u32 = 13;
    let mut told = Told::default();
    told.graph(1, 10, 2);
    let node = |graph: u64, node_type: u32| Event {
        object: graph.into(),
        detail: node_type.into(),
        count: 1.into(),
        ..Event::default()
    };
    // A child is a clone under a handle of its own; so is the body of a condition.
    told.say(
        What::GraphCloned,
        Event { object: 3.into(), id: 11.into(), other: 1.into(), ..Event::default() },
    );
    told.graph(2, 12, 1);
    told.say(What::Nodes, node(2, CHILD));
    told.say(What::Nodes, node(2, CONDITIONAL));
    told.exec(5, 13, 2);
    let exec = told.0.execs.by_id(13).unwrap();
    let of = |node_type: u32| exec.made_of.nodes[node_type as usize];
    assert_eq!((of(0), of(CHILD), of(CONDITIONAL)), (1, 1, 1), "what is inside is not counted twice");
    assert_eq!(told.0.execs.graphs.get(&3).map(execs::Graph::count), Some(2));
}

#[test]
fn a_hundred_thousand_graphs_are_followed_and_leave_nothing_behind() {
    const GRAPHS: u64 = 100_000;
    let mut told = Told::default();
    for round in 0..2 {
        for i in 1..=GRAPHS {
            let id = (round * GRAPHS + i) as u32;
            told.graph(i, 2 * id, 4);
            told.exec(GRAPHS + i, 2 * id + 1, i);
        }
        let execs = &told.0.execs;
        assert_eq!((execs.graphs.len() as u64, execs.alive.len() as u64), (GRAPHS, GRAPHS));
        let last = execs.by_id((2 * (round + 1) * GRAPHS + 1) as u32).unwrap();
        assert_eq!(last.made_of.count(), 4);
        assert_eq!(last.made_of.runs.len(), 1, "in the second round as in the first");
        for i in 1..=GRAPHS {
            told.destroy(What::ExecDestroyed, GRAPHS + i);
            told.destroy(What::GraphDestroyed, i);
        }
    }
    let execs = &told.0.execs;
    assert_eq!((execs.graphs.len(), execs.alive.len(), execs.unknown_destroys), (0, 0, 0));
}

#[test]
fn a_device_that_is_reset_takes_its_graphs_with_it() {
    let mut told = Told::default();
    told.graph(1, 10, 2);
    for (handle, context) in [(2u64, 1u32), (3, 1), (4, 7)] {
        let event = Event {
            object: handle.into(),
            id: (handle as u32 + 100).into(),
            other: 1.into(),
            context: context.into(),
            ..Event::default()
        };
        told.say(What::ExecCreated, event);
    }
    told.say(What::ContextDestroyed, Event { id: 1.into(), ..Event::default() });
    let left: Vec<u64> = told.0.execs.alive.keys().copied().collect();
    assert_eq!(left, [4]);
    // A launch of one of them is a launch after destroy.
    let launch = Event { object: 2.into(), result: 400.into(), ..Event::default() };
    told.say(What::LaunchFailed, launch);
    let misuse = &told.0.execs.launch_after_destroy;
    assert_eq!(misuse.iter().filter_map(|misuse| misuse.gone).map(|gone| gone.id).collect::<Vec<_>>(), [102]);
}

#[test]
fn a_node_that_is_taken_out_is_counted_no_more() {
    let mut told = Told::default();
    told.graph(1, 10, 0);
    let node = |index: u64, count: u32| Event {
        object: 1.into(),
        node: (10 << 32 | index).into(),
        other: (10 << 32 | index).wrapping_sub(1).into(),
        count: count.into(),
        ..Event::default()
    };
    told.say(What::Nodes, node(0, 5));
    told.say(What::Edges, node(1, 4));
    told.exec(2, 11, 1);
    told.say(What::NodeRemoved, node(2, 0));
    told.say(What::NodeRemoved, node(2, 0));
    let graph = &told.0.execs.graphs[&1];
    let runs = |runs: &[Run]| {
        runs.iter().map(|run| (run.first & 0xff, run.on & 0xff, run.count)).collect::<Vec<_>>()
    };
    assert_eq!(graph.count(), 4);
    assert_eq!(runs(&graph.runs).iter().map(|run| (run.0, run.2)).collect::<Vec<_>>(), [(0, 2), (3, 2)]);
    assert_eq!(runs(&graph.edges), [(1, 0, 1), (4, 3, 1)]);
    assert_eq!(told.0.execs.by_id(11).map(|exec| exec.made_of.count()), Some(5), "it was made before");
    told.exec(3, 12, 1);
    assert_eq!(told.0.execs.by_id(12).map(|exec| exec.made_of.count()), Some(4));
    // Nothing is held back of what is gone.
    told.destroy(What::ExecDestroyed, 2);
    told.destroy(What::ExecDestroyed, 3);
    told.say(What::NodeRemoved, node(0, 0));
    told.destroy(What::GraphDestroyed, 1);
    told.say(What::NodeRemoved, node(1, 0));
    assert!(told.0.execs.graphs.is_empty());
}

#[test]
fn an_upload_is_of_its_executable_graph_and_one_that_fails_is_a_failure() {
    let mut told = Told::default();
    told.graph(1, 10, 2);
    told.exec(2, 11, 1);
    for result in [0, 0, 400] {
        told.say(
            What::Uploaded,
            Event { object: 2.into(), result: result.into(), code: 580.into(), ..Event::default() },
        );
    }
    assert_eq!(told.0.execs.by_id(11).map(|exec| exec.uploads), Some(2));
    assert_eq!(
        told.0.failures.groups.iter().map(|group| (group.code, group.count)).collect::<Vec<_>>(),
        [(580, 1)]
    );
}

#[test]
fn a_launch_by_the_device_is_of_no_call_and_its_upload_is_seen() {
    // An executable graph for launches by the device is uploaded by the host; what launches it then is no driver call,
    // so callbacks see no launch of it, and nothing is found of that.
    let mut told = Told::default();
    told.graph(1, 10, 2);
    told.exec(2, 11, 1);
    told.say(What::Uploaded, Event { object: 2.into(), ..Event::default() });
    told.destroy(What::ExecDestroyed, 2);
    let execs = &told.0.execs;
    assert!(execs.launch_after_destroy.is_empty() && told.0.failures.groups.is_empty());
    assert_eq!((execs.launches, execs.unknown_destroys), (0, 0));
}
