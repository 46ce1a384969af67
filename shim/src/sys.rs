//! The few system calls the shim makes itself, wrapped so that the rest needs no unsafe code.
#![expect(unsafe_code, reason = "calls into the C library")]

mod descriptors;

pub(crate) use descriptors::{
    Io, Listens, above_standard, accept, close, file_behind, hush, is_behind, listen_at, listener, make_bell,
    peer_uid, poll, receive, ring, send, unix_socket, unread,
};

use crate::room;
use core::ffi::{CStr, c_int, c_void};

/// This process's id, asked of the system each time: a cached one would be the parent's after a fork.
#[must_use]
pub(crate) fn pid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// The effective user id.
#[must_use]
pub(crate) fn uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Reads a clock, nanoseconds; 0 if the system does not have it.
#[must_use]
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
        return 0;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// `CLOCK_REALTIME`, nanoseconds.
#[must_use]
pub(crate) fn realtime() -> u64 {
    #[cfg(test)]
    if let Some(at) = still::time() {
        return at;
    }
    clock(libc::CLOCK_REALTIME)
}

/// `CLOCK_MONOTONIC`, nanoseconds.
#[must_use]
pub(crate) fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, nanoseconds.
#[must_use]
pub(crate) fn thread_cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The calling thread's id, as the system numbers threads.
#[must_use]
pub(crate) fn thread_id() -> u32 {
    // The C library has a function for it from glibc 2.30 on only.
    // SAFETY: no arguments, cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(id).unwrap_or_default()
}

/// Copies what lies at an address of this process, as far as it is readable and to the end of the page after the first
/// at most; gives how many bytes. An address that is not mapped is no fault, but nothing.
pub(crate) fn peek(address: u64, into: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let address = address as usize;
    let to_page_end = PAGE.saturating_sub(address % PAGE).min(into.len());
    let rest = into.len().saturating_sub(to_page_end).min(PAGE);
    let part = |at: usize, len: usize| libc::iovec { iov_base: at as *mut c_void, iov_len: len };
    let local = part(into.as_mut_ptr() as usize, to_page_end.saturating_add(rest));
    // What cannot be read of one part ends the copy with the part before it.
    let remote = [part(address, to_page_end), part(address.wrapping_add(to_page_end), rest)];
    // SAFETY: `local` lies within `into`; the system looks into what `remote` names and leaves it as it is.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), 2, 0) };
    usize::try_from(read).unwrap_or(0).min(into.len())
}

/// Names the calling thread, for `top -H` and debuggers.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: a C string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Runs `body` with all signals blocked in this thread, so that a thread started in it takes none of the host's.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: a zeroed set is a valid value to fill.
    let (mut all, mut before) = unsafe { core::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: both sets are writable and initialised.
    let blocked = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let result = body();
    if blocked {
        // SAFETY: `before` was filled by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    }
    result
}

/// Starts a thread that nobody waits for, with a stack of so many bytes; `false` if it cannot be had. The standard
/// library's own way ends the process where there is no memory for it. `body` must not panic.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(stack: usize, body: F) -> bool {
    extern "C" fn begin<F: FnOnce()>(place: *mut c_void) -> *mut c_void {
        let place = place.cast::<F>();
        // SAFETY: the place made below, which belongs to this thread and holds one `F`.
        let body = unsafe { place.read() };
        // SAFETY: a vector of one that was leaked; what it held was moved out.
        drop(unsafe { Vec::from_raw_parts(place, 0, 1) });
        body();
        core::ptr::null_mut()
    }
    let Some(place) = room::one(body) else { return false };
    let place = place.leak().as_mut_ptr();
    let mut thread = 0;
    // SAFETY: all zeros is a value to initialise.
    let mut how: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    // SAFETY: `how` is initialised before it is used, and `begin` takes the place that is given.
    let started = unsafe {
        libc::pthread_attr_init(&raw mut how) == 0 && {
            let set = libc::pthread_attr_setstacksize(&raw mut how, stack) == 0
                && libc::pthread_attr_setdetachstate(&raw mut how, libc::PTHREAD_CREATE_DETACHED) == 0
                && libc::pthread_create(&raw mut thread, &raw const how, begin::<F>, place.cast()) == 0;
            libc::pthread_attr_destroy(&raw mut how);
            set
        }
    };
    if !started {
        // SAFETY: no thread has it, and as above.
        unsafe {
            place.drop_in_place();
            drop(Vec::from_raw_parts(place, 0, 1));
        }
    }
    started
}

/// Opens a library that is mapped already; `None` if it is not.
#[must_use]
pub(crate) fn mapped_library(name: &CStr) -> Option<Library> {
    open(name, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD)
}

/// Opens a library, or says why the loader did not.
pub(crate) fn load_library(path: &CStr) -> Result<Library, crate::text::Text<112>> {
    open(path, libc::RTLD_NOW | libc::RTLD_LOCAL).ok_or_else(|| {
        // SAFETY: dlerror gives null or a C string that stays until this thread's next loader call.
        let message = unsafe {
            let message = libc::dlerror();
            if message.is_null() { c"no reason given" } else { CStr::from_ptr(message) }
        };
        crate::text::Text::from_bytes(message.to_bytes())
    })
}

fn open(name: &CStr, flags: c_int) -> Option<Library> {
    // SAFETY: a C string; libraries run their constructors here, which is what loading means.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!handle.is_null()).then_some(Library(handle))
}

/// A library of the process. It is never closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle is a token for the loader, which takes its own locks.
unsafe impl Send for Library {}

impl Library {
    /// The address of a symbol, or null.
    #[must_use]
    pub(crate) fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a live handle and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// The file that the code at `address` was mapped from.
#[must_use]
pub(crate) fn file_of(address: *const c_void) -> Option<crate::text::Text<1024>> {
    // SAFETY: all zeros is a valid value to fill.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is writable.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: the loader keeps the name as long as the library, which is never closed.
    found.then(|| crate::text::Text::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()))
}

/// What the process has mapped, as the system tells it. Paths need not be text: what is not is replaced.
pub(crate) fn maps() -> String {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8(maps).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The longest file that the process may write, bytes: writing beyond is answered with a signal.
pub(crate) fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if known { limit.rlim_cur } else { 0 }
}

/// Takes from the calling thread what urgency it has of the thread that started it: a host may have set that above
/// whatever else runs.
pub(crate) fn without_urgency() {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are readable; 0 is the calling thread.
    unsafe {
        if matches!(libc::sched_getscheduler(0), libc::SCHED_FIFO | libc::SCHED_RR) {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
        }
    }
}

/// Has `child` called in every child after a fork; async-signal-safe code only.
pub(crate) fn at_fork(child: unsafe extern "C" fn()) {
    // SAFETY: a function that lives as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Has `handler` called when the process exits.
pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: as for `at_fork`.
    unsafe { libc::atexit(handler) };
}

/// Sleeps for so many nanoseconds, or less after a signal.
pub(crate) fn sleep(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `time` is readable; the rest is not asked for.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_path_that_is_no_text_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"latin-\xe9.so"));
        std::fs::write(&path, [0; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: a mapping of its own, which is not looked into and stays as long as the process.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        let maps = maps();
        assert!(maps.contains("/latin-\u{fffd}.so") && maps.contains("libc.so.6"), "{maps}");
    }
}

#[cfg(test)]
pub(crate) mod still {
    //! A clock that stands still, for tests of what is bounded by the second.

    use core::cell::Cell;

    thread_local!(static STANDS: Cell<Option<u64>> = const { Cell::new(None) });

    /// Where `CLOCK_REALTIME` stands for this thread, nanoseconds.
    pub(super) fn time() -> Option<u64> {
        STANDS.get()
    }

    /// The clock of this thread stands, until this is dropped.
    pub(crate) struct Still(());

    impl Still {
        pub(crate) fn at(time: u64) -> Self {
            STANDS.set(Some(time));
            Self(())
        }
    }

    impl Drop for Still {
        fn drop(&mut self) {
            STANDS.set(None);
        }
    }
}
