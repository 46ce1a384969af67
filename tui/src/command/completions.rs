//! `gtop completions SHELL`: what a shell needs to complete command lines.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete_nushell::Nushell;

use super::{Cli, Outcome};
use std::process::ExitCode;

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gtop completions bash > ~/.local/share/bash-completion/completions/gtop\n  \
                        gtop completions zsh > ~/.zfunc/_gtop\n  \
                        gtop completions fish > ~/.config/fish/completions/gtop.fish"
)]
pub struct Args {
    /// Which shell.
    shell: Which,
}

/// The shells there are completions for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    Bash,
    Elvish,
    Fish,
    Nushell,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

/// Prints them.
pub fn run(args: &Args) -> Outcome {
    let text = generate(args.shell);
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn generate(shell: Which) -> Vec<u8> {
    let mut command = Cli::command();
    let mut text = Vec::new();
    let shell = match shell {
        Which::Bash => Shell::Bash,
        Which::Elvish => Shell::Elvish,
        Which::Fish => Shell::Fish,
        Which::PowerShell => Shell::PowerShell,
        Which::Zsh => Shell::Zsh,
        Which::Nushell => {
            clap_complete::generate(Nushell, &mut command, "gtop", &mut text);
            return text;
        }
    };
    clap_complete::generate(shell, &mut command, "gtop", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_is_told_of_every_command_and_option() {
        let command = Cli::command();
        for shell in Which::value_variants() {
            let text = String::from_utf8(generate(*shell)).unwrap();
            if matches!(shell, Which::Bash | Which::Fish | Which::Nushell | Which::Zsh) {
                insta::assert_snapshot!(format!("completions_{shell:?}").to_lowercase(), text);
            }
            for sub in command.get_subcommands() {
                assert!(text.contains(sub.get_name()), "{shell:?} {}", sub.get_name());
                for long in sub.get_arguments().filter_map(clap::Arg::get_long) {
                    assert!(text.contains(long), "{shell:?} {} --{long}", sub.get_name());
                }
            }
        }
    }
}
