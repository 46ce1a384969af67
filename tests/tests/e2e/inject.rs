//! Putting the shim into processes that run without it: what becomes of them, and what is said where it cannot be.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use gtop_tests::build;
use gtop_tests::gtop::{Ran, Running};
use gtop_tests::pty::Pty;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_covered, count};
use gtop_tests::wait::wait_for;
use gtop_tests::waiters::Waiters;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Many small kernels, as fast as they can be made.
const FAST: &str = r#"
cupti = 130001
[[thread]]
every = "100us"
steps = [ { kernel = "k", ns = 1000, times = 8 }, { copy = "h2d", bytes = 64, ns = 500 } ]
"#;

/// What is said when the shim was put in.
const DONE: &str = "shim put in through thread";

/// Whether processes may be traced here; says so if not, and fails where it must be possible.
pub(crate) fn can_trace() -> bool {
    static REFUSED: OnceLock<Option<String>> = OnceLock::new();
    let refused = REFUSED.get_or_init(|| {
        let stage = Stage::new();
        let waiters = Waiters::start(&stage, &["read"]);
        let ran = inject(&stage, waiters.pid());
        let denied = ["ptrace_scope", "CAP_SYS_PTRACE", "system call filter"];
        denied.iter().any(|word| ran.err.contains(word)).then_some(ran.err)
    });
    let required = std::env::var("GTOP_REQUIRE").is_ok_and(|list| list.split(',').any(|one| one == "ptrace"));
    if let Some(why) = refused {
        assert!(!required, "GTOP_REQUIRE=ptrace: {why}");
        println!("skipped: {why}");
    }
    refused.is_none()
}

/// Whether somebody traces the thread of this status.
fn is_traced(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|by| by.trim() != "0"))
}

/// Why nothing can be seen of a process that only waits.
const NO_CUPTI: &[&str] = &["no libcupti.so.13 or .12 was found"];

fn inject(stage: &Stage, pid: u32) -> Ran {
    stage.gtop(&["stat", "--json", "--inject", "--for", "100ms", "--attach", &pid.to_string()])
}

#[test]
fn a_busy_application_is_watched_ten_times_and_never_knows() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let mut host = stage.host(FAST).real_time().without_shim().start();
    host.say("run");
    let before = host.threads();
    let pid = host.pid();
    for time in 0..10 {
        let ran = inject(&stage, pid);
        assert_eq!(ran.err.contains(DONE), time == 0, "it is there from then on: {ran:?}");
        let stat = Summary(ran.json());
        let process = stat.of(pid);
        assert_eq!(process["state"], "armed", "{process}");
        assert!(count(&process["records"]["shown"]) > 0, "{process}");
        assert_covered(&process["records"]);
        // Its own two: one for sockets, one for CUPTI.
        assert_eq!(host.threads(), before + 2);
    }
    let doctor = stage.gtop(&["doctor", "--attach", &pid.to_string()]);
    let injection = doctor.out.lines().find(|line| line.contains(" injection ")).unwrap();
    assert!(injection.starts_with("ok ") && injection.contains("the shim is loaded"), "{injection}");
    host.say("stop");
    let truth = host.truth();
    assert_eq!((truth.misuse.len(), &truth.crash), (0, &None), "{truth:?}");
    let ended = host.end("return");
    assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
    let left = std::fs::read_dir(stage.sockets()).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".sock")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn no_call_sees_that_it_was_broken_off() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let calls = [
        "read",
        "futex",
        "futex-timed",
        "epoll",
        "epoll-timed",
        "poll",
        "poll-timed",
        "select",
        "nanosleep",
        "busy",
    ];
    let waiters = Waiters::start(&stage, &calls);
    // Its first, one a call, and one that ends the call on a futex.
    let threads = calls.len() + 2;
    wait_for("all threads", || (waiters.threads() == threads).then_some(()));
    let ran = inject(&stage, waiters.pid());
    assert!(ran.err.contains("other threads stopped "), "{ran:?}");
    ran.unseen(NO_CUPTI);
    assert_eq!(waiters.threads(), threads + 2);
    waiters.end();
    // Each alone: there is no other thread to borrow.
    for call in calls.into_iter().filter(|call| !matches!(*call, "busy" | "futex-timed")) {
        let waiters = Waiters::start(&stage, &[call]);
        let ran = inject(&stage, waiters.pid());
        assert!(ran.err.contains(DONE), "{call}: {ran:?}");
        waiters.end();
    }
}

#[test]
fn a_process_that_never_waits_is_left_alone() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    nix::unistd::mkfifo(&stage.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut waiters = Waiters::start(&stage, &["busy", "loader"]);
    let pipe = std::fs::File::options().write(true).open(stage.path().join("pipe")).unwrap();
    waiters.expect("locked");
    let ran = inject(&stage, waiters.pid());
    ran.fails(3, &["none of its 3 threads came to wait", "it was left alone"]);
    drop(pipe);
    // The loader is free again.
    wait_for("that thread's end", || (waiters.threads() == 2).then_some(()));
    waiters.end();
}

#[test]
fn an_injector_that_is_killed_leaves_a_thread_that_finds_back() {
    if !can_trace() {
        return;
    }
    for call in ["read", "futex", "poll", "poll-timed", "nanosleep", "epoll-timed"] {
        let stage = Stage::new();
        nix::unistd::mkfifo(&stage.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        // One thread holds the loader's lock, so that the other waits for it in the call.
        let mut waiters = Waiters::start(&stage, &[call, "loader"]);
        let pipe = std::fs::File::options().write(true).open(stage.path().join("pipe")).unwrap();
        waiters.expect("locked");
        let pid = waiters.pid();
        let victim = stage.start_gtop(&["stat", "--inject", "--for", "100ms", "--attach", &pid.to_string()]);
        until_borrowed(pid);
        victim.signal(Signal::SIGKILL);
        assert_eq!(victim.finish().code(), None);
        drop(pipe);
        stage.socket(pid);
        let ran = inject(&stage, pid);
        assert!(!ran.err.contains(DONE), "{ran:?}");
        ran.unseen(NO_CUPTI);
        waiters.end();
    }
}

/// Waits until a thread was borrowed and waits for the loader; gives its id.
fn until_borrowed(pid: u32) -> i32 {
    wait_for("a borrowed thread that waits for the loader", || {
        let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        tasks.find_map(|task| {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let waits = read("syscall").starts_with(&format!("{} ", libc::SYS_futex));
            // Its signals wait: the call has begun.
            let borrowed = is_traced(&read("status")) && read("status").contains("SigBlk:\tfff") && waits;
            borrowed.then(|| task.file_name().to_str()?.parse().ok())?
        })
    })
}

#[test]
fn signals_that_come_meanwhile_are_not_lost() {
    if !can_trace() {
        return;
    }
    for signal in [Signal::SIGSTOP, Signal::SIGTRAP] {
        let stage = Stage::new();
        nix::unistd::mkfifo(&stage.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut waiters = Waiters::start(&stage, &["read", "loader"]);
        let pipe = std::fs::File::options().write(true).open(stage.path().join("pipe")).unwrap();
        waiters.expect("locked");
        let pid = waiters.pid();
        let asked = ["stat", "--json", "--inject", "--for", "100ms", "--attach", &pid.to_string()];
        let gtop = stage.start_gtop(&asked);
        let thread = until_borrowed(pid);
        waiters.tell(thread, signal);
        if signal == Signal::SIGSTOP {
            wait_for("the process to stop", || is_stopped(pid).then_some(()));
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT).unwrap();
            wait_for("the process to go on", || (!is_stopped(pid)).then_some(()));
        }
        drop(pipe);
        let ran = gtop.finish();
        if signal == Signal::SIGSTOP {
            assert!(ran.err.contains(DONE), "{ran:?}");
            ran.unseen(NO_CUPTI);
            waiters.end();
        } else {
            assert_eq!(waiters.ended().signal(), Some(signal as i32), "it ends by what was sent to it");
        }
    }
}

#[test]
fn one_that_becomes_another_program_meanwhile_is_told_as_what_it_is() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    nix::unistd::mkfifo(&stage.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut waiters = Waiters::start(&stage, &["read", "loader"]);
    let _pipe = std::fs::File::options().write(true).open(stage.path().join("pipe")).unwrap();
    waiters.expect("locked");
    let pid = waiters.pid();
    let gtop = stage.start_gtop(&["stat", "--inject", "--for", "100ms", "--attach", &pid.to_string()]);
    until_borrowed(pid);
    waiters.tell(pid.cast_signed(), Signal::SIGUSR2);
    gtop.finish().fails(3, &["it has not begun to use CUDA"]);
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "sleep\n");
}

/// Whether a process was stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains("State:\tT"))
}

#[test]
fn killed_at_any_moment_it_harms_nobody() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    for step in 0..12u64 {
        let waiters = Waiters::start(&stage, &["read", "poll-timed"]);
        let victim = stage.start_gtop(&["stat", "--inject", "--attach", &waiters.pid().to_string()]);
        let tries = || {
            let mut tasks = std::fs::read_dir(format!("/proc/{}/task", waiters.pid())).ok()?.flatten();
            tasks.find_map(|task| {
                is_traced(&std::fs::read_to_string(task.path().join("status")).ok()?).then_some(())
            })
        };
        // From its first touch on, a little later each time.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while tries().is_none() && std::time::Instant::now() < deadline {}
        for _ in 0..step * 200_000 {
            std::hint::spin_loop();
        }
        victim.signal(Signal::SIGKILL);
        victim.finish();
        inject(&stage, waiters.pid()).unseen(NO_CUPTI);
        waiters.end();
    }
}

#[test]
fn without_leave_nothing_is_done() {
    let stage = Stage::new();
    let host = stage.host("mixed").without_shim().start();
    let (pid, threads) = (host.pid().to_string(), host.threads());
    let words = ["was started without CUDA_INJECTION64_PATH", "Add --inject"];
    stage.gtop(&["stat", "--attach", &pid]).fails(3, &words);
    stage.gtop(&["--attach", &pid]).fails(3, &words);
    stage.ctl(host.pid(), &["arm"]).fails(3, &words);
    let forbidden = stage.gtop(&["stat", "--no-inject", "--attach", &pid]);
    forbidden.fails(3, &words[..1]);
    assert!(!forbidden.err.contains("Add --inject"), "{forbidden:?}");
    stage.gtop(&["stat", "--no-inject", "--inject", "--attach", &pid]).fails(2, &["cannot be used with"]);
    assert_eq!(host.threads(), threads);
}

#[test]
fn ctl_puts_it_in_as_well() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let host = stage.host("mixed").without_shim().start();
    let ran = stage.ctl(host.pid(), &["--inject", "arm"]);
    assert!(ran.err.contains(DONE), "{ran:?}");
    ran.good();
    let stat = stage.gtop(&["stat", "--json", "--attach", &host.pid().to_string()]);
    assert_eq!(Summary(stat.json())["state"], "armed");
}

#[test]
fn a_worker_below_a_parent_is_found_and_its_copies_are_not() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let mut host = stage.host(FAST).real_time().without_shim().under_a_shell().start();
    let parent = host.parent();
    let copy = |answer: &str| answer.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    let before = copy(&host.say("fork hold"));
    let first = inject(&stage, parent);
    assert!(first.err.contains(&format!("process {}: {DONE}", host.pid())), "{first:?}");
    assert_eq!(Summary(first.json()).pids(), [host.pid()]);
    // Forked from a process with the shim, which sleeps in the child until it is wanted there.
    let after = copy(&host.say("fork hold"));
    assert_eq!(Summary(inject(&stage, parent).json()).pids(), [host.pid()]);
    let asked = inject(&stage, after);
    assert!(asked.err.contains(&format!("process {after}: {DONE}")), "{asked:?}");
    asked.unseen(&["forked without exec", "the process this one was forked from"]);
    let mut both = [host.pid(), after];
    both.sort_unstable();
    assert_eq!(Summary(inject(&stage, parent).json()).pids(), both);
    for child in [before, after] {
        host.say(&format!("reap {child}"));
    }
}

/// The processes that have a socket on this stage.
fn sockets(stage: &Stage) -> usize {
    std::fs::read_dir(stage.sockets()).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".sock")).count()
    })
}

#[test]
fn a_worker_that_starts_later_is_treated_like_the_first() {
    if !can_trace() {
        return;
    }
    for command in [&["--inject", "--attach"][..], &["stat", "--inject", "--for", "10m", "--attach"]] {
        let stage = Stage::new();
        nix::unistd::mkfifo(&stage.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        // A server that starts one worker, and another when its pipe is closed.
        let two = |program: Command| {
            let mut shell = stage.command(Path::new("/bin/sh"));
            shell.args(["-c", "\"$0\" read & cat \"$GTOP_PIPE\"; exec \"$0\" read"]);
            shell.arg(program.get_program());
            shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))).process_group(0);
            shell
        };
        let mut server = Waiters::start_as(&stage, &["read"], two);
        let viewer = stage.start_gtop(&[command, &[server.pid().to_string().as_str()]].concat());
        wait_for("the first worker's shim", || (sockets(&stage) == 1).then_some(()));
        drop(std::fs::File::options().write(true).open(stage.path().join("pipe")).unwrap());
        server.expect("waiting");
        wait_for("the second worker's shim", || (sockets(&stage) == 2).then_some(()));
        let ran = viewer.interrupt();
        // Their CUPTI is missing, so that stat has nothing to tell.
        assert!(
            !ran.err.contains("panicked") && ran.code().is_some_and(|code| code == 0 || code == 3),
            "{ran:?}"
        );
        nix::sys::signal::killpg(Pid::from_raw(server.pid().cast_signed()), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_person_is_asked_first_and_may_say_no() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let host = stage.host("mixed").real_time().without_shim().start();
    let threads = host.threads();
    let pid = host.pid().to_string();
    let folder = stage.path().to_str().unwrap();
    let environment = [("XDG_RUNTIME_DIR", folder), ("XDG_CACHE_HOME", folder), ("TMPDIR", folder)];
    let view = || Pty::start(build::gtop().as_os_str(), &["--attach", pid.as_str()], &environment, 120, 36);
    let mut no = view();
    no.wait_for(&format!("Put the shim into process {pid}?"));
    no.wait_for("12 to 16 MiB");
    no.press("n");
    assert!(no.exit().success());
    no.wait_for("nothing was put in, so there is nothing to watch");
    assert_eq!(host.threads(), threads);
    let mut yes = view();
    yes.wait_for("put it in and watch");
    yes.press("y");
    yes.wait_for("ARMED");
    yes.press("q");
    assert!(yes.exit().success());
    assert_eq!(host.threads(), threads + 2);
}

#[test]
fn what_cannot_be_is_explained() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    let stat = |pid: u32| inject(&stage, pid);
    let mut plain = Command::new("sleep").arg("1000").spawn().unwrap();
    stat(plain.id()).fails(3, &["does not use a GPU"]);
    plain.kill().unwrap();
    plain.wait().unwrap();
    stat(2).fails(3, &["cannot be watched"]);
    stat(u32::MAX).fails(3, &["no such process"]);

    let waiters = Waiters::start(&stage, &["read"]);
    let tid = std::fs::read_dir(format!("/proc/{}/task", waiters.pid())).unwrap().flatten();
    let tid =
        tid.filter_map(|task| task.file_name().to_str()?.parse().ok()).find(|tid| *tid != waiters.pid());
    stat(tid.unwrap()).fails(3, &[&format!("is a thread of process {0}; use --attach {0}", waiters.pid())]);

    let pid = Pid::from_raw(waiters.pid().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    wait_for("a stop", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.contains("State:\tT").then_some(())
    });
    stat(waiters.pid()).fails(3, &["it is stopped", "kill -CONT"]);
    kill(pid, Signal::SIGCONT).unwrap();
    stat(waiters.pid()).unseen(NO_CUPTI);
    waiters.end();

    // Ended, and its parent does not ask.
    let mut zombie = Command::new("true").spawn().unwrap();
    wait_for("an end", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", zombie.id())).ok()?;
        status.contains("State:\tZ").then_some(())
    });
    stat(zombie.id()).fails(3, &["it has ended", &format!("parent {}", std::process::id())]);
    zombie.wait().unwrap();
}

#[test]
fn a_filter_that_is_in_the_way_is_seen_before_anything_is_done() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    for (argument, words) in [
        ("--deadly-sockets", "would end it at `socket`"),
        ("--no-sockets", "forbids `socket`, without which the shim cannot serve"),
    ] {
        let mut host = stage.host("mixed").without_shim().argument(argument).start();
        let threads = host.threads();
        inject(&stage, host.pid()).fails(3, &["cannot be put into it", words, "it was left alone"]);
        assert_eq!(host.threads(), threads);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", host.pid())).unwrap();
        assert!(!maps.contains("libgtop_shim.so"), "{maps}");
        host.say("turns 3");
        let ended = host.end("return");
        assert_eq!((ended.status.code(), ended.errors.as_str()), (Some(0), ""));
    }
}

#[test]
fn several_may_put_it_in_at_once() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    for _ in 0..3 {
        let waiters = Waiters::start(&stage, &["read", "poll"]);
        let pid = waiters.pid().to_string();
        let one = || stage.start_gtop(&["stat", "--json", "--inject", "--for", "50ms", "--attach", &pid]);
        for ran in [(); 4].map(|()| one()).map(Running::finish) {
            ran.unseen(NO_CUPTI);
        }
        // Its first, one a call, and the shim's two.
        assert_eq!(waiters.threads(), 5);
        waiters.end();
    }
}

#[test]
fn one_that_ends_meanwhile_has_ended_and_nothing_else() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    for step in 0..16u64 {
        let waiters = Waiters::start(&stage, &["read", "poll"]);
        let pid = Pid::from_raw(waiters.pid().cast_signed());
        let gtop = stage.start_gtop(&["stat", "--inject", "--for", "10s", "--attach", &pid.to_string()]);
        // At one moment after another, from its start on.
        for _ in 0..step * 400_000 {
            std::hint::spin_loop();
        }
        kill(pid, Signal::SIGKILL).unwrap();
        if step % 2 == 0 {
            drop(waiters);
        }
        let ran = gtop.finish();
        if ran.code() == Some(0) {
            continue;
        }
        assert_eq!(ran.code(), Some(3), "{ran:?}");
        let said = ran.err.lines().filter(|line| !line.contains(DONE)).collect::<Vec<_>>().join(" ");
        let truths = ["has ended", "no such process", "ended before anything was seen"];
        assert!(truths.iter().any(|truth| said.contains(truth)), "{step}: {ran:?}");
    }
}

#[test]
fn a_process_in_a_container_gets_a_copy_it_can_see_and_none_is_left() {
    if !can_trace() {
        return;
    }
    let stage = Stage::new();
    // The same programs, and another /var/tmp, which is where its temporary files go.
    let contained = |program: Command| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"]);
        command.arg("mount -t tmpfs none /var/tmp && \"$@\"; exit $?").arg("sh").arg(program.get_program());
        command.args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TMPDIR", "/var/tmp").env("XDG_RUNTIME_DIR", "/var/tmp").process_group(0);
        command
    };
    let probe = contained(Command::new("true")).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this machine does not let us make namespaces");
        return;
    }
    let shell = Waiters::start_as(&stage, &["read", "poll"], contained);
    let ran = inject(&stage, shell.pid());
    assert!(ran.err.contains(DONE), "{ran:?}");
    let stat = Summary(ran.unseen(NO_CUPTI));
    let pid = stat.pids()[0];
    // By its number inside, which is told where it is taken for one of ours.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let inner =
        status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap().split_whitespace().last();
    let (ns, inner) = (pid.to_string(), inner.unwrap());
    let by_inner = stage.gtop(&["stat", "--attach", inner, "--ns", &ns, "--for", "1s", "--json"]);
    assert_eq!(Summary(by_inner.unseen(NO_CUPTI)).pids(), [pid]);
    let nobody = stage.gtop(&["stat", "--attach", "4194300", "--ns", &ns, "--for", "1s"]);
    nobody.fails(3, &["no process has the pid 4194300"]);
    let inside = format!("/proc/{pid}/root/var/tmp");
    let left: Vec<_> = std::fs::read_dir(&inside).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["gtop"], "the folder of its socket");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(
        maps.lines().any(|line| line.contains("/var/tmp/") && line.contains("libgtop_shim.so")),
        "{maps}"
    );
    assert!(!Path::new("/var/tmp/gtop").exists(), "nothing went into our own");
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
}

/// An `ssh` that reaches this machine: it runs the script it is given, and forwards by a link.
const SSH: &str = r#"#!/bin/sh
set -e
echo "$*" >>"${0%/*}/ssh.log"
case "$*" in
*" -L "*)
    while [ "$1" != -L ]; do shift; done
    ln -s "${2#*:}" "${2%%:*}" ;;
*" sh") exec sh ;;
esac
"#;

#[test]
fn a_process_of_another_machine_is_watched_through_ssh() {
    let stage = Stage::new();
    let program = stage.path().join("ssh");
    std::fs::write(&program, SSH).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", stage.path().display(), std::env::var("PATH").unwrap());
    let view = |pid: u32| {
        let mut command = stage.command(&build::gtop());
        command.args(["--host", "ada@far", "--attach", &pid.to_string()]).env("PATH", &path);
        Running::start(command)
    };
    let mut host = stage.host(FAST).real_time().start();
    host.say("run");
    let viewer = view(host.pid());
    let mut witness = stage.witness(host.pid());
    witness.until_watched(1);
    witness.until("records", |witness| witness.loss.walked > 1000);
    let ran = viewer.interrupt();
    assert_eq!((ran.code(), ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let log = std::fs::read_to_string(stage.path().join("ssh.log")).unwrap();
    assert!(log.lines().all(|line| line.contains("-- ada@far")), "{log}");
    assert!(log.lines().last().is_some_and(|line| line.contains("-O exit")), "{log}");

    let plain = stage.host("mixed").without_shim().start();
    view(plain.pid()).finish().fails(3, &["has gtop's shim", "--inject"]);
    view(u32::MAX).finish().fails(3, &["there is no process"]);
    stage.gtop(&["--host=-oProxyCommand=x", "--attach", "1"]).fails(3, &["is no host"]);
}
