//! Finding libcupti: the copy that is mapped already if there is one, else the likeliest file. Never a second one.
#![expect(
    clippy::result_large_err,
    reason = "a failure carries its text in place: failing must not allocate"
)]

use crate::config::Config;
use crate::sys::{self, Library};
use crate::text::Text;
use core::fmt::Write as _;
use gtop_protocol::message::Reason;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why there is no CUPTI to call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFound {
    pub(crate) reason: Reason,
    pub(crate) detail: Text<256>,
}

impl NotFound {
    fn new(reason: Reason, detail: core::fmt::Arguments<'_>) -> Self {
        Self { reason, detail: Text::new(detail) }
    }
}

/// Files looked at before giving up.
const MOST_CANDIDATES: usize = 64;

/// The library to use. CUDA must be there first: some versions crash without it.
pub(crate) fn cupti(config: &Config) -> Result<Library, NotFound> {
    if sys::mapped_library(c"libcuda.so.1").is_none() {
        return Err(NotFound::new(Reason::NoCuda, format_args!("libcuda.so.1 is not mapped")));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let copies = files(&maps, is_cupti);
    only_copy(&copies, config)?;
    for name in [c"libcupti.so.13", c"libcupti.so.12"] {
        if let Some(library) = sys::mapped_library(name) {
            return Ok(library);
        }
    }
    if let Some(library) = copies.iter().find_map(|copy| sys::mapped_library(&c_path(Path::new(copy.path))?))
    {
        return Ok(library);
    }
    let mut tried: Text<256> = Text::EMPTY;
    for path in candidates(&maps, config).iter().take(MOST_CANDIDATES) {
        let Some(name) = c_path(path) else { continue };
        if !path.exists() {
            continue;
        }
        match sys::load_library(&name) {
            Ok(library) => {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
                only_copy(&files(&maps, is_cupti), config)?;
                return Ok(library);
            }
            Err(why) => {
                let _ = write!(tried, "{}: {why}; ", path.display());
            }
        }
    }
    for name in [c"libcupti.so.13", c"libcupti.so.12"] {
        if config.cupti.is_none()
            && let Ok(library) = sys::load_library(name)
        {
            return Ok(library);
        }
    }
    if tried.is_empty() {
        let _ = tried.write_str("nothing beside torch, in pip's nvidia folders, or in a toolkit");
    }
    Err(NotFound { reason: Reason::NoCupti, detail: tried })
}

/// CUPTI has one home in a process: more than one mapped copy, or another one than asked for, is refused.
fn only_copy(copies: &[Mapped<'_>], config: &Config) -> Result<(), NotFound> {
    if let [first, second, ..] = copies {
        return Err(NotFound::new(Reason::SecondCopy, format_args!("{} and {}", first.path, second.path)));
    }
    if let (Some(asked), [copy]) = (&config.cupti, copies) {
        let same = match (asked.canonicalize(), Path::new(copy.path).canonicalize()) {
            (Ok(asked), Ok(copy)) => asked == copy,
            _ => false,
        };
        if !same {
            let asked = asked.display();
            return Err(NotFound::new(
                Reason::SecondCopy,
                format_args!("{} is mapped already, so {asked} cannot be used", copy.path),
            ));
        }
    }
    Ok(())
}

/// A mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped<'a> {
    /// Device and inode as the kernel prints them.
    file: (&'a str, &'a str),
    path: &'a str,
}

/// The distinct mapped files whose name passes.
fn files(maps: &str, passes: impl Fn(&str) -> bool) -> Vec<Mapped<'_>> {
    let mut found: Vec<Mapped<'_>> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.splitn(6, ' ');
        let (Some(device), Some(inode), Some(path)) = (fields.nth(3), fields.next(), fields.next()) else {
            continue;
        };
        let path = path.trim_start();
        let file = (device, inode);
        if path.starts_with('/')
            && path.rsplit('/').next().is_some_and(&passes)
            && found.iter().all(|other| other.file != file)
            && found.try_reserve(1).is_ok()
        {
            found.push(Mapped { file, path });
        }
    }
    found
}

/// `libcupti.so.13`, and also a copy that a wheel renamed, such as `libcupti-53fd203d.so.12`.
fn is_cupti(name: &str) -> bool {
    name.strip_prefix("libcupti")
        .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-') && rest.contains(".so"))
}

/// Where a libcupti may lie, the likeliest first.
fn candidates(maps: &str, config: &Config) -> Vec<PathBuf> {
    if let Some(asked) = &config.cupti {
        return vec![asked.clone()];
    }
    let mut found = Vec::new();
    let major = cuda_major(maps);
    for packages in site_packages(maps) {
        for folder in folders(&packages.join("nvidia")) {
            libraries(&folder.join("lib"), &mut found);
        }
        libraries(&packages.join("torch/lib"), &mut found);
    }
    let mut toolkits: Vec<PathBuf> = Vec::new();
    for library in files(maps, |name| name.starts_with("libcudart.so") || name.starts_with("libcublas.so")) {
        if let Some(folder) = Path::new(library.path).parent() {
            toolkits.push(folder.to_path_buf());
            toolkits.push(folder.join("../extras/CUPTI/lib64"));
            toolkits.push(folder.join("../../../extras/CUPTI/lib64"));
        }
    }
    let installed = folders(Path::new("/usr/local"))
        .into_iter()
        .filter(|folder| folder.file_name().is_some_and(|name| name.as_bytes().starts_with(b"cuda")));
    for toolkit in config.toolkit.iter().cloned().chain(installed) {
        toolkits.push(toolkit.join("extras/CUPTI/lib64"));
        toolkits.push(toolkit.join("lib64"));
    }
    for folder in toolkits {
        libraries(&folder, &mut found);
    }
    // The library of the CUDA in use first; otherwise as found.
    found.sort_by_key(|path| major.is_none_or(|major| !has_major(path, major)));
    found
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
        let library = files(maps, |name| name.starts_with(prefix));
        let name = library.first()?.path.rsplit('/').next()?;
        name.strip_prefix(prefix)?.split('.').next()?.parse().ok()
    })
}

fn has_major(path: &Path, major: u32) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(".so.").nth(1).and_then(|version| version.split('.').next()?.parse::<u32>().ok()).is_some_and(
        // A toolkit's file may carry the year of its release, as in libcupti.so.2025.3.0; it is then not known.
        |found| found == major,
    )
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.take(256).flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Adds the libcupti files of a folder, the longer known name of one file only once.
fn libraries(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut here: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_cupti))
        .map(|entry| entry.path())
        .collect();
    // `.so.13` before `.so.2025.3.0`, and newer before older.
    here.sort_by_key(|path| (!has_major(path, 13), !has_major(path, 12), path.clone()));
    found.extend(here);
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Tools that are known to hold CUPTI and that something in the process points to, for the message of error 39.
pub(crate) fn likely_holders() -> Text<256> {
    const TOOLS: [(&str, &str); 6] = [
        ("libToolsInjection", "Nsight Systems"),
        ("libcuda-injection", "Nsight Compute"),
        ("libsanitizer-collection", "compute-sanitizer"),
        ("libcudadebugger", "cuda-gdb"),
        ("libtorch_cpu", "torch.profiler"),
        ("libtensorflow_framework", "TensorFlow's profiler"),
    ];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut text = Text::EMPTY;
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    let nsys = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"NSYS_"));
    let mapped = TOOLS.iter().filter(|(library, _)| maps.contains(library)).map(|(_, tool)| *tool);
    for (i, tool) in nsys
        .then_some("Nsight Systems (its environment variables are set)")
        .into_iter()
        .chain(mapped)
        .enumerate()
    {
        let _ = text.write_str(if i == 0 { "perhaps " } else { " or " });
        let _ = text.write_str(tool);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
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
        let copies = files(MAPS, is_cupti);
        assert_eq!(copies.iter().map(|copy| copy.path).collect::<Vec<_>>(), ["/opt/a b/libcupti.so.12"]);
        assert!(only_copy(&copies, &Config::default()).is_ok());
        let second =
            MAPS.replace("7f0000005000-7f0000006000 r-xp 00000000 103:02 99 ", "7f5-7f6 r-xp 0 103:02 98 ");
        let refused = only_copy(&files(&second, is_cupti), &Config::default()).unwrap_err();
        assert_eq!(refused.reason, Reason::SecondCopy);
        assert!(refused.detail.to_string().contains(" and /opt/a b/libcupti.so.12"));
    }

    #[test]
    fn another_copy_than_asked_for_is_refused() {
        let config = Config { cupti: Some("/nowhere/libcupti.so.13".into()), ..Config::default() };
        let refused = only_copy(&files(MAPS, is_cupti), &config).unwrap_err();
        assert!(refused.detail.to_string().contains("/nowhere/libcupti.so.13 cannot be used"));
        assert_eq!(candidates(MAPS, &config), [PathBuf::from("/nowhere/libcupti.so.13")]);
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
        let first = |runtime| candidates(&maps(runtime), &Config::default()).remove(0);
        assert!(first("libcudart.so.12").ends_with("cuda_cupti/lib/libcupti.so.12"));
        assert!(first("libcudart.so.13").ends_with("cu13/lib/libcupti.so.13"));
    }
}
