//! Shared libraries, opened as the driver and an application open them.
#![allow(unsafe_code, reason = "libraries are opened and their functions called through C")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a library for good.
pub(super) fn open(path: &Path) -> Result<*mut c_void, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the name is NUL-terminated; what the library does when it is loaded is what the host is for.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: dlopen has failed, so there is a message, which lives until the next call.
        let error = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(error.to_string_lossy().into_owned());
    }
    Ok(library)
}

fn function(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open and stays so.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() { Err(format!("{} is not there", name.to_string_lossy())) } else { Ok(function) }
}

/// A function of a library that everyone sees.
pub(super) fn anywhere(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!function.is_null()).then_some(function)
}

type Command = unsafe extern "C" fn(*const c_char, *mut u8, usize) -> isize;

/// The simulated driver.
pub(super) struct Driver {
    command: Command,
}

impl Driver {
    /// Maps `libcuda.so.1` of a directory.
    pub(super) fn open(libs: &Path) -> Result<Self, String> {
        let library = open(&libs.join("libcuda.so.1"))?;
        let command = function(library, c"gtop_sim_command")?;
        // SAFETY: the simulated driver defines this function so.
        Ok(Self { command: unsafe { transmute::<*mut c_void, Command>(command) } })
    }

    /// Has it do something, see `Control::command`.
    pub(super) fn command(&self, line: &str) -> Result<String, String> {
        let line = CString::new(line).map_err(|error| error.to_string())?;
        let mut answer = vec![0; 64 * 1024];
        // SAFETY: the line is NUL-terminated, and the answer has as much room as it says.
        let length = unsafe { (self.command)(line.as_ptr(), answer.as_mut_ptr(), answer.len()) };
        answer.truncate(length.unsigned_abs());
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if length < 0 { Err(answer) } else { Ok(answer) }
    }
}

type Initialize = unsafe extern "C" fn() -> c_int;

/// The library that `CUDA_INJECTION64_PATH` names.
pub(super) struct Injection {
    library: *mut c_void,
    initialize: Initialize,
}

// SAFETY: the handle is a token for the loader, which takes its own locks.
unsafe impl Sync for Injection {}

impl Injection {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let library = open(path)?;
        let initialize = function(library, c"InitializeInjection")?;
        // SAFETY: the driver calls the function of this name so.
        Ok(Self { library, initialize: unsafe { transmute::<*mut c_void, Initialize>(initialize) } })
    }

    /// Closes the library as often as it was opened and more, as no driver does.
    pub(super) fn unload(&self) -> String {
        // SAFETY: the loader refuses what is not open; the library is one that cannot be unloaded, or this host dies.
        let results = [(); 3].map(|()| unsafe { libc::dlclose(self.library) });
        format!("{results:?}")
    }

    /// Calls `InitializeInjection`.
    pub(super) fn initialize(&self) -> c_int {
        // SAFETY: what the driver does.
        unsafe { (self.initialize)() }
    }
}
