//! What control does while armed, whether or not anyone asks: flush, read the clock, look for loss and silence.

use super::{Control, FLUSH};
use crate::clock;
use crate::collect::Collector;
use crate::find;
use crate::observe;
use crate::shared::Part;
use crate::silence::{Counts, Silence};
use crate::sys;
use crate::table::Session;
use crate::text::Text;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::kind::Kind;
use gtop_protocol::message::{Reason, Severity, StateCode};

/// How often to flush a process whose buffers come all the time.
const SELDOM_NS: u64 = 1_000_000_000;
/// 13.2: calling CUPTI again and again slows the process down (release notes of 13.3, resolved issues).
const SLOWED_BY_CALLS: core::ops::Range<u32> = 130_200..130_300;
const CLOCK_NS: u64 = 10_000_000_000;
const DROPPED_NS: u64 = 1_000_000_000;

impl Control {
    pub(super) fn tick(&mut self) {
        let Some(collector) = self.collector() else { return };
        let now = sys::monotonic();
        if !self.armed {
            if self.release_at.is_some_and(|at| now >= at) {
                self.release();
                if !self.subscribed() {
                    self.set_state(self.state, self.reason, 0, format_args!(""));
                    self.shim.note(Severity::Info, "resting", format_args!("other tools can use CUPTI now"));
                }
            }
            // What the kinds left on bring is not kept for whoever watches next: it would be old by then.
            if !self.kinds.enabled.is_empty() && now >= self.flush_at {
                self.flush_at = now.saturating_add(SELDOM_NS);
                let _ = self.flush(false);
            }
            return;
        }
        self.turn_window(collector);
        let idle = now.saturating_sub(collector.last_completed.load(Relaxed));
        // A thread that launches seldom must not wait for its buffer to fill while others are busy.
        let quiet = idle >= FLUSH.as_nanos() as u64 && !SLOWED_BY_CALLS.contains(&collector.version.0);
        if quiet || now >= self.flush_at {
            self.flush_at = now.saturating_add(SELDOM_NS);
            let _ = self.flush(false);
        }
        if now >= self.clock_at || collector.clock.has_jumped() {
            self.read_clock();
        }
        if collector.learned.has_differed() && !core::mem::replace(&mut self.said_differed, true) {
            self.shim
                .log
                .line(format_args!("CUPTI stepped by another size than before: it steps alone from now on"));
        }
        if now >= self.dropped_at {
            self.dropped_at = now.saturating_add(DROPPED_NS);
            let dropped = self.call(Session::dropped).flatten().unwrap_or(0);
            collector.counters.cupti_dropped.fetch_add(dropped, Relaxed);
            self.look_for_loss(collector, now);
        }
        if self.shim.pool_leaks.load(Relaxed) {
            self.taint();
        }
        self.observe(now);
        self.look_for_silence(collector, now);
    }

    /// Does what the observers need now and then.
    fn observe(&mut self, now: u64) {
        if self.shim.config.early {
            let session = self.cupti.as_ref().and_then(|cupti| cupti.session);
            let mut driver = core::mem::take(&mut self.driver);
            self.guarded(|shim| driver.tick(shim, session.map(|session| session.handle()), now));
            self.driver = driver;
        }
    }

    pub(super) fn read_clock(&mut self) {
        self.clock_at = sys::monotonic().saturating_add(CLOCK_NS);
        let pair = self.call(|session| clock::pair(|| session.timestamp())).flatten();
        let Some(pair) = pair else { return };
        if let Some(collector) = self.collector() {
            collector.clock.learn(&pair);
        }
        self.shim.update(|board| {
            board.status.clock = Some(pair);
            board.status.changed(Part::Clock);
        });
    }

    fn look_for_loss(&mut self, collector: &Collector, now: u64) {
        let counters = &collector.counters;
        let lost = counters
            .queue_full
            .load(Relaxed)
            .saturating_add(counters.cupti_dropped.load(Relaxed))
            .saturating_add(collector.buffers.exhausted.load(Relaxed));
        if lost > self.lost {
            if now > self.losing_until {
                let (queue, cupti) =
                    (counters.queue_full.load(Relaxed), counters.cupti_dropped.load(Relaxed));
                self.shim.note(
                    Severity::Warning,
                    "loss",
                    format_args!(
                        "records are being lost: {queue} for lack of frames, {cupti} by CUPTI, so far"
                    ),
                );
            }
            self.losing_until = now.saturating_add(5_000_000_000);
        }
        self.lost = lost;
    }

    fn look_for_silence(&mut self, collector: &Collector, now: u64) {
        if !self.kinds.enabled.has(Kind::Kernel) {
            self.silence = Silence::new(now, counts(collector));
            return;
        }
        let exhausted = self.shim.pool_exhausted.load(Relaxed);
        // An idle process and a silent one look the same where nothing but kernels is recorded; when the pool has run
        // out it is silence.
        let silent = self.silence.look(now, counts(collector)) || exhausted && self.silence.stopped(now);
        if silent && self.state == StateCode::Armed {
            let reason = if exhausted { Reason::PoolExhausted } else { Reason::Quiet };
            let detail: Text<256> = if exhausted {
                Text::new(format_args!("no kernel record for 2 s"))
            } else if self.silence.never() {
                let (version, holders) = (collector.version, find::likely_holders());
                let between = if holders.is_empty() { "" } else { ": " };
                Text::new(format_args!(
                    "no kernel record since arming while work goes on: CUPTI {version} may not support this GPU or \
                     driver, or another tool that used it before left it so{between}{holders}"
                ))
            } else {
                Text::new(format_args!("no kernel record for 2 s while work goes on"))
            };
            self.set_state(StateCode::Silent, reason, 0, format_args!("{detail}"));
            let text = reason.text().unwrap_or_default();
            self.shim.note(Severity::Alarm, "silent", format_args!("{detail}: {text}"));
        } else if !silent && self.state == StateCode::Silent {
            self.set_state(StateCode::Armed, Reason::None, 0, format_args!(""));
            self.shim.note(Severity::Info, "silent", format_args!("kernel records come again"));
        }
    }
}

/// What the silence is told from.
pub(super) fn counts(collector: &Collector) -> Counts {
    let counters = &collector.counters;
    // A graph need not have kernels: then its launches prove no more than copies do.
    let launched = observe::launched();
    let copies = counters.memcpy.load(Relaxed).saturating_add(counters.memset.load(Relaxed));
    Counts {
        kernels: counters.kernel.load(Relaxed),
        work: copies.saturating_add(launched.others),
        launches: counters.launches.load(Relaxed).saturating_add(launched.of_kernels),
    }
}
