//! Kernels whose times cannot be believed, or whose end is another's.

use gtop_protocol::record::Kernel;
use gtop_protocol::{Notes, Validity};
use zerocopy::byteorder::little_endian::U16;

use super::{MAX_DEVICES, Work, known_device, place};
use crate::model::snapshot::{FirstInvalid, Unbelieved};
use crate::model::time::Moment;
use crate::model::trust::ByClass;

impl Work {
    /// Counts a kernel whose end is another's, as long as those before it took.
    #[cold]
    pub(super) fn cut_off(&mut self, kernel: &Kernel, at: Moment) {
        self.trust.note(Notes(kernel.notes));
        self.count_stretch(at);
        let slot = self.kernels.slot(kernel.name.get());
        let ns = self.kernels.cut_off(slot, kernel.graph.get());
        let place = place(kernel.device, kernel.context, kernel.stream, kernel.graph);
        self.streams.cut_off(place.stream, ns);
    }

    #[cold]
    pub(super) fn invalid_kernel(
        &mut self,
        kernel: &Kernel,
        class: Validity,
        index: Option<u64>,
        classes: &mut ByClass,
        at: Moment,
    ) {
        let slot = self.kernels.slot(kernel.name.get());
        self.first_bad.get_or_insert_with(|| {
            let (start, end) = (kernel.start.get(), kernel.end.get());
            let (stream, graph) = (kernel.stream.get(), kernel.graph.get());
            (class, Unbelieved { name: Some(self.kernels.id(slot)), start, end, stream, graph })
        });
        self.kernels.add_invalid(slot, at.second());
        self.invalid_in_graph(kernel.device, kernel.graph.get(), at);
        if self.trust.is_first(at) {
            let name = self.kernels.name(slot).full.clone();
            self.first_invalid(index, class, kernel.start.get(), kernel.end.get(), name, at);
        }
        classes[class as usize] += 1;
    }

    pub(super) fn invalid_in_graph(&mut self, device: U16, graph: u32, at: Moment) {
        if self.bad_devices.len() < MAX_DEVICES {
            self.bad_devices.extend(known_device(device));
        }
        self.count_stretch(at);
        self.trust.add_graph(graph, at.second(), [1, 1]);
    }

    pub(super) fn first_invalid(
        &mut self,
        index: Option<u64>,
        class: Validity,
        start: u64,
        end: u64,
        name: String,
        at: Moment,
    ) {
        self.trust.first(FirstInvalid { index, time: at.wall, start, end, class, name });
    }
}
