//! One activity buffer → records of the protocol: step, classify, intern the name, write, count.
//!
//! This is the hot path. It takes one pass, allocates nothing and takes no lock; what threads share it reads
//! once at the start of a buffer and writes once at its end.

mod rare;

use crate::layout;
use crate::names::{NameSource, NameTable, pointer_hash};
use crate::streams::{StreamTable, Streams};
use crate::write::{Sink, Writer};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::record::{self, Family, NO_DEVICE};
use gtop_protocol::validity::{Bounds, Notes, Validity, classify};
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::{U16, U32};

/// What comes next in a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Next<'a> {
    /// A record: everything from its first byte to the end of the buffer.
    Record(&'a [u8]),
    /// The end. This many bytes are left that are not a whole record.
    End(usize),
    /// A record nobody can step over, and so everything behind it; bytes.
    Stuck(usize),
}

/// Steps from record to record.
pub trait Step {
    /// The next record.
    fn step(&mut self) -> Next<'_>;
}

/// What is known when a buffer is walked.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// Names by id.
    pub names: &'a NameTable,
    /// What came last on each stream.
    pub streams: &'a StreamTable,
    /// The highest extended correlation id so far.
    pub correlation: &'a AtomicU64,
    /// What the clock allows.
    pub bounds: Bounds,
    /// When kernel was switched off, CUPTI's nanoseconds; all ones while it is on.
    pub kernel_until: u64,
    /// Kinds that were ever asked for.
    pub asked: KindSet,
    /// What `cuptiGetVersion` said.
    pub version: u32,
    /// Whether memory records say which library asked for the memory.
    pub sources: bool,
}

/// What became of one buffer's records, in records unless it says otherwise. Each is counted where it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stepped onto.
    pub walked: u64,
    /// Written into frames that were handed over.
    pub framed: u64,
    /// Lost because there was no frame, or it was not taken.
    pub queue_full: u64,
    /// Of a kind not known here.
    pub unknown_kind: u64,
    /// Bytes that could not be walked.
    pub unknown_bytes: u64,
    /// Walked while nobody watched.
    pub discarded: u64,
    /// Kernels walked.
    pub kernel: u64,
    /// Copies walked.
    pub memcpy: u64,
    /// Memory sets walked.
    pub memset: u64,
    /// Memory sets that were nodes of a graph.
    pub graph_memset: u64,
    /// Records of other known kinds walked.
    pub other: u64,
    /// Launch calls among those.
    pub launches: u64,
    /// Kernels, copies and memory sets whose timestamps are bad.
    pub invalid: u64,
}

impl Tally {
    #[inline]
    fn count_kind(&mut self, kind: Option<Kind>) {
        let counter = match kind {
            Some(Kind::Kernel) => &mut self.kernel,
            Some(Kind::Memcpy) => &mut self.memcpy,
            Some(Kind::Memset) => &mut self.memset,
            Some(_) => &mut self.other,
            None => return,
        };
        *counter = counter.wrapping_add(1);
    }
}

/// Counts the records of a buffer that nobody wants.
pub fn discard(stepper: &mut impl Step) -> Tally {
    let mut tally = Tally::default();
    loop {
        match stepper.step() {
            Next::Record(bytes) => {
                tally.walked = tally.walked.wrapping_add(1);
                tally.discarded = tally.discarded.wrapping_add(1);
                tally.count_kind(kind_of(bytes).and_then(Kind::from_cupti));
            }
            Next::End(left) | Next::Stuck(left) => {
                tally.unknown_bytes = left as u64;
                return tally;
            }
        }
    }
}

/// Walks a buffer into frames.
pub fn walk(stepper: &mut impl Step, env: &Env<'_>, source: &impl NameSource, sink: &mut impl Sink) -> Tally {
    let mut tally = Tally::default();
    let mut walker = Walker {
        bounds: env.bounds.tight(),
        kernel_until: env.kernel_until,
        asked: env.asked,
        has_sync2: env.version >= 26,
        paths: (env.sources && env.version >= 24).then(|| Paths::new(env.names)),
        correlation: env.correlation.load(Relaxed),
        invalid: 0,
        names: Names::new(env.names),
        streams: Streams::new(env.streams),
    };
    let mut out = Writer::new(sink);
    loop {
        let bytes = match stepper.step() {
            Next::Record(bytes) => bytes,
            Next::End(left) | Next::Stuck(left) => {
                tally.unknown_bytes = left as u64;
                break;
            }
        };
        tally.walked = tally.walked.wrapping_add(1);
        let known = match kind_of(bytes) {
            Some(10 | 3) => walker.kernel(bytes, source, &mut out, &mut tally),
            Some(1) => walker.memcpy(bytes, &mut out, &mut tally),
            Some(2) => walker.memset(bytes, &mut out, &mut tally),
            Some(kind) => walker.rare(kind, bytes, source, &mut out, &mut tally),
            None => None,
        };
        if known.is_none() {
            tally.unknown_kind = tally.unknown_kind.wrapping_add(1);
        }
    }
    out.finish();
    tally.framed = out.framed;
    tally.queue_full = out.lost;
    tally.invalid = walker.invalid;
    env.correlation.fetch_max(walker.correlation, Relaxed);
    tally
}

fn kind_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|kind| u32::from_le_bytes(*kind))
}

/// `None` when the buffer ends before the record does.
fn view<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    bytes: &[u8],
) -> Option<&T> {
    T::ref_from_prefix(bytes).ok().map(|(view, _)| view)
}

/// What one buffer's walk carries from record to record.
struct Walker<'a> {
    bounds: Bounds,
    kernel_until: u64,
    asked: KindSet,
    has_sync2: bool,
    paths: Option<Paths<'a>>,
    correlation: u64,
    invalid: u64,
    names: Names<'a>,
    streams: Streams<'a>,
}

impl Walker<'_> {
    /// The 64-bit correlation id nearest to the highest so far that ends in these 32 bits.
    #[inline]
    fn extend(&mut self, id: u32) -> u64 {
        if id == 0 {
            return 0;
        }
        // All nodes of a graph's launch have one id.
        if id == self.correlation as u32 {
            return self.correlation;
        }
        let ahead = id.wrapping_sub(self.correlation as u32).cast_signed();
        let extended = self.correlation.wrapping_add_signed(i64::from(ahead));
        // Below zero there is nothing: an early id that is numerically high.
        let extended = if ahead < 0 && extended > self.correlation { u64::from(id) } else { extended };
        self.correlation = self.correlation.max(extended);
        extended
    }

    #[inline]
    fn check(&mut self, kind: Kind, context: u32, stream: u32, start: u64, end: u64) -> (u8, u8) {
        let unasked = if self.asked.has(kind) { 0 } else { Notes::UNASKED_KIND };
        if !self.bounds.hold(start, end) {
            return (self.bad(start, end), unasked);
        }
        (Validity::Valid as u8, unasked | self.streams.note(context, stream, start, end))
    }

    /// The class of a node of a graph that ends after kernel was switched off, and that its end is another's.
    #[cold]
    fn cut_off(&mut self, start: u64, end: u64) -> (u8, u8) {
        if self.bounds.hold(start, end) {
            (Validity::Valid as u8, Notes::CUT_OFF)
        } else {
            (self.bad(start, end), 0)
        }
    }

    /// The class of timestamps that are not good, counted.
    #[cold]
    fn bad(&mut self, start: u64, end: u64) -> u8 {
        self.invalid = self.invalid.wrapping_add(1);
        classify(start, end, self.bounds) as u8
    }

    #[inline]
    fn kernel<S: Sink>(
        &mut self,
        bytes: &[u8],
        source: &impl NameSource,
        out: &mut Writer<'_, S>,
        tally: &mut Tally,
    ) -> Option<()> {
        let raw: &layout::Kernel = view(bytes)?;
        tally.kernel = tally.kernel.wrapping_add(1);
        let (start, end) = (raw.start.get(), raw.end.get());
        let (context, stream) = (raw.context.get(), raw.stream.get());
        let name = self.names.id(raw.name.get(), source);
        let correlation = self.extend(raw.correlation.get());
        let (validity, notes) = if end > self.kernel_until && raw.graph.get() != 0 {
            self.cut_off(start, end)
        } else {
            self.check(Kind::Kernel, context, stream, start, end)
        };
        let Some(record) = out.record::<record::Kernel>(Family::Kernel) else { return Some(()) };
        record.start = raw.start;
        record.end = raw.end;
        record.correlation = correlation.into();
        record.graph_node = raw.graph_node;
        record.name = name.into();
        record.context = raw.context;
        record.stream = raw.stream;
        record.graph = raw.graph;
        record.grid_x = raw.grid[0];
        record.grid_y = low(raw.grid[1]);
        record.grid_z = low(raw.grid[2]);
        record.block = raw.block.map(low);
        record.device = low(raw.device);
        record.static_shared = raw.static_shared;
        record.dynamic_shared = raw.dynamic_shared;
        record.registers = raw.registers;
        record.cluster = raw.cluster.map(|blocks| blocks.get() as u8);
        record.validity = validity;
        record.notes = notes;
        record.channel_type = raw.channel_type.get() as u8;
        let [_, y, z] = raw.grid;
        let any = |values: &[U32]| values.iter().fold(0, |all, value| all | value.get());
        let (halves, bytes) =
            (any(&raw.block) | any(&[y, z, raw.device]), any(&raw.cluster) | raw.channel_type.get());
        if halves > u32::from(u16::MAX) || bytes > u32::from(u8::MAX) {
            clip(record, raw);
        }
        Some(())
    }

    #[inline]
    fn memcpy<S: Sink>(&mut self, bytes: &[u8], out: &mut Writer<'_, S>, tally: &mut Tally) -> Option<()> {
        let raw: &layout::Memcpy = view(bytes)?;
        tally.memcpy = tally.memcpy.wrapping_add(1);
        let correlation = self.extend(raw.correlation.get());
        let (validity, notes) =
            self.check(Kind::Memcpy, raw.context.get(), raw.stream.get(), raw.start.get(), raw.end.get());
        let Some(record) = out.record::<record::Copy>(Family::Copy) else { return Some(()) };
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
            notes,
            reserved: U16::ZERO,
        };
        Some(())
    }

    #[inline]
    fn memset<S: Sink>(&mut self, bytes: &[u8], out: &mut Writer<'_, S>, tally: &mut Tally) -> Option<()> {
        let raw: &layout::Memset = view(bytes)?;
        tally.memset = tally.memset.wrapping_add(1);
        tally.graph_memset = tally.graph_memset.wrapping_add(u64::from(raw.graph.get() != 0));
        let correlation = self.extend(raw.correlation.get());
        let (validity, notes) =
            self.check(Kind::Memset, raw.context.get(), raw.stream.get(), raw.start.get(), raw.end.get());
        let Some(record) = out.record::<record::Memset>(Family::Memset) else { return Some(()) };
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
            notes,
            reserved: U16::ZERO,
        };
        Some(())
    }

    fn peer<S: Sink>(&mut self, bytes: &[u8], out: &mut Writer<'_, S>, tally: &mut Tally) -> Option<()> {
        let raw: &layout::PeerMemcpy = view(bytes)?;
        tally.memcpy = tally.memcpy.wrapping_add(1);
        let correlation = self.extend(raw.correlation.get());
        let (validity, notes) =
            self.check(Kind::Memcpy, raw.context.get(), raw.stream.get(), raw.start.get(), raw.end.get());
        let Some(record) = out.record::<record::Copy>(Family::Copy) else { return Some(()) };
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
            notes,
            reserved: U16::ZERO,
        };
        Some(())
    }
}

/// The lower half, which is all there is but for what [`clip`] mends.
#[inline]
fn low(value: U32) -> U16 {
    U16::new(value.get() as u16)
}

/// Writes the numbers again of which one does not fit.
#[cold]
fn clip(record: &mut record::Kernel, raw: &layout::Kernel) {
    record.grid_y = narrow(raw.grid[1]);
    record.grid_z = narrow(raw.grid[2]);
    record.block = raw.block.map(narrow);
    record.device = narrow(raw.device);
    record.cluster = raw.cluster.map(|blocks| blocks.get().min(255) as u8);
    record.channel_type = raw.channel_type.get().min(255) as u8;
}

/// Dimensions and device numbers are small; what does not fit is as unknown as [`NO_DEVICE`].
#[inline]
fn narrow(value: U32) -> U16 {
    U16::new(value.get().min(u32::from(u16::MAX)) as u16)
}

/// Pointers kept at hand in one buffer.
const POINTERS: usize = 512;

/// The ids of the name pointers met in one buffer. It begins empty, so each string is looked at again once per
/// buffer: pointers are reused after a module is unloaded.
struct Names<'a> {
    table: &'a NameTable,
    known: [(u64, u32); POINTERS],
}

impl<'a> Names<'a> {
    const fn new(table: &'a NameTable) -> Self {
        Self { table, known: [(0, 0); POINTERS] }
    }

    #[inline]
    fn id(&mut self, pointer: u64, source: &impl NameSource) -> u32 {
        let Some(known) = self.known.get_mut(pointer_hash(pointer) as usize % POINTERS) else { return 0 };
        if known.0 != pointer {
            *known = (pointer, self.table.resolve(pointer, source));
        }
        known.1
    }
}

/// Paths kept at hand in one buffer, and the longest one, bytes.
const PATHS: usize = 8;
const MAX_PATH: usize = 1024;

/// The ids of the paths of libraries met in one buffer, the newest ones. Looking one up asks the system.
struct Paths<'a> {
    table: &'a NameTable,
    known: [(u64, u32); PATHS],
    next: usize,
}

impl<'a> Paths<'a> {
    const fn new(table: &'a NameTable) -> Self {
        Self { table, known: [(0, 0); PATHS], next: 0 }
    }

    /// The id of the path at `pointer`; 0 without one.
    fn id(&mut self, pointer: u64, source: &impl NameSource) -> u32 {
        if let Some((_, id)) = self.known.iter().find(|(known, _)| *known == pointer) {
            return *id;
        }
        let mut place = [0; MAX_PATH];
        let id = source.path(pointer, &mut place).map_or(0, |path| self.table.intern(path));
        if let Some(oldest) = self.known.get_mut(self.next % PATHS) {
            *oldest = (pointer, id);
        }
        self.next = self.next.wrapping_add(1);
        id
    }
}
