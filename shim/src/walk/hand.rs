//! What one buffer's walk keeps at hand of the names it met, so that not every record looks its own up.

use crate::names::{NameSource, NameTable, pointer_hash};

/// Pointers kept at hand in one buffer.
const POINTERS: usize = 512;
/// From [`pointer_hash`], which is 24 bits wide, to one of those places.
const PLACE_SHIFT: u32 = 24 - POINTERS.ilog2();

/// The ids of the name pointers met in one buffer. It begins empty, so each string is looked at again once per
/// buffer: pointers are reused after a module is unloaded.
pub(super) struct Names<'a> {
    table: &'a NameTable,
    known: [(u64, u32); POINTERS],
}

impl<'a> Names<'a> {
    pub(super) const fn new(table: &'a NameTable) -> Self {
        Self { table, known: [(0, 0); POINTERS] }
    }

    #[inline]
    pub(super) fn id(&mut self, pointer: u64, source: &impl NameSource) -> u32 {
        let at = pointer_hash(pointer) >> PLACE_SHIFT;
        let Some(known) = self.known.get_mut(at as usize % POINTERS) else { return 0 };
        if known.0 != pointer {
            *known = (pointer, resolve(self.table, pointer, source));
        }
        known.1
    }
}

/// Once a buffer for each name: out of the way of what is done for every record.
#[cold]
#[inline(never)]
fn resolve(table: &NameTable, pointer: u64, source: &impl NameSource) -> u32 {
    table.resolve(pointer, source)
}

/// Paths kept at hand in one buffer, and the longest one, bytes.
const PATHS: usize = 8;
const MAX_PATH: usize = 1024;

/// The ids of the paths of libraries met in one buffer, the newest ones. Looking one up asks the system.
pub(super) struct Paths<'a> {
    table: &'a NameTable,
    known: [(u64, u32); PATHS],
    next: usize,
}

impl<'a> Paths<'a> {
    pub(super) const fn new(table: &'a NameTable) -> Self {
        Self { table, known: [(0, 0); PATHS], next: 0 }
    }

    /// The id of the path at `pointer`; 0 without one.
    pub(super) fn id(&mut self, pointer: u64, source: &impl NameSource) -> u32 {
        if let Some((_, id)) = self.known.iter().find(|(known, _)| *known == pointer) {
            return *id;
        }
        let mut place = [0; MAX_PATH];
        let id = source.path(pointer, &mut place).map_or(0, |path| self.table.intern(path));
        if let Some(oldest) = self.known.get_mut(self.next % PATHS) {
            *oldest = (pointer, id);
        }
        self.next = self.next.wrapping_add(1);
        id
    }
}
