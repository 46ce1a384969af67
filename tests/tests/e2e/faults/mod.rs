//! Whatever goes wrong, the host does what it does without gtop. The faults are tables, which the tests print:
//! `cargo test -p gtop-tests --test e2e faults -- --nocapture | grep '^|'`.

mod cupti;
mod ends;
mod machine;
mod memory;
mod seized;
mod viewers;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gtop_protocol::control::Action;
use gtop_protocol::message::{Outcome, Reason, StateCode};
use gtop_sim::Kind;
use gtop_tests::host::{Ended, Host, Setup};
use gtop_tests::stage::Stage;
use gtop_tests::summary::Summary;
use gtop_tests::wait::wait_for;
use gtop_tests::witness::Witness;

/// Threads and descriptors of a shim that is watched: I/O and control; the socket, the alarm clock of the I/O thread
/// and the log.
const THREADS: usize = 2;
const DESCRIPTORS: usize = 3;

/// A fault, and what is to be seen.
struct Case<'a> {
    name: String,
    run: Box<dyn Fn(&Stage) -> String + Send + Sync + 'a>,
}

/// A case; what it gives is what the user saw, and it panics if the host noticed anything.
fn case<'a>(name: impl Into<String>, run: impl Fn(&Stage) -> String + Send + Sync + 'a) -> Case<'a> {
    Case { name: name.into(), run: Box::new(run) }
}

/// Runs the cases a few at a time, each worker on a stage of its own, and prints the table.
fn table(cases: &[Case<'_>]) {
    let next = AtomicUsize::new(0);
    let rows: Mutex<BTreeMap<usize, Result<String, String>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stage = Stage::new();
                while let Some((at, case)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, cases.get(at)?)))
                {
                    let seen = catch_unwind(AssertUnwindSafe(|| (case.run)(&stage)));
                    let seen = seen.map_err(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                            .unwrap_or_default()
                    });
                    rows.lock().unwrap().insert(at, seen);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap();
    println!("| fault | the host | what the user saw |\n|---|---|---|");
    for (at, row) in &rows {
        let name = &cases[*at].name;
        match row {
            Ok(user) => println!("| {name} | as without gtop | {user} |"),
            Err(why) => println!("| {name} | **harmed** | {} |", why.replace('\n', " ")),
        }
    }
    let harmed: Vec<&str> =
        rows.iter().filter(|(_, row)| row.is_err()).map(|(at, _)| cases[*at].name.as_str()).collect();
    assert!(harmed.is_empty(), "{harmed:?}");
}

/// How a host ended, to be compared.
fn end(ended: &Ended) -> (Option<i32>, Option<i32>, &[String], &str) {
    (ended.status.code(), ended.status.signal(), &ended.lines, &ended.errors)
}

/// Turns a host does in a trial.
const TURNS: u32 = 60;

/// Work of every kind, for a CUPTI of this version and with more lines.
fn work(version: u32, more: &str) -> String {
    format!(
        r#"
cupti = {version}
[[graph]]
name = "step"
nodes = [ {{ copy = "d2d", bytes = 64, ns = 500 }}, {{ kernel = "graph_kernel", ns = 500, times = 4 }} ]
[[thread]]
every = "1ms"
steps = [ {{ kernel = "eager_kernel", ns = 1000, times = 2 }}, {{ launch = "step" }}, {{ memset = 64, ns = 300 }} ]
{more}
"#
    )
}

/// What a host does without gtop.
struct Alone {
    executed: BTreeMap<Kind, u64>,
    threads: usize,
    descriptors: usize,
    ended: Ended,
}

/// A host of this kind without gtop.
fn alone(setup: Setup<'_>) -> Alone {
    let mut host = setup.without_shim().start();
    host.say(&format!("turns {TURNS}"));
    let executed = host.truth().executed;
    let (threads, descriptors) = (host.threads(), host.descriptors());
    Alone { executed, threads, descriptors, ended: host.end("return") }
}

/// The same work by a host that gtop is in; `look` is what a user does meanwhile, and gives what is to be told of it. The
/// host must do the same and end the same as alone, and leave nothing behind.
fn trial(stage: &Stage, alone: &Alone, setup: Setup<'_>, look: impl FnOnce(&mut Host) -> String) -> String {
    let mut host = setup.start();
    let pid = host.pid();
    host.say("turns 10");
    let seen = look(&mut host);
    // One memory set a turn.
    let done = host.truth().executed.get(&Kind::Memset).copied().unwrap_or(0);
    host.say(&format!("turns {}", u64::from(TURNS).saturating_sub(done)));
    let truth = host.truth();
    assert_eq!(truth.executed, alone.executed, "another amount of work");
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
    wait_for("no more threads and descriptors than the shim's own", || {
        let most = (alone.threads + THREADS, alone.descriptors + DESCRIPTORS);
        (host.threads() <= most.0 && host.descriptors() <= most.1).then_some(())
    });
    let log = host.log();
    let ended = host.end("return");
    assert_eq!(end(&ended), end(&alone.ended), "it ended in another way\n{log}");
    assert_eq!(sockets_of(stage, pid), 0, "its socket is left");
    seen
}

/// The same host without gtop and with it.
fn both<'s>(
    stage: &'s Stage,
    setup: impl Fn() -> Setup<'s>,
    look: impl FnOnce(&mut Host) -> String,
) -> String {
    trial(stage, &alone(setup()), setup(), look)
}

/// Sockets of this process that lie about.
fn sockets_of(stage: &Stage, pid: u32) -> usize {
    let folders = [stage.sockets(), stage.path().join(format!("gtop-{}", nix::unistd::geteuid()))];
    let of = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&format!("{pid}-"));
    folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().filter(of).count()
}

/// Watches while the host works, rests, and watches again; gives what was seen.
fn watch(stage: &Stage, host: &mut Host) -> String {
    let before = watch_once(stage, host);
    if before.starts_with("armed") {
        let mut witness = stage.witness(host.pid());
        witness.until("rest", |witness| witness.watchers == 0 && witness.state != Some(StateCode::Armed));
    }
    let after = watch_once(stage, host);
    if before == after { after } else { format!("{before}; again: {after}") }
}

fn watch_once(stage: &Stage, host: &mut Host) -> String {
    let mut witness = stage.witness(host.pid());
    let (outcome, text) = witness.ask(Action::Watch);
    host.say("turns 20");
    if outcome == Outcome::Done {
        witness.ask(Action::Flush);
        witness.until("a balance", |witness| witness.losses > 0 && witness.balances());
    }
    told(&witness, outcome, &text)
}

/// What `gtop stat` says of it: the state, or why there is none.
fn stat(stage: &Stage, host: &Host) -> String {
    let pid = host.pid().to_string();
    let ran = stage.gtop(&["stat", "--no-inject", "--json", "--for", "50ms", "--attach", &pid]);
    if ran.code() != Some(0) {
        ran.fails(3, &[]);
        return ran
            .err
            .trim_end()
            .replace(&pid, "PID")
            .replace(stage.path().to_str().unwrap_or_default(), "…");
    }
    let summary = Summary(ran.json());
    let word = |key: &str| summary[key].as_str().unwrap_or_default();
    match (word("state"), word("reason")) {
        (now, "") => now.to_owned(),
        (now, reason) => format!("{now}: {reason}"),
    }
}

/// The state in words.
fn told(witness: &Witness, outcome: Outcome, text: &str) -> String {
    if outcome != Outcome::Done {
        return text.to_owned();
    }
    let mut told = witness.state.map_or("?", StateCode::name).to_owned();
    if let Some(reason) = witness.reason.and_then(Reason::text) {
        told = format!("{told}: {reason}");
    }
    let loss = &witness.loss;
    for (count, what) in [
        (loss.cupti_dropped, "dropped by CUPTI"),
        (loss.queue_full, "lost for lack of frames"),
        (loss.unknown_bytes, "bytes that could not be read"),
        (loss.dropped, "lost by this viewer"),
    ] {
        if count > 0 {
            told = format!("{told}, {count} {what}");
        }
    }
    told
}

/// Watches a shim that may have no socket or close its connections; gives what was seen.
fn watch_if_there(stage: &Stage, host: &mut Host, threads: usize) -> String {
    let there = wait_for("a socket, or no thread to open one", || {
        let socket = sockets_of(stage, host.pid()) > 0;
        (socket || host.threads() == threads).then_some(socket)
    });
    if !there {
        return stat(stage, host);
    }
    let mut witness = stage.witness(host.pid());
    let Some((outcome, text)) = witness.try_ask(Action::Watch) else {
        return "gtop: its shim hung up".into();
    };
    host.say("turns 20");
    match witness.try_ask(Action::Flush) {
        Some(_) => told(&witness, outcome, &text),
        None => "gtop: its shim hung up".into(),
    }
}
