//! Copies and memory sets.

use super::Walker;
use super::run::Run;
use crate::layout;
use crate::streams::key;
use crate::write::{Sink, Writer};
use gtop_protocol::kind::Kind;
use gtop_protocol::record::{self, Family, NO_DEVICE};
use zerocopy::byteorder::little_endian::{U16, U32};

impl Walker<'_> {
    /// Writes a run of copies; gives how many there are.
    #[inline]
    pub(super) fn copies<S: Sink>(&mut self, run: &Run<'_>, out: &mut Writer<'_, S>) -> Option<u64> {
        let unasked = self.unasked(Kind::Memcpy);
        run.write(Family::Copy, out, |raw: &layout::Memcpy, record: &mut record::Copy| {
            let correlation = self.extend(raw.correlation.get());
            let (validity, notes) = self.check(key(raw.context, raw.stream), raw.start.get(), raw.end.get());
            *record = record::Copy {
                start: raw.start,
                end: raw.end,
                bytes: raw.bytes,
                correlation: correlation.into(),
                graph_node: raw.graph_node,
                context: raw.context,
                stream: raw.stream,
                graph: raw.graph,
                device: narrow(raw.device),
                peer_device: NO_DEVICE.into(),
                direction: raw.copy_kind,
                src_kind: raw.src_kind,
                dst_kind: raw.dst_kind,
                flags: raw.flags,
                validity,
                notes: notes | unasked,
                reserved: U16::ZERO,
            };
        })
    }

    /// Writes a run of memory sets; gives how many there are.
    #[inline]
    pub(super) fn memsets<S: Sink>(
        &mut self,
        run: &Run<'_>,
        out: &mut Writer<'_, S>,
        of_graphs: &mut u64,
    ) -> Option<u64> {
        let unasked = self.unasked(Kind::Memset);
        run.write(Family::Memset, out, |raw: &layout::Memset, record: &mut record::Memset| {
            *of_graphs = of_graphs.wrapping_add(u64::from(raw.graph.get() != 0));
            let correlation = self.extend(raw.correlation.get());
            let (validity, notes) = self.check(key(raw.context, raw.stream), raw.start.get(), raw.end.get());
            *record = record::Memset {
                start: raw.start,
                end: raw.end,
                bytes: raw.bytes,
                correlation: correlation.into(),
                graph_node: raw.graph_node,
                context: raw.context,
                stream: raw.stream,
                graph: raw.graph,
                value: raw.value,
                device: narrow(raw.device),
                memory_kind: raw.memory_kind.get().min(255) as u8,
                flags: raw.flags.get().min(255) as u8,
                validity,
                notes: notes | unasked,
                reserved: U16::ZERO,
            };
        })
    }

    /// Writes a run of copies between devices; gives how many there are.
    #[inline(never)]
    pub(super) fn peer_copies<S: Sink>(&mut self, run: &Run<'_>, out: &mut Writer<'_, S>) -> Option<u64> {
        let unasked = self.unasked(Kind::Memcpy);
        run.write(Family::Copy, out, |raw: &layout::PeerMemcpy, record: &mut record::Copy| {
            let correlation = self.extend(raw.correlation.get());
            let (validity, notes) = self.check(key(raw.context, raw.stream), raw.start.get(), raw.end.get());
            let peer = if raw.src_device == raw.device { raw.dst_device } else { raw.src_device };
            *record = record::Copy {
                start: raw.start,
                end: raw.end,
                bytes: raw.bytes,
                correlation: correlation.into(),
                graph_node: raw.graph_node,
                context: raw.context,
                stream: raw.stream,
                graph: raw.graph,
                device: narrow(raw.device),
                peer_device: narrow(peer),
                direction: raw.copy_kind,
                src_kind: raw.src_kind,
                dst_kind: raw.dst_kind,
                flags: raw.flags,
                validity,
                notes: notes | unasked,
                reserved: U16::ZERO,
            };
        })
    }
}

/// Dimensions and device numbers are small; what does not fit is as unknown as [`NO_DEVICE`].
#[inline]
pub(super) fn narrow(value: U32) -> U16 {
    U16::new(value.get().min(u32::from(u16::MAX)) as u16)
}
