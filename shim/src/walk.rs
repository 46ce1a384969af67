//! One activity buffer → records of the protocol: step, classify, intern the name, write, count.
//!
//! This is the hot path. It takes one pass, allocates nothing and takes no lock; what threads share it reads
//! once at the start of a buffer and writes once at its end.

mod copies;
mod hand;
mod kernel;
mod rare;
mod run;

pub(crate) use run::{Run, kind_of};

use crate::names::{NameSource, NameTable};
use crate::streams::{StreamTable, Streams};
use crate::write::{Sink, Writer};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::validity::{Bounds, Notes, Validity, classify};
use hand::{Names, Paths};

/// What comes next in a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Next<'a> {
    /// A record: everything from its first byte to the end of the buffer.
    Record(&'a [u8]),
    /// Records of so many bytes each, one behind the other: the first one is whole, and they go on for as long as whole
    /// records of its kind come. How many that were must be said before the next step.
    Run(&'a [u8], usize),
    /// The end. This many bytes are left that are not a whole record.
    End(usize),
    /// A record nobody can step over, and so everything behind it; bytes.
    Stuck(usize),
}

impl<'a> Next<'a> {
    /// The records; the error is the bytes left behind the last one.
    #[inline]
    pub(crate) fn run(self) -> Result<Run<'a>, usize> {
        match self {
            Self::Record(bytes) => Ok(Run::new(bytes, bytes.len())),
            Self::Run(bytes, size) => Ok(Run::new(bytes, size)),
            Self::End(left) | Self::Stuck(left) => Err(left),
        }
    }
}

/// Steps from record to record.
pub trait Step {
    /// What comes next.
    fn step(&mut self) -> Next<'_>;

    /// The last step's run was of so many records.
    fn took(&mut self, _records: u64) {}
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
    fn count_kind(&mut self, kind: Option<Kind>, count: u64) {
        let counter = match kind {
            Some(Kind::Kernel) => &mut self.kernel,
            Some(Kind::Memcpy) => &mut self.memcpy,
            Some(Kind::Memset) => &mut self.memset,
            Some(_) => &mut self.other,
            None => return,
        };
        *counter = counter.wrapping_add(count);
    }
}

/// Counts the records of a buffer that nobody wants.
pub fn discard(stepper: &mut impl Step) -> Tally {
    let mut tally = Tally::default();
    loop {
        let run = match stepper.step().run() {
            Ok(run) => run,
            Err(left) => {
                tally.unknown_bytes = left as u64;
                return tally;
            }
        };
        let (kind, count) = (run.kind(), run.records().count() as u64);
        tally.walked = tally.walked.wrapping_add(count);
        tally.discarded = tally.discarded.wrapping_add(count);
        tally.count_kind(Kind::from_cupti(kind), count);
        stepper.took(count);
    }
}

/// Walks a buffer into frames.
pub fn walk(stepper: &mut impl Step, env: &Env<'_>, source: &impl NameSource, sink: &mut impl Sink) -> Tally {
    let mut tally = Tally::default();
    let mut walker = Walker::new(env);
    let mut out = Writer::new(sink);
    loop {
        let run = match stepper.step().run() {
            Ok(run) => run,
            Err(left) => {
                tally.unknown_bytes = left as u64;
                break;
            }
        };
        let (count, counter) = match run.kind() {
            10 | 3 => (walker.kernels(&run, source, &mut out), &mut tally.kernel),
            1 => (walker.copies(&run, &mut out), &mut tally.memcpy),
            2 => (walker.memsets(&run, &mut out, &mut tally.graph_memset), &mut tally.memset),
            22 => (walker.peer_copies(&run, &mut out), &mut tally.memcpy),
            kind => (walker.rare(kind, &run, source, &mut out, &mut tally.launches), &mut tally.other),
        };
        let (count, counter) = match count {
            Some(count) => (count, counter),
            None => (run.records().count() as u64, &mut tally.unknown_kind),
        };
        *counter = counter.wrapping_add(count);
        tally.walked = tally.walked.wrapping_add(count);
        stepper.took(count);
    }
    out.finish();
    tally.framed = out.framed;
    tally.queue_full = out.lost;
    tally.invalid = walker.invalid;
    env.correlation.fetch_max(walker.correlation, Relaxed);
    tally
}

/// What one buffer's walk carries from record to record.
struct Walker<'a> {
    bounds: Bounds,
    kernel_until: u64,
    asked: KindSet,
    has_sync2: bool,
    paths: Option<Paths<'a>>,
    /// The highest correlation id so far, and the last one: as it stood in the record, and extended.
    correlation: u64,
    extended: (u32, u64),
    invalid: u64,
    names: Names<'a>,
    streams: Streams<'a>,
}

impl<'a> Walker<'a> {
    fn new(env: &Env<'a>) -> Self {
        Self {
            bounds: env.bounds.tight(),
            kernel_until: env.kernel_until,
            asked: env.asked,
            has_sync2: env.version >= 26,
            paths: (env.sources && env.version >= 24).then(|| Paths::new(env.names)),
            correlation: env.correlation.load(Relaxed),
            extended: (0, 0),
            invalid: 0,
            names: Names::new(env.names),
            streams: Streams::new(env.streams),
        }
    }

    /// The 64-bit correlation id nearest to the highest so far that ends in these 32 bits; 0 is 0.
    #[inline]
    fn extend(&mut self, id: u32) -> u64 {
        // All nodes of a graph's launch have one id.
        if id != self.extended.0 {
            self.extended = (id, self.nearest(id));
        }
        self.extended.1
    }

    #[inline]
    fn nearest(&mut self, id: u32) -> u64 {
        let ahead = id.wrapping_sub(self.correlation as u32).cast_signed();
        if ahead < 0 || id == 0 {
            return self.before(id, ahead);
        }
        self.correlation = self.correlation.wrapping_add(u64::from(ahead.cast_unsigned()));
        self.correlation
    }

    /// The same for an id that lies so far before the highest one.
    #[inline(never)]
    fn before(&mut self, id: u32, ahead: i32) -> u64 {
        if id == 0 {
            return 0;
        }
        // Below zero there is nothing: an early id that is numerically high.
        let extended = self.correlation.checked_add_signed(i64::from(ahead)).unwrap_or(u64::from(id));
        self.correlation = self.correlation.max(extended);
        extended
    }

    /// What is noted of every record of a kind.
    fn unasked(&self, kind: Kind) -> u8 {
        if self.asked.has(kind) { 0 } else { Notes::UNASKED_KIND }
    }

    /// The class of these timestamps and what is to be noted of them.
    #[inline]
    fn check(&mut self, stream: u64, start: u64, end: u64) -> (u8, u8) {
        if self.bounds.hold(start, end) {
            (Validity::Valid as u8, self.streams.note(stream, start, end))
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
}
