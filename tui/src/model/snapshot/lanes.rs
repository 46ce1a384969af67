//! The lanes of the timeline, and what is known of each piece of them.

use std::sync::Arc;

use gtop_protocol::Kind;

use super::KernelName;
use crate::model::slices::Slices;

/// A device that is not known, in a [`LaneKey`].
pub const UNKNOWN_DEVICE: u32 = u32::MAX;

/// Which lane of the timeline. A device may be [`UNKNOWN_DEVICE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Kernels of one stream.
    Stream {
        /// Device, CUPTI's number.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
    },
    /// Copies of one direction on one device.
    Copy {
        /// Device, CUPTI's number.
        device: u32,
        /// `CUpti_ActivityMemcpyKind`.
        direction: u8,
    },
    /// Memory sets on one device.
    Memset {
        /// Device, CUPTI's number.
        device: u32,
    },
    /// Launches of executable graphs on one stream: from the first start to the last end of each launch.
    Graphs {
        /// Device, CUPTI's number.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
    },
}

/// One lane of the timeline.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Which.
    pub key: LaneKey,
    /// Share of the last second in which something ran.
    pub busy: f64,
    /// From when on all that ran is there, CUPTI's nanoseconds: before that it would seem idle.
    pub since: u64,
    /// Its intervals.
    pub slices: Slices,
}

/// A stretch of time in which one kind of GPU work was not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untraced {
    /// Which kind.
    pub kind: Kind,
    /// Where it begins, CUPTI's nanoseconds.
    pub from: u64,
    /// The first nanosecond after it; `u64::MAX` while it goes on.
    pub to: u64,
    /// Why.
    pub why: Why,
}

/// Why something was not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its kind was off.
    Off,
    /// There was no connection.
    Away,
    /// The shim said that records do not come although the GPU works.
    Silent,
    /// Nothing was heard of the shim.
    Unheard,
    /// The process does not run.
    Halted,
    /// Records were lost on their way here, and may be missing.
    Lost,
    /// Records of it may not have come yet.
    Awaited,
}

/// What slices are, by the `detail` id of a slice; append-only and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The id of the first detail kept; older ones are forgotten.
    first: u32,
    chunks: Vec<Arc<[Detail]>>,
}

impl Details {
    /// Details per chunk; all chunks but the last are full.
    pub const CHUNK: usize = 1024;

    /// From full chunks and a last one that may be shorter.
    #[must_use]
    pub const fn new(chunks: Vec<Arc<[Detail]>>) -> Self {
        Self::starting_at(0, chunks)
    }

    /// The same, when details before the one with id `first` are forgotten.
    #[must_use]
    pub const fn starting_at(first: u32, chunks: Vec<Arc<[Detail]>>) -> Self {
        Self { first, chunks }
    }

    /// The detail with this id, unless it is so old that it is forgotten.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Detail> {
        let id = id.checked_sub(self.first)? as usize;
        self.chunks.get(id / Self::CHUNK)?.get(id % Self::CHUNK)
    }
}

/// Everything about a record but its times and correlation id. Records that differ only in those share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The name id of a kernel; for copies and memory sets an id of the model's own, distinct from kernels'.
    pub name_id: u32,
    /// The name; the direction for copies, `memset` for memory sets.
    pub name: Arc<KernelName>,
    /// Grid, blocks.
    pub grid: [u32; 3],
    /// Block, threads.
    pub block: [u32; 3],
    /// Cluster, blocks; zeros when there is none.
    pub cluster: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Static and dynamic shared memory, bytes.
    pub shared: [u32; 2],
    /// Bytes moved or set; `None` for kernels.
    pub bytes: Option<u64>,
    /// The context and the stream of a copy or a memory set, whose lane does not tell; `None` for kernels.
    pub moved_on: Option<(u32, u32)>,
    /// Executable graph id; 0 outside graphs.
    pub graph: u32,
    /// Graph node id; 0 outside graphs.
    pub graph_node: u64,
}

impl Detail {
    /// The place of the node in its graph: CUPTI's id has the graph in its upper half.
    #[must_use]
    pub const fn node_index(&self) -> u32 {
        (self.graph_node & 0xffff_ffff) as u32
    }
}
