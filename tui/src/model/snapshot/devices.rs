//! Devices, and the memory of processes on them, as NVML tells.

use super::Samples;

/// Memory of one process on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessMemory {
    /// NVML's device index.
    pub device: u32,
    /// Process id as this machine numbers it.
    pub pid: u32,
    /// Process name.
    pub name: String,
    /// Bytes in use; `None` is unknown, never 0.
    pub used: Option<u64>,
    /// Change a minute, bytes; `None` until there are enough samples.
    pub per_minute: Option<i64>,
    /// Whether gtop watches this process.
    pub watched: bool,
}

/// One device as NVML sees it. Unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// NVML's index.
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// Seconds since the sample was taken.
    pub age: f64,
    /// Total memory, bytes.
    pub memory_total: Option<u64>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
    /// Reserved memory, bytes.
    pub memory_reserved: Option<u64>,
    /// Whether device and host share one memory.
    pub unified: bool,
    /// Memory of the host that can be had without swapping, bytes, where it is the device's too.
    pub host_available: Option<u64>,
    /// Swap in use on such a machine, bytes.
    pub swap_used: Option<u64>,
    /// Its change a minute, bytes; `None` until there are enough samples.
    pub swap_per_minute: Option<i64>,
    /// Share of time with a kernel running, percent.
    pub gpu_percent: Option<u64>,
    /// Power, watts.
    pub watts: Option<f64>,
    /// SM clock, MHz.
    pub sm_mhz: Option<u64>,
    /// Memory clock, MHz.
    pub memory_mhz: Option<u64>,
    /// Degrees Celsius.
    pub celsius: Option<u64>,
    /// Why clocks are held down, in words.
    pub throttle: Vec<&'static str>,
    /// PCIe received and sent, kilobytes a second.
    pub pcie_kbs: [Option<u64>; 2],
    /// NVLink received and sent, kilobytes a second.
    pub nvlink_kbs: [Option<u64>; 2],
    /// Uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Every process on the device, largest first.
    pub processes: Vec<ProcessMemory>,
    /// Used memory over time.
    pub history: Samples,
}
