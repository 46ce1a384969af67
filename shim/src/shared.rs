//! What the shim's two threads share: requests one way, state and answers the other. Neither holds a lock while
//! it calls anything that can wait.

use crate::budget::{Budget, Measured};
use crate::collect::Collector;
use crate::config::Config;
use crate::gate::Gate;
use crate::log::Log;
use crate::room;
use crate::sys;
use crate::text::Text;
use crate::wake::Wake;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use gtop_protocol::KindSet;
use gtop_protocol::message::{Clock, Outcome, Reason, Severity, StateCode};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Gives the address of a CUPTI function by name, or null.
pub type Resolver = fn(&CStr) -> *mut c_void;

/// Requests and answers that may wait at once.
const MOST_WAITING: usize = 256;

/// What control is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Watch,
    Enable(KindSet),
    Disable(KindSet),
    Arm,
    Rest,
    Flush,
    /// Parts per million; 0 is full tracing.
    Budget(u32),
}

/// One request for control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The connection it came from.
    pub(crate) viewer: u64,
    pub(crate) request: u64,
    pub(crate) yes: bool,
    pub(crate) task: Task,
    pub(crate) by: Text<64>,
}

/// What waits for control.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) asks: VecDeque<Ask>,
    pub(crate) watchers: u32,
    /// Whether `watchers` was set since control looked.
    pub(crate) counted: bool,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) viewer: u64,
    pub(crate) request: u64,
    pub(crate) outcome: Outcome,
    pub(crate) text: Text<512>,
}

/// A sentence for every viewer's event log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) time: u64,
    pub(crate) severity: Severity,
    pub(crate) topic: &'static str,
    pub(crate) text: Text<512>,
}

impl Note {
    pub(crate) fn new(severity: Severity, topic: &'static str, text: fmt::Arguments<'_>) -> Self {
        Self { time: sys::realtime(), severity, topic, text: Text::new(text) }
    }
}

/// The kinds as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct KindState {
    pub(crate) enabled: KindSet,
    pub(crate) asked: KindSet,
    pub(crate) refused: KindSet,
    pub(crate) error: u32,
}

/// What control says is so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) state: StateCode,
    pub(crate) reason: Reason,
    pub(crate) error: u32,
    pub(crate) detail: Text<256>,
    pub(crate) since: u64,
    pub(crate) first_call_ns: Option<u64>,
    pub(crate) armed_at: Option<u64>,
    pub(crate) held: bool,
    pub(crate) tainted: bool,
    /// Whether the process's one CUPTI subscription is ours.
    pub(crate) subscribed: bool,
    pub(crate) kinds: KindState,
    pub(crate) by: Text<64>,
    pub(crate) clock: Option<Clock>,
    pub(crate) cupti_version: Option<u32>,
    pub(crate) cupti_path: Text<1024>,
    /// The interface of our subscription, or of the last one: 1 or 2; 0 before the first.
    pub(crate) cupti_interface: u8,
    /// The windows of a price that is kept to, the kinds on between them, and CUPTI's time of that.
    pub(crate) budget: Option<Budget>,
    pub(crate) between: KindSet,
    pub(crate) sampled_at: u64,
    /// Counts changes of: hello, state, kinds, clock, sampling.
    pub(crate) changes: [u32; 5],
}

/// Which part of [`Status`] changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Hello = 0,
    State = 1,
    Kinds = 2,
    Clock = 3,
    Sampling = 4,
}

impl Status {
    fn new(config: &Config) -> Self {
        let asked = config.kinds.unwrap_or(KindSet::SAFE);
        Self {
            state: StateCode::Loaded,
            reason: Reason::None,
            error: 0,
            detail: Text::EMPTY,
            since: sys::realtime(),
            first_call_ns: None,
            armed_at: None,
            held: false,
            tainted: false,
            subscribed: false,
            kinds: KindState { asked, ..KindState::default() },
            by: Text::EMPTY,
            clock: None,
            cupti_version: None,
            cupti_path: Text::EMPTY,
            cupti_interface: 0,
            budget: None,
            between: KindSet::EMPTY,
            sampled_at: 0,
            changes: [1; 5],
        }
    }

    pub(crate) fn changed(&mut self, part: Part) {
        if let Some(count) = self.changes.get_mut(part as usize) {
            *count = count.wrapping_add(1);
        }
    }
}

/// What control has to say.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) status: Status,
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) notes: VecDeque<Note>,
}

/// The shim of one process. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) pid: u32,
    pub(crate) config: Config,
    /// Given when CUPTI need not be found.
    pub(crate) resolver: Option<Resolver>,
    pub(crate) log: Log,
    pub(crate) wake: Wake,
    pub(crate) collector: OnceLock<&'static Collector>,
    board: Mutex<Board>,
    board_version: AtomicU64,
    /// What the I/O thread has measured of windows.
    measured: Mutex<Measured>,
    mail: Mutex<Mail>,
    mail_came: Condvar,
    /// Around control's calls into CUPTI, saying since when, `CLOCK_MONOTONIC` nanoseconds; closed when the process exits.
    pub(crate) gate: Gate,
    /// Where the socket lies.
    socket: Mutex<Option<PathBuf>>,
    /// The shim was put in once more: whoever did found no socket.
    pub(crate) sought: AtomicBool,
    /// The I/O thread has said goodbye.
    pub(crate) parted: AtomicBool,
    pub(crate) io_cpu: AtomicU64,
    pub(crate) control_cpu: AtomicU64,
    /// The pool model says that a pool leaks.
    pub(crate) pool_leaks: AtomicBool,
    /// The pool model says that a pool is exhausted.
    pub(crate) pool_exhausted: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shim {
    /// A shim for this process, kept for ever; `None` without memory.
    pub(crate) fn new(config: Config, resolver: Option<Resolver>) -> Option<&'static Self> {
        let shim = Self {
            pid: sys::pid(),
            log: Log::open(config.log.as_deref()),
            wake: Wake::default(),
            collector: OnceLock::new(),
            board: Mutex::new(Board {
                status: Status::new(&config),
                answers: VecDeque::new(),
                notes: VecDeque::new(),
            }),
            board_version: AtomicU64::new(1),
            measured: Mutex::new(Measured::NOTHING),
            mail: Mutex::new(Mail::default()),
            mail_came: Condvar::new(),
            gate: Gate::default(),
            socket: Mutex::new(None),
            sought: AtomicBool::new(false),
            parted: AtomicBool::new(false),
            io_cpu: AtomicU64::new(0),
            control_cpu: AtomicU64::new(0),
            pool_leaks: AtomicBool::new(false),
            pool_exhausted: AtomicBool::new(false),
            config,
            resolver,
        };
        keep(shim)
    }

    /// Posts a request; `false` when too many wait.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        let mut mail = lock(&self.mail);
        if mail.asks.len() >= MOST_WAITING || !room::push_back(&mut mail.asks, ask) {
            return false;
        }
        drop(mail);
        self.mail_came.notify_one();
        true
    }

    /// Tells control how many watch now.
    pub(crate) fn watchers(&self, watchers: u32) {
        let mut mail = lock(&self.mail);
        mail.watchers = watchers;
        mail.counted = true;
        drop(mail);
        self.mail_came.notify_one();
    }

    /// What windows were measured to cost.
    pub(crate) fn measured(&self) -> Measured {
        *lock(&self.measured)
    }

    /// Says what windows were measured to cost.
    pub(crate) fn measure(&self, measured: Measured) {
        *lock(&self.measured) = measured;
    }

    /// Waits for mail, for at most so long (`None`: for ever), and takes it all.
    pub(crate) fn mail(&self, most: Option<Duration>, into: &mut Mail) {
        let mut mail = lock(&self.mail);
        if mail.asks.is_empty() && !mail.counted && !self.exits() {
            mail = match most {
                Some(most) => {
                    self.mail_came.wait_timeout(mail, most).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.mail_came.wait(mail).unwrap_or_else(PoisonError::into_inner),
            };
        }
        into.asks.clear();
        core::mem::swap(&mut into.asks, &mut mail.asks);
        into.watchers = mail.watchers;
        into.counted = core::mem::take(&mut mail.counted);
    }

    /// The process exits: no more calls into CUPTI, no more frames. `false` if the I/O thread sleeps and cannot be told.
    pub(crate) fn leave(&self) -> bool {
        self.gate.close();
        if let Some(collector) = self.collector.get() {
            collector.streaming.store(false, Release);
        }
        self.mail_came.notify_all();
        self.wake.notify()
    }

    /// Whether the process exits.
    pub(crate) fn exits(&self) -> bool {
        self.gate.is_closed()
    }

    /// Says where the socket lies.
    pub(crate) fn listens_at(&self, path: &Path) {
        self.log.line(format_args!("listening at {}", path.display()));
        *lock(&self.socket) = Some(path.to_path_buf());
    }

    /// Removes the socket of this process.
    pub(crate) fn remove_socket(&self) {
        if self.pid == sys::pid()
            && let Some(path) = lock(&self.socket).take()
        {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Somebody looks for the socket of this shim.
    pub(crate) fn seek(&self) {
        self.sought.store(true, Release);
        let _ = self.wake.notify();
    }

    /// Changes what viewers are told.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Board)) {
        change(&mut lock(&self.board));
        self.board_version.fetch_add(1, Release);
        let _ = self.wake.notify();
    }

    /// Answers a request.
    pub(crate) fn answer(&self, ask: &Ask, outcome: Outcome, text: fmt::Arguments<'_>) {
        let answer = Answer { viewer: ask.viewer, request: ask.request, outcome, text: Text::new(text) };
        self.update(|board| push(&mut board.answers, answer));
    }

    /// Tells every viewer, and the log.
    pub(crate) fn note(&self, severity: Severity, topic: &'static str, text: fmt::Arguments<'_>) {
        self.log.line(format_args!("{topic}: {text}"));
        let note = Note::new(severity, topic, text);
        self.update(|board| push(&mut board.notes, note));
    }

    /// Counts changes of the board.
    pub(crate) fn board_version(&self) -> u64 {
        self.board_version.load(Acquire)
    }

    /// What is so now, and what was said since the last time.
    pub(crate) fn read(&self, answers: &mut VecDeque<Answer>, notes: &mut VecDeque<Note>) -> Status {
        let mut board = lock(&self.board);
        core::mem::swap(answers, &mut board.answers);
        core::mem::swap(notes, &mut board.notes);
        board.status
    }

    /// What is so now.
    pub(crate) fn status(&self) -> Status {
        lock(&self.board).status
    }

    /// All memory that was put to use, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let Some(collector) = self.collector.get() else { return 0 };
        let parts = [
            collector.frames.touched_bytes(),
            collector.buffers.touched_bytes(),
            collector.names.touched_bytes(),
            collector.copies.touched_bytes(),
        ];
        parts.iter().fold(size_of::<Self>() as u64, |sum, part| sum.saturating_add(*part as u64))
    }

    /// Runs `body` while every lock there is here is held.
    #[cfg(test)]
    pub(crate) fn with_all_locked<T>(&self, body: impl FnOnce() -> T) -> T {
        let _board = lock(&self.board);
        let _measured = lock(&self.measured);
        let _mail = lock(&self.mail);
        let _socket = lock(&self.socket);
        self.log.with_locked(body)
    }

    /// CPU time of the shim's threads, nanoseconds.
    pub(crate) fn cpu(&self) -> u64 {
        self.io_cpu.load(Relaxed).saturating_add(self.control_cpu.load(Relaxed))
    }
}

/// Appends, unless too many wait; then the oldest goes.
fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= MOST_WAITING {
        queue.pop_front();
    }
    let _ = room::push_back(queue, item);
}

/// Moves a value to a place it never leaves; `None` without memory.
pub(crate) fn keep<T>(value: T) -> Option<&'static T> {
    room::one(value)?.leak().first()
}
