//! The device idle while the host sits in one long wait for it.

use gtop_protocol::calls::call_name;
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let idle = facts.work.steps.gaps();
    let covered = |begin: u64, end: u64| {
        let overlap = |(from, to): &(u64, u64)| end.min(*to).saturating_sub(begin.max(*from));
        idle.iter().map(overlap).sum::<u64>()
    };
    let mut found_waits = facts.lifecycle.waits.iter().filter_map(|wait| {
        let (length, idle) = (wait.end.saturating_sub(wait.begin), covered(wait.begin, wait.end));
        (idle * 2 > length).then_some((wait, length, idle))
    });
    let Some((wait, length, idle)) = found_waits.next() else { return Vec::new() };
    let ms = |ns: u64| ns as f64 / 1e6;
    let finding = found(
        "idle_in_wait",
        Severity::Warning,
        wait.begin,
        format!(
            "the device was idle for {:.0} of {:.0} ms that the host sat in {}",
            ms(idle),
            ms(length),
            call_name(wait.code)
        ),
        "Give the device its next work before waiting for the last one.",
    );
    vec![
        finding
            .with(format!("thread {}", wait.thread))
            .with(format!("{} more such waits", found_waits.count())),
    ]
}
