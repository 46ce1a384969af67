//! Processes that are named before they use CUDA, after they have ended, or with texts that command a terminal.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command, Stdio};

use gtop_tests::build;
use gtop_tests::pty::Pty;
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, count};
use gtop_tests::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

#[test]
fn a_server_that_starts_its_workers_later_is_waited_for() {
    let stage = Stage::new();
    let pipe = stage.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let setup = stage.host("mixed").real_time().under_a_shell();
    // A shell that has the variable, and runs nothing before it is told to.
    let host = setup.command();
    let mut server = stage.command(std::path::Path::new("/bin/sh"));
    server.args(["-c", &format!("read line <'{}'; \"$@\"; exit $?", pipe.display()), "sh"]);
    server.arg(build::host()).args(host.get_args().skip(4));
    server.envs(host.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut server = Idler::start(&mut server);

    let (mut stat, line, _said) =
        start(&stage, &["stat", "--json", "--for", "10m", "--attach", &server.pid()]);
    assert!(line.contains("waiting until sh") && line.contains("a process below it uses CUDA"), "{line}");
    assert!(!line.contains("--inject"), "it has the variable: {line}");

    std::fs::write(&pipe, "go\n").unwrap();
    std::io::Write::write_all(server.0.stdin.as_mut().unwrap(), b"run\n").unwrap();
    let children = format!("/proc/{0}/task/{0}/children", server.0.id());
    let worker: u32 = wait_for("the worker", || {
        std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
    });
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

    let folder = stage.path().to_str().unwrap();
    let environment = [("XDG_RUNTIME_DIR", folder), ("XDG_CACHE_HOME", folder), ("XDG_CONFIG_HOME", folder)];
    let mut screen =
        Pty::start(build::gtop().as_os_str(), &["--attach", pid.as_str()], &environment, 120, 36);
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
