//! Finding what `--attach` names, and putting the shim into processes that run without it, if the person says so.

use std::io::{self, BufRead, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Failure, NO_TARGET, USAGE, block_on, tell};
use crate::app::{Strangers, question};
use crate::config::Config;
use crate::system::attach::{Missing, Target, targets};
use crate::system::family::Family;
use crate::system::foreground::ends_by;
use crate::system::inject::{self, inject};
use crate::system::process::Process;
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
    /// What becomes of processes of the family that come later and use CUDA without the shim.
    pub later: Strangers,
    /// The process that was named, where neither it nor any below it uses CUDA yet; then there is nothing else.
    pub awaited: Option<Target>,
}

impl Found {
    /// What is waited for, for people, if something is; `asks` says whether there is somebody to ask.
    #[must_use]
    pub fn waits_for(&self, asks: bool) -> Option<String> {
        let Target { process, reach } = self.awaited.as_ref()?;
        let what = format!("waiting until {} {} or a process below it uses CUDA", process.name, process.pid);
        Some(match reach {
            Err(Missing::NotInjected { .. }) if self.later == Strangers::Ask && !asks => {
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
        let later = match (consent.may_inject(), consent.inject) {
            (true, true) => Strangers::Inject,
            (true, false) => Strangers::Ask,
            (false, _) => Strangers::Show,
        };
        let awaited = Some(all.swap_remove(at));
        return Ok(Some(Found { later, awaited, ..Found::default() }));
    }
    let (mut found, without): (Vec<_>, Vec<_>) = all.into_iter().partition(|target| !target.can_inject());
    let mut done = Vec::new();
    let asks = !without.is_empty() && !consent.inject && consent.may_inject();
    let stands_back = consent.read_only && !without.is_empty();
    let said = match (asks, consent.inject && consent.may_inject()) {
        (true, _) => ask(&question::title(&without), &question::lines(&without))?,
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
        let later = match said {
            Said::Yes => Strangers::Inject,
            // Nobody was to be asked so far.
            Said::No if !asks && consent.may_inject() => Strangers::Ask,
            Said::Nobody => Strangers::Tell,
            Said::No => Strangers::Show,
        };
        return Ok(Some(Found { targets: found, done, later, awaited: None }));
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

/// Whether there is a terminal to ask on in lines.
fn somebody_is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks in lines, where there is a terminal to ask on.
pub fn in_lines(title: &str, lines: &[String]) -> Result<Said, Failure> {
    if !somebody_is_there() {
        return Ok(Said::Nobody);
    }
    write!(io::stderr(), "{}\n{title} [y/N] ", lines.join("\n"))?;
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
        Reply::Signal(signal) => Err(Failure::new(ends_by(signal), format!("signal {signal} came"))),
    }
}

/// As [`find`], for a command that has no screen: asks in lines, and says what was done.
pub fn find_in_lines(pid: u32, consent: Consent, wait: bool) -> Result<Found, Failure> {
    let config = Config::load(None).map_err(|error| Failure::new(USAGE, error))?;
    let Some(found) = find(pid, consent.under(config.read_only), wait, &in_lines)? else {
        return Err(declined());
    };
    for line in found.done.iter().chain(&found.waits_for(somebody_is_there())) {
        tell(line);
    }
    Ok(found)
}

/// A person has said no, and without the shim there is nothing to be told.
fn declined() -> Failure {
    Failure::new(NO_TARGET, "nothing was put in, as you said, so there is nobody to watch or to ask")
}

/// What was waited for.
#[derive(Debug)]
pub struct First {
    /// Those that can be watched.
    pub targets: Vec<Target>,
    /// The family, for those that come later.
    pub family: Family,
    /// What is left of the time; a person may have taken more to answer.
    pub left: Option<Duration>,
    /// What becomes of those without the shim among them.
    pub later: Strangers,
}

/// Waits until the first of a family uses CUDA, for `time` at most. What uses it without the shim gets that when `later`
/// or a person says so.
pub async fn first(
    awaited: Target,
    mut later: Strangers,
    mut time: Option<Duration>,
) -> Result<First, Failure> {
    let root = awaited.process;
    let began = Instant::now();
    let mut family = Family::of(root.pid, []);
    let none = |why: &dyn std::fmt::Display| Failure::new(NO_TARGET, format!("process {}: {why}", root.pid));
    let mut refusals: Vec<String> = Vec::new();
    loop {
        let found = family.strangers();
        if later == Strangers::Ask && !found.is_empty() {
            let asked = Instant::now();
            later = match ask_beside(&found).await? {
                Said::Yes => Strangers::Inject,
                Said::No => return Err(declined()),
                Said::Nobody => Strangers::Tell,
            };
            time = time.map(|time| time + asked.elapsed());
        }
        for Target { process, reach } in found {
            let pid = process.pid;
            let reach = match later {
                Strangers::Inject => tokio::task::spawn_blocking(move || put(&process))
                    .await
                    .map_err(io::Error::other)?
                    .map(|(said, _)| said.iter().for_each(tell)),
                _ => reach.map(|_| ()),
            };
            let Err(missing) = reach else { continue };
            let missing = if later == Strangers::Tell { missing.with_advice() } else { missing.to_string() };
            let failure = unreachable(pid, &missing);
            let _ = failure.report();
            refusals.push(failure.message);
        }
        let targets = family.news();
        let elapsed = began.elapsed();
        if !targets.is_empty() {
            let left = time.map(|time| time.saturating_sub(elapsed));
            return Ok(First { targets, family, left, later });
        }
        if !root.is_alive() {
            return Err(none(&"it ended before it or a process below it used CUDA"));
        }
        if time.is_some_and(|time| elapsed >= time) {
            if refusals.is_empty() {
                let missing = Target::of(root.clone()).reach.err().map(|missing| missing.to_string());
                let missing = missing.unwrap_or_else(|| "its shim has just begun; try again".to_owned());
                return Err(unreachable(root.pid, &missing));
            }
            return Err(none(&"nobody could be watched in that time"));
        }
        let left = time.map_or(LOOK_EVERY, |time| time.saturating_sub(elapsed).min(LOOK_EVERY));
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            _ = tokio::signal::ctrl_c() => return Err(none(&"nothing used CUDA so far")),
        }
    }
}

/// Asks in lines on a thread of its own, so that Ctrl-C is heard meanwhile.
async fn ask_beside(targets: &[Target]) -> Result<Said, Failure> {
    let (title, lines) = (question::title(targets), question::lines(targets));
    let (answer, answered) = oneshot::channel();
    let ask = move || {
        let _ = answer.send(in_lines(&title, &lines));
    };
    thread::Builder::new().name("gtop-ask".into()).spawn(ask)?;
    tokio::select! {
        said = answered => said.unwrap_or(Ok(Said::Nobody)),
        _ = tokio::signal::ctrl_c() => {
            let _ = writeln!(io::stderr());
            Err(declined())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forbids_it_is_not_told_of_it() {
        let waits = |later, asks| {
            let process = Process::read(std::process::id()).unwrap();
            let reach = Err(Missing::NotInjected { uses_gpu: Some(false) });
            let found = Found { later, awaited: Some(Target { process, reach }), ..Found::default() };
            found.waits_for(asks).unwrap()
        };
        assert!(waits(Strangers::Ask, false).contains("--inject"));
        // Nor who will be asked.
        for (later, asks) in [(Strangers::Ask, true), (Strangers::Show, false), (Strangers::Inject, false)] {
            assert!(!waits(later, asks).contains("--inject"), "{later:?}");
        }
    }
}
