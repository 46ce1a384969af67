//! Recorded activity buffers made into many distinct ones whose name pointers point to strings of this process.

use gtop_shim::layout::{Kernel, Memcpy, Memset};
use gtop_shim::stride::Strides;
use std::collections::HashMap;
use std::ffi::CString;
use std::io::Read;
use std::mem::offset_of;
use std::path::Path;
use std::sync::LazyLock;

/// Bytes of one buffer, as the shim lends them.
const BUFFER: usize = 256 << 10;

static STRIDES: LazyLock<Strides> = LazyLock::new(|| Strides::of(130_001));

/// Does what `cuptiActivityGetNextRecord` of 13.0.85 does, by stride.
#[allow(dead_code, reason = "each user of this needs a part of it")]
#[allow(unsafe_code, reason = "a C function over raw buffers")]
pub(crate) unsafe extern "C" fn by_stride(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    // SAFETY: the walk calls it with a buffer, its valid bytes, and null or the record before.
    unsafe {
        let kind_at = |at: *mut u8| at.cast::<u32>().read_unaligned();
        let next = if (*record).is_null() {
            buffer
        } else {
            (*record).add(STRIDES.get(kind_at(*record)).unwrap_or(8))
        };
        let left = valid.saturating_sub(next.offset_from_unsigned(buffer));
        if left < 8 {
            return 12;
        }
        match STRIDES.get(kind_at(next)) {
            Some(size) if size <= left => {
                *record = next;
                0
            }
            Some(_) => 12,
            None => 21,
        }
    }
}

/// Buffers as CUPTI would complete them now.
pub(crate) struct Buffers {
    #[allow(dead_code, reason = "each user of this needs a part of it")]
    pub(crate) version: u32,
    /// Each buffer with its valid bytes.
    pub(crate) each: Vec<Vec<u8>>,
    pub(crate) records: u64,
    /// What the pointers in the records point to.
    #[allow(dead_code, reason = "kept for as long as the pointers are")]
    names: Vec<CString>,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn chunks(file: &[u8]) -> (u32, Vec<u8>, HashMap<u64, CString>) {
    let (mut at, mut version, mut records, mut names) = (0, 0, Vec::new(), HashMap::new());
    while at < file.len() {
        let (tag, value) = (&file[at..at + 8], number(file, at + 8));
        at += 16;
        match tag {
            b"UTIBUF1\0" => version = value as u32,
            b"UTIBUF\0\0" => {
                records.extend_from_slice(&file[at..at + value as usize]);
                at += value as usize;
            }
            _ => {
                for _ in 0..value {
                    let (pointer, len) = (number(file, at), number(file, at + 8) as u32 as usize);
                    names.insert(pointer, CString::new(&file[at + 12..at + 12 + len]).unwrap());
                    at += 12 + len;
                }
            }
        }
    }
    (version, records, names)
}

/// At least `bytes` of distinct buffers from a recorded file.
pub(crate) fn recorded(name: &str, bytes: usize) -> Buffers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut file = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true).read_to_end(&mut file).unwrap();
    let (version, records, names) = chunks(&file);
    let strides = Strides::of(version);
    let mut made = Buffers { version, each: Vec::new(), records: 0, names: Vec::new() };
    let (mut total, mut round, mut buffer) = (0, 0u64, Vec::with_capacity(BUFFER));
    while total < bytes {
        let mut at = 0;
        while at < records.len() {
            let kind = u32::from_le_bytes(records[at..at + 4].try_into().unwrap());
            let size = strides.get(kind).unwrap();
            if buffer.len() + size > BUFFER {
                total += buffer.len();
                made.each.push(std::mem::replace(&mut buffer, Vec::with_capacity(BUFFER)));
            }
            let from = buffer.len();
            buffer.extend_from_slice(&records[at..at + size]);
            let record = &mut buffer[from..];
            let (start, end, correlation) = match kind {
                1 => (offset_of!(Memcpy, start), offset_of!(Memcpy, end), offset_of!(Memcpy, correlation)),
                2 => (offset_of!(Memset, start), offset_of!(Memset, end), offset_of!(Memset, correlation)),
                _ => (offset_of!(Kernel, start), offset_of!(Kernel, end), offset_of!(Kernel, correlation)),
            };
            for field in [start, end] {
                let shifted = number(record, field) + round * 1_000_000_000;
                record[field..field + 8].copy_from_slice(&shifted.to_le_bytes());
            }
            let id = u32::from_le_bytes(record[correlation..correlation + 4].try_into().unwrap());
            let id = id.wrapping_add(round as u32 * 1_000_000);
            record[correlation..correlation + 4].copy_from_slice(&id.to_le_bytes());
            if kind == 10 {
                let field = offset_of!(Kernel, name);
                let pointer = names[&number(record, field)].as_ptr() as usize as u64;
                record[field..field + 8].copy_from_slice(&pointer.to_le_bytes());
            }
            made.records += 1;
            at += size;
        }
        round += 1;
    }
    if !buffer.is_empty() {
        made.each.push(buffer);
    }
    made.names = names.into_values().collect();
    made
}
