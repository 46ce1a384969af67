//! Processes whose threads wait in system calls, for trying what putting the shim in does to those.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::build;
use crate::stage::Stage;

/// A process with threads in these calls, see `gtop-waiters`; it is killed with the test.
pub struct Waiters {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    calls: Vec<String>,
    pid: u32,
}

impl Waiters {
    /// Starts one on a stage and waits until its threads are made.
    pub fn start(stage: &Stage, calls: &[&str]) -> Self {
        Self::start_as(stage, calls, |program| program)
    }

    /// As [`Waiters::start`], with the command changed.
    pub fn start_as(stage: &Stage, calls: &[&str], change: impl FnOnce(Command) -> Command) -> Self {
        let mut program = stage.command(&build::waiters());
        program.args(calls).env("GTOP_LIBS", stage.path()).env("GTOP_PIPE", stage.path().join("pipe"));
        let mut command = change(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (pid, calls) = (child.id(), calls.iter().map(|call| (*call).to_owned()).collect());
        let mut waiters = Self { child, lines, calls, pid };
        waiters.expect("waiting");
        waiters
    }

    /// Waits for a line.
    pub fn expect(&mut self, line: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|said| said == line);
        assert!(found, "it did not say `{line}`");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its number of threads.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count)
    }

    /// Sends a signal to one of its threads.
    #[expect(unsafe_code, reason = "the C library has no function for it")]
    pub fn tell(&self, thread: i32, signal: Signal) {
        // SAFETY: numbers.
        let told = unsafe { libc::syscall(libc::SYS_tgkill, self.pid, thread, signal as i32) };
        assert_eq!(told, 0, "it is there");
    }

    /// Waits for its end.
    pub fn ended(mut self) -> ExitStatus {
        self.child.wait().expect("its status")
    }

    /// Ends it; each of its calls must have gone as if nobody had been there.
    pub fn end(mut self) {
        kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGUSR1).expect("it is there");
        let mut said: Vec<String> = self.lines.by_ref().map_while(Result::ok).collect();
        said.retain(|line| line != "locked");
        let expected: Vec<String> = self.calls.iter().map(|call| format!("{call}: well")).collect();
        assert_eq!(said, expected);
        let status: ExitStatus = self.child.wait().expect("its status");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
