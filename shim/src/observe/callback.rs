//! The subscriber's callback, on the application's threads: what comes in is counted and told, nothing is called back
//! into CUDA.
#![expect(unsafe_code, reason = "called by CUPTI, with raw structures; see `abi`")]

mod resources;

use super::abi::{CallbackData, DOMAIN_DRIVER, DOMAIN_RESOURCE, ENTER, ResourceData};
use super::budget::Budget;
use super::cost::{Class, TIMED};
use super::decode::{self, Parameters};
use super::doing::{self, Doing, Makes};
use super::{Count, Observe, current, legacy, pointed};
use crate::names::InProcess;
use crate::{quiet, sys};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::calls::{CALLS, Call, Sort, breaks_captures, ends_capture};
use gtop_protocol::lifecycle::{ALLOCATIONS_TOLD, CAPTURE_OPEN, Event, IN_CAPTURE, What};
use gtop_protocol::node_type::{ALLOCATE, holds_graphs};
use gtop_protocol::record::NO_DEVICE;

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
                DOMAIN_RESOURCE => resources::on_resource(observe, id, &*data.cast::<ResourceData>()),
                _ => {}
            }
        }
        if timed {
            let took = sys::monotonic().saturating_sub(began);
            if domain == DOMAIN_DRIVER
                && let Some(class) = watched(id).and_then(Class::of)
            {
                observe.costs.add(class, took);
            }
            observe.calls_ns.fetch_add(took.saturating_mul(TIMED), Relaxed);
        }
    });
}

/// The call with this callback id, if it is watched.
fn watched(code: u32) -> Option<&'static Call> {
    let place = PLACES.get(code as usize).copied().unwrap_or(0);
    usize::from(place).checked_sub(1).and_then(|place| CALLS.get(place))
}

/// A driver call begins or ends.
///
/// # Safety
/// The structure's pointers must be null or what `cupti_callbacks.h` says they are.
unsafe fn driver(observe: &Observe, code: u32, data: &CallbackData) {
    let Some(call) = watched(code) else { return };
    // SAFETY: the parameters of this call; at its end the outputs are written if it went well.
    let parameters = unsafe { Parameters::new(data.parameters) };
    if data.site == ENTER {
        if !is_frequent(call.sort) && !data.own.is_null() {
            // SAFETY: CUPTI keeps eight bytes for us from the begin of a call to its end.
            unsafe { *data.own = sys::monotonic() };
        }
        return begins(observe, call, parameters);
    }
    // SAFETY: the return value of every driver call is a `CUresult`, 32 bits.
    let result = if data.returned.is_null() { 0 } else { unsafe { *data.returned.cast::<u32>() } };
    // Nearly all that comes: a launch that went well outside of captures.
    let open = observe.open.any();
    match call.sort {
        Sort::LaunchGraph if result == 0 => {
            return launched(observe, Count::Launches, call, data, parameters);
        }
        Sort::LaunchKernel if result == 0 && !open => {
            return launched(observe, Count::Kernels, call, data, parameters);
        }
        Sort::Release | Sort::Mark | Sort::Join if result == 0 && !open => return,
        Sort::Node(_) if result == 0 && !open && call.points() => return,
        Sort::CreateEvent if result == 0 => return observe.count(Count::Events),
        Sort::DestroyEvent if result == 0 => return observe.count(Count::EventsDestroyed),
        _ => {}
    }
    ends(call);
    let is_over = call.sort == Sort::CreateStream || (call.sort == Sort::Release && result == 0);
    if is_over || (call.sort.is_for_types() && !call.points()) {
        return;
    }
    ended(observe, call, data, result, parameters);
}

/// A kernel or a graph was launched outside of captures.
fn launched(observe: &Observe, what: Count, call: &Call, data: &CallbackData, parameters: Parameters) {
    observe.count(what);
    if decode::launched_on(call, parameters).is_some_and(|stream| call.is_legacy(stream)) {
        legacy::launched(observe, data.context_id);
    }
}

/// Remembers of a call that begins what has to be known when nodes and graphs are made within it.
fn begins(observe: &Observe, call: &Call, parameters: Parameters) {
    let inner_graphs = call.sort.has_inner_graphs();
    let node_type = match call.sort {
        Sort::NodeByParameters => Some(decode::node_type(call, parameters)),
        // Outside of captures these make no nodes.
        sort if (!sort.is_for_types() || call.points()) && !observe.open.any() => None,
        _ => call.node_type(),
    };
    let removes_node = call.sort == Sort::RemoveNode;
    let makes = match (call.sort, node_type) {
        (Sort::Clone, _) => Makes::Clone,
        (_, Some(node_type)) if holds_graphs(node_type.into()) => Makes::Inside,
        _ => Makes::Own,
    };
    if inner_graphs || removes_node || node_type.is_some() || makes == Makes::Clone {
        let asks =
            if node_type.map(u32::from) == Some(ALLOCATE) { decode::node_bytes(call, parameters) } else { 0 };
        doing::set(Doing {
            node_type,
            call: call.code,
            inner_graphs,
            makes,
            removes_node,
            asks,
            ..doing::get()
        });
    }
    match call.sort {
        Sort::Free => pointed::free_begins(observe, call, parameters),
        Sort::CreateStream => {
            doing::set(Doing { creates: decode::stream_created(parameters), ..doing::get() });
        }
        _ => {}
    }
}

/// Forgets it at the end of the call.
fn ends(call: &Call) {
    let sort = call.sort;
    if sort.has_inner_graphs()
        || matches!(sort, Sort::RemoveNode | Sort::Clone | Sort::CreateStream)
        || call.node_type().is_some()
        || sort.is_for_types()
    {
        let idle = Doing { node_type: None, inner_graphs: false, removes_node: false, ..doing::get() };
        doing::set(Doing { makes: Makes::Own, creates: 0, ..idle });
    }
}

/// A call has ended that may be worth telling.
fn ended(observe: &Observe, call: &Call, data: &CallbackData, result: u32, parameters: Parameters) {
    let mut doing = doing::get();
    let ok = result == 0;
    let in_capture = observe.open.of_thread(doing.thread);
    let event = Event { code: call.code.into(), context: data.context_id.into(), ..Event::default() };
    let mut event = Event { result: result.into(), ..event };
    decode::read(call, result, parameters, &mut event);
    if ok && in_capture && call.sort == Sort::Allocate {
        doing = doing.allocates(call, event.bytes.get());
        doing::set(doing);
    }
    let what = match call.sort {
        Sort::Begin => {
            if ok {
                observe.count(Count::Captures);
                observe.open.begin(event.stream.get(), doing.thread, data.context_id);
                // Of two at once it is not known whose an allocation is.
                let allocated = if in_capture { None } else { Some(0) };
                doing = Doing { kernel: 0, stream: event.stream.get(), allocated, ..doing };
                doing::set(doing);
            }
            What::CaptureBegun
        }
        Sort::End => {
            let own = observe.open.is_of(event.stream.get(), doing.thread);
            let over = ends_capture(result) && observe.open.end(event.stream.get(), doing.thread);
            if let (true, Some(bytes)) = (own && over, doing.allocated.take()) {
                (event.detail, event.bytes) = (ALLOCATIONS_TOLD.into(), bytes.into());
            }
            // One that was begun before anybody looked is told by these alone.
            if over || matches!(result, 0 | 901..=907) {
                observe.count(Count::CapturesEnded);
                doing::set(Doing { kernel: 0, stream: 0, ..doing });
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
                if !in_capture {
                    return;
                }
                let stream = event.stream.get();
                doing::set(Doing { kernel: name, stream, ..doing });
                if stream != doing.stream {
                    tell(observe, What::StreamWorks, event, Some(Budget::Streams));
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
            if in_capture {
                let what = if call.sort == Sort::Mark { What::StreamMarked } else { What::StreamWaits };
                tell(observe, what, event, Some(Budget::Streams));
            }
            return;
        }
        Sort::Node(_) if ok => {
            if in_capture {
                pointed::node_made(observe, event);
            }
            return;
        }
        Sort::SetNode => {
            if ok && observe.pointed.give_up() {
                tell(observe, What::NodesSet, event, None);
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
        (
            What::Call,
            Sort::Free | Sort::CreateEvent | Sort::DestroyEvent | Sort::RemoveNode | Sort::Clone,
        ) if ok => return,
        (What::Call, Sort::Wait) if matches!(result, 0 | NOT_READY) => {
            if ns < LONG_WAIT_NS {
                return;
            }
            What::LongWait
        }
        (What::Call, Sort::Allocate | Sort::Load | Sort::Register) if ok && !observe.open.any() => return,
        (what, _) => what,
    };
    // Within a capture the last kernel says how far it came.
    if in_capture && u32::from(event.name) == 0 {
        event.name = doing.kernel.into();
    }
    let budget = match what {
        What::LaunchFailed | What::KernelFailed | What::Call | What::Updated if breaks_captures(result) => {
            Some(Budget::Breaking)
        }
        What::Updated => Some(Budget::Updates),
        What::LaunchFailed | What::KernelFailed => Some(Budget::Failures),
        What::Call if !ok => Some(Budget::Failures),
        What::Call | What::Uploaded | What::LongWait => Some(Budget::Others),
        _ => None,
    };
    tell(observe, what, event, budget);
}

/// Whether calls of this sort come so often that they are not timed.
const fn is_frequent(sort: Sort) -> bool {
    use Sort::{Join, LaunchGraph, LaunchKernel, Mark, Release, SetNode};
    matches!(sort, LaunchKernel | LaunchGraph | Release | SetNode | Mark | Join) || sort.is_for_types()
}

/// Completes an event and puts it into the queue, as far as the budget of its sort goes.
pub(super) fn tell(observe: &Observe, what: What, event: Event, budget: Option<Budget>) {
    let now = sys::realtime();
    if budget.is_some_and(|budget| !observe.may_tell(budget, now)) {
        return;
    }
    let doing = doing::get();
    let open = observe.open.any();
    let flags = match (open, observe.open.of_thread(doing.thread)) {
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
