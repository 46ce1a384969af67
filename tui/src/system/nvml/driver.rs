//! The real NVML. Every reading may be missing on some device or driver; what is missing is unknown, with a reason.
#![allow(
    unsafe_code,
    reason = "three NVML calls are made past the wrapper: it trusts a record layout, zeroes a scope and lacks a version"
)]

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::fs;
use std::mem::{self, MaybeUninit};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
};
use nvml_wrapper::{Device, Nvml};

use super::backend::{Backend, Unavailable};
use super::records::{self, Record};
use super::sample::{DeviceSample, MigSample, ProcessSample};

/// `NVML_ERROR_INSUFFICIENT_SIZE` of `nvml.h`.
const INSUFFICIENT_SIZE: u32 = 7;
/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH` of `nvml.h`: the driver does not know the structure's version.
const VERSION_MISMATCH: u32 = 25;
/// The inode of the first pid namespace of a machine (`PROC_PID_INIT_INO` of the kernel's `proc_ns.h`).
const INIT_PID_NAMESPACE: u64 = 0xefff_fffc;

/// NVML, opened.
pub(super) struct Driver {
    nvml: Nvml,
    /// Per device the time of the newest utilisation sample seen, microseconds.
    newest: HashMap<u32, u64>,
    /// Whether the pids NVML gives are those of this process's `/proc`.
    init_namespace: bool,
}

impl Driver {
    /// Loads and initialises NVML.
    pub(super) fn open() -> Result<Self, Unavailable> {
        let nvml = Nvml::init().map_err(|error| unavailable(&error))?;
        let init_namespace = fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INIT_PID_NAMESPACE);
        Ok(Self { nvml, newest: HashMap::new(), init_namespace })
    }

    fn sample_one(&mut self, index: u32) -> DeviceSample {
        let mut sample = DeviceSample { time: realtime(), index, ..DeviceSample::default() };
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => {
                sample.missing.push(format!("device: {}", why(&error)));
                return sample;
            }
        };
        let mut missing = Missing(&mut sample.missing);
        sample.uuid = missing.or_note("uuid", device.uuid()).unwrap_or_default();
        sample.name = missing.or_note("name", device.name()).unwrap_or_default();
        let utilization = missing.or_note("utilisation", device.utilization_rates());
        sample.gpu_percent = utilization.as_ref().map(|rates| rates.gpu.into());
        sample.memory_percent = utilization.as_ref().map(|rates| rates.memory.into());
        sample.power_mw = missing.number("power", device.power_usage());
        sample.power_limit_mw = missing.number("power limit", device.enforced_power_limit());
        sample.energy_mj = missing.number("energy", device.total_energy_consumption());
        sample.sm_mhz = missing.number("SM clock", device.clock_info(Clock::SM));
        sample.memory_mhz = missing.number("memory clock", device.clock_info(Clock::Memory));
        let throttle = device.current_throttle_reasons().map(|reasons| reasons.bits());
        sample.throttle = missing.number("throttle reasons", throttle);
        sample.celsius = missing.number("temperature", device.temperature(TemperatureSensor::Gpu));
        let pcie = |direction| device.pcie_throughput(direction);
        sample.pcie_rx_kbs = missing.number("PCIe received", pcie(PcieUtilCounter::Receive));
        sample.pcie_tx_kbs = missing.number("PCIe sent", pcie(PcieUtilCounter::Send));
        let nvlink = missing.or_note("NVLink", nvlink(&device));
        sample.nvlink_rx_kb = nvlink.map(|(rx, _)| rx);
        sample.nvlink_tx_kb = nvlink.map(|(_, tx)| tx);
        let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
        sample.ecc_corrected = missing.number("ECC corrected", ecc(MemoryError::Corrected));
        sample.ecc_uncorrected = missing.number("ECC uncorrected", ecc(MemoryError::Uncorrected));

        memory(&device, &mut sample);
        let newest = self.newest.entry(index).or_default();
        processes(&device, newest, &mut sample);
        for process in &mut sample.processes {
            process.name = name(process.pid, self.init_namespace);
        }
        sample
    }
}

impl Backend for Driver {
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable> {
        match self.nvml.device_count().map_err(|error| unavailable(&error))? {
            0 => Err(Unavailable::NoDevice),
            count => Ok((0..count).map(|index| self.sample_one(index)).collect()),
        }
    }
}

/// Total, used and reserved memory, from the newest call the driver knows; else the host's, if it is shared.
fn memory(device: &Device<'_>, sample: &mut DeviceSample) {
    let known = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let found = match device.memory_info() {
        Ok(info) => Ok((info.total, info.used, Some(info.reserved))),
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::UnexpectedVariant(VERSION_MISMATCH)) => {
            memory_v1(device).map(|(total, used)| (total, used, None))
        }
        Err(error) => Err(error),
    };
    match found {
        Ok((total, used, reserved)) if total > 0 => {
            sample.memory_total = known(total);
            sample.memory_used = known(used).filter(|used| *used <= total);
            sample.memory_reserved = reserved.and_then(known);
        }
        Ok(_) | Err(NvmlError::NotSupported) => {
            sample.share_memory_with(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
            sample
                .missing
                .push("memory: not the device's own but shared with the host, from /proc/meminfo".into());
        }
        Err(error) => sample.missing.push(format!("memory: {}", why(&error))),
    }
    mig(device, sample);
}

/// Total and used memory from the first version of the call; used includes the reserved part there.
fn memory_v1(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref().map_err(no_symbol)?;
    let mut memory = MaybeUninit::zeroed();
    // SAFETY: the handle is valid as long as the device borrows NVML, and `memory` is the structure the call fills.
    nvml_try(unsafe { call(device.handle(), memory.as_mut_ptr()) })?;
    // SAFETY: the call has filled it; it is made of integers, for which zero was a value already.
    let memory = unsafe { memory.assume_init() };
    Ok((memory.total, memory.used))
}

fn mig(device: &Device<'_>, sample: &mut DeviceSample) {
    sample.mig = mig_devices(device)
        .map(|mig| {
            let memory = mig.memory_info().ok();
            MigSample {
                uuid: mig.uuid().unwrap_or_default(),
                name: mig.name().unwrap_or_default(),
                memory_total: memory.as_ref().map(|memory| memory.total),
                memory_used: memory.as_ref().map(|memory| memory.used),
            }
        })
        .collect();
}

/// The MIG devices made from this one; none when MIG is off.
fn mig_devices<'nvml>(device: &Device<'nvml>) -> impl Iterator<Item = Device<'nvml>> {
    let on = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    let most = if on { device.mig_device_count().unwrap_or(0) } else { 0 };
    (0..most).filter_map(|index| device.mig_device_by_index(index).ok())
}

/// Everybody who holds memory on the device, for computing, graphics or through MPS; most first.
fn processes(device: &Device<'_>, newest: &mut u64, sample: &mut DeviceSample) {
    let mut found: HashMap<u32, ProcessSample> = HashMap::new();
    let mut add = |record: Record| {
        let process = found.entry(record.pid).or_default();
        process.pid = record.pid;
        process.used = process.used.max(record.used);
        process.gpu_instance = process.gpu_instance.or(record.gpu_instance);
        process.compute_instance = process.compute_instance.or(record.compute_instance);
    };
    // On a device divided by MIG the list belongs to its parts.
    let parts: Vec<_> = mig_devices(device).collect();
    let whole = [device];
    let mut errors = Vec::new();
    for part in whole.into_iter().chain(&parts) {
        let lib = part.nvml().lib();
        let calls = [
            &lib.nvmlDeviceGetComputeRunningProcesses_v3,
            &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
            &lib.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ];
        for call in calls {
            // SAFETY: the handle is valid as long as the device borrows NVML.
            let handle = unsafe { part.handle() };
            let listed =
                call.as_ref().map_err(no_symbol).and_then(|call| list(*call, handle, sample.memory_total));
            match listed {
                Ok((records, rejected)) => {
                    records.into_iter().for_each(&mut add);
                    sample.rejected = sample.rejected.saturating_add(rejected);
                }
                Err(error) => errors.push(why(&error)),
            }
        }
    }
    // Graphics and MPS lists are missing on many devices; that matters only when nothing was listed at all.
    if found.is_empty()
        && let Some(error) = errors.first()
    {
        sample.missing.push(format!("processes: {error}"));
    }

    // An error here is the normal answer of an idle device.
    let mut busy = device.process_utilization_stats(*newest).unwrap_or_default();
    busy.sort_by_key(|stats| stats.timestamp);
    for stats in busy {
        *newest = (*newest).max(stats.timestamp);
        if let Some(process) = found.get_mut(&stats.pid) {
            process.sm_percent = Some(u64::from(stats.sm_util)).filter(|percent| *percent <= 100);
        }
    }
    sample.processes = found.into_values().collect();
    sample.processes.sort_by_key(|process| (std::cmp::Reverse(process.used), process.pid));
}

/// The records of one list, decoded from bytes because their layout differs between drivers of one version.
fn list<H: Copy, R>(
    call: unsafe extern "C" fn(H, *mut c_uint, *mut R) -> u32,
    device: H,
    memory_total: Option<u64>,
) -> Result<(Vec<Record>, u32), NvmlError> {
    let mut count: c_uint = 0;
    // SAFETY: without room for records the call only says how many there are.
    let mut code = unsafe { call(device, &raw mut count, ptr::null_mut()) };
    let mut room = Vec::new();
    for _ in 0..3 {
        if code != INSUFFICIENT_SIZE {
            break;
        }
        // A few more than it says: processes come and go between the calls.
        count = count.saturating_add(8);
        room = vec![0_u64; count as usize * records::LONG / size_of::<u64>()];
        // SAFETY: there is room for `count` records of the longest known layout, aligned for `u64`.
        code = unsafe { call(device, &raw mut count, room.as_mut_ptr().cast()) };
    }
    nvml_try(code)?;
    let bytes: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let count = (count as usize).min(bytes.len() / records::LONG);
    Ok(records::decode(&bytes, count, memory_total))
}

/// Kibibytes received and sent over all links since the driver was loaded.
fn nvlink(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref().map_err(no_symbol)?;
    // SAFETY: the structure is made of integers and a union of numbers, for which zero is a value.
    let mut values = unsafe { zeroed_for(*call) };
    let fields = [NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX];
    for (value, field) in values.iter_mut().zip(fields) {
        value.fieldId = field;
        value.scopeId = c_uint::MAX; // all links together
    }
    // SAFETY: the handle is valid as long as the device borrows NVML, and there are two values to fill.
    nvml_try(unsafe { call(device.handle(), 2, values.as_mut_ptr()) })?;
    let [rx, tx] = values.map(|value| -> Result<u64, NvmlError> {
        nvml_try(value.nvmlReturn)?;
        // SAFETY: `nvml.h` says that these two fields are `unsigned long long`; every bit pattern is one.
        Ok(unsafe { value.value.ullVal })
    });
    Ok((rx?, tx?))
}

/// Two zeros of whatever the call fills; its type has no name outside the bindings.
///
/// # Safety
/// Zero must be a value of that type.
unsafe fn zeroed_for<H, T: Copy>(_: unsafe extern "C" fn(H, c_int, *mut T) -> u32) -> [T; 2] {
    // SAFETY: the caller's promise.
    unsafe { mem::zeroed() }
}

/// The name of a process. In a container NVML gives the host's pids, and a process of ours that happens to have
/// the same number must not lend its name: there it must be seen to use a GPU.
fn name(pid: u32, init_namespace: bool) -> String {
    let uses_gpu = || {
        fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|fds| {
            let mut targets = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            targets.any(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/dev/nvidia"))
        })
    };
    let comm = fs::read(format!("/proc/{pid}/comm")).ok().filter(|_| init_namespace || uses_gpu());
    comm.map(|comm| String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()).unwrap_or_default()
}

/// Keeps a note of what could not be had.
struct Missing<'a>(&'a mut Vec<String>);

impl Missing<'_> {
    fn or_note<T>(&mut self, what: &str, result: Result<T, NvmlError>) -> Option<T> {
        result.inspect_err(|error| self.0.push(format!("{what}: {}", why(error)))).ok()
    }

    /// A number; NVML's all-ones mean that it does not know.
    fn number<T: Into<u64> + Copy>(&mut self, what: &str, result: Result<T, NvmlError>) -> Option<u64> {
        let ones = if size_of::<T>() == 4 { u64::from(u32::MAX) } else { u64::MAX };
        self.or_note(what, result).map(Into::into).filter(|value| *value != ones)
    }
}

fn no_symbol(error: &impl std::fmt::Display) -> NvmlError {
    NvmlError::FailedToLoadSymbol(error.to_string())
}

/// The error in a few words.
fn why(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "not supported".into(),
        NvmlError::NoPermission => "no permission".into(),
        NvmlError::GpuLost => "the GPU has fallen off the bus".into(),
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => "unknown to this driver".into(),
        NvmlError::UnexpectedVariant(VERSION_MISMATCH) => "this driver does not know the structure".into(),
        NvmlError::UnexpectedVariant(code) => format!("NVML error {code}"),
        other => other.to_string(),
    }
}

fn unavailable(error: &NvmlError) -> Unavailable {
    match error {
        NvmlError::LibloadingError(error) => Unavailable::NoLibrary(error.to_string()),
        NvmlError::LibraryNotFound => Unavailable::NoLibrary(error.to_string()),
        NvmlError::DriverNotLoaded => Unavailable::NoDriver,
        NvmlError::NotFound => Unavailable::NoDevice,
        NvmlError::NoPermission | NvmlError::OperatingSystem => Unavailable::NoPermission,
        NvmlError::LibRmVersionMismatch => Unavailable::Mismatch,
        NvmlError::GpuLost => Unavailable::Lost,
        other => Unavailable::Other(why(other)),
    }
}

fn realtime() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_unknown_in_both_widths() {
        let mut notes = Vec::new();
        let mut missing = Missing(&mut notes);
        assert_eq!(missing.number("a", Ok(u32::MAX)), None);
        assert_eq!(missing.number("b", Ok(u64::MAX)), None);
        assert_eq!(missing.number("c", Ok(u64::from(u32::MAX))), Some(4_294_967_295));
        assert_eq!(missing.number("d", Err::<u32, _>(NvmlError::UnexpectedVariant(25))), None);
        assert_eq!(notes, ["d: this driver does not know the structure"]);
    }

    #[test]
    fn lists_are_read_through_the_bytes() {
        unsafe extern "C" fn driver(device: u8, count: *mut c_uint, list: *mut [u64; 4]) -> u32 {
            if device == 0 {
                return 3;
            }
            // SAFETY: called by the test below with a valid count and room for as many records.
            unsafe {
                if *count < 2 {
                    *count = 2;
                    return INSUFFICIENT_SIZE;
                }
                *count = 2;
                list.write([9980, 6_498_025_472, u64::MAX, 0]);
                list.add(1).write([10121, 6_521_094_144, u64::MAX, 0]);
            }
            0
        }
        let (records, rejected) = list(driver, 1, Some(12_427 << 20)).unwrap();
        assert_eq!(records.iter().map(|record| record.pid).collect::<Vec<_>>(), [9980, 10121]);
        assert_eq!(rejected, 0);
        assert!(matches!(list(driver, 0, None), Err(NvmlError::NotSupported)));
    }

    #[test]
    fn names_come_from_proc() {
        let own = name(std::process::id(), true);
        assert!(!own.is_empty());
        assert_eq!(name(std::process::id(), false), "", "the test does not use a GPU");
        assert_eq!(name(u32::MAX, true), "");
    }
}
