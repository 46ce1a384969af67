//! Things that are created and destroyed, as counters: how many there are, and how that changes.

use std::collections::VecDeque;

use gtop_protocol::message::Observers;

use super::super::time::SECOND;

/// What growth is told over, nanoseconds.
const MINUTE: u64 = 60 * SECOND;
/// A shorter time says nothing of growth, nanoseconds.
const SHORTEST: u64 = 10 * SECOND;
/// Kinds of things.
const KINDS: usize = 7;

/// One kind of thing in a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// `contexts`, `streams`, `events`, `modules`, `pools`, `graphs`, `execs`.
    pub kind: &'static str,
    /// Created, as far as callbacks saw it.
    pub created: u64,
    /// Destroyed.
    pub destroyed: u64,
    /// How many there are; `None` when callbacks were not on from the start.
    pub live: Option<u64>,
    /// By how many more there are than a minute ago; less than a minute is scaled up, and `None` is less than ten
    /// seconds.
    pub growth_per_minute: Option<f64>,
}

/// The numbers over the last minute.
#[derive(Debug, Default)]
pub(in super::super) struct Counts {
    samples: VecDeque<Sample>,
}

/// What it was until the next one.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: u64,
    /// Created minus destroyed of each kind.
    live: [i64; KINDS],
    /// Captures begun.
    captures: u64,
}

/// Created and destroyed of each kind.
const fn of(seen: &Observers) -> [(&'static str, u64, u64); KINDS] {
    [
        ("contexts", seen.contexts, seen.contexts_destroyed),
        ("streams", seen.streams, seen.streams_destroyed),
        ("events", seen.events, seen.events_destroyed),
        ("modules", seen.modules, seen.modules_unloaded),
        ("pools", seen.pools, seen.pools_destroyed),
        ("graphs", seen.graphs, seen.graphs_destroyed),
        ("execs", seen.execs, seen.execs_destroyed),
    ]
}

impl Counts {
    /// Takes in what was counted until `time`, nanoseconds.
    pub(super) fn add(&mut self, seen: &Observers, time: u64) {
        let live = of(seen).map(|(_, created, destroyed)| created.wrapping_sub(destroyed).cast_signed());
        let sample = Sample { time, live, captures: seen.captures };
        // The last one of each second, but for the first of all.
        let (last, before) = (self.samples.len().checked_sub(1), self.samples.len().checked_sub(2));
        match (last, before.and_then(|at| self.samples.get(at))) {
            (Some(last), Some(before)) if time.saturating_sub(before.time) < SECOND => {
                self.samples[last] = sample;
            }
            _ => self.samples.push_back(sample),
        }
        while self.samples.get(1).is_some_and(|second| second.time.saturating_add(MINUTE) <= time) {
            self.samples.pop_front();
        }
    }

    /// The sample of a minute before `now`, or the first one, and how long that was ago, a minute at most; nanoseconds.
    fn before(&self, now: u64) -> Option<(&Sample, u64)> {
        let after = self.samples.partition_point(|sample| sample.time.saturating_add(MINUTE) <= now);
        let from = self.samples.get(after.saturating_sub(1))?;
        Some((from, now.saturating_sub(from.time).min(MINUTE)))
    }

    /// How many captures began in the minute before `now`, nanoseconds; less is scaled up, and `None` is less than ten
    /// seconds.
    pub(in super::super) fn captures_per_minute(&self, seen: Option<&Observers>, now: u64) -> Option<f64> {
        let (from, lasted) = self.before(now).filter(|(_, lasted)| *lasted >= SHORTEST)?;
        let begun = seen?.captures.saturating_sub(from.captures);
        Some(begun as f64 * MINUTE as f64 / lasted as f64)
    }

    /// Each kind at `now`, nanoseconds.
    pub(in super::super) fn rows(&self, seen: Option<&Observers>, now: u64) -> Vec<Counted> {
        let Some(seen) = seen else { return Vec::new() };
        let before = self.before(now).filter(|(_, lasted)| *lasted >= SHORTEST);
        let row = |(place, (kind, created, destroyed)): (usize, (&'static str, u64, u64))| {
            let growth = before.map(|(from, lasted)| {
                let live = created.wrapping_sub(destroyed).cast_signed();
                live.wrapping_sub(from.live[place]) as f64 * MINUTE as f64 / lasted as f64
            });
            Counted {
                kind,
                created,
                destroyed,
                live: (seen.whole == 1).then(|| created.saturating_sub(destroyed)),
                growth_per_minute: growth,
            }
        };
        of(seen).into_iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(streams: u64, gone: u64, events: u64) -> Observers {
        // Each stream is captured once.
        Observers {
            whole: 1,
            streams,
            streams_destroyed: gone,
            events,
            captures: streams,
            ..Observers::default()
        }
    }

    #[test]
    fn growth_is_over_a_minute_and_of_less_in_proportion() {
        let mut counts = Counts::default();
        // 32 events a second are made from the tenth second on; streams come and go.
        for second in 0..=200u64 {
            let events_made = 100 + second.saturating_sub(10) * 32;
            for part in 0..4 {
                counts.add(&seen(second, second, events_made), second * SECOND + part * SECOND / 4);
            }
            let rows = counts.rows(Some(&seen(second, second, events_made)), second * SECOND);
            let of = |kind: &str| *rows.iter().find(|row| row.kind == kind).unwrap();
            let (streams, events) = (of("streams"), of("events"));
            assert_eq!((streams.live, streams.created), (Some(0), second));
            let captures =
                counts.captures_per_minute(Some(&seen(second, second, events_made)), second * SECOND);
            // To a second as well.
            let right = captures.map(|captures| (59.0..62.0).contains(&captures));
            assert_eq!(right, (second >= 10).then_some(true), "{captures:?}");
            let grown = events.growth_per_minute;
            match second {
                0..10 => assert_eq!(grown, None),
                10 => assert_eq!(grown, Some(0.0)),
                40 => assert_eq!(grown, Some(1440.0)),
                200 => {
                    // To a second: that is how often it is kept.
                    assert!(grown.is_some_and(|grown| (grown - 1920.0).abs() <= 32.0), "{grown:?}");
                    assert_eq!(streams.growth_per_minute, Some(0.0));
                }
                _ => {}
            }
        }
        assert!(counts.samples.len() <= 128, "{}", counts.samples.len());
        // Nothing comes while nothing changes.
        let last = seen(200, 200, 6180);
        let rows = counts.rows(Some(&last), 500 * SECOND);
        assert!(rows.iter().all(|row| row.growth_per_minute == Some(0.0)), "{rows:?}");
    }

    #[test]
    fn what_was_watched_from_the_middle_on_has_no_number_alive() {
        let mut counts = Counts::default();
        let late = Observers { whole: 0, ..seen(1, 5, 0) };
        counts.add(&late, 0);
        let rows = counts.rows(Some(&late), SECOND);
        let streams = rows.iter().find(|row| row.kind == "streams").unwrap();
        assert_eq!((streams.live, streams.destroyed), (None, 5));
        assert!(counts.rows(None, SECOND).is_empty());
    }
}
