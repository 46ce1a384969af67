//! `gtop-no-cuda`: loads the library that `CUDA_INJECTION64_PATH` names and calls its `InitializeInjection`, as the CUDA
//! driver would, but has no CUDA. It ends with its standard input.
#![allow(unsafe_code, reason = "a library is opened and its function called through C")]

use std::ffi::{CString, c_int, c_void};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

fn main() {
    let path = std::env::var_os("CUDA_INJECTION64_PATH").expect("CUDA_INJECTION64_PATH is set");
    let path = CString::new(path.as_bytes()).expect("no NUL");
    // SAFETY: the path is NUL-terminated, and the library is made to be loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "the library is loaded");
    // SAFETY: the library is open, and stays so.
    let function = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    assert!(!function.is_null(), "it has the function");
    // SAFETY: the driver calls the function of this name so.
    let result = unsafe {
        let initialize = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function);
        initialize()
    };
    println!("injected {result}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
