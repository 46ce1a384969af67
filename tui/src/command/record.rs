//! `gtop record`: keep everything a source says in a file, without a screen.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gtop_protocol::recording::{Decoder, Keep, Part};

use super::attach::new_recording;
use super::consent::Consent;
use super::stat::{Wanted, unreadable, unseen, watch_source};
use super::within::Within;
use super::{DAMAGED, Failure, NO_TARGET, Outcome, USAGE, duration};
use crate::model::names::safe;
use crate::model::time::Moment;
use crate::recorder::{self, Recorder, Status};
use crate::source::recording::When;
use crate::source::replay::{self, AnyRecording};
use crate::source::sample;
use crate::view::units;

/// Keep everything a source says in a new file, until it ends or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop record --attach 844 -o run.gtop --for 10s\n  \
                        gtop record --attach 844 -o run.gtop --max-size 100M --max-files 5\n  \
                        gtop record run.gtop -o cut.gtop --from 20s --until 22s\n  \
                        gtop record server.cuptibuf.xz -o server.gtop")]
pub struct Args {
    /// A recording, of which a part is to be kept, or raw CUPTI buffers (.cuptibuf, .cuptibuf.xz).
    #[arg(conflicts_with_all = ["attach", "demo"])]
    file: Option<PathBuf>,
    /// A live process, or any ancestor of it.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true)]
    attach: Option<u32>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    consent: Consent,
    /// A simulated process.
    #[arg(long, value_name = "SCENARIO", conflicts_with = "attach")]
    demo: Option<String>,
    /// The new file. Nothing is overwritten.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long, with a unit: 200ms, 5s, 10m.
    #[arg(long = "for", value_name = "T", value_parser = duration, conflicts_with = "file")]
    time: Option<Duration>,
    /// Go on in another file, run.2.gtop after run.gtop, before one becomes larger than this: 500k, 100M, 2G. One that has
    /// to say more than that of what came before it is larger.
    #[arg(long, value_name = "N", value_parser = size)]
    max_size: Option<u64>,
    /// Keep only the newest of these files.
    #[arg(long, value_name = "N", requires = "max_size", value_parser = clap::value_parser!(u32).range(1..))]
    max_files: Option<u32>,
    /// Of a recording: from then on. A time since its beginning (20s), or of day (17:31:04).
    #[arg(long, value_name = "T", requires = "file", value_parser = When::parse)]
    from: Option<When>,
    /// Of a recording: until then.
    #[arg(long, value_name = "T", requires = "file", value_parser = When::parse)]
    until: Option<When>,
}

/// A number of bytes such as `100M`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("`{unit}` is no unit of size: use k, M or G")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no size: 500k, 100M, 2G"))?;
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(|| format!("`{text}` is no size"))
}

/// Records the source and says what came of it.
pub fn run(args: &Args) -> Outcome {
    let attach = args.within.of(args.attach)?;
    let label = match (&args.file, attach, &args.demo) {
        (Some(file), ..) => safe(file.as_os_str().as_encoded_bytes()),
        (_, Some(pid), _) => format!("pid {pid}"),
        (_, _, Some(scenario)) => format!("demo {scenario}"),
        _ => return Err(Failure::new(USAGE, "say which source: a FILE, --attach PID or --demo SCENARIO")),
    };
    // What cannot be read leaves no new file behind.
    let opened = args.file.as_ref().map(|file| replay::open(file).map_err(unreadable)).transpose()?;
    let mut options = new_recording(&args.output, &label)?;
    (options.max_size, options.max_files) = (args.max_size, args.max_files.map(|files| files as usize));
    let mut unwatched = None;
    let done = if let Some((recording, damage)) = opened {
        cut(recording, damage, options, args)
    } else if args.demo.as_deref() == Some(sample::NAME) {
        let sample = sample::open().map_err(|error| Failure::new(DAMAGED, error))?;
        cut(sample, None, options, args)
    } else {
        let wanted = Wanted { by: "gtop record", time: args.time, record: Some(options), no_more: true };
        watch_source(attach, args.consent, args.demo.as_deref(), wanted).map(|(snapshot, status)| {
            unwatched = unseen(&snapshot);
            (status, None)
        })
    };
    if done.is_err() {
        recorder::remove_empty(&args.output);
    }
    let (status, damage) = done?;
    let status = status.ok_or_else(|| Failure::new(NO_TARGET, "the recording did not begin"))?;
    if let Some(error) = status.error {
        return Err(Failure::new(NO_TARGET, error));
    }
    let each = status.bytes as f64 / status.records.max(1) as f64;
    let (count, bytes) = (units::count(status.records), units::bytes(status.bytes));
    let name = safe(status.file.as_os_str().as_encoded_bytes());
    let each = if status.records > 0 { format!(", {each:.2} bytes a record") } else { String::new() };
    writeln!(io::stdout(), "{name}: {count} records in {bytes}{each}")?;
    match damage {
        Some(damage) => Err(Failure::new(DAMAGED, format!("{label}: {damage}; what could be read was kept"))),
        None => match unwatched {
            Some(why) => Err(Failure::new(NO_TARGET, why)),
            None => Ok(ExitCode::SUCCESS),
        },
    }
}

type Cut = (Option<Status>, Option<String>);

/// Writes a part of a recording as a recording of its own.
fn cut(
    mut recording: AnyRecording,
    damage: Option<String>,
    options: recorder::Options,
    args: &Args,
) -> Result<Cut, Failure> {
    let options = options.seen_by(&recording.head());
    let (first, last) = recording.range();
    let from = args.from.map_or(first, |when| when.of(&recording));
    let until = args.until.map_or(last, |when| when.of(&recording));
    let mut damage = damage.or_else(|| recording.damage().map(|damage| damage.to_string()));
    let mut decoder = Decoder::default();
    let mut keep = Keep::default();
    let mut recorder: Option<Recorder> = None;
    let mut options = Some(options);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for at in 0..recording.chunks().len() {
        if recording.chunks()[at].first.steady > until {
            break;
        }
        let mut failed = None;
        let done = recording.load(at, Part::Whole).and_then(|block| {
            decoder.decode(&block, &mut |entry| {
                if entry.at.steady < from {
                    keep.add(entry);
                    return ControlFlow::Continue(());
                }
                if entry.at.steady > until {
                    return ControlFlow::Break(());
                }
                let moment = Moment { wall: entry.at.wall, steady: entry.at.steady };
                if let Some(options) = options.take() {
                    match Recorder::start(options, std::mem::take(&mut keep), moment) {
                        Ok(started) => recorder = Some(started),
                        Err(error) => failed = Some(error),
                    }
                }
                if let Some(recorder) = &recorder {
                    let header = entry.frame.header.to_bytes();
                    recorder.frames(moment, entry.stream, [&header, entry.frame.body].concat());
                }
                ControlFlow::Continue(())
            })
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        if let Err(found) = done {
            damage.get_or_insert(found.to_string());
        }
        if let Some(recorder) = &recorder {
            runtime.block_on(recorder.room());
        }
    }
    let Some(recorder) = recorder else {
        let lasts = super::export::lasts((first, last), Some(from));
        return Err(Failure::new(NO_TARGET, format!("there is nothing between these times{lasts}")));
    };
    recorder.end();
    let mut status = recorder.status();
    let ended =
        runtime.block_on(async { status.wait_for(|status| status.ended).await.ok().map(|s| s.clone()) });
    Ok((ended, damage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("500k"), Ok(500 << 10));
        assert_eq!(size("100M"), Ok(100 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("12"), Ok(12));
        for bad in ["", "M", "5T", "-1", "0", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
