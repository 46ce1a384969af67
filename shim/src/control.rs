//! The one thread that calls CUPTI: arm, switch kinds, flush, rest. It may be stuck in CUPTI for seconds; nothing
//! else waits for it.
#![expect(
    clippy::result_large_err,
    reason = "a failure carries its text in place: failing must not allocate"
)]

mod kinds;
mod leave;
mod requests;
mod sample;
mod tend;

use crate::arm::{self, Cupti, Failure};
use crate::budget::Budget;
use crate::collect::{self, Collector};
use crate::observe;
use crate::quiet;
use crate::rest::Why;
use crate::shared::{KindState, Mail, Part, Shim};
use crate::silence::{Counts, Silence};
use crate::sys;
use crate::table::{BUSY, Callbacks, CuptiError, Session};
use crate::text::Text;
use core::fmt;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::time::Duration;
use gtop_protocol::cupti::{CuptiVersion, Verdict, result_name};
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Reason, Severity, StateCode};
use kinds::Listed;
use tend::counts;

/// How often an armed shim looks whether a flush is due; a quiet process then delivers within about 100 ms.
const FLUSH: Duration = Duration::from_millis(50);

/// How soon after a try that found buffers with CUPTI to try again to give the subscription back.
const RELEASE_AGAIN_NS: u64 = 1_000_000_000;

/// Control's own memory.
#[derive(Debug)]
pub(crate) struct Control {
    shim: &'static Shim,
    cupti: Option<Cupti>,
    /// Whether records are wanted.
    want: bool,
    held: bool,
    watchers: u32,
    asked: KindSet,
    kinds: KindState,
    armed: bool,
    state: StateCode,
    reason: Reason,
    tainted: bool,
    retry_at: Option<u64>,
    /// When to rest, once nobody watches any more.
    rest_at: Option<u64>,
    /// Why it is to rest, or rests.
    why: Why,
    /// When to try again to give the subscription back, while CUPTI holds buffers of ours.
    release_at: Option<u64>,
    /// When CUPTI was last made to give back what was not finished.
    forced_at: Option<u64>,
    /// Whether it was ever armed.
    was_armed: bool,
    /// The price that tracing is to keep to, parts per million; 0 is full tracing.
    price: u32,
    /// The windows, while armed and kept to a price.
    budget: Option<Budget>,
    /// Whether a first window was closed: what the process does is known as far as windows tell.
    looked: bool,
    /// Windows begun by now, and whether it was said that they save nothing.
    windows: u64,
    said_relief: bool,
    said_differed: bool,
    flush_at: u64,
    clock_at: u64,
    dropped_at: u64,
    silence: Silence,
    driver: observe::Driver,
    losing_until: u64,
    lost: u64,
}

impl Control {
    pub(crate) fn new(shim: &'static Shim) -> Self {
        let kinds = shim.status().kinds;
        Self {
            shim,
            cupti: None,
            want: false,
            held: false,
            watchers: 0,
            asked: kinds.asked,
            kinds,
            armed: false,
            state: StateCode::Loaded,
            reason: Reason::None,
            tainted: false,
            retry_at: None,
            rest_at: None,
            why: Why::Unwatched,
            release_at: None,
            forced_at: None,
            was_armed: false,
            price: shim.config.budget_ppm,
            budget: None,
            looked: false,
            windows: 0,
            said_relief: false,
            said_differed: false,
            flush_at: 0,
            clock_at: 0,
            dropped_at: 0,
            silence: Silence::new(0, Counts::default()),
            driver: observe::Driver::default(),
            losing_until: 0,
            lost: 0,
        }
    }

    /// Arms in the calling thread; for the early start, where contexts may follow at once.
    pub(crate) fn arm_early(&mut self) {
        self.want = true;
        let _ = self.settle();
    }

    /// Runs until the process exits.
    pub(crate) fn run(mut self) {
        sys::name_thread(c"gtop-control");
        let mut mail = Mail::default();
        loop {
            self.shim.mail(self.patience(), &mut mail);
            if self.shim.exits() {
                return;
            }
            let worked = quiet::contain(|| {
                self.take(&mut mail);
                self.tick();
            });
            if worked.is_none() {
                self.shim.log.line(format_args!("control panicked"));
            }
            self.shim.control_cpu.store(sys::thread_cpu(), Relaxed);
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.armed {
            let due = self.budget.map_or(u64::MAX, |budget| budget.due());
            return Some(FLUSH.min(Duration::from_nanos(due.saturating_sub(sys::monotonic()))));
        }
        let flush = (!self.kinds.enabled.is_empty()).then_some(self.flush_at);
        let at = [self.retry_at, self.rest_at, self.release_at, flush].into_iter().flatten().min();
        at.map(|at| Duration::from_nanos(at.saturating_sub(sys::monotonic())))
    }

    fn take(&mut self, mail: &mut Mail) {
        for ask in mail.asks.drain(..) {
            self.handle(&ask);
        }
        if mail.counted {
            self.watchers = mail.watchers;
            let leave = mail.watchers == 0 && !self.held && self.want;
            self.rest_at = leave.then(|| sys::monotonic().saturating_add(self.shim.config.linger_ns));
        }
        self.rest_if_due();
        let _ = self.settle();
    }

    /// Nobody has watched for the time to linger: what switches kinds often, such as a script that asks for one
    /// summary after the other, must not switch them each time.
    fn rest_if_due(&mut self) {
        if self.rest_at.is_some_and(|at| sys::monotonic() >= at) {
            self.rest_at = None;
            self.why = Why::Unwatched;
            self.want = false;
        }
    }

    /// Makes what is so what is wanted. The error is in the status.
    fn settle(&mut self) -> Result<(), ()> {
        if self.want == self.armed {
            if !self.want && self.retry_at.take().is_some() {
                self.set_state(StateCode::Loaded, Reason::None, 0, format_args!(""));
            }
            return Ok(());
        }
        if !self.want {
            self.rest();
            return Ok(());
        }
        if self.retry_at.is_some_and(|at| sys::monotonic() < at) {
            return Err(());
        }
        self.retry_at = None;
        let result = self.arm();
        if self.shim.exits() {
            return Err(());
        }
        if let Err(failure) = result {
            let after = if failure.reason == Reason::NoCuda { 1_000_000_000 } else { 5_000_000_000 };
            self.retry_at = Some(sys::monotonic().saturating_add(after));
            let text = failure.reason.text().unwrap_or("unavailable");
            if self.reason != failure.reason {
                let topic = if failure.reason == Reason::Busy { "busy" } else { "unavailable" };
                self.shim.note(Severity::Warning, topic, format_args!("{text}: {}", failure.detail));
            }
            self.set_state(
                StateCode::Unavailable,
                failure.reason,
                failure.error,
                format_args!("{}", failure.detail),
            );
            return Err(());
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<(), Failure> {
        let first = !self.was_armed;
        self.release_at = None;
        if self.state != StateCode::Unavailable {
            self.set_state(StateCode::Arming, Reason::None, 0, format_args!(""));
        }
        let began = sys::monotonic();
        let mut cupti = match self.cupti.take() {
            Some(cupti) => cupti,
            None => arm::open(self.shim)?,
        };
        let prepared =
            self.guarded(|shim| arm::prepare(shim, &mut cupti)).unwrap_or_else(|| Err(Failure::exits()));
        let (collector, version) = (cupti.collector, cupti.version);
        self.cupti = Some(cupti);
        prepared?;
        let Some(collector) = collector.or_else(|| self.collector()) else {
            return Err(Failure::new(Reason::NoMemory, 0, format_args!("for buffers and frames")));
        };
        self.read_clock();
        self.discard();
        let armed_at = collector.clock.now().unwrap_or(0);
        collector.clock.arm(armed_at);
        collector.asked.fetch_or(self.asked.0, Relaxed);
        collector.streaming.store(true, Release);
        self.keep_from_forced();
        let enabling = sys::monotonic();
        self.apply(self.asked);
        if self.kinds.enabled.is_empty() {
            collector.streaming.store(false, Release);
            self.publish_kinds();
            let error = CuptiError(self.kinds.error);
            let reason = if self.kinds.error == BUSY { Reason::Busy } else { Reason::Refused };
            return Err(Failure::new(
                reason,
                error.0,
                format_args!("no kind could be enabled: {}", Named(error)),
            ));
        }
        (self.armed, self.was_armed) = (true, true);
        let took = sys::monotonic().saturating_sub(began);
        self.shim.update(|board| {
            board.status.armed_at = (armed_at > 0).then_some(armed_at);
            if first {
                board.status.first_call_ns = Some(took);
            }
        });
        self.publish_kinds();
        self.set_state(StateCode::Armed, Reason::None, 0, format_args!(""));
        self.silence = Silence::new(sys::monotonic(), counts(collector));
        self.begin_windows(enabling);
        self.say_armed(version, first, took);
        Ok(())
    }

    fn say_armed(&self, version: CuptiVersion, first: bool, took: u64) {
        let ms = took.div_ceil(1_000_000);
        let how = if !first {
            "again"
        } else if self.shim.config.early {
            "early"
        } else {
            "late"
        };
        let enabled = self.kinds.enabled;
        self.shim.note(
            Severity::Info,
            "armed",
            format_args!("armed {how} in {ms} ms on CUPTI {version}: {enabled}"),
        );
        if first && self.shim.config.early {
            self.shim.note(
                Severity::Info,
                "early",
                format_args!(
                    "after an early start every CUDA graph goes on being traced while nobody watches, and callbacks cost \
                     each launch: resting gives little or nothing back; `gtop doctor` says how much was measured"
                ),
            );
        }
        let missing = KindSet::SAFE.minus(enabled);
        if version.verdict() != Verdict::Sound && !missing.is_empty() && enabled.has(Kind::Kernel) {
            let missing = Listed(missing);
            self.shim.note(
                Severity::Warning,
                "kinds",
                format_args!(
                    "kernel is on without {missing} on CUPTI {version}: graphs with such nodes leak device buffers"
                ),
            );
        }
        self.say_refused();
    }

    fn collector(&self) -> Option<&'static Collector> {
        self.shim.collector.get().copied()
    }

    /// Takes what is complete out of CUPTI; forced, also what is not.
    fn flush(&self, forced: bool) -> Option<Result<(), CuptiError>> {
        self.call(|session| session.flush(forced))
    }

    /// Takes what is complete out of CUPTI while nobody watches: it is counted, and nobody's. What comes later of
    /// it would be taken for records of the next watch, and be long before that began.
    fn discard(&self) {
        if self.was_armed {
            let _ = self.flush(false);
        }
    }

    fn taint(&mut self) {
        if core::mem::replace(&mut self.tainted, true) {
            return;
        }
        self.shim.update(|board| {
            board.status.tainted = true;
            board.status.changed(Part::State);
        });
    }

    /// Calls CUPTI, unless it is not there or the process exits.
    fn call<T>(&self, call: impl FnOnce(&Session) -> T) -> Option<T> {
        let session = self.cupti.as_ref().filter(|cupti| cupti.registered)?.session?;
        self.guarded(|_| call(&session))
    }

    /// Marks the time in which CUPTI is called, for the I/O thread and the exit handler; `None` once the process exits.
    fn guarded<T>(&self, body: impl FnOnce(&'static Shim) -> T) -> Option<T> {
        struct Inside(&'static Shim);
        impl Drop for Inside {
            fn drop(&mut self) {
                self.0.gate.leave();
            }
        }
        if !self.shim.gate.enter(sys::monotonic().max(1)) {
            return None;
        }
        let inside = Inside(self.shim);
        Some(body(inside.0))
    }

    fn set_state(&mut self, state: StateCode, reason: Reason, error: u32, detail: fmt::Arguments<'_>) {
        let detail = Text::new(detail);
        let same = (self.state, self.reason) == (state, reason);
        (self.state, self.reason) = (state, reason);
        let (held, tainted, subscribed) = (self.held, self.tainted, self.subscribed());
        self.shim.log.line(format_args!("state {} {:?} {detail}", state.name(), reason));
        self.shim.update(|board| {
            let status = &mut board.status;
            status.state = state;
            status.reason = reason;
            status.error = error;
            status.detail = detail;
            if !same {
                status.since = sys::realtime();
            }
            status.held = held;
            status.tainted = tainted;
            status.subscribed = subscribed;
            status.changed(Part::State);
        });
    }
}

/// An error with its name.
pub(crate) struct Named(pub(crate) CuptiError);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", result_name(self.0.0), self.0.0)
    }
}

/// Makes the collector the one CUPTI's callbacks feed.
pub(crate) fn register(session: &Session, collector: &'static Collector) -> Result<(), CuptiError> {
    collector.steps.serve(session);
    collect::install(collector);
    session.register(&Callbacks {
        v1: (collect::requested, collect::completed),
        v2: (collect::requested_v2, collect::completed_v2),
    })
}
