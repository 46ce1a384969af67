//! The process that asks a library: loads it, prints its answer, and may crash in the attempt.
#![expect(unsafe_code, reason = "a library is loaded and a function of it called through C")]

use std::ffi::{CStr, CString, OsStr, OsString, c_void};
use std::io::Write;
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitCode};

use nix::sys::{prctl, signal::Signal};
use serde::Serialize;

use super::ask::{Cuda, Library};
use crate::probe::load::survey;

/// The hidden command of the process that asks: `__doctor cuda`, or `__doctor cupti PATH`.
pub const SUBCOMMAND: &str = "__doctor";

/// The process for one question.
pub(super) fn command(question: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([SUBCOMMAND, question]);
    command
}

/// Asks, and prints the answer.
#[must_use]
pub fn child_main(args: &[OsString]) -> ExitCode {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits live through the call. A crash is expected of some libraries, and leaves no core.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    match args {
        [question] if question == "cuda" => say(&survey()
            .map(|(driver, devices)| Cuda { driver, devices })
            .map_err(|failure| failure.to_string())),
        [question, path] if question == "cupti" => say(&version(path)),
        _ => ExitCode::from(2),
    }
}

fn say(answer: &impl Serialize) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match serde_json::to_writer(&mut out, answer).map_err(Into::into).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What the library's `cuptiGetVersion` returns. Without a driver the answer is not worth the crash: 13.2 overflows
/// its stack, later versions answer with an error.
fn version(path: &OsStr) -> Library {
    if load(OsStr::new("libcuda.so.1")).is_err() {
        return Library::Silent("no libcuda.so.1 to ask it with".to_owned());
    }
    let library = match load(path) {
        Ok(library) => library,
        Err(why) => return Library::Silent(why),
    };
    // SAFETY: an open library and a C string.
    let function = unsafe { libc::dlsym(library, c"cuptiGetVersion".as_ptr()) };
    if function.is_null() {
        return Library::Silent("it has no cuptiGetVersion".to_owned());
    }
    let mut version = 0u32;
    // SAFETY: CUPTI defines the function so (`cupti_version.h`), and the version outlives the call.
    let result = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*mut u32) -> u32>(function)(&raw mut version)
    };
    match result {
        0 => Library::Version(version),
        error => Library::Silent(format!("{} ({error})", gtop_protocol::cupti::result_name(error))),
    }
}

/// Loads a library for as long as the process lives.
fn load(path: &OsStr) -> Result<*mut c_void, String> {
    let path = CString::new(path.as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a C string; loading runs the library's constructors, which is what this process is for.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: dlopen has failed, so there is a message, which lives until the next call.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(why.to_string_lossy().into_owned());
    }
    Ok(library)
}
