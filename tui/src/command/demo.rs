//! `gtop demo`: the whole pipeline without a GPU.

use std::io::{self, Write};
use std::process::ExitCode;

use super::{DAMAGED, Failure, NO_TARGET, Outcome, USAGE, attach};
use crate::app::{self, Files, Newcomers};
use crate::model::snapshot::SourceKind;
use crate::replay;
use crate::source::replay::Player;
use crate::source::sample;
use crate::system::demo::{Demo, DemoError};

/// The whole pipeline without a GPU: a simulated CUPTI, the real shim, socket and viewer.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop demo vllm\n  gtop demo recorded\n  gtop demo --list")]
pub struct Args {
    /// Which scenario, or a file of one.
    #[arg(default_value = "vllm")]
    scenario: String,
    /// List the scenarios and do nothing else.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    drawing: attach::Drawing,
}

/// Shows the scenario.
pub fn run(args: &Args) -> Outcome {
    if args.list {
        return list();
    }
    if args.scenario == sample::NAME {
        return recorded(args);
    }
    let mut demo = start(&args.scenario)?;
    let targets = demo.targets().map_err(failure)?;
    let label = format!("demo {}", args.scenario);
    let files = Files { record: args.drawing.recorder(&label)?, ..Files::default() };
    let handle = app::attach(
        demo.pid(),
        targets,
        Newcomers::default(),
        SourceKind::Demo,
        &label,
        demo.devices(),
        files,
    )
    .map_err(|error| Failure::new(NO_TARGET, error))?;
    attach::show(handle, None, &args.drawing)
}

/// Plays the recording that comes with gtop.
fn recorded(args: &Args) -> Outcome {
    if args.drawing.is_recorded() {
        let text = "this is a recording already; `gtop record --demo recorded -o FILE` gives it as a file";
        return Err(Failure::new(USAGE, text));
    }
    let recording = sample::open().map_err(|error| Failure::new(DAMAGED, error))?;
    let player = Player::new(recording, &format!("demo {}", sample::NAME));
    let handle = replay::start(player, sample::SPEED, true)?;
    attach::show(handle, None, &args.drawing)
}

/// Starts a scenario.
pub fn start(scenario: &str) -> Result<Demo, Failure> {
    Demo::start(scenario).map_err(failure)
}

/// A demo's error with its exit code.
#[must_use]
pub fn failure(error: DemoError) -> Failure {
    let code = if matches!(error, DemoError::Scenario(_)) { USAGE } else { NO_TARGET };
    Failure::new(code, error)
}

fn list() -> Outcome {
    let mut out = io::stdout().lock();
    for (name, description, _) in gtop_sim::scenarios() {
        writeln!(out, "{name:<14} {description}")?;
    }
    writeln!(out, "{:<14} {}", sample::NAME, sample::DESCRIPTION)?;
    Ok(ExitCode::SUCCESS)
}
