//! The text of `gtop stat`, for people: the same on a terminal and in a pipe.

use std::io::{self, Write};

use gtop_protocol::Validity;
use gtop_protocol::message::Relief;

use super::total;
use crate::model::sampling::Estimate;
use crate::model::snapshot::{LaunchLatency, Link, Pool, Process, Sampling, Snapshot, Steps};
use crate::view::units;

/// Rows of a list before the rest is only counted.
const ROWS: usize = 20;

/// Writes the summary.
pub(super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}, {:.3} s", snapshot.source.label, snapshot.seconds)?;
    total::write(snapshot, out)?;
    for process in &snapshot.processes {
        write_process(process, snapshot, out)?;
    }
    if let Some(note) = &snapshot.device_note {
        writeln!(out, "\nno device samples: {note}")?;
    }
    Ok(())
}

fn write_process(process: &Process, snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    writeln!(out)?;
    if process.identity.pid != 0 {
        writeln!(out, "process   {} {}", process.identity.name, process.identity.pid)?;
    }
    for index in &process.devices {
        let device = snapshot.device_of(process, *index);
        writeln!(out, "device    #{index} {}", device.map_or("?", |device| &device.name))?;
    }
    match &process.cupti {
        Some(cupti) => {
            writeln!(out, "CUPTI     {} {}: {}", cupti.version, cupti.verdict.name(), cupti.reason)?;
        }
        None if process.identity.pid == 0 => {
            writeln!(out, "CUPTI     ?: no buffer was read that would tell")?;
        }
        None => writeln!(out, "CUPTI     not called yet")?,
    }
    if process.heard.state {
        let reason = process.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        writeln!(out, "state     {}{reason}, {}", process.state.name(), kinds(process))?;
    }
    if let Some(halt) = process.halt {
        let how = halt.cause.name().unwrap_or_default();
        writeln!(out, "halted    {how} for {:.1} s: what it would do now is not known", halt.seconds)?;
    } else if let Some(unheard) = process.unheard {
        writeln!(out, "unheard   for {unheard:.1} s: its shim does not speak")?;
    }
    if let (Link::Ended(why), true) = (&process.link, process.identity.pid != 0) {
        let what = if process.heard.state { "ended" } else { "unwatched" };
        writeln!(out, "{what:<9} {why}")?;
    }
    write_counts(process, out)?;
    if let Some(sampling) = &process.sampling {
        write_sampling(sampling, out)?;
    }
    for row in &process.gpu_memory {
        let used = row.used.map_or("?".to_owned(), mebibytes);
        writeln!(out, "memory    {used} on device #{} (NVML's number)", row.device)?;
    }
    for finding in process.findings.iter() {
        writeln!(out, "finding   {}: {}", finding.rule, finding.sentence)?;
        for evidence in &finding.evidence {
            writeln!(out, "            {evidence}")?;
        }
        writeln!(out, "          → {}", finding.next)?;
    }
    for steps in &process.steps {
        write_steps(steps, out)?;
    }
    write_kernels(process, out)?;
    write_likely(process, out)?;
    write_copies(process, out)?;
    write_streams(process, out)
}

/// Which kinds are on.
fn kinds(process: &Process) -> String {
    match process.kinds.enabled {
        _ if !process.heard.kinds => "kinds: ?".to_owned(),
        none if none.is_empty() => "no kind is on".to_owned(),
        some => format!("kinds: {some}"),
    }
}

fn write_counts(process: &Process, out: &mut impl Write) -> io::Result<()> {
    if process.unseen {
        return writeln!(
            out,
            "records   ?: nothing of its work could be seen, and what was lost is not known"
        );
    }
    let records = &process.records;
    writeln!(
        out,
        "records   {}: kernel {}, memcpy {}, memset {}, other {}",
        records.shown, records.kernel, records.memcpy, records.memset, records.other
    )?;
    let share = match records.lost_share() {
        Some(share) if records.lost() > 0 => format!(" ({:.3} %)", share * 100.0),
        _ => String::new(),
    };
    writeln!(
        out,
        "lost      {}{share}: queue full {}, slow viewer {}, unknown kind {}, dropped by CUPTI {}",
        records.lost(),
        records.lost_queue_full,
        records.lost_slow_viewer,
        records.lost_unknown_kind,
        records.lost_cupti
    )?;
    if !records.balances() {
        writeln!(out, "          {}", records.sum())?;
    }
    if records.unread_bytes > 0 {
        writeln!(
            out,
            "unread    {}: CUPTI does not step over a record in its buffers; how many lie behind it is not known",
            units::bytes(records.unread_bytes)
        )?;
    }
    let validity = &process.validity;
    let rate = validity.rate_total.map_or("?".to_owned(), |rate| format!("{:.3} %", rate * 100.0));
    let bad = Validity::ALL.into_iter().filter(|class| !class.is_valid());
    let seen = bad.filter(|class| validity.total[*class as usize] > 0);
    let classes: Vec<String> =
        seen.map(|class| format!("{} {}", class.name(), validity.total[class as usize])).collect();
    let classes = if classes.is_empty() { String::new() } else { format!(": {}", classes.join(", ")) };
    writeln!(out, "invalid   {rate}{classes}")?;
    if let Some(first) = &validity.first_invalid {
        let index = first.index.map_or("?".to_owned(), |index| index.to_string());
        let (class, name) = (first.class.name(), &first.name);
        let since = if validity.earlier.is_some() { " of those counted here" } else { "" };
        writeln!(
            out,
            "first bad kernel record #{index}{since}, {class}, start {} end {}, {name}",
            first.start, first.end
        )?;
    }
    if let Some(latency) = &process.latency {
        writeln!(out, "launches  {}", launches(latency))?;
    }
    for pool in &process.pools {
        let used = pool.observed.or(pool.computed).map_or("?".to_owned(), |buffers| buffers.to_string());
        let state = if pool.in_doubt { "may leak: at worst so many" } else { pool.state.name() };
        let cause = pool.cause.as_ref().filter(|_| !pool.in_doubt).map(|cause| format!(" ({cause})"));
        writeln!(
            out,
            "pool      context {}: {used} of {} buffers, {state}{}{}",
            pool.context,
            pool.limit,
            cause.unwrap_or_default(),
            fills(pool)
        )?;
        if pool.limit_too_late {
            let why = "once the context was made, and has no effect";
            writeln!(out, "          another limit was asked for {why}: {} is used", pool.limit)?;
        }
    }
    Ok(())
}

/// How long kernels waited after their launch.
fn launches(latency: &LaunchLatency) -> String {
    let signed = |ns: i64| format!("{}{}", if ns < 0 { "−" } else { "" }, nanoseconds(ns.unsigned_abs()));
    let mut said = vec![format!("{} joined to their kernel", latency.joined)];
    if latency.joined > 0 {
        let [min, mean, max] = [latency.min_ns, latency.mean_ns, latency.max_ns].map(signed);
        said.push(format!("which began {mean} after on average, {min} to {max}"));
    }
    if latency.slightly_before > 0 {
        said.push(format!("{} seemingly a little before, as clocks differ", latency.slightly_before));
    }
    if latency.well_before > 0 {
        said.push(format!("{} long before, and so invalid", latency.well_before));
    }
    said.join(", ")
}

/// In how long a pool is full, where it fills.
fn fills(pool: &Pool) -> String {
    let range = units::range(pool.exhausts_earliest, pool.exhausts_latest);
    pool.exhausts_in.map_or_else(String::new, |left| format!(", full in {}{range}", units::age(left)))
}

fn write_steps(steps: &Steps, out: &mut impl Write) -> io::Result<()> {
    let of = |ns| nanoseconds(ns);
    writeln!(
        out,
        "steps     {} of {} (p99 {}), jitter {}, {} kernels in {} graph launches, idle {} inside and {} between",
        steps.count,
        of(steps.p50_ns),
        of(steps.p99_ns),
        of(steps.jitter_ns),
        steps.kernels,
        steps.launches,
        of(steps.idle_inside_ns),
        of(steps.idle_between_ns)
    )
}

/// How it was traced in windows, and what that says of all of the time.
fn write_sampling(sampling: &Sampling, out: &mut impl Write) -> io::Result<()> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    writeln!(
        out,
        "windows   {} seen, {:.3} of {:.3} s; budget {} %",
        sampling.windows,
        seconds(sampling.covered_ns),
        seconds(sampling.span_ns),
        f64::from(sampling.budget_ppm) / 1e4
    )?;
    if sampling.relief == Relief::None {
        return writeln!(out, "          they save nothing: kernels are traced between them too");
    }
    if let (Some(calls), Some(time)) = (sampling.calls, sampling.total_ns) {
        let (calls, time) =
            (about(calls, |calls| format!("{calls:.0}")), about(time, |ns| nanoseconds(ns as u64)));
        writeln!(out, "          in all of the time likely {calls} kernels, {time} (95 %)")?;
    }
    match sampling.rare_below {
        Some(rare) => writeln!(out, "          kernels of fewer than {rare} calls may be unseen"),
        None => Ok(()),
    }
}

/// A value with its interval in other words: `12400 (12100 to 12800)`.
fn about(estimate: Estimate, words: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", words(estimate.value), words(estimate.low), words(estimate.high))
}

/// The kernels as they are likely to be in all of the time.
fn write_likely(process: &Process, out: &mut impl Write) -> io::Result<()> {
    let likely = process.kernels.iter().filter_map(|row| Some((row, row.estimate?)));
    let mut rows: Vec<_> = likely.collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by(|(_, a), (_, b)| b.total_ns.value.total_cmp(&a.total_ns.value));
    writeln!(
        out,
        "\n         share, 95 %                    calls, 95 %  kernel, scaled from windows to all of the time"
    )?;
    for (row, estimate) in rows.iter().take(ROWS) {
        let share = about(estimate.share, |share| format!("{:.1}", share * 100.0));
        let calls = about(estimate.calls, |calls| format!("{calls:.0}"));
        writeln!(out, "{share:>18} % {calls:>30}  {}", row.name.short)?;
    }
    more(rows.len(), out)
}

fn write_kernels(process: &Process, out: &mut impl Write) -> io::Result<()> {
    if process.kernels.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  share     calls       total       p50       p99       max  kernel")?;
    for row in process.kernels.iter().take(ROWS) {
        let known = |ns: u64| if row.calls > 0 { nanoseconds(ns) } else { "?".to_owned() };
        writeln!(
            out,
            "{:>5.1} % {:>9} {:>11} {:>9} {:>9} {:>9}  {}",
            row.share * 100.0,
            row.calls,
            nanoseconds(row.total_ns),
            known(row.p50_ns),
            known(row.p99_ns),
            known(row.max_ns),
            row.name.short
        )?;
    }
    more(process.kernels.len(), out)
}

fn write_copies(process: &Process, out: &mut impl Write) -> io::Result<()> {
    if process.copies.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ncopies        calls       total       bytes        rate")?;
    for row in &process.copies {
        let (total, bytes) = (nanoseconds(row.total_ns), mebibytes(row.bytes));
        let rate = row.rate().map_or("?".to_owned(), |rate| format!("{rate:.1} GB/s"));
        writeln!(out, "{:<9} {:>9} {total:>11} {bytes:>11} {rate:>11}", row.direction, row.calls)?;
        if let Some(likely) = row.estimate {
            let calls = about(likely.calls, |calls| format!("{calls:.0}"));
            let bytes = about(likely.bytes, |bytes| mebibytes(bytes as u64));
            writeln!(out, "          in all of the time likely {calls}, {bytes}")?;
        }
    }
    Ok(())
}

fn write_streams(process: &Process, out: &mut impl Write) -> io::Result<()> {
    if process.streams.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ndevice  context   stream   records        busy   busy of its span")?;
    for row in process.streams.iter().take(ROWS) {
        let device = row.device.map_or("?".to_owned(), |device| device.to_string());
        let share = if row.span_ns == 0 { 0.0 } else { row.busy_ns as f64 * 100.0 / row.span_ns as f64 };
        let (context, stream, records) = (row.context, row.stream, row.records);
        let busy = nanoseconds(row.busy_ns);
        let likely = row.busy_share.map_or_else(String::new, |share| {
            format!("  likely {} % of all of the time", about(share, |share| format!("{:.1}", share * 100.0)))
        });
        writeln!(
            out,
            "{device:>6} {context:>8} {stream:>8} {records:>9} {busy:>11} {share:>15.1} %{likely}"
        )?;
    }
    more(process.streams.len(), out)
}

fn more(rows: usize, out: &mut impl Write) -> io::Result<()> {
    match rows.checked_sub(ROWS) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "… and {more} more"),
    }
}

/// A time with three or four digits and its unit.
fn nanoseconds(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::message::PoolState;

    #[test]
    fn a_pool_is_told_with_why_and_with_a_limit_that_came_too_late() {
        let pool = |state, limit_too_late| Pool {
            context: 1,
            limit: 250,
            computed: Some(3),
            state,
            cause: (state == PoolState::Unknown).then(|| "memcpy is off".to_owned()),
            limit_too_late,
            ..Pool::default()
        };
        let leaking = Pool {
            exhausts_in: Some(38.2),
            exhausts_earliest: Some(33.9),
            ..pool(PoolState::Leaking, false)
        };
        let process = Process {
            pools: vec![
                pool(PoolState::Unknown, false),
                pool(PoolState::Safe, true),
                leaking.clone(),
                Pool { exhausts_latest: Some(43.7), ..leaking },
            ],
            ..Process::default()
        };
        let mut text = Vec::new();
        write_counts(&process, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let pools: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("pool")).collect();
        assert_eq!(
            pools,
            [
                "pool      context 1: 3 of 250 buffers, unknown (memcpy is off)",
                "pool      context 1: 3 of 250 buffers, safe",
                "          another limit was asked for once the context was made, and has no effect: 250 is used",
                "pool      context 1: 3 of 250 buffers, leaking, full in 38 s (34 s or more)",
                "pool      context 1: 3 of 250 buffers, leaking, full in 38 s (34 s to 44 s)",
            ]
        );
    }
}
