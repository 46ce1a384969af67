//! Devices and who uses their memory, from NVML's samples. What was not read is unknown, never 0.

use std::collections::{BTreeMap, VecDeque};

use gtop_protocol::message::{DeviceSample, processes};

use super::names::safe;
use super::snapshot::{Device, ProcessMemory};
use super::time::{Moment, SECOND};
use super::trend::Trend;

/// Devices of one machine that are kept.
const MAX_DEVICES: usize = 64;
/// Processes of one device that are kept.
const MAX_PROCESSES: usize = 1024;
/// Slopes look back this far.
const SLOPE_WINDOW: u64 = 60 * SECOND;
/// Slopes need samples this far apart.
const SLOPE_MIN: u64 = 30 * SECOND;
/// Samples closer than this replace each other in the slope's memory.
const SLOPE_STEP: u64 = 2 * SECOND;

/// All devices, by NVML's index.
#[derive(Debug, Default)]
pub(super) struct Memory {
    devices: BTreeMap<u32, DeviceState>,
}

#[derive(Debug, Default)]
struct DeviceState {
    device: Device,
    taken: Moment,
    nvlink_kb: [Option<u64>; 2],
    used: Trend,
    slopes: BTreeMap<u32, Slope>,
    swap: Slope,
}

/// Samples of one process's memory on one device, or of swap.
#[derive(Debug, Default)]
struct Slope {
    samples: VecDeque<(u64, u64)>,
}

impl Slope {
    fn add(&mut self, time: u64, used: u64) {
        if self.samples.len() > 1
            && self
                .samples
                .iter()
                .rev()
                .nth(1)
                .is_some_and(|(before, _)| time.saturating_sub(*before) <= SLOPE_STEP)
        {
            self.samples.pop_back();
        }
        self.samples.push_back((time, used));
        while self.samples.front().is_some_and(|(first, _)| time.saturating_sub(*first) > SLOPE_WINDOW) {
            self.samples.pop_front();
        }
    }

    fn per_minute(&self) -> Option<i64> {
        let ((t0, first), (t1, last)) = (self.samples.front()?, self.samples.back()?);
        let elapsed = t1.checked_sub(*t0).filter(|elapsed| *elapsed >= SLOPE_MIN)?;
        let change = i128::from(*last) - i128::from(*first);
        i64::try_from(change * i128::from(60 * SECOND) / i128::from(elapsed)).ok()
    }
}

/// A reading of all ones means that there is none.
fn known(value: Option<u64>) -> Option<u64> {
    value.filter(|value| *value != u64::MAX)
}

impl Memory {
    /// Takes in a sample.
    pub(super) fn add(&mut self, sample: &DeviceSample<'_>, at: Moment) {
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&sample.index) {
            return;
        }
        self.devices.entry(sample.index).or_default().add(sample, at);
    }

    /// Every device; `watched` says which processes have a shim that is watched.
    pub(super) fn rows(&self, at: Moment, watched: impl Fn(u32) -> bool) -> Vec<Device> {
        let show = |state: &DeviceState| {
            let mut device = state.device.clone();
            device.age = at.steady.saturating_sub(state.taken.steady) as f64 / SECOND as f64;
            for process in &mut device.processes {
                process.watched = watched(process.pid);
            }
            device
        };
        self.devices.values().map(show).collect()
    }
}

impl DeviceState {
    fn add(&mut self, sample: &DeviceSample<'_>, at: Moment) {
        let elapsed = at.steady.saturating_sub(self.taken.steady);
        let before = self.nvlink_kb;
        self.nvlink_kb = [known(sample.nvlink_rx_kb), known(sample.nvlink_tx_kb)];
        let per_second = |now: Option<u64>, before: Option<u64>| {
            let moved = u128::from(now?.checked_sub(before?)?);
            u64::try_from((moved * u128::from(SECOND)).checked_div(u128::from(elapsed))?).ok()
        };
        let nvlink_kbs = [per_second(self.nvlink_kb[0], before[0]), per_second(self.nvlink_kb[1], before[1])];
        self.taken = at;
        let swap_used = known(sample.swap_used);
        if let Some(used) = swap_used {
            self.swap.add(at.steady, used);
        }

        if let Some(used) = known(sample.memory_used) {
            self.used.add(at.wall, used);
        }
        self.device = Device {
            index: sample.index,
            uuid: safe(sample.uuid),
            name: safe(sample.name),
            age: 0.0,
            memory_total: known(sample.memory_total),
            memory_used: known(sample.memory_used),
            memory_reserved: known(sample.memory_reserved),
            unified: sample.unified == 1,
            host_available: known(sample.host_available),
            swap_used,
            swap_per_minute: swap_used.and_then(|_| self.swap.per_minute()),
            gpu_percent: known(sample.gpu_percent),
            watts: known(sample.power_mw).map(|milliwatts| milliwatts as f64 / 1000.0),
            sm_mhz: known(sample.sm_mhz),
            memory_mhz: known(sample.memory_mhz),
            celsius: known(sample.celsius),
            throttle: known(sample.throttle).map(throttle_reasons).unwrap_or_default(),
            pcie_kbs: [known(sample.pcie_rx_kbs), known(sample.pcie_tx_kbs)],
            nvlink_kbs,
            ecc_uncorrected: known(sample.ecc_uncorrected),
            processes: Vec::new(),
            history: self.used.share(),
        };
        self.add_processes(sample, at);
    }

    fn add_processes(&mut self, sample: &DeviceSample<'_>, at: Moment) {
        let mut slopes = std::mem::take(&mut self.slopes);
        for (pid, used, name) in processes::read(sample.processes).take(MAX_PROCESSES) {
            let used = known(used);
            let mut slope = slopes.remove(&pid).unwrap_or_default();
            if let Some(used) = used {
                slope.add(at.steady, used);
            }
            let per_minute = used.and_then(|_| slope.per_minute());
            self.slopes.insert(pid, slope);
            let name = safe(name);
            let device = sample.index;
            self.device.processes.push(ProcessMemory { device, pid, name, used, per_minute, watched: false });
        }
        self.device.processes.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.pid.cmp(&b.pid)));
    }
}

/// Why clocks are held down: NVML's clock event reasons (`nvml.h`), idleness left out.
fn throttle_reasons(bits: u64) -> Vec<&'static str> {
    const REASONS: [(u64, &str); 8] = [
        (0x2, "application clocks"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "thermal (software)"),
        (0x40, "thermal (hardware)"),
        (0x80, "power brake"),
        (0x100, "display clocks"),
    ];
    REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::wire::Writer;

    fn list(entries: &[(u32, Option<u64>, &str)]) -> Vec<u8> {
        let mut buf = vec![0; 4096];
        let mut w = Writer::new(&mut buf);
        for (pid, used, name) in entries {
            processes::write_one(&mut w, *pid, *used, name.as_bytes()).unwrap();
        }
        let len = w.len();
        buf.truncate(len);
        buf
    }

    #[test]
    fn what_was_not_read_is_unknown_and_comes_last() {
        let mut memory = Memory::default();
        let processes = list(&[
            (42, None, "lost"),
            (7, Some(u64::MAX), "wsl"),
            (546_113, Some(64_392_297_349), "python"),
        ]);
        let sample = DeviceSample {
            index: 3,
            memory_total: Some(u64::MAX),
            processes: &processes,
            ..Default::default()
        };
        memory.add(&sample, Moment::of_record(SECOND));
        let device = &memory.rows(Moment::of_record(4 * SECOND), |pid| pid == 42)[0];
        assert_eq!(
            (device.index, device.memory_total, device.memory_used, device.watts),
            (3, None, None, None)
        );
        assert!((device.age - 3.0).abs() < 1e-9);
        let rows: Vec<_> = device.processes.iter().map(|row| (row.pid, row.used, row.watched)).collect();
        assert_eq!(rows, [(546_113, Some(64_392_297_349), false), (7, None, false), (42, None, true)]);
        assert!(device.history.is_empty());
    }

    #[test]
    fn swap_is_followed_where_device_and_host_share_one_memory() {
        let mut memory = Memory::default();
        let gib = 1u64 << 30;
        for (second, swap) in [(0, Some(0)), (30, Some(2 * gib)), (60, None)] {
            let sample = DeviceSample {
                unified: 1,
                host_available: Some(95 << 20),
                swap_used: swap,
                ..Default::default()
            };
            memory.add(&sample, Moment::of_record((100 + second) * SECOND));
            let device = memory.rows(Moment::default(), |_| false).remove(0);
            let a_minute = if second == 30 { Some(4 * gib.cast_signed()) } else { None };
            assert_eq!((device.swap_used, device.swap_per_minute), (swap, a_minute), "{second}");
            assert_eq!(device.host_available, Some(95 << 20));
        }
    }

    #[test]
    fn what_others_take_is_not_a_processs_own() {
        let mib = 1u64 << 20;
        let after = |device: u64, own: u64, other: u64| {
            let mut memory = Memory::default();
            for (second, used) in [(0, [1000, 500, 400]), (60, [device, own, other])] {
                let [all, a, b] = used.map(|used| Some(used * mib));
                let processes = list(&[(1, a, "a"), (2, b, "b")]);
                let sample = DeviceSample { memory_used: all, processes: &processes, ..Default::default() };
                memory.add(&sample, Moment::of_record((100 + second) * SECOND));
            }
            let mut device = memory.rows(Moment::of_record(160 * SECOND), |_| false).remove(0);
            device.processes.sort_by_key(|row| row.pid);
            let change: Vec<_> = device.processes.iter().map(|row| row.per_minute.unwrap() >> 20).collect();
            (device.history.iter().map(|(_, used)| used / mib).collect::<Vec<_>>(), change)
        };
        assert_eq!(after(1835, 512, 1223), (vec![1000, 1835], vec![12, 823]));
        // The device has less in use although this process took more.
        assert_eq!(after(900, 512, 288), (vec![1000, 900], vec![12, -112]));
    }

    #[test]
    fn slopes_and_rates_need_samples_apart() {
        let mut memory = Memory::default();
        let mib = 1u64 << 20;
        for second in 0..90 {
            let processes =
                list(&[(1, Some((500 + second) * mib), "a"), (2, Some((400 - second) * mib), "b")]);
            let sample = DeviceSample {
                memory_used: Some(second),
                nvlink_rx_kb: Some(1000 * second),
                processes: &processes,
                throttle: Some(0x45),
                power_mw: Some(1500),
                ..Default::default()
            };
            memory.add(&sample, Moment::of_record((100 + second) * SECOND));
            if second == 25 {
                assert_eq!(memory.rows(Moment::default(), |_| false)[0].processes[0].per_minute, None);
            }
        }
        let device = &memory.rows(Moment::of_record(190 * SECOND), |_| false)[0];
        let slopes: Vec<_> = device
            .processes
            .iter()
            .map(|row| row.per_minute.map(|bytes| bytes / mib.cast_signed()))
            .collect();
        assert_eq!(slopes, [Some(60), Some(-60)]);
        assert_eq!((device.nvlink_kbs, device.watts), ([Some(1000), None], Some(1.5)));
        assert_eq!(device.throttle, ["power cap", "thermal (hardware)"]);
        assert_eq!(device.history.len(), 90);
        assert_eq!(device.history.last(), Some(&(189 * SECOND, 89)));
        assert!(memory.devices[&0].slopes[&1].samples.len() < 40);
    }
}
