//! What was said, for whoever joins later.

use crate::room;
use crate::shared::Note;
use std::collections::VecDeque;

/// Notes of one topic that are kept: what goes on all the time must not hide what was said once.
const OF_A_TOPIC: usize = 4;
/// Notes that are kept.
const MOST: usize = 32;

/// The last notes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Said(VecDeque<Note>);

impl Said {
    /// Keeps a note. The oldest of its topic gives way to it, or of all.
    pub(super) fn keep(&mut self, note: &Note) {
        let mut same = (0..self.0.len()).filter(|at| self.0.get(*at).is_some_and(|n| n.topic == note.topic));
        let oldest = same.next();
        if same.count().saturating_add(1) >= OF_A_TOPIC
            && let Some(at) = oldest
        {
            self.0.remove(at);
        } else if self.0.len() >= MOST {
            self.0.pop_front();
        }
        let _ = room::push_back(&mut self.0, *note);
    }

    /// What is kept, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Note> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::message::Severity;

    fn note(topic: &'static str, number: u64) -> Note {
        Note { time: number, ..Note::new(Severity::Info, topic, format_args!("{number}")) }
    }

    #[test]
    fn what_is_said_all_the_time_hides_nothing_else() {
        let mut said = Said::default();
        said.keep(&note("config", 0));
        for number in 1..=1000 {
            said.keep(&note("armed", number));
        }
        let times: Vec<u64> = said.iter().map(|note| note.time).collect();
        assert_eq!(times, [0, 997, 998, 999, 1000]);
    }

    #[test]
    fn it_is_bounded_whatever_is_said() {
        let mut said = Said::default();
        for number in 0..1000 {
            let topic: &'static str = Box::leak(format!("{number}").into_boxed_str());
            said.keep(&note(topic, number));
        }
        let times: Vec<u64> = said.iter().map(|note| note.time).collect();
        assert_eq!(times, (1000 - MOST as u64..1000).collect::<Vec<_>>());
    }
}
