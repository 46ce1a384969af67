//! Activity records as each CUPTI version lays them out: its newest struct of every kind, packed back to back.

use crate::version::Version;

/// Values of `CUpti_ActivityKind` that the simulator produces or accepts.
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const SERIAL_KERNEL: u32 = 3;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const RUNTIME: u32 = 5;
    pub(crate) const KERNEL: u32 = 10;
    pub(crate) const OVERHEAD: u32 = 17;
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const SYNC: u32 = 38;
    pub(crate) const MEMORY2: u32 = 49;
    pub(crate) const GRAPH_TRACE: u32 = 51;
    /// One past the last kind of 13.5.
    pub(crate) const COUNT: u32 = 64;
}

/// The most bytes a record takes.
pub(crate) const MAX: usize = 256;

/// The stride of records of `kind` in buffers of `version`, in bytes; none for kinds its `GetNextRecord` rejects
/// or that the simulator does not know.
pub(crate) const fn stride(kind: u32, version: Version) -> Option<usize> {
    let v = version.0;
    Some(match kind {
        kind::KERNEL | kind::SERIAL_KERNEL => match v {
            0..130_000 => 208,
            130_000..130_100 => 216,
            130_100..130_300 => 224,
            130_300..130_400 => 232,
            _ => 248,
        },
        kind::MEMCPY => match v {
            0..26 => 88,
            26..130_400 => 96,
            _ => 112,
        },
        kind::MEMSET if v < 130_400 => 88,
        kind::MEMSET => 104,
        kind::MEMCPY2 => 96,
        kind::DRIVER | kind::RUNTIME => 40,
        kind::OVERHEAD if v < 22 => 40,
        kind::SYNC if v < 26 => 40,
        kind::GRAPH_TRACE if v < 22 => 48,
        kind::OVERHEAD | kind::SYNC | kind::GRAPH_TRACE => 56,
        kind::MEMORY2 if v < 24 => 120,
        kind::MEMORY2 => 128,
        _ => return None,
    })
}

/// A record with everything filled in but what differs from one execution to the next.
#[derive(Clone)]
pub(crate) struct Record {
    bytes: [u8; MAX],
    len: usize,
    correlation_at: usize,
    start_at: usize,
}

impl Record {
    /// A zeroed record of `kind`.
    fn new(kind: u32, version: Version, start_at: usize, correlation_at: usize) -> Self {
        let len = stride(kind, version).unwrap_or(MAX);
        let mut record = Self { bytes: [0; MAX], len, correlation_at, start_at };
        record.u32(0, kind);
        record
    }

    /// A kernel, by the offsets that Kernel9 to Kernel13 share.
    pub(crate) fn kernel(version: Version, place: Place, kernel: &Kernel) -> Self {
        let mut record = Self::new(kind::KERNEL, version, 16, 92);
        record.u16(6, kernel.registers);
        record.u32(8, 1);
        record.u32(12, 1);
        record.place(40, place);
        for (i, value) in kernel.grid.into_iter().chain(kernel.block).enumerate() {
            record.u32(52 + 4 * i, value);
        }
        record.u32(76, kernel.static_shared);
        record.u32(80, kernel.dynamic_shared);
        record.u64(104, kernel.name);
        record.u32(140, kernel.static_shared + kernel.dynamic_shared);
        record.graph(144, 156, place);
        record.u32(168, place.channel);
        record.u32(172, 1);
        for (i, value) in kernel.cluster.into_iter().enumerate() {
            record.u32(176 + 4 * i, value);
        }
        record
    }

    /// A copy: Memcpy5 to Memcpy7, or `MemcpyPtoP4` between devices.
    pub(crate) fn copy(version: Version, place: Place, copy: &Copy) -> Self {
        let peer = copy.kind == Copy::PEER;
        let mut record = if peer {
            Self::new(kind::MEMCPY2, version, 16, 60)
        } else {
            Self::new(kind::MEMCPY, version, 16, 44)
        };
        record.bytes[4] = copy.kind;
        record.bytes[5] = copy.from;
        record.bytes[6] = copy.to;
        record.bytes[7] = copy.flags;
        record.u64(8, copy.bytes);
        record.place(32, place);
        if peer {
            record.u32(44, place.device);
            record.u32(48, place.context);
            record.u32(52, place.device + 1);
            record.u32(56, place.context + 1);
            record.graph(72, 80, place);
            record.u32(84, place.channel);
            record.u32(88, 2);
        } else {
            record.graph(64, 72, place);
            record.u32(76, place.channel);
            record.u32(80, 2);
            record.u64(88, u64::from(record.len > 88));
        }
        record
    }

    /// A memory set: Memset4 or Memset5.
    pub(crate) fn memset(version: Version, place: Place, bytes: u64, value: u32) -> Self {
        let mut record = Self::new(kind::MEMSET, version, 16, 44);
        record.u32(4, value);
        record.u64(8, bytes);
        record.place(32, place);
        record.u16(48, 1);
        record.u16(50, 3);
        record.graph(64, 72, place);
        record.u32(76, place.channel);
        record.u32(80, 1);
        record
    }

    /// A call of the driver or runtime API, kind 4 or 5.
    pub(crate) fn api(version: Version, kind: u32, cbid: u32) -> Self {
        let mut record = Self::new(kind, version, 8, 32);
        record.u32(4, cbid);
        record.u32(24, std::process::id());
        record
    }

    /// CUPTI's own overhead of `overhead` kind (`n << 16`) on a context.
    pub(crate) fn overhead(version: Version, overhead: u32, device: u32, context: u32) -> Self {
        let mut record = Self::new(kind::OVERHEAD, version, 24, 40);
        record.u32(4, overhead);
        record.u32(8, 4);
        record.u32(12, device);
        record.u32(16, context);
        record
    }

    /// A stream synchronisation.
    pub(crate) fn sync(version: Version, place: Place) -> Self {
        let mut record = Self::new(kind::SYNC, version, 8, 24);
        record.u32(4, 3);
        record.u32(28, place.context);
        record.u32(32, place.stream);
        record
    }

    /// An allocation or a free of device memory; it has one time only. `source` is the address of the path of the library
    /// that asked, 0 where that is not tracked.
    pub(crate) fn memory(
        version: Version,
        place: Place,
        allocation: bool,
        [address, bytes]: [u64; 2],
        source: u64,
    ) -> Self {
        let mut record = Self::new(kind::MEMORY2, version, 32, 12);
        record.u32(4, if allocation { 1 } else { 2 });
        record.u32(8, 3);
        record.u64(16, address);
        record.u64(24, bytes);
        record.u32(48, std::process::id());
        record.u32(52, place.device);
        record.u32(56, place.context);
        record.u32(60, place.stream);
        if version.tracks_sources() {
            record.u64(120, source);
        }
        record
    }

    /// Makes a memory record one of memory from a pool of this process: asynchronous, `CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL`.
    pub(crate) fn be_pooled(&mut self) {
        self.u32(72, 1);
        self.u32(80, 1);
    }

    /// A whole graph as one record, what `GRAPH_TRACE` yields in place of its nodes.
    pub(crate) fn graph_trace(version: Version, place: Place) -> Self {
        let mut record = Self::new(kind::GRAPH_TRACE, version, 8, 4);
        record.u32(24, place.device);
        record.u32(28, place.graph);
        record.u32(32, place.context);
        record.u32(36, place.stream);
        record
    }

    /// A record of a kind that no library knows.
    pub(crate) fn unknown() -> Self {
        let mut record = Self { bytes: [0; MAX], len: 64, correlation_at: 4, start_at: 8 };
        record.u32(0, 4_000);
        record
    }

    /// The kind in its first word.
    pub(crate) fn kind(&self) -> u32 {
        u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }

    /// The address of a kernel's name, 0 of anything else.
    pub(crate) fn name(&self) -> u64 {
        if self.kind() == kind::KERNEL {
            let mut name = [0; 8];
            name.copy_from_slice(&self.bytes[104..112]);
            u64::from_le_bytes(name)
        } else {
            0
        }
    }

    /// The bytes as they go into a host buffer.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Fills in one execution.
    pub(crate) fn stamp(&mut self, start: u64, end: u64, correlation: u32, grid_id: u64) {
        self.u64(self.start_at, start);
        self.u32(self.correlation_at, correlation);
        match self.kind() {
            kind::MEMORY2 => {}
            kind::KERNEL => {
                self.u64(24, end);
                self.u64(32, end);
                self.u64(96, grid_id);
            }
            _ => self.u64(self.start_at + 8, end),
        }
    }

    fn place(&mut self, at: usize, place: Place) {
        self.u32(at, place.device);
        self.u32(at + 4, place.context);
        self.u32(at + 8, place.stream);
    }

    fn graph(&mut self, node_at: usize, graph_at: usize, place: Place) {
        self.u64(node_at, place.node);
        self.u32(graph_at, place.graph);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Where work runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// Id of the executable graph, 0 for eager work.
    pub(crate) graph: u32,
    /// Id of the node in it, 0 for eager work.
    pub(crate) node: u64,
    /// Hardware channel.
    pub(crate) channel: u32,
}

/// What a kernel record says of its kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Address of a NUL-terminated string that lives for ever.
    pub(crate) name: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) registers: u16,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
}

/// What a copy record says of its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// `CUpti_ActivityMemcpyKind`: 1 host to device, 2 device to host, 8 device to device, 10 peer to peer.
    pub(crate) kind: u8,
    /// `CUpti_ActivityMemoryKind`: 1 pageable, 2 pinned, 3 device.
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// 1 when asynchronous.
    pub(crate) flags: u8,
    pub(crate) bytes: u64,
}

impl Copy {
    pub(crate) const HOST_TO_DEVICE: u8 = 1;
    pub(crate) const DEVICE_TO_HOST: u8 = 2;
    pub(crate) const DEVICE_TO_DEVICE: u8 = 8;
    pub(crate) const PEER: u8 = 10;
}

#[cfg(test)]
mod tests;
