//! Memory reserved for graphs and pools that nobody uses, as the driver tells it.

use gtop_protocol::message::Severity;

use super::{Facts, found, mib};
use crate::model::lifecycle::execs::ALLOCATE;
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::view::units::count;

/// Less is not worth a word, bytes.
const GRAPHS: u64 = 64 << 20;
const POOLS: u64 = 512 << 20;
/// For how long no graph must have needed it.
const UNUSED: u64 = 30 * SECOND;
/// The first types of nodes leave records: kernels, copies, memsets (`CUgraphNodeType`).
const RECORDED: usize = 3;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let needed_since = needed_since(facts);
    for memory in &facts.lifecycle.memory {
        let since = memory.reserved_since.zip(needed_since).map(|(since, needed)| since.max(needed));
        let long = since.is_some_and(|since| facts.now.saturating_sub(since) >= UNUSED);
        if memory.graph_reserved >= GRAPHS && long {
            findings.push(
                found(
                    "graph_memory_unused",
                    Severity::Warning,
                    since.unwrap_or_default(),
                    format!(
                        "{} of device {} stay reserved for graphs, and no graph that allocates was launched, created or \
                         destroyed for {} s",
                        mib(memory.graph_reserved),
                        memory.device,
                        count(facts.now.saturating_sub(since.unwrap_or_default()) / SECOND)
                    ),
                    "Trim it when no graph runs: cuDeviceGraphMemTrim.",
                )
                .with(format!(
                    "reserved {}, of which the driver counts {} as used: freed memory counts until it is trimmed",
                    mib(memory.graph_reserved),
                    mib(memory.graph_used)
                )),
            );
        }
        let unused = memory.pool_reserved.saturating_sub(memory.pool_used);
        if unused >= POOLS {
            findings.push(
                found(
                    "pool_memory_unused",
                    Severity::Info,
                    0,
                    format!(
                        "the default memory pool of device {} reserves {} that is not in use",
                        memory.device,
                        mib(unused)
                    ),
                    "Lower its release threshold, or trim it (cuMemPoolTrimTo).",
                )
                .with(format!(
                    "reserved {}, used {}",
                    mib(memory.pool_reserved),
                    mib(memory.pool_used)
                )),
            );
        }
    }
    findings
}

/// Since when no graph has needed what graphs reserve, as far as is known; nothing while one does, or may do so unseen.
fn needed_since(facts: &Facts<'_>) -> Option<u64> {
    let execs = &facts.lifecycle.execs;
    // What was never freed cannot be trimmed either; that is a finding of its own.
    if execs.kept_allocations > 0 {
        return None;
    }
    let mut last = execs.last_allocating;
    for exec in execs.alive.values().filter(|exec| exec.nodes()[ALLOCATE] > 0) {
        // Records tell of launches, and only of graphs with kernels, copies or memsets in them.
        if exec.nodes()[..RECORDED].iter().all(|nodes| *nodes == 0) {
            return None;
        }
        last = last.max(facts.work.graphs.seen_of(exec.id).map_or(0, |seen| seen.last));
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lifecycle::{DeviceMemory, Lifecycle};
    use crate::model::work::Work;

    fn rules(lifecycle: &Lifecycle, now: u64) -> Vec<&'static str> {
        let facts = Facts {
            now: now * SECOND,
            work: &Work::new(1 << 20),
            lifecycle,
            kinds: &crate::model::snapshot::Kinds::default(),
            verdict: None,
            cure: "",
            pools: &[],
            memory: None,
            memory_total: None,
            unified: None,
        };
        rule(&facts).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn what_graphs_reserve_is_unused_once_none_needs_it() {
        let mut lifecycle = Lifecycle::default();
        let reserved = DeviceMemory {
            graph_used: 512 << 20,
            graph_reserved: 512 << 20,
            reserved_since: Some(10 * SECOND),
            ..DeviceMemory::default()
        };
        lifecycle.memory.push(reserved);
        assert!(rules(&lifecycle, 39).is_empty());
        // The driver counts it as used, as measured.
        assert_eq!(rules(&lifecycle, 40), ["graph_memory_unused"]);
        lifecycle.execs.last_allocating = 20 * SECOND;
        assert!(rules(&lifecycle, 49).is_empty(), "a graph that allocated went only then");
        assert_eq!(rules(&lifecycle, 50), ["graph_memory_unused"]);
        lifecycle.execs.kept_allocations = 1;
        assert!(rules(&lifecycle, 50).is_empty(), "no trimming helps");
        lifecycle.execs.kept_allocations = 0;
        lifecycle.memory[0].graph_reserved = 32 << 20;
        assert!(rules(&lifecycle, 50).is_empty(), "too little");
    }
}
