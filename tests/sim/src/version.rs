//! What one CUPTI version does, as measured on an H200.

/// What `cuptiGetVersion` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) u32);

impl Version {
    /// A device buffer that holds a slot of a graph copy or memset whose kind is off never comes back.
    pub(crate) const fn leaks(self) -> bool {
        matches!(self.0, 28 | 130_000..=130_299)
    }

    /// Records of graph copies and memsets come although nobody enabled their kinds.
    pub(crate) const fn delivers_unasked(self) -> bool {
        self.0 <= 26
    }

    /// Kernels of an early graph without copies and memsets keep being recorded after the kind is off.
    pub(crate) const fn keeps_recording(self) -> bool {
        self.leaks()
    }

    /// Each thread of the application fills host buffers of its own (attribute 9).
    pub(crate) const fn per_thread_buffers(self) -> bool {
        self.0 >= 130_000
    }

    /// The client may answer a request for a buffer with none.
    pub(crate) const fn may_refuse_buffer(self) -> bool {
        self.0 >= 28
    }

    /// `cuptiSubscribe_v2` is exported, which names who holds CUPTI.
    pub(crate) const fn names_holder(self) -> bool {
        self.0 >= 130_000
    }

    /// The activity interface v2 is exported; some of it came with 13.3 only.
    pub(crate) const fn has_v2(self) -> bool {
        self.0 >= 130_300
    }

    /// Memory records have room for the library that asked, which `cuptiActivityEnableAllocationSource` has tracked.
    pub(crate) const fn tracks_sources(self) -> bool {
        self.0 >= 24
    }

    /// `cuptiActivityGetStructSize` is exported.
    pub(crate) const fn has_struct_size(self) -> bool {
        self.0 >= 130_200
    }
}
