//! Sources feeding one model, on one thread: what `stat`, `ctl` and the engine of a screen are made of.

mod serve;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, MAX_BODY};
use gtop_protocol::message::{self, Severity};
use gtop_protocol::recording::{Entry, Keep, MACHINE};
use gtop_protocol::viewer::{DeviceNote, Halt, Halted, LinkState, Watched};
use gtop_protocol::wire::{Full, Writer};
use gtop_protocol::{frame, viewer};
use tokio::sync::{mpsc, oneshot, watch};

use crate::app::{Ask, Request};
use crate::export::raw::Dump;
use crate::model::names::safe;
use crate::model::snapshot::{Asks, Link, Output, Recording, SourceKind};
use crate::model::time::Moment;
use crate::model::{Conn, Model};
use crate::recorder::{self, Recorder};
use crate::source::live::Live;
use crate::system::nvml;
use crate::system::process::Process;
use crate::system::tail::Tail;

/// How long nothing comes of a shim that has no more to say: it sends counts that have moved four times a second.
const QUIET: Duration = Duration::from_millis(300);
/// How often to look whether a log has grown.
const TAIL_EVERY: Duration = Duration::from_millis(250);
/// Requests that may wait for one process.
const WAITING: usize = 16;

/// A model and the tasks that feed it. It must live inside a [`tokio::task::LocalSet`].
#[derive(Debug)]
pub struct Session {
    shared: Rc<Shared>,
    asks: RefCell<Vec<(u32, mpsc::Sender<Request>)>>,
}

#[derive(Debug)]
struct Shared {
    model: RefCell<Model>,
    /// Wakes whoever shows the model.
    changed: watch::Sender<()>,
    /// Sources that have not ended.
    open: Cell<usize>,
    /// Whether each source is to be cut off where its counts agree.
    stopping: Cell<bool>,
    /// Sources that have not ended and were not cut off.
    running: Cell<usize>,
    /// How often news came of those since they are to be cut off.
    came: Cell<u64>,
    /// Where CUPTI's buffers go as they are, if anywhere.
    dump: RefCell<Option<Dump>>,
    /// What must be said first when a recording begins now.
    keep: RefCell<Keep>,
    recorder: RefCell<Option<Recorder>>,
    /// How the last recording ended, when nobody had ended it.
    broken: RefCell<Option<recorder::Status>>,
    /// The number of the last stream.
    streams: Cell<u32>,
}

/// One process: in the model, and in a recording.
#[derive(Clone, Copy, Debug)]
struct Flow {
    conn: Conn,
    stream: u32,
}

impl Session {
    /// A session over one source; `label` is for people.
    #[must_use]
    pub fn new(kind: SourceKind, label: &str) -> Self {
        let model = RefCell::new(Model::new(kind, label));
        let shared = Shared {
            model,
            changed: watch::Sender::new(()),
            open: Cell::new(0),
            stopping: Cell::new(false),
            running: Cell::new(0),
            came: Cell::new(0),
            dump: RefCell::default(),
            keep: RefCell::default(),
            recorder: RefCell::default(),
            broken: RefCell::default(),
            streams: Cell::new(MACHINE),
        };
        Self { shared: Rc::new(shared), asks: RefCell::default() }
    }

    /// The model, to read.
    #[must_use]
    pub fn model(&self) -> Ref<'_, Model> {
        self.shared.model.borrow()
    }

    /// The model, to take a snapshot of.
    #[must_use]
    pub fn model_mut(&self) -> RefMut<'_, Model> {
        self.shared.model.borrow_mut()
    }

    /// Feeds the model from a connection until that ends.
    pub fn watch(&self, live: Live) {
        let pid = live.process().pid;
        let flow = self.shared.join(pid);
        let (ask, asks) = mpsc::channel(WAITING);
        self.asks.borrow_mut().push((pid, ask));
        self.shared.open.update(|open| open + 1);
        self.shared.running.update(|running| running + 1);
        tokio::task::spawn_local(serve::serve(flow, live, Rc::clone(&self.shared), asks));
    }

    /// From now on CUPTI's buffers of those watched are written as they are.
    pub fn dump(&self, dump: Dump) {
        self.shared.dump.replace(Some(dump));
    }

    /// Shows a process that cannot be watched, and why.
    pub fn unreachable(&self, process: &Process, why: &str) {
        let flow = self.shared.join(process.pid);
        self.model_mut().call(flow.conn, &process.name);
        self.shared.link(flow, Link::Ended(why.to_owned()));
        self.shared.changed.send_replace(());
    }

    /// Asks whoever shows the model something; `None` when that needs no answer any more.
    pub fn ask_person(&self, asks: Option<Asks>) {
        self.model_mut().asks(asks);
        self.shared.changed.send_replace(());
    }

    /// Puts what was done into the event log.
    pub fn say(&self, text: &str) {
        self.model_mut().say(Severity::Info, "shim", text, Moment::now());
        self.shared.changed.send_replace(());
    }

    /// Says what became of the process all others descend from, if nothing was seen of any.
    pub fn ended(&self, pid: u32, why: &str) {
        if self.model().is_empty() {
            self.unreachable(&Process { pid, ..Process::default() }, why);
        }
    }

    /// Feeds the model with the end of a command's log as it grows.
    pub fn tail(&self, path: &Path) {
        let shared = Rc::clone(&self.shared);
        let path = path.to_owned();
        tokio::task::spawn_local(async move {
            let Ok(mut tail) = Tail::open(&path) else { return };
            let path = safe(path.as_os_str().as_encoded_bytes());
            let mut fresh = true;
            // A log that can no longer be read keeps what was seen of it.
            while let Ok(grown) = tail.update() {
                if grown || std::mem::take(&mut fresh) {
                    let output = Output { path: path.clone(), lines: tail.lines().collect() };
                    shared.model.borrow_mut().output(output);
                    shared.changed.send_replace(());
                }
                tokio::time::sleep(TAIL_EVERY).await;
            }
        });
    }

    /// Feeds the model with what NVML says, and with why it says nothing.
    pub fn sample_devices(&self, mut samples: watch::Receiver<nvml::Snapshot>) {
        let shared = Rc::clone(&self.shared);
        tokio::task::spawn_local(async move {
            let (mut last, mut noted) = (None, None);
            loop {
                let snapshot = samples.borrow_and_update().clone();
                if snapshot.taken != last {
                    last = snapshot.taken;
                    snapshot.devices.iter().for_each(|device| shared.device(device));
                }
                let said = snapshot.note(Instant::now());
                if said != noted {
                    let text = said.as_deref().unwrap_or_default();
                    let note = DeviceNote { text: text.as_bytes() };
                    shared.add(MACHINE, FrameKind::DeviceNote, Moment::now(), |w| note.write(w));
                    noted.clone_from(&said);
                }
                shared.model.borrow_mut().device_note(said);
                shared.changed.send_replace(());
                // A note may tell its age, so it is renewed when nothing else happens.
                let changed = tokio::time::timeout(Duration::from_secs(1), samples.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
        });
    }

    /// Begins to keep everything in a file.
    pub fn record(&self, options: recorder::Options) -> io::Result<()> {
        if self.is_recording() {
            return Err(io::Error::other("a recording is being made already"));
        }
        let path = safe(options.path().as_os_str().as_encoded_bytes());
        let (now, keep) = (Moment::now(), self.shared.keep.borrow().clone());
        self.shared.broken.take();
        let recorder = Recorder::start(options, keep, now)?;
        let (shared, mut status) = (Rc::clone(&self.shared), recorder.status());
        self.shared.recorder.replace(Some(recorder));
        self.model_mut().say(Severity::Info, "record", &format!("recording to {path}"), now);
        tokio::task::spawn_local(async move {
            loop {
                let now = status.borrow_and_update().clone();
                let recording =
                    Recording { file: safe(now.file.as_os_str().as_encoded_bytes()), bytes: now.bytes };
                if now.ended {
                    if shared.recorder.take().is_some() {
                        shared.broken.replace(Some(now.clone()));
                    }
                    shared.model.borrow_mut().recording(None);
                    if let Some(error) = &now.error {
                        let text = format!("the recording was stopped: {error}");
                        shared.model.borrow_mut().say(Severity::Alarm, "record", &text, Moment::now());
                    }
                } else {
                    shared.model.borrow_mut().recording(Some(recording));
                }
                shared.changed.send_replace(());
                if now.ended || status.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Whether a recording is being made.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.shared.recorder.borrow().is_some()
    }

    /// Whether a recording has ended by itself, because it could not go on.
    #[must_use]
    pub fn is_recording_broken(&self) -> bool {
        self.shared.broken.borrow().is_some()
    }

    /// Ends the recording, if one is being made, with what was seen up to `now`; gives how it ended.
    pub async fn stop_recording(&self, now: Moment) -> Option<recorder::Status> {
        if let Some(broken) = self.shared.broken.take() {
            return Some(broken);
        }
        let mut status = self.shared.recorder.borrow().as_ref().map(Recorder::status)?;
        self.shared.add(MACHINE, FrameKind::Closed, now, |_| Ok(()));
        if let Some(recorder) = self.shared.recorder.take() {
            recorder.end();
        }
        let ended = status.wait_for(|status| status.ended).await.ok()?.clone();
        Some(ended)
    }

    /// Wakes after each change; none is missed between two waits.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Waits until `done` says so of this session.
    pub async fn until(&self, done: impl Fn(&Self) -> bool) {
        let mut changes = self.changes();
        while !done(self) {
            // The sender lives as long as this session.
            let _ = changes.changed().await;
        }
    }

    /// Whether all sources have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.open.get() == 0
    }

    /// Hands a request to its process. Without that process, whoever waits for the answer sees the sender gone.
    pub fn ask(&self, request: Request) {
        let asks = self.asks.borrow();
        if let Some((_, ask)) = asks.iter().find(|(pid, _)| *pid == request.pid) {
            // A process that answers nothing for this many requests is not asked any more of them.
            let _ = ask.try_send(request);
        }
    }

    /// Ends the session so that its numbers agree: takes what CUPTI still holds, and then cuts each stream off
    /// where everything delivered is shown or lost for a known cause. A stream that never comes to rest within
    /// `patience` is cut off all the same. Gives the moment that the numbers are of.
    pub async fn come_to_rest(&self, patience: Duration) -> Moment {
        let mut answers = Vec::new();
        let pids: Vec<u32> = self.asks.borrow().iter().map(|(pid, _)| *pid).collect();
        for pid in pids {
            let (answer, done) = oneshot::channel();
            self.ask(Request { pid, ask: Ask::Flush, yes: false, answer });
            answers.push(done);
        }
        let at_rest = async {
            for answer in answers {
                let _ = answer.await;
            }
            self.model_mut().prepare_to_stop();
            self.shared.stopping.set(true);
            let begun = Moment::now();
            // What is balanced and says nothing more has nothing more to say; other sources, and NVML, may go on.
            loop {
                let before = self.shared.came.get();
                let ended = self.until(|session| session.shared.running.get() == 0);
                let quiet = tokio::time::timeout(QUIET, ended).await.is_err();
                if !quiet || (self.shared.came.get() == before && self.model().balances()) {
                    break;
                }
            }
            begun
        };
        let begun = tokio::time::timeout(patience, at_rest).await;
        let last = self.model().last_stopped();
        begun.map_or_else(|_| Moment::now(), |begun| last.map_or(begun, |last| last.max(begun)))
    }
}

impl Shared {
    /// A process joins what is watched.
    fn join(&self, pid: u32) -> Flow {
        let conn = self.model.borrow_mut().add(pid);
        self.streams.update(|last| last.saturating_add(1));
        let stream = self.streams.get();
        self.add(stream, FrameKind::Watched, Moment::now(), |w| Watched { pid }.write(w));
        Flow { conn, stream }
    }

    /// Applies frames, up to the one by which the counts agree when that is wanted; gives whether it came.
    fn apply(&self, flow: Flow, bytes: &[u8]) -> bool {
        let (mut model, now, mut rest) = (self.model.borrow_mut(), Moment::now(), bytes);
        let (mut done, mut news) = (false, false);
        while !done && let Ok(Some((frame, tail))) = Frame::split(rest) {
            model.apply(flow.conn, &frame, now);
            // What a shim repeats to show that it runs.
            news |= frame.kind() != Some(FrameKind::HostBuffers);
            done = self.stopping.get() && model.is_balanced(flow.conn);
            rest = tail;
        }
        self.came.update(|came| came.wrapping_add(u64::from(news)));
        if done {
            model.stop(flow.conn, now);
        }
        drop(model);
        self.keep(flow.stream, now, &bytes[..bytes.len() - rest.len()]);
        done
    }

    /// Says how the way to a process is.
    fn link(&self, flow: Flow, link: Link) {
        let now = Moment::now();
        let (state, since, retries, reason) = match &link {
            Link::Connecting => (LinkState::Connecting, 0, 0, ""),
            Link::Up => (LinkState::Up, 0, 0, ""),
            Link::Lost { since, retries } => (LinkState::Lost, *since, *retries, ""),
            Link::Ended(why) => (LinkState::Ended, 0, 0, why.as_str()),
        };
        let wire = viewer::Link { state: state as u8, since, retries, reason: reason.as_bytes() };
        self.add(flow.stream, FrameKind::Link, now, |w| wire.write(w));
        self.model.borrow_mut().link(flow.conn, link, now);
    }

    /// Says what keeps a process from running, if anything does.
    fn halt(&self, flow: Flow, cause: Halted) {
        let now = Moment::now();
        self.add(flow.stream, FrameKind::Halt, now, |w| Halt { cause: cause as u8 }.write(w));
        self.model.borrow_mut().halt(flow.conn, cause, now);
    }

    /// Adds a frame of this viewer to what is kept; gives it.
    fn add(
        &self,
        stream: u32,
        kind: FrameKind,
        now: Moment,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
    ) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + MAX_BODY];
        let len = frame::write_frame(&mut bytes, kind, 0, body).unwrap_or(0);
        bytes.truncate(len);
        self.keep(stream, now, &bytes);
        bytes
    }

    /// Keeps frames for a recording that begins later, and hands them to the one that is being made.
    fn keep(&self, stream: u32, now: Moment, bytes: &[u8]) {
        let (mut keep, mut rest) = (self.keep.borrow_mut(), bytes);
        while let Ok(Some((frame, tail))) = Frame::split(rest) {
            keep.add(&Entry { at: recorder::at(now), stream, frame });
            rest = tail;
        }
        if let Some(recorder) = &*self.recorder.borrow() {
            recorder.frames(now, stream, bytes.to_vec());
        }
    }

    /// Waits until a recording has room for more.
    async fn room(&self) {
        let room = self.recorder.borrow().as_ref().map(Recorder::room);
        if let Some(room) = room {
            room.await;
        }
    }

    fn stop_running(&self) {
        self.running.update(|running| running - 1);
    }

    fn device(&self, device: &nvml::DeviceSample) {
        let now = Moment::now();
        let bytes = self.add(MACHINE, FrameKind::DeviceSample, now, |w| device.encode(w));
        if let Some(sample) = bytes.get(HEADER_LEN..).and_then(|body| message::DeviceSample::read(body).ok())
        {
            self.model.borrow_mut().device_sample(&sample, now);
        }
    }
}
