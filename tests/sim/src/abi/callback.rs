//! Subscribing, enabling callbacks, and the ids behind the handles that callbacks carry.

use super::{Result, enter, give, result};
use crate::callbacks::{Callback, handle as handles};
use crate::cupti::{Interface, Subscriber, lock};
use crate::world::World;
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// What `CUpti_SubscriberHandle` points to; only its address matters.
static SUBSCRIBER: u64 = 0;

/// The handle of the one client.
pub(super) fn handle() -> *mut c_void {
    (&raw const SUBSCRIBER).cast_mut().cast()
}

pub(super) unsafe extern "C" fn subscribe(
    subscriber: *mut *mut c_void,
    callback: Option<Callback>,
    user: *mut c_void,
) -> Result {
    let world = enter!("cuptiSubscribe");
    // SAFETY: the caller's duty.
    unsafe { take(&world, subscriber, Subscriber { callback, user: user as usize, ..Subscriber::default() }) }
}

unsafe fn take(world: &World, subscriber: *mut *mut c_void, client: Subscriber) -> Result {
    if subscriber.is_null() {
        return result::INVALID_PARAMETER;
    }
    let mut held = lock(&world.cupti.subscriber);
    let joins = client.interface == Interface::V2 { several: true } && world.cupti.faults.shared();
    if held.is_some() || world.cupti.faults.busy() && !joins {
        return result::MULTIPLE_SUBSCRIBERS;
    }
    *held = Some(client);
    // SAFETY: not null, and the caller says it is a handle.
    unsafe { *subscriber = handle() };
    result::SUCCESS
}

/// `CUpti_SubscriberParams`; before 13.2 it ended behind the length of the old name.
#[repr(C)]
pub(super) struct Parameters {
    size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_len: usize,
    several: u8,
    padding: [u8; 7],
}

pub(super) unsafe extern "C" fn subscribe_v2(
    subscriber: *mut *mut c_void,
    callback: Option<Callback>,
    user: *mut c_void,
    parameters: *mut Parameters,
) -> Result {
    let world = enter!("cuptiSubscribe_v2");
    if parameters.is_null() {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: not null, and the caller says that it begins with its size.
    let size = unsafe { (&raw const (*parameters).size).read() };
    let short = offset_of!(Parameters, several);
    if size != short && (size != size_of::<Parameters>() || !world.cupti.version.has_struct_size()) {
        return result::INVALID_PARAMETER;
    }
    // SAFETY: as long as it says.
    let several = unsafe { size > short && (&raw const (*parameters).several).read() == 1 };
    // SAFETY: every version has these.
    let (old_name, old_name_len) = unsafe {
        ((&raw const (*parameters).old_name).read(), (&raw const (*parameters).old_name_len).read())
    };
    let interface = Interface::V2 { several };
    let before = world.cupti.faults.busy();
    let client = Subscriber { interface, callback, user: user as usize, ..Subscriber::default() };
    // SAFETY: the same duties.
    let answer = unsafe { take(&world, subscriber, client) };
    if before && !old_name.is_null() {
        let holder = world.cupti.faults.holder();
        let len = holder.len().min(old_name_len.saturating_sub(1));
        // SAFETY: so many bytes are there, the caller says.
        unsafe {
            old_name.cast::<u8>().copy_from_nonoverlapping(holder.as_ptr(), len);
            old_name.cast::<u8>().add(len).write(0);
        }
    }
    answer
}

/// What is assumed, not measured: the callbacks and kinds of the client end with nothing but its subscription. Its
/// kinds stay on, its buffers stay with CUPTI, and its buffer callbacks are called until another client registers its
/// own, which then gets those buffers.
pub(super) unsafe extern "C" fn unsubscribe(subscriber: *mut c_void) -> Result {
    let world = enter!("cuptiUnsubscribe");
    if subscriber != handle() || lock(&world.cupti.subscriber).take().is_none() {
        return result::INVALID_PARAMETER;
    }
    if world.cupti.any_on() {
        world.cupti.ledger.misused("cuptiUnsubscribe while a kind is on");
    }
    world.cupti.callbacks_on.store(0, Relaxed);
    world.write_late();
    result::SUCCESS
}

pub(super) unsafe extern "C" fn enable_callback(
    enable: u32,
    subscriber: *mut c_void,
    domain: u32,
    id: u32,
) -> Result {
    let world = enter!("cuptiEnableCallback");
    with_subscriber(&world, subscriber, |held| {
        if enable == 0 {
            held.enabled.remove(&(domain, id));
        } else {
            held.enabled.insert((domain, id));
        }
    })
}

pub(super) unsafe extern "C" fn enable_domain(enable: u32, subscriber: *mut c_void, domain: u32) -> Result {
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

pub(super) unsafe extern "C" fn get_context_id(context: *mut c_void, id: *mut u32) -> Result {
    let world = enter!("cuptiGetContextId");
    let place = handles::id(context, handles::CONTEXT, world.cupti.contexts.len());
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, place.map(|place| world.cupti.contexts[place].id), result::INVALID_CONTEXT) }
}

pub(super) unsafe extern "C" fn get_device_id(context: *mut c_void, id: *mut u32) -> Result {
    let world = enter!("cuptiGetDeviceId");
    let place = handles::id(context, handles::CONTEXT, world.cupti.contexts.len());
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, place.map(|place| world.cupti.contexts[place].device), result::INVALID_CONTEXT) }
}

pub(super) unsafe extern "C" fn get_stream_id(
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

pub(super) unsafe extern "C" fn get_graph_id(graph: *mut c_void, id: *mut u32) -> Result {
    let _world = enter!("cuptiGetGraphId");
    let graph = handles::id(graph, handles::GRAPH, u32::MAX as usize).map(|id| id as u32);
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, graph, result::INVALID_PARAMETER) }
}

pub(super) unsafe extern "C" fn get_graph_exec_id(exec: *mut c_void, id: *mut u32) -> Result {
    let _world = enter!("cuptiGetGraphExecId");
    let exec = handles::id(exec, handles::EXEC, u32::MAX as usize).map(|id| id as u32);
    // SAFETY: the caller says it is a u32.
    unsafe { give(id, exec, result::INVALID_PARAMETER) }
}

pub(super) unsafe extern "C" fn get_graph_node_id(node: *mut c_void, id: *mut u64) -> Result {
    let _world = enter!("cuptiGetGraphNodeId");
    let node = handles::id(node, handles::NODE, handles::NODE).map(|id| id as u64);
    // SAFETY: the caller says it is a u64.
    unsafe { give(id, node, result::INVALID_PARAMETER) }
}
