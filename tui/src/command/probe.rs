//! `gtop probe`: runs the reproducer of the device-buffer defect on this GPU and CUPTI.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use gtop_protocol::cupti::Verdict;

use super::{Failure, NO_TARGET, NOT_WELL, Outcome, USAGE, block_on};
use crate::probe::{self, Answer, Judged, Law, Patience, Row, RowVerdict, Start, child, json, text};
use crate::system::attach::INJECTION;
use crate::system::embed;
use crate::system::launch::cupti_variables;

/// Does this CUPTI lose records? Replays small graphs on the first GPU, each in a process of its own, and compares
/// what was recorded with what was launched. About two minutes. Exits 0 when all came, 1 when they did not.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gtop probe\n  gtop probe --quick --json --cupti /opt/cupti/libcupti.so.13"
)]
pub struct Args {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Only the rows that decide, in about ten seconds.
    #[arg(long)]
    quick: bool,
    /// Probe this library instead of the one that is found.
    #[arg(long, value_name = "LIB")]
    cupti: Option<PathBuf>,
    /// Device buffers that a context may have; the defect then shows after N × 100,000 slots.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pool_limit: u64,
}

/// A row's process on a GPU: this program once more, with the shim in it.
struct Gpu {
    shim: PathBuf,
    /// What makes it use another CUPTI.
    cupti: Vec<(&'static str, OsString)>,
}

impl Start for Gpu {
    fn command(&self, row: &Row) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let turns = row.turns.to_string();
        command.args([child::SUBCOMMAND, row.load.name(), &turns]).env(INJECTION, &self.shim);
        command.envs(self.cupti.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Runs the rows and says what they say.
pub fn run(args: &Args) -> Outcome {
    let cupti = args.cupti.as_deref().map(library).transpose()?.unwrap_or_default();
    let shim = embed::unpack().map_err(|error| Failure::new(NO_TARGET, error))?;
    let rows = if args.quick { probe::quick } else { probe::full }(args.pool_limit, Law::default());
    let judged = block_on(run_rows(rows, &Gpu { shim, cupti }, args.json))??;
    let answer = probe::answer(&judged);
    let mut out = io::stdout().lock();
    if args.json {
        json::write(&judged, &answer, args.quick, &mut out)?;
    } else {
        writeln!(out, "\n{}", answer.text)?;
    }
    Ok(exit(&answer))
}

/// What makes a row's process use this library: it is preloaded, like that of `gtop run --cupti`.
fn library(path: &Path) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let variables = cupti_variables(path, |name| std::env::var_os(name));
    Ok(variables.map_err(|error| Failure::new(USAGE, error))?.into())
}

/// One row after the other, each shown when it has ended. A first row that cannot run is why none can.
async fn run_rows(rows: Vec<Row>, start: &Gpu, json: bool) -> Result<Vec<Judged>, Failure> {
    let patience = Patience::default();
    let mut judged: Vec<Judged> = Vec::new();
    for row in rows {
        let row = probe::judge(probe::run_row(row, start, &patience).await, Law::default());
        if judged.is_empty() && row.verdict == RowVerdict::NotRun {
            return Err(Failure::new(NO_TARGET, cannot_run(&row)));
        }
        if !json {
            let mut out = io::stdout().lock();
            if judged.is_empty() {
                text::head(&row, &mut out)?;
            }
            text::row(&row, &mut out)?;
            out.flush()?;
        }
        judged.push(row);
    }
    Ok(judged)
}

fn cannot_run(row: &Judged) -> String {
    let no_gpu = row.ran.done.as_ref().is_err_and(|not_run| not_run.no_gpu);
    let advice = if no_gpu {
        "; the probe needs an NVIDIA GPU, `gtop demo defect` shows the defect without one"
    } else if row.ran.tally.version.is_none() && row.ran.device.is_some() {
        "; `gtop probe --cupti LIB` says which libcupti to use, `gtop doctor` lists those it finds"
    } else {
        ""
    };
    format!("the probe cannot run: {}{advice}", row.words)
}

fn exit(answer: &Answer) -> ExitCode {
    match answer.verdict {
        Verdict::Sound => ExitCode::SUCCESS,
        Verdict::Defective => ExitCode::from(NOT_WELL),
        Verdict::Unknown => ExitCode::from(NO_TARGET),
    }
}
