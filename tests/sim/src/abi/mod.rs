//! CUPTI's functions with their C signatures, and the table to find them by name.
#![allow(unsafe_code, reason = "the functions take the pointers of a C caller")]

use crate::layout::kind;
use crate::names::static_ptr;
use crate::version::Version;
use crate::world::{VERSION, World, current};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// `CUptiResult`.
type Result = u32;

/// Values of `CUptiResult` that are returned here (`cupti_result.h`).
mod result {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_PARAMETER: u32 = 1;
    pub(super) const INVALID_CONTEXT: u32 = 3;
    pub(super) const PARAMETER_SIZE_NOT_SUFFICIENT: u32 = 6;
    pub(super) const MAX_LIMIT_REACHED: u32 = 12;
    pub(super) const NOT_INITIALIZED: u32 = 15;
    pub(super) const INVALID_KIND: u32 = 21;
    pub(super) const MULTIPLE_SUBSCRIBERS: u32 = 39;
    pub(super) const UNKNOWN: u32 = 999;
}

/// The world, for a call that counts: the library is attached after it. A call that is to fail does.
fn enter(name: &'static str, about: Option<u32>) -> std::result::Result<Arc<World>, Result> {
    let world = current().ok_or(result::NOT_INITIALIZED)?;
    world.cupti.ledger.called(name);
    world.cupti.faults.slow_down(name);
    if let Some(error) = world.cupti.faults.error(name, about) {
        return Err(error);
    }
    if world.cupti.mixes(name) {
        return Err(result::MULTIPLE_SUBSCRIBERS);
    }
    world.cupti.attach();
    Ok(world)
}

/// Runs the body of a function against the world and returns its result.
macro_rules! enter {
    ($name:literal) => {
        enter!($name, None)
    };
    ($name:literal, $about:expr) => {
        match enter($name, $about) {
            Ok(world) => world,
            Err(error) => return error,
        }
    };
}

// Behind the macro, which they use.
mod activity;
mod callback;
mod v2;

/// Writes an answer to where the caller wants it; `none` is returned where there is no answer.
///
/// # Safety
/// `to` is null, or a `T`.
unsafe fn give<T>(to: *mut T, answer: Option<T>, none: Result) -> Result {
    match answer {
        _ if to.is_null() => result::INVALID_PARAMETER,
        None => none,
        Some(answer) => {
            // SAFETY: not null, so the caller's duty.
            unsafe { to.write(answer) };
            result::SUCCESS
        }
    }
}

unsafe extern "C" fn get_version(version: *mut u32) -> Result {
    if version.is_null() {
        return result::INVALID_PARAMETER;
    }
    let Some(world) = current() else { return result::NOT_INITIALIZED };
    world.cupti.ledger.called("cuptiGetVersion");
    if let Some(error) = world.cupti.faults.error("cuptiGetVersion", None) {
        return error;
    }
    // SAFETY: not null, and the caller says it is a u32.
    unsafe { *version = world.cupti.version.0 };
    result::SUCCESS
}

unsafe extern "C" fn get_timestamp(timestamp: *mut u64) -> Result {
    let world = enter!("cuptiGetTimestamp");
    if timestamp.is_null() {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: not null, and the caller says it is a u64.
    unsafe { *timestamp = world.cupti.clock.now() };
    result::SUCCESS
}

unsafe extern "C" fn get_result_string(code: u32, text: *mut *const c_char) -> Result {
    if text.is_null() {
        return result::INVALID_PARAMETER;
    }
    let name = match code {
        result::SUCCESS => c"CUPTI_SUCCESS",
        result::INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
        result::INVALID_CONTEXT => c"CUPTI_ERROR_INVALID_CONTEXT",
        result::PARAMETER_SIZE_NOT_SUFFICIENT => c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
        result::MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        14 => c"CUPTI_ERROR_NOT_COMPATIBLE",
        result::NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
        result::INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
        27 => c"CUPTI_ERROR_NOT_SUPPORTED",
        35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        result::MULTIPLE_SUBSCRIBERS => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        result::UNKNOWN => c"CUPTI_ERROR_UNKNOWN",
        _ => return result::INVALID_PARAMETER,
    };
    // SAFETY: not null, and the caller says it is a pointer.
    unsafe { *text = static_ptr(name) };
    result::SUCCESS
}

unsafe extern "C" fn finalize() -> Result {
    let world = enter!("cuptiFinalize");
    let watched = (1..kind::COUNT).any(|kind| world.cupti.is_on(kind));
    if watched && world.busy() {
        world.cupti.crash("cuptiFinalize while graphs run: illegal memory access");
    }
    if world.running.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(460));
    }
    world.cupti.detach();
    result::SUCCESS
}

/// Counts a call of a function of the driver.
pub fn count_call(name: &'static str) {
    if let Some(world) = current() {
        world.cupti.ledger.called(name);
    }
}

/// The function with this name as `dlsym` would find it in the library, null where that has none. Functions work
/// on the process's [`Simulation`](crate::Simulation); without one they return 15, not initialised.
#[must_use]
pub fn resolve(name: &CStr) -> *mut c_void {
    let version = Version(VERSION.load(Relaxed));
    match name.to_bytes() {
        b"cuptiGetVersion" => get_version as *mut c_void,
        b"cuptiGetTimestamp" => get_timestamp as *mut c_void,
        b"cuptiSubscribe" => callback::subscribe as *mut c_void,
        b"cuptiSubscribe_v2" if version.names_holder() => callback::subscribe_v2 as *mut c_void,
        b"cuptiUnsubscribe" => callback::unsubscribe as *mut c_void,
        b"cuptiEnableCallback" => callback::enable_callback as *mut c_void,
        b"cuptiEnableDomain" => callback::enable_domain as *mut c_void,
        b"cuptiActivityRegisterCallbacks" => activity::register_callbacks as *mut c_void,
        b"cuptiActivityRegisterTimestampCallback" => activity::register_timestamp_callback as *mut c_void,
        b"cuptiActivityEnable" => activity::activity_enable as *mut c_void,
        b"cuptiActivityDisable" => activity::activity_disable as *mut c_void,
        b"cuptiActivityFlushAll" => activity::flush_all as *mut c_void,
        b"cuptiActivityFlushPeriod" => activity::flush_period as *mut c_void,
        b"cuptiActivityGetNextRecord" => activity::get_next_record as *mut c_void,
        b"cuptiActivityGetNumDroppedRecords" => activity::dropped_records as *mut c_void,
        b"cuptiActivityGetAttribute" => activity::get_attribute as *mut c_void,
        b"cuptiActivitySetAttribute" => activity::set_attribute as *mut c_void,
        b"cuptiActivityEnableAllocationSource" if version.tracks_sources() => {
            activity::enable_allocation_source as *mut c_void
        }
        b"cuptiActivityGetStructSize" if version.has_struct_size() => {
            activity::get_struct_size as *mut c_void
        }
        b"cuptiActivityRegisterCallbacks_v2" if version.has_v2() => v2::register_callbacks as *mut c_void,
        b"cuptiActivityEnable_v2" if version.has_v2() => v2::activity_enable as *mut c_void,
        b"cuptiActivityDisable_v2" if version.has_v2() => v2::activity_disable as *mut c_void,
        b"cuptiActivityGetNextRecord_v2" if version.has_v2() => v2::get_next_record as *mut c_void,
        b"cuptiActivityGetNumDroppedRecords_v2" if version.has_v2() => v2::dropped_records as *mut c_void,
        b"cuptiActivitySetAttribute_v2" if version.has_v2() => v2::set_attribute as *mut c_void,
        b"cuptiActivityGetEnabledKinds" if version.has_v2() => v2::get_enabled_kinds as *mut c_void,
        b"cuptiGetTimestamp_v2" if version.has_v2() => v2::get_timestamp as *mut c_void,
        b"cuptiGetResultString" => get_result_string as *mut c_void,
        b"cuptiGetContextId" => callback::get_context_id as *mut c_void,
        b"cuptiGetDeviceId" => callback::get_device_id as *mut c_void,
        b"cuptiGetStreamIdEx" => callback::get_stream_id as *mut c_void,
        b"cuptiGetGraphId" => callback::get_graph_id as *mut c_void,
        b"cuptiGetGraphExecId" => callback::get_graph_exec_id as *mut c_void,
        b"cuptiGetGraphNodeId" => callback::get_graph_node_id as *mut c_void,
        b"cuptiFinalize" => finalize as *mut c_void,
        _ => null_mut(),
    }
}
