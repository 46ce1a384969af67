//! `gtop export`: a recording, or raw buffers, as a file that other programs read.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

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
    /// The new file, or - for standard output. Nothing is overwritten, and nothing is there before all of it is: until then
    /// it is .OUT.PID.part beside. With parquet also a folder, such as fleet/: its files go to host=NAME/date=DAY below it.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Only records that start then or later: a time since the beginning (20s), or of day (17:31:04). Names, kinds and counts
    /// from before are known, and calls of the minute before: what only earlier ones show to be invalid is taken as valid.
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
    if output.is_stream() && args.max_size.is_some() {
        let text = "standard output, a pipe or a device is one file: leave --max-size away";
        return Err(Failure::new(USAGE, text));
    }
    take_away_when_ended(&output)?;
    let mut line = Line::new();
    let ended = export::export(source, &selection, &output, &mut |progress| line.show(progress));
    line.clear();
    let unwritable =
        |error: io::Error| Failure::new(NO_TARGET, format!("{}: {error}", safe_path(&args.output)));
    let done = match ended {
        Ok(done) => done,
        Err(Stopped::Unreadable(error)) => return Err(unreadable(error)),
        // Whoever read has had enough.
        Err(Stopped::Unwritable(error))
            if output.is_stdout() && error.kind() == io::ErrorKind::BrokenPipe =>
        {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Stopped::Unwritable(error)) => return Err(unwritable(error)),
    };
    if done.rows == 0 && done.damage.is_none() && (args.from.is_some() || args.until.is_some()) {
        let what = if args.name.is_some() { "nothing of that name" } else { "nothing" };
        return Err(Failure::new(NO_TARGET, format!("there is {what} between these times{lasts}")));
    }
    if args.estimate {
        let bytes: u64 = output.written.parts().iter().map(|part| part.bytes).sum();
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
    output.written.put_in_place().map_err(unwritable)?;
    let line = |part: &Part| format!("{}: {}", safe_path(&part.path), units::bytes(part.bytes));
    let mut said: Vec<String> = output.written.parts().iter().map(line).collect();
    let samples = match done.samples {
        0 => String::new(),
        samples => {
            format!(", and {} device samples without believable times are left out", units::count(samples))
        }
    };
    let sum = format!("{} records{invalid}{samples}", units::count(done.rows));
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

/// Has whoever ends this program with a signal end it with nothing left of what is not whole. A signal that is ignored
/// stays so, as under `nohup`.
fn take_away_when_ended(output: &Output) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    limits_are_errors(&runtime);
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    let ignored = status.map_or(0, |status| status.sigign);
    let ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let ends = ends.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
    let hear = |kind: SignalKind| {
        let _entered = runtime.enter();
        signal(kind).map(|signal| (kind, signal))
    };
    let mut heard = ends.map(hear).collect::<io::Result<Vec<_>>>()?;
    if heard.is_empty() {
        return Ok(());
    }
    let (unfinished, path) =
        (output.written.unfinished(), (!output.is_stdout()).then(|| output.path.clone()));
    thread::Builder::new().name("gtop-signals".into()).spawn(move || {
        let came = std::future::poll_fn(|cx| {
            let number = heard
                .iter_mut()
                .find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then(|| kind.as_raw_value()));
            number.map_or(Poll::Pending, Poll::Ready)
        });
        let number = runtime.block_on(came);
        unfinished.take_away_and(|| {
            if let Some(path) = path {
                // Nobody reads it if it cannot be written.
                let _ =
                    writeln!(io::stderr(), "\ngtop: ended by a signal: {} was not made", safe_path(&path));
            }
            std::process::exit(128 + number);
        });
    })?;
    Ok(())
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
