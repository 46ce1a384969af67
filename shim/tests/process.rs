//! Forks and ends of the host: the shim changes neither how it ends nor what its children do.

mod common;

use common::{PER_TURN, Setup, Viewer, mixed, socket_of};
use gtop_protocol::control::Action;
use gtop_protocol::message::Outcome;
use std::os::unix::process::ExitStatusExt;

#[test]
fn children_are_silent_and_the_parent_streams_on() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    for round in 1..=20 {
        for how in ["exit", "_exit", "exec"] {
            let answer = host.say(&format!("fork {how}"));
            assert!(answer.ends_with(" 0"), "{how}: {answer}");
        }
        host.say("turns 10");
        viewer.ask(Action::Flush);
        viewer.until_delivered(round * 10 * PER_TURN);
    }
    assert!(host.socket().exists(), "a child's exit removes nothing of its parent's");
}

#[test]
#[expect(unsafe_code, reason = "a signal to a child of a child")]
fn a_child_keeps_no_connection_of_its_dead_parent_open() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    let held = host.say("fork hold");
    let child: i32 = held.split(' ').nth(1).unwrap().parse().unwrap();
    assert_eq!(host.end("_exit").code(), Some(0));
    viewer.until_end();
    assert_eq!(viewer.goodbye, None, "_exit runs no handler");
    // SAFETY: a signal to the child this test made.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn a_child_that_is_injected_afresh_has_a_stream_of_its_own() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    let answer = host.say("fork inject");
    let child: u32 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let path = socket_of(host.root.path(), child);
    let mut other = Viewer::connect(&path);
    other.until("a hello", |viewer| viewer.hellos > 0);
    assert_eq!((other.pid, viewer.pid), (child, host.pid()));
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until_delivered(10 * PER_TURN);
    host.say(&format!("reap {child}"));
    other.until_end();
    // Its socket is stale now; whoever starts next in this folder removes it.
    assert!(path.exists());
}

#[test]
fn a_second_call_of_the_driver_changes_nothing() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.watcher();
    assert_eq!(host.say("inject"), "1");
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until_delivered(10 * PER_TURN);
    let sockets = std::fs::read_dir(host.root.path().join("gtop")).unwrap().count();
    assert_eq!(sockets, 1);
}

#[test]
fn a_host_that_ends_says_goodbye_where_it_can_and_ends_as_it_would() {
    for (how, code, signal, polite) in [
        ("return", Some(0), None, true),
        ("exit", Some(0), None, true),
        ("_exit", Some(0), None, false),
        ("abort", None, Some(libc::SIGABRT), false),
        ("signal 15", None, Some(libc::SIGTERM), false),
        ("signal 9", None, Some(libc::SIGKILL), false),
    ] {
        for watched in [false, true] {
            let mut host = Setup::new(&mixed(130_001)).start();
            let path = host.socket();
            let mut viewer = if watched { host.watcher() } else { host.viewer() };
            viewer.until("a hello", |viewer| viewer.hellos > 0);
            host.say("turns 100");
            let (status, root, errors) = host.exit(how);
            assert_eq!((status.code(), status.signal()), (code, signal), "{how}");
            assert_eq!(errors, "", "{how}");
            viewer.until_end();
            assert_eq!(viewer.goodbye.as_deref(), polite.then_some("the process exits"), "{how}");
            assert_eq!(path.exists(), !polite, "{how}");
            drop(root);
        }
    }
}

#[test]
fn the_host_may_end_in_the_middle_of_a_storm() {
    for _ in 0..10 {
        let mut host = Setup::new("storm").real_time().start();
        let mut viewer = host.watcher();
        host.say("run");
        viewer.until("records", |viewer| viewer.received() > 1000);
        let (status, _root, errors) = host.exit("exit");
        assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
        viewer.until_end();
    }
}

#[test]
fn a_dead_process_leaves_a_socket_that_the_next_one_removes() {
    let setup = Setup::new(&mixed(130_001));
    let folder = setup.root.path().join("gtop");
    std::fs::create_dir(&folder).unwrap();
    let stale = folder.join("4294967295-1.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let host = setup.start();
    let mut viewer = host.viewer();
    assert_eq!(viewer.ask(Action::Mark(b"x")).0, Outcome::Done);
    assert!(!stale.exists());
}
