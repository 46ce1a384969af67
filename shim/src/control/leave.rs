//! Coming to rest: which kinds go off, and whether CUPTI is given back.

use super::{Control, Named, RELEASE_AGAIN_NS};
use crate::arm;
use crate::rest::{self, Graphs, Rest, Why};
use crate::sys;
use crate::table::CuptiError;
use core::sync::atomic::Ordering::{Relaxed, Release};
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Reason, Severity, StateCode};

impl Control {
    /// What resting does to CUPTI.
    pub(super) fn resting(&self, why: Why) -> Rest {
        let verdict = self.cupti.as_ref().map(|cupti| cupti.version.verdict());
        rest::rest(verdict, self.graphs(), why, self.asked)
    }

    /// The kinds left on while nobody watches.
    pub(super) fn resting_kinds(&self) -> KindSet {
        self.resting(self.why).left_on
    }

    /// What is known of the process's graphs, the promise of its owner included.
    fn graphs(&self) -> Graphs {
        let config = &self.shim.config;
        match (self.graphs_set_memory(), config.late_graphs && !config.early) {
            (true, _) => Graphs::SetMemory,
            (false, true) => Graphs::Late,
            (false, false) => Graphs::Unknown,
        }
    }

    /// Whether a memory set was recorded as a node of a graph, which on a defective version only graphs made since
    /// CUPTI was first called give (measured, 13.0.85: those of earlier graphs come as kernels).
    pub(super) fn graphs_set_memory(&self) -> bool {
        self.collector().is_some_and(|collector| collector.counters.graph_memset.load(Relaxed) > 0)
    }

    pub(super) fn rest(&mut self) {
        if self.watchers > 0 {
            // Those who still look on get what is complete.
            let _ = self.flush(false);
        }
        self.end_windows();
        let rest = self.resting(self.why);
        let left_on = rest.left_on;
        self.apply(left_on);
        if rest.leaks {
            self.taint();
        }
        if let Some(collector) = self.collector() {
            collector.streaming.store(false, Release);
        }
        self.discard();
        self.armed = false;
        // A kind that CUPTI did not switch off still has a use for the subscription.
        let on = self.kinds.enabled;
        let gives_back = rest.release && on.is_empty();
        if gives_back && self.why == Why::Unwatched {
            // Whoever comes back soon finds CUPTI as it was: giving it up takes a forced flush.
            self.release_at = Some(sys::monotonic().saturating_add(self.shim.config.linger_ns));
        } else if gives_back {
            self.release();
        }
        self.publish_kinds();
        let state = if self.tainted { StateCode::Tainted } else { StateCode::Resting };
        if self.tainted {
            let leak = self.leak();
            self.set_state(
                state,
                Reason::None,
                0,
                format_args!(
                    "device buffers {leak} since memcpy or memset was switched off; to watch again is to say yes to \
                     more of it: gtop ctl --attach PID arm --yes"
                ),
            );
        } else {
            self.set_state(state, Reason::None, 0, format_args!(""));
        }
        let held = match (self.subscribed(), gives_back) {
            (false, _) => "other tools can use CUPTI",
            (true, true) => "other tools can use CUPTI once it has given its buffers back",
            (true, false) => "other tools still find CUPTI in use",
        };
        if !left_on.contains(on) {
            let error = Named(CuptiError(self.kinds.error));
            self.shim.note(
                Severity::Warning,
                "resting",
                format_args!("resting, but CUPTI did not switch off {}: {error}; {held}", on.minus(left_on)),
            );
        } else if on.is_empty() {
            self.shim.note(Severity::Info, "resting", format_args!("resting: all kinds are off; {held}"));
        } else if on.has(Kind::Kernel) {
            self.shim.note(
                Severity::Warning,
                "resting",
                format_args!(
                    "resting, but {on} stay on and cost what watching costs: a graph sets memory, and on this \
                     CUPTI kernel cannot go off without a leak or worse; {held}"
                ),
            );
        } else {
            self.shim.note(Severity::Info, "resting", format_args!("resting: only {on} stays on; {held}"));
        }
    }

    /// What is known of device buffers once memcpy or memset was off: whether graphs have such nodes shows in records.
    pub(super) fn leak(&self) -> &'static str {
        if self.shim.pool_leaks.load(Relaxed) { "leak" } else { "may leak" }
    }

    pub(super) fn subscribed(&self) -> bool {
        self.cupti.as_ref().is_some_and(arm::Cupti::subscribed)
    }

    /// Gives the subscription back once CUPTI holds no buffer of ours: whoever comes next would get it.
    pub(super) fn release(&mut self) {
        self.release_at = None;
        if !self.kinds.enabled.is_empty() {
            return;
        }
        // With every kind off a forced flush takes no unfinished record that anyone would see.
        let _ = self.flush(true);
        self.forced_at = Some(sys::monotonic());
        let outstanding = self.collector().map_or(0, |collector| collector.buffers.outstanding());
        if outstanding > 0 {
            self.release_at = Some(sys::monotonic().saturating_add(RELEASE_AGAIN_NS));
            return;
        }
        let Some(mut cupti) = self.cupti.take() else { return };
        let released = self.guarded(|_| arm::release(&mut cupti));
        self.cupti = Some(cupti);
        if let Some(Err(error)) = released {
            self.shim.log.line(format_args!("cuptiUnsubscribe: {}", Named(error)));
        }
    }
}
