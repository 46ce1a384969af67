//! Files of raw CUPTI buffers, compressed or not, as frames.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gtop_protocol::recording::{OpenError, Recording, is_recording};
use gtop_shim::offline;
use lzma_rust2::XzReader;

use super::recording;

/// The most bytes read of one file, after decompression.
const MAX_BYTES: u64 = 4 << 30;
/// The largest dictionary the decompressor may ask for; `xz -9` takes 64 MiB.
const MAX_DICTIONARY: u64 = 256 << 20;
/// How a file of raw buffers begins.
const BUFFERS: &[u8] = b"UTIBUF1\0";
/// How an xz stream begins.
const XZ: &[u8] = b"\xfd7zXZ\0";

/// Why nothing of a file can be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system does not give it.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// It is something else.
    #[error(
        "{0} is no file gtop can read: recordings (.gtop) and raw CUPTI buffers (.cuptibuf, .cuptibuf.xz) are"
    )]
    Foreign(PathBuf),
    /// There is nothing in it.
    #[error("{0} is empty: it holds no recording and no CUPTI buffers")]
    Empty(PathBuf),
    /// A newer gtop wrote it.
    #[error("{0}: {1}")]
    TooNew(PathBuf, OpenError),
}

/// An open file, by what it holds.
#[derive(Debug)]
pub enum Opened {
    /// A recording.
    Recording(Recording<File>),
    /// Raw CUPTI buffers, most likely; [`read`] tells.
    Buffers,
}

/// Looks what a file holds.
pub fn open(path: &Path) -> Result<Opened, Unreadable> {
    let io = |error| Unreadable::Io(path.to_path_buf(), error);
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(16).read_to_end(&mut head)).map_err(io)?;
    if head.is_empty() {
        return Err(Unreadable::Empty(path.to_path_buf()));
    }
    if !is_recording(&head) {
        return Ok(Opened::Buffers);
    }
    recording::open(path).map(Opened::Recording).map_err(|error| match error {
        OpenError::Io(error) => io(error),
        OpenError::Foreign => Unreadable::Foreign(path.to_path_buf()),
        error @ OpenError::TooNew(_) => Unreadable::TooNew(path.to_path_buf(), error),
    })
}

/// Reads a file and gives its frames, each whole, to `emit`. The result says what could not be read, if anything:
/// everything before it was.
pub fn read(path: &Path, emit: &mut dyn FnMut(&[u8])) -> Result<Option<String>, Unreadable> {
    let (bytes, cut) = load(path).map_err(|error| Unreadable::Io(path.to_path_buf(), error))?;
    if bytes.is_empty() && cut.is_none() {
        return Err(Unreadable::Empty(path.to_path_buf()));
    }
    if !offline::is_buffers(&bytes) && !BUFFERS.starts_with(&bytes) {
        return Err(Unreadable::Foreign(path.to_path_buf()));
    }
    let summary = offline::read(&bytes, emit);
    // Where decompression stops, the buffers inside stop too; the first cause is the one to tell.
    Ok(cut.or_else(|| summary.damage.map(|damage| damage.to_string())))
}

/// The bytes of a file, decompressed; and why there are not more of them.
fn load(path: &Path) -> io::Result<(Vec<u8>, Option<String>)> {
    let mut head = Vec::new();
    let mut file = File::open(path)?;
    file.by_ref().take(64).read_to_end(&mut head)?;
    let compressed = head.starts_with(XZ);
    if compressed && dictionary(&head).is_some_and(|bytes| bytes > MAX_DICTIONARY) {
        return Ok((Vec::new(), Some("it needs more memory to decompress than gtop will use".to_owned())));
    }
    let whole = io::Cursor::new(head).chain(file);
    let mut bytes = Vec::new();
    let mut limited: Box<dyn Read> = if compressed {
        Box::new(XzReader::new(whole, true).take(MAX_BYTES))
    } else {
        Box::new(whole.take(MAX_BYTES))
    };
    match limited.read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 == MAX_BYTES => {
            Ok((bytes, Some(format!("only the first {} GiB were read", MAX_BYTES >> 30))))
        }
        Ok(_) => Ok((bytes, None)),
        Err(error) if compressed => {
            let read = bytes.len();
            Ok((
                bytes,
                Some(format!("the compressed data is damaged ({error}) after {read} bytes of content")),
            ))
        }
        Err(error) => Err(error),
    }
}

/// The size of the dictionary the first block of an xz stream asks for (xz file format, 3.1 and 5.3.1).
fn dictionary(head: &[u8]) -> Option<u64> {
    const LZMA2: u8 = 0x21;
    let block = head.get(12..)?;
    let end = (usize::from(*block.first()?) + 1) * 4;
    let fields = block.get(2..end.min(block.len()))?;
    // The filter's id and the length of its one property byte are found behind optional sizes of any length.
    let at = fields.windows(2).position(|pair| pair == [LZMA2, 1])?;
    let bits = u64::from(*fields.get(at + 2)?);
    (bits <= 40).then(|| (2 | (bits & 1)) << (bits / 2 + 11))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::model::snapshot::SourceKind;
    use crate::model::time::Moment;
    use std::io::Write;

    const FIXTURE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/cupti-12.8.90-mixed.cuptibuf.xz");

    fn write(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn frames(path: &Path) -> Result<(usize, Option<String>), Unreadable> {
        let mut count = 0;
        read(path, &mut |_| count += 1).map(|damage| (count, damage))
    }

    #[test]
    fn a_compressed_and_a_plain_file_give_the_same() {
        let compressed = frames(Path::new(FIXTURE)).unwrap();
        assert_eq!(compressed.1, None);
        let (bytes, _) = load(Path::new(FIXTURE)).unwrap();
        assert_eq!(frames(write(&bytes).path()).unwrap(), compressed);
    }

    #[test]
    fn a_compressed_file_cut_anywhere_is_read_as_far_as_it_goes() {
        let bytes = std::fs::read(FIXTURE).unwrap();
        for cut in (0..bytes.len()).step_by(bytes.len() / 23).chain([6, 12, bytes.len() - 1]) {
            match frames(write(&bytes[..cut]).path()) {
                Ok((_, damage)) => assert!(damage.is_some(), "cut at {cut}"),
                Err(Unreadable::Foreign(_)) => assert!(cut < 1000, "cut at {cut}"),
                Err(Unreadable::Empty(_)) => assert_eq!(cut, 0),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn plain_buffers_cut_anywhere_give_a_prefix_and_say_so() {
        let (bytes, _) = load(Path::new(FIXTURE)).unwrap();
        let shown = |bytes: &[u8]| {
            let mut model = Model::new(SourceKind::File, "cut");
            let conn = model.add(0);
            let damage = read(write(bytes).path(), &mut |frame| {
                assert_eq!(model.apply_all(conn, frame, Moment::default()), Ok(frame.len()));
            });
            let snapshot = model.snapshot(Moment::default());
            (snapshot.processes[0].records, damage)
        };
        let whole = shown(&bytes).0.shown;
        let mut last = 0;
        let cuts = (1..bytes.len()).step_by(bytes.len() / 97).chain(bytes.len() - 5..bytes.len());
        for cut in cuts {
            let (records, damage) = shown(&bytes[..cut]);
            assert!(matches!(damage, Ok(Some(_))), "cut at {cut}: {damage:?}");
            assert!((last..=whole).contains(&records.shown), "cut at {cut}: {records:?}");
            assert!(records.balances(), "cut at {cut}: {records:?}");
            last = records.shown;
        }
        assert_eq!(last, whole, "only names are cut at the end");
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let empty = write(b"");
        for text in
            [open(empty.path()).unwrap_err().to_string(), frames(empty.path()).unwrap_err().to_string()]
        {
            assert!(text.ends_with("is empty: it holds no recording and no CUPTI buffers"), "{text}");
        }
        let text = frames(write(b"hello, world").path()).unwrap_err().to_string();
        assert!(text.contains("no file gtop can read"), "{text}");
        let text = frames(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(text.contains("/no/such/file: No such file"), "{text}");
    }

    #[test]
    fn a_dictionary_beyond_all_measure_is_not_allocated() {
        let mut bytes = std::fs::read(FIXTURE).unwrap();
        assert!(dictionary(&bytes).is_some_and(|bytes| bytes <= 64 << 20));
        let at = bytes.windows(2).position(|pair| pair == [0x21, 1]).unwrap();
        bytes[at + 2] = 40;
        let error = load(write(&bytes).path()).unwrap().1.unwrap();
        assert!(error.contains("more memory"), "{error}");
    }
}
