//! Kernel names as records carry them: addresses of NUL-terminated strings that live as long as the process.
#![allow(unsafe_code, reason = "one name can be overwritten in place, as by a module that was unloaded")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

static INTERNED: Mutex<Option<HashMap<CString, u64>>> = Mutex::new(None);

/// The address of `name`, the same for the same name. What follows a NUL is cut off.
pub(crate) fn intern(name: &str) -> u64 {
    let name = c_string(name);
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    *interned.get_or_insert_default().entry(name).or_insert_with_key(|name| leak(name.clone()))
}

/// The interned address of a string known at compile time.
pub(crate) fn static_ptr(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}

/// A name at an address of its own that may be overwritten once.
pub(crate) struct Reused {
    address: u64,
    becomes: CString,
}

impl Reused {
    /// Puts `name` where `becomes`, which is cut to the same length, can take its place.
    pub(crate) fn new(name: &str, becomes: &str) -> Self {
        let name = c_string(name);
        let mut becomes = c_string(becomes).into_bytes();
        becomes.truncate(name.as_bytes().len());
        Self { address: leak(name), becomes: CString::new(becomes).unwrap_or_default() }
    }

    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Puts the second name in place of the first. Called between two buffer callbacks of the only thread whose
    /// records carry the name, so no client reads it meanwhile.
    pub(crate) fn overwrite(&self) {
        let bytes = self.becomes.as_bytes_with_nul();
        // SAFETY: the address is of a leaked string at least as long, and nothing in Rust refers to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address as *mut u8, bytes.len()) };
    }
}

fn leak(name: CString) -> u64 {
    name.into_raw() as u64
}

fn c_string(name: &str) -> CString {
    CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: u64) -> String {
        // SAFETY: addresses of this module are of NUL-terminated strings that live for ever.
        unsafe { CStr::from_ptr(address as *const c_char) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_same_name_has_one_address() {
        assert_eq!(intern("a kernel"), intern("a kernel"));
        assert_ne!(intern("a kernel"), intern("another"));
        assert_eq!(read(intern("a kernel")), "a kernel");
    }

    #[test]
    fn a_reused_address_holds_the_second_name() {
        let name = Reused::new("first_name", "second");
        assert_eq!(read(name.address()), "first_name");
        name.overwrite();
        assert_eq!(read(name.address()), "second");
    }
}
