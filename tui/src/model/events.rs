//! The event log: what shims tell, and what happens to the way to them.

use std::collections::VecDeque;
use std::sync::Arc;

use gtop_protocol::message::Severity;

use super::names::cut;
use super::snapshot::Event;

/// Events kept.
const MAX_EVENTS: usize = 1000;
/// The longest text kept, characters.
const MAX_TEXT: usize = 1000;
/// The longest topic kept, characters.
const MAX_TOPIC: usize = 32;

/// The newest events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Events {
    list: VecDeque<Event>,
    shared: Option<Arc<[Event]>>,
}

impl Events {
    /// Puts an event into its place in time: what a shim says may come late. Its texts must be safe for a terminal
    /// already. What is there already is not put there again: a shim tells whoever connects, and so connects again, what
    /// it said last.
    pub(super) fn push(&mut self, time: u64, severity: Severity, pid: Option<u32>, topic: &str, text: &str) {
        let (topic, text) = (cut(topic, MAX_TOPIC), cut(text, MAX_TEXT));
        let later = self.list.iter().rev().take_while(|event| event.time > time).count();
        let at = self.list.len() - later;
        let event = Event { time, severity, pid, topic, text };
        if self.list.range(..at).rev().take_while(|other| other.time == time).any(|other| *other == event) {
            return;
        }
        self.list.insert(at, event);
        if self.list.len() > MAX_EVENTS {
            self.list.pop_front();
        }
        self.shared = None;
    }

    /// Whether the log holds an event of this process and topic from `since` on.
    pub(super) fn tells(&self, pid: u32, topic: &str, since: u64) -> bool {
        self.list.iter().rev().any(|event| is_of(event, pid, topic, since))
    }

    /// Takes events of this process and topic out again, from `since` on: another one tells more.
    pub(super) fn take_back(&mut self, pid: u32, topic: &str, since: u64) {
        self.list.retain(|event| !is_of(event, pid, topic, since));
        self.shared = None;
    }

    /// What a snapshot holds.
    pub(super) fn share(&mut self) -> Arc<[Event]> {
        Arc::clone(self.shared.get_or_insert_with(|| self.list.iter().cloned().collect()))
    }
}

fn is_of(event: &Event, pid: u32, topic: &str, since: u64) -> bool {
    event.pid == Some(pid) && event.topic == topic && event.time >= since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_newest() {
        let mut events = Events::default();
        for i in 0..1500 {
            events.push(i, Severity::Info, None, "mark", &"x".repeat(5000));
        }
        let list = events.share();
        assert_eq!((list.len(), list[0].time, list[999].time), (1000, 500, 1499));
        assert_eq!(list[0].text.chars().count(), MAX_TEXT);
    }

    #[test]
    fn what_comes_late_is_in_its_place_and_what_comes_again_is_there() {
        let mut events = Events::default();
        for (time, text) in [(5, "a"), (7, "c"), (6, "b"), (7, "d"), (1, "0"), (5, "a"), (7, "c")] {
            events.push(time, Severity::Info, None, "mark", text);
        }
        assert_eq!(events.share().iter().map(|event| event.text.as_str()).collect::<String>(), "0abcd");
    }

    #[test]
    fn what_another_event_tells_is_taken_back() {
        let mut events = Events::default();
        for (time, pid, topic) in [(1, 7, "gap"), (5, 7, "gap"), (5, 8, "gap"), (6, 7, "loss")] {
            events.push(time, Severity::Warning, Some(pid), topic, "");
        }
        assert!(events.tells(7, "gap", 5) && !events.tells(7, "gap", 6) && !events.tells(9, "gap", 0));
        events.take_back(7, "gap", 2);
        let left: Vec<_> = events.share().iter().map(|event| (event.time, event.pid)).collect();
        assert_eq!(left, [(1, Some(7)), (5, Some(8)), (6, Some(7))]);
    }
}
