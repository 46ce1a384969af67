//! Where the two sides meet: the folder and file name of a process's socket, computed the same way by both.
#![expect(clippy::disallowed_macros, reason = "a path or two, once, for which the shim keeps a reserve")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The longest path `sockaddr_un` holds, without its final NUL (`sys/un.h`: `sun_path[108]`).
pub const MAX_SOCKET_PATH: usize = 107;

/// The folder of a user's sockets: `$XDG_RUNTIME_DIR/gtop`, else `gtop-<uid>` in the system's temporary folder.
/// A folder so deep that no socket would fit is passed over, and `/tmp` is always short enough.
#[must_use]
pub fn directory(runtime_dir: Option<&OsStr>, temp_dir: Option<&OsStr>, uid: u32) -> PathBuf {
    candidates(runtime_dir, temp_dir, uid)
        .into_iter()
        .flatten()
        .find(|dir| fits(dir))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/gtop-{uid}")))
}

/// Every folder a socket of this user may be in, the likeliest first; a viewer looks in all of them, since the
/// process may have been started with another environment.
#[must_use]
pub fn candidates(runtime_dir: Option<&OsStr>, temp_dir: Option<&OsStr>, uid: u32) -> [Option<PathBuf>; 4] {
    let absolute =
        |dir: Option<&OsStr>| dir.map(Path::new).filter(|dir| dir.is_absolute()).map(Path::to_path_buf);
    [
        absolute(runtime_dir).map(|dir| dir.join("gtop")),
        absolute(temp_dir).map(|dir| dir.join(format!("gtop-{uid}"))),
        Some(PathBuf::from(format!("/tmp/gtop-{uid}"))),
        Some(PathBuf::from(format!("/run/user/{uid}/gtop"))),
    ]
}

/// The file name of a process's socket. The start time (clock ticks after boot, field 22 of `/proc/PID/stat`)
/// tells a reused pid apart; the pid is the one in the process's own namespace.
#[must_use]
pub fn file_name(pid: u32, start_time: u64) -> String {
    format!("{pid}-{start_time}.sock")
}

/// The pid and start time in a socket's file name, if it is one of ours.
#[must_use]
pub fn parse_file_name(name: &str) -> Option<(u32, u64)> {
    let (pid, start_time) = name.strip_suffix(".sock")?.split_once('-')?;
    Some((pid.parse().ok()?, start_time.parse().ok()?))
}

/// Whether the longest possible socket name fits behind this folder.
fn fits(dir: &Path) -> bool {
    const LONGEST_NAME: usize = "/4294967295-18446744073709551615.sock".len();
    dir.as_os_str().len().saturating_add(LONGEST_NAME) <= MAX_SOCKET_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(runtime: Option<&str>, temp: Option<&str>) -> PathBuf {
        directory(runtime.map(OsStr::new), temp.map(OsStr::new), 1000)
    }

    #[test]
    fn the_runtime_dir_comes_first_and_the_temporary_one_second() {
        assert_eq!(dir(Some("/run/user/1000"), Some("/scratch")), Path::new("/run/user/1000/gtop"));
        assert_eq!(dir(None, Some("/scratch")), Path::new("/scratch/gtop-1000"));
        assert_eq!(dir(None, None), Path::new("/tmp/gtop-1000"));
        assert_eq!(dir(Some("relative"), None), Path::new("/tmp/gtop-1000"));
    }

    #[test]
    fn a_folder_too_deep_for_a_socket_is_passed_over() {
        let deep = format!("/{}", "d".repeat(150));
        assert_eq!(dir(Some(&deep), Some(&deep)), Path::new("/tmp/gtop-1000"));
        let path = dir(Some(&deep), None).join(file_name(u32::MAX, u64::MAX));
        assert!(path.as_os_str().len() <= MAX_SOCKET_PATH);
        assert!(candidates(Some(OsStr::new(&deep)), None, 1000).contains(&Some("/tmp/gtop-1000".into())));
    }

    #[test]
    fn names_go_both_ways() {
        assert_eq!(parse_file_name(&file_name(844, 123_456)), Some((844, 123_456)));
        for foreign in ["844.sock", "844-1", "x-1.sock", "844-.sock", ""] {
            assert_eq!(parse_file_name(foreign), None, "{foreign}");
        }
    }
}
