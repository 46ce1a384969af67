//! The subscriber's callback, on the application's threads: what comes in is counted and told, nothing is called back
//! into CUDA.
#![expect(unsafe_code, reason = "called by CUPTI, with raw structures; see `abi`")]

use super::abi::{
    CallbackData, DOMAIN_DRIVER, DOMAIN_RESOURCE, ENTER, GraphData, ModuleData, ResourceData, resource,
};
use super::decode::{self, Parameters};
use super::doing::{self, Doing};
use super::{Count, Observe, current, pointed};
use crate::names::InProcess;
use crate::{quiet, sys};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::calls::{CALLS, Call, Sort};
use gtop_protocol::lifecycle::{CAPTURE_OPEN, Event, IN_CAPTURE, What};
use gtop_protocol::record::NO_DEVICE;

/// One call in so many is timed.
const TIMED: u64 = 64;
/// A wait for the device this long is an event, nanoseconds.
const LONG_WAIT_NS: u64 = 20_000_000;
/// `CUDA_ERROR_NOT_READY`: an answer, not a failure.
const NOT_READY: u32 = 600;

/// Callback ids of the driver are below this.
const CODES: usize = 1024;

/// For each callback id, its place in [`CALLS`] + 1.
static PLACES: [u8; CODES] = places();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler, which finds out"
)]
const fn places() -> [u8; CODES] {
    let mut places = [0; CODES];
    let mut i = 0;
    while i < CALLS.len() {
        places[CALLS[i].code as usize] = i as u8 + 1;
        i += 1;
    }
    places
}

/// `CUpti_CallbackFunc`.
pub(crate) unsafe extern "C" fn callback(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    let _ = quiet::contain(|| {
        let Some(observe) = current() else { return };
        if data.is_null() {
            return;
        }
        let timed = observe.calls.fetch_add(1, Relaxed).checked_rem(TIMED) == Some(0);
        let began = if timed { sys::monotonic() } else { 0 };
        // SAFETY: CUPTI gives the structure of the domain, which outlives the call.
        unsafe {
            match domain {
                DOMAIN_DRIVER => driver(observe, id, &*data.cast::<CallbackData>()),
                DOMAIN_RESOURCE => on_resource(observe, id, &*data.cast::<ResourceData>()),
                _ => {}
            }
        }
        if timed {
            let took = sys::monotonic().saturating_sub(began);
            observe.calls_ns.fetch_add(took.saturating_mul(TIMED), Relaxed);
        }
    });
}

/// A driver call begins or ends.
///
/// # Safety
/// The structure's pointers must be null or what `cupti_callbacks.h` says they are.
unsafe fn driver(observe: &Observe, code: u32, data: &CallbackData) {
    let place = PLACES.get(code as usize).copied().unwrap_or(0);
    let Some(call) = usize::from(place).checked_sub(1).and_then(|place| CALLS.get(place)) else { return };
    if data.site == ENTER {
        if !is_frequent(call.sort) && !data.own.is_null() {
            // SAFETY: CUPTI keeps eight bytes for us from the begin of a call to its end.
            unsafe { *data.own = sys::monotonic() };
        }
        // SAFETY: the parameters of this call.
        return begins(observe, call, unsafe { Parameters::new(data.parameters) });
    }
    // SAFETY: the return value of every driver call is a `CUresult`, 32 bits.
    let result = if data.returned.is_null() { 0 } else { unsafe { *data.returned.cast::<u32>() } };
    // Nearly all that comes: a launch that went well outside of captures.
    let open = observe.open.load(Relaxed);
    match call.sort {
        Sort::LaunchGraph if result == 0 => return observe.count(Count::Launches),
        Sort::LaunchKernel if result == 0 && open == 0 => return observe.count(Count::Kernels),
        Sort::Release | Sort::Mark | Sort::Join if result == 0 && open == 0 => return,
        Sort::Node(_) if result == 0 && open == 0 && call.points() => return observe.copied(),
        _ => {}
    }
    ends(call);
    if (call.sort.is_for_types() && !call.points()) || (call.sort == Sort::Release && result == 0) {
        return;
    }
    // SAFETY: the parameters of this call, whose outputs are written by now if it went well.
    let parameters = unsafe { Parameters::new(data.parameters) };
    ended(observe, call, data, result, parameters);
}

/// Remembers of a call that begins what has to be known when nodes and graphs are made within it.
fn begins(observe: &Observe, call: &Call, parameters: Parameters) {
    let inner_graphs = call.sort.has_inner_graphs();
    let node_type = match call.sort {
        Sort::NodeByParameters => Some(decode::node_type(call, parameters)),
        // Outside of captures these make no nodes.
        sort if (!sort.is_for_types() || call.points()) && observe.open.load(Relaxed) == 0 => None,
        _ => call.node_type(),
    };
    if inner_graphs || node_type.is_some() {
        doing::set(Doing { node_type, inner_graphs, ..doing::get() });
    }
    if call.sort == Sort::Free {
        pointed::free_begins(observe, call, parameters);
    }
}

/// Forgets it at the end of the call.
fn ends(call: &Call) {
    if call.sort.has_inner_graphs() || call.node_type().is_some() || call.sort.is_for_types() {
        doing::set(Doing { node_type: None, inner_graphs: false, ..doing::get() });
    }
}

/// A call has ended that may be worth telling.
fn ended(observe: &Observe, call: &Call, data: &CallbackData, result: u32, parameters: Parameters) {
    let mut doing = doing::get();
    let ok = result == 0;
    let event = Event { code: call.code.into(), context: data.context_id.into(), ..Event::default() };
    let mut event = Event { result: result.into(), ..event };
    decode::read(call, result, parameters, &mut event);
    let what = match call.sort {
        Sort::Begin => {
            if ok {
                observe.count(Count::Captures);
                observe.open.fetch_add(1, Relaxed);
                doing.captures = doing.captures.saturating_add(1);
                (doing.kernel, doing.stream) = (0, event.stream.get());
                doing::set(doing);
            }
            What::CaptureBegun
        }
        Sort::End => {
            if ends_capture(result) {
                observe.count(Count::CapturesEnded);
                let one_less = |open: u32| open.checked_sub(1);
                let _ = observe.open.fetch_update(Relaxed, Relaxed, one_less);
                doing::set(Doing { captures: doing.captures.saturating_sub(1), ..doing });
            }
            if !ok {
                observe.count(Count::CapturesFailed);
            }
            What::CaptureEnded
        }
        Sort::Instantiate => What::Instantiated,
        Sort::Update => {
            observe.count(Count::Updates);
            if !ok {
                observe.count(Count::UpdatesFailed);
            }
            What::Updated
        }
        Sort::Upload => What::Uploaded,
        Sort::LaunchGraph => {
            observe.count(Count::Launches);
            observe.count(Count::LaunchesFailed);
            What::LaunchFailed
        }
        Sort::LaunchKernel => {
            observe.count(Count::Kernels);
            // SAFETY: CUPTI gives the kernel's name, which lives while the call does.
            let name = observe.names.resolve(data.symbol as u64, &unsafe { InProcess::new() });
            if ok {
                // Within a capture the last kernel says how far it came.
                if doing.captures == 0 {
                    return;
                }
                let stream = event.stream.get();
                doing::set(Doing { kernel: name, stream, ..doing });
                if stream != doing.stream {
                    tell(observe, What::StreamWorks, event, true);
                }
                return;
            }
            observe.count(Count::KernelsFailed);
            event.name = name.into();
            What::KernelFailed
        }
        Sort::DestroyExec | Sort::DestroyGraph if ok => return,
        Sort::DestroyExec => What::ExecDestroyFailed,
        Sort::DestroyGraph => What::GraphDestroyFailed,
        Sort::Mark | Sort::Join if ok => {
            if doing.captures > 0 {
                let what = if call.sort == Sort::Mark { What::StreamMarked } else { What::StreamWaits };
                tell(observe, what, event, true);
            }
            return;
        }
        Sort::Node(_) if ok => {
            if doing.captures > 0 {
                pointed::node_made(observe, event);
            }
            return;
        }
        Sort::SetNode => {
            if ok && observe.pointed.give_up() {
                tell(observe, What::NodesSet, event, false);
            }
            return;
        }
        Sort::CreatePool if ok => {
            observe.count(Count::Pools);
            What::PoolCreated
        }
        Sort::DestroyPool if ok => {
            observe.count(Count::PoolsDestroyed);
            What::PoolDestroyed
        }
        _ => What::Call,
    };
    // SAFETY: as at the begin of the call, where it was written.
    let began = if is_frequent(call.sort) || data.own.is_null() { 0 } else { unsafe { *data.own } };
    let ns = if began == 0 { 0 } else { sys::monotonic().saturating_sub(began) };
    event.ns = ns.into();
    pointed::call_ended(observe, call, event, doing.freeing);
    let what = match (what, call.sort) {
        (What::Call, Sort::Free) if ok => return,
        (What::Call, Sort::Wait) if matches!(result, 0 | NOT_READY) => {
            if ns < LONG_WAIT_NS {
                return;
            }
            What::LongWait
        }
        (What::Call, Sort::Allocate | Sort::Load) if ok && observe.open.load(Relaxed) == 0 => return,
        (what, _) => what,
    };
    if u32::from(event.name) == 0 {
        event.name = doing.kernel.into();
    }
    let may_flood = matches!(
        what,
        What::LaunchFailed
            | What::KernelFailed
            | What::Call
            | What::Uploaded
            | What::Updated
            | What::LongWait
    );
    tell(observe, what, event, may_flood);
}

/// Whether calls of this sort come so often that they are not timed.
const fn is_frequent(sort: Sort) -> bool {
    use Sort::{Join, LaunchGraph, LaunchKernel, Mark, Release, SetNode};
    matches!(sort, LaunchKernel | LaunchGraph | Release | SetNode | Mark | Join) || sort.is_for_types()
}

/// Whether this answer to `cuStreamEndCapture` means that the capture is over: not when there was none, or when it
/// was begun by another thread.
const fn ends_capture(result: u32) -> bool {
    matches!(result, 0 | 901..=907)
}

/// Something becomes of a context, a stream, a module or a graph.
///
/// # Safety
/// As for [`driver`].
unsafe fn on_resource(observe: &Observe, id: u32, data: &ResourceData) {
    let ids = &observe.functions;
    let context = ids.context(data.context);
    let mut event = Event { context: context.into(), ..Event::default() };
    let (what, count) = match id {
        resource::CONTEXT_CREATED | resource::CONTEXT_DESTROY_STARTING => {
            event.object = (data.context as u64).into();
            event.id = context.into();
            let device = ids.device(data.context);
            event.device = device.into();
            observe.devices.fetch_or(1u32.checked_shl(u32::from(device)).unwrap_or(0), Relaxed);
            match id {
                resource::CONTEXT_CREATED => (What::ContextCreated, Count::Contexts),
                _ => (What::ContextDestroyed, Count::ContextsDestroyed),
            }
        }
        resource::STREAM_CREATED | resource::STREAM_DESTROY_STARTING => {
            event.object = (data.stream as u64).into();
            event.id = ids.stream(data.context, data.stream).into();
            match id {
                resource::STREAM_CREATED => (What::StreamCreated, Count::Streams),
                _ => (What::StreamDestroyed, Count::StreamsDestroyed),
            }
        }
        resource::MODULE_LOADED | resource::MODULE_UNLOAD_STARTING => {
            if !data.descriptor.is_null() {
                // SAFETY: a module's callbacks carry this structure.
                let module = unsafe { &*data.descriptor.cast::<ModuleData>() };
                event.id = module.id.into();
                event.bytes = (module.size as u64).into();
            }
            event.name = doing::get().kernel.into();
            match id {
                resource::MODULE_LOADED => (What::ModuleLoaded, Count::Modules),
                _ => (What::ModuleUnloaded, Count::ModulesUnloaded),
            }
        }
        _ => {
            if data.descriptor.is_null() {
                return;
            }
            // SAFETY: a graph's callbacks carry this structure.
            let graph = unsafe { &*data.descriptor.cast::<GraphData>() };
            return on_graph(observe, id, graph, event);
        }
    };
    observe.count(count);
    tell(observe, what, event, false);
}

fn on_graph(observe: &Observe, id: u32, graph: &GraphData, mut event: Event) {
    let ids = &observe.functions;
    let doing = doing::get();
    let of_exec = matches!(id, resource::EXEC_CREATED | resource::EXEC_DESTROY_STARTING);
    if doing.inner_graphs && !of_exec {
        return;
    }
    event.object = (graph.graph as u64).into();
    event.other = (graph.original_graph as u64).into();
    let (what, count) = match id {
        resource::GRAPH_CREATED | resource::GRAPH_CLONED | resource::GRAPH_DESTROY_STARTING => {
            event.id = ids.graph(graph.graph).into();
            match id {
                resource::GRAPH_CREATED => (What::GraphCreated, Some(Count::Graphs)),
                resource::GRAPH_CLONED => (What::GraphCloned, Some(Count::Graphs)),
                _ => (What::GraphDestroyed, Some(Count::GraphsDestroyed)),
            }
        }
        resource::NODE_CREATED => {
            event.node = ids.node(graph.node).into();
            event.id = ((event.node.get() >> 32) as u32).into();
            let node_type = if graph.node_type == 0 { doing.node_type.map(u32::from) } else { None };
            event.detail = node_type.unwrap_or(graph.node_type).into();
            event.count = 1.into();
            (What::Nodes, None)
        }
        resource::DEPENDENCY_CREATED => {
            event.node = ids.node(graph.node).into();
            event.other = ids.node(graph.dependency).into();
            event.id = ((event.node.get() >> 32) as u32).into();
            event.count = 1.into();
            (What::Edges, None)
        }
        resource::EXEC_CREATED | resource::EXEC_DESTROY_STARTING => {
            event.object = (graph.exec as u64).into();
            event.other = (graph.graph as u64).into();
            event.id = ids.exec(graph.exec).into();
            event.node = u64::from(ids.graph(graph.graph)).into();
            match id {
                resource::EXEC_CREATED => (What::ExecCreated, Some(Count::Execs)),
                _ => (What::ExecDestroyed, Some(Count::ExecsDestroyed)),
            }
        }
        _ => return,
    };
    if let Some(count) = count {
        observe.count(count);
    }
    tell(observe, what, event, false);
}

/// Completes an event and puts it into the queue.
pub(super) fn tell(observe: &Observe, what: What, event: Event, may_flood: bool) {
    let now = sys::realtime();
    if may_flood && !observe.may_tell(now) {
        return;
    }
    let doing = doing::get();
    let open = observe.open.load(Relaxed) > 0;
    let flags = match (open, doing.captures > 0) {
        (true, true) => IN_CAPTURE | CAPTURE_OPEN,
        (true, false) => CAPTURE_OPEN,
        _ => 0,
    };
    let device = if matches!(what, What::ContextCreated | What::ContextDestroyed) {
        event.device.get()
    } else {
        NO_DEVICE
    };
    observe.push(&Event {
        time: now.into(),
        thread: doing.thread.into(),
        what: what as u8,
        flags,
        device: device.into(),
        ..event
    });
}

#[cfg(test)]
mod tests;
