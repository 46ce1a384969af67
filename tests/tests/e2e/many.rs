//! A family as large as they come: eight ranks on each of 26 GPUs, below one parent.

use gtop_protocol::control::Action;
use gtop_tests::host::{Host, below_one_shell};
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};

/// One kernel a turn.
const SMALL: &str = "cupti = 130500\n[[thread]]\nsteps = [ { kernel = \"k\", ns = 1000 } ]\n";
const MANY: usize = 208;

/// Each does ten turns once it is watched.
fn ten_turns(stage: &Stage, hosts: &mut [Host]) {
    for host in hosts {
        let mut witness = stage.witness(host.pid());
        witness.until_watched(1);
        host.say("turns 10");
        witness.ask(Action::Flush);
    }
}

#[test]
fn two_hundred_and_eight_processes_are_a_row_each_and_one_for_all() {
    let stage = Stage::new();
    let (shell, mut hosts) = below_one_shell(&stage, [SMALL; MANY]);
    let viewer = stage.start_stat(shell.pid());
    ten_turns(&stage, &mut hosts);
    let stat = Summary(viewer.interrupt().json());
    let mut pids: Vec<u32> = hosts.iter().map(Host::pid).collect();
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

#[test]
fn workers_that_were_forked_and_spawned_are_a_row_each_and_new_ones_join() {
    let stage = Stage::new();
    let (shell, mut hosts) = below_one_shell(&stage, [SMALL; 3]);
    let later = stage.path().join("later");
    let fork = |host: &mut Host, when: &str| -> u32 {
        host.say(&format!("fork work{when}")).split(' ').nth(1).unwrap().parse().unwrap()
    };
    let late = fork(&mut hosts[1], &format!(" {}", later.display()));
    let mut forked = vec![fork(&mut hosts[0], ""), fork(&mut hosts[0], "")];
    for pid in &forked {
        stage.socket(*pid);
    }
    let viewer = stage.start_stat(shell.pid());
    ten_turns(&stage, &mut hosts);
    // One that comes to use CUDA while the others are watched.
    std::fs::write(&later, b"").unwrap();
    forked.push(late);
    for pid in &forked {
        let mut witness = stage.witness(*pid);
        witness.until_watched(1);
        witness.until("records of its own", |witness| witness.loss.walked >= 10);
    }
    let stat = Summary(viewer.interrupt().json());
    let mut pids: Vec<u32> = hosts.iter().map(Host::pid).chain(forked.clone()).collect();
    pids.sort_unstable();
    assert_eq!(stat.pids(), pids);
    let mut sum = 0;
    for pid in pids {
        let row = stat.of(pid);
        assert_balance(&row["records"]);
        let shown = count(&row["records"]["shown"]);
        assert!(if forked.contains(&pid) { shown > 0 } else { shown == 10 }, "{pid}: {row}");
        sum += shown;
    }
    let total = &stat.0["total"];
    assert_eq!((count(&total["processes"]), count(&total["shown"])), (6, sum), "{total}");
    for (host, children) in [(0, &forked[..2]), (1, &forked[2..])] {
        for child in children {
            hosts[host].say(&format!("reap {child}"));
        }
    }
}
