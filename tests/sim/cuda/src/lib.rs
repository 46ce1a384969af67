//! Stands for `libcuda.so.1`: the simulated GPU lives in here, as the real one lives behind the driver. The simulated
//! `libcupti.so.13` finds it through `gtop_sim_resolve`; the host program drives it through `gtop_sim_command`.
#![allow(unsafe_code, reason = "the functions take the pointers of a C caller")]

#[cfg(target_arch = "x86_64")]
pub mod memory;

use gtop_sim::Control;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

static CONTROL: Mutex<Control> = Mutex::new(Control::in_process());

/// The CUPTI function with this name, or null.
///
/// # Safety
/// `name` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gtop_sim_resolve(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's duty.
    gtop_sim::resolve(unsafe { CStr::from_ptr(name) })
}

/// Does what a line says, see [`Control::command`]. Returns the length of the answer, of which at most `room` bytes
/// were written to `answer`; negative where the answer is why it was not done.
///
/// # Safety
/// `line` is a NUL-terminated string, and `answer` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gtop_sim_command(line: *const c_char, answer: *mut u8, room: usize) -> isize {
    // SAFETY: the caller's duty.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    let result = CONTROL.lock().unwrap_or_else(PoisonError::into_inner).command(&line);
    let (text, sign) = match &result {
        Ok(text) => (text, 1),
        Err(text) => (text, -1),
    };
    // SAFETY: the caller's duty.
    unsafe { answer.copy_from_nonoverlapping(text.as_ptr(), text.len().min(room)) };
    sign * text.len().cast_signed()
}

/// `CUDA_SUCCESS`.
const SUCCESS: c_uint = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: c_uint = 1;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_uint = 500;

/// Writes a value to where a caller wants it.
fn give<T>(to: *mut T, value: T) -> c_uint {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null; a C caller passes a pointer to a `T`.
    unsafe { to.write(value) };
    SUCCESS
}

/// Initialises the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    gtop_sim::count_call("cuInit");
    SUCCESS
}

/// The CUDA version of the driver: 13.0.
#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    gtop_sim::count_call("cuDriverGetVersion");
    give(version, 13_000)
}

/// How many devices there are: one.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    gtop_sim::count_call("cuDeviceGetCount");
    give(count, 1)
}

/// When code is loaded: at the first launch of its kernel.
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetLoadingMode(mode: *mut c_int) -> c_uint {
    gtop_sim::count_call("cuModuleGetLoadingMode");
    give(mode, 2)
}

/// The handle of a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    gtop_sim::count_call("cuDeviceGet");
    if ordinal == 0 { give(device, 0) } else { INVALID_VALUE }
}

/// The name of a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) -> c_uint {
    gtop_sim::count_call("cuDeviceGetName");
    let text = c"Simulated GPU".to_bytes_with_nul();
    if name.is_null() || usize::try_from(length).is_ok_and(|length| length < text.len()) {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and the caller says there is room for `length` bytes, which was found to be enough.
    unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    SUCCESS
}

/// The UUID of a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) -> c_uint {
    gtop_sim::count_call("cuDeviceGetUuid_v2");
    give(uuid, *b"simulated-gpu-00")
}

/// The driver's private tables: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) -> c_uint {
    gtop_sim::count_call("cuGetExportTable");
    NOT_FOUND
}
