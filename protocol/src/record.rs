//! The records of the stream: fixed-size, little-endian, unaligned, so that a frame can be read in place.
//!
//! Fields are only ever appended. A reader takes the prefix it knows of a longer record and pads a shorter one
//! with zeros ([`read`]); the sizes in force are in the hello.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Which record a run of a records frame holds. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Family {
    /// [`Kernel`].
    Kernel = 1,
    /// [`struct@Copy`].
    Copy = 2,
    /// [`Memset`].
    Memset = 3,
    /// [`Other`].
    Other = 4,
}

impl Family {
    /// Every family, in wire order.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Copy, Self::Memset, Self::Other];

    /// The family with this wire value.
    #[must_use]
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Kernel,
            2 => Self::Copy,
            3 => Self::Memset,
            4 => Self::Other,
            _ => return None,
        })
    }

    /// The size of this version's record, in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Kernel => size_of::<Kernel>(),
            Self::Copy => size_of::<Copy>(),
            Self::Memset => size_of::<Memset>(),
            Self::Other => size_of::<Other>(),
        }
    }

    /// Where in a record the byte of its validity is.
    #[must_use]
    pub const fn validity_at(self) -> usize {
        match self {
            Self::Kernel => core::mem::offset_of!(Kernel, validity),
            Self::Copy => core::mem::offset_of!(Copy, validity),
            Self::Memset => core::mem::offset_of!(Memset, validity),
            Self::Other => core::mem::offset_of!(Other, validity),
        }
    }
}

/// No device is known, in the `device` fields.
pub const NO_DEVICE: u16 = u16::MAX;

/// A kernel, from `CUpti_ActivityKernel9` and its successors (same offsets from 12.0 to 13.5).
#[derive(
    Clone,
    core::marker::Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Kernel {
    /// Start, CUPTI's nanoseconds.
    pub start: U64,
    /// End, CUPTI's nanoseconds.
    pub end: U64,
    /// Correlation id, extended to 64 bits by the shim. All kernels of one graph launch share it.
    pub correlation: U64,
    /// Graph node id; 0 outside graphs.
    pub graph_node: U64,
    /// Name id of a names frame; 0 is unknown.
    pub name: U32,
    /// Context id.
    pub context: U32,
    /// Stream id.
    pub stream: U32,
    /// Executable graph id; 0 outside graphs.
    pub graph: U32,
    /// Grid x, in blocks.
    pub grid_x: U32,
    /// Grid y, in blocks; at most 65,535 on every compute capability.
    pub grid_y: U16,
    /// Grid z, in blocks; at most 65,535 on every compute capability.
    pub grid_z: U16,
    /// Block dimensions, in threads; at most 1,024 each.
    pub block: [U16; 3],
    /// Device index as CUPTI numbers it.
    pub device: U16,
    /// Static shared memory, bytes.
    pub static_shared: U32,
    /// Dynamic shared memory, bytes.
    pub dynamic_shared: U32,
    /// Registers a thread.
    pub registers: U16,
    /// Cluster dimensions, in blocks; 0 when the kernel has no cluster.
    pub cluster: [u8; 3],
    /// A [`Validity`](crate::Validity) wire value.
    pub validity: u8,
    /// [`Notes`](crate::Notes) bits.
    pub notes: u8,
    /// `CUpti_ChannelType`: 0 invalid, 1 compute, 2 asynchronous copy, 3 decompression.
    pub channel_type: u8,
}

/// A copy, from `CUpti_ActivityMemcpy5` and its successors or `CUpti_ActivityMemcpyPtoP4`.
#[derive(
    Clone,
    core::marker::Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Copy {
    /// Start, CUPTI's nanoseconds.
    pub start: U64,
    /// End, CUPTI's nanoseconds.
    pub end: U64,
    /// Bytes copied.
    pub bytes: U64,
    /// Correlation id, extended to 64 bits by the shim.
    pub correlation: U64,
    /// Graph node id; 0 outside graphs.
    pub graph_node: U64,
    /// Context id.
    pub context: U32,
    /// Stream id.
    pub stream: U32,
    /// Executable graph id; 0 outside graphs.
    pub graph: U32,
    /// Device index as CUPTI numbers it.
    pub device: U16,
    /// The other device of a peer copy, or [`NO_DEVICE`].
    pub peer_device: U16,
    /// `CUpti_ActivityMemcpyKind`: see [`direction_name`].
    pub direction: u8,
    /// `CUpti_ActivityMemoryKind` of the source.
    pub src_kind: u8,
    /// `CUpti_ActivityMemoryKind` of the destination.
    pub dst_kind: u8,
    /// `CUpti_ActivityFlag`: bit 0 asynchronous.
    pub flags: u8,
    /// A [`Validity`](crate::Validity) wire value.
    pub validity: u8,
    /// [`Notes`](crate::Notes) bits.
    pub notes: u8,
    /// Zero.
    pub reserved: U16,
}

/// A memory set, from `CUpti_ActivityMemset4` and its successors.
#[derive(
    Clone,
    core::marker::Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Memset {
    /// Start, CUPTI's nanoseconds.
    pub start: U64,
    /// End, CUPTI's nanoseconds.
    pub end: U64,
    /// Bytes set.
    pub bytes: U64,
    /// Correlation id, extended to 64 bits by the shim.
    pub correlation: U64,
    /// Graph node id; 0 outside graphs.
    pub graph_node: U64,
    /// Context id.
    pub context: U32,
    /// Stream id.
    pub stream: U32,
    /// Executable graph id; 0 outside graphs.
    pub graph: U32,
    /// The value written.
    pub value: U32,
    /// Device index as CUPTI numbers it.
    pub device: U16,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: u8,
    /// `CUpti_ActivityFlag`: bit 0 asynchronous.
    pub flags: u8,
    /// A [`Validity`](crate::Validity) wire value.
    pub validity: u8,
    /// [`Notes`](crate::Notes) bits.
    pub notes: u8,
    /// Zero.
    pub reserved: U16,
}

/// Any other kind that was asked for: overhead, synchronisation, memory, runtime and driver calls.
#[derive(
    Clone,
    core::marker::Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Other {
    /// Start, CUPTI's nanoseconds; the moment itself for memory records.
    pub start: U64,
    /// End, CUPTI's nanoseconds; equal to start for memory records.
    pub end: U64,
    /// Correlation id, extended to 64 bits by the shim; 0 is none.
    pub correlation: U64,
    /// Bytes for memory; the return value for API calls and synchronisation; 0 otherwise.
    pub value: U64,
    /// Address for memory; CUDA event id for synchronisation; 0 otherwise.
    pub address: U64,
    /// CUPTI's own kind value.
    pub cupti_kind: U32,
    /// Callback id for API calls, `overheadKind`, synchronisation type, or `memoryOperationType`.
    pub code: U32,
    /// Context id; 0 is unknown.
    pub context: U32,
    /// Stream id.
    pub stream: U32,
    /// Thread id for API calls; `memoryKind` for memory.
    pub thread: U32,
    /// Device index as CUPTI numbers it, or [`NO_DEVICE`].
    pub device: U16,
    /// A [`Validity`](crate::Validity) wire value.
    pub validity: u8,
    /// [`Notes`](crate::Notes) bits.
    pub notes: u8,
    /// For memory, the name id of the file of the library or program that asked for it, where CUPTI says so (12.6 on);
    /// 0 is unknown.
    pub source: U32,
    /// For memory, the `CUpti_ActivityMemoryPoolType` of the pool it came from; 0 is none, or unknown.
    pub pool: U32,
}

const _: () = assert!(size_of::<Kernel>() == 80);
const _: () = assert!(size_of::<Copy>() == 64);
const _: () = assert!(size_of::<Memset>() == 64);
const _: () = assert!(size_of::<Other>() == 72);

/// Reads a record from the front of `bytes`, whatever version wrote it: extra bytes are ignored, missing ones
/// are zero.
#[must_use]
pub fn read<R: FromBytes + IntoBytes + Default>(bytes: &[u8]) -> R {
    if let Ok((record, _)) = R::read_from_prefix(bytes) {
        return record;
    }
    let mut record = R::default();
    if let Some(front) = record.as_mut_bytes().get_mut(..bytes.len()) {
        front.copy_from_slice(bytes);
    }
    record
}

/// The short name of a `CUpti_ActivityMemcpyKind` (`cupti_activity.h`, values 1 to 10).
#[must_use]
pub const fn direction_name(direction: u8) -> &'static str {
    match direction {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_any_length_reads() {
        let kernel = Kernel { start: 5.into(), end: 9.into(), channel_type: 1, ..Kernel::default() };
        let mut bytes = [0xffu8; 96];
        bytes[..80].copy_from_slice(kernel.as_bytes());
        assert_eq!(read::<Kernel>(&bytes), kernel);
        let short = read::<Kernel>(&bytes[..16]);
        assert_eq!((short.start.get(), short.end.get(), short.channel_type), (5, 9, 0));
        assert_eq!(read::<Kernel>(&[]), Kernel::default());
    }
}
