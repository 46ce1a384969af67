//! What `gtop ctl` asks of a shim, and what `gtop stat` shows of it afterwards.

use gtop_protocol::message::StateCode;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_truth};
use serde_json::{Value, json};

/// A graph with a copy, a memory set and kernels, on CUPTI of this version.
fn with_graph(version: u32) -> String {
    format!(
        r#"
cupti = {version}
[[graph]]
name = "step"
nodes = [
  {{ copy = "d2d", bytes = 65536, ns = 900 }},
  {{ memset = 4096, ns = 700 }},
  {{ kernel = "k", ns = 1500, times = 3 }},
]
[[thread]]
steps = [ {{ launch = "step" }} ]
"#
    )
}

#[test]
fn kinds_are_switched_on_and_off() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let watch = stage.watch(host.pid());
    let said = stage.ctl(host.pid(), &["enable", "overhead", "sync"]).good();
    assert_eq!(said, format!("process {}: on: kernel memcpy memset overhead sync\n", host.pid()));
    let said = stage.ctl(host.pid(), &["disable", "sync", "kernel"]).good();
    assert!(said.contains("on: memcpy memset overhead"), "{said}");
    assert_eq!(watch.finish()["kinds"], json!(["memcpy", "memset", "overhead"]));
    // What was asked for holds for whoever comes next.
    assert_eq!(stage.watch(host.pid()).finish()["kinds"], json!(["memcpy", "memset", "overhead"]));
}

#[test]
fn without_a_watcher_a_request_holds_from_the_next_arming_on() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let said = stage.ctl(host.pid(), &["enable", "overhead"]).good();
    assert!(said.contains("when armed: kernel memcpy memset overhead"), "{said}");
    assert!(host.truth().calls.is_empty(), "CUPTI is left alone");
    assert_eq!(stage.watch(host.pid()).finish()["kinds"], json!(["kernel", "memcpy", "memset", "overhead"]));
}

#[test]
fn on_a_defective_cupti_switching_copies_off_wants_a_yes() {
    let stage = Stage::new();
    let mut host = stage.host(&with_graph(130_001)).early().start();
    let watch = stage.watch(host.pid());
    let asked = stage.ctl(host.pid(), &["disable", "memcpy"]);
    assert_eq!((asked.code(), asked.out.as_str()), (Some(1), ""), "{asked:?}");
    for word in ["not done", "13.0.85", "leak", "restart", "--yes"] {
        assert!(asked.err.contains(word), "no `{word}` in {}", asked.err);
    }
    host.say("turns 100");
    assert_eq!(host.truth().growth_mib(), 0);
    let said = stage.ctl(host.pid(), &["disable", "memcpy", "--yes"]).good();
    assert!(said.contains("on: kernel memset"), "{said}");
    let mut witness = stage.witness(host.pid());
    host.say("turns 100");
    witness.ask(gtop_protocol::control::Action::Flush);
    witness.until("the taint", |witness| witness.tainted);
    witness.until("a leak", |witness| !witness.pools.is_empty() && witness.has_notice("pool", "leaks"));
    let stat = watch.finish();
    assert_eq!(
        (&stat["kinds"], &stat["cupti"]["verdict"]),
        (&json!(["kernel", "memset"]), &json!("defective"))
    );
    assert_eq!(stat["pools"][0]["state"], "leaking", "{}", stat["pools"]);

    // Tainted it rests, and watching again is asked about too.
    witness.until("rest", |witness| witness.state == Some(StateCode::Tainted));
    let pid = host.pid().to_string();
    let unwatched = stage.gtop(&["stat", "--json", "--for", "50ms", "--attach", &pid]);
    let unwatched = Summary(unwatched.unseen(&[&format!("gtop ctl --attach {pid} arm --yes")]));
    assert_eq!((&unwatched["state"], &unwatched["records"]["shown"]), (&json!("tainted"), &Value::Null));
    let asked = stage.ctl(host.pid(), &["arm"]);
    assert_eq!(asked.code(), Some(1), "{asked:?}");
    assert!(asked.err.contains("GPU memory") && asked.err.contains("--yes"), "{}", asked.err);
    let said = stage.ctl(host.pid(), &["arm", "--yes"]).good();
    assert!(said.contains("armed: kernel memset"), "{said}");
}

#[test]
fn on_a_sound_cupti_it_does_not() {
    let stage = Stage::new();
    let host = stage.host(&with_graph(130_401)).early().start();
    let watch = stage.watch(host.pid());
    assert!(stage.ctl(host.pid(), &["disable", "memcpy"]).good().contains("on: kernel memset"));
    let stat = watch.finish();
    assert_eq!((&stat["kinds"], &stat["cupti"]["verdict"]), (&json!(["kernel", "memset"]), &json!("sound")));
}

#[test]
fn armed_by_request_it_stays_so_until_rest() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let said = stage.ctl(host.pid(), &["arm"]).good();
    assert!(said.contains("armed: kernel memcpy memset"), "{said}");
    assert_eq!(stage.watch(host.pid()).finish()["state"], "armed");
    let mut witness = stage.witness(host.pid());
    witness.until("the last watcher's leave", |witness| {
        witness.watchers == 0 && witness.state == Some(StateCode::Armed)
    });

    let watch = stage.watch(host.pid());
    host.say("turns 50");
    let truth = host.truth();
    let said = stage.ctl(host.pid(), &["rest"]).good();
    assert!(said.contains("resting"), "{said}");
    let stat = watch.finish();
    assert_eq!((&stat["state"], &stat["reason"]), (&json!("resting"), &Value::Null));
    assert_eq!(stat["kinds"], json!(["memcpy"]), "this CUPTI is defective");
    let truth_now = host.truth();
    assert_eq!(truth_now.expected, truth.expected, "nothing was run since");
    assert_truth(stat.of(host.pid()), &truth_now);
}

#[test]
fn a_mark_reaches_everyone_who_is_connected() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let mut first = stage.witness(host.pid());
    let mut second = stage.witness(host.pid()).watching();
    assert_eq!(
        stage.ctl(host.pid(), &["mark", "deploy 17"]).good(),
        format!("process {}: done\n", host.pid())
    );
    first.until("the mark", |witness| witness.has_notice("mark", "deploy 17 (gtop ctl)"));
    second.until("the mark", |witness| witness.has_notice("mark", "deploy 17 (gtop ctl)"));
}

#[test]
fn a_process_that_allows_viewing_only_refuses_and_goes_on() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").variable("GTOP_READ_ONLY", "1").start();
    let watch = stage.watch(host.pid());
    let actions: [&[&str]; 5] =
        [&["enable", "overhead"], &["disable", "kernel"], &["arm"], &["rest"], &["mark", "x"]];
    for action in actions {
        stage.ctl(host.pid(), action).fails(1, &["refused", "GTOP_READ_ONLY"]);
    }
    host.say("turns 20");
    let mut witness = watch.witness;
    let owed: u64 = host.truth().expected.values().sum();
    witness.until("the records", |witness| witness.loss.walked == owed);
    let stat = Summary(watch.stat.interrupt().json());
    assert_truth(stat.of(host.pid()), &host.truth());
    assert_eq!(stat["kinds"], json!(["kernel", "memcpy", "memset"]));
}

#[test]
fn of_several_viewers_the_last_request_wins_and_all_see_whose_it_was() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let (first, second) = (stage.watch(host.pid()), stage.watch(host.pid()));
    let mut witness = stage.witness(host.pid());
    stage.ctl(host.pid(), &["enable", "overhead", "runtime"]).good();
    witness.until("whose it was", |witness| witness.by == "gtop ctl");
    let (outcome, text) = witness
        .ask(gtop_protocol::control::Action::Disable(gtop_protocol::KindSet::parse("runtime").unwrap().0));
    assert_eq!(outcome, gtop_protocol::message::Outcome::Done, "{text}");
    witness.until("whose it is", |witness| witness.by == "the witness");
    let told = |witness: &gtop_tests::witness::Witness| {
        witness.has_notice("kinds", "overhead runtime, asked for by gtop ctl")
            && witness.has_notice("kinds", "memset overhead, asked for by the witness")
    };
    for watch in [first, second] {
        let mut watch = watch;
        watch.witness.until("both requests", told);
        assert_eq!(watch.finish()["kinds"], json!(["kernel", "memcpy", "memset", "overhead"]));
    }
}

#[test]
fn what_cannot_be_asked_is_said_at_once() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let long = "x".repeat(2000);
    let wrong: [&[&str]; 6] =
        [&["enable"], &["enable", "graph"], &["mark", ""], &["mark", &long], &["budget"], &["dance"]];
    for action in wrong {
        stage.ctl(host.pid(), action).fails(2, &[]);
    }
    stage.gtop(&["ctl", "arm"]).fails(2, &["--attach"]);
    stage.ctl(u32::MAX, &["arm"]).fails(3, &["no such process"]);
    // Not even a connection without a request makes the shim call CUPTI.
    let mut host = host;
    assert!(host.truth().calls.is_empty());
}
