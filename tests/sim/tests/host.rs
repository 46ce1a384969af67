//! The host program loads an injected library as the driver does, works, forks and ends in every way.

use gtop_sim::{Kind, Truth};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// The example that cargo built beside the tests.
fn collector() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap().join("examples");
    folder.join("libcollector.so")
}

struct Host {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _libs: tempfile::TempDir,
}

impl Host {
    fn start(injection: Option<&Path>, arguments: &[&str]) -> Self {
        let libs = tempfile::tempdir().unwrap();
        gtop_sim::artefacts::lay_out(libs.path()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtop-sim-host"));
        command.arg("--libs").arg(libs.path()).args(arguments);
        command.env("COLLECTOR_CUPTI", libs.path().join("libcupti.so.13"));
        command.env_remove("CUDA_INJECTION64_PATH");
        if let Some(injection) = injection {
            command.env("CUDA_INJECTION64_PATH", injection);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, _libs: libs }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.line()
    }

    fn truth(&mut self) -> Truth {
        serde_json::from_str(self.ask("truth").strip_prefix("ok ").unwrap()).unwrap()
    }

    fn end(mut self) -> (ExitStatus, String) {
        drop(self.input);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

#[test]
fn an_injected_collector_gets_what_the_application_does() {
    let mut host = Host::start(Some(&collector()), &["--scenario", "mixed", "--stepped"]);
    assert_eq!(host.line(), "mapped");
    assert!(host.line().starts_with("injected 1 "));
    assert_eq!(host.line(), "begun");
    assert_eq!(host.ask("turns 100"), "ok");
    assert_eq!(host.ask("dance"), "error `dance` is no command");
    let truth = host.truth();
    let expected: u64 =
        [Kind::Kernel, Kind::Memcpy, Kind::Memset].map(|kind| truth.executed(kind)).iter().sum();
    let (status, rest) = host.end();
    assert!(status.success());
    assert_eq!(rest.trim(), format!("collected {expected}"));
}

#[test]
fn without_an_injection_it_works_all_the_same() {
    let mut host = Host::start(None, &["--scenario", "mixed", "--stepped", "--map-cupti"]);
    assert_eq!(host.line(), "mapped");
    assert_eq!(host.line(), "not injected: CUDA_INJECTION64_PATH is not set");
    assert_eq!(host.line(), "begun");
    assert_eq!(host.ask("turns 100"), "ok");
    let truth = host.truth();
    assert!(truth.executed(Kind::Kernel) > 0);
    assert!(truth.delivered.is_empty() && truth.calls.is_empty());
    assert!(host.end().0.success());
}

#[test]
fn it_forks_children_that_do_as_they_are_told() {
    let mut host = Host::start(Some(&collector()), &["--scenario", "mixed"]);
    for _ in 0..3 {
        host.line();
    }
    assert_eq!(host.ask("run"), "ok");
    for how in ["_exit", "exec"] {
        let answer = host.ask(&format!("fork {how}"));
        assert!(answer.starts_with("ok child ") && answer.ends_with(" 0"), "{answer}");
    }
    let answer = host.ask("fork hold");
    let pid = answer.strip_prefix("ok child ").unwrap();
    assert_eq!(host.ask(&format!("reap {pid}")), format!("ok child {pid} -9"));
    assert_eq!(host.ask("fork up"), "error `up` is nothing a child does");
    assert!(host.end().0.success());
}

#[test]
fn it_ends_in_every_way() {
    let cases = [
        ("exit return", (Some(0), None), true),
        ("exit exit", (Some(0), None), true),
        ("exit _exit", (Some(0), None), false),
        ("exit abort", (None, Some(6)), false),
        ("exit signal 15", (None, Some(15)), false),
    ];
    for (how, (code, signal), handlers) in cases {
        let mut host = Host::start(Some(&collector()), &["--scenario", "quiet", "--stepped"]);
        for _ in 0..3 {
            host.line();
        }
        assert_eq!(host.ask(how), "ok", "{how}");
        let (status, rest) = host.end();
        assert_eq!((status.code(), status.signal()), (code, signal), "{how}");
        assert_eq!(rest.contains("collected"), handlers, "{how}");
    }
}

#[test]
fn for_a_time_it_needs_no_telling() {
    let mut host = Host::start(Some(&collector()), &["--scenario", "vllm", "--for", "200ms"]);
    let lines: Vec<_> = (0..5).map(|_| host.line()).collect();
    assert_eq!(lines[3], "stopped");
    let truth: Truth = serde_json::from_str(&lines[4]).unwrap();
    assert!(truth.executed(Kind::Kernel) > 0);
    assert!(host.end().0.success());
}
