//! The activity records of CUPTI as bytes: only the fields gtop reads, at offsets that have not moved from
//! CUDA 12.0 to 13.5 (`cupti_activity.h`; every later struct only appends).
//!
//! A record is viewed in place by a checked cast of its first bytes, so no field is read beyond what CUPTI
//! delivered.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// `CUpti_ActivityKernel9` and its successors, up to the cluster dimensions.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Kernel {
    /// Activity kind.
    pub kind: U32,
    cache: [u8; 2],
    /// Registers a thread.
    pub registers: U16,
    partitioned_cache: [u8; 8],
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    completed: U64,
    /// Device.
    pub device: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
    /// Grid, blocks.
    pub grid: [U32; 3],
    /// Block, threads.
    pub block: [U32; 3],
    /// Static shared memory, bytes.
    pub static_shared: U32,
    /// Dynamic shared memory, bytes.
    pub dynamic_shared: U32,
    local_memory: [u8; 8],
    /// Correlation id.
    pub correlation: U32,
    grid_id: U64,
    /// Pointer to the name, a C string of the process.
    pub name: U64,
    launch: [u8; 32],
    /// Graph node.
    pub graph_node: U64,
    shared_limit: U32,
    /// Executable graph.
    pub graph: U32,
    access_policy: U64,
    channel: U32,
    /// Channel type.
    pub channel_type: U32,
    /// Cluster, blocks.
    pub cluster: [U32; 3],
}

/// `CUpti_ActivityMemcpy5` and its successors, up to the graph.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Memcpy {
    /// Activity kind.
    pub kind: U32,
    /// Direction.
    pub copy_kind: u8,
    /// Memory kind of the source.
    pub src_kind: u8,
    /// Memory kind of the destination.
    pub dst_kind: u8,
    /// Flags.
    pub flags: u8,
    /// Bytes.
    pub bytes: U64,
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    /// Device.
    pub device: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
    /// Correlation id.
    pub correlation: U32,
    runtime_correlation: U32,
    reserved: [u8; 12],
    /// Graph node.
    pub graph_node: U64,
    /// Executable graph.
    pub graph: U32,
}

/// `CUpti_ActivityMemcpyPtoP4`, up to the graph.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PeerMemcpy {
    /// Activity kind.
    pub kind: U32,
    /// Direction.
    pub copy_kind: u8,
    /// Memory kind of the source.
    pub src_kind: u8,
    /// Memory kind of the destination.
    pub dst_kind: u8,
    /// Flags.
    pub flags: u8,
    /// Bytes.
    pub bytes: U64,
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    /// Device that did the copy.
    pub device: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
    /// Device copied from.
    pub src_device: U32,
    src_context: U32,
    /// Device copied to.
    pub dst_device: U32,
    dst_context: U32,
    /// Correlation id.
    pub correlation: U32,
    reserved: U64,
    /// Graph node.
    pub graph_node: U64,
    /// Executable graph.
    pub graph: U32,
}

/// `CUpti_ActivityMemset4` and its successors, up to the graph.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Memset {
    /// Activity kind.
    pub kind: U32,
    /// Value written.
    pub value: U32,
    /// Bytes.
    pub bytes: U64,
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    /// Device.
    pub device: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
    /// Correlation id.
    pub correlation: U32,
    /// Flags.
    pub flags: U16,
    /// Memory kind.
    pub memory_kind: U16,
    reserved: [u8; 12],
    /// Graph node.
    pub graph_node: U64,
    /// Executable graph.
    pub graph: U32,
}

/// `CUpti_ActivityAPI`.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Api {
    /// Activity kind.
    pub kind: U32,
    /// Callback id.
    pub cbid: U32,
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    process: U32,
    /// Thread.
    pub thread: U32,
    /// Correlation id.
    pub correlation: U32,
    /// What the call returned.
    pub returned: U32,
}

/// `CUpti_ActivityOverhead` and its successors.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Overhead {
    /// Activity kind.
    pub kind: U32,
    /// `CUpti_ActivityOverheadKind`.
    pub overhead: U32,
    /// `CUpti_ActivityObjectKind`: what `object` holds.
    pub object_kind: U32,
    /// Device, context and stream, or process and thread.
    pub object: [U32; 3],
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
}

/// `CUpti_ActivitySynchronization` and its successor.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sync {
    /// Activity kind.
    pub kind: U32,
    /// `CUpti_ActivitySynchronizationType`.
    pub what: U32,
    /// Start, nanoseconds.
    pub start: U64,
    /// End, nanoseconds.
    pub end: U64,
    /// Correlation id.
    pub correlation: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
    /// CUDA event id.
    pub event: U32,
}

/// What `CUpti_ActivitySynchronization2` (12.8) appends.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sync2 {
    /// The older part.
    pub base: Sync,
    sync_id: U64,
    /// What the call returned.
    pub returned: U32,
}

/// `CUpti_ActivityMemory3` and its successor, up to the stream.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Memory {
    /// Activity kind.
    pub kind: U32,
    /// `CUpti_ActivityMemoryOperationType`.
    pub operation: U32,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: U32,
    /// Correlation id.
    pub correlation: U32,
    /// Address.
    pub address: U64,
    /// Bytes.
    pub bytes: U64,
    /// When, nanoseconds.
    pub timestamp: U64,
    pc: U64,
    process: U32,
    /// Device.
    pub device: U32,
    /// Context.
    pub context: U32,
    /// Stream.
    pub stream: U32,
}

/// `CUpti_ActivityMemory3` and its successor, up to the type of the pool.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PooledMemory {
    base: Memory,
    name: U64,
    asynchronous: [U32; 2],
    /// `CUpti_ActivityMemoryPoolType`.
    pub pool: U32,
}

/// What `CUpti_ActivityMemory4` (12.6) has behind it.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Memory4 {
    base: PooledMemory,
    rest: [U32; 9],
    /// Address of the path of the library or program that asked for the memory, if that is tracked.
    pub source: U64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cupti::sys;
    use std::mem::offset_of;

    /// Every field read here lies where cudarc's struct has it, for each struct of the list.
    macro_rules! same {
        ($ours:ident: $($theirs:ident),+; $fields:tt) => {
            $(same!(@one $ours, $theirs, $fields);)+
        };
        (@one $ours:ident, $theirs:ident, [$($field:ident = $their_field:ident),+ $(,)?]) => {
            $(assert_eq!(
                offset_of!($ours, $field),
                offset_of!(sys::$theirs, $their_field),
                concat!(stringify!($theirs), ".", stringify!($their_field))
            );)+
            assert!(size_of::<$ours>() <= size_of::<sys::$theirs>());
        };
    }

    #[test]
    fn kernels_lie_as_in_every_version() {
        same!(Kernel: CUpti_ActivityKernel9, CUpti_ActivityKernel10, CUpti_ActivityKernel11,
            CUpti_ActivityKernel12, CUpti_ActivityKernel13;
            [kind = kind, registers = registersPerThread, start = start, end = end, device = deviceId,
            context = contextId, stream = streamId, grid = gridX, block = blockX,
            static_shared = staticSharedMemory, dynamic_shared = dynamicSharedMemory,
            correlation = correlationId, name = name, graph_node = graphNodeId, graph = graphId,
            channel_type = channelType, cluster = clusterX]);
    }

    #[test]
    fn copies_lie_as_in_every_version() {
        same!(Memcpy: CUpti_ActivityMemcpy5, CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy7;
            [kind = kind, copy_kind = copyKind, src_kind = srcKind, dst_kind = dstKind, flags = flags,
            bytes = bytes, start = start, end = end, device = deviceId, context = contextId,
            stream = streamId, correlation = correlationId, graph_node = graphNodeId, graph = graphId]);
        same!(PeerMemcpy: CUpti_ActivityMemcpyPtoP4;
            [kind = kind, copy_kind = copyKind, src_kind = srcKind, dst_kind = dstKind, flags = flags,
            bytes = bytes, start = start, end = end, device = deviceId, context = contextId,
            stream = streamId, src_device = srcDeviceId, dst_device = dstDeviceId,
            correlation = correlationId, graph_node = graphNodeId, graph = graphId]);
    }

    #[test]
    fn memory_sets_lie_as_in_every_version() {
        same!(Memset: CUpti_ActivityMemset4, CUpti_ActivityMemset5;
            [kind = kind, value = value, bytes = bytes, start = start, end = end, device = deviceId,
            context = contextId, stream = streamId, correlation = correlationId, flags = flags,
            memory_kind = memoryKind, graph_node = graphNodeId, graph = graphId]);
    }

    #[test]
    fn the_other_kinds_lie_as_in_every_version() {
        same!(Api: CUpti_ActivityAPI;
            [kind = kind, cbid = cbid, start = start, end = end, thread = threadId,
            correlation = correlationId, returned = returnValue]);
        same!(Overhead: CUpti_ActivityOverhead, CUpti_ActivityOverhead2, CUpti_ActivityOverhead3;
            [kind = kind, overhead = overheadKind, object_kind = objectKind, object = objectId,
            start = start, end = end]);
        same!(Sync: CUpti_ActivitySynchronization, CUpti_ActivitySynchronization2;
            [kind = kind, what = type_, start = start, end = end, correlation = correlationId,
            context = contextId, stream = streamId, event = cudaEventId]);
        same!(Sync2: CUpti_ActivitySynchronization2; [returned = returnValue]);
        same!(Memory: CUpti_ActivityMemory3, CUpti_ActivityMemory4;
            [kind = kind, operation = memoryOperationType, memory_kind = memoryKind,
            correlation = correlationId, address = address, bytes = bytes, timestamp = timestamp,
            device = deviceId, context = contextId, stream = streamId]);
        same!(Memory4: CUpti_ActivityMemory4; [base = kind, source = source]);
        let pool = offset_of!(PooledMemory, pool);
        assert_eq!(pool, offset_of!(sys::CUpti_ActivityMemory3, memoryPoolConfig.memoryPoolType));
        assert_eq!(pool, offset_of!(sys::CUpti_ActivityMemory4, memoryPoolConfig.memoryPoolType));
    }
}
