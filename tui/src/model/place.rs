//! Believable records in a row that happened in the same place: what is counted by place is looked up once for them all.

use super::slices::Slice;
use super::snapshot::UNKNOWN_DEVICE;
use super::streams::StreamKey;

/// Records that are counted together at most; few enough to stay near.
const MOST: usize = 256;

/// Where records happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stream: StreamKey,
    /// Executable graph; 0 outside graphs.
    pub(super) graph: u32,
}

impl Place {
    /// The device as lanes of the timeline know it.
    pub(super) fn lane_device(&self) -> u32 {
        self.stream.device.unwrap_or(UNKNOWN_DEVICE)
    }
}

/// What a record is beside its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u64,
    /// Graph node id; 0 outside graphs.
    pub(super) node: u64,
    /// The id of its detail, where there is a timeline.
    pub(super) detail: u32,
    /// The slot of its kernel name; `u32::MAX` for what is no kernel.
    pub(super) kernel: u32,
}

impl Piece {
    pub(super) const fn is_kernel(&self) -> bool {
        self.kernel != u32::MAX
    }

    /// How long it took, nanoseconds.
    pub(super) const fn duration(&self) -> u64 {
        self.end - self.start
    }

    pub(super) const fn slice(&self) -> Slice {
        Slice { start: self.start, end: self.end, detail: self.detail, correlation: self.correlation as u32 }
    }
}

/// What records have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The earliest start and the latest end.
    pub(super) start: u64,
    pub(super) end: u64,
    /// How long the longest took, nanoseconds.
    pub(super) longest: u64,
    /// Whether each starts where the one before it did, or later.
    pub(super) in_order: bool,
}

impl Extent {
    pub(super) fn of(pieces: &[Piece]) -> Self {
        let (mut extent, mut last) = (Self { start: u64::MAX, end: 0, longest: 0, in_order: true }, 0);
        for piece in pieces {
            extent.start = extent.start.min(piece.start);
            extent.end = extent.end.max(piece.end);
            extent.longest = extent.longest.max(piece.duration());
            extent.in_order &= last <= piece.start;
            last = piece.start;
        }
        extent
    }
}

/// Records of one place that wait to be counted together.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    pub(super) place: Option<Place>,
    pub(super) pieces: Vec<Piece>,
}

impl Stretch {
    /// Whether a record of this place can join those that wait.
    #[inline]
    pub(super) fn takes(&self, place: &Place) -> bool {
        self.place.as_ref() == Some(place) && self.room() > 0
    }

    /// How many more can join them.
    pub(super) const fn room(&self) -> usize {
        MOST.saturating_sub(self.pieces.len())
    }
}
