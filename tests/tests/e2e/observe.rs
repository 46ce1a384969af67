//! What callbacks tell of graphs, captures and failed launches, through the real shim and socket: whole after an early
//! start, and nothing of it after a late one.

use gtop_protocol::control::Action;
use gtop_protocol::lifecycle::{Event, What};
use gtop_sim::Kind;
use gtop_tests::stage::Stage;
use gtop_tests::wait::wait_for;

/// A turn makes a graph for a new shape and forgets the old one, a capture fails, a launch is too large.
const TROUBLE: &str = r#"
[[graph]]
name = "g"
grow = 2
allocates = 8192
nodes = [ { kernel = "in_graph", times = 3, ns = 1000 }, { copy = "d2d", ns = 500 }, { kernel = "last", ns = 900 } ]

[[thread]]
api = "driver_per_thread"
steps = [
  { launch = "g" },
  { instantiate = "g", keep = true },
  { call = "cuStreamBeginCapture_v2", detail = 0 },
  { call = "cuLaunchKernel", symbol = "before_it" },
  { call = "cuEventCreate", times = 3 },
  { call = "cuEventDestroy_v2" },
  { call = "cuEventRecord", detail = 1, times = 100 },
  { call = "cuStreamWaitEvent", detail = 1, stream = 9, times = 100 },
  { call = "cuGraphExecUpdate_v2", of = "g", detail = 2, result = 910 },
  { call = "cuMemAlloc_v2", bytes = 4096, result = 900 },
  { call = "cuStreamEndCapture", result = 901 },
  { call = "cuLaunchKernel", symbol = "too_large", block = [2048, 1, 1], result = 1 },
]
"#;

fn of(events: &[Event], what: What) -> Vec<Event> {
    events.iter().filter(|event| event.what == what as u8).copied().collect()
}

#[test]
fn an_early_start_tells_the_whole_story() {
    let stage = Stage::new();
    let mut host = stage.host(TROUBLE).early().start();
    host.say("turns 5");
    let watch = stage.watch(host.pid());
    let mut witness = stage.witness(host.pid()).watching();
    witness.until("the last event", |witness| {
        of(&witness.events, What::KernelFailed).len() == 5
            && witness.observers.is_some_and(|seen| seen.updates == 5 && seen.loading != 0)
    });
    let seen = witness.observers.unwrap();
    assert_eq!((seen.on, seen.whole, seen.lost, seen.forgotten), (1, 1, 0, 0));
    assert_eq!(seen.loading, 2, "the simulated driver loads lazily");
    assert_eq!((seen.execs, seen.execs_destroyed, seen.graphs, seen.graphs_destroyed), (6, 0, 6, 6));
    assert_eq!((seen.captures, seen.captures_ended, seen.captures_failed), (11, 11, 5));
    // Whichever variant of the launch the application calls.
    assert_eq!((seen.launches, seen.launches_failed), (5, 0));
    assert_eq!((seen.kernels, seen.kernels_failed, seen.updates_failed), (10, 5, 5));
    assert_eq!((seen.events, seen.events_destroyed, seen.untold), (15, 5, 0));

    let events = &witness.events;
    let failed = of(events, What::Call).into_iter().find(|call| call.result.get() != 0).unwrap();
    assert_eq!((failed.result.get(), failed.bytes.get(), failed.code.get()), (900, 4096, 243));
    let launch = of(events, What::KernelFailed)[0];
    assert_eq!((launch.block[0].get(), launch.result.get()), (2048, 1));
    assert_ne!(launch.name, failed.name, "the failing call carries the kernel launched before it");
    assert_ne!(u32::from(failed.name), 0);
    // Three kernels in a row are one run; each graph has two nodes more than the one before.
    let nodes = of(events, What::Nodes);
    let runs: Vec<u32> = nodes.iter().map(|run| run.count.get()).collect();
    assert_eq!(runs[..9], [3, 1, 1, 3, 1, 3, 3, 1, 5]);
    let ids: Vec<u32> = of(events, What::ExecCreated).iter().map(|exec| exec.id.get()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b) && ids.len() == 6);

    // Who joins later is told the same.
    let mut late = stage.witness(host.pid()).watching();
    let all = witness.events.len();
    late.until("all events", |late| late.events.len() >= all);
    assert_eq!(late.events[..all], witness.events[..]);
    drop(watch);
    assert!(host.end("return").status.success());
}

#[test]
fn a_launch_of_a_graph_is_counted_whichever_call_makes_it() {
    let stage = Stage::new();
    let apis = ["runtime", "runtime_per_thread", "driver", "driver_per_thread"];
    let threads =
        apis.map(|api| format!("[[thread]]\napi = \"{api}\"\nsteps = [ {{ launch = \"g\" }} ]\n")).concat();
    let scenario = format!("[[graph]]\nname = \"g\"\nnodes = [ {{ kernel = \"k\", ns = 1000 }} ]\n{threads}");
    let mut host = stage.host(&scenario).early().start();
    let mut witness = stage.witness(host.pid()).watching();
    host.say("turns 3");
    witness.ask(Action::Flush);
    let truth = host.truth();
    assert_eq!(truth.executed(Kind::Kernel), 12);
    witness.until_delivered(truth.delivered.values().sum());
    witness.until("every launch", |witness| witness.observers.is_some_and(|seen| seen.launches >= 12));
    assert_eq!(witness.observers.map(|seen| (seen.launches, seen.launches_failed)), Some((12, 0)));
    drop(witness);
    assert!(host.end("return").status.success());
}

#[test]
fn a_late_start_calls_nothing_back() {
    let stage = Stage::new();
    let mut host = stage.host(TROUBLE).start();
    host.say("turns 2");
    let watch = stage.watch(host.pid());
    host.say("turns 2");
    let truth = host.truth();
    assert!(!truth.calls.contains_key("cuptiEnableCallback"), "{:?}", truth.calls);
    let mut witness = stage.witness(host.pid()).watching();
    witness.until("armed", |witness| witness.state.is_some());
    assert_eq!((witness.events.len(), witness.observers), (0, None));
    drop(watch);
    assert!(host.end("return").status.success());
}

#[test]
fn findings_name_the_cause_and_not_where_it_surfaced() {
    let stage = Stage::new();
    let mut host = stage.host(TROUBLE).early().start();
    host.say("turns 3");
    let watch = stage.watch(host.pid());
    host.say("turns 2");
    let stat = watch.finish();
    let findings = stat["findings"].as_array().unwrap();
    let of = |rule: &str| findings.iter().filter(|finding| finding["rule"] == rule).collect::<Vec<_>>();
    let text = |value: &serde_json::Value| value.to_string();
    let [capture] = of("capture_failed")[..] else { panic!("{findings:?}") };
    let sentence = text(&capture["sentence"]);
    assert!(
        sentence.contains("cuMemAlloc_v2") && sentence.contains("900") && sentence.contains("901"),
        "{sentence}"
    );
    assert!(text(&capture["evidence"]).contains("after kernel before_it"), "{capture}");
    let launches = of("launch_failed");
    let [launch] = launches[..] else { panic!("{findings:?}") };
    assert!(text(&launch["sentence"]).contains("kernel too_large"), "{launch}");
    assert!(text(&launch["evidence"]).contains("block x is 2048, of 1 to 1024"), "{launch}");
    let failures = stat["failures"].as_array().unwrap();
    let too_large = failures.iter().find(|failure| failure["kernel"] == "too_large").unwrap();
    assert_eq!(
        (&too_large["call"], &too_large["block"], &too_large["count"], &too_large["code"]),
        (&"cuLaunchKernel".into(), &serde_json::json!([2048, 1, 1]), &5.into(), &1.into())
    );
    assert!(text(&too_large["limit"]).contains("block x is 2048"), "{too_large}");
    assert!(text(&of("update_fails")[0]["sentence"]).contains("the topology changed"));
    let graphs = &stat["graphs"];
    assert_eq!(
        (&graphs["partial"], &graphs["instantiated"], &graphs["destroyed"]),
        (&false.into(), &6.into(), &0.into())
    );
    let events = &stat["objects"]["events"];
    assert_eq!((&events["created"], &events["live"]), (&15.into(), &10.into()));
    let captures = &stat["stream_captures"];
    assert!(captures["open"].as_array().unwrap().is_empty(), "{captures}");
    let ended = captures["ended"].as_array().unwrap();
    let failed: Vec<_> = ended.iter().filter(|capture| capture["code"] == 901).collect();
    assert_eq!((ended.len(), failed.len()), (11, 5));
    for capture in failed {
        let cause = &capture["cause"];
        assert_eq!((&capture["mode"], &cause["call"]), (&"global".into(), &"cuMemAlloc_v2".into()));
        assert_eq!((&cause["kernel"], &cause["stream"]), (&"before_it".into(), &serde_json::Value::Null));
        // The other stream was made to wait for what was recorded, and did not join back.
        assert_eq!(capture["streams"].as_array().map(Vec::len), Some(1), "{capture}");
        assert_eq!(
            (&capture["streams"], &capture["allocated_bytes"]),
            (&capture["unjoined_streams"], &0.into())
        );
    }
    assert!(ended.iter().any(|capture| capture["code"] == 0 && capture["instantiated"] == 0), "{captures}");
    let list = graphs["list"].as_array().unwrap();
    assert_eq!(list.len(), 6);
    assert!(
        list.iter().all(|graph| graph["nodes"]["copy"] == 1 && graph["instantiated"].is_string()),
        "{list:?}"
    );
    // Each has two nodes more than the one before, and was captured by itself with memory that was allocated meanwhile.
    assert_eq!(graphs["shapes"], 6);
    for graph in list {
        assert_eq!((&graph["allocated_bytes"], &graph["node_bytes"]), (&8192.into(), &0.into()), "{graph}");
        let capture = ended.iter().find(|capture| capture["begun"] == graph["captured"]);
        assert!(capture.is_some_and(|capture| capture["code"] == 0), "{graph}");
    }
    assert!(list.iter().any(|graph| graph["launches"] == 1 && graph["nodes_seen"] == 5), "{list:?}");
    assert!(host.end("return").status.success());
}

/// Captures a memory set, and frees its memory before the last launch.
const FREED: &str = r#"
[[graph]]
name = "g"
nodes = [ { memset = 4096, ns = 1000 }, { kernel = "in_graph", ns = 1000 } ]

[[thread]]
api = "driver"
every = "3600s"
steps = [
  { call = "cuMemAlloc_v2", address = 0x7f0000000000, bytes = 65536 },
  { call = "cuStreamBeginCapture_v2" },
  { call = "cuMemsetD8Async", address = 0x7f0000000100, bytes = 4096 },
  { call = "cuStreamEndCapture", of = "g" },
  { call = "cuGraphInstantiateWithFlags", of = "g" },
  { launch = "g" },
  { wait = "50ms" },
  { call = "cuMemFree_v2", address = 0x7f0000000000 },
  { wait = "50ms" },
  { launch = "g" },
]
"#;

#[test]
fn memory_freed_under_a_graph_that_is_launched_is_found_and_nothing_without_that_launch() {
    let stage = Stage::new();
    let findings = |scenario: &str, launches: u64| {
        let mut host = stage.host(scenario).early().real_time().start();
        let watch = stage.watch(host.pid());
        let mut witness = stage.witness(host.pid()).watching();
        witness.until_watched(2);
        host.say("run");
        witness.until("the free", |witness| of(&witness.events, What::Freed).len() == 1);
        wait_for("the launches", || (host.truth().executed(Kind::Kernel) == launches).then_some(()));
        host.say("stop");
        witness.ask(Action::Flush);
        // A memory set and a kernel each.
        witness.until_delivered(2 * launches);
        let stat = watch.finish();
        assert!(host.end("return").status.success());
        stat["findings"].as_array().unwrap().clone()
    };
    let found = findings(FREED, 2);
    let is_freed = |found: &&serde_json::Value| found["rule"] == "freed_memory_in_graph";
    let [freed] = found.iter().filter(is_freed).collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let (sentence, evidence) = (freed["sentence"].to_string(), freed["evidence"].to_string());
    assert!(sentence.contains("4,096 bytes at 0x7f0000000100, of cuMemsetD8Async"), "{sentence}");
    assert!(evidence.contains("65,536 bytes at 0x7f0000000000 freed by cuMemFree_v2"), "{evidence}");
    // The same without the launch after the free.
    let (before, after) = FREED.rsplit_once("  { launch = \"g\" },\n").unwrap();
    let found = findings(&format!("{before}{after}"), 1);
    assert_eq!(found.iter().filter(is_freed).count(), 0, "{found:?}");
}
