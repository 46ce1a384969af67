//! Executable graphs that were launched after memory their nodes point to was freed.

use gtop_protocol::calls::call_name;
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::lifecycle::execs::Exec;
use crate::model::lifecycle::pointers::{Freed, Pointer};
use crate::model::snapshot::Finding;
use crate::view::units::count;

/// How far the clocks of records and of the host may be apart, nanoseconds.
const CLOCKS: u64 = 5_000_000;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let lifecycle = facts.lifecycle;
    // An allocation that was not told would make a false alarm.
    if !lifecycle.pointers.any() || lifecycle.observers.is_some_and(|seen| seen.lost > 0) {
        return Vec::new();
    }
    let mut graphs: Vec<(&Exec, &Pointer, &Freed, u64)> = lifecycle
        .execs
        .alive
        .values()
        .filter_map(|exec| {
            let last = facts.work.graphs.seen_of(exec.id)?.last;
            let dangling = lifecycle.pointers.dangling(exec.handle);
            let (node, freed) = dangling.max_by_key(|(_, freed)| std::cmp::Reverse(freed.time))?;
            (last > freed.time.saturating_add(CLOCKS)).then_some((exec, node, freed, last))
        })
        .collect();
    graphs.sort_unstable_by_key(|(exec, ..)| exec.id);
    let Some((exec, node, freed, last)) = graphs.first().copied() else { return Vec::new() };
    let finding = found(
        "freed_memory_in_graph",
        Severity::Alarm,
        freed.time,
        format!(
            "graph {} was launched after memory was freed that its nodes point to: {} bytes at {:#x}, of {}",
            exec.id,
            count(node.bytes),
            node.address,
            call_name(node.code)
        ),
        "Keep what a graph reads and writes while it may be launched, or capture it again. Only copies and memory sets \
         are looked at: what kernels point to is not told.",
    );
    vec![
        finding
            .with(format!(
                "{} bytes at {:#x} freed by {} on thread {}, {}",
                count(freed.bytes),
                freed.address,
                call_name(freed.code),
                freed.thread,
                facts.ago(freed.time)
            ))
            .with(format!("last launched {}; {} such graphs", facts.ago(last), count(graphs.len() as u64))),
    ]
}
