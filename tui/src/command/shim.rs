//! `gtop shim`: the path to put in `CUDA_INJECTION64_PATH`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, NO_TARGET, Outcome};
use crate::system::attach::INJECTION;
use crate::system::embed;

/// Print the path of the shim, for `CUDA_INJECTION64_PATH` in a unit file, an image or a pod.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  CUDA_INJECTION64_PATH=$(gtop shim) python serve.py\n  \
                        gtop shim --copy /opt/gtop\n  gtop shim --env >> /etc/vllm.env")]
pub struct Args {
    /// Copy the shim to a folder first, which is made if need be, readable by everybody.
    #[arg(long, value_name = "DIR")]
    copy: Option<PathBuf>,
    /// Print a line for an environment file.
    #[arg(long)]
    env: bool,
}

/// Prints the path.
pub fn run(args: &Args) -> Outcome {
    let path = args.copy.as_ref().map_or_else(embed::unpack, |dir| embed::copy_to(dir));
    let path = path.map_err(|error| Failure::new(NO_TARGET, error))?;
    let name = if args.env { format!("{INJECTION}=") } else { String::new() };
    let line = [name.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat();
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
