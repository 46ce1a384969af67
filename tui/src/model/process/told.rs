//! What is put into the event log of what a shim tells, of its states and losses: each thing once, although shim and viewer
//! both see it.

use gtop_protocol::message::{Loss, Notice, Severity, State, StateCode};

use super::super::snapshot::Records;
use super::Process;
use super::words::reason_in_words;
use crate::model::events::Events;
use crate::model::findings;
use crate::model::names::safe;
use crate::model::time::{Moment, SECOND};
use crate::view::units::{bytes, count};

/// What is told twice within so long is the same, nanoseconds: one loss is told again after ten seconds.
pub(super) const SAME: u64 = 9 * SECOND;

/// The topic of beginning to arm, which is taken back once it is armed.
const ARMING: &str = "arming";

impl Process {
    /// Takes in a state, and tells that it is another one.
    pub(super) fn set_state(&mut self, state: &State<'_>, at: Moment, events: &mut Events) {
        let before = self.state;
        let first = !std::mem::replace(&mut self.heard.state, true);
        // A state of the future is at least not one that promises records.
        self.state = StateCode::from_wire(state.state).unwrap_or(StateCode::Unavailable);
        self.collected |= matches!(self.state, StateCode::Armed | StateCode::Silent);
        if self.state == StateCode::Armed {
            self.armed_at.get_or_insert(at);
            self.armed_since.get_or_insert(at);
        } else {
            self.armed_since = None;
        }
        let pid = format!("--attach {}", self.pid());
        self.reason = reason_in_words(state).map(|reason| reason.replace("--attach PID", &pid));
        self.since = state.since;
        self.watchers = state.watchers;
        self.held = state.held == 1;
        self.tainted = state.tainted == 1;
        self.subscribed = state.subscribed == 1;
        self.first_call_ns = state.first_call_ns;
        if before != self.state {
            self.heed_silence(before, at);
            let severity = match self.state {
                StateCode::Silent | StateCode::Unavailable => Severity::Alarm,
                StateCode::Tainted => Severity::Warning,
                _ => Severity::Info,
            };
            let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let from = if first { String::new() } else { format!("{} → ", before.name()) };
            let text = format!("{from}{}{why}", self.state.name());
            if self.state == StateCode::Silent {
                events.take_back(self.pid(), "silent", at.wall.saturating_sub(SAME));
            }
            let topic = if self.state == StateCode::Arming { ARMING } else { "state" };
            // The shim's notice says more: how it was armed, in what time, and with which kinds.
            if self.state == StateCode::Armed && matches!(before, StateCode::Loaded | StateCode::Arming) {
                return events.take_back(self.pid(), ARMING, 0);
            }
            events.push(at.wall, severity, Some(self.pid()), topic, &text);
        }
    }

    pub(super) fn heard_loss(&mut self, loss: Loss, at: Moment, events: &mut Events) {
        let unframed = |records: &Records| {
            let unread = records.unread_bytes;
            records.lost_queue_full.saturating_add(records.lost_cupti).saturating_add(unread)
        };
        let before = self.work.balance.records(0.0);
        let missing = self.work.balance.heard(loss);
        let now = self.work.balance.records(0.0);
        let more = unframed(&now) > unframed(&before);
        if let Some(unread) = self.unread.due(now.unread_bytes.saturating_sub(before.unread_bytes), at) {
            let text = format!(
                "{} of CUPTI's buffers could not be read, {} in all: CUPTI does not step over a record in them, and how \
                 many records lie behind it is not known",
                bytes(unread),
                bytes(now.unread_bytes)
            );
            events.push(at.wall, Severity::Alarm, Some(self.pid()), "unread", &text);
        }
        let stretch = self.traced.counted(more, self.work.timeline.newest());
        self.work.steps.not_traced(stretch);
        if let Some(missing) = self.losses.due(missing, at) {
            let causes = [
                ("queue full", now.lost_queue_full),
                ("slow viewer", now.lost_slow_viewer),
                ("unknown kind", now.lost_unknown_kind),
                ("dropped by CUPTI", now.lost_cupti),
            ];
            let causes = causes.into_iter().filter(|(_, lost)| *lost > 0);
            let causes: Vec<String> =
                causes.map(|(cause, lost)| format!("{cause} {}", count(lost))).collect();
            // In a recording it is too late.
            let slow = !self.over && (now.lost_slow_viewer > 0 || now.lost_queue_full > 0);
            let cure = if slow { "; under a budget (--budget 5, or its key) less comes" } else { "" };
            let text = format!("{} records lost; in all: {}{cure}", count(missing), causes.join(", "));
            let (pid, since) = (self.pid(), at.wall.saturating_sub(SAME));
            if now.lost_slow_viewer > 0 {
                events.take_back(pid, "gap", since);
            }
            events.take_back(pid, "loss", since);
            events.push(at.wall, Severity::Alarm, Some(pid), "loss", &text);
        }
    }

    /// Whether the log tells already that this viewer was too slow.
    pub(super) fn tells_of_loss(&self, at: Moment, events: &Events) -> bool {
        let slow = self.work.balance.records(0.0).lost_slow_viewer > 0;
        slow && events.tells(self.pid(), "loss", at.wall.saturating_sub(SAME))
    }

    /// Puts what a shim tells into the log, where that does not tell it already in other words.
    pub(super) fn notice(&mut self, notice: &Notice<'_>, events: &mut Events) {
        let (pid, topic, text) = (self.pid(), safe(notice.topic), safe(notice.text));
        let severity = Severity::from_wire(notice.severity);
        let since = notice.time.saturating_sub(SAME);
        let is_silent = self.state == StateCode::Silent;
        match topic.as_str() {
            "silent" if severity == Severity::Alarm && is_silent && events.tells(pid, "state", since) => {
                return;
            }
            // It counts for all viewers, and the counts of this one come, too.
            "loss" if events.tells(pid, "loss", since) => return,
            "pool" if severity != Severity::Info => {
                for rule in findings::OF_POOLS {
                    events.take_back(pid, rule, since);
                }
            }
            _ => {}
        }
        events.push(notice.time, severity, Some(pid), &topic, &text);
    }

    pub(super) fn say_invalid(&mut self, at: Moment, events: &mut Events) {
        if let (false, Some(first)) = (self.said_invalid, self.work.trust.first_invalid()) {
            self.said_invalid = true;
            let index = first.index.map_or("?".to_owned(), count);
            let (class, name) = (first.class.name(), &first.name);
            let before = if self.work.trust.earlier.is_some() { " of those counted" } else { "" };
            let text =
                format!("first record with bad times{before}: kernel record #{index}, {class}, {name}");
            events.push(at.wall, Severity::Alarm, Some(self.pid()), "invalid", &text);
        }
    }
}
