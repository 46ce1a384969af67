//! The few system calls the shim makes itself, wrapped so that the rest needs no unsafe code.
#![expect(unsafe_code, reason = "calls into the C library")]

use core::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
    let mut place = Vec::new();
    if place.try_reserve_exact(1).is_err() {
        return false;
    }
    place.push(body);
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

/// The file behind a descriptor, as a number that tells files apart; 0 if nothing is open there. Async-signal-safe.
pub(crate) fn file_behind(fd: RawFd) -> u64 {
    // SAFETY: all zeros is a valid value to fill.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return 0;
    }
    (stat.st_ino ^ stat.st_dev.rotate_left(40)).max(1)
}

/// Whether this file is behind the descriptor. Async-signal-safe.
pub(crate) fn is_behind(fd: RawFd, file: u64) -> bool {
    file != 0 && file_behind(fd) == file
}

/// The same under a number that is not a standard stream's: what has those closed still writes there. `None` if there is
/// no other number.
pub(crate) fn above_standard(fd: OwnedFd) -> Option<OwnedFd> {
    const FIRST: RawFd = 3;
    if fd.as_raw_fd() >= FIRST {
        return Some(fd);
    }
    // SAFETY: numbers.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) };
    // SAFETY: a descriptor just made for us.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A new socket for this machine alone, closed on exec, on which nothing waits.
pub(crate) fn unix_socket(kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made for us.
    above_standard(unsafe { OwnedFd::from_raw_fd(fd) }).ok_or_else(|| io::ErrorKind::Other.into())
}

/// The address of a path; `None` for one that is too long.
fn address_of(path: &std::path::Path) -> Option<libc::sockaddr_un> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all zeros is an unnamed address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = path.as_os_str().as_bytes();
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = core::ffi::c_char::from_ne_bytes([*from]);
    }
    (path.len() < address.sun_path.len()).then_some(address)
}

const ADDRESS_LEN: libc::socklen_t = size_of::<libc::sockaddr_un>() as libc::socklen_t;

/// Has a new socket listen at a path.
pub(crate) fn listen_at(fd: RawFd, path: &std::path::Path) -> io::Result<()> {
    const WAITING: c_int = 128;
    let address = address_of(path).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the address is readable for its size.
    let listens = unsafe {
        libc::bind(fd, (&raw const address).cast(), ADDRESS_LEN) == 0 && libc::listen(fd, WAITING) == 0
    };
    if listens { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets in who has connected. Never waits.
pub(crate) fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    let how = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: who connected is not asked for.
    let accepted = unsafe { libc::accept4(fd, core::ptr::null_mut(), core::ptr::null_mut(), how) };
    if accepted < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}

/// Makes a new datagram socket its own other end, a bell: what is sent through it makes it readable, and no process but
/// this one can. Unlike an event counter it is a file of its own, so that it can be told from what a host opens under its
/// number, and an empty message does no harm where it goes wrong.
pub(crate) fn make_bell(fd: RawFd) -> io::Result<()> {
    // SAFETY: all zeros is an unnamed address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let place: *mut libc::sockaddr = (&raw mut address).cast();
    let mut len = size_of::<libc::sa_family_t>() as libc::socklen_t;
    // SAFETY: the address is readable for `len` bytes, which has the system choose a name; then it is writable for its
    // size, which is `len`, and afterwards readable for what was written.
    let made = unsafe {
        libc::bind(fd, place, len) == 0 && {
            len = ADDRESS_LEN;
            libc::getsockname(fd, place, &raw mut len) == 0 && libc::connect(fd, place, len) == 0
        }
    };
    if made { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Rings a bell. Never waits.
pub(crate) fn ring(fd: RawFd) {
    // SAFETY: nothing is read.
    unsafe { libc::send(fd, core::ptr::null(), 0, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
}

/// Has a bell be silent until it is rung again.
pub(crate) fn hush(fd: RawFd) {
    const MOST: u32 = 64;
    for _ in 0..MOST {
        // SAFETY: nothing is written.
        if unsafe { libc::recv(fd, core::ptr::null_mut(), 0, libc::MSG_DONTWAIT) } < 0 {
            return;
        }
    }
}

/// Waits until a descriptor is ready or the time is over; `None` waits for ever. Interrupted is not an error; `false` is
/// that the system does not wait at all, as for more descriptors than the process may have.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> bool {
    let timeout = timeout_ns.map_or(-1, |ns| c_int::try_from(ns.div_ceil(1_000_000)).unwrap_or(c_int::MAX));
    // SAFETY: `fds` is writable for its length.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
    ready >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// What became of a send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// So many bytes went through.
    Done(usize),
    /// Not now.
    Later,
    /// The other side is gone.
    Gone,
}

fn outcome(count: isize) -> Io {
    match usize::try_from(count) {
        Ok(0) => Io::Gone,
        Ok(count) => Io::Done(count),
        Err(_) => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Io::Later,
            _ => Io::Gone,
        },
    }
}

/// Sends the two parts one after the other, or as much as fits now. Raises no signal and never waits.
pub(crate) fn send(fd: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> Io {
    let mut parts = [first, second]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the parts are readable for their lengths, and sendmsg does not write to them.
    outcome(unsafe {
        libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    })
}

/// Receives what is there. Never waits.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> Io {
    // SAFETY: `into` is writable for its length.
    outcome(unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
}

/// The user at the other end of a Unix socket.
#[must_use]
pub(crate) fn peer_uid(fd: BorrowedFd<'_>) -> Option<u32> {
    peer(fd).map(|peer| peer.uid)
}

fn peer(fd: BorrowedFd<'_>) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is writable for `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(peer)
}

/// Who listens on a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listens {
    Nobody,
    /// A process, or the one that left the socket to it.
    Pid(u32),
    /// Somebody too busy to answer, or it cannot be told.
    Somebody,
}

/// Who listens on the Unix socket at `path`. Never waits.
#[must_use]
pub(crate) fn listener(path: &std::path::Path) -> Listens {
    let Some(address) = address_of(path) else { return Listens::Somebody };
    let Ok(socket) = unix_socket(libc::SOCK_STREAM) else { return Listens::Somebody };
    // SAFETY: `address` is readable for its size.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), ADDRESS_LEN) };
    if result == 0 {
        return peer(socket.as_fd()).map_or(Listens::Somebody, |peer| Listens::Pid(peer.pid.cast_unsigned()));
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ECONNREFUSED) => Listens::Nobody,
        _ => Listens::Somebody,
    }
}

/// Closes a descriptor by number; for the child after a fork, which owns none of them as values.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: closing a number touches no memory.
    unsafe { libc::close(fd) };
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
