//! What becomes of contexts, streams, modules and graphs, and of the driver calls that make and break them: events
//! seen by callbacks, known whole only when the shim was armed before CUDA began.

use crate::wire::{Full, Writer};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What happened. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum What {
    /// A context was created: `object` its handle, `id` CUPTI's id.
    ContextCreated = 1,
    /// A context is about to be destroyed, with everything in it.
    ContextDestroyed = 2,
    /// A stream was created: `object` its handle, `id` CUPTI's id of it; `detail` is [`BLOCKING`] or [`NOT_BLOCKING`] where
    /// the call says it.
    StreamCreated = 3,
    /// A stream is about to be destroyed.
    StreamDestroyed = 4,
    /// A module was loaded: `id` its id, `bytes` the size of its code.
    ModuleLoaded = 5,
    /// A module is about to be unloaded.
    ModuleUnloaded = 6,
    /// A graph was created: `object` its handle, `id` CUPTI's id; `detail` is [`MADE_FOR_A_NODE`] for a child graph or a
    /// body, whose node is told after it.
    GraphCreated = 7,
    /// A graph was cloned from `other`, whose id is `node`; it was told of as created before. May come more than once.
    GraphCloned = 8,
    /// A graph is about to be destroyed.
    GraphDestroyed = 9,
    /// `count` nodes of one type were added to a graph: `object` the graph, `id` its id, `detail`
    /// the type (`CUgraphNodeType`), `node` CUPTI's id of the first; the ids of the others follow it one by one. Of nodes
    /// that allocate, `bytes` is what they ask for together, 0 where the calls that made them do not say.
    Nodes = 10,
    /// `count` dependencies: `node` depends on `other`, and each following one's two nodes are one further. `object`
    /// is the graph.
    Edges = 11,
    /// An executable graph was created: `object` its handle, `id` CUPTI's id, which its records carry; `other` the
    /// graph it was made from and `node` that one's id. Its nodes are those of that graph under the same indices; behind
    /// them, for each node with graphs of its own, come those of these graphs and then of what is inside of them.
    ExecCreated = 12,
    /// An executable graph is about to be destroyed.
    ExecDestroyed = 13,
    /// A stream capture began, or the call failed: `stream`, `detail` the mode (`CUstreamCaptureMode`).
    CaptureBegun = 14,
    /// A stream capture ended: `stream`, `object` the graph it gave, 0 if none. `detail` is [`ALLOCATIONS_TOLD`] where
    /// `bytes` is what its thread allocated meanwhile on devices, without what became nodes.
    CaptureEnded = 15,
    /// A call to instantiate: `object` the executable graph it gave, 0 if none; `other` the graph; `detail` the
    /// `CUgraphInstantiateResult` where there is one.
    Instantiated = 16,
    /// A call to update an executable graph: `object`; `other` the graph; `detail` the `CUgraphExecUpdateResult`.
    Updated = 17,
    /// Launches of executable graphs that failed: `object`, `stream`.
    LaunchFailed = 18,
    /// A call to upload an executable graph: `object`, `stream`.
    Uploaded = 19,
    /// A call to destroy an executable graph that failed: `object`.
    ExecDestroyFailed = 20,
    /// A call to destroy a graph that failed: `object`.
    GraphDestroyFailed = 21,
    /// A launch of a kernel that failed: `name`, `grid`, `block`, `bytes` the dynamic shared memory, `stream`, `count`
    /// the cluster's blocks or 0.
    KernelFailed = 22,
    /// Another watched call that failed, or came while a capture was open: `code` says which, `bytes` what it asked
    /// for if it allocates.
    Call = 23,
    /// A call that waits for the device took long: `ns`.
    LongWait = 24,
    /// What the driver says of a device's memory, when it has changed: `id` the device's index; `object` bytes used
    /// by graphs, `other` reserved for graphs, `node` used in the device's default pool, `bytes` reserved in it.
    DeviceMemory = 25,
    /// A memory pool was created: `object` its handle.
    PoolCreated = 26,
    /// A memory pool was destroyed.
    PoolDestroyed = 27,
    /// In a capture, kernels go to another stream than before: `stream`.
    StreamWorks = 28,
    /// In a capture, an event was recorded: `object` the event, `stream`.
    StreamMarked = 29,
    /// In a capture, a stream was made to wait: `stream`, `object` the event.
    StreamWaits = 30,
    /// In a capture, a copy or memory set became a node: `object` the address it writes, `other` the one it reads or
    /// 0, `bytes`, `stream`.
    NodeMemory = 31,
    /// Memory was allocated where a node of a captured graph points: `object` its address, `bytes`.
    Allocated = 32,
    /// Memory was freed to which a node of a captured graph points: `object` its address, `bytes`; `ns` how long it
    /// took, at the end of which the event is.
    Freed = 33,
    /// From now on what nodes point to is not known: nodes of executable graphs are set anew.
    NodesSet = 34,
    /// A call that need not wait waited for the device: `ns`; `count` such calls since the last event, this one with
    /// them, which took `bytes` nanoseconds together.
    ImplicitWait = 35,
    /// From now on it is not known which streams take part in the captures that are open: there is too much to tell.
    StreamsUntold = 36,
    /// A node was taken out of a graph: `node`, `object` the graph, `id` its id.
    NodeRemoved = 37,
    /// What a device can do, as the driver says: `id` its index; `grid` and `block` the most of each; `count` its
    /// multiprocessors; `object` threads a block, and registers a block in the upper half; `other` shared memory a block
    /// when the kernel opts in, and without that in the upper half, bytes; `node` threads of a multiprocessor, and blocks
    /// in the upper half; `stream` shared memory of a multiprocessor, and registers in the upper half; `bytes` its
    /// memory. What could not be had is 0.
    DeviceLimits = 38,
    /// Kernels and graphs were launched on the legacy default stream of a context: `count` by this thread since it was last
    /// told.
    LegacyLaunches = 39,
}

impl What {
    /// Everything that can happen, in wire order.
    pub const ALL: [Self; 39] = [
        Self::ContextCreated,
        Self::ContextDestroyed,
        Self::StreamCreated,
        Self::StreamDestroyed,
        Self::ModuleLoaded,
        Self::ModuleUnloaded,
        Self::GraphCreated,
        Self::GraphCloned,
        Self::GraphDestroyed,
        Self::Nodes,
        Self::Edges,
        Self::ExecCreated,
        Self::ExecDestroyed,
        Self::CaptureBegun,
        Self::CaptureEnded,
        Self::Instantiated,
        Self::Updated,
        Self::LaunchFailed,
        Self::Uploaded,
        Self::ExecDestroyFailed,
        Self::GraphDestroyFailed,
        Self::KernelFailed,
        Self::Call,
        Self::LongWait,
        Self::DeviceMemory,
        Self::PoolCreated,
        Self::PoolDestroyed,
        Self::StreamWorks,
        Self::StreamMarked,
        Self::StreamWaits,
        Self::NodeMemory,
        Self::Allocated,
        Self::Freed,
        Self::NodesSet,
        Self::ImplicitWait,
        Self::StreamsUntold,
        Self::NodeRemoved,
        Self::DeviceLimits,
        Self::LegacyLaunches,
    ];

    /// What has this wire value.
    #[must_use]
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|what| *what as u8 == value)
    }
}

/// Stream handles up to this one are names of default streams, of which each thread may have its own.
pub const LAST_DEFAULT_STREAM: u64 = 2;

/// Flag of an event: a capture was open on the same thread.
pub const IN_CAPTURE: u8 = 1;
/// Flag of an event: a capture was open on some thread.
pub const CAPTURE_OPEN: u8 = 2;

/// One event. What a field means depends on [`What`]; fields it does not name are 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Event {
    /// When, `CLOCK_REALTIME` nanoseconds: the end of a call.
    pub time: U64,
    /// How long the call took, nanoseconds; 0 when that was not measured.
    pub ns: U64,
    /// The handle of what it is about. Handles are reused after a destroy.
    pub object: U64,
    /// The handle of the other thing involved.
    pub other: U64,
    /// CUPTI's id of a graph node.
    pub node: U64,
    /// Bytes.
    pub bytes: U64,
    /// The stream's handle; 0 and 1 are the legacy default stream, 2 the per-thread one.
    pub stream: U64,
    /// CUPTI's id of the object; 0 is unknown.
    pub id: U32,
    /// How many.
    pub count: U32,
    /// CUPTI's id of the context; 0 is unknown.
    pub context: U32,
    /// The thread that did it, as the system numbers threads.
    pub thread: U32,
    /// The callback id of a driver call (`CUpti_driver_api_trace_cbid`), for a copy's node that of the call it was made in;
    /// 0 when it was no call, or is not known.
    pub code: U32,
    /// The `CUresult` of a call.
    pub result: U32,
    /// A type, a mode or a detailed result.
    pub detail: U32,
    /// Name id of a kernel: the one that failed, or the last one launched before on this thread in the capture.
    pub name: U32,
    /// Grid of a kernel, blocks.
    pub grid: [U32; 3],
    /// Block of a kernel, threads.
    pub block: [U32; 3],
    /// Device index as CUPTI numbers it, or [`NO_DEVICE`](crate::record::NO_DEVICE).
    pub device: U16,
    /// A [`What`] wire value.
    pub what: u8,
    /// [`IN_CAPTURE`], [`CAPTURE_OPEN`].
    pub flags: u8,
}

/// The `detail` of [`What::GraphCreated`] when the driver made the graph for a node of another one.
pub const MADE_FOR_A_NODE: u32 = 1;

/// The `detail` of [`What::StreamCreated`] for a stream that waits for the legacy default stream and for which that waits,
/// and for one that does not (`CU_STREAM_NON_BLOCKING`).
pub const BLOCKING: u32 = 1;
/// See [`BLOCKING`].
pub const NOT_BLOCKING: u32 = 2;

/// The `detail` of [`What::CaptureEnded`] when its `bytes` are known.
pub const ALLOCATIONS_TOLD: u32 = 1;

/// Bytes of an event as this version writes it.
pub const EVENT_LEN: usize = size_of::<Event>();

const _: () = assert!(EVENT_LEN == 116);

/// Writes the start of a lifecycle frame's body; the events follow back to back.
pub fn write_head(w: &mut Writer<'_>) -> Result<(), Full> {
    w.u32(EVENT_LEN as u32)
}

/// The events of a lifecycle frame, whatever version wrote it. Damage ends them.
pub fn read(body: &[u8]) -> impl Iterator<Item = Event> {
    let (size, rest) =
        body.split_first_chunk::<4>().map_or((0, body), |(size, rest)| (u32::from_le_bytes(*size), rest));
    let size = if size == 0 { usize::MAX } else { size as usize };
    rest.chunks_exact(size).map(crate::record::read::<Event>)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_goes_both_ways() {
        for (i, what) in What::ALL.into_iter().enumerate() {
            assert_eq!((what as usize, What::from_wire(what as u8)), (i + 1, Some(what)));
        }
        assert_eq!((What::from_wire(0), What::from_wire(200)), (None, None));
    }

    #[test]
    fn events_of_any_size_read() {
        let event = Event { time: 5.into(), id: 7.into(), what: What::ExecCreated as u8, ..Event::default() };
        let mut body = vec![0; 4 + 2 * EVENT_LEN];
        let mut w = Writer::new(&mut body);
        write_head(&mut w).unwrap();
        for _ in 0..2 {
            w.bytes(event.as_bytes()).unwrap();
        }
        assert_eq!(read(&body).collect::<Vec<_>>(), [event, event]);
        let mut longer = (EVENT_LEN as u32 + 8).to_le_bytes().to_vec();
        longer.extend_from_slice(event.as_bytes());
        longer.extend_from_slice(&[9; 8]);
        assert_eq!(read(&longer).collect::<Vec<_>>(), [event]);
        let mut shorter = 16u32.to_le_bytes().to_vec();
        shorter.extend_from_slice(&event.as_bytes()[..16]);
        assert_eq!(read(&shorter).map(|event| event.time.get()).collect::<Vec<_>>(), [5]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(body: Vec<u8>) {
            prop_assert!(read(&body).count() <= body.len());
        }
    }
}
