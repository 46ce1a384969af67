//! Who is watched: the processes that are there, and those that join them later.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::{Ask, Request};
use crate::model::snapshot::Begins;
use crate::model::time::Moment;
use crate::session::Session;
use crate::source::live::{ConnectError, Live};
use crate::system::attach::{Missing, Target};
use crate::system::family::Family;
use crate::system::inject::{Refusal, inject};
use crate::system::process::Process;

/// Every so many looks the family is searched for members that use a GPU without the shim.
const STRANGERS_EVERY: u32 = 8;
/// How often to look for shims that have come.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

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

/// Connects to every target that can be reached; `by` says to others who watches. The processes that cannot be
/// watched come back with the reason. Must be called inside a [`tokio::task::LocalSet`].
pub async fn connect(session: &Session, targets: Vec<Target>, by: &str) -> Vec<(Process, Unwatched)> {
    let mut failures = Vec::new();
    // A shim that does not answer must not keep the others waiting.
    let mut tries = JoinSet::new();
    for target in targets {
        let by = by.to_owned();
        tries.spawn_local(async move {
            let process = target.process;
            let live = match target.reach {
                Ok(endpoint) => {
                    Live::connect(process.clone(), &endpoint, true, &by).await.map_err(Unwatched::from)
                }
                Err(missing) => Err(Unwatched::Missing(missing)),
            };
            live.map_err(|why| (process, why))
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
    pub(super) const fn strangers(self) -> Strangers {
        if self.inject { Strangers::Inject } else { Strangers::Show }
    }
}

/// Who may join what is watched.
pub(crate) struct Growth {
    pub(super) family: Family,
    pub(super) strangers: Strangers,
    /// The price they are asked to keep to, parts per million.
    pub(super) budget: Option<u32>,
    /// When to begin looking, unless that is asked for before.
    pub(super) after: Duration,
    /// Asks to begin now.
    pub(super) begin: Arc<Notify>,
    /// Gives, in words, what became of the family's head.
    pub(super) ended: Option<oneshot::Receiver<String>>,
}

impl Growth {
    /// Whatever shims come in the family.
    pub(crate) fn of(family: Family) -> Self {
        Self {
            family,
            strangers: Strangers::Pass,
            budget: None,
            after: Duration::ZERO,
            begin: Arc::default(),
            ended: None,
        }
    }
}

/// What becomes of members of a family that use a GPU without the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strangers {
    /// Nothing: they have the variable, or are no business of ours.
    Pass,
    /// They are shown with the reason.
    Show,
    /// They get the shim.
    Inject,
}

/// Puts the shim into a process, so that the next look finds it, or shows the process with the reason.
async fn admit(session: &Session, target: Target, strangers: Strangers) {
    let Target { process, reach } = target;
    let why = match (strangers, reach) {
        (Strangers::Inject, _) => {
            let into = process.clone();
            match tokio::task::spawn_blocking(move || inject(&into)).await {
                Ok(Ok((injected, _))) => {
                    if let Some(injected) = injected {
                        session.say(&format!("process {}: {injected}", process.pid));
                    }
                    return;
                }
                Ok(Err(Refusal::Gone)) | Err(_) => return,
                Ok(Err(refusal)) => Missing::NotInjectable(refusal),
            }
        }
        (_, Err(missing)) => missing,
        (_, Ok(_)) => return,
    };
    session.unreachable(&process, &why.to_string());
}

/// Lets time pass, and says so, until somebody asks not to.
async fn wait(session: &Session, pid: u32, after: Duration, begin: &Notify) {
    let now = Moment::now().wall;
    let at = u64::try_from(after.as_nanos()).ok().and_then(|after| now.checked_add(after));
    session.model_mut().begins(Some(at.map_or(Begins::Asked { pid }, Begins::At)));
    let _ = tokio::time::timeout(after, begin.notified()).await;
    session.model_mut().begins(None);
}

/// Watches whoever joins the family, for ever; `by` says to others who watches.
pub(crate) async fn grow(session: &Session, growth: Growth, by: &str) {
    let Growth { mut family, strangers, budget, after, begin, ended } = growth;
    let root = family.root();
    let look = async {
        if !after.is_zero() {
            wait(session, root, after, &begin).await;
        }
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
            let failures = connect(session, news, by).await;
            for (pid, ppm) in joined.into_iter().filter_map(|pid| Some((pid, budget?))) {
                // What comes of it shows on the screen.
                let (answer, _) = oneshot::channel();
                session.ask(Request { pid, ask: Ask::Budget(ppm), yes: false, answer });
            }
            for (process, why) in failures {
                // A socket may be there a moment before its shim listens.
                if failed.insert(process.pid) {
                    family.forget(process.pid);
                } else {
                    session.unreachable(&process, &why.to_string());
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
