//! A file with the shim where the process that is to load it can see it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::super::embed::{self, FILE_NAME};
use super::super::process::{self, Process, variable};
use super::super::socket::open_folder;
use super::refusal::Refusal;

/// How a folder is opened that we made ourselves.
const FOLDER: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A file, and its folder if that is to go when the file is loaded.
#[derive(Debug)]
pub(super) struct Placed {
    /// As the process names it.
    pub(super) path: PathBuf,
    /// The folder it was put into, and the name of the folder made there.
    made: Option<(OwnedFd, String)>,
}

/// Puts the shim where the process can load it: this user's own copy where it sees that, else a copy in a folder of
/// its own file system, which goes again with this value.
pub(super) fn place(process: &Process) -> Result<Placed, Refusal> {
    let own = nix::unistd::geteuid().as_raw();
    if process.uid == own && sees_the_same(process.pid)? {
        return Ok(Placed { path: embed::unpack().map_err(Refusal::Shim)?, made: None });
    }
    let root = PathBuf::from(format!("/proc/{}/root", process.pid));
    let environment = process::environment(process.pid).unwrap_or_default();
    let own = ["TMPDIR", "XDG_RUNTIME_DIR"].map(|name| variable(&environment, name).map(PathBuf::from));
    let usual = ["/tmp", "/var/tmp", "/dev/shm", "/run"].map(|folder| Some(PathBuf::from(folder)));
    let mut refusal = None;
    let all = own.into_iter().chain(usual).flatten().filter(|folder| folder.is_absolute());
    // One of another user may have been inherited, as behind `setpriv` or an entry point that drops its rights.
    let (entered, others): (Vec<_>, Vec<_>) = all.partition(|folder| may_enter(&root, folder, process.uid));
    for folder in entered.into_iter().chain(others) {
        match place_in(&root, &folder) {
            Ok(placed) => return Ok(placed),
            Err(error) => refusal = refusal.or(Some(Refusal::Place(folder, error))),
        }
    }
    Err(refusal.unwrap_or(Refusal::Gone))
}

/// Whether the process has our file system: the same mounts seen from the same root.
fn sees_the_same(pid: u32) -> io::Result<bool> {
    let same = |name: &str| {
        let of = |pid: &str| fs::metadata(format!("/proc/{pid}/{name}")).map(|it| (it.dev(), it.ino()));
        Ok::<_, io::Error>(of("self")? == of(&pid.to_string())?)
    };
    Ok(same("ns/mnt")? && same("root")?)
}

/// Whether a user may enter a folder below `root`, as far as its owner and what everybody may do say; groups are not asked.
fn may_enter(root: &Path, folder: &Path, uid: u32) -> bool {
    let mut all = folder.ancestors().filter_map(|above| above.strip_prefix("/").ok());
    let enters = |above: &Path| {
        let found = fs::metadata(root.join(above));
        found.is_ok_and(|it| it.mode() & if it.uid() == uid { 0o100 } else { 0o001 } != 0)
    };
    uid == 0 || all.all(enters)
}

/// Puts it into a new folder of a folder below `root`, readable by everybody and writable by us alone.
fn place_in(root: &Path, folder: &Path) -> io::Result<Placed> {
    let outer = open_folder(root, folder)?;
    if fstatvfs(outer.as_fd())?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("mounted noexec, so no library can be loaded from it"));
    }
    let name = format!("gtop-{}-{:08x}", std::process::id(), random());
    mkdirat(outer.as_fd(), name.as_str(), Mode::from_bits_truncate(0o755))?;
    let path = folder.join(&name).join(FILE_NAME);
    // From here on, whatever fails, the folder goes again.
    let placed = Placed { path, made: Some((outer.try_clone()?, name.clone())) };
    let inner = openat(outer.as_fd(), name.as_str(), FOLDER, Mode::empty())?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(inner.as_fd(), FILE_NAME, flags, Mode::from_bits_truncate(0o755))?);
    file.write_all(embed::bytes())?;
    // Whatever our umask, the process may read it.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    File::from(inner).set_permissions(fs::Permissions::from_mode(0o755))?;
    Ok(placed)
}

/// A number nobody can guess, so that nobody is there first; who is makes the folder's making fail.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

impl Drop for Placed {
    fn drop(&mut self) {
        let Some((outer, name)) = &self.made else { return };
        if let Ok(inner) = openat(outer.as_fd(), name.as_str(), FOLDER, Mode::empty()) {
            let _ = unlinkat(inner.as_fd(), FILE_NAME, UnlinkatFlags::NoRemoveDir);
        }
        let _ = unlinkat(outer.as_fd(), name.as_str(), UnlinkatFlags::RemoveDir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_copy_lies_below_the_root_and_goes_again() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        let placed = place_in(root.path(), Path::new("/tmp")).unwrap();
        assert!(placed.path.starts_with("/tmp") && placed.path.ends_with(FILE_NAME));
        let file = root.path().join(placed.path.strip_prefix("/").unwrap());
        assert_eq!(fs::read(&file).unwrap(), embed::bytes());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o022, 0);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o022, 0);
        drop(placed);
        assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_is_entered_by_who_may() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let inner = root.path().join("run/user");
        fs::create_dir_all(&inner).unwrap();
        let own = fs::metadata(&inner).unwrap().uid();
        for (mode, stranger) in [(0o700, false), (0o711, true)] {
            fs::set_permissions(root.path().join("run"), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(may_enter(root.path(), Path::new("/run/user"), own + 7), stranger, "{mode:o}");
            assert!(may_enter(root.path(), Path::new("/run/user"), own));
        }
        assert!(!may_enter(root.path(), Path::new("/none"), own + 7));
    }

    #[test]
    fn a_link_does_not_lead_the_copy_out_of_a_container() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), root.path().join("tmp")).unwrap();
        place_in(root.path(), Path::new("/tmp")).unwrap_err();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_process_beside_us_sees_what_we_see() {
        assert!(sees_the_same(std::process::id()).unwrap());
        let own = Process::read(std::process::id()).unwrap();
        assert!(place(&own).unwrap().made.is_none());
    }
}
