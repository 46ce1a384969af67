//! Tracing in windows, to keep to a price.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

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
