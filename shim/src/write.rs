//! Writing records into the bodies of frames, in runs of one family.

use gtop_protocol::frame::RUN_HEADER_LEN;
use gtop_protocol::record::Family;

/// Where frames come from and go to.
pub trait Sink {
    /// Room for the body of one records frame.
    type Frame: AsMut<[u8]>;

    /// An empty frame, if there is one.
    fn take(&mut self) -> Option<Self::Frame>;

    /// Hands over a frame whose body is its first `len` bytes; `false` when nobody could take it.
    fn push(&mut self, frame: Self::Frame, len: usize, records: u32) -> bool;
}

/// Records that pass before a missing frame is asked for again.
const RETRY: u32 = 256;

/// No record is longer, bytes.
const NOWHERE: usize = 128;

/// Fills frames with runs.
pub struct Writer<'a, S: Sink> {
    sink: &'a mut S,
    frame: Option<S::Frame>,
    /// Bytes of the body written, and how many there may be; both 0 without a frame.
    at: usize,
    len: usize,
    /// Where the open run's header lies, and its family; 0 while none is open.
    run_at: usize,
    run_family: u8,
    run_records: u32,
    frame_records: u32,
    wait: u32,
    /// What is written when there is no frame.
    nowhere: [u8; NOWHERE],
    /// Records in frames that were taken.
    pub(crate) framed: u64,
    /// Records without a frame, or in one that was not taken.
    pub(crate) lost: u64,
}

impl<'a, S: Sink> Writer<'a, S> {
    pub(crate) const fn new(sink: &'a mut S) -> Self {
        Self {
            sink,
            frame: None,
            at: 0,
            len: 0,
            run_at: 0,
            run_family: 0,
            run_records: 0,
            frame_records: 0,
            wait: 0,
            nowhere: [0; NOWHERE],
            framed: 0,
            lost: 0,
        }
    }

    /// Room for records of a family, for one at least. When there is no frame it is for one alone, and is read by nobody.
    #[inline]
    pub(crate) fn room<R>(&mut self, family: Family) -> &mut [u8] {
        const { assert!(size_of::<R>() <= NOWHERE) };
        let end = self.at.wrapping_add(size_of::<R>());
        let fits = self.run_family == family as u8 && end <= self.len;
        if (fits || self.open_run(family, size_of::<R>()))
            && let Some(frame) = &mut self.frame
            && let Some(room) = frame.as_mut().get_mut(self.at..)
        {
            return room;
        }
        self.nowhere.get_mut(..size_of::<R>()).unwrap_or_default()
    }

    /// Records of so many bytes are written to the front of that room; gives how many records.
    #[inline]
    pub(crate) fn wrote<R>(&mut self, bytes: usize) -> u64 {
        let records = bytes.checked_div(size_of::<R>()).unwrap_or(0) as u64;
        if self.run_family == 0 {
            self.lost = self.lost.wrapping_add(records);
        } else {
            self.at = self.at.wrapping_add(bytes);
            self.run_records = self.run_records.wrapping_add(records as u32);
        }
        records
    }

    /// Begins a run with room for at least one record, in a new frame if need be.
    #[inline]
    fn open_run(&mut self, family: Family, size: usize) -> bool {
        self.close_run();
        if self.at.wrapping_add(RUN_HEADER_LEN).wrapping_add(size) > self.len && !self.next_frame(size) {
            return false;
        }
        self.run_at = self.at;
        self.at = self.at.wrapping_add(RUN_HEADER_LEN);
        self.run_family = family as u8;
        true
    }

    fn close_run(&mut self) {
        if self.run_family > 0
            && let Some(frame) = &mut self.frame
            && let Some(header) = frame.as_mut().get_mut(self.run_at..)
            && let Some(header) = header.first_chunk_mut::<RUN_HEADER_LEN>()
        {
            let [a, b, c, d] = self.run_records.to_le_bytes();
            *header = [self.run_family, 0, 0, 0, a, b, c, d];
            self.frame_records = self.frame_records.wrapping_add(self.run_records);
        }
        self.run_family = 0;
        self.run_records = 0;
    }

    /// Hands over the frame that is full and takes one with room for a record of this size.
    #[cold]
    #[inline(never)]
    fn next_frame(&mut self, size: usize) -> bool {
        self.push();
        if self.wait > 0 {
            self.wait = self.wait.wrapping_sub(1);
            return false;
        }
        let least = RUN_HEADER_LEN.saturating_add(size);
        self.frame = self.sink.take();
        self.len = self.frame.as_mut().map_or(0, |frame| frame.as_mut().len().min(MAX_FRAME));
        if self.len < least {
            self.frame = None;
            self.len = 0;
            self.wait = RETRY;
            return false;
        }
        true
    }

    fn push(&mut self) {
        if let Some(frame) = self.frame.take()
            && self.frame_records > 0
        {
            let records = u64::from(self.frame_records);
            if self.sink.push(frame, self.at, self.frame_records) {
                self.framed = self.framed.wrapping_add(records);
            } else {
                self.lost = self.lost.wrapping_add(records);
            }
        }
        (self.at, self.len) = (0, 0);
        self.frame_records = 0;
    }

    /// Hands over what is written.
    pub(crate) fn finish(&mut self) {
        self.close_run();
        self.push();
    }
}

/// No frame is longer; keeps lengths far from overflow.
const MAX_FRAME: usize = 1 << 20;
