//! The I/O thread: it owns every socket, takes full frames out of the queue and gives them to who watches. It
//! never waits for a viewer, for CUPTI or for control.

macro_rules! world {
    ($server:ident) => {
        World {
            shim: $server.shim,
            identity: &$server.identity,
            status: &$server.status,
            named: &$server.named,
            pools: $server.pools.body(),
            events: &$server.events,
            watchers: $server.watchers,
            popped: $server.popped,
        }
    };
}

mod crowd;
mod requests;
mod said;
mod supply;

use crate::control::Control;
use crate::frames::FRAMES;
use crate::hello::Identity;
use crate::inject::spawn_control;
use crate::meter::Meter;
use crate::names::MAX_NAMES;
use crate::observe::EventLog;
use crate::pools::Pools;
use crate::quiet;
use crate::room;
use crate::shared::{Note, Shim, Status};
use crate::socket::{self, Listener};
use crate::sys;
use crate::viewer::Viewer;
use crate::world::World;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crowd::{MOST_CONNECTIONS, MOST_VIEWERS};
use gtop_protocol::frame::FrameKind;
use gtop_protocol::message::{Goodbye, Reason, Severity, StateCode};
use requests::tell;
use said::Said;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

/// Frames taken out of the queue before the connections are served: about what a socket's buffer holds.
const BATCH: u32 = 4;
/// Times that what the host closed is opened again.
const MOST_REGAINED: u32 = 64;
/// How often counters are sent while they move, nanoseconds.
pub(crate) const TICK_NS: u64 = 250_000_000;
/// A call into CUPTI that takes longer is said to hang, nanoseconds.
const HUNG_NS: u64 = 5_000_000_000;

/// Serves until the process exits.
pub(crate) fn run(shim: &'static Shim) {
    let identity = Identity::read();
    for mistake in &shim.config.mistakes {
        shim.note(Severity::Warning, "config", format_args!("{mistake}"));
    }
    let (listener, listed) = match open(shim, identity.start_time) {
        Ok(opened) => opened,
        Err(error) => {
            shim.log.line(format_args!("no socket: {error}"));
            shim.log.close();
            shim.parted.store(true, Release);
            return;
        }
    };
    shim.listens_at(&listener.path);
    let mut server = Server {
        status: shim.status(),
        seen: [0; 5],
        board_version: 0,
        shim,
        identity,
        listener,
        accept_at: 0,
        regained: 0,
        viewers: Vec::new(),
        next_id: 1,
        named: Vec::new(),
        listed,
        names_from: 1,
        popped: 0,
        pools: Pools::default(),
        meter: Meter::default(),
        said: Said::default(),
        events: EventLog::default(),
        watchers: 0,
        control: shim.config.early,
        tick_at: 0,
        fds: Vec::new(),
    };
    while !shim.exits() {
        if quiet::contain(|| server.turn()).is_none() {
            shim.log.line(format_args!("the I/O thread panicked; its connections are closed"));
            server.viewers.clear();
            let _ = quiet::contain(|| server.count_watchers());
        }
        shim.io_cpu.store(sys::thread_cpu(), Relaxed);
    }
    let _ = quiet::contain(|| server.part());
    shim.parted.store(true, Release);
}

/// What it takes to serve: a socket, something to be woken by, and a bit for each name that there can be.
fn open(shim: &'static Shim, start_time: u64) -> io::Result<(Listener, Vec<u64>)> {
    let listed = room::filled(MAX_NAMES / 64, 0).ok_or(io::ErrorKind::OutOfMemory)?;
    let listener = socket::open(&shim.config, start_time)?;
    if let Err(error) = shim.wake.open() {
        let _ = std::fs::remove_file(&listener.path);
        return Err(error);
    }
    Ok((listener, listed))
}

struct Server {
    shim: &'static Shim,
    identity: Identity,
    listener: Listener,
    /// When to accept again after the process ran out of descriptors; 0 is now.
    accept_at: u64,
    /// How often what the host closed was opened again.
    regained: u32,
    viewers: Vec<Viewer>,
    next_id: u64,
    status: Status,
    /// Changes of the status that viewers were told of.
    seen: [u32; 5],
    board_version: u64,
    named: Vec<u32>,
    /// Which ids are in `named`, a bit each.
    listed: Vec<u64>,
    /// All lower ids are in `named`.
    names_from: u32,
    popped: u64,
    pools: Pools,
    meter: Meter,
    said: Said,
    /// What callbacks told.
    events: EventLog,
    watchers: u32,
    /// Whether control runs.
    control: bool,
    tick_at: u64,
    fds: Vec<libc::pollfd>,
}

impl Server {
    /// One round: sleep until something happens, then do all there is to do.
    fn turn(&mut self) {
        let ends = self.regain();
        self.shim.wake.prepare();
        let nothing = !self.has_work();
        let [rang, called] = self.wait(ends, nothing);
        self.shim.wake.woken(rang);
        let now = sys::monotonic();
        self.read_board(now);
        if called {
            self.accept(now);
        }
        self.receive();
        self.take_frames();
        self.take_events();
        if now >= self.tick_at {
            self.tick(now);
        }
        self.send(now);
    }

    fn has_work(&self) -> bool {
        self.shim.exits() || self.shim.board_version() != self.board_version || self.has_frames()
    }

    /// Sleeps, if it may, until something happens on the bell, on the listener, or on a connection, which is noted there;
    /// says whether it did on the first two. No more is asked of the system than what this shows: it asks hundreds of times
    /// a second.
    fn wait(&mut self, [bell, listener]: [RawFd; 2], may_sleep: bool) -> [bool; 2] {
        let now = sys::monotonic();
        self.fds.clear();
        if self.fds.try_reserve(self.viewers.len().saturating_add(2)).is_err() {
            sys::sleep(TICK_NS);
            return self.all_may_have();
        }
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let accepting = now >= self.accept_at;
        room::push(&mut self.fds, entry(bell, libc::POLLIN));
        room::push(&mut self.fds, entry(listener, if accepting { libc::POLLIN } else { 0 }));
        for viewer in &self.viewers {
            let read = if viewer.listens() { libc::POLLIN } else { 0 };
            let write = if viewer.owes() { libc::POLLOUT } else { 0 };
            room::push(&mut self.fds, entry(viewer.fd(), read | write));
        }
        let looks = !self.viewers.is_empty() || !accepting || bell < 0 || listener < 0;
        let until_tick = looks.then(|| self.tick_at.saturating_sub(now));
        if !sys::poll(&mut self.fds, if may_sleep { until_tick } else { Some(0) }) {
            sys::sleep(TICK_NS / 10);
            return self.all_may_have();
        }
        // One that is no longer ours is not looked at, and read to find that out.
        let happened =
            |entry: Option<&libc::pollfd>| entry.is_none_or(|entry| entry.fd < 0 || entry.revents != 0);
        for (at, viewer) in self.viewers.iter_mut().enumerate() {
            viewer.has_said = happened(self.fds.get(at.saturating_add(2)));
        }
        [happened(self.fds.first()), happened(self.fds.get(1))]
    }

    /// What happened is not known.
    fn all_may_have(&mut self) -> [bool; 2] {
        self.viewers.iter_mut().for_each(|viewer| viewer.has_said = true);
        [true; 2]
    }

    /// Opens again what the host has closed: a daemon may close all descriptors that it does not know; and the socket where
    /// it was removed. Not for ever: a host that does so again and again is left alone.
    /// Gives both to be polled, the bell first.
    fn regain(&mut self) -> [RawFd; 2] {
        let sought = self.shim.sought.load(Acquire);
        let lost = sought && !self.listener.is_there();
        let ends = [self.shim.wake.fd(), self.listener.socket.fd()];
        let now = sys::monotonic();
        let whole = ends.iter().all(|end| *end >= 0) && !lost;
        if !whole && now < self.accept_at {
            return ends;
        }
        if sought {
            self.shim.sought.store(false, Release);
        }
        if whole {
            return ends;
        }
        self.accept_at = now.saturating_add(TICK_NS);
        if self.regained >= MOST_REGAINED {
            return ends;
        }
        self.regained = self.regained.saturating_add(1);
        self.tick_at = self.tick_at.min(self.accept_at);
        let [bell, listener] = ends;
        if (bell >= 0 || self.shim.wake.open().is_ok()) && (listener >= 0 && !lost || self.listens_again()) {
            self.accept_at = 0;
        }
        [self.shim.wake.fd(), self.listener.socket.fd()]
    }

    fn listens_again(&mut self) -> bool {
        let Ok(opened) = socket::open(&self.shim.config, self.identity.start_time) else { return false };
        self.shim.listens_at(&opened.path);
        self.listener = opened;
        true
    }

    /// Takes in what control says.
    fn read_board(&mut self, now: u64) {
        let version = self.shim.board_version();
        let began = self.shim.gate.since();
        let hung = began > 0 && now.saturating_sub(began) > HUNG_NS;
        let was_hung = self.status.reason == Reason::Hung;
        if version == self.board_version && hung == was_hung {
            return;
        }
        self.board_version = version;
        let (mut answers, mut notes) = (VecDeque::new(), VecDeque::new());
        self.status = self.shim.read(&mut answers, &mut notes);
        if hung {
            self.status.state = StateCode::Unavailable;
            self.status.reason = Reason::Hung;
        }
        for (i, kind) in
            [FrameKind::Hello, FrameKind::State, FrameKind::Kinds, FrameKind::Clock, FrameKind::Sampling]
                .into_iter()
                .enumerate()
        {
            let told = self.seen.get_mut(i);
            let changes = self.status.changes.get(i).copied().unwrap_or(0);
            let other = told.as_ref().is_none_or(|told| **told != changes);
            if let Some(told) = told {
                *told = changes;
            }
            if other || kind == FrameKind::State && hung != was_hung {
                self.viewers.iter_mut().for_each(|viewer| viewer.mark(kind));
            }
        }
        self.pools.kinds(self.shim, &self.status);
        self.meter.windows(self.status.budget.as_ref(), self.status.between);
        for answer in answers {
            self.answer(&answer);
        }
        for note in notes {
            self.say(&note);
        }
    }

    fn accept(&mut self, now: u64) {
        // No more at once than there can be, so that who connects without end holds nobody up.
        for _ in 0..MOST_CONNECTIONS {
            // One that is no longer ours is opened again before the next wait.
            if now < self.accept_at || self.listener.socket.get().is_none() {
                return;
            }
            match self.listener.accept() {
                Ok(socket) => {
                    if self.viewers.len() >= MOST_CONNECTIONS {
                        // Some may have hung up meanwhile, or have no use of their places.
                        self.all_may_have();
                        self.receive();
                        self.make_room(now);
                    }
                    if self.viewers.len() >= MOST_CONNECTIONS || self.viewers.try_reserve(1).is_err() {
                        self.shim.log.line(format_args!("too many connections"));
                    } else if !socket::may_connect(&socket) {
                        self.shim.log.line(format_args!("refused a connection of another user"));
                    } else if let Some(mut viewer) = Viewer::new(self.next_id, socket, now) {
                        self.next_id = self.next_id.saturating_add(1);
                        self.said.iter().for_each(|note| tell(&mut viewer, note));
                        room::push(&mut self.viewers, viewer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors: the socket stays readable, so it is left alone for a while.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.accept_at = now.saturating_add(TICK_NS);
                        self.tick_at = self.tick_at.min(self.accept_at);
                    }
                    return;
                }
            }
        }
    }

    fn start_control(&mut self) {
        if !self.control {
            self.control = spawn_control(self.shim, Control::new(self.shim));
        }
    }

    fn count_watchers(&mut self) {
        let watchers = self.viewers.iter().filter(|viewer| viewer.watching).count() as u32;
        if watchers != self.watchers {
            self.watchers = watchers;
            self.shim.watchers(watchers);
            self.viewers.iter_mut().for_each(|viewer| viewer.mark(FrameKind::State));
        }
    }

    fn tick(&mut self, now: u64) {
        self.tick_at = now.saturating_add(TICK_NS);
        if self.status.budget.is_some() {
            self.shim.measure(self.meter.measured());
        }
        self.events.settle();
        let changed = self.pools.tick(self.shim, sys::realtime());
        let notes = self.pools.notes();
        for note in notes.iter().flatten() {
            self.shim.log.line(format_args!("{}: {}", note.topic, note.text));
            self.say(note);
        }
        let before = self.viewers.len();
        self.viewers.retain(|viewer| !viewer.is_stuck(now));
        if self.viewers.len() != before {
            self.shim.log.line(format_args!("a connection took nothing for a minute and was closed"));
            self.count_watchers();
        }
        let crowded = self.viewers.len() >= MOST_VIEWERS;
        let world = world!(self);
        for viewer in &mut self.viewers {
            viewer.look(now, crowded);
            if changed {
                viewer.mark(FrameKind::Pools);
            }
            viewer.mark_counters(&world);
            viewer.beat();
            if viewer.dropped() > 0 && !viewer.warned {
                viewer.warned = true;
                let text = format_args!("this viewer is too slow: records were dropped for it alone");
                tell(viewer, &Note::new(Severity::Warning, "loss", text));
            }
        }
    }

    fn send(&mut self, now: u64) {
        let world = world!(self);
        let before = self.viewers.len();
        self.viewers.retain_mut(|viewer| viewer.pump(&world, now));
        if self.viewers.len() != before {
            self.count_watchers();
        }
    }

    /// Says goodbye and removes the socket.
    fn part(&mut self) {
        let now = sys::monotonic();
        self.read_board(now);
        self.take_events();
        self.events.settle();
        // First what is on its way, but no more than was: CUPTI's threads may go on to the last moment.
        for _ in 0..FRAMES.div_ceil(BATCH) {
            if !self.has_frames() {
                break;
            }
            self.take_frames();
            self.send(now);
        }
        for viewer in &mut self.viewers {
            // Then the counts, so that it is seen whether all of it came.
            viewer.mark(FrameKind::Loss);
            viewer.mark(FrameKind::Observers);
            viewer.say(FrameKind::Goodbye, |w| Goodbye { reason: b"the process exits" }.write(w));
        }
        self.send(now);
        self.shim.remove_socket();
    }
}
