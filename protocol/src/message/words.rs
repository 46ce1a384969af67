//! Sentences for people, and answers to requests.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

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

/// The goodbye to who would watch beside as many viewers as there can be.
pub const FULL: &[u8] = b"its shim serves as many viewers as it can";

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
