//! The least that an injected collector does: `InitializeInjection` finds the CUPTI that `COLLECTOR_CUPTI` names, asks
//! for kernels, copies and memory sets, and says at exit how many records came. The tests of the host program load it.
#![allow(unsafe_code, reason = "an injected library is called from C and calls C")]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BYTES: usize = 256 * 1024;

type Subscribe = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *mut c_void) -> u32;
type Register = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32;

static CUPTI: OnceLock<usize> = OnceLock::new();
static RECORDS: AtomicU64 = AtomicU64::new(0);

fn find(name: &CStr) -> *mut c_void {
    let library = *CUPTI.get_or_init(|| {
        let path = CString::new(std::env::var("COLLECTOR_CUPTI").unwrap_or_default()).unwrap_or_default();
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) as usize }
    });
    // SAFETY: null or an open library, and dlsym takes both.
    unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).unwrap_or(Layout::new::<u64>())
}

unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI passes three places to write to.
    unsafe {
        *buffer = alloc(layout(BYTES));
        *size = BYTES;
        *records = 0;
    }
}

unsafe extern "C" fn complete(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    // SAFETY: CUPTI's function has this signature; the buffer is one that `request` gave.
    unsafe {
        let next = transmute::<*mut c_void, unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32>(find(
            c"cuptiActivityGetNextRecord",
        ));
        let mut record = null_mut();
        while next(buffer, valid, &raw mut record) == 0 {
            RECORDS.fetch_add(1, Relaxed);
        }
        dealloc(buffer, layout(size));
    }
}

extern "C" fn say_how_many() {
    // SAFETY: CUPTI's function has this signature.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u32>(find(c"cuptiActivityFlushAll"))(0);
    }
    println!("collected {}", RECORDS.load(Relaxed));
}

/// What the driver calls once it is initialised.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let functions = [c"cuptiSubscribe", c"cuptiActivityRegisterCallbacks", c"cuptiActivityEnable"].map(find);
    if functions.iter().any(|function| function.is_null()) {
        return 0;
    }
    let [subscribe, register, enable] = functions;
    let mut subscriber = null_mut();
    // SAFETY: CUPTI's functions have these signatures; what they get outlives the calls or is static.
    unsafe {
        if transmute::<*mut c_void, Subscribe>(subscribe)(&raw mut subscriber, null_mut(), null_mut()) != 0 {
            return 0;
        }
        transmute::<*mut c_void, Register>(register)(request as *mut c_void, complete as *mut c_void);
        for kind in [10, 1, 2] {
            transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u32>(enable)(kind);
        }
        libc::atexit(say_how_many);
    }
    1
}
