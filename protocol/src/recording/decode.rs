//! Turning a chunk of a recording back into frames.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;

use super::block::{Chunk, MAX_ROWS, MAX_STATE};
use super::pack::{Source, unzigzag};
use super::rows::{Files, MAX_RECORDS};
use super::write::{AS_ROWS, VERBATIM};
use super::{At, Damage, Entry};
use crate::frame::{Frame, Header, MAX_BODY, RUN_HEADER_LEN};

/// A chunk's bytes, checked.
#[derive(Debug)]
pub struct Block {
    pub(super) chunk: Chunk,
    pub(super) side: Vec<u8>,
    pub(super) rows: Option<Vec<u8>>,
}

/// Turns chunks back into frames; its buffers are used again.
#[derive(Default)]
pub struct Decoder {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    side: Vec<u8>,
    rows: Vec<u8>,
    bodies: Vec<u8>,
    files: Files,
    seqs: HashMap<u32, u64>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// A frame whose body lies among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// When it came.
    pub at: At,
    /// Of which stream.
    pub stream: u32,
    /// Its header.
    pub header: Header,
    /// Where its body begins; it is as long as the header says.
    pub from: usize,
}

impl Placed {
    /// The frame, out of the bodies that it lies among; `None` when it is not there.
    #[must_use]
    pub fn entry<'a>(&self, bodies: &'a [u8]) -> Option<Entry<'a>> {
        let Self { at, stream, header, from } = *self;
        let body = bodies.get(from..)?.get(..header.len as usize)?;
        Some(Entry { at, stream, frame: Frame { header, body } })
    }
}

impl Decoder {
    /// Gives the frames of a chunk to `emit` until that breaks off; says whether it did.
    pub fn decode(
        &mut self,
        block: &Block,
        emit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Damage> {
        let mut bodies = std::mem::take(&mut self.bodies);
        bodies.clear();
        let done = self.decode_into(block, &mut bodies, &mut |bodies, placed| {
            let go_on = placed.entry(bodies).map_or(ControlFlow::Continue(()), |entry| emit(&entry));
            bodies.clear();
            go_on
        });
        self.bodies = bodies;
        done
    }

    /// Appends the bodies of a chunk's frames to `bodies` and tells of each until `emit` breaks off, which may take them
    /// all and leave another buffer; says whether it broke off.
    pub fn decode_into(
        &mut self,
        block: &Block,
        bodies: &mut Vec<u8>,
        emit: &mut dyn FnMut(&mut Vec<u8>, Placed) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Damage> {
        let damage = |what| Damage { offset: block.chunk.offset, what };
        let cannot = || damage("a chunk cannot be decompressed");
        self.unpack(&block.side, block.chunk.side.raw, false).ok_or_else(cannot)?;
        if let Some(rows) = &block.rows {
            self.unpack(rows, block.chunk.rows.raw, true).ok_or_else(cannot)?;
            self.files.read(&self.rows).ok_or_else(|| damage("the records of a chunk make no sense"))?;
        }
        self.frames(&block.chunk, block.rows.is_some(), bodies, emit)
            .ok_or_else(|| damage("the frames of a chunk make no sense"))
    }

    fn unpack(&mut self, bytes: &[u8], raw: u32, rows: bool) -> Option<()> {
        let (to, limit) = if rows { (&mut self.rows, MAX_ROWS) } else { (&mut self.side, MAX_STATE) };
        let raw = (raw as usize).min(limit);
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Decompressor::new().ok()?),
        };
        to.clear();
        to.reserve(raw);
        // What wants to become longer than the room there is fails.
        let len = zstd.decompress_to_buffer(bytes, to).ok()?;
        (len == raw).then_some(())
    }

    fn frames(
        &mut self,
        chunk: &Chunk,
        with_rows: bool,
        bodies: &mut Vec<u8>,
        emit: &mut dyn FnMut(&mut Vec<u8>, Placed) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let mut source = Source(&self.side);
        let mut at = chunk.first;
        let mut records = MAX_RECORDS;
        self.seqs.clear();
        for _ in 0..chunk.frames {
            let stream = u32::try_from(source.varint()?).ok()?;
            let kind = u16::try_from(source.varint()?).ok()?;
            let last = self.seqs.entry(stream).or_default();
            let seq = last.wrapping_add(1).wrapping_add(unzigzag(source.varint()?));
            *last = seq;
            at = At {
                wall: at.wall.wrapping_add(unzigzag(source.varint()?)),
                steady: at.steady.wrapping_add(unzigzag(source.varint()?)),
            };
            let from = bodies.len();
            match source.byte()? {
                VERBATIM => {
                    let len = source.limited(MAX_BODY)?;
                    bodies.extend_from_slice(source.take(len)?);
                }
                AS_ROWS => {
                    for _ in 0..source.varint()? {
                        let table = source.limited(MAX_RECORDS)?;
                        let count = source.limited(records)?;
                        records = records.saturating_sub(count);
                        if !with_rows {
                            continue;
                        }
                        let (family, size) = self.files.kind(table)?;
                        let len = count.checked_mul(size)?.checked_add(RUN_HEADER_LEN)?;
                        if bodies.len().checked_sub(from)?.checked_add(len)? > MAX_BODY {
                            return None;
                        }
                        bodies.extend_from_slice(&[family as u8, 0, 0, 0]);
                        bodies.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
                        self.files.take(table, count, bodies)?;
                    }
                }
                _ => return None,
            }
            let header = Header { len: u32::try_from(bodies.len().checked_sub(from)?).ok()?, kind, seq };
            if emit(bodies, Placed { at, stream, header, from }).is_break() {
                return Some(ControlFlow::Break(()));
            }
        }
        Some(ControlFlow::Continue(()))
    }
}
