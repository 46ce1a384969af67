//! Executable graphs that are kept and not launched.

use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::view::units::count;

/// Not launched for this long.
const UNUSED: u64 = 60 * SECOND;
/// Fewer are not worth a word.
const MANY: usize = 8;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let graphs = &facts.work.graphs;
    // Only while others are launched: a server may rest.
    if graphs.last_launch().is_none_or(|last| facts.now.saturating_sub(last) > UNUSED) {
        return Vec::new();
    }
    let execs = facts.lifecycle.execs.alive.values();
    let idle: Vec<_> = execs
        .filter(|exec| {
            let last = graphs.seen_of(exec.id).map_or(exec.created, |seen| seen.last.max(exec.created));
            facts.now.saturating_sub(last) > UNUSED
        })
        .collect();
    if idle.len() < MANY {
        return Vec::new();
    }
    let never = idle.iter().filter(|exec| graphs.seen_of(exec.id).is_none()).count();
    let nodes: u64 = idle.iter().map(|exec| u64::from(exec.count())).sum();
    let oldest = idle.iter().map(|exec| exec.created).min().unwrap_or_default();
    let finding = found(
        "never_launched_again",
        Severity::Info,
        oldest,
        format!(
            "{} executable graphs were not launched for a minute while others are",
            count(idle.len() as u64)
        ),
        "If their shapes no longer come, destroy them; each keeps memory for its nodes.",
    );
    vec![finding.with(format!(
        "{} of them were never launched while gtop looked; {} nodes in all",
        count(never as u64),
        count(nodes)
    ))]
}
