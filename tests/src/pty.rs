//! A program in a pseudo terminal, and the screen it draws. Nothing here sleeps: waiting is for what the screen shows,
//! with a deadline.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use vt100::{Parser, Screen};

/// How long anything may take before a test fails.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// What the terminal has received.
struct Seen {
    parser: Parser,
    /// Bytes since the last [`Pty::forget`], for counting what was written.
    bytes: Vec<u8>,
    /// Whether the reader is to let go of the terminal.
    let_go: bool,
    /// Whether nothing more will be read.
    closed: bool,
}

impl Seen {
    fn written(&self, bytes: &[u8]) -> usize {
        self.bytes.windows(bytes.len()).filter(|window| *window == bytes).count()
    }
}

/// A program in a pseudo terminal.
pub struct Pty {
    master: Option<Box<dyn MasterPty + Send>>,
    writer: Option<Box<dyn Write + Send>>,
    child: Box<dyn Child + Send + Sync>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn at_least_one(cells: u16) -> NonZeroU16 {
    NonZeroU16::new(cells).unwrap_or(NonZeroU16::MIN)
}

impl Pty {
    /// Starts a program on a terminal of this size. `env` is added to the environment; an empty value removes a
    /// variable.
    ///
    /// # Panics
    /// When there is no pseudo terminal, or the program cannot be started.
    pub fn start<S: AsRef<OsStr>>(
        program: &OsStr,
        args: &[S],
        env: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).expect("a pseudo terminal");
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        for (name, value) in env {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        let child = pair.slave.spawn_command(command).expect("the program starts");
        let parser = Parser::new(at_least_one(rows), at_least_one(columns), 200);
        let seen = Arc::new((
            Mutex::new(Seen { parser, bytes: Vec::new(), let_go: false, closed: false }),
            Condvar::new(),
        ));
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let writer = pair.master.take_writer().expect("a writer");
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut chunk = [0; 16 << 10];
            loop {
                let read = reader.read(&mut chunk);
                let mut seen = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                match read {
                    Ok(length @ 1..) if !seen.let_go => {
                        seen.parser.process(&chunk[..length]);
                        seen.bytes.extend_from_slice(&chunk[..length]);
                    }
                    Ok(_) | Err(_) => seen.closed = true,
                }
                shared.1.notify_all();
                if seen.closed {
                    drop(reader);
                    return;
                }
            }
        });
        Self { master: Some(pair.master), writer: Some(writer), child, seen }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` holds of what was received.
    fn until(&self, what: &str, mut done: impl FnMut(&Seen) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = self.lock();
        while !done(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} in time; the screen:\n{}", seen.parser.screen().contents());
            seen = self.seen.1.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the screen is as it should be.
    ///
    /// # Panics
    /// When it is not within [`DEADLINE`].
    pub fn wait(&self, what: &str, mut done: impl FnMut(&Screen) -> bool) {
        self.until(what, |seen| done(seen.parser.screen()));
    }

    /// Waits until the screen shows `text`.
    ///
    /// # Panics
    /// When it does not within [`DEADLINE`].
    pub fn wait_for(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// The text of the screen.
    #[must_use]
    pub fn text(&self) -> String {
        self.lock().parser.screen().contents()
    }

    /// Looks at the screen.
    pub fn look<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(self.lock().parser.screen())
    }

    /// How often the program wrote this since [`Pty::forget`].
    #[must_use]
    pub fn written(&self, bytes: &[u8]) -> usize {
        self.lock().written(bytes)
    }

    /// Waits until the program has written this since [`Pty::forget`].
    ///
    /// # Panics
    /// When it has not within [`DEADLINE`].
    pub fn wait_written(&self, bytes: &[u8]) {
        self.until("such bytes", |seen| seen.written(bytes) > 0);
    }

    /// Begins to count what the program writes.
    pub fn forget(&self) {
        self.lock().bytes.clear();
    }

    /// Types keys as a terminal sends them.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        let writer = self.writer.as_mut().expect("the terminal is open");
        writer.write_all(keys.as_bytes()).and_then(|()| writer.flush()).expect("the keys are taken");
    }

    /// Gives the terminal another size. One of nothing is a terminal about to go away.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn resize(&self, columns: u16, rows: u16) {
        // First the screen, so that what the program then draws falls into the right cells.
        self.lock().parser.screen_mut().set_size(at_least_one(rows), at_least_one(columns));
        let master = self.master.as_ref().expect("the terminal is open");
        master.resize(size(columns, rows)).expect("the terminal takes the size");
    }

    /// The program's process id.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.process_id().expect("a process id").cast_signed()
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: i32) {
        let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("the program is there");
    }

    /// Whether the terminal edits lines and echoes, as a shell needs it.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[must_use]
    pub fn is_cooked(&self) -> bool {
        let master = self.master.as_ref().expect("the terminal is open");
        let flags = master.get_termios().expect("terminal attributes").local_flags.bits();
        flags & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
    }

    /// Takes the terminal away, as a closed window does, from a program that draws when its size changes.
    ///
    /// # Panics
    /// When the terminal is gone already.
    pub fn close(&mut self) {
        // The reader holds the terminal open until it has read something.
        self.lock().let_go = true;
        self.resize(79, 23);
        self.until("answer to a new size", |seen| seen.closed);
        self.writer = None;
        self.master = None;
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// When it does not end within [`DEADLINE`].
    pub fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the program's status") {
                return status;
            }
            assert!(Instant::now() < deadline, "the program does not end; the screen:\n{}", self.text());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
