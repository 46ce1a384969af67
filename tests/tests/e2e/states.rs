//! The states of a shim as `gtop stat` shows them, and what resting does to the process.

use gtop_protocol::KindSet;
use gtop_protocol::message::{PoolState, Reason, StateCode};
use gtop_sim::{Class, Kind};
use gtop_tests::build;
use gtop_tests::fake::Fake;
use gtop_tests::pty::Pty;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, assert_truth, count};
use serde_json::{Value, json};

/// A kernel and a copy a turn, and this going wrong.
fn faulty(version: u32, fault: &str) -> String {
    format!(
        r#"
cupti = {version}
[[thread]]
steps = [ {{ kernel = "k", ns = 1000 }}, {{ copy = "h2d", bytes = 64, ns = 500 }} ]
[[fault]]
{fault}
"#
    )
}

/// Makes sure that none of these numbers is told, above all not as 0.
fn assert_unknown(value: &Value) {
    match value {
        Value::Object(fields) => {
            fields.iter().filter(|(key, _)| *key != "seconds").for_each(|(_, value)| assert_unknown(value));
        }
        Value::Array(list) => list.iter().for_each(assert_unknown),
        value => assert_eq!(value, &Value::Null),
    }
}

/// The screen of a process on a device whose driver says once what memory is used, and then never returns.
fn with_a_device_that_answers_once(stage: &Stage, pid: u32) -> Pty {
    let memory = stage.path().join("memory");
    nix::unistd::mkfifo(&memory, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let folder = stage.path().to_str().unwrap();
    let environment = [
        ("XDG_RUNTIME_DIR", folder),
        ("XDG_CACHE_HOME", folder),
        ("XDG_CONFIG_HOME", folder),
        ("GTOP_DEMO_MEMORY", memory.to_str().unwrap()),
    ];
    let pid_text = pid.to_string();
    let screen =
        Pty::start(build::gtop().as_os_str(), &["--attach", pid_text.as_str()], &environment, 120, 36);
    // Opened as soon as somebody reads.
    std::fs::write(&memory, format!("{} {} {pid}", 80u64 << 30, 5u64 << 30)).unwrap();
    screen
}

#[test]
fn a_watcher_hears_an_idle_shim_again_and_again() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let mut witness = stage.witness(host.pid()).watching();
    witness.until("armed", |witness| {
        witness.state == Some(StateCode::Armed) && witness.host_buffers.beat_ms > 0
    });
    for _ in 0..2 {
        let then = witness.host_buffers.cpu_ns;
        witness.until("a beat", |witness| witness.host_buffers.cpu_ns > then);
    }
}

#[test]
fn what_lies_behind_a_record_that_cannot_be_stepped_over_is_said_to_be_lost() {
    let stage = Stage::new();
    let mut host = stage.host(&faulty(130_001, "what = \"unknown_kind\"\nevery = 1500")).start();
    let stat = stage.start_gtop(&["stat", "--attach", &host.pid().to_string(), "--for", "2s", "--json"]);
    let mut witness = stage.witness(host.pid());
    witness.until_watched(1);
    host.say("turns 5000");
    let json = stat.finish().json();
    let process = &json["processes"][0];
    assert!(process["records"]["lost"]["unread_bytes"].as_u64().unwrap() > 0, "{process}");
    assert_eq!(process["records"]["lost"]["unread_bytes"], json["total"]["unread_bytes"]);
}

#[test]
fn a_cupti_held_by_another_is_named_and_taken_once_it_is_free() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    host.say("hold");
    let stat = stage.start_stat(host.pid());
    let mut witness = stage.witness(host.pid());
    witness.until("busy", |witness| witness.reason == Some(Reason::Busy));
    host.say("turns 10");
    let stat = Summary(stat.interrupt().unseen(&["another tool holds CUPTI", "39", "End that tool"]));
    assert_eq!((&stat["state"], &stat["kinds"]), (&json!("unavailable"), &json!([])));
    for part in ["records", "validity", "notes"] {
        assert_unknown(&stat[part]);
    }
    let total = &stat.0["total"];
    assert_eq!(
        (&total["unseen"], &total["delivered"], &total["lost"]),
        (&json!(1), &Value::Null, &Value::Null)
    );
    let reason = stat["reason"].as_str().unwrap();
    assert!(reason.contains("another tool holds CUPTI") && reason.contains("39"), "{reason}");

    // The same for people.
    witness.until("nobody watches", |witness| witness.watchers == 0);
    let text = stage.start_gtop(&["stat", "--for", "10m", "--attach", &host.pid().to_string()]);
    witness.until("busy again", |witness| {
        witness.watchers == 1 && witness.state == Some(StateCode::Unavailable)
    });
    let text = text.interrupt();
    text.fails(3, &["another tool holds CUPTI"]);
    let told =
        |start: &str| text.out.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(told("state ").ends_with(", no kind is on"), "{text:?}");
    assert!(told("records ").contains(" ?") && told("lost ").is_empty(), "{text:?}");
    let (file, pid) = (stage.path().join("busy.gtop"), host.pid().to_string());
    let record = ["record", "--for", "50ms", "--attach", &pid, "-o", file.to_str().unwrap()];
    stage.gtop(&record).fails(3, &["another tool holds CUPTI"]);
    // What a recording tells is all that is wanted of it.
    let recorded = stage.gtop(&["stat", "--json", file.to_str().unwrap()]).json();
    assert_unknown(&recorded["processes"][0]["records"]);
    witness.until("nobody watches", |witness| witness.watchers == 0);

    // Another viewer, and this time the other tool lets go.
    let stat = stage.start_stat(host.pid());
    witness.until("busy again", |witness| {
        witness.watchers == 1 && witness.state == Some(StateCode::Unavailable)
    });
    let mut screen = with_a_device_that_answers_once(&stage, host.pid());
    screen.wait_for("● UNAVAILABLE · busy");
    // What NVML tells is shown meanwhile, with its age, and keys are heard although it does not answer any more.
    screen.wait_for("5.0 of 80.0 GiB");
    screen.wait("the samples' age", |screen| {
        screen.contents().lines().any(|line| line.contains("5.0 of 80.0 GiB") && line.contains("STALE"))
    });
    screen.press("5");
    screen.wait_for("▸5 ");
    screen.press("q");
    assert!(screen.exit().success());
    host.say("release");
    witness.until("armed", |witness| witness.state == Some(StateCode::Armed));
    host.say("turns 10");
    let stat = Summary(stat.interrupt().json());
    assert_eq!((&stat["state"], &stat["reason"]), (&json!("armed"), &Value::Null));
    assert_truth(stat.of(host.pid()), &host.truth());
    assert!(host.end("return").status.success());
}

#[test]
fn doctor_says_what_the_shim_knows_and_has_it_call_nothing() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").variable("GTOP_KINDS", "foo").start();
    let pid = host.pid().to_string();
    let doctor = || {
        let ran = stage.gtop(&["doctor", "--json", "--attach", &pid]);
        serde_json::from_str::<Value>(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    };
    let finding = |json: &Value, id: &str| {
        json["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id).cloned()
    };
    let level = |finding: &Value, words: &[&str]| {
        let sentence = finding["sentence"].as_str().unwrap();
        assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
        finding["level"].as_str().unwrap().to_owned()
    };
    let chosen = |json: &Value| {
        let copies = json["cupti"].as_array().unwrap();
        copies.iter().find(|copy| copy["chosen"] == true).map(|copy| copy["version"].clone())
    };
    let mut witness = stage.witness(host.pid());
    let json = doctor();
    assert_eq!(level(&finding(&json, "reach").unwrap(), &["its shim answers"]), "ok");
    assert_eq!(level(&finding(&json, "injection").unwrap(), &["the shim is loaded"]), "ok");
    assert_eq!(level(&finding(&json, "config").unwrap(), &["GTOP_KINDS", "foo"]), "warning");
    assert_eq!((finding(&json, "state"), chosen(&json)), (None, Some(Value::Null)));
    assert!(host.truth().calls.is_empty(), "CUPTI is left alone");

    host.say("hold CUPTI for torch");
    let stat = stage.start_stat(host.pid());
    witness.until("busy", |witness| witness.reason == Some(Reason::Busy));
    let words = ["another tool holds CUPTI", "calls itself \"CUPTI for torch\""];
    assert_eq!(level(&finding(&doctor(), "state").unwrap(), &words), "fault");
    stat.interrupt();
    witness.until("nobody watches", |witness| witness.state == Some(StateCode::Loaded));
    assert_eq!(level(&finding(&doctor(), "state").unwrap(), &words), "warning");

    host.say("release");
    drop(stage.watch(host.pid()).finish());
    let json = doctor();
    assert_eq!((finding(&json, "state"), chosen(&json)), (None, Some(json!(130_001))));
}

#[test]
fn a_profiler_can_start_while_nobody_watches_and_each_comes_after_the_other() {
    let stage = Stage::new();
    let mut host = stage.host(&faulty(130_500, "what = \"dropped\"\ncount = 0")).start();
    for _ in 0..2 {
        let watch = stage.watch(host.pid());
        assert_eq!(host.say("hold CUPTI for torch"), "39");
        host.say("turns 10");
        let truth = host.truth();
        let stat = watch.finish();
        assert_eq!(stat["cupti"]["subscribed"], true);
        assert!(count(&stat["records"]["delivered"]) > 0, "{truth:?}");
        let mut witness = stage.witness(host.pid());
        witness.until("the release", |witness| witness.state.is_some() && !witness.subscribed);
        assert_eq!(host.say("hold CUPTI for torch"), "0");
        let stat = stage.start_stat(host.pid());
        witness.until("busy", |witness| witness.reason == Some(Reason::Busy));
        let stat = Summary(stat.interrupt().unseen(&["End that tool"]));
        let reason = stat["reason"].as_str().unwrap();
        assert!(reason.contains("calls itself \"CUPTI for torch\""), "{reason}");
        assert_eq!(stat["cupti"]["subscribed"], false);
        host.say("release");
    }
    assert_eq!(host.truth().crash, None);
}

#[test]
fn the_interface_is_v1_and_v2_on_request() {
    let stage = Stage::new();
    for (asked, version, interface) in [("", 130_500, "v1"), ("v2", 130_500, "v2"), ("v2", 130_001, "v1")] {
        let scenario = faulty(version, "what = \"dropped\"\ncount = 0");
        let mut host = stage.host(&scenario).variable("GTOP_INTERFACE", asked).start();
        let watch = stage.watch(host.pid());
        host.say("turns 10");
        let stat = watch.finish();
        let truth = host.truth();
        assert_eq!(stat["cupti"]["interface"], interface, "{asked} on {version}");
        assert_truth(stat.of(host.pid()), &truth);
        assert_eq!((truth.misuse.len(), truth.crash), (0, None));
    }
}

#[test]
fn without_cuda_or_cupti_the_reason_says_which() {
    let stage = Stage::new();
    std::fs::remove_file(stage.path().join("libcupti.so.13")).unwrap();
    let host = stage.host("mixed").start();
    let without_cuda = Fake::without_cuda(&stage);
    for (pid, reason, words) in
        [(host.pid(), Reason::NoCupti, "no libcupti"), (without_cuda.pid(), Reason::NoCuda, "libcuda")]
    {
        let stat = stage.start_stat(pid);
        stage.witness(pid).until("the reason", |witness| witness.reason == Some(reason));
        let stat = Summary(stat.interrupt().unseen(&[words]));
        assert_eq!(stat["state"], "unavailable");
        let said = stat["reason"].as_str().unwrap();
        assert!(said.contains(words), "{said}");
        let file = stage.path().join("libcupti.so.13");
        let named = format!("GTOP_CUPTI names {}, where there is no file", file.display());
        assert_eq!(said.contains(&named), reason == Reason::NoCupti, "{said}");
        assert_eq!((&stat["cupti"], &stat["kinds"]), (&Value::Null, &json!([])));
    }
}

#[test]
fn a_kind_that_is_refused_leaves_the_others() {
    let stage = Stage::new();
    let fault = "what = \"error\"\ncall = \"cuptiActivityEnable\"\nresult = 35\nkind = 1";
    let mut host = stage.host(&faulty(130_401, fault)).start();
    let watch = stage.watch(host.pid());
    host.say("turns 10");
    let asked = stage.ctl(host.pid(), &["enable", "memcpy"]);
    asked.fails(1, &["INSUFFICIENT_PRIVILEGES", "35"]);
    let stat = watch.finish();
    assert_eq!((&stat["state"], &stat["kinds"]), (&json!("armed"), &json!(["kernel", "memset"])));
    assert_truth(stat.of(host.pid()), &host.truth());
    assert_eq!(stat["records"]["memcpy"], 0);
    let findings = stat["findings"].as_array().unwrap();
    let refused = findings.iter().find(|finding| finding["rule"] == "kind_refused").unwrap();
    let said = refused["sentence"].as_str().unwrap();
    assert!(said.starts_with("CUPTI refused memcpy (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES 35)"), "{said}");
}

#[test]
fn a_cupti_that_refuses_everything_is_quoted() {
    let stage = Stage::new();
    let fault = "what = \"error\"\ncall = \"cuptiActivityEnable\"\nresult = 35";
    let host = stage.host(&faulty(130_401, fault)).start();
    let stat = stage.start_stat(host.pid());
    stage.witness(host.pid()).until("refused", |witness| witness.reason == Some(Reason::Refused));
    let stat = Summary(stat.interrupt().unseen(&["INSUFFICIENT_PRIVILEGES", "CAP_SYS_ADMIN"]));
    let reason = stat["reason"].as_str().unwrap();
    assert!(reason.contains("refused") && reason.contains("INSUFFICIENT_PRIVILEGES"), "{reason}");
    assert_eq!((&stat["state"], &stat["kinds"]), (&json!("unavailable"), &json!([])));
}

#[test]
fn silence_is_shown_and_gives_no_rates() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[thread]]
every = "2ms"
steps = [ { kernel = "k", ns = 1000 }, { copy = "h2d", bytes = 64, ns = 500 } ]
[[fault]]
what = "silent"
after = 200
"#;
    let mut host = stage.host(scenario).real_time().start();
    let mut watch = stage.watch(host.pid());
    host.say("run");
    watch.witness.until("silence", |witness| witness.state == Some(StateCode::Silent));
    host.say("stop");
    let stat = watch.finish();
    assert_eq!((&stat["state"], &stat["records"]["kernel"]), (&json!("silent"), &json!(200)));
    let validity = &stat["validity"];
    assert_eq!((&validity["rate_total"], &validity["rate_window"]), (&Value::Null, &Value::Null));
    assert!(stat["reason"].as_str().unwrap().contains("no kernel record for 2 s"), "{}", stat["reason"]);
    assert_balance(&stat["records"]);
}

#[test]
fn exhausted_device_buffers_are_foreseen_and_shown() {
    let stage = Stage::new();
    let mut host = stage
        .host("defect")
        .early()
        .variable("GTOP_KINDS", "kernel")
        .variable("GTOP_POOL_LIMIT", "4")
        .start();
    let mut watch = stage.watch(host.pid());
    // Two slots a turn, of which one holds a kernel: half of what four buffers hold.
    host.say("turns 100000");
    // Which way its copy goes nobody told: it may leak, and when it will have used up all is said.
    watch.witness.until("that it may leak", |witness| {
        witness.pools.iter().any(|pool| pool.in_doubt == 1 && pool.slots_used > 0)
    });
    for _ in 0..3 {
        host.say("turns 50000");
        let seen = watch.witness.loss.walked;
        watch.witness.until("more records", |witness| witness.loss.walked >= seen);
    }
    watch.witness.until("exhaustion", |witness| {
        witness.pools.iter().any(|pool| pool.state == PoolState::Exhausted as u8)
    });
    let stat = watch.finish();
    let truth = host.truth();
    assert_eq!((truth.executed(Kind::Kernel), truth.delivered(Kind::Kernel)), (250_000, 200_000));
    assert_balance(&stat["records"]);
    assert_eq!(count(&stat["records"]["delivered"]), 200_000);
    let pool = &stat["pools"][0];
    assert_eq!(
        (&pool["limit"], &pool["state"], &pool["slots_total"]),
        (&json!(4), &json!("exhausted"), &json!(400_000))
    );
    assert_eq!((&pool["source"], &pool["buffers"]), (&json!("computed"), &json!(4)));
    assert_eq!(stat["graphs"]["list"][0]["per_second"], json!(null), "it may go on without records");
}

#[test]
fn graphs_that_copy_from_the_host_are_not_said_to_leak() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[graph]]
name = "h2d"
nodes = [ { copy = "h2d", bytes = 4096, ns = 200 }, { kernel = "graph_kernel", ns = 100 } ]
[[thread]]
steps = [ { launch = "h2d" } ]
"#;
    let setup = stage.host(scenario).early();
    let mut host = setup.variable("GTOP_KINDS", "kernel").variable("GTOP_POOL_LIMIT", "1").start();
    let mut watch = stage.watch(host.pid());
    let in_doubt = |doubt: u8| move |pool: &gtop_protocol::message::Pool| pool.in_doubt == doubt;
    host.say("turns 10000");
    watch.witness.until("that it may leak", |witness| witness.pools.iter().any(in_doubt(1)));
    // At worst each turn takes two of 100,000 slots: behind 50,000 turns nothing would come.
    for _ in 0..5 {
        host.say("turns 10000");
        let owed: u64 = host.truth().delivered.values().sum();
        watch.witness.until("the records", |witness| witness.loss.walked >= owed);
    }
    watch.witness.until("that it does not", |witness| witness.pools.iter().all(in_doubt(0)));
    assert!(!watch.witness.tainted);
    let stat = watch.finish();
    let truth = host.truth();
    assert_eq!((truth.growth_mib(), truth.delivered(Kind::Kernel)), (0, 60_000));
    let pool = &stat["pools"][0];
    assert_eq!((&pool["state"], &pool["buffers"]), (&json!("unknown"), &Value::Null), "{pool}");
}

#[test]
fn eager_kernels_after_exhaustion_are_counted_as_what_they_are() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[graph]]
name = "d2d"
nodes = [ { copy = "d2d", bytes = 64, ns = 200 }, { kernel = "graph_kernel", ns = 100 } ]
[[thread]]
steps = [ { launch = "d2d" }, { kernel = "eager_kernel", ns = 100 } ]
"#;
    let setup = stage.host(scenario).early();
    let mut host = setup.variable("GTOP_KINDS", "kernel").variable("GTOP_POOL_LIMIT", "1").start();
    let mut watch = stage.watch(host.pid());
    for _ in 0..8 {
        host.say("turns 5000");
        // Not faster than this machine takes the records in.
        let owed: u64 = host.truth().delivered.values().sum();
        watch.witness.until("the records", |witness| witness.loss.walked >= owed);
    }
    watch.witness.until("exhaustion", |witness| {
        witness.pools.iter().any(|pool| pool.state == PoolState::Exhausted as u8)
    });
    let stat = watch.finish();
    let truth = host.truth();
    let records = &stat["records"];
    let reason = stat["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("device buffers are used up"), "armed, and yet not well: {reason}");
    assert_balance(records);
    // 100,000 slots are 33,333 turns; of the rest the eager kernels come, without times.
    let zeros = truth.class(Class::Zero);
    assert!((6_600..6_700).contains(&zeros), "{truth:?}");
    let validity = &stat["validity"];
    if records["delivered"] == records["shown"] {
        assert_eq!(count(&validity["zero"]), zeros);
        let first = &validity["first_invalid"];
        let what = (&first["class"], &first["start"], &first["end"], &first["name"]);
        assert_eq!(what, (&json!("zero"), &json!("0"), &json!("0"), &json!("eager_kernel")));
        assert_eq!(count(&first["index"]), truth.class(Class::Valid) + 1);
    } else {
        println!("this machine is too slow to take every record in: {records}");
    }
    assert_eq!(stat["pools"][0]["state"], "exhausted");
}

#[test]
fn a_version_nobody_measured_is_said_to_be_unknown_and_treated_as_defective() {
    let stage = Stage::new();
    let mut host = stage.host(&faulty(120_900, "what = \"dropped\"\ncount = 0")).start();
    let watch = stage.watch(host.pid());
    host.say("turns 10");
    let asked = stage.ctl(host.pid(), &["disable", "memcpy"]);
    assert_eq!(asked.code(), Some(1), "{asked:?}");
    let stat = watch.finish();
    assert_truth(stat.of(host.pid()), &host.truth());
    let cupti = &stat["cupti"];
    assert_eq!((&cupti["verdict"], &cupti["version"]), (&json!("unknown"), &json!(120_900)));
    assert_eq!(cupti["reason"], "not measured");
}

#[test]
fn resting_keeps_a_defective_cupti_from_leaking_however_often() {
    let stage = Stage::new();
    let (copy, memset) = ("{ copy = \"d2d\", bytes = 64, ns = 500 },", "{ memset = 64, ns = 400 },");
    for (version, nodes, resting) in [
        (130_001, copy.to_owned(), KindSet::EMPTY.with(gtop_protocol::Kind::Memcpy)),
        (130_001, format!("{copy} {memset}"), KindSet::SAFE),
        (130_401, format!("{copy} {memset}"), KindSet::EMPTY),
    ] {
        let scenario = format!(
            r#"
cupti = {version}
[[graph]]
name = "step"
nodes = [ {nodes} {{ kernel = "k", ns = 500 }} ]
[[thread]]
steps = [ {{ launch = "step" }} ]
"#
        );
        let mut host = stage.host(&scenario).early().start();
        for _ in 0..10 {
            let watch = stage.watch(host.pid());
            host.say("turns 5000");
            let stat = watch.finish();
            assert_balance(&stat["records"]);
            let mut witness = stage.witness(host.pid());
            witness.until("rest", |witness| witness.state == Some(StateCode::Resting));
            witness.until("the kinds", |witness| witness.enabled == resting);
            host.say("turns 5000");
        }
        let truth = host.truth();
        assert_eq!((truth.growth_mib(), truth.misuse.len()), (0, 0), "{version}: {truth:?}");
        // 100,000 turns of up to three slots each would have been far more than the pre-allocated three buffers.
        assert_eq!(truth.executed(Kind::Kernel), 100_000);
    }
}

#[test]
fn after_its_last_watcher_a_shim_lingers_and_then_rests() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").variable("GTOP_LINGER", "").start();
    stage.watch(host.pid()).finish();
    let mut witness = stage.witness(host.pid());
    witness.until("no watcher", |witness| witness.state.is_some() && witness.watchers == 0);
    assert_eq!(witness.state, Some(StateCode::Armed), "the next watcher may come at once");
    let watch = stage.watch(host.pid());
    host.say("turns 10");
    assert_truth(watch.finish().of(host.pid()), &host.truth());
    assert_eq!(host.truth().calls["cuptiActivityEnable"], 3, "kinds were not switched meanwhile");
    witness.until("rest", |witness| witness.state == Some(StateCode::Resting));
}
