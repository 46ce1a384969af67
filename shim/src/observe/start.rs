//! Switching the callbacks on, one by one, and CUPTI's functions that give ids.
#![expect(unsafe_code, reason = "a foreign library's functions")]

use super::abi::{DOMAIN_DRIVER, DOMAIN_RESOURCE, resource};
use super::{Observe, current, install};
use crate::shared::{Shim, keep};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::calls::CALLS;
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::Severity;
use gtop_protocol::record::NO_DEVICE;

/// `cuptiEnableCallback`.
pub(crate) type Enable = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32;
/// `cuptiGetGraphId`, `cuptiGetGraphExecId`, `cuptiGetContextId`, `cuptiGetDeviceId`.
pub(crate) type GetId = unsafe extern "C" fn(*mut c_void, *mut u32) -> u32;
/// `cuptiGetGraphNodeId`.
pub(crate) type GetNodeId = unsafe extern "C" fn(*mut c_void, *mut u64) -> u32;
/// `cuptiGetStreamIdEx`.
pub(crate) type GetStreamId = unsafe extern "C" fn(*mut c_void, *mut c_void, u8, *mut u32) -> u32;

/// CUPTI's functions for callbacks, as far as the library has them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Functions {
    pub(crate) enable: Option<Enable>,
    pub(crate) graph: Option<GetId>,
    pub(crate) exec: Option<GetId>,
    pub(crate) node: Option<GetNodeId>,
    pub(crate) context: Option<GetId>,
    pub(crate) device: Option<GetId>,
    pub(crate) stream: Option<GetStreamId>,
}

fn id(function: Option<GetId>, handle: *mut c_void) -> u32 {
    let mut id = 0;
    match function {
        // SAFETY: a handle that CUPTI itself just gave us; it writes one u32.
        Some(function) if !handle.is_null() && unsafe { function(handle, &raw mut id) } == 0 => id,
        _ => 0,
    }
}

impl Functions {
    pub(super) fn graph(&self, graph: *mut c_void) -> u32 {
        id(self.graph, graph)
    }

    pub(super) fn exec(&self, exec: *mut c_void) -> u32 {
        id(self.exec, exec)
    }

    pub(super) fn context(&self, context: *mut c_void) -> u32 {
        id(self.context, context)
    }

    pub(super) fn device(&self, context: *mut c_void) -> u16 {
        let mut device = 0;
        match self.device {
            // SAFETY: as for `id`.
            Some(function) if !context.is_null() && unsafe { function(context, &raw mut device) } == 0 => {
                u16::try_from(device).unwrap_or(NO_DEVICE)
            }
            _ => NO_DEVICE,
        }
    }

    pub(super) fn stream(&self, context: *mut c_void, stream: *mut c_void) -> u32 {
        let mut id = 0;
        match self.stream {
            // SAFETY: as for `id`.
            Some(function)
                if !stream.is_null() && unsafe { function(context, stream, 0, &raw mut id) } == 0 =>
            {
                id
            }
            _ => 0,
        }
    }

    pub(super) fn node(&self, node: *mut c_void) -> u64 {
        let mut id = 0;
        match self.node {
            // SAFETY: as for `id`; it writes one u64.
            Some(function) if !node.is_null() && unsafe { function(node, &raw mut id) } == 0 => id,
            _ => 0,
        }
    }
}

/// Switches the callbacks on for a subscription. The first one is made before CUDA begins, and so misses nothing.
pub(crate) fn start(
    shim: &'static Shim,
    functions: Functions,
    version: CuptiVersion,
    subscriber: *mut c_void,
) {
    let Some(enable) = functions.enable else {
        shim.note(
            Severity::Warning,
            "graphs",
            format_args!("this CUPTI has no callbacks to watch graphs by"),
        );
        return;
    };
    let Some(collector) = shim.collector.get() else { return };
    let before = current();
    let made = || Observe::new(functions, &collector.names, &shim.wake).and_then(keep);
    let Some(observe) = before.or_else(made) else {
        shim.note(Severity::Warning, "graphs", format_args!("no memory to watch graphs with"));
        return;
    };
    install(observe);
    let mut refused = 0u32;
    let mut switch = |domain, id| {
        // SAFETY: numbers, and the handle of our subscription.
        let result = unsafe { enable(1, subscriber, domain, id) };
        refused = refused.saturating_add(u32::from(result != 0));
    };
    for id in resource::ALL {
        switch(DOMAIN_RESOURCE, id);
    }
    let tells_types = version.tells_node_types();
    observe.types_by_calls.store(!tells_types, Relaxed);
    for call in CALLS.iter().filter(|call| call.is_watched(tells_types)) {
        switch(DOMAIN_DRIVER, call.code);
    }
    observe.on.store(true, Relaxed);
    observe.whole.store(before.is_none(), Relaxed);
    shim.log.line(format_args!("watching graphs; {refused} callbacks are not known to this CUPTI"));
}
