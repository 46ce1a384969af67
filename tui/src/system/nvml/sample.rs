//! What NVML said about one device at one moment, and its form in a frame.

use gtop_protocol::message::{self, processes};
use gtop_protocol::wire::{Full, Writer};
use serde::{Deserialize, Serialize};

/// One device. `None` is unknown, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// When, `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// NVML's index; CUDA may number devices otherwise.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// Total memory, bytes.
    pub memory_total: Option<u64>,
    /// Used memory, bytes; without the reserved part where the driver tells that apart.
    pub memory_used: Option<u64>,
    /// Memory the driver keeps for itself, bytes.
    pub memory_reserved: Option<u64>,
    /// Device and host share one memory: total and used are then the host's.
    pub unified: bool,
    /// Memory that can be had without swapping, bytes, where device and host share it.
    pub host_available: Option<u64>,
    /// Swap in use on such a machine, bytes.
    pub swap_used: Option<u64>,
    /// Share of time with a kernel running, percent.
    pub gpu_percent: Option<u64>,
    /// Share of time memory was read or written, percent.
    pub memory_percent: Option<u64>,
    /// Power, milliwatts.
    pub power_mw: Option<u64>,
    /// The power limit in force, milliwatts.
    pub power_limit_mw: Option<u64>,
    /// Energy since the driver was loaded, millijoules.
    pub energy_mj: Option<u64>,
    /// SM clock, MHz.
    pub sm_mhz: Option<u64>,
    /// Memory clock, MHz.
    pub memory_mhz: Option<u64>,
    /// NVML's throttle reason bits.
    pub throttle: Option<u64>,
    /// Degrees Celsius.
    pub celsius: Option<u64>,
    /// PCIe, kilobytes a second, received by the device.
    pub pcie_rx_kbs: Option<u64>,
    /// PCIe, kilobytes a second, sent by the device.
    pub pcie_tx_kbs: Option<u64>,
    /// NVLink, kibibytes received since the driver was loaded, all links.
    pub nvlink_rx_kb: Option<u64>,
    /// NVLink, kibibytes sent since the driver was loaded, all links.
    pub nvlink_tx_kb: Option<u64>,
    /// Corrected ECC errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Everybody who holds memory on the device, other users included, most first.
    pub processes: Vec<ProcessSample>,
    /// Process records that could not be true and were left out.
    pub rejected: u32,
    /// The MIG devices made from this one.
    pub mig: Vec<MigSample>,
    /// What could not be had, and why: `memory: not supported`.
    pub missing: Vec<String>,
}

/// One process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process id NVML gives; inside a container it may be the host's.
    pub pid: u32,
    /// Name, or empty when it is not known.
    pub name: String,
    /// Bytes in use.
    pub used: Option<u64>,
    /// Share of the SMs' time, percent.
    pub sm_percent: Option<u64>,
    /// The GPU instance it runs on, when MIG is on.
    pub gpu_instance: Option<u32>,
    /// The compute instance it runs on, when MIG is on.
    pub compute_instance: Option<u32>,
}

/// One MIG device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigSample {
    /// `MIG-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// Total memory, bytes.
    pub memory_total: Option<u64>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
}

impl DeviceSample {
    /// Writes the body of a device frame. Processes that do not fit are left out, the smallest first.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let mut room = vec![0; 64 << 10];
        let mut list = Writer::new(&mut room);
        for process in &self.processes {
            if processes::write_one(&mut list, process.pid, process.used, process.name.as_bytes()).is_err() {
                break;
            }
        }
        let len = list.len();
        room.truncate(len);
        message::DeviceSample {
            time: self.time,
            index: self.index,
            uuid: self.uuid.as_bytes(),
            name: self.name.as_bytes(),
            memory_total: self.memory_total,
            memory_used: self.memory_used,
            memory_reserved: self.memory_reserved,
            gpu_percent: self.gpu_percent,
            memory_percent: self.memory_percent,
            power_mw: self.power_mw,
            energy_mj: self.energy_mj,
            sm_mhz: self.sm_mhz,
            memory_mhz: self.memory_mhz,
            throttle: self.throttle,
            celsius: self.celsius,
            pcie_rx_kbs: self.pcie_rx_kbs,
            pcie_tx_kbs: self.pcie_tx_kbs,
            nvlink_rx_kb: self.nvlink_rx_kb,
            nvlink_tx_kb: self.nvlink_tx_kb,
            ecc_corrected: self.ecc_corrected,
            ecc_uncorrected: self.ecc_uncorrected,
            unified: u8::from(self.unified),
            processes: &room,
            host_available: self.host_available,
            swap_used: self.swap_used,
        }
        .write(w)
    }

    /// Takes total and used memory from the host's, for a device that shares it.
    pub(super) fn share_memory_with(&mut self, meminfo: &str) {
        let field = |name: &str| {
            let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        let (total, available) = (field("MemTotal"), field("MemAvailable"));
        self.unified = true;
        self.memory_total = total;
        self.memory_used = total.zip(available).and_then(|(total, available)| total.checked_sub(available));
        self.memory_reserved = None;
        self.host_available = available;
        self.swap_used =
            field("SwapTotal").zip(field("SwapFree")).and_then(|(total, free)| total.checked_sub(free));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_the_hosts() {
        let mut sample = DeviceSample::default();
        sample.share_memory_with(
            "MemTotal:       127600748 kB\nMemFree:        90000000 kB\nMemAvailable:   118566368 kB\n\
             SwapTotal:      16777212 kB\nSwapFree:       16462640 kB\n",
        );
        let gib = |bytes: Option<u64>| format!("{:.2}", bytes.unwrap() as f64 / f64::from(1 << 30));
        assert_eq!((gib(sample.memory_used), gib(sample.memory_total)), ("8.62".into(), "121.69".into()));
        let percent = sample.memory_used.unwrap() as f64 / sample.memory_total.unwrap() as f64 * 100.0;
        assert_eq!(format!("{percent:.1}"), "7.1");
        assert!(sample.unified);
        assert_eq!((sample.host_available, sample.swap_used), (Some(118_566_368 << 10), Some(314_572 << 10)));
    }

    #[test]
    fn meminfo_that_cannot_be_true_is_unknown() {
        let mut sample = DeviceSample { memory_used: Some(1), ..Default::default() };
        sample.share_memory_with("MemTotal: 10 kB\nMemAvailable: 11 kB\n");
        assert_eq!((sample.memory_total, sample.memory_used), (Some(10 << 10), None));
        sample.share_memory_with("");
        assert_eq!((sample.memory_total, sample.memory_used), (None, None));
    }

    #[test]
    fn a_frame_says_the_same() {
        let sample = DeviceSample {
            time: 5,
            index: 3,
            uuid: "GPU-1".into(),
            memory_total: Some(100),
            ecc_corrected: Some(0),
            unified: true,
            host_available: Some(9),
            swap_used: Some(0),
            processes: vec![ProcessSample {
                pid: 7,
                name: "python".into(),
                used: None,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut buf = vec![0; 1 << 10];
        let mut w = Writer::new(&mut buf);
        sample.encode(&mut w).unwrap();
        let len = w.len();
        let read = message::DeviceSample::read(&buf[..len]).unwrap();
        assert_eq!((read.time, read.index, read.uuid, read.unified), (5, 3, b"GPU-1".as_slice(), 1));
        assert_eq!((read.host_available, read.swap_used), (Some(9), Some(0)));
        assert_eq!((read.memory_total, read.memory_used, read.ecc_corrected), (Some(100), None, Some(0)));
        assert_eq!(processes::read(read.processes).collect::<Vec<_>>(), [(7, None, b"python".as_slice())]);
    }

    #[test]
    fn more_processes_than_a_frame_holds_lose_the_tail() {
        let process = |pid| ProcessSample { pid, name: "x".repeat(100), ..Default::default() };
        let sample = DeviceSample { processes: (1..2000).map(process).collect(), ..Default::default() };
        let mut buf = vec![0; 128 << 10];
        let mut w = Writer::new(&mut buf);
        sample.encode(&mut w).unwrap();
        let len = w.len();
        let read = message::DeviceSample::read(&buf[..len]).unwrap();
        let pids: Vec<_> = processes::read(read.processes).map(|(pid, ..)| pid).collect();
        assert!(pids.len() > 500 && pids.len() < 1999 && pids.iter().copied().eq(1..=pids.len() as u32));
    }
}
