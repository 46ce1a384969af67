//! What a process has mapped and opened: CUDA, CUPTI, the shim.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::embed;

/// The libraries of interest in a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// `libcuda`: the process has begun to use CUDA.
    pub cuda: Option<PathBuf>,
    /// gtop's shim.
    pub shim: Option<PathBuf>,
    /// Every copy of CUPTI; more than one cannot work.
    pub cupti: Vec<PathBuf>,
    /// `libnvidia-ml`: it asks the driver about devices.
    pub nvml: Option<PathBuf>,
    /// Whether the file that was asked about is mapped.
    pub asked: bool,
}

/// What `/proc/PID/maps` shows. `asked` is one more file to look for.
pub fn mapped(pid: u32, asked: Option<&str>) -> io::Result<Mapped> {
    // A path may be any bytes; only names in ASCII are looked for.
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(in_maps(&String::from_utf8_lossy(&maps), asked))
}

fn in_maps(maps: &str, asked: Option<&str>) -> Mapped {
    let mut found = Mapped::default();
    let mut last = "";
    for line in maps.lines() {
        // address, permissions, offset, device, inode, and then the path, which may hold blanks.
        let Some(at) = line.find('/') else { continue };
        let path = line.get(at..).unwrap_or_default();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        if path == last {
            continue;
        }
        last = path;
        let name = path.rsplit('/').next().unwrap_or_default();
        let first = |slot: &mut Option<PathBuf>| {
            slot.get_or_insert_with(|| path.into());
        };
        if is_library(name, "libcuda") {
            first(&mut found.cuda);
        } else if name == embed::FILE_NAME {
            first(&mut found.shim);
        } else if is_library(name, "libnvidia-ml") {
            first(&mut found.nvml);
        } else if is_library(name, "libcupti") && !found.cupti.iter().any(|known| known.as_os_str() == path) {
            found.cupti.push(path.into());
        }
        found.asked |= asked == Some(path);
    }
    found
}

/// `libcuda.so`, `libcuda.so.1`, `libcuda.so.580.82`, and not `libcudart.so`.
fn is_library(name: &str, library: &str) -> bool {
    name.strip_prefix(library).is_some_and(|rest| rest == ".so" || rest.starts_with(".so."))
}

/// Device files of NVIDIA that a process holds open, by name behind `/dev/`. An error means it may not be asked.
pub fn devices(pid: u32) -> io::Result<Vec<String>> {
    let mut devices: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("/dev/")?.to_owned()))
        .filter(|name| name.starts_with("nvidia"))
        .collect();
    devices.sort_unstable();
    devices.dedup();
    Ok(devices)
}

/// Whether CUDA has not begun in a process, although its library may be loaded: it opens `/dev/nvidia-uvm` when it does
/// (driver 580, seen at vLLM's API server, which only loads it). Not known, and not said, where there is no such file.
#[must_use]
pub fn is_idle(pid: u32) -> bool {
    Path::new("/dev/nvidia-uvm").exists()
        && devices(pid).is_ok_and(|devices| devices.iter().all(|name| name != "nvidia-uvm"))
}

/// Whether a process has CUDA only because its parent had it when it forked, as the workers of a data loader do: it has
/// the library where the parent has it, and no device open that the parent has not. Such a process cannot use CUDA.
#[must_use]
pub fn is_copy(pid: u32, parent: u32) -> bool {
    let own = cuda_at(pid);
    own.is_some()
        && own == cuda_at(parent)
        && devices(pid).is_ok_and(|own| {
            devices(parent).is_ok_and(|parents| own.iter().all(|device| parents.contains(device)))
        })
}

/// The first line of the driver's library in `/proc/PID/maps` but for its path.
fn cuda_at(pid: u32) -> Option<String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let line = maps.lines().find(|line| {
        line.find('/').is_some_and(|at| is_library(line[at..].rsplit('/').next().unwrap_or(""), "libcuda"))
    })?;
    line.split(' ').next().map(str::to_owned)
}

/// Whether the process computes on a GPU, or is about to; `None` when it may not be asked. A program that only
/// looks at devices, as this one does, is not counted.
#[must_use]
pub fn uses_gpu(pid: u32) -> Option<bool> {
    let mapped = mapped(pid, None);
    if let Ok(mapped) = &mapped
        && mapped.cuda.is_some()
    {
        return Some(true);
    }
    match (devices(pid), mapped) {
        (Ok(devices), mapped) => {
            let monitors = mapped.is_ok_and(|mapped| mapped.nvml.is_some());
            Some(devices.iter().any(|name| name == "nvidia-uvm") || (!devices.is_empty() && !monitors))
        }
        (Err(_), Ok(_)) => Some(false),
        (Err(_), Err(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 08:01 11  /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
7f0000001000-7f0000002000 r-xp 00001000 08:01 11  /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
7f0000002000-7f0000003000 r-xp 00000000 08:01 12  /opt/my env/nvidia/cuda_cupti/lib/libcupti.so.13
7f0000003000-7f0000004000 r-xp 00000000 08:01 13  /usr/local/cuda/lib64/libcupti.so.2025.3.1 (deleted)
7f0000004000-7f0000005000 r-xp 00000000 08:01 12  /opt/my env/nvidia/cuda_cupti/lib/libcupti.so.13
7f0000005000-7f0000006000 r-xp 00000000 08:01 14  /home/ann/.cache/gtop/shim-00/libgtop_shim.so (deleted)
7f0000006000-7f0000007000 rw-p 00000000 00:00 0   [heap]
7f0000007000-7f0000008000 r-xp 00000000 08:01 15  /usr/lib/libcudart.so.13
7f0000008000-7f0000009000 rw-p 00000000 00:00 0
";

    #[test]
    fn libraries_are_told_from_their_like() {
        let found = in_maps(MAPS, Some("/usr/lib/libcudart.so.13"));
        assert_eq!(found.cuda.unwrap().to_str(), Some("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"));
        assert_eq!(found.shim.unwrap().to_str(), Some("/home/ann/.cache/gtop/shim-00/libgtop_shim.so"));
        let cupti: Vec<_> = found.cupti.iter().filter_map(|path| path.to_str()).collect();
        let expected = [
            "/opt/my env/nvidia/cuda_cupti/lib/libcupti.so.13",
            "/usr/local/cuda/lib64/libcupti.so.2025.3.1",
        ];
        assert_eq!(cupti, expected);
        assert!(found.asked && found.nvml.is_none());
        assert_eq!(in_maps("[heap]\n\nx", None), Mapped::default());
        assert_eq!(in_maps("1-2 r 0 0:0 1 /usr/lib/libcudart.so.13", None), Mapped::default());
    }

    #[test]
    fn a_process_without_cuda_uses_no_gpu() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (uses, devices) = (uses_gpu(child.id()), devices(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((uses, devices.unwrap()), (Some(false), Vec::new()));
        assert_eq!(uses_gpu(u32::MAX), None);
    }
}
