//! `gtop export`: a recording, or raw buffers, as a file that other programs read.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::record::size;
use super::stat::unreadable;
use super::{DAMAGED, Failure, NO_TARGET, Outcome, USAGE};
use crate::export::{self, Format, Glob, Output, Part, Progress, Selection, Source, Stopped, Written};
use crate::recorder::{limits_are_errors, safe_path};
use crate::source::file::{self, Opened};
use crate::source::recording::When;
use crate::view::units;

/// Write a recording, or raw CUPTI buffers, as a file that other programs read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop export run.gtop --to perfetto -o run.pftrace\n  \
                        gtop export run.gtop --to parquet -o fleet/\n  \
                        gtop export run.gtop --to ndjson -o - --name '*flash*' --from 5s --until 6s")]
pub struct Args {
    /// A recording (.gtop), or a file of raw CUPTI buffers (.cuptibuf, .cuptibuf.xz).
    file: PathBuf,
    /// The format.
    #[arg(long, value_name = "FORMAT", value_enum)]
    to: Format,
    /// The new file, or - for standard output. Nothing is overwritten. With parquet also a folder, such as fleet/: its
    /// files go to host=NAME/date=DAY below it.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Only records that start then or later: a time since the beginning (20s), or of day (17:31:04).
    #[arg(long, value_name = "T", value_parser = When::parse)]
    from: Option<When>,
    /// Only records that start before then.
    #[arg(long, value_name = "T", value_parser = When::parse)]
    until: Option<When>,
    /// Only records whose whole name fits: * is any text, ? any character.
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Go on in another file, run.2.csv after run.csv, when one is this large: 500k, 100M, 2G [default for perfetto and chrome:
    /// 480M].
    #[arg(long, value_name = "N", value_parser = size)]
    max_size: Option<u64>,
    /// Write nothing, and say about how large it would become.
    #[arg(long)]
    estimate: bool,
}

/// How long it may take before progress is shown, and how often then.
const PATIENCE: Duration = Duration::from_secs(1);
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Exports the file and says what came of it.
pub fn run(args: &Args) -> Outcome {
    let mut lasts = String::new();
    let source = match file::open(&args.file).map_err(unreadable)? {
        Opened::Recording(recording) => {
            lasts = self::lasts(recording.range(), args.from.map(|from| from.of(&recording)));
            Source::Recording(Box::new(recording))
        }
        Opened::Buffers => Source::Buffers(args.file.clone()),
    };
    let name = args.name.as_deref().map(Glob::new);
    let selection = Selection { from: args.from, until: args.until, name, sample: args.estimate };
    let output = Output {
        format: args.to,
        path: args.output.clone(),
        stem: args.file.file_name().map_or_else(String::new, |name| {
            let name = name.to_string_lossy();
            name.split('.').next().unwrap_or_default().to_owned()
        }),
        max_size: args.max_size,
        dry: args.estimate,
        written: Written::default(),
    };
    if output.is_stdout() && args.max_size.is_some() {
        return Err(Failure::new(USAGE, "standard output is one file: leave --max-size away"));
    }
    limits_are_errors(&tokio::runtime::Builder::new_current_thread().enable_all().build()?);
    let mut line = Line::new();
    let ended = export::export(source, &selection, &output, &mut |progress| line.show(progress));
    line.clear();
    let done = match ended {
        Ok(done) => done,
        Err(error) => {
            output.clean_up();
            return match error {
                Stopped::Unreadable(error) => Err(unreadable(error)),
                // Whoever read has had enough.
                Stopped::Unwritable(error)
                    if output.is_stdout() && error.kind() == io::ErrorKind::BrokenPipe =>
                {
                    Ok(ExitCode::SUCCESS)
                }
                Stopped::Unwritable(error) => {
                    Err(Failure::new(NO_TARGET, format!("{}: {error}", safe_path(&args.output))))
                }
            };
        }
    };
    if done.rows == 0 && done.damage.is_none() && (args.from.is_some() || args.until.is_some()) {
        output.take_away();
        let what = if args.name.is_some() { "nothing of that name" } else { "nothing" };
        return Err(Failure::new(NO_TARGET, format!("there is {what} between these times{lasts}")));
    }
    if args.estimate {
        let bytes: u64 = output.written.borrow().iter().map(|part| part.bytes).sum();
        let whole = bytes as f64 * done.of as f64 / done.seen.max(1) as f64;
        let rows = done.rows as f64 * done.of as f64 / done.seen.max(1) as f64;
        let (rows, whole) = (units::count(rows as u64), units::bytes(whole as u64));
        writeln!(io::stdout(), "about {whole}, {rows} records")?;
        return Ok(ExitCode::SUCCESS);
    }
    let invalid = match done.invalid {
        0 => String::new(),
        invalid => format!(", {} without believable times", units::count(invalid)),
    };
    let written = output.written.borrow();
    let line = |part: &Part| format!("{}: {}", safe_path(&part.path), units::bytes(part.bytes));
    let mut said: Vec<String> = written.iter().map(line).collect();
    let sum = format!("{} records{invalid}", units::count(done.rows));
    if output.is_stdout() {
        writeln!(io::stderr(), "{sum}")?;
    } else {
        said.push(sum);
        writeln!(io::stdout(), "{}", said.join("\n"))?;
    }
    match done.damage {
        Some(damage) => {
            let file = safe_path(&args.file);
            Err(Failure::new(DAMAGED, format!("{file}: {damage}; what could be read was exported")))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// How long a recording lasts, and how far behind its end wanted times begin that lie there; for a message that nothing
/// lies between them.
pub(super) fn lasts((first, last): (u64, u64), from: Option<u64>) -> String {
    let span = |from: u64, to: u64| units::age(to.saturating_sub(from) as f64 / 1e9);
    let behind = from
        .filter(|from| *from > last)
        .map_or(String::new(), |from| format!(", and these times begin {} behind its end", span(last, from)));
    format!(": the recording lasts {}{behind}", span(first, last))
}

/// One line on a terminal that says how far it is.
struct Line {
    began: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Line {
    fn new() -> Self {
        Self { began: Instant::now(), shown: None, is_terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        let due = self.shown.map_or(self.began + PATIENCE, |shown| shown + SHOW_EVERY);
        if !self.is_terminal || now < due {
            return;
        }
        self.shown = Some(now);
        let Progress { seen, of, bytes } = progress;
        let whole = bytes as f64 * of.max(seen) as f64 / seen.max(1) as f64;
        let percent = seen * 100 / of.max(seen).max(1);
        let left = (now - self.began).as_secs_f64() * (of.saturating_sub(seen)) as f64 / seen.max(1) as f64;
        // Nobody reads it if it cannot be written.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{percent} %, {} of about {}, {left:.0} s left",
            units::bytes(bytes),
            units::bytes(whole as u64)
        );
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_behind_the_end_are_said_to_be_by_how_much() {
        let second = |seconds: f64| (seconds * 1e9) as u64;
        let range = (second(93.0), second(93.9));
        let ends = ", and these times begin 6.1 s behind its end";
        assert_eq!(lasts(range, Some(second(100.0))), format!(": the recording lasts 0.9 s{ends}"));
        assert_eq!(lasts(range, Some(second(93.5))), ": the recording lasts 0.9 s");
        assert_eq!(lasts(range, None), ": the recording lasts 0.9 s");
    }
}
