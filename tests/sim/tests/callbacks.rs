//! The subscriber's callback is called for what was enabled, with what belongs to it, and for nothing else.
#![allow(unsafe_code, reason = "callbacks get C structs")]

mod common;

use common::Client;
use cudarc::cupti::sys;
use gtop_sim::{Pace, Scenario, Simulation};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::Mutex;

const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;
const RESOURCE: u32 = 3;

/// A callback as it came: domain, id, and what the data say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    domain: u32,
    id: u32,
    enters: bool,
    function: String,
    symbol: String,
    correlation: u32,
    /// Of a graph launch.
    exec: Option<u64>,
}

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
/// Graphs as they came: callback id, type of the node, handle of the executable.
static GRAPHS: Mutex<Vec<(u32, u32, usize)>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_api(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    let data = unsafe { data.cast::<sys::CUpti_CallbackData>().as_ref() }.unwrap();
    let text = |at: *const std::ffi::c_char| {
        if at.is_null() { String::new() } else { unsafe { CStr::from_ptr(at) }.to_str().unwrap().to_owned() }
    };
    let function = text(data.functionName);
    let exec = function.ends_with("GraphLaunch").then(|| {
        let parameters =
            unsafe { data.functionParams.cast::<sys::cuGraphLaunch_params_st>().as_ref() }.unwrap();
        Client::id(c"cuptiGetGraphExecId", parameters.hGraph.cast()).unwrap()
    });
    assert_eq!(Client::id(c"cuptiGetContextId", data.context.cast()), Some(u64::from(data.contextUid)));
    CALLS.lock().unwrap().push(Call {
        domain,
        id,
        enters: data.callbackSite == sys::CUpti_ApiCallbackSite::CUPTI_API_ENTER,
        function,
        symbol: text(data.symbolName),
        correlation: data.correlationId,
        exec,
    });
}

unsafe extern "C" fn on_resource(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    assert_eq!(domain, RESOURCE);
    let data = unsafe { data.cast::<sys::CUpti_ResourceData>().as_ref() }.unwrap();
    let graph = unsafe { data.resourceDescriptor.cast::<sys::CUpti_GraphData>().as_ref() };
    if let Some(graph) = graph {
        GRAPHS.lock().unwrap().push((id, graph.nodeType as u32, graph.graphExec as usize));
    }
}

unsafe extern "C" fn on_launch_flush(_: *mut c_void, _: u32, _: u32, _: *const c_void) {
    let flush = gtop_sim::resolve(c"cuptiActivityFlushAll");
    let flush: unsafe extern "C" fn(u32) -> u32 = unsafe { std::mem::transmute(flush) };
    assert_eq!(unsafe { flush(0) }, 0);
}

fn application(api: &str) -> Simulation {
    let toml = format!(
        "[[graph]]
        name = 'g'
        nodes = [{{ copy = 'd2d' }}, {{ kernel = 'in_graph', times = 2 }}]
        [[thread]]
        api = '{api}'
        steps = [{{ launch = 'g' }}, {{ kernel = 'eager' }}, {{ copy = 'h2d' }}]"
    );
    let simulation = Simulation::load(&Scenario::parse(&toml).unwrap(), Pace::Stepped).unwrap();
    // The only simulation in the process now, so nobody else is called back.
    CALLS.lock().unwrap().clear();
    GRAPHS.lock().unwrap().clear();
    simulation
}

#[test]
fn launches_are_called_back_by_the_api_that_made_them() {
    let expected = [
        ("runtime", vec![(RUNTIME, 311), (DRIVER, 514)]),
        ("runtime_per_thread", vec![(RUNTIME, 312), (DRIVER, 515)]),
        ("driver", vec![(DRIVER, 514)]),
        ("driver_per_thread", vec![(DRIVER, 515)]),
    ];
    for (api, launches) in expected {
        let mut simulation = application(api);
        let client = Client::with_callback(on_api, &[DRIVER, RUNTIME], &[]);
        client.enable(&[4, 5, 10]);
        client.keep();
        simulation.turns(1);
        client.flush(false);
        let calls = CALLS.lock().unwrap().clone();
        let graph: Vec<_> = calls.iter().filter(|call| call.exec.is_some()).collect();
        let entered: Vec<_> =
            graph.iter().filter(|call| call.enters).map(|call| (call.domain, call.id)).collect();
        let left: Vec<_> =
            graph.iter().filter(|call| !call.enters).map(|call| (call.domain, call.id)).collect();
        assert_eq!(entered, launches, "{api}");
        assert_eq!(left, launches.iter().rev().copied().collect::<Vec<_>>(), "{api}");

        // Callbacks, call records and kernels agree on the launch and on the graph.
        let seen = client.seen();
        let kernel = seen.iter().find(|seen| seen.name == "in_graph").unwrap();
        assert!(graph.iter().all(|call| call.correlation == kernel.correlation), "{api}");
        assert!(graph.iter().all(|call| call.exec == Some(kernel.graph.into())), "{api}");
        let records = seen.iter().filter(|seen| matches!(seen.kind, 4 | 5)).count();
        assert_eq!(records, launches.len() * 3, "{api}");
        assert!(seen.iter().any(|seen| seen.kind == 4 && seen.correlation == kernel.correlation), "{api}");
        let eager = calls.iter().find(|call| call.function.ends_with("LaunchKernel")).unwrap();
        assert_eq!(eager.symbol, "eager", "{api}");
    }
}

#[test]
fn only_what_was_enabled_is_called_back() {
    let mut simulation = application("runtime");
    let client = Client::with_callback(on_api, &[], &[(DRIVER, 514)]);
    simulation.turns(3);
    let calls = std::mem::take(&mut *CALLS.lock().unwrap());
    assert_eq!(calls.len(), 6);
    assert!(calls.iter().all(|call| (call.domain, call.id) == (DRIVER, 514)));
    client.enable_callback(false, DRIVER, 514);
    simulation.turns(3);
    assert!(CALLS.lock().unwrap().is_empty());
    client.enable_callback(true, RUNTIME, 211);
    simulation.turns(1);
    assert_eq!(CALLS.lock().unwrap().len(), 2);
    client.unsubscribe();
    simulation.turns(1);
    assert_eq!(CALLS.lock().unwrap().len(), 2);
}

#[test]
fn graphs_are_called_back_when_they_are_made_and_made_again() {
    let mut simulation = application("runtime");
    let _client = Client::with_callback(on_resource, &[RESOURCE], &[]);
    simulation.turns(1);
    assert!(simulation.instantiate("g"));
    let graphs = GRAPHS.lock().unwrap();
    let counts = graphs.iter().fold(BTreeMap::new(), |mut counts, (id, ..)| {
        *counts.entry(*id).or_insert(0) += 1;
        counts
    });
    assert_eq!(counts, BTreeMap::from([(9, 2), (10, 2), (13, 6), (17, 2), (18, 2), (19, 1)]));
    let kinds: Vec<_> =
        graphs.iter().filter(|(id, ..)| *id == 13).map(|(_, node_type, _)| *node_type).collect();
    assert_eq!(kinds, [1, 0, 0, 1, 0, 0]);
    let execs: Vec<_> = graphs
        .iter()
        .filter(|(id, ..)| matches!(id, 18 | 19))
        .map(|(id, _, exec)| (*id, Client::id(c"cuptiGetGraphExecId", *exec as *mut c_void).unwrap()))
        .collect();
    assert_eq!(execs[0].1, execs[2].1, "the first one is gone: {execs:?}");
    assert_ne!(execs[0].1, execs[1].1);
}

#[test]
fn a_flush_inside_an_api_callback_is_done_after_the_launch() {
    let mut simulation = application("driver");
    let client = Client::with_callback(on_launch_flush, &[], &[(DRIVER, 514)]);
    client.enable(&[10]);
    simulation.turns(1);
    simulation.turns(1);
    assert!(client.count(10) >= 3);
    assert_eq!(simulation.truth().misuse, Vec::<String>::new());
}
