//! The shim's state and its reason, and the kinds that are on.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

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
