//! The engine behind a screen: owns sources and model, publishes snapshots, passes requests on.

use std::sync::Arc;
use std::time::Duration;

use gtop_protocol::KindSet;
use gtop_protocol::message::Outcome;
use tokio::sync::{mpsc, oneshot, watch};

use crate::model::snapshot::Snapshot;

/// Snapshots are published no more often than this, and only when something has changed.
pub const PUBLISH_EVERY: Duration = Duration::from_millis(33);

/// What is asked of a shim. What comes of it shows in later snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Switch these kinds on.
    Enable(KindSet),
    /// Switch these kinds off.
    Disable(KindSet),
    /// Arm, and stay armed until [`Ask::Rest`].
    Arm,
    /// Rest, whoever watches.
    Rest,
    /// Put a mark into the stream of every viewer.
    Mark(String),
    /// Take complete buffers out of CUPTI now.
    Flush,
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
}

/// The other two ends, held by the engine.
#[derive(Debug)]
pub struct Engine {
    /// Where snapshots go.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    /// Requests of the screen.
    pub requests: mpsc::Receiver<Request>,
}

/// A screen's ends and the engine's ends of one pair of channels.
#[must_use]
pub fn channel() -> (Handle, Engine) {
    let (snapshot_tx, snapshots) = watch::channel(Arc::default());
    let (requests, request_rx) = mpsc::channel(16);
    (Handle { snapshots, requests }, Engine { snapshots: snapshot_tx, requests: request_rx })
}
