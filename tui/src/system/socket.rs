//! Finding the socket of a process's shim, and making sure that it is that process which answers.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use gtop_protocol::rendezvous;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::process::{self, Process, readable, variable};
use super::remote::Way;

/// The uid that stands for everyone a user namespace has no number for, and so for nobody in particular.
const OVERFLOW_UID: u32 = 65534;

/// A socket that is there and looks right.
#[derive(Debug)]
pub struct Endpoint {
    /// The folder, held open: what is connected to is what was looked at, and its path may be of any length.
    dir: OwnedFd,
    name: String,
    /// Where it is, for people.
    pub path: PathBuf,
    /// The way to another machine, where what answers here only passes on what a process there says.
    way: Option<Way>,
}

impl Endpoint {
    /// A socket in a folder of ours that leads to a process of another machine; `shown` says where, for people.
    pub fn forwarded(local: &Path, shown: PathBuf, way: Way) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (folder, name) = local.parent().zip(local.file_name()).ok_or_else(invalid)?;
        let name = name.to_str().ok_or_else(invalid)?.to_owned();
        let dir = open_folder(Path::new("/"), folder)?;
        Ok(Self { dir, name, path: shown, way: Some(way) })
    }

    /// The same once more, if it leads to another machine, where it cannot be searched for.
    #[must_use]
    pub fn elsewhere(&self) -> Option<Self> {
        self.way.as_ref()?;
        self.again().ok()
    }

    /// The same once more.
    fn again(&self) -> io::Result<Self> {
        let dir = self.dir.try_clone()?;
        Ok(Self { dir, name: self.name.clone(), path: self.path.clone(), way: self.way.clone() })
    }

    /// What is left of it should its process end without removing it; nothing where it is not this machine's.
    #[must_use]
    pub fn remains(&self) -> Option<Remains> {
        if self.way.is_some() { None } else { self.again().ok().map(Remains) }
    }

    /// The way to another machine, if it leads there.
    #[must_use]
    pub const fn way(&self) -> Option<&Way> {
        self.way.as_ref()
    }
}

/// The socket of a process that may end by a signal, or without running its handlers.
#[derive(Debug)]
pub struct Remains(Endpoint);

impl Remains {
    /// Removes the socket of a process that is gone, if it is this user's, of that process by its name, and nobody
    /// listens there. Nothing is followed: the folder is the one that was looked into. Gives whether it is too early:
    /// the process still listens, which it does until the last of its threads has given its files back.
    #[must_use]
    pub fn remove(&self, process: &Process) -> bool {
        let Self(endpoint) = self;
        if process.is_alive() || endpoint.name != socket_name(process) {
            return false;
        }
        let own = nix::unistd::geteuid().as_raw();
        let is_own = |name: &str, flags, kind| {
            fstatat(endpoint.dir.as_fd(), name, flags).is_ok_and(|file| {
                is_same_user(own, file.st_uid)
                    && SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT == kind
            })
        };
        let ours = is_own("", AtFlags::AT_EMPTY_PATH, SFlag::S_IFDIR)
            && is_own(&endpoint.name, AtFlags::AT_SYMLINK_NOFOLLOW, SFlag::S_IFSOCK);
        if !ours {
            return false;
        }
        match open(process, endpoint) {
            Err(Refused::Io(_, error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = unlinkat(endpoint.dir.as_fd(), endpoint.name.as_str(), UnlinkatFlags::NoRemoveDir);
                false
            }
            Err(Refused::Io(_, error)) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => true,
            Err(_) => false,
        }
    }
}

/// Why a socket that is there is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The folder or the socket belongs to someone else.
    #[error("{} belongs to uid {}, not to the process's uid {}", readable(.0), .1, .2)]
    Owner(PathBuf, u32, u32),
    /// The path is something else.
    #[error("{} is not a socket", readable(.0))]
    NotSocket(PathBuf),
    /// Another process answers.
    #[error("{} is answered by pid {} of uid {}, not by the process", readable(.0), .1, .2)]
    Peer(PathBuf, i32, u32),
    /// It cannot be connected to; with `ECONNREFUSED` nobody listens any more.
    #[error("{}: {}", readable(.0), .1)]
    Io(PathBuf, io::Error),
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// The socket.
    pub found: Option<Endpoint>,
    /// The first socket of the right name that is not used, and why.
    pub refused: Option<Refused>,
    /// The folders looked in.
    pub looked: Vec<PathBuf>,
}

/// Looks for the socket of a process wherever it, or we, would put it: in its own file system where that can be
/// reached, else in ours.
#[must_use]
pub fn find(process: &Process) -> Search {
    search(process, &folders(process))
}

/// A connection to the process behind a socket, not blocking, its peer checked.
pub fn open(process: &Process, endpoint: &Endpoint) -> Result<UnixStream, Refused> {
    let failed = |error: Errno| Refused::Io(endpoint.path.clone(), error.into());
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
    let through = format!("/proc/self/fd/{}/{}", endpoint.dir.as_raw_fd(), endpoint.name);
    let address = UnixAddr::new(Path::new(&through)).map_err(failed)?;
    // Not blocking: a shim that does not accept must not hold the viewer.
    connect(stream.as_raw_fd(), &address).map_err(failed)?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials).map_err(failed)?;
    // What forwards is a process of our own.
    let trusted = if endpoint.way.is_some() {
        is_same_user(nix::unistd::geteuid().as_raw(), peer.uid())
    } else {
        is_peer(process, peer.pid(), peer.uid())
    };
    if trusted {
        Ok(UnixStream::from(stream))
    } else {
        Err(Refused::Peer(endpoint.path.clone(), peer.pid(), peer.uid()))
    }
}

fn is_peer(process: &Process, pid: i32, uid: u32) -> bool {
    // A pid of 0 is a process that cannot be seen from here.
    pid > 0 && u32::try_from(pid) == Ok(process.pid) && is_same_user(process.uid, uid)
}

const fn is_same_user(one: u32, other: u32) -> bool {
    one == other && one != OVERFLOW_UID
}

/// Where the process's shim may have put its socket: by its environment, by ours, and wherever the kernel shows a
/// socket of that name.
pub(super) fn folders(process: &Process) -> Vec<PathBuf> {
    let environment = process::environment(process.pid).unwrap_or_default();
    let theirs = [variable(&environment, "XDG_RUNTIME_DIR"), variable(&environment, "TMPDIR")];
    let (runtime, temporary) = (std::env::var_os("XDG_RUNTIME_DIR"), std::env::var_os("TMPDIR"));
    let ours = [runtime.as_deref(), temporary.as_deref()];
    let uids = [process::inner_uid(process.pid, process.uid), Some(process.uid)];
    let mut folders: Vec<PathBuf> = Vec::new();
    for [runtime, temporary] in [theirs, ours] {
        for uid in uids.into_iter().flatten() {
            folders.extend(rendezvous::candidates(runtime, temporary, uid).into_iter().flatten());
        }
    }
    let bound = std::fs::read(format!("/proc/{}/net/unix", process.pid)).unwrap_or_default();
    folders.extend(bound_folders(&bound, &socket_name(process)));
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

fn socket_name(process: &Process) -> String {
    rendezvous::file_name(process.inner_pid(), process.start_time)
}

/// The folders in which `/proc/PID/net/unix` shows a socket of this name.
fn bound_folders(table: &[u8], name: &str) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b'/')?;
        let path = Path::new(OsStr::from_bytes(line.get(at..)?));
        (path.file_name()? == name).then(|| path.parent().map(Path::to_path_buf))?
    };
    table.split(|byte| *byte == b'\n').filter_map(path).collect()
}

fn search(process: &Process, folders: &[PathBuf]) -> Search {
    let name = socket_name(process);
    let mut search = Search { looked: folders.to_vec(), ..Search::default() };
    for root in [PathBuf::from(format!("/proc/{}/root", process.pid)), PathBuf::from("/")] {
        for folder in folders {
            match look(process, &root, folder, &name) {
                Ok(Some(endpoint)) => {
                    search.found = Some(endpoint);
                    return search;
                }
                Ok(None) => {}
                Err(refused) => search.refused = search.refused.or(Some(refused)),
            }
        }
    }
    search
}

/// The socket in one folder below a root; `None` when there is none or it cannot be seen.
fn look(process: &Process, root: &Path, folder: &Path, name: &str) -> Result<Option<Endpoint>, Refused> {
    let Ok(dir) = open_folder(root, folder) else { return Ok(None) };
    let stat = |name: &str, flags| fstatat(dir.as_fd(), name, flags);
    let Ok(socket) = stat(name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return Ok(None) };
    let Ok(owner) = stat("", AtFlags::AT_EMPTY_PATH) else { return Ok(None) };
    let path = folder.join(name);
    if SFlag::from_bits_truncate(socket.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(Refused::NotSocket(path));
    }
    for uid in [owner.st_uid, socket.st_uid] {
        if !is_same_user(process.uid, uid) {
            return Err(Refused::Owner(path, uid, process.uid));
        }
    }
    Ok(Some(Endpoint { dir, name: name.to_owned(), path, way: None }))
}

/// Opens a folder as a process with that root would: a link in a container must not lead out of it.
pub(super) fn open_folder(root: &Path, folder: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(root, flags, Mode::empty())?;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(&root, folder, how) {
        // Before Linux 5.6, or where a filter does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            nix::fcntl::openat(&root, folder.strip_prefix("/").unwrap_or(folder), flags, Mode::empty())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// This process, with a start time, and so a socket, that no other test has.
    fn own() -> Process {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Process { start_time: NEXT.fetch_add(1, Ordering::Relaxed), ..real() }
    }

    fn real() -> Process {
        Process::read(std::process::id()).unwrap()
    }

    fn bind(dir: &Path, process: &Process) -> (UnixListener, PathBuf) {
        let path = dir.join(socket_name(process));
        (UnixListener::bind(&path).unwrap(), path)
    }

    #[test]
    fn a_socket_is_found_and_its_peer_is_the_process() {
        let (empty, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = own();
        let (listener, path) = bind(dir.path(), &own);
        let search = search(&own, &[empty.path().into(), dir.path().into()]);
        let endpoint = search.found.unwrap();
        assert_eq!(endpoint.path, path);
        let stream = open(&own, &endpoint).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        io::Write::write_all(&mut &accepted, b"x").unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut byte = [0];
        io::Read::read_exact(&mut &stream, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn the_kernels_list_shows_sockets_wherever_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let own = own();
        let (_listener, path) = bind(dir.path(), &own);
        assert_eq!(find(&own).found.unwrap().path, path);
        let table =
            b"Num RefCount\n0: 2 0 0 1 1 5 @/abstract\n0: 2 0 0 1 1 6 /a b/7-8.sock\n0: 2 0 0 1 1 7\n";
        assert_eq!(bound_folders(table, "7-8.sock"), [PathBuf::from("/a b")]);
    }

    #[test]
    fn a_long_path_is_reached_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let own = own();
        let (_listener, path) = bind(dir.path(), &own);
        let deep = dir.path().join("d".repeat(150));
        std::fs::create_dir(&deep).unwrap();
        std::fs::rename(path, deep.join(socket_name(&own))).unwrap();
        let endpoint = search(&own, &[deep]).found.unwrap();
        open(&own, &endpoint).unwrap();
    }

    #[test]
    fn another_process_at_the_socket_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let other = Process { pid: std::os::unix::process::parent_id(), ..own() };
        let (_listener, path) = bind(dir.path(), &other);
        let endpoint = search(&other, &[dir.path().into()]).found.unwrap();
        assert!(matches!(open(&other, &endpoint), Err(Refused::Peer(refused, ..)) if refused == path));
    }

    #[test]
    fn another_users_socket_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = own();
        let (_listener, path) = bind(dir.path(), &own);
        let stranger = Process { uid: own.uid + 1, ..own.clone() };
        let search = search(&stranger, &[dir.path().into()]);
        assert!(search.found.is_none());
        assert!(matches!(search.refused, Some(Refused::Owner(refused, ..)) if refused == path));
        assert!(!is_peer(&own, std::process::id().cast_signed(), own.uid + 1));
    }

    #[test]
    fn the_overflow_uid_is_nobody() {
        let nobody = Process { uid: OVERFLOW_UID, ..own() };
        assert!(!is_peer(&nobody, nobody.pid.cast_signed(), OVERFLOW_UID));
        assert!(!is_peer(&own(), 0, own().uid), "a process that cannot be seen");
    }

    #[test]
    fn a_stale_socket_and_a_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = own();
        let (listener, path) = bind(dir.path(), &own);
        drop(listener);
        let endpoint = search(&own, &[dir.path().into()]).found.unwrap();
        let Err(Refused::Io(_, error)) = open(&own, &endpoint) else { panic!("nobody listens") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(search(&own, &[dir.path().into()]).refused, Some(Refused::NotSocket(_))));
    }

    #[test]
    fn what_is_left_of_a_process_that_is_gone_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        // No process has this number and began then.
        let gone = own();
        let remains = || {
            let found = search(&gone, &[dir.path().into()]).found.unwrap();
            found.remains().unwrap()
        };
        let (listener, path) = bind(dir.path(), &gone);
        assert!(remains().remove(&gone), "it still listens");
        assert!(path.exists());
        drop(listener);
        assert!(!remains().remove(&real()));
        assert!(path.exists(), "of another process");
        let left = remains();
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        symlink("other", &path).unwrap();
        assert!(!left.remove(&gone));
        assert!(path.symlink_metadata().is_ok() && dir.path().join("other").exists(), "links are left alone");
        std::fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(!remains().remove(&gone));
        assert!(!path.exists());
    }

    #[test]
    fn a_link_does_not_lead_out_of_a_container() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("inside")).unwrap();
        symlink(outside.path(), root.path().join("escape")).unwrap();
        symlink("/inside", root.path().join("stays")).unwrap();
        assert!(open_folder(root.path(), Path::new("/escape")).is_err());
        open_folder(root.path(), Path::new("/stays")).unwrap();
    }

    /// Not a test of its own: what the process in the container runs.
    #[test]
    fn contained_process() {
        let Some(dir) = std::env::var_os("GTOP_TEST_CONTAINED") else { return };
        let dir = Path::new(&dir).join("gtop");
        std::fs::create_dir(&dir).unwrap();
        let (_listener, _) = bind(&dir, &real());
        println!("bound as {}", real().pid);
        io::Read::read(&mut io::stdin(), &mut [0]).unwrap();
    }

    #[test]
    fn a_socket_in_a_container_is_reached_from_outside() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c"])
            .arg("mount -t tmpfs none \"$GTOP_TEST_CONTAINED\" && exec \"$0\" --exact \"$1\" --nocapture")
            .arg(std::env::current_exe().unwrap())
            .arg("system::socket::tests::contained_process")
            .envs([("GTOP_TEST_CONTAINED", dir.path()), ("XDG_RUNTIME_DIR", dir.path())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap())).map_while(Result::ok);
        let bound = lines.find_map(|line| Some(line.split_once("bound as ")?.1.to_owned()));
        let Some(inner) = bound else {
            println!("skipped: this machine does not let us make namespaces");
            child.wait().unwrap();
            return;
        };
        let all = Process::all();
        let family = process::family(&all, child.id());
        let contained = family.last().unwrap();
        assert_eq!((contained.inner_pid().to_string(), contained.pids.len()), (inner, 2));
        assert!(!dir.path().join("gtop").exists(), "it is in the other file system");
        let endpoint = find(contained).found.unwrap();
        open(contained, &endpoint).unwrap();
        drop(child.stdin.take());
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_shim_that_does_not_accept_does_not_hold_the_viewer() {
        let dir = tempfile::tempdir().unwrap();
        let own = own();
        let (_listener, _) = bind(dir.path(), &own);
        let endpoint = search(&own, &[dir.path().into()]).found.unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match open(&own, &endpoint) {
                Ok(stream) => waiting.push(stream),
                Err(Refused::Io(_, error)) => break error,
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
