//! Memory of the process that grows: a leak only when it goes on over three windows, is half again what it was and much.

use gtop_protocol::message::Severity;

use super::{Facts, change, found, mib};
use crate::model::snapshot::Finding;
use crate::model::trend::{Limits, Verdict};
use crate::view::units::count;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(trend) = facts.memory else { return Vec::new() };
    match trend.verdict(&Limits::current()) {
        Verdict::Leak { baseline, now, since, per_minute } => {
            let grown = now.wrapping_sub(baseline).cast_signed();
            let mut finding = found(
                "memory_leak",
                Severity::Alarm,
                since,
                format!("memory of the process grows window after window: {} above its baseline, {} a minute", mib(grown.unsigned_abs()), change(per_minute)),
                "Switch the kind memory on to see what is allocated and not freed; compare with the growth of graphs.",
            )
            .with(format!("baseline {}, now {}", mib(baseline), mib(now)));
            if let Some(total) = facts.memory_total
                && per_minute > 0
                && total > now
            {
                let minutes = (total - now) / per_minute.unsigned_abs().max(1);
                finding = finding.with(format!("at this pace the device is full in {} minutes", count(minutes)));
            }
            vec![finding]
        }
        Verdict::Step { at, bytes } => vec![
            found(
                "memory_step",
                Severity::Info,
                at,
                format!("memory of the process rose by {} at once and stays: a preallocation, such as a KV cache, no leak", mib(bytes.unsigned_abs())),
                "None is needed.",
            )
            .with(facts.ago(at)),
        ],
        Verdict::Steady => Vec::new(),
    }
}
