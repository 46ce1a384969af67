//! Graphs with nodes whose kind is off, on a CUPTI that never gives their buffers back: told before the first replay. A
//! copy from or to the host keeps none, and which way a node copies only a record tells.

use gtop_protocol::Kind;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::{PoolState, Severity};

use super::{Facts, found, some};
use crate::model::snapshot::{Finding, Pool};

/// Replays after which the pool model knows what it can.
const REPLAYED: u64 = 1_000;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    if facts.verdict != Some(Verdict::Defective) || !facts.kinds.enabled.has(Kind::Kernel) {
        return Vec::new();
    }
    let off = |nodes: u32, kind| if facts.kinds.enabled.has(kind) { 0 } else { nodes };
    let execs = facts.lifecycle.execs.alive.values();
    let mut graphs: Vec<Uncovered> = execs
        .map(|exec| Uncovered {
            id: exec.id,
            copies: off(exec.nodes()[1], Kind::Memcpy),
            memsets: off(exec.nodes()[2], Kind::Memset),
            created: exec.created,
        })
        .filter(|graph| graph.memsets > 0 || (graph.copies > 0 && !is_harmless(facts, graph.id)))
        .collect();
    // What is sure comes first.
    graphs.sort_unstable_by_key(|graph| (graph.memsets == 0, graph.id));
    let Some(first) = graphs.first() else { return Vec::new() };
    let id = first.id;
    let leaks = |pool: &Pool| matches!(pool.state, PoolState::Leaking | PoolState::Exhausted);
    // From the first replay on (measured, 13.0.85).
    let replayed =
        |graph: &Uncovered| facts.work.graphs.seen_of(graph.id).is_some_and(|seen| seen.launches > 0);
    let begun = graphs.iter().any(replayed) || facts.pools.iter().any(|pool| leaks(pool) || pool.in_doubt);
    let (severity, sentence) = if first.memsets > 0 || facts.pools.iter().any(leaks) {
        let nodes = some((first.copies + first.memsets) as usize, "copy or memset node");
        let what = "on this CUPTI each replay loses device buffers, which never come back";
        (Severity::Alarm, format!("graph {id} has {nodes} whose kind is off: {what}"))
    } else {
        let nodes = some(first.copies as usize, "copy node");
        let what = "should they copy within the device, each replay loses device buffers on this CUPTI, which never come \
                    back";
        (Severity::Warning, format!("graph {id} has {nodes} whose kind is off: {what}"))
    };
    let next = if begun {
        format!(
            "To switch memcpy and memset on undoes nothing any more. Restart the process with both on from the start, or \
             with a sound CUPTI: {}.",
            facts.cure
        )
    } else {
        "Switch memcpy and memset on before the graph is replayed, and leave them on.".to_owned()
    };
    let finding = found("uncovered_nodes", severity, first.created, sentence, &next);
    vec![finding.with(format!("{} with such nodes", some(graphs.len(), "graph")))]
}

/// A graph, and its nodes of kinds that are off.
struct Uncovered {
    id: u32,
    copies: u32,
    memsets: u32,
    created: u64,
}

/// Whether a graph was replayed, and no pool leaks or may leak: its copies are from or to the host then.
fn is_harmless(facts: &Facts<'_>, id: u32) -> bool {
    let replayed = facts.work.graphs.seen_of(id).is_some_and(|seen| seen.launches >= REPLAYED);
    let well = |pool: &Pool| !pool.in_doubt && matches!(pool.state, PoolState::Safe | PoolState::Unknown);
    replayed && !facts.pools.is_empty() && facts.pools.iter().all(well)
}
