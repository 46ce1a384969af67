//! Graphs with nodes whose kind is off, on a CUPTI that never gives their buffers back: told before the first replay.

use gtop_protocol::Kind;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::Severity;

use super::{Facts, found, some};
use crate::model::snapshot::Finding;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    if facts.verdict != Some(Verdict::Defective) || !facts.kinds.has(Kind::Kernel) {
        return Vec::new();
    }
    let uncovered = |nodes: &[u32]| {
        let of = |kind, at: usize| if facts.kinds.has(kind) { 0 } else { nodes[at] };
        of(Kind::Memcpy, 1) + of(Kind::Memset, 2)
    };
    let execs = facts.lifecycle.execs.alive.values();
    let mut graphs: Vec<(u32, u32, u64)> = execs
        .map(|exec| (exec.id, uncovered(&exec.made_of.nodes), exec.created))
        .filter(|(_, nodes, _)| *nodes > 0)
        .collect();
    graphs.sort_unstable();
    let Some((id, nodes, created)) = graphs.first().copied() else { return Vec::new() };
    let finding = found(
        "uncovered_nodes",
        Severity::Alarm,
        created,
        format!(
            "graph {id} has {} whose kind is off: on this CUPTI each replay loses device buffers, which never come back",
            some(nodes as usize, "copy or memset node")
        ),
        "Switch memcpy and memset on before the graph is replayed, and leave them on.",
    );
    vec![finding.with(format!("{} with such nodes", some(graphs.len(), "graph")))]
}
