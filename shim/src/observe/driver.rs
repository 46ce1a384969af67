//! What control does once a second for the observers: it asks the driver for the memory that graphs and pools hold, if
//! no capture is open, and sees to it that callbacks stay cheap. Only after an early start.
#![expect(unsafe_code, reason = "functions of the driver")]

use super::cost::Looked;
use super::limits::Limits;
use super::{Observe, current};
use crate::shared::Shim;
use crate::sys;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::lifecycle::{Event, What};
use gtop_protocol::record::NO_DEVICE;

/// Devices asked for.
const DEVICES: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;
/// `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`, `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const GRAPH_MEMORY: [c_int; 2] = [0, 2];
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`, `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const POOL_MEMORY: [c_int; 2] = [7, 5];

type LoadingMode = unsafe extern "C" fn(*mut c_int) -> u32;
type Exchange = unsafe extern "C" fn(*mut c_int) -> u32;
type GraphAttribute = unsafe extern "C" fn(c_int, c_int, *mut u64) -> u32;
type DefaultPool = unsafe extern "C" fn(*mut *mut c_void, c_int) -> u32;
type PoolAttribute = unsafe extern "C" fn(*mut c_void, c_int, *mut u64) -> u32;

#[derive(Clone, Copy, Debug)]
struct Calls {
    graph: GraphAttribute,
    pool: DefaultPool,
    of_pool: PoolAttribute,
}

/// Control's part of the observers.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    calls: Option<Calls>,
    /// Whether the driver's functions were looked for.
    looked: bool,
    next: u64,
    looked_at: Looked,
    limits: Limits,
    known: [[u64; 4]; DEVICES],
}

impl Driver {
    /// To be called by control now and then, at `CLOCK_MONOTONIC` `now`.
    pub(crate) fn tick(&mut self, shim: &Shim, subscriber: Option<*mut c_void>, now: u64) {
        let Some(observe) = current() else { return };
        if now < self.next {
            return;
        }
        let elapsed = now.saturating_sub(self.next).saturating_add(SECOND_NS);
        let first = self.next == 0;
        self.next = now.saturating_add(SECOND_NS);
        self.looked_at.give_up(shim, observe, subscriber, (!first).then_some(elapsed));
        self.ask_memory(observe);
    }

    /// Asks for the memory of each device in use.
    fn ask_memory(&mut self, observe: &Observe) {
        // Nothing is asked of devices without contexts, and nothing while a stream captures.
        let devices = observe.devices.load(Relaxed);
        if devices == 0 {
            return;
        }
        if !core::mem::replace(&mut self.looked, true) {
            observe.loading.store(loading_mode(), Relaxed);
            self.limits = Limits::find();
            self.calls = find();
        }
        let Some(calls) = self.calls else { return };
        self.limits.ask(observe, devices);
        for (device, known) in (0i32..).zip(&mut self.known) {
            if observe.open.any() {
                return;
            }
            if devices & (1 << device) == 0 {
                continue;
            }
            let Some(memory) = calls.memory(device) else { continue };
            if memory == core::mem::replace(known, memory) {
                continue;
            }
            let [graph_used, graph_reserved, pool_used, pool_reserved] = memory;
            observe.push(&Event {
                time: sys::realtime().into(),
                what: What::DeviceMemory as u8,
                id: device.cast_unsigned().into(),
                object: graph_used.into(),
                other: graph_reserved.into(),
                node: pool_used.into(),
                bytes: pool_reserved.into(),
                device: u16::try_from(device).unwrap_or(NO_DEVICE).into(),
                ..Event::default()
            });
        }
    }
}

/// A `CUmoduleLoadingMode`, which the process keeps for its life; 0 when the driver does not say (before CUDA 11.7).
fn loading_mode() -> u8 {
    let Some(driver) = sys::mapped_library(c"libcuda.so.1") else { return 0 };
    let address = driver.symbol(c"cuModuleGetLoadingMode");
    let mut mode: c_int = 0;
    if address.is_null() {
        return 0;
    }
    // SAFETY: the function of this name has this type in every driver that has it (`cuda.h`), and writes one value. It
    // needs no context.
    let result = unsafe { core::mem::transmute::<*mut c_void, LoadingMode>(address)(&raw mut mode) };
    if result == 0 { u8::try_from(mode).unwrap_or(0) } else { 0 }
}

/// The driver's functions, with this thread's capture mode set so that nothing it calls can break a capture.
fn find() -> Option<Calls> {
    let driver = sys::mapped_library(c"libcuda.so.1")?;
    let symbol = |name: &CStr| {
        let address = driver.symbol(name);
        (!address.is_null()).then_some(address)
    };
    let exchange = symbol(c"cuThreadExchangeStreamCaptureMode")?;
    let (graph, pool, of_pool) = (
        symbol(c"cuDeviceGetGraphMemAttribute")?,
        symbol(c"cuDeviceGetDefaultMemPool")?,
        symbol(c"cuMemPoolGetAttribute")?,
    );
    let mut mode = RELAXED;
    // SAFETY: functions of these names have these types in every driver since CUDA 11.4; the mode is written to.
    unsafe {
        let exchange = core::mem::transmute::<*mut c_void, Exchange>(exchange);
        if exchange(&raw mut mode) != 0 {
            return None;
        }
        Some(Calls {
            graph: core::mem::transmute::<*mut c_void, GraphAttribute>(graph),
            pool: core::mem::transmute::<*mut c_void, DefaultPool>(pool),
            of_pool: core::mem::transmute::<*mut c_void, PoolAttribute>(of_pool),
        })
    }
}

impl Calls {
    /// Bytes used by graphs, reserved for them, used in the default pool, reserved in it.
    fn memory(&self, device: c_int) -> Option<[u64; 4]> {
        let mut memory = [0u64; 4];
        let [graph_used, graph_reserved, pool_used, pool_reserved] = &mut memory;
        let mut pool = core::ptr::null_mut();
        // SAFETY: each writes one value of the size given in `cuda.h`; a device that is not there is refused.
        let ok = unsafe {
            (self.graph)(device, GRAPH_MEMORY[0], graph_used) == 0
                && (self.graph)(device, GRAPH_MEMORY[1], graph_reserved) == 0
                && (self.pool)(&raw mut pool, device) == 0
                && (self.of_pool)(pool, POOL_MEMORY[0], pool_used) == 0
                && (self.of_pool)(pool, POOL_MEMORY[1], pool_reserved) == 0
        };
        ok.then_some(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{
        CUgraphMem_attribute as graph, CUmemPool_attribute as pool, CUmoduleLoadingMode as loading,
        CUstreamCaptureMode as mode,
    };

    #[test]
    fn attributes_are_those_of_the_header() {
        let header =
            [graph::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, graph::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT];
        assert_eq!(GRAPH_MEMORY, header.map(|attribute| attribute as c_int));
        let header = [pool::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
        assert_eq!(POOL_MEMORY, header.map(|attribute| attribute as c_int));
        assert_eq!(
            [1, 2],
            [loading::CU_MODULE_EAGER_LOADING, loading::CU_MODULE_LAZY_LOADING].map(|mode| mode as u8)
        );
        assert_eq!(RELAXED, mode::CU_STREAM_CAPTURE_MODE_RELAXED as c_int);
    }
}
