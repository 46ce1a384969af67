//! What becomes of contexts, streams, modules, graphs and their nodes.
#![expect(unsafe_code, reason = "called by CUPTI, with raw structures; see `abi`")]

use super::super::abi::{GraphData, ModuleData, ResourceData, resource};
use super::super::doing::{self, Doing, Makes};
use super::super::{Count, Observe};
use super::tell;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::lifecycle::{Event, MADE_FOR_A_NODE, What};
use gtop_protocol::node_type::ALLOCATE;

/// The type of a node that nothing tells.
pub(super) const UNKNOWN_TYPE: u32 = u32::MAX;

/// Something becomes of a context, a stream, a module or a graph.
///
/// # Safety
/// As for [`driver`](super::driver).
pub(super) unsafe fn on_resource(observe: &Observe, id: u32, data: &ResourceData) {
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
            if id == resource::CONTEXT_CREATED {
                (What::ContextCreated, Count::Contexts)
            } else {
                observe.open.context_gone(context);
                (What::ContextDestroyed, Count::ContextsDestroyed)
            }
        }
        resource::STREAM_CREATED | resource::STREAM_DESTROY_STARTING => {
            event.object = (data.stream as u64).into();
            event.id = ids.stream(data.context, data.stream).into();
            if id == resource::STREAM_CREATED {
                event.detail = doing::get().creates.into();
                (What::StreamCreated, Count::Streams)
            } else {
                observe.open.stream_gone(data.stream as u64);
                (What::StreamDestroyed, Count::StreamsDestroyed)
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
    tell(observe, what, event, None);
}

pub(super) fn on_graph(observe: &Observe, id: u32, graph: &GraphData, mut event: Event) {
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
                resource::GRAPH_CREATED => {
                    match doing.makes {
                        Makes::Own => {}
                        Makes::Clone => doing::set(Doing { makes: Makes::Inside, ..doing }),
                        Makes::Inside => event.detail = MADE_FOR_A_NODE.into(),
                    }
                    (What::GraphCreated, Some(Count::Graphs))
                }
                // It was counted when it was created (measured).
                resource::GRAPH_CLONED => {
                    event.node = u64::from(ids.graph(graph.original_graph)).into();
                    (What::GraphCloned, None)
                }
                _ => (What::GraphDestroyed, Some(Count::GraphsDestroyed)),
            }
        }
        // The first node of a clone says of what: for a child graph nothing else does.
        resource::NODE_CLONED => {
            let id = ids.graph(graph.graph);
            if doing.cloned == id {
                return;
            }
            doing::set(Doing { cloned: id, ..doing });
            event.id = id.into();
            event.node = u64::from(ids.graph(graph.original_graph)).into();
            (What::GraphCloned, None)
        }
        resource::NODE_CREATED => {
            event.node = ids.node(graph.node).into();
            event.id = ((event.node.get() >> 32) as u32).into();
            let by_calls = graph.node_type == 0 && observe.types_by_calls.load(Relaxed);
            let told = doing.node_type.map(u32::from).filter(|_| by_calls);
            let node_type = match told {
                Some(node_type) => node_type,
                // The call that would say it may be one that is no longer watched.
                None if graph.node_type == 0 && observe.lacks_types() => UNKNOWN_TYPE,
                None => graph.node_type,
            };
            event.detail = node_type.into();
            // Of a copy the call tells whether it stays within the device.
            if told == Some(1) {
                event.code = doing.call.into();
            }
            event.count = 1.into();
            if node_type == ALLOCATE {
                event.bytes = doing.asks.into();
                doing::set(Doing { asks: 0, ..doing });
            }
            (What::Nodes, None)
        }
        // Those of a graph that is destroyed go with it.
        resource::NODE_DESTROY_STARTING if doing.removes_node => {
            event.node = ids.node(graph.node).into();
            event.id = ((event.node.get() >> 32) as u32).into();
            (What::NodeRemoved, None)
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
    tell(observe, what, event, None);
}
