//! `gtop config`: a sample of `gtop.toml`, its schema, and whether one is right.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, Outcome, USAGE};
use crate::config::{Config, sample, schema};
use crate::system::process::readable;

/// What can be written into gtop.toml, and whether it is right.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop config --sample > ~/.config/gtop/gtop.toml\n  gtop config --check")]
#[group(required = true, multiple = false)]
pub struct Args {
    /// Print a file that says everything there is to say, commented out.
    #[arg(long)]
    sample: bool,
    /// Print the JSON schema, for editors.
    #[arg(long)]
    schema: bool,
    /// Print where the file is looked for.
    #[arg(long)]
    path: bool,
    /// Say what is wrong with FILE, or with the one that is used.
    #[arg(long, value_name = "FILE")]
    #[expect(clippy::option_option, reason = "asked for, and with a file or without one")]
    check: Option<Option<PathBuf>>,
}

/// Does what was asked.
pub fn run(args: &Args) -> Outcome {
    let text = if args.sample {
        sample()
    } else if args.schema {
        schema()
    } else if args.path {
        let path = Config::path().ok_or_else(|| Failure::new(USAGE, "there is no home folder to look in"))?;
        format!("{}\n", readable(&path))
    } else {
        let path = args.check.as_ref().and_then(Option::as_deref);
        Config::load(path).map_err(|error| Failure::new(USAGE, error))?;
        "it is right\n".to_owned()
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
