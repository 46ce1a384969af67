//! The engine behind a screen, as the screen has it: what it can ask, and the two ends of the channels between them.

mod engine;
mod growth;
pub mod question;

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gtop_protocol::KindSet;
use gtop_protocol::message::Outcome;
use tokio::sync::{mpsc, oneshot, watch};

use crate::model::snapshot::Snapshot;
use crate::replay::Wish;

pub use engine::{AttachError, Files, Started, attach, expect, wait_for};
pub(crate) use growth::{Growth, grow};
pub use growth::{Newcomers, Strangers, Unwatched, connect};

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
    /// Put the shim into those that the engine asks about, or do not. Asked of gtop itself.
    Inject(bool),
    /// Something of a replay.
    Replay(Wish),
    /// End: finish the recording and let go of everything. Asked of gtop itself.
    Close,
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
    finished: Arc<Mutex<Receiver<String>>>,
}

/// How long the end of a recording may take when gtop is left.
const FINISH: Duration = Duration::from_secs(5);

/// Ends an engine in good order, whoever holds its handle.
#[derive(Debug)]
pub struct Closer {
    requests: mpsc::Sender<Request>,
    finished: Arc<Mutex<Receiver<String>>>,
}

impl Handle {
    /// What ends the engine later.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { requests: self.requests.clone(), finished: Arc::clone(&self.finished) }
    }
}

impl Closer {
    /// Ends the engine and waits until its recording is whole, but not for ever; gives why that is not, if it could not go
    /// on. Not to be called within a runtime.
    #[must_use]
    pub fn close(self) -> Option<String> {
        let (answer, _) = oneshot::channel();
        // Without a receiver it has ended already.
        let _ = self.requests.try_send(Request { pid: 0, ask: Ask::Close, yes: false, answer });
        drop(self.requests);
        self.finished.lock().ok()?.recv_timeout(FINISH).ok()
    }
}

/// The other two ends, held by the engine.
#[derive(Debug)]
pub struct Engine {
    /// Where snapshots go.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    /// Requests of the screen.
    pub requests: mpsc::Receiver<Request>,
    /// Dropped when nothing is left to be done, after it is said why a recording could not go on.
    finished: std::sync::mpsc::Sender<String>,
}

/// A screen's ends and the engine's ends of one pair of channels.
#[must_use]
pub fn channel() -> (Handle, Engine) {
    let (snapshot_tx, snapshots) = watch::channel(Arc::default());
    let (requests, request_rx) = mpsc::channel(16);
    let (finish, finished) = std::sync::mpsc::channel();
    let finished = Arc::new(Mutex::new(finished));
    let engine = Engine { snapshots: snapshot_tx, requests: request_rx, finished: finish };
    (Handle { snapshots, requests, finished }, engine)
}
