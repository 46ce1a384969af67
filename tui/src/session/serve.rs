//! One connection of a session: frames into the model, requests to the shim, replies to whoever asked.

use std::rc::Rc;
use std::time::Duration;

use gtop_protocol::control::{Action, Raw, YES};
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::{Outcome, Reply, Severity};
use gtop_protocol::viewer::Halted;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::{Flow, Shared};
use crate::app::{Answer, Ask, Request};
use crate::export::raw::{ProcessDump, Told};
use crate::model::Conn;
use crate::model::names::safe;
use crate::model::snapshot::Link;
use crate::model::time::Moment;
use crate::source::live::{Input, Live};
use crate::system::process::{Process, readable};
use crate::system::remote::{Looks, Way};

/// Carries frames, link changes, requests and replies between one connection and the model.
pub(super) async fn serve(flow: Flow, mut live: Live, shared: Rc<Shared>, mut asks: mpsc::Receiver<Request>) {
    let mut waiting: FxHashMap<u64, oneshot::Sender<Answer>> = FxHashMap::default();
    shared.link(flow, Link::Up);
    let (mut over, mut rested) = (false, false);
    let mut halts = Halts::of(&live);
    let mut dump = Dumping::begin(&shared, &mut live, &mut waiting).await;
    while !over {
        tokio::select! {
            input = live.next() => match input {
                Input::Frames(bytes) => {
                    if let Some(cause) = halts.heard() {
                        shared.halt(flow, cause);
                    }
                    let stop = dump.as_mut().is_some_and(|dump| dump.take(flow.conn, bytes, &shared));
                    if !rested && shared.apply(flow, bytes) {
                        rested = true;
                        shared.stop_running();
                    }
                    answer(bytes, &mut waiting);
                    if stop {
                        dump = None;
                        let _ = live.want_raw(Raw::None).await;
                    }
                }
                Input::Link(link) => {
                    over = matches!(link, Link::Ended(_));
                    waiting.clear();
                    shared.link(flow, link);
                }
            },
            Some(request) = asks.recv() => {
                waiting.retain(|_, answer| !answer.is_closed());
                let flags = if request.yes { YES } else { 0 };
                if let Some(action) = action(&request.ask)
                    && let Ok(id) = live.request(action, flags).await
                {
                    waiting.insert(id, request.answer);
                }
            }
            cause = halts.next() => shared.halt(flow, cause),
            refused = Dumping::refused(&mut dump) => {
                dump = None;
                let text = format!("no raw buffers come: {refused}");
                shared.model.borrow_mut().event(flow.conn, Severity::Warning, "raw", &text, Moment::now());
            }
        }
        shared.changed.send_replace(());
        shared.room().await;
        // Whoever shows the model shares this thread.
        tokio::task::yield_now().await;
    }
    shared.open.update(|open| open - 1);
    if !rested {
        shared.stop_running();
    }
    shared.changed.send_replace(());
}

/// How often to look whether a process of this machine runs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After how long without a frame to look at one of another machine.
const QUIET: Duration = Duration::from_millis(1500);

/// Looks now and then what keeps a process from running: a shim that is stopped cannot say so.
struct Halts {
    process: Process,
    sight: Sight,
    /// What was seen last, and what was said last.
    seen: Halted,
    said: Halted,
}

/// From where it is looked at.
enum Sight {
    Here(Interval),
    /// Another machine's shell is kept busy only while nothing is heard.
    There(Way, Option<Box<Looks>>),
    /// It cannot be seen.
    Nowhere,
}

impl Halts {
    fn of(live: &Live) -> Self {
        let sight = if let Some(way) = live.way() {
            Sight::There(way.clone(), None)
        } else {
            let mut looks = interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Sight::Here(looks)
        };
        Self { process: live.process().clone(), sight, seen: Halted::No, said: Halted::No }
    }

    /// The next change. May be cancelled and called again, as it is whenever something is heard.
    async fn next(&mut self) -> Halted {
        loop {
            let (now, before) = (self.look().await, self.seen);
            self.seen = now;
            // A moment in a debugger's hands or in the kernel is nothing.
            let lasts = now == before || !matches!(now, Halted::Traced | Halted::Blocked);
            if lasts && now != self.said {
                self.said = now;
                return now;
            }
        }
    }

    async fn look(&mut self) -> Halted {
        match &mut self.sight {
            Sight::Here(looks) => {
                looks.tick().await;
                return self.process.halted();
            }
            Sight::There(_, Some(looks)) => {
                if let Some(halted) = looks.next().await {
                    return halted;
                }
            }
            Sight::There(way, looks) => {
                sleep(QUIET).await;
                if let Ok(found) = way.watch(&self.process).await {
                    *looks = Some(Box::new(found));
                    return Halted::No;
                }
            }
            Sight::Nowhere => {}
        }
        self.sight = Sight::Nowhere;
        std::future::pending().await
    }

    /// Something was heard of it: one of another machine runs again, which is said if it did not.
    fn heard(&mut self) -> Option<Halted> {
        let Sight::There(_, looks) = &mut self.sight else { return None };
        looks.take()?;
        let before = std::mem::replace(&mut self.said, Halted::No);
        (before != Halted::No).then_some(Halted::No)
    }
}

/// The raw buffers of one connection on their way into files.
struct Dumping {
    files: ProcessDump,
    /// The shim's answer to the wish for them, until it has come.
    answer: Option<oneshot::Receiver<Answer>>,
}

impl Dumping {
    /// Asks for them, if they are wanted.
    async fn begin(
        shared: &Shared,
        live: &mut Live,
        waiting: &mut FxHashMap<u64, oneshot::Sender<Answer>>,
    ) -> Option<Self> {
        let dump = shared.dump.borrow().clone()?;
        let (answer, answered) = oneshot::channel();
        if let Ok(id) = live.want_raw(dump.which()).await {
            waiting.insert(id, answer);
        }
        Some(Self { files: dump.of(live.process().pid), answer: Some(answered) })
    }

    /// Takes in frames; whether no more are wanted.
    fn take(&mut self, conn: Conn, bytes: &[u8], shared: &Shared) -> bool {
        self.files.take(bytes, |told| {
            let (severity, text) = match told {
                Told::File(path) => (Severity::Info, format!("raw buffers go to {}", readable(path))),
                Told::Stopped(why) => (Severity::Warning, format!("no more raw buffers are kept: {why}")),
            };
            shared.model.borrow_mut().event(conn, severity, "raw", &text, Moment::now());
        });
        self.files.is_stopped()
    }

    /// Why the shim does not send them, if it says so.
    async fn refused(dump: &mut Option<Self>) -> String {
        if let Some(dump) = dump
            && let Some(answer) = &mut dump.answer
        {
            let answered = answer.await;
            dump.answer = None;
            if let Ok(answer) = answered
                && answer.outcome != Outcome::Done
            {
                return answer.text;
            }
        }
        std::future::pending().await
    }
}

/// What of it is asked of a shim.
const fn action(ask: &Ask) -> Option<Action<'_>> {
    Some(match ask {
        Ask::Enable(kinds) => Action::Enable(kinds.0),
        Ask::Disable(kinds) => Action::Disable(kinds.0),
        Ask::Arm => Action::Arm,
        Ask::Watch => Action::Watch,
        Ask::Budget(ppm) => Action::Budget(*ppm),
        Ask::Rest => Action::Rest,
        Ask::Mark(text) => Action::Mark(text.as_bytes()),
        Ask::Flush => Action::Flush,
        Ask::Inject(_) | Ask::Record(_) | Ask::Replay(_) | Ask::Close => return None,
    })
}

/// Hands out the replies among these frames.
fn answer(bytes: &[u8], waiting: &mut FxHashMap<u64, oneshot::Sender<Answer>>) {
    let mut rest = bytes;
    while !waiting.is_empty()
        && let Ok(Some((frame, tail))) = Frame::split(rest)
    {
        rest = tail;
        if frame.kind() == Some(FrameKind::Reply)
            && let Ok(reply) = Reply::read(frame.body)
            && let Some(answer) = waiting.remove(&reply.request)
        {
            let _ =
                answer.send(Answer { outcome: Outcome::from_wire(reply.outcome), text: safe(reply.text) });
        }
    }
}
