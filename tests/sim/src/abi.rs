//! CUPTI's functions with their C signatures, and the table to find them by name.
#![allow(unsafe_code, reason = "the functions take the pointers of a C caller")]

use crate::callbacks::{self, Callback, handle as handles};
use crate::client::{self, Callbacks, Complete, Request};
use crate::cupti::{Cupti, Subscriber, attribute, lock};
use crate::layout::{self, kind};
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

/// What `CUpti_SubscriberHandle` points to; only its address matters.
static SUBSCRIBER: u64 = 0;

fn handle() -> *mut c_void {
    (&raw const SUBSCRIBER).cast_mut().cast()
}

/// The world, for a call that counts: the library is attached after it. A call that is to fail does.
fn enter(name: &'static str, about: Option<u32>) -> std::result::Result<Arc<World>, Result> {
    let world = current().ok_or(result::NOT_INITIALIZED)?;
    world.cupti.ledger.called(name);
    world.cupti.faults.slow_down(name);
    if let Some(error) = world.cupti.faults.error(name, about) {
        return Err(error);
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

/// Notes an activity call of a client that never subscribed, which may take over another tool's callbacks.
fn wants_subscriber(cupti: &Cupti, name: &str) {
    if lock(&cupti.subscriber).is_none() {
        cupti.ledger.misused(&format!("{name} without a subscription"));
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

unsafe extern "C" fn subscribe(
    subscriber: *mut *mut c_void,
    callback: Option<Callback>,
    user: *mut c_void,
) -> Result {
    let world = enter!("cuptiSubscribe");
    if subscriber.is_null() {
        return result::INVALID_PARAMETER;
    }
    if world.cupti.faults.busy() {
        return result::MULTIPLE_SUBSCRIBERS;
    }
    let mut held = lock(&world.cupti.subscriber);
    if held.is_some() {
        return result::MULTIPLE_SUBSCRIBERS;
    }
    *held = Some(Subscriber { callback, user: user as usize, ..Subscriber::default() });
    // SAFETY: not null, and the caller says it is a handle.
    unsafe { *subscriber = handle() };
    result::SUCCESS
}

unsafe extern "C" fn unsubscribe(subscriber: *mut c_void) -> Result {
    let world = enter!("cuptiUnsubscribe");
    if subscriber != handle() || lock(&world.cupti.subscriber).take().is_none() {
        return result::INVALID_PARAMETER;
    }
    world.cupti.callbacks_on.store(0, Relaxed);
    world.write_late();
    result::SUCCESS
}

unsafe extern "C" fn enable_callback(enable: u32, subscriber: *mut c_void, domain: u32, id: u32) -> Result {
    let world = enter!("cuptiEnableCallback");
    with_subscriber(&world, subscriber, |held| {
        if enable == 0 {
            held.enabled.remove(&(domain, id));
        } else {
            held.enabled.insert((domain, id));
        }
    })
}

unsafe extern "C" fn enable_domain(enable: u32, subscriber: *mut c_void, domain: u32) -> Result {
    let world = enter!("cuptiEnableDomain");
    with_subscriber(&world, subscriber, |held| {
        if enable == 0 {
            held.domains.remove(&domain);
            held.enabled.retain(|(of, _)| *of != domain);
        } else {
            held.domains.insert(domain);
        }
    })
}

fn with_subscriber(world: &World, subscriber: *mut c_void, with: impl FnOnce(&mut Subscriber)) -> Result {
    match lock(&world.cupti.subscriber).as_mut() {
        Some(held) if subscriber == handle() => {
            with(held);
            world.cupti.callbacks_on.store((held.enabled.len() + held.domains.len()) as u64, Relaxed);
            result::SUCCESS
        }
        _ => result::INVALID_PARAMETER,
    }
}

unsafe extern "C" fn register_callbacks(request: Option<Request>, complete: Option<Complete>) -> Result {
    let world = enter!("cuptiActivityRegisterCallbacks");
    wants_subscriber(&world.cupti, "cuptiActivityRegisterCallbacks");
    let (Some(request), Some(complete)) = (request, complete) else { return result::INVALID_PARAMETER };
    world.cupti.register(Callbacks { request, complete });
    result::SUCCESS
}

unsafe extern "C" fn activity_enable(kind: u32) -> Result {
    let world = enter!("cuptiActivityEnable", Some(kind));
    wants_subscriber(&world.cupti, "cuptiActivityEnable");
    if !known(kind) {
        return result::INVALID_KIND;
    }
    match kind {
        kind::SERIAL_KERNEL => world.cupti.ledger.misused("the serial kernel kind (3) was enabled"),
        kind::GRAPH_TRACE => {
            world.cupti.ledger.misused("GRAPH_TRACE was enabled, which hides the nodes of graphs for good");
            world.cupti.graph_level.store(1, Relaxed);
        }
        _ => {}
    }
    world.cupti.switch(kind, true);
    result::SUCCESS
}

unsafe extern "C" fn activity_disable(kind: u32) -> Result {
    let world = enter!("cuptiActivityDisable", Some(kind));
    if !known(kind) {
        return result::INVALID_KIND;
    }
    world.cupti.switch(kind, false);
    result::SUCCESS
}

const fn known(kind: u32) -> bool {
    kind > 0 && kind < kind::COUNT
}

unsafe extern "C" fn flush_all(flag: u32) -> Result {
    let world = enter!("cuptiActivityFlushAll");
    if client::inside_callback() {
        world.cupti.ledger.misused("cuptiActivityFlushAll inside a buffer callback");
        return result::UNKNOWN;
    }
    if callbacks::inside_callback() {
        world.flush_soon(flag & 1 == 1);
    } else {
        world.flush(flag & 1 == 1);
    }
    result::SUCCESS
}

unsafe extern "C" fn flush_period(milliseconds: u32) -> Result {
    let world = enter!("cuptiActivityFlushPeriod");
    world.cupti.flush_period.store(u64::from(milliseconds) * 1_000_000, Relaxed);
    result::SUCCESS
}

unsafe extern "C" fn get_next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Result {
    if buffer.is_null() || record.is_null() {
        return result::INVALID_PARAMETER;
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

unsafe extern "C" fn dropped_records(_context: *mut c_void, _stream: u32, dropped: *mut usize) -> Result {
    let world = enter!("cuptiActivityGetNumDroppedRecords");
    if dropped.is_null() {
        return result::INVALID_PARAMETER;
    }
    let count = world.cupti.dropped.swap(0, Relaxed) + world.cupti.faults.dropped;
    // SAFETY: not null, and the caller says it is a size_t.
    unsafe { *dropped = count as usize };
    result::SUCCESS
}

/// Bytes of an attribute's value.
fn attribute_size(attribute: u32) -> usize {
    if attribute::BYTES.contains(&attribute) { 1 } else { size_of::<usize>() }
}

unsafe extern "C" fn get_attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Result {
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

unsafe extern "C" fn set_attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Result {
    let world = enter!("cuptiActivitySetAttribute", Some(attribute));
    if size.is_null() || value.is_null() || world.cupti.get_attribute(attribute).is_none() {
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
    world.cupti.set_attribute(attribute, u64::from_le_bytes(bytes));
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

unsafe extern "C" fn get_context_id(context: *mut c_void, id: *mut u32) -> Result {
    let world = enter!("cuptiGetContextId");
    let place = handles::id(context, handles::CONTEXT, world.cupti.contexts.len());
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, place.map(|place| world.cupti.contexts[place].id), result::INVALID_CONTEXT) }
}

unsafe extern "C" fn get_device_id(context: *mut c_void, id: *mut u32) -> Result {
    let world = enter!("cuptiGetDeviceId");
    let place = handles::id(context, handles::CONTEXT, world.cupti.contexts.len());
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, place.map(|place| world.cupti.contexts[place].device), result::INVALID_CONTEXT) }
}

unsafe extern "C" fn get_stream_id(
    _context: *mut c_void,
    stream: *mut c_void,
    _per_thread: u8,
    id: *mut u32,
) -> Result {
    let _world = enter!("cuptiGetStreamIdEx");
    let stream = handles::id(stream, handles::STREAM, u32::MAX as usize).map(|id| id as u32);
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, stream, result::INVALID_PARAMETER) }
}

unsafe extern "C" fn get_graph_id(graph: *mut c_void, id: *mut u32) -> Result {
    let _world = enter!("cuptiGetGraphId");
    let graph = handles::id(graph, handles::GRAPH, u32::MAX as usize).map(|id| id as u32);
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, graph, result::INVALID_PARAMETER) }
}

unsafe extern "C" fn get_graph_exec_id(exec: *mut c_void, id: *mut u32) -> Result {
    let _world = enter!("cuptiGetGraphExecId");
    let exec = handles::id(exec, handles::EXEC, u32::MAX as usize).map(|id| id as u32);
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, exec, result::INVALID_PARAMETER) }
}

unsafe extern "C" fn get_graph_node_id(node: *mut c_void, id: *mut u64) -> Result {
    let _world = enter!("cuptiGetGraphNodeId");
    let node = handles::id(node, handles::NODE, handles::NODE).map(|id| id as u64);
    // SAFETY: the caller says it is a u64.
    unsafe { give(id, node, result::INVALID_PARAMETER) }
}

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

unsafe extern "C" fn get_struct_size(kind: u32, version: u32, size: *mut usize) -> Result {
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

unsafe extern "C" fn register_timestamp_callback(_callback: *mut c_void) -> Result {
    let world = enter!("cuptiActivityRegisterTimestampCallback");
    world.cupti.ledger.misused("a timestamp callback was registered");
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
        b"cuptiSubscribe" => subscribe as *mut c_void,
        b"cuptiUnsubscribe" => unsubscribe as *mut c_void,
        b"cuptiEnableCallback" => enable_callback as *mut c_void,
        b"cuptiEnableDomain" => enable_domain as *mut c_void,
        b"cuptiActivityRegisterCallbacks" => register_callbacks as *mut c_void,
        b"cuptiActivityRegisterTimestampCallback" => register_timestamp_callback as *mut c_void,
        b"cuptiActivityEnable" => activity_enable as *mut c_void,
        b"cuptiActivityDisable" => activity_disable as *mut c_void,
        b"cuptiActivityFlushAll" => flush_all as *mut c_void,
        b"cuptiActivityFlushPeriod" => flush_period as *mut c_void,
        b"cuptiActivityGetNextRecord" => get_next_record as *mut c_void,
        b"cuptiActivityGetNumDroppedRecords" => dropped_records as *mut c_void,
        b"cuptiActivityGetAttribute" => get_attribute as *mut c_void,
        b"cuptiActivitySetAttribute" => set_attribute as *mut c_void,
        b"cuptiActivityGetStructSize" if version.has_struct_size() => get_struct_size as *mut c_void,
        b"cuptiGetResultString" => get_result_string as *mut c_void,
        b"cuptiGetContextId" => get_context_id as *mut c_void,
        b"cuptiGetDeviceId" => get_device_id as *mut c_void,
        b"cuptiGetStreamIdEx" => get_stream_id as *mut c_void,
        b"cuptiGetGraphId" => get_graph_id as *mut c_void,
        b"cuptiGetGraphExecId" => get_graph_exec_id as *mut c_void,
        b"cuptiGetGraphNodeId" => get_graph_node_id as *mut c_void,
        b"cuptiFinalize" => finalize as *mut c_void,
        _ => null_mut(),
    }
}
