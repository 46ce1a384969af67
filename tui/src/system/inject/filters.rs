//! Whether the system call filters (seccomp) of a thread let the shim do its work. A filter may end the process at a
//! call that it never makes itself, so each is asked beforehand about every call of the shim, its threads among them.

use std::fs;

use libc::sock_filter;
use nix::errno::Errno;

use super::bpf::{self, Call};
use super::refusal::{Filtered, Refusal};
use super::trace::Traced;

/// `AUDIT_ARCH_X86_64` (`linux/audit.h`).
const ARCHITECTURE: u32 = 0xc000_003e;
/// More filters than any thread has.
const MOST: u32 = 1024;

/// What it means when a call is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// The shim cannot serve without it.
    Must,
    /// It, or its libraries, do without.
    May,
}

use Need::{May, Must};

/// The flags with which the C library makes a thread.
const THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u64;
const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
const HERE: u64 = libc::AT_FDCWD as u64;
const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXECUTE: u64 = libc::PROT_EXEC as u64;
const OF_FILE: u64 = (libc::MAP_PRIVATE | libc::MAP_DENYWRITE) as u64;
const OF_NOTHING: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const UNIX: u64 = libc::AF_UNIX as u64;
const STREAM: u64 = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
const SEND: u64 = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u64;

type Row = (&'static str, i64, [u64; 6], Need);

/// What loading the shim, its threads and its socket call, as seen with `strace -f`; pointers are 4096, descriptors 3.
/// Threads are made by `clone3`, or by `clone` where that is unknown.
#[rustfmt::skip]
const CALLS: &[Row] = &[
    ("mmap", libc::SYS_mmap, [0, 4096, READ | EXECUTE, OF_FILE, 3, 0], Must),
    ("mmap", libc::SYS_mmap, [0, 4096, READ | WRITE, OF_NOTHING, u64::MAX, 0], Must),
    ("mmap", libc::SYS_mmap, [0, 4096, 0, OF_NOTHING | libc::MAP_NORESERVE as u64, u64::MAX, 0], Must),
    ("mprotect", libc::SYS_mprotect, [4096, 4096, READ | WRITE, 0, 0, 0], Must),
    ("mprotect", libc::SYS_mprotect, [4096, 4096, READ, 0, 0, 0], Must),
    ("munmap", libc::SYS_munmap, [4096, 4096, 0, 0, 0, 0], Must),
    ("rt_sigreturn", libc::SYS_rt_sigreturn, [0; 6], Must),
    ("openat", libc::SYS_openat, [HERE, 4096, libc::O_CLOEXEC as u64, 0, 0, 0], Must),
    ("read", libc::SYS_read, [3, 4096, 832, 0, 0, 0], Must),
    ("close", libc::SYS_close, [3, 0, 0, 0, 0, 0], Must),
    ("futex", libc::SYS_futex, [4096, libc::FUTEX_WAIT as u64 | PRIVATE, 0, 0, 0, 0], Must),
    ("futex", libc::SYS_futex, [4096, libc::FUTEX_WAIT_BITSET as u64 | PRIVATE, 0, 4096, 0, 0xffff_ffff], Must),
    ("futex", libc::SYS_futex, [4096, libc::FUTEX_WAKE as u64 | PRIVATE, 1, 0, 0, 0], Must),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as u64, 4096, 4096, 8, 0, 0], Must),
    ("socket", libc::SYS_socket, [UNIX, STREAM, 0, 0, 0, 0], Must),
    ("bind", libc::SYS_bind, [3, 4096, 38, 0, 0, 0], Must),
    ("listen", libc::SYS_listen, [3, 128, 0, 0, 0, 0], Must),
    ("ioctl", libc::SYS_ioctl, [3, libc::FIONBIO, 4096, 0, 0, 0], Must),
    ("ioctl", libc::SYS_ioctl, [3, libc::TIOCOUTQ, 4096, 0, 0, 0], May),
    ("accept4", libc::SYS_accept4, [3, 4096, 4096, libc::SOCK_CLOEXEC as u64, 0, 0], Must),
    ("getsockopt", libc::SYS_getsockopt, [3, libc::SOL_SOCKET as u64, libc::SO_PEERCRED as u64, 4096, 4096, 0], Must),
    ("sendmsg", libc::SYS_sendmsg, [3, 4096, SEND, 0, 0, 0], Must),
    ("getsockname", libc::SYS_getsockname, [3, 4096, 4096, 0, 0, 0], Must),
    ("sendto", libc::SYS_sendto, [3, 4096, 1, SEND, 0, 0], May),
    ("recvfrom", libc::SYS_recvfrom, [3, 4096, 4096, libc::MSG_DONTWAIT as u64, 0, 0], Must),
    ("poll", libc::SYS_poll, [4096, 2, u64::MAX, 0, 0, 0], Must),
    ("eventfd2", libc::SYS_eventfd2, [0, (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as u64, 0, 0, 0, 0], Must),
    ("write", libc::SYS_write, [3, 4096, 8, 0, 0, 0], Must),
    ("getpid", libc::SYS_getpid, [0; 6], Must),
    ("geteuid", libc::SYS_geteuid, [0; 6], Must),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, [1, 0, 4096, 4096, 0, 0], Must),
    ("mkdir", libc::SYS_mkdir, [4096, 0o700, 0, 0, 0, 0], May),
    ("chmod", libc::SYS_chmod, [4096, 0o600, 0, 0, 0, 0], Must),
    // The loader looks at a file with one of them, by the age of the C library.
    ("newfstatat", libc::SYS_newfstatat, [3, 4096, 4096, libc::AT_EMPTY_PATH as u64, 0, 0], May),
    ("fstat", libc::SYS_fstat, [3, 4096, 0, 0, 0, 0], May),
    ("statx", libc::SYS_statx, [3, 4096, libc::AT_EMPTY_PATH as u64, 0xfff, 4096, 0], May),
    ("connect", libc::SYS_connect, [3, 4096, 110, 0, 0, 0], May),
    ("unlink", libc::SYS_unlink, [4096, 0, 0, 0, 0, 0], May),
    ("getdents64", libc::SYS_getdents64, [3, 4096, 32768, 0, 0, 0], May),
    ("readlink", libc::SYS_readlink, [4096, 4096, 256, 0, 0, 0], May),
    // A thread of an application that runs as real time makes ones that do not.
    ("sched_getscheduler", libc::SYS_sched_getscheduler, [0; 6], May),
    ("sched_setscheduler", libc::SYS_sched_setscheduler, [0, libc::SCHED_OTHER as u64, 4096, 0, 0, 0], May),
    ("prctl", libc::SYS_prctl, [libc::PR_SET_NAME as u64, 4096, 0, 0, 0, 0], May),
    ("rseq", libc::SYS_rseq, [4096, 32, 0, 0x5305_3053, 0, 0], May),
    ("set_robust_list", libc::SYS_set_robust_list, [4096, 24, 0, 0, 0, 0], May),
    ("rt_sigaction", libc::SYS_rt_sigaction, [33, 4096, 0, 8, 0, 0], May),
    ("sigaltstack", libc::SYS_sigaltstack, [4096, 0, 0, 0, 0, 0], May),
    ("madvise", libc::SYS_madvise, [4096, 4096, libc::MADV_DONTNEED as u64, 0, 0, 0], May),
    ("brk", libc::SYS_brk, [4096, 0, 0, 0, 0, 0], May),
    ("mremap", libc::SYS_mremap, [4096, 4096, 8192, libc::MREMAP_MAYMOVE as u64, 0, 0], May),
    ("clock_gettime", libc::SYS_clock_gettime, [libc::CLOCK_THREAD_CPUTIME_ID as u64, 4096, 0, 0, 0, 0], May),
    ("getrandom", libc::SYS_getrandom, [4096, 16, 0, 0, 0, 0], May),
    ("process_vm_readv", libc::SYS_process_vm_readv, [1, 4096, 1, 4096, 1, 0], May),
    ("restart_syscall", libc::SYS_restart_syscall, [0; 6], Must),
    ("exit", libc::SYS_exit, [0; 6], May),
];
const CLONE3: Row = ("clone3", libc::SYS_clone3, [4096, 88, 0, 0, 0, 0], Must);
const CLONE: Row = ("clone", libc::SYS_clone, [THREAD, 4096, 4096, 4096, 4096, 0], Must);

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Goes,
    /// It fails, with this error if it is one of its own choice.
    Fails(Option<u32>),
    /// Its process is ended, or gets a signal for it.
    Kills,
}

/// Looks, before any is stopped, whether all threads of a process that are filtered are under the same filters as this
/// one: the shim has threads of its own, which this one makes, but those of the process call into it as well.
pub(super) fn look(pid: u32, tid: u32) -> Result<(), Refusal> {
    // One that has ended is not stopped either.
    let Some(own) = state(pid, tid) else { return Ok(()) };
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let mut all = tasks.filter_map(|task| state(pid, task.file_name().to_str()?.parse().ok()?));
    if all.any(|task| task.mode != 0 && task != own) {
        return Err(Refusal::Filter(Filtered::Several));
    }
    Ok(())
}

/// Whether the filters of a thread that stands still let the shim do its work.
pub(super) fn check(thread: &Traced, pid: u32, tid: u32) -> Result<(), Refusal> {
    let own = state(pid, tid).ok_or(Refusal::Gone)?;
    if own.mode == 0 {
        return Ok(());
    }
    let filters = match read(thread) {
        Ok(filters) => filters,
        Err(_) if is_ours(pid, own) => return Ok(()),
        Err(_) => return Err(Refusal::Filter(Filtered::Unread)),
    };
    judge(&filters).map_err(Refusal::Filter)
}

/// How a thread is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// 0 not, 1 strictly, 2 by filters.
    mode: u32,
    /// How many filters; Linux says so from 5.9 on.
    filters: Option<u32>,
}

fn state(pid: u32, tid: u32) -> Option<State> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let number = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(State { mode: number("Seccomp:").unwrap_or(0), filters: number("Seccomp_filters:") })
}

/// Whether this program runs under the same filters, as in one container: nobody can give any of them back.
fn is_ours(pid: u32, theirs: State) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let (own, me) = (namespace("self"), std::process::id());
    theirs.filters.is_some()
        && state(me, me) == Some(theirs)
        && own.is_some()
        && own == namespace(&pid.to_string())
}

fn read(thread: &Traced) -> Result<Vec<Vec<sock_filter>>, Errno> {
    let mut filters = Vec::new();
    for index in 0..MOST {
        match thread.filter(index) {
            Ok(filter) => filters.push(filter),
            Err(Errno::ENOENT) if index > 0 => return Ok(filters),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::E2BIG)
}

/// What all filters together say to the shim's calls.
fn judge(filters: &[Vec<sock_filter>]) -> Result<(), Filtered> {
    let clone3 = fate(filters, &CLONE3);
    let unknown = clone3 == Fate::Fails(Some(libc::ENOSYS.cast_unsigned()));
    let clone = if unknown { ("clone", Must, fate(filters, &CLONE)) } else { ("clone3", Must, clone3) };
    let fates = CALLS.iter().map(|row| (row.0, row.3, fate(filters, row)));
    let fates: Vec<(&'static str, Need, Fate)> = fates.chain([clone]).collect();
    // To be ended is worse than whatever else, so that is looked for first.
    if let Some(&(call, ..)) = fates.iter().find(|(.., fate)| *fate == Fate::Kills) {
        return Err(Filtered::Killed(call));
    }
    match fates.iter().find(|(_, need, fate)| *need == Must && *fate != Fate::Goes) {
        Some(&(call, ..)) => Err(Filtered::Forbidden(call)),
        None => Ok(()),
    }
}

/// What becomes of one call: of all answers the strictest holds, the newest filter's first.
fn fate(filters: &[Vec<sock_filter>], (_, number, arguments, _): &Row) -> Fate {
    let call = Call::new(ARCHITECTURE, *number as u32, *arguments);
    // One that cannot be understood must be feared.
    let answers =
        filters.iter().map(|filter| bpf::run(filter, &call).unwrap_or(libc::SECCOMP_RET_KILL_PROCESS));
    let answer = answers.min_by_key(|answer| (answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed());
    let answer = answer.unwrap_or(libc::SECCOMP_RET_ALLOW);
    match answer & libc::SECCOMP_RET_ACTION_FULL {
        // Whoever is told decides, and it is no news to him that programs make such calls.
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG | libc::SECCOMP_RET_USER_NOTIF => Fate::Goes,
        libc::SECCOMP_RET_ERRNO => Fate::Fails(Some(answer & libc::SECCOMP_RET_DATA)),
        libc::SECCOMP_RET_TRACE => Fate::Fails(None),
        _ => Fate::Kills,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that answers so to one call, and allows the rest.
    fn only(number: i64, answer: u32) -> Vec<sock_filter> {
        let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
        vec![
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }

    fn errno(error: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | error.cast_unsigned()
    }

    #[test]
    fn the_call_that_is_in_the_way_is_named() {
        let judged = |number, answer| judge(&[only(number, answer)]);
        assert_eq!(judge(&[]), Ok(()));
        assert_eq!(judged(libc::SYS_ptrace, libc::SECCOMP_RET_KILL_PROCESS), Ok(()));
        for kill in [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_KILL_THREAD, libc::SECCOMP_RET_TRAP] {
            assert_eq!(judged(libc::SYS_socket, kill), Err(Filtered::Killed("socket")));
            assert_eq!(judged(libc::SYS_statx, kill), Err(Filtered::Killed("statx")));
            assert_eq!(judged(libc::SYS_clone3, kill), Err(Filtered::Killed("clone3")));
        }
        assert_eq!(judged(libc::SYS_socket, errno(libc::EPERM)), Err(Filtered::Forbidden("socket")));
        assert_eq!(judged(libc::SYS_socket, libc::SECCOMP_RET_TRACE), Err(Filtered::Forbidden("socket")));
        assert_eq!(judged(libc::SYS_socket, libc::SECCOMP_RET_LOG), Ok(()));
        assert_eq!(judged(libc::SYS_statx, errno(libc::ENOSYS)), Ok(()), "there is another way");
    }

    #[test]
    fn a_thread_is_made_in_the_old_way_where_the_new_one_is_unknown() {
        let unknown = only(libc::SYS_clone3, errno(libc::ENOSYS));
        assert_eq!(judge(std::slice::from_ref(&unknown)), Ok(()));
        let both = [unknown, only(libc::SYS_clone, errno(libc::EPERM))];
        assert_eq!(judge(&both), Err(Filtered::Forbidden("clone")));
        assert_eq!(judge(&[only(libc::SYS_clone, errno(libc::EPERM))]), Ok(()), "nobody calls it");
        assert_eq!(judge(&[only(libc::SYS_clone3, errno(libc::EPERM))]), Err(Filtered::Forbidden("clone3")));
    }

    #[test]
    fn of_several_filters_the_strictest_holds() {
        let filters = [
            only(libc::SYS_bind, errno(libc::EACCES)),
            only(libc::SYS_bind, libc::SECCOMP_RET_KILL_PROCESS),
            only(libc::SYS_bind, libc::SECCOMP_RET_LOG),
        ];
        assert_eq!(judge(&filters), Err(Filtered::Killed("bind")));
        assert_eq!(judge(&filters[..1]), Err(Filtered::Forbidden("bind")));
        assert_eq!(judge(&[vec![]]), Err(Filtered::Killed("mmap")), "it cannot be understood");
    }

    #[test]
    fn what_is_filtered_is_told_by_the_kernel() {
        let me = std::process::id();
        let own = state(me, me).unwrap();
        assert_eq!(is_ours(me, own), own.filters.is_some());
        assert!(!is_ours(me, State { filters: Some(4000), ..own }));
    }
}
