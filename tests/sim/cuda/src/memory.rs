//! The C library's allocator with a countdown, for hosts that preload this library: of what code between two addresses
//! asks for, one piece or everything from one piece on is not there. Elsewhere these names are nobody's.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The first piece that is not there, counted from 1.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
/// The last one.
static LAST: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);

const ENOMEM: c_int = 12;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

/// From now on counts what code from `begin` to `end` asks for, of which pieces `first` to `last` are not there.
#[unsafe(no_mangle)]
pub extern "C" fn gtop_sim_starve(begin: usize, end: usize, first: u64, last: u64) {
    FIRST.store(first, Relaxed);
    LAST.store(last, Relaxed);
    BEGIN.store(begin, Relaxed);
    END.store(end, Relaxed);
}

/// Pieces asked for since.
#[unsafe(no_mangle)]
pub extern "C" fn gtop_sim_starved() -> u64 {
    ASKED.load(Relaxed)
}

/// Whether this caller gets nothing.
fn refuses(caller: usize) -> bool {
    if !(BEGIN.load(Relaxed)..END.load(Relaxed)).contains(&caller) {
        return false;
    }
    let asked = ASKED.fetch_add(1, Relaxed) + 1;
    (FIRST.load(Relaxed)..=LAST.load(Relaxed)).contains(&asked)
}

/// Exports functions of C that hand their caller's address on as one more argument.
macro_rules! with_caller {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $register:literal, $to:ident;)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for C's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // The address to return to lies on top of the stack.
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {to}", to = sym $to)
        }
    )*};
}

with_caller! {
    malloc(size: usize) -> *mut c_void, "rsi", malloc_for;
    calloc(count: usize, size: usize) -> *mut c_void, "rdx", calloc_for;
    realloc(old: *mut c_void, size: usize) -> *mut c_void, "rdx", realloc_for;
    posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int, "rcx", posix_memalign_for;
    aligned_alloc(align: usize, size: usize) -> *mut c_void, "rdx", aligned_alloc_for;
}

unsafe extern "C" fn malloc_for(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller of malloc promises.
    if refuses(caller) { null_mut() } else { unsafe { __libc_malloc(size) } }
}

unsafe extern "C" fn calloc_for(count: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller of calloc promises.
    if refuses(caller) { null_mut() } else { unsafe { __libc_calloc(count, size) } }
}

unsafe extern "C" fn realloc_for(old: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller of realloc promises.
    if refuses(caller) { null_mut() } else { unsafe { __libc_realloc(old, size) } }
}

unsafe extern "C" fn aligned_alloc_for(align: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller of aligned_alloc promises.
    if refuses(caller) { null_mut() } else { unsafe { __libc_memalign(align, size) } }
}

unsafe extern "C" fn posix_memalign_for(
    to: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    // SAFETY: as the caller of posix_memalign promises.
    let place = if refuses(caller) { null_mut() } else { unsafe { __libc_memalign(align, size) } };
    if place.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller gives a place for the answer.
    unsafe { to.write(place) };
    0
}
