//! Kernel names, kept once each: a lock-free table that any number of CUPTI's threads add to and the I/O thread
//! reads. An id is the name's place in the table and is never reused.
#![expect(unsafe_code, reason = "names are C strings of the process, copied into memory shared by threads")]

use crate::memory::Region;
use crate::sys;
use core::ffi::c_char;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use gtop_protocol::message::names::{MAX_NAME, OTHER};

/// Names kept; further ones are "other".
pub const MAX_NAMES: usize = 1 << 16;
/// Bytes of names kept; further ones are "other".
pub const MAX_BYTES: usize = 16 << 20;

const INDEX: usize = MAX_NAMES * 2;
const HINTS: usize = 4096;

/// Where the names behind the pointers in records are found.
pub trait NameSource {
    /// The name at `pointer`, cut at [`MAX_NAME`] bytes; `None` when there is none.
    fn name(&self, pointer: u64) -> Option<&[u8]>;

    /// Whether the name at `pointer`, cut likewise, is `stored`, which a NUL follows in memory.
    fn is(&self, pointer: u64, stored: &[u8]) -> bool {
        self.name(pointer) == Some(stored)
    }

    /// The path at `pointer`, put into `place`; `None` where none is found.
    fn path<'a>(&self, _pointer: u64, _place: &'a mut [u8]) -> Option<&'a [u8]> {
        None
    }
}

/// The names of this process, read where CUPTI's pointers point.
#[derive(Debug)]
pub struct InProcess(());

impl InProcess {
    /// # Safety
    /// Whatever pointers are asked for must come from a kernel record that CUPTI just delivered, so that they
    /// are null or point to a C string that lives while the completion callback runs.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// No string lies in the first page.
const fn plausible(pointer: u64) -> bool {
    pointer >= 4096 && pointer <= isize::MAX as u64
}

impl NameSource for InProcess {
    fn name(&self, pointer: u64) -> Option<&[u8]> {
        if !plausible(pointer) {
            return None;
        }
        let text = pointer as usize as *const c_char;
        // SAFETY: by the promise made in `new`, a C string, of which at most MAX_NAME bytes are read.
        let name = unsafe {
            let len = libc::strnlen(text, MAX_NAME);
            core::slice::from_raw_parts(text.cast::<u8>(), len)
        };
        Some(name)
    }

    fn is(&self, pointer: u64, stored: &[u8]) -> bool {
        let compared = stored.len().saturating_add(1).min(MAX_NAME);
        // SAFETY: by the promise made in `new`, and because a NUL follows `stored`; both ends stop the comparison.
        plausible(pointer)
            && unsafe {
                libc::strncmp(pointer as usize as *const c_char, stored.as_ptr().cast(), compared) == 0
            }
    }

    /// How long a path lives that CUPTI gives is not documented, so that the system reads it: no pointer does harm.
    fn path<'a>(&self, pointer: u64, place: &'a mut [u8]) -> Option<&'a [u8]> {
        if !plausible(pointer) {
            return None;
        }
        let read = sys::peek(pointer, place);
        let path = place.get(..read)?.split(|byte| *byte == 0).next()?;
        let whole = path.len() < read && !path.is_empty();
        let text = core::str::from_utf8(path).ok()?;
        (whole && !text.chars().any(char::is_control)).then_some(path)
    }
}

/// The table.
#[derive(Debug)]
pub struct NameTable {
    /// Open addressing by hash: upper half of the hash, id.
    index: Region<AtomicU64>,
    /// By id: offset in the arena, length + 1. Zero until the name can be read.
    entries: Region<AtomicU64>,
    /// By pointer: the pointer, and the id its string had when it was last looked at.
    hints: Region<AtomicU64>,
    arena: Region<AtomicU8>,
    arena_used: AtomicU32,
    /// Ids given out, 0 (unknown) included.
    ids: AtomicU32,
}

impl NameTable {
    /// An empty table, or `None` when memory for it cannot be had.
    #[must_use]
    pub fn new() -> Option<Self> {
        Some(Self {
            index: Region::new(INDEX)?,
            entries: Region::new(MAX_NAMES)?,
            hints: Region::new(HINTS)?,
            arena: Region::new(MAX_BYTES)?,
            arena_used: AtomicU32::new(0),
            ids: AtomicU32::new(1),
        })
    }

    /// Bytes put to use, pages of the index estimated at one a name.
    #[must_use]
    pub fn touched_bytes(&self) -> usize {
        let ids = self.end() as usize;
        let index = ids.saturating_mul(4096).min(self.index.bytes());
        let rest = ids.saturating_mul(8).saturating_add(self.hints.bytes()).saturating_add(index);
        rest.saturating_add(self.arena_used.load(Relaxed) as usize)
    }

    /// The first id not given out yet. Names of lower ids can be read now or soon.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.ids.load(Acquire).min(MAX_NAMES as u32)
    }

    /// The name with this id, once it is there.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let entry = self.entries.get(id as usize)?.load(Acquire);
        let (offset, len) = ((entry >> 32) as usize, ((entry & 0xffff_ffff) as usize).checked_sub(1)?);
        if offset.checked_add(len)? >= self.arena.len() {
            return None;
        }
        // SAFETY: within the arena by the check above; an entry is published after its bytes were written, and
        // published bytes are never written again.
        Some(unsafe { core::slice::from_raw_parts(self.arena.as_ptr().cast::<u8>().add(offset), len) })
    }

    /// The id of the name at `pointer`, which is added if it is new: 0 when there is no name, [`OTHER`] when
    /// the table is full. The string is looked at each time, because a pointer can be reused.
    pub fn resolve(&self, pointer: u64, source: &impl NameSource) -> u32 {
        let hint = self.hints.get(pointer_hash(pointer) as usize % HINTS);
        if let Some(hint) = hint.map(|hint| hint.load(Relaxed))
            && hint >> 16 == pointer
            && let id = (hint & 0xffff) as u32
            && self.get(id).is_some_and(|stored| source.is(pointer, stored))
        {
            return id;
        }
        let Some(name) = source.name(pointer) else { return 0 };
        let id = self.intern(name);
        if let Some(hint) = hint
            && id < MAX_NAMES as u32
            && pointer < 1 << 48
        {
            hint.store(pointer << 16 | u64::from(id), Relaxed);
        }
        id
    }

    /// The id of a name, which is added if it is new; [`OTHER`] when the table is full.
    pub(crate) fn intern(&self, name: &[u8]) -> u32 {
        let name = name.get(..MAX_NAME).unwrap_or(name);
        let hash = hash(name);
        let tag = hash & 0xffff_ffff_0000_0000;
        let mut fresh = None;
        for probe in 0..INDEX as u64 {
            let Some(slot) = self.index.get(hash.wrapping_add(probe) as usize % INDEX) else { return OTHER };
            let mut found = slot.load(Acquire);
            if found == 0 {
                let Some(id) = fresh.or_else(|| self.add(name)) else { return OTHER };
                fresh = Some(id);
                match slot.compare_exchange(0, tag | u64::from(id), Release, Acquire) {
                    Ok(_) => return id,
                    // Another thread was faster, perhaps with the same name; ours then stays in the table unused.
                    Err(theirs) => found = theirs,
                }
            }
            let id = (found & 0xffff_ffff) as u32;
            if found & 0xffff_ffff_0000_0000 == tag && self.get(id) == Some(name) {
                return id;
            }
        }
        OTHER
    }

    /// Copies the name into the arena under a new id.
    fn add(&self, name: &[u8]) -> Option<u32> {
        let len = u32::try_from(name.len()).ok()?;
        let offset = reserve(&self.arena_used, len.checked_add(1)?, self.arena.len() as u32)?;
        // SAFETY: `reserve` gave these bytes, which lie within the arena, to us alone; the NUL behind the name is
        // there already, since memory begins as zeros.
        unsafe {
            let to = self.arena.as_ptr().cast::<u8>().add(offset as usize);
            core::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
        }
        let id = reserve(&self.ids, 1, MAX_NAMES as u32)?;
        let entry = u64::from(offset) << 32 | u64::from(len).saturating_add(1);
        self.entries.get(id as usize)?.store(entry, Release);
        Some(id)
    }
}

/// Takes `count` off a counter that must not pass `limit`; gives its value before.
fn reserve(counter: &AtomicU32, count: u32, limit: u32) -> Option<u32> {
    let next = |now: u32| now.checked_add(count).filter(|next| *next <= limit);
    counter.fetch_update(Release, Acquire, next).ok()
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads pointers, whose low bits are often equal.
#[inline]
#[must_use]
pub const fn pointer_hash(pointer: u64) -> u64 {
    pointer.wrapping_mul(MULTIPLIER) >> 40
}

fn hash(name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let hash = words.iter().fold(name.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::sync::Mutex;

    fn pointer(text: &CString) -> u64 {
        text.as_ptr() as usize as u64
    }

    fn source() -> InProcess {
        // SAFETY: the tests ask for pointers of live strings, or null.
        unsafe { InProcess::new() }
    }

    #[test]
    fn equal_names_have_one_id_wherever_they_lie() {
        let table = NameTable::new().unwrap();
        let (a, b, c) = (c"gemm".to_owned(), c"gemm".to_owned(), c"gemv".to_owned());
        let id = table.resolve(pointer(&a), &source());
        assert_eq!((id, table.get(id)), (1, Some(b"gemm".as_slice())));
        assert_eq!(table.resolve(pointer(&b), &source()), id);
        assert_eq!(table.resolve(pointer(&c), &source()), 2);
        assert_eq!(table.resolve(0, &source()), 0);
        assert_eq!((table.end(), table.get(0), table.get(3)), (3, None, None));
    }

    #[test]
    fn a_path_is_read_wherever_it_points() {
        let mut place = [0u8; 64];
        let mut path = |text: &[u8]| source().path(text.as_ptr() as u64, &mut place).map(<[u8]>::to_vec);
        assert_eq!(path(b"/usr/lib/libcudart.so.13\0"), Some(b"/usr/lib/libcudart.so.13".to_vec()));
        let long = [b'a'; 80];
        for nothing in [b"\0".as_slice(), b"/a\nb\0", b"\xff\xfe\0", &long] {
            assert_eq!(path(nothing), None, "{nothing:?}");
        }
        for nowhere in [0, 8, 0xdead_0000, u64::MAX, isize::MAX as u64] {
            assert_eq!(source().path(nowhere, &mut place), None);
        }
    }

    #[test]
    fn a_reused_pointer_gets_its_new_name() {
        let table = NameTable::new().unwrap();
        let mut text = *b"first\0";
        let pointer = text.as_mut_ptr() as usize as u64;
        assert_eq!(table.resolve(pointer, &source()), 1);
        text.copy_from_slice(b"other\0");
        assert_eq!(table.resolve(pointer, &source()), 2);
        text.copy_from_slice(b"oth\0r\0");
        assert_eq!(table.resolve(pointer, &source()), 3);
        assert_eq!(table.get(3), Some(b"oth".as_slice()));
        text.copy_from_slice(b"first\0");
        assert_eq!(table.resolve(pointer, &source()), 1);
    }

    #[test]
    fn very_long_names_are_cut_and_still_found() {
        let table = NameTable::new().unwrap();
        let long = CString::new(vec![b'k'; MAX_NAME + 1000]).unwrap();
        let id = table.resolve(pointer(&long), &source());
        assert_eq!(table.get(id).map(<[u8]>::len), Some(MAX_NAME));
        assert_eq!(table.resolve(pointer(&long), &source()), id);
        let exact = CString::new(vec![b'k'; MAX_NAME]).unwrap();
        assert_eq!(table.resolve(pointer(&exact), &source()), id);
    }

    #[test]
    fn beyond_the_limits_names_are_other() {
        struct Numbered;
        impl NameSource for Numbered {
            fn name(&self, _: u64) -> Option<&[u8]> {
                None
            }
        }
        let table = NameTable::new().unwrap();
        let mut ids = Vec::new();
        for i in 0..MAX_NAMES + 10 {
            ids.push(table.intern(format!("kernel {i}").as_bytes()));
        }
        assert_eq!(ids.iter().filter(|id| **id == OTHER).count(), 11);
        assert_eq!(table.intern(b"kernel 7"), 8);
        assert_eq!(table.resolve(5000, &Numbered), 0);

        let table = NameTable::new().unwrap();
        let long = vec![b'k'; MAX_NAME - 4];
        let kept = (0..2000u32)
            .filter(|i| table.intern(&[long.as_slice(), &i.to_le_bytes()].concat()) != OTHER)
            .count();
        assert_eq!(kept, MAX_BYTES / (MAX_NAME + 1));
    }

    #[test]
    fn threads_agree_on_ids() {
        let table = NameTable::new().unwrap();
        let names: Vec<CString> = (0..500).map(|i| CString::new(format!("kernel_{i}")).unwrap()).collect();
        let seen = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for start in 0..4usize {
                let (table, names, seen) = (&table, &names, &seen);
                scope.spawn(move || {
                    let ids: Vec<u32> = (0..names.len())
                        .map(|i| table.resolve(pointer(&names[(i + start * 7) % names.len()]), &source()))
                        .collect();
                    for (i, id) in ids.iter().enumerate() {
                        let name = &names[(i + start * 7) % names.len()];
                        assert_eq!(table.get(*id), Some(name.as_bytes()));
                    }
                    seen.lock().unwrap().extend(ids);
                });
            }
        });
        for id in 1..table.end() {
            assert!(table.get(id).is_some());
        }
    }
}
