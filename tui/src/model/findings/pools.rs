//! CUPTI's own device buffers that are never given back: memory that the tool takes, not the program.

use gtop_protocol::message::{PoolState, Severity};

use super::super::explained::CUPTI_BUFFER;
use super::{Facts, found, mib};
use crate::model::snapshot::{Finding, Pool};
use crate::view::units::range;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    facts.pools.iter().filter_map(|pool| of(facts, pool)).collect()
}

fn of(facts: &Facts<'_>, pool: &Pool) -> Option<Finding> {
    let (severity, what) = match pool.state {
        PoolState::Leaking => (Severity::Warning, "fill and are not given back"),
        PoolState::Exhausted => (Severity::Alarm, "are used up: kernels go unseen or come without times"),
        PoolState::Safe | PoolState::Unknown => return None,
    };
    let used = pool.observed.or(pool.computed)?;
    let takes = mib(used.saturating_mul(CUPTI_BUFFER));
    let since = pool.since.unwrap_or(facts.now);
    let mut finding = found(
        "device_buffers",
        severity,
        since,
        format!(
            "device buffers of CUPTI {what} in context {}: {used} of {} in use, about {takes} of device memory",
            pool.context, pool.limit
        ),
        &format!("Restart the process with a sound CUPTI: {}.", facts.cure),
    );
    if let Some(cause) = &pool.cause {
        finding = finding.with(cause.clone());
    }
    if let Some(seconds) = pool.exhausts_in {
        let range = range(pool.exhausts_earliest, pool.exhausts_latest);
        finding = finding.with(format!("used up in {seconds:.0} s at the present rate{range}"));
    }
    finding.evidence.extend(facts.meanwhile(since));
    Some(finding)
}
