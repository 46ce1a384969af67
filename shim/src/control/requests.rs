//! What viewers ask of control, and what it answers.

use super::{Control, Named};
use crate::rest::Why;
use crate::shared::{Ask, Task};
use crate::switch;
use crate::text::Text;
use gtop_protocol::cupti::{CuptiVersion, Verdict, result_name};
use gtop_protocol::kind::KindSet;
use gtop_protocol::message::{Outcome, Reason, Severity};

impl Control {
    pub(super) fn handle(&mut self, ask: &Ask) {
        match ask.task {
            Task::Watch | Task::Arm => self.wanted(ask),
            Task::Rest => self.rest_for(ask),
            Task::Enable(kinds) => self.set_kinds(ask, self.asked.union(kinds)),
            Task::Disable(kinds) => self.set_kinds(ask, self.asked.minus(kinds)),
            Task::Flush => self.flush_for(ask),
            Task::Budget(ppm) => self.budget_for(ask, ppm),
        }
    }

    /// Rests, whoever watches, and gives CUPTI back where that is safe, or where the asker insists.
    fn rest_for(&mut self, ask: &Ask) {
        self.want = false;
        self.held = false;
        self.rest_at = None;
        self.why = if ask.yes { Why::Insisted } else { Why::Asked };
        let again = !self.armed && self.subscribed();
        let rest = self.resting(self.why);
        let _ = self.settle();
        if again && rest.release {
            self.rest();
        }
        let state = self.shim.status().state.name();
        if !self.subscribed() {
            let free = if self.was_armed { "; other tools can use CUPTI" } else { "" };
            self.shim.answer(ask, Outcome::Done, format_args!("{state}{free}"));
            return;
        }
        if rest.release {
            self.shim.answer(
                ask,
                Outcome::Done,
                format_args!("{state}; CUPTI is given to other tools as soon as it returns its buffers"),
            );
            return;
        }
        let version = self.cupti.as_ref().map_or(CuptiVersion(0), |cupti| cupti.version);
        let leaks = match version.verdict() {
            Verdict::Unknown => "may leak (nobody has measured it)",
            _ => "leaks",
        };
        self.shim.answer(
            ask,
            Outcome::Done,
            format_args!(
                "{state}; other tools still find CUPTI in use. To let them have it all the same, say yes (--yes): \
                 memcpy and memset then go off too, and on this CUPTI, {version}, every graph with such nodes that \
                 was made after gtop first watched {leaks} device buffers from then on, up to 250 of 4 MiB a context, \
                 until the process is restarted"
            ),
        );
    }

    fn wanted(&mut self, ask: &Ask) {
        if self.tainted && !self.armed && !ask.yes {
            let leak = self.leak();
            self.shim.answer(
                ask,
                Outcome::NeedsYes,
                format_args!(
                    "device buffers {leak} in this process since memcpy or memset was switched off; armed again, a \
                     context may take up to 1,000 MiB more of GPU memory and then records stop. Only a restart of \
                     the process, or CUPTI 13.3 or newer, helps"
                ),
            );
            return;
        }
        self.want = true;
        self.held |= ask.task == Task::Arm;
        if matches!(self.reason, Reason::NoCuda | Reason::NoCupti | Reason::Busy) {
            self.retry_at = None;
        }
        if self.settle().is_ok() {
            self.shim.answer(ask, Outcome::Done, format_args!("armed: {}", self.kinds.enabled));
            return;
        }
        let status = self.shim.status();
        let reason = status.reason.text().unwrap_or("not armed");
        self.shim.answer(ask, Outcome::Failed, format_args!("{reason}: {}", status.detail));
    }

    fn set_kinds(&mut self, ask: &Ask, asked: KindSet) {
        let lost = self.asked.minus(asked);
        let asked = KindSet(asked.0 & KindSet::parse("all").map_or(0, |all| all.0));
        let version = self.cupti.as_ref().map(|cupti| cupti.version);
        let sound = version.is_some_and(|version| version.verdict() == Verdict::Sound);
        let uncovers = !KindSet(lost.0 & KindSet::COVERING.0).is_empty();
        let for_a_moment = self.armed
            && self.graphs_set_memory()
            && switch::uncovers_for_a_moment(self.kinds.enabled, asked);
        if for_a_moment && !uncovers && !sound && !ask.yes {
            self.shim.answer(
                ask,
                Outcome::NeedsYes,
                format_args!(
                    "kernel is switched with memset off for some 40 ms, since CUPTI crashes programs otherwise; a CUDA \
                     graph of this process sets memory, and on this CUPTI each such node that runs meanwhile starts \
                     a leak that only a restart of the process ends"
                ),
            );
            return;
        }
        if uncovers && !sound && !ask.yes {
            let which = version.map_or_else(
                || Text::<64>::new(format_args!("should this be CUPTI 12.9 to 13.2")),
                |version| Text::new(format_args!("on this CUPTI, {version}")),
            );
            let starts = match version.map(CuptiVersion::verdict) {
                Some(Verdict::Unknown) => "may start, which nobody has measured,",
                _ => "starts",
            };
            self.shim.answer(
                ask,
                Outcome::NeedsYes,
                format_args!(
                    "{which}, switching off memcpy or memset {starts} a leak wherever a CUDA graph holds such nodes: \
                     from then on no device buffer is recycled, up to 250 of 4 MiB a context, and then kernel \
                     records stop or carry zero timestamps. Switching it on again does not help; only a restart \
                     of the process does"
                ),
            );
            return;
        }
        self.asked = asked;
        self.shim.update(|board| board.status.by = ask.by);
        let before = self.kinds.enabled;
        if self.armed || !self.resting_kinds().contains(before) {
            self.apply(if self.armed { self.wanted_now() } else { self.resting_kinds() });
        }
        let gone = before.minus(self.kinds.enabled);
        if !sound && (for_a_moment || !KindSet(gone.0 & KindSet::COVERING.0).is_empty()) {
            self.taint();
        }
        self.publish_kinds();
        let kinds = self.kinds;
        let refused = KindSet(kinds.refused.0 & asked.0);
        if self.armed && !refused.is_empty() {
            let name = result_name(kinds.error);
            let text = format_args!("CUPTI refused {refused}: {name} ({})", kinds.error);
            self.shim.answer(ask, Outcome::Failed, text);
            self.say_refused();
        } else if self.armed {
            self.shim.answer(ask, Outcome::Done, format_args!("on: {}", kinds.enabled));
        } else {
            self.shim.answer(ask, Outcome::Done, format_args!("when armed: {asked}"));
        }
        let by = if ask.by.is_empty() { Text::from_bytes(b"a viewer") } else { ask.by };
        self.shim.note(Severity::Info, "kinds", format_args!("kinds are now {asked}, asked for by {by}"));
    }

    fn flush_for(&mut self, ask: &Ask) {
        match self.flush(false) {
            Some(Ok(())) => self.shim.answer(ask, Outcome::Done, format_args!("flushed")),
            Some(Err(error)) => self.shim.answer(ask, Outcome::Failed, format_args!("{}", Named(error))),
            None => self.shim.answer(ask, Outcome::Failed, format_args!("not armed")),
        }
    }
}
