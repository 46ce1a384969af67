//! Processes that are named before they use CUDA, after they have ended, or with texts that command a terminal.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gtop_tests::build;
use gtop_tests::gtop::Running;
use gtop_tests::host::Setup;
use gtop_tests::pty::Pty;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, count};
use gtop_tests::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::inject::can_trace;

/// A process that is killed with the test.
struct Idler(Child);

impl Idler {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the viewer; gives the first line that it says of itself, and those that follow.
fn start(stage: &Stage, arguments: &[&str]) -> (Child, String, impl Iterator<Item = String> + use<>) {
    let mut gtop = stage.command(&build::gtop());
    gtop.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = gtop.spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let line = said.next().expect("a line");
    (child, line, said)
}

/// The state that the kernel shows of a process.
fn is_in(pid: u32, state: char) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| status.contains(&format!("State:\t{state}")))
}

/// A shell that starts its worker, an application, when it is told to.
struct Server {
    shell: Idler,
    pipe: PathBuf,
}

impl Server {
    fn start(stage: &Stage, worker: Setup<'_>) -> Self {
        let pipe = stage.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let host = worker.real_time().under_a_shell().command();
        // What the variables are, the shell has them, too.
        let mut shell = stage.command(Path::new("/bin/sh"));
        shell.args(["-c", &format!("read line <'{}'; \"$@\"; exit $?", pipe.display()), "sh"]);
        shell.arg(build::host()).args(host.get_args().skip(4));
        shell.envs(host.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Self { shell: Idler::start(&mut shell), pipe }
    }

    /// Has the worker started, which works from then on; gives its process id.
    fn go(&mut self) -> u32 {
        std::fs::write(&self.pipe, "go\n").unwrap();
        std::io::Write::write_all(self.shell.0.stdin.as_mut().unwrap(), b"run\n").unwrap();
        let children = format!("/proc/{0}/task/{0}/children", self.shell.0.id());
        wait_for("the worker", || {
            std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        })
    }
}

/// The screen of what watches this process.
fn screen(stage: &Stage, pid: &str) -> Pty {
    let folder = stage.path().to_str().unwrap();
    let environment = [("XDG_RUNTIME_DIR", folder), ("XDG_CACHE_HOME", folder), ("XDG_CONFIG_HOME", folder)];
    Pty::start(build::gtop().as_os_str(), &["--attach", pid], &environment, 120, 36)
}

#[test]
fn the_question_comes_when_a_worker_without_the_shim_does() {
    if !can_trace() {
        return;
    }
    for key in ["n", "y"] {
        let stage = Stage::new();
        let mut server = Server::start(&stage, stage.host("mixed").without_shim());
        let mut screen = screen(&stage, &server.shell.pid());
        screen.wait_for("waiting until sh");
        screen.press("?");
        screen.wait_for("esc closes");
        screen.press("q");
        screen.wait("the help to go, and what is waited for to stay", |screen| {
            let text = screen.contents();
            !text.contains("esc closes") && text.contains("waiting until sh")
        });
        let worker = server.go();
        screen.wait_for(&format!("Put the shim into process {worker}?"));
        screen.press(key);
        if key == "n" {
            screen.wait_for("nothing was put in");
            screen.wait_for("was started without");
        } else {
            screen.wait_for("ARMED");
        }
        assert!(!screen.text().contains("waiting until sh"), "{}", screen.text());
        screen.press("q");
        assert!(screen.exit().success());
        let maps = std::fs::read_to_string(format!("/proc/{worker}/maps")).unwrap();
        assert_eq!(maps.contains("libgtop_shim.so"), key == "y");
    }
}

#[test]
fn without_a_terminal_what_to_do_is_said_when_a_worker_without_the_shim_comes() {
    let stage = Stage::new();
    let mut server = Server::start(&stage, stage.host("mixed").without_shim());
    let pid = server.shell.pid();
    let (mut stat, first, mut said) = start(&stage, &["stat", "--for", "10m", "--attach", &pid]);
    assert!(first.contains("waiting until sh"), "{first}");
    let (mut lines, first, _said) = start(&stage, &["--attach", &pid]);
    assert!(first.contains("waiting until sh"), "{first}");
    let mut out = BufReader::new(lines.stdout.take().unwrap()).lines().map_while(Result::ok);
    let worker = server.go();
    for line in [said.next().unwrap(), out.next().unwrap()] {
        assert!(line.contains(&worker.to_string()) && line.contains("was started without"), "{line}");
        assert!(line.contains("put it in as it runs with --inject"), "{line}");
    }
    for child in [&mut stat, &mut lines] {
        assert!(child.try_wait().unwrap().is_none(), "others may come");
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    }
    assert_eq!((stat.wait().unwrap().code(), lines.wait().unwrap().code()), (Some(3), Some(0)));
}

#[test]
fn a_server_that_starts_its_workers_later_is_waited_for() {
    let stage = Stage::new();
    let mut server = Server::start(&stage, stage.host("mixed"));
    let (mut stat, line, _said) =
        start(&stage, &["stat", "--json", "--for", "10m", "--attach", &server.shell.pid()]);
    assert!(line.contains("waiting until sh") && line.contains("a process below it uses CUDA"), "{line}");
    assert!(!line.contains("--inject"), "it has the variable: {line}");

    let worker = server.go();
    let mut witness = stage.witness(worker);
    witness.until_watched(1);
    witness.until("records", |witness| witness.loss.walked > 100);
    kill(Pid::from_raw(stat.id().cast_signed()), Signal::SIGINT).unwrap();
    let mut text = String::new();
    stat.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(stat.wait().unwrap().success());
    let stat = Summary(serde_json::from_str(&text).unwrap());
    assert_eq!(stat.pids(), [worker]);
    assert!(count(&stat.of(worker)["records"]["shown"]) > 0, "{text}");
}

#[test]
fn what_never_uses_cuda_is_waited_for_and_then_told() {
    let stage = Stage::new();
    let mut idler = Idler::start(&mut Command::new("cat"));
    let pid = idler.pid();
    let ran = stage.gtop(&["stat", "--for", "50ms", "--attach", &pid]);
    ran.fails(3, &["waiting until cat", "takes --inject", "it does not use a GPU"]);
    let file = stage.path().join("none.gtop");
    let record = ["record", "-o", file.to_str().unwrap(), "--for", "50ms", "--attach", &pid];
    stage.gtop(&record).fails(3, &["it does not use a GPU"]);
    assert!(!file.exists());
    stage.ctl(idler.0.id(), &["arm"]).fails(3, &["it does not use a GPU"]);

    let mut screen = screen(&stage, &pid);
    screen.wait_for("waiting until cat");
    let (mut lines, line, said) = start(&stage, &["--attach", &pid]);
    assert!(line.contains("waiting until cat"), "{line}");
    drop(idler.0.stdin.take());
    idler.0.wait().unwrap();
    assert_eq!(lines.wait().unwrap().code(), Some(3));
    let said: Vec<String> = said.collect();
    assert!(said.iter().any(|line| line.contains("ended before anything was seen")), "{said:?}");
    screen.wait_for("ended before it used CUDA");
    screen.press("q");
    assert_eq!(screen.exit().exit_code(), 3);
}

#[test]
fn a_process_that_was_killed_has_ended_before_it_is_reaped() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let watch = stage.watch(host.pid());
    kill(Pid::from_raw(host.pid().cast_signed()), Signal::SIGKILL).unwrap();
    wait_for("its end", || is_in(host.pid(), 'Z').then_some(()));
    // By itself, and nobody has asked what became of the process.
    watch.stat.finish().fails(3, &["ended before anything was seen of it"]);
    assert!(is_in(host.pid(), 'Z'));
    let sockets = stage.sockets().read_dir().unwrap().flatten().map(|entry| entry.file_name());
    let sockets: Vec<_> = sockets.filter(|name| name.to_string_lossy().ends_with(".sock")).collect();
    assert!(sockets.is_empty(), "the viewer has removed its socket: {sockets:?}");
    stage.gtop(&["stat", "--attach", &host.pid().to_string()]).fails(3, &["it has ended"]);
}

#[test]
fn who_only_looks_puts_nothing_in_and_asks_for_nothing() {
    let stage = Stage::new();
    let host = stage.host("mixed").without_shim().start();
    let (pid, threads) = (host.pid().to_string(), host.threads());
    let only = "look only";
    stage.gtop(&["--read-only", "--inject", "--attach", &pid]).fails(3, &["was started without", only]);
    let file = stage.path().join("only.toml");
    std::fs::write(&file, "read_only = true\n").unwrap();
    let config = ["--config", file.to_str().unwrap(), "--attach", &pid];
    stage.gtop(&[&config[..], &["--inject"]].concat()).fails(3, &[only]);
    stage.gtop(&[&config[..], &["--budget", "1"]].concat()).fails(2, &["read_only = true"]);
    std::fs::create_dir_all(stage.path().join("gtop")).unwrap();
    std::fs::copy(&file, stage.path().join("gtop/gtop.toml")).unwrap();
    stage.gtop(&["stat", "--inject", "--attach", &pid]).fails(3, &[only]);
    assert_eq!(host.threads(), threads);
}

#[test]
fn wrong_usage_has_the_code_of_gtops_own_failures() {
    let stage = Stage::new();
    stage.gtop(&["run"]).fails(125, &["<CMD>"]);
    stage.gtop(&["run", "--kinds", "nonsense", "--", "true"]).fails(125, &["nonsense"]);
    stage.gtop(&["run", "--help"]).good();
    stage.gtop(&["stat", "--nonsense"]).fails(2, &["--nonsense"]);
    stage
        .gtop(&["--host", "ada@far", "--inject", "--attach", "7"])
        .fails(2, &["ssh ada@far gtop stat --inject"]);
}

#[test]
fn what_others_call_their_files_commands_no_terminal() {
    let stage = Stage::new();
    let evil = |text: &str| OsString::from_vec(text.replace('@', "\x1b").into_bytes());
    let named = evil(&format!("{}/@[31mred@]0;title\u{7}.so", stage.path().display()));
    let folder = evil(&format!("{}/@[2J\u{9b}1m", stage.path().display()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut cases: Vec<(Idler, &str)> = Vec::new();
    let mut idle = |library: Option<&OsString>, runtime: Option<&OsString>, says| {
        let mut command = stage.command(std::path::Path::new("cat"));
        command.envs(library.map(|library| ("CUDA_INJECTION64_PATH", library)));
        command.envs(runtime.map(|folder| ("XDG_RUNTIME_DIR", folder)));
        if says == "no socket" {
            // Mapped as CUDA would map it, but nobody called its entry point.
            command.env("LD_PRELOAD", stage.shim());
        }
        cases.push((Idler::start(&mut command), says));
    };
    idle(Some(&named), None, "no such file");
    let shim = stage.shim().as_os_str().to_owned();
    idle(Some(&shim), Some(&folder), "no socket");
    std::fs::copy(stage.shim(), stage.path().join("other.so")).unwrap();
    for (idler, says) in &cases {
        let pid = idler.pid();
        wait_for("its environment", || {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            (!environment.is_empty() && is_in(idler.0.id(), 'S')).then_some(())
        });
        let stat = stage.gtop(&["stat", "--for", "50ms", "--attach", &pid]);
        stat.fails(3, &[says]);
        let doctor = stage.gtop(&["doctor", "--attach", &pid]);
        assert!(doctor.out.contains("\u{241b}["), "it is named: {doctor:?}");
        for text in [&stat.err, &stat.out, &doctor.err, &doctor.out] {
            let bad = text.chars().find(|one| one.is_control() && *one != '\n');
            assert_eq!(bad, None, "{text:?}");
        }
        assert!(!doctor.out.contains("another tool"), "nobody's: {}", doctor.out);
    }
}

#[test]
fn too_few_descriptors_are_said_before_anything_is_done() {
    let stage = Stage::new();
    let file = stage.path().join("none.gtop");
    let limited = |limit: u32, arguments: &str| {
        let mut shell = stage.command(Path::new("/bin/sh"));
        shell
            .args(["-c", &format!("ulimit -n {limit}; exec \"$GTOP\" {arguments}")])
            .env("GTOP", build::gtop());
        Running::start(shell).finish()
    };
    let record = format!("record --demo mixed -o '{}'", file.display());
    let commands = [
        ("", 3),
        ("--attach 1", 3),
        ("stat --attach 1", 3),
        ("doctor", 3),
        (&record, 3),
        ("run -- true", 125),
    ];
    for (command, code) in commands {
        for limit in [4, 5, 6, 7, 8, 10, 14, 18] {
            let ran = limited(limit, command);
            ran.fails(code, &["more files and sockets can be opened here", "gtop needs", "ulimit -n"]);
            assert!(limit == 4 || ran.err.contains(&format!("of {limit} in all")), "{ran:?}");
        }
    }
    assert!(!file.exists());
    for limit in [4, 64] {
        limited(limit, "completions bash").good();
    }
    limited(64, "stat --demo recorded").good();
}

#[test]
fn a_process_without_descriptors_is_told_of_and_healed() {
    let stage = Stage::new();
    let host = stage.host("mixed").argument("--descriptors").argument("0").start();
    let pid = host.pid().to_string();
    let words = ["could open no socket: all ", "that the process may have", "prlimit --nofile=4096"];
    stage.gtop(&["stat", "--attach", &pid]).fails(3, &words);
    stage.gtop(&["--attach", &pid]).fails(3, &words);
    let doctor = stage.gtop(&["doctor", "--attach", &pid]);
    assert!(words.iter().all(|word| doctor.out.contains(word)), "{doctor:?}");
    if !can_trace() {
        return;
    }
    let raised = Command::new("prlimit").args(["--nofile=1024:", "--pid", &pid]).status();
    if !raised.is_ok_and(|status| status.success()) {
        println!("skipped: there is no prlimit here");
        return;
    }
    let stat = Summary(stage.gtop(&["stat", "--json", "--inject", "--attach", &pid]).json());
    assert_eq!(stat["state"], "armed");
}

#[test]
fn where_nothing_can_be_written_no_command_panics() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let pid = host.pid();
    let ran = |command: &str| {
        let mut shell = stage.command(Path::new("/bin/sh"));
        let script = command.replace("PID", &pid.to_string());
        shell.args(["-c", &format!("\"$GTOP\" {script}; echo $? >code; wait")]).current_dir(stage.path());
        shell.env("GTOP", build::gtop()).env("RUST_BACKTRACE", "0");
        let ran = Running::start(shell).finish();
        assert!(!ran.err.contains("panicked"), "{command}: {ran:?}");
        std::fs::read_to_string(stage.path().join("code")).unwrap().trim().to_owned()
    };
    for command in ["stat --for 50ms --attach PID", "ctl --attach PID mark x", "doctor --attach PID", "shim"]
    {
        assert_eq!(ran(&format!("{command} >/dev/full")), "3", "{command}");
    }
    // Nobody hears what is wrong.
    for command in ["stat --attach 0", "ctl --attach 0 arm", "--attach 0", "doctor --attach 0"] {
        assert_eq!(ran(&format!("{command} 2>/dev/full")), "3", "{command}");
        assert_eq!(ran(&format!("{command} >&- 2>&-")), "3", "{command}");
    }
    let nowhere = "stat --demo quiet --for 50ms";
    assert_eq!(ran(&format!("{nowhere} >/dev/null")), "0");
}

#[test]
fn a_folder_for_what_is_short_lived_may_be_missing() {
    let stage = Stage::new();
    let host = stage.host("mixed").start();
    let mut command = stage.command(&build::gtop());
    command.args(["stat", "--for", "50ms", "--attach", &host.pid().to_string()]);
    command.env("TMPDIR", "/no/such/folder");
    let ran = Running::start(command).finish();
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran.good();
}

#[test]
fn doctor_has_nothing_to_say_of_what_is_no_target() {
    let stage = Stage::new();
    let doctor = |pid: u32| stage.gtop(&["doctor", "--attach", &pid.to_string()]);
    let mut shell = stage.command(Path::new("/bin/sh"));
    shell.args(["-c", "exec \"$GTOP\" doctor --attach $$"]).env("GTOP", build::gtop());
    Running::start(shell).finish().fails(3, &["it is this gtop itself"]);
    doctor(u32::MAX).fails(3, &["no such process"]);
    let mut zombie = Command::new("true").spawn().unwrap();
    wait_for("its end", || is_in(zombie.id(), 'Z').then_some(()));
    doctor(zombie.id()).fails(3, &["it has ended"]);
    zombie.wait().unwrap();
}

#[test]
fn a_small_stack_of_the_shell_is_no_limit() {
    let stage = Stage::new();
    let mut shell = stage.command(Path::new("/bin/sh"));
    shell
        .args(["-c", "ulimit -s 64; exec \"$GTOP\" stat --demo mixed --for 100ms"])
        .env("GTOP", build::gtop());
    Running::start(shell).finish().good();
}
