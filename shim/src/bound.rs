//! Which loaded library has functions of a given file bound: its relocations hold addresses within that file's mapping.
#![expect(unsafe_code, reason = "the loader's own tables")]

use crate::quiet;
use crate::text::Text;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;

/// Tags of a dynamic section (`elf.h`).
const PLTRELSZ: u64 = 2;
const RELA: u64 = 7;
const RELASZ: u64 = 8;
const JMPREL: u64 = 23;
const RELACOUNT: u64 = 0x6fff_fff9;
/// Relocations that hold the address of a symbol (`elf.h`): absolute, global data, jump slot.
#[cfg(target_arch = "x86_64")]
const SYMBOLIC: [u32; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const SYMBOLIC: [u32; 3] = [257, 1025, 1026];

/// Looks through the libraries that are loaded now; gives the file name of the first one, other than what is mapped
/// within `range` itself, that has an address within `range` bound. What was looked up by hand cannot be seen.
pub(crate) fn to(range: Range<u64>) -> Option<Text<256>> {
    let mut search = Search { range, found: None };
    // SAFETY: `look` is called during this call only, with `search`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

struct Search {
    range: Range<u64>,
    found: Option<Text<256>>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader gives a structure that lives during the call, and back what `to` gave it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let found = quiet::contain(|| {
        if search.range.contains(&info.dlpi_addr) {
            return false;
        }
        // SAFETY: as the loader says, so many headers of a library that is loaded.
        let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        Object { base: info.dlpi_addr, headers }.binds(&search.range)
    });
    if found != Some(true) {
        return 0;
    }
    // SAFETY: a C string, empty for the program itself.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    search.found = Some(Text::from_bytes(if name.is_empty() { b"the program" } else { name }));
    1
}

/// A loaded library.
struct Object<'a> {
    base: u64,
    headers: &'a [libc::Elf64_Phdr],
}

impl Object<'_> {
    fn binds(&self, range: &Range<u64>) -> bool {
        let Some(dynamic) = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
            return false;
        };
        let start = self.base.saturating_add(dynamic.p_vaddr);
        let tag = |wanted: u64| {
            (0..dynamic.p_memsz / 16)
                .map(|i| start.saturating_add(i.saturating_mul(16)))
                .map_while(|at| Some((self.read(at)?, self.read(at.saturating_add(8))?)))
                .take_while(|(tag, _)| *tag != 0)
                .find_map(|(tag, value)| (tag == wanted).then_some(value))
        };
        // Relative ones come first and name no symbol; there can be a million.
        let relative = tag(RELACOUNT).unwrap_or(0).saturating_mul(24);
        [(JMPREL, PLTRELSZ, 0), (RELA, RELASZ, relative)].into_iter().any(|(table, size, skip)| {
            let (Some(table), Some(size)) = (tag(table), tag(size)) else { return false };
            // Most loaders keep addresses here, some offsets.
            let table = if table < self.base { table.saturating_add(self.base) } else { table };
            (skip / 24..size / 24).any(|i| {
                let at = table.saturating_add(i.saturating_mul(24));
                let (Some(offset), Some(kind)) = (self.read(at), self.read(at.saturating_add(8))) else {
                    return false;
                };
                SYMBOLIC.contains(&(kind as u32))
                    && self.read(self.base.saturating_add(offset)).is_some_and(|value| range.contains(&value))
            })
        })
    }

    /// Eight bytes at an address, if that lies in one of the object's readable segments.
    fn read(&self, at: u64) -> Option<u64> {
        let inside = self.headers.iter().any(|header| {
            let start = self.base.saturating_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD
                && header.p_flags & libc::PF_R != 0
                && at >= start
                && at.saturating_add(8) <= start.saturating_add(header.p_memsz)
        });
        // SAFETY: within a segment that the loader has mapped readable, while it keeps the library loaded; nothing is
        // said of its alignment.
        inside.then(|| unsafe { core::ptr::with_exposed_provenance::<u64>(at as usize).read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_functions_of_the_c_library_bound_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = crate::places::mapped(&maps, |name| name.starts_with("libc.so"));
        let range = libc.first().expect("the C library is a file").range.clone();
        assert_eq!(to(range).unwrap().to_string(), "the program");
        assert!(to(0x1000..0x2000).is_none(), "nothing is mapped there");
    }
}
