//! What NVML says of a device.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

message! {
    /// What NVML said about one device; made by the viewer, kept in recordings. Unknown is unknown, never 0.
    pub struct DeviceSample<'a> {
        /// When, `CLOCK_REALTIME` nanoseconds.
        pub time: u64,
        /// NVML's index.
        pub index: u32,
        /// `GPU-…` or `MIG-…`.
        pub uuid: &'a [u8],
        /// For people.
        pub name: &'a [u8],
        /// Total memory, bytes.
        pub memory_total: Option<u64>,
        /// Used memory, bytes.
        pub memory_used: Option<u64>,
        /// Reserved memory, bytes.
        pub memory_reserved: Option<u64>,
        /// Share of time with a kernel running, percent.
        pub gpu_percent: Option<u64>,
        /// Share of time memory was read or written, percent.
        pub memory_percent: Option<u64>,
        /// Power, milliwatts.
        pub power_mw: Option<u64>,
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
        /// NVLink, kilobytes received since the driver was loaded.
        pub nvlink_rx_kb: Option<u64>,
        /// NVLink, kilobytes sent since the driver was loaded.
        pub nvlink_tx_kb: Option<u64>,
        /// Corrected ECC errors since the driver was loaded.
        pub ecc_corrected: Option<u64>,
        /// Uncorrected ECC errors since the driver was loaded.
        pub ecc_uncorrected: Option<u64>,
        /// 1 when device and host share one memory; totals are then the host's.
        pub unified: u8,
        /// The module `processes` reads them.
        pub processes: &'a [u8],
        /// Memory of the host that can be had without swapping, bytes, where device and host share it.
        pub host_available: Option<u64>,
        /// Swap in use on such a machine, bytes.
        pub swap_used: Option<u64>,
    }
}

/// The processes of a device sample: `u32` pid, optional used bytes, name, repeated.
pub mod processes {
    use super::{Full, Reader, Writer};

    /// Appends one process.
    pub fn write_one(w: &mut Writer<'_>, pid: u32, used: Option<u64>, name: &[u8]) -> Result<(), Full> {
        w.u32(pid)?;
        w.opt_u64(used)?;
        w.blob(name)
    }

    /// The processes of a sample.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u32, Option<u64>, &[u8])> {
        let mut r = Reader::new(bytes);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let (pid, used, name) = (r.u32(), r.opt_u64(), r.blob());
            (!r.is_bad()).then_some((pid, used, name))
        })
    }
}
