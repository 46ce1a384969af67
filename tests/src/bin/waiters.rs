//! `gtop-waiters CALL…`: a process with one thread for each CALL that waits in it, `busy` for one that computes. It
//! maps the `libcuda.so.1` of the folder in `GTOP_LIBS`, and ends with `SIGUSR1`; then it says of each call whether it
//! went `well`, or how it came back as it should not have. With `SIGUSR2` it becomes `sleep`.
//!
//! CALL is one of `nanosleep`, `futex`, `futex-timed`, `read`, `epoll`, `epoll-timed`, `poll`, `poll-timed`, `select`,
//! `busy`. Each waits in its call again and again until the end; timed ones wait [`SPAN`]. `loader` reads the pipe
//! `GTOP_PIPE` once, holding the loader's lock.
#![allow(
    unsafe_code,
    reason = "system calls are made through the C library, so that their results are seen as they are"
)]

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a timed call waits.
const SPAN: Duration = Duration::from_millis(1500);

static END: AtomicBool = AtomicBool::new(false);

fn main() {
    let mut end = nix::sys::signal::SigSet::empty();
    end.add(nix::sys::signal::Signal::SIGUSR1);
    end.add(nix::sys::signal::Signal::SIGUSR2);
    end.thread_block().expect("a mask");
    let libs = PathBuf::from(std::env::var_os("GTOP_LIBS").expect("GTOP_LIBS is set"));
    let cuda = CString::new(libs.join("libcuda.so.1").as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: the path is NUL-terminated; the library is made to be loaded.
    assert!(!unsafe { libc::dlopen(cuda.as_ptr(), libc::RTLD_NOW) }.is_null(), "libcuda.so.1 is loaded");
    let calls: Vec<String> = std::env::args().skip(1).collect();
    // What ends the calls that wait for ever, once its other end is closed.
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    let reader: &'static OwnedFd = Box::leak(Box::new(reader));
    let waiters: Vec<_> = calls
        .into_iter()
        .map(|call| std::thread::spawn(move || format!("{call}: {}", wait_in(&call, reader))))
        .collect();
    println!("waiting");
    // A call that nobody borrows a thread from.
    if end.wait().expect("a signal") == nix::sys::signal::Signal::SIGUSR2 {
        use std::os::unix::process::CommandExt;
        panic!("{}", std::process::Command::new("sleep").arg("1000").exec());
    }
    END.store(true, Ordering::SeqCst);
    drop(writer);
    for waiter in waiters {
        println!("{}", waiter.join().expect("no panic"));
    }
}

/// Waits again and again; gives what was odd, or `well`.
fn wait_in(call: &str, ends: &OwnedFd) -> String {
    let fd = ends.as_raw_fd();
    if call == "loader" {
        // SAFETY: the function gives 1, so that it is called once.
        unsafe { libc::dl_iterate_phdr(Some(read_pipe), std::ptr::null_mut()) };
        return "well".to_owned();
    }
    let mut came_back = 0u32;
    while !END.load(Ordering::SeqCst) {
        let began = Instant::now();
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = 0 };
        let result = once(call, fd);
        // SAFETY: as above.
        let errno = unsafe { *libc::__errno_location() };
        let timed = call.ends_with("timed") || call == "nanosleep";
        // A timed one came in time, which is not begun anew each time it is broken off, and only an end wakes the others.
        // Late is far beyond what a machine that stands still for a while makes of it.
        let early = timed && began.elapsed() < SPAN && !END.load(Ordering::SeqCst);
        let late = timed && began.elapsed() > SPAN * 8;
        let expected = match call {
            "futex" | "futex-timed" => errno == libc::ETIMEDOUT || errno == libc::EAGAIN,
            "busy" => true,
            _ => result >= 0 && errno == 0,
        };
        if early || late || !expected {
            return format!("result {result} errno {errno} early {early} late {late} after {came_back}");
        }
        came_back += 1;
    }
    "well".to_owned()
}

/// Reads the pipe to its end.
extern "C" fn read_pipe(_: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> libc::c_int {
    let path = std::env::var_os("GTOP_PIPE").expect("GTOP_PIPE is set");
    let mut pipe = std::fs::File::open(path).expect("the pipe");
    println!("locked");
    pipe.read_to_end(&mut Vec::new()).expect("its end");
    1
}

fn once(call: &str, fd: i32) -> i64 {
    let span =
        libc::timespec { tv_sec: SPAN.as_secs().cast_signed(), tv_nsec: i64::from(SPAN.subsec_nanos()) };
    let milliseconds = i32::try_from(SPAN.as_millis()).expect("it fits");
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: each call gets what its page in section 2 of the manual says, alive for its duration.
    unsafe {
        match call {
            "nanosleep" => libc::syscall(libc::SYS_nanosleep, &raw const span, none),
            "futex" => futex(fd),
            "futex-timed" => {
                let word = 0u32;
                libc::syscall(
                    libc::SYS_futex,
                    &raw const word,
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    &raw const span,
                )
            }
            "read" => libc::read(fd, [0u8; 1].as_mut_ptr().cast(), 1) as i64,
            "epoll" => epoll(fd, -1),
            "epoll-timed" => epoll(-1, milliseconds),
            "poll" => i64::from(libc::poll(&raw mut poll, 1, -1)),
            "poll-timed" => i64::from(libc::poll(none.cast(), 0, milliseconds)),
            "select" => {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(fd, &raw mut set);
                i64::from(libc::select(fd + 1, &raw mut set, none.cast(), none.cast(), none.cast()))
            }
            "busy" => {
                for _ in 0..10_000 {
                    std::hint::spin_loop();
                }
                0
            }
            other => panic!("no such call: {other}"),
        }
    }
}

/// Waits on a futex that another thread wakes at the end.
fn futex(fd: i32) -> i64 {
    static WORD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    static WAKER: std::sync::Once = std::sync::Once::new();
    WAKER.call_once(|| {
        std::thread::spawn(move || {
            // SAFETY: one writable byte.
            unsafe { libc::read(fd, [0u8; 1].as_mut_ptr().cast(), 1) };
            WORD.store(1, Ordering::SeqCst);
            // SAFETY: the word lives for ever.
            unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        });
    });
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the word lives for ever.
    let result = unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAIT, 0, none) };
    if result == 0 {
        // SAFETY: errno is this thread's own. Being woken is what is expected.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
    }
    result
}

fn epoll(fd: i32, milliseconds: i32) -> i64 {
    // SAFETY: the event is writable, and the descriptor is closed again.
    unsafe {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        if fd >= 0 {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        }
        let result = libc::epoll_wait(epoll, &raw mut event, 1, milliseconds);
        let errno = *libc::__errno_location();
        libc::close(epoll);
        *libc::__errno_location() = errno;
        i64::from(result)
    }
}
