//! Writing records into the bodies of frames, in runs of one family.

use gtop_protocol::frame::RUN_HEADER_LEN;
use gtop_protocol::record::Family;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Fills frames with runs.
pub struct Writer<'a, S: Sink> {
    sink: &'a mut S,
    frame: Option<S::Frame>,
    /// Bytes of the body written, and how many there may be; the latter is 0 while no run is open.
    at: usize,
    limit: usize,
    /// Where the open run's header lies.
    run_at: usize,
    run_family: u8,
    run_records: u32,
    frame_records: u32,
    wait: u32,
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
            limit: 0,
            run_at: 0,
            run_family: 0,
            run_records: 0,
            frame_records: 0,
            wait: 0,
            framed: 0,
            lost: 0,
        }
    }

    /// Room for the next record. `None` when there is no frame; the record is then counted as lost.
    #[inline]
    pub(crate) fn record<R>(&mut self, family: Family) -> Option<&mut R>
    where
        R: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        let end = self.at.wrapping_add(size_of::<R>());
        let fits = self.run_family == family as u8 && end <= self.limit;
        if !fits && !self.open_run(family, size_of::<R>()) {
            self.lost = self.lost.wrapping_add(1);
            return None;
        }
        let at = self.at;
        self.at = at.wrapping_add(size_of::<R>());
        self.run_records = self.run_records.wrapping_add(1);
        let room = self.frame.as_mut()?.as_mut().get_mut(at..)?;
        R::mut_from_prefix(room).ok().map(|(record, _)| record)
    }

    /// Begins a run with room for at least one record, in a new frame if need be.
    #[inline(never)]
    fn open_run(&mut self, family: Family, size: usize) -> bool {
        self.close_run();
        let needed = self.at.saturating_add(RUN_HEADER_LEN).saturating_add(size);
        if self.frame.as_mut().is_none_or(|frame| needed > frame.as_mut().len()) {
            self.push();
            if self.wait > 0 {
                self.wait = self.wait.wrapping_sub(1);
                return false;
            }
            let least = RUN_HEADER_LEN.saturating_add(size);
            self.frame = self.sink.take().filter(|_| least < MAX_FRAME);
            if self.frame.as_mut().is_none_or(|frame| frame.as_mut().len() < least) {
                self.frame = None;
                self.wait = RETRY;
                return false;
            }
        }
        self.run_at = self.at;
        self.at = self.at.saturating_add(RUN_HEADER_LEN);
        self.run_family = family as u8;
        self.limit = self.frame.as_mut().map_or(0, |frame| frame.as_mut().len());
        true
    }

    fn close_run(&mut self) {
        if self.run_records > 0
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
        self.limit = 0;
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
        self.at = 0;
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
