//! The simulated libraries are found and loaded like the real ones, and behave through `dlsym` as they do in process.
#![allow(unsafe_code, reason = "libraries are opened and their functions called through C")]

mod common;

use common::{Client, RESOLVE};
use gtop_sim::{Kind, Truth};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn open(path: &Path, flags: i32) -> *mut c_void {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | flags) }
}

fn by_soname(name: &CStr) -> *mut c_void {
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }
}

fn resolve(name: &CStr) -> *mut c_void {
    unsafe { libc::dlsym(by_soname(c"libcupti.so.13"), name.as_ptr()) }
}

fn command(line: &str) -> Result<String, String> {
    let line = CString::new(line).unwrap();
    let mut answer = vec![0; 65_536];
    unsafe {
        let command = libc::dlsym(by_soname(c"libcuda.so.1"), c"gtop_sim_command".as_ptr());
        let command: unsafe extern "C" fn(*const c_char, *mut u8, usize) -> isize =
            std::mem::transmute(command);
        let length = command(line.as_ptr(), answer.as_mut_ptr(), answer.len());
        answer.truncate(length.unsigned_abs());
        let answer = String::from_utf8(answer).unwrap();
        if length < 0 { Err(answer) } else { Ok(answer) }
    }
}

#[test]
fn they_are_mapped_under_their_names_and_deliver() {
    RESOLVE.set(resolve).unwrap();
    let directory = tempfile::tempdir().unwrap();
    gtop_sim::artefacts::lay_out(directory.path()).unwrap();
    let cupti = open(&directory.path().join("libcupti.so.13"), 0);
    assert!(!cupti.is_null());
    assert_eq!(cupti, by_soname(c"libcupti.so.13"));
    let client = Client::fresh();
    assert_eq!(client.version(), (999, 0), "without a driver nothing works");

    assert!(!open(&directory.path().join("libcuda.so.1"), libc::RTLD_LOCAL).is_null());
    assert_eq!(client.version(), (15, 0), "nor without a GPU");
    assert_eq!(command("run"), Err("nothing is loaded".into()));
    command("load stepped mixed").unwrap();
    assert_eq!(client.version(), (0, 130_001));

    let client = Client::new(&[10, 1, 2]);
    command("turns 100").unwrap();
    assert_eq!(client.flush(false), 0);
    let truth: Truth = serde_json::from_str(&command("truth").unwrap()).unwrap();
    assert!(truth.executed(Kind::Kernel) > 0);
    assert_eq!(client.count(10), truth.executed(Kind::Kernel));
    assert_eq!(client.count(1), truth.executed(Kind::Memcpy));
    assert_eq!(client.count(2), truth.executed(Kind::Memset));
}
