//! The shim inside this binary, and the file it becomes when a process is to load it.
//!
//! A file is named by the hash of its contents and never changed: processes map it, and unit files name it, long
//! after another gtop has come. It is made in a folder nobody else can write to and read again before each use,
//! because whoever can change it runs code in every process that loads it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use etcetera::base_strategy::{BaseStrategy, Xdg};
use nix::sys::statvfs::{FsFlags, statvfs};
use sha2::{Digest, Sha256};

/// `libgtop_shim.so`, built together with this binary.
static SHIM: &[u8] = include_bytes!(env!("GTOP_SHIM"));

/// The name of the shim's file, wherever it lies.
pub const FILE_NAME: &str = "libgtop_shim.so";

/// Why there is no file to load.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// Another user could put another file there.
    #[error("{0}: {1}, so it is not used for a library")]
    Unsafe(PathBuf, &'static str),
    /// Libraries cannot be loaded from this file system.
    #[error("{0}: mounted noexec, so no library can be loaded from it")]
    NoExec(PathBuf),
    /// The folder or file could not be made.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// Neither the cache nor the temporary folder will do.
    #[error("no place for the shim: {0}; {1}; `gtop shim --copy DIR` puts it where you say")]
    NoPlace(Box<EmbedError>, Box<EmbedError>),
}

/// The shim as a file that a process of this user can load: in `$XDG_CACHE_HOME/gtop`, else in a private folder of
/// the temporary one.
pub fn unpack() -> Result<PathBuf, EmbedError> {
    let temporary = std::env::temp_dir().join(format!("gtop-{}", nix::unistd::geteuid()));
    let Ok(base) = Xdg::new() else { return unpack_in(&temporary) };
    unpack_in(&base.cache_dir().join("gtop")).or_else(|first| {
        unpack_in(&temporary).map_err(|second| EmbedError::NoPlace(Box::new(first), Box::new(second)))
    })
}

/// The shim's file as it is.
#[must_use]
pub fn bytes() -> &'static [u8] {
    SHIM
}

/// Copies the shim to a folder, which is made if need be, readable by everybody, for an image or a pod.
pub fn copy_to(dir: &Path) -> Result<PathBuf, EmbedError> {
    fs::create_dir_all(dir).map_err(|error| EmbedError::Io(dir.to_path_buf(), error))?;
    let path = dir.join(FILE_NAME);
    write(dir, &path, 0o755)?;
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

/// The shim's file below a folder that is private to this user, made if need be.
fn unpack_in(private: &Path) -> Result<PathBuf, EmbedError> {
    make_private(private)?;
    let dir = private.join(format!("shim-{}", hash(SHIM)));
    make_private(&dir)?;
    if statvfs(&dir).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC)) {
        return Err(EmbedError::NoExec(dir));
    }
    let path = dir.join(FILE_NAME);
    if !is_ours(&path) {
        write(&dir, &path, 0o600)?;
    }
    Ok(path)
}

/// Makes a folder of mode 0700, or makes sure that the one there belongs to this user and nobody else may write.
fn make_private(dir: &Path) -> Result<(), EmbedError> {
    let failed = |error| EmbedError::Io(dir.to_path_buf(), error);
    DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(failed)?;
    let found = fs::symlink_metadata(dir).map_err(failed)?;
    let unsafe_because = |why| Err(EmbedError::Unsafe(dir.to_path_buf(), why));
    if !found.is_dir() {
        return unsafe_because("not a folder");
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return unsafe_because("belongs to another user");
    }
    if found.mode() & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Whether the file is a plain one of this user, writable by nobody else, and the shim to the last byte.
fn is_ours(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let found = file.metadata()?;
        if !found.is_file()
            || found.uid() != nix::unistd::geteuid().as_raw()
            || found.mode() & 0o022 != 0
            || found.len() != SHIM.len() as u64
        {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(SHIM.len());
        file.take(SHIM.len() as u64).read_to_end(&mut bytes)?;
        Ok(hash(&bytes) == hash(SHIM))
    };
    read().unwrap_or(false)
}

/// Puts the shim at `path` in one step: a reader sees the whole file or none.
fn write(dir: &Path, path: &Path, mode: u32) -> Result<(), EmbedError> {
    let failed = |error| EmbedError::Io(path.to_path_buf(), error);
    let mut file = tempfile::Builder::new().prefix(".gtop-").tempfile_in(dir).map_err(failed)?;
    file.write_all(SHIM).map_err(failed)?;
    file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// SHA-256 in hexadecimal, cut to 128 bits: long enough to name contents, short enough to read.
fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_binary_carries_a_library() {
        assert_eq!(&SHIM[..4], b"\x7fELF");
    }

    #[test]
    fn it_is_unpacked_once_and_for_this_user_alone() {
        let base = tempfile::tempdir().unwrap();
        let private = base.path().join("cache/gtop");
        let path = unpack_in(&private).unwrap();
        assert_eq!(fs::read(&path).unwrap(), SHIM);
        assert_eq!((mode(&private), mode(path.parent().unwrap()), mode(&path)), (0o700, 0o700, 0o600));
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(unpack_in(&private).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[test]
    fn a_file_that_was_changed_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let path = unpack_in(base.path()).unwrap();
        let mut changed = SHIM.to_vec();
        changed[SHIM.len() / 2] ^= 1;
        let evil = base.path().join("evil.so");
        fs::write(&evil, &changed).unwrap();
        let spoils: [&dyn Fn(); 4] = [
            &|| fs::write(&path, &changed).unwrap(),
            &|| fs::write(&path, &SHIM[..100]).unwrap(),
            &|| fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap(),
            &|| {
                fs::remove_file(&path).unwrap();
                symlink(&evil, &path).unwrap();
            },
        ];
        for spoil in spoils {
            spoil();
            assert!(!is_ours(&path));
            assert_eq!(unpack_in(base.path()).unwrap(), path);
            assert!(is_ours(&path));
        }
        assert_eq!(fs::read(&evil).unwrap(), changed, "a link is replaced, not followed");
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join("gtop");
        symlink(base.path(), &link).unwrap();
        assert!(matches!(unpack_in(&link), Err(EmbedError::Unsafe(..))));
        fs::write(base.path().join("file"), b"").unwrap();
        assert!(matches!(unpack_in(&base.path().join("file")), Err(EmbedError::Io(..))));
    }

    #[test]
    fn a_wide_open_folder_is_closed_first() {
        let base = tempfile::tempdir().unwrap();
        let private = base.path().join("gtop");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o777)).unwrap();
        unpack_in(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
    }

    #[test]
    fn a_copy_is_for_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let path = copy_to(dir.path()).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (SHIM.to_vec(), 0o755));
        let made = copy_to(&dir.path().join("absent/below")).unwrap();
        assert_eq!(fs::read(made).unwrap(), SHIM);
        let below = path.join("below");
        assert!(matches!(copy_to(&below), Err(EmbedError::Io(at, _)) if at == below), "a file is in the way");
    }
}
