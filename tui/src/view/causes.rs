//! What may lie behind invalid records: what is seen beside them, put into sentences that claim no more than that.

use gtop_protocol::Validity;

use super::units;
use crate::model::snapshot::{Process, Snapshot};

/// From which share of a device's memory on it counts as nearly used up.
const NEARLY_FULL: f64 = 0.98;
/// Nanoseconds of one second.
const SECOND: f64 = 1e9;

/// Likely causes of the invalid records of a process.
pub(super) fn causes(process: &Process, snapshot: &Snapshot) -> Vec<String> {
    let of = |class: Validity| process.validity.total[class as usize];
    let mut causes = Vec::new();
    if of(Validity::Zero) > 0 {
        causes.extend(low_memory(process, snapshot));
    }
    if of(Validity::ForeignClock) + of(Validity::Future) > 0 {
        causes.extend(other_clock(process));
    }
    if of(Validity::Inverted) + of(Validity::ZeroEnd) > 0 {
        causes.push("such records were not finished when they were taken, as at a forced flush".to_owned());
    }
    causes
}

/// CUPTI gives zeros when it has no device memory to write times into (its documentation).
fn low_memory(process: &Process, snapshot: &Snapshot) -> Option<String> {
    let devices = process.devices.iter().filter_map(|device| snapshot.device_of(process, *device));
    let used = devices.filter_map(|device| Some(device.memory_used? as f64 / device.memory_total? as f64));
    let fullest = used.fold(0.0, f64::max);
    (fullest >= NEARLY_FULL).then(|| {
        format!(
            "device memory is nearly used up ({}): CUPTI gives zeros when it has none left for times",
            units::percent(fullest)
        )
    })
}

/// By how much the clock of the first such record is off.
fn other_clock(process: &Process) -> Option<String> {
    let first = process.validity.first_invalid.as_ref()?;
    if !matches!(first.class, Validity::ForeignClock | Validity::Future) {
        return None;
    }
    let off = first.start.abs_diff(first.time) as f64 / SECOND;
    let way = if first.start < first.time { "before" } else { "after" };
    let uptime = process.clock.map(|clock| clock.boottime as f64 / SECOND);
    let meant = match uptime {
        Some(uptime) if (off - uptime).abs() < 1.0 => {
            ", which is the machine's uptime: two clocks are mixed up"
        }
        _ => "",
    };
    let all = process.validity.total.iter().sum::<u64>();
    let outside = process.validity.total[Validity::ForeignClock as usize]
        + process.validity.total[Validity::Future as usize];
    Some(format!(
        "{} of {} records lie outside the time that was watched, the first {off:.2} s {way} it came{meant}",
        units::count(outside),
        units::count(all)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::model::snapshot::FirstInvalid;
    use gtop_protocol::message::Clock;

    const MIB: u64 = 1 << 20;

    fn with(class: Validity, count: u64, start: u64) -> Snapshot {
        let mut snapshot = fixture::vllm();
        let process = &mut snapshot.processes[0];
        process.validity.total = [0; Validity::ALL.len()];
        process.validity.total[class as usize] = count;
        process.validity.first_invalid = Some(FirstInvalid {
            index: Some(1),
            time: 1_618_299_047_442_206_100,
            start,
            end: start,
            class,
            name: String::new(),
        });
        snapshot
    }

    fn of(snapshot: &Snapshot) -> Vec<String> {
        causes(&snapshot.processes[0], snapshot)
    }

    #[test]
    fn zeros_beside_a_full_device_are_explained_and_others_are_not() {
        let mut snapshot = with(Validity::Zero, 2, 0);
        let used = |snapshot: &mut Snapshot, per_mille: u64| {
            snapshot.devices[0].memory_total = Some(24_000 * MIB);
            snapshot.devices[0].memory_used = Some(24 * per_mille * MIB);
        };
        used(&mut snapshot, 996);
        let causes = of(&snapshot);
        assert!(causes.len() == 1 && causes[0].contains("nearly used up (99.6 %)"), "{causes:?}");
        used(&mut snapshot, 400);
        assert!(of(&snapshot).is_empty());
        assert_eq!(snapshot.processes[0].validity.total[Validity::Zero as usize], 2);
    }

    #[test]
    fn a_clock_that_is_off_by_the_uptime_is_said_to_be() {
        let mut snapshot = with(Validity::ForeignClock, 10, 1_618_284_730_230_899_000);
        let boottime = 14_317_211_549_313;
        snapshot.processes[0].clock = Some(Clock { boottime, ..Clock::default() });
        let causes = of(&snapshot);
        assert!(causes[0].contains("14317.21 s before"), "{causes:?}");
        assert!(causes[0].contains("machine's uptime"), "{causes:?}");
        snapshot.processes[0].clock = Some(Clock { boottime: 5, ..Clock::default() });
        assert!(!of(&snapshot)[0].contains("uptime"));
    }

    #[test]
    fn records_outside_the_time_watched_are_counted_with_the_gap() {
        let start = 1_618_299_047_442_206_100 + 6_100_000_000;
        let causes = of(&with(Validity::Future, 10, start));
        assert!(
            causes[0].starts_with("10 of 10 records lie outside") && causes[0].contains("6.10 s after"),
            "{causes:?}"
        );
    }
}
