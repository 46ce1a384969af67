//! Graphs and their nodes, as the driver and CUPTI tell of them.

use super::*;

/// What CUPTI tells of a graph: the handles' low halves are their ids.
pub(super) fn graph(observe: &Observe, id: u32, graph: u64, node: u64, node_type: u32, exec: u64) {
    let handle = |value: u64| core::ptr::with_exposed_provenance_mut(value as usize);
    let data = GraphData {
        graph: handle(graph),
        original_graph: handle(0),
        node: handle(node),
        original_node: handle(0),
        node_type,
        dependency: handle(0),
        exec: handle(exec),
    };
    on_graph(observe, id, &data, Event::default());
}

pub(super) fn with_ids() -> &'static Observe {
    unsafe extern "C" fn id(handle: *mut c_void, id: *mut u32) -> u32 {
        // SAFETY: the caller's own number.
        unsafe { *id = handle as usize as u32 };
        0
    }
    unsafe extern "C" fn node_id(handle: *mut c_void, id: *mut u64) -> u32 {
        // SAFETY: the caller's own number.
        unsafe { *id = handle as usize as u64 };
        0
    }
    let functions =
        Functions { graph: Some(id), exec: Some(id), node: Some(node_id), ..Functions::default() };
    let observe = observers_with(functions);
    observe.types_by_calls.store(true, Relaxed);
    observe
}

#[test]
fn the_drivers_own_graphs_are_left_out_and_types_follow_from_calls() {
    let observe = with_ids();
    let inside = |code: u32, body: &dyn Fn()| {
        call(observe, code, 0, &[0; 6], 0);
        body();
        call(observe, code, 1, &[0; 6], 0);
    };
    let node = |graph: u64, index: u64| graph << 32 | index;
    // An allocation, a memory set and a free, as 13.0.85 tells them (measured): every type is 0.
    call(observe, 539, 1, &[7, 0], 0);
    graph(observe, resource::GRAPH_CREATED, 1, 0, 0, 0);
    inside(598, &|| graph(observe, resource::NODE_CREATED, 1, node(1, 0), 0, 0));
    inside(216, &|| graph(observe, resource::NODE_CREATED, 1, node(1, 1), 0, 0));
    inside(600, &|| graph(observe, resource::NODE_CREATED, 1, node(1, 2), 0, 0));
    inside(307, &|| graph(observe, resource::NODE_CREATED, 1, node(1, 3), 0, 0));
    graph(observe, resource::NODE_CREATED, 1, node(1, 4), 2, 0);
    call(observe, 497, 1, &[7, 0], 0);
    // Instantiating it makes two more graphs with nodes of their own; destroying it takes them away.
    inside(643, &|| {
        graph(observe, resource::GRAPH_CREATED, 2, 0, 0, 0);
        graph(observe, resource::NODE_CREATED, 2, node(2, 1), 0, 0);
        graph(observe, resource::GRAPH_CREATED, 3, 0, 0, 0);
        graph(observe, resource::EXEC_CREATED, 1, 0, 0, 2);
    });
    graph(observe, resource::GRAPH_DESTROY_STARTING, 1, 0, 0, 0);
    inside(516, &|| {
        graph(observe, resource::EXEC_DESTROY_STARTING, 0, 0, 0, 2);
        graph(observe, resource::GRAPH_DESTROY_STARTING, 2, 0, 0, 0);
        graph(observe, resource::GRAPH_DESTROY_STARTING, 3, 0, 0, 0);
    });
    assert_eq!(
        told(observe),
        [
            (What::GraphCreated, 1, 0, 0),
            (What::Nodes, 1, node(1, 0), 10),
            (What::Nodes, 1, node(1, 1), 2),
            (What::Nodes, 1, node(1, 2), 11),
            (What::Nodes, 1, node(1, 3), 0),
            (What::Nodes, 1, node(1, 4), 2),
            (What::ExecCreated, 2, 1, 0),
            (What::GraphDestroyed, 1, 0, 0),
            (What::ExecDestroyed, 2, 0, 0),
        ]
    );
    let counted = observe.counted(0);
    assert_eq!((counted.graphs, counted.graphs_destroyed), (1, 1));
    assert_eq!((counted.execs, counted.execs_destroyed), (1, 1));
}

#[test]
fn graphs_inside_of_others_are_told_as_such_and_clones_as_clones() {
    let observe = with_ids();
    let cloned = |graph: usize, of: usize, node: usize| {
        let handle = core::ptr::with_exposed_provenance_mut::<c_void>;
        let data = GraphData {
            graph: handle(graph),
            original_graph: handle(of),
            node: handle(node),
            original_node: handle(0),
            node_type: 0,
            dependency: handle(0),
            exec: handle(0),
        };
        on_graph(observe, resource::NODE_CLONED, &data, Event::default());
    };
    // As 13.0.85 tells of them (measured): no type says that a node is a child.
    graph(observe, resource::GRAPH_CREATED, 1, 0, 0, 0);
    call(observe, 525, 0, &[0; 6], 0);
    graph(observe, resource::GRAPH_CREATED, 2, 0, 0, 0);
    for index in 0..3 {
        graph(observe, resource::NODE_CREATED, 2, 2 << 32 | index, 0, 0);
        cloned(2, 9, 2 << 32 | index as usize);
    }
    graph(observe, resource::NODE_CREATED, 1, 1 << 32, 0, 0);
    call(observe, 525, 1, &[0; 6], 0);
    call(observe, 523, 0, &[0; 6], 0);
    graph(observe, resource::GRAPH_CREATED, 3, 0, 0, 0);
    graph(observe, resource::GRAPH_CREATED, 4, 0, 0, 0);
    cloned(4, 2, 4 << 32);
    cloned(3, 1, 3 << 32);
    graph(observe, resource::GRAPH_CLONED, 3, 0, 0, 0);
    call(observe, 523, 1, &[0; 6], 0);
    graph(observe, resource::GRAPH_CREATED, 5, 0, 0, 0);
    let events: Vec<Event> = core::iter::from_fn(|| observe.pop()).collect();
    let of = |what: What| {
        let events = events.iter().filter(move |event| event.what == what as u8);
        events.map(|event| (event.id.get(), event.other.get(), event.detail.get())).collect::<Vec<_>>()
    };
    let inside = MADE_FOR_A_NODE;
    assert_eq!(of(What::GraphCreated), [(1, 0, 0), (2, 0, inside), (3, 0, 0), (4, 0, inside), (5, 0, 0)]);
    assert_eq!(of(What::GraphCloned), [(2, 9, 0), (4, 2, 0), (3, 1, 0), (3, 0, 0)]);
    assert_eq!(observe.counted(0).graphs, 5, "a clone is counted once");
}

#[test]
fn kernels_of_a_child_stay_kernels_where_cupti_tells_types() {
    let observe = with_ids();
    observe.types_by_calls.store(false, Relaxed);
    call(observe, 525, 0, &[0; 6], 0);
    graph(observe, resource::GRAPH_CREATED, 2, 0, 0, 0);
    graph(observe, resource::NODE_CREATED, 2, 2 << 32, 0, 0);
    graph(observe, resource::NODE_CREATED, 1, 1 << 32, 4, 0);
    call(observe, 525, 1, &[0; 6], 0);
    let expected = [
        (What::GraphCreated, 2, 0, MADE_FOR_A_NODE),
        (What::Nodes, 2, 2 << 32, 0),
        (What::Nodes, 1, 1 << 32, 4),
    ];
    assert_eq!(told(observe), expected);
}

#[test]
fn the_node_of_a_copy_is_told_with_the_call_that_made_it() {
    let observe = with_ids();
    call(observe, 539, 1, &[7, 0], 0);
    for (index, code) in [(0, 281), (1, 277), (2, 216)] {
        call(observe, code, 0, &[0; 6], 0);
        graph(observe, resource::NODE_CREATED, 1, 1 << 32 | index, 0, 0);
        call(observe, code, 1, &[0; 6], 0);
    }
    let events = core::iter::from_fn(|| observe.pop());
    let nodes = events.filter(|event| event.what == What::Nodes as u8);
    let told: Vec<_> = nodes.map(|event| (event.detail.get(), event.code.get())).collect();
    assert_eq!(told, [(1, 281), (1, 277), (2, 0)]);
}

#[test]
fn a_node_is_gone_when_it_is_taken_out_and_not_when_its_graph_goes() {
    let observe = with_ids();
    call(observe, 522, 0, &[1], 0);
    graph(observe, resource::NODE_DESTROY_STARTING, 1, 1 << 32 | 4, 0, 0);
    call(observe, 522, 1, &[1], 0);
    graph(observe, resource::NODE_DESTROY_STARTING, 1, 1 << 32 | 5, 0, 0);
    let events: Vec<Event> = core::iter::from_fn(|| observe.pop()).collect();
    let [event] = events[..] else { panic!("{events:?}") };
    assert_eq!((event.what, event.node.get(), event.object.get()), (What::NodeRemoved as u8, 1 << 32 | 4, 1));
}

#[test]
fn nodes_of_calls_that_are_not_watched_any_more_are_of_no_known_type() {
    let observe = with_ids();
    graph(observe, resource::NODE_CREATED, 1, 1 << 32, 0, 0);
    observe.given_up.store(Class::Launches.bit(), Relaxed);
    graph(observe, resource::NODE_CREATED, 1, 1 << 32 | 1, 0, 0);
    graph(observe, resource::NODE_CREATED, 1, 1 << 32 | 2, 2, 0);
    let types: Vec<u32> = told(observe).iter().map(|told| told.3).collect();
    assert_eq!(types, [0, UNKNOWN_TYPE, 2]);
    assert_eq!(observe.counted(0).kernels_given_up, 1);
}

#[test]
fn memory_that_a_node_points_to_is_told_when_it_is_freed() {
    let observe = observers();
    let allocate = |address: u64, bytes: u64| {
        call(observe, 243, 1, &[(&raw const address) as u64, bytes], 0);
    };
    let free = |address: u64, result: u32| {
        call(observe, 245, 0, &[address], 0);
        call(observe, 245, 1, &[address], result);
    };
    allocate(0x7f00_0000_0000, 4096);
    allocate(0x7f00_0000_1000, 4096);
    call(observe, 216, 1, &[0x7f00_0000_0000, 0, 16, 7], 0);
    call(observe, 539, 1, &[7, 0], 0);
    call(observe, 281, 1, &[0x7f00_0000_0100, 0x7f00_0000_5000, 16, 7], 0);
    call(observe, 497, 1, &[7, 0], 0);
    // One that fails, one elsewhere, and the one.
    free(0x7f00_0000_0000, 700);
    free(0x7f00_0000_1000, 0);
    free(0x7f00_0000_0000, 0);
    allocate(0x7f00_0000_0000, 8192);
    call(observe, 563, 1, &[0xe0, 0xd0], 0);
    call(observe, 563, 1, &[0xe0, 0xd0], 0);
    free(0x7f00_0000_0000, 0);
    let told: Vec<(What, u64, u64)> = core::iter::from_fn(|| observe.pop())
        .map(|event| (What::from_wire(event.what).unwrap(), event.object.get(), event.bytes.get()))
        .filter(|(what, ..)| !matches!(what, What::CaptureBegun | What::CaptureEnded))
        .collect();
    assert_eq!(
        told,
        [
            (What::NodeMemory, 0x7f00_0000_0100, 16),
            (What::Call, 0x7f00_0000_0000, 0),
            (What::Freed, 0x7f00_0000_0000, 4096),
            (What::Allocated, 0x7f00_0000_0000, 8192),
            (What::NodesSet, 0xe0, 0),
        ]
    );
}
