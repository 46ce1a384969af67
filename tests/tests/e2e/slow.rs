//! A viewer that is stopped while the application works on.

use gtop_protocol::control::Action;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{assert_balance, count};
use nix::sys::signal::Signal;

/// Turns of the busiest thread of `mixed` in five seconds, and how they are cut up.
const ROUNDS: u64 = 300;
const TURNS: u64 = 100;

#[test]
fn a_stopped_viewer_costs_the_target_nothing_and_its_losses_are_its_own() {
    let stage = Stage::new();
    // What the application does when nobody watches.
    let mut alone = stage.host("mixed").without_shim().start();
    alone.say(&format!("turns {}", ROUNDS * TURNS));

    let mut host = stage.host("mixed").start();
    let watch = stage.watch(host.pid());
    let mut quick = stage.witness(host.pid()).watching();
    quick.until_watched(2);
    watch.stat.signal(Signal::SIGSTOP);
    for _ in 0..ROUNDS {
        host.say(&format!("turns {TURNS}"));
        quick.ask(Action::Flush);
    }
    let truth = host.truth();
    let delivered: u64 = truth.delivered.values().sum();
    quick.until_delivered(delivered);
    assert_eq!(truth.executed, alone.truth().executed, "the same work was done");
    assert_eq!(truth.delivered, truth.expected, "and all of it was recorded");
    assert!(truth.dropped.is_empty() && truth.buffers.refused == 0, "{truth:?}");
    assert_eq!((quick.loss.queue_full, quick.loss.dropped, quick.gaps), (0, 0, 0));

    watch.stat.signal(Signal::SIGCONT);
    let stat = watch.finish();
    let records = &stat["records"];
    println!("{records}");
    assert_balance(records);
    assert_eq!(count(&records["delivered"]), delivered);
    assert!(count(&records["lost"]["slow_viewer"]) > 0 && count(&records["shown"]) > 0, "{records}");
    assert_eq!(count(&records["lost"]["queue_full"]), 0);
}
