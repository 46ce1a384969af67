//! Where a libcupti may lie: the copies a process has mapped, beside its Python packages, in a toolkit. Nothing is
//! loaded, so that another process can ask about this one's.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a few paths, for which there is the reserve"
)]

use core::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Libraries of tools that are known to hold CUPTI, and the tools.
pub const HOLDERS: [(&str, &str); 6] = [
    ("libToolsInjection", "Nsight Systems"),
    ("libcuda-injection", "Nsight Compute"),
    ("libsanitizer-collection", "compute-sanitizer"),
    ("libcudadebugger", "cuda-gdb"),
    ("libtorch_cpu", "torch.profiler"),
    ("libtensorflow_framework", "TensorFlow's profiler"),
];

/// What of a process's settings decides where to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    /// `GTOP_CUPTI`: this library and no other.
    pub asked: Option<&'a Path>,
    /// `CUDA_HOME` or `CUDA_PATH`: a toolkit.
    pub toolkit: Option<&'a Path>,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// Device and inode as the kernel prints them.
    file: (&'a str, &'a str),
    /// Its path as the process sees it.
    pub path: &'a str,
    /// From the first to the last address it is mapped at.
    pub range: Range<u64>,
}

/// The copies of CUPTI among what `/proc/PID/maps` shows.
#[must_use]
pub fn copies(maps: &str) -> Vec<Mapped<'_>> {
    mapped(maps, is_cupti)
}

/// The driver's version, `580.159.04`, in the name of its library among what `/proc/PID/maps` shows.
#[must_use]
pub fn driver(maps: &str) -> Option<&str> {
    let libraries = mapped(maps, |name| name.starts_with("libcuda.so."));
    let name = libraries.first()?.path.rsplit('/').next()?;
    name.strip_prefix("libcuda.so.").filter(|version| version.contains('.'))
}

/// The drivers' branches of each major version of CUDA (CUDA's release notes); of later ones it is not known. A driver
/// runs a CUPTI of its own major version, even a newer one (measured: 13.1 to 13.5 on 580), and of older ones (measured:
/// 12.4 to 12.9 on 580).
const DRIVERS: [(Range<u32>, u32); 3] = [(450..525, 11), (525..580, 12), (580..600, 13)];

/// The major version of CUDA that a driver such as `580.159.04` is for; `None` where that is not known.
#[must_use]
pub fn cuda_of_driver(driver: &str) -> Option<u32> {
    let branch = driver.split('.').next()?.parse().ok()?;
    DRIVERS.into_iter().find(|(branches, _)| branches.contains(&branch)).map(|(_, cuda)| cuda)
}

/// The distinct mapped files whose name passes.
pub(crate) fn mapped(maps: &str, passes: impl Fn(&str) -> bool) -> Vec<Mapped<'_>> {
    let mut found: Vec<Mapped<'_>> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.splitn(6, ' ');
        let (Some(addresses), Some(device), Some(inode), Some(path)) =
            (fields.next(), fields.nth(2), fields.next(), fields.next())
        else {
            continue;
        };
        let (path, file) = (path.trim_start(), (device, inode));
        if !path.starts_with('/') || !path.rsplit('/').next().is_some_and(&passes) {
            continue;
        }
        let (from, to) = addresses.split_once('-').unwrap_or_default();
        let hex = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let range = hex(from)..hex(to);
        if let Some(known) = found.iter_mut().find(|known| known.file == file) {
            known.range = known.range.start.min(range.start)..known.range.end.max(range.end);
        } else if found.try_reserve(1).is_ok() {
            found.push(Mapped { file, path, range });
        }
    }
    found
}

/// `libcupti.so.13`, and also a copy that a wheel renamed, such as `libcupti-53fd203d.so.12`.
fn is_cupti(name: &str) -> bool {
    name.strip_prefix("libcupti")
        .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-') && rest.contains(".so"))
}

/// Where a libcupti may lie, the likeliest first. `maps` is what `/proc/PID/maps` shows; its paths, and those given
/// back, are below `root`.
#[must_use]
pub fn candidates(root: &Path, maps: &str, hints: Hints<'_>) -> Vec<PathBuf> {
    if let Some(asked) = hints.asked {
        return vec![asked.to_path_buf()];
    }
    let mut found = Vec::new();
    let major = cuda_major(maps);
    for packages in site_packages(maps) {
        beside(root, &packages, &mut found);
    }
    let mut toolkits: Vec<PathBuf> = Vec::new();
    for library in mapped(maps, |name| name.starts_with("libcudart.so") || name.starts_with("libcublas.so")) {
        if let Some(folder) = Path::new(library.path).parent() {
            toolkits.push(folder.to_path_buf());
            toolkits.push(folder.join("../extras/CUPTI/lib64"));
            toolkits.push(folder.join("../../../extras/CUPTI/lib64"));
        }
    }
    let installed = folders(root, Path::new("/usr/local"))
        .into_iter()
        .filter(|folder| folder.file_name().is_some_and(|name| name.as_bytes().starts_with(b"cuda")));
    for toolkit in hints.toolkit.map(Path::to_path_buf).into_iter().chain(installed) {
        toolkits.push(toolkit.join("extras/CUPTI/lib64"));
        toolkits.push(toolkit.join("lib64"));
    }
    for folder in toolkits {
        libraries(root, &folder, &mut found);
    }
    // The library of the CUDA in use first; otherwise as found.
    found.sort_by_key(|path| major.is_none_or(|major| !has_major(path, major)));
    found
}

/// Adds the libcupti files that lie in a folder of Python packages: NVIDIA's own, then torch's.
pub fn beside(root: &Path, packages: &Path, found: &mut Vec<PathBuf>) {
    for folder in folders(root, &packages.join("nvidia")) {
        libraries(root, &folder.join("lib"), found);
    }
    libraries(root, &packages.join("torch/lib"), found);
}

/// The folders of Python packages that something was mapped from.
fn site_packages(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        for marker in ["/site-packages/", "/dist-packages/"] {
            let (Some(from), Some(to)) = (line.find('/'), line.find(marker)) else { continue };
            let end = to.saturating_add(marker.len());
            if let Some(folder) = line.get(from..end).map(Path::new)
                && found.iter().all(|known| known != folder)
            {
                found.push(folder.to_path_buf());
            }
        }
    }
    found
}

/// The major version of the CUDA runtime in use, told from the names of its libraries.
fn cuda_major(maps: &str) -> Option<u32> {
    ["libcudart.so.", "libcublas.so.", "libnvrtc.so."].iter().find_map(|prefix| {
        let library = mapped(maps, |name| name.starts_with(prefix));
        let name = library.first()?.path.rsplit('/').next()?;
        name.strip_prefix(prefix)?.split('.').next()?.parse().ok()
    })
}

/// The major version in the name of a library's file. A toolkit's may carry the year of its release, as in
/// `libcupti.so.2025.3.0`: that is none.
pub(crate) fn major(path: &Path) -> Option<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let major = name.split(".so.").nth(1)?.split('.').next()?.parse().ok()?;
    (major < 1000).then_some(major)
}

fn has_major(path: &Path, wanted: u32) -> bool {
    major(path) == Some(wanted)
}

/// The folder as seen from here.
fn below(root: &Path, folder: &Path) -> PathBuf {
    root.join(folder.strip_prefix("/").unwrap_or(folder))
}

fn folders(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(below(root, folder)) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.take(256).flatten().map(|entry| folder.join(entry.file_name())).collect();
    found.sort();
    found
}

/// Adds the libcupti files of a folder, each name of one file.
pub fn libraries(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(below(root, folder)) else { return };
    let mut here: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_cupti))
        .map(|entry| folder.join(entry.file_name()))
        .collect();
    // `.so.13` before `.so.2025.3.0`, and newer before older.
    here.sort_by_key(|path| (!has_major(path, 13), !has_major(path, 12), path.clone()));
    found.extend(here);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 103:02 1234                      /opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so
7f0000001000-7f0000002000 r-xp 00001000 103:02 1234                      /opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so
7f0000002000-7f0000003000 r--p 00000000 103:02 77                        /opt/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12
7f0000003000-7f0000004000 rw-p 00000000 00:00 0 
7f0000004000-7f0000005000 r--p 00000000 103:02 99                        /opt/a b/libcupti.so.12
7f0000005000-7f0000006000 r-xp 00000000 103:02 99                        /opt/a b/libcupti.so.12
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn mapped_files_are_told_apart_by_inode() {
        let copies = copies(MAPS);
        assert_eq!(copies.iter().map(|copy| copy.path).collect::<Vec<_>>(), ["/opt/a b/libcupti.so.12"]);
    }

    #[test]
    fn the_drivers_version_is_in_its_librarys_name() {
        let with = |name: &str| format!("{MAPS}7f1-7f2 r-xp 0 103:02 5   /usr/lib/{name}\n");
        assert_eq!(driver(&with("libcuda.so.580.159.04")), Some("580.159.04"));
        for unknown in ["libcuda.so.1", "libcudart.so.12.4"] {
            assert_eq!(driver(&with(unknown)), None, "{unknown}");
        }
    }

    #[test]
    fn a_driver_says_which_cuda_it_is_for() {
        for (driver, cuda) in [("450.80.02", 11), ("535.104.05", 12), ("575.57.08", 12), ("580.159.04", 13)] {
            assert_eq!(cuda_of_driver(driver), Some(cuda), "{driver}");
        }
        for unknown in ["1.1", "610.43.02", "390.157", ""] {
            assert_eq!(cuda_of_driver(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn names_of_cupti() {
        for name in ["libcupti.so", "libcupti.so.13", "libcupti.so.2025.3.0", "libcupti-53fd203d.so.12"] {
            assert!(is_cupti(name), "{name}");
        }
        for name in ["libcupti_static.a", "libcuptiplus.so", "libnvperf_host.so"] {
            assert!(!is_cupti(name), "{name}");
        }
    }

    #[test]
    fn the_library_beside_the_cuda_in_use_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("lib/site-packages");
        for file in [
            "nvidia/cu13/lib/libcupti.so.13",
            "nvidia/cuda_cupti/lib/libcupti.so.12",
            "torch/lib/libcupti-1.so.12",
        ] {
            let path = packages.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        let maps = |runtime: &str| {
            format!(
                "7f0-7f1 r--p 0 1:2 3 {}/torch/lib/libtorch.so\n7f1-7f2 r--p 0 1:2 4 /x/{runtime}\n",
                packages.display()
            )
        };
        let first = |runtime| candidates(Path::new("/"), &maps(runtime), Hints::default()).remove(0);
        assert!(first("libcudart.so.12").ends_with("cuda_cupti/lib/libcupti.so.12"));
        assert!(first("libcudart.so.13").ends_with("cu13/lib/libcupti.so.13"));
    }

    #[test]
    fn another_root_is_looked_into_and_its_paths_are_its_own() {
        let root = tempfile::tempdir().unwrap();
        for file in
            ["v/lib/site-packages/nvidia/cu13/lib/libcupti.so.13", "usr/local/cuda-12/lib64/libcupti.so.12"]
        {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        let maps = "7f0-7f1 r--p 0 1:2 3 /v/lib/site-packages/torch/lib/libtorch.so\n";
        let found = candidates(root.path(), maps, Hints::default());
        let expected = [
            "/v/lib/site-packages/nvidia/cu13/lib/libcupti.so.13",
            "/usr/local/cuda-12/lib64/libcupti.so.12",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let asked = Hints { asked: Some(Path::new("/x/libcupti.so.13")), ..Hints::default() };
        assert_eq!(candidates(root.path(), maps, asked), [PathBuf::from("/x/libcupti.so.13")]);
    }
}
