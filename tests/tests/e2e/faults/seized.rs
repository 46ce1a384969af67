//! Hosts that close what is not theirs, or let themselves have nothing, and what becomes of the shim's own.

use std::io::Read;
use std::os::unix::net::UnixStream;

use gtop_protocol::control::Action;
use gtop_protocol::message::Outcome;
use gtop_tests::host::Host;
use gtop_tests::stage::Stage;
use gtop_tests::wait::wait_for;

use super::{Case, both, case, sockets_of, stat, table, watch, work};

/// Waits until a connection is served.
fn until_served(stage: &Stage, host: &Host) {
    let socket = stage.socket(host.pid());
    wait_for("a connection that is served", || {
        let mut stream = UnixStream::connect(&socket).ok()?;
        stream.read_exact(&mut [0]).ok()
    });
}

/// Waits until the shim waits, for ever or not: what it does in that moment would be done with what the host has made of its
/// descriptors.
fn until_asleep(host: &Host, how_long: Wait) {
    wait_for("a shim that waits", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.pid())).ok()?.flatten();
        let read = |task: &std::fs::DirEntry, name: &str| {
            std::fs::read_to_string(task.path().join(name)).unwrap_or_default()
        };
        let io = tasks.into_iter().find(|task| read(task, "comm") == "gtop-io\n")?;
        let call = read(&io, "syscall");
        let words: Vec<&str> = call.split(' ').collect();
        // `poll`, and its time limit; `ppoll` on other processors than x86-64.
        let for_ever = words.get(3) == Some(&"0xffffffff");
        let waits = words[0] == "73" || words[0] == "7" && for_ever == (how_long == Wait::ForEver);
        waits.then_some(())
    });
}

/// How long a shim waits.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// For whoever comes first.
    ForEver,
    /// Until its next look at those who are there.
    ForATick,
}

/// The host closes all descriptors while somebody watches, or while nobody does, and opens its own under their numbers.
fn seized(stage: &Stage, what: &str, watched: bool) -> String {
    both(
        stage,
        || stage.host(&work(130_001, "")),
        |host| {
            stage.socket(host.pid());
            let witness = watched.then(|| {
                let mut witness = stage.witness(host.pid()).watching();
                let so_far = witness.host_buffers.cpu_ns;
                witness.until("a beat", |witness| witness.host_buffers.cpu_ns > so_far);
                witness
            });
            until_asleep(host, if watched { Wait::ForATick } else { Wait::ForEver });
            assert_eq!(host.say(&format!("seize {what}")), "");
            host.say("turns 10");
            if let Some(mut witness) = witness {
                witness.until_end();
                assert_eq!(witness.goodbye, None);
            }
            until_served(stage, host);
            let seen = watch(stage, host);
            assert_eq!(host.say("seized"), "untouched");
            seen
        },
    )
}

/// The host closes all descriptors while nobody watches, and ends before anybody comes.
fn seized_at_the_end(stage: &Stage) -> String {
    both(
        stage,
        || stage.host(&work(130_001, "")),
        |host| {
            stage.socket(host.pid());
            until_asleep(host, Wait::ForEver);
            host.say("seize connections");
            assert_eq!((host.say("seized").as_str(), sockets_of(stage, host.pid())), ("untouched", 1));
            "nothing is left of it".into()
        },
    )
}

/// The host lets itself have fewer descriptors than it has.
fn none_allowed(stage: &Stage) -> String {
    both(
        stage,
        || stage.host(&work(130_001, "")),
        |host| {
            let mut witness = stage.witness(host.pid()).watching();
            host.say("descriptors 1");
            host.say("turns 10");
            assert_eq!(witness.ask(Action::Flush).0, Outcome::Done);
            let meanwhile = stat(stage, host);
            host.say("descriptors 512");
            drop(witness);
            until_served(stage, host);
            format!("{meanwhile}; then {}", watch(stage, host))
        },
    )
}

/// The host has no standard error, and writes there all the same.
fn no_stderr(stage: &Stage) -> String {
    let setup = || stage.host(&work(130_001, "")).argument("--no-stderr");
    both(stage, setup, |host| {
        let bad = nix::errno::Errno::EBADF as i32;
        let wrote = |host: &mut Host| assert_eq!(host.say("stderr"), bad.to_string());
        stage.socket(host.pid());
        until_asleep(host, Wait::ForEver);
        wrote(host);
        let witness = stage.witness(host.pid()).watching();
        until_asleep(host, Wait::ForATick);
        wrote(host);
        drop(witness);
        let seen = watch(stage, host);
        wrote(host);
        seen
    })
}

/// Somebody removes the folder of the sockets, as at the end of a login, and puts the shim in once more.
fn no_folder(stage: &Stage) -> String {
    both(
        stage,
        || stage.host(&work(130_001, "")),
        |host| {
            stage.socket(host.pid());
            until_asleep(host, Wait::ForEver);
            std::fs::remove_dir_all(stage.sockets()).unwrap();
            let before = stat(stage, host);
            assert_eq!(host.say("inject"), "1");
            until_served(stage, host);
            format!("{before}; put in once more: {}", watch(stage, host))
        },
    )
}

#[test]
fn a_host_that_closes_what_is_not_its_own() {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for what in ["connections", "listeners"] {
        for (watched, when) in [(true, "watched"), (false, "not watched")] {
            cases.push(case(format!("closes all descriptors and opens {what}, {when}"), move |stage| {
                seized(stage, what, watched)
            }));
        }
    }
    cases.push(case("closes all descriptors and ends", seized_at_the_end));
    cases.push(case("allows itself no descriptors", none_allowed));
    cases.push(case("has closed standard error, and writes there", no_stderr));
    cases.push(case("the socket's folder was removed", no_folder));
    table(&cases);
}
