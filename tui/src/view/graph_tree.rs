//! One executable graph as a tree: what it is made of, what lies inside of it, and each node that gave records.

use gtop_protocol::lifecycle::LAST_DEFAULT_STREAM;
use gtop_protocol::node_type;

use super::units;
use crate::model::snapshot::{GraphRow, Inside, NODE_TYPES};

/// Graphs inside of one that are told of.
const GRAPHS_INSIDE: usize = 12;
/// The places of copies and of allocations among types of nodes (`CUgraphNodeType`).
const COPY: usize = 1;
const ALLOCATE: usize = node_type::ALLOCATE as usize;

/// A graph's nodes as a tree: what it is, what it is made of by type, and each node that gave records.
/// `newest` is the newest record's time.
pub(super) fn tree(row: &GraphRow, newest: u64) -> Vec<String> {
    let stream = row.stream.map_or("?".to_owned(), |stream| stream.to_string());
    let mut lines = vec![format!("graph {}  context {}  stream {stream}", row.id, row.context)];
    if row.alive == Some(false) {
        lines.push("├ × destroyed".to_owned());
    }
    if let Some(last) = row.last {
        let ago = units::duration(newest.saturating_sub(last));
        lines.push(format!("├ last launch {ago} before the newest"));
    }
    if let Some(source) = row.source {
        let updates = row.updates.filter(|(all, _)| *all > 0);
        let updates = updates.map_or(String::new(), |(all, failed)| {
            format!(", updated {}, {} failed", units::count(all.into()), units::count(failed.into()))
        });
        lines.push(format!("├ made from graph {source}{updates}"));
    }
    if let Some(thread) = row.thread {
        let uploads = row.uploads.filter(|uploads| *uploads > 0);
        let uploads = uploads
            .map_or_else(String::new, |count| format!(", uploaded {} times", units::count(count.into())));
        lines.push(format!("├ instantiated by thread {thread}{uploads}"));
    }
    if let Some(nodes) = row.nodes_by_type {
        lines.push(format!("├ nodes: {}", by_type(&nodes)));
        lines.extend(copies(row, nodes[COPY]).map(|copies| format!("├ copies: {copies}")));
    }
    for inside in row.inside.iter().take(GRAPHS_INSIDE) {
        lines.push(format!("├ {}", within(inside)));
    }
    if row.inside.len() > GRAPHS_INSIDE {
        lines.push(format!("├ … and {} more inside", row.inside.len() - GRAPHS_INSIDE));
    }
    if let Some(capture) = row.capture {
        lines.push(format!(
            "├ captured in {} by thread {}, {}",
            units::duration(capture.ended.saturating_sub(capture.begun)),
            capture.thread,
            stream_name(capture.stream)
        ));
    }
    lines.extend(memory(row).map(|memory| format!("├ memory: {memory}")));
    for (name, count, share) in &row.shares {
        lines.push(format!(
            "├ {:>6}  {:>4} × {}",
            units::percent(*share),
            units::count((*count).into()),
            name.short
        ));
    }
    let unseen = row
        .nodes_by_type
        .map_or(0, |nodes| nodes.iter().sum::<u32>() as usize)
        .saturating_sub(row.seen_nodes);
    let last = row.nodes.len().saturating_sub(1);
    for (i, node) in row.nodes.iter().enumerate() {
        let bend = if i == last && unseen == 0 { '└' } else { '├' };
        lines.push(format!(
            "{bend}─ {:>4}  {:>8}  {}",
            node.index,
            units::duration(node.ns),
            node.name.short
        ));
    }
    if unseen > 0 && row.last.is_none() && row.nodes.is_empty() {
        lines.push("└─ no launch was seen".to_owned());
    } else if unseen > 0 {
        lines.push(format!("└─ {} gave no record", units::some(unseen, "node")));
    }
    lines
}

/// A graph inside of another one: of which node it is, what it is made of, and which nodes those are.
fn within(inside: &Inside) -> String {
    let node = inside.node.map_or_else(|| "?".to_owned(), |node| node.to_string());
    let count: u32 = inside.nodes.iter().fold(0, |sum, nodes| sum.saturating_add(*nodes));
    let places = match (inside.first, count) {
        (_, 0) => String::new(),
        (Some(first), 1) => format!(", {first}"),
        (Some(first), _) => format!(", {first} to {}", first.saturating_add(count - 1)),
        (None, _) => ", under indices that are not known".to_owned(),
    };
    let made_of = if count == 0 { "nothing".to_owned() } else { by_type(&inside.nodes) };
    format!(
        "{}inside of node {node}: {made_of}{places}",
        "  ".repeat(inside.depth.saturating_sub(1) as usize)
    )
}

/// What is known of the memory that it takes; nothing where its making was not seen.
fn memory(row: &GraphRow) -> Option<String> {
    row.source?;
    let allocates = row.nodes_by_type.is_some_and(|nodes| nodes[ALLOCATE] > 0);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), units::bytes);
    let by_nodes = format!("{} by its nodes", size(row.asks));
    let captured = |allocated| format!("{} allocated in its capture", size(allocated));
    match (row.capture, allocates) {
        (Some(capture), true) => Some(format!("{}, {by_nodes}", captured(capture.allocated))),
        (Some(capture), false) => Some(captured(capture.allocated)),
        (None, true) => Some(by_nodes),
        (None, false) => Some("?".to_owned()),
    }
}

/// Which ways its copies go, as far as records told.
fn copies(row: &GraphRow, all: u32) -> Option<String> {
    let told: u32 = row.copies.iter().map(|(_, count)| count).sum();
    let untold = all.saturating_sub(told);
    let ways = row.copies.iter().map(|(way, count)| format!("{} {way}", units::count((*count).into())));
    let more = (untold > 0).then(|| format!("{} of no record", units::count(untold.into())));
    (told > 0).then(|| ways.chain(more).collect::<Vec<_>>().join(", "))
}

/// A stream by its handle.
fn stream_name(stream: u64) -> String {
    if stream > LAST_DEFAULT_STREAM { format!("stream {stream:#x}") } else { "a default stream".to_owned() }
}

fn by_type(nodes: &[u32; NODE_TYPES]) -> String {
    let named = nodes.iter().zip(0..).filter(|(count, _)| **count > 0);
    named
        .map(|(count, node_type)| format!("{} {}", units::count((*count).into()), node_type::name(node_type)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_as_far_as_it_is_known() {
        use crate::model::snapshot::Captured;
        let capture = |allocated| Captured { begun: 1, ended: 2, stream: 7, thread: 5, allocated };
        let told = |capture: Option<Captured>, nodes: u32, asks: Option<u64>| {
            let mut nodes_by_type = [0; NODE_TYPES];
            nodes_by_type[ALLOCATE] = nodes;
            let row = GraphRow {
                source: Some(1),
                nodes_by_type: Some(nodes_by_type),
                capture,
                asks,
                ..GraphRow::default()
            };
            (memory(&row).unwrap(), row.memory())
        };
        let known = |text: &str, bytes| (text.to_owned(), bytes);
        let mib = 1u64 << 20;
        assert_eq!(
            told(Some(capture(Some(5 * mib))), 0, Some(0)),
            known("5.0 MiB allocated in its capture", Some(5 * mib))
        );
        assert_eq!(
            told(Some(capture(None)), 2, Some(3 * mib)),
            known("? allocated in its capture, 3.0 MiB by its nodes", None)
        );
        assert_eq!(told(None, 2, None), known("? by its nodes", None));
        assert_eq!(told(None, 0, Some(0)), known("?", None));
        assert_eq!(memory(&GraphRow::default()), None, "nobody saw it made");
    }

    #[test]
    fn which_ways_copies_go_is_told_as_far_as_records_tell() {
        let row = GraphRow { copies: vec![("DtoD", 3), ("HtoD", 1)], ..GraphRow::default() };
        assert_eq!(copies(&row, 4).as_deref(), Some("3 DtoD, 1 HtoD"));
        assert_eq!(copies(&row, 6).as_deref(), Some("3 DtoD, 1 HtoD, 2 of no record"));
        assert_eq!(copies(&GraphRow::default(), 6), None);
    }

    #[test]
    fn what_is_inside_of_a_graph_stands_under_its_nodes() {
        let nodes = |kernels: u32, children: u32| {
            let mut nodes = [0; NODE_TYPES];
            (nodes[0], nodes[4]) = (kernels, children);
            nodes
        };
        let inside = |node: u32, first: Option<u32>, nodes, depth| Inside {
            node: Some(node),
            first,
            nodes,
            depth,
            ..Inside::default()
        };
        let row = GraphRow {
            nodes_by_type: Some(nodes(6, 2)),
            inside: vec![
                inside(3, Some(6), nodes(3, 1), 1),
                inside(7, Some(10), nodes(1, 0), 2),
                inside(4, None, nodes(2, 0), 1),
                inside(5, Some(11), nodes(0, 0), 1),
            ]
            .into(),
            ..GraphRow::default()
        };
        let lines = tree(&row, 0);
        let told: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("├ ")).collect();
        assert_eq!(
            told,
            [
                "nodes: 6 kernel, 2 child graph",
                "inside of node 3: 3 kernel, 1 child graph, 6 to 9",
                "  inside of node 7: 1 kernel, 10",
                "inside of node 4: 2 kernel, under indices that are not known",
                "inside of node 5: nothing",
            ]
        );
        assert_eq!(lines.last().unwrap(), "└─ no launch was seen");
        let launched = GraphRow { last: Some(7), ..row };
        assert_eq!(tree(&launched, 9).last().unwrap(), "└─ 8 nodes gave no record");
    }
}
