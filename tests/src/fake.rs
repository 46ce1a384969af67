//! A process that pretends to have a shim: what it sends, and whether it reads, is up to the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use gtop_protocol::frame::{FrameKind, MAX_BODY, write_frame};
use gtop_protocol::message::{Hello, HelloFields};
use gtop_protocol::wire::{Full, Writer};

use crate::build;
use crate::stage::Stage;

/// A process whose socket does as it was told; it is killed with the test.
pub struct Fake {
    child: Child,
}

/// What it does once it has sent its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Hangs up.
    Close,
    /// Reads what comes and answers nothing.
    Read,
    /// Does nothing at all.
    Hold,
}

impl Fake {
    /// Starts a process that sends these bytes to whoever connects.
    pub fn start(stage: &Stage, bytes: &[u8], then: Then) -> Self {
        let mut script = tempfile::NamedTempFile::new_in(stage.path()).expect("a file");
        std::io::Write::write_all(&mut script, bytes).expect("the bytes are written");
        let then = match then {
            Then::Close => "close",
            Then::Read => "read",
            Then::Hold => "hold",
        };
        let mut command = stage.command(&build::fake_shim());
        command.arg(script.path()).arg(then);
        Self::begin(command, "listening\n")
    }

    /// Starts a process with the real shim and without CUDA.
    pub fn without_cuda(stage: &Stage) -> Self {
        let mut command = stage.command(&build::no_cuda());
        command.env("CUDA_INJECTION64_PATH", stage.shim());
        Self::begin(command, "injected 1\n")
    }

    fn begin(mut command: Command, word: &str) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it speaks");
        assert_eq!(line, word);
        Self { child }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One frame.
pub fn frame(kind: FrameKind, seq: u64, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    let mut bytes = vec![0; MAX_BODY];
    let len = write_frame(&mut bytes, kind, seq, body).expect("it fits");
    bytes.truncate(len);
    bytes
}

/// The hello of a shim of today.
pub fn hello() -> Vec<u8> {
    let fields = HelloFields { name: b"fake", cupti_version: Some(130_001), ..HelloFields::default() };
    frame(FrameKind::Hello, 1, |w| Hello::new(fields).write(w))
}
