//! The socket of this process: a private folder, a name nobody else uses, and a check of who connects.

use crate::config::Config;
use crate::own::Own;
use crate::sys;
use gtop_protocol::rendezvous::{MAX_SOCKET_PATH, candidates, file_name, parse_file_name};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The uid of users that a user namespace does not map: never the same as anyone's.
const OVERFLOW_UID: u32 = 65534;
/// Old sockets looked at when a shim starts.
const MOST_STALE: usize = 64;

/// A listening socket and where it lies.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Own<UnixListener>,
    pub(crate) path: PathBuf,
    /// The file that lies there.
    place: Option<(u64, u64)>,
}

impl Listener {
    /// Lets in who has connected. Never waits.
    pub(crate) fn accept(&self) -> io::Result<Own<UnixStream>> {
        let accepted = sys::accept(self.socket.fd())?;
        Own::new(UnixStream::from(accepted)).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Whether it can still be found: folders for the time of a login go with it.
    pub(crate) fn is_there(&self) -> bool {
        self.place.is_some() && place(&self.path) == self.place
    }
}

fn place(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Opens this process's socket in the first folder that can be trusted.
pub(crate) fn open(config: &Config, start_time: u64) -> io::Result<Listener> {
    let runtime = config.runtime_dir.as_ref().map(|dir| dir.as_os_str());
    let temp = config.temp_dir.as_ref().map(|dir| dir.as_os_str());
    let name = file_name(sys::pid(), start_time);
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for folder in candidates(runtime, temp, sys::uid()).into_iter().flatten() {
        let path = folder.join(&name);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            continue;
        }
        match make_folder(&folder).and_then(|()| bind(&path)) {
            Ok(socket) => {
                let place = place(&path);
                remove_stale(&folder, &path);
                return Ok(Listener { socket, path, place });
            }
            Err(why) if why.kind() == io::ErrorKind::AddrInUse && is_own(&path) => return Err(why),
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Makes the folder, or checks that it is a folder of ours that nobody else can enter.
fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = folder.symlink_metadata()?;
    if !meta.is_dir() || meta.uid() != sys::uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // A host may have had a mask that leaves not even itself a way in.
    if meta.mode() & 0o777 != 0o700 {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn bind(path: &Path) -> io::Result<Own<UnixListener>> {
    let socket = UnixListener::from(sys::unix_socket(libc::SOCK_STREAM)?);
    let socket = Own::new(socket).ok_or(io::ErrorKind::Other)?;
    match sys::listen_at(socket.fd(), path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !is_stale(path) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            sys::listen_at(socket.fd(), path)?;
        }
        other => other?,
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Whether this is a socket of ours that nobody answers on.
fn is_stale(path: &Path) -> bool {
    let ours =
        path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket() && meta.uid() == sys::uid());
    ours && sys::listener(path) == sys::Listens::Nobody
}

/// Whether this process listens there already: another copy of this library does, and one socket is enough.
fn is_own(path: &Path) -> bool {
    sys::listener(path) == sys::Listens::Pid(sys::pid())
}

/// Removes sockets that dead processes left behind.
fn remove_stale(folder: &Path, except: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(MOST_STALE) {
        let path = entry.path();
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(parse_file_name) else { continue };
        let alive = crate::hello::start_time(pid).is_some_and(|time| time == start);
        if !alive && path != except && is_stale(&path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether whoever connected may: the same user or root. Access rests on the folder and the socket's mode; this
/// can only deny.
pub(crate) fn may_connect(socket: &Own<UnixStream>) -> bool {
    let peer = socket.get().and_then(|socket| sys::peer_uid(socket.as_fd()));
    peer.is_some_and(|peer| allowed(peer, sys::uid()))
}

const fn allowed(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own && own != OVERFLOW_UID
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn config(folder: &Path) -> Config {
        Config { runtime_dir: Some(folder.into()), temp_dir: Some(folder.into()), ..Config::default() }
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn folder_and_socket_are_private() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("gtop")).unwrap();
        std::fs::set_permissions(root.path().join("gtop"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let listener = open(&config(root.path()), 5).unwrap();
        assert_eq!(listener.path, root.path().join("gtop").join(file_name(sys::pid(), 5)));
        assert_eq!((mode(&root.path().join("gtop")), mode(&listener.path)), (0o700, 0o600));
        let peer = UnixStream::connect(&listener.path).unwrap();
        assert!(may_connect(&listener.accept().unwrap()));
        drop(peer);
    }

    #[test]
    fn a_folder_that_a_mask_has_closed_is_opened_for_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("gtop");
        std::fs::create_dir(&folder).unwrap();
        for closed in [0, 0o500, 0o1700, 0o070] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(closed)).unwrap();
            open(&config(root.path()), u64::from(closed)).unwrap();
            assert_eq!(mode(&folder), 0o700, "{closed:o}");
        }
    }

    #[test]
    fn a_folder_that_is_a_link_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join("gtop")).unwrap();
        let listener = open(&config(root.path()), 5).unwrap();
        assert_eq!(listener.path.parent(), Some(root.path().join(format!("gtop-{}", sys::uid())).as_path()));
    }

    #[test]
    fn a_runtime_folder_too_deep_falls_back_to_a_short_one() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(150));
        std::fs::create_dir(&deep).unwrap();
        let config =
            Config { runtime_dir: Some(deep), temp_dir: Some(root.path().into()), ..Config::default() };
        let listener = open(&config, 5).unwrap();
        assert!(listener.path.as_os_str().len() < 108);
        assert!(listener.path.starts_with(root.path()));
        let directory = gtop_protocol::rendezvous::directory(
            config.runtime_dir.as_ref().map(|dir| dir.as_os_str()),
            config.temp_dir.as_ref().map(|dir| dir.as_os_str()),
            sys::uid(),
        );
        assert_eq!(listener.path.parent(), Some(directory.as_path()), "both sides agree");
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let config = config(root.path());
        let first = open(&config, 5).unwrap();
        let second = open(&config, 5).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse, "one socket is enough for a process");
        assert!(UnixStream::connect(&first.path).is_ok());
        drop(first.socket);
        let third = open(&config, 5).unwrap();
        assert_eq!(third.path, first.path);
        std::fs::remove_file(&third.path).unwrap();
        std::fs::write(&third.path, b"not a socket").unwrap();
        assert_ne!(open(&config, 5).unwrap().path, third.path);
        assert_eq!(std::fs::read(&third.path).unwrap(), b"not a socket");
    }

    #[test]
    fn sockets_of_dead_processes_go_and_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let config = config(root.path());
        let first = open(&config, 5).unwrap();
        let folder = first.path.parent().unwrap();
        let dead = folder.join(file_name(u32::MAX, 1));
        drop(UnixListener::bind(&dead).unwrap());
        let answering = folder.join(file_name(u32::MAX - 1, 1));
        let _answering = UnixListener::bind(&answering).unwrap();
        let own = folder.join(file_name(sys::pid(), crate::hello::start_time(sys::pid()).unwrap()));
        drop(UnixListener::bind(&own).unwrap());
        std::fs::write(folder.join("notes"), b"").unwrap();
        open(&config, 6).unwrap();
        let mut left: Vec<OsString> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert!(!dead.exists() && answering.exists() && own.exists(), "{left:?}");
        assert!(left.contains(&"notes".into()));
    }

    #[test]
    fn only_the_same_user_and_root_may_connect() {
        assert!(allowed(1000, 1000) && allowed(0, 1000) && allowed(0, OVERFLOW_UID));
        assert!(!allowed(1001, 1000) && !allowed(OVERFLOW_UID, OVERFLOW_UID) && !allowed(1000, 0));
    }
}
