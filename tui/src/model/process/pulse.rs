//! Whether a process is heard and runs, and up to when that tells what it did.

use gtop_protocol::message::{Severity, StateCode};
use gtop_protocol::viewer::Halted;

use super::{IN_STEP, Process};
use crate::model::events::Events;
use crate::model::snapshot::{Halt, Link};
use crate::model::time::{Moment, SECOND, cupti_time};

/// An armed shim reads its clock every ten seconds; one that says nothing for longer cannot, nanoseconds.
const UNHEARD: u64 = 12 * SECOND;
/// A shim that says how often it is heard at least is not heard after so many times that.
const BEATS: u64 = 3;

/// Seconds of the past whose delays tell how late records come.
const DELAYS: usize = 10;

/// How long after their end records came here, the longest of each of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays([(u64, u64); DELAYS]);

impl Delays {
    /// Some came so many nanoseconds late.
    pub(super) fn add(&mut self, at: Moment, ns: u64) {
        let second = at.second();
        if let Some((of, longest)) = self.0.get_mut(second as usize % DELAYS) {
            *longest = if *of == second { ns.max(*longest) } else { ns };
            *of = second;
        }
    }

    /// The longest, nanoseconds; `None` where none came lately.
    fn longest(&self, at: Moment) -> Option<u64> {
        let lately = |(of, ns): &&(u64, u64)| *ns > 0 && of + DELAYS as u64 > at.second();
        self.0.iter().filter(lately).map(|(_, ns)| *ns).max()
    }
}

impl Process {
    /// Up to when everything has come, CUPTI's nanoseconds, where records come no later than they did lately.
    pub(super) fn delivered(&self, at: Moment) -> u64 {
        let (now, newest) = (cupti_time(self.clock.as_ref(), at.wall), self.work.timeline.newest());
        let as_usual = match self.delays.longest(at).filter(|late| *late < IN_STEP) {
            Some(late) => now.saturating_sub(late),
            None => newest.saturating_sub(SECOND),
        };
        match self.known_until(at) {
            known if known > newest => known.max(as_usual),
            _ => as_usual,
        }
    }

    /// How far its timeline is known, CUPTI's nanoseconds. Once none has come for a second, it is known that there was
    /// none: they come within a second of their end, or as late as the last ones did.
    pub(super) fn known_until(&self, at: Moment) -> u64 {
        let newest = self.work.timeline.newest();
        match self.drawn {
            Some((came, late)) if at.steady.saturating_sub(came.steady) >= SECOND => {
                let now = cupti_time(self.clock.as_ref(), at.wall);
                newest.max(now.saturating_sub(late.max(SECOND)))
            }
            _ => newest,
        }
    }

    /// How long after their end the newest records came, nanoseconds: a viewer that is too slow for them sees them late.
    pub(super) fn late(&self) -> u64 {
        self.drawn.map_or(0, |(_, late)| late)
    }

    /// What silence leaves unknown once it is over: kernels from the last one before it to the first one after it.
    pub(super) fn heed_silence(&mut self, before: StateCode, at: Moment) {
        if self.state == StateCode::Silent {
            self.traced.silent(self.work.timeline.newest_kernel());
        } else if before == StateCode::Silent {
            let now = cupti_time(self.clock.as_ref(), at.wall);
            let since = self.traced.silent_since().unwrap_or(now);
            self.traced
                .heard(self.work.timeline.first_kernel_after(since).map_or(now, |first| first.min(now)));
        }
    }

    /// For how long nothing was heard of a shim that speaks now and then, seconds.
    pub(super) fn unheard(&self, at: Moment) -> Option<f64> {
        let beat = self.host_buffers.map_or(0, |buffers| buffers.beat_ms).saturating_mul(SECOND / 1000);
        let reads_clock = matches!(self.state, StateCode::Armed | StateCode::Silent);
        let speaks = self.link == Link::Up && (beat > 0 || reads_clock);
        let patience = if beat > 0 { beat.saturating_mul(BEATS) } else { UNHEARD };
        let ns = at.steady.saturating_sub(self.heard_at.filter(|_| speaks && self.stopped.is_none())?.steady);
        (ns >= patience).then_some(ns as f64 / SECOND as f64)
    }

    /// What keeps it from running now.
    pub(super) fn halted(&self, at: Moment) -> Option<Halt> {
        let (cause, since) = self.halt.filter(|_| self.link == Link::Up)?;
        let tells = cause != Halted::Blocked || self.unheard(at).is_some();
        let seconds = at.steady.saturating_sub(since.steady) as f64 / SECOND as f64;
        tells.then_some(Halt { cause, seconds })
    }

    /// Something keeps it from running, or does so no more.
    pub(in crate::model) fn halt(&mut self, cause: Halted, at: Moment, events: &mut Events) {
        let before = self.halt.take();
        let mut say =
            |severity, text: &str| events.push(at.wall, severity, Some(self.identity.pid), "halt", text);
        match cause {
            Halted::No => {
                if let Some((Halted::Stopped | Halted::Traced, since)) = before {
                    let ns = at.steady.saturating_sub(since.steady);
                    say(Severity::Info, &format!("goes on after {:.1} s", ns as f64 / SECOND as f64));
                }
                return;
            }
            Halted::Stopped => say(
                Severity::Warning,
                "stopped by a signal: nothing is heard of it until SIGCONT; what it launched before may still run",
            ),
            Halted::Traced => say(Severity::Warning, "held by a debugger or tracer: nothing is heard of it"),
            // Its other threads may go on.
            Halted::Blocked => {}
        }
        self.halt = Some((cause, at));
    }

    /// Seconds since the last kernel record came, or since it was armed.
    pub(in crate::model) fn quiet(&self, at: Moment) -> f64 {
        let last = self.last_kernel.map(|(_, last)| last).max(self.armed_since);
        let at = self.stopped.map_or(at.steady, |stopped| stopped.steady.min(at.steady));
        last.map_or(0.0, |last| at.saturating_sub(last.steady) as f64 / SECOND as f64)
    }
}
