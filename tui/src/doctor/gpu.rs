//! Driver and devices: whether CUDA can be used here at all, and the kinds of machine on which it is different.

use super::ask::Cuda;
use super::finding::Finding;
use super::machine::Machine;
use crate::probe::text::cuda as cuda_version;
use crate::system::nvml::DeviceSample;

/// How findings end that nobody could try.
const UNTESTED: &str = "(untested: no such machine was at hand)";

/// All findings about driver and devices.
pub(super) fn findings(
    machine: &Machine,
    cuda: &Result<Cuda, String>,
    devices: &Result<Vec<DeviceSample>, String>,
) -> Vec<Finding> {
    let mut findings = vec![driver(machine, cuda), nvml(devices)];
    findings.extend(mig(machine, devices));
    findings.extend(vgpu(cuda, devices));
    findings.extend(wsl(machine));
    findings.extend(confidential(machine));
    findings
}

/// The kernel module's version, from a line such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  …`.
fn module_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version)
}

fn driver(machine: &Machine, cuda: &Result<Cuda, String>) -> Finding {
    let text = machine.text("/proc/driver/nvidia/version");
    let module = text.as_deref().and_then(module_version);
    let name = module.map_or("the driver".to_owned(), |version| format!("driver {version}"));
    match cuda {
        Ok(cuda) if cuda.devices.is_empty() => Finding::fault(
            "driver",
            format!("{name} is there and lets this user see no device"),
            "see CUDA_VISIBLE_DEVICES, and the devices passed into this container",
        ),
        Ok(cuda) => {
            let names: Vec<String> = cuda
                .devices
                .iter()
                .map(|gpu| format!("{} ({}.{})", gpu.name, gpu.capability.0, gpu.capability.1))
                .collect();
            let version = cuda_version(cuda.driver);
            Finding::ok("driver", format!("{name} for CUDA {version}; devices: {}", names.join(", ")))
        }
        Err(why) if module.is_none() => Finding::fault(
            "driver",
            format!("CUDA cannot be used here: {why}"),
            "install the driver; without a GPU there is `gtop demo`",
        ),
        Err(why) if !machine.has("/dev/nvidiactl") => Finding::fault(
            "driver",
            format!("{name} runs on this machine, but no device is passed into this container: {why}"),
            "docker run --gpus all, or nvidia.com/gpu in the pod's limits",
        ),
        Err(why) => Finding::fault(
            "driver",
            format!("{name} runs, but CUDA cannot be used: {why}"),
            "see `nvidia-smi` and `dmesg`; after an upgrade of the driver the machine needs a restart",
        ),
    }
}

fn nvml(devices: &Result<Vec<DeviceSample>, String>) -> Finding {
    let devices = match devices {
        Ok(devices) => devices,
        Err(why) => {
            return Finding::warning(
                "nvml",
                format!("memory, power and clocks of devices cannot be shown: {why}"),
                "in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility; kernels are shown all the same",
            );
        }
    };
    let mut missing: Vec<&str> =
        devices.iter().flat_map(|device| &device.missing).map(String::as_str).collect();
    missing.sort_unstable();
    missing.dedup();
    let number = match devices.len() {
        1 => "1 device".to_owned(),
        number => format!("{number} devices"),
    };
    if missing.is_empty() {
        Finding::ok("nvml", format!("NVML answers for {number}"))
    } else {
        Finding::note("nvml", format!("NVML answers for {number}, but not: {}", missing.join(", ")))
    }
}

fn mig(machine: &Machine, devices: &Result<Vec<DeviceSample>, String>) -> Option<Finding> {
    let parts: usize = devices.iter().flatten().map(|device| device.mig.len()).sum();
    let visible = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"].iter().any(|name| {
        machine.environment.iter().any(|(found, value)| {
            found == name && value.to_string_lossy().split(',').any(|id| id.starts_with("MIG-"))
        })
    });
    let instances = machine.names("/proc/driver/nvidia/capabilities").iter().any(|gpu| {
        let folder = format!("/proc/driver/nvidia/capabilities/{gpu}/mig");
        machine.names(folder).iter().any(|name| name.starts_with("gi"))
    });
    (parts > 0 || visible || instances).then(|| {
        Finding::note(
            "mig",
            format!(
                "MIG divides a GPU here: records name the part, and NVML may keep back figures of the whole {UNTESTED}"
            ),
        )
        .then("choose the part with CUDA_VISIBLE_DEVICES=MIG-UUID")
    })
}

/// A guest's part of a GPU has a profile in its name: `NVIDIA A10-24Q`, `GRID T4-16Q`.
fn is_vgpu(name: &str) -> bool {
    let profile = name.rsplit(['-', ' ']).next().unwrap_or_default();
    let digits = profile.trim_end_matches(['A', 'B', 'C', 'Q']);
    let has_profile = name.contains('-')
        && digits.len() + 1 == profile.len()
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    name.starts_with("GRID ") || has_profile
}

fn vgpu(cuda: &Result<Cuda, String>, devices: &Result<Vec<DeviceSample>, String>) -> Option<Finding> {
    let by_cuda = cuda.iter().flat_map(|cuda| cuda.devices.iter().map(|gpu| gpu.name.as_str()));
    let by_nvml = devices.iter().flatten().map(|device| device.name.as_str());
    let name = by_cuda.chain(by_nvml).find(|name| is_vgpu(name))?;
    Some(
        Finding::note(
            "vgpu",
            format!(
                "{name} is a vGPU: its host decides whether it may be profiled, and a live migration waits while CUPTI \
                 is in use {UNTESTED}"
            ),
        )
        .then("have the host set enable_profiling=1 for this vGPU; `gtop probe --quick` shows whether records come"),
    )
}

fn wsl(machine: &Machine) -> Option<Finding> {
    let version = machine.text("/proc/version").unwrap_or_default().to_lowercase();
    (version.contains("microsoft") || machine.has("/dev/dxg")).then(|| {
        Finding::note(
            "wsl",
            format!(
                "this is WSL: NVML knows no memory of single processes, and CUPTI's clock is not the host's \
                 {UNTESTED}"
            ),
        )
        .then("take memory from the process's own figures; `gtop probe --quick` shows whether records come")
    })
}

fn confidential(machine: &Machine) -> Option<Finding> {
    let found = ["/dev/sev-guest", "/dev/tdx_guest"].into_iter().find(|device| machine.has(device))?;
    Some(
        Finding::note(
            "confidential",
            format!(
                "this is a confidential virtual machine ({found}): with the GPU in that mode too, CUPTI may refuse to \
                 trace {UNTESTED}"
            ),
        )
        .then("`gtop probe --quick` shows whether records come; NVIDIA's developer mode allows profiling"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_version_is_found_in_both_wordings() {
        let proprietary =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Nov  4 2025\nGCC version:";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release Build  (u@h)";
        assert_eq!(module_version(proprietary), Some("580.159.04"));
        assert_eq!(module_version(open), Some("535.54.03"));
        assert_eq!(module_version("nonsense 1.2"), None);
    }

    #[test]
    fn profiles_are_told_from_names() {
        for name in ["NVIDIA A10-24Q", "GRID T4-16Q", "NVIDIA H100-80C", "GRID V100D"] {
            assert!(is_vgpu(name), "{name}");
        }
        for name in
            ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla V100-PCIE-16GB", "NVIDIA RTX A6000", "", "A-"]
        {
            assert!(!is_vgpu(name), "{name}");
        }
    }
}
