//! A viewer of nothing but the protocol: it reads frames from a shim's socket and remembers what they say.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use gtop_protocol::KindSet;
use gtop_protocol::control::{Action, Request};
use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, Header, RecordSizes, Runs, write_frame};
use gtop_protocol::lifecycle;
use gtop_protocol::message::{
    Goodbye, Hello, HostBuffers, Kinds, Loss, Notice, Observers, Outcome, Pool, Reason, Reply, Sampling,
    State, StateCode, pools,
};

use crate::wait::PATIENCE;

/// A connection, and what it was told last.
pub struct Witness {
    /// The connection itself, for what no viewer should do.
    pub stream: UnixStream,
    next_id: u64,
    sizes: RecordSizes,
    /// The number of the last frame.
    pub seq: u64,
    /// Frame numbers that were passed over.
    pub gaps: u64,
    /// CUPTI's version, once known.
    pub cupti: Option<u64>,
    /// The state.
    pub state: Option<StateCode>,
    /// Its reason.
    pub reason: Option<Reason>,
    /// More about the reason.
    pub detail: String,
    /// Whether records may leak device buffers.
    pub tainted: bool,
    /// The price that tracing in windows is to keep to, parts per million.
    pub budget_ppm: u32,
    /// Windows begun by now.
    pub windows: u64,
    /// Whether CUPTI's subscription is the shim's.
    pub subscribed: bool,
    /// Connections that watch.
    pub watchers: u32,
    /// Kinds enabled in CUPTI.
    pub enabled: KindSet,
    /// Who made the last request for kinds.
    pub by: String,
    /// The shim's counts.
    pub loss: Loss,
    /// How often they came.
    pub losses: usize,
    /// The shim's memory.
    pub host_buffers: HostBuffers,
    /// CUPTI's device buffers.
    pub pools: Vec<Pool>,
    /// Records received, by family.
    pub records: [u64; 4],
    /// What callbacks told.
    pub events: Vec<lifecycle::Event>,
    /// What callbacks counted.
    pub observers: Option<Observers>,
    /// Topic and text of every notice.
    pub notices: Vec<(String, String)>,
    replies: HashMap<u64, (Outcome, String)>,
    /// Why the stream ended, if it said so.
    pub goodbye: Option<String>,
}

impl Witness {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the shim listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            stream,
            next_id: 1,
            sizes: RecordSizes([0; 4]),
            seq: 0,
            gaps: 0,
            cupti: None,
            state: None,
            reason: None,
            detail: String::new(),
            tainted: false,
            budget_ppm: 0,
            windows: 0,
            subscribed: false,
            watchers: 0,
            enabled: KindSet::EMPTY,
            by: String::new(),
            loss: Loss::default(),
            losses: 0,
            host_buffers: HostBuffers::default(),
            pools: Vec::new(),
            records: [0; 4],
            events: Vec::new(),
            observers: None,
            notices: Vec::new(),
            replies: HashMap::new(),
            goodbye: None,
        }
    }

    /// Sends a request; gives its id.
    pub fn send(&mut self, action: Action<'_>, flags: u8) -> u64 {
        self.try_send(action, flags).expect("the shim listens")
    }

    fn try_send(&mut self, action: Action<'_>, flags: u8) -> std::io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut buffer = [0; 2048];
        let request = Request { id, flags, action, by: b"the witness" };
        let len = write_frame(&mut buffer, FrameKind::Request, id, |w| request.write(w)).expect("it fits");
        self.stream.write_all(&buffer[..len])?;
        Ok(id)
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, action: Action<'_>) -> (Outcome, String) {
        let id = self.send(action, 0);
        self.until("a reply", |witness| witness.replies.contains_key(&id));
        self.replies[&id].clone()
    }

    /// Asks and waits for the answer; `None` if the stream ends before.
    pub fn try_ask(&mut self, action: Action<'_>) -> Option<(Outcome, String)> {
        let id = self.try_send(action, 0).ok()?;
        while !self.replies.contains_key(&id) {
            if !self.read_one() {
                return None;
            }
        }
        self.replies.get(&id).cloned()
    }

    /// Begins to watch.
    #[must_use]
    pub fn watching(mut self) -> Self {
        let (outcome, text) = self.ask(Action::Watch);
        assert_eq!(outcome, Outcome::Done, "{text}");
        self
    }

    /// Reads frames until `done`.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            let (state, watchers, loss) = (self.state, self.watchers, &self.loss);
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; last: {state:?}, {watchers} watch, {loss:?}"
            );
            assert!(self.read_one(), "the stream ended before {what}");
        }
    }

    /// Waits until so many connections watch and records are collected for them.
    pub fn until_watched(&mut self, watchers: u32) {
        self.until("watchers", |witness| {
            witness.watchers == watchers && witness.state == Some(StateCode::Armed)
        });
    }

    /// Reads until the end of the stream.
    pub fn until_end(&mut self) {
        while self.read_one() {}
    }

    /// Reads one frame; `false` at the end of the stream.
    pub fn read_one(&mut self) -> bool {
        let mut header = [0; HEADER_LEN];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the shim says nothing"),
            Err(_) => return false,
        }
        let header = Header::read(&header).expect("a length that can be");
        let mut body = vec![0; header.len as usize];
        if self.stream.read_exact(&mut body).is_err() {
            return false;
        }
        assert!(header.seq > self.seq, "numbers go up");
        self.gaps += header.seq - self.seq - 1;
        self.seq = header.seq;
        self.take(&Frame { header, body: &body });
        true
    }

    fn take(&mut self, frame: &Frame<'_>) {
        const WHOLE: &str = "the message is whole";
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match frame.kind().expect("a kind that is known") {
            FrameKind::Hello => {
                let hello = Hello::read(frame.body).expect(WHOLE);
                self.sizes = hello.sizes;
                self.cupti = hello.fields.cupti_version;
            }
            FrameKind::Records => {
                let mut runs = Runs::new(frame.body, self.sizes);
                for run in runs.by_ref() {
                    let family = usize::from(run.family).checked_sub(1);
                    *family.and_then(|at| self.records.get_mut(at)).expect("a family") += run.count() as u64;
                }
                assert!(!runs.is_bad(), "the records are whole");
            }
            FrameKind::Kinds => {
                let kinds = Kinds::read(frame.body).expect(WHOLE);
                self.enabled = KindSet(kinds.enabled);
                self.by = text(kinds.by);
            }
            FrameKind::State => {
                let state = State::read(frame.body).expect(WHOLE);
                self.state = StateCode::from_wire(state.state);
                self.reason = Reason::from_wire(state.reason);
                self.detail = text(state.detail);
                self.tainted = state.tainted == 1;
                self.subscribed = state.subscribed == 1;
                self.watchers = state.watchers;
            }
            FrameKind::HostBuffers => self.host_buffers = HostBuffers::read(frame.body).expect(WHOLE),
            FrameKind::Pools => self.pools = pools::read(frame.body).collect(),
            FrameKind::Loss => {
                self.loss = Loss::read(frame.body).expect(WHOLE);
                self.losses += 1;
            }
            FrameKind::Notice => {
                let notice = Notice::read(frame.body).expect(WHOLE);
                self.notices.push((text(notice.topic), text(notice.text)));
            }
            FrameKind::Goodbye => self.goodbye = Some(text(Goodbye::read(frame.body).expect(WHOLE).reason)),
            FrameKind::Reply => {
                let reply = Reply::read(frame.body).expect(WHOLE);
                self.replies.insert(reply.request, (Outcome::from_wire(reply.outcome), text(reply.text)));
            }
            FrameKind::Sampling => {
                let sampling = Sampling::read(frame.body).expect(WHOLE);
                self.budget_ppm = sampling.budget_ppm;
                self.windows = sampling.windows;
            }
            FrameKind::Lifecycle => self.events.extend(lifecycle::read(frame.body)),
            FrameKind::Observers => self.observers = Some(Observers::read(frame.body).expect(WHOLE)),
            FrameKind::Clock | FrameKind::Names | FrameKind::DeviceSample | FrameKind::RawBuffer => {}
            FrameKind::Request => panic!("a shim asks nothing"),
            FrameKind::Watched
            | FrameKind::Link
            | FrameKind::Halt
            | FrameKind::DeviceNote
            | FrameKind::Earlier
            | FrameKind::Closed => panic!("a shim is no viewer"),
        }
    }

    /// Records received.
    pub fn received(&self) -> u64 {
        self.records.iter().sum()
    }

    /// Records that came since this viewer joined, as the shim counts them.
    pub const fn delivered(&self) -> u64 {
        self.loss.walked - self.loss.joined_walked
    }

    /// Whether every record since joining is accounted for, each by a counter of its own.
    pub fn balances(&self) -> bool {
        let loss = &self.loss;
        loss.walked == loss.framed + loss.queue_full + loss.unknown_kind + loss.discarded
            && loss.offered == self.received() + loss.dropped
            && self.delivered()
                == loss.offered
                    + (loss.queue_full - loss.joined_queue_full)
                    + (loss.unknown_kind - loss.joined_unknown_kind)
    }

    /// Reads until so many records since joining are accounted for.
    pub fn until_delivered(&mut self, delivered: u64) {
        self.until(&format!("{delivered} records in balance"), |witness| {
            witness.losses > 0 && witness.delivered() >= delivered && witness.balances()
        });
        assert_eq!(self.delivered(), delivered, "{:?}", self.loss);
    }

    /// Whether a notice of this topic with this part came.
    pub fn has_notice(&self, topic: &str, part: &str) -> bool {
        self.notices.iter().any(|(other, text)| other == topic && text.contains(part))
    }
}
