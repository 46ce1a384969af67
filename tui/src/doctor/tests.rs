//! Machines made of files: each is a tree below one folder, and libraries answer what the test says.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::probe::load::Gpu;
use crate::system::attach::INJECTION;
use crate::system::embed;
use crate::system::nvml::{DeviceSample, MigSample};

const PID: u32 = 844;
const PACKAGES: &str = "/venv/lib/python3.12/site-packages";
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const LIBCUDA: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04";

/// A machine, and what its libraries say.
struct Tree {
    dir: TempDir,
    cuda: Result<Cuda, String>,
    devices: Result<Vec<DeviceSample>, String>,
    libraries: HashMap<PathBuf, u32>,
    asked: Vec<PathBuf>,
    uid: u32,
}

impl Ask for Tree {
    fn cuda(&mut self) -> Result<Cuda, String> {
        self.cuda.clone()
    }

    fn devices(&mut self) -> Result<Vec<DeviceSample>, String> {
        self.devices.clone()
    }

    fn library(&mut self, path: &Path) -> Library {
        self.asked.push(path.to_path_buf());
        self.libraries.get(path).map_or_else(|| Library::Silent("no answer".into()), |v| Library::Version(*v))
    }
}

impl Tree {
    /// A machine with a driver for CUDA 13.0 and an H200.
    fn new() -> Self {
        let gpu = Gpu { name: "NVIDIA H200".into(), capability: (9, 0) };
        let tree = Self {
            dir: tempfile::tempdir().unwrap(),
            cuda: Ok(Cuda { driver: 13000, devices: vec![gpu] }),
            devices: Ok(vec![DeviceSample { name: "NVIDIA H200".into(), ..DeviceSample::default() }]),
            libraries: HashMap::new(),
            asked: Vec::new(),
            uid: nix::unistd::geteuid().as_raw(),
        };
        let nvrm =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Nov  4 01:02:03 UTC 2025\n";
        tree.write("/proc/driver/nvidia/version", nvrm);
        tree.write("/dev/nvidiactl", "");
        tree.write("/proc/version", "Linux version 6.8.0-generic (gcc)\n");
        fs::create_dir_all(tree.path("/tmp")).unwrap();
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn wheel(&self, folder: &str, library: &str, record: &str) {
        self.write(&format!("{PACKAGES}/nvidia/{folder}/lib/{library}"), "");
        self.write(&format!("{PACKAGES}/{record}.dist-info/METADATA"), "");
    }

    /// A process in the same file system.
    fn process(&self, environment: &[(&str, &str)], mapped: &[&str]) {
        let folder = format!("/proc/{PID}");
        self.write(&format!("{folder}/comm"), "EngineCore\n");
        self.write(&format!("{folder}/status"), &format!("Name:\tx\nUid:\t{0}\t{0}\t{0}\t{0}\n", self.uid));
        let environment: Vec<String> =
            environment.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        self.write(&format!("{folder}/environ"), &environment.concat());
        let line = |(i, path): (usize, &&str)| {
            format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 {i}  {path}\n")
        };
        self.write(&format!("{folder}/maps"), &mapped.iter().enumerate().map(line).collect::<String>());
        symlink("../..", self.path(&format!("{folder}/root"))).unwrap();
    }

    fn machine(&self, environment: &[(&str, &str)]) -> Machine {
        Machine {
            root: self.dir.path().into(),
            environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            uid: self.uid,
            shim: Err("not in this test".into()),
        }
    }

    /// What is found of the machine alone.
    fn alone(&mut self, environment: &[(&str, &str)]) -> Report {
        examine(&self.machine(environment), self, &[])
    }

    /// What is found with a process whose shim answers.
    fn watched(&mut self) -> Report {
        self.told(Told::default())
    }

    /// What is found with a process whose shim says this.
    fn told(&mut self, told: Told) -> Report {
        let reach = Reach::Open { socket: "/run/x.sock".into(), told };
        examine(&self.machine(&[]), self, &[Aim { pid: PID, reach }])
    }
}

fn find<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let found = report.findings.iter().find(|finding| finding.id == id);
    found.unwrap_or_else(|| panic!("no {id} among {:#?}", report.findings))
}

fn has(report: &Report, id: &str) -> bool {
    report.findings.iter().any(|finding| finding.id == id)
}

#[track_caller]
fn says(report: &Report, id: &str, level: Level, parts: &[&str]) {
    let finding = find(report, id);
    assert_eq!(finding.level, level, "{finding:?}");
    let text = format!("{} > {}", finding.sentence, finding.next_step.as_deref().unwrap_or("-"));
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_good_machine_with_a_sound_cupti() {
    let mut tree = Tree::new();
    tree.wheel("cu13", "libcupti.so.13", "nvidia_cuda_cupti-13.5.25");
    let report = tree.alone(&[("VIRTUAL_ENV", "/venv")]);
    says(&report, "driver", Level::Ok, &["580.159.04", "CUDA 13.0", "NVIDIA H200 (9.0)"]);
    says(&report, "nvml", Level::Ok, &["1 device"]);
    says(&report, "cupti", Level::Ok, &["CUPTI 13.5.25 (130500)", "sound"]);
    says(&report, "cupti-driver", Level::Note, &["CUPTI 13.5 is newer", "13.0"]);
    says(
        &report,
        "cost",
        Level::Note,
        &["33 to 155 %", "a fifth", "0.5 to 5 %", "--early", "8 %", "106 to 209 %", "--arm later"],
    );
    for id in ["mig", "vgpu", "wsl", "confidential", "counters", "container", "collectors", "tools"] {
        assert!(!has(&report, id), "{id}");
    }
}

#[test]
fn every_finding_that_is_not_well_says_what_to_do() {
    let mut tree = Tree::new();
    tree.cuda = Err("no libcuda.so.1".into());
    tree.devices = Err("no NVML".into());
    tree.wheel("cu13", "libcupti.so.13", "nvidia_cuda_cupti-13.0.85");
    tree.process(&[("NSYS_X", "1"), ("XDG_RUNTIME_DIR", "/nowhere")], &[TORCH]);
    let report = tree.watched();
    let unwell = report.findings.iter().filter(|finding| finding.level >= Level::Warning);
    assert!(unwell.clone().count() >= 5, "{report:#?}");
    for finding in unwell {
        assert!(finding.next_step.is_some(), "{finding:?}");
    }
    assert_eq!(report.level(), Level::Fault);
}

#[test]
fn no_driver_and_no_device_are_told_apart() {
    let mut tree = Tree::new();
    tree.cuda = Err("no libcuda.so.1".into());
    says(&tree.alone(&[]), "driver", Level::Fault, &["580.159.04 runs, but CUDA cannot be used: no libcuda"]);
    fs::remove_file(tree.path("/dev/nvidiactl")).unwrap();
    says(
        &tree.alone(&[]),
        "driver",
        Level::Fault,
        &["no device is passed into this container", "--gpus all"],
    );
    fs::remove_file(tree.path("/proc/driver/nvidia/version")).unwrap();
    says(&tree.alone(&[]), "driver", Level::Fault, &["CUDA cannot be used here: no libcuda", "gtop demo"]);
    tree.cuda = Ok(Cuda { driver: 13000, devices: Vec::new() });
    says(&tree.alone(&[]), "driver", Level::Fault, &["no device", "CUDA_VISIBLE_DEVICES"]);
    tree.devices = Err("the NVIDIA driver is not loaded".into());
    says(&tree.alone(&[]), "nvml", Level::Warning, &["driver is not loaded"]);
}

#[test]
fn a_cupti_newer_than_the_driver_needs_another() {
    let mut tree = Tree::new();
    tree.cuda = Ok(Cuda { driver: 12020, devices: Vec::new() });
    tree.wheel("cu13", "libcupti.so.13", "nvidia_cuda_cupti-13.0.85");
    let driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05";
    tree.process(&[(INJECTION, "/x/libgtop_shim.so")], &[TORCH, driver]);
    let report = tree.watched();
    let next = ["CUPTI 13.0 needs a newer driver (have 12.2)", "nvidia-cuda-cupti-cu12"];
    says(&report, "cupti-driver", Level::Fault, &next);

    tree.write("/usr/local/cuda-12.1/extras/CUPTI/lib64/libcupti.so.12", "");
    let versions = r#"{"cuda_cupti":{"name":"CUDA CUPTI","version":"12.1.105"}}"#;
    tree.write("/usr/local/cuda-12.1/version.json", versions);
    let report = tree.watched();
    assert!(!has(&report, "cupti-driver"));
    says(&report, "cupti", Level::Note, &["it would get CUPTI 12.1.105"]);
    says(&report, "cupti-copies", Level::Note, &["not used", "libcupti.so.13 (CUPTI 13.0.85)"]);
    let copies = &report.copies[0].1;
    let releases: Vec<_> = copies.all.iter().filter_map(|copy| copy.release.as_deref()).collect();
    assert_eq!((releases, copies.chosen), (vec!["13.0.85", "12.1.105"], Some(1)));

    // Where the newer one is asked for, no other is taken.
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    let newer = format!("{PACKAGES}/nvidia/cu13/lib/libcupti.so.13");
    tree.process(&[("GTOP_CUPTI", &newer)], &[TORCH, driver]);
    let next = ["--cupti /usr/local/cuda-12.1/extras/CUPTI/lib64/libcupti.so.12", "uses CUPTI 12.1.105"];
    says(&tree.watched(), "cupti-driver", Level::Fault, &next);

    // A process of CUDA 12 gets the copy that suits it.
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    tree.process(&[], &[TORCH, driver, "/usr/lib/libcudart.so.12"]);
    let report = tree.watched();
    assert!(!has(&report, "cupti-driver"));
    says(&report, "cupti", Level::Note, &["it would get CUPTI 12.1.105", "unknown", "gtop probe"]);
}

#[test]
fn a_cupti_older_than_the_gpu_is_doubted() {
    let mut tree = Tree::new();
    tree.wheel("cuda_cupti", "libcupti.so.12", "nvidia_cuda_cupti_cu12-12.8.90");
    let spark = Gpu { name: "NVIDIA GB10".into(), capability: (12, 1) };
    tree.cuda = Ok(Cuda { driver: 13000, devices: vec![spark] });
    let report = tree.alone(&[("VIRTUAL_ENV", "/venv")]);
    says(
        &report,
        "cupti-gpu",
        Level::Warning,
        &["CUPTI 12.8.90 may not support", "GB10", "12.1", "untested"],
    );
    tree.cuda.as_mut().unwrap().devices[0].capability = (12, 0);
    assert!(!has(&tree.alone(&[("VIRTUAL_ENV", "/venv")]), "cupti-gpu"));
}

#[test]
fn the_copy_that_is_mapped_is_the_one_and_others_are_listed() {
    let mut tree = Tree::new();
    tree.wheel("cu13", "libcupti.so.13", "nvidia_cuda_cupti-13.0.85");
    let own = format!("{PACKAGES}/nvidia/cu13/lib/libcupti.so.13");
    tree.write("/opt/old/libcupti.so.12", "");
    tree.write("/opt/old/libcupti.so.2024.1", "");
    tree.process(&[("LD_LIBRARY_PATH", "/opt/old:/none")], &[TORCH, LIBCUDA, &own]);
    let report = tree.watched();
    let parts = ["it has CUPTI 13.0.85 (130001)", &own, "defective", "cuda-cupti>=13.3", "gtop probe"];
    says(&report, "cupti", Level::Warning, &parts);
    says(&report, "cupti-copies", Level::Note, &["/opt/old/libcupti.so.12 (CUPTI 12.?)"]);
    assert!(
        !find(&report, "cupti-copies").sentence.contains("2024"),
        "the loader does not look for that name"
    );
    assert!(tree.asked.is_empty(), "a file of another mount namespace is not loaded");

    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    tree.process(&[], &[LIBCUDA, &own, "/opt/old/libcupti.so.12"]);
    let report = tree.watched();
    says(&report, "cupti", Level::Fault, &["two copies", &own, "/opt/old/libcupti.so.12", "restart"]);
    assert_eq!(report.copies[0].1.chosen, None);

    // The program maps one by its path beside the preloaded one, as PyTorch does.
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    tree.process(&[("LD_PRELOAD", &own)], &[LIBCUDA, "/opt/old/libcupti.so.12", &own]);
    let report = tree.watched();
    says(&report, "cupti", Level::Warning, &["it has CUPTI 13.0.85", &own]);
    says(
        &report,
        "cupti-copies",
        Level::Note,
        &["/opt/old/libcupti.so.12 is mapped beside the preloaded", "no harm"],
    );
}

#[test]
fn a_library_is_asked_when_nobody_else_can_have_made_it() {
    let mut tree = Tree::new();
    tree.write("/opt/cupti/libcupti.so.13", "");
    let file = tree.path("/opt/cupti/libcupti.so.13");
    tree.libraries.insert(file.clone(), 130_202);
    let environment = [("GTOP_CUPTI", "/opt/cupti/libcupti.so.13")];
    let report = tree.alone(&environment);
    says(&report, "cupti", Level::Warning, &["CUPTI 13.2.86 (130202)", "defective"]);
    assert_eq!(tree.asked, [file.as_path()]);

    let v2 = [environment[0], ("GTOP_INTERFACE", "v2")];
    says(&tree.alone(&v2), "interface", Level::Warning, &["CUPTI 13.2.86 has no such interface: v1 is used"]);
    tree.libraries.insert(file.clone(), 130_500);
    says(&tree.alone(&v2), "interface", Level::Note, &["driver 610", "error 39"]);
    tree.libraries.insert(file.clone(), 130_202);
    tree.asked.truncate(1);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
    let report = tree.alone(&environment);
    says(&report, "cupti", Level::Note, &["CUPTI 13.?", "not loaded to ask", "gtop probe"]);
    assert_eq!(tree.asked.len(), 1);

    let report = tree.alone(&[("GTOP_CUPTI", "/not/there.so")]);
    says(&report, "cupti", Level::Warning, &["no libcupti", "pip install"]);
}

#[test]
fn machines_that_nobody_could_try_are_told_and_labelled() {
    let mut tree = Tree::new();
    tree.write("/proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x)\n");
    tree.write("/dev/sev-guest", "");
    let mut sample = DeviceSample { name: "NVIDIA A10-24Q".into(), ..DeviceSample::default() };
    sample.mig.push(MigSample::default());
    sample.missing.push("memory: not supported".into());
    tree.devices = Ok(vec![sample]);
    let report = tree.alone(&[]);
    for (id, part) in
        [("wsl", "WSL"), ("confidential", "/dev/sev-guest"), ("vgpu", "A10-24Q"), ("mig", "MIG")]
    {
        says(&report, id, Level::Note, &[part, "(untested: no such machine was at hand)"]);
    }
    says(&report, "nvml", Level::Note, &["but not: memory: not supported"]);

    let mut tree = Tree::new();
    assert!(has(&tree.alone(&[("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")]), "mig"));
    tree.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi3/access", "");
    assert!(has(&tree.alone(&[]), "mig"));
}

#[test]
fn rights_are_read_from_proc() {
    let mut tree = Tree::new();
    let status = |tree: &Tree, bits: &str| tree.write("/proc/self/status", &format!("CapEff:\t{bits}\n"));
    for (scope, capable, level) in [
        ("0", false, Level::Ok),
        ("1", false, Level::Note),
        ("1", true, Level::Ok),
        ("2", true, Level::Ok),
        ("3", true, Level::Note),
    ] {
        status(&tree, if capable { "0000000000080000" } else { "0000000000000000" });
        tree.write("/proc/sys/kernel/yama/ptrace_scope", &format!("{scope}\n"));
        let report = tree.alone(&[]);
        assert_eq!(find(&report, "ptrace").level, level, "{scope} {capable}");
    }
    tree.write("/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n");
    let remedies = ["(35)", "as root", "CAP_SYS_ADMIN", "NVreg_RestrictProfilingToAdminUsers=0"];
    says(&tree.alone(&[]), "counters", Level::Note, &remedies);
    status(&tree, "0000000000200000");
    assert!(!has(&tree.alone(&[]), "counters"));
}

#[test]
fn containers_and_collectors_are_named() {
    let mut tree = Tree::new();
    let id = "0123456789abcdef".repeat(4);
    tree.write("/proc/self/cgroup", &format!("0::/system.slice/docker-{id}.scope\n"));
    tree.write("/proc/77/comm", "dcgm-exporter\n");
    let report = tree.alone(&[]);
    says(&report, "container", Level::Note, &["container 0123456789ab:"]);
    says(&report, "collectors", Level::Note, &["DCGM runs", "gtop reads none"]);
    tree.write("/proc/self/cgroup", "0::/\n");
    assert!(!has(&tree.alone(&[]), "container"));
    tree.write("/.dockerenv", "");
    assert!(has(&tree.alone(&[]), "container"));
}

#[test]
fn tools_that_hold_cupti_are_named() {
    let mut tree = Tree::new();
    let torch = format!("{PACKAGES}/torch/lib/libtorch_cpu.so");
    tree.process(&[("NSYS_PROFILING_SESSION_ID", "1")], &["/opt/libsanitizer-collection.so", &torch]);
    let report = tree.watched();
    says(&report, "tools", Level::Fault, &["compute-sanitizer and Nsight Systems", "39"]);
    says(&report, "profiler", Level::Note, &["torch.profiler", "gtop ctl"]);
    let injected = [(INJECTION, "/opt/nsys/libToolsInjection64.so")];
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    tree.process(&injected, &["/opt/nsys/libToolsInjection64.so"]);
    let report = tree.watched();
    says(&report, "injection", Level::Fault, &["/opt/nsys/libToolsInjection64.so", "unset it"]);
    says(&report, "tools", Level::Fault, &["Nsight Systems"]);
}

/// What the injection of a process is found to be.
fn injected(set: bool, mapped: &[&str], change: impl FnOnce(&mut Vec<u8>), libc: Option<&Path>) -> Report {
    let mut tree = Tree::new();
    let shim = embed::copy_to(tree.dir.path()).unwrap();
    let mut bytes = fs::read(&shim).unwrap();
    change(&mut bytes);
    fs::write(&shim, bytes).unwrap();
    if let Some(libc) = libc {
        fs::create_dir_all(tree.path("/lib64")).unwrap();
        symlink(libc, tree.path("/lib64/libc.so.6")).unwrap();
        fs::write(tree.path("/lib64/libgcc_s.so.1"), "").unwrap();
    }
    let environment = if set { vec![(INJECTION, "/libgtop_shim.so")] } else { vec![] };
    tree.process(&environment, mapped);
    tree.watched()
}

fn own_libc() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so.6") || line.contains("/libc-2.")).unwrap();
    line[line.find('/').unwrap()..].into()
}

#[test]
fn an_injection_is_followed_to_the_file_and_the_c_library() {
    let libc = own_libc();
    let nothing = |_: &mut Vec<u8>| {};
    let libc_mapped = ["/lib64/libc.so.6"];
    let fault = |report: Report, parts: &[&str]| says(&report, "injection", Level::Fault, parts);

    let report = injected(true, &libc_mapped, nothing, Some(&libc));
    says(&report, "injection", Level::Ok, &["will be loaded when", "needs GLIBC_2.", "there is GLIBC_2."]);
    let report = injected(true, &["/lib64/libc.so.6", "/libgtop_shim.so"], nothing, Some(&libc));
    says(&report, "injection", Level::Ok, &["the shim is loaded"]);
    says(&report, "reach", Level::Ok, &["/run/x.sock"]);

    let put_in = injected(false, &["/lib64/libc.so.6", "/cache/libgtop_shim.so"], nothing, Some(&libc));
    says(&put_in, "injection", Level::Ok, &["the shim is loaded: /cache/libgtop_shim.so"]);
    let next = ["started without", "gtop --attach 844", "--inject", "gtop run"];
    fault(injected(false, &libc_mapped, nothing, Some(&libc)), &next);
    let late = ["/lib64/libc.so.6", LIBCUDA];
    fault(injected(true, &late, nothing, Some(&libc)), &["CUDA is loaded without it", "restart"]);
    fault(injected(true, &libc_mapped, |bytes| bytes[18] = 183, Some(&libc)), &["another kind of processor"]);
    fault(injected(true, &libc_mapped, Vec::clear, Some(&libc)), &["not a shared library"]);
    fault(injected(true, &["/lib/ld-musl-x86_64.so.1"], nothing, Some(&libc)), &["musl"]);
    fault(injected(true, &[], nothing, None), &["libgcc_s.so.1", "in none of the loader's folders"]);

    // A C library that defines no version at all is older than any.
    let dir = tempfile::tempdir().unwrap();
    let old = embed::copy_to(dir.path()).unwrap();
    fault(injected(true, &libc_mapped, nothing, Some(&old)), &["needs GLIBC_2.", "an older one"]);
}

#[test]
fn a_library_in_another_file_system_is_not_there() {
    let mut tree = Tree::new();
    tree.process(&[(INJECTION, "/host/only/libgtop_shim.so")], &[]);
    says(
        &tree.watched(),
        "injection",
        Level::Fault,
        &["/host/only/libgtop_shim.so", "No such file", "--copy"],
    );
    // Whatever its name: nobody's library is there.
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    tree.process(&[(INJECTION, "/host/only/\x1b[31mother.so")], &[]);
    says(&tree.watched(), "injection", Level::Fault, &["/host/only/\u{241b}[31mother.so", "No such file"]);
}

#[test]
fn the_folder_of_the_socket_is_looked_at() {
    let mut tree = Tree::new();
    let here = |tree: &mut Tree, dir: &str| tree.alone(&[("XDG_RUNTIME_DIR", dir)]);
    fs::create_dir_all(tree.path("/run/user/1")).unwrap();
    says(&here(&mut tree, "/run/user/1"), "socket", Level::Ok, &["/run/user/1/gtop will be made"]);
    fs::create_dir(tree.path("/run/user/1/gtop")).unwrap();
    let mode = |tree: &Tree, mode| {
        fs::set_permissions(tree.path("/run/user/1/gtop"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&tree, 0o755);
    says(&here(&mut tree, "/run/user/1"), "socket", Level::Warning, &["mode 0755", "chmod 700"]);
    mode(&tree, 0o700);
    says(&here(&mut tree, "/run/user/1"), "socket", Level::Ok, &["private folder"]);
    says(&here(&mut tree, "/gone"), "socket", Level::Warning, &["parent folder is not there"]);
    let long = format!("/{}", "d".repeat(120));
    says(&here(&mut tree, &long), "socket", Level::Note, &["too long", "/tmp/gtop-"]);
    tree.write("/x/gtop", "");
    says(&here(&mut tree, "/x"), "socket", Level::Warning, &["it is no folder"]);
    tree.uid += 1;
    says(&here(&mut tree, "/run/user/1"), "socket", Level::Warning, &["it belongs to uid", "elsewhere"]);
}

#[test]
fn another_users_process_is_not_ours_to_watch() {
    let mut tree = Tree::new();
    tree.process(&[], &[]);
    tree.uid = 4_000_001;
    says(&tree.watched(), "owner", Level::Fault, &["this user is uid 4000001", "as root"]);
    tree.uid = 0;
    assert!(!has(&tree.watched(), "owner"));
    fs::remove_dir_all(tree.path(&format!("/proc/{PID}"))).unwrap();
    says(&tree.watched(), "process", Level::Fault, &["cannot be looked into"]);
}

#[test]
fn what_is_in_the_way_of_a_socket_is_said_with_the_process() {
    let mut tree = Tree::new();
    tree.process(&[], &[]);
    let reach = Reach::Closed { why: "no socket".into(), next: "GTOP_LOG".into() };
    let report = examine(&tree.machine(&[]), &mut tree, &[Aim { pid: PID, reach }]);
    says(&report, "reach", Level::Fault, &["no socket", "GTOP_LOG"]);
    assert_eq!((find(&report, "reach").pid, find(&report, "driver").pid), (Some(PID), None));
}

#[test]
fn the_version_that_cupti_told_the_shim_is_believed() {
    let mut tree = Tree::new();
    tree.write("/opt/cupti/libcupti.so.13", "");
    tree.process(&[], &[LIBCUDA, "/opt/cupti/libcupti.so.13"]);
    says(&tree.watched(), "cupti", Level::Note, &["it has CUPTI 13.?"]);
    let cupti = |path: &str| {
        let mut told = Told::default();
        told.cupti = Some((gtop_protocol::cupti::CuptiVersion(130_202), path.into()));
        told
    };
    let report = tree.told(cupti("/opt/cupti/libcupti.so.13"));
    says(&report, "cupti", Level::Warning, &["it has CUPTI 13.2.86 (130202)", "defective"]);
    says(&tree.told(cupti("/elsewhere.so")), "cupti", Level::Note, &["it has CUPTI 13.?"]);
}

#[test]
fn the_json_has_its_keys() {
    let mut tree = Tree::new();
    tree.wheel("cu13", "libcupti.so.13", "nvidia_cuda_cupti-13.0.85");
    let report = tree.alone(&[("VIRTUAL_ENV", "/venv")]);
    let mut bytes = Vec::new();
    json::write(&report, &mut bytes).unwrap();
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&json["schema"], &json["level"]), (&"gtop.doctor/1".into(), &"fault".into()));
    let finding = json["findings"][0].as_object().unwrap();
    let keys: Vec<&str> = finding.keys().map(String::as_str).collect();
    assert_eq!(keys, ["id", "level", "next_step", "pid", "sentence"]);
    let copy = &json["cupti"][0];
    assert_eq!((&copy["version"], &copy["release"]), (&130_001.into(), &"13.0.85".into()));
    assert_eq!(
        (&copy["verdict"], &copy["chosen"], &copy["mapped"]),
        (&"defective".into(), &true.into(), &false.into())
    );
}
