//! One executable graph as a DOT file, for graphviz.

use std::io::{self, Write};

use gtop_protocol::node_type;
use rustc_hash::FxHashMap;

use crate::model::snapshot::GraphRow;

/// Nodes and edges written of one graph.
const MOST: usize = 1 << 16;

/// Writes the graph: every node that callbacks or records told of, and the dependencies that callbacks did.
pub(crate) fn write(row: &GraphRow, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "digraph \"graph {}\" {{\n  node [shape=box];", row.id)?;
    let seen: FxHashMap<u32, (&str, u64)> =
        row.nodes.iter().map(|node| (node.index, (node.name.short.as_str(), node.ns))).collect();
    let index = |id: u64| (id & 0xffff_ffff) as u32;
    let mut written = 0;
    let mut node = |id: u32, what: &str, out: &mut dyn Write| {
        written += 1;
        if written > MOST {
            return Ok(());
        }
        match seen.get(&id) {
            Some((name, ns)) => writeln!(out, "  n{id} [label=\"{id} {}\\n{ns} ns\"];", quoted(name)),
            None => writeln!(out, "  n{id} [label=\"{id} {what}\"];"),
        }
    };
    match &row.runs {
        Some(runs) => {
            for run in runs.iter() {
                for i in 0..u64::from(run.count).min(MOST as u64) {
                    node(index(run.first + i), node_type::name(run.node_type), out)?;
                }
            }
        }
        None => {
            for seen in row.nodes.iter() {
                node(seen.index, "kernel", out)?;
            }
        }
    }
    for (number, inside) in row.inside.iter().enumerate() {
        let of = inside.node.map_or_else(|| "?".to_owned(), |node| node.to_string());
        writeln!(out, "  subgraph cluster_{number} {{\n  label=\"inside of node {of}\";")?;
        for run in &inside.runs {
            for i in 0..u64::from(run.count).min(MOST as u64) {
                node(index(run.first + i), node_type::name(run.node_type), out)?;
            }
        }
        writeln!(out, "  }}")?;
    }
    match &row.edges {
        Some(edges) if !edges.is_empty() => {
            for run in edges.iter().chain(row.inside.iter().flat_map(|inside| &inside.edges)) {
                for i in 0..u64::from(run.count).min(MOST as u64) {
                    writeln!(out, "  n{} -> n{};", index(run.on + i), index(run.first + i))?;
                }
            }
        }
        _ => writeln!(out, "  // The dependencies were not seen: they need gtop run --early.")?,
    }
    writeln!(out, "}}")
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Inside, KernelName, NodeRow, Run};
    use std::sync::Arc;

    #[test]
    fn nodes_and_edges_are_written_with_their_names() {
        let name = Arc::new(KernelName { short: "gemm<\"x\">".into(), ..KernelName::default() });
        let run = |first: u64, on: u64, count, node_type| Run {
            first: (9 << 32) + first,
            on: (9 << 32) + on,
            count,
            node_type,
        };
        let row = GraphRow {
            id: 9,
            nodes: vec![NodeRow { index: 0, name, is_kernel: true, ns: 1_500 }].into(),
            runs: Some(vec![run(0, 0, 2, 0), run(2, 0, 1, 1)].into()),
            edges: Some(vec![run(1, 0, 2, 0)].into()),
            inside: vec![Inside {
                node: Some(2),
                first: Some(3),
                runs: vec![run(3, 0, 2, 2)],
                edges: vec![run(4, 3, 1, 0)],
                ..Inside::default()
            }]
            .into(),
            ..GraphRow::default()
        };
        let mut out = Vec::new();
        write(&row, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "digraph \"graph 9\" {",
            "  n0 [label=\"0 gemm<\\\"x\\\">\\n1500 ns\"];",
            "  n1 [label=\"1 kernel\"];",
            "  n2 [label=\"2 copy\"];",
            "  n0 -> n1;",
            "  n1 -> n2;",
            "  subgraph cluster_0 {\n  label=\"inside of node 2\";\n  n3 [label=\"3 memset\"];\n",
            "  n3 -> n4;",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
