//! The recording file: the frames of a stream in order, and what the viewer added to them, compressed and indexed.
//!
//! ```text
//! file  := magic version head (chunk | state)* [index]
//! block := 32 bytes (magic, type, lengths, number, checksum) summary side rows
//! ```
//! A chunk is a block of at most a second or a few megabytes of frames and can be read by itself. Its *summary*
//! says what is in it, its *side* holds all frames but the records of records frames, its *rows* those records as
//! columns. Now and then a block says again everything that must be known to understand the chunks behind it, so that
//! a jump need not begin at the beginning. The index, the last block, is all summaries once more; where it is missing it is
//! made again from the chunks. Every part has a checksum, every length a limit.
//!
//! Reading with flat memory, the whole file or a range of time:
//!
//! ```no_run
//! # use std::{fs::File, ops::ControlFlow};
//! # use gtop_protocol::recording::{Decoder, Part, Recording};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut recording = Recording::open(File::open("run.gtop")?)?;
//! let mut decoder = Decoder::default();
//! // Times on the recorder's steady clock; `recording.steady(wall)` gives one for a time of day.
//! let (from, until) = recording.range();
//! for at in 0..recording.chunks().len() {
//!     let chunk = &recording.chunks()[at];
//!     // Names, kinds and the like come before the range too; records frames come empty then.
//!     let part = if chunk.last.steady < from { Part::Side } else { Part::Whole };
//!     if chunk.first.steady > until {
//!         break;
//!     }
//!     let block = recording.load(at, part)?;
//!     decoder.decode(&block, &mut |entry| {
//!         println!("{} {} {:?}", entry.at.wall, entry.stream, entry.frame.kind());
//!         ControlFlow::Continue(())
//!     })?;
//! }
//! if let Some(damage) = recording.damage() {
//!     eprintln!("{damage}");
//! }
//! # Ok(())
//! # }
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "the viewer's, within bounds")]

mod block;
mod decode;
mod keep;
mod pack;
mod read;
mod rows;
#[cfg(test)]
mod tests;
mod write;

pub use block::{Chunk, Counts, HeadFields};
pub use decode::{Block, Decoder, Placed};
pub use keep::Keep;
pub use read::{OpenError, Part, Recording, is_recording};
pub use write::Writer;

pub use crate::damage::Damage;
use crate::frame::Frame;

/// The stream of what belongs to the machine and to no process.
pub const MACHINE: u32 = 0;

/// When a frame reached the viewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// `CLOCK_REALTIME` nanoseconds; someone may set that clock.
    pub wall: u64,
    /// Nanoseconds of a clock of the viewer that nobody sets.
    pub steady: u64,
}

/// One frame of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When it came.
    pub at: At,
    /// From which process: numbers that the recorder gave, from 1, or [`MACHINE`].
    pub stream: u32,
    /// The frame as it came.
    pub frame: Frame<'a>,
}
