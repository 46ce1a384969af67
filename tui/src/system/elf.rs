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
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERNEED: u64 = 0x6fff_fffe;
/// The machine this program is built for, `e_machine`.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
/// More than any library has.
const MAX_DYNAMIC: usize = 1 << 16;
/// Longer than any name looked for, bytes.
const MAX_STRING: usize = 256;
/// More versions than any library has.
const MAX_CHAIN: usize = 1024;

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
    Library::open(path)?.soname()
}

/// A shared library's file with its dynamic section read.
#[derive(Debug)]
pub struct Library {
    file: File,
    segments: Vec<Segment>,
    dynamic: Vec<(u64, u64)>,
}

impl Library {
    /// Opens a library for this kind of processor.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
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
        let segments: Vec<Segment> =
            segments.chunks_exact(PROGRAM_HEADER).filter_map(Segment::read).collect();

        let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC);
        let dynamic = dynamic.ok_or(ElfError::NotLibrary)?;
        let size = usize::try_from(dynamic.size).unwrap_or(usize::MAX).min(MAX_DYNAMIC);
        let entries = read(&file, dynamic.offset, size)?;
        let dynamic = entries
            .chunks_exact(DYNAMIC_ENTRY)
            .filter_map(|entry| u64_at(entry, 0).zip(u64_at(entry, 8)))
            .take_while(|(tag, _)| *tag != DT_NULL)
            .collect();
        Ok(Self { file, segments, dynamic })
    }

    /// The name by which it is known to those that are linked to it, `DT_SONAME`.
    pub fn soname(&self) -> Result<String, ElfError> {
        self.values(DT_SONAME).next().and_then(|name| self.string(name)).ok_or(ElfError::NoSoname)
    }

    /// The names of the libraries it is linked to.
    #[must_use]
    pub fn needed(&self) -> Vec<String> {
        self.values(DT_NEEDED).filter_map(|name| self.string(name)).collect()
    }

    /// The versions of symbols that it needs, each with the library that must define it: `libc.so.6`, `GLIBC_2.34`.
    #[must_use]
    pub fn needs(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        self.chain(DT_VERNEED, 12, |at, need| {
            let library = u32_at(need, 4).and_then(|name| self.string(name.into()));
            let first = u32_at(need, 8).and_then(|offset| at.checked_add(offset.into()));
            if let (Some(library), Some(first)) = (library, first) {
                self.chain_from(first, 12, |_, version| {
                    let name = u32_at(version, 8).and_then(|name| self.string(name.into()));
                    found.extend(name.map(|name| (library.clone(), name)));
                });
            }
        });
        found
    }

    /// The versions of symbols that it defines.
    #[must_use]
    pub fn defines(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.chain(DT_VERDEF, 16, |at, definition| {
            let name = u32_at(definition, 12)
                .and_then(|offset| at.checked_add(offset.into()))
                .and_then(|at| u32_at(&self.bytes(at, 4), 0))
                .and_then(|name| self.string(name.into()));
            found.extend(name);
        });
        found
    }

    fn values(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.dynamic.iter().filter(move |(found, _)| *found == tag).map(|(_, value)| *value)
    }

    /// A string of the string table.
    fn string(&self, at: u64) -> Option<String> {
        let bytes = self.bytes(self.values(DT_STRTAB).next()?.checked_add(at)?, MAX_STRING);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes.get(..end)?.to_vec()).ok()
    }

    /// What the file holds for an address.
    fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let at = in_file(&self.segments, address);
        at.and_then(|at| read(&self.file, at, len).ok()).unwrap_or_default()
    }

    /// Visits a chain of entries whose address the dynamic section holds.
    fn chain(&self, tag: u64, next: usize, visit: impl FnMut(u64, &[u8])) {
        if let Some(first) = self.values(tag).next() {
            self.chain_from(first, next, visit);
        }
    }

    /// Visits a chain of entries; each has the distance to the next one at `next`, 0 in the last.
    fn chain_from(&self, first: u64, next: usize, mut visit: impl FnMut(u64, &[u8])) {
        let mut at = first;
        for _ in 0..MAX_CHAIN {
            let entry = self.bytes(at, next + 4);
            let Some(distance) = u32_at(&entry, next) else { return };
            visit(at, &entry);
            match at.checked_add(distance.into()) {
                Some(following) if distance > 0 => at = following,
                _ => return,
            }
        }
    }
}

#[derive(Debug)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
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

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
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
    fn what_the_shim_needs_is_what_this_c_library_has() {
        let dir = tempfile::tempdir().unwrap();
        let shim = Library::open(&crate::system::embed::copy_to(dir.path()).unwrap()).unwrap();
        assert!(shim.needed().iter().any(|name| name == "libc.so.6"), "{:?}", shim.needed());
        let versions: Vec<String> = shim
            .needs()
            .into_iter()
            .filter(|(library, _)| library == "libc.so.6")
            .map(|need| need.1)
            .collect();
        assert!(versions.iter().any(|version| version.starts_with("GLIBC_2.")), "{versions:?}");
        let defined = Library::open(&libc_file()).unwrap().defines();
        assert!(versions.iter().all(|version| defined.contains(version)), "{versions:?} of {defined:?}");
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
            if let Ok(library) = Library::open(file.path()) {
                let _ = (library.soname(), library.needed(), library.needs(), library.defines());
            }
        }
    }
}
