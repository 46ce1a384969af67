//! What is put on the lanes of the timeline.

use std::sync::Arc;

use gtop_protocol::record::Kernel;
use zerocopy::byteorder::little_endian::U16;

use super::Work;
use crate::model::details::Key;
use crate::model::place::{Piece, Place};
use crate::model::snapshot::{Details, Lane, LaneKey};
use crate::model::streams::StreamKey;

impl Work {
    /// Puts a kernel on its lane; gives the id of its detail.
    #[inline(never)]
    pub(super) fn draw_kernel(&mut self, kernel: &Kernel, slot: usize, place: &Place, piece: &Piece) -> u32 {
        let key = Key {
            graph_node: kernel.graph_node.get(),
            bytes: u64::MAX,
            name_id: self.kernels.id(slot),
            graph: place.graph,
            moved_on: (0, 0),
            grid: [kernel.grid_x.get(), u32::from(kernel.grid_y.get()), u32::from(kernel.grid_z.get())],
            shared: [kernel.static_shared.get(), kernel.dynamic_shared.get()],
            block: kernel.block.map(U16::get),
            registers: kernel.registers.get(),
            cluster: kernel.cluster,
        };
        let detail = self.timeline.detail(&key, || Arc::clone(self.kernels.name(slot)));
        let StreamKey { context, stream, .. } = place.stream;
        let lane = LaneKey::Stream { device: place.lane_device(), context, stream };
        self.timeline.add(lane, Piece { detail, ..*piece }.slice());
        detail
    }

    /// Draws the launches of graphs that have ended.
    pub(super) fn close_graphs(&mut self) {
        let (timeline, draws) = (&mut self.timeline, self.draws);
        self.graphs.close(|lane, slice| {
            if draws {
                timeline.add(lane, slice);
            }
        });
    }

    /// The lanes of the timeline and what their slices are, known up to `until`, CUPTI's nanoseconds.
    pub(in super::super) fn lanes(&mut self, until: u64) -> (Vec<Lane>, Details) {
        if !self.draws {
            return (Vec::new(), Details::default());
        }
        let open: Vec<_> = self.graphs.open().collect();
        self.timeline.share(until, &open)
    }
}
