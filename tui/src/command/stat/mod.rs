//! `gtop stat`: one summary of a source, for people or for scripts.

mod json;
#[cfg(test)]
mod on_screen;
mod text;
mod total;

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gtop_protocol::frame::Frame;
use gtop_protocol::message::{FULL, StateCode};
use gtop_protocol::recording::Recording;
use tokio::signal::unix::{SignalKind, signal};

use super::attach::new_recording;
use super::consent::{Consent, First, find_in_lines, first};
use super::within::Within;
use super::{DAMAGED, Failure, NO_TARGET, Outcome, USAGE, block_on, demo, duration, put};
use crate::app::{Growth, Unwatched, connect, grow};
use crate::config::Config;
use crate::model::Model;
use crate::model::snapshot::{self, Link, Snapshot, SourceKind};
use crate::model::time::Moment;
use crate::recorder::{self, Status};
use crate::session::Session;
use crate::source::file::{self, Opened, Unreadable};
use crate::source::recording;
use crate::source::sample;
use crate::system::attach::Target;
use crate::system::family::Family;
use crate::system::nvml;
use crate::system::process::Process;
use crate::view;

/// How long a live source is watched when nothing is said.
const DEFAULT: Duration = Duration::from_secs(1);
/// How long arming may take before the time that was asked for begins all the same.
const ARMING: Duration = Duration::from_secs(20);
/// How long to wait for the last records of a live source.
const REST: Duration = Duration::from_secs(3);
/// How long to wait for NVML's first answer beyond the time that was asked for.
const DEVICES: Duration = Duration::from_millis(500);

/// One summary, no screen.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop stat --attach 844 --for 5s\n  gtop stat run.gtop --json")]
pub struct Args {
    /// A recording (.gtop), or a file of raw CUPTI buffers (.cuptibuf, .cuptibuf.xz).
    #[arg(conflicts_with_all = ["attach", "demo"])]
    file: Option<PathBuf>,
    /// A live process, or any ancestor of it.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true)]
    attach: Option<u32>,
    #[command(flatten)]
    within: Within,
    /// A simulated process.
    #[arg(long, value_name = "SCENARIO", conflicts_with = "attach")]
    demo: Option<String>,
    /// How long to watch a live process, with a unit: 200ms, 5s, 10m [default: 1s]. A file is read whole.
    #[arg(long = "for", value_name = "T", value_parser = duration, conflicts_with = "file")]
    time: Option<Duration>,
    /// Also keep what was seen in this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    record: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Print the JSON schema of that object: what each key is, in which unit.
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Print the executable graph with this id as a DOT file, for graphviz.
    #[arg(long, value_name = "GRAPH", conflicts_with = "json")]
    dot: Option<u32>,
    #[command(flatten)]
    consent: Consent,
}

/// Reads or watches the source and prints the summary.
pub fn run(args: &Args) -> Outcome {
    if args.schema {
        put(json::write_schema)?;
        return Ok(ExitCode::SUCCESS);
    }
    Config::load(None).map_err(|error| Failure::new(USAGE, error))?.keep_to();
    let attach = args.within.of(args.attach)?;
    let label = label(attach, args.demo.as_deref());
    // A graph as a drawing tells of its nodes.
    let model = if args.dot.is_some() { Model::new } else { Model::summary };
    let mut recorded = None;
    let snapshot = if let Some(path) = &args.file {
        read_into(path, model)?
    } else if args.demo.as_deref() == Some(sample::NAME) && args.record.is_none() {
        let recording = sample::open().map_err(|error| Failure::new(DAMAGED, error))?;
        summary(recording, model(SourceKind::Live, &label))?
    } else {
        let time = Some(args.time.unwrap_or(DEFAULT));
        let record = args.record.as_ref().map(|path| new_recording(path, &label));
        let wanted = Wanted { by: "gtop stat", time, record: record.transpose()?, no_more: false };
        let watched = watch_source(attach, args.consent, args.demo.as_deref(), wanted);
        if let (Err(_), Some(path)) = (&watched, &args.record) {
            recorder::remove_empty(path);
        }
        let (snapshot, status) = watched?;
        recorded = status;
        snapshot
    };
    print(&snapshot, args)?;
    if let Some(error) = recorded.and_then(|status| status.error) {
        return Err(Failure::new(NO_TARGET, error));
    }
    match (&snapshot.source.damage, unseen(&snapshot)) {
        (Some(damage), _) => {
            let text = format!("{}: {damage}; what comes before was used", snapshot.source.label);
            Err(Failure::new(DAMAGED, text))
        }
        // What a file tells of such a process is all that was wanted of the file.
        (None, Some(why)) if args.file.is_none() => Err(Failure::new(NO_TARGET, why)),
        (None, _) => Ok(ExitCode::SUCCESS),
    }
}

/// Why nothing could be seen of any process for any part of the time, and what to do; `None` where something was.
pub(super) fn unseen(snapshot: &Snapshot) -> Option<String> {
    let processes = &snapshot.processes;
    if processes.is_empty() || !processes.iter().all(|process| process.unseen) {
        return None;
    }
    let line = |process: &snapshot::Process| {
        let why = match (process.unreached(), &process.reason) {
            (Some(why), _) => why.to_owned(),
            (None, Some(reason)) if process.state == StateCode::Unavailable => {
                let helps = process.kinds.cure().map(|cure| format!("{cure}."));
                let helps = helps.unwrap_or_else(|| view::what_helps(reason, "ask again later."));
                format!("{reason}\n  → {helps}")
            }
            // What is to be done about it is in the reason.
            (None, Some(reason)) => reason.clone(),
            (None, None) => format!("it was {} all the time", process.state.name()),
        };
        format!("process {} cannot be watched: {why}", process.identity.pid)
    };
    Some(processes.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn label(attach: Option<u32>, demo: Option<&str>) -> String {
    attach.map_or_else(|| format!("demo {}", demo.unwrap_or_default()), |pid| format!("pid {pid}"))
}

fn print(snapshot: &Snapshot, args: &Args) -> Result<(), Failure> {
    if let Some(id) = args.dot {
        let rows = snapshot.processes.iter().flat_map(|process| process.graphs_view.rows.iter());
        let Some(row) = rows.filter(|row| row.id == id).max_by_key(|row| row.launches) else {
            return Err(Failure::new(
                NO_TARGET,
                format!("no executable graph {id} was seen; stat --json lists them"),
            ));
        };
        put(|out| crate::export::dot::write(row, out))
    } else if args.json {
        put(|out| json::write(snapshot, out))
    } else {
        put(|out| text::write(snapshot, out))
    }
}

/// How to watch.
pub(super) struct Wanted<'a> {
    /// What others are told of who watches.
    pub(super) by: &'a str,
    /// How long; until it ends or Ctrl-C when nothing is said.
    pub(super) time: Option<Duration>,
    /// Where to keep what was seen.
    pub(super) record: Option<recorder::Options>,
    /// Whether nothing else is wanted than the recording.
    pub(super) no_more: bool,
}

/// Watches the source that is named, and says what was seen and how the recording of it ended, if there is one.
pub(super) fn watch_source(
    attach: Option<u32>,
    consent: Consent,
    demo: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<(Snapshot, Option<Status>), Failure> {
    if let Some(pid) = attach {
        let found = find_in_lines(pid, consent, true)?;
        block_on(async {
            let mut wanted = wanted;
            let (targets, family, later) = match found.awaited {
                None => {
                    let (watched, others): (Vec<_>, Vec<_>) =
                        found.targets.iter().partition(|target| target.reach.is_ok());
                    let mut family = Family::of(pid, watched.into_iter().map(|target| &target.process));
                    family.judged(others.into_iter().map(|target| &target.process));
                    (found.targets, family, found.later)
                }
                Some(awaited) => {
                    let First { targets, family, left, later } =
                        first(awaited, found.later, wanted.time).await?;
                    // What was waited is of the time that was asked for.
                    wanted.time = left;
                    (targets, family, later)
                }
            };
            let session = Session::new(SourceKind::Live, &format!("pid {pid}"));
            let growth = Growth::of(family).treating(later);
            watch(session, targets, Some(growth), nvml::Options::default(), wanted).await
        })?
    } else if let Some(scenario) = demo {
        let mut demo = demo::start(scenario)?;
        let targets = demo.targets().map_err(demo::failure)?;
        let session = Session::new(SourceKind::Demo, &format!("demo {scenario}"));
        block_on(watch(session, targets, None, demo.devices(), wanted))?
    } else {
        Err(Failure::new(USAGE, "say which source: a FILE, --attach PID or --demo SCENARIO"))
    }
}

/// Everything that a file tells, with what is drawn of it.
pub(super) fn read(path: &Path) -> Result<Snapshot, Failure> {
    read_into(path, Model::new)
}

/// What a file tells a model.
fn read_into(path: &Path, model: fn(SourceKind, &str) -> Model) -> Result<Snapshot, Failure> {
    let label = path.to_string_lossy();
    match file::open(path).map_err(unreadable)? {
        Opened::Recording(recording) => summary(recording, model(SourceKind::Live, &label)),
        Opened::Buffers => read_buffers(path, model(SourceKind::File, &label)),
    }
}

/// What a recording tells a model.
fn summary<R: Read + Seek + Send>(recording: Recording<R>, mut model: Model) -> Result<Snapshot, Failure> {
    let (now, damage) = recording::read_into(&mut model, recording)?;
    if let Some(damage) = damage {
        model.damaged(damage.to_string());
    }
    Ok(model.snapshot(now))
}

/// The failure of a file that cannot be read.
pub(super) fn unreadable(error: Unreadable) -> Failure {
    let code = if matches!(error, Unreadable::Io(..)) { NO_TARGET } else { DAMAGED };
    Failure::new(code, error)
}

fn read_buffers(path: &Path, mut model: Model) -> Result<Snapshot, Failure> {
    let conn = model.add(0);
    let now = Moment::default();
    let damage = file::read(path, &mut |bytes| {
        if let Ok(Some((frame, _))) = Frame::split(bytes) {
            model.apply(conn, &frame, now);
        }
    })
    .map_err(unreadable)?;
    model.link(conn, Link::Ended("read to its end".to_owned()), now);
    if let Some(damage) = damage {
        model.damaged(damage);
    }
    Ok(model.snapshot(now))
}

/// The summary of live processes, and of those that `growth` says join them, watched until the time is over, they end or
/// Ctrl-C.
async fn watch(
    session: Session,
    targets: Vec<Target>,
    growth: Option<Growth>,
    devices: nvml::Options,
    wanted: Wanted<'_>,
) -> Result<(Snapshot, Option<Status>), Failure> {
    // Before anything is asked of the processes: whoever sees us watch may end us with Ctrl-C at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    if let Some(options) = wanted.record {
        session.record(options)?;
    }
    let failures = connect(&session, targets, wanted.by).await;
    if session.is_over() {
        return Err(Failure::new(NO_TARGET, lines(&failures)));
    }
    for (process, why) in &failures {
        session.unreachable(process, &why.to_string());
    }
    let nvml = nvml::Client::start(devices)?;
    session.sample_devices(nvml.subscribe());
    let watched = async {
        // Every shim is to become what it will be: the first CUPTI call may take a while.
        let armed = session.until(|session| !session.model().is_arming());
        let _ = tokio::time::timeout(ARMING, armed).await;
        match wanted.time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let growth = async {
        match growth {
            Some(growth) => grow(&session, growth, wanted.by).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = watched => {}
        () = growth => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        () = session.until(Session::is_over) => {}
        () = session.until(|session| wanted.no_more && session.is_recording_broken()) => {}
    }
    let mut samples = nvml.subscribe();
    let answered = samples.wait_for(|samples| samples.status != nvml::Status::Starting);
    if tokio::time::timeout(DEVICES, answered).await.is_ok() {
        // The session's own task has yet to take the samples in.
        tokio::task::yield_now().await;
    }
    // Last, so that nothing comes between the counts that agree and the snapshot of them.
    let now = session.come_to_rest(REST).await;
    let snapshot = session.model_mut().snapshot(now);
    let recorded = session.stop_recording(now).await;
    if session.is_over() && snapshot.processes.iter().all(|process| process.records.shown == 0) {
        let text = full(&snapshot)
            .unwrap_or_else(|| format!("{} ended before anything was seen of it", snapshot.source.label));
        return Err(Failure::new(NO_TARGET, text));
    }
    Ok((snapshot, recorded))
}

/// What is said where a shim serves too many to serve us, too.
fn full(snapshot: &Snapshot) -> Option<String> {
    snapshot.processes.iter().find_map(|process| match &process.link {
        Link::Ended(why) if why.as_bytes().ends_with(FULL) => Some(why.clone()),
        _ => None,
    })
}

fn lines(failures: &[(Process, Unwatched)]) -> String {
    let line =
        |(process, why): &(Process, Unwatched)| format!("process {} cannot be watched: {why}", process.pid);
    let lines: Vec<String> = failures.iter().map(line).collect();
    lines.join("\n")
}
