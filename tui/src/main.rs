//! The `gtop` binary.

use std::ffi::OsString;
use std::process::ExitCode;

use gtop::command::Cli;
use gtop::doctor::child as doctor;
use gtop::probe::child as probe;
use gtop::system::{demo, foreground, limits, nvml};

fn main() -> ExitCode {
    limits::with_stack(run)
}

fn run() -> ExitCode {
    // The helper, the demo's process, the probe's and the doctor's are this program too, and have command lines of their own.
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == nvml::SUBCOMMAND
    {
        return nvml::helper_main(rest);
    }
    if let Some((first, rest)) = args.split_first()
        && first == demo::SUBCOMMAND
    {
        return demo::child_main(rest);
    }
    if let Some((first, rest)) = args.split_first()
        && first == probe::SUBCOMMAND
    {
        return probe::child_main(rest);
    }
    if let Some((first, rest)) = args.split_first()
        && first == doctor::SUBCOMMAND
    {
        return doctor::child_main(rest);
    }
    let code = match Cli::read() {
        Ok(cli) => cli.run().unwrap_or_else(|failure| failure.report()),
        Err(code) => code,
    };
    foreground::end();
    code
}
