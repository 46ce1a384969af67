//! Other tools that hold CUPTI, or may come to: CUPTI serves one of them at a time.

use gtop_shim::places::HOLDERS;

use super::finding::Finding;
use super::machine::{Machine, Subject};
use crate::system::embed;

/// Programs of the machine that collect from GPUs: the name in `/proc/PID/comm`, and who that is.
const COLLECTORS: [(&str, &str); 4] = [
    ("nv-hostengine", "DCGM"),
    ("dcgm-exporter", "DCGM"),
    ("dcgmproftester", "DCGM's test load"),
    ("dynolog", "dynolog"),
];

/// Findings about programs beside the one that is watched.
pub(super) fn of_machine(machine: &Machine) -> Option<Finding> {
    let pids =
        machine.names("/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let comms = pids.filter_map(|pid| machine.text(&format!("/proc/{pid}/comm")));
    let mut found: Vec<&str> = Vec::new();
    for comm in comms {
        let tool = COLLECTORS.iter().find(|(name, _)| comm.trim().starts_with(name)).map(|(_, tool)| *tool);
        found.extend(tool.filter(|tool| !found.contains(tool)));
    }
    (!found.is_empty()).then(|| {
        Finding::note(
            "collectors",
            format!(
                "{} runs on this machine; it and tools that read counters shut each other out, but gtop reads none and \
                 can run beside it",
                found.join(" and ")
            ),
        )
    })
}

/// Findings about tools inside a process.
pub(super) fn of_subject(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut held: Vec<&str> = Vec::new();
    let injected: Vec<String> = ["CUDA_INJECTION64_PATH", "LD_PRELOAD"]
        .iter()
        .filter_map(|name| subject.variable(name))
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    for (library, tool) in HOLDERS {
        let is_profiler = ["libtorch_cpu", "libtensorflow_framework"].contains(&library);
        let mapped = subject.mapped(|name| name.starts_with(library)).is_some();
        let named = injected.iter().any(|value| value.contains(library));
        if is_profiler && mapped {
            findings.push(
                Finding::note(
                    "profiler",
                    format!("{tool} is in this process: while it records it has CUPTI, and while gtop watches it cannot"),
                )
                .then("rest gtop before profiling with it: `gtop ctl --attach PID rest`"),
            );
        } else if (mapped || named) && !held.contains(&tool) {
            held.push(tool);
        }
    }
    let nsys = subject.environment.iter().any(|(name, _)| name.as_encoded_bytes().starts_with(b"NSYS_"));
    if nsys && !held.contains(&"Nsight Systems") {
        held.push("Nsight Systems");
    }
    if !held.is_empty() {
        findings.push(Finding::fault(
            "tools",
            format!("{} is in this process and holds CUPTI (error 39 for everyone else)", held.join(" and ")),
            "start the process without it; gtop tries again every 5 s and goes on when it lets go",
        ));
    }
    if subject.variable("KINETO_USE_DAEMON").is_some() {
        findings.push(Finding::note(
            "profiler",
            "KINETO_USE_DAEMON is set: dynolog can start torch.profiler in this process, which then needs CUPTI",
        ));
    }
    findings
}

/// Whether a path is that of gtop's shim.
pub(super) fn is_shim(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name == embed::FILE_NAME)
}
