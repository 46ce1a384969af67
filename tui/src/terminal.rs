//! The terminal: taken once, given back exactly once, whatever happens in between.
//!
//! It is given back on return and on `?` by dropping the [`Guard`], on a panic of any thread by a hook that runs
//! before the message is printed, and before every suspension.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::{Print, ResetColor, force_color_output};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, window_size,
};
use crossterm::{Command, queue};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use std::os::fd::AsFd;
use tokio::sync::Notify;

/// Clicks, drags and the wheel, but not every move of the pointer, in the encoding without a limit on columns.
const MOUSE_ON: Print<&str> = Print("\x1b[?1000h\x1b[?1002h\x1b[?1006h");
const MOUSE_OFF: Print<&str> = Print("\x1b[?1006l\x1b[?1002l\x1b[?1000l");

/// Whether the mouse is asked for.
static MOUSE: AtomicBool = AtomicBool::new(false);
/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether some thread has panicked since the terminal was taken.
static PANICKED: AtomicBool = AtomicBool::new(false);
/// Wakes whoever draws when that happens.
static PANIC: Notify = Notify::const_new();

/// Holds the terminal; dropping it gives the terminal back.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal: raw mode, the alternate screen, no cursor; with `mouse` its clicks come here, too.
    pub fn take(mouse: bool) -> io::Result<Self> {
        install_hook();
        MOUSE.store(mouse, Ordering::SeqCst);
        // Which colours to use is decided by our themes, NO_COLOR included. Left to crossterm, NO_COLOR would also
        // wipe bold and reversed text, and with it the selected row.
        force_color_output(true);
        let guard = Self(());
        enter()?;
        Ok(guard)
    }

    /// Gives the terminal back, stops the process as the shell expects of `ctrl-z`, and takes the terminal again
    /// when it is continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)?;
        enter()
    }

    /// Takes the terminal again after somebody else may have used it.
    pub fn retake(&mut self) -> io::Result<()> {
        leave();
        enter()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = Out::default();
    queue!(out, EnterAlternateScreen, EnableBracketedPaste, Hide, Clear(ClearType::All))?;
    if MOUSE.load(Ordering::SeqCst) {
        queue!(out, MOUSE_ON)?;
    }
    out.flush()
}

/// Gives the terminal back, once. Errors are of no use here: the terminal may be gone.
fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = Out::default();
    if MOUSE.load(Ordering::SeqCst) {
        let _ = queue!(out, MOUSE_OFF);
    }
    let _ = queue!(out, EndSynchronizedUpdate, ResetColor, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = write_all(&out.0);
    let _ = disable_raw_mode();
}

/// Makes panics, of whatever thread, give the terminal back before anything is printed.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if TAKEN.load(Ordering::SeqCst) {
                PANICKED.store(true, Ordering::SeqCst);
                leave();
                PANIC.notify_one();
            }
            before(info);
        }));
    });
}

/// Whether a thread has panicked, so that the terminal is no longer ours.
#[must_use]
pub fn panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Waits until a thread has panicked.
pub async fn panic() {
    PANIC.notified().await;
}

/// Bytes on their way to the terminal. They leave in one piece when flushed, and never once the terminal has been
/// given back: half a frame must not end up in the shell.
#[derive(Debug, Default)]
struct Out(Vec<u8>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.0);
        if TAKEN.load(Ordering::SeqCst) { write_all(&bytes) } else { Ok(()) }
    }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let terminal = io::stdout();
    while !bytes.is_empty() {
        match nix::unistd::write(&terminal, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            // Another program may have left the terminal in non-blocking mode.
            Err(Errno::EAGAIN) => {
                poll(&mut [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Shows frames, writing only what has changed.
#[derive(Debug)]
pub struct Screen {
    backend: CrosstermBackend<Out>,
    shown: Buffer,
}

impl Default for Screen {
    fn default() -> Self {
        Self { backend: CrosstermBackend::new(Out::default()), shown: Buffer::empty(Rect::ZERO) }
    }
}

impl Screen {
    /// The size of the terminal; nothing when it cannot be had, as in one that is gone.
    #[must_use]
    pub fn size() -> Size {
        window_size().map_or(Size::ZERO, |size| Size::new(size.columns, size.rows))
    }

    /// Forgets what is shown, so that the next frame is drawn in full.
    pub fn forget(&mut self) {
        self.shown = Buffer::empty(Rect::ZERO);
    }

    /// Shows a frame, as one update to terminals that know of such.
    pub fn show(&mut self, frame: Buffer) -> io::Result<()> {
        self.queue(BeginSynchronizedUpdate)?;
        if frame.area != self.shown.area {
            self.queue(Clear(ClearType::All))?;
            self.queue(MoveTo(0, 0))?;
            self.shown = Buffer::empty(frame.area);
        }
        self.backend.draw(self.shown.diff_iter(&frame))?;
        self.queue(EndSynchronizedUpdate)?;
        self.shown = frame;
        Write::flush(&mut self.backend)
    }

    /// Puts text onto the clipboard of terminals that allow it (OSC 52).
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        self.queue(Print(format!("\x1b]52;c;{}\x07", base64(text.as_bytes()))))?;
        Write::flush(&mut self.backend)
    }

    /// Asks the terminal something; what it answers comes as keys.
    pub fn ask(&mut self, question: &str) -> io::Result<()> {
        self.queue(Print(question))?;
        Write::flush(&mut self.backend)
    }

    fn queue(&mut self, command: impl Command) -> io::Result<()> {
        queue!(self.backend, command)
    }
}

/// Bytes in the letters that terminals take.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().enumerate().fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_letters() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn nothing_is_written_to_a_terminal_that_is_not_ours() {
        assert!(!TAKEN.load(Ordering::SeqCst));
        let mut out = Out::default();
        out.write_all(b"half a frame").unwrap();
        out.flush().unwrap();
        assert!(out.0.is_empty());
        leave();
        assert!(!panicked());
    }
}
