//! The CUPTI that a program would load by itself, told before it is started: the one among its Python packages.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use gtop_shim::places;

/// A libcupti among the packages of the program that is of another major version than this SONAME, where none of the
/// same is there. The program would map it beside the one preloaded, and CUPTI has one home in a process.
pub(super) fn other_major(program: &OsStr, path: Option<OsString>, soname: &str) -> Option<PathBuf> {
    let found = beside(&find(program, path)?);
    let is_other = |file: &&PathBuf| major(file) != soname.rsplit_once(".so.").map(|(_, major)| major);
    found.iter().all(|file| is_other(&file)).then(|| found.first().cloned())?
}

/// The major version in a library's name, `13` of `libcupti.so.13` and of `libcupti-53fd203d.so.13`.
fn major(file: &Path) -> Option<&str> {
    let (_, version) = file.file_name()?.to_str()?.rsplit_once(".so.")?;
    version.split('.').next()
}

/// The file of a program, looked for as a shell does.
fn find(program: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    let program = Path::new(program);
    if program.components().count() > 1 {
        return Some(program.to_path_buf());
    }
    let folders = path?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The libcupti files among the Python packages of `PREFIX/bin/PROGRAM`. Links are not followed: the interpreter of a
/// virtual environment is one, and leads away from its packages.
fn beside(program: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Some(lib) = program.parent().and_then(Path::parent).map(|prefix| prefix.join("lib")) else {
        return found;
    };
    let Ok(lib) = std::path::absolute(lib) else { return found };
    for entry in fs::read_dir(&lib).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("python") {
            for packages in ["site-packages", "dist-packages"] {
                places::beside(Path::new("/"), &entry.path().join(packages), &mut found);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_major_version_among_the_packages_is_found() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib/python3.12/site-packages/nvidia/cuda_cupti/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::create_dir(root.path().join("bin")).unwrap();
        let python = root.path().join("bin/python");
        fs::write(&python, b"").unwrap();
        let other = |soname| other_major(python.as_os_str(), None, soname);
        assert_eq!(other("libcupti.so.13"), None, "there is none");
        fs::write(lib.join("libcupti.so.12"), b"").unwrap();
        assert_eq!(other("libcupti.so.12"), None);
        assert_eq!(other("libcupti.so.13"), Some(lib.join("libcupti.so.12")));
        let path = Some(root.path().join("bin").into_os_string());
        assert!(other_major(OsStr::new("python"), path, "libcupti.so.13").is_some(), "by PATH");
        assert_eq!(other_major(OsStr::new("python"), None, "libcupti.so.13"), None);
        fs::write(lib.join("libcupti.so.13"), b"").unwrap();
        assert_eq!(other("libcupti.so.13"), None, "one of the same is there too");
        assert_eq!(major(Path::new("/x/libcupti-53fd203d.so.12")), Some("12"));
        assert_eq!(major(Path::new("/x/libcupti.so")), None);
    }
}
