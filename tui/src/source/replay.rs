//! A recording that is played: forth, back and to any moment. What it gives the model are the frames of the stream.

mod tape;
#[cfg(test)]
mod tests;
mod told;

use std::path::Path;
use std::time::Instant;

use gtop_protocol::frame::FrameKind;
use gtop_protocol::message::Notice;
use gtop_protocol::recording::{Decoder, Entry, Part};

use super::file::Unreadable;
use super::recording::moment;
use crate::model::snapshot::Snapshot;
use crate::model::time::Moment;

use tape::Tape;
pub use tape::{AnyRecording, Bytes, open};
use told::Told;

/// How far back a jump goes to tell what led to a moment.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Records that are counted again, at most.
    records: u64,
    /// Chunks, a second each at most, that they are in; and of which everything else is told again, so that courses
    /// are seen too.
    chunks: usize,
}

/// What the first picture after a jump shows: enough to fill a screen, in a moment.
const FIRST: Reach = Reach { records: 70_000, chunks: 16 };
/// What is filled in behind it.
const FULL: Reach = Reach { records: 400_000, chunks: 256 };

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    /// The first record whose times cannot be believed.
    Invalid,
    /// The next mark, or the one before.
    Mark {
        /// Whether the next one.
        ahead: bool,
    },
    /// The next record of a kernel with one of these names, mangled as CUPTI gives them.
    Kernel(Vec<String>),
}

/// A recording, and what it has told up to a moment.
pub struct Player {
    tape: Tape,
    label: String,
    told: Told,
    /// The same from further back, which has yet to come to the same moment.
    fuller: Option<Fuller>,
    /// How far back a jump goes at first, and then.
    reach: [Reach; 2],
    damage: Option<String>,
}

/// What is filled in after a jump.
enum Fuller {
    /// From this chunk on.
    Wanted(usize),
    /// It has come so far.
    Told(Box<Told>),
}

impl Player {
    /// Opens a recording, or raw CUPTI buffers, at its beginning.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let (recording, damage) = open(path)?;
        Ok(Self::begin(recording, &path.to_string_lossy(), damage))
    }

    /// Plays an open recording from its beginning; `label` says which, for people.
    #[must_use]
    pub fn new(recording: AnyRecording, label: &str) -> Self {
        Self::begin(recording, label, None)
    }

    fn begin(recording: AnyRecording, label: &str, damage: Option<String>) -> Self {
        let mut tape = Tape { recording, decoder: Decoder::default() };
        let told = Told::before(&mut tape, label, 0, 0);
        let mut player =
            Self { tape, label: label.to_owned(), told, fuller: None, reach: [FIRST, FULL], damage };
        player.seek(player.range().0);
        player
    }

    /// The recording.
    #[must_use]
    pub const fn recording(&self) -> &AnyRecording {
        &self.tape.recording
    }

    /// The steady times of the first and the last frame.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        self.tape.recording.range()
    }

    /// The moment that is shown.
    #[must_use]
    pub const fn now(&self) -> Moment {
        moment(self.told.now)
    }

    /// Since when records are counted, if not since the beginning.
    #[must_use]
    pub fn since(&self) -> Option<Moment> {
        self.told.since.map(moment)
    }

    /// Whether everything there is has been shown.
    pub fn is_at_end(&mut self) -> bool {
        self.told.peek(&mut self.tape).is_none()
    }

    /// Looks whether a recording that is still being made has grown.
    pub fn refresh(&mut self) -> bool {
        self.tape.recording.refresh().unwrap_or(false)
    }

    /// What is known at this moment, to the last record.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = self.told.model.snapshot(moment(self.told.now));
        self.complain(&mut snapshot);
        snapshot
    }

    /// The same while it plays on: tables may be a quarter of a second old.
    pub fn glance(&mut self) -> Snapshot {
        let mut snapshot = self.told.model.glance(moment(self.told.now));
        self.complain(&mut snapshot);
        snapshot
    }

    /// What is damaged stays so wherever it is played.
    fn complain(&mut self, snapshot: &mut Snapshot) {
        match &self.damage {
            Some(damage) => snapshot.source.damage = Some(damage.clone()),
            None => self.damage.clone_from(&snapshot.source.damage),
        }
    }

    /// Plays on to a steady time, or until the deadline.
    pub fn advance(&mut self, to: u64, deadline: Option<Instant>) {
        self.told.advance(&mut self.tape, to, deadline);
    }

    /// Goes to a steady time, whether ahead or back. What led to it is told from a little before at first; see
    /// [`Player::fill`].
    pub fn seek(&mut self, to: u64) {
        let (first, last) = self.range();
        let to = to.clamp(first, last);
        let target = self.tape.chunk_at(to);
        let [near, far] =
            self.reach.map(|reach| self.tape.records_before(target, reach.records, reach.chunks));
        let leads_there = to >= self.told.now.steady;
        if !(leads_there && self.told.chunk >= near) {
            let told = Told::before(&mut self.tape, &self.label, near, self.reach[0].chunks);
            let before = std::mem::replace(&mut self.told, told);
            let goes_on = leads_there && before.chunk >= far && before.from <= far;
            self.fuller = if goes_on {
                Some(Fuller::Told(Box::new(before)))
            } else {
                (far < near).then_some(Fuller::Wanted(far))
            };
        }
        self.told.advance(&mut self.tape, to, None);
    }

    /// Whether more can be told of what led to this moment.
    #[must_use]
    pub const fn wants_more(&self) -> bool {
        self.fuller.is_some()
    }

    /// Goes on telling what led to this moment from further back, until the deadline; whether there is now more to
    /// show.
    pub fn fill(&mut self, deadline: Option<Instant>) -> bool {
        let Some(fuller) = self.fuller.take() else { return false };
        let Reach { records, chunks } = self.reach[1];
        // Played on, what is shown may have come to tell as much.
        if self.tape.records_before(self.told.chunk, records, chunks) >= self.told.from && self.told.from > 0
        {
            return false;
        }
        let mut told = match fuller {
            Fuller::Wanted(from) => Box::new(Told::before(&mut self.tape, &self.label, from, chunks)),
            Fuller::Told(told) => told,
        };
        if told.advance(&mut self.tape, self.told.now.steady, deadline) {
            self.told = *told;
            return true;
        }
        self.fuller = Some(Fuller::Told(told));
        false
    }

    /// Goes to the next moment, or the one before, at which records came; says whether there is one.
    pub fn step(&mut self, ahead: bool) -> bool {
        let (now, chunk) = (self.told.now.steady, self.told.chunk);
        let found = if ahead {
            self.tape.search(chunk, Part::Whole, |at, entry| {
                at.steady > now
                    && entry.frame.kind() == Some(FrameKind::Records)
                    && !entry.frame.body.is_empty()
            })
        } else {
            self.tape.search_back(chunk, now, |entry| entry.frame.kind() == Some(FrameKind::Records))
        };
        found.map(|at| self.seek(at.steady)).is_some()
    }

    /// Goes to what is looked for; says whether it was found.
    pub fn find(&mut self, what: &Find) -> bool {
        let (now, chunk) = (self.told.now.steady, self.told.chunk);
        let mark = |entry: &Entry<'_>| {
            entry.frame.kind() == Some(FrameKind::Notice)
                && Notice::read(entry.frame.body).is_ok_and(|notice| notice.topic == b"mark")
        };
        let tape = &mut self.tape;
        let found = match what {
            Find::Mark { ahead: true } => {
                tape.search(chunk, Part::Side, |at, entry| at.steady > now && mark(entry))
            }
            Find::Mark { ahead: false } => tape.search_back(chunk, now, mark),
            Find::Invalid => {
                let first = tape.recording.chunks().iter().position(|chunk| chunk.invalid() > 0);
                let mut known = tape.known(first.unwrap_or(0), &[]);
                first.and_then(|first| {
                    tape.search(first, Part::Whole, |_, entry| {
                        known.learn(entry, &[]);
                        known.any(entry, |_, validity, _| validity != 0)
                    })
                })
            }
            Find::Kernel(wanted) => {
                let mut known = tape.known(chunk, wanted);
                tape.search(chunk, Part::Whole, |at, entry| {
                    known.learn(entry, wanted);
                    at.steady > now
                        && known.any(entry, |ids, _, name| name.is_some_and(|name| ids.contains(&name)))
                })
            }
        };
        found.map(|at| self.seek(at.steady)).is_some()
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player")
            .field("label", &self.label)
            .field("now", &self.told.now)
            .finish_non_exhaustive()
    }
}
