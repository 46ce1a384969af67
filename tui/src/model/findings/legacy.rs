//! Launches on the legacy default stream while streams work that wait for it: nothing of them runs at once, and nobody
//! asked for that.

use gtop_protocol::message::Severity;

use super::{Facts, found, some};
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::view::units::count;

/// Looked at is this last while, nanoseconds.
const WHILE: u64 = 60 * SECOND;
/// Launches, and the first and the last this far apart: less is a start or an end.
const MANY: u64 = 10_000;
const LASTS: u64 = 5 * SECOND;
/// A stream works that did so this recently.
const WORKS: u64 = 10 * SECOND;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let legacy = &facts.lifecycle.legacy;
    let recent = legacy.launches.iter().filter(|told| facts.now.saturating_sub(told.time) <= WHILE);
    let mut contexts: Vec<(u32, u64, u64, u64)> = Vec::new();
    for told in recent {
        match contexts.iter_mut().find(|(context, ..)| *context == told.context) {
            Some((_, launches, _, last)) => {
                (*launches, *last) = (*launches + u64::from(told.count), told.time);
            }
            None => contexts.push((told.context, told.count.into(), told.time, told.time)),
        }
    }
    let goes_on = |(_, launches, first, last): &&(u32, u64, u64, u64)| {
        *launches >= MANY && last - first >= LASTS && facts.now.saturating_sub(*last) <= WORKS
    };
    contexts.iter().filter(goes_on).filter_map(|told| say(facts, told)).collect()
}

fn say(facts: &Facts<'_>, (context, launches, first, _): &(u32, u64, u64, u64)) -> Option<Finding> {
    let works = |stream: &u32| {
        let last = facts.work.streams.last_end(*context, *stream);
        last.is_some_and(|last| facts.now.saturating_sub(last) <= WORKS)
    };
    let streams: Vec<u32> = facts.lifecycle.legacy.blocking(*context).into_iter().filter(works).collect();
    let one = streams.first()?;
    let finding = found(
        "legacy_stream",
        Severity::Warning,
        *first,
        format!(
            "launches on the legacy default stream of context {context} while stream {one} works, too: each waits for the \
             other, and nothing of both runs at once"
        ),
        "Create the other streams with cudaStreamNonBlocking, or give these launches a stream of their own (nvcc \
         --default-stream per-thread).",
    );
    Some(finding.with(format!(
        "some {} such launches in {} s; {} that wait for it worked in the last {} s",
        count(*launches),
        count(facts.now.saturating_sub(*first).div_ceil(SECOND)),
        some(streams.len(), "stream"),
        WORKS / SECOND
    )))
}
