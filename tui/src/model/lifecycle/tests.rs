//! Lifecycles as they come, whole or in pieces, and as they should not come.

use super::*;
use graph::Run;
use gtop_protocol::lifecycle::MADE_FOR_A_NODE;

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
fn what_a_capture_allocates_is_known_of_what_is_made_of_its_graph() {
    use gtop_protocol::lifecycle::ALLOCATIONS_TOLD;
    const ALLOCATE: u32 = 10;
    let mut told = Told::default();
    let mut say = |what: What, time: u64, event: Event| {
        told.say(what, Event { time: time.into(), thread: 5.into(), stream: 7.into(), ..event });
    };
    let graph = |handle: u64| Event { object: handle.into(), id: (handle as u32).into(), ..Event::default() };
    let end = |handle: u64, detail: u32, bytes: u64| Event {
        detail: detail.into(),
        bytes: bytes.into(),
        ..graph(handle)
    };
    let nodes = |handle: u64, bytes: u64| Event {
        detail: ALLOCATE.into(),
        count: 2.into(),
        ..end(handle, ALLOCATE, bytes)
    };
    // The first has nodes that say what they ask for; of the second the shim does not know.
    for (handle, detail, bytes, asked) in [(1, ALLOCATIONS_TOLD, 96, 30), (2, 0, 0, 0)] {
        say(What::GraphCreated, handle * 10, graph(handle));
        say(What::CaptureBegun, handle * 10 + 1, Event::default());
        say(What::Nodes, handle * 10 + 2, nodes(handle, asked));
        say(What::CaptureEnded, handle * 10 + 3, end(handle, detail, bytes));
    }
    // The first is captured into once more, and has a clone.
    let again = Event { detail: 0.into(), ..Event::default() };
    say(What::GraphCreated, 40, graph(3));
    say(What::GraphCloned, 41, Event { other: 1.into(), ..graph(3) });
    for (exec, of) in [(11u64, 1u64), (12, 2), (13, 3)] {
        say(What::ExecCreated, 50, Event { other: of.into(), ..graph(exec) });
    }
    say(What::CaptureBegun, 60, again);
    say(What::CaptureEnded, 61, end(1, ALLOCATIONS_TOLD, 4));
    say(What::ExecCreated, 62, Event { other: 1.into(), ..graph(14) });
    say(What::CaptureBegun, 63, again);
    say(What::CaptureEnded, 64, end(1, 0, 0));
    say(What::ExecCreated, 65, Event { other: 1.into(), ..graph(15) });
    let memory: Vec<_> = (11..=15)
        .map(|id| {
            let exec = told.0.execs.by_id(id).unwrap();
            (exec.capture().map(|capture| (capture.begun, capture.allocated)), exec.asks())
        })
        .collect();
    let expected = [
        (Some((11, Some(96))), Some(30)),
        (Some((21, None)), None),
        (None, Some(30)),
        (Some((11, Some(100))), Some(30)),
        (Some((11, None)), Some(30)),
    ];
    assert_eq!(memory, expected);
    assert_eq!(told.0.captures.ended[0].allocated, Some(96));
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

/// Child graphs and bodies as CUPTI tells of them.
struct Nested {
    told: Told,
    /// Whether it says the types of nodes. Where it does not (13.0.85), the shim knows the call, whose type all nodes have
    /// that are made within it.
    types: bool,
}

impl Nested {
    /// A graph that the application makes: its handle is its id.
    fn graph(&mut self, id: u64, nodes: &[u32]) {
        self.created(id, 0);
        nodes.iter().zip(0..).for_each(|(node_type, index)| self.node(id, index, *node_type));
    }

    fn created(&mut self, id: u64, detail: u32) {
        let (object, id) = (id.into(), (id as u32).into());
        self.told.say(What::GraphCreated, Event { object, id, detail: detail.into(), ..Event::default() });
    }

    fn node(&mut self, id: u64, index: u64, node_type: u32) {
        let event = Event { object: id.into(), id: (id as u32).into(), ..Event::default() };
        let event = Event { node: (id << 32 | index).into(), detail: node_type.into(), ..event };
        self.told.say(What::Nodes, Event { count: 1.into(), ..event });
    }

    /// Copies the nodes of `of` into `id`, in a call that makes nodes of type `call`. Of a node that has a graph inside
    /// `inner` says which one it is and which its copy will be.
    fn copy(
        &mut self,
        [id, of]: [u64; 2],
        call: u32,
        nodes: &[(u32, Option<[u64; 2]>)],
        inner: &[Copied<'_>],
    ) {
        let mut inner = inner.iter();
        for ((node_type, child), index) in nodes.iter().zip(0..) {
            if let Some(child) = child {
                self.created(child[0], MADE_FOR_A_NODE);
                let Copied(nodes, inner) = inner.next().unwrap();
                self.copy(*child, call, nodes, inner);
            }
            self.node(id, index, if self.types { *node_type } else { call });
            let clone =
                Event { object: id.into(), id: (id as u32).into(), other: of.into(), ..Event::default() };
            self.told.say(What::GraphCloned, clone);
        }
    }
}

/// The nodes of a graph that is copied, and those of the graphs inside of it.
struct Copied<'a>(&'a [(u32, Option<[u64; 2]>)], &'a [Copied<'a>]);

#[test]
fn child_graphs_are_found_inside_of_each_other_and_numbered_as_records_number_them() {
    const KERNEL: u32 = 0;
    const CHILD: u32 = 4;
    for types in [false, true] {
        let mut nested = Nested { told: Told::default(), types };
        // Measured on 13.0.85 and 13.5.25: E has one kernel, A two, D two; B is D, a kernel and E; and the whole is E, A, a
        // kernel, B, A again and a kernel.
        let (plain, two) = ((KERNEL, None), [(KERNEL, None); 2]);
        nested.graph(1, &[KERNEL; 2]);
        nested.graph(2, &[KERNEL; 2]);
        nested.graph(3, &[KERNEL]);
        nested.created(4, 0);
        let mut next = 10;
        let mut child = |nested: &mut Nested,
                         [of, index, own]: [u64; 3],
                         nodes: &[(u32, Option<[u64; 2]>)],
                         inner: &[Copied<'_>]| {
            nested.created(next, MADE_FOR_A_NODE);
            nested.copy([next, own], CHILD, nodes, inner);
            nested.node(of, index, CHILD);
            next += 1;
        };
        child(&mut nested, [4, 0, 2], &two, &[]);
        nested.node(4, 1, KERNEL);
        child(&mut nested, [4, 2, 3], &[plain], &[]);
        nested.created(5, 0);
        child(&mut nested, [5, 0, 3], &[plain], &[]);
        child(&mut nested, [5, 1, 1], &two, &[]);
        nested.node(5, 2, KERNEL);
        let b = [(CHILD, Some([20, 10])), plain, (CHILD, Some([21, 11]))];
        child(&mut nested, [5, 3, 4], &b, &[Copied(&two, &[]), Copied(&[plain], &[])]);
        child(&mut nested, [5, 4, 1], &two, &[]);
        nested.node(5, 5, KERNEL);
        nested.told.exec(7, 7, 5);
        let exec = nested.told.0.execs.by_id(7).unwrap();
        assert_eq!((exec.nodes()[0], exec.nodes()[4], exec.count()), (11, 6, 17), "types: {types}");
        let places: Vec<_> =
            exec.inside.iter().map(|inside| (inside.node, inside.first, inside.depth)).collect();
        let at = |node, first, depth| (Some(node), Some(first), depth);
        let expected = [at(0, 6, 1), at(1, 7, 1), at(3, 9, 1), at(9, 12, 2), at(11, 14, 2), at(4, 15, 1)];
        assert_eq!(places, expected, "types: {types}");
        let last = exec.inside.last().unwrap().runs.last().unwrap();
        assert_eq!((last.first + u64::from(last.count) - 1, last.node_type), (7 << 32 | 16, 0));
        // Nothing is left behind when it goes with everything in it.
        nested.told.destroy(What::ExecDestroyed, 7);
        for graph in [1, 2, 3, 4, 5, 20, 21].into_iter().chain(10..next) {
            nested.told.destroy(What::GraphDestroyed, graph);
        }
        let execs = &nested.told.0.execs;
        assert_eq!((execs.graphs.len(), execs.unknown_destroys), (0, 0));
    }
}

#[test]
fn a_clone_has_graphs_of_its_own_inside_and_a_graph_that_was_changed_no_known_indices() {
    const CHILD: u32 = 4;
    for types in [false, true] {
        let mut nested = Nested { told: Told::default(), types };
        nested.graph(1, &[0; 2]);
        nested.created(2, 0);
        nested.created(10, MADE_FOR_A_NODE);
        nested.copy([10, 1], CHILD, &[(0, None); 2], &[]);
        nested.node(2, 0, CHILD);
        // The clone itself is made for no node, and its call says no types.
        nested.created(3, 0);
        nested.copy([3, 2], 0, &[(CHILD, Some([11, 10]))], &[Copied(&[(0, None); 2], &[])]);
        nested.told.destroy(What::GraphDestroyed, 2);
        nested.told.destroy(What::GraphDestroyed, 10);
        nested.told.exec(7, 7, 3);
        let inside = |nested: &Nested, id: u32| {
            let exec = nested.told.0.execs.by_id(id).unwrap();
            exec.inside.iter().map(|inside| (inside.node, inside.first, inside.nodes[0])).collect::<Vec<_>>()
        };
        assert_eq!(inside(&nested, 7), [(Some(0), Some(1), 2)], "types: {types}");
        let removed = Event { object: 11.into(), node: (11 << 32 | 1).into(), ..Event::default() };
        nested.told.say(What::NodeRemoved, removed);
        nested.told.exec(8, 8, 3);
        assert_eq!(inside(&nested, 8), [(Some(0), None, 1)]);
        nested
            .told
            .say(What::NodeRemoved, Event { object: 3.into(), node: (3 << 32).into(), ..Event::default() });
        nested.told.exec(9, 9, 3);
        assert_eq!(inside(&nested, 9), []);
    }
}

#[test]
fn behind_a_child_that_was_not_told_no_index_is_known() {
    let mut nested = Nested { told: Told::default(), types: true };
    nested.created(2, 0);
    nested.node(2, 0, 4);
    nested.graph(10, &[0; 2]);
    nested.told.destroy(What::GraphDestroyed, 10);
    nested.created(11, MADE_FOR_A_NODE);
    nested.node(11, 0, 0);
    nested.node(2, 1, 4);
    nested.told.exec(7, 7, 2);
    let exec = nested.told.0.execs.by_id(7).unwrap();
    let places: Vec<_> = exec.inside.iter().map(|inside| (inside.node, inside.first)).collect();
    assert_eq!(places, [(Some(1), None)]);
}

#[test]
fn bodies_of_conditional_nodes_are_inside_of_them_and_may_have_children() {
    const CHILD: u32 = 4;
    const CONDITIONAL: u32 = 13;
    let mut nested = Nested { told: Told::default(), types: true };
    // Measured: a kernel, an IF with two kernels and a child of two, an IF with an ELSE of one kernel each, a kernel.
    nested.graph(1, &[0; 2]);
    nested.graph(2, &[0]);
    nested.created(10, MADE_FOR_A_NODE);
    nested.node(2, 1, CONDITIONAL);
    nested.node(10, 0, 0);
    nested.node(10, 1, 0);
    nested.created(11, MADE_FOR_A_NODE);
    nested.copy([11, 1], CHILD, &[(0, None); 2], &[]);
    nested.node(10, 2, CHILD);
    nested.created(12, MADE_FOR_A_NODE);
    nested.created(13, MADE_FOR_A_NODE);
    nested.node(2, 2, CONDITIONAL);
    nested.node(12, 0, 0);
    nested.node(13, 0, 0);
    nested.node(2, 3, 0);
    nested.told.exec(7, 7, 2);
    let exec = nested.told.0.execs.by_id(7).unwrap();
    let places: Vec<_> =
        exec.inside.iter().map(|inside| (inside.node.unwrap(), inside.first.unwrap())).collect();
    assert_eq!(places, [(1, 4), (6, 7), (2, 9), (2, 10)]);
    assert_eq!(exec.nodes()[0], 8);
}

#[test]
fn graphs_inside_of_themselves_and_without_end_are_bounded() {
    let mut nested = Nested { told: Told::default(), types: true };
    // Nonsense that a recording may hold: each graph is made for a node of the next one, and the first for one of the last.
    for id in 1..=3000 {
        nested.created(id, MADE_FOR_A_NODE);
        nested.node(id + 1, 0, 4);
        nested.node(id, 0, 13);
    }
    nested.node(1, 0, 13);
    for id in 1..=3000 {
        nested.told.exec(10_000 + id, 10_000 + id as u32, id);
    }
    assert!(nested.told.0.execs.alive.values().all(|exec| exec.inside.len() <= 1024));
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
