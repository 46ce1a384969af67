//! The subscriber's callback: API calls when they begin and end, and what becomes of contexts, streams and graphs. It
//! is called for what the client enabled and nothing else.
#![allow(unsafe_code, reason = "the callback is a C function and gets C structs")]

use crate::cupti::{Cupti, lock};
use crate::layout::{self, Record, kind};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{from_ref, null, null_mut};
use std::sync::atomic::Ordering::Relaxed;

/// `CUpti_CallbackFunc`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// Values of `CUpti_CallbackDomain`.
pub(crate) mod domain {
    pub(crate) const DRIVER: u32 = 1;
    pub(crate) const RUNTIME: u32 = 2;
    pub(crate) const RESOURCE: u32 = 3;
}

/// Values of `CUpti_CallbackIdResource`.
pub(crate) mod resource {
    pub(crate) const CONTEXT_CREATED: u32 = 1;
    pub(crate) const STREAM_CREATED: u32 = 3;
    pub(crate) const GRAPH_CREATED: u32 = 9;
    pub(crate) const GRAPH_DESTROY_STARTING: u32 = 10;
    pub(crate) const NODE_CREATED: u32 = 13;
    pub(crate) const EXEC_CREATE_STARTING: u32 = 17;
    pub(crate) const EXEC_CREATED: u32 = 18;
    pub(crate) const EXEC_DESTROY_STARTING: u32 = 19;
}

/// Handles that callbacks carry: a base for each sort of thing, and its id behind it. None points to anything.
pub(crate) mod handle {
    pub(crate) const CONTEXT: usize = 0x1_0000_0000_0000;
    pub(crate) const STREAM: usize = 0x2_0000_0000_0000;
    pub(crate) const GRAPH: usize = 0x3_0000_0000_0000;
    pub(crate) const EXEC: usize = 0x4_0000_0000_0000;
    pub(crate) const NODE: usize = 0x4000_0000_0000_0000;
    /// In the id of a graph, which the executable graph made of it has not.
    pub(crate) const SOURCE: u32 = 1 << 20;

    /// The id in a handle of this sort.
    pub(crate) fn id(handle: *mut std::ffi::c_void, base: usize, ids: usize) -> Option<usize> {
        (handle as usize).checked_sub(base).filter(|id| *id < ids)
    }
}

/// The API through which a thread of the application launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The runtime, which calls the driver.
    #[default]
    Runtime,
    /// The runtime, compiled for per-thread default streams.
    RuntimePerThread,
    /// The driver.
    Driver,
    /// The driver, compiled for per-thread default streams.
    DriverPerThread,
}

/// A launching function: its names and callback ids in both APIs, for legacy and per-thread default streams.
pub(crate) struct Function {
    runtime: &'static CStr,
    runtime_ids: [u32; 2],
    driver: &'static CStr,
    driver_ids: [u32; 2],
}

const GRAPH_LAUNCH: Function = Function {
    runtime: c"cudaGraphLaunch",
    runtime_ids: [311, 312],
    driver: c"cuGraphLaunch",
    driver_ids: [514, 515],
};
const LAUNCH_KERNEL: Function = Function {
    runtime: c"cudaLaunchKernel",
    runtime_ids: [211, 214],
    driver: c"cuLaunchKernel",
    driver_ids: [307, 442],
};
const MEMSET: Function = Function {
    runtime: c"cudaMemsetAsync",
    runtime_ids: [51, 235],
    driver: c"cuMemsetD8Async",
    driver_ids: [216, 428],
};

const fn memcpy(driver: &'static CStr, driver_ids: [u32; 2]) -> Function {
    Function { runtime: c"cudaMemcpyAsync", runtime_ids: [41, 225], driver, driver_ids }
}

impl Function {
    /// What launches a graph, or without one the work that this record is of.
    pub(crate) fn launching(graph: u32, record: &Record) -> Self {
        match (graph, record.kind()) {
            (0, kind::KERNEL) => LAUNCH_KERNEL,
            (0, kind::MEMSET) => MEMSET,
            (0, _) => match record.bytes()[4] {
                layout::Copy::HOST_TO_DEVICE => memcpy(c"cuMemcpyHtoDAsync_v2", [277, 421]),
                layout::Copy::DEVICE_TO_HOST => memcpy(c"cuMemcpyDtoHAsync_v2", [279, 422]),
                layout::Copy::DEVICE_TO_DEVICE => memcpy(c"cuMemcpyDtoDAsync_v2", [281, 423]),
                _ => memcpy(c"cuMemcpyPeerAsync", [319, 426]),
            },
            _ => GRAPH_LAUNCH,
        }
    }

    /// The calls that one launch makes, outermost first: kind of their records, domain, callback id, name.
    pub(crate) fn calls(
        &self,
        api: Api,
    ) -> impl DoubleEndedIterator<Item = (u32, u32, u32, &'static CStr)> + Clone {
        let per_thread = usize::from(matches!(api, Api::RuntimePerThread | Api::DriverPerThread));
        let runtime = (kind::RUNTIME, domain::RUNTIME, self.runtime_ids[per_thread], self.runtime);
        let driver = (kind::DRIVER, domain::DRIVER, self.driver_ids[per_thread], self.driver);
        let by_runtime = matches!(api, Api::Runtime | Api::RuntimePerThread);
        by_runtime.then_some(runtime).into_iter().chain([driver])
    }
}

/// `CUpti_CallbackData`.
#[repr(C)]
struct CallbackData {
    site: u32,
    function: *const c_char,
    parameters: *const c_void,
    returned: *mut c_void,
    symbol: *const c_char,
    context: *mut c_void,
    context_id: u32,
    correlation_data: *mut u64,
    correlation: u32,
}

/// `CUpti_ResourceData`.
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    stream: *mut c_void,
    descriptor: *const c_void,
}

/// `CUpti_GraphData`.
#[repr(C)]
pub(crate) struct GraphData {
    pub(crate) graph: usize,
    pub(crate) original_graph: usize,
    pub(crate) node: usize,
    pub(crate) original_node: usize,
    pub(crate) node_type: u32,
    pub(crate) dependency: usize,
    pub(crate) exec: usize,
}

impl GraphData {
    pub(crate) const fn of(graph: u32) -> Self {
        let graph = handle::GRAPH + graph as usize;
        Self { graph, original_graph: 0, node: 0, original_node: 0, node_type: 0, dependency: 0, exec: 0 }
    }
}

/// A launch, for the callbacks at its begin and end.
pub(crate) struct Launch<'a> {
    /// What is launched: the handle of an executable graph, or the address of a kernel's name.
    pub(crate) what: usize,
    pub(crate) symbol: u64,
    pub(crate) stream: u32,
    /// Place of the context among contexts.
    pub(crate) context: usize,
    pub(crate) correlation: u32,
    pub(crate) function: &'a Function,
    pub(crate) api: Api,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the subscriber's callback.
pub(crate) fn inside_callback() -> bool {
    INSIDE.get()
}

/// Calls the subscriber back, if it enabled this.
fn call(cupti: &Cupti, domain: u32, id: u32, data: *const c_void) {
    let (callback, user) = match lock(&cupti.subscriber).as_ref() {
        Some(held) if held.domains.contains(&domain) || held.enabled.contains(&(domain, id)) => {
            (held.callback, held.user)
        }
        _ => return,
    };
    let Some(callback) = callback else { return };
    INSIDE.set(true);
    // SAFETY: the client subscribed with this function and this pointer; the data are of the domain's struct and
    // outlive the call.
    unsafe { callback(user as *mut c_void, domain, id, data) };
    INSIDE.set(false);
}

impl Launch<'_> {
    /// Calls back for the begin and the end of each call that the launch makes.
    pub(crate) fn call_back(&self, cupti: &Cupti) {
        if !cupti.calls_back() {
            return;
        }
        // The first two fields of every launch's parameters that matter: what, and for graphs the stream.
        let parameters = [self.what, handle::STREAM + self.stream as usize];
        let context = &cupti.contexts[self.context];
        let mut own_data = [0_u64; 2];
        let mut returned = 0_u32;
        let mut data = |site, place: usize, name: &CStr| CallbackData {
            site,
            function: name.as_ptr(),
            parameters: parameters.as_ptr().cast(),
            returned: if site == 0 { null_mut() } else { (&raw mut returned).cast() },
            symbol: self.symbol as *const c_char,
            context: (handle::CONTEXT + self.context) as *mut c_void,
            context_id: context.id,
            correlation_data: &raw mut own_data[place],
            correlation: self.correlation,
        };
        let calls = self.function.calls(self.api);
        for (place, (_, domain, id, name)) in calls.clone().enumerate() {
            call(cupti, domain, id, from_ref(&data(0, place, name)).cast());
        }
        let inner = calls.clone().count() - 1;
        for (place, (_, domain, id, name)) in calls.rev().enumerate() {
            call(cupti, domain, id, from_ref(&data(1, inner - place, name)).cast());
        }
    }
}

/// Calls back for the begin and the end of a call of the driver, from outside of any runtime call.
pub(crate) fn call_back(
    cupti: &Cupti,
    context: usize,
    (id, name): (u32, &CStr),
    parameters: &[u64],
    mut result: u32,
    symbol: u64,
) {
    let mut own = 0_u64;
    for site in [0, 1] {
        let data = CallbackData {
            site,
            function: name.as_ptr(),
            parameters: parameters.as_ptr().cast(),
            returned: if site == 0 { null_mut() } else { (&raw mut result).cast() },
            symbol: symbol as *const c_char,
            context: (handle::CONTEXT + context) as *mut c_void,
            context_id: cupti.contexts[context].id,
            correlation_data: &raw mut own,
            correlation: 0,
        };
        call(cupti, domain::DRIVER, id, from_ref(&data).cast());
    }
}

/// Calls back for a context, a stream in it, or a graph.
pub(crate) fn resource(
    cupti: &Cupti,
    id: u32,
    context: usize,
    stream: Option<u32>,
    graph: Option<&GraphData>,
) {
    if !cupti.calls_back() {
        return;
    }
    let data = ResourceData {
        context: (handle::CONTEXT + context) as *mut c_void,
        stream: stream.map_or(null_mut(), |stream| (handle::STREAM + stream as usize) as *mut c_void),
        descriptor: graph.map_or(null(), |graph| from_ref(graph).cast()),
    };
    call(cupti, domain::RESOURCE, id, from_ref(&data).cast());
}

impl Cupti {
    /// Whether the subscriber enabled any callback.
    pub(crate) fn calls_back(&self) -> bool {
        self.callbacks_on.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Copy, Place};
    use crate::version::Version;
    use cudarc::cupti::sys;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_structs_are_those_of_the_header() {
        assert_eq!(size_of::<CallbackData>(), size_of::<sys::CUpti_CallbackData>());
        assert_eq!(size_of::<ResourceData>(), size_of::<sys::CUpti_ResourceData>());
        assert_eq!(size_of::<GraphData>(), size_of::<sys::CUpti_GraphData>());
        let ours = [
            offset_of!(CallbackData, parameters),
            offset_of!(CallbackData, symbol),
            offset_of!(CallbackData, context_id),
            offset_of!(CallbackData, correlation),
            offset_of!(GraphData, node),
            offset_of!(GraphData, node_type),
            offset_of!(GraphData, exec),
        ];
        let theirs = [
            offset_of!(sys::CUpti_CallbackData, functionParams),
            offset_of!(sys::CUpti_CallbackData, symbolName),
            offset_of!(sys::CUpti_CallbackData, contextUid),
            offset_of!(sys::CUpti_CallbackData, correlationId),
            offset_of!(sys::CUpti_GraphData, node),
            offset_of!(sys::CUpti_GraphData, nodeType),
            offset_of!(sys::CUpti_GraphData, graphExec),
        ];
        assert_eq!(ours, theirs);
    }

    #[test]
    fn the_ids_are_those_of_the_header() {
        use sys::CUpti_driver_api_trace_cbid_enum as driver;
        use sys::CUpti_runtime_api_trace_cbid_enum as runtime;
        let copies =
            [Copy::HOST_TO_DEVICE, Copy::DEVICE_TO_HOST, Copy::DEVICE_TO_DEVICE, Copy::PEER].map(|kind| {
                let copy = Copy { kind, from: 3, to: 3, flags: 1, bytes: 1 };
                Function::launching(0, &Record::copy(Version(130_001), Place::default(), &copy)).driver_ids
            });
        let theirs = [
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2 as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2 as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2 as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync as u32,
            driver::CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz as u32,
        ];
        assert_eq!(copies.as_flattened(), theirs);
        let pairs = [
            (GRAPH_LAUNCH.driver_ids[0], driver::CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch as u32),
            (GRAPH_LAUNCH.driver_ids[1], driver::CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz as u32),
            (LAUNCH_KERNEL.driver_ids[0], driver::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel as u32),
            (LAUNCH_KERNEL.driver_ids[1], driver::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz as u32),
            (MEMSET.driver_ids[0], driver::CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async as u32),
            (MEMSET.driver_ids[1], driver::CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz as u32),
            (GRAPH_LAUNCH.runtime_ids[0], runtime::CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 as u32),
            (
                GRAPH_LAUNCH.runtime_ids[1],
                runtime::CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000 as u32,
            ),
            (LAUNCH_KERNEL.runtime_ids[0], runtime::CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 as u32),
            (
                LAUNCH_KERNEL.runtime_ids[1],
                runtime::CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000 as u32,
            ),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }
}
