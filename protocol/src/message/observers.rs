//! What callbacks have counted of graphs and captures.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

message! {
    /// What the observers of graphs and captures have counted since the shim was loaded. Counts are whole even where
    /// events are not.
    pub struct Observers {
        /// 1 while callbacks are on.
        pub on: u8,
        /// 1 when they were on before CUDA began, so that nothing was missed.
        pub whole: u8,
        /// Calls of the callback.
        pub calls: u64,
        /// Nanoseconds spent in it, estimated from one call in so many; CUPTI's own share is not in it.
        pub calls_ns: u64,
        /// Events that found no room.
        pub lost: u64,
        /// Events that were once known and are no longer kept for those who join, without those that leave nothing behind,
        /// such as waits.
        pub forgotten: u64,
        /// Contexts created.
        pub contexts: u64,
        /// … destroyed.
        pub contexts_destroyed: u64,
        /// Streams created.
        pub streams: u64,
        /// … destroyed.
        pub streams_destroyed: u64,
        /// Modules loaded.
        pub modules: u64,
        /// … unloaded.
        pub modules_unloaded: u64,
        /// Graphs created, clones included.
        pub graphs: u64,
        /// … destroyed.
        pub graphs_destroyed: u64,
        /// Executable graphs created.
        pub execs: u64,
        /// … destroyed.
        pub execs_destroyed: u64,
        /// Memory pools created.
        pub pools: u64,
        /// … destroyed.
        pub pools_destroyed: u64,
        /// Stream captures begun.
        pub captures: u64,
        /// … ended.
        pub captures_ended: u64,
        /// … failed.
        pub captures_failed: u64,
        /// Updates of executable graphs.
        pub updates: u64,
        /// … failed.
        pub updates_failed: u64,
        /// Launches of executable graphs.
        pub launches: u64,
        /// … failed.
        pub launches_failed: u64,
        /// Launches of kernels.
        pub kernels: u64,
        /// … failed.
        pub kernels_failed: u64,
        /// 1 when launches of kernels came so fast that watching them was given up.
        pub kernels_given_up: u8,
        /// When code is loaded, as the driver says: a `CUmoduleLoadingMode` (1 eager, 2 lazy); 0 is unknown.
        pub loading: u8,
        /// Events created.
        pub events: u64,
        /// … destroyed.
        pub events_destroyed: u64,
        /// Events of this log that were not told because there were too many of their sort in one second, and that leave
        /// nothing behind: failures, waits, who takes part in a capture. Not in `lost`.
        pub untold: u64,
        /// What is no longer watched because it cost too much, a bit each: 1 launches of kernels and copies, 2 records
        /// of events and waits for them, 4 queries, 8 waits, 16 launches of graphs.
        pub given_up: u8,
    }
}

impl Observers {
    /// Whether every event since CUDA began was told, and is still kept for those who join.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.whole == 1 && self.lost == 0 && self.forgotten == 0
    }
}
