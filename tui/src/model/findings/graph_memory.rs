//! Memory reserved for graphs and pools that nobody uses, as the driver tells it.

use gtop_protocol::message::Severity;

use super::{Facts, found, mib};
use crate::model::lifecycle::execs::{ALLOCATE, Exec};
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;

/// Less is not worth a word, bytes.
const GRAPHS: u64 = 64 << 20;
const POOLS: u64 = 512 << 20;
/// For how long it must stand unused.
const UNUSED: u64 = 30 * SECOND;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // A graph that is launched needs what it allocates again and again, used at this moment or not.
    let launched = |exec: &Exec| {
        let last = facts.work.graphs.seen_of(exec.id).map(|seen| seen.last);
        last.is_some_and(|last| facts.now.saturating_sub(last) < UNUSED)
    };
    let mut allocating = facts.lifecycle.execs.alive.values().filter(|exec| exec.made_of.nodes[ALLOCATE] > 0);
    let needed = allocating.any(launched);
    for memory in &facts.lifecycle.memory {
        let unused = memory.graph_reserved.saturating_sub(memory.graph_used);
        let long = memory.unused_since.is_some_and(|since| facts.now.saturating_sub(since) >= UNUSED);
        if unused >= GRAPHS && long && !needed {
            findings.push(
                found(
                    "graph_memory_unused",
                    Severity::Warning,
                    memory.unused_since.unwrap_or_default(),
                    format!(
                        "graphs of device {} reserve {} that they do not use, and it was not trimmed",
                        memory.device,
                        mib(unused.cast_signed())
                    ),
                    "Trim it when no graph runs: cuDeviceGraphMemTrim.",
                )
                .with(format!(
                    "reserved {}, used {}",
                    mib(memory.graph_reserved.cast_signed()),
                    mib(memory.graph_used.cast_signed())
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
                        mib(unused.cast_signed())
                    ),
                    "Lower its release threshold, or trim it (cuMemPoolTrimTo).",
                )
                .with(format!(
                    "reserved {}, used {}",
                    mib(memory.pool_reserved.cast_signed()),
                    mib(memory.pool_used.cast_signed())
                )),
            );
        }
    }
    findings
}
