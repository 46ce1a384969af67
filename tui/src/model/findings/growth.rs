//! Executable graphs, or graphs, that become more and more. Warm-up is no leak: what counts is growth that goes on while
//! graphs are launched, and not how many there are.

use gtop_protocol::message::Severity;

use super::{Facts, change, found};
use crate::model::lifecycle::execs::Sample;
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::model::trend::Limits;
use crate::view::units::count;

/// Paces that are looked for, nanoseconds, and at how many moments that far apart it must have grown. A warm-up that
/// takes in one shape after the other lasts seconds.
const PACES: [(u64, u32); 4] = [(SECOND, 16), (10 * SECOND, 12), (100 * SECOND, 12), (1000 * SECOND, 12)];
/// After so many times its pace without growth it is over.
const OVER: u64 = 10;
/// Memory that grows this much while graphs do not is said, bytes.
const MEMORY: i64 = 128 << 20;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let samples: Vec<Sample> = facts.lifecycle.execs.samples.iter().copied().collect();
    // Where nothing is launched, that nothing grows says nothing.
    let now = facts.work.graphs.last_launch().map_or(facts.now, |last| facts.now.min(last));
    let execs = judge(&samples, |sample| sample.execs, now);
    let graphs = judge(&samples, |sample| sample.graphs, now);
    let mut findings = Vec::new();
    if let Some(growth) = execs {
        findings.push(say(facts, "exec_graphs_grow", "executable graphs", growth,
            "Destroy the executable graph that a new one replaces, or update it (cuGraphExecUpdate); bound the cache that \
             holds them."));
    }
    if let Some(growth) = graphs {
        findings.push(say(facts, "graphs_never_destroyed", "graphs", growth,
            "Destroy a graph once it is instantiated, unless it is kept on purpose: the executable graph does not need it."));
    }
    if execs.is_none()
        && !samples.is_empty()
        && let Some((before, after, since)) = flat_and_growing(&samples, facts)
    {
        let finding = found(
            "memory_grows_graphs_flat",
            Severity::Warning,
            since,
            format!(
                "graphs flat, memory growing: {} while {} graphs stay alive",
                change(after - before),
                count(samples[samples.len() - 1].execs.into())
            ),
            "The graphs are not what grows: look at allocations (kind memory) and at the pools' reserve.",
        );
        findings.push(finding.with(format!(
            "{} executable graphs since {}",
            count(samples[samples.len() - 1].execs.into()),
            facts.ago(since)
        )));
    }
    findings
}

/// Growth that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) since: u64,
    pub(super) last: u64,
}

/// A new maximum that was reached after launches went on since the one before.
#[derive(Clone, Copy, Debug)]
struct Maximum {
    time: u64,
    before: u32,
    number: u32,
}

/// Whether a number grows without end: whether it reached new maxima, each after launches, at many moments that follow
/// each other at one pace, and still does. A leak has a pace of seconds or of many minutes; what comes far faster than
/// the pace that is looked for is one moment, and what comes far later begins anew.
pub(super) fn judge(samples: &[Sample], of: fn(&Sample) -> u32, now: u64) -> Option<Growth> {
    let mut maxima: Vec<Maximum> = Vec::new();
    let (mut most, mut launches) = (0, 0);
    for sample in samples {
        let number = of(sample);
        if number <= most {
            continue;
        }
        if sample.launches > launches && most > 0 {
            maxima.push(Maximum { time: sample.time, before: most, number });
        }
        (most, launches) = (number, sample.launches);
    }
    // What is thrown away again is churn.
    let alive = samples.last().map_or(0, of);
    let kept = maxima.last().is_some_and(|last| u64::from(alive) * 5 >= u64::from(last.number) * 4);
    PACES.into_iter().filter(|_| kept).find_map(|(pace, moments)| at_pace(&maxima, pace, moments, now))
}

/// The growth at this pace that goes on, if it has as many moments.
fn at_pace(maxima: &[Maximum], pace: u64, moments: u32, now: u64) -> Option<Growth> {
    let mut run: Option<(Growth, u32, u64)> = None;
    for maximum in maxima {
        let fresh =
            Growth { from: maximum.before, to: maximum.number, since: maximum.time, last: maximum.time };
        let (growth, count, moment) = run.get_or_insert((fresh, 1, maximum.time));
        if maximum.time.saturating_sub(growth.last) > pace * OVER {
            (*growth, *count, *moment) = (fresh, 1, maximum.time);
        } else if maximum.time.saturating_sub(*moment) >= pace {
            (*count, *moment) = (*count + 1, maximum.time);
        }
        (growth.to, growth.last) = (maximum.number, maximum.time);
    }
    let (growth, count, _) = run?;
    (count >= moments && now.saturating_sub(growth.last) <= pace * OVER).then_some(growth)
}

fn say(facts: &Facts<'_>, rule: &'static str, what: &str, growth: Growth, next: &str) -> Finding {
    let minutes = growth.last.saturating_sub(growth.since) as f64 / (60.0 * SECOND as f64);
    let a_minute = f64::from(growth.to - growth.from) / minutes.max(1.0 / 60.0);
    let mut finding = found(
        rule,
        Severity::Warning,
        growth.since,
        format!(
            "{what} grow without end: {} → {}, {a_minute:.1} a minute",
            count(growth.from.into()),
            count(growth.to.into())
        ),
        next,
    );
    if let Some(seen) = facts.lifecycle.observers {
        let (created, destroyed) = match rule {
            "exec_graphs_grow" => (seen.execs, seen.execs_destroyed),
            _ => (seen.graphs, seen.graphs_destroyed),
        };
        finding = finding.with(format!("{} created, {} destroyed", count(created), count(destroyed)));
    }
    finding.evidence.extend(facts.meanwhile(growth.since));
    finding
}

/// Memory before and after, and since when, while the number of executable graphs did not change and it grew and grows:
/// what a warm-up or a cache takes once is none of that.
fn flat_and_growing(samples: &[Sample], facts: &Facts<'_>) -> Option<(i64, i64, u64)> {
    let trend = facts.memory?;
    let last = samples[samples.len() - 1];
    if last.execs == 0 {
        return None;
    }
    let flat = samples.iter().rev().take_while(|sample| sample.execs == last.execs).last()?;
    let since = flat.time.max(trend.begin()?);
    let (before, after) = (trend.at(since)?.cast_signed(), trend.last()?.cast_signed());
    let limits = Limits::current();
    let goes_on = trend.goes_on(limits.window * limits.windows as u64);
    (after - before >= MEMORY && goes_on).then_some((before, after, since))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(numbers: impl IntoIterator<Item = u32>) -> Vec<Sample> {
        let sample = |(i, execs): (usize, u32)| Sample {
            time: (i as u64 + 1) * SECOND,
            execs,
            graphs: execs,
            launches: i as u64 * 10,
        };
        numbers.into_iter().enumerate().map(sample).collect()
    }

    fn execs(numbers: impl IntoIterator<Item = u32>) -> Option<Growth> {
        let series = series(numbers);
        let now = series[series.len() - 1].time;
        judge(&series, |sample| sample.execs, now)
    }

    /// One more at each of these times, in milliseconds; launches go on.
    fn at(times: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        let sample = |(i, ms): (usize, u64)| {
            let number = 5 + i as u32;
            Sample { time: ms * 1_000_000, execs: number, graphs: number, launches: ms }
        };
        std::iter::once(0).chain(times).enumerate().map(sample).collect()
    }

    fn grows(samples: &[Sample], seconds: u64) -> Option<(u32, u32)> {
        let until: Vec<Sample> =
            samples.iter().copied().filter(|sample| sample.time <= seconds * SECOND).collect();
        judge(&until, |sample| sample.execs, seconds * SECOND).map(|growth| (growth.from, growth.to))
    }

    #[test]
    fn one_more_each_request_is_a_leak_by_the_twentieth() {
        assert!(execs(1..=60).is_some());
        let growth = execs(1..=20).unwrap();
        assert_eq!((growth.from, growth.to), (1, 20));
        assert_eq!(execs(1..=8), None);
    }

    #[test]
    fn warm_up_and_a_plateau_are_no_leak() {
        assert_eq!(execs([256, 742, 742, 742]), None);
        // Captured at start, one after the other, before anything is launched.
        let mut series = series(1..=51);
        for sample in &mut series {
            sample.launches = 0;
        }
        assert_eq!(judge(&series, |sample| sample.execs, 52 * SECOND), None);
        // Grown, and still for minutes.
        let series = self::series(1..=60);
        assert_eq!(judge(&series, |sample| sample.execs, 300 * SECOND), None);
        // Twenty in eight seconds, each launched: neither while they come nor afterwards.
        let lazily = at((0..20).map(|i| 3_000 + i * 400));
        assert!((4..300).all(|seconds| grows(&lazily, seconds).is_none()));
    }

    #[test]
    fn one_more_after_a_long_plateau_is_no_leak() {
        let again = at((0..60).map(|i| 3_000 + i * 1_000).chain([200_000]));
        assert_eq!(grows(&again, 60), Some((5, 63)));
        assert!((80..600).all(|seconds| grows(&again, seconds).is_none()));
    }

    #[test]
    fn a_slow_leak_is_one_all_the_time_and_so_are_bursts() {
        let slow = at((1..100).map(|i| i * 130_000));
        assert_eq!(grows(&slow, 900), None, "seven more are few");
        assert!((1_700..12_000).all(|seconds| grows(&slow, seconds).is_some()));
        // Five each, every ten minutes.
        let bursts = at((1..40).flat_map(|i| (0..5).map(move |k| i * 600_000 + k * 1_000)));
        assert!((8_000..20_000).step_by(7).all(|seconds| grows(&bursts, seconds).is_some()));
    }

    #[test]
    fn what_is_thrown_away_again_is_churn() {
        let churn = (1..=338u32).map(|created| if created < 330 { created } else { 8 });
        assert_eq!(execs(churn), None);
        assert_eq!(execs((0..400).map(|i| 8 + i % 2)), None);
    }
}
