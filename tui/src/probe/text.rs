//! The probe's table, for people: a line as soon as its row has ended.

use std::io::{self, Write};

use gtop_protocol::Validity;
use gtop_protocol::cupti::CuptiVersion;

use super::verdict::Judged;
use crate::view::units::count;

/// Writes what the rows have in common, and the heads of the columns.
pub fn head(first: &Judged, out: &mut impl Write) -> io::Result<()> {
    let ran = &first.ran;
    if let Some(version) = ran.tally.version {
        writeln!(out, "CUPTI     {} ({version}) {}", CuptiVersion(version), ran.tally.path)?;
    }
    if let Some(device) = &ran.device {
        let driver = ran.driver.map_or("?".to_owned(), cuda);
        writeln!(out, "device    {device}, driver for CUDA {driver}")?;
    }
    writeln!(
        out,
        "\n{:<10} {:<22} {:>4} {:>11} {:>11} {:>11} {:>9} {:>8} {:>9}  verdict",
        "load", "kinds", "pool", "launched", "recorded", "stopped at", "zero", "inverted", "memory"
    )
}

/// Writes one row.
pub fn row(judged: &Judged, out: &mut impl Write) -> io::Result<()> {
    let (row, tally) = (&judged.ran.row, &judged.ran.tally);
    write!(out, "{:<10} {:<22} {:>4} ", row.load, row.kinds.to_string(), row.pool_limit)?;
    match &judged.ran.done {
        Ok(done) => {
            let class = |class: Validity| count(tally.kernels[class as usize]);
            writeln!(
                out,
                "{:>11} {:>11} {:>11} {:>9} {:>8} {:>9}  {}",
                count(done.launched.kernels),
                count(tally.kernel_records()),
                judged.stopped_at.map_or("-".to_owned(), count),
                class(Validity::Zero),
                class(Validity::Inverted),
                growth(done.memory_before, done.memory_after),
                judged.words,
            )
        }
        Err(_) => writeln!(
            out,
            "{:>11} {:>11} {:>11} {:>9} {:>8} {:>9}  not run: {}",
            "?", "?", "?", "?", "?", "?", judged.words
        ),
    }
}

/// How device memory changed, in MiB.
fn growth(before: u64, after: u64) -> String {
    let mib = |bytes: u64| count(bytes >> 20);
    if after >= before {
        format!("+{} MiB", mib(after - before))
    } else {
        format!("-{} MiB", mib(before - after))
    }
}

/// The driver's number as people know it: `13.0`.
pub(crate) fn cuda(driver: i32) -> String {
    format!("{}.{}", driver / 1000, driver % 1000 / 10)
}
