//! What the walk must make of records, told the plain way: one record at a time and field by field, at the offsets of
//! CUPTI's own structs as cudarc has them.

use cudarc::cupti::sys;
use gtop_protocol::frame::RUN_HEADER_LEN;
use gtop_protocol::record::{Copy, Family, Kernel, Memset, NO_DEVICE};
use gtop_protocol::validity::{Bounds, classify};
use gtop_protocol::{KindSet, Notes, Validity, kind::Kind};
use gtop_shim::names::{NameSource, NameTable};
use gtop_shim::walk::Tally;
use std::collections::HashMap;
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Records that pass before a missing frame is asked for again.
const RETRY: u32 = 256;

/// A walk from buffer to buffer, and the frames of the last one.
pub(crate) struct Plain<'a, N: NameSource> {
    pub(crate) bounds: Bounds,
    pub(crate) kernel_until: u64,
    pub(crate) asked: KindSet,
    pub(crate) names: &'a NameTable,
    pub(crate) source: &'a N,
    /// The highest correlation id.
    pub(crate) correlation: u64,
    /// The latest start and the latest end of each stream.
    pub(crate) streams: HashMap<(u32, u32), (u64, u64)>,
    /// Bytes of each frame there will be, the last one first; 0 is a frame that is missing.
    pub(crate) frames: Vec<usize>,
    open: Option<Open>,
    wait: u32,
    tally: Tally,
    bodies: Vec<Vec<u8>>,
}

/// The frame that is being filled: its bytes, how many there may be, and its last run: family, where it begins, records.
struct Open {
    body: Vec<u8>,
    len: usize,
    run: (u8, usize, u32),
    records: u64,
}

/// Fields of a record by their offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    fn clipped16(&self, at: usize) -> u16 {
        u16::try_from(self.u32(at)).unwrap_or(u16::MAX)
    }

    fn clipped8(&self, at: usize) -> u8 {
        u8::try_from(self.u32(at)).unwrap_or(u8::MAX)
    }
}

impl<'a, N: NameSource> Plain<'a, N> {
    pub(crate) fn new(names: &'a NameTable, source: &'a N) -> Self {
        Self {
            bounds: Bounds::UNKNOWN,
            kernel_until: u64::MAX,
            asked: KindSet::SAFE,
            names,
            source,
            correlation: 0,
            streams: HashMap::new(),
            frames: Vec::new(),
            open: None,
            wait: 0,
            tally: Tally::default(),
            bodies: Vec::new(),
        }
    }

    /// Walks one buffer's records; gives the bodies of the frames that were handed over, and the counts.
    pub(crate) fn walk<'r>(&mut self, records: impl Iterator<Item = &'r [u8]>) -> (Vec<Vec<u8>>, Tally) {
        (self.tally, self.wait) = (Tally::default(), 0);
        for record in records {
            self.tally.walked += 1;
            match Fields(record).u32(0) {
                10 | 3 => self.kernel(&Fields(record)),
                1 => self.copy(&Fields(record)),
                22 => self.peer_copy(&Fields(record)),
                2 => self.memset(&Fields(record)),
                kind => panic!("kind {kind} is not told here"),
            }
        }
        self.close();
        (std::mem::take(&mut self.bodies), self.tally)
    }

    fn extend(&mut self, id: u32) -> u64 {
        if id == 0 {
            return 0;
        }
        let near = |period: i128| ((i128::from(self.correlation >> 32) + period) << 32) + i128::from(id);
        // Of two that are equally near, the one before.
        let nearest = [-1, 0, 1]
            .map(near)
            .into_iter()
            .min_by_key(|id| (id - i128::from(self.correlation)).abs())
            .unwrap();
        let extended = u64::try_from(nearest).unwrap_or(u64::from(id));
        self.correlation = self.correlation.max(extended);
        extended
    }

    /// Class and notes; the latter say nothing of a kernel whose end is another's, but that.
    fn judge(&mut self, kind: Kind, stream: (u32, u32), start: u64, end: u64, cut_off: bool) -> (u8, u8) {
        let class = classify(start, end, self.bounds);
        if class != Validity::Valid {
            self.tally.invalid += 1;
        }
        let mut notes = 0;
        if !cut_off && !self.asked.has(kind) {
            notes |= Notes::UNASKED_KIND;
        }
        if class == Validity::Valid && cut_off {
            notes |= Notes::CUT_OFF;
        } else if class == Validity::Valid {
            if start == end {
                notes |= Notes::ZERO_LENGTH;
            }
            let latest = self.streams.entry(stream).or_default();
            if start < latest.0 {
                notes |= Notes::OUT_OF_ORDER;
            } else if start < latest.1 {
                notes |= Notes::OVERLAP;
            }
            *latest = (latest.0.max(start), latest.1.max(end));
        }
        (class as u8, notes)
    }

    fn kernel(&mut self, raw: &Fields<'_>) {
        type Raw = sys::CUpti_ActivityKernel9;
        self.tally.kernel += 1;
        let (start, end) = (raw.u64(offset_of!(Raw, start)), raw.u64(offset_of!(Raw, end)));
        let stream = (raw.u32(offset_of!(Raw, contextId)), raw.u32(offset_of!(Raw, streamId)));
        let graph = raw.u32(offset_of!(Raw, graphId));
        let name = self.names.resolve(raw.u64(offset_of!(Raw, name)), self.source);
        let correlation = self.extend(raw.u32(offset_of!(Raw, correlationId)));
        let cut_off = end > self.kernel_until && graph != 0;
        let (validity, notes) = self.judge(Kind::Kernel, stream, start, end, cut_off);
        let record = Kernel {
            start: start.into(),
            end: end.into(),
            correlation: correlation.into(),
            graph_node: raw.u64(offset_of!(Raw, graphNodeId)).into(),
            name: name.into(),
            context: stream.0.into(),
            stream: stream.1.into(),
            graph: graph.into(),
            grid_x: raw.u32(offset_of!(Raw, gridX)).into(),
            grid_y: raw.clipped16(offset_of!(Raw, gridY)).into(),
            grid_z: raw.clipped16(offset_of!(Raw, gridZ)).into(),
            block: [offset_of!(Raw, blockX), offset_of!(Raw, blockY), offset_of!(Raw, blockZ)]
                .map(|at| raw.clipped16(at).into()),
            device: raw.clipped16(offset_of!(Raw, deviceId)).into(),
            static_shared: raw.u32(offset_of!(Raw, staticSharedMemory)).into(),
            dynamic_shared: raw.u32(offset_of!(Raw, dynamicSharedMemory)).into(),
            registers: raw.u16(offset_of!(Raw, registersPerThread)).into(),
            cluster: [offset_of!(Raw, clusterX), offset_of!(Raw, clusterY), offset_of!(Raw, clusterZ)]
                .map(|at| raw.clipped8(at)),
            validity,
            notes,
            channel_type: raw.clipped8(offset_of!(Raw, channelType)),
        };
        self.put(Family::Kernel, record.as_bytes());
    }

    fn copy(&mut self, raw: &Fields<'_>) {
        type Raw = sys::CUpti_ActivityMemcpy5;
        self.tally.memcpy += 1;
        let (start, end) = (raw.u64(offset_of!(Raw, start)), raw.u64(offset_of!(Raw, end)));
        let stream = (raw.u32(offset_of!(Raw, contextId)), raw.u32(offset_of!(Raw, streamId)));
        let correlation = self.extend(raw.u32(offset_of!(Raw, correlationId)));
        let (validity, notes) = self.judge(Kind::Memcpy, stream, start, end, false);
        let record = Copy {
            start: start.into(),
            end: end.into(),
            bytes: raw.u64(offset_of!(Raw, bytes)).into(),
            correlation: correlation.into(),
            graph_node: raw.u64(offset_of!(Raw, graphNodeId)).into(),
            context: stream.0.into(),
            stream: stream.1.into(),
            graph: raw.u32(offset_of!(Raw, graphId)).into(),
            device: raw.clipped16(offset_of!(Raw, deviceId)).into(),
            peer_device: NO_DEVICE.into(),
            direction: raw.u8(offset_of!(Raw, copyKind)),
            src_kind: raw.u8(offset_of!(Raw, srcKind)),
            dst_kind: raw.u8(offset_of!(Raw, dstKind)),
            flags: raw.u8(offset_of!(Raw, flags)),
            validity,
            notes,
            ..Copy::default()
        };
        self.put(Family::Copy, record.as_bytes());
    }

    fn peer_copy(&mut self, raw: &Fields<'_>) {
        type Raw = sys::CUpti_ActivityMemcpyPtoP4;
        self.tally.memcpy += 1;
        let (start, end) = (raw.u64(offset_of!(Raw, start)), raw.u64(offset_of!(Raw, end)));
        let stream = (raw.u32(offset_of!(Raw, contextId)), raw.u32(offset_of!(Raw, streamId)));
        let correlation = self.extend(raw.u32(offset_of!(Raw, correlationId)));
        let (validity, notes) = self.judge(Kind::Memcpy, stream, start, end, false);
        let own = raw.u32(offset_of!(Raw, deviceId)) == raw.u32(offset_of!(Raw, srcDeviceId));
        let peer = if own { offset_of!(Raw, dstDeviceId) } else { offset_of!(Raw, srcDeviceId) };
        let record = Copy {
            start: start.into(),
            end: end.into(),
            bytes: raw.u64(offset_of!(Raw, bytes)).into(),
            correlation: correlation.into(),
            graph_node: raw.u64(offset_of!(Raw, graphNodeId)).into(),
            context: stream.0.into(),
            stream: stream.1.into(),
            graph: raw.u32(offset_of!(Raw, graphId)).into(),
            device: raw.clipped16(offset_of!(Raw, deviceId)).into(),
            peer_device: raw.clipped16(peer).into(),
            direction: raw.u8(offset_of!(Raw, copyKind)),
            src_kind: raw.u8(offset_of!(Raw, srcKind)),
            dst_kind: raw.u8(offset_of!(Raw, dstKind)),
            flags: raw.u8(offset_of!(Raw, flags)),
            validity,
            notes,
            ..Copy::default()
        };
        self.put(Family::Copy, record.as_bytes());
    }

    fn memset(&mut self, raw: &Fields<'_>) {
        type Raw = sys::CUpti_ActivityMemset4;
        self.tally.memset += 1;
        let (start, end) = (raw.u64(offset_of!(Raw, start)), raw.u64(offset_of!(Raw, end)));
        let stream = (raw.u32(offset_of!(Raw, contextId)), raw.u32(offset_of!(Raw, streamId)));
        let graph = raw.u32(offset_of!(Raw, graphId));
        self.tally.graph_memset += u64::from(graph != 0);
        let correlation = self.extend(raw.u32(offset_of!(Raw, correlationId)));
        let (validity, notes) = self.judge(Kind::Memset, stream, start, end, false);
        let record = Memset {
            start: start.into(),
            end: end.into(),
            bytes: raw.u64(offset_of!(Raw, bytes)).into(),
            correlation: correlation.into(),
            graph_node: raw.u64(offset_of!(Raw, graphNodeId)).into(),
            context: stream.0.into(),
            stream: stream.1.into(),
            graph: graph.into(),
            value: raw.u32(offset_of!(Raw, value)).into(),
            device: raw.clipped16(offset_of!(Raw, deviceId)).into(),
            memory_kind: u8::try_from(raw.u16(offset_of!(Raw, memoryKind))).unwrap_or(u8::MAX),
            flags: u8::try_from(raw.u16(offset_of!(Raw, flags))).unwrap_or(u8::MAX),
            validity,
            notes,
            ..Memset::default()
        };
        self.put(Family::Memset, record.as_bytes());
    }

    /// Appends a record to the frame, behind a new header if it is of another family than the last one.
    fn put(&mut self, family: Family, record: &[u8]) {
        let needed = |open: &Open| {
            let header = if open.run.0 == family as u8 { 0 } else { RUN_HEADER_LEN };
            open.body.len() + header + record.len()
        };
        if self.open.as_ref().is_none_or(|open| needed(open) > open.len) {
            self.close();
            let len = if self.wait > 0 { None } else { Some(self.frames.pop().unwrap_or(0)) };
            self.wait = self.wait.saturating_sub(1);
            match len {
                Some(len) if len >= RUN_HEADER_LEN + record.len() => {
                    self.open = Some(Open { body: Vec::new(), len, run: (0, 0, 0), records: 0 });
                }
                Some(_) => self.wait = RETRY,
                None => {}
            }
        }
        let Some(open) = &mut self.open else {
            self.tally.queue_full += 1;
            return;
        };
        if open.run.0 != family as u8 {
            open.run = (family as u8, open.body.len(), 0);
            open.body.extend([family as u8, 0, 0, 0, 0, 0, 0, 0]);
        }
        open.body.extend_from_slice(record);
        open.records += 1;
        open.run.2 += 1;
        let (_, at, count) = open.run;
        open.body[at + 4..at + 8].copy_from_slice(&count.to_le_bytes());
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.tally.framed += open.records;
            self.bodies.push(open.body);
        }
    }
}
