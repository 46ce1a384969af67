//! The real libcupti 13.0.85, which steps over recorded buffers without a GPU.
#![allow(unsafe_code, reason = "a foreign library")]

use gtop_shim::NextRecord;
use std::ffi::{CStr, CString, c_void};
use std::mem::transmute;

/// A loaded library.
pub(crate) struct Real(*mut c_void);

impl Real {
    /// The library that `GTOP_TEST_CUPTI` names; `None`, with the reason printed, without one.
    pub(crate) fn load() -> Option<Self> {
        let required =
            std::env::var("GTOP_REQUIRE").is_ok_and(|list| list.split(',').any(|one| one == "cupti"));
        let Some(path) = std::env::var_os("GTOP_TEST_CUPTI") else {
            assert!(!required, "GTOP_REQUIRE=cupti, but GTOP_TEST_CUPTI names no library");
            println!("skipped: GTOP_TEST_CUPTI does not name a libcupti.so.13 of 13.0.85");
            return None;
        };
        let path = CString::new(path.into_encoded_bytes()).unwrap();
        // SAFETY: a C string; loading runs the library's constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let real = Self(library);
        let version = real.version();
        assert_eq!(version, 130_001, "{path:?} must be of 13.0.85: later ones need a driver");
        Some(real)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: an open library and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }

    /// `cuptiGetVersion`.
    pub(crate) fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the function has this type.
        let result = unsafe {
            transmute::<*mut c_void, unsafe extern "C" fn(*mut u32) -> u32>(self.symbol(c"cuptiGetVersion"))(
                &raw mut version,
            )
        };
        assert_eq!(result, 0);
        version
    }

    /// `cuptiActivityGetNextRecord`.
    pub(crate) fn next_record(&self) -> NextRecord {
        // SAFETY: the function has this type.
        unsafe { transmute::<*mut c_void, NextRecord>(self.symbol(c"cuptiActivityGetNextRecord")) }
    }
}
