//! Where an export goes: a file, files of limited size, standard output.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::chrome::Chrome;
use super::csv::Csv;
use super::hive::Hive;
use super::ndjson::NdJson;
use super::parquet::Parquet;
use super::perfetto::Perfetto;
use super::rows::About;
use super::written::Written;
use super::{Counter, Row, Sink};
use crate::recorder::part_path;

/// A limit for what is opened in a browser, bytes: viewers fail on files of gigabytes.
const VIEWABLE: u64 = 480 << 20;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For ui.perfetto.dev: tracks and counters in Perfetto's own format.
    Perfetto,
    /// For ui.perfetto.dev and other viewers: Chrome's JSON.
    Chrome,
    /// A table for DuckDB, Spark, pandas and their like.
    Parquet,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object a line.
    Ndjson,
}

/// Where to write, and how.
#[derive(Clone, Debug)]
pub struct Output {
    /// The format.
    pub format: Format,
    /// The file; `-` and `/dev/stdout` are standard output.
    pub path: PathBuf,
    /// What is exported, as part of the names of files in folders.
    pub stem: String,
    /// A file this large, in bytes, is ended and another one begun.
    pub max_size: Option<u64>,
    /// Nothing is written, only counted.
    pub dry: bool,
    /// What was written. It comes to lie at the path with [`Written::put_in_place`].
    pub written: Written,
}

impl Output {
    /// Whether everything goes to standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        [Path::new("-"), Path::new("/dev/stdout")].contains(&self.path.as_path())
    }

    /// Whether everything goes into what is there and has no end: standard output, a pipe, a device.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        let is_there = || self.path.metadata().is_ok_and(|found| !found.is_dir() && !found.is_file());
        self.is_stdout() || is_there()
    }

    /// Whether files go to folders below the path: tables in a folder that is there, or is named as one.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        let named = self.path.as_os_str().as_encoded_bytes().ends_with(b"/");
        self.format == Format::Parquet && (named || self.path.is_dir())
    }

    /// Begins the first file.
    pub(super) fn begin<'s>(&self, about: About<'s>) -> io::Result<Box<dyn Sink<'s> + 's>> {
        if self.is_folder() {
            return Ok(Box::new(Hive::begin(self.clone(), about)));
        }
        let sink = self.part(1, about)?;
        let limit = self.limit();
        Ok(Box::new(Parts { output: self.clone(), about, limit, number: 1, rows: 0, sink }))
    }

    /// The size at which a file is ended.
    pub(super) fn limit(&self) -> u64 {
        let usual = match self.format {
            Format::Perfetto | Format::Chrome if !self.is_stream() => VIEWABLE,
            _ => u64::MAX,
        };
        self.max_size.unwrap_or(usual)
    }

    /// A new file.
    pub(super) fn open(&self, path: PathBuf) -> io::Result<Out> {
        let to: Box<dyn Write + Send> = if self.dry || self.is_stdout() {
            self.written.note(path);
            if self.dry { Box::new(io::sink()) } else { Box::new(io::stdout()) }
        } else {
            if self.is_folder()
                && let Some(folder) = path.parent()
            {
                fs::create_dir_all(folder)?;
            }
            Box::new(self.written.open(path)?)
        };
        Ok(Out { to: BufWriter::with_capacity(256 << 10, to), bytes: 0 })
    }

    fn part<'s>(&self, number: u32, about: About<'s>) -> io::Result<Box<dyn Sink<'s> + 's>> {
        let out = self.open(part_path(&self.path, number))?;
        Ok(match self.format {
            Format::Perfetto => Box::new(Perfetto::begin(out, about)?),
            Format::Chrome => Box::new(Chrome::begin(out, about)?),
            Format::Parquet => Box::new(Parquet::begin(out, &[])?),
            Format::Csv => Box::new(Csv::begin(out)?),
            Format::Ndjson => Box::new(NdJson::begin(out)),
        })
    }
}

/// A writer that counts.
pub(super) struct Out {
    to: BufWriter<Box<dyn Write + Send>>,
    bytes: u64,
}

impl Out {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Rows between two looks at the size.
const LOOK_EVERY: u32 = 1024;

/// One file after the other.
struct Parts<'s> {
    output: Output,
    about: About<'s>,
    limit: u64,
    number: u32,
    rows: u32,
    sink: Box<dyn Sink<'s> + 's>,
}

impl Parts<'_> {
    fn end(&mut self) -> io::Result<()> {
        self.sink.finish()?;
        self.output.written.ended(self.number as usize - 1, self.sink.bytes())
    }
}

impl<'s> Sink<'s> for Parts<'s> {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        self.rows += 1;
        if self.rows >= LOOK_EVERY {
            self.rows = 0;
            if self.sink.bytes() >= self.limit {
                self.end()?;
                self.number += 1;
                self.sink = self.output.part(self.number, self.about)?;
            }
        }
        self.sink.row(row)
    }

    fn counter(&mut self, counter: &Counter<'s>) -> io::Result<()> {
        self.sink.counter(counter)
    }

    fn bytes(&self) -> u64 {
        let (ended, is_whole) = self.output.written.bytes();
        if is_whole { ended } else { ended + self.sink.bytes() }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.end()
    }
}
