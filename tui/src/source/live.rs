//! A shim's socket as a source: frames as they come, and what becomes of the connection.

use std::io;
use std::time::Duration;

use gtop_protocol::control::{Action, MAX_REQUEST, Raw, Request};
use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, MAX_BODY, PROTOCOL, write_frame};
use gtop_protocol::message::{Goodbye, Hello};
use gtop_protocol::viewer::Halted;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::model::names::safe;
use crate::model::snapshot::Link;
use crate::model::time::Moment;
use crate::system::process::{Exhausted, Process};
use crate::system::remote::Way;
use crate::system::socket::{self, Endpoint, Refused, Remains};

/// Bytes read at once; a longer frame makes the buffer grow to [`MAX_FRAME`].
const BUFFER: usize = 256 << 10;
/// The longest frame there can be.
const MAX_FRAME: usize = HEADER_LEN + MAX_BODY;
/// How long a shim may take to say who it is. Its process may be stopped or starved.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How long a socket may refuse before it counts as one that nobody listens at any more, and how often it is tried.
const BEGINNING: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the threads of a process that ends may take to give its socket back.
const ENDING: Duration = Duration::from_secs(2);
/// The first and the longest time between two attempts to connect again.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// A process of another machine that has not answered this often, which takes about half a minute, is given up.
const MOST_ELSEWHERE: u32 = 10;

/// Why a shim cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket to use.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// Something else answers.
    #[error("what answers at its socket is not gtop's shim")]
    NotOurs,
    /// The shim is of the future.
    #[error(
        "its shim speaks protocol {0} and this gtop only {PROTOCOL}: use a gtop at least as new as the shim"
    )]
    TooNew(u16),
    /// The process has ended, whatever its socket says.
    #[error("it has ended")]
    Ended,
    /// It is there and says nothing.
    #[error("its shim does not answer; the process may be stopped, or out of file descriptors")]
    NoAnswer,
    /// It has no descriptor to answer with.
    #[error("its shim cannot answer: {0}")]
    Exhausted(Exhausted),
    /// It is stopped.
    #[error("a signal has stopped it; `kill -CONT {0}` lets it go on")]
    Stopped(u32),
    /// It hung up before it said who it is.
    #[error("its shim hung up; it may be serving as many viewers as it can")]
    HungUp,
    /// The system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What comes from a source.
#[derive(Debug)]
pub enum Input<'a> {
    /// One or more whole frames.
    Frames(&'a [u8]),
    /// The way to the source has changed. After [`Link::Ended`] nothing comes any more.
    Link(Link),
}

/// A connection to one process's shim, made again when it breaks.
#[derive(Debug)]
pub struct Live {
    process: Process,
    /// The way to a process of another machine.
    elsewhere: Option<Endpoint>,
    /// What may be left of its socket.
    remains: Option<Remains>,
    watch: bool,
    by: String,
    state: State,
    buffer: Buffer,
    goodbye: Option<String>,
    next_request: u64,
    /// Which of CUPTI's buffers are wanted as they are.
    raw: Raw,
}

#[derive(Debug)]
enum State {
    Up(UnixStream),
    Down {
        since: u64,
        retries: u32,
        again: Instant,
    },
    /// It has ended, and what it leaves behind is put away before that is told.
    Ending {
        until: Instant,
    },
    Over,
}

impl Live {
    /// Connects, and watches if `watch` is set; `by` says to others who asks.
    pub async fn connect(
        process: Process,
        endpoint: &Endpoint,
        watch: bool,
        by: &str,
    ) -> Result<Self, ConnectError> {
        match Self::first(process.clone(), endpoint, watch, by).await {
            Err(_) if endpoint.elsewhere().is_none() && process.is_ending() => Err(ConnectError::Ended),
            Err(ConnectError::NoAnswer)
                if endpoint.elsewhere().is_none() && process.halted() == Halted::Stopped =>
            {
                Err(ConnectError::Stopped(process.pid))
            }
            Err(ConnectError::NoAnswer) if endpoint.elsewhere().is_none() => {
                Err(Exhausted::of(process.pid).map_or(ConnectError::NoAnswer, ConnectError::Exhausted))
            }
            connected => connected,
        }
    }

    async fn first(
        process: Process,
        endpoint: &Endpoint,
        watch: bool,
        by: &str,
    ) -> Result<Self, ConnectError> {
        let mut buffer = Buffer::default();
        let stream = open(&process, endpoint, &mut buffer).await?;
        let mut live = Self {
            process,
            elsewhere: endpoint.elsewhere(),
            remains: endpoint.remains(),
            watch,
            by: by.to_owned(),
            state: State::Up(stream),
            buffer,
            goodbye: None,
            next_request: 0,
            raw: Raw::None,
        };
        live.join().await?;
        Ok(live)
    }

    /// The process at the other end.
    #[must_use]
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// The way to the machine it is on, where that is another one.
    #[must_use]
    pub fn way(&self) -> Option<&Way> {
        self.elsewhere.as_ref().and_then(Endpoint::way)
    }

    /// The next frames, or what became of the connection. May be cancelled and called again.
    pub async fn next(&mut self) -> Input<'_> {
        self.buffer.release();
        loop {
            match &self.state {
                State::Up(stream) => {
                    match self.buffer.whole() {
                        Ok(0) => {}
                        Ok(len) => {
                            self.note_goodbye(len);
                            return Input::Frames(self.buffer.lend(len));
                        }
                        // Nothing behind a header that lies can be found.
                        Err(_) => match self.lost() {
                            Some(link) => return Input::Link(link),
                            None => continue,
                        },
                    }
                    if !self.buffer.fill(stream).await.unwrap_or(false)
                        && let Some(link) = self.lost()
                    {
                        return Input::Link(link);
                    }
                }
                State::Down { since, retries, again } => {
                    let (since, retries) = (*since, *retries);
                    sleep_until(*again).await;
                    if self.may_live(retries) {
                        return Input::Link(self.try_again(since, retries).await);
                    }
                    self.state = State::Ending { until: Instant::now() + ENDING };
                }
                State::Ending { until } => {
                    let until = *until;
                    if self.remains.as_ref().is_some_and(|remains| remains.remove(&self.process))
                        && Instant::now() < until
                    {
                        sleep(LOOK_EVERY).await;
                        continue;
                    }
                    return Input::Link(self.ended());
                }
                State::Over => std::future::pending().await,
            }
        }
    }

    /// Sends a request; gives the id its reply will carry.
    pub async fn request(&mut self, action: Action<'_>, flags: u8) -> io::Result<u64> {
        let State::Up(stream) = &self.state else { return Err(io::ErrorKind::NotConnected.into()) };
        self.next_request += 1;
        let id = self.next_request;
        let request = Request { id, flags, action, by: self.by.as_bytes() };
        let mut frame = [0; MAX_REQUEST];
        let len = write_frame(&mut frame, FrameKind::Request, id, |w| request.write(w))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut rest = &frame[..len];
        while !rest.is_empty() {
            stream.writable().await?;
            match stream.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(id)
    }

    async fn join(&mut self) -> io::Result<()> {
        if self.watch {
            self.request(Action::Watch, 0).await?;
        }
        if self.raw != Raw::None {
            self.request(Action::Raw(self.raw as u32), 0).await?;
        }
        Ok(())
    }

    /// Asks for CUPTI's buffers as they are, now and after every reconnection; gives the id the reply will carry.
    pub async fn want_raw(&mut self, raw: Raw) -> io::Result<u64> {
        self.raw = raw;
        self.request(Action::Raw(raw as u32), 0).await
    }

    /// A goodbye says why the stream ends.
    fn note_goodbye(&mut self, len: usize) {
        let mut rest = self.buffer.front(len);
        while let Ok(Some((frame, tail))) = Frame::split(rest) {
            if frame.kind() == Some(FrameKind::Goodbye)
                && let Ok(goodbye) = Goodbye::read(frame.body)
            {
                self.goodbye = Some(safe(goodbye.reason));
            }
            rest = tail;
        }
    }

    /// Nothing to tell yet where the process is ending.
    fn lost(&mut self) -> Option<Link> {
        self.buffer = Buffer::default();
        if self.goodbye.is_some() || !self.may_live(0) {
            self.state = State::Ending { until: Instant::now() + ENDING };
            return None;
        }
        let since = Moment::now().wall;
        self.state = State::Down { since, retries: 0, again: Instant::now() + BACK_OFF[0] };
        Some(Link::Lost { since, retries: 0 })
    }

    /// Whether it may still be there. Of a process of another machine nothing is known but that it answers.
    fn may_live(&self, retries: u32) -> bool {
        match self.elsewhere {
            Some(_) => retries < MOST_ELSEWHERE,
            None => self.process.is_alive(),
        }
    }

    fn ended(&mut self) -> Link {
        self.state = State::Over;
        self.remains = None;
        let pid = self.process.pid;
        Link::Ended(match self.goodbye.take() {
            Some(reason) if !reason.is_empty() => format!("process {pid}: {reason}"),
            _ => format!("process {pid} ended"),
        })
    }

    async fn try_again(&mut self, since: u64, retries: u32) -> Link {
        let mut buffer = Buffer::default();
        let found = match &self.elsewhere {
            Some(endpoint) => endpoint.elsewhere(),
            None => socket::find(&self.process).found,
        };
        let connected = match &found {
            Some(endpoint) => open(&self.process, endpoint, &mut buffer).await.ok(),
            None => None,
        };
        if let Some(stream) = connected {
            self.state = State::Up(stream);
            self.buffer = buffer;
            self.remains = found.as_ref().and_then(Endpoint::remains);
            if self.join().await.is_ok() {
                return Link::Up;
            }
        }
        let retries = retries.saturating_add(1);
        let pause = BACK_OFF[0].saturating_mul(1 << retries.min(10)).min(BACK_OFF[1]);
        self.state = State::Down { since, retries, again: Instant::now() + pause };
        Link::Lost { since, retries }
    }
}

/// Connects. A socket that refuses may be there and not listened at yet, when the shim is just beginning.
async fn reach(process: &Process, endpoint: &Endpoint) -> Result<std::os::unix::net::UnixStream, Refused> {
    let until = Instant::now() + BEGINNING;
    loop {
        match socket::open(process, endpoint) {
            Err(Refused::Io(_, error))
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < until
                    && (process.is_alive() || endpoint.elsewhere().is_some()) =>
            {
                sleep(LOOK_EVERY).await;
            }
            reached => return reached,
        }
    }
}

/// Connects and waits for the hello, which stays in the buffer.
async fn open(
    process: &Process,
    endpoint: &Endpoint,
    buffer: &mut Buffer,
) -> Result<UnixStream, ConnectError> {
    let stream = UnixStream::from_std(reach(process, endpoint).await?)?;
    let hello = async {
        loop {
            if let Some((frame, _)) = Frame::split(buffer.filled()).map_err(|_| ConnectError::NotOurs)? {
                let hello = (frame.kind() == Some(FrameKind::Hello)).then(|| Hello::read(frame.body).ok());
                let hello = hello.flatten().ok_or(ConnectError::NotOurs)?;
                return if hello.protocol > PROTOCOL {
                    Err(ConnectError::TooNew(hello.protocol))
                } else {
                    Ok(())
                };
            }
            if !buffer.fill(&stream).await? {
                return Err(if buffer.filled().is_empty() {
                    ConnectError::HungUp
                } else {
                    ConnectError::NotOurs
                });
            }
        }
    };
    timeout(HELLO_TIME, hello).await.unwrap_or(Err(ConnectError::NoAnswer))?;
    Ok(stream)
}

/// Bytes as they came, of which whole frames are lent out.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes at the front that were lent out and are done with.
    lent: usize,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn front(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }

    fn lend(&mut self, len: usize) -> &[u8] {
        self.lent = len;
        self.front(len)
    }

    fn release(&mut self) {
        self.start += std::mem::take(&mut self.lent);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// How many bytes at the front are whole frames.
    fn whole(&self) -> Result<usize, gtop_protocol::frame::TooLong> {
        let mut rest = self.filled();
        while let Some((_, tail)) = Frame::split(rest)? {
            rest = tail;
        }
        Ok(self.filled().len() - rest.len())
    }

    /// Reads more; `false` at the end of the stream.
    async fn fill(&mut self, stream: &UnixStream) -> io::Result<bool> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.bytes.len() < BUFFER {
            self.bytes.resize(BUFFER, 0);
        } else if self.end == self.bytes.len() {
            self.bytes.resize(MAX_FRAME, 0);
        }
        loop {
            stream.readable().await?;
            match stream.try_read(&mut self.bytes[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
