//! Who this process is, from /proc, read once by the I/O thread.
#![expect(clippy::disallowed_methods, reason = "a few texts at the start, for which there is the reserve")]

use crate::sys;
use std::path::Path;

/// Bytes of a command line kept.
const MOST_COMMAND: usize = 4 << 10;
/// Bytes of each other text kept.
const MOST_TEXT: usize = 4 << 10;

/// Environment variables that tell ranks, jobs and devices apart. No other leaves the process.
const ALLOWED: [&str; 22] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "LSB_JOBID",
    "PBS_JOBID",
    "JOB_ID",
    "VLLM_DP_RANK",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HOSTNAME",
    "POD_NAME",
];

/// The identity of this process.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) start_time: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) command: Vec<u8>,
    pub(crate) cgroup: Vec<u8>,
    pub(crate) container: Vec<u8>,
    pub(crate) pod: Vec<u8>,
    pub(crate) mig: Vec<u8>,
    pub(crate) environment: Vec<u8>,
    pub(crate) boot_id: Vec<u8>,
}

impl Identity {
    /// Reads it. What cannot be read is empty.
    pub(crate) fn read() -> Self {
        let text = |path: &str| trimmed(std::fs::read(path).unwrap_or_default());
        let cgroups = text("/proc/self/cgroup");
        let cgroup = cgroup_path(&cgroups).to_vec();
        let mounts = text("/proc/self/mountinfo");
        let container = container_id(&cgroup).or_else(|| container_id(&mounts)).unwrap_or_default();
        let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
        Self {
            start_time: start_time(sys::pid()).unwrap_or(0),
            name: text("/proc/self/comm"),
            command: cut(text("/proc/self/cmdline"), MOST_COMMAND),
            container: container.to_vec(),
            pod: pod_id(&cgroup).unwrap_or_default(),
            cgroup: cut(cgroup, MOST_TEXT),
            mig: cut(mig_ids(&environment), MOST_TEXT),
            environment: cut(allowed(&environment), MOST_TEXT),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
        }
    }
}

/// When a process started, clock ticks after boot (field 22 of its stat).
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    parse_start_time(&stat)
}

fn parse_start_time(stat: &[u8]) -> Option<u64> {
    // The name, field 2, may hold anything, brackets and spaces too; the last bracket ends it.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(stat.get(end.checked_add(1)?..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn trimmed(mut text: Vec<u8>) -> Vec<u8> {
    while text.last().is_some_and(|byte| matches!(byte, b'\n' | 0)) {
        text.pop();
    }
    text
}

fn cut(mut text: Vec<u8>, most: usize) -> Vec<u8> {
    text.truncate(most);
    text
}

/// The path of the unified hierarchy, or of the first one listed.
fn cgroup_path(cgroups: &[u8]) -> &[u8] {
    let mut lines = cgroups.split(|byte| *byte == b'\n');
    let first = lines.clone().next().unwrap_or_default();
    let line = lines.find(|line| line.starts_with(b"0::")).unwrap_or(first);
    line.splitn(3, |byte| *byte == b':').nth(2).unwrap_or_default()
}

/// A run of 64 hex digits, as container runtimes name containers.
fn container_id(text: &[u8]) -> Option<&[u8]> {
    text.split(|byte| !byte.is_ascii_hexdigit()).find(|run| run.len() == 64)
}

/// The pod's UUID in a cgroup path such as `…/kubepods-burstable-pod1f…_….slice/…`.
fn pod_id(cgroup: &[u8]) -> Option<Vec<u8>> {
    let at = cgroup.windows(3).enumerate().filter(|(_, window)| *window == b"pod").find_map(|(at, _)| {
        let id = cgroup.get(at.checked_add(3)?..at.checked_add(39)?)?;
        let shape = |(i, byte): (usize, &u8)| match i {
            8 | 13 | 18 | 23 => matches!(byte, b'-' | b'_'),
            _ => byte.is_ascii_hexdigit(),
        };
        id.iter().enumerate().all(shape).then_some(id)
    })?;
    Some(at.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect())
}

fn variables(environment: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    environment.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = variable.split_at_checked(at)?;
        Some((name, value.get(1..)?))
    })
}

fn allowed(environment: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for (name, value) in variables(environment) {
        if ALLOWED.iter().any(|allowed| allowed.as_bytes() == name) {
            if !kept.is_empty() {
                kept.push(0);
            }
            kept.extend_from_slice(name);
            kept.push(b'=');
            kept.extend_from_slice(value.get(..256).unwrap_or(value));
        }
    }
    kept
}

fn mig_ids(environment: &[u8]) -> Vec<u8> {
    let devices = variables(environment).find(|(name, _)| *name == b"CUDA_VISIBLE_DEVICES");
    let ids = devices.map(|(_, value)| value).unwrap_or_default();
    let mig: Vec<&[u8]> = ids.split(|byte| *byte == b',').filter(|id| id.starts_with(b"MIG-")).collect();
    mig.join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_an_identity() {
        let identity = Identity::read();
        assert!(identity.start_time > 0);
        assert!(!identity.name.is_empty() && !identity.command.is_empty() && !identity.boot_id.is_empty());
    }

    #[test]
    fn a_name_full_of_brackets_hides_no_start_time() {
        let stat =
            b"844 (a) (b) S 1 844 844 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 987654 1000 50 184467440";
        assert_eq!(parse_start_time(stat), Some(987_654));
        assert_eq!(parse_start_time(b"844 (cut"), None);
    }

    #[test]
    fn containers_and_pods_are_found_in_cgroups() {
        let id = "0123456789abcdef".repeat(4);
        let systemd = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e3d4c_aaaa_bbbb_cccc_0123456789ab.slice/cri-containerd-{id}.scope"
        );
        let path = cgroup_path(systemd.as_bytes());
        assert_eq!(container_id(path), Some(id.as_bytes()));
        assert_eq!(pod_id(path), Some(b"1f2e3d4c-aaaa-bbbb-cccc-0123456789ab".to_vec()));
        let docker = format!("12:devices:/docker/{id}\n11:cpu:/docker/{id}");
        assert_eq!(cgroup_path(docker.as_bytes()), format!("/docker/{id}").as_bytes());
        assert_eq!((container_id(b"/user.slice"), pod_id(b"/podium/pod")), (None, None));
    }

    #[test]
    fn only_the_allowed_environment_leaves() {
        let environment =
            b"PATH=/bin\0RANK=3\0AWS_SECRET_ACCESS_KEY=x\0CUDA_VISIBLE_DEVICES=MIG-aa,0,MIG-bb\0BROKEN\0";
        assert_eq!(allowed(environment), b"RANK=3\0CUDA_VISIBLE_DEVICES=MIG-aa,0,MIG-bb");
        assert_eq!(mig_ids(environment), b"MIG-aa\0MIG-bb");
        assert_eq!(mig_ids(b""), b"");
    }
}
