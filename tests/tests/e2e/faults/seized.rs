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

/// The host closes all descriptors while somebody watches, or while nobody does, and opens its own under their numbers.
fn seized(stage: &Stage, what: &str, watched: bool) -> String {
    both(
        stage,
        || stage.host(&work(130_001, "")),
        |host| {
            let witness = watched.then(|| stage.witness(host.pid()).watching());
            stage.socket(host.pid());
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
    table(&cases);
}
