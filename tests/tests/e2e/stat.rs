//! `gtop stat --attach` against the simulator's ground truth, record by record.

use std::collections::BTreeSet;

use gtop_protocol::control::Action;
use gtop_tests::host::{self, Host};
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, assert_truth, count};
use serde_json::{Value, json};

/// What `gtop stat` says of a host that does `work` while watched.
fn stat_while(stage: &Stage, host: &mut Host, work: impl FnOnce(&mut Host)) -> Summary {
    let watch = stage.watch(host.pid());
    work(host);
    watch.finish()
}

#[test]
fn mixed_work_is_summarised_to_the_record() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let stat = stat_while(&stage, &mut host, |host| {
        host.say("turns 500");
    });
    assert_truth(stat.of(host.pid()), &host.truth());
    assert_eq!((&stat["state"], &stat["reason"]), (&json!("armed"), &Value::Null));
    assert_eq!(stat["kinds"], json!(["kernel", "memcpy", "memset"]));
    let sum = |list: &str, key: &str| {
        stat[list].as_array().unwrap().iter().map(|row| count(&row[key])).sum::<u64>()
    };
    let records = &stat["records"];
    assert_eq!(sum("kernels", "calls"), count(&records["kernel"]));
    assert_eq!(sum("memcpy", "calls"), count(&records["memcpy"]));
    assert_eq!(sum("streams", "records"), count(&records["shown"]));
    let streams: BTreeSet<u64> =
        stat["streams"].as_array().unwrap().iter().map(|row| count(&row["stream"])).collect();
    assert_eq!(streams, BTreeSet::from([13, 17, 21]));
}

#[test]
fn a_server_is_summarised_to_the_record() {
    let stage = Stage::new();
    let mut host = stage.host("vllm").start();
    let stat = stat_while(&stage, &mut host, |host| {
        host.say("turns 60");
    });
    assert_truth(stat.of(host.pid()), &host.truth());
    assert!(stat["kernels"].as_array().unwrap().len() > 20, "{}", stat["kernels"]);
    assert!(count(&stat["graphs"]["launches"]) > 0, "{}", stat["graphs"]);
}

#[test]
fn a_short_storm_is_summarised_to_the_record() {
    let stage = Stage::new();
    let mut host = stage.host("storm").start();
    let stat = stat_while(&stage, &mut host, |host| {
        host.say("turns 100");
    });
    let truth = host.truth();
    assert_truth(stat.of(host.pid()), &truth);
    assert_eq!(truth.delivered.values().sum::<u64>(), 100 * 4 * 125);
}

#[test]
fn a_storm_in_real_time_balances_whatever_is_lost() {
    let stage = Stage::new();
    let mut host = stage.host("storm").real_time().start();
    let mut watch = stage.watch(host.pid());
    host.say("run");
    watch.witness.until("half a million records", |witness| witness.loss.walked > 500_000);
    host.say("stop");
    let stat = watch.finish();
    let truth = host.truth();
    let records = &stat["records"];
    println!("{records}");
    assert_balance(records);
    assert_eq!(count(&records["delivered"]), truth.delivered.values().sum::<u64>());
    assert_eq!((&records["lost"]["cupti"], &stat["validity"]["rate_total"]), (&json!(0), &json!(0.0)));
}

#[test]
fn bad_times_are_counted_by_class_and_the_first_is_named() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[thread]]
steps = [ { kernel = "first", ns = 500 }, { kernel = "second", ns = 700 } ]
[[fault]]
what = "timestamps"
class = "inverted"
at = [41, 42, 99]
"#;
    let mut host = stage.host(scenario).start();
    let stat = stat_while(&stage, &mut host, |host| {
        host.say("turns 100");
    });
    assert_balance(&stat["records"]);
    let validity = &stat["validity"];
    assert_eq!((&validity["valid"], &validity["inverted"]), (&json!(197), &json!(3)));
    assert_eq!(validity["rate_total"], 3.0 / 200.0);
    let first = &validity["first_invalid"];
    assert_eq!(
        (&first["index"], &first["class"], &first["name"]),
        (&json!(42), &json!("inverted"), &json!("second"))
    );
    let calls: u64 = stat["kernels"].as_array().unwrap().iter().map(|row| count(&row["calls"])).sum();
    assert_eq!(calls, 197, "a bad record is in no other number");
}

/// The whole promise of the command line's documentation.
const PROMISED: &str = r#"{"schema":"gtop.stat/1","seconds":5.0,"processes":[{
  "pid":844,"name":"EngineCore","devices":[{"index":0,"uuid":"GPU-…","name":"NVIDIA H200"}],
  "cupti":{"version":130001,"path":"…","interface":"v1","subscribed":true,"verdict":"defective","reason":"…"},
  "state":"armed","reason":null,"kinds":["kernel","memcpy","memset"],"budget_percent":null,"sampling":null,
  "records":{"delivered":0,"shown":0,"kernel":0,"memcpy":0,"memset":0,"other":0,
    "lost":{"cupti":0,"queue_full":0,"unknown_kind":0,"slow_viewer":0,"unread_bytes":0}},
  "validity":{"valid":0,"zero":0,"zero_start":0,"zero_end":0,"inverted":0,"sentinel":0,"foreign_clock":0,"future":0,
    "before_launch":null,"rate_total":0.0,"rate_window":0.0,
    "first_invalid":{"index":266664,"start":"0","end":"0","class":"zero","name":"…"}},
  "notes":{"overlap":0,"zero_length":0,"out_of_order":0,"unasked_kind":0,"cut_off":0},
  "pools":[{"device":0,"context":1,"limit":250,"buffers":3,"source":"observed","state":"safe",
    "slots_total":25000000,"slots_used":0,"exhausts_in_seconds":null}],
  "host_buffers":{"size":262144,"outstanding":2,"completed":0,"bytes":0},
  "gpu_memory":[{"device":0,"used_bytes":0,"total_bytes":0,"source":"nvml"}],
  "streams":[{"device":0,"context":1,"stream":7,"busy_ns":0,"span_ns":0,"records":0}],
  "kernels":[{"name":"…","mangled":"…","calls":0,"total_ns":0,"min_ns":0,"p50_ns":0,"p99_ns":0,"max_ns":0,"share":0.0,"estimate":null}],
  "graphs":{"live":0,"launches":0,"instantiated":0,"destroyed":0},
  "memcpy":[{"direction":"HtoD","calls":0,"bytes":0,"total_ns":0}],
  "findings":[]
}]}"#;

/// The paths of all keys, with the type of what is there unless it is null or a list.
fn keys(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys(value, &format!("{at}.{key}"), into);
            }
        }
        Value::Array(list) => {
            into.insert(at.to_owned());
            for value in list {
                keys(value, &format!("{at}[]"), into);
            }
        }
        _ => {
            into.insert(at.to_owned());
        }
    }
}

#[test]
fn a_live_process_has_every_promised_key() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[graph]]
name = "step"
nodes = [ { copy = "d2d", bytes = 64, ns = 500 }, { kernel = "k", ns = 500 } ]
[[thread]]
steps = [ { launch = "step" }, { copy = "h2d", bytes = 64, ns = 500 }, { memset = 64, ns = 300 } ]
[[fault]]
what = "timestamps"
class = "zero"
at = [7]
"#;
    let mut host = stage.host(scenario).early().start();
    let watch = stage.watch(host.pid());
    host.say("turns 100");
    // The pools are looked at four times a second.
    let mut witness = stage.witness(host.pid());
    witness.until("a pool", |witness| !witness.pools.is_empty());
    let stat = watch.finish();
    let (mut found, mut promised) = (BTreeSet::new(), BTreeSet::new());
    keys(&stat.0, "", &mut found);
    keys(&serde_json::from_str(PROMISED).unwrap(), "", &mut promised);
    // Without NVML there is no device memory; the list is there all the same.
    if stat["gpu_memory"].as_array().is_some_and(Vec::is_empty) {
        println!("skipped: no NVML, so the keys of gpu_memory are not looked at");
        promised.retain(|key| !key.contains("gpu_memory[]"));
    }
    for list in [&mut found, &mut promised] {
        list.retain(|key| !key.ends_with("kinds[]"));
    }
    let missing: Vec<&String> = promised.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?} missing in {}", stat.0);
    let first = &stat["validity"]["first_invalid"];
    assert_eq!((&first["start"], &first["end"]), (&json!("0"), &json!("0")), "times are strings");
}

/// Two libraries and the application itself allocate, and one of them frees what another has.
const LIBRARIES: &str = r#"
[[thread]]
steps = [
  { alloc = 65536, library = "/opt/lib/libone.so" },
  { alloc = 8192, library = "/opt/lib/libtwo.so" },
  { alloc = 4096, library = "/opt/lib/libone.so" },
  { free = 4096, library = "/opt/lib/libtwo.so" },
  { alloc = 512 },
  { alloc = 2048, memory = "pool" },
  { alloc = 1024, memory = "mapping" },
  { kernel = "k", ns = 100 },
]
"#;

#[test]
fn allocations_are_told_by_library_where_cupti_says_who_asked() {
    const V1: &str = "cuptiActivityEnableAllocationSource";
    const V2: &str = "cuptiActivitySetAttribute_v2";
    let stage = Stage::new();
    for (version, interface, call) in
        [(22, "v1", None), (26, "v1", Some(V1)), (130_001, "v1", Some(V1)), (130_401, "v2", Some(V2))]
    {
        let setup = stage.host(&format!("cupti = {version}\n{LIBRARIES}"));
        let mut host = setup.variable("GTOP_INTERFACE", interface).start();
        let watch = stage.watch(host.pid());
        let called = |host: &mut Host| {
            let calls = host.truth().calls;
            [V1, V2].map(|call| calls.get(call).copied().unwrap_or(0)).into_iter().sum::<u64>()
        };
        assert_eq!(called(&mut host), 0, "nobody asked for memory records");
        stage.ctl(host.pid(), &["enable", "memory"]).good();
        host.say("turns 1");
        let mut witness = stage.witness(host.pid());
        witness.ask(Action::Flush);
        stage.ctl(host.pid(), &["disable", "memory"]).good();
        assert_eq!(called(&mut host), if call.is_some() { 2 } else { 0 }, "on and off, on {version}");
        let stat = watch.finish();
        let site = |library: Value, bytes: u64, allocations: u64| json!({"library": library, "gpu_bytes": bytes, "pinned_host_bytes": 0, "allocations": allocations});
        let sites = match call {
            Some(_) => json!([
                site("/opt/lib/libone.so".into(), 65_536, 1),
                site("/opt/lib/libtwo.so".into(), 8_192, 1),
                site("/usr/bin/application".into(), 3_584, 3),
            ]),
            None => json!([]),
        };
        let account = &stat["memory_account"];
        assert_eq!((&account["sites"], count(&account["device_bytes"])), (&sites, 77_312), "{version}");
        assert_eq!(
            (count(&account["pool_bytes"]), count(&account["mapped_bytes"])),
            (2_048, 1_024),
            "{version}"
        );
        assert!(host.end("return").status.success());
    }
}

#[test]
fn an_ancestor_stands_for_its_descendants_that_use_a_gpu() {
    let stage = Stage::new();
    let mut one = stage.host("mixed").under_a_shell().start();
    let stat = stage.start_stat(one.parent());
    stage.witness(one.pid()).until_watched(1);
    one.say("turns 10");
    let stat = Summary(stat.interrupt().json());
    assert_eq!(stat.pids(), [one.pid()]);
    assert_truth(stat.of(one.pid()), &one.truth());

    let (shell, mut hosts) = host::below_one_shell(&stage, ["mixed", "storm"]);
    let stat = stage.start_stat(shell.pid());
    for host in &hosts {
        stage.witness(host.pid()).until_watched(1);
    }
    for (host, turns) in hosts.iter_mut().zip([20, 3]) {
        host.say(&format!("turns {turns}"));
    }
    let stat = Summary(stat.interrupt().json());
    let mut pids: Vec<u32> = hosts.iter().map(Host::pid).collect();
    pids.sort_unstable();
    assert_eq!(stat.pids(), pids);
    for host in &mut hosts {
        assert_truth(stat.of(host.pid()), &host.truth());
    }
}

#[test]
fn a_process_that_ends_while_watched_is_summarised_to_its_end() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let mut watch = stage.watch(host.pid());
    host.say("turns 100");
    let (pid, owed) = (host.pid(), host.truth().expected.values().sum::<u64>());
    // Nothing is asked for: a quiet process delivers by itself.
    watch.witness.until("the records", |witness| witness.loss.walked == owed);
    host.end("return");
    let stat = Summary(watch.stat.finish().json());
    assert_balance(&stat.of(pid)["records"]);
    assert_eq!(count(&stat.of(pid)["records"]["shown"]), owed);
}
