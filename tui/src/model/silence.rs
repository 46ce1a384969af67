//! Silence that only NVML tells: the GPU works, the shim is armed, and no kernel record comes. Where nothing but kernels
//! is recorded the shim cannot tell that from a process at rest.

use std::sync::Arc;

use gtop_protocol::Kind;
use gtop_protocol::message::StateCode;

use super::snapshot::{Device, Link, Process};

/// How long no kernel record must have come, seconds.
const QUIET: f64 = 2.0;
/// The share of time a GPU must have worked, percent. Below it another program may have used it for a moment.
const WORKS: u64 = 10;

/// How long it may take until the next kernel record, seconds: under a budget there is none between windows, which come
/// at random moments.
fn patience(process: &Process) -> f64 {
    let sampling = process.sampling.as_ref().filter(|sampling| sampling.budget_ppm > 0);
    QUIET + sampling.map_or(0.0, |sampling| 2.0 * sampling.period_ns as f64 / 1e9)
}

/// What is to be said of a process of which no kernel record has come for `quiet` seconds although it is armed, where
/// nothing tells whether it is idle or CUPTI has gone quiet. `None` where something does.
pub(super) fn doubt(process: &Process, devices: &[Device], quiet: f64) -> Option<String> {
    let watches = process.state == StateCode::Armed
        && process.link == Link::Up
        && process.kinds.enabled.has(Kind::Kernel)
        && quiet >= patience(process);
    // The shim tells by launch records that work goes on.
    let tells = process.kinds.enabled.has(Kind::Runtime) || process.kinds.enabled.has(Kind::Driver);
    if !watches || tells {
        return None;
    }
    let of = |device: &&Device| process.gpu_memory.iter().any(|own| own.device == device.index);
    let own: Vec<&Device> = devices.iter().filter(of).filter(|device| device.age + 1.0 < quiet).collect();
    let at_rest = |device: &&Device| device.gpu_percent.is_some_and(|percent| percent < WORKS);
    if !own.is_empty() && own.iter().all(at_rest) {
        return None;
    }
    let why = match own.iter().map(|device| device.processes.len()).max() {
        None => "NVML says nothing of its GPU",
        Some(2..) => "it shares its GPU with other programs",
        Some(_) => "NVML says too little of its GPU",
    };
    let what = if process.records.kernel == 0 { "no kernel record at all" } else { "no kernel record" };
    Some(format!(
        "{what} for {quiet:.0} s: the program is idle, or CUPTI has gone quiet; gtop cannot tell, because {why}. \
         Launch calls would tell: t r, or gtop ctl enable runtime"
    ))
}

/// Shows a process as silent, with rates that are not known, when a device that it has to itself works and no kernel
/// record has come for `quiet` seconds. Gives the reason when it does.
pub(super) fn judge(process: &mut Process, devices: &[Device], quiet: f64) -> Option<String> {
    let watches = process.state == StateCode::Armed
        && process.link == Link::Up
        && process.kinds.enabled.has(Kind::Kernel)
        && quiet >= patience(process);
    if !watches {
        return None;
    }
    let works = |device: &&Device| {
        // What the sample tells of must lie after the last record.
        let fresh = device.age + 1.0 < quiet;
        let alone = matches!(device.processes.as_slice(), [only] if only.watched
            && process.gpu_memory.iter().any(|own| own.pid == only.pid && own.device == device.index));
        fresh && alone && device.gpu_percent.is_some_and(|percent| percent >= WORKS)
    };
    let percent = devices.iter().filter(works).filter_map(|device| device.gpu_percent).max()?;
    let reason = if process.records.kernel == 0 {
        let version =
            process.cupti.as_ref().map_or("it".to_owned(), |cupti| format!("CUPTI {}", cupti.version));
        format!(
            "no kernel record at all while NVML says that the GPU works at {percent} %: {version} may not support this \
             GPU or driver"
        )
    } else {
        format!("no kernel record for {quiet:.0} s while NVML says that the GPU works at {percent} %")
    };
    process.state = StateCode::Silent;
    process.reason = Some(reason.clone());
    process.validity.rate_total = None;
    process.validity.rate_windows = [None; 3];
    rates_unknown(process);
    Some(reason)
}

/// Nothing is known of what happens in a second.
pub(super) fn rates_unknown(process: &mut Process) {
    let graphs = Arc::make_mut(&mut process.by_graph);
    for row in Arc::make_mut(&mut process.kernels).iter_mut().chain(graphs) {
        row.per_second = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Cupti, Kinds, ProcessMemory, Records, Sampling};
    use gtop_protocol::KindSet;
    use gtop_protocol::cupti::CuptiVersion;

    fn armed(kernels: u64) -> Process {
        let version = CuptiVersion(26);
        let memory = ProcessMemory {
            device: 0,
            pid: 844,
            name: "EngineCore".to_owned(),
            used: None,
            per_minute: None,
            watched: true,
        };
        let mut process = Process {
            state: StateCode::Armed,
            link: Link::Up,
            kinds: Kinds { enabled: KindSet::SAFE, ..Kinds::default() },
            records: Records { kernel: kernels, ..Records::default() },
            gpu_memory: vec![memory],
            cupti: Some(Cupti {
                version,
                path: String::new(),
                interface: 1,
                verdict: version.verdict(),
                reason: version.reason(),
            }),
            ..Process::default()
        };
        process.validity.rate_total = Some(0.0);
        process
    }

    fn device(process: &Process, percent: u64) -> Device {
        Device {
            age: 0.5,
            gpu_percent: Some(percent),
            processes: process.gpu_memory.clone(),
            ..Device::default()
        }
    }

    #[test]
    fn a_gpu_that_works_without_records_is_silence_and_rates_are_unknown() {
        let mut process = armed(100);
        let devices = [device(&process, 97)];
        assert_eq!(judge(&mut process, &devices, 1.9), None);
        let reason = judge(&mut process, &devices, 3.0).unwrap();
        assert!(reason.contains("no kernel record for 3 s") && reason.contains("97 %"), "{reason}");
        assert_eq!((process.state, process.validity.rate_total), (StateCode::Silent, None));
        // Windows under a budget may lie seconds apart.
        let mut process = armed(100);
        process.sampling =
            Some(Sampling { budget_ppm: 10_000, period_ns: 4_000_000_000, ..Sampling::default() });
        assert_eq!((judge(&mut process, &devices, 9.9), doubt(&process, &[], 9.9)), (None, None));
        assert!(judge(&mut process, &devices, 10.0).is_some());
    }

    #[test]
    fn where_nothing_tells_idle_from_quiet_that_is_said() {
        let mut process = armed(6_304);
        let why = |process: &Process, devices: &[Device], quiet| doubt(process, devices, quiet);
        assert_eq!(why(&process, &[], 1.9), None);
        let said = why(&process, &[], 3.0).unwrap();
        assert!(
            said.contains("for 3 s") && said.contains("NVML says nothing") && said.contains("t r"),
            "{said}"
        );
        let mut shared = device(&process, 97);
        shared.processes.push(ProcessMemory { pid: 9, watched: false, ..shared.processes[0].clone() });
        assert!(why(&process, &[shared], 3.0).unwrap().contains("shares its GPU"));
        assert_eq!(why(&process, &[device(&process, 3)], 3.0), None, "it is idle");
        assert!(why(&armed(0), &[], 3.0).unwrap().starts_with("no kernel record at all"));
        process.kinds.enabled = process.kinds.enabled.with(Kind::Runtime);
        assert_eq!(why(&process, &[], 3.0), None, "the shim would say so");
    }

    #[test]
    fn a_cupti_that_never_gave_a_record_is_doubted() {
        let mut process = armed(0);
        let devices = [device(&process, 97)];
        let reason = judge(&mut process, &devices, 3.0).unwrap();
        assert!(reason.contains("CUPTI 12.8 may not support this GPU"), "{reason}");
    }

    #[test]
    fn what_others_do_or_did_before_is_no_silence() {
        let mut process = armed(100);
        let own = device(&process, 97);
        let idle = device(&process, 3);
        let stale = Device { age: 5.0, ..own.clone() };
        let mut shared = own.clone();
        shared.processes.push(ProcessMemory { pid: 9, watched: false, ..own.processes[0].clone() });
        for devices in [vec![idle], vec![stale], vec![shared], vec![]] {
            assert_eq!(judge(&mut process, &devices, 3.0), None, "{devices:?}");
        }
        process.kinds.enabled = KindSet::SAFE.without(Kind::Kernel);
        assert_eq!(judge(&mut process, &[own], 3.0), None, "kernel is off");
    }
}
