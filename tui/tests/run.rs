//! `gtop run` and `gtop shim` as a shell sees them: exit codes, signals, environment, and what becomes of the command.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gtop::system::attach::Target;
use gtop::system::process::{Process, family};
use gtop::system::socket;
use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::{State, StateCode};
use gtop_protocol::rendezvous;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

#[path = "../../tests/src/pty.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod pty;

use pty::Pty;

const GTOP: &str = env!("CARGO_BIN_EXE_gtop");
/// Set in the process that plays a CUDA application; where its libraries are.
const HOST: &str = "GTOP_TEST_HOST";
/// How long it works by itself; without this it does what its input says.
const WORKS: &str = "GTOP_TEST_WORKS";

/// Not a test of its own: a CUDA application without a GPU.
#[test]
fn host() {
    let Some(libs) = std::env::var_os(HOST) else { return };
    let mut args = ["--libs", libs.to_str().unwrap(), "--scenario", "mixed"].map(str::to_owned).to_vec();
    if let Ok(time) = std::env::var(WORKS) {
        args.extend(["--for".to_owned(), time]);
    }
    let _ = gtop_sim::host::main(args.into_iter());
}

/// A folder with the simulated libraries, and the command line of the application that uses them.
struct Application {
    folder: tempfile::TempDir,
    command: Vec<String>,
}

impl Application {
    fn new() -> Self {
        // Short, since a socket's path must be.
        let folder = tempfile::Builder::new().prefix("gtop-run-").tempdir_in("/tmp").unwrap();
        gtop_sim::artefacts::lay_out(folder.path()).unwrap();
        let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let command = [program.as_str(), "--exact", "host", "--nocapture"].map(str::to_owned).to_vec();
        Self { folder, command }
    }

    fn environment(&self) -> [(&'static str, PathBuf); 5] {
        let folder = self.folder.path();
        [
            (HOST, folder.into()),
            ("XDG_RUNTIME_DIR", folder.into()),
            ("XDG_STATE_HOME", folder.join("state")),
            ("XDG_CACHE_HOME", folder.join("cache")),
            ("LD_LIBRARY_PATH", folder.into()),
        ]
    }

    fn run(&self, options: &[&str]) -> Command {
        let mut command = Command::new(GTOP);
        command.arg("run").args(options).arg("--").args(&self.command).envs(self.environment());
        command
    }

    /// The process with the shim.
    fn pid(&self) -> Option<Pid> {
        let sockets = std::fs::read_dir(self.folder.path().join("gtop")).ok()?;
        let names = sockets.filter_map(|socket| socket.ok()?.file_name().into_string().ok());
        let (pid, _) = names.into_iter().find_map(|name| rendezvous::parse_file_name(&name))?;
        Some(Pid::from_raw(pid.cast_signed()))
    }

    /// The log of the one command that was run.
    fn log(&self) -> String {
        let mut logs = std::fs::read_dir(self.folder.path().join("state/gtop/log")).unwrap();
        std::fs::read_to_string(logs.next().unwrap().unwrap().path()).unwrap()
    }
}

fn run(args: &[&str]) -> Command {
    let mut command = Command::new(GTOP);
    command.args(["run", "--no-view"]).args(args).env_remove("CUDA_INJECTION64_PATH");
    command
}

fn code(args: &[&str]) -> Option<i32> {
    run(args).stderr(Stdio::null()).status().unwrap().code()
}

fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(began.elapsed() < pty::DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child that is killed, not left, when a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let all = Process::all();
        for process in family(&all, self.0.id()) {
            let _ = kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// The process of a family that has a shim.
fn watched(root: u32) -> Option<Target> {
    let all = Process::all();
    family(&all, root).into_iter().cloned().map(Target::of).find(|target| target.reach.is_ok())
}

#[test]
fn the_exit_code_is_the_commands() {
    assert_eq!(code(&["--", "true"]), Some(0));
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137), "`--` can be left out");
    assert_eq!(code(&["--", "/no/such/command"]), Some(127));
    assert_eq!(code(&["--", "/etc/passwd"]), Some(126));
    assert_eq!(code(&["--cupti", "/etc/passwd", "--", "true"]), Some(125));
    assert_eq!(code(&["--kinds", "graph", "--", "true"]), Some(125));
    assert_eq!(code(&[]), Some(125));
}

#[test]
fn an_option_that_does_not_exist_is_not_the_command() {
    for (wrong, right) in [("--bugdet", "--budget"), ("--recrod", "--record")] {
        let output = run(&[wrong, "1", "--", "true"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(errors.contains(wrong) && errors.contains(&format!("'{right}")), "{errors}");
    }
    assert_eq!(code(&["--", "sh", "-c", "exit $#", "--", "--bugdet", "1"]), Some(2), "the command's own are");
}

#[test]
fn a_frame_of_what_runs_is_drawn_into_a_file() {
    let application = Application::new();
    let file = application.folder.path().join("shot.txt");
    let options = ["--screenshot", file.to_str().unwrap(), "--after", "10ms", "--size", "100x30"];
    let output = application.run(&options).env(WORKS, "10ms").stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"".as_slice()), "{output:?}");
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(drawn.contains("1 Overview 2 Timeline") && drawn.lines().count() == 30, "{drawn}");

    // What cannot be drawn is said before anything starts.
    let wrong = application.folder.path().join("shot.png");
    let mut command = Command::new(GTOP);
    command.args(["run", "--screenshot", wrong.to_str().unwrap(), "--", "touch"]).arg(&wrong);
    let output = command.envs(application.environment()).output().unwrap();
    assert_eq!((output.status.code(), wrong.exists()), (Some(125), false), "{output:?}");
}

#[test]
fn another_tools_variable_is_not_overwritten() {
    let output =
        run(&["--", "true"]).env("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/opt/nsys/libToolsInjection64.so"));
}

#[test]
fn a_cupti_of_another_major_version_than_the_commands_is_refused() {
    let application = Application::new();
    let prefix = application.folder.path();
    let packages = prefix.join("lib/python3.12/site-packages/nvidia/cuda_cupti/lib");
    std::fs::create_dir_all(&packages).unwrap();
    std::fs::create_dir(prefix.join("bin")).unwrap();
    let program = prefix.join("bin/python");
    std::fs::copy("/bin/true", &program).unwrap();
    let cupti = prefix.join("libcupti.so.13");
    let options = ["--cupti", cupti.to_str().unwrap(), "--", program.to_str().unwrap()];
    std::fs::write(packages.join("libcupti.so.12"), b"").unwrap();
    let output = run(&options).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(errors.contains("its SONAME is libcupti.so.13") && errors.contains("libcupti.so.12"), "{errors}");
    std::fs::rename(packages.join("libcupti.so.12"), packages.join("libcupti.so.13")).unwrap();
    let output = run(&options).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn input_output_and_environment_are_the_commands() {
    let script =
        "cat; echo $GTOP_EARLY $GTOP_KINDS $GTOP_POOL_LIMIT; echo $CUDA_INJECTION64_PATH; echo err >&2";
    let options = ["--kinds", "kernel,memcpy", "--pool-limit", "8", "--", "sh", "-c", script];
    let mut child =
        run(&options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["input", "1 kernel,memcpy 8"]);
    assert!(Path::new(lines[2]).is_file(), "{text}");
    assert_eq!(output.stderr, b"err\n");
}

/// Whether this process was started to ignore a signal; a shell can then not react to it either.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as i32 - 1)) != 0
}

#[test]
fn signals_reach_the_command() {
    for signal in
        [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2]
    {
        if is_ignored(signal) {
            println!("skipped: {signal} is ignored here");
            continue;
        }
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!("trap 'kill $!; exit 42' {name}; sleep 1000 & echo ready; wait");
        let mut gtop = run(&["--", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(gtop.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        kill(Pid::from_raw(gtop.id().cast_signed()), signal).unwrap();
        assert_eq!(gtop.wait().unwrap().code(), Some(42), "{signal}");
    }
}

#[test]
fn a_signal_to_the_whole_group_reaches_the_command_once() {
    if [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().any(is_ignored) {
        println!("skipped: the signals are ignored here");
        return;
    }
    let script = "n=0; trap 'n=$((n + 1)); echo got' USR1; trap 'echo $n; exit 0' USR2; echo ready; \
                  while :; do sleep 1000 & wait $!; done";
    let mut command = run(&["--", "sh", "-c", script]);
    let mut gtop = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(gtop.id().cast_signed());
    let mut lines = BufReader::new(gtop.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    killpg(pid, Signal::SIGUSR1).unwrap();
    assert_eq!(lines.next().as_deref(), Some("got"));
    // This one comes to gtop alone, behind the other.
    kill(pid, Signal::SIGUSR2).unwrap();
    assert_eq!(lines.next().as_deref(), Some("1"));
    assert_eq!(gtop.wait().unwrap().code(), Some(0));
    let _ = killpg(pid, Signal::SIGKILL);
}

#[test]
fn the_command_outlives_gtop() {
    let script = "echo ready; read line; echo alive $line";
    let mut gtop =
        run(&["--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(gtop.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    gtop.kill().unwrap();
    // Waiting would close the input, which is the command's too.
    let mut input = gtop.stdin.take().unwrap();
    gtop.wait().unwrap();
    input.write_all(b"and well\n").unwrap();
    assert_eq!(lines.next().as_deref(), Some("alive and well"));
}

#[test]
fn without_a_view_nothing_is_armed_unless_asked() {
    let application = Application::new();
    for (arm, expected) in [("later", (StateCode::Loaded, 0)), ("now", (StateCode::Armed, 1))] {
        let command =
            application.run(&["--no-view", "--arm", arm]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let gtop = Killed(command.unwrap());
        let target = wait_for("a shim", || watched(gtop.0.id()));
        let endpoint = target.reach.as_ref().unwrap();
        let mut stream = socket::open(&target.process, endpoint).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(pty::DEADLINE)).unwrap();
        let mut bytes = Vec::new();
        wait_for("the state", || (states(&mut stream, &mut bytes) == Some(expected)).then_some(()));
    }
}

/// The newest state a shim has told, and whether it is held armed, after reading once more.
fn states(stream: &mut impl Read, bytes: &mut Vec<u8>) -> Option<(StateCode, u8)> {
    let mut chunk = [0; 4096];
    let read = stream.read(&mut chunk).unwrap();
    bytes.extend_from_slice(&chunk[..read]);
    let mut rest = bytes.as_slice();
    let mut newest = None;
    while let Ok(Some((frame, tail))) = Frame::split(rest) {
        rest = tail;
        if frame.kind() == Some(FrameKind::State) {
            let state = State::read(frame.body).unwrap();
            newest = Some((StateCode::from_wire(state.state)?, state.held));
        }
    }
    newest
}

#[test]
fn without_a_terminal_a_line_a_second_says_how_it_is() {
    let application = Application::new();
    let mut command = application.run(&[]);
    command.env(WORKS, "60s");
    let gtop = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut gtop = Killed(gtop);
    let mut lines = BufReader::new(gtop.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("armed") && !line.contains(" 0 shown")).unwrap();
    assert!(line.contains("rec/s"), "{line}");
    kill(Pid::from_raw(gtop.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(gtop.0.wait().unwrap().code(), Some(143));
    assert!(application.log().contains("begun"), "the command's output is in its log");
}

#[test]
fn without_a_terminal_a_line_says_that_watching_has_not_begun() {
    for (arm, says) in [("later", "not watched: `gtop --attach "), ("10m", "begins in ")] {
        let application = Application::new();
        let mut command = application.run(&["--arm", arm]);
        command.env(WORKS, "60s");
        let gtop = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut gtop = Killed(gtop);
        let mut lines = BufReader::new(gtop.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.next().unwrap();
        assert!(line.contains(says), "{line}");
    }
}

/// `gtop run` on a terminal.
fn on_terminal(application: &Application, command: &[&str]) -> Pty {
    on_terminal_with(application, &[], command)
}

/// `gtop run` on a terminal with these options.
fn on_terminal_with(application: &Application, options: &[&str], command: &[&str]) -> Pty {
    let environment = application.environment();
    let mut environment: Vec<_> =
        environment.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
    environment.push((WORKS, "60s"));
    Pty::start(GTOP.as_ref(), &[&["run"], options, &["--"], command].concat(), &environment, 120, 36)
}

#[test]
fn on_a_terminal_leaving_can_stop_the_command() {
    let application = Application::new();
    let command: Vec<&str> = application.command.iter().map(String::as_str).collect();
    let mut pty = on_terminal(&application, &command);
    pty.wait_for("ARMED");
    pty.press("q");
    pty.wait_for("stop it");
    pty.press("s");
    assert_eq!(pty.exit().exit_code(), 143);
    let pid = application.pid();
    assert!(pid.is_none_or(|pid| kill(pid, None).is_err()), "the command has ended");
}

#[test]
fn on_a_terminal_watching_later_begins_at_a_key() {
    for (arm, says) in [("later", "T begins to watch · "), ("10m", "watched in 10 min, T: now · ")] {
        let application = Application::new();
        let command: Vec<&str> = application.command.iter().map(String::as_str).collect();
        let mut pty = on_terminal_with(&application, &["--arm", arm], &command);
        pty.wait_for(says);
        assert!(pty.text().contains("NOT WATCHED"), "{}", pty.text());
        pty.press("T");
        pty.wait_for("ARMED");
        pty.press("q");
        pty.wait_for("stop it");
        pty.press("s");
        pty.exit();
    }
}

#[test]
fn on_a_terminal_it_is_said_what_watching_from_the_start_costs() {
    for (options, says) in [(&[][..], "--arm later"), (&["--early"], "little or nothing back")] {
        let application = Application::new();
        let command: Vec<&str> = application.command.iter().map(String::as_str).collect();
        let mut pty = on_terminal_with(&application, options, &command);
        pty.wait_for("ARMED");
        pty.press("7");
        pty.wait("what it costs", |screen| {
            let words: Vec<String> =
                screen.rows(0, 120).map(|row| row.trim_matches(['│', ' ']).to_owned()).collect();
            words.join(" ").contains(says)
        });
        pty.press("q");
        pty.wait_for("stop it");
        pty.press("s");
        pty.exit();
    }
}

#[test]
fn on_a_terminal_leaving_can_leave_the_command() {
    let application = Application::new();
    let command: Vec<&str> = application.command.iter().map(String::as_str).collect();
    let mut pty = on_terminal(&application, &command);
    pty.wait_for("ARMED");
    pty.press("q");
    pty.wait_for("leave it running");
    pty.press("l");
    pty.wait_for("runs on; watch it again");
    assert_eq!(pty.exit().exit_code(), 0);
    let pid = application.pid().unwrap();
    assert!(watched(pid.as_raw().cast_unsigned()).is_some());
    kill(pid, Signal::SIGKILL).unwrap();
}

#[test]
fn on_a_terminal_the_end_of_the_command_is_told() {
    let application = Application::new();
    let mut pty = on_terminal(&application, &["sh", "-c", "echo words; exit 3"]);
    pty.wait_for("ended: exit status: 3");
    pty.wait_for("8 Output");
    pty.press("8");
    let is_words = |line: &str| line.trim_matches(['│', ' ']) == "words";
    pty.wait("the output", |screen| screen.contents().lines().any(is_words));
    // There is nothing left to be asked about.
    pty.press("q");
    assert_eq!(pty.exit().exit_code(), 3);
    assert_eq!(application.log(), "words\n");
}

#[test]
fn alone_it_lets_the_person_choose() {
    let application = Application::new();
    let mut command = application.run(&["--no-view"]);
    let gtop = Killed(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let pid = wait_for("a shim", || watched(gtop.0.id())).process.pid;
    let row = format!(" {pid} ");
    let mut pty = Pty::start(GTOP.as_ref(), &[] as &[&str], &[], 120, 36);
    pty.wait_for(&row);
    // Others may come and go above it.
    for _ in 0..100 {
        let chosen = |screen: &vt100::Screen| {
            let line = (0..36).find(|line| screen.cell(*line, 1).is_some_and(vt100::Cell::inverse));
            line.and_then(|line| screen.rows(0, 120).nth(line.into())).unwrap_or_default()
        };
        if pty.look(chosen).contains(&row) {
            break;
        }
        let before = pty.look(chosen);
        pty.press("j");
        pty.wait("another row", |screen| chosen(screen) != before);
    }
    pty.press("\r");
    pty.wait_for("ARMED");
    assert!(pty.text().contains(&pid.to_string()), "{}", pty.text());
    pty.press("q");
    assert!(pty.exit().success());

    // Without a terminal the list is printed.
    let output = Command::new(GTOP).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{pid}\t"))).unwrap();
    assert!(line.ends_with("\tyes"), "{line}");
}

#[test]
fn the_shims_path_is_printed_and_its_copy_is_for_everybody() {
    let folder = tempfile::tempdir().unwrap();
    let shim = |args: &[&str]| {
        let output =
            Command::new(GTOP).arg("shim").args(args).env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let path = shim(&[]);
    let path = Path::new(path.strip_suffix('\n').unwrap());
    assert!(path.starts_with(folder.path()) && path.is_file());
    assert_eq!(shim(&["--env"]), format!("CUDA_INJECTION64_PATH={}\n", path.display()));
    let copy = shim(&["--copy", folder.path().to_str().unwrap()]);
    let mode = std::fs::metadata(copy.trim_end()).unwrap().permissions().mode();
    assert_eq!(
        (mode & 0o777, std::fs::read(copy.trim_end()).unwrap()),
        (0o755, std::fs::read(path).unwrap())
    );
    // A file is in the way.
    let nowhere = Command::new(GTOP).args(["shim", "--copy"]).arg(path.join("below")).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(3));
}
