//! The engine's thread: it owns sources and model, publishes snapshots, passes requests on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gtop_protocol::message::{Outcome, Severity};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::growth::{Growth, LOOK_EVERY, grow};
use super::{Answer, Ask, Engine, Handle, Newcomers, PUBLISH_EVERY, Unwatched, channel, connect};
use crate::export::raw::{self, Dump};
use crate::model::names::safe;
use crate::model::snapshot::{Begins, SourceKind};
use crate::model::time::Moment;
use crate::recorder;
use crate::session::Session;
use crate::system::attach::Target;
use crate::system::family::Family;
use crate::system::nvml;
use crate::system::process::Process;
use crate::view::units;

/// What is kept of what is watched.
#[derive(Debug, Default)]
pub struct Files {
    /// A recording.
    pub record: Option<recorder::Options>,
    /// CUPTI's buffers as they are.
    pub dump: Option<raw::Options>,
    /// What was done before, a line each, for the event log.
    pub done: Vec<String>,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No process could be watched; what is wrong with each.
    #[error("{}", reasons(.0))]
    Nobody(Vec<(Process, Unwatched)>),
    /// The system gives no thread or no runtime.
    #[error("the engine cannot be started: {0}")]
    Io(#[from] io::Error),
}

fn reasons(failures: &[(Process, Unwatched)]) -> String {
    let reason = |(process, why): &(Process, Unwatched)| format!("process {}: {why}", process.pid);
    let lines: Vec<String> = failures.iter().map(reason).collect();
    lines.join("\n")
}

/// What the shims' other viewers are told of this one.
const BY: &str = "gtop";

/// Watches `targets` on a thread of its own, and whatever shims come later in the family of `root`. Returns when each
/// target has answered or failed; it is an error when none could be watched. `devices` says how NVML is asked,
/// `dump` where CUPTI's buffers go as they are.
pub fn attach(
    root: u32,
    targets: Vec<Target>,
    newcomers: Newcomers,
    kind: SourceKind,
    label: &str,
    devices: nvml::Options,
    files: Files,
) -> Result<Handle, AttachError> {
    // Those that cannot be watched may come to be.
    let (reached, others): (Vec<_>, Vec<_>) = targets.iter().partition(|target| target.reach.is_ok());
    let mut family = Family::of(root, reached.into_iter().map(|target| &target.process));
    family.judged(others.into_iter().map(|target| &target.process));
    let Newcomers { strangers, budget } = newcomers;
    let growth = Growth { strangers, budget, ..Growth::of(family) };
    let (started, start) = std::sync::mpsc::channel();
    let Files { dump, record, done } = files;
    let handle = engine(kind, label, devices, growth, record, async move |session| {
        for line in &done {
            session.say(line);
        }
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
        let failures = connect(session, targets, BY).await;
        if session.is_over() {
            let _ = started.send(Err(AttachError::Nobody(failures)));
            return false;
        }
        for (process, why) in &failures {
            session.unreachable(process, &why.to_string());
        }
        started.send(Ok(())).is_ok()
    })?;
    start.recv().map_err(|_| io::Error::other("it ended at once"))??;
    Ok(handle)
}

/// Watches the family of `root`, no member of which uses a GPU so far, from when the first does.
pub fn wait_for(
    root: Process,
    newcomers: Newcomers,
    label: &str,
    devices: nvml::Options,
    files: Files,
) -> io::Result<Handle> {
    let (say, ended) = oneshot::channel();
    let growth = Growth {
        strangers: newcomers.strangers,
        budget: newcomers.budget,
        waits: true,
        ended: Some(ended),
        ..Growth::of(Family::of(root.pid, []))
    };
    let Files { dump, record, done } = files;
    engine(SourceKind::Live, label, devices, growth, record, async move |session| {
        for line in &done {
            session.say(line);
        }
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
        session.model_mut().begins(Some(Begins::Used));
        tokio::task::spawn_local(async move {
            while root.is_alive() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            let _ = say.send(format!("process {} ended before it used CUDA", root.pid));
        });
        true
    })
}

/// A process that was just started.
#[derive(Debug)]
pub struct Started {
    /// Its process id.
    pub pid: u32,
    /// The file its output goes to, if it does.
    pub log: Option<PathBuf>,
    /// Gives, in words, what became of it.
    pub ended: oneshot::Receiver<String>,
}

/// Watches a process that was just started: whatever shims come in its family from `after` on. `note` is what it costs,
/// for the event log.
pub fn expect(
    started: Started,
    after: Duration,
    note: Option<&'static str>,
    label: &str,
    devices: nvml::Options,
    files: Files,
) -> io::Result<Handle> {
    let Started { pid, log, ended } = started;
    let growth = Growth { after, ended: Some(ended), ..Growth::of(Family::of(pid, [])) };
    let Files { dump, record, done } = files;
    engine(SourceKind::Live, label, devices, growth, record, async move |session| {
        for line in &done {
            session.say(line);
        }
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
        if let Some(log) = log {
            session.tail(&log);
        }
        if let Some(note) = note {
            session.model_mut().say(Severity::Info, "cost", note, Moment::now());
        }
        true
    })
}

/// Starts the engine's thread. `begin` says whether there is something to do.
fn engine(
    kind: SourceKind,
    label: &str,
    devices: nvml::Options,
    growth: Growth,
    record: Option<recorder::Options>,
    begin: impl AsyncFnOnce(&Session) -> bool + Send + 'static,
) -> io::Result<Handle> {
    let (handle, mut engine) = channel();
    let label = label.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("gtop-engine".into()).spawn(move || {
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            let session = Session::new(kind, &label);
            if let Some(options) = record
                && let Err(error) = session.record(options)
            {
                let text = format!("there is no recording: {error}");
                session.model_mut().say(Severity::Alarm, "record", &text, Moment::now());
            }
            if !begin(&session).await {
                return;
            }
            // Ends with the session, and with it the helper process.
            let nvml = nvml::Client::start(devices);
            match &nvml {
                Ok(client) => session.sample_devices(client.subscribe()),
                Err(error) => session.model_mut().device_note(Some(format!("NVML helper: {error}"))),
            }
            run(&session, &mut engine, growth).await;
            let recorded = session.stop_recording(Moment::now()).await;
            if let Some(error) = recorded.and_then(|status| status.error) {
                let _ = engine.finished.send(error);
            }
            drop(engine);
        });
    })?;
    Ok(handle)
}

/// Publishes snapshots and passes requests on until the screen is gone.
async fn run(session: &Session, engine: &mut Engine, growth: Growth) {
    let Engine { snapshots, requests, .. } = engine;
    let (begin, said) = (Arc::clone(&growth.begin), Arc::clone(&growth.said));
    let mut changes = session.changes();
    let publish = async {
        loop {
            snapshots.send_replace(Arc::new(session.model_mut().glance(Moment::now())));
            tokio::time::sleep(PUBLISH_EVERY).await;
            // Rates fall and ages grow even when no frame comes.
            let _ = tokio::time::timeout(Duration::from_secs(1), changes.changed()).await;
        }
    };
    let pass_on = async {
        while let Some(request) = requests.recv().await {
            match request.ask {
                Ask::Close => return,
                // Of nobody yet: of what is to be watched later.
                Ask::Watch if request.pid == 0 => {
                    begin.notify_one();
                    let _ = request.answer.send(Answer { outcome: Outcome::Done, text: "watching".into() });
                }
                Ask::Inject(yes) => {
                    said.send_replace(Some(yes));
                    let text = if yes {
                        ""
                    } else {
                        "nothing was put in: what runs without the shim is not watched"
                    };
                    let _ = request.answer.send(Answer { outcome: Outcome::Done, text: text.into() });
                }
                Ask::Record(path) => {
                    let answer = record(session, &path).await;
                    let _ = request.answer.send(answer);
                }
                _ => session.ask(request),
            }
        }
    };
    tokio::select! {
        () = publish => {}
        () = pass_on => {}
        () = grow(session, growth, BY) => {}
        () = snapshots.closed() => {}
    }
}

/// Begins a recording or ends the one that is being made.
async fn record(session: &Session, path: &Path) -> Answer {
    let name = safe(path.as_os_str().as_encoded_bytes());
    if session.is_recording() {
        return match session.stop_recording(Moment::now()).await {
            Some(recorder::Status { error: None, file, records, .. }) => {
                let file = safe(file.as_os_str().as_encoded_bytes());
                Answer {
                    outcome: Outcome::Done,
                    text: format!("recorded {} to {file}", units::some(records as usize, "record")),
                }
            }
            ended => {
                let error = ended.and_then(|status| status.error).unwrap_or_default();
                Answer { outcome: Outcome::Failed, text: error }
            }
        };
    }
    let label = session.model().label().to_owned();
    match recorder::Options::create(path, &label).and_then(|options| session.record(options)) {
        Ok(()) => Answer { outcome: Outcome::Done, text: format!("recording to {name}") },
        Err(error) => Answer { outcome: Outcome::Failed, text: format!("{name}: {error}") },
    }
}
