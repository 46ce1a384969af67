//! `gtop doctor`: can this machine and this process be watched, and what will it cost?

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use gtop_protocol::control::Action;
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::Reply;
use tokio::time::timeout;

use super::within::Within;
use super::{Failure, NO_TARGET, NOT_WELL, Outcome, block_on, put};
use crate::doctor::{Aim, Level, Machine, Reach, Report, Told, ask, examine, json};
use crate::source::live::{ConnectError, Input, Live};
use crate::system::attach::{Missing, Target, targets};
use crate::system::embed;
use crate::system::process::{Process, readable};
use crate::system::socket::Endpoint;

/// Can this machine and this process be watched, and what will it cost? Exits 1 when something does not work.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop doctor\n  gtop doctor --attach 844 --json")]
pub struct Args {
    /// The process to watch, or any ancestor of it.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true)]
    attach: Option<u32>,
    #[command(flatten)]
    within: Within,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks, and says what was found.
pub fn run(args: &Args) -> Outcome {
    let aims = match args.within.of(args.attach)? {
        None => Vec::new(),
        Some(pid) => {
            let gone = |missing: Missing| Failure::new(NO_TARGET, format!("process {pid}: {missing}"));
            let targets = targets(pid).map_err(gone)?;
            if let [Target { reach: Err(missing), .. }] = targets.as_slice()
                && missing.is_no_target()
            {
                return Err(Failure::new(NO_TARGET, format!("process {pid}: {missing}")));
            }
            block_on(async {
                let mut aims = Vec::new();
                for target in &targets {
                    aims.push(aim(target).await);
                }
                aims
            })?
        }
    };
    let machine = Machine::this(embed::unpack().map_err(|error| error.to_string()));
    let report = examine(&machine, &mut ask::Live, &aims);
    put(|out| if args.json { json::write(&report, out) } else { text(&report, out) })?;
    Ok(if report.level() == Level::Fault { ExitCode::from(NOT_WELL) } else { ExitCode::SUCCESS })
}

/// How long a shim may take to say what it knows.
const PATIENCE: Duration = Duration::from_secs(5);

async fn aim(target: &Target) -> Aim {
    let reach = match &target.reach {
        Ok(endpoint) => {
            let socket = readable(&endpoint.path);
            let answered = timeout(PATIENCE, hear(target.process.clone(), endpoint)).await;
            match answered.unwrap_or(Err(ConnectError::NoAnswer)) {
                Ok(told) => Reach::Open { socket, told },
                Err(error) => Reach::Closed {
                    why: format!("there is a socket, {socket}, but {error}"),
                    next: "see whether the process runs, and who else watches it".to_owned(),
                },
            }
        }
        Err(Missing::NotInjected { .. } | Missing::OtherTool(_) | Missing::NotMapped { .. }) => {
            Reach::NotLoaded
        }
        Err(missing) => {
            let next = match missing {
                Missing::Denied { .. } => "run gtop as that user, or as root with CAP_SYS_PTRACE",
                Missing::NoSocket { exhausted: Some(_), .. } => {
                    "raise what the process may open, then `gtop --attach` asks whether the shim is to try again"
                }
                Missing::NoSocket { .. } => "start it with GTOP_LOG=FILE, which says why there is none",
                Missing::Refused(_) => "see whose it is, and remove it if nobody needs it",
                _ => "see whether it still runs",
            };
            Reach::Closed { why: missing.to_string(), next: next.to_owned() }
        }
    };
    Aim { pid: target.process.pid, reach }
}

/// What a shim says of itself to whoever connects and does not watch, which has it call nothing.
async fn hear(process: Process, endpoint: &Endpoint) -> Result<Told, ConnectError> {
    let mut live = Live::connect(process, endpoint, false, "gtop doctor").await?;
    let mut told = Told::default();
    // The answer to what changes nothing comes behind all that there was to say.
    let asked = live.request(Action::Unwatch, 0).await?;
    loop {
        match live.next().await {
            Input::Frames(frames) => {
                told.take(frames);
                if replied(frames, asked) {
                    return Ok(told);
                }
            }
            Input::Link(_) => return Err(ConnectError::HungUp),
        }
    }
}

/// Whether the answer to this request is among the frames.
fn replied(frames: &[u8], request: u64) -> bool {
    let mut rest = frames;
    while let Ok(Some((frame, behind))) = Frame::split(rest) {
        rest = behind;
        if frame.kind() == Some(FrameKind::Reply)
            && Reply::read(frame.body).is_ok_and(|reply| reply.request == request)
        {
            return true;
        }
    }
    false
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
