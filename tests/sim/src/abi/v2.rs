//! The activity interface, version 2: each call names its subscriber. Records are the same as those of version 1.

use super::{Result, activity, callback, enter, give, result};
use crate::client::{Callbacks, CompleteV2, RequestV2};
use crate::world::{World, current};
use std::ffi::c_void;

/// Whether this is the client's subscription.
fn knows(world: &World, subscriber: *mut c_void) -> bool {
    subscriber == callback::handle() && crate::cupti::lock(&world.cupti.subscriber).is_some()
}

pub(super) unsafe extern "C" fn register_callbacks(
    subscriber: *mut c_void,
    request: Option<RequestV2>,
    complete: Option<CompleteV2>,
) -> Result {
    let world = enter!("cuptiActivityRegisterCallbacks_v2");
    let (true, Some(request), Some(complete)) = (knows(&world, subscriber), request, complete) else {
        return result::INVALID_PARAMETER;
    };
    world.cupti.register(Callbacks::V2 { request, complete });
    result::SUCCESS
}

pub(super) unsafe extern "C" fn activity_enable(
    subscriber: *mut c_void,
    kind: u32,
    _config: *mut c_void,
) -> Result {
    let world = enter!("cuptiActivityEnable_v2", Some(kind));
    if knows(&world, subscriber) { activity::enable(&world.cupti, kind) } else { result::INVALID_PARAMETER }
}

pub(super) unsafe extern "C" fn activity_disable(
    subscriber: *mut c_void,
    kind: u32,
    _config: *mut c_void,
) -> Result {
    let world = enter!("cuptiActivityDisable_v2", Some(kind));
    if knows(&world, subscriber) { activity::disable(&world.cupti, kind) } else { result::INVALID_PARAMETER }
}

pub(super) unsafe extern "C" fn get_next_record(
    subscriber: *mut c_void,
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> Result {
    if !current().is_some_and(|world| knows(&world, subscriber)) {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: the same duties.
    unsafe { activity::get_next_record(buffer, valid, record) }
}

pub(super) unsafe extern "C" fn dropped_records(
    subscriber: *mut c_void,
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> Result {
    let world = enter!("cuptiActivityGetNumDroppedRecords_v2");
    if !knows(&world, subscriber) {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: the same duties.
    unsafe { activity::dropped_by(&world.cupti, dropped) }
}

pub(super) unsafe extern "C" fn set_attribute(
    subscriber: *mut c_void,
    attribute: u32,
    size: *mut usize,
    value: *mut c_void,
) -> Result {
    let world = enter!("cuptiActivitySetAttribute_v2", Some(attribute));
    if !knows(&world, subscriber) {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: the same duties.
    unsafe { activity::set(&world.cupti, attribute, size, value) }
}

pub(super) unsafe extern "C" fn get_timestamp(subscriber: *mut c_void, timestamp: *mut u64) -> Result {
    let world = enter!("cuptiGetTimestamp_v2");
    let now = knows(&world, subscriber).then(|| world.cupti.clock.now());
    // SAFETY: the caller says it is a u64.
    unsafe { give(timestamp, now, result::INVALID_PARAMETER) }
}

/// The number of kinds that all subscribers together have on, which is asked for without one.
pub(super) unsafe extern "C" fn get_enabled_kinds(
    subscriber: *mut c_void,
    buffer: *mut u32,
    _size: *mut u32,
    count: *mut u32,
) -> Result {
    let world = enter!("cuptiActivityGetEnabledKinds");
    let kinds = (subscriber.is_null() && buffer.is_null()).then(|| world.cupti.kinds_on());
    // SAFETY: the caller says it is a u32.
    unsafe { give(count, kinds, result::INVALID_PARAMETER) }
}
