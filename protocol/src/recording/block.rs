//! How a recording is laid out: the head of the file, blocks, and what a block says of itself.

use super::At;
use super::rows::MAX_RECORDS;
use crate::message::{Damaged, Field, message};
use crate::record::Family;
use crate::validity::Validity;
use crate::wire::{Full, Reader, Writer};

/// How a recording begins.
pub(super) const MAGIC: [u8; 8] = *b"gtoprec\n";
/// The format written here. It goes up only when an older reader would be misled, not when something is appended.
pub(super) const VERSION: u16 = 1;
/// Bytes before the head's fields: magic, `u16` version, `u16` zero, `u32` length, `u32` checksum of the fields.
pub(super) const HEAD_LEN: usize = 20;
/// The longest head, in bytes.
pub(super) const MAX_HEAD: usize = 64 << 10;

/// How a block begins.
pub(super) const BLOCK_MAGIC: [u8; 4] = *b"gblk";
/// Bytes of a block before its summary.
pub(super) const BLOCK_LEN: usize = 32;
/// The block type of chunks; unknown types are passed over.
pub(super) const CHUNK: u8 = 1;
/// The block type of the index.
pub(super) const INDEX: u8 = 2;
/// The block type of what is said again before the chunk of its number: a chunk without rows, of which no index tells.
pub(super) const STATE: u8 = 3;
/// How a file with an index ends: `u64` place of the index block, and this.
pub(super) const TRAILER_MAGIC: [u8; 8] = *b"gtopidx\n";
/// Bytes of the trailer.
pub(super) const TRAILER_LEN: usize = 16;

/// The longest summary, in bytes.
pub(super) const MAX_SUMMARY: usize = 64 << 10;
/// The longest side of a chunk, in bytes, unpacked; packed it is not much longer.
pub(super) const MAX_SIDE: usize = 8 << 20;
/// The longest state block, in bytes, unpacked: it has all that is kept of a stream.
pub(super) const MAX_STATE: usize = 64 << 20;
/// The longest rows of a chunk, in bytes, unpacked.
pub(super) const MAX_ROWS: usize = 32 << 20;
/// The longest index, in bytes: a chunk a second for more than a month.
pub(super) const MAX_INDEX: usize = 1 << 30;

message! {
    /// Where and by what a recording was made. Texts are bytes as the system gave them.
    pub struct HeadFields<'a> {
        /// The version of the gtop that wrote it.
        pub gtop_version: &'a [u8],
        /// The name of the machine.
        pub host: &'a [u8],
        /// `/proc/sys/kernel/random/boot_id`.
        pub boot_id: &'a [u8],
        /// The version of the NVIDIA driver, or empty.
        pub driver: &'a [u8],
        /// When it began, `CLOCK_REALTIME` nanoseconds.
        pub began: u64,
        /// Which part this is of a recording that goes on over several files, from 1.
        pub part: u32,
        /// What was watched, for people: `pid 844`, `demo vllm`.
        pub label: &'a [u8],
    }
}

mod summary {
    #![expect(unreachable_pub, reason = "messages are public within what they are in")]

    use crate::message::{Damaged, Field, message};
    use crate::wire::{Full, Reader, Writer};

    message! {
        /// What a chunk says of itself.
        pub struct Summary<'a> {
            pub first_wall: u64,
            pub first_steady: u64,
            pub last_wall: u64,
            pub last_steady: u64,
            pub frames: u32,
            /// Bytes unpacked, and checksums of the bytes packed.
            pub side_raw: u32,
            pub side_check: u32,
            pub rows_raw: u32,
            pub rows_check: u32,
            /// CUPTI's time of the first believable start and the last believable end; 0 without any.
            pub start: u64,
            pub end: u64,
            /// `u32` records of each validity class, and of none.
            pub classes: &'a [u8],
            /// `u32` stream, and `u32` records of each family, repeated.
            pub streams: &'a [u8],
            /// Where the last state block before it is; 0 without one.
            pub state: u64,
        }
    }
}
use summary::Summary;

/// Records by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; Family::ALL.len()]);

impl Counts {
    /// The records of a family.
    #[must_use]
    pub fn of(&self, family: Family) -> u64 {
        self.0.get((family as usize).saturating_sub(1)).copied().unwrap_or_default()
    }

    /// All records.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds records.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }

    pub(super) fn count(&mut self, family: Family, records: usize) {
        if let Some(sum) = self.0.get_mut((family as usize).saturating_sub(1)) {
            *sum = sum.saturating_add(records as u64);
        }
    }
}

/// One chunk of a recording, as the index tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// When its first frame came.
    pub first: At,
    /// When its last frame came.
    pub last: At,
    /// How many frames it holds.
    pub frames: u32,
    /// CUPTI's time of the first believable start and the last believable end, nanoseconds.
    pub span: Option<(u64, u64)>,
    /// Records by validity, in wire order, and those whose class is not known.
    pub classes: [u64; Validity::ALL.len() + 1],
    /// Records of each stream.
    pub streams: Vec<(u32, Counts)>,
    /// Where the block is, and its parts' lengths.
    pub(super) offset: u64,
    pub(super) number: u32,
    pub(super) summary_len: u32,
    pub(super) state: u64,
    pub(super) side: Packed,
    pub(super) rows: Packed,
}

/// One packed part of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    /// Bytes in the file.
    pub(super) len: u32,
    /// Bytes unpacked.
    pub(super) raw: u32,
    /// Checksum of the bytes in the file.
    pub(super) check: u32,
}

impl Packed {
    /// Whether it has no more than so many bytes, packed or not: what cannot be packed becomes a little longer.
    const fn fits(&self, longest: usize) -> bool {
        self.raw as usize <= longest && self.len as usize <= longest.saturating_add(longest >> 6)
    }
}

impl Chunk {
    /// All records in it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.streams.iter().for_each(|(_, counts)| sum.add(counts));
        sum
    }

    /// Records whose times cannot be believed, as the shim judged them.
    #[must_use]
    pub fn invalid(&self) -> u64 {
        self.classes.iter().skip(1).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The summary's bytes.
    pub(super) fn summary(&self) -> Vec<u8> {
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        let classes: Vec<u8> = self.classes.iter().flat_map(|count| small(*count)).collect();
        let mut streams = Vec::new();
        for (stream, counts) in &self.streams {
            streams.extend_from_slice(&stream.to_le_bytes());
            counts.0.iter().for_each(|count| streams.extend_from_slice(&small(*count)));
        }
        let (start, end) = self.span.unwrap_or_default();
        let summary = Summary {
            first_wall: self.first.wall,
            first_steady: self.first.steady,
            last_wall: self.last.wall,
            last_steady: self.last.steady,
            frames: self.frames,
            side_raw: self.side.raw,
            side_check: self.side.check,
            rows_raw: self.rows.raw,
            rows_check: self.rows.check,
            start,
            end,
            classes: &classes,
            streams: &streams,
            state: self.state,
        };
        let mut bytes = vec![0; MAX_SUMMARY];
        let mut w = Writer::new(&mut bytes);
        // The writer of chunks keeps the streams of one within what fits.
        let _ = summary.write(&mut w);
        let len = w.len();
        bytes.truncate(len);
        bytes
    }

    /// The chunk that a block head and a summary tell of; `None` when they make no sense.
    pub(super) fn read(head: &BlockHead, offset: u64, bytes: &[u8]) -> Option<Self> {
        let summary = Summary::read(bytes).ok()?;
        let mut chunk = Self {
            first: At { wall: summary.first_wall, steady: summary.first_steady },
            last: At { wall: summary.last_wall, steady: summary.last_steady },
            frames: summary.frames,
            span: (summary.end != 0).then_some((summary.start, summary.end)),
            offset,
            number: head.number,
            summary_len: head.summary,
            state: summary.state,
            side: Packed { len: head.side, raw: summary.side_raw, check: summary.side_check },
            rows: Packed { len: head.rows, raw: summary.rows_raw, check: summary.rows_check },
            ..Self::default()
        };
        let mut classes = Reader::new(summary.classes);
        for count in &mut chunk.classes {
            *count = u64::from(classes.u32());
        }
        let mut streams = Reader::new(summary.streams);
        while !streams.is_empty() {
            let stream = streams.u32();
            let counts = Counts(std::array::from_fn(|_| u64::from(streams.u32())));
            chunk.streams.push((stream, counts));
        }
        let longest = if head.kind == STATE { MAX_STATE } else { MAX_SIDE };
        let fits = chunk.side.fits(longest)
            && chunk.rows.fits(MAX_ROWS)
            && chunk.counts().total() <= MAX_RECORDS as u64
            && !streams.is_bad();
        fits.then_some(chunk)
    }
}

/// The first bytes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub(super) kind: u8,
    pub(super) number: u32,
    pub(super) summary: u32,
    pub(super) side: u32,
    pub(super) rows: u32,
    /// Checksum of everything above and of the summary.
    pub(super) check: u32,
}

impl BlockHead {
    /// The head in its form in the file, with the checksum that `summary` makes of it.
    pub(super) fn to_bytes(self, summary: &[u8]) -> [u8; BLOCK_LEN] {
        let mut bytes = [0; BLOCK_LEN];
        let mut w = Writer::new(&mut bytes);
        let mut write = || {
            w.bytes(&BLOCK_MAGIC)?;
            w.u32(u32::from(self.kind))?;
            [self.number, self.summary, self.side, self.rows].into_iter().try_for_each(|field| w.u32(field))
        };
        // Thirty-two bytes hold the twenty-four written here and the checksum.
        let _ = write();
        let check = Self::check(&bytes, summary);
        if let Some(to) = bytes.get_mut(24..28) {
            to.copy_from_slice(&check.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8; BLOCK_LEN]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        if r.bytes(4) != BLOCK_MAGIC {
            return None;
        }
        let kind = r.u32() as u8;
        let head =
            Self { kind, number: r.u32(), summary: r.u32(), side: r.u32(), rows: r.u32(), check: r.u32() };
        let limit = if kind == INDEX { MAX_INDEX } else { MAX_SUMMARY };
        (head.summary as usize <= limit).then_some(head)
    }

    /// The checksum of a head and its summary.
    pub(super) fn check(bytes: &[u8; BLOCK_LEN], summary: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes.get(..24).unwrap_or_default());
        hasher.update(summary);
        hasher.finalize()
    }

    /// Bytes of the whole block.
    pub(super) const fn len(&self) -> u64 {
        (BLOCK_LEN as u64)
            .saturating_add(self.summary as u64)
            .saturating_add(self.side as u64)
            .saturating_add(self.rows as u64)
    }
}

/// One chunk in the index: its head, where it is, and its summary.
pub(super) fn write_entry(chunk: &Chunk, out: &mut Vec<u8>) {
    let summary = chunk.summary();
    out.extend_from_slice(&chunk.offset.to_le_bytes());
    for field in [chunk.number, summary.len() as u32, chunk.side.len, chunk.rows.len] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&summary);
}

/// The chunks of an index; `None` when it makes no sense.
pub(super) fn read_entries(bytes: &[u8]) -> Option<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let offset = r.u64();
        let (number, summary, side, rows) = (r.u32(), r.u32(), r.u32(), r.u32());
        let head = BlockHead { kind: CHUNK, number, summary, side, rows, check: 0 };
        let chunk = Chunk::read(&head, offset, r.bytes(summary as usize))?;
        if r.is_bad() || chunks.last().is_some_and(|last| last.offset >= offset || last.number >= number) {
            return None;
        }
        chunks.push(chunk);
    }
    Some(chunks)
}
