//! The device buffers that CUPTI keeps for each context.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

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
        /// Buffers in use, observed through overhead records; unknown unless that kind is on since the first buffer.
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
        /// 1 when it is not known whether it leaks: what is used, and the time left, are the worst case then, and the
        /// state is unknown until it shows.
        pub in_doubt: u8,
        /// Buffers seen allocated since overhead records are on, when there were some before; unknown when that kind is
        /// off.
        pub seen: Option<u64>,
        /// The shortest likely time until exhaustion, nanoseconds, by how much the rate wavered so far and how
        /// much one was measured to waver; no bound.
        pub exhausts_earliest: Option<u64>,
        /// The longest; unknown also where the rate may as well be nothing.
        pub exhausts_latest: Option<u64>,
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
