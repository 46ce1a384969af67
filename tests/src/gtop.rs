//! The viewer as a script runs it: arguments in; exit code, output and JSON out.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::wait::wait_for;

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// The exit code; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The output, of a run that must have ended well.
    pub fn good(self) -> String {
        assert_eq!(self.code(), Some(0), "{self:?}");
        self.out
    }

    /// The JSON of a run that must have ended well.
    pub fn json(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The JSON of a run that could see nothing of its process, and says why in these words.
    pub fn unseen(self, words: &[&str]) -> Value {
        self.fails(3, &[&["cannot be watched"], words].concat());
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Makes sure that the run failed with this code and says so in words, without a panic or a backtrace.
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code(), self.status.signal()), (Some(code), None), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in {self:?}");
        }
        assert!(self.err.starts_with("gtop: ") || self.err.starts_with("error: "), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}

/// A viewer that runs; it is killed with the test.
pub struct Running {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a program that is the viewer.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("gtop starts");
        let out = child.stdout.take().map(read);
        let err = child.stderr.take().map(read);
        Self { child, out, err }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("gtop is there");
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Ran {
        let status = wait_for("gtop's end", || self.child.try_wait().expect("its status"));
        let text =
            |reader: Option<JoinHandle<String>>| reader.and_then(|it| it.join().ok()).unwrap_or_default();
        Ran { status, out: text(self.out.take()), err: text(self.err.take()) }
    }

    /// Ends it as Ctrl-C does and gives what came of it.
    pub fn interrupt(self) -> Ran {
        self.signal(Signal::SIGINT);
        self.finish()
    }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
