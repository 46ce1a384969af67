//! What a recording has told up to a moment: a model, and where its next frame is.

use std::ops::ControlFlow;
use std::time::Instant;

use gtop_protocol::frame::{Frame, FrameKind, write_frame};
use gtop_protocol::record::Family;
use gtop_protocol::recording::{At, Block, Chunk, Counts, Entry, Part};
use gtop_protocol::viewer::{Earlier, Link, LinkState};
use rustc_hash::FxHashMap;

use super::tape::Tape;
use crate::model::Model;
use crate::model::snapshot::SourceKind;
use crate::source::recording::{Batch, Feed};

/// See the module.
pub(super) struct Told {
    pub(super) model: Model,
    feed: Feed,
    /// The chunk that is unpacked.
    batch: Batch,
    loaded: Option<usize>,
    /// The first chunk whose records are counted.
    pub(super) from: usize,
    /// What comes next.
    pub(super) chunk: usize,
    entry: usize,
    pub(super) now: At,
    /// Since when records are counted, if not since the beginning.
    pub(super) since: Option<At>,
}

impl Told {
    /// Of nothing but the beginning of chunk `from`: it has heard everything but records of the `history` chunks
    /// before, and what is said again of those before them.
    pub(super) fn before(tape: &mut Tape, label: &str, from: usize, history: usize) -> Self {
        let mut told = Self {
            model: Model::new(SourceKind::Live, label),
            feed: Feed::default(),
            batch: Batch::default(),
            loaded: None,
            from,
            chunk: from,
            entry: 0,
            now: tape.recording.chunks().first().map_or(At::default(), |chunk| chunk.first),
            since: None,
        };
        if from > 0 {
            told.pass_over(tape, history);
        }
        told
    }

    /// Goes on to a steady time, or until the deadline; whether it has come there.
    pub(super) fn advance(&mut self, tape: &mut Tape, to: u64, deadline: Option<Instant>) -> bool {
        let mut applied = 0u32;
        while let Some(at) = self.peek(tape).filter(|at| at.steady <= to) {
            if let Some(entry) = self.batch.entry(self.entry) {
                self.feed.apply(&mut self.model, &entry);
            }
            self.now = at;
            self.entry += 1;
            applied += 1;
            if applied.is_multiple_of(16) && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
        }
        // Time goes on where nothing happens.
        let ahead = to.min(tape.recording.range().1).saturating_sub(self.now.steady);
        self.now = At { wall: self.now.wall + ahead, steady: self.now.steady + ahead };
        true
    }

    /// When what comes next came, if anything does.
    pub(super) fn peek(&mut self, tape: &mut Tape) -> Option<At> {
        loop {
            if self.loaded != Some(self.chunk) {
                if self.chunk >= tape.recording.chunks().len() {
                    return None;
                }
                self.load(tape);
            }
            if let Some(at) = self.batch.at(self.entry) {
                return Some(at);
            }
            // A chunk that follows may not be there yet.
            if self.chunk + 1 >= tape.recording.chunks().len() {
                return None;
            }
            (self.chunk, self.entry) = (self.chunk + 1, 0);
        }
    }

    fn load(&mut self, tape: &mut Tape) {
        self.batch.clear();
        let (batch, decoder) = (&mut self.batch, &mut tape.decoder);
        let done = tape.recording.load(self.chunk, Part::Whole).and_then(|block| {
            decoder.decode(&block, &mut |entry| {
                batch.push(entry);
                ControlFlow::Continue(())
            })
        });
        if let Err(damage) = done {
            self.model.damaged(damage.to_string());
        }
        self.loaded = Some(self.chunk);
    }

    /// Takes in everything but records of the chunks before `from`, and says what is left out.
    fn pass_over(&mut self, tape: &mut Tape, history: usize) {
        let mut counts: FxHashMap<u32, Passed> = FxHashMap::default();
        let (feed, model, decoder) = (&mut self.feed, &mut self.model, &mut tape.decoder);
        let mut pass = |block: &Block, counts: &mut FxHashMap<u32, Passed>| {
            let _ = decoder.decode(block, &mut |entry| {
                match entry.frame.kind() {
                    // Counts are of one connection.
                    Some(FrameKind::Link)
                        if Link::read(entry.frame.body).is_ok_and(|link| {
                            matches!(LinkState::from_wire(link.state), LinkState::Lost | LinkState::Ended)
                        }) =>
                    {
                        counts.entry(entry.stream).or_default().counts = Counts::default();
                    }
                    // It is said at the end, of all that was passed over.
                    Some(FrameKind::Earlier) => {
                        if let Ok(earlier) = Earlier::read(entry.frame.body) {
                            counts.insert(entry.stream, Passed::heard(&earlier));
                        }
                        return ControlFlow::Continue(());
                    }
                    _ => {}
                }
                if let Some((_, conn)) = feed.conns().find(|(stream, _)| *stream == entry.stream) {
                    model.left_out(conn);
                }
                feed.apply(model, entry);
                ControlFlow::Continue(())
            });
        };
        let said = tape.recording.state(self.from.saturating_sub(history));
        let first = said.map_or(0, |(first, block)| {
            pass(&block, &mut counts);
            first
        });
        for at in first..self.from {
            if let Ok(block) = tape.recording.load(at, Part::Side) {
                pass(&block, &mut counts);
            }
            let chunk = &tape.recording.chunks()[at];
            for (stream, more) in &chunk.streams {
                counts.entry(*stream).or_default().add(more, chunk);
            }
        }
        let at = tape.recording.chunks()[self.from].first;
        self.since = Some(at);
        self.now = at;
        let streams: Vec<u32> = self.feed.conns().map(|(stream, _)| stream).collect();
        for stream in streams {
            let earlier = counts.get(&stream).copied().unwrap_or_default().earlier();
            let mut bytes = [0; 96];
            if let Ok(len) = write_frame(&mut bytes, FrameKind::Earlier, 0, |w| earlier.write(w))
                && let Ok(Some((frame, _))) = Frame::split(&bytes[..len])
            {
                self.feed.apply(&mut self.model, &Entry { at, stream, frame });
            }
        }
    }
}

/// Records of one stream that are passed over.
#[derive(Clone, Copy)]
struct Passed {
    /// Of this connection.
    counts: Counts,
    /// Over all connections, where that is known: kernel records, and those with times that cannot be believed.
    kernels: Option<u64>,
    invalid: Option<u64>,
}

impl Default for Passed {
    fn default() -> Self {
        Self { counts: Counts::default(), kernels: Some(0), invalid: Some(0) }
    }
}

impl Passed {
    const fn heard(earlier: &Earlier) -> Self {
        let Earlier { kernel, memcpy, memset, other, invalid, kernels } = *earlier;
        Self { counts: Counts([kernel, memcpy, memset, other]), kernels, invalid }
    }

    const fn earlier(self) -> Earlier {
        let Self { counts: Counts([kernel, memcpy, memset, other]), kernels, invalid } = self;
        Earlier { kernel, memcpy, memset, other, invalid, kernels }
    }

    /// Adds the stream's records of a chunk, which tells its invalid records of all streams together.
    fn add(&mut self, more: &Counts, chunk: &Chunk) {
        self.counts.add(more);
        self.kernels = self.kernels.map(|sum| sum.saturating_add(more.of(Family::Kernel)));
        let invalid = match (chunk.invalid(), chunk.streams.len()) {
            (0, _) => Some(0),
            (some, 1) => Some(some),
            _ => None,
        };
        self.invalid = self.invalid.zip(invalid).map(|(sum, more)| sum.saturating_add(more));
    }
}
