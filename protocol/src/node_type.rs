//! Types of graph nodes (`CUgraphNodeType` of `cuda.h`).

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
pub const CHILD: u32 = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub const ALLOCATE: u32 = 10;
/// `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub const FREE: u32 = 11;
/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
pub const CONDITIONAL: u32 = 13;

/// Whether nodes of this type have graphs inside: a child graph, or the bodies of a condition.
#[must_use]
pub const fn holds_graphs(node_type: u32) -> bool {
    matches!(node_type, CHILD | CONDITIONAL)
}

/// Its name, for people.
#[must_use]
pub const fn name(node_type: u32) -> &'static str {
    match node_type {
        0 => "kernel",
        1 => "copy",
        2 => "memset",
        3 => "host",
        CHILD => "child graph",
        5 => "empty",
        6 => "wait for event",
        7 => "record event",
        8 => "signal semaphore",
        9 => "wait for semaphore",
        ALLOCATE => "allocate",
        FREE => "free",
        12 => "batch of memory operations",
        CONDITIONAL => "conditional",
        _ => "other",
    }
}
