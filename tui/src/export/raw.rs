//! `--dump-raw`: CUPTI's buffers as they are, written as `.cuptibuf`, so that a report can carry its evidence.
//!
//! A file is whole after every buffer: names follow the first buffer that needs them. A new file begins when a name's
//! address comes to hold another name.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gtop_protocol::control::Raw;
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::{RawBuffer, names, raw_names};
use rustc_hash::FxHashMap;

use crate::system::process::readable;

const VERSION: [u8; 8] = *b"UTIBUF1\0";
const BUFFER: [u8; 8] = *b"UTIBUF\0\0";
const NAMES: [u8; 8] = *b"UNAMES\0\0";

/// Bytes of names kept; shims send no more than a quarter of it.
const MAX_NAMES: usize = 64 << 20;

/// What is asked for on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder the files go to.
    pub folder: PathBuf,
    /// Which buffers.
    pub which: Raw,
    /// The most bytes all files may take together.
    pub most: u64,
}

impl Options {
    /// Makes the folder.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)
    }
}

/// A dump of all processes that are watched.
#[derive(Clone, Debug)]
pub struct Dump {
    options: Rc<Options>,
    left: Rc<Cell<u64>>,
}

impl Dump {
    /// A dump into a folder that is there.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let left = Rc::new(Cell::new(options.most));
        Self { options: Rc::new(options), left }
    }

    /// Which buffers are wanted.
    #[must_use]
    pub fn which(&self) -> Raw {
        self.options.which
    }

    /// The files of one process.
    #[must_use]
    pub fn of(&self, pid: u32) -> ProcessDump {
        ProcessDump {
            dump: self.clone(),
            pid,
            names: FxHashMap::default(),
            names_bytes: 0,
            open: None,
            files: 0,
            stopped: false,
        }
    }
}

/// What a dump has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Buffers go to this file from now on.
    File(PathBuf),
    /// Nothing more is written: why.
    Stopped(String),
}

/// The files of one process. Its end writes what is still owed.
#[derive(Debug)]
pub struct ProcessDump {
    dump: Dump,
    pid: u32,
    names: FxHashMap<u32, Vec<u8>>,
    names_bytes: usize,
    open: Option<Open>,
    files: u32,
    stopped: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    version: u32,
    /// The name id of each address named in the file.
    named: FxHashMap<u64, u32>,
}

impl ProcessDump {
    /// Takes in whole frames; what there is to tell goes to `tell`.
    pub fn take(&mut self, mut frames: &[u8], mut tell: impl FnMut(Told)) {
        while let Ok(Some((frame, rest))) = Frame::split(frames) {
            frames = rest;
            match frame.kind() {
                Some(FrameKind::Names) => {
                    for (id, name) in names::read(frame.body) {
                        self.names_bytes += name.len();
                        if self.names_bytes <= MAX_NAMES {
                            self.names.insert(id, name.to_vec());
                        }
                    }
                }
                Some(FrameKind::RawBuffer) if !self.stopped => {
                    let Ok(buffer) = RawBuffer::read(frame.body) else { continue };
                    match self.buffer(&buffer) {
                        Ok(None) => {}
                        Ok(Some(told)) => tell(told),
                        Err(error) => {
                            self.stopped = true;
                            tell(Told::Stopped(format!("{}: {error}", readable(&self.dump.options.folder))));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether no more buffers are wanted.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn buffer(&mut self, buffer: &RawBuffer<'_>) -> io::Result<Option<Told>> {
        let known = |open: &Open| {
            open.version == buffer.version
                && raw_names::read(buffer.names)
                    .all(|(pointer, id)| open.named.get(&pointer).is_none_or(|named| *named == id))
        };
        let fresh = !self.open.as_ref().is_some_and(known);
        let (mut chunk, mut owed) = (Vec::new(), Vec::new());
        if fresh {
            head(&mut chunk, VERSION, buffer.version.into());
        }
        head(&mut chunk, BUFFER, buffer.bytes.len() as u64);
        chunk.extend_from_slice(buffer.bytes);
        let named = self.open.as_ref().filter(|_| !fresh).map(|open| &open.named);
        let mut added: FxHashMap<u64, u32> = FxHashMap::default();
        for (pointer, id) in raw_names::read(buffer.names) {
            let is_new = named.is_none_or(|named| !named.contains_key(&pointer));
            if is_new
                && let Some(name) = self.names.get(&id)
                && added.insert(pointer, id).is_none()
            {
                owed.extend_from_slice(&pointer.to_le_bytes());
                owed.extend_from_slice(&(name.len() as u32).to_le_bytes());
                owed.extend_from_slice(name);
            }
        }
        if fresh || !added.is_empty() {
            head(&mut chunk, NAMES, added.len() as u64);
            chunk.extend_from_slice(&owed);
        }

        let left = self.dump.left.get();
        // What ends the file is kept back.
        let Some(left) = left.checked_sub(chunk.len() as u64 + 16) else {
            self.stopped = true;
            self.open = None;
            let most = self.dump.options.most >> 20;
            return Ok(Some(Told::Stopped(format!("the limit of {most} MiB is reached"))));
        };
        let mut told = None;
        if fresh {
            let path = self.path();
            self.open =
                Some(Open { file: create(&path)?, version: buffer.version, named: FxHashMap::default() });
            told = Some(Told::File(path));
        }
        if let Some(open) = &mut self.open {
            open.file.write_all(&chunk)?;
            open.named.extend(added);
        }
        self.dump.left.set(left);
        Ok(told)
    }

    fn path(&mut self) -> PathBuf {
        self.files += 1;
        let time = jiff::ZonedDateTime::now().strftime("%Y%m%d-%H%M%S");
        self.dump.options.folder.join(format!("{}-{time}-{}.cuptibuf", self.pid, self.files))
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Kernel names and addresses of somebody's process.
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn head(into: &mut Vec<u8>, tag: [u8; 8], number: u64) {
    into.extend_from_slice(&tag);
    into.extend_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::frame::{MAX_BODY, write_frame};
    use gtop_shim::offline;

    fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MAX_BODY];
        let len = write_frame(&mut bytes, kind, 1, |w| w.bytes(body)).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// One kernel record of 13.0 with its name at `pointer`.
    fn buffer(pointer: u64, name: u32) -> Vec<u8> {
        let mut record = [0; 216];
        record[0] = 10;
        record[16] = 1;
        record[24] = 2;
        record[104..112].copy_from_slice(&pointer.to_le_bytes());
        let names = [pointer.to_le_bytes().as_slice(), &name.to_le_bytes()].concat();
        let raw = RawBuffer { version: 130_001, records: 1, invalid: 0, bytes: &record, names: &names };
        let mut body = vec![0; 1024];
        let mut w = gtop_protocol::wire::Writer::new(&mut body);
        raw.write(&mut w).unwrap();
        let len = w.len();
        frame(FrameKind::RawBuffer, &body[..len])
    }

    fn names_of(list: &[(u32, &str)]) -> Vec<u8> {
        let mut body = vec![0; 1024];
        let mut w = gtop_protocol::wire::Writer::new(&mut body);
        for (id, name) in list {
            names::write_one(&mut w, *id, name.as_bytes()).unwrap();
        }
        let len = w.len();
        frame(FrameKind::Names, &body[..len])
    }

    fn read(path: &Path) -> (offline::Summary, Vec<String>) {
        let mut seen = Vec::new();
        let summary = offline::read(&fs::read(path).unwrap(), &mut |bytes| {
            let (frame, _) = Frame::split(bytes).unwrap().unwrap();
            if frame.kind() == Some(FrameKind::Names) {
                seen.extend(
                    names::read(frame.body).map(|(_, name)| String::from_utf8_lossy(name).into_owned()),
                );
            }
        });
        (summary, seen)
    }

    #[test]
    fn files_are_whole_after_every_buffer_and_an_address_has_one_name_in_each() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { folder: folder.path().into(), which: Raw::All, most: 1 << 20 };
        let mut dump = Dump::new(options).of(7);
        let mut files = Vec::new();
        let take = |dump: &mut ProcessDump, frames: &[u8], files: &mut Vec<PathBuf>| {
            dump.take(frames, |told| match told {
                Told::File(path) => files.push(path),
                Told::Stopped(why) => panic!("{why}"),
            });
        };
        take(&mut dump, &[names_of(&[(1, "first"), (2, "second")]), buffer(0x5000, 1)].concat(), &mut files);
        let (summary, names) = read(&files[0]);
        assert_eq!((summary.buffers, &summary.damage), (1, &None));
        assert_eq!(names, ["first"]);
        take(&mut dump, &[buffer(0x6000, 2), buffer(0x5000, 1)].concat(), &mut files);
        let (summary, names) = read(&files[0]);
        assert_eq!((summary.buffers, summary.tally.kernel, &summary.damage), (3, 3, &None));
        assert_eq!((names, files.len()), (vec!["first".to_owned(), "second".to_owned()], 1));
        // The module was unloaded, and another has its place.
        take(&mut dump, &buffer(0x5000, 2), &mut files);
        assert_eq!(files.len(), 2);
        assert_eq!(read(&files[1]).1, ["second"]);
    }

    #[test]
    fn no_more_is_written_than_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { folder: folder.path().into(), which: Raw::All, most: 1 << 20 };
        let dump = Dump::new(options);
        dump.left.set(1000);
        let (mut one, mut other) = (dump.of(7), dump.of(8));
        let mut told = Vec::new();
        for _ in 0..10 {
            one.take(&buffer(0x5000, 1), |what| told.push(what));
            other.take(&buffer(0x5000, 1), |what| told.push(what));
        }
        assert!(one.is_stopped() && other.is_stopped());
        assert_eq!(told.iter().filter(|told| matches!(told, Told::Stopped(_))).count(), 2, "{told:?}");
        let bytes: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!((216..=1000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_folder_that_is_gone_is_said_and_bytes_that_lie_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { folder: folder.path().join("gone"), which: Raw::All, most: 1 << 20 };
        let mut dump = Dump::new(options).of(7);
        let mut told = Vec::new();
        dump.take(&frame(FrameKind::RawBuffer, &[0xff; 40]), |what| told.push(what));
        dump.take(&buffer(0x5000, 1), |what| told.push(what));
        assert!(matches!(&told[..], [Told::Stopped(why)] if why.contains("gone")), "{told:?}");
    }
}
