//! Kernels, most records by far: read and written in words of several fields each, as they lie beside each other.

use super::Walker;
use super::copies::narrow;
use super::run::Run;
use crate::layout;
use crate::names::NameSource;
use crate::write::{Sink, Writer};
use core::mem::offset_of;
use gtop_protocol::kind::Kind;
use gtop_protocol::record::{self, Family};
use gtop_protocol::validity::{Notes, Validity};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref};

/// A [`layout::Kernel`]. Of two fields in a word the first is the lower half.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    kind: U32,
    cache: [u8; 2],
    registers: U16,
    partitioned_cache: [u8; 8],
    start: U64,
    end: U64,
    completed: U64,
    device: U32,
    context_stream: U64,
    grid_x: U32,
    grid_yz: U64,
    block_xy: U64,
    block_z: U32,
    shared: U64,
    local_memory: [u8; 8],
    correlation: U32,
    grid_id: U64,
    name: U64,
    launch: [u8; 32],
    graph_node: U64,
    shared_limit: U32,
    graph: U32,
    access_policy: U64,
    channel: U32,
    channel_type_cluster_x: U64,
    cluster_yz: U64,
}

/// A [`record::Kernel`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Record {
    start: U64,
    end: U64,
    correlation: U64,
    graph_node: U64,
    name: U32,
    context_stream: U64,
    graph: U32,
    grid_x: U32,
    grid_yz: U32,
    block_xy: U32,
    block_z_device: U32,
    shared: U64,
    /// Registers, cluster, validity, notes and channel type, from the lowest bits on.
    rest: U64,
}

/// Whether fields lie where they lie in the record taken apart.
macro_rules! same {
    ($words:ty, $fields:ty: $($word:ident = $field:ident),+ $(,)?) => {
        const _: () = assert!(size_of::<$words>() == size_of::<$fields>());
        $(const _: () = assert!(offset_of!($words, $word) == offset_of!($fields, $field));)+
    };
}

same!(Raw, layout::Kernel: registers = registers, start = start, end = end, device = device,
    context_stream = context, grid_x = grid, block_xy = block, shared = static_shared, correlation = correlation,
    name = name, graph_node = graph_node, graph = graph, channel_type_cluster_x = channel_type);
same!(Record, record::Kernel: start = start, end = end, correlation = correlation, graph_node = graph_node,
    name = name, context_stream = context, graph = graph, grid_x = grid_x, grid_yz = grid_y, block_xy = block,
    shared = static_shared, rest = registers);

/// What does not fit into 16 bits, and what does not fit into 8, in either half of a word.
const BEYOND_16: u64 = 0xffff_0000_ffff_0000;
const BEYOND_8: u64 = 0xffff_ff00_ffff_ff00;

impl Walker<'_> {
    /// Writes a run of kernels; gives how many there are.
    #[inline]
    pub(super) fn kernels<S: Sink>(
        &mut self,
        run: &Run<'_>,
        source: &impl NameSource,
        out: &mut Writer<'_, S>,
    ) -> Option<u64> {
        let unasked = self.unasked(Kind::Kernel);
        // With these alone most records are told to be good.
        let (earliest, latest) = (self.bounds.earliest, self.bounds.latest.min(self.kernel_until));
        run.write(Family::Kernel, out, |raw: &Raw, record: &mut Record| {
            let (start, end) = (raw.start.get(), raw.end.get());
            let stream = raw.context_stream.get();
            let name = self.names.id(raw.name.get(), source);
            let correlation = self.extend(raw.correlation.get());
            let judged = if start >= earliest && start <= end && end <= latest {
                u64::from(self.streams.note(stream, start, end) | unasked) << 8
            } else {
                self.judge(stream, start, end, raw.graph.get() != 0, unasked)
            };
            let block_z_device = u64::from(raw.block_z.get()) | u64::from(raw.device.get()) << 32;
            let (grid_yz, block_xy) = (raw.grid_yz.get(), raw.block_xy.get());
            let (channel_x, cluster_yz) = (raw.channel_type_cluster_x.get(), raw.cluster_yz.get());
            record.start = raw.start;
            record.end = raw.end;
            record.correlation = correlation.into();
            record.graph_node = raw.graph_node;
            record.name = name.into();
            record.context_stream = raw.context_stream;
            record.graph = raw.graph;
            record.grid_x = raw.grid_x;
            record.grid_yz = halves(grid_yz);
            record.block_xy = halves(block_xy);
            record.block_z_device = halves(block_z_device);
            record.shared = raw.shared;
            let rest = u64::from(raw.registers.get())
                | (channel_x >> 16 & 0xff_0000)
                | ((cluster_yz << 24 | cluster_yz) & 0xff_ff00_0000)
                | judged << 40
                | channel_x << 56;
            record.rest = rest.into();
            let beyond =
                (grid_yz | block_xy | block_z_device) & BEYOND_16 | (channel_x | cluster_yz) & BEYOND_8;
            if beyond != 0 {
                clip(transmute_mut!(record), transmute_ref!(raw));
            }
        })
    }

    /// Class and, above it, notes of a record whose timestamps are not good, or that ends after kernel was switched off:
    /// if it is a node of a graph, its end is another's.
    #[cold]
    #[inline(never)]
    fn judge(&mut self, stream: u64, start: u64, end: u64, graph: bool, unasked: u8) -> u64 {
        let cut_off = graph && end > self.kernel_until;
        let (validity, notes) = match (self.bounds.hold(start, end), cut_off) {
            (true, true) => (Validity::Valid as u8, Notes::CUT_OFF),
            (true, false) => (Validity::Valid as u8, self.streams.note(stream, start, end) | unasked),
            (false, true) => (self.bad(start, end), 0),
            (false, false) => (self.bad(start, end), unasked),
        };
        u64::from(validity) | u64::from(notes) << 8
    }
}

/// The lower 16 bits of both halves, which is all there is but for what [`clip`] mends.
#[inline]
fn halves(word: u64) -> U32 {
    U32::new((word | word >> 16) as u32)
}

/// Writes the numbers again of which one does not fit.
#[cold]
#[inline(never)]
fn clip(record: &mut record::Kernel, raw: &layout::Kernel) {
    record.grid_y = narrow(raw.grid[1]);
    record.grid_z = narrow(raw.grid[2]);
    record.block = raw.block.map(narrow);
    record.device = narrow(raw.device);
    record.cluster = raw.cluster.map(|blocks| blocks.get().min(255) as u8);
    record.channel_type = raw.channel_type.get().min(255) as u8;
}
