//! The little of a shared library's file that is needed to know which one it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sizes and offsets of ELF64 (`elf.h`).
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const DYNAMIC_ENTRY: usize = 16;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const ET_DYN: u16 = 3;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
/// The machine this program is built for, `e_machine`.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
/// More than any library has.
const MAX_DYNAMIC: usize = 1 << 16;

/// Why a file is no library for this machine.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("not a shared library")]
    NotLibrary,
    /// It is for other processors.
    #[error("a shared library for another kind of processor")]
    Machine,
    /// It has no name of its own.
    #[error("a shared library without SONAME")]
    NoSoname,
}

/// The name by which a library is known to those that are linked to it, `DT_SONAME`.
pub fn soname(path: &Path) -> Result<String, ElfError> {
    let file = File::open(path)?;
    let header = read(&file, 0, HEADER)?;
    let little_endian_64 = header.starts_with(b"\x7fELF\x02\x01");
    if !little_endian_64 || u16_at(&header, 16) != Some(ET_DYN) {
        return Err(ElfError::NotLibrary);
    }
    if u16_at(&header, 18) != Some(MACHINE) {
        return Err(ElfError::Machine);
    }
    let (offset, count) = (u64_at(&header, 32), u16_at(&header, 56));
    let (offset, count) = offset.zip(count).ok_or(ElfError::NotLibrary)?;
    let segments = read(&file, offset, usize::from(count) * PROGRAM_HEADER)?;
    let segments: Vec<Segment> = segments.chunks_exact(PROGRAM_HEADER).filter_map(Segment::read).collect();

    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC).ok_or(ElfError::NotLibrary)?;
    let size = usize::try_from(dynamic.size).unwrap_or(usize::MAX).min(MAX_DYNAMIC);
    let entries = read(&file, dynamic.offset, size)?;
    let entry = |tag| {
        let mut entries =
            entries.chunks_exact(DYNAMIC_ENTRY).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
        entries.find(|(found, _)| *found == Some(tag)).and_then(|(_, value)| value)
    };
    let name = entry(DT_SONAME).ok_or(ElfError::NoSoname)?;
    let strings = entry(DT_STRTAB).ok_or(ElfError::NoSoname)?;
    let at = strings.checked_add(name).and_then(|address| in_file(&segments, address));
    let bytes = read(&file, at.ok_or(ElfError::NoSoname)?, 256)?;
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(ElfError::NoSoname)?;
    String::from_utf8(bytes.get(..end).unwrap_or_default().to_vec()).map_err(|_| ElfError::NoSoname)
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?),
            offset: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            size: u64_at(bytes, 32)?,
        })
    }
}

/// Where in the file the bytes of an address lie.
fn in_file(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(segment.address).filter(|within| *within < segment.size)?;
        segment.offset.checked_add(within)
    })
}

/// Up to `len` bytes; fewer at the end of the file.
fn read(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A library of this machine: the one with the C functions this test calls.
    fn libc_file() -> std::path::PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("/libc.so") || line.contains("/ld-musl")).unwrap();
        line[line.find('/').unwrap()..].into()
    }

    #[test]
    fn a_library_tells_its_name() {
        let name = soname(&libc_file()).unwrap();
        assert!(name == "libc.so.6" || name.starts_with("libc.musl"), "{name}");
    }

    #[test]
    fn other_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let shim = crate::system::embed::copy_to(dir.path()).unwrap();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = std::fs::read(&shim).unwrap();
            change(&mut bytes);
            let path = dir.path().join("changed");
            std::fs::write(&path, bytes).unwrap();
            soname(&path).unwrap_err()
        };
        assert!(matches!(with(&|bytes| bytes.truncate(3)), ElfError::NotLibrary));
        assert!(matches!(with(&|bytes| bytes[16] = 2), ElfError::NotLibrary));
        assert!(matches!(with(&|bytes| bytes[18] = 3), ElfError::Machine));
        assert!(matches!(with(&|bytes| bytes.truncate(HEADER)), ElfError::NotLibrary));
        assert!(matches!(soname(Path::new("/no/such/file")), Err(ElfError::Io(_))));
        assert!(matches!(soname(Path::new("/")), Err(ElfError::Io(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_file_makes_it_panic(at: prop::sample::Index, byte: u8, len: prop::sample::Index) {
            let mut bytes = std::fs::read(libc_file()).unwrap();
            bytes.truncate(64 << 10);
            // Damage is most interesting in the headers.
            let at = at.index(1024);
            bytes[at] = byte;
            let keep = len.index(bytes.len() * 2).min(bytes.len());
            let mut file = tempfile::NamedTempFile::new().unwrap();
            io::Write::write_all(&mut file, &bytes[..keep]).unwrap();
            let _ = soname(file.path());
        }
    }
}
