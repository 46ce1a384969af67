//! The one format: what crosses the socket, lies in a recording and is made by the simulator is a run of frames.
//!
//! A frame is a 16-byte header (`u32` body length, `u16` kind, `u16` zero, `u64` sequence number) and a body.
//! Sequence numbers count every frame offered to one connection, from 1, so that a gap shows what was dropped.
//! Unknown kinds are skipped; fields are only ever appended.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::record::{self, Family};
use crate::wire::{Full, Reader, Writer};

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 16;
/// The longest body anyone may send, in bytes.
pub const MAX_BODY: usize = 1 << 20;
/// The first bytes of a hello's body.
pub const MAGIC: [u8; 4] = *b"gtop";
/// The protocol spoken here. It goes up only when a reader of the old one would be misled, not when fields are
/// appended.
pub const PROTOCOL: u16 = 1;

/// What a frame holds. Wire values; below 256 from the shim, from 256 on from a viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FrameKind {
    /// [`message::Hello`](crate::message::Hello): the first frame, and again when what it says has changed.
    Hello = 1,
    /// [`message::Clock`](crate::message::Clock).
    Clock = 2,
    /// [`message::names`](crate::message::names).
    Names = 3,
    /// [`Runs`]: the records themselves.
    Records = 4,
    /// [`message::Kinds`](crate::message::Kinds).
    Kinds = 5,
    /// [`message::State`](crate::message::State).
    State = 6,
    /// [`message::HostBuffers`](crate::message::HostBuffers).
    HostBuffers = 7,
    /// [`message::pools`](crate::message::pools).
    Pools = 8,
    /// [`message::Loss`](crate::message::Loss).
    Loss = 9,
    /// [`message::DeviceSample`](crate::message::DeviceSample): from the viewer, kept in recordings.
    DeviceSample = 10,
    /// [`message::Notice`](crate::message::Notice).
    Notice = 11,
    /// [`message::Goodbye`](crate::message::Goodbye).
    Goodbye = 12,
    /// [`message::Reply`](crate::message::Reply): the answer to one control request.
    Reply = 13,
    /// [`lifecycle`](crate::lifecycle): events of graphs, captures and their like.
    Lifecycle = 15,
    /// [`message::Observers`](crate::message::Observers).
    Observers = 16,
    /// [`message::RawBuffer`](crate::message::RawBuffer): for a viewer that asked for such.
    RawBuffer = 20,
    /// [`message::Sampling`](crate::message::Sampling): sent while kinds are on in windows only, and once after.
    Sampling = 14,
    /// [`control::Request`](crate::control::Request).
    Request = 256,
    /// [`viewer::Watched`](crate::viewer::Watched): a process joins what is watched.
    Watched = 257,
    /// [`viewer::Link`](crate::viewer::Link).
    Link = 258,
    /// [`viewer::DeviceNote`](crate::viewer::DeviceNote).
    DeviceNote = 259,
    /// [`viewer::Earlier`](crate::viewer::Earlier).
    Earlier = 260,
    /// No body: the watch ended here. The last frame of a recording that was ended and not broken off.
    Closed = 261,
    /// [`viewer::Halt`](crate::viewer::Halt).
    Halt = 262,
}

impl FrameKind {
    /// The kind with this wire value, if this version knows it.
    #[must_use]
    pub const fn from_wire(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::Hello,
            2 => Self::Clock,
            3 => Self::Names,
            4 => Self::Records,
            5 => Self::Kinds,
            6 => Self::State,
            7 => Self::HostBuffers,
            8 => Self::Pools,
            9 => Self::Loss,
            10 => Self::DeviceSample,
            11 => Self::Notice,
            12 => Self::Goodbye,
            13 => Self::Reply,
            15 => Self::Lifecycle,
            16 => Self::Observers,
            20 => Self::RawBuffer,
            14 => Self::Sampling,
            256 => Self::Request,
            257 => Self::Watched,
            258 => Self::Link,
            259 => Self::DeviceNote,
            260 => Self::Earlier,
            261 => Self::Closed,
            262 => Self::Halt,
            _ => return None,
        })
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub len: u32,
    /// A [`FrameKind`] wire value, known or not.
    pub kind: u16,
    /// Counts the frames offered to this connection, from 1.
    pub seq: u64,
}

impl Header {
    /// The header in wire form.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut writer = Writer::new(&mut bytes);
        // Sixteen bytes hold the sixteen bytes written.
        let _ = writer.u32(self.len).and_then(|()| writer.u16(self.kind)).and_then(|()| writer.u16(0));
        let _ = writer.u64(self.seq);
        bytes
    }

    /// Reads a header, or says that the length is beyond [`MAX_BODY`].
    pub fn read(bytes: &[u8; HEADER_LEN]) -> Result<Self, TooLong> {
        let mut reader = Reader::new(bytes);
        let len = reader.u32();
        let kind = reader.u16();
        let _ = reader.u16();
        let seq = reader.u64();
        if len as usize > MAX_BODY { Err(TooLong(len)) } else { Ok(Self { len, kind, seq }) }
    }
}

/// A header that announces a body of this many bytes, more than [`MAX_BODY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub u32);

/// A whole frame borrowed from a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits the first frame off `bytes`; `None` when it is not all there yet.
    pub fn split(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, TooLong> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = Header::read(head)?;
        Ok(rest.split_at_checked(header.len as usize).map(|(body, rest)| (Self { header, body }, rest)))
    }

    /// What the frame holds, if this version knows it.
    #[must_use]
    pub const fn kind(&self) -> Option<FrameKind> {
        FrameKind::from_wire(self.header.kind)
    }
}

/// Writes one frame (header and body) to the front of `out`; gives its length in bytes.
pub fn write_frame(
    out: &mut [u8],
    kind: FrameKind,
    seq: u64,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
) -> Result<usize, Full> {
    let (head, rest) = out.split_first_chunk_mut::<HEADER_LEN>().ok_or(Full)?;
    let limit = rest.len().min(MAX_BODY);
    let mut writer = Writer::new(rest.get_mut(..limit).ok_or(Full)?);
    body(&mut writer)?;
    let len = writer.len();
    *head = Header { len: u32::try_from(len).map_err(|_| Full)?, kind: kind as u16, seq }.to_bytes();
    Ok(len.saturating_add(HEADER_LEN))
}

/// Bytes before the records of one run: `u8` family, three zero bytes, `u32` count.
pub const RUN_HEADER_LEN: usize = 8;

/// One run of records of the same family, in the order CUPTI delivered them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// A [`Family`] wire value, known or not.
    pub family: u8,
    /// Bytes of one record.
    pub size: usize,
    /// `size * count` bytes.
    pub bytes: &'a [u8],
}

impl<'a> Run<'a> {
    /// How many records the run holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len().checked_div(self.size).unwrap_or(0)
    }

    /// The records, each as its bytes; read one with [`record::read`].
    pub fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks_exact(self.size.max(1))
    }

    /// The records where they lie, if they came in the form this version knows.
    #[must_use]
    pub fn in_place<R: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Option<&'a [R]> {
        <[R]>::ref_from_bytes(self.bytes).ok().filter(|_| self.size == size_of::<R>())
    }

    /// Gives each record in the form this version knows.
    pub fn each<R>(&self, mut take: impl FnMut(&R))
    where
        R: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Default,
    {
        match self.in_place() {
            Some(records) => records.iter().for_each(take),
            None => self.records().for_each(|bytes| take(&record::read(bytes))),
        }
    }

    /// The family, if this version knows it.
    #[must_use]
    pub const fn family(&self) -> Option<Family> {
        Family::from_wire(self.family)
    }
}

/// The sizes of records in a stream, by family; they come with the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSizes(pub [u16; 4]);

impl RecordSizes {
    /// The sizes this version writes.
    pub const OURS: Self = Self([
        Family::Kernel.size() as u16,
        Family::Copy.size() as u16,
        Family::Memset.size() as u16,
        Family::Other.size() as u16,
    ]);

    /// The size for a family's wire value; 0 when the stream has no such family.
    #[must_use]
    pub fn of(&self, family: u8) -> usize {
        usize::from(family).checked_sub(1).and_then(|i| self.0.get(i)).copied().map_or(0, usize::from)
    }
}

/// The runs of a records frame's body. The iterator ends early, with [`Runs::is_bad`] set, at damage or at a
/// family whose size is not known (nothing behind it can be found).
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    rest: &'a [u8],
    sizes: RecordSizes,
    bad: bool,
}

impl<'a> Runs<'a> {
    /// Reads the body of a records frame.
    #[must_use]
    pub const fn new(body: &'a [u8], sizes: RecordSizes) -> Self {
        Self { rest: body, sizes, bad: false }
    }

    /// Whether reading stopped at something that made no sense.
    #[must_use]
    pub const fn is_bad(&self) -> bool {
        self.bad
    }

    fn split(&mut self) -> Option<Run<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<RUN_HEADER_LEN>()?;
        let mut reader = Reader::new(head);
        let family = reader.u8();
        reader.bytes(3);
        let count = reader.u32() as usize;
        let size = self.sizes.of(family);
        if size == 0 {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(count.checked_mul(size)?)?;
        self.rest = rest;
        Some(Run { family, size, bytes })
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        if self.rest.is_empty() || self.bad {
            return None;
        }
        let run = self.split();
        self.bad = run.is_none();
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_go_both_ways() {
        let mut buf = [0u8; 64];
        let len = write_frame(&mut buf, FrameKind::Notice, 9, |w| w.blob(b"hi")).unwrap();
        let (frame, rest) = Frame::split(&buf[..len]).unwrap().unwrap();
        assert_eq!((frame.kind(), frame.header.seq, rest.len()), (Some(FrameKind::Notice), 9, 0));
        assert_eq!(Reader::new(frame.body).blob(), b"hi");
        for cut in 0..len {
            assert_eq!(Frame::split(&buf[..cut]), Ok(None));
        }
    }

    #[test]
    fn an_absurd_length_is_refused() {
        let head = Header { len: u32::MAX, kind: 4, seq: 1 }.to_bytes();
        assert_eq!(Frame::split(&head), Err(TooLong(u32::MAX)));
    }

    #[test]
    fn an_unknown_family_ends_the_frame() {
        let mut body = [0u8; 24];
        body[0] = 9;
        body[4] = 1;
        let mut runs = Runs::new(&body, RecordSizes::OURS);
        assert_eq!(runs.next(), None);
        assert!(runs.is_bad());
    }

    proptest! {
        #[test]
        fn records_of_any_size_are_the_same_one_by_one(longer in -40isize..40, bytes in prop::collection::vec(any::<u8>(), 480)) {
            let size = size_of::<record::Copy>().strict_add_signed(longer / 2);
            let run = Run { family: Family::Copy as u8, size, bytes: &bytes[..4 * size] };
            let mut seen = Vec::new();
            run.each(|copy: &record::Copy| seen.push(*copy));
            let expected: Vec<record::Copy> = run.records().map(record::read).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, sizes: [u16; 4]) {
            let mut rest = bytes.as_slice();
            while let Ok(Some((frame, tail))) = Frame::split(rest) {
                rest = tail;
                for run in Runs::new(frame.body, RecordSizes(sizes)) {
                    prop_assert_eq!(run.records().count(), run.count());
                }
            }
            for run in Runs::new(&bytes, RecordSizes(sizes)) {
                prop_assert!(run.bytes.len() <= bytes.len());
            }
        }
    }
}
