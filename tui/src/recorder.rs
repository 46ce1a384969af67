//! Keeps what a session sees in a file, on a thread of its own: a slow disk holds up no screen, and a full one ends
//! the recording and nothing else.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gtop_protocol::frame::Frame;
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Writer};
use nix::libc;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::model::names::safe;
use crate::model::time::Moment;
use crate::view::units;

/// Bytes of frames that may wait to be written before sources are read no further.
const WAITING: u64 = 64 << 20;
/// How often to look whether what was gathered is old enough to be written.
const TICK: Duration = Duration::from_millis(100);

/// Where to write, and how much.
#[derive(Debug)]
pub struct Options {
    /// The first file, created already: whoever asked for it is told at once when it cannot be had.
    file: File,
    path: PathBuf,
    /// A file about to become larger than this, in bytes, is ended and another one begun.
    pub max_size: Option<u64>,
    /// So many files are kept, the newest.
    pub max_files: Option<usize>,
    label: String,
    host: Host,
}

impl Options {
    /// One file without limits. The file must not be there yet; `label` says what is watched, for people.
    pub fn create(path: &Path, label: &str) -> io::Result<Self> {
        let file = create(path)?;
        let (path, label) = (path.to_owned(), label.to_owned());
        Ok(Self { file, path, max_size: None, max_files: None, label, host: Host::read() })
    }

    /// What is written was seen elsewhere or earlier: the machine that another recording names, or none.
    #[must_use]
    pub fn seen_by(self, head: &HeadFields<'_>) -> Self {
        let host = Host {
            name: head.host.to_owned(),
            boot_id: head.boot_id.to_owned(),
            driver: head.driver.to_owned(),
        };
        Self { host, ..self }
    }

    /// The first file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How a recording is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The file being written.
    pub file: PathBuf,
    /// Bytes in all its files, those that were removed included.
    pub bytes: u64,
    /// Records taken in.
    pub records: u64,
    /// Bytes of frames taken in.
    taken: u64,
    /// Why it could not go on.
    pub error: Option<String>,
    /// Whether it is over.
    pub ended: bool,
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    pieces: mpsc::UnboundedSender<Piece>,
    sent: Cell<u64>,
    status: watch::Receiver<Status>,
}

/// What is handed to the writer's thread.
#[derive(Debug)]
enum Piece {
    Frames { at: At, stream: u32, bytes: Vec<u8> },
    End,
}

/// A moment as recordings have it.
#[must_use]
pub const fn at(moment: Moment) -> At {
    At { wall: moment.wall, steady: moment.steady }
}

impl Recorder {
    /// Begins. `keep` holds what came before.
    pub fn start(options: Options, keep: Keep, now: Moment) -> io::Result<Self> {
        let (pieces, rx) = mpsc::unbounded_channel();
        let status = Status { file: options.path.clone(), ..Status::default() };
        let (status_tx, status) = watch::channel(status);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        limits_are_errors(&runtime);
        thread::Builder::new().name("gtop-record".into()).spawn(move || {
            let path = options.path.clone();
            match Tape::begin(options, keep, now) {
                Ok(tape) => runtime.block_on(tape.run(rx, &status_tx)),
                Err(error) => status_tx.send_modify(|status| {
                    remove(&path);
                    status.error = Some(Broken { path, error }.with_nothing_kept());
                    status.ended = true;
                }),
            }
        })?;
        Ok(Self { pieces, sent: Cell::new(0), status })
    }

    /// Hands over whole frames of one stream.
    pub fn frames(&self, now: Moment, stream: u32, bytes: Vec<u8>) {
        self.sent.set(self.sent.get() + bytes.len() as u64);
        // A recording that is over takes nothing any more.
        let _ = self.pieces.send(Piece::Frames { at: at(now), stream, bytes });
    }

    /// Waits until there is room for more.
    pub fn room(&self) -> impl Future<Output = ()> + use<> {
        let (sent, mut status) = (self.sent.get(), self.status.clone());
        async move {
            let _ = status.wait_for(|status| status.ended || sent - status.taken < WAITING).await;
        }
    }

    /// Ends it; [`Recorder::status`] tells when everything is written.
    pub fn end(&self) {
        let _ = self.pieces.send(Piece::End);
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

/// The files of one recording.
struct Tape {
    writer: Writer<File>,
    path: PathBuf,
    max_size: Option<u64>,
    max_files: Option<usize>,
    label: String,
    host: Host,
    part: u32,
    /// The files that were ended, oldest first.
    files: VecDeque<PathBuf>,
    /// Bytes of ended files.
    before: u64,
    records: u64,
}

impl Tape {
    fn begin(options: Options, keep: Keep, now: Moment) -> io::Result<Self> {
        let Options { file, path, max_size, max_files, label, host } = options;
        let writer = Writer::begin(file, &host.head(&label, 1, now), keep, at(now))?;
        let (part, files) = (1, VecDeque::new());
        Ok(Self { writer, path, max_size, max_files, label, host, part, files, before: 0, records: 0 })
    }

    async fn run(mut self, mut pieces: mpsc::UnboundedReceiver<Piece>, status: &watch::Sender<Status>) {
        let mut ticks = tokio::time::interval(TICK);
        let mut taken = 0;
        let done = loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                _ = ticks.tick() => {
                    if let Err(error) = self.writer.tick(at(Moment::now())) {
                        break Err(Broken { path: self.file(), error });
                    }
                    self.say(status, taken);
                    continue;
                }
            };
            let Some(Piece::Frames { at, stream, bytes }) = piece else { break Ok(()) };
            taken += bytes.len() as u64;
            if let Err(error) = self.write(at, stream, &bytes) {
                break Err(error);
            }
            // Whoever waits for room waits for much of it.
            if pieces.is_empty() || taken - status.borrow().taken > WAITING / 4 {
                self.say(status, taken);
            }
        };
        let done = done.and_then(|()| self.writer.end().map_err(of(&self.file())));
        status.send_modify(|status| status.file = self.file());
        let (bytes, records, error) = match done {
            Ok(()) => (self.before + self.writer.bytes(), self.writer.records(), None),
            Err(broken) => self.rescue(&broken),
        };
        status.send_modify(|status| {
            (status.bytes, status.records, status.error) = (bytes, records, error);
            status.ended = true;
        });
    }

    /// Makes a recording of what could be written; gives its bytes, its records, and what is to be said.
    fn rescue(self, broken: &Broken) -> (u64, u64, Option<String>) {
        let (path, before) = (self.file(), self.before);
        let kept = self.writer.rescue(|file, len| {
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len)).map(drop)
        });
        // What is no file cannot be cut.
        let (last, records) = kept.unwrap_or((0, 0));
        if last == 0 {
            remove(&path);
        }
        let bytes = before + last;
        let said = if bytes > 0 { broken.with_kept(records, bytes) } else { broken.with_nothing_kept() };
        (bytes, records, Some(said))
    }

    fn say(&self, status: &watch::Sender<Status>, taken: u64) {
        status.send_if_modified(|status| {
            let bytes = self.before + self.writer.bytes();
            let changed = (status.bytes, status.taken) != (bytes, taken);
            (status.bytes, status.taken, status.records) = (bytes, taken, self.records);
            if changed {
                status.file = self.file();
            }
            changed
        });
    }

    fn write(&mut self, at: At, stream: u32, bytes: &[u8]) -> Result<(), Broken> {
        let mut rest = bytes;
        // What comes together stays together: records, and the counts behind them.
        if let (Some(size), Ok(Some((first, _)))) = (self.max_size, Frame::split(bytes))
            && self.writer.is_full(size, &Frame { body: bytes, ..first })
        {
            self.rotate(at)?;
        }
        while let Ok(Some((frame, tail))) = Frame::split(rest) {
            self.writer.write(&Entry { at, stream, frame }).map_err(of(&self.file()))?;
            rest = tail;
        }
        self.records = self.writer.records();
        Ok(())
    }

    fn rotate(&mut self, at: At) -> Result<(), Broken> {
        let (ended, part) = (self.file(), self.part);
        let file = loop {
            self.part += 1;
            let path = self.file();
            match create(&path) {
                // A part of an earlier recording may have been left here.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.part < u32::MAX => {}
                file => break file.map_err(of(&path))?,
            }
        };
        let now = Moment { wall: at.wall, steady: at.steady };
        let head = self.host.head(&self.label, self.part, now);
        let whole = match self.writer.rotate(file, &head, at) {
            Ok(whole) => whole,
            Err(error) => {
                remove(&self.file());
                self.part = part;
                return Err(Broken { path: ended, error });
            }
        };
        self.before += whole.metadata().map_or(0, |file| file.len());
        self.files.push_back(ended);
        while self.max_files.is_some_and(|most| self.files.len() >= most.max(1)) {
            let Some(oldest) = self.files.pop_front() else { break };
            match fs::remove_file(&oldest) {
                // Whoever took it away did what was to be done.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of(&oldest)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&self) -> PathBuf {
        part_path(&self.path, self.part)
    }
}

/// A limit on the size of files is to end what is written as a full disk does, and not the whole program. Programs that
/// are started have none of this.
pub(crate) fn limits_are_errors(runtime: &Runtime) {
    let _entered = runtime.enter();
    // Without it such a limit ends the program, as it does for most.
    let _ = signal(SignalKind::from_raw(libc::SIGXFSZ));
}

/// What went wrong with a file.
struct Broken {
    path: PathBuf,
    error: io::Error,
}

fn of(path: &Path) -> impl Fn(io::Error) -> Broken {
    let path = path.to_owned();
    move |error| Broken { path: path.clone(), error }
}

impl Broken {
    fn with_kept(&self, records: u64, bytes: u64) -> String {
        let (records, bytes) = (units::some(records as usize, "record"), units::bytes(bytes));
        format!("{self}; what was written before is kept and whole: {records} in {bytes}")
    }

    fn with_nothing_kept(&self) -> String {
        format!("{self}; nothing was kept")
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, error } = self;
        let path = safe_path(path);
        match error.kind() {
            io::ErrorKind::StorageFull => write!(f, "{path}: the disk is full ({error})"),
            io::ErrorKind::QuotaExceeded => write!(f, "{path}: the quota of the disk is used up ({error})"),
            io::ErrorKind::FileTooLarge => {
                write!(f, "{path}: no file may become larger here, as `ulimit -f` says ({error})")
            }
            _ => write!(f, "{path}: {error}"),
        }
    }
}

/// Removes the file of a recording that never began: nobody wants an empty one.
pub(crate) fn remove_empty(path: &Path) {
    if path.metadata().is_ok_and(|file| file.len() == 0) {
        remove(path);
    }
}

/// Removes a file of ours that is worth nothing. Pipes and devices stay.
fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// The file of a part: `run.gtop`, `run.2.gtop`, `run.3.gtop`, …
pub(crate) fn part_path(path: &Path, part: u32) -> PathBuf {
    if part == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{part}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

pub(crate) fn safe_path(path: &Path) -> String {
    safe(path.as_os_str().as_encoded_bytes())
}

/// A new file that only its owner can read. One that is there already is not touched, and no link is followed but to
/// descriptors of our own; pipes and devices can be written to.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match new {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A descriptor of our own, as `>(zstd)` of a shell gives one, is a link to what it is of.
            let is_own =
                ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.parent() == Some(Path::new(folder)));
            let found = if is_own { path.metadata()? } else { path.symlink_metadata()? };
            let flags = if is_own { 0 } else { libc::O_NOFOLLOW };
            if found.file_type().is_fifo() || found.file_type().is_char_device() {
                OpenOptions::new().write(true).custom_flags(flags).open(path)
            } else {
                Err(is_there(path))
            }
        }
        new => new,
    }
}

/// The error of what is not overwritten.
pub(crate) fn is_there(path: &Path) -> io::Error {
    let text = format!("{} is there already; nothing is overwritten", safe_path(path));
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// What is said of the machine.
#[derive(Debug)]
struct Host {
    name: Vec<u8>,
    boot_id: Vec<u8>,
    driver: Vec<u8>,
}

impl Host {
    /// This one.
    fn read() -> Self {
        let line = |path: &str| {
            let text = fs::read(path).unwrap_or_default();
            text.split(|byte| *byte == b'\n').next().unwrap_or_default().to_owned()
        };
        Self {
            name: line("/proc/sys/kernel/hostname"),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            driver: line("/sys/module/nvidia/version"),
        }
    }

    fn head<'a>(&'a self, label: &'a str, part: u32, now: Moment) -> HeadFields<'a> {
        HeadFields {
            gtop_version: env!("CARGO_PKG_VERSION").as_bytes(),
            host: &self.name,
            boot_id: &self.boot_id,
            driver: &self.driver,
            began: now.wall,
            part,
            label: label.as_bytes(),
        }
    }
}

/// A name for a recording of a process, begun now.
#[must_use]
pub fn default_path(process: &str, pid: u32, now: &jiff::ZonedDateTime) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    // The demo is gtop itself.
    let process = process.strip_prefix("gtop-").unwrap_or(process);
    let name: String = process.chars().map(plain).take(40).collect();
    PathBuf::from(format!("gtop-{name}-{pid}-{}.gtop", now.strftime("%Y%m%d-%H%M%S")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use gtop_protocol::frame::{FrameKind, write_frame};
    use gtop_protocol::recording::Recording;

    fn notice(text: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let len = write_frame(&mut bytes, FrameKind::Notice, 1, |w| w.bytes(text.as_bytes())).unwrap();
        bytes.truncate(len);
        bytes
    }

    async fn ended(recorder: &Recorder) -> Status {
        recorder.end();
        recorder.status().wait_for(|status| status.ended).await.unwrap().clone()
    }

    #[test]
    fn only_its_owner_can_read_it_and_nothing_is_overwritten_or_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gtop");
        let file = create(&path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for (link, to) in [("to-file", path.clone()), ("to-nothing", dir.path().join("b.gtop"))] {
            let link = dir.path().join(link);
            symlink(&to, &link).unwrap();
            assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!dir.path().join("b.gtop").exists());
    }

    #[tokio::test]
    async fn a_full_disk_ends_it_and_says_so() {
        let options = Options::create(Path::new("/dev/full"), "x").unwrap();
        let recorder = Recorder::start(options, Keep::default(), Moment::now()).unwrap();
        let error = ended(&recorder).await.error.unwrap();
        assert!(error.starts_with("/dev/full: the disk is full (No space left"), "{error}");
        // Nobody waits for it.
        recorder.frames(Moment::now(), 1, vec![0; 1 << 20]);
        recorder.room().await;
    }

    #[tokio::test]
    async fn files_that_have_grown_large_are_followed_by_others_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.gtop");
        let mut options = Options::create(&path, "a test").unwrap();
        (options.max_size, options.max_files) = (Some(20_000), Some(2));
        let recorder = Recorder::start(options, Keep::default(), Moment::now()).unwrap();
        // Somebody takes a part away, which is to be removed later.
        fs::remove_file(&path).unwrap();
        let mut noise = 1u64;
        for at in 0..40 {
            let text: String = (0..5000)
                .map(|_| {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    char::from(b'a' + (noise >> 60) as u8)
                })
                .collect();
            let moment = Moment { wall: at, steady: at * 1_000_000_000 };
            recorder.frames(moment, 1, notice(&text));
            recorder.room().await;
        }
        let status = ended(&recorder).await;
        assert_eq!(status.error, None);
        assert!(status.bytes > 60_000 && status.file.exists(), "{status:?}");
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        for name in names {
            let recording = Recording::open(File::open(dir.path().join(&name)).unwrap()).unwrap();
            assert!(recording.is_complete() && recording.head().part > 2, "{name:?}");
            let size = dir.path().join(&name).metadata().unwrap().len();
            assert!(size <= 20_000, "{name:?} has {size} bytes");
        }
    }

    #[test]
    fn parts_and_recordings_have_names() {
        assert_eq!(part_path(Path::new("/x/run.gtop"), 3), Path::new("/x/run.3.gtop"));
        assert_eq!(part_path(Path::new("run"), 2), Path::new("run.2"));
        let now: jiff::ZonedDateTime = "2026-01-02T03:04:05[UTC]".parse().unwrap();
        let path = default_path("VLLM::EngineCor", 844, &now);
        assert_eq!(path, Path::new("gtop-VLLM__EngineCor-844-20260102-030405.gtop"));
        let path = default_path("gtop-demo", 7, &now);
        assert_eq!(path, Path::new("gtop-demo-7-20260102-030405.gtop"));
    }
}
