//! Executable graphs, or graphs, that become more and more. Warm-up is no leak: what counts is growth that goes on while
//! graphs are launched, and not how many there are.

use gtop_protocol::message::Severity;

use super::{Facts, found, mib};
use crate::model::lifecycle::execs::Sample;
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::model::trend::Limits;

/// New maxima, each after launches since the one before, from which on it is called a leak.
const EPISODES: u32 = 12;
/// Growth that stood still this long is over.
const OVER: u64 = 120 * SECOND;
/// Memory that grows this much while graphs do not is said, bytes.
const MEMORY: i64 = 128 << 20;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let samples: Vec<Sample> = facts.lifecycle.execs.samples.iter().copied().collect();
    let execs = judge(&samples, |sample| sample.execs, facts.now);
    let graphs = judge(&samples, |sample| sample.graphs, facts.now);
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
        && samples.len() >= 3
        && let Some((before, after, since)) = flat_and_growing(&samples, facts)
    {
        let finding = found(
            "memory_grows_graphs_flat",
            Severity::Warning,
            since,
            format!(
                "graphs flat, memory growing: {} while {} graphs stay alive",
                mib(after - before),
                samples[samples.len() - 1].execs
            ),
            "The graphs are not what grows: look at allocations (kind memory) and at the pools' reserve.",
        );
        findings.push(finding.with(format!(
            "{} executable graphs since {}",
            samples[samples.len() - 1].execs,
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
    pub(super) episodes: u32,
}

/// Whether a number grows without end: how often it reached a new maximum after launches went on.
pub(super) fn judge(samples: &[Sample], of: fn(&Sample) -> u32, now: u64) -> Option<Growth> {
    let mut growth: Option<Growth> = None;
    let (mut most, mut launches) = (0, 0);
    for sample in samples {
        let number = of(sample);
        if number <= most {
            continue;
        }
        if sample.launches > launches && most > 0 {
            let growth = growth.get_or_insert(Growth {
                from: most,
                to: most,
                since: sample.time,
                last: 0,
                episodes: 0,
            });
            growth.episodes += 1;
            (growth.to, growth.last) = (number, sample.time);
        }
        (most, launches) = (number, sample.launches);
    }
    let now_alive = samples.last().map_or(0, of);
    growth.filter(|growth| {
        growth.episodes >= EPISODES
            && now.saturating_sub(growth.last) < OVER
            // What is thrown away again is churn.
            && u64::from(now_alive) * 5 >= u64::from(growth.to) * 4
    })
}

fn say(facts: &Facts<'_>, rule: &'static str, what: &str, growth: Growth, next: &str) -> Finding {
    let minutes = growth.last.saturating_sub(growth.since) as f64 / (60.0 * SECOND as f64);
    let a_minute = f64::from(growth.to - growth.from) / minutes.max(1.0 / 60.0);
    let mut finding = found(
        rule,
        Severity::Warning,
        growth.since,
        format!("{what} grow without end: {} → {}, {a_minute:.1} a minute", growth.from, growth.to),
        next,
    );
    if let Some(seen) = facts.lifecycle.observers {
        let (created, destroyed) = match rule {
            "exec_graphs_grow" => (seen.execs, seen.execs_destroyed),
            _ => (seen.graphs, seen.graphs_destroyed),
        };
        finding = finding.with(format!("{created} created, {destroyed} destroyed"));
    }
    if let Some(trend) = facts.memory
        && let (Some(before), Some(after)) = (trend.at(growth.since), trend.last())
    {
        let change = after.wrapping_sub(before).cast_signed();
        finding = finding.with(format!("memory of the process meanwhile {}", mib(change)));
    }
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
    let (before, after) = (trend.at(flat.time)?.cast_signed(), trend.last()?.cast_signed());
    let limits = Limits::current();
    let goes_on = trend.goes_on(limits.window * limits.windows as u64);
    (after - before >= MEMORY && goes_on).then_some((before, after, flat.time))
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
    }

    #[test]
    fn what_is_thrown_away_again_is_churn() {
        let churn = (1..=338u32).map(|created| if created < 330 { created } else { 8 });
        assert_eq!(execs(churn), None);
        assert_eq!(execs((0..400).map(|i| 8 + i % 2)), None);
    }
}
