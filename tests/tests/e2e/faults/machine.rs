//! A machine that has no descriptors, sockets, folders, stacks or memory to give, and signals that come all the time.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use gtop_protocol::control::Action;
use gtop_protocol::message::StateCode;
use gtop_tests::host::{Host, Setup};
use gtop_tests::stage::Stage;
use gtop_tests::wait::wait_for;

use super::{Case, TURNS, both, case, sockets_of, stat, table, watch, work};

/// A host made in some way, asked with `gtop stat` how it is.
fn asked<'a>(
    name: impl Into<String>,
    make: impl for<'s> Fn(&'s Stage, Setup<'s>) -> Setup<'s> + Send + Sync + 'a,
) -> Case<'a> {
    case(name, move |stage| {
        both(stage, || make(stage, stage.host(&work(130_001, ""))), |host| stat(stage, host))
    })
}

/// The same, but watched for a while.
fn watched<'a>(
    name: impl Into<String>,
    make: impl for<'s> Fn(&'s Stage, Setup<'s>) -> Setup<'s> + Send + Sync + 'a,
) -> Case<'a> {
    case(name, move |stage| {
        both(stage, || make(stage, stage.host(&work(130_001, ""))), |host| watch(stage, host))
    })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_machine_that_has_nothing_to_give() {
    let mut cases = Vec::new();
    for free in 0..=6 {
        cases.push(asked(format!("{free} descriptors left to open"), move |_, setup| {
            setup.argument("--descriptors").argument(&free.to_string())
        }));
    }
    cases.push(asked("seccomp forbids `socket`", |_, setup| setup.argument("--no-sockets")));
    cases.push(case("seccomp ends it at `accept4`, early start, nobody connects", |stage| {
        both(
            stage,
            || stage.host(&work(130_001, "")).argument("--deadly-accept").early(),
            |host| {
                wait_for("an early start", || host.log().contains("armed").then_some(()));
                host.say("turns 20");
                "armed, and let nobody in".into()
            },
        )
    }));
    cases.push(asked("the socket's folder is a file", |stage, setup| {
        let file = stage.path().join("file");
        std::fs::write(&file, b"").unwrap();
        setup.variable("XDG_RUNTIME_DIR", text(&file))
    }));
    cases.push(asked("the socket's folder is a link to another's", |stage, setup| {
        let folder = stage.path().join("linked");
        std::fs::create_dir_all(&folder).unwrap();
        let _ = symlink(stage.path(), folder.join("gtop"));
        setup.variable("XDG_RUNTIME_DIR", text(&folder))
    }));
    cases.push(asked("the path of the socket is too long", |stage, setup| {
        let folder = stage.path().join("x".repeat(150));
        std::fs::create_dir_all(&folder).unwrap();
        setup.variable("XDG_RUNTIME_DIR", text(&folder))
    }));
    cases.push(watched("the log's disk is full", |_, setup| setup.variable("GTOP_LOG", "/dev/full")));
    cases.push(watched("the log is a folder", |_, setup| setup.variable("GTOP_LOG", "/")));
    cases.push(watched("no file may be written, early start (SIGXFSZ)", |stage, setup| {
        setup.prelude("ulimit -f 0").variable("GTOP_LOG", text(&stage.path().join("long"))).early()
    }));
    cases.push(case("`cuInit` on a thread above all others (SCHED_FIFO)", urgent));
    for kib in [32, 64] {
        cases.push(watched(format!("`cuInit` on a stack of {kib} KiB"), move |_, setup| {
            setup.argument("--stack").argument(&kib.to_string())
        }));
    }
    cases.push(watched("`cuInit` on a stack of 64 KiB, early start", |_, setup| {
        setup.argument("--stack").argument("64").early()
    }));
    cases.push(watched("threads of the application and of CUPTI with stacks of 64 KiB", |_, setup| {
        setup.variable("RUST_MIN_STACK", "65536")
    }));
    cases.push(case("an alarm every millisecond breaks system calls off", |stage| {
        let setup = || stage.host(&work(130_001, "")).argument("--alarms");
        both(stage, setup, |host| {
            let seen = watch(stage, host);
            let alarms = host.say("alarms");
            let (all, stray) = alarms.split_once(' ').unwrap();
            assert!(
                all != "0" && stray == "0",
                "{alarms}: threads of the shim take none of the host's signals"
            );
            seen
        })
    }));
    cases.push(case("the socket's folder is full (ENOSPC)", full));
    cases.push(case("256 threads launch at once", crowd));
    table(&cases);
}

/// A host whose runtime folder is a file system without room for one more file.
fn full(stage: &Stage) -> String {
    let unshare = ["--user", "--map-root-user", "--mount"];
    let probe = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return "skipped: this machine does not let us make namespaces".into();
    }
    let folder = stage.path().join("full");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = text(&folder);
    // Its root and nothing else has a place there.
    let mount = format!("mount -t tmpfs -o nr_inodes=1 none {folder} && exec \"$@\"");
    let prelude = format!("set -- unshare {} sh -c '{mount}' sh \"$@\"", unshare.join(" "));
    let setup = || stage.host(&work(130_001, "")).variable("XDG_RUNTIME_DIR", folder).prelude(&prelude);
    both(stage, setup, |host| {
        let seen = stat(stage, host);
        assert!(!host.log().contains(&format!("listening at {folder}")), "{}", host.log());
        seen
    })
}

/// A host that is scheduled before all others: the shim's threads are not.
fn urgent(stage: &Stage) -> String {
    let chrt = ["chrt", "--fifo", "1"];
    let probe = Command::new(chrt[0]).args(&chrt[1..]).arg("true").stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return "skipped: this machine does not let us be urgent".into();
    }
    let prelude = format!("set -- {} \"$@\"", chrt.join(" "));
    let setup = || stage.host(&work(130_001, "")).prelude(&prelude);
    both(stage, setup, |host| {
        let seen = watch(stage, host);
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap();
        let mut urgent: Vec<(String, bool)> = tasks
            .map(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                let (name, fields) = stat.split_once('(').unwrap().1.split_once(')').unwrap();
                // Field 41, the policy; the state, behind the name, is field 3.
                (name.to_owned(), fields.split_whitespace().nth(38) != Some("0"))
            })
            .filter(|(name, _)| matches!(name.as_str(), "gtop-control" | "gtop-io"))
            .collect();
        urgent.sort();
        assert_eq!(urgent, [("gtop-control".to_owned(), false), ("gtop-io".to_owned(), false)]);
        seen
    })
}

/// More threads than there are buffers for, all at once and by the clock.
fn crowd(stage: &Stage) -> String {
    let mut scenario = "cupti = 130001\n".to_owned();
    for at in 0..256 {
        let steps = format!("[ {{ kernel = \"k{}\", ns = 1000, times = 4 }} ]", at % 8);
        writeln!(scenario, "[[thread]]\nstream = {}\nevery = \"5ms\"\nsteps = {steps}", at + 7).unwrap();
    }
    let mut host: Host = stage.host(&scenario).real_time().start();
    let pid = host.pid();
    let mut witness = stage.witness(pid).watching();
    host.say("run");
    witness.until("records of all", |witness| witness.delivered() > 100_000);
    host.say("stop");
    witness.ask(Action::Flush);
    let truth = host.truth();
    witness.until_delivered(truth.delivered.values().sum());
    witness.until("CUPTI's own losses", |witness| {
        witness.loss.cupti_dropped == truth.dropped.values().sum::<u64>()
    });
    assert_eq!((truth.misuse.len(), &truth.crash, witness.state), (0, &None, Some(StateCode::Armed)));
    let told = format!(
        "armed, {} records shown of {} delivered, {} dropped by CUPTI, accounts exact",
        witness.received(),
        witness.delivered(),
        witness.loss.cupti_dropped
    );
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
    assert_eq!(sockets_of(stage, pid), 0);
    told
}

/// A row of the table is only worth something if the trial notices what it is to notice.
#[test]
fn a_trial_sees_a_host_that_ends_in_another_way() {
    let stage = Stage::new();
    let harmed = std::panic::catch_unwind(|| {
        both(
            &stage,
            || stage.host(&work(130_001, "")),
            |host| {
                host.say(&format!("turns {}", 3 * TURNS));
                String::new()
            },
        )
    });
    assert!(harmed.is_err(), "too much work goes unnoticed");
}
