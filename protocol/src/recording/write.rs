//! Writing a recording: frames are gathered into chunks, and a chunk is one write.

use std::collections::HashMap;
use std::io;

use super::block::{
    BLOCK_LEN, BlockHead, CHUNK, Chunk, HEAD_LEN, HeadFields, INDEX, MAGIC, MAX_HEAD, MAX_STATE, Packed,
    STATE, TRAILER_LEN, TRAILER_MAGIC, VERSION, write_entry,
};
use super::keep::Keep;
use super::pack::{put_varint, zigzag};
use super::rows::Rows;
use super::{At, Entry};
use crate::frame::{Frame, FrameKind, MAX_BODY, Runs};
use crate::wire::Writer as Fields;

/// A chunk is closed when it holds frames of this time, nanoseconds: what is lost when the writer is killed.
const CHUNK_TIME: u64 = 900_000_000;
/// … so many bytes besides records,
const CHUNK_SIDE: usize = 1 << 20;
/// … so many bytes of records,
const CHUNK_ROWS: usize = 6 << 20;
/// … so many frames,
const CHUNK_FRAMES: u32 = 1 << 16;
/// … or frames of so many streams.
const CHUNK_STREAMS: usize = 512;
/// What is known is said again when so many chunks have come, for who jumps behind them,
const STATE_CHUNKS: u32 = 64;
/// … and so many times the bytes that saying it took last time.
const STATE_SHARE: u64 = 16;
/// However little a file may hold, it takes in so many bytes of frames besides what it says again.
const LEAST: u64 = 16 << 10;
/// Bytes that a frame takes in a side besides its body, at most.
const FRAME_COST: usize = 64;
/// How hard zstd tries: its own default.
const LEVEL: i32 = 3;

/// How a frame's body is kept. Values in the file.
pub(super) const VERBATIM: u8 = 0;
/// As runs of rows.
pub(super) const AS_ROWS: u8 = 1;

/// Writes one recording.
pub struct Writer<W> {
    out: W,
    /// Bytes written to `out`.
    offset: u64,
    chunks: Vec<Chunk>,
    records: u64,
    open: Open,
    keep: Keep,
    said: Said,
    size: Size,
    /// Whether the file has its index.
    ended: bool,
    zstd: zstd::bulk::Compressor<'static>,
}

/// When everything known was said last.
#[derive(Default)]
struct Said {
    /// Where; 0 for never.
    offset: u64,
    /// In so many bytes.
    bytes: u64,
    /// Chunks and bytes since.
    chunks: u32,
    since: u64,
}

/// What is known of how large a file becomes.
#[derive(Default)]
struct Size {
    /// Bytes that the index will have for the chunks so far.
    index: u64,
    /// Bytes of frames taken in, and those of them that only say again what was known.
    taken: u64,
    again: u64,
    /// Bytes of sides and of records that became one byte in the last chunk, times 16.
    ratios: [u64; 2],
}

/// What is assumed before anything was packed.
const RATIOS: [u64; 2] = [2 * 16, 8 * 16];
/// About what a chunk takes besides its frames, in the file and in its index.
const CHUNK_COST: u64 = 2 * (BLOCK_LEN as u64 + 160);

/// The chunk that is being filled.
#[derive(Default)]
struct Open {
    chunk: Chunk,
    side: Vec<u8>,
    rows: Rows,
    row_bytes: usize,
    /// The sequence number each stream had last.
    seqs: HashMap<u32, u64>,
}

impl<W: io::Write> Writer<W> {
    /// Begins a recording. What `keep` holds of what came before is said at its beginning.
    pub fn begin(mut out: W, head: &HeadFields<'_>, keep: Keep, at: At) -> io::Result<Self> {
        let head = head_bytes(head)?;
        out.write_all(&head)?;
        let mut writer = Self {
            out,
            offset: head.len() as u64,
            chunks: Vec::new(),
            records: 0,
            open: Open::default(),
            keep: Keep::default(),
            said: Said::default(),
            size: Size { ratios: RATIOS, ..Size::default() },
            ended: false,
            zstd: zstd::bulk::Compressor::new(LEVEL)?,
        };
        let mut said = Ok(());
        keep.say(at, |entry| {
            if said.is_ok() {
                said = writer.put(entry);
            }
        });
        said?;
        writer.keep = keep;
        writer.said = Said::default();
        writer.size.again = writer.size.taken;
        Ok(writer)
    }

    /// Bytes written to the file so far, without the chunk that is being filled.
    pub const fn bytes(&self) -> u64 {
        self.offset
    }

    /// Whether the file would likely become larger than so many bytes if this frame was added. A file takes in as much
    /// as it says again of what came before, however large that makes it.
    pub fn is_full(&self, limit: u64, next: &Frame<'_>) -> bool {
        let Size { index, taken, again, ratios } = self.size;
        let mut open: [u64; 2] = [self.open.side.len() as u64, self.open.row_bytes as u64];
        if let Some(sum) = open.get_mut(usize::from(next.kind() == Some(FrameKind::Records))) {
            *sum = sum.saturating_add(next.body.len() as u64);
        }
        let packed =
            |(bytes, ratio): (u64, u64)| bytes.saturating_mul(18).checked_div(ratio).unwrap_or(bytes);
        let open = open.into_iter().zip(ratios).map(packed).fold(0, u64::saturating_add);
        let end = index.saturating_add((BLOCK_LEN as u64).saturating_add(TRAILER_LEN as u64));
        let all = [self.offset, open, end, CHUNK_COST].into_iter().fold(0, u64::saturating_add);
        all > limit && taken.saturating_sub(again) >= LEAST.max(again)
    }

    /// Records taken in, over all files.
    pub fn records(&self) -> u64 {
        self.records.saturating_add(self.open.chunk.counts().total())
    }

    /// Adds a frame. After an error nothing more may be written, and [`Writer::rescue`] makes a whole file of what there is.
    pub fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.make_room(entry)?;
        self.keep.add(entry);
        self.take(entry);
        Ok(())
    }

    /// Takes in a frame that is not to be written but may be needed to understand what follows.
    pub fn pass(&mut self, entry: &Entry<'_>) {
        self.keep.add(entry);
    }

    /// Writes the chunk that is being filled if it is old enough; to be called a few times a second.
    pub fn tick(&mut self, now: At) -> io::Result<()> {
        let open = &self.open.chunk;
        if open.frames > 0 && now.steady.saturating_sub(open.first.steady) >= CHUNK_TIME {
            self.close()?;
        }
        Ok(())
    }

    /// Writes the chunk that is being filled, however little is in it.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.open.chunk.frames > 0 { self.close() } else { Ok(()) }
    }

    /// Ends the file with its index.
    pub fn finish(mut self) -> io::Result<W> {
        self.end()?;
        Ok(self.out)
    }

    /// Ends the file and goes on in another one, which begins with what must be known to understand it. Gives the
    /// file that has ended.
    pub fn rotate(&mut self, out: W, head: &HeadFields<'_>, at: At) -> io::Result<W> {
        self.end()?;
        let mut next = Self::begin(out, head, std::mem::take(&mut self.keep), at)?;
        next.records = self.records;
        next.size.ratios = self.size.ratios;
        Ok(std::mem::replace(self, next).out)
    }

    /// Ends a file that could not be written further, as on a full disk, behind its last whole chunk; where even the index
    /// has no room, chunks give way to it. `cut` takes away what lies behind so many bytes, and goes on from there. Gives
    /// the bytes and, over all files, the records that are kept; of a file without a chunk it is said that it has none.
    pub fn rescue(mut self, mut cut: impl FnMut(&mut W, u64) -> io::Result<()>) -> io::Result<(u64, u64)> {
        self.open = Open::default();
        while !self.ended && !self.chunks.is_empty() {
            cut(&mut self.out, self.offset)?;
            if self.end().is_err()
                && let Some(last) = self.chunks.pop()
            {
                self.offset = last.offset;
                self.records = self.records.saturating_sub(last.counts().total());
            }
        }
        Ok((if self.ended { self.offset } else { 0 }, self.records))
    }

    fn put(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.make_room(entry)?;
        self.take(entry);
        Ok(())
    }

    fn take(&mut self, entry: &Entry<'_>) {
        self.open.put(entry, &self.keep);
        self.size.taken = self.size.taken.saturating_add(entry.frame.body.len() as u64);
    }

    /// Closes the chunk when the next frame belongs into another one.
    fn make_room(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        if entry.frame.body.len() > MAX_BODY {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let open = &self.open;
        let full = open.side.len() >= CHUNK_SIDE
            || open.row_bytes >= CHUNK_ROWS
            || open.chunk.frames >= CHUNK_FRAMES
            || open.chunk.streams.len() >= CHUNK_STREAMS
            || entry.at.steady.saturating_sub(open.chunk.first.steady) >= CHUNK_TIME;
        if full && open.chunk.frames > 0 {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Open { mut chunk, side, mut rows, row_bytes, .. } = std::mem::take(&mut self.open);
        chunk.span = rows.span;
        chunk.classes = rows.classes();
        let mut columns = Vec::new();
        rows.finish(&mut columns);
        let chunk = self.put_block(CHUNK, chunk, &side, Some(&columns))?;
        self.said.chunks = self.said.chunks.saturating_add(1);
        self.said.since = self.said.since.saturating_add(self.offset.saturating_sub(chunk.offset));
        self.records = self.records.saturating_add(chunk.counts().total());
        let entry = BLOCK_LEN.saturating_sub(8).saturating_add(chunk.summary_len as usize);
        self.size.index = self.size.index.saturating_add(entry as u64);
        let became = [(side.len(), chunk.side.len), (row_bytes, chunk.rows.len)];
        for (ratio, (bytes, packed)) in self.size.ratios.iter_mut().zip(became) {
            // A little tells nothing.
            if bytes >= 4 << 10 {
                *ratio = (bytes as u64).saturating_mul(16).checked_div(u64::from(packed)).unwrap_or_default();
            }
        }
        self.chunks.push(chunk);
        let due = self.said.bytes.saturating_mul(STATE_SHARE);
        if self.said.chunks >= STATE_CHUNKS && self.said.since >= due { self.say() } else { Ok(()) }
    }

    /// Says everything that is known, as it is behind the last chunk.
    fn say(&mut self) -> io::Result<()> {
        let (mut open, mut whole) = (Open::default(), true);
        let at = self.chunks.last().map_or(At::default(), |chunk| chunk.last);
        self.keep.say_all(at, |entry| {
            whole &= open.side.len().saturating_add(entry.frame.body.len()) < MAX_STATE - FRAME_COST;
            if whole {
                open.put(entry, &self.keep);
            }
        });
        self.said = Said { offset: self.said.offset, bytes: open.side.len() as u64, ..Said::default() };
        if whole {
            let state = self.put_block(STATE, open.chunk, &open.side, None)?;
            self.said.offset = state.offset;
            self.said.bytes = self.offset.saturating_sub(state.offset);
        }
        Ok(())
    }

    /// Writes a block of this type behind all others; gives what is now known of it.
    fn put_block(&mut self, kind: u8, chunk: Chunk, side: &[u8], rows: Option<&[u8]>) -> io::Result<Chunk> {
        let mut pack = |bytes: &[u8]| -> io::Result<(Packed, Vec<u8>)> {
            let out = self.zstd.compress(bytes)?;
            let packed =
                Packed { len: length(out.len())?, raw: length(bytes.len())?, check: crc32fast::hash(&out) };
            Ok((packed, out))
        };
        let (side, side_bytes) = pack(side)?;
        let (rows, rows_bytes) = rows.map(pack).transpose()?.unwrap_or_default();
        let number = self.chunks.last().map_or(0, |last| last.number).saturating_add(1);
        let mut chunk = Chunk { side, rows, number, offset: self.offset, state: self.said.offset, ..chunk };
        let summary = chunk.summary();
        chunk.summary_len = length(summary.len())?;
        let head =
            BlockHead { kind, number, summary: chunk.summary_len, side: side.len, rows: rows.len, check: 0 };
        let block = [&head.to_bytes(&summary)[..], &summary, &side_bytes, &rows_bytes].concat();
        self.out.write_all(&block)?;
        self.out.flush()?;
        self.offset = self.offset.saturating_add(block.len() as u64);
        Ok(chunk)
    }

    /// Ends the file with its index. Nothing may be written behind that.
    pub fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        let mut entries = Vec::new();
        self.chunks.iter().for_each(|chunk| write_entry(chunk, &mut entries));
        let number = self.chunks.last().map_or(0, |last| last.number).saturating_add(1);
        let head = BlockHead { kind: INDEX, number, summary: length(entries.len())?, ..BlockHead::default() };
        let head = head.to_bytes(&entries);
        let block = [&head[..], &entries, &self.offset.to_le_bytes(), &TRAILER_MAGIC].concat();
        self.out.write_all(&block)?;
        self.out.flush()?;
        self.offset = self.offset.saturating_add(block.len() as u64);
        self.ended = true;
        Ok(())
    }
}

impl<W> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

fn length(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

fn head_bytes(head: &HeadFields<'_>) -> io::Result<Vec<u8>> {
    let mut fields = vec![0; MAX_HEAD];
    let mut w = Fields::new(&mut fields);
    head.write(&mut w).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let len = w.len();
    fields.truncate(len);
    let mut bytes = Vec::with_capacity(HEAD_LEN.saturating_add(len));
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&u32::from(VERSION).to_le_bytes());
    bytes.extend_from_slice(&length(len)?.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes);
    hasher.update(&fields);
    bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
    bytes.extend_from_slice(&fields);
    Ok(bytes)
}

impl Open {
    fn put(&mut self, entry: &Entry<'_>, keep: &Keep) {
        let (header, body) = (entry.frame.header, entry.frame.body);
        if self.chunk.frames == 0 {
            (self.chunk.first, self.chunk.last) = (entry.at, entry.at);
        }
        let before = self.chunk.last;
        self.chunk.last = entry.at;
        self.chunk.frames = self.chunk.frames.saturating_add(1);
        let seq = self.seqs.entry(entry.stream).or_default();
        let expected = std::mem::replace(seq, header.seq).wrapping_add(1);
        for number in [
            u64::from(entry.stream),
            u64::from(header.kind),
            zigzag(header.seq.wrapping_sub(expected)),
            zigzag(entry.at.wall.wrapping_sub(before.wall)),
            zigzag(entry.at.steady.wrapping_sub(before.steady)),
        ] {
            put_varint(&mut self.side, number);
        }
        if entry.frame.kind() != Some(FrameKind::Records) || !self.put_rows(entry, keep) {
            self.side.push(VERBATIM);
            put_varint(&mut self.side, body.len() as u64);
            self.side.extend_from_slice(body);
        }
    }

    /// Takes in the records of a records frame as rows, if it is made as such frames are.
    fn put_rows(&mut self, entry: &Entry<'_>, keep: &Keep) -> bool {
        let Some(sizes) = keep.sizes(entry.stream) else { return false };
        let body = entry.frame.body;
        let mut runs = Runs::new(body, sizes);
        let (mut count, mut at, mut odd) = (0u64, 0usize, false);
        for run in &mut runs {
            let Some(family) = run.family() else { return false };
            // The bytes between family and count are zero, or would not come back.
            odd |= body.get(at.saturating_add(1)..at.saturating_add(4)) != Some(&[0; 3]);
            odd |= self.rows.table(family, run.size).is_none();
            at = at.saturating_add(crate::frame::RUN_HEADER_LEN).saturating_add(run.bytes.len());
            count = count.saturating_add(1);
        }
        if odd || runs.is_bad() {
            return false;
        }
        self.side.push(AS_ROWS);
        put_varint(&mut self.side, count);
        let streams = &mut self.chunk.streams;
        let known = streams.iter().position(|(stream, _)| *stream == entry.stream).unwrap_or_else(|| {
            streams.push((entry.stream, super::Counts::default()));
            streams.len().saturating_sub(1)
        });
        for run in Runs::new(body, sizes) {
            let Some((family, table)) = run.family().and_then(|f| Some((f, self.rows.table(f, run.size)?)))
            else {
                continue;
            };
            put_varint(&mut self.side, table as u64);
            put_varint(&mut self.side, run.count() as u64);
            run.records().for_each(|record| self.rows.push(table, record));
            if let Some((_, counts)) = self.chunk.streams.get_mut(known) {
                counts.count(family, run.count());
            }
        }
        self.row_bytes = self.row_bytes.saturating_add(body.len());
        true
    }
}
