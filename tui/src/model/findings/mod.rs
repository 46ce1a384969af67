//! Findings: small rules over what is known of a process, each with a name, a sentence, its evidence and a next step.
//! They hold nothing: asked again, they say what is so now.

mod captures;
mod dropped;
mod failures;
mod freed;
mod graph_memory;
mod growth;
mod host_memory;
mod idle;
mod implicit;
mod launch_bound;
mod lazy;
mod legacy;
mod memory;
mod misuse;
mod pools;
mod refused;
mod shapes;
#[cfg(test)]
mod tests;
mod uncovered;
mod unused;
mod updates;

use gtop_protocol::cupti::Verdict;
use gtop_protocol::message::Severity;

use super::lifecycle::Lifecycle;
use super::snapshot::{Device, Finding, Kinds, Pool};
use super::time::SECOND;
use super::trend::Trend;
use super::work::Work;
use crate::view::units::{count, mib};

/// What rules look at.
pub(super) struct Facts<'a> {
    /// The present, `CLOCK_REALTIME` nanoseconds.
    pub(super) now: u64,
    pub(super) work: &'a Work,
    pub(super) lifecycle: &'a Lifecycle,
    pub(super) kinds: &'a Kinds,
    pub(super) verdict: Option<Verdict>,
    /// How to get a sound CUPTI.
    pub(super) cure: &'static str,
    /// CUPTI's pools of device buffers, one a context.
    pub(super) pools: &'a [Pool],
    /// Memory of this process over time, of the device where it has most.
    pub(super) memory: Option<&'a Trend>,
    /// Total memory of that device, bytes.
    pub(super) memory_total: Option<u64>,
    /// A device that shares its memory with the host.
    pub(super) unified: Option<&'a Device>,
}

impl Facts<'_> {
    /// The name of a kernel, as a person would say it.
    fn kernel(&self, id: u32) -> Option<String> {
        self.work.kernels.known(id).map(|name| name.short.clone())
    }

    /// How long ago, in words.
    fn ago(&self, time: u64) -> String {
        format!("{} s ago", count(self.now.saturating_sub(time) / SECOND))
    }

    /// How the memory of the process has changed since a moment, as evidence; `None` where that is not known.
    fn meanwhile(&self, since: u64) -> Option<String> {
        let trend = self.memory?;
        let grown = trend.last()?.wrapping_sub(trend.at(since)?).cast_signed();
        Some(format!("memory of the process meanwhile {}", change(grown)))
    }
}

/// The rules, in the order of their weight.
const RULES: &[fn(&Facts<'_>) -> Vec<Finding>] = &[
    host_memory::rule,
    misuse::rule,
    freed::rule,
    pools::rule,
    uncovered::rule,
    refused::rule,
    captures::rule,
    failures::rule,
    growth::rule,
    memory::rule,
    shapes::rule,
    updates::rule,
    dropped::rule,
    graph_memory::rule,
    launch_bound::rule,
    idle::rule,
    implicit::rule,
    legacy::rule,
    lazy::rule,
    unused::rule,
];

/// The rules that find what the shim puts into the event log, too, when it begins.
pub(super) const OF_POOLS: [&str; 2] = ["device_buffers", "uncovered_nodes"];
/// The rule that finds what the shim puts there under `kinds`.
pub(super) const OF_KINDS: &str = "kind_refused";

/// Everything that is found now, weightiest first.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().flat_map(|rule| rule(facts)).collect();
    let rank = |finding: &Finding| match finding.severity {
        Severity::Alarm => 0,
        Severity::Warning => 1,
        Severity::Info => 2,
    };
    found.sort_by_key(rank);
    found
}

/// A finding with its parts.
fn found(rule: &'static str, severity: Severity, since: u64, sentence: String, next: &str) -> Finding {
    Finding { rule, severity, sentence, evidence: Vec::new(), next: next.to_owned(), since }
}

impl Finding {
    fn with(mut self, evidence: String) -> Self {
        self.evidence.push(evidence);
        self
    }
}

/// `1 graph`, `2 graphs`.
fn some(number: usize, what: &str) -> String {
    format!("{} {what}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// A change of bytes in MiB, with its sign.
fn change(bytes: i64) -> String {
    let sign = if bytes < 0 { '−' } else { '+' };
    format!("{sign}{}", mib(bytes.unsigned_abs()))
}
