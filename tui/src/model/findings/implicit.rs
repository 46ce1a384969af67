//! The host waits for the device in calls that nobody makes in order to wait: a free waits for all that runs, and so does
//! a small copy from memory that is not pinned.

use gtop_protocol::calls::call_name;
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::lifecycle::Implicit;
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::view::units;

/// Looked at is this last while, nanoseconds.
const WHILE: u64 = 60 * SECOND;
/// Seconds with such waits, and the first and the last this far apart: less is a start or an end.
const MANY: usize = 5;
const LASTS: u64 = 5 * SECOND;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let recent = |implicit: &&Implicit| facts.now.saturating_sub(implicit.wait.end) <= WHILE;
    // Where the device had nothing to do the call itself took its time.
    let busy = |implicit: &&Implicit| {
        let wait = implicit.wait;
        facts.work.timeline.covered(wait.begin, wait.end) * 2 > wait.end - wait.begin
    };
    let waits: Vec<&Implicit> = facts.lifecycle.implicit.iter().filter(recent).filter(busy).collect();
    let (Some(first), Some(last)) = (waits.first(), waits.last()) else { return Vec::new() };
    let lasts = last.wait.end.saturating_sub(first.wait.end);
    if waits.len() < MANY || lasts < LASTS {
        return Vec::new();
    }
    // What led up to the first is not of this while.
    let (count, ns) = waits
        .iter()
        .skip(1)
        .fold((0u64, 0u64), |(count, ns), next| (count + u64::from(next.count), ns.saturating_add(next.ns)));
    let longest =
        waits.iter().map(|next| next.wait).max_by_key(|wait| wait.end - wait.begin).unwrap_or(last.wait);
    let frees = matches!(longest.code, 38 | 245);
    let ms = |ns: u64| ns as f64 / 1e6;
    let finding = found(
        "implicit_wait",
        Severity::Warning,
        first.wait.begin,
        format!(
            "the host waited for the device {} times in {} s in calls that are not made to wait, {:.0} ms in all: \
             {}",
            units::count(count),
            units::count(lasts.div_ceil(SECOND)),
            ms(ns),
            call_name(longest.code)
        ),
        if frees {
            "Keep the memory, or free it in the order of a stream: cuMemFreeAsync."
        } else {
            "Copy from pinned memory with the asynchronous call, on the stream that needs it."
        },
    );
    vec![finding.with(format!(
        "{} on thread {} took {:.1} ms, {}, while the device worked",
        call_name(longest.code),
        longest.thread,
        ms(longest.end - longest.begin),
        facts.ago(longest.end)
    ))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lifecycle::{Lifecycle, Wait};
    use crate::model::slices::Slice;
    use crate::model::snapshot::LaneKey;
    use crate::model::work::Work;

    const MS: u64 = SECOND / 1_000;

    /// What is found of waits of 10 ms in these seconds, while the device works for so long from the begin of each.
    fn found_in(seconds: &[u64], works: u64, code: u32) -> Vec<Finding> {
        let (mut lifecycle, mut work) = (Lifecycle::default(), Work::new(1 << 20));
        for second in seconds {
            let (begin, end) = (second * SECOND, second * SECOND + 10 * MS);
            let wait = Wait { code, thread: 7, begin, end };
            lifecycle.implicit.push_back(Implicit { wait, count: 3, ns: 30 * MS });
            let slice = Slice { start: begin, end: begin + works, detail: 0, correlation: 0 };
            work.timeline.add(LaneKey::Memset { device: 0 }, slice);
        }
        let now = seconds.iter().max().unwrap() * SECOND + SECOND;
        let _ = work.timeline.share(now, &[]);
        rule(&Facts {
            now,
            work: &work,
            lifecycle: &lifecycle,
            kinds: &crate::model::snapshot::Kinds::default(),
            verdict: None,
            cure: "",
            pools: &[],
            memory: None,
            memory_total: None,
            unified: None,
        })
    }

    #[test]
    fn waits_that_go_on_while_the_device_works_are_found() {
        let seconds = [101, 102, 103, 104, 106];
        let found = found_in(&seconds, 9 * MS, 245);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.rule, "implicit_wait");
        assert!(finding.sentence.contains("12 times in 5 s"), "{}", finding.sentence);
        assert!(finding.sentence.contains("120 ms in all: cuMemFree_v2"), "{}", finding.sentence);
        assert!(finding.next.contains("cuMemFreeAsync"), "{}", finding.next);
        let copies = found_in(&seconds, 9 * MS, 276);
        assert!(copies[0].next.contains("pinned"), "{}", copies[0].next);
        assert_eq!(found_in(&seconds, 4 * MS, 245), [], "the call itself takes its time");
        assert_eq!(found_in(&seconds[..4], 9 * MS, 245), [], "few");
        assert_eq!(found_in(&[101, 101, 102, 102, 103], 9 * MS, 245), [], "a start");
        assert_eq!(found_in(&[1, 2, 3, 4, 106], 9 * MS, 245), [], "long ago");
    }
}
