//! `gtop run`: start a command with the shim.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use gtop_protocol::KindSet;

use super::{Failure, Outcome};
use crate::system::foreground::Foreground;
use crate::system::launch::{self, EXIT_GTOP, LaunchError, Output};

/// Start a command with the shim.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gtop run -- python train.py\n  gtop run --arm 60s -- vllm serve MODEL\n  \
                        gtop run --no-view -- python serve.py\n\n\
                        Exit code: that of the command, 128 + N after signal N; 125 if gtop failed before the \
                        command started, 126 if it cannot be executed, 127 if it was not found."
)]
pub struct Args {
    /// Arm before CUDA begins. Graphs made from then on cannot be left unwatched at no cost.
    #[arg(long)]
    early: bool,
    /// Activity kinds to enable, separated by commas; `safe` and `all` are sets.
    #[arg(long, value_name = "LIST", value_parser = kinds)]
    kinds: Option<KindSet>,
    /// Leave the terminal to the command; attach later with `gtop --attach`.
    #[arg(long)]
    no_view: bool,
    /// Preload this libcupti.so.13 or .12 and use it.
    #[arg(long, value_name = "LIB")]
    cupti: Option<PathBuf>,
    /// Device buffers CUPTI may have for each context; arms early.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pool_limit: Option<u32>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn kinds(list: &str) -> Result<KindSet, String> {
    match KindSet::parse(list) {
        Ok(kinds) if kinds.is_empty() => Err("no kind is named".into()),
        Ok(kinds) => Ok(kinds),
        Err(name) => Err(format!("`{name}` is no kind")),
    }
}

impl Args {
    fn options(&self) -> launch::Options {
        launch::Options {
            early: self.early,
            kinds: self.kinds,
            cupti: self.cupti.clone(),
            pool_limit: self.pool_limit,
            read_only: false,
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Starts the command and gives its exit code.
pub fn run(args: &Args) -> Outcome {
    without_view(args)
}

/// The command has the terminal, the signals and the last word.
fn without_view(args: &Args) -> Outcome {
    let own = |error| Failure::new(EXIT_GTOP, error);
    let foreground = Foreground::prepare().map_err(own)?;
    let mut command = launch::prepare(&args.command, &args.options(), &Output::Inherit)?;
    foreground.release(&mut command);
    let mut child = launch::start(&mut command)?;
    let status = foreground.wait(&mut child).map_err(own)?;
    Ok(ExitCode::from(launch::exit_code(status)))
}
