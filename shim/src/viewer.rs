//! One connection: what it is owed, what is on its way, and what it lost by being slow.
//!
//! State is composed when it is about to be sent, so it is always the newest and never piles up. Records wait by
//! reference; when too many do, the oldest are dropped and counted. A started frame is always finished.

use crate::frames::Held;
use crate::own::Own;
use crate::room;
use crate::serve::TICK_NS;
use crate::sys::{self, Io};
use crate::world::World;
use gtop_protocol::control::{MAX_REQUEST, Raw};
use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, Header, write_frame};
use gtop_protocol::lifecycle;
use gtop_protocol::message::{HostBuffers, Loss, Observers, names};
use gtop_protocol::wire::{Full, Writer};
use std::collections::VecDeque;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixStream;
use zerocopy::IntoBytes;

/// Bytes of the frames composed here; no state is longer, and names come in frames of this size.
const SCRATCH: usize = 32 << 10;
/// Notices and replies that may wait.
const MOST_NOTES: usize = 128;
/// How long a connection may owe us progress before it is given up, nanoseconds.
const STUCK_NS: u64 = 60_000_000_000;
/// How long a viewer may read nothing before it gives way to one that comes, nanoseconds.
const UNREAD_NS: u64 = 10_000_000_000;
/// How long a connection that does not watch may ask for nothing before it does: longer than anybody waits for an answer.
const UNASKED_NS: u64 = 60_000_000_000;

/// What watches hears something at least this often, so that whoever hears nothing knows that the process does not run.
const BEAT_MS: u64 = 2 * TICK_NS / 1_000_000;

/// State frames, in the order they are sent.
pub(crate) const STATES: [FrameKind; 9] = [
    FrameKind::Hello,
    FrameKind::State,
    FrameKind::Kinds,
    FrameKind::Clock,
    FrameKind::Sampling,
    FrameKind::HostBuffers,
    FrameKind::Pools,
    FrameKind::Observers,
    FrameKind::Loss,
];
const ALL_STATES: u16 = (1 << STATES.len()) - 1;

/// A notice or reply, composed already.
struct Small {
    kind: FrameKind,
    body: Vec<u8>,
}

/// What is on its way.
enum Sending {
    /// The scratch buffer's first bytes.
    Scratch { len: usize },
    /// A shared frame behind a header of this connection's own.
    Shared { header: [u8; HEADER_LEN], frame: Held<'static> },
}

/// A connection.
pub(crate) struct Viewer {
    pub(crate) id: u64,
    socket: Own<UnixStream>,
    pub(crate) watching: bool,
    /// Whether something may be read from it, or it may be gone.
    pub(crate) has_said: bool,
    /// Which of CUPTI's buffers it wants as they are.
    pub(crate) wanted: Raw,
    inbox: Vec<u8>,
    received: usize,
    scratch: Vec<u8>,
    sending: Option<Sending>,
    sent: usize,
    seq: u64,
    stale: u16,
    /// Names sent, as a count of [`World::named`].
    named: usize,
    notes: VecDeque<Small>,
    /// Frames waiting, each with its kind and the names it needs.
    records: VecDeque<(Held<'static>, FrameKind, usize)>,
    /// What belongs to the moment of joining, discarded records apart.
    joined: Loss,
    offered: u64,
    dropped: u64,
    last_loss: Loss,
    last_host: HostBuffers,
    last_observers: Option<Observers>,
    /// Events sent, as a count of all there were.
    events: u64,
    moved_at: u64,
    /// Bytes that its side has not read, as the system counts them, and when it last seemed to read.
    unread: usize,
    read_at: u64,
    /// Whether what is on its way waits for it to read.
    waits: bool,
    /// When it last asked for something.
    pub(crate) asked_at: u64,
    /// Whether the connection ends once everything is sent, or at once.
    pub(crate) parts: bool,
    dismissed: bool,
    /// The number of the last frame before the last tick.
    seq_then: u64,
    pub(crate) warned: bool,
}

impl Viewer {
    /// A new connection, or `None` without memory for it.
    pub(crate) fn new(id: u64, socket: Own<UnixStream>, now: u64) -> Option<Self> {
        let (inbox, scratch) = (room::filled(MAX_REQUEST, 0)?, room::filled(SCRATCH, 0)?);
        Some(Self {
            id,
            socket,
            watching: false,
            has_said: true,
            wanted: Raw::None,
            inbox,
            received: 0,
            scratch,
            sending: None,
            sent: 0,
            seq: 0,
            stale: ALL_STATES,
            named: 0,
            notes: VecDeque::new(),
            records: VecDeque::new(),
            joined: Loss::default(),
            offered: 0,
            dropped: 0,
            last_loss: Loss::default(),
            last_host: HostBuffers::default(),
            last_observers: None,
            events: 0,
            moved_at: now,
            unread: 0,
            read_at: now,
            waits: false,
            asked_at: now,
            parts: false,
            dismissed: false,
            seq_then: 0,
            warned: false,
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Whether requests may be read: not while their answers pile up.
    pub(crate) fn listens(&self) -> bool {
        self.notes.len() < MOST_NOTES / 2
    }

    /// Whether something waits to be sent.
    pub(crate) fn owes(&self) -> bool {
        self.sending.is_some() || self.stale != 0 || !self.notes.is_empty() || !self.records.is_empty()
    }

    /// Whether it has taken nothing for so long that it must be dead or stopped.
    pub(crate) fn is_stuck(&self, now: u64) -> bool {
        self.sending.is_some() && now.saturating_sub(self.moved_at) > STUCK_NS
    }

    /// Looks whether its side reads, where that matters.
    pub(crate) fn look(&mut self, now: u64, matters: bool) {
        let unread =
            if matters { self.socket.get().map_or(0, |socket| sys::unread(socket.as_fd())) } else { 0 };
        if unread == 0 || unread < self.unread {
            self.read_at = now;
        }
        self.unread = unread;
    }

    /// Since when the connection has been of no use, if that is too long: a viewer that reads nothing, or somebody else who
    /// asks for nothing.
    pub(crate) fn unused_since(&self, now: u64) -> Option<u64> {
        let (since, most) =
            if self.watching { (self.read_at, UNREAD_NS) } else { (self.asked_at, UNASKED_NS) };
        (now.saturating_sub(since) > most && !self.parts).then_some(since)
    }

    /// Ends the connection, with whatever it is owed.
    pub(crate) fn dismiss(&mut self) {
        self.watching = false;
        self.dismissed = true;
    }

    /// Records dropped because it was slow.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Begins to receive records: those of every frame taken out of the queue from now on.
    pub(crate) fn join(&mut self, world: &World<'_>) {
        if self.watching {
            return;
        }
        self.watching = true;
        let loss = world.loss();
        self.joined = Loss {
            joined_walked: world.popped.saturating_add(loss.queue_full).saturating_add(loss.unknown_kind),
            joined_queue_full: loss.queue_full,
            joined_unknown_kind: loss.unknown_kind,
            joined_unknown_bytes: loss.unknown_bytes,
            joined_cupti_dropped: loss.cupti_dropped,
            ..Loss::default()
        };
        self.offered = 0;
        self.dropped = 0;
        self.mark(FrameKind::Loss);
        self.mark(FrameKind::HostBuffers);
    }

    /// Receives no more records. Those that wait are dropped and counted.
    pub(crate) fn part(&mut self) {
        self.watching = false;
        while self.drop_oldest() {}
        self.mark(FrameKind::Loss);
        self.mark(FrameKind::HostBuffers);
    }

    /// This state has changed.
    pub(crate) fn mark(&mut self, kind: FrameKind) {
        if let Some(bit) = STATES.iter().position(|state| *state == kind) {
            self.stale |= 1 << bit;
        }
    }

    /// Sends the counters again if they have moved since they were last sent.
    pub(crate) fn mark_counters(&mut self, world: &World<'_>) {
        if self.loss(world) != self.last_loss {
            self.mark(FrameKind::Loss);
        }
        // Time alone is no news.
        let host = HostBuffers { cpu_ns: self.last_host.cpu_ns, ..world.host_buffers() };
        if host != self.last_host {
            self.mark(FrameKind::HostBuffers);
        }
        if world.observers() != self.last_observers {
            self.mark(FrameKind::Observers);
        }
    }

    /// Says something if nothing was said since the last tick.
    pub(crate) fn beat(&mut self) {
        if self.watching && self.seq == self.seq_then {
            self.mark(FrameKind::HostBuffers);
        }
        self.seq_then = self.seq;
    }

    /// Offers a frame that needs so many names. Beyond `most` waiting frames the oldest go.
    pub(crate) fn offer(&mut self, frame: &Held<'static>, kind: FrameKind, named: usize, most: usize) {
        self.offered = self.offered.saturating_add(frame.records());
        if !room::push_back(&mut self.records, (frame.clone(), kind, named)) {
            self.lose(frame.records());
            return;
        }
        while self.records.len() > most.max(1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((frame, ..)) = self.records.pop_front() else { return false };
        self.lose(frame.records());
        true
    }

    /// Records that were offered will not be sent: their frame's number is skipped, and state comes again.
    fn lose(&mut self, records: u64) {
        self.dropped = self.dropped.saturating_add(records);
        self.seq = self.seq.saturating_add(1);
        self.stale = ALL_STATES;
    }

    /// Queues a notice or reply. When too many wait the oldest goes, and its number is skipped.
    pub(crate) fn say(&mut self, kind: FrameKind, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) {
        let mut buffer = [0; 2048];
        let mut writer = Writer::new(&mut buffer);
        if write(&mut writer).is_err() {
            return;
        }
        let len = writer.len();
        let mut body = Vec::new();
        if !room::extend(&mut body, buffer.get(..len).unwrap_or_default())
            || !room::push_back(&mut self.notes, Small { kind, body })
        {
            return;
        }
        if self.notes.len() > MOST_NOTES {
            self.notes.pop_front();
            self.seq = self.seq.saturating_add(1);
        }
    }

    fn loss(&self, world: &World<'_>) -> Loss {
        let joined = self.joined;
        let all = world.loss();
        Loss {
            joined_walked: joined.joined_walked.saturating_add(all.discarded),
            joined_queue_full: joined.joined_queue_full,
            joined_unknown_kind: joined.joined_unknown_kind,
            joined_unknown_bytes: joined.joined_unknown_bytes,
            joined_cupti_dropped: joined.joined_cupti_dropped,
            offered: self.offered,
            dropped: self.dropped,
            ..all
        }
    }

    /// Sends as much as the connection takes now; `false` when it is gone.
    pub(crate) fn pump(&mut self, world: &World<'_>, now: u64) -> bool {
        if self.dismissed {
            return false;
        }
        loop {
            if self.sending.is_none() && !self.next(world) {
                self.moved_at = now;
                return !self.parts;
            }
            let (first, second): (&[u8], &[u8]) = match &self.sending {
                None => return true,
                Some(Sending::Scratch { len }) => (self.scratch.get(..*len).unwrap_or_default(), &[]),
                Some(Sending::Shared { header, frame }) => (header, frame.body()),
            };
            let total = first.len().saturating_add(second.len());
            let rest = (
                first.get(self.sent..).unwrap_or_default(),
                second.get(self.sent.saturating_sub(first.len())..).unwrap_or_default(),
            );
            let Some(socket) = self.socket.get() else { return false };
            match sys::send(socket.as_fd(), rest.0, rest.1) {
                Io::Done(count) => {
                    self.moved_at = now;
                    if core::mem::take(&mut self.waits) {
                        self.read_at = now;
                    }
                    self.sent = self.sent.saturating_add(count);
                    if self.sent >= total {
                        self.sending = None;
                        self.sent = 0;
                    }
                }
                Io::Later => {
                    self.waits = true;
                    return true;
                }
                Io::Gone => return false,
            }
        }
    }

    /// Chooses what to send next; `false` when nothing waits.
    fn next(&mut self, world: &World<'_>) -> bool {
        while self.stale != 0 {
            let bit = self.stale.trailing_zeros() as usize;
            self.stale &= self.stale.wrapping_sub(1);
            if let Some(kind) = STATES.get(bit)
                && self.compose_state(*kind, world)
            {
                return true;
            }
        }
        // What becomes of graphs goes before answers and records, and behind the names it needs.
        if self.watching && self.events < world.events.end() {
            return if self.named < world.named.len() {
                self.compose_names(world.named.len(), world)
            } else {
                self.compose_events(world)
            };
        }
        if let Some(note) = self.notes.pop_front() {
            return self.compose(note.kind, |w| w.bytes(&note.body));
        }
        let needed = self.records.front().map_or(world.named.len(), |(.., named)| *named);
        if self.named < needed {
            return self.compose_names(needed, world);
        }
        let Some((frame, kind, _)) = self.records.pop_front() else { return false };
        self.seq = self.seq.saturating_add(1);
        let len = frame.body().len() as u32;
        let header = Header { len, kind: kind as u16, seq: self.seq }.to_bytes();
        self.sending = Some(Sending::Shared { header, frame });
        true
    }

    fn compose(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> bool {
        let seq = self.seq.saturating_add(1);
        let Ok(len) = write_frame(&mut self.scratch, kind, seq, body) else { return false };
        self.seq = seq;
        self.sending = Some(Sending::Scratch { len });
        true
    }

    fn compose_state(&mut self, kind: FrameKind, world: &World<'_>) -> bool {
        match kind {
            FrameKind::Hello => self.compose(kind, |w| world.hello().write(w)),
            FrameKind::State => self.compose(kind, |w| world.state().write(w)),
            FrameKind::Kinds => self.compose(kind, |w| world.kinds().write(w)),
            FrameKind::Clock => {
                world.status.clock.is_some_and(|clock| self.compose(kind, |w| clock.write(w)))
            }
            FrameKind::Sampling => world.status.sampled_at > 0 && self.compose(kind, |w| world.sampling(w)),
            FrameKind::HostBuffers => {
                self.last_host = world.host_buffers();
                let host = HostBuffers { beat_ms: if self.watching { BEAT_MS } else { 0 }, ..self.last_host };
                self.compose(kind, |w| host.write(w))
            }
            FrameKind::Pools => !world.pools.is_empty() && self.compose(kind, |w| w.bytes(world.pools)),
            FrameKind::Observers => {
                self.last_observers = world.observers();
                self.last_observers.is_some_and(|observers| self.compose(kind, |w| observers.write(w)))
            }
            _ => {
                self.last_loss = self.loss(world);
                let loss = self.last_loss;
                self.compose(FrameKind::Loss, |w| loss.write(w))
            }
        }
    }

    fn compose_events(&mut self, world: &World<'_>) -> bool {
        let (mut count, events) = world.events.from(self.events);
        let composed = self.compose(FrameKind::Lifecycle, |w| {
            lifecycle::write_head(w)?;
            for event in events {
                if w.bytes(event.as_bytes()).is_err() {
                    break;
                }
                count = count.saturating_add(1);
            }
            Ok(())
        });
        self.events = count.max(self.events.saturating_add(1));
        composed
    }

    fn compose_names(&mut self, needed: usize, world: &World<'_>) -> bool {
        let Some(collector) = world.collector() else { return false };
        let mut named = self.named;
        let composed = self.compose(FrameKind::Names, |w| {
            for id in world.named.get(named..needed).unwrap_or_default() {
                let name = collector.names.get(*id).unwrap_or_default();
                if names::write_one(w, *id, name).is_err() {
                    break;
                }
                named = named.saturating_add(1);
            }
            Ok(())
        });
        // Every name fits into an empty frame; should one not, it is passed over rather than tried for ever.
        self.named = if named == self.named { named.saturating_add(1) } else { named };
        composed
    }

    /// Reads what has come and gives each whole frame to `request`; `false` when the connection is over.
    pub(crate) fn receive(&mut self, mut request: impl FnMut(&Frame<'_>)) -> bool {
        let Some(room) = self.inbox.get_mut(self.received..) else { return false };
        let Some(socket) = self.socket.get() else { return false };
        match sys::receive(socket.as_fd(), room) {
            Io::Done(count) => self.received = self.received.saturating_add(count),
            Io::Later => return true,
            Io::Gone => return false,
        }
        let mut rest = self.inbox.get(..self.received).unwrap_or_default();
        loop {
            match Frame::split(rest) {
                Ok(Some((frame, behind))) => {
                    request(&frame);
                    rest = behind;
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        let left = rest.len();
        // A frame that fills the whole inbox and is not complete is too long for any request.
        if left >= self.inbox.len() {
            return false;
        }
        let from = self.received.saturating_sub(left);
        self.inbox.copy_within(from..self.received, 0);
        self.received = left;
        true
    }
}
