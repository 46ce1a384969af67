//! An open recording with what it takes to unpack it, whatever it was made of; and looking for things in it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;

use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, RecordSizes, Runs, write_frame};
use gtop_protocol::message::{Hello, names};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset};
use gtop_protocol::recording::{
    At, Block, Decoder, Entry, HeadFields, Keep, MACHINE, Part, Recording, Writer,
};
use gtop_protocol::viewer::Watched;
use rustc_hash::FxHashMap;

use crate::model::newest_record;
use crate::source::file::{self, Unreadable};

/// Where the bytes of a recording are.
pub trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// A recording, wherever its bytes are.
pub type AnyRecording = Recording<Box<dyn Bytes>>;

/// A recording that is read.
pub(super) struct Tape {
    pub(super) recording: AnyRecording,
    pub(super) decoder: Decoder,
}

impl Tape {
    /// The first of the chunks up to `target` that together hold no more than so many records.
    pub(super) fn records_before(&self, target: usize, most: u64, chunks: usize) -> usize {
        let before = self.recording.chunks().get(..=target).unwrap_or_default();
        let mut records = 0;
        let held = before.iter().rev().take(chunks).take_while(|chunk| {
            records += chunk.counts().total();
            records <= most
        });
        target - held.count().saturating_sub(1)
    }

    /// The chunk that tells of a steady time.
    pub(super) fn chunk_at(&self, steady: u64) -> usize {
        self.recording.chunk_at(steady).min(self.recording.chunks().len().saturating_sub(1))
    }

    /// The first frame from a chunk on that is wanted.
    pub(super) fn search(
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

    /// The last frame before `now`, which lies in `chunk`, that is wanted; records come empty.
    pub(super) fn search_back(
        &mut self,
        chunk: usize,
        now: u64,
        wanted: impl Fn(&Entry<'_>) -> bool,
    ) -> Option<At> {
        for chunk in (0..=chunk.min(self.recording.chunks().len().checked_sub(1)?)).rev() {
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
    pub(super) fn known(&mut self, before: usize, wanted: &[String]) -> Known {
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

/// What must be known to look into records.
#[derive(Default)]
pub(super) struct Known {
    sizes: FxHashMap<u32, RecordSizes>,
    ids: FxHashMap<u32, HashSet<u32>>,
}

impl Known {
    pub(super) fn learn(&mut self, entry: &Entry<'_>, wanted: &[String]) {
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
    pub(super) fn any(
        &self,
        entry: &Entry<'_>,
        passes: impl Fn(&HashSet<u32>, u8, Option<u32>) -> bool,
    ) -> bool {
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
pub(super) fn convert(path: &Path) -> Result<(Vec<u8>, Option<String>), Unreadable> {
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
