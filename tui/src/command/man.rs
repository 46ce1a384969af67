//! `gtop man`: the manual page, or one for each subcommand.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use super::{Cli, Failure, Outcome, USAGE};
use crate::system::process::readable;

/// Print the manual page.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop man | man -l -\n  gtop man --into ~/.local/share/man/man1")]
pub struct Args {
    /// Write gtop.1 and a page for each subcommand into DIR instead.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Prints or writes it.
pub fn run(args: &Args) -> Outcome {
    if let Some(folder) = &args.into {
        write_all(folder).map_err(|error| Failure::new(USAGE, format!("{}: {error}", readable(folder))))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    out.write_all(&page(Cli::command())?)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    Ok(text)
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = Cli::command();
    command.build();
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name = format!("gtop-{}", sub.get_name());
        // What reads the name wants it for as long as the program runs.
        let sub = sub.clone().name(&*name.clone().leak());
        fs::write(folder.join(format!("{name}.1")), page(sub)?)?;
    }
    fs::write(folder.join("gtop.1"), page(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_with_its_examples() {
        let folder = tempfile::tempdir().unwrap();
        write_all(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("gtop.1").contains("top for CUDA kernels"));
        insta::assert_snapshot!("man", read("gtop.1").replace(env!("CARGO_PKG_VERSION"), "VERSION"));
        for sub in Cli::command().get_subcommands() {
            let page = read(&format!("gtop-{}.1", sub.get_name()));
            assert!(page.contains("Example"), "{} has no example", sub.get_name());
        }
    }
}
