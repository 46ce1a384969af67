//! Raw activity buffers kept in a file (`.cuptibuf`), read through the same walk as live ones and given as
//! frames, so that what reads a live stream reads a file too.
//!
//! The file is a run of little-endian chunks, each an 8-byte tag and a `u64`: `UTIBUF1` with what
//! `cuptiGetVersion` said, `UTIBUF` with the length of one buffer that follows, `UNAMES` with the number of
//! names that follow (`u64` pointer, `u32` length, bytes). Names may come in several chunks, of which the last ends
//! the file.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "runs in the viewer alone")]

use crate::names::{NameSource, NameTable};
use crate::streams::StreamTable;
use crate::stride::Strides;
use crate::walk::{self, Env, Next, Step, Tally};
use crate::write::Sink;
use core::sync::atomic::AtomicU64;
pub use gtop_protocol::Damage;
use gtop_protocol::frame::{FrameKind, HEADER_LEN, write_frame};
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Goodbye, Hello, HelloFields, Loss, names};
use gtop_protocol::validity::Bounds;
use gtop_protocol::wire::{Full, Reader, Writer};
use std::collections::HashMap;

const VERSION: &[u8] = b"UTIBUF1\0";
const BUFFER: &[u8] = b"UTIBUF\0\0";
const NAMES: &[u8] = b"UNAMES\0\0";
/// Bytes of the frames made here.
const FRAME_LEN: usize = 64 << 10;

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What `cuptiGetVersion` said where the file was made.
    pub version: Option<u32>,
    /// Activity buffers read, the last one perhaps in part.
    pub buffers: u64,
    /// What became of the records.
    pub tally: Tally,
    /// The first damage, if there is any. What lies before it was read.
    pub damage: Option<Damage>,
}

/// Whether `bytes` begin as a file of raw activity buffers.
#[must_use]
pub fn is_buffers(bytes: &[u8]) -> bool {
    bytes.starts_with(VERSION)
}

/// Reads a whole decompressed file and gives its frames to `emit`, each complete with its header: hello, names,
/// records, loss and goodbye. Damage anywhere ends the reading of what cannot be used and is reported; it is
/// never an error.
pub fn read(bytes: &[u8], emit: &mut dyn FnMut(&[u8])) -> Summary {
    let mut file = File::split(bytes);
    let mut summary = Summary { version: file.version, ..Summary::default() };
    let (Some(table), Some(streams)) = (NameTable::new(), StreamTable::new()) else {
        summary.damage = Some(Damage { offset: 0, what: "there is no memory to read it" });
        return summary;
    };
    let version = file.version.unwrap_or(0);
    let strides = Strides::of(version);
    let correlation = AtomicU64::new(0);
    let mut out = Frames { emit, seq: 0, scratch: Vec::new(), spare: None, names: &table, named: 1 };
    let hello = HelloFields {
        cupti_version: file.version.map(u64::from),
        cupti_interface: 1,
        launches: u8::from(file.buffers.iter().any(|buffer| holds_launches(buffer.bytes, &strides))),
        ..HelloFields::default()
    };
    out.send(FrameKind::Hello, |w| Hello::new(hello).write(w));
    let env = Env {
        names: &table,
        streams: &streams,
        correlation: &correlation,
        bounds: Bounds::UNKNOWN,
        kernel_until: u64::MAX,
        // What was asked for is not in the file; nothing is said about it.
        asked: KindSet(u32::MAX),
        version,
        sources: false,
    };
    for buffer in std::mem::take(&mut file.buffers) {
        let mut stepper = StrideStep { strides: &strides, bytes: buffer.bytes, at: 0, stuck: None };
        let tally = walk::walk(&mut stepper, &env, &file, &mut out);
        add(&mut summary.tally, &tally);
        summary.buffers = summary.buffers.saturating_add(1);
        if let Some((at, what)) = stepper.stuck.filter(|_| !buffer.cut) {
            file.note_damage(buffer.offset.saturating_add(at), what);
        }
    }
    summary.damage = file.damage.map(|(offset, what)| Damage { offset: offset as u64, what });
    let tally = summary.tally;
    let loss = Loss {
        walked: tally.walked,
        framed: tally.framed,
        queue_full: tally.queue_full,
        unknown_kind: tally.unknown_kind,
        unknown_bytes: tally.unknown_bytes,
        kernel: tally.kernel,
        memcpy: tally.memcpy,
        memset: tally.memset,
        other: tally.other,
        offered: tally.framed,
        ..Loss::default()
    };
    out.send(FrameKind::Loss, |w| loss.write(w));
    let reason = summary.damage.as_ref().map_or_else(|| "end of file".into(), Damage::to_string);
    out.send(FrameKind::Goodbye, |w| Goodbye { reason: reason.as_bytes() }.write(w));
    summary
}

/// Whether records of API calls are in a buffer.
fn holds_launches(bytes: &[u8], strides: &Strides) -> bool {
    let mut stepper = StrideStep::new(strides, bytes);
    while let Next::Record(record) = stepper.step() {
        let kind = record.first_chunk().map(|kind| u32::from_le_bytes(*kind));
        if [Kind::Driver, Kind::Runtime].iter().any(|call| Some(call.cupti()) == kind) {
            return true;
        }
    }
    false
}

fn add(sum: &mut Tally, one: &Tally) {
    sum.walked = sum.walked.saturating_add(one.walked);
    sum.framed = sum.framed.saturating_add(one.framed);
    sum.queue_full = sum.queue_full.saturating_add(one.queue_full);
    sum.unknown_kind = sum.unknown_kind.saturating_add(one.unknown_kind);
    sum.unknown_bytes = sum.unknown_bytes.saturating_add(one.unknown_bytes);
    sum.kernel = sum.kernel.saturating_add(one.kernel);
    sum.memcpy = sum.memcpy.saturating_add(one.memcpy);
    sum.memset = sum.memset.saturating_add(one.memset);
    sum.other = sum.other.saturating_add(one.other);
    sum.invalid = sum.invalid.saturating_add(one.invalid);
    sum.launches = sum.launches.saturating_add(one.launches);
}

/// One activity buffer in the file.
struct Buffer<'a> {
    bytes: &'a [u8],
    /// Where it begins in the file.
    offset: usize,
    /// Whether the file ends within it.
    cut: bool,
}

/// The chunks of a file.
struct File<'a> {
    version: Option<u32>,
    buffers: Vec<Buffer<'a>>,
    names: HashMap<u64, &'a [u8]>,
    damage: Option<(usize, &'static str)>,
}

impl<'a> File<'a> {
    fn split(bytes: &'a [u8]) -> Self {
        let mut file = File { version: None, buffers: Vec::new(), names: HashMap::new(), damage: None };
        let mut reader = Reader::new(bytes);
        if !is_buffers(bytes) {
            file.note_damage(0, "this is not a file of raw activity buffers");
            return file;
        }
        let mut complete = false;
        while !reader.is_empty() {
            let at = bytes.len().saturating_sub(reader.rest().len());
            let (tag, number) = (reader.bytes(8), reader.u64());
            if reader.is_bad() || tag.len() < 8 {
                file.note_damage(at, "the file ends within a chunk's head");
                return file;
            }
            match tag {
                VERSION => file.version = u32::try_from(number).ok(),
                BUFFER => file.buffer(bytes, &mut reader, number),
                NAMES => complete = file.take_names(bytes, &mut reader, number),
                _ => {
                    file.note_damage(at, "no chunk begins here");
                    return file;
                }
            }
        }
        if !complete {
            file.note_damage(bytes.len(), "the file ends before the names");
        }
        file
    }

    fn buffer(&mut self, bytes: &'a [u8], reader: &mut Reader<'a>, len: u64) {
        let offset = bytes.len().saturating_sub(reader.rest().len());
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let buffer = reader.bytes(len);
        let cut = buffer.len() < len;
        if cut {
            self.note_damage(bytes.len(), "the file ends within a buffer");
        }
        self.buffers.push(Buffer { bytes: buffer, offset, cut });
    }

    fn take_names(&mut self, bytes: &'a [u8], reader: &mut Reader<'a>, count: u64) -> bool {
        for _ in 0..count {
            let (pointer, name) = (reader.u64(), reader.blob());
            if reader.is_bad() || reader.is_empty() && name.is_empty() && pointer == 0 {
                self.note_damage(bytes.len(), "the file ends within the names");
                return false;
            }
            self.names.insert(pointer, name);
        }
        true
    }

    /// Keeps the earliest damage.
    fn note_damage(&mut self, offset: usize, what: &'static str) {
        if self.damage.is_none_or(|(known, _)| offset < known) {
            self.damage = Some((offset, what));
        }
    }
}

impl NameSource for File<'_> {
    fn name(&self, pointer: u64) -> Option<&[u8]> {
        self.names.get(&pointer).copied()
    }
}

/// Steps by the sizes of a CUPTI version.
#[derive(Debug)]
pub struct StrideStep<'a> {
    strides: &'a Strides,
    bytes: &'a [u8],
    at: usize,
    /// Where and why it cannot go on.
    stuck: Option<(usize, &'static str)>,
}

impl<'a> StrideStep<'a> {
    /// Steps through one buffer.
    #[must_use]
    pub const fn new(strides: &'a Strides, bytes: &'a [u8]) -> Self {
        Self { strides, bytes, at: 0, stuck: None }
    }
}

impl Step for StrideStep<'_> {
    fn step(&mut self) -> Next<'_> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(kind) = rest.first_chunk().map(|kind| u32::from_le_bytes(*kind)) else {
            if !rest.is_empty() {
                self.stuck = Some((self.at, "a buffer ends within a record"));
            }
            return Next::End(rest.len());
        };
        let Some(size) = self.strides.get(kind) else {
            self.stuck = Some((self.at, "a record of a kind this CUPTI does not have"));
            return Next::Stuck(rest.len());
        };
        if rest.len() < size {
            self.stuck = Some((self.at, "a buffer ends within a record"));
            return Next::End(rest.len());
        }
        self.at = self.at.saturating_add(size);
        Next::Record(rest)
    }
}

/// Gives frames as they are made, names first.
struct Frames<'a> {
    emit: &'a mut dyn FnMut(&[u8]),
    seq: u64,
    scratch: Vec<u8>,
    spare: Option<Body>,
    names: &'a NameTable,
    /// The first name not given yet.
    named: u32,
}

/// A frame's bytes, of which the body is what the walk writes to.
struct Body(Vec<u8>);

impl AsMut<[u8]> for Body {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.get_mut(HEADER_LEN..).unwrap_or_default()
    }
}

impl Frames<'_> {
    fn send(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) {
        self.scratch.resize(FRAME_LEN, 0);
        self.seq = self.seq.saturating_add(1);
        if let Ok(len) = write_frame(&mut self.scratch, kind, self.seq, body)
            && let Some(frame) = self.scratch.get(..len)
        {
            (self.emit)(frame);
        }
    }

    fn send_names(&mut self) {
        let table = self.names;
        while self.named < table.end() {
            let first = self.named;
            let mut next = first;
            self.send(FrameKind::Names, |w| {
                while next < table.end()
                    && names::write_one(w, next, table.get(next).unwrap_or_default()).is_ok()
                {
                    next = next.saturating_add(1);
                }
                Ok(())
            });
            if next == first {
                return;
            }
            self.named = next;
        }
    }
}

impl Sink for Frames<'_> {
    type Frame = Body;

    fn take(&mut self) -> Option<Body> {
        Some(self.spare.take().unwrap_or_else(|| Body(vec![0; FRAME_LEN])))
    }

    fn push(&mut self, mut frame: Body, len: usize, _records: u32) -> bool {
        self.send_names();
        self.seq = self.seq.saturating_add(1);
        let written = write_frame(&mut frame.0, FrameKind::Records, self.seq, |w| w.skip(len));
        if let Ok(total) = written
            && let Some(bytes) = frame.0.get(..total)
        {
            (self.emit)(bytes);
        }
        self.spare = Some(frame);
        true
    }
}
