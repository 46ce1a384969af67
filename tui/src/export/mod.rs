//! Writing what is seen into files that other programs read.
//!
//! `rows` turns a file's frames into rows, one a record, and counters; a [`Sink`] is a format that takes them in.
//! Nothing but names and open tracks is kept, so that memory does not grow with the file.

mod chrome;
mod clocks;
mod columns;
mod csv;
pub(crate) mod dot;
mod glob;
mod hive;
mod lanes;
mod lead;
mod ndjson;
mod output;
mod parquet;
mod perfetto;
mod plan;
pub mod raw;
mod record;
mod rows;
mod survey;
#[cfg(test)]
mod tests;
mod written;

use std::io;

use gtop_protocol::Validity;
use gtop_protocol::record::{Copy, Kernel, Memset, Other};

pub use glob::Glob;
pub use output::{Format, Output};
pub use plan::{Selection, Source};
pub use rows::{About, Done, Progress, Stopped, export};
pub use survey::Process;
pub use written::{Part, Unfinished, Written};

/// A record of any family.
#[derive(Clone, Debug)]
pub enum Record {
    /// A kernel.
    Kernel(Kernel),
    /// A copy.
    Copy(Copy),
    /// A memory set.
    Memset(Memset),
    /// Any other kind.
    Other(Other),
}

/// One record as it is exported. `'s` is what lives as long as the whole export.
#[derive(Clone, Debug)]
pub struct Row<'s> {
    /// The machine's name.
    pub host: Option<&'s str>,
    /// Whose it is.
    pub process: &'s Process,
    /// `kernel`, `memcpy`, … as on the command line; `other` for kinds of the future.
    pub kind: &'static str,
    /// The name in full, C++ as people write it; `None` when nobody has told it.
    pub name: Option<&'s str>,
    /// The name as CUPTI gave it, of kernels.
    pub mangled: Option<&'s str>,
    /// What its times look like.
    pub class: Validity,
    /// Start and end, nanoseconds since the epoch; `None` when they cannot be believed.
    pub time: Option<(u64, u64)>,
    /// When it reached the viewer, nanoseconds since the epoch; `None` in raw buffers, which do not tell.
    pub arrived: Option<u64>,
    /// The record itself, its times in CUPTI's nanoseconds.
    pub record: Record,
}

impl Row<'_> {
    /// What its times look like, in a word; `cut_off` of a kernel whose start can be believed and whose end cannot.
    #[must_use]
    pub fn class_name(&self) -> &'static str {
        if self.class.is_valid() && self.time.is_none() { "cut_off" } else { self.class.name() }
    }
}

/// What a counter belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'s> {
    /// A device of the machine, NVML's number.
    Device(u32),
    /// A process.
    Process(&'s Process),
}

/// What a counter counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Watts.
    Watts,
    /// Parts of a hundred.
    Percent,
    /// Things.
    Count,
}

/// A value of something that goes up and down.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'s> {
    /// When, nanoseconds since the epoch.
    pub at: u64,
    /// Of what.
    pub owner: Owner<'s>,
    /// For people; the same for all values of one counter.
    pub name: &'static str,
    /// A second part of the name where there are several: the context of a pool.
    pub number: Option<u32>,
    /// What it counts in.
    pub unit: Unit,
    /// How much.
    pub value: f64,
}

impl Counter<'_> {
    /// The whole name, for people.
    #[must_use]
    pub fn title(&self) -> String {
        let number = self.number.map_or_else(String::new, |number| format!(" {number}"));
        match self.owner {
            Owner::Device(device) => format!("GPU {device} {}{number}", self.name),
            Owner::Process(_) => format!("{}{number}", self.name),
        }
    }
}

/// A format: takes in rows and counters and writes them.
pub trait Sink<'s> {
    /// Takes in one record.
    fn row(&mut self, row: &Row<'s>) -> io::Result<()>;

    /// Takes in a value of a counter; formats of rows have no place for it.
    fn counter(&mut self, _counter: &Counter<'s>) -> io::Result<()> {
        Ok(())
    }

    /// Bytes written, and those that wait to be.
    fn bytes(&self) -> u64;

    /// Writes what is still owed. Nothing is taken in after it.
    fn finish(&mut self) -> io::Result<()>;
}

/// A text that lives as long as the export, by where it lies: equal keys are equal texts.
type TextKey = (*const u8, usize);

fn text_key(text: &str) -> TextKey {
    (text.as_ptr(), text.len())
}
