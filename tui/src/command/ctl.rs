//! `gtop ctl`: ask the shim of a process for something, and say what came of it.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use gtop_protocol::control::{Action, MAX_TEXT, YES};
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::{Outcome as Answered, Reply};
use gtop_protocol::{Kind, KindSet};

use super::consent::{ConsentAnywhere, find_in_lines};
use super::within::Within;
use super::{Failure, NO_TARGET, NOT_WELL, Outcome, block_on, put, tell};
use crate::model::names::safe;
use crate::source::live::{Input, Live};
use crate::system::attach::Target;

/// How long a shim may take to answer. Arming waits for CUPTI, which can take many seconds in a large process.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ask the shim of a process for something; whoever views it sees that.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gtop ctl --attach 844 disable overhead\n  gtop ctl --attach 844 mark 'deploy 17'"
)]
pub struct Args {
    /// The process, or any ancestor of it.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true)]
    attach: u32,
    #[command(flatten)]
    within: Within,
    /// Do it even if it harms the process; without this the consequence is shown and asked about.
    #[arg(long, global = true)]
    yes: bool,
    #[command(flatten)]
    consent: ConsentAnywhere,
    #[command(subcommand)]
    action: Wish,
}

#[derive(Debug, Subcommand)]
enum Wish {
    /// Switch activity kinds on.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 enable overhead")]
    Enable(Kinds),
    /// Switch activity kinds off.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 disable memcpy --yes")]
    Disable(Kinds),
    /// Arm, and stay armed until `rest`, whoever watches.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 arm")]
    Arm,
    /// Rest, whoever watches.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 rest")]
    Rest,
    /// Trace in short windows so that it costs at most this much of the process's time; 0 traces in full.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 budget 1")]
    Budget {
        /// Percent, such as 1 or 0.5.
        #[arg(value_name = "PERCENT", value_parser = super::percent)]
        ppm: u32,
    },
    /// Put a mark into the stream of everyone who watches.
    #[command(after_help = "Example:\n  gtop ctl --attach 844 mark 'deploy 17'")]
    Mark {
        /// The mark's text.
        #[arg(value_parser = mark)]
        text: String,
    },
}

#[derive(Debug, clap::Args)]
struct Kinds {
    /// kernel, memcpy, memset, overhead, sync, memory, runtime or driver.
    #[arg(required = true, value_name = "KIND", value_parser = kind)]
    kinds: Vec<Kind>,
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("no such kind; there are {}", names.join(", "))
    })
}

fn mark(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("a mark needs a text".to_owned()),
        1..=MAX_TEXT => Ok(text.to_owned()),
        _ => Err(format!("a mark has at most {MAX_TEXT} bytes")),
    }
}

impl Wish {
    fn action(&self) -> Action<'_> {
        let set = |kinds: &Kinds| kinds.kinds.iter().copied().collect::<KindSet>().0;
        match self {
            Self::Enable(kinds) => Action::Enable(set(kinds)),
            Self::Disable(kinds) => Action::Disable(set(kinds)),
            Self::Arm => Action::Arm,
            Self::Rest => Action::Rest,
            Self::Budget { ppm } => Action::Budget(*ppm),
            Self::Mark { text } => Action::Mark(text.as_bytes()),
        }
    }
}

/// Asks every process found.
pub fn run(args: &Args) -> Outcome {
    Ok(ExitCode::from(carry_out(args, &confirm)?))
}

/// Asks every process found, and `confirm`, with the process id and what would happen, whether to do what harms.
/// Gives the exit code.
pub(crate) fn carry_out(args: &Args, confirm: Confirm<'_>) -> Result<u8, Failure> {
    let mut targets = find_in_lines(args.within.pid(args.attach)?, args.consent.into(), false)?.targets;
    targets.retain(|target| target.reach.is_ok());
    block_on(async {
        let mut code = 0;
        for target in targets {
            code = code.max(one(target, args, confirm).await?);
        }
        Ok(code)
    })?
}

type Confirm<'a> = &'a dyn Fn(u32, &str) -> bool;

/// Asks one process; gives the exit code.
async fn one(target: Target, args: &Args, confirm: Confirm<'_>) -> Result<u8, Failure> {
    let pid = target.process.pid;
    let unusable = |why: &dyn std::fmt::Display| Failure::new(NO_TARGET, format!("process {pid}: {why}"));
    let endpoint = target.reach.map_err(|missing| unusable(&missing))?;
    let live = Live::connect(target.process, &endpoint, false, "gtop ctl").await;
    let mut live = live.map_err(|error| unusable(&error))?;
    let mut answer = ask(&mut live, args.action.action(), args.yes).await?;
    if answer.0 == Answered::NeedsYes && !args.yes && confirm(pid, &answer.1) {
        answer = ask(&mut live, args.action.action(), true).await?;
    }
    let (outcome, text) = answer;
    match outcome {
        Answered::Done => {
            let text = if text.is_empty() { "done" } else { &text };
            put(|out| writeln!(out, "process {pid}: {text}"))?;
            Ok(0)
        }
        Answered::NeedsYes => {
            tell(format_args!("process {pid}: not done. {text}\nTo do it all the same, add --yes."));
            Ok(NOT_WELL)
        }
        Answered::Refused => {
            tell(format_args!("process {pid}: refused: {text}"));
            Ok(NOT_WELL)
        }
        Answered::Failed => {
            tell(format_args!("process {pid}: failed: {text}"));
            Ok(NOT_WELL)
        }
    }
}

/// Sends one request and waits for its reply.
async fn ask(live: &mut Live, action: Action<'_>, yes: bool) -> Result<(Answered, String), Failure> {
    let pid = live.process().pid;
    let id = live.request(action, if yes { YES } else { 0 }).await?;
    let reply = async {
        loop {
            match live.next().await {
                Input::Frames(bytes) => {
                    if let Some(reply) = reply_to(id, bytes) {
                        return Ok(reply);
                    }
                }
                Input::Link(link) => {
                    let text =
                        format!("process {pid}: the connection ended before an answer came ({link:?})");
                    return Err(Failure::new(NO_TARGET, text));
                }
            }
        }
    };
    let text = || format!("process {pid}: no answer in {} s; CUPTI may be stuck", PATIENCE.as_secs());
    tokio::time::timeout(PATIENCE, reply).await.unwrap_or_else(|_| Err(Failure::new(NO_TARGET, text())))
}

fn reply_to(id: u64, bytes: &[u8]) -> Option<(Answered, String)> {
    let mut rest = bytes;
    while let Ok(Some((frame, tail))) = Frame::split(rest) {
        rest = tail;
        if frame.kind() == Some(FrameKind::Reply)
            && let Ok(reply) = Reply::read(frame.body)
            && reply.request == id
        {
            return Some((Answered::from_wire(reply.outcome), safe(reply.text)));
        }
    }
    None
}

/// Shows what would happen and asks, where there is someone to ask.
fn confirm(pid: u32, consequence: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let _ = write!(io::stderr(), "process {pid}: {consequence}\nDo it? [y/N] ");
    let _ = io::stderr().flush();
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}
