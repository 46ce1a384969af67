//! Updates of executable graphs that fail.

use gtop_protocol::calls::update_result_name;
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;
use crate::view::units::count;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let mut failed: Vec<_> = facts.lifecycle.execs.failed_updates.iter().collect();
    failed.sort_by_key(|(reason, update)| (std::cmp::Reverse(update.count), **reason));
    let say = |(reason, update): (&u32, &crate::model::lifecycle::execs::FailedUpdate)| {
        let fallback = if update.then_instantiated > 0 { " and fall back to instantiating anew" } else { "" };
        found(
            "update_fails",
            Severity::Warning,
            update.last,
            format!("updates of executable graphs fail{fallback}: {}", update_result_name(*reason)),
            "Keep topology, node types and functions the same between updates, or one executable graph for each variant.",
        )
        .with(format!("{} failed, {} of them followed by an instantiation", count(update.count), count(update.then_instantiated)))
    };
    failed.into_iter().map(say).collect()
}
