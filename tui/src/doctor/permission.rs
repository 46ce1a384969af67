//! What this user may do: look into others, give a running process the shim, read counters; and in which container.

use super::finding::Finding;
use super::machine::Machine;
use crate::system::container;

/// Bits of `CapEff` in `/proc/PID/status` (`linux/capability.h`).
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// All findings about permissions.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let status = machine.text("/proc/self/status").unwrap_or_default();
    let mut findings = vec![ptrace(machine, has(&status, CAP_SYS_PTRACE))];
    findings.extend(counters(machine, has(&status, CAP_SYS_ADMIN) || has(&status, CAP_PERFMON)));
    findings.extend(in_container(machine));
    findings
}

/// Whether a capability is in effect.
fn has(status: &str, capability: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default();
    bits >> capability & 1 == 1
}

/// Only giving the shim to a process that already runs takes ptrace; watching one that has it does not.
fn ptrace(machine: &Machine, capable: bool) -> Finding {
    const NEXT: &str =
        "start it with `gtop run`, or with CUDA_INJECTION64_PATH=$(gtop shim), which takes no such right";
    let scope = machine.text("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim) {
        None | Some("0") => {
            Finding::ok("ptrace", "a process that runs can be given the shim by its own user (ptrace is not restricted)")
        }
        Some("1" | "2") if capable => {
            Finding::ok("ptrace", "a process that runs can be given the shim, thanks to CAP_SYS_PTRACE")
        }
        Some("3") => {
            Finding::note("ptrace", "no process that runs can be given the shim (yama ptrace_scope 3)").then(NEXT)
        }
        Some(scope) => Finding::note(
            "ptrace",
            format!("a process that runs can be given the shim only with CAP_SYS_PTRACE (yama ptrace_scope {scope})"),
        )
        .then(NEXT),
    }
}

/// Tracing needs no counters, but the same setting makes some installations refuse it.
fn counters(machine: &Machine, capable: bool) -> Option<Finding> {
    let parameters = machine.text("/proc/driver/nvidia/params")?;
    let value = parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    (value.trim() == "1" && !capable).then(|| {
        Finding::note(
            "counters",
            format!(
                "the driver keeps performance counters for administrators (RmProfilingAdminOnly 1, and this user, uid \
                 {}, has neither CAP_SYS_ADMIN nor CAP_PERFMON); tracing uses none of them, but where CUPTI refuses a \
                 kind with CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35), this is why",
                machine.uid
            ),
        )
        .then(
            "one of: run as root in the container; add CAP_SYS_ADMIN or CAP_PERFMON; load the module with \
             NVreg_RestrictProfilingToAdminUsers=0",
        )
    })
}

fn in_container(machine: &Machine) -> Option<Finding> {
    let read = |name: &str| machine.text(&format!("/proc/self/{name}")).unwrap_or_default();
    let place = container::from_texts(&read("cgroup"), &read("mountinfo"));
    let marked = machine.has("/.dockerenv") || machine.has("/run/.containerenv");
    let name = match (&place.container, &place.pod) {
        (_, Some(pod)) => format!("pod {pod}"),
        (Some(id), None) => format!("container {}", id.get(..12).unwrap_or(id)),
        (None, None) if marked => "a container".to_owned(),
        (None, None) => return None,
    };
    Some(Finding::note(
        "container",
        format!(
            "this is {name}: only its own processes can be watched from here, and NVML may number them otherwise"
        ),
    ))
}
