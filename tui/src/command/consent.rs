//! Finding what `--attach` names, and putting the shim into processes that run without it, if the person says so.

use std::io::{self, BufRead, IsTerminal, Write};

use super::{Failure, NO_TARGET, block_on};
use crate::system::attach::{Missing, Target, targets};
use crate::system::inject::{self, inject};
use crate::system::process::Process;
use crate::view::{self, Reply};

/// Whether the shim may be put into a process that runs without it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Consent {
    /// Put the shim into processes that run without it, and do not ask.
    #[arg(long, global = true)]
    inject: bool,
    /// Never put the shim into a process; watch only those that have it.
    #[arg(long, global = true, conflicts_with = "inject")]
    no_inject: bool,
}

impl Consent {
    /// Whether it may be, if the person says so.
    #[must_use]
    pub const fn may_inject(self) -> bool {
        !self.no_inject
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The processes; some may not be watchable, but one is.
    pub targets: Vec<Target>,
    /// What was done to them, for people.
    pub done: Vec<String>,
    /// Whether the shim may be put into processes of the family that come later.
    pub inject: bool,
}

/// What a person says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Do it.
    Yes,
    /// Do not.
    No,
    /// Nobody is there to ask.
    Nobody,
}

/// Asks a person; what is asked about is given as a title and lines.
pub type AskPerson<'a> = &'a dyn Fn(&str, &[String]) -> Result<Said, Failure>;

/// The processes to watch for `--attach PID`: itself and its descendants that use a GPU. It is a failure when none of
/// them can be watched, and `None` when that is because a person has said no.
pub fn find(pid: u32, consent: Consent, ask: AskPerson<'_>) -> Result<Option<Found>, Failure> {
    let all = targets(pid).map_err(|missing| unreachable(pid, &missing))?;
    let (mut found, without): (Vec<_>, Vec<_>) = all.into_iter().partition(|target| !target.can_inject());
    let mut done = Vec::new();
    let asks = !without.is_empty() && !consent.inject && consent.may_inject();
    let said = match (asks, consent.inject) {
        (true, _) => ask(&title(&without), &question(&without))?,
        (false, true) => Said::Yes,
        (false, false) => Said::No,
    };
    for target in without {
        if said == Said::Yes {
            found.push(put_into(target, &mut done));
        } else {
            found.push(target);
        }
    }
    if found.iter().any(|target| target.reach.is_ok()) {
        return Ok(Some(Found { targets: found, done, inject: said == Said::Yes }));
    }
    if asks && said == Said::No {
        return Ok(None);
    }
    let reasons = found.iter().filter_map(|target| Some((target.process.pid, target.reach.as_ref().err()?)));
    let mut lines: Vec<String> = reasons.map(|(pid, missing)| unreachable(pid, missing).message).collect();
    if said == Said::Nobody {
        lines.push(
            "Add --inject to put the shim in now, as it runs; `gtop --attach` on a terminal asks first."
                .to_owned(),
        );
    }
    Err(Failure::new(NO_TARGET, lines.join("\n")))
}

fn put_into(target: Target, done: &mut Vec<String>) -> Target {
    let process = target.process;
    let reach = match inject(&process) {
        Ok((injected, endpoint)) => {
            if let Some(injected) = injected {
                done.push(format!("process {}: {injected}", process.pid));
            }
            Ok(endpoint)
        }
        Err(inject::Refusal::Gone) => Err(Missing::Gone),
        Err(refusal) => Err(Missing::NotInjectable(refusal)),
    };
    Target { process, reach }
}

fn unreachable(pid: u32, missing: &Missing) -> Failure {
    Failure::new(NO_TARGET, format!("process {pid} cannot be watched: {missing}"))
}

fn title(targets: &[Target]) -> String {
    match targets {
        [one] => format!("Put the shim into process {}?", one.process.pid),
        many => format!("Put the shim into {} processes?", many.len()),
    }
}

/// What would happen, and what it costs.
fn question(targets: &[Target]) -> Vec<String> {
    let name = |process: &Process| format!("{} {}", process.name, process.pid);
    let names: Vec<String> = targets.iter().map(|target| name(&target.process)).collect();
    let runs = if names.len() == 1 { "runs" } else { "run" };
    let mut lines = vec![
        format!("{} {runs} without gtop's library, so there is nothing to watch yet.", names.join(", ")),
        "One thread that waits in a system call would be stopped for about a millisecond, load the library on a \
         stack of its own, and go on waiting as it was. No other thread is stopped."
            .to_owned(),
        "The library then stays until the process ends, asleep while nobody watches. The first watching calls \
         CUPTI: that takes 15 to 800 ms of one thread and 12 to 16 MiB of each device's memory for good; while \
         watched, a busy server runs up to a fifth slower."
            .to_owned(),
        "Workers that start later below this process are treated alike.".to_owned(),
    ];
    for target in targets {
        if let Err(Missing::OtherTool(library)) = &target.reach {
            lines.push(format!(
                "Process {} has another tool loaded, {}: CUPTI serves one at a time, and may be busy.",
                target.process.pid,
                library.display()
            ));
        }
        if let Some(filters) = inject::filters(target.process.pid) {
            lines.push(format!(
                "Process {} runs under {filters}: if that forbids opening a socket or a thread, the library stays \
                 silent or the process is ended by it. Containers' usual filters do not.",
                target.process.pid
            ));
        }
    }
    lines
}

/// Asks in lines, where there is a terminal to ask on.
pub fn in_lines(title: &str, lines: &[String]) -> Result<Said, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(Said::Nobody);
    }
    eprint!("{}\n{title} [y/N] ", lines.join("\n"));
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(if matches!(line.trim(), "y" | "Y" | "yes") { Said::Yes } else { Said::No })
}

/// Asks on a screen.
pub fn on_screen(title: &str, lines: &[String]) -> Result<Said, Failure> {
    let reply = block_on(view::ask(title, lines, None))?;
    match reply.map_err(|error| Failure::new(NO_TARGET, error))? {
        Reply::Yes => Ok(Said::Yes),
        Reply::No => Ok(Said::No),
        Reply::Signal(signal) => {
            Err(Failure::new(128u8.saturating_add(signal as u8), format!("signal {signal} came")))
        }
    }
}

/// As [`find`], for a command that has no screen: asks in lines, and says what was done.
pub fn find_in_lines(pid: u32, consent: Consent) -> Result<Vec<Target>, Failure> {
    let Some(found) = find(pid, consent, &in_lines)? else {
        return Err(Failure::new(NO_TARGET, "the shim was not put in, so there is nothing to ask"));
    };
    for line in &found.done {
        eprintln!("gtop: {line}");
    }
    Ok(found.targets)
}
