//! Switching kinds on and off, and what became of it.

use super::{Control, Named};
use crate::shared::Part;
use crate::switch::{self, Step};
use crate::sys;
use crate::table::{BUSY, CuptiError};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Relief, Severity};

impl Control {
    /// Says which kinds CUPTI did not switch on.
    pub(super) fn say_refused(&self) {
        let (refused, error) = (self.kinds.refused, Named(CuptiError(self.kinds.error)));
        if !refused.is_empty() {
            self.shim.note(
                Severity::Warning,
                "kinds",
                format_args!("CUPTI refused {}: {error}; records of that are missing", Listed(refused)),
            );
        }
    }

    /// Lets time pass since a forced flush; less only where the time to linger is set shorter, as tests do.
    pub(super) fn keep_from_forced(&mut self) {
        let Some(at) = self.forced_at.take() else { return };
        let due = at.saturating_add(self.shim.config.linger_ns.min(switch::AFTER_FORCED.as_nanos() as u64));
        sys::sleep(due.saturating_sub(sys::monotonic()));
    }

    /// Switches to these kinds, in the order and with the pauses that [`switch::steps`] says.
    pub(super) fn apply(&mut self, target: KindSet) {
        self.kinds.refused = KindSet(self.kinds.refused.0 & target.0);
        if let Some(collector) = self.collector() {
            collector.asked.fetch_or(target.0, Relaxed);
        }
        // An early start comes before any context: nothing of the program is inside CUPTI.
        let alone = self.shim.config.early && !self.armed && self.kinds.enabled.is_empty();
        for step in switch::steps(self.kinds.enabled, target) {
            match step {
                Step::Settle if alone => {}
                Step::Settle => sys::sleep(switch::SETTLE.as_nanos() as u64),
                Step::Off(kind) => self.disable(kind),
                Step::On(kind) => {
                    if !self.enable(kind) {
                        return;
                    }
                }
            }
        }
    }

    fn disable(&mut self, kind: Kind) {
        // Should memset not have gone off, kernel stays as it is.
        if kind == Kind::Kernel && self.kinds.enabled.has(Kind::Memset) {
            return;
        }
        let traces_kernels = self.collector().filter(|_| kind == Kind::Kernel);
        // Where graphs are known to be traced on all the same, their ends are their own.
        if self.budget.is_none_or(|budget| budget.measured.relief != Relief::None) {
            traces_kernels.inspect(|collector| collector.kernel_goes_off());
        }
        if let Some(Err(error)) = self.call(|session| session.disable(kind.cupti())) {
            traces_kernels.inspect(|collector| collector.kernel_goes_on());
            self.kinds.error = error.0;
            self.shim.log.line(format_args!("disable {}: {}", kind.name(), Named(error)));
        } else {
            self.kinds.enabled = self.kinds.enabled.without(kind);
            if kind == Kind::Memory {
                self.track_sources(false);
            }
        }
    }

    /// Has CUPTI track which library asks for memory, or no longer: it costs something, and only memory records tell.
    fn track_sources(&self, on: bool) {
        let Some(collector) = self.collector() else { return };
        // Records on their way still say so after it ends.
        if !on && !collector.sources.load(Relaxed) {
            return;
        }
        let result = self.call(|session| session.track_sources(on));
        if let Some(Err(error)) = result {
            self.shim.log.line(format_args!("sources of allocations: {}", Named(error)));
        }
        if on {
            collector.sources.store(matches!(result, Some(Ok(()))), Relaxed);
        }
    }

    /// Switches a kind on; whether it makes sense to go on with others.
    fn enable(&mut self, kind: Kind) -> bool {
        if kind == Kind::Kernel && self.kinds.enabled.has(Kind::Memset) {
            return true;
        }
        let traces_kernels = self.collector().filter(|_| kind == Kind::Kernel);
        traces_kernels.inspect(|collector| collector.kernel_goes_on());
        if kind == Kind::Memory {
            self.track_sources(true);
        }
        match self.call(|session| session.enable(kind.cupti())) {
            Some(Ok(())) => {
                traces_kernels.inspect(|collector| collector.kernel_is_on());
                self.kinds.enabled = self.kinds.enabled.with(kind);
                self.kinds.refused = self.kinds.refused.without(kind);
                true
            }
            Some(Err(error)) => {
                self.kinds.refused = self.kinds.refused.with(kind);
                self.kinds.error = error.0;
                if kind == Kind::Memory {
                    self.track_sources(false);
                }
                self.shim.log.line(format_args!("enable {}: {}", kind.name(), Named(error)));
                error.0 != BUSY
            }
            None => false,
        }
    }

    pub(super) fn publish_kinds(&mut self) {
        self.kinds.asked = self.asked;
        let mut kinds = self.kinds;
        if self.budget.is_some() {
            // Which of them are on between windows is said apart.
            kinds.enabled = self.asked.minus(kinds.refused);
        }
        self.shim.update(|board| {
            board.status.kinds = kinds;
            board.status.changed(Part::Kinds);
        });
    }
}

/// Kinds in a sentence: `memcpy and memset`.
pub(super) struct Listed(pub(super) KindSet);

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.iter().count();
        for (at, kind) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at.saturating_add(1) == count => " and ",
                _ => ", ",
            };
            write!(f, "{before}{}", kind.name())?;
        }
        Ok(())
    }
}
