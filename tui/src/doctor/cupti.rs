//! What follows from the copy of CUPTI a process has or would get: whether it is sound, whether driver and GPU suit
//! it, and what watching costs.

use gtop_protocol::cupti::{CuptiVersion, Verdict};

use super::ask::Cuda;
use super::copies::{Copies, Copy, is_cuda};
use super::finding::Finding;
use super::machine::Subject;
use crate::probe::load::Gpu;
use crate::system::process::readable;

/// What a process without any is told to get.
const NEWEST: CuptiVersion = CuptiVersion(130_500);

/// The first `cuptiGetVersion` that knows a compute capability (NVIDIA's release notes of CUDA 12.8, 12.9 and 13.0;
/// not measured).
const SINCE: [((i32, i32), u32); 6] =
    [((10, 0), 26), ((10, 1), 26), ((10, 3), 28), ((11, 0), 130_000), ((12, 0), 26), ((12, 1), 28)];

/// The first version with an interface v2 that is no beta (`cupti_activity.h`).
const FIRST_V2: CuptiVersion = CuptiVersion(130_300);

/// All findings about CUPTI for one process.
pub(super) fn findings(subject: &Subject, copies: &Copies, cuda: Option<&Cuda>) -> Vec<Finding> {
    let Some(chosen) = copies.chosen() else { return vec![none(subject, copies)] };
    let mut findings = vec![verdict(subject, copies, chosen)];
    findings.extend(others(copies, chosen));
    findings.extend(interface(subject, chosen));
    if let Some(cuda) = cuda {
        findings.extend(driver(copies, chosen, cuda.driver));
        findings.extend(cuda.devices.iter().find_map(|gpu| too_old(chosen, gpu)));
    }
    findings.push(cost(chosen));
    findings
}

/// What asking for CUPTI's interface v2 comes to.
fn interface(subject: &Subject, chosen: &Copy) -> Option<Finding> {
    if subject.variable("GTOP_INTERFACE")? != "v2" {
        return None;
    }
    let none = |version: &CuptiVersion| *version < FIRST_V2;
    if let Some(version) = chosen.version.filter(none) {
        let sentence =
            format!("GTOP_INTERFACE=v2 is set, and CUPTI {version} has no such interface: v1 is used");
        return Some(Finding::warning("interface", sentence, NEWEST.cure()));
    }
    let sentence = "interface v2 (GTOP_INTERFACE): from driver 610 on other users of v2 can share CUPTI; those of v1, \
                    torch.profiler among them, get error 39 while gtop is subscribed";
    Some(Finding::note("interface", sentence.to_owned()))
}

fn none(subject: &Subject, copies: &Copies) -> Finding {
    if copies.mapped() > 1 {
        let paths: Vec<String> =
            copies.all.iter().filter(|copy| copy.mapped).map(|copy| readable(&copy.path)).collect();
        return Finding::fault(
            "cupti",
            format!(
                "two copies of CUPTI are mapped, and CUPTI has one home in a process: {}",
                paths.join(", ")
            ),
            "keep one of them off LD_LIBRARY_PATH and LD_PRELOAD, or uninstall it, and restart the process",
        );
    }
    let sentence = format!(
        "no libcupti for {}: none beside torch, in pip's nvidia folders, in a toolkit, or on the loader's path",
        subject.name
    );
    let (newest, older) = (NEWEST.cure(), CuptiVersion(26).cure());
    let next = format!("{newest}; for CUDA 12: {older}");
    // Before CUDA begins a process may yet map what leads to one.
    if subject.mapped(is_cuda).is_some() {
        Finding::fault("cupti", sentence, next)
    } else {
        Finding::warning("cupti", sentence, next)
    }
}

fn verdict(subject: &Subject, copies: &Copies, chosen: &Copy) -> Finding {
    let has = match (copies.mapped(), subject.pid) {
        (0, Some(_)) => "it would get",
        (0, None) => "a program started here would get, if it brings none of its own,",
        _ => "it has",
    };
    let (name, path) = (chosen.name(), readable(&chosen.path));
    let Some(version) = chosen.version else {
        return Finding::note("cupti", format!("{has} {name}, {path}: {}", chosen.how))
            .then("`gtop probe --cupti PATH` finds out on this GPU");
    };
    let reason = version.reason();
    let sentence = format!("{has} {name} ({}), {path}, {}: {reason}", version.0, version.verdict().name());
    match version.verdict() {
        Verdict::Sound => Finding::ok("cupti", sentence),
        Verdict::Unknown => {
            Finding::note("cupti", sentence).then("`gtop probe --cupti PATH` finds out on this GPU")
        }
        Verdict::Defective => Finding::warning(
            "cupti",
            sentence,
            format!(
                "leave memcpy and memset on, as gtop does; or {}; `gtop probe` shows it on this GPU",
                version.cure()
            ),
        ),
    }
}

/// The copies that are not used, in one finding.
fn others(copies: &Copies, chosen: &Copy) -> Option<Finding> {
    let beside: Vec<&Copy> = copies.all.iter().filter(|copy| *copy != chosen && copy.mapped).collect();
    if let [second, ..] = beside.as_slice() {
        let sentence = format!(
            "{} is mapped beside the preloaded {}, as PyTorch does: it does no harm as long as nothing uses it, which the \
             shim makes sure of",
            readable(&second.path),
            readable(&chosen.path)
        );
        return Some(Finding::note("cupti-copies", sentence));
    }
    let others: Vec<String> = copies
        .all
        .iter()
        .filter(|copy| *copy != chosen)
        .map(|copy| format!("{} ({})", readable(&copy.path), copy.name()))
        .collect();
    let sentence = || format!("there are other copies of CUPTI, which are not used: {}", others.join(", "));
    (!others.is_empty()).then(|| {
        Finding::note("cupti-copies", sentence()).then("`gtop run --cupti PATH -- CMD` uses one of them")
    })
}

/// CUPTI must not be of a newer major version than the driver; within one major version newer ones were seen to
/// work (measured: 13.1 to 13.5 with a driver for 13.0).
fn driver(copies: &Copies, chosen: &Copy, driver: i32) -> Option<Finding> {
    let have = (u32::try_from(driver / 1000).ok()?, u32::try_from(driver % 1000 / 10).ok()?);
    let needs = |copy: &Copy| copy.cuda().is_some_and(|(major, _)| major > have.0);
    let (major, minor) = chosen.cuda()?;
    let number = minor.map_or(major.to_string(), |minor| format!("{major}.{minor}"));
    let have_text = format!("{}.{}", have.0, have.1);
    if needs(chosen) {
        let fits = copies.all.iter().find(|copy| copy.cuda().is_some() && !needs(copy));
        let next = match fits {
            Some(copy) => format!("`gtop run --cupti {} -- CMD` uses {}", readable(&copy.path), copy.name()),
            None => format!("upgrade the driver, or: pip install nvidia-cuda-cupti-cu{}", have.0),
        };
        let sentence = format!("CUPTI {number} needs a newer driver (have {have_text})");
        return Some(Finding::fault("cupti-driver", sentence, next));
    }
    (minor.is_some_and(|minor| (major, minor) > have)).then(|| {
        Finding::note(
            "cupti-driver",
            format!(
                "CUPTI {number} is newer than the driver, which is for CUDA {have_text}; CUPTI 13.1 to 13.5 were \
                 measured to work with a driver for 13.0"
            ),
        )
    })
}

/// CUPTI that does not know the GPU collects nothing and says nothing.
fn too_old(chosen: &Copy, gpu: &Gpu) -> Option<Finding> {
    let version = chosen.version?;
    let (_, since) = SINCE.iter().find(|(capability, _)| *capability == gpu.capability)?;
    let (major, minor) = gpu.capability;
    (version.0 < *since).then(|| {
        Finding::warning(
            "cupti-gpu",
            format!(
                "{} may not support this GPU, {} of compute capability {major}.{minor}: it then collects nothing \
                 and reports no error (from release notes, untested here)",
                chosen.name(),
                gpu.name
            ),
            format!("use CUPTI {} or newer: {}", CuptiVersion(*since), CuptiVersion(*since).cure()),
        )
    })
}

/// What watching costs, as measured.
fn cost(chosen: &Copy) -> Finding {
    let newer = chosen.version.is_some_and(|version| version.0 >= 130_300);
    let (kernels, measured) = if newer { ("33 to 155 %", "13.5.25") } else { ("42 to 125 %", "13.0.85") };
    let rest = if newer {
        "at rest, all kinds off, CUPTI goes on to cost graphs of tiny kernels 0.5 to 5 %"
    } else {
        "at rest, where memcpy stays on, graphs of small kernels take 5 to 20 % longer, and with all kinds off CUPTI goes on \
         to cost 0.5 to 5 %"
    };
    Finding::note(
        "cost",
        format!(
            "watching costs what CUPTI's tracing costs: graphs of tiny kernels took {kernels} longer (CUPTI \
             {measured}), a vLLM server lost about a fifth of its tokens (13.0.85), and 12 to 16 MiB of GPU memory \
             stay taken; {rest}; not yet watched, nothing. \
             After --early the callbacks cost those graphs 8 % and kernels launched one by one some 10 %, its tracing \
             goes on unwatched (106 to 209 % and 15 to 55 %), and rest gives little or nothing back. \
             Measured on one H200, driver 580.159.04"
        ),
    )
    .then("arm after warm-up: `gtop run --arm later -- CMD`, or attach to a server that runs")
}
