//! A recording that is played: forth, back and to any moment. What it gives the model are the frames of the stream.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, RecordSizes, Runs, write_frame};
use gtop_protocol::message::{Hello, Notice, names};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset};
use gtop_protocol::recording::{
    At, Block, Counts, Damage, Decoder, Entry, HeadFields, Keep, MACHINE, Part, Recording, Writer,
};
use gtop_protocol::viewer::{Earlier, Link, LinkState, Watched};
use rustc_hash::FxHashMap;

use super::file::{self, Unreadable};
use super::recording::{Batch, Feed, moment};
use crate::model::snapshot::{Snapshot, SourceKind};
use crate::model::time::Moment;
use crate::model::{Model, newest_record};

/// Records that are counted again after a jump, at most: more than fill a screen, and no more than a moment's work.
const AGAIN: u64 = 400_000;

/// Chunks before a moment of which everything but records is told again after a jump, so that courses are seen too:
/// minutes.
const HISTORY: usize = 256;

/// Where the bytes of a recording are.
pub trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// A recording, wherever its bytes are.
pub type AnyRecording = Recording<Box<dyn Bytes>>;

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
    recording: AnyRecording,
    decoder: Decoder,
    label: String,
    model: Model,
    feed: Feed,
    /// The chunk that is unpacked.
    batch: Batch,
    loaded: Option<usize>,
    /// What comes next.
    chunk: usize,
    entry: usize,
    now: At,
    /// Records that are counted again after a jump, at most.
    again: u64,
    /// Since when records are counted, if not since the beginning.
    since: Option<At>,
    damage: Option<Damage>,
}

impl Player {
    /// Opens a recording, or raw CUPTI buffers, at its beginning.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let (recording, damage) = open(path)?;
        let mut player = Self::new(recording, &path.to_string_lossy());
        if let Some(damage) = damage {
            player.model.damaged(damage);
        }
        Ok(player)
    }

    /// Plays an open recording from its beginning; `label` says which, for people.
    #[must_use]
    pub fn new(recording: AnyRecording, label: &str) -> Self {
        let mut player = Self {
            model: Model::new(SourceKind::Live, label),
            decoder: Decoder::default(),
            label: label.to_owned(),
            feed: Feed::default(),
            batch: Batch::default(),
            loaded: None,
            chunk: 0,
            entry: 0,
            now: At::default(),
            again: AGAIN,
            since: None,
            damage: None,
            recording,
        };
        player.seek(player.range().0);
        player
    }

    /// The recording.
    #[must_use]
    pub const fn recording(&self) -> &AnyRecording {
        &self.recording
    }

    /// The steady times of the first and the last frame.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        self.recording.range()
    }

    /// The moment that is shown.
    #[must_use]
    pub const fn now(&self) -> Moment {
        moment(self.now)
    }

    /// Since when records are counted, if not since the beginning.
    #[must_use]
    pub fn since(&self) -> Option<Moment> {
        self.since.map(moment)
    }

    /// Whether everything there is has been shown.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Looks whether a recording that is still being made has grown.
    pub fn refresh(&mut self) -> bool {
        self.recording.refresh().unwrap_or(false)
    }

    /// What is known at this moment, to the last record.
    pub fn snapshot(&mut self) -> Snapshot {
        self.model.snapshot(moment(self.now))
    }

    /// The same while it plays on: tables may be a quarter of a second old.
    pub fn glance(&mut self) -> Snapshot {
        self.model.glance(moment(self.now))
    }

    /// Plays on to a steady time, or until the deadline.
    pub fn advance(&mut self, to: u64, deadline: Option<Instant>) {
        let mut applied = 0u32;
        while let Some(at) = self.peek().filter(|at| at.steady <= to) {
            if let Some(entry) = self.batch.entry(self.entry) {
                self.feed.apply(&mut self.model, &entry);
            }
            self.now = at;
            self.entry += 1;
            applied += 1;
            if applied.is_multiple_of(16) && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return;
            }
        }
        // Time goes on where nothing happens.
        let ahead = to.min(self.range().1).saturating_sub(self.now.steady);
        self.now = At { wall: self.now.wall + ahead, steady: self.now.steady + ahead };
    }

    /// Goes to a steady time, whether ahead or back.
    pub fn seek(&mut self, to: u64) {
        let (first, last) = self.range();
        let to = to.clamp(first, last);
        let target = self.recording.chunk_at(to).min(self.recording.chunks().len().saturating_sub(1));
        let from = self.begin_before(target);
        if self.loaded.is_some() && to >= self.now.steady && self.chunk >= from {
            self.advance(to, None);
            return;
        }
        self.model = Model::new(SourceKind::Live, &self.label);
        self.feed = Feed::default();
        self.since = None;
        self.now = self.recording.chunks().first().map_or(At::default(), |chunk| chunk.first);
        self.pass_over(from);
        (self.chunk, self.entry, self.loaded) = (from, 0, None);
        self.advance(to, None);
    }

    /// The first of the chunks up to `target` whose records are counted again after a jump there.
    fn begin_before(&self, target: usize) -> usize {
        let chunks = self.recording.chunks().get(..=target).unwrap_or_default();
        let mut records = 0;
        let counted = chunks.iter().rev().take(HISTORY).take_while(|chunk| {
            records += chunk.counts().total();
            records <= self.again
        });
        target - counted.count().saturating_sub(1)
    }

    /// Goes to the next moment, or the one before, at which records came; says whether there is one.
    pub fn step(&mut self, ahead: bool) -> bool {
        let found = if ahead {
            let now = self.now.steady;
            self.search(self.chunk, Part::Whole, |at, entry| {
                at.steady > now
                    && entry.frame.kind() == Some(FrameKind::Records)
                    && !entry.frame.body.is_empty()
            })
        } else {
            self.search_back(|entry| entry.frame.kind() == Some(FrameKind::Records))
        };
        found.map(|at| self.seek(at.steady)).is_some()
    }

    /// Goes to what is looked for; says whether it was found.
    pub fn find(&mut self, what: &Find) -> bool {
        let now = self.now.steady;
        let mark = |entry: &Entry<'_>| {
            entry.frame.kind() == Some(FrameKind::Notice)
                && Notice::read(entry.frame.body).is_ok_and(|notice| notice.topic == b"mark")
        };
        let found = match what {
            Find::Mark { ahead: true } => {
                self.search(self.chunk, Part::Side, |at, entry| at.steady > now && mark(entry))
            }
            Find::Mark { ahead: false } => self.search_back(mark),
            Find::Invalid => {
                let first = self.recording.chunks().iter().position(|chunk| chunk.invalid() > 0);
                let mut known = self.told(first.unwrap_or(0), &[]);
                first.and_then(|first| {
                    self.search(first, Part::Whole, |_, entry| {
                        known.learn(entry, &[]);
                        known.any(entry, |_, validity, _| validity != 0)
                    })
                })
            }
            Find::Kernel(wanted) => {
                let mut known = self.told(self.chunk, wanted);
                self.search(self.chunk, Part::Whole, |at, entry| {
                    known.learn(entry, wanted);
                    at.steady > now
                        && known.any(entry, |ids, _, name| name.is_some_and(|name| ids.contains(&name)))
                })
            }
        };
        found.map(|at| self.seek(at.steady)).is_some()
    }

    /// What came next, if anything does.
    fn peek(&mut self) -> Option<At> {
        loop {
            if self.loaded != Some(self.chunk) {
                if self.chunk >= self.recording.chunks().len() {
                    return None;
                }
                self.load(self.chunk);
            }
            if let Some(at) = self.batch.at(self.entry) {
                return Some(at);
            }
            // A chunk that follows may not be there yet.
            if self.chunk + 1 >= self.recording.chunks().len() {
                return None;
            }
            (self.chunk, self.entry) = (self.chunk + 1, 0);
        }
    }

    fn load(&mut self, chunk: usize) {
        self.batch.clear();
        let (batch, decoder) = (&mut self.batch, &mut self.decoder);
        let done = self.recording.load(chunk, Part::Whole).and_then(|block| {
            decoder.decode(&block, &mut |entry| {
                batch.push(entry);
                ControlFlow::Continue(())
            })
        });
        if let Err(damage) = done {
            self.model.damaged(damage.to_string());
            self.damage.get_or_insert(damage);
        }
        self.loaded = Some(chunk);
    }

    /// Takes in everything but records of the chunks before `from`, and says what is left out.
    fn pass_over(&mut self, from: usize) {
        if from == 0 {
            return;
        }
        let mut counts: FxHashMap<u32, Counts> = FxHashMap::default();
        let (feed, model, decoder) = (&mut self.feed, &mut self.model, &mut self.decoder);
        let mut pass = |block: &Block, counts: &mut FxHashMap<u32, Counts>| {
            let _ = decoder.decode(block, &mut |entry| {
                match entry.frame.kind() {
                    // Counts are of one connection.
                    Some(FrameKind::Link)
                        if Link::read(entry.frame.body).is_ok_and(|link| {
                            matches!(LinkState::from_wire(link.state), LinkState::Lost | LinkState::Ended)
                        }) =>
                    {
                        counts.remove(&entry.stream);
                    }
                    // It is said at the end, of all that was passed over.
                    Some(FrameKind::Earlier) => {
                        if let Ok(Earlier { kernel, memcpy, memset, other }) = Earlier::read(entry.frame.body)
                        {
                            counts.insert(entry.stream, Counts([kernel, memcpy, memset, other]));
                        }
                        return ControlFlow::Continue(());
                    }
                    _ => {}
                }
                feed.apply(model, entry);
                ControlFlow::Continue(())
            });
        };
        let said = self.recording.state(from.saturating_sub(HISTORY));
        let first = said.map_or(0, |(first, block)| {
            pass(&block, &mut counts);
            first
        });
        for at in first..from {
            if let Ok(block) = self.recording.load(at, Part::Side) {
                pass(&block, &mut counts);
            }
            for (stream, more) in &self.recording.chunks()[at].streams {
                counts.entry(*stream).or_default().add(more);
            }
        }
        let at = self.recording.chunks()[from].first;
        self.since = Some(at);
        self.now = at;
        let streams: Vec<u32> = self.feed.conns().map(|(stream, _)| stream).collect();
        for stream in streams {
            let [kernel, memcpy, memset, other] = counts.get(&stream).copied().unwrap_or_default().0;
            let earlier = Earlier { kernel, memcpy, memset, other };
            let mut bytes = [0; 64];
            if let Ok(len) = write_frame(&mut bytes, FrameKind::Earlier, 0, |w| earlier.write(w))
                && let Ok(Some((frame, _))) = Frame::split(&bytes[..len])
            {
                self.feed.apply(&mut self.model, &Entry { at, stream, frame });
            }
        }
    }

    /// The first frame from a chunk on that is wanted.
    fn search(
        &mut self,
        from: usize,
        part: Part,
        mut wanted: impl FnMut(At, &Entry<'_>) -> bool,
    ) -> Option<At> {
        for chunk in from..self.recording.chunks().len() {
            let mut found = None;
            let Ok(block) = self.recording.load(chunk, part) else { continue };
            let _ = self.decoder.decode(&block, &mut |entry| {
                if wanted(entry.at, entry) {
                    found = Some(entry.at);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The last frame before now that is wanted; records come empty.
    fn search_back(&mut self, wanted: impl Fn(&Entry<'_>) -> bool) -> Option<At> {
        let now = self.now.steady;
        for chunk in (0..=self.chunk.min(self.recording.chunks().len().checked_sub(1)?)).rev() {
            let mut found = None;
            let Ok(block) = self.recording.load(chunk, Part::Side) else { continue };
            let _ = self.decoder.decode(&block, &mut |entry| {
                if entry.at.steady < now && wanted(entry) {
                    found = Some(entry.at);
                }
                ControlFlow::Continue(())
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// What hellos and names before a chunk tell of the records in it.
    fn told(&mut self, before: usize, wanted: &[String]) -> Known {
        let mut known = Known::default();
        let mut learn = |block: &Block| {
            let _ = self.decoder.decode(block, &mut |entry| {
                known.learn(entry, wanted);
                ControlFlow::Continue(())
            });
        };
        let said = self.recording.state(before);
        let first = said.map_or(0, |(first, block)| {
            learn(&block);
            first
        });
        for chunk in first..before {
            if let Ok(block) = self.recording.load(chunk, Part::Side) {
                learn(&block);
            }
        }
        known
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player").field("label", &self.label).field("now", &self.now).finish_non_exhaustive()
    }
}

/// What must be known to look into records.
#[derive(Default)]
struct Known {
    sizes: FxHashMap<u32, RecordSizes>,
    ids: FxHashMap<u32, HashSet<u32>>,
}

impl Known {
    fn learn(&mut self, entry: &Entry<'_>, wanted: &[String]) {
        match entry.frame.kind() {
            Some(FrameKind::Hello) => {
                if let Ok(hello) = Hello::read(entry.frame.body) {
                    self.sizes.insert(entry.stream, hello.sizes);
                }
            }
            Some(FrameKind::Names) if !wanted.is_empty() => {
                let ids = self.ids.entry(entry.stream).or_default();
                for (id, name) in names::read(entry.frame.body) {
                    if wanted.iter().any(|wanted| wanted.as_bytes() == name) {
                        ids.insert(id);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether any record passes, by the ids of its process that are wanted, its validity and its name's id.
    fn any(&self, entry: &Entry<'_>, passes: impl Fn(&HashSet<u32>, u8, Option<u32>) -> bool) -> bool {
        if entry.frame.kind() != Some(FrameKind::Records) {
            return false;
        }
        let none = HashSet::new();
        let ids = self.ids.get(&entry.stream).unwrap_or(&none);
        let Some(sizes) = self.sizes.get(&entry.stream) else { return false };
        Runs::new(entry.frame.body, *sizes).any(|run| match run.family() {
            Some(Family::Kernel) => run.records().any(|bytes| {
                let kernel: Kernel = record::read(bytes);
                passes(ids, kernel.validity, Some(kernel.name.get()))
            }),
            Some(Family::Copy) => {
                run.records().any(|bytes| passes(ids, record::read::<Copy>(bytes).validity, None))
            }
            Some(Family::Memset) => {
                run.records().any(|bytes| passes(ids, record::read::<Memset>(bytes).validity, None))
            }
            _ => false,
        })
    }
}

/// Opens a recording, or makes one in memory of raw CUPTI buffers. Also says what of the buffers could not be used.
pub fn open(path: &Path) -> Result<(AnyRecording, Option<String>), Unreadable> {
    let io = |error| Unreadable::Io(path.to_owned(), error);
    let (bytes, damage): (Box<dyn Bytes>, _) = match file::open(path)? {
        file::Opened::Recording(_) => (Box::new(File::open(path).map_err(io)?), None),
        file::Opened::Buffers => {
            let (bytes, damage) = convert(path)?;
            (Box::new(Cursor::new(bytes)), damage)
        }
    };
    let recording = Recording::open(bytes).map_err(|error| io(io::Error::other(error)))?;
    Ok((recording, damage))
}

/// A file of raw buffers as a recording in memory: its only clock is that of its records.
fn convert(path: &Path) -> Result<(Vec<u8>, Option<String>), Unreadable> {
    let io = |error| Unreadable::Io(path.to_owned(), error);
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let damage = file::read(path, &mut |bytes| frames.push(bytes.to_vec()))?;
    let mut sizes = RecordSizes::OURS;
    let newest = |bytes: &[u8], sizes: &mut RecordSizes| {
        let (frame, _) = Frame::split(bytes).ok()??;
        match frame.kind() {
            Some(FrameKind::Hello) => *sizes = Hello::read(frame.body).ok()?.sizes,
            Some(FrameKind::Records) => return newest_record(frame.body, *sizes),
            _ => {}
        }
        None
    };
    let began = frames.iter().find_map(|bytes| newest(bytes, &mut sizes)).unwrap_or_default();
    let mut now = At { wall: began, steady: began };
    let head = HeadFields { began, part: 1, ..HeadFields::default() };
    let mut writer = Writer::begin(Vec::new(), &head, Keep::default(), now).map_err(io)?;
    let mut watched = [0; HEADER_LEN + 16];
    let len = write_frame(&mut watched, FrameKind::Watched, 0, |w| Watched::default().write(w)).unwrap_or(0);
    for bytes in std::iter::once(&watched[..len]).chain(frames.iter().map(Vec::as_slice)) {
        let newest = newest(bytes, &mut sizes).unwrap_or_default().max(now.steady);
        now = At { wall: newest, steady: newest };
        if let Ok(Some((frame, _))) = Frame::split(bytes) {
            writer.write(&Entry { at: now, stream: MACHINE + 1, frame }).map_err(io)?;
        }
    }
    Ok((writer.finish().map_err(io)?, damage))
}

#[cfg(test)]
mod tests;
