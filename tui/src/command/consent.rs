//! Finding what `--attach` names, and putting the shim into processes that run without it, if the person says so.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::{Failure, NO_TARGET, USAGE, block_on};
use crate::config::Config;
use crate::system::attach::{Missing, Target, targets};
use crate::system::family::Family;
use crate::system::inject::{self, inject};
use crate::system::process::{Process, readable};
use crate::system::socket::Endpoint;
use crate::view::{self, Reply};

/// How often to look whether one uses CUDA.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the shim may be put into a process that runs without it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Consent {
    /// Put the shim into processes that run without it, and do not ask.
    #[arg(long)]
    inject: bool,
    /// Never put the shim into a process; watch only those that have it.
    #[arg(long, conflicts_with = "inject")]
    no_inject: bool,
    /// Whether gtop is to look only, which says no to everything.
    #[arg(skip)]
    read_only: bool,
}

/// The same, also behind the names of subcommands.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ConsentAnywhere {
    /// Put the shim into processes that run without it, and do not ask.
    #[arg(long, global = true)]
    inject: bool,
    /// Never put the shim into a process; watch only those that have it.
    #[arg(long, global = true, conflicts_with = "inject")]
    no_inject: bool,
}

impl From<ConsentAnywhere> for Consent {
    fn from(ConsentAnywhere { inject, no_inject }: ConsentAnywhere) -> Self {
        Self { inject, no_inject, read_only: false }
    }
}

impl Consent {
    /// Whether it may be, if the person says so.
    #[must_use]
    pub const fn may_inject(self) -> bool {
        !self.no_inject && !self.read_only
    }

    /// Whether the person has said so already.
    #[must_use]
    pub const fn is_given(self) -> bool {
        self.inject
    }

    /// The same, where gtop may be to look only.
    #[must_use]
    pub const fn under(self, read_only: bool) -> Self {
        Self { read_only, ..self }
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
    /// Whether it may be, should the person say so.
    pub may_inject: bool,
    /// The process that was named, where neither it nor any below it uses CUDA yet; then there is nothing else.
    pub awaited: Option<Target>,
}

impl Found {
    /// What is waited for, for people, if something is.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let Target { process, reach } = self.awaited.as_ref()?;
        let what = format!("waiting until {} {} or a process below it uses CUDA", process.name, process.pid);
        Some(match reach {
            Err(Missing::NotInjected { .. }) if !self.inject && self.may_inject => {
                format!("{what}; one without the shim takes --inject")
            }
            _ => what,
        })
    }
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
/// them can be watched, and `None` when that is because a person has said no. With `wait`, none of them may have begun
/// to use CUDA.
pub fn find(pid: u32, consent: Consent, wait: bool, ask: AskPerson<'_>) -> Result<Option<Found>, Failure> {
    let mut all = targets(pid).map_err(|missing| unreachable(pid, &missing))?;
    if wait && let Some(at) = all.iter().position(|target| target.process.pid == pid && target.may_begin()) {
        let may_inject = consent.may_inject();
        let inject = consent.inject && may_inject;
        let awaited = Some(all.swap_remove(at));
        return Ok(Some(Found { inject, may_inject, awaited, ..Found::default() }));
    }
    let (mut found, without): (Vec<_>, Vec<_>) = all.into_iter().partition(|target| !target.can_inject());
    let mut done = Vec::new();
    let asks = !without.is_empty() && !consent.inject && consent.may_inject();
    let stands_back = consent.read_only && !without.is_empty();
    let said = match (asks, consent.inject && consent.may_inject()) {
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
        let (inject, may_inject) = (said == Said::Yes, consent.may_inject());
        return Ok(Some(Found { targets: found, done, inject, may_inject, awaited: None }));
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
    if stands_back {
        lines.push(
            "gtop is to look only (--read-only, or read_only in gtop.toml), so it puts nothing in."
                .to_owned(),
        );
    }
    Err(Failure::new(NO_TARGET, lines.join("\n")))
}

fn put_into(target: Target, done: &mut Vec<String>) -> Target {
    let process = target.process;
    let reach = put(&process).map(|(said, endpoint)| {
        done.extend(said);
        endpoint
    });
    Target { process, reach }
}

/// Puts the shim into a process; gives what was done, if anything was, for people.
fn put(process: &Process) -> Result<(Option<String>, Endpoint), Missing> {
    match inject(process) {
        Ok((injected, endpoint)) => {
            let said = injected.map(|injected| format!("process {}: {injected}", process.pid));
            Ok((said, endpoint))
        }
        Err(inject::Refusal::Gone) => Err(Missing::Ended),
        Err(refusal) => Err(Missing::NotInjectable(refusal)),
    }
}

fn unreachable(pid: u32, missing: &dyn std::fmt::Display) -> Failure {
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
                readable(library)
            ));
        }
        if let Some(filters) = inject::filters(target.process.pid) {
            lines.push(format!(
                "Process {} runs under {filters}: that is read first, and where it would end the process or silence \
                 the library nothing is put in. Containers' usual filters do neither.",
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
pub fn find_in_lines(pid: u32, consent: Consent, wait: bool) -> Result<Found, Failure> {
    let config = Config::load(None).map_err(|error| Failure::new(USAGE, error))?;
    let Some(found) = find(pid, consent.under(config.read_only), wait, &in_lines)? else {
        return Err(Failure::new(NO_TARGET, "the shim was not put in, so there is nothing to ask"));
    };
    for line in found.done.iter().chain(&found.waits_for()) {
        eprintln!("gtop: {line}");
    }
    Ok(found)
}

/// Waits until the first of a family uses CUDA, for `time` at most; gives those that can be watched then, and the
/// family for those that come later.
pub async fn first(
    awaited: Target,
    inject: bool,
    time: Option<Duration>,
) -> Result<(Vec<Target>, Family), Failure> {
    let root = awaited.process;
    let began = Instant::now();
    let mut family = Family::of(root.pid, []);
    let none = |why: &dyn std::fmt::Display| Failure::new(NO_TARGET, format!("process {}: {why}", root.pid));
    let mut refusals: Vec<String> = Vec::new();
    loop {
        if inject {
            for Target { process, .. } in family.strangers() {
                let pid = process.pid;
                match tokio::task::spawn_blocking(move || put(&process)).await {
                    Ok(Ok((said, _))) => said.iter().for_each(|said| eprintln!("gtop: {said}")),
                    Ok(Err(missing)) => refusals.push(unreachable(pid, &missing).message),
                    Err(_) => {}
                }
            }
        }
        let news = family.news();
        if !news.is_empty() {
            return Ok((news, family));
        }
        if !root.is_alive() {
            return Err(none(&"it ended before it or a process below it used CUDA"));
        }
        if time.is_some_and(|time| began.elapsed() >= time) {
            let missing = Target::of(root.clone()).reach.err().map(|missing| missing.to_string());
            let missing = missing.unwrap_or_else(|| "its shim has just begun; try again".to_owned());
            refusals.push(unreachable(root.pid, &missing).message);
            return Err(Failure::new(NO_TARGET, refusals.join("\n")));
        }
        let left = time.map_or(LOOK_EVERY, |time| time.saturating_sub(began.elapsed()).min(LOOK_EVERY));
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            _ = tokio::signal::ctrl_c() => return Err(none(&"nothing used CUDA so far")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forbids_it_is_not_told_of_it() {
        let waits = |may_inject| {
            let process = Process::read(std::process::id()).unwrap();
            let reach = Err(Missing::NotInjected { uses_gpu: Some(false) });
            let found = Found { may_inject, awaited: Some(Target { process, reach }), ..Found::default() };
            found.waits_for().unwrap()
        };
        assert!(waits(true).contains("--inject"), "{}", waits(true));
        assert!(!waits(false).contains("--inject"), "{}", waits(false));
    }
}
