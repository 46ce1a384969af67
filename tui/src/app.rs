//! The engine behind a screen: owns sources and model, publishes snapshots, passes requests on.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gtop_protocol::KindSet;
use gtop_protocol::message::{Outcome, Severity};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};

use crate::export::raw::{self, Dump};
use crate::model::names::safe;
use crate::model::snapshot::{Snapshot, SourceKind};
use crate::model::time::Moment;
use crate::recorder;
use crate::replay::Wish;
use crate::session::Session;
use crate::source::live::{ConnectError, Live};
use crate::system::attach::{Missing, Target};
use crate::system::family::Family;
use crate::system::inject::{Refusal, inject};
use crate::system::nvml;
use crate::system::process::Process;

/// Snapshots are published no more often than this, and only when something has changed: faster than anybody reads
/// numbers, and slower than frames may follow one another, so that each is drawn at once.
pub const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// What is asked of a shim. What comes of it shows in later snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Switch these kinds on.
    Enable(KindSet),
    /// Switch these kinds off.
    Disable(KindSet),
    /// Arm, and stay armed until [`Ask::Rest`].
    Arm,
    /// Watch again, or try again to.
    Watch,
    /// Rest, whoever watches, so that another tool can have CUPTI.
    Rest,
    /// Trace in windows for at most this price, parts per million of the process's time; 0 traces in full.
    Budget(u32),
    /// Put a mark into the stream of every viewer.
    Mark(String),
    /// Take complete buffers out of CUPTI now.
    Flush,
    /// Record into this new file, or end the recording that is being made. Asked of gtop itself.
    Record(PathBuf),
    /// Something of a replay.
    Replay(Wish),
    /// End: finish the recording and let go of everything. Asked of gtop itself.
    Close,
}

/// What is kept of what is watched.
#[derive(Debug, Default)]
pub struct Files {
    /// A recording.
    pub record: Option<recorder::Options>,
    /// CUPTI's buffers as they are.
    pub dump: Option<raw::Options>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Done, needs a yes, refused or failed.
    pub outcome: Outcome,
    /// For people, safe for a terminal; with [`Outcome::NeedsYes`] it says what would happen.
    pub text: String,
}

/// One request to the shim of a process.
#[derive(Debug)]
pub struct Request {
    /// The process, as this machine numbers it.
    pub pid: u32,
    /// What is asked.
    pub ask: Ask,
    /// Whether to do it although it harms; only after [`Outcome::NeedsYes`] was shown.
    pub yes: bool,
    /// Where the answer goes; dropped without one when the process is gone.
    pub answer: oneshot::Sender<Answer>,
}

/// The two ends a screen holds. The engine ends when the handle is dropped.
#[derive(Debug)]
pub struct Handle {
    /// The newest snapshot.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// Requests to shims.
    pub requests: mpsc::Sender<Request>,
    /// Tells when nothing is left to be done.
    finished: Arc<Mutex<Receiver<()>>>,
}

/// How long the end of a recording may take when gtop is left.
const FINISH: Duration = Duration::from_secs(5);

/// Ends an engine in good order, whoever holds its handle.
#[derive(Debug)]
pub struct Closer {
    requests: mpsc::Sender<Request>,
    finished: Arc<Mutex<Receiver<()>>>,
}

impl Handle {
    /// What ends the engine later.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { requests: self.requests.clone(), finished: Arc::clone(&self.finished) }
    }
}

impl Closer {
    /// Ends the engine and waits until its recording is whole, but not for ever. Not to be called within a runtime.
    pub fn close(self) {
        let (answer, _) = oneshot::channel();
        // Without a receiver it has ended already.
        let _ = self.requests.try_send(Request { pid: 0, ask: Ask::Close, yes: false, answer });
        drop(self.requests);
        if let Ok(finished) = self.finished.lock() {
            let _ = finished.recv_timeout(FINISH);
        }
    }
}

/// The other two ends, held by the engine.
#[derive(Debug)]
pub struct Engine {
    /// Where snapshots go.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    /// Requests of the screen.
    pub requests: mpsc::Receiver<Request>,
    /// Dropped when nothing is left to be done.
    _finished: std::sync::mpsc::Sender<()>,
}

/// A screen's ends and the engine's ends of one pair of channels.
#[must_use]
pub fn channel() -> (Handle, Engine) {
    let (snapshot_tx, snapshots) = watch::channel(Arc::default());
    let (requests, request_rx) = mpsc::channel(16);
    let (finish, finished) = std::sync::mpsc::channel();
    let finished = Arc::new(Mutex::new(finished));
    let engine = Engine { snapshots: snapshot_tx, requests: request_rx, _finished: finish };
    (Handle { snapshots, requests, finished }, engine)
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No process could be watched; what is wrong with each.
    #[error("{}", reasons(.0))]
    Nobody(Vec<(u32, Unwatched)>),
    /// The system gives no thread or no runtime.
    #[error("the engine cannot be started: {0}")]
    Io(#[from] io::Error),
}

/// Why one process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum Unwatched {
    /// There is no way to its shim.
    #[error("{0}")]
    Missing(Missing),
    /// Its shim cannot be used.
    #[error("{0}")]
    Connect(#[from] ConnectError),
}

fn reasons(failures: &[(u32, Unwatched)]) -> String {
    let lines: Vec<String> = failures.iter().map(|(pid, why)| format!("process {pid}: {why}")).collect();
    lines.join("\n")
}

/// What the shims' other viewers are told of this one.
const BY: &str = "gtop";

/// Every so many looks the family is searched for members that use a GPU without the shim.
const STRANGERS_EVERY: u32 = 8;
/// How often to look for shims that have come.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Connects to every target that can be reached; `by` says to others who watches. The processes that cannot be
/// watched come back with the reason. Must be called inside a [`LocalSet`].
pub async fn connect(session: &Session, targets: Vec<Target>, by: &str) -> Vec<(u32, Unwatched)> {
    let mut failures = Vec::new();
    // A shim that does not answer must not keep the others waiting.
    let mut tries = JoinSet::new();
    for target in targets {
        let by = by.to_owned();
        tries.spawn_local(async move {
            let pid = target.process.pid;
            let live = match target.reach {
                Ok(endpoint) => {
                    Live::connect(target.process, &endpoint, true, &by).await.map_err(Unwatched::from)
                }
                Err(missing) => Err(Unwatched::Missing(missing)),
            };
            live.map_err(|why| (pid, why))
        });
    }
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok(Ok(live)) => session.watch(live),
            Ok(Err(failure)) => failures.push(failure),
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
    failures
}

/// What becomes of processes that join a family while it is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newcomers {
    /// Put the shim into those that come to use a GPU without it; otherwise they are shown as not watched.
    pub inject: bool,
    /// The price they are to keep to, parts per million of their time.
    pub budget: Option<u32>,
}

impl Newcomers {
    const fn strangers(self) -> Strangers {
        if self.inject { Strangers::Inject } else { Strangers::Show }
    }
}

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
    let (strangers, budget) = (newcomers.strangers(), newcomers.budget);
    let growth = Growth { family, strangers, budget, after: Duration::ZERO, ended: None };
    let (started, start) = std::sync::mpsc::channel();
    let Files { dump, record } = files;
    let handle = engine(kind, label, devices, growth, record, async move |session| {
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
        let failures = connect(session, targets, BY).await;
        if session.is_over() {
            let _ = started.send(Err(AttachError::Nobody(failures)));
            return false;
        }
        for (pid, why) in &failures {
            session.unreachable(*pid, &why.to_string());
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
        family: Family::of(root.pid, []),
        strangers: newcomers.strangers(),
        budget: newcomers.budget,
        after: Duration::ZERO,
        ended: Some(ended),
    };
    let Files { dump, record } = files;
    engine(SourceKind::Live, label, devices, growth, record, async move |session| {
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
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

/// Watches a process that was just started: whatever shims come in its family from `after` on.
pub fn expect(
    started: Started,
    after: Duration,
    label: &str,
    devices: nvml::Options,
    files: Files,
) -> io::Result<Handle> {
    let Started { pid, log, ended } = started;
    let growth = Growth {
        family: Family::of(pid, []),
        strangers: Strangers::Pass,
        budget: None,
        after,
        ended: Some(ended),
    };
    let Files { dump, record } = files;
    engine(SourceKind::Live, label, devices, growth, record, async move |session| {
        if let Some(dump) = dump {
            session.dump(Dump::new(dump));
        }
        if let Some(log) = log {
            session.tail(&log);
        }
        true
    })
}

/// Who may join what is watched.
struct Growth {
    family: Family,
    strangers: Strangers,
    /// The price they are asked to keep to, parts per million.
    budget: Option<u32>,
    /// When to begin looking.
    after: Duration,
    /// Gives, in words, what became of the family's head.
    ended: Option<oneshot::Receiver<String>>,
}

/// What becomes of members of a family that use a GPU without the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strangers {
    /// Nothing: they have the variable, or are no business of ours.
    Pass,
    /// They are shown with the reason.
    Show,
    /// They get the shim.
    Inject,
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
            session.stop_recording(Moment::now()).await;
            drop(engine);
        });
    })?;
    Ok(handle)
}

/// Publishes snapshots and passes requests on until the screen is gone.
async fn run(session: &Session, engine: &mut Engine, growth: Growth) {
    let Engine { snapshots, requests, .. } = engine;
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
        () = grow(session, growth) => {}
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
                Answer { outcome: Outcome::Done, text: format!("recorded {records} records to {file}") }
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

/// Puts the shim into a process, so that the next look finds it, or shows the process with the reason.
async fn admit(session: &Session, target: Target, strangers: Strangers) {
    let pid = target.process.pid;
    let why = match (strangers, target.reach) {
        (Strangers::Inject, _) => {
            let process = target.process;
            match tokio::task::spawn_blocking(move || inject(&process)).await {
                Ok(Ok(_) | Err(Refusal::Gone)) | Err(_) => return,
                Ok(Err(refusal)) => Missing::NotInjectable(refusal),
            }
        }
        (_, Err(missing)) => missing,
        (_, Ok(_)) => return,
    };
    session.unreachable(pid, &why.to_string());
}

/// Watches whoever joins the family.
async fn grow(session: &Session, growth: Growth) {
    let Growth { mut family, strangers, budget, after, ended } = growth;
    let root = family.root();
    let look = async {
        tokio::time::sleep(after).await;
        let mut failed = HashSet::new();
        let mut looks = 0u32;
        loop {
            looks = looks.wrapping_add(1);
            if strangers != Strangers::Pass && looks.is_multiple_of(STRANGERS_EVERY) {
                for target in family.strangers() {
                    admit(session, target, strangers).await;
                }
            }
            let news = family.news();
            let joined: Vec<u32> = news.iter().map(|target| target.process.pid).collect();
            let failures = connect(session, news, BY).await;
            for (pid, ppm) in joined.into_iter().filter_map(|pid| Some((pid, budget?))) {
                // What comes of it shows on the screen.
                let (answer, _) = oneshot::channel();
                session.ask(Request { pid, ask: Ask::Budget(ppm), yes: false, answer });
            }
            for (pid, why) in failures {
                // A socket may be there a moment before its shim listens.
                if failed.insert(pid) {
                    family.forget(pid);
                } else {
                    session.unreachable(pid, &why.to_string());
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let end = async {
        match ended {
            Some(ended) => ended.await.ok(),
            None => None,
        }
    };
    tokio::pin!(look);
    let why = tokio::select! {
        () = &mut look => None,
        why = end => why,
    };
    match why {
        Some(why) => session.ended(root, &why),
        // Nobody will say.
        None => look.await,
    }
    std::future::pending::<()>().await;
}
