//! Keeping to a price: kinds on in windows, and what is said of that.

use super::Control;
use crate::budget::{Budget, Turn};
use crate::collect::Collector;
use crate::rest::Why;
use crate::shared::{Ask, Part};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Basis, Outcome, Relief, Severity};

/// How long a process's first window is on a version that is not known to be sound.
const FIRST_LOOK_NS: u64 = 2_000_000_000;
/// Parts per million in a percent.
const PERCENT: f64 = 10_000.0;

impl Control {
    /// The kinds that are on between windows.
    fn between(&self) -> KindSet {
        self.resting(Why::Unwatched).left_on
    }

    /// Whether kernel can go off between windows.
    fn can_pause(&self) -> bool {
        !self.between().has(Kind::Kernel)
    }

    /// The kinds that are to be on now, while armed.
    pub(super) fn wanted_now(&self) -> KindSet {
        if self.budget.as_ref().is_some_and(|budget| !budget.is_open()) { self.between() } else { self.asked }
    }

    pub(super) fn budget_for(&mut self, ask: &Ask, ppm: u32) {
        self.shim.update(|board| board.status.by = ask.by);
        self.price = ppm;
        let was = self.budget.is_some();
        if ppm == 0 {
            self.end_windows();
            if self.armed && was {
                self.apply(self.asked);
                self.publish_kinds();
            }
            self.shim.answer(ask, Outcome::Done, format_args!("tracing in full"));
            return;
        }
        if self.armed {
            if !was {
                // From full tracing: the kinds are on already.
                self.begin_windows(sys::monotonic());
            } else if let Some(budget) = &mut self.budget {
                budget.ppm = ppm;
                self.publish_sampling();
            }
        }
        let percent = f64::from(ppm) / PERCENT;
        if self.armed && !self.can_pause() {
            let text = "a graph of this process sets memory, and on this CUPTI kernel cannot go off without a leak or \
                        worse: tracing goes on in full, at its full price";
            self.shim.answer(ask, Outcome::Failed, format_args!("{text}"));
            return;
        }
        let early = self.cupti.as_ref().is_some_and(|cupti| cupti.version.verdict() != Verdict::Sound);
        let but = if early && self.shim.config.early {
            "; graphs that were made under gtop may be traced between windows all the same, which saves nothing"
        } else {
            ""
        };
        let when = if self.armed { "" } else { "when armed: " };
        self.shim.answer(
            ask,
            Outcome::Done,
            format_args!("{when}tracing in windows, at most {percent} %{but}"),
        );
    }

    /// Begins to trace in windows, if that is asked for; the first is open as the kinds are on.
    pub(super) fn begin_windows(&mut self, began: u64) {
        if self.price == 0 {
            return;
        }
        let now = sys::monotonic();
        let seed = now ^ u64::from(self.shim.pid).rotate_left(32);
        let mut budget = Budget::new(self.price, self.windows, seed, now);
        budget.opened(began, now, self.cupti_now());
        let sound = self.cupti.as_ref().is_some_and(|cupti| cupti.version.verdict() == Verdict::Sound);
        if !sound && !self.looked {
            // Whether a graph sets memory, which then must not go off, shows only once it runs. Who comes again need
            // not pay for that again.
            budget.lasts(now, FIRST_LOOK_NS);
        }
        let (percent, window) = (f64::from(self.price) / PERCENT, budget.window_ns / 1_000_000);
        let period = budget.period_ns / 1_000_000;
        self.shim.note(
            Severity::Info,
            "budget",
            format_args!(
                "tracing in windows of {window} ms, one in {period} ms on average, to cost at most {percent} %; until \
                 this process tells what they cost, the worst ever measured is taken. Between them nothing of the \
                 kernels is seen, and rare ones may never be"
            ),
        );
        self.budget = Some(budget);
        self.said_relief = false;
        self.publish_sampling();
    }

    /// Windows are over: full tracing, or rest.
    pub(super) fn end_windows(&mut self) {
        let Some(budget) = self.budget.take() else { return };
        self.windows = budget.windows;
        self.publish_sampling();
    }

    /// Opens or closes a window, if it is time to.
    pub(super) fn turn_window(&mut self, collector: &Collector) {
        let began = sys::monotonic();
        let Some(mut budget) = self.budget else { return };
        let Some(turn) = budget.turn(began) else { return };
        match turn {
            Turn::Close if !self.can_pause() => {
                // Nothing can be switched off: the window goes on for good.
                self.say_no_relief(
                    "a graph sets memory, and on this CUPTI kernel cannot go off without a leak or worse",
                );
                budget.never_closes();
            }
            Turn::Close => {
                let due = self.cupti_now();
                self.apply(self.between());
                let [_, off] = collector.kernel_switched();
                budget.closed(began, sys::monotonic(), off.unwrap_or(due));
                self.looked = true;
                let unknown = budget.measured.loss.is_none();
                budget.measure(self.shim.measured());
                if let (true, Some((loss, high))) = (unknown, budget.measured.loss) {
                    self.say_loss(loss, high, budget.measured.basis);
                }
                if budget.measured.relief == Relief::None {
                    self.say_no_relief(
                        "graphs made after CUPTI was first called are traced between windows too",
                    );
                }
                self.windows = budget.windows;
            }
            Turn::Open => {
                let asked_at = self.cupti_now();
                collector.asked.fetch_or(self.asked.0, Relaxed);
                self.apply(self.asked);
                let [on, _] = collector.kernel_switched();
                budget.opened(began, sys::monotonic(), on.unwrap_or(asked_at).max(asked_at));
            }
        }
        self.budget = Some(budget);
        self.publish_sampling();
    }

    fn say_loss(&self, loss: f64, high: f64, basis: Basis) {
        let (loss, high) = (loss * 100.0, high * 100.0);
        self.shim.note(
            Severity::Info,
            "budget",
            format_args!(
                "inside windows this process loses {loss:.0} % of its speed, at most {high:.0} %, told from its {}",
                basis.name()
            ),
        );
    }

    fn say_no_relief(&mut self, why: &str) {
        if !core::mem::replace(&mut self.said_relief, true) {
            self.shim.note(
                Severity::Warning,
                "budget",
                format_args!(
                    "windows save nothing here: {why}. The price is that of full tracing: measured, a graph of tiny \
                     kernels takes 33 to 155 % longer, a server of large models about a fifth"
                ),
            );
        }
    }

    fn cupti_now(&self) -> u64 {
        self.collector().and_then(|collector| collector.clock.now()).unwrap_or(1)
    }

    pub(super) fn publish_sampling(&self) {
        let budget = self.budget;
        let (between, time) = (self.between(), self.cupti_now());
        self.shim.update(|board| {
            board.status.budget = budget;
            board.status.between = between;
            board.status.sampled_at = time;
            board.status.changed(Part::Sampling);
        });
    }
}
