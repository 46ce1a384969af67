//! Parquet in folders `host=…/date=…`, so that the recordings of a fleet are one table to DuckDB, Spark, Trino and
//! DataFusion. Host and date are in the folders' names and not in the files.

use std::fmt::Write;
use std::io;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::output::Output;
use super::parquet::Parquet;
use super::rows::About;
use super::{Row, Sink};

/// Days that are written at once. Records come almost in order; what jumps about gets more files.
const OPEN: usize = 2;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// What Hive calls a partition without a value.
const NOBODY: &str = "__HIVE_DEFAULT_PARTITION__";

/// The folders of one export.
pub(super) struct Hive<'s> {
    output: Output,
    about: About<'s>,
    files: u32,
    /// The newest last.
    open: Vec<Day<'s>>,
}

struct Day<'s> {
    /// Days since the epoch.
    since: u64,
    /// Which of the files written it is.
    number: usize,
    sink: Parquet<'s>,
}

impl<'s> Hive<'s> {
    pub(super) const fn begin(output: Output, about: About<'s>) -> Self {
        Self { output, about, files: 0, open: Vec::new() }
    }

    fn begin_day(&mut self, day: u64) -> io::Result<()> {
        if self.open.len() >= OPEN {
            let oldest = self.open.remove(0);
            self.end(oldest)?;
        }
        self.files += 1;
        let host = self.about.host.map_or_else(|| NOBODY.to_owned(), escaped);
        let folder = self.output.path.join(format!("host={host}")).join(format!("date={}", date(day)));
        let began = at(self.about.origin).strftime("%Y%m%dT%H%M%S").to_string();
        let path = folder.join(format!("{}-{began}-{}.parquet", escaped(&self.output.stem), self.files));
        let number = self.output.written.count();
        let out = self.output.open(path)?;
        let sink = Parquet::begin(out, &["host"])?;
        self.open.push(Day { since: day, number, sink });
        Ok(())
    }

    fn end(&self, mut day: Day<'s>) -> io::Result<()> {
        day.sink.finish()?;
        self.output.written.ended(day.number, day.sink.bytes())
    }
}

impl<'s> Sink<'s> for Hive<'s> {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        let when = row.time.map(|(start, _)| start).or(row.arrived).unwrap_or(self.about.origin);
        let day = when / (DAY * 1_000_000_000);
        let place = self.open.iter().position(|open| open.since == day);
        let full = place.filter(|place| self.open[*place].sink.bytes() >= self.output.limit());
        if let Some(full) = full {
            let ended = self.open.remove(full);
            self.end(ended)?;
        }
        if place.is_none() || full.is_some() {
            self.begin_day(day)?;
            return self.open.last_mut().map_or(Ok(()), |open| open.sink.row(row));
        }
        place.map_or(Ok(()), |place| self.open[place].sink.row(row))
    }

    fn bytes(&self) -> u64 {
        self.output.written.bytes().0 + self.open.iter().map(|open| open.sink.bytes()).sum::<u64>()
    }

    fn finish(&mut self) -> io::Result<()> {
        std::mem::take(&mut self.open).into_iter().try_for_each(|day| self.end(day))
    }
}

fn at(ns: u64) -> jiff::ZonedDateTime {
    Timestamp::from_nanosecond(ns.into()).unwrap_or_default().to_zoned_datetime(TimeZone::UTC)
}

/// The day's date in UTC.
fn date(day: u64) -> String {
    at(day.saturating_mul(DAY * 1_000_000_000)).strftime("%Y-%m-%d").to_string()
}

/// A text as part of a path, as Hive writes it: everything that is not plain as its bytes' numbers.
fn escaped(text: &str) -> String {
    let mut plain = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => plain.push(byte.into()),
            b'.' if !plain.is_empty() => plain.push('.'),
            _ => {
                // A string takes whatever is written.
                let _ = write!(plain, "%{byte:02X}");
            }
        }
    }
    if plain.is_empty() { NOBODY.to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_folder() {
        assert_eq!(escaped("gpu-7.example.org"), "gpu-7.example.org");
        assert_eq!(escaped("../a b=ü"), "%2E.%2Fa%20b%3D%C3%BC");
        assert_eq!(escaped(""), NOBODY);
        assert_eq!(date(19_475), "2023-04-28");
    }
}
