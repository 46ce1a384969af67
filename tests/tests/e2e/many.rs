//! A family as large as they come: eight ranks on each of 26 GPUs, below one parent.

use gtop_protocol::control::Action;
use gtop_tests::host::below_one_shell;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};

/// One kernel a turn.
const SMALL: &str = "cupti = 130500\n[[thread]]\nsteps = [ { kernel = \"k\", ns = 1000 } ]\n";
const MANY: usize = 208;

#[test]
fn two_hundred_and_eight_processes_are_a_row_each_and_one_for_all() {
    let stage = Stage::new();
    let (shell, mut hosts) = below_one_shell(&stage, [SMALL; MANY]);
    let viewer = stage.start_stat(shell.pid());
    for host in &mut hosts {
        let mut witness = stage.witness(host.pid());
        witness.until_watched(1);
        host.say("turns 10");
        witness.ask(Action::Flush);
    }
    let stat = Summary(viewer.interrupt().json());
    let mut pids: Vec<u32> = hosts.iter().map(gtop_tests::host::Host::pid).collect();
    pids.sort_unstable();
    assert_eq!(stat.pids(), pids);
    for pid in pids {
        let records = &stat.of(pid)["records"];
        assert_balance(records);
        assert_eq!(count(&records["delivered"]), 10, "{pid}");
    }
    let total = &stat.0["total"];
    assert_eq!(
        (count(&total["processes"]), count(&total["shown"])),
        (MANY as u64, 10 * MANY as u64),
        "{total}"
    );
    let text = stage.gtop(&["stat", "--for", "50ms", "--attach", &shell.pid().to_string()]).good();
    assert!(text.contains(&format!("{MANY} processes")), "{text}");
}
