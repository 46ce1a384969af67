//! Callbacks as CUPTI makes them.

use super::resources::{UNKNOWN_TYPE, on_graph, on_resource};
use super::*;
use crate::config::Config;
use crate::frugal::while_locked;
use crate::observe::abi::{GraphData, ModuleData, resource};
use crate::observe::start::Functions;
use crate::observe::tests::{observers, observers_of, observers_with};
use crate::shared::Shim;
use crate::sys::still::Still;
use graphs::{graph, with_ids};
use gtop_protocol::lifecycle::{BLOCKING, MADE_FOR_A_NODE, NOT_BLOCKING};
use std::collections::BTreeSet;

mod graphs;

/// What the begin or the end of a call tells.
fn call(observe: &Observe, code: u32, site: u32, parameters: &[u64], result: u32) {
    let data = CallbackData {
        site,
        function: core::ptr::null(),
        parameters: parameters.as_ptr().cast(),
        returned: (&raw const result).cast(),
        symbol: c"gemm".as_ptr(),
        context: core::ptr::null_mut(),
        context_id: 3,
        own: core::ptr::null_mut(),
        correlation: 9,
    };
    // SAFETY: a structure with pointers to what lives here.
    unsafe { driver(observe, code, &data) };
}

#[test]
fn a_capture_that_fails_is_told_with_the_call_that_broke_it() {
    let observe = observers();
    call(observe, 539, 1, &[7, 0], 0);
    let mut launch = [0u64; 6];
    launch[5] = 7;
    call(observe, 307, 1, &launch, 0);
    call(observe, 243, 1, &[0, 4096], 900);
    call(observe, 307, 1, &launch, 901);
    call(observe, 497, 1, &[7, 0], 901);
    let events: Vec<Event> = core::iter::from_fn(|| observe.pop()).collect();
    let told: Vec<_> = events
        .iter()
        .map(|event| (What::from_wire(event.what).unwrap(), event.result.get(), event.flags))
        .collect();
    let both = IN_CAPTURE | CAPTURE_OPEN;
    assert_eq!(
        told,
        [
            (What::CaptureBegun, 0, both),
            (What::Call, 900, both),
            (What::KernelFailed, 901, both),
            (What::CaptureEnded, 901, 0),
        ]
    );
    assert_eq!((events[1].bytes.get(), events[1].code.get(), events[1].context.get()), (4096, 243, 3));
    assert_eq!(events[1].name, events[2].name, "the kernel launched before the failing call");
    assert_eq!(observe.names.get(events[1].name.get()), Some(b"gemm".as_slice()));
    let counted = observe.counted(0);
    assert_eq!((counted.captures, counted.captures_ended, counted.captures_failed), (1, 1, 1));
    assert_eq!((counted.kernels, counted.kernels_failed), (2, 1));
}

fn told(observe: &Observe) -> Vec<(What, u32, u64, u32)> {
    let events = core::iter::from_fn(|| observe.pop());
    let all = events.map(|event| {
        (What::from_wire(event.what).unwrap(), event.id.get(), event.node.get(), event.detail.get())
    });
    let of_graphs =
        [What::GraphCreated, What::GraphDestroyed, What::Nodes, What::ExecCreated, What::ExecDestroyed];
    all.filter(|(what, ..)| of_graphs.contains(what)).collect()
}

#[test]
fn what_a_capture_allocates_is_summed_apart_from_what_its_nodes_ask_for() {
    const MIB: u64 = 1 << 20;
    let observe = with_ids();
    let allocate = |code: u32, bytes: u64, result: u32, body: &dyn Fn()| {
        let parameters = [0, bytes, 0, 0];
        call(observe, code, 0, &parameters, 0);
        body();
        call(observe, code, 1, &parameters, result);
    };
    let end = |stream: u64| {
        call(observe, 497, 1, &[stream, 0], 0);
        let last = core::iter::from_fn(|| observe.pop()).last().unwrap();
        assert_eq!(last.what, What::CaptureEnded as u8);
        (last.detail.get(), last.bytes.get())
    };
    call(observe, 539, 1, &[7, 0], 0);
    graph(observe, resource::GRAPH_CREATED, 1, 0, 0, 0);
    let node = || graph(observe, resource::NODE_CREATED, 1, 1 << 32, 0, 0);
    allocate(598, MIB, 0, &node);
    let nodes = core::iter::from_fn(|| observe.pop()).find(|event| event.what == What::Nodes as u8).unwrap();
    assert_eq!((nodes.detail.get(), nodes.bytes.get()), (10, MIB));
    // In the order of a stream that does not capture; one that fails; one on the host.
    allocate(598, 2 * MIB, 0, &|| ());
    allocate(243, 4 * MIB, 0, &|| ());
    allocate(243, 8 * MIB, 2, &|| ());
    allocate(271, 16 * MIB, 0, &|| ());
    assert_eq!(end(7), (ALLOCATIONS_TOLD, 6 * MIB));
    allocate(243, MIB, 0, &|| ());
    call(observe, 539, 1, &[7, 0], 0);
    assert_eq!(end(7), (ALLOCATIONS_TOLD, 0), "the next one begins anew");
    // Of two at once it is not known whose it is.
    call(observe, 539, 1, &[7, 0], 0);
    call(observe, 539, 1, &[8, 0], 0);
    allocate(243, MIB, 0, &|| ());
    assert_eq!((end(7), end(8)), ((0, 0), (0, 0)));
    // The end of one that another thread began.
    observe.open.begin(9, u32::MAX, 3);
    assert_eq!(end(9), (0, 0));
}

#[test]
fn launches_on_the_legacy_stream_are_told_by_the_thousand_and_streams_with_whether_they_wait_for_it() {
    let observe = observers();
    let launch = |code: u32, stream: u64, times: u32| {
        for _ in 0..times {
            let parameters = if code == 514 { [0, stream, 0, 0, 0, 0] } else { [0, 0, 0, 0, 0, stream] };
            call(observe, code, 1, &parameters, 0);
        }
    };
    launch(307, 0, 4_000);
    launch(442, 0, 5_000);
    launch(307, 0x70_0000, 5_000);
    assert!(observe.pop().is_none(), "few, and others");
    launch(514, 1, 95);
    assert!(observe.pop().is_none());
    launch(307, 1, 1);
    let told = observe.pop().unwrap();
    assert_eq!((told.what, told.count.get(), told.context.get()), (What::LegacyLaunches as u8, 4096, 3));
    let mut details = Vec::new();
    for (code, flags) in [(124, 0u64), (367, 1), (367, 0)] {
        let parameters = [0, flags, 0];
        call(observe, code, 0, &parameters, 0);
        let data = ResourceData {
            context: core::ptr::null_mut(),
            stream: core::ptr::without_provenance_mut(0x70_0000),
            descriptor: core::ptr::null(),
        };
        // SAFETY: a structure whose handles nobody looks behind.
        unsafe { on_resource(observe, resource::STREAM_CREATED, &data) };
        call(observe, code, 1, &parameters, 0);
        // SAFETY: as above.
        unsafe { on_resource(observe, resource::STREAM_CREATED, &data) };
        details.extend(core::iter::from_fn(|| observe.pop()).map(|event| event.detail.get()));
    }
    assert_eq!(details, [BLOCKING, 0, NOT_BLOCKING, 0, BLOCKING, 0], "and none that no call says");
}

#[test]
fn what_goes_well_is_counted_and_not_told() {
    let observe = observers();
    for _ in 0..1000 {
        call(observe, 307, 0, &[0; 6], 0);
        call(observe, 307, 1, &[0; 6], 0);
        call(observe, 514, 1, &[0; 2], 0);
        call(observe, 515, 1, &[0; 2], 0);
        call(observe, 243, 1, &[0; 2], 0);
        call(observe, 120, 1, &[0; 2], NOT_READY);
        call(observe, 1, 1, &[], 7);
        call(observe, 60_000, 1, &[], 7);
    }
    assert!(observe.pop().is_none());
    let counted = observe.counted(0);
    assert_eq!((counted.kernels, counted.launches, counted.lost), (1000, 2000, 0));
}

#[test]
fn an_end_without_a_begin_takes_nothing_below_zero() {
    let observe = observers();
    for result in [0, 901, 908, 401] {
        call(observe, 497, 1, &[7, 0], result);
    }
    assert!(!observe.open.any());
    assert_eq!(observe.counted(0).captures_ended, 2);
}

/// What was told until now, with the call and the result.
fn all(observe: &Observe) -> Vec<(What, u32, u32)> {
    let events = core::iter::from_fn(|| observe.pop());
    events.map(|event| (What::from_wire(event.what).unwrap(), event.code.get(), event.result.get())).collect()
}

#[test]
fn a_capture_of_many_streams_does_not_use_up_what_failures_have() {
    let observe = observers();
    let _clock = Still::at(5_000_000_000);
    call(observe, 539, 1, &[7, 0], 0);
    for i in 0..1500 {
        call(observe, 119, 1, &[100 + i, 7], 0);
        call(observe, 295, 1, &[9, 100 + i, 0], 0);
    }
    // Nor do launches that are refused without end use up what the call has that breaks it.
    (0..1000).for_each(|_| call(observe, 307, 1, &[0; 6], 1));
    call(observe, 126, 1, &[7], 900);
    call(observe, 497, 1, &[7, 0], 901);
    let told = all(observe);
    assert_eq!(told[told.len() - 2..], [(What::Call, 126, 900), (What::CaptureEnded, 497, 901)]);
    let counted = observe.counted(0);
    assert!(counted.lost == 0 && counted.untold == 1800, "{counted:?}");
    let said = |what| told.iter().filter(|(told, ..)| *told == what).count();
    assert_eq!((said(What::StreamsUntold), said(What::KernelFailed)), (1, 200), "of one second");
    let _clock = Still::at(6_000_000_000);
    call(observe, 307, 1, &[0; 6], 1);
    assert_eq!(all(observe), [(What::KernelFailed, 307, 1)], "the next second has its own");
}

#[test]
fn forbidden_calls_of_all_sorts_are_told() {
    let observe = observers();
    let forbidden = [305, 408, 280, 399, 249, 413, 301, 379, 18, 19, 21, 679, 678, 123, 780, 118, 325];
    call(observe, 539, 1, &[7, 0], 0);
    for code in forbidden {
        call(observe, code, 0, &[0; 6], 0);
        call(observe, code, 1, &[0; 6], 900);
        call(observe, code, 1, &[0; 6], 0);
    }
    let failed: Vec<u32> =
        all(observe).into_iter().filter(|told| told.2 == 900).map(|(_, code, _)| code).collect();
    assert_eq!(failed, forbidden);
}

#[test]
fn events_are_counted_and_not_told() {
    let observe = observers();
    for i in 0..10 {
        call(observe, 118, 1, &[0; 2], 0);
        call(observe, if i % 2 == 0 { 325 } else { 122 }, 1, &[0], 0);
        call(observe, 118, 1, &[0; 2], 0);
    }
    let counted = observe.counted(0);
    assert_eq!((counted.events, counted.events_destroyed), (20, 10));
    assert!(observe.pop().is_none());
}

#[test]
fn a_capture_that_ends_elsewhere_or_never_stays_open_for_nobody() {
    let observe = observers();
    call(observe, 539, 1, &[7, 2], 0);
    std::thread::scope(|scope| {
        scope.spawn(|| call(observe, 497, 1, &[7, 0], 0));
    });
    call(observe, 243, 1, &[0, 4096], 2);
    let last = core::iter::from_fn(|| observe.pop()).last().unwrap();
    assert_eq!((last.code.get(), last.flags, last.name.get()), (243, 0, 0));
    // One that goes with its stream.
    call(observe, 539, 1, &[0x7000, 0], 0);
    assert!(observe.open.any());
    let data = ResourceData {
        context: core::ptr::null_mut(),
        stream: core::ptr::with_exposed_provenance_mut(0x7000),
        descriptor: core::ptr::null(),
    };
    // SAFETY: a structure without pointers that are followed.
    unsafe { on_resource(observe, resource::STREAM_DESTROY_STARTING, &data) };
    assert!(!observe.open.any());
}

/// Every watched call and resource, as they begin and end, well or not, inside of a capture and outside, until far more was told
/// than fits into the queue.
#[test]
fn neither_memory_nor_a_lock_is_taken_whatever_is_called() {
    let shim = Shim::new(Config::default(), None).unwrap();
    shim.wake.open().unwrap();
    let observe = observers_of(shim);
    let calls = || {
        let mut own = 0;
        let parameters = [0u64; 32];
        for result in [0, 1, 901, 2, 600] {
            let data = CallbackData {
                site: 0,
                function: c"a launch".as_ptr(),
                parameters: parameters.as_ptr().cast(),
                returned: (&raw const result).cast(),
                symbol: c"gemm".as_ptr(),
                context: core::ptr::null_mut(),
                context_id: 3,
                own: &raw mut own,
                correlation: 9,
            };
            for call in CALLS {
                for site in [0, 1] {
                    let data = CallbackData { site, ..data };
                    // SAFETY: a structure with pointers to what lives here.
                    unsafe {
                        callback(core::ptr::null_mut(), DOMAIN_DRIVER, call.code, (&raw const data).cast());
                    };
                }
            }
            let module = ModuleData { id: 1, size: 4096, code: core::ptr::null() };
            let handle = core::ptr::with_exposed_provenance_mut(4096);
            let graph = GraphData {
                graph: handle,
                original_graph: handle,
                node: handle,
                original_node: handle,
                node_type: 0,
                dependency: handle,
                exec: handle,
            };
            for id in resource::ALL {
                let of_module = matches!(id, resource::MODULE_LOADED | resource::MODULE_UNLOAD_STARTING);
                let descriptor =
                    if of_module { (&raw const module).cast() } else { (&raw const graph).cast() };
                let data = ResourceData { context: handle, stream: handle, descriptor };
                // SAFETY: as above, and the descriptor is the one of this resource.
                unsafe { callback(core::ptr::null_mut(), DOMAIN_RESOURCE, id, (&raw const data).cast()) };
            }
        }
    };
    crate::observe::install(observe);
    let asked = while_locked(shim, move || {
        for _ in 0..2_000 {
            observe.wake.prepare();
            calls();
        }
    });
    crate::observe::uninstall();
    assert_eq!(asked, 0);
    let counted = observe.counted(0);
    assert!(counted.calls > 2_000 * CALLS.len() as u64 && counted.lost > 0 && counted.untold > 0);
    let told: BTreeSet<u8> = core::iter::from_fn(|| observe.pop()).map(|event| event.what).collect();
    let expected =
        [What::CaptureBegun, What::CaptureEnded, What::KernelFailed, What::GraphCreated, What::ExecDestroyed];
    assert!(expected.iter().all(|what| told.contains(&(*what as u8))), "{told:?}");
    assert!(
        counted.captures > 0 && counted.captures_failed > 0 && counted.kernels > 0 && counted.modules > 0
    );
}
