//! The command line: one file a subcommand, and how all of them fail.

pub mod attach;
pub mod choose;
pub mod completions;
pub mod config;
pub mod consent;
pub mod ctl;
pub mod demo;
pub mod doctor;
pub mod export;
pub mod lines;
pub mod man;
pub mod probe;
pub mod record;
pub mod replay;
pub mod run;
pub mod shim;
pub mod stat;
pub mod within;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::system::launch::EXIT_GTOP;
use crate::system::limits;
use crate::system::process::printable;

/// The command line of `gtop`.
#[derive(Debug, Parser)]
#[command(name = "gtop", version, about = "top for CUDA kernels")]
#[command(after_help = "Examples:\n  gtop\n  gtop --attach 844\n  gtop stat --attach 844 --for 5s --json")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    #[command(flatten)]
    view: attach::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    Stat(stat::Args),
    Completions(completions::Args),
    Config(config::Args),
    Ctl(ctl::Args),
    Demo(demo::Args),
    Doctor(doctor::Args),
    Export(export::Args),
    Man(man::Args),
    Probe(probe::Args),
    Record(record::Args),
    Replay(replay::Args),
    Run(run::Args),
    Shim(shim::Args),
}

impl Cli {
    /// What this program's command line says. Help and what is wrong with it are printed; then this is the exit code.
    pub fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            let error = with_a_place_for_host(error);
            let _ = error.print();
            // What `run` gives is the command's, but for those codes that are its own.
            let runs = std::env::args_os().nth(1).is_some_and(|first| first == "run");
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if runs => ExitCode::from(EXIT_GTOP),
                _ => ExitCode::from(USAGE),
            }
        })
    }

    /// Does what was asked.
    pub fn run(self) -> Outcome {
        self.can_begin()?;
        match self.command {
            Some(Command::Stat(args)) => stat::run(&args),
            Some(Command::Completions(args)) => completions::run(&args),
            Some(Command::Config(args)) => config::run(&args),
            Some(Command::Ctl(args)) => ctl::run(&args),
            Some(Command::Demo(args)) => demo::run(&args),
            Some(Command::Doctor(args)) => doctor::run(&args),
            Some(Command::Export(args)) => export::run(&args),
            Some(Command::Man(args)) => man::run(&args),
            Some(Command::Probe(args)) => probe::run(&args),
            Some(Command::Record(args)) => record::run(&args),
            Some(Command::Replay(args)) => replay::run(&args),
            Some(Command::Run(args)) => run::run(&args),
            Some(Command::Shim(args)) => shim::run(&args),
            None => attach::run(&self.view),
        }
    }

    /// Whether the system gives what the command takes; before anything is done.
    fn can_begin(&self) -> Result<(), Failure> {
        let code = match self.command {
            // They open a file at most.
            Some(Command::Completions(_) | Command::Config(_) | Command::Man(_) | Command::Shim(_)) => {
                return Ok(());
            }
            Some(Command::Run(_)) => EXIT_GTOP,
            _ => NO_TARGET,
        };
        limits::enough_descriptors().map_err(|error| Failure::new(code, error))
    }
}

/// What is like `--host` in a subcommand is something else: the option is the screen's alone.
fn with_a_place_for_host(mut error: clap::Error) -> clap::Error {
    let is_host =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg == "--host");
    if is_host && error.kind() == ErrorKind::UnknownArgument {
        let tip = "the screen has --host: gtop --host USER@HOST --attach PID; everything else is run there: \
                   ssh USER@HOST gtop \u{2026}";
        error.remove(ContextKind::SuggestedArg);
        // It names the option that is like it, too.
        error.remove(ContextKind::Usage);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// How a command ends.
pub type Outcome = Result<ExitCode, Failure>;

/// Why a command failed, for people, and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong and what to do.
    pub message: String,
    /// The exit code: [`USAGE`], [`NO_TARGET`] or [`DAMAGED`].
    pub code: u8,
}

/// Exit code: done, and the answer is "not well".
pub const NOT_WELL: u8 = 1;
/// Exit code: wrong usage.
pub const USAGE: u8 = 2;
/// Exit code: no such target, it cannot be attached, or it ended before anything was seen.
pub const NO_TARGET: u8 = 3;
/// Exit code: the input is damaged; what could be read was used.
pub const DAMAGED: u8 = 4;

impl Failure {
    /// A failure with its exit code.
    pub fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code }
    }

    /// Says it and gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        // Whatever it tells of comes from other people's files and variables; only our own line ends are kept.
        let lines: Vec<String> = self.message.lines().map(|line| printable(line.as_bytes())).collect();
        tell(lines.join("\n"));
        ExitCode::from(self.code)
    }
}

/// Nothing to read from, or the system gives no runtime, thread or output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(NO_TARGET, error)
    }
}

/// Says something to the person; that nobody reads it is no reason to end.
pub(crate) fn tell(what: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "gtop: {what}");
}

/// A process id.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a process id is a number such as 844".to_owned())
}

/// A price such as `1` or `0.5%`, in parts per million.
pub(crate) fn percent(text: &str) -> Result<u32, String> {
    gtop_protocol::control::parse_percent(text)
        .ok_or_else(|| format!("`{text}` is no percentage from 0 to 100"))
}

/// A time with its unit, such as `200ms`, `5s`, `10m` or `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err("a time needs a unit: 200ms, 5s, 10m".to_owned()),
        _ => return Err(format!("`{unit}` is no unit of time: use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}

/// Runs `work` on this thread, with what connections and timers need.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, work))
}

type Stdout = io::BufWriter<io::StdoutLock<'static>>;

/// Writes to standard output, whose reader may have had enough.
fn put(write: impl FnOnce(&mut Stdout) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// What `--help` says of a command and of those below it.
    fn helps(command: &mut clap::Command, before: &str, all: &mut Vec<(String, String)>) {
        let name = format!("{before}{}", command.get_name());
        all.push((name.clone(), command.render_long_help().to_string()));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            helps(sub, &format!("{name} "), all);
        }
    }

    #[test]
    fn every_help_has_an_example_and_stays_as_it_is() {
        let mut all = Vec::new();
        helps(&mut Cli::command().term_width(100), "", &mut all);
        assert!(all.len() > 10);
        for (name, help) in &all {
            let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{name} has no example"));
            let own = name.split(' ').next_back().unwrap_or(name);
            assert!(examples.contains(own), "{name} has no example of itself");
        }
        let text: Vec<String> = all.iter().map(|(name, help)| format!("# {name}\n{help}")).collect();
        insta::assert_snapshot!("help", text.join("\n"));
    }

    #[test]
    fn what_is_wrong_with_a_command_line_is_said_with_a_tip_that_helps() {
        let wrong = |arguments: &[&str]| {
            let error = Cli::try_parse_from([&["gtop"], arguments].concat()).unwrap_err();
            with_a_place_for_host(error).render().to_string()
        };
        for command in [&["stat"][..], &["record"], &["doctor"], &["ctl", "arm"], &["demo"]] {
            let text = wrong(&[command, &["--host", "ada@far", "--attach", "7"]].concat());
            assert!(text.contains("ssh USER@HOST gtop") && !text.contains("similar"), "{text}");
        }
        for command in [&[][..], &["stat"], &["record", "-o", "x"], &["doctor"], &["ctl"]] {
            for pid in ["-5", "5.5", "x"] {
                let text = wrong(&[command, &["--attach", pid]].concat());
                assert!(text.contains("a process id is a number") && !text.contains("tip:"), "{text}");
            }
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        for bad in ["5", "s", "5 s", "5d", "-1s", "1e400s", ".s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
