//! Tracks for what viewers draw in rows: on one track nothing overlaps, because they drop or misplace what does.

use std::fmt;
use std::hash::Hash;

use gtop_protocol::record::NO_DEVICE;
use rustc_hash::FxHashMap;

use super::{Record, Row};

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// A stream of a device.
    Stream { device: u16, context: u32, stream: u32 },
    /// Calls of a thread.
    Thread(u32),
    /// Waits for a stream.
    Waits { context: u32, stream: u32 },
    /// Everything else, by its kind.
    Kind(&'static str),
}

impl Track {
    /// The track of a record.
    pub(super) fn of(row: &Row<'_>) -> Self {
        let (device, context, stream) = match &row.record {
            Record::Kernel(it) => (it.device, it.context, it.stream),
            Record::Copy(it) => (it.device, it.context, it.stream),
            Record::Memset(it) => (it.device, it.context, it.stream),
            Record::Other(it) => match row.kind {
                "runtime" | "driver" => return Self::Thread(it.thread.get()),
                "sync" => return Self::Waits { context: it.context.get(), stream: it.stream.get() },
                kind => return Self::Kind(kind),
            },
        };
        Self::Stream { device: device.get(), context: context.get(), stream: stream.get() }
    }

    /// The device it lies on.
    pub(super) const fn device(self) -> Option<u16> {
        match self {
            Self::Stream { device, .. } => Some(device),
            _ => None,
        }
    }
}

/// The name of a device by CUPTI's number.
pub(super) fn device_name(device: u16) -> String {
    if device == NO_DEVICE { "GPU ?".to_owned() } else { format!("GPU {device}") }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { context, stream, .. } => write!(f, "stream {stream}, context {context}"),
            Self::Thread(thread) => write!(f, "calls of thread {thread}"),
            Self::Waits { context, stream } => write!(f, "waits for stream {stream}, context {context}"),
            Self::Kind(kind) => f.write_str(kind),
        }
    }
}

/// The most sub-tracks of one track: more than a device runs kernels at once. What overlaps beyond shares the last one.
const MOST: usize = 1024;

/// Where each track ends, and the sub-tracks beside it. A sub-track is gone through in the order in which records come:
/// what begins before the end of the last one goes to the next.
#[derive(Debug)]
pub(super) struct Lanes<K>(FxHashMap<K, Vec<u64>>);

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Hash + Eq> Lanes<K> {
    /// The sub-track for what lasts from `start` to `end`, from 0.
    pub(super) fn place(&mut self, track: K, start: u64, end: u64) -> usize {
        let ends = self.0.entry(track).or_default();
        let lane = ends.iter().position(|last| *last <= start).unwrap_or(ends.len()).min(MOST - 1);
        match ends.get_mut(lane) {
            Some(last) => *last = end.max(*last),
            None => ends.push(end),
        }
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_overlaps(spans in proptest::collection::vec((0u64..100, 0u64..20, 0u8..3), 0..200)) {
            let mut lanes = Lanes::default();
            let mut last: FxHashMap<(u8, usize), u64> = FxHashMap::default();
            for (start, length, track) in spans {
                let lane = lanes.place(track, start, start + length);
                let before = last.insert((track, lane), start + length);
                prop_assert!(before.is_none_or(|end| end <= start));
            }
        }
    }

    #[test]
    fn there_are_not_more_lanes_than_anyone_looks_at() {
        let mut lanes = Lanes::default();
        let last = (0..5_000u64).map(|at| lanes.place((), 5_000 - at, 9_000)).max();
        assert_eq!((last, lanes.0[&()].len()), (Some(MOST - 1), MOST));
    }

    #[test]
    fn what_follows_stays_on_its_track() {
        let mut lanes = Lanes::default();
        let spans = [(3_000, 6_776), (5_000, 7_000), (6_776, 8_000), (7_000, 7_000), (8_000, 9_000)];
        assert_eq!(spans.map(|(start, end)| lanes.place((), start, end)), [0, 1, 0, 1, 0]);
    }
}
