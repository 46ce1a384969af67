//! The activity interface, version 1.

use super::{Result, enter, result};
use crate::callbacks;
use crate::client::{self, Callbacks, Complete, Request};
use crate::cupti::{Cupti, attribute, lock};
use crate::fault::STEP;
use crate::layout::{self, kind};
use crate::version::Version;
use crate::world::{STEP_FAILS, VERSION, current};
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

/// Notes an activity call of a client that never subscribed, which may take over another tool's callbacks.
fn wants_subscriber(cupti: &Cupti, name: &str) {
    if lock(&cupti.subscriber).is_none() {
        cupti.ledger.misused(&format!("{name} without a subscription"));
    }
}

pub(super) unsafe extern "C" fn register_callbacks(
    request: Option<Request>,
    complete: Option<Complete>,
) -> Result {
    let world = enter!("cuptiActivityRegisterCallbacks");
    wants_subscriber(&world.cupti, "cuptiActivityRegisterCallbacks");
    let (Some(request), Some(complete)) = (request, complete) else { return result::INVALID_PARAMETER };
    world.cupti.register(Callbacks::V1 { request, complete });
    result::SUCCESS
}

/// Kernel tracing changes. Measured, 12.9.79 to 13.4.92: with memset on, memory sets under way crash inside CUPTI.
fn switched(cupti: &Cupti, kind: u32) {
    if kind == kind::KERNEL && cupti.on(kind::MEMSET, u64::MAX) {
        cupti.ledger.misused("kernel was switched while memset was on, which crashes programs");
    }
}

pub(super) unsafe extern "C" fn activity_enable(kind: u32) -> Result {
    let world = enter!("cuptiActivityEnable", Some(kind));
    wants_subscriber(&world.cupti, "cuptiActivityEnable");
    enable(&world.cupti, kind)
}

pub(super) fn enable(cupti: &Cupti, kind: u32) -> Result {
    if !known(kind) {
        return result::INVALID_KIND;
    }
    match kind {
        kind::SERIAL_KERNEL => cupti.ledger.misused("the serial kernel kind (3) was enabled"),
        kind::GRAPH_TRACE => {
            cupti.ledger.misused("GRAPH_TRACE was enabled, which hides the nodes of graphs for good");
            cupti.graph_level.store(1, Relaxed);
        }
        _ => {}
    }
    switched(cupti, kind);
    cupti.switch(kind, true);
    result::SUCCESS
}

pub(super) unsafe extern "C" fn activity_disable(kind: u32) -> Result {
    let world = enter!("cuptiActivityDisable", Some(kind));
    disable(&world.cupti, kind)
}

pub(super) fn disable(cupti: &Cupti, kind: u32) -> Result {
    if !known(kind) {
        return result::INVALID_KIND;
    }
    switched(cupti, kind);
    cupti.switch(kind, false);
    result::SUCCESS
}

const fn known(kind: u32) -> bool {
    kind > 0 && kind < kind::COUNT
}

pub(super) unsafe extern "C" fn flush_all(flag: u32) -> Result {
    let world = enter!("cuptiActivityFlushAll");
    if client::inside_callback() {
        world.cupti.ledger.misused("cuptiActivityFlushAll inside a buffer callback");
        return result::UNKNOWN;
    }
    if flag & 1 == 1 && world.cupti.faults.shared() {
        world.cupti.ledger.misused("a forced flush took what another subscriber had not finished");
    }
    if callbacks::inside_callback() {
        world.flush_soon(flag & 1 == 1);
    } else {
        world.flush(flag & 1 == 1);
    }
    result::SUCCESS
}

pub(super) unsafe extern "C" fn flush_period(milliseconds: u32) -> Result {
    let world = enter!("cuptiActivityFlushPeriod");
    world.cupti.flush_period.store(u64::from(milliseconds) * 1_000_000, Relaxed);
    result::SUCCESS
}

pub(super) unsafe extern "C" fn get_next_record(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> Result {
    if buffer.is_null() || record.is_null() {
        return result::INVALID_PARAMETER;
    }
    if STEP_FAILS.load(Relaxed)
        && let Some(error) = current().and_then(|world| world.cupti.faults.error(STEP, None))
    {
        return error;
    }
    let version = Version(VERSION.load(Relaxed));
    // SAFETY: not null; the caller says it holds null or a record of this buffer that a call before returned.
    let last = unsafe { *record };
    let at = if last.is_null() {
        0
    } else {
        let Some(offset) = (last as usize).checked_sub(buffer as usize).filter(|offset| *offset < valid)
        else {
            return result::INVALID_PARAMETER;
        };
        // SAFETY: a record lies there, so at least its kind does.
        let kind = unsafe { last.cast::<u32>().read_unaligned() };
        offset + layout::stride(kind, version).unwrap_or(valid)
    };
    if valid.saturating_sub(at) < 4 {
        return result::MAX_LIMIT_REACHED;
    }
    // SAFETY: the caller says `valid` bytes are there, and at least four are left.
    let next = unsafe { buffer.add(at) };
    // SAFETY: as above.
    let kind = unsafe { next.cast::<u32>().read_unaligned() };
    match layout::stride(kind, version) {
        None => result::INVALID_KIND,
        Some(stride) if valid - at < stride => result::MAX_LIMIT_REACHED,
        Some(_) => {
            // SAFETY: not null, as asked above.
            unsafe { *record = next };
            result::SUCCESS
        }
    }
}

pub(super) unsafe extern "C" fn dropped_records(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> Result {
    let world = enter!("cuptiActivityGetNumDroppedRecords");
    // SAFETY: the same duties.
    unsafe { dropped_by(&world.cupti, dropped) }
}

pub(super) unsafe fn dropped_by(cupti: &Cupti, dropped: *mut usize) -> Result {
    if dropped.is_null() {
        return result::INVALID_PARAMETER;
    }
    let count = cupti.dropped.swap(0, Relaxed) + cupti.faults.dropped;
    // SAFETY: not null, and the caller says it is a size_t.
    unsafe { *dropped = count as usize };
    result::SUCCESS
}

/// Bytes of an attribute's value.
fn attribute_size(attribute: u32) -> usize {
    if attribute::BYTES.contains(&attribute) { 1 } else { size_of::<usize>() }
}

pub(super) unsafe extern "C" fn get_attribute(
    attribute: u32,
    size: *mut usize,
    value: *mut c_void,
) -> Result {
    let world = enter!("cuptiActivityGetAttribute", Some(attribute));
    if size.is_null() || value.is_null() {
        return result::INVALID_PARAMETER;
    }
    let Some(held) = world.cupti.get_attribute(attribute) else { return result::INVALID_PARAMETER };
    let wanted = attribute_size(attribute);
    // SAFETY: not null, and the caller says it is a size_t.
    if unsafe { *size } < wanted {
        return result::PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    // SAFETY: as above; and the caller says `size` bytes are at `value`, which were found to be enough.
    unsafe {
        *size = wanted;
        value.cast::<u8>().copy_from_nonoverlapping(held.to_le_bytes().as_ptr(), wanted);
    }
    result::SUCCESS
}

pub(super) unsafe extern "C" fn set_attribute(
    attribute: u32,
    size: *mut usize,
    value: *mut c_void,
) -> Result {
    let world = enter!("cuptiActivitySetAttribute", Some(attribute));
    // SAFETY: the same duties.
    unsafe { set(&world.cupti, attribute, size, value) }
}

pub(super) unsafe fn set(cupti: &Cupti, attribute: u32, size: *mut usize, value: *mut c_void) -> Result {
    if size.is_null() || value.is_null() || cupti.get_attribute(attribute).is_none() {
        return result::INVALID_PARAMETER;
    }
    let wanted = attribute_size(attribute);
    // SAFETY: not null, and the caller says it is a size_t.
    if unsafe { *size } < wanted {
        return result::PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    let mut bytes = [0; 8];
    // SAFETY: the caller says `size` bytes are at `value`, which were found to be enough.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(value.cast::<u8>(), wanted) };
    cupti.set_attribute(attribute, u64::from_le_bytes(bytes));
    result::SUCCESS
}

pub(super) unsafe extern "C" fn enable_allocation_source(on: u8) -> Result {
    let world = enter!("cuptiActivityEnableAllocationSource");
    world.cupti.set_attribute(attribute::ALLOCATION_SOURCE, u64::from(on));
    result::SUCCESS
}

pub(super) unsafe extern "C" fn get_struct_size(kind: u32, version: u32, size: *mut usize) -> Result {
    let world = enter!("cuptiActivityGetStructSize");
    let version = if version == 0 { world.cupti.version } else { Version(version) };
    match layout::stride(kind, version) {
        Some(stride) if !size.is_null() => {
            // SAFETY: not null, and the caller says it is a size_t.
            unsafe { *size = stride };
            result::SUCCESS
        }
        Some(_) => result::INVALID_PARAMETER,
        None => result::INVALID_KIND,
    }
}

pub(super) unsafe extern "C" fn register_timestamp_callback(_callback: *mut c_void) -> Result {
    let world = enter!("cuptiActivityRegisterTimestampCallback");
    world.cupti.ledger.misused("a timestamp callback was registered");
    result::SUCCESS
}
