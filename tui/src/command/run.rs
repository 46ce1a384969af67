//! `gtop run`: start a command with the shim, and watch it or leave it the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use gtop_protocol::KindSet;
use gtop_protocol::control::Action;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::sync::{oneshot, watch};

use super::attach::{DumpRaw, Look, Picture};
use super::lines::lines;
use super::{Failure, Outcome, block_on, duration, tell};
use crate::app::{self, Files, Handle, Started};
use crate::export::raw;
use crate::model::names::safe;
use crate::recorder;
use crate::source::live::Live;
use crate::system::family::Family;
use crate::system::foreground::Foreground;
use crate::system::launch::{self, EXIT_GTOP, LaunchError, Output};
use crate::system::nvml;
use crate::system::process::readable;
use crate::view::{self, End, Options};

/// How often to look for shims to arm.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Start a command with the shim.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gtop run -- python train.py\n  gtop run --arm 60s -- vllm serve MODEL\n  \
                        gtop run --no-view -- python serve.py\n\n\
                        Exit code: that of the command, 128 + N after signal N; 125 if gtop failed before the \
                        command started, or was told to do what it cannot, 126 if it cannot be executed, 127 if it was not found."
)]
pub struct Args {
    /// When to begin watching: now, later (not by itself), or after a time [default: now; later with --no-view and no
    /// --record].
    /// CUDA graphs made while nobody watches cost nothing once nobody watches again; those made under it do.
    #[arg(long, value_name = "now|later|T", value_parser = when)]
    arm: Option<When>,
    /// Arm before CUDA begins. Graphs made from then on cannot be left unwatched at no cost.
    #[arg(long)]
    early: bool,
    /// Activity kinds to enable, separated by commas; `safe` and `all` are sets.
    #[arg(long, value_name = "LIST", value_parser = kinds)]
    kinds: Option<KindSet>,
    /// Keep everything in this new file, to be replayed and exported. With --no-view, watching begins at once then.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Trace in short windows so that it costs at most PERCENT of the command's time.
    #[arg(long, value_name = "PERCENT", value_parser = super::percent)]
    budget: Option<u32>,
    /// Leave the terminal to the command; attach later with `gtop --attach`.
    #[arg(long, conflicts_with_all = ["dump_raw", "screenshot"])]
    no_view: bool,
    /// Preload this libcupti.so.13 or .12 and use it.
    #[arg(long, value_name = "LIB")]
    cupti: Option<PathBuf>,
    /// Device buffers CUPTI may have for each context; arms early.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pool_limit: Option<u32>,
    #[command(flatten)]
    dump: DumpRaw,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    picture: Picture,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn kinds(list: &str) -> Result<KindSet, String> {
    match KindSet::parse(list) {
        Ok(kinds) if kinds.is_empty() => Err("no kind is named".into()),
        Ok(kinds) => Ok(kinds),
        Err(name) => Err(format!("`{name}` is no kind")),
    }
}

impl Args {
    fn program(&self) -> &OsString {
        &self.command[0]
    }

    /// The command line for people.
    fn name(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        safe(words.join(" ").as_bytes())
    }

    fn options(&self) -> launch::Options {
        launch::Options {
            early: self.early,
            kinds: self.kinds,
            cupti: self.cupti.clone(),
            pool_limit: self.pool_limit,
            budget_ppm: self.budget,
            read_only: false,
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// When to begin watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Later,
    After(Duration),
}

fn when(text: &str) -> Result<When, String> {
    match text {
        "now" => Ok(When::After(Duration::ZERO)),
        "later" => Ok(When::Later),
        time => duration(time).map(When::After).map_err(|error| format!("now, later or a time: {error}")),
    }
}

/// Starts the command and gives its exit code.
pub fn run(args: &Args) -> Outcome {
    // Before the command starts, so that nothing runs unrecorded that was to be recorded.
    let record = args.record.as_ref().map(|path| {
        recorder::Options::create(path, &args.name())
            .map_err(|error| own(format!("{}: {error}", readable(path))))
    });
    let record = record.transpose()?;
    if args.no_view {
        without_view(args, record)
    } else if !args.picture.is_asked() && io::stdin().is_terminal() && io::stdout().is_terminal() {
        on_screen(args, record)
    } else {
        in_lines(args, record)
    }
}

/// Where CUPTI's buffers go; known to be there before the command starts.
fn dump(args: &Args) -> Result<Option<raw::Options>, Failure> {
    args.dump.options().map_err(|failure| Failure { code: EXIT_GTOP, ..failure })
}

fn own(error: impl std::fmt::Display) -> Failure {
    Failure::new(EXIT_GTOP, error)
}

/// The command has the terminal, the signals and the last word.
fn without_view(args: &Args, record: Option<recorder::Options>) -> Outcome {
    let foreground = Foreground::prepare(true).map_err(own)?;
    let mut command = launch::prepare(&args.command, &args.options(), &Output::Inherit)?;
    foreground.release(&mut command);
    let mut child = launch::start(&mut command, &Output::Inherit)?;
    let mut recording = None;
    if record.is_some() {
        // Dropped when the command has ended, and with it the recording.
        let (running, ended) = oneshot::channel();
        let handle = watch_it(
            args,
            Started { pid: child.id(), log: None, ended },
            Files { record, ..Files::default() },
        )?;
        recording = Some((handle.closer(), handle, running));
    } else if let Some(When::After(time)) = args.arm {
        let pid = child.id();
        thread::Builder::new().name("gtop-arm".into()).spawn(move || arm(pid, time)).map_err(own)?;
    }
    let status = foreground.wait(&mut child).map_err(own)?;
    if let Some((closer, ..)) = recording {
        closer.close().into_iter().for_each(tell);
    }
    Ok(ExitCode::from(launch::exit_code(status)))
}

/// Arms every shim of the family from `after` on, without watching it.
fn arm(pid: u32, after: Duration) {
    let _ = block_on(async {
        tokio::time::sleep(after).await;
        let mut family = Family::of(pid, []);
        loop {
            for target in family.news() {
                let pid = target.process.pid;
                let Ok(endpoint) = &target.reach else { continue };
                let armed = match Live::connect(target.process, endpoint, false, "gtop run").await {
                    Ok(mut live) => live.request(Action::Arm, 0).await.is_ok(),
                    Err(_) => false,
                };
                if !armed {
                    family.forget(pid);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
}

/// Without a terminal: the command's output goes to its log, and a line a second says how it is, or one frame is drawn.
fn in_lines(args: &Args, record: Option<recorder::Options>) -> Outcome {
    let picture = if args.picture.is_asked() {
        args.picture.render().map_err(|failure| own(failure.message))?;
        Some((args.picture.clone(), args.look.options().map_err(|failure| own(failure.message))?))
    } else {
        None
    };
    let files = Files { record, dump: dump(args)?, ..Files::default() };
    let foreground = Foreground::prepare(false).map_err(own)?;
    let log = launch::log_path(args.program());
    let output = Output::Log(log.clone());
    let mut command = launch::prepare(&args.command, &args.options(), &output)?;
    foreground.release(&mut command);
    let mut child = launch::start(&mut command, &output)?;
    tell(format_args!("the output of {} goes to {}", args.name(), readable(&log)));
    // Dropped when the command has ended, and with it this process.
    let (_running, ended) = oneshot::channel();
    let handle = watch_it(args, Started { pid: child.id(), log: Some(log), ended }, files)?;
    let closer = handle.closer();
    let (runs, over) = oneshot::channel::<()>();
    let show = move || match picture {
        Some((picture, look)) => draw(&handle, &picture, look, over),
        None => {
            let _ = lines(&handle);
        }
    };
    let shows = thread::Builder::new().name("gtop-lines".into()).spawn(show).map_err(own)?;
    let status = foreground.wait(&mut child).map_err(own)?;
    drop(runs);
    if args.picture.is_asked() {
        let _ = shows.join();
    }
    closer.close().into_iter().for_each(tell);
    Ok(ExitCode::from(launch::exit_code(status)))
}

/// Draws one frame into a file when it is time, or when the command has ended.
fn draw(handle: &Handle, picture: &Picture, look: Options, over: oneshot::Receiver<()>) {
    let drawn = block_on(async {
        let mut snapshots = handle.snapshots.clone();
        let _ = tokio::time::timeout(picture.after, over).await;
        let _ = snapshots.wait_for(|snapshot| snapshot.time != 0).await;
        let snapshot = snapshots.borrow().clone();
        picture.draw(&snapshot, look)
    });
    if let Err(failure) = drawn.map_err(Failure::from).flatten() {
        let _ = failure.report();
    }
}

/// On a terminal: the screen, until the person leaves it.
fn on_screen(args: &Args, record: Option<recorder::Options>) -> Outcome {
    let screen = args.look.options().map_err(|failure| own(failure.message))?;
    let files = Files { record, dump: dump(args)?, ..Files::default() };
    let log = launch::log_path(args.program());
    let output = Output::Log(log.clone());
    let mut child = launch::start(&mut launch::prepare(&args.command, &args.options(), &output)?, &output)?;
    let (say, ended) = oneshot::channel();
    let pid = child.id();
    let handle = watch_it(args, Started { pid, log: Some(log.clone()), ended }, files)?;
    let closer = handle.closer();
    let (exit, exited) = watch::channel(None);
    let name = args.name();
    let reap = move || {
        if let Ok(status) = child.wait() {
            let _ = say.send(format!("{name} ended: {status}"));
            exit.send_replace(Some(status));
        }
    };
    thread::Builder::new().name("gtop-wait".into()).spawn(reap).map_err(own)?;

    let name = args.name();
    let end = block_on(async move {
        let options = Options { launched: Some(name), exited: Some(exited.clone()), ..screen };
        let end = view::run(handle, options).await.map_err(own)?;
        Ok::<_, Failure>(settle(end, pid, exited, &log).await)
    });
    closer.close().into_iter().for_each(tell);
    end.map_err(own)??
        .map_or_else(|| Ok(ExitCode::SUCCESS), |status| Ok(ExitCode::from(launch::exit_code(status))))
}

/// What becomes of the command when the screen is gone; its status, if it has ended.
async fn settle(
    end: End,
    pid: u32,
    mut exited: watch::Receiver<Option<ExitStatus>>,
    log: &Path,
) -> Option<ExitStatus> {
    let ended = *exited.borrow();
    if ended.is_some() {
        return ended;
    }
    let signal = match end {
        End::Quit { stop: true } => Signal::SIGTERM,
        // A signal that was sent is meant for the command as well; a terminal that is gone is not.
        End::Signal(number) if number != nix::libc::SIGHUP => {
            Signal::try_from(number).unwrap_or(Signal::SIGTERM)
        }
        End::Quit { stop: false } | End::Signal(_) | End::NoTerminal => {
            tell(format_args!("process {pid} runs on; watch it again with `gtop --attach {pid}`"));
            tell(format_args!("its output goes to {}", readable(log)));
            return None;
        }
    };
    // It was started as the leader of a process group.
    let group = Pid::from_raw(pid.cast_signed());
    let _ = killpg(group, signal);
    tell(format_args!("waiting for process {pid} to end; ctrl-c kills it"));
    loop {
        tokio::select! {
            ended = exited.wait_for(Option::is_some) => return ended.ok().and_then(|status| *status),
            pressed = tokio::signal::ctrl_c() => {
                if pressed.is_ok() {
                    let _ = killpg(group, Signal::SIGKILL);
                }
            }
        }
    }
}

/// What watching from the start comes to.
const FROM_THE_START: &str = "watched from the start: CUDA graphs made while it is watched go on costing when nobody watches, \
                              and resting cannot give all of that back; --arm later or --arm 60s watches after warm-up";

fn watch_it(args: &Args, started: Started, files: Files) -> Result<Handle, Failure> {
    let after = match args.arm {
        None => Duration::ZERO,
        Some(When::After(time)) => time,
        Some(When::Later) => Duration::MAX,
    };
    // An early start is the shim's to tell of.
    let note = (after.is_zero() && !args.early && args.pool_limit.is_none()).then_some(FROM_THE_START);
    app::expect(started, after, note, &args.name(), nvml::Options::default(), files).map_err(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_has_a_time() {
        assert_eq!(when("now"), Ok(When::After(Duration::ZERO)));
        assert_eq!(when("later"), Ok(When::Later));
        assert_eq!(when("60s"), Ok(When::After(Duration::from_mins(1))));
        assert!(when("60").unwrap_err().contains("now, later or a time"));
    }

    #[test]
    fn kinds_are_checked_before_anything_starts() {
        assert_eq!(kinds("safe"), Ok(KindSet::SAFE));
        assert!(kinds("kernel,graph").unwrap_err().contains("graph"));
        assert!(kinds(",").is_err());
    }
}
