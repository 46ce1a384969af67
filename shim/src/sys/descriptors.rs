//! What the shim has open: telling whose a descriptor is, sockets, and waiting for them.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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

/// An address without a name.
fn unnamed() -> libc::sockaddr_un {
    // SAFETY: all zeros is such an address but for its family.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    address
}

/// The address of a path; `None` for one that is too long.
fn address_of(path: &std::path::Path) -> Option<libc::sockaddr_un> {
    use std::os::unix::ffi::OsStrExt;
    let mut address = unnamed();
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
    let mut address = unnamed();
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

/// How much of what was sent through a Unix socket its other end has not read, as the system counts it; 0 if it says nothing.
#[must_use]
pub(crate) fn unread(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: `count` is writable, and this request writes a number there.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if result == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
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
