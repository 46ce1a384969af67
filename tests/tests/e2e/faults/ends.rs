//! Hosts that end in every way, fork, unload the library, or get it twice, in the middle of a million records a second.

use gtop_protocol::control::Action;
use gtop_protocol::message::StateCode;
use gtop_tests::host::{Ended, Host};
use gtop_tests::stage::Stage;
use gtop_tests::wait::wait_for;
use gtop_tests::witness::Witness;

use super::{Case, DESCRIPTORS, THREADS, both, case, end, sockets_of, stat, table, watch, work};

/// Runs a storm until it is in full course, watched if there is a shim.
fn storm(stage: &Stage, watched: bool) -> (Host, Option<Witness>) {
    let setup = stage.host("storm").real_time();
    let mut host = if watched { setup.start() } else { setup.without_shim().start() };
    let mut witness = watched.then(|| stage.witness(host.pid()).watching());
    host.say("run");
    if let Some(witness) = &mut witness {
        witness.until("records", |witness| witness.received() > 20_000);
    }
    (host, witness)
}

/// What a user sees of a host that ends so in the middle of a storm.
fn ends(stage: &Stage, how: &str) -> String {
    let (alone, _) = storm(stage, false);
    let expected: Ended = alone.end(how);
    let (host, witness) = storm(stage, true);
    let (pid, mut witness) = (host.pid(), witness.unwrap());
    let ended = host.end(how);
    assert_eq!(end(&ended), end(&expected));
    witness.until_end();
    // Handlers that clean up run where the application lets them.
    let polite = matches!(how, "return" | "exit");
    assert_eq!(sockets_of(stage, pid), usize::from(!polite));
    assert!(polite || witness.goodbye.is_none());
    "the stream ends, and where handlers run a viewer that keeps up is told why".into()
}

/// Forks of a host in a storm.
fn forks(stage: &Stage, how: &str) -> String {
    let (mut host, witness) = storm(stage, true);
    let (pid, mut witness) = (host.pid(), witness.unwrap());
    // What is asked keeps both threads busy with their locks.
    for round in 0..100 {
        witness.send(Action::Mark(b"x"), 0);
        let answer = host.say(&format!("fork {how}"));
        let child = answer.split(' ').nth(1).unwrap().to_owned();
        let ended = if how == "inject" { host.say(&format!("reap {child}")) } else { answer };
        let expected = if how == "inject" { "-9" } else { "0" };
        assert_eq!(ended.split(' ').nth(2), Some(expected), "round {round}: {ended}");
    }
    host.say("stop");
    witness.ask(Action::Flush);
    let truth = host.truth();
    witness.until_delivered(truth.delivered.values().sum());
    assert_eq!((truth.misuse.len(), &truth.crash, witness.state), (0, &None, Some(StateCode::Armed)));
    assert!(witness.gaps == 0 || witness.loss.dropped > 0, "only a slow viewer misses frames");
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
    assert_eq!(sockets_of(stage, pid), 0);
    "the parent's stream goes on, its accounts exact".into()
}

/// The library in the host twice, in one way or another.
fn twice<'a>(name: &str, again: impl Fn(&Stage, &mut Host) + Send + Sync + 'a) -> Case<'a> {
    case(name, move |stage| {
        let setup = || stage.host(&work(130_001, ""));
        both(stage, setup, |host| {
            stage.socket(host.pid());
            let (threads, descriptors) = (host.threads(), host.descriptors());
            again(stage, host);
            let seen = watch(stage, host);
            wait_for("the threads and descriptors of one", || {
                // Control's thread starts with the first watcher, and CUPTI is opened.
                let few =
                    host.threads() < threads + THREADS && host.descriptors() <= descriptors + DESCRIPTORS;
                few.then_some(())
            });
            assert_eq!(sockets_of(stage, host.pid()), 1);
            seen
        })
    })
}

#[test]
fn hosts_end_and_fork_as_they_would_alone() {
    let mut cases = Vec::new();
    for how in ["return", "exit", "_exit", "abort", "signal 9", "signal 11", "signal 15"] {
        cases.push(case(format!("ends by {how}, watched, at a million records a second"), move |stage| {
            ends(stage, how)
        }));
    }
    for (how, what) in [
        ("exit", "exits"),
        ("_exit", "ends by _exit"),
        ("exec", "becomes another program"),
        ("again", "is injected again and exits"),
        ("inject", "is injected again and killed"),
    ] {
        cases.push(case(
            format!("forks 100 times at a million records a second; the child {what}"),
            move |stage| forks(stage, how),
        ));
    }
    table(&cases);
}

#[test]
fn a_library_that_is_there_already() {
    let cases = [
        twice("unloads the shim, three times", |_, host| assert_eq!(host.say("unload"), "[0, 0, 0]")),
        twice("the driver calls `InitializeInjection` again", |_, host| assert_eq!(host.say("inject"), "1")),
        twice("a second shim is loaded from another path", |stage, host| {
            let other = stage.path().join("other.so");
            std::fs::copy(stage.shim(), &other).unwrap();
            assert_eq!(host.say(&format!("inject {}", other.display())), "1");
        }),
        twice("gtop is told to put the shim in once more", |stage, host| {
            let seen =
                stage.gtop(&["stat", "--inject", "--for", "50ms", "--attach", &host.pid().to_string()]);
            assert!(!seen.err.contains("shim put in"), "{seen:?}");
            assert_eq!(stat(stage, host), "armed");
        }),
    ];
    table(&cases);
}

#[test]
fn a_viewer_that_sees_a_process_end_removes_its_socket() {
    for how in ["_exit", "abort", "signal 9"] {
        let stage = Stage::new();
        let (host, other) = (stage.host("mixed").start(), stage.host("mixed").start());
        let pid = host.pid();
        let watched = stage.watch(pid);
        host.end(how);
        // It ends with the process, of which nothing was seen.
        watched.stat.finish().fails(3, &["ended"]);
        assert_eq!((sockets_of(&stage, pid), sockets_of(&stage, other.pid())), (0, 1), "{how}");
    }
}
