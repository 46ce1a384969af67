//! The probe's JSON: its keys are a promise. What is unknown is null, never 0.

use std::io::{self, Write};

use gtop_protocol::Validity;
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::PoolState;
use serde::Serialize;

use super::tally::{Bad, ByClass};
use super::text::cuda;
use super::verdict::{Answer, Judged};

/// Writes one object and a line break.
pub fn write(rows: &[Judged], answer: &Answer, quick: bool, out: &mut impl Write) -> io::Result<()> {
    let first = rows.iter().find(|row| row.ran.tally.version.is_some());
    let probe = Probe {
        schema: "gtop.probe/1",
        verdict: answer.verdict.name(),
        sentence: &answer.text,
        quick,
        seconds: rows.iter().map(|row| row.ran.took.as_secs_f64()).sum(),
        cupti: first.and_then(|row| {
            let version = row.ran.tally.version?;
            let known = CuptiVersion(version);
            Some(Cupti {
                version,
                name: known.to_string(),
                path: &row.ran.tally.path,
                known: known.verdict().name(),
                reason: known.reason(),
            })
        }),
        device: rows.iter().find_map(|row| row.ran.device.as_deref()),
        driver_cuda: rows.iter().find_map(|row| row.ran.driver).map(cuda),
        rows: rows.iter().map(OfRow::of).collect(),
    };
    serde_json::to_writer(&mut *out, &probe)?;
    writeln!(out)
}

#[derive(Serialize)]
struct Probe<'a> {
    schema: &'static str,
    verdict: &'static str,
    sentence: &'a str,
    quick: bool,
    seconds: f64,
    cupti: Option<Cupti<'a>>,
    device: Option<&'a str>,
    driver_cuda: Option<String>,
    rows: Vec<OfRow<'a>>,
}

#[derive(Serialize)]
struct Cupti<'a> {
    version: u32,
    name: String,
    path: &'a str,
    /// What was measured of this version before.
    known: &'static str,
    reason: &'static str,
}

#[derive(Serialize)]
struct OfRow<'a> {
    load: &'static str,
    kinds: Vec<&'static str>,
    pool_limit: u64,
    turns: u64,
    verdict: &'static str,
    words: &'a str,
    launched: Option<Counts>,
    recorded: Option<Counts>,
    kernels: Option<Classes>,
    stopped_at: Option<u64>,
    law_stops_at: Option<u64>,
    as_the_law_says: Option<bool>,
    first_invalid: Option<First>,
    lost: Option<u64>,
    dropped_by_cupti: Option<u64>,
    memory_before_bytes: Option<u64>,
    memory_after_bytes: Option<u64>,
    pool: Option<Pool>,
    seconds: f64,
}

#[derive(Serialize)]
struct Counts {
    kernel: u64,
    memcpy: u64,
    memset: u64,
}

#[derive(Serialize)]
struct Classes {
    valid: u64,
    zero: u64,
    zero_start: u64,
    zero_end: u64,
    inverted: u64,
    sentinel: u64,
    foreign_clock: u64,
    future: u64,
}

/// As in `gtop stat`: times are strings, since they do not fit a double.
#[derive(Serialize)]
struct First {
    index: u64,
    start: String,
    end: String,
    class: &'static str,
}

/// What the shim said of the context's pool last.
#[derive(Serialize)]
struct Pool {
    state: &'static str,
    limit: u64,
    computed: Option<u64>,
    observed: Option<u64>,
    slots_used: u64,
}

impl<'a> OfRow<'a> {
    fn of(judged: &'a Judged) -> Self {
        let (ran, tally) = (&judged.ran, &judged.ran.tally);
        let done = ran.done.as_ref().ok();
        Self {
            load: ran.row.load.name(),
            kinds: ran.row.kinds.iter().map(gtop_protocol::Kind::name).collect(),
            pool_limit: ran.row.pool_limit,
            turns: ran.row.turns,
            verdict: judged.verdict.name(),
            words: &judged.words,
            launched: done.map(|done| Counts {
                kernel: done.launched.kernels,
                memcpy: done.launched.copies(),
                memset: done.launched.memsets,
            }),
            recorded: done.map(|_| Counts {
                kernel: tally.kernel_records(),
                memcpy: tally.copies.iter().sum(),
                memset: tally.memsets.iter().sum(),
            }),
            kernels: done.map(|_| Classes::of(&tally.kernels)),
            stopped_at: judged.stopped_at,
            law_stops_at: judged.law.map(|(stop, _)| stop),
            as_the_law_says: judged.law.filter(|_| judged.stopped_at.is_some()).map(|(_, as_said)| as_said),
            first_invalid: tally.first_bad.map(First::of),
            lost: done.map(|_| tally.lost()),
            dropped_by_cupti: done.map(|_| tally.dropped_by_cupti()),
            memory_before_bytes: done.map(|done| done.memory_before),
            memory_after_bytes: done.map(|done| done.memory_after),
            pool: tally.pools.first().map(|pool| Pool {
                state: PoolState::from_wire(pool.state).name(),
                limit: pool.limit,
                computed: pool.computed,
                observed: pool.observed,
                slots_used: pool.slots_used,
            }),
            seconds: ran.took.as_secs_f64(),
        }
    }
}

impl Classes {
    const fn of(counts: &ByClass) -> Self {
        Self {
            valid: counts[Validity::Valid as usize],
            zero: counts[Validity::Zero as usize],
            zero_start: counts[Validity::ZeroStart as usize],
            zero_end: counts[Validity::ZeroEnd as usize],
            inverted: counts[Validity::Inverted as usize],
            sentinel: counts[Validity::Sentinel as usize],
            foreign_clock: counts[Validity::ForeignClock as usize],
            future: counts[Validity::Future as usize],
        }
    }
}

impl First {
    fn of(bad: Bad) -> Self {
        Self {
            index: bad.index,
            start: bad.start.to_string(),
            end: bad.end.to_string(),
            class: bad.class.name(),
        }
    }
}
