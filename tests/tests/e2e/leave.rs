//! How a host ends, and what it leaves behind, is as it would be without gtop.

use std::os::unix::process::ExitStatusExt;

use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, Reason, StateCode};
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};
use gtop_tests::wait::wait_for;

#[test]
fn a_watched_host_ends_as_it_would_alone() {
    let stage = Stage::new();
    for (how, polite) in [
        ("return", true),
        ("exit", true),
        ("_exit", false),
        ("abort", false),
        ("signal 15", false),
        ("signal 9", false),
    ] {
        let mut alone = stage.host("mixed").without_shim().start();
        alone.say("turns 200");
        let executed = alone.truth().executed;
        let expected = alone.end(how);

        let mut host = stage.host("mixed").start();
        let (pid, socket) = (host.pid(), stage.socket(host.pid()));
        let mut watch = stage.watch(pid);
        host.say("turns 200");
        let truth = host.truth();
        assert_eq!(truth.executed, executed, "{how}");
        let owed: u64 = truth.expected.values().sum();
        watch.witness.until("the records", |witness| witness.loss.walked == owed);
        let ended = host.end(how);
        assert_eq!(
            (ended.status.code(), ended.status.signal(), &ended.lines, &ended.errors),
            (expected.status.code(), expected.status.signal(), &expected.lines, &expected.errors),
            "{how}"
        );
        // The viewer ends by itself, with what it has.
        let stat = Summary(watch.stat.finish().json());
        assert_balance(&stat["records"]);
        assert_eq!(count(&stat["pid"]), u64::from(pid), "{how}");
        // What was not sent to this viewer yet goes with a process that is ended without being asked.
        let shown = count(&stat["records"]["shown"]);
        assert!(if polite { shown == owed } else { (1..=owed).contains(&shown) }, "{how}: {shown} of {owed}");
        watch.witness.until_end();
        assert_eq!(watch.witness.goodbye.is_some(), polite, "{how}");
        assert!(!socket.exists(), "{how}: where the process did not remove it, the viewer did");
    }
    // What nobody saw end is cleared away by whoever starts next.
    let host = stage.host("mixed").start();
    let socket = stage.socket(host.pid());
    host.end("_exit");
    assert!(socket.exists());
    let host = stage.host("mixed").start();
    let own = stage.socket(host.pid());
    wait_for("the others to be gone", || {
        let left = std::fs::read_dir(stage.sockets()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
        (left == [own.clone()]).then_some(())
    });
}

#[test]
fn a_host_whose_cupti_never_began_ends_as_it_would_alone() {
    let stage = Stage::new();
    let scenario = r#"
[[thread]]
steps = [ { kernel = "k", ns = 1000 } ]
[[fault]]
what = "error"
call = "cuptiSubscribe"
result = 15
"#;
    for how in ["return", "exit", "_exit", "signal 15"] {
        let expected = stage.host(scenario).without_shim().start().end(how);
        let mut host = stage.host(scenario).start();
        let mut witness = stage.witness(host.pid());
        assert_eq!(witness.ask(Action::Watch).0, Outcome::Failed, "{how}");
        witness.until("the refusal", |witness| witness.reason == Some(Reason::Refused));
        host.say("turns 10");
        let ended = host.end(how);
        assert_eq!(
            (ended.status.code(), ended.status.signal(), &ended.lines, &ended.errors),
            (expected.status.code(), expected.status.signal(), &expected.lines, &expected.errors),
            "{how}"
        );
        witness.until_end();
    }
}

#[test]
fn a_host_may_end_in_the_middle_of_a_storm() {
    let stage = Stage::new();
    for how in ["return", "_exit", "abort"] {
        let mut host = stage.host("storm").real_time().start();
        let pid = host.pid();
        let mut watch = stage.watch(pid);
        host.say("run");
        watch.witness.until("records", |witness| witness.loss.walked > 10_000);
        let ended = host.end(how);
        let signal = (how == "abort").then_some(libc::SIGABRT);
        assert_eq!((ended.status.signal(), ended.errors.as_str()), (signal, ""), "{how}");
        let ran = watch.stat.finish();
        assert!(matches!(ran.code(), Some(0 | 3)), "{ran:?}");
        assert!(ran.code() == Some(0) || ran.err.contains("ended before anything was seen"), "{ran:?}");
    }
}

#[test]
fn forks_change_nothing_for_parent_or_child() {
    let stage = Stage::new();
    let scenario = r#"
cupti = 130001
[[thread]]
every = "1ms"
steps = [ { kernel = "k", ns = 1000, times = 8 }, { copy = "h2d", bytes = 64, ns = 500 } ]
"#;
    let mut host = stage.host(scenario).real_time().start();
    let watch = stage.watch(host.pid());
    host.say("run");
    for _ in 0..34 {
        for how in ["exit", "_exit", "exec"] {
            let answer = host.say(&format!("fork {how}"));
            assert!(answer.starts_with("child ") && answer.ends_with(" 0"), "{how}: {answer}");
        }
    }
    host.say("stop");
    let stat = watch.finish();
    let truth = host.truth();
    assert_balance(&stat["records"]);
    assert_eq!(count(&stat["records"]["delivered"]), truth.delivered.values().sum::<u64>());
    assert_eq!((stat["state"].as_str(), truth.misuse.len()), (Some("armed"), 0));
    let mut witness = stage.witness(host.pid());
    witness.until("rest", |witness| witness.state == Some(StateCode::Resting));
    assert!(host.end("return").status.success());
}

#[test]
fn a_child_that_is_injected_afresh_is_watched_beside_its_parent() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let answer = host.say("fork inject");
    let child: u32 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    stage.socket(child);
    let watch = stage.watch(host.pid());
    host.say("turns 10");
    let stat = watch.finish();
    let mut both = [host.pid(), child];
    both.sort_unstable();
    assert_eq!(stat.pids(), both);
    assert_eq!(count(&stat.of(child)["records"]["delivered"]), 0);
    assert_balance(&stat.of(host.pid())["records"]);
    assert!(count(&stat.of(host.pid())["records"]["shown"]) > 0);
    host.say(&format!("reap {child}"));
}

#[test]
fn a_child_of_a_watched_process_is_not_told_of_another_tool() {
    let stage = Stage::new();
    let mut host = stage.host("mixed").start();
    let parent = stage.watch(host.pid());
    let answer = host.say("fork inject");
    let child: u32 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    stage.socket(child);
    let mut witness = stage.witness(child);
    witness.send(Action::Watch, 0);
    witness.until("a reason", |witness| witness.reason == Some(Reason::Forked));
    assert!(witness.detail.contains("the process this one was forked from"), "{}", witness.detail);
    drop(witness);
    host.say(&format!("reap {child}"));
    assert_balance(&parent.finish().of(host.pid())["records"]);
}
