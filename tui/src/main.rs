//! The `gtop` binary.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use gtop::command::Cli;
use gtop::system::nvml;

fn main() -> ExitCode {
    // The helper is this program too, and has a command line of its own.
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == nvml::SUBCOMMAND
    {
        return nvml::helper_main(rest);
    }
    Cli::parse().run().unwrap_or_else(|failure| failure.report())
}
