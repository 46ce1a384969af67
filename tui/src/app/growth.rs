//! Who is watched: the processes that are there, and those that join them later.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use super::{Ask, Request, question};
use crate::model::snapshot::{Asks, Begins};
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
    /// What becomes of those that come to use a GPU without the shim.
    pub strangers: Strangers,
    /// The price they are to keep to, parts per million of their time.
    pub budget: Option<u32>,
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
    /// Whether nobody of the family uses CUDA yet, so that the first who does is waited for.
    pub(super) waits: bool,
    /// What a person has said to the question whether to put the shim in.
    pub(super) said: Arc<watch::Sender<Option<bool>>>,
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
            waits: false,
            said: Arc::default(),
            ended: None,
        }
    }

    /// The same, where those without the shim get it if `later` says so; otherwise they are no business of ours.
    pub(crate) fn treating(self, later: Strangers) -> Self {
        let strangers = if later == Strangers::Inject { later } else { Strangers::Pass };
        Self { strangers, ..self }
    }
}

/// What becomes of members of a family that use a GPU without the shim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strangers {
    /// Nothing: they have the variable, or are no business of ours.
    Pass,
    /// They are shown with the reason.
    #[default]
    Show,
    /// They are shown with the reason, and with what would put the shim in.
    Tell,
    /// A person is asked, once for all of them, and until there is an answer nothing is done.
    Ask,
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
        (Strangers::Tell, Err(missing)) => {
            session.unreachable(&process, &missing.with_advice());
            return;
        }
        (_, Err(missing)) => missing,
        (_, Ok(_)) => return,
    };
    session.unreachable(&process, &why.to_string());
}

/// Those that a person is asked about.
#[derive(Default)]
struct Asked {
    targets: Vec<Target>,
    /// Those that the question names.
    named: Vec<u32>,
}

impl Asked {
    /// Asks about these, too, and no longer about those that have ended.
    fn ask(&mut self, session: &Session, found: Vec<Target>) {
        self.targets.extend(found);
        self.targets.retain(|target| target.process.is_alive());
        let pids: Vec<u32> = self.targets.iter().map(|target| target.process.pid).collect();
        if pids != self.named {
            let asks = pids.first().map(|pid| Asks {
                pid: *pid,
                title: question::title(&self.targets),
                lines: question::lines(&self.targets),
            });
            session.ask_person(asks);
            self.named = pids;
        }
    }

    /// There is an answer.
    fn settle(&mut self, session: &Session) -> Vec<Target> {
        session.ask_person(None);
        self.named.clear();
        std::mem::take(&mut self.targets)
    }
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
    let Growth { mut family, mut strangers, budget, after, begin, mut waits, said, ended } = growth;
    let root = family.root();
    let (mut said, mut asked) = (said.subscribe(), Asked::default());
    let look = async {
        if !after.is_zero() {
            wait(session, root, after, &begin).await;
        }
        let mut failed = HashSet::new();
        let mut looks = 0u32;
        loop {
            looks = looks.wrapping_add(1);
            if let (Strangers::Ask, Some(yes)) = (strangers, *said.borrow_and_update()) {
                strangers = if yes { Strangers::Inject } else { Strangers::Show };
                for target in asked.settle(session) {
                    admit(session, target, strangers).await;
                }
            }
            if strangers != Strangers::Pass && (waits || looks.is_multiple_of(STRANGERS_EVERY)) {
                let found = family.strangers();
                if strangers == Strangers::Ask {
                    asked.ask(session, found);
                } else {
                    for target in found {
                        admit(session, target, strangers).await;
                    }
                }
            }
            let news = family.news();
            let joined: Vec<u32> = news.iter().map(|target| target.process.pid).collect();
            let failures = connect(session, news, by).await;
            if waits && failures.len() < joined.len() {
                waits = false;
                session.model_mut().begins(None);
            }
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
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Ok(()) = said.changed() => {}
            }
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
        Some(why) => {
            session.ask_person(None);
            session.model_mut().begins(None);
            session.ended(root, &why);
        }
        // Nobody will say.
        None => look.await,
    }
    std::future::pending::<()>().await;
}
