//! What devices can do, asked of the driver once for each: a launch that was refused is told with the limit it broke.
//! Control asks, and only while no capture is open.
#![expect(unsafe_code, reason = "functions of the driver")]

use super::Observe;
use crate::sys;
use core::ffi::{c_int, c_void};
use gtop_protocol::lifecycle::{Event, What};
use gtop_protocol::record::NO_DEVICE;

type DeviceAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> u32;
type TotalMemory = unsafe extern "C" fn(*mut usize, c_int) -> u32;

/// Values of `CUdevice_attribute`.
mod attribute {
    pub(super) const BLOCK_THREADS: i32 = 1;
    pub(super) const BLOCK: [i32; 3] = [2, 3, 4];
    pub(super) const GRID: [i32; 3] = [5, 6, 7];
    pub(super) const BLOCK_SHARED: i32 = 8;
    pub(super) const BLOCK_REGISTERS: i32 = 12;
    pub(super) const MULTIPROCESSORS: i32 = 16;
    pub(super) const THREADS: i32 = 39;
    pub(super) const SHARED: i32 = 81;
    pub(super) const REGISTERS: i32 = 82;
    pub(super) const BLOCK_SHARED_OPTED_IN: i32 = 97;
    pub(super) const BLOCKS: i32 = 106;
}

/// The functions that say it, and the devices that were asked, a bit each.
#[derive(Debug, Default)]
pub(super) struct Limits {
    attribute: Option<DeviceAttribute>,
    total: Option<TotalMemory>,
    asked: u32,
}

impl Limits {
    /// Looks for the driver's functions.
    pub(super) fn find() -> Self {
        let Some(driver) = sys::mapped_library(c"libcuda.so.1") else { return Self::default() };
        let (attribute, total) =
            (driver.symbol(c"cuDeviceGetAttribute"), driver.symbol(c"cuDeviceTotalMem_v2"));
        // SAFETY: the functions of these names have these types in every driver (`cuda.h`).
        unsafe {
            Self {
                attribute: (!attribute.is_null())
                    .then(|| core::mem::transmute::<*mut c_void, DeviceAttribute>(attribute)),
                total: (!total.is_null()).then(|| core::mem::transmute::<*mut c_void, TotalMemory>(total)),
                asked: 0,
            }
        }
    }

    /// Asks for what those of these devices can do that were not asked yet, a bit each, and tells it.
    pub(super) fn ask(&mut self, observe: &Observe, devices: u32) {
        let Some(attribute) = self.attribute else { return };
        for device in 0..32i32 {
            let bit = 1u32.checked_shl(device.cast_unsigned()).unwrap_or(0);
            if devices & !self.asked & bit == 0 {
                continue;
            }
            if observe.open.any() {
                return;
            }
            self.asked |= bit;
            let of = |which: c_int| {
                let mut value: c_int = 0;
                // SAFETY: it writes one value, needs no context, and refuses a device that is not there.
                let result = unsafe { attribute(&raw mut value, which, device) };
                if result == 0 { u32::try_from(value).unwrap_or(0) } else { 0 }
            };
            let mut memory = 0usize;
            if let Some(total) = self.total {
                // SAFETY: as above.
                let result = unsafe { total(&raw mut memory, device) };
                memory = if result == 0 { memory } else { 0 };
            }
            let both = |low: c_int, high: c_int| (u64::from(of(low)) | u64::from(of(high)) << 32).into();
            observe.push(&Event {
                time: sys::realtime().into(),
                what: What::DeviceLimits as u8,
                id: device.cast_unsigned().into(),
                device: u16::try_from(device).unwrap_or(NO_DEVICE).into(),
                grid: attribute::GRID.map(|which| of(which).into()),
                block: attribute::BLOCK.map(|which| of(which).into()),
                count: of(attribute::MULTIPROCESSORS).into(),
                object: both(attribute::BLOCK_THREADS, attribute::BLOCK_REGISTERS),
                other: both(attribute::BLOCK_SHARED_OPTED_IN, attribute::BLOCK_SHARED),
                node: both(attribute::THREADS, attribute::BLOCKS),
                stream: both(attribute::SHARED, attribute::REGISTERS),
                bytes: (memory as u64).into(),
                ..Event::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::observers;
    use cudarc::driver::sys::CUdevice_attribute as header;

    #[test]
    fn attributes_are_those_of_the_header() {
        use attribute::*;
        let ours = [
            BLOCK_THREADS,
            BLOCK[0],
            BLOCK[2],
            GRID[0],
            GRID[2],
            BLOCK_SHARED,
            BLOCK_REGISTERS,
            MULTIPROCESSORS,
            THREADS,
            SHARED,
            REGISTERS,
            BLOCK_SHARED_OPTED_IN,
            BLOCKS,
        ];
        let theirs = [
            header::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            header::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            header::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            header::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
            header::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            header::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
            header::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
            header::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            header::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            header::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            header::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            header::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            header::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
        ];
        assert_eq!(ours, theirs.map(|attribute| attribute as i32));
    }

    #[test]
    fn each_device_is_asked_once_and_none_while_a_capture_is_open() {
        unsafe extern "C" fn answer(value: *mut c_int, which: c_int, _: c_int) -> u32 {
            // SAFETY: the caller's own number.
            unsafe { *value = which * 10 };
            0
        }
        let observe = observers();
        let mut limits = Limits { attribute: Some(answer), ..Limits::default() };
        observe.open.begin(7, 5, 1);
        limits.ask(observe, 0b101);
        assert!(observe.pop().is_none());
        observe.open.end(7, 5);
        limits.ask(observe, 0b101);
        limits.ask(observe, 0b101);
        let told: Vec<Event> = core::iter::from_fn(|| observe.pop()).collect();
        assert_eq!(told.iter().map(|event| event.id.get()).collect::<Vec<_>>(), [0, 2]);
        assert_eq!((told[1].grid[2].get(), told[1].object.get()), (70, (120 << 32) + 10));
        assert_eq!((told[1].other.get(), told[1].bytes.get()), ((80 << 32) + 970, 0));
    }
}
