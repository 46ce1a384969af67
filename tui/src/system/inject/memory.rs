//! The memory of another process: its mappings, and the functions of the libraries in it. Libraries are read from
//! memory and not from their files, which may be gone or belong to another file system.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::system::elf::{u16_at, u32_at, u64_at};

/// More than any library has, bytes.
const MOST_SYMBOLS: usize = 8 << 20;
/// `elf.h`.
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const SYMBOL: usize = 24;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) executable: bool,
    pub(super) private: bool,
    /// Offset in the file.
    pub(super) offset: u64,
    /// The file, or what the kernel calls it; empty for memory of nobody.
    pub(super) path: String,
}

impl Mapping {
    pub(super) const fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// The memory of a process, open for reading and writing.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    /// Its mappings, by address, as they were when it was opened.
    pub(super) mappings: Vec<Mapping>,
}

/// Where a function lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Memory {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let maps = fs::read(format!("/proc/{pid}/maps"))?;
        Ok(Self { file, mappings: mappings(&String::from_utf8_lossy(&maps)) })
    }

    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.end <= address);
        self.mappings.get(after).filter(|mapping| mapping.holds(address))
    }

    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, address)
    }

    pub(super) fn bytes(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The words from `address` on.
    pub(super) fn words(&self, address: u64, count: usize) -> io::Result<Vec<u64>> {
        let bytes = self.bytes(address, count * 8)?;
        Ok(bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?))).collect())
    }

    /// A C string, cut to `most` bytes.
    pub(super) fn text(&self, address: u64, most: usize) -> String {
        let mut text = Vec::new();
        while text.len() < most {
            // Never across the end of a page, behind which there may be nothing.
            let at = address + text.len() as u64;
            let len = (4096 - at % 4096).min((most - text.len()) as u64) as usize;
            let Ok(bytes) = self.bytes(at, len) else { break };
            let end = bytes.iter().position(|byte| *byte == 0);
            text.extend_from_slice(&bytes[..end.unwrap_or(len)]);
            if end.is_some() {
                break;
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// The mapping with which a library of this kind begins; `is` looks at the file's name.
    pub(super) fn library(&self, is: impl Fn(&str) -> bool) -> Option<&Mapping> {
        self.mappings
            .iter()
            .find(|mapping| mapping.offset == 0 && mapping.path.starts_with('/') && is(mapping.name()))
    }

    /// The functions a library has for others, by name.
    pub(super) fn functions(&self, library: &Mapping) -> io::Result<HashMap<String, Function>> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let base = library.start;
        let header = self.bytes(base, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(bad());
        }
        let at = u64_at(&header, 32).ok_or_else(bad)?;
        let count = usize::from(u16_at(&header, 56).ok_or_else(bad)?);
        let segments = self.bytes(base + at, count * 56)?;
        let first = |kind: u32| segments.chunks_exact(56).find(|segment| u32_at(segment, 0) == Some(kind));
        let load = first(1).and_then(|segment| u64_at(segment, 16)).ok_or_else(bad)?;
        let dynamic = first(PT_DYNAMIC).ok_or_else(bad)?;
        let (address, size) = u64_at(dynamic, 16).zip(u64_at(dynamic, 40)).ok_or_else(bad)?;
        // The first segment lies at `base`, whatever address its file gives it.
        let bias = base.wrapping_sub(load & !0xfff);
        let entries = self.bytes(bias.wrapping_add(address), (size as usize).min(1 << 16))?;
        let entry = |tag| {
            let mut entries = entries.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
            entries.find(|(found, _)| *found == Some(tag)).and_then(|(_, value)| value)
        };
        // The loader of glibc has made addresses of them, others leave them as they are in the file.
        let address = |tag| {
            entry(tag)
                .map(|value| if value < base { bias.wrapping_add(value) } else { value })
                .ok_or_else(bad)
        };
        let (symbols, strings) = (address(DT_SYMTAB)?, address(DT_STRTAB)?);
        let length = entry(DT_STRSZ).ok_or_else(bad)? as usize;
        // Linkers put the one behind the other.
        let table = strings.checked_sub(symbols).ok_or_else(bad)? as usize;
        if table > MOST_SYMBOLS || length > MOST_SYMBOLS {
            return Err(bad());
        }
        let (table, strings) = (self.bytes(symbols, table)?, self.bytes(strings, length)?);
        let function = |symbol: &[u8]| {
            let (name, info, section) = (u32_at(symbol, 0)?, *symbol.get(4)?, u16_at(symbol, 6)?);
            let (value, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
            let name = strings.get(name as usize..)?.split(|byte| *byte == 0).next()?;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            // `STT_FUNC`, and defined here.
            (info & 0xf == 2 && section != 0)
                .then(|| (name, Function { address: bias.wrapping_add(value), size }))
        };
        Ok(table.chunks_exact(SYMBOL).filter_map(function).collect())
    }
}

/// What `/proc/PID/maps` shows.
fn mappings(maps: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let (rights, offset) = (fields.next()?, fields.next()?);
        let path = fields.nth(2).unwrap_or_default().trim_start();
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: rights.contains('x'),
            private: rights.ends_with('p'),
            offset: u64::from_str_radix(offset, 16).ok()?,
            path: path.to_owned(),
        })
    };
    maps.lines().filter_map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_and_found() {
        let maps = "7f00-7f10 r--p 00000000 08:01 11  /usr/lib/libc.so.6\n\
                    7f10-7f20 r-xp 00001000 08:01 11  /opt/a b/libx.so (deleted)\n\
                    7f20-7f30 rw-s 00000000 00:00 0 \n\
                    nonsense\n";
        let found = mappings(maps);
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].name(), found[1].name(), found[2].name()), ("libc.so.6", "libx.so", ""));
        assert_eq!((found[1].executable, found[1].offset, found[2].private), (true, 0x1000, false));
    }

    #[test]
    fn functions_are_where_the_loader_says() {
        let memory = Memory::open(std::process::id()).unwrap();
        let libc = memory.library(|name| name.starts_with("libc.so")).unwrap();
        let functions = memory.functions(libc).unwrap();
        for (name, address) in
            [("getpid", libc::getpid as *const () as u64), ("malloc", libc::malloc as *const () as u64)]
        {
            let found = functions[name];
            assert_eq!(found.address, address, "{name}");
            assert!(found.size > 0);
            assert!(memory.at(address).unwrap().executable);
        }
        assert!(memory.at(1).is_none());
        let name = c"the end";
        assert_eq!(memory.text(name.as_ptr() as u64, 100), "the end");
        assert_eq!(memory.text(name.as_ptr() as u64, 3), "the");
    }
}
