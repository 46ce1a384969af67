//! `gtop doctor`: can this machine and this process be watched, and what will it cost?

use std::io::{self, Write};
use std::process::ExitCode;

use super::{Failure, NO_TARGET, NOT_WELL, Outcome, put};
use crate::doctor::{Aim, Level, Machine, Reach, Report, ask, examine, json};
use crate::system::attach::{Missing, Target, targets};
use crate::system::embed;
use crate::system::process::readable;

/// Can this machine and this process be watched, and what will it cost? Exits 1 when something does not work.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop doctor\n  gtop doctor --attach 844 --json")]
pub struct Args {
    /// The process to watch, or any ancestor of it.
    #[arg(long, value_name = "PID")]
    attach: Option<u32>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks, and says what was found.
pub fn run(args: &Args) -> Outcome {
    let aims = match args.attach {
        None => Vec::new(),
        Some(pid) => {
            let gone = |missing: Missing| Failure::new(NO_TARGET, format!("process {pid}: {missing}"));
            targets(pid).map_err(gone)?.iter().map(aim).collect()
        }
    };
    let machine = Machine::this(embed::unpack().map_err(|error| error.to_string()));
    let report = examine(&machine, &mut ask::Live, &aims);
    put(|out| if args.json { json::write(&report, out) } else { text(&report, out) })?;
    Ok(if report.level() == Level::Fault { ExitCode::from(NOT_WELL) } else { ExitCode::SUCCESS })
}

fn aim(target: &Target) -> Aim {
    let reach = match &target.reach {
        Ok(endpoint) => Reach::Open(readable(&endpoint.path)),
        Err(Missing::NotInjected { .. } | Missing::OtherTool(_) | Missing::NotMapped { .. }) => {
            Reach::NotLoaded
        }
        Err(missing) => {
            let next = match missing {
                Missing::Denied { .. } => "run gtop as that user, or as root with CAP_SYS_PTRACE",
                Missing::NoSocket { .. } => "start it with GTOP_LOG=FILE, which says why there is none",
                Missing::Refused(_) => "see whose it is, and remove it if nobody needs it",
                _ => "see whether it still runs",
            };
            Reach::Closed { why: missing.to_string(), next: next.to_owned() }
        }
    };
    Aim { pid: target.process.pid, reach }
}

/// The findings, those about one process under its id.
fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut pid = None;
    for finding in &report.findings {
        if finding.pid != pid {
            pid = finding.pid;
            writeln!(out, "\nprocess {}", pid.map_or("?".to_owned(), |pid| pid.to_string()))?;
        }
        writeln!(out, "{:<8} {:<12} {}", finding.level.name(), finding.id, finding.sentence)?;
        if let Some(next) = &finding.next_step {
            writeln!(out, "{:<8} {:<12} > {next}", "", "")?;
        }
    }
    Ok(())
}
