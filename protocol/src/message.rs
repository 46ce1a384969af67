//! The bodies of all frames but records: state that is sent again after a gap, and events.
//!
//! Every message is its fields in order, little-endian. A message from an older peer ends early and the missing
//! fields read as zero, empty or unknown; one from a newer peer is longer and the rest is ignored.

use crate::frame::{MAGIC, PROTOCOL, RecordSizes};
use crate::wire::{Full, Reader, Writer};

/// A field of a message.
pub(crate) trait Field<'a>: Sized {
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Full>;
    fn get(r: &mut Reader<'a>) -> Self;
}

macro_rules! field {
    ($type:ty, $method:ident) => {
        impl<'a> Field<'a> for $type {
            fn put(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                w.$method(*self)
            }
            fn get(r: &mut Reader<'a>) -> Self {
                r.$method()
            }
        }
    };
}

field!(u8, u8);
field!(u16, u16);
field!(u32, u32);
field!(u64, u64);
field!(Option<u64>, opt_u64);

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.blob(self)
    }
    fn get(r: &mut Reader<'a>) -> Self {
        r.blob()
    }
}

/// The body was cut in the middle of a field, or did not begin as its kind must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

macro_rules! message {
    ($(#[$meta:meta])* pub struct $name:ident<'a> { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a> { $($(#[$fmeta])* pub $field: $type,)* }

        impl<'a> $name<'a> {
            /// Writes the body.
            pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                $(Field::put(&self.$field, w)?;)*
                Ok(())
            }

            /// Reads the body.
            pub fn read(body: &'a [u8]) -> Result<Self, Damaged> {
                Self::take(&mut Reader::new(body))
            }

            fn take(r: &mut Reader<'a>) -> Result<Self, Damaged> {
                let message = Self { $($field: Field::get(r),)* };
                if r.is_bad() { Err(Damaged) } else { Ok(message) }
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $name {
            /// Writes the body.
            pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
                $(Field::put(&self.$field, w)?;)*
                Ok(())
            }

            /// Reads the body.
            pub fn read(body: &[u8]) -> Result<Self, Damaged> {
                Self::take(&mut Reader::new(body))
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, Damaged> {
                let message = Self { $($field: Field::get(r),)* };
                if r.is_bad() { Err(Damaged) } else { Ok(message) }
            }
        }
    };
}

pub(crate) use message;

message! {
    /// Who is at the other end. Texts are bytes as the system gave them, not checked to be UTF-8.
    pub struct HelloFields<'a> {
        /// Process id in the process's own pid namespace.
        pub pid: u32,
        /// User id.
        pub uid: u32,
        /// Start time, clock ticks after boot (field 22 of `/proc/PID/stat`); tells a reused pid apart.
        pub start_time: u64,
        /// `/proc/PID/comm`.
        pub name: &'a [u8],
        /// The command line, arguments separated by NUL; cut at 4 KiB.
        pub command: &'a [u8],
        /// The path of the process's cgroup.
        pub cgroup: &'a [u8],
        /// Container id found in the cgroup path or mount table, or empty.
        pub container: &'a [u8],
        /// Pod id found in the cgroup path, or empty.
        pub pod: &'a [u8],
        /// MIG device ids from `CUDA_VISIBLE_DEVICES`, separated by NUL, or empty.
        pub mig: &'a [u8],
        /// `NAME=value` of the allowed environment variables that are set, separated by NUL.
        pub environment: &'a [u8],
        /// The shim's version.
        pub shim_version: &'a [u8],
        /// What `cuptiGetVersion` said; unknown before arming.
        pub cupti_version: Option<u64>,
        /// The file the CUPTI in use was mapped from; empty before arming.
        pub cupti_path: &'a [u8],
        /// The CUPTI interface in use: 1 or 2; 0 before arming.
        pub cupti_interface: u8,
        /// Whether the shim refuses control requests (`GTOP_READ_ONLY`): 1 if so.
        pub read_only: u8,
        /// Whether the shim was armed inside `InitializeInjection`: 1 if so.
        pub early: u8,
        /// `/proc/sys/kernel/random/boot_id`.
        pub boot_id: &'a [u8],
    }
}

/// The first frame of every stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The protocol spoken by the peer.
    pub protocol: u16,
    /// The sizes of its records.
    pub sizes: RecordSizes,
    /// Who it is.
    pub fields: HelloFields<'a>,
}

impl<'a> Hello<'a> {
    /// A hello of this version.
    #[must_use]
    pub const fn new(fields: HelloFields<'a>) -> Self {
        Self { protocol: PROTOCOL, sizes: RecordSizes::OURS, fields }
    }

    /// Writes the body.
    pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.bytes(&MAGIC)?;
        w.u16(self.protocol)?;
        w.u8(self.sizes.0.len() as u8)?;
        for size in self.sizes.0 {
            w.u16(size)?;
        }
        self.fields.write(w)
    }

    /// Reads the body; a body that does not begin with [`MAGIC`] is not ours.
    pub fn read(body: &'a [u8]) -> Result<Self, Damaged> {
        let mut r = Reader::new(body);
        if r.bytes(MAGIC.len()) != MAGIC {
            return Err(Damaged);
        }
        let protocol = r.u16();
        let families = r.u8();
        let mut sizes = RecordSizes([0; 4]);
        for i in 0..usize::from(families) {
            let size = r.u16();
            if let Some(slot) = sizes.0.get_mut(i) {
                *slot = size;
            }
        }
        let fields = HelloFields::take(&mut r)?;
        Ok(Self { protocol, sizes, fields })
    }
}

message! {
    /// One bracketed reading of the clocks, in nanoseconds: host, CUPTI, host.
    pub struct Clock {
        /// `CLOCK_REALTIME`, the middle of the two host readings.
        pub realtime: u64,
        /// `CLOCK_MONOTONIC` at the same moment.
        pub monotonic: u64,
        /// `CLOCK_BOOTTIME` at the same moment; differs from monotonic by the time suspended.
        pub boottime: u64,
        /// `cuptiGetTimestamp`.
        pub cupti: u64,
        /// Half the time between the two host readings: the error of the pair.
        pub error: u64,
    }
}

/// The body of a names frame: `u32` id and name, repeated. Ids are never reused within one process.
pub mod names {
    use super::{Full, Reader, Writer};

    /// The longest name kept, in bytes; longer ones are cut. The longest seen in the field have 5,000.
    pub const MAX_NAME: usize = 16 << 10;
    /// The id of "other": given to names beyond the shim's limits.
    pub const OTHER: u32 = u32::MAX;

    /// Appends one name.
    pub fn write_one(w: &mut Writer<'_>, id: u32, name: &[u8]) -> Result<(), Full> {
        let name = name.get(..MAX_NAME).unwrap_or(name);
        if w.room() < name.len().saturating_add(8) {
            return Err(Full);
        }
        w.u32(id)?;
        w.blob(name)
    }

    /// The names of a frame.
    pub fn read(body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
        let mut r = Reader::new(body);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let id = r.u32();
            let name = r.blob();
            (!r.is_bad()).then_some((id, name))
        })
    }
}

message! {
    /// The kinds as they are now.
    pub struct Kinds<'a> {
        /// [`KindSet`](crate::KindSet) bits that are enabled in CUPTI.
        pub enabled: u32,
        /// Bits that were asked for.
        pub asked: u32,
        /// Bits that CUPTI refused.
        pub refused: u32,
        /// The `CUptiResult` of the last refusal; 0 is none.
        pub error: u32,
        /// Who made the last request, for people.
        pub by: &'a [u8],
    }
}

/// The shim's state. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StateCode {
    /// Nothing of CUPTI was ever called.
    #[default]
    Loaded = 0,
    /// Finding and calling CUPTI.
    Arming = 1,
    /// Streaming.
    Armed = 2,
    /// Nobody watches; kinds are off, or kernel alone on a defective CUPTI.
    Resting = 3,
    /// Resting, but the leak has begun: arming again puts memory at risk.
    Tainted = 4,
    /// The GPU works and no kernel record comes.
    Silent = 5,
    /// CUPTI cannot be had; the reason says why.
    Unavailable = 6,
}

impl StateCode {
    /// Every state, in wire order.
    pub const ALL: [Self; 7] = [
        Self::Loaded,
        Self::Arming,
        Self::Armed,
        Self::Resting,
        Self::Tainted,
        Self::Silent,
        Self::Unavailable,
    ];

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Arming => "arming",
            Self::Armed => "armed",
            Self::Resting => "resting",
            Self::Tainted => "tainted",
            Self::Silent => "silent",
            Self::Unavailable => "unavailable",
        }
    }

    /// The state with this wire value.
    #[must_use]
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == value)
    }
}

/// Why the shim is in its state. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Reason {
    /// No reason is needed.
    #[default]
    None = 0,
    /// Another tool holds CUPTI (error 39, or 12 from CUPTI 11).
    Busy = 1,
    /// No libcupti was found.
    NoCupti = 2,
    /// libcuda is not mapped: the process has not begun to use CUDA.
    NoCuda = 3,
    /// CUPTI answered with an error; the error is beside it.
    Refused = 4,
    /// A second copy of libcupti is mapped.
    SecondCopy = 5,
    /// Memory for the buffers could not be had.
    NoMemory = 6,
    /// The process is a fork without exec.
    Forked = 7,
    /// The pool of device buffers is exhausted.
    PoolExhausted = 8,
    /// CUPTI has gone quiet, no cause known.
    Quiet = 9,
    /// A CUPTI call has not returned for seconds.
    Hung = 10,
}

impl Reason {
    /// Every reason, in wire order.
    pub const ALL: [Self; 11] = [
        Self::None,
        Self::Busy,
        Self::NoCupti,
        Self::NoCuda,
        Self::Refused,
        Self::SecondCopy,
        Self::NoMemory,
        Self::Forked,
        Self::PoolExhausted,
        Self::Quiet,
        Self::Hung,
    ];

    /// The reason in words, for the screen and JSON; `None` when none is needed.
    #[must_use]
    pub const fn text(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Busy => "busy: another tool holds CUPTI",
            Self::NoCupti => "no CUPTI: no libcupti.so.13 or .12 was found",
            Self::NoCuda => "no CUDA: libcuda is not loaded in this process yet",
            Self::Refused => "CUPTI refused",
            Self::SecondCopy => "second copy of libcupti is mapped",
            Self::NoMemory => "no memory for buffers",
            Self::Forked => "forked without exec",
            Self::PoolExhausted => "CUPTI's device buffers are exhausted",
            Self::Quiet => "CUPTI has gone quiet",
            Self::Hung => "a CUPTI call does not return",
        })
    }

    /// The reason with this wire value.
    #[must_use]
    pub fn from_wire(value: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u16 == value)
    }
}

message! {
    /// The shim's state.
    pub struct State<'a> {
        /// A [`StateCode`] wire value.
        pub state: u8,
        /// A [`Reason`] wire value.
        pub reason: u16,
        /// The `CUptiResult` behind the reason; 0 is none.
        pub error: u32,
        /// More about the reason for people: who holds CUPTI, which call failed, which paths were tried.
        pub detail: &'a [u8],
        /// Since when, `CLOCK_REALTIME` nanoseconds.
        pub since: u64,
        /// Connections that watch.
        pub watchers: u32,
        /// How long the first CUPTI calls took, nanoseconds; unknown before arming.
        pub first_call_ns: Option<u64>,
        /// CUPTI's time of the last arming, nanoseconds.
        pub armed_at: Option<u64>,
        /// 1 when `ctl arm` holds it armed without a watcher.
        pub held: u8,
        /// 1 once records may leak device buffers whatever is done now.
        pub tainted: u8,
        /// 1 while the process's one CUPTI subscription is the shim's: no other tool can start then.
        pub subscribed: u8,
    }
}

message! {
    /// The buffers lent to CUPTI and what the shim costs the process.
    pub struct HostBuffers {
        /// Bytes of one buffer.
        pub size: u64,
        /// Buffers CUPTI holds now.
        pub outstanding: u64,
        /// Buffers completed since loading.
        pub completed: u64,
        /// Bytes of buffers that were ever lent; they stay the shim's.
        pub bytes: u64,
        /// Times no buffer was left, and CUPTI was refused one or got one whose records are lost.
        pub discarded: u64,
        /// Nanoseconds spent in the completion callback since loading.
        pub callback_ns: u64,
        /// Nanoseconds of CPU used by the shim's own threads since loading.
        pub cpu_ns: u64,
        /// All memory the shim has put to use, bytes.
        pub memory: u64,
        /// Frames waiting for the I/O thread now.
        pub queued_frames: u64,
        /// Buffers copied whole for viewers that ask for such, since loading.
        pub raw_copied: u64,
        /// … not copied because too many copies waited to be sent.
        pub raw_missed: u64,
    }
}

message! {
    /// One activity buffer as CUPTI completed it, and the names its pointers stand for.
    pub struct RawBuffer<'a> {
        /// What `cuptiGetVersion` said.
        pub version: u32,
        /// Records in it.
        pub records: u64,
        /// … of which have bad timestamps.
        pub invalid: u64,
        /// Its valid part.
        pub bytes: &'a [u8],
        /// The module `raw_names` reads them.
        pub names: &'a [u8],
    }
}

/// The names of a raw buffer: `u64` pointer as it stands in records and `u32` name id, repeated.
pub mod raw_names {
    use super::{Full, Reader, Writer};

    /// Bytes of one name.
    pub const LEN: usize = 12;

    /// Appends one name.
    pub fn write_one(w: &mut Writer<'_>, pointer: u64, id: u32) -> Result<(), Full> {
        w.u64(pointer)?;
        w.u32(id)
    }

    /// The names of a buffer.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u64, u32)> {
        let mut r = Reader::new(bytes);
        core::iter::from_fn(move || {
            if r.rest().len() < LEN {
                return None;
            }
            Some((r.u64(), r.u32()))
        })
    }
}

message! {
    /// How a process is traced in windows to keep to a price. All times are CUPTI's, nanoseconds; shares are parts
    /// per million.
    pub struct Sampling<'a> {
        /// The share of its speed that tracing may cost the process; 0 is full tracing, and all else then history.
        pub budget_ppm: u32,
        /// Windows begun since the shim was loaded.
        pub windows: u64,
        /// When this was written; what lies between the last window's end and this is blank.
        pub time: u64,
        /// [`KindSet`](crate::KindSet) bits left on between windows: records of these kinds are complete.
        pub between: u32,
        /// A [`Relief`] wire value.
        pub relief: u8,
        /// A [`Basis`] wire value.
        pub basis: u8,
        /// The share of a window's time that tracing takes from the process; unknown when it cannot be told.
        pub loss_ppm: Option<u64>,
        /// What tracing costs the process, of its whole time, in all windows of the last minute or so.
        pub price_ppm: Option<u64>,
        /// The upper end of the 95 % interval of `price_ppm`, or the highest price ever measured when nothing is
        /// known of this process.
        pub price_high_ppm: Option<u64>,
        /// How long windows are now.
        pub window_ns: u64,
        /// How far their beginnings are apart on average.
        pub period_ns: u64,
        /// The last windows, as the module `windows` reads them.
        pub recent: &'a [u8],
    }
}

/// Windows inside a sampling frame: begin and end, repeated, the newest last. The end of one that is open is 0.
pub mod windows {
    use super::{Full, Reader, Writer};

    /// Appends one window.
    pub fn write_one(w: &mut Writer<'_>, begin: u64, end: u64) -> Result<(), Full> {
        w.u64(begin)?;
        w.u64(end)
    }

    /// The windows of a frame.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
        let mut r = Reader::new(bytes);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let window = (r.u64(), r.u64());
            (!r.is_bad()).then_some(window)
        })
    }
}

/// Whether the process runs at its own speed between windows. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Relief {
    /// Nothing says.
    #[default]
    Unknown = 0,
    /// No kernel is traced between windows.
    Full = 1,
    /// Kernels are traced although their kind is off, as those of early graphs are: windows save nothing.
    None = 2,
}

impl Relief {
    /// The relief with this wire value; unknown values are unknown.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Full,
            2 => Self::None,
            _ => Self::Unknown,
        }
    }
}

/// What the price is told from. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Basis {
    /// Nothing countable goes on between windows: the worst that was ever measured is taken.
    #[default]
    Assumed = 0,
    /// Copies and memory sets a second inside windows against between them.
    Copies = 1,
    /// API calls a second inside windows against between them, told from correlation ids.
    Calls = 2,
}

impl Basis {
    /// The basis with this wire value; unknown ones are assumptions.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Copies,
            2 => Self::Calls,
            _ => Self::Assumed,
        }
    }

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assumed => "assumed",
            Self::Copies => "copies",
            Self::Calls => "calls",
        }
    }
}

message! {
    /// CUPTI's device buffer pool of one context, inside a pools frame.
    pub struct Pool {
        /// Device index as CUPTI numbers it; `u16::MAX` is unknown.
        pub device: u16,
        /// Context id.
        pub context: u32,
        /// Buffers allowed.
        pub limit: u64,
        /// Buffers in use, computed by the law; unknown when it cannot be.
        pub computed: Option<u64>,
        /// Buffers in use, observed through overhead records; unknown when that kind is off.
        pub observed: Option<u64>,
        /// A [`PoolState`] wire value.
        pub state: u8,
        /// A [`LeakCause`] wire value.
        pub cause: u8,
        /// Slots used since the buffer that holds the first uncovered slot.
        pub slots_used: u64,
        /// Slots the pool holds: limit × 100,000.
        pub slots_total: u64,
        /// Nanoseconds until exhaustion at the present rate; unknown when nothing leaks.
        pub exhausts_in: Option<u64>,
        /// Since when it leaks, `CLOCK_REALTIME` nanoseconds.
        pub since: Option<u64>,
        /// The graph whose nodes are not covered; 0 is unknown.
        pub graph: u32,
        /// 1 when a limit was asked for after the context existed and is without effect.
        pub limit_too_late: u8,
    }
}

/// What the pool of a context is doing. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PoolState {
    /// Not enough is known.
    #[default]
    Unknown = 0,
    /// Buffers are recycled.
    Safe = 1,
    /// Buffers are no longer recycled.
    Leaking = 2,
    /// No buffer is left.
    Exhausted = 3,
}

impl PoolState {
    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Safe => "safe",
            Self::Leaking => "leaking",
            Self::Exhausted => "exhausted",
        }
    }

    /// The state with this wire value; unknown values are unknown states.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Safe,
            2 => Self::Leaking,
            3 => Self::Exhausted,
            _ => Self::Unknown,
        }
    }
}

/// Why a pool leaks. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LeakCause {
    /// Not known, or no leak.
    #[default]
    None = 0,
    /// A kind was off while graphs with such nodes were replayed.
    KindOff = 1,
    /// All kinds were switched off while early graphs existed.
    AllOff = 2,
    /// Growth was observed; no cause is known.
    Observed = 3,
}

/// The body of a pools frame: one [`Pool`] after the other, each behind its `u32` length.
pub mod pools {
    use super::{Full, Pool, Reader, Writer};

    /// Bytes one pool may take, length included.
    pub const MAX_ONE: usize = 128;

    /// Appends one pool.
    pub fn write_one(w: &mut Writer<'_>, pool: &Pool) -> Result<(), Full> {
        let mut buf = [0; MAX_ONE];
        let mut one = Writer::new(&mut buf);
        pool.write(&mut one)?;
        let len = one.len();
        w.blob(buf.get(..len).ok_or(Full)?)
    }

    /// The pools of a frame.
    pub fn read(body: &[u8]) -> impl Iterator<Item = Pool> {
        let mut r = Reader::new(body);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let one = r.blob();
            if r.is_bad() { None } else { Pool::read(one).ok() }
        })
    }
}

message! {
    /// What the observers of graphs and captures have counted since the shim was loaded. Counts are whole even where
    /// events are not.
    pub struct Observers {
        /// 1 while callbacks are on.
        pub on: u8,
        /// 1 when they were on before CUDA began, so that nothing was missed.
        pub whole: u8,
        /// Calls of the callback.
        pub calls: u64,
        /// Nanoseconds spent in it, estimated from every 64th call; CUPTI's own share is not in it.
        pub calls_ns: u64,
        /// Events that found no room.
        pub lost: u64,
        /// Events that were once known and are no longer kept for those who join.
        pub forgotten: u64,
        /// Contexts created.
        pub contexts: u64,
        /// … destroyed.
        pub contexts_destroyed: u64,
        /// Streams created.
        pub streams: u64,
        /// … destroyed.
        pub streams_destroyed: u64,
        /// Modules loaded.
        pub modules: u64,
        /// … unloaded.
        pub modules_unloaded: u64,
        /// Graphs created, clones included.
        pub graphs: u64,
        /// … destroyed.
        pub graphs_destroyed: u64,
        /// Executable graphs created.
        pub execs: u64,
        /// … destroyed.
        pub execs_destroyed: u64,
        /// Memory pools created.
        pub pools: u64,
        /// … destroyed.
        pub pools_destroyed: u64,
        /// Stream captures begun.
        pub captures: u64,
        /// … ended.
        pub captures_ended: u64,
        /// … failed.
        pub captures_failed: u64,
        /// Updates of executable graphs.
        pub updates: u64,
        /// … failed.
        pub updates_failed: u64,
        /// Launches of executable graphs.
        pub launches: u64,
        /// … failed.
        pub launches_failed: u64,
        /// Launches of kernels.
        pub kernels: u64,
        /// … failed.
        pub kernels_failed: u64,
        /// 1 when launches of kernels came so fast that watching them was given up.
        pub kernels_given_up: u8,
        /// When code is loaded, as the driver says: a `CUmoduleLoadingMode` (1 eager, 2 lazy); 0 is unknown.
        pub loading: u8,
    }
}

message! {
    /// The balance of records. At rest `walked = framed + queue_full + unknown_kind + discarded`, and for this
    /// viewer `offered = received + dropped`, each term counted by itself; in records.
    pub struct Loss {
        /// Records walked out of CUPTI's buffers since loading.
        pub walked: u64,
        /// … put into frames that reached the queue.
        pub framed: u64,
        /// … lost because the queue, or the frames, were full.
        pub queue_full: u64,
        /// … of a kind this shim does not know.
        pub unknown_kind: u64,
        /// Bytes that could not be walked: left in buffers behind a record CUPTI itself could not step over, or
        /// written when no buffer was left to lend and CUPTI could not be refused one.
        pub unknown_bytes: u64,
        /// … that came while nobody watched.
        pub discarded: u64,
        /// Records CUPTI says it dropped (`cuptiActivityGetNumDroppedRecords`).
        pub cupti_dropped: u64,
        /// Kernel records walked.
        pub kernel: u64,
        /// Copy records walked.
        pub memcpy: u64,
        /// Memory-set records walked.
        pub memset: u64,
        /// Records of other known kinds walked.
        pub other: u64,
        /// The part of `walked` that is not this viewer's: what was walked before it joined, counted by its place
        /// in the stream, and all that was discarded since. `walked - joined_walked` was delivered to it or is lost.
        pub joined_walked: u64,
        /// The value of `queue_full` when this viewer joined.
        pub joined_queue_full: u64,
        /// The value of `unknown_kind` when this viewer joined.
        pub joined_unknown_kind: u64,
        /// The value of `cupti_dropped` when this viewer joined.
        pub joined_cupti_dropped: u64,
        /// Records offered to this viewer.
        pub offered: u64,
        /// Records of those dropped because this viewer was slow.
        pub dropped: u64,
    }
}

message! {
    /// What NVML said about one device; made by the viewer, kept in recordings. Unknown is unknown, never 0.
    pub struct DeviceSample<'a> {
        /// When, `CLOCK_REALTIME` nanoseconds.
        pub time: u64,
        /// NVML's index.
        pub index: u32,
        /// `GPU-…` or `MIG-…`.
        pub uuid: &'a [u8],
        /// For people.
        pub name: &'a [u8],
        /// Total memory, bytes.
        pub memory_total: Option<u64>,
        /// Used memory, bytes.
        pub memory_used: Option<u64>,
        /// Reserved memory, bytes.
        pub memory_reserved: Option<u64>,
        /// Share of time with a kernel running, percent.
        pub gpu_percent: Option<u64>,
        /// Share of time memory was read or written, percent.
        pub memory_percent: Option<u64>,
        /// Power, milliwatts.
        pub power_mw: Option<u64>,
        /// Energy since the driver was loaded, millijoules.
        pub energy_mj: Option<u64>,
        /// SM clock, MHz.
        pub sm_mhz: Option<u64>,
        /// Memory clock, MHz.
        pub memory_mhz: Option<u64>,
        /// NVML's throttle reason bits.
        pub throttle: Option<u64>,
        /// Degrees Celsius.
        pub celsius: Option<u64>,
        /// PCIe, kilobytes a second, received by the device.
        pub pcie_rx_kbs: Option<u64>,
        /// PCIe, kilobytes a second, sent by the device.
        pub pcie_tx_kbs: Option<u64>,
        /// NVLink, kilobytes received since the driver was loaded.
        pub nvlink_rx_kb: Option<u64>,
        /// NVLink, kilobytes sent since the driver was loaded.
        pub nvlink_tx_kb: Option<u64>,
        /// Corrected ECC errors since the driver was loaded.
        pub ecc_corrected: Option<u64>,
        /// Uncorrected ECC errors since the driver was loaded.
        pub ecc_uncorrected: Option<u64>,
        /// 1 when device and host share one memory; totals are then the host's.
        pub unified: u8,
        /// The module `processes` reads them.
        pub processes: &'a [u8],
    }
}

/// The processes of a device sample: `u32` pid, optional used bytes, name, repeated.
pub mod processes {
    use super::{Full, Reader, Writer};

    /// Appends one process.
    pub fn write_one(w: &mut Writer<'_>, pid: u32, used: Option<u64>, name: &[u8]) -> Result<(), Full> {
        w.u32(pid)?;
        w.opt_u64(used)?;
        w.blob(name)
    }

    /// The processes of a sample.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u32, Option<u64>, &[u8])> {
        let mut r = Reader::new(bytes);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let (pid, used, name) = (r.u32(), r.opt_u64(), r.blob());
            (!r.is_bad()).then_some((pid, used, name))
        })
    }
}

/// How much a notice matters. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// Something to know.
    #[default]
    Info = 0,
    /// Something to do before it gets worse.
    Warning = 1,
    /// Something is lost.
    Alarm = 2,
}

impl Severity {
    /// The severity with this wire value; values of the future are alarms.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            0 => Self::Info,
            1 => Self::Warning,
            _ => Self::Alarm,
        }
    }
}

message! {
    /// A sentence for the event log.
    pub struct Notice<'a> {
        /// When, `CLOCK_REALTIME` nanoseconds.
        pub time: u64,
        /// A [`Severity`] wire value.
        pub severity: u8,
        /// A short name that stays the same, for filters: `armed`, `resting`, `mark`, `pool`, `kinds`, …
        pub topic: &'a [u8],
        /// The sentence.
        pub text: &'a [u8],
    }
}

message! {
    /// The last frame of a stream that ends well.
    pub struct Goodbye<'a> {
        /// Why, for people.
        pub reason: &'a [u8],
    }
}

/// What became of a request. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// Done.
    #[default]
    Done = 0,
    /// It would do harm; the text says which. Send it again with [`control::YES`](crate::control::YES).
    NeedsYes = 1,
    /// Not allowed.
    Refused = 2,
    /// Tried, and CUPTI or the system said no.
    Failed = 3,
}

impl Outcome {
    /// The outcome with this wire value; unknown ones are failures.
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            0 => Self::Done,
            1 => Self::NeedsYes,
            2 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

message! {
    /// The answer to one request.
    pub struct Reply<'a> {
        /// The request's id.
        pub request: u64,
        /// An [`Outcome`] wire value.
        pub outcome: u8,
        /// For people.
        pub text: &'a [u8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        let mut buf = vec![0; 4096];
        let mut w = Writer::new(&mut buf);
        write(&mut w).unwrap();
        let len = w.len();
        buf.truncate(len);
        buf
    }

    #[test]
    fn a_hello_goes_both_ways_and_says_what_is_not_known() {
        let fields =
            HelloFields { pid: 844, name: b"EngineCore", command: b"vllm\0serve", ..Default::default() };
        let body = bytes(|w| Hello::new(fields).write(w));
        let hello = Hello::read(&body).unwrap();
        assert_eq!((hello.protocol, hello.sizes), (PROTOCOL, RecordSizes::OURS));
        assert_eq!((hello.fields, hello.fields.cupti_version), (fields, None));
        assert_eq!(Hello::read(b"HTTP/1.1 400 Bad Request"), Err(Damaged));
    }

    #[test]
    fn a_longer_hello_of_the_future_reads() {
        let mut body = bytes(|w| {
            w.bytes(&MAGIC)?;
            w.u16(7)?;
            w.u8(6)?;
            for size in [96u16, 72, 64, 64, 40, 48] {
                w.u16(size)?;
            }
            HelloFields { pid: 1, ..Default::default() }.write(w)
        });
        body.extend_from_slice(b"fields of the future");
        let hello = Hello::read(&body).unwrap();
        assert_eq!((hello.protocol, hello.sizes, hello.fields.pid), (7, RecordSizes([96, 72, 64, 64]), 1));
    }

    #[test]
    fn an_older_message_ends_early_and_a_cut_one_is_damaged() {
        let loss = Loss { walked: 5, framed: 4, queue_full: 1, ..Default::default() };
        let body = bytes(|w| loss.write(w));
        assert_eq!(Loss::read(&body), Ok(loss));
        assert_eq!(Loss::read(&body[..24]), Ok(loss));
        assert_eq!(Loss::read(&body[..25]), Err(Damaged));
    }

    #[test]
    fn lists_go_both_ways() {
        let body = bytes(|w| names::write_one(w, 1, b"gemm").and_then(|()| names::write_one(w, 9, b"")));
        assert_eq!(names::read(&body).collect::<Vec<_>>(), [(1, b"gemm".as_slice()), (9, b"")]);
        let pool = Pool { context: 1, limit: 250, observed: Some(3), ..Default::default() };
        let body = bytes(|w| pools::write_one(w, &pool).and_then(|()| pools::write_one(w, &pool)));
        assert_eq!(pools::read(&body).collect::<Vec<_>>(), [pool, pool]);
        let full = Pool { computed: Some(u64::MAX), exhausts_in: Some(1), since: Some(2), ..pool };
        assert!(bytes(|w| pools::write_one(w, &full)).len() <= pools::MAX_ONE);
        let body = bytes(|w| processes::write_one(w, 7, None, b"python"));
        assert_eq!(processes::read(&body).collect::<Vec<_>>(), [(7, None, b"python".as_slice())]);
        let body = bytes(|w| windows::write_one(w, 5, 9).and_then(|()| windows::write_one(w, 20, 0)));
        assert_eq!(windows::read(&body).collect::<Vec<_>>(), [(5, 9), (20, 0)]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_message_panic(body: Vec<u8>, magic: bool) {
            let mut hello = if magic { MAGIC.to_vec() } else { Vec::new() };
            hello.extend_from_slice(&body);
            let _ = Hello::read(&hello);
            let _ = Clock::read(&body);
            let _ = Kinds::read(&body);
            let _ = State::read(&body);
            let _ = HostBuffers::read(&body);
            let _ = Observers::read(&body);
            let _ = Loss::read(&body);
            let _ = DeviceSample::read(&body);
            let _ = Notice::read(&body);
            let _ = Goodbye::read(&body);
            let _ = Reply::read(&body);
            let _ = RawBuffer::read(&body);
            prop_assert!(raw_names::read(&body).count() <= body.len());
            let _ = Sampling::read(&body);
            prop_assert!(windows::read(&body).count() <= body.len());
            prop_assert!(names::read(&body).count() <= body.len());
            prop_assert!(pools::read(&body).count() <= body.len());
            prop_assert!(processes::read(&body).count() <= body.len());
        }
    }
}
