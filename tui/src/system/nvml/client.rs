//! Keeps a helper process and its last answer. Nothing here ever waits for the driver: a helper that does not answer
//! in time is killed and replaced, and what it last said stays, with its age.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ipc_channel::TryRecvError;
use ipc_channel::ipc::{IpcOneShotServer, IpcReceiver, IpcSender};
use nix::sys::signal::SigSet;
use tokio::sync::watch;

use super::backend::Unavailable;
use super::helper::{FromHelper, Request, SECRET, SUBCOMMAND};
use super::sample::DeviceSample;

/// The longest folder for temporary files behind which `ipc-channel`'s socket fits; it cuts longer paths silently.
const MAX_TEMP_DIR: usize = 80;
/// Killed helpers that have not died yet. A process stuck in the driver cannot be killed; more of them do not help.
const MAX_STUCK: usize = 3;
/// How often a wait looks whether the client is gone.
const STEP: Duration = Duration::from_millis(100);

/// How to run the helper, and how patient to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The helper's program.
    pub program: PathBuf,
    /// Its arguments; the name of the IPC server follows.
    pub args: Vec<OsString>,
    /// Environment variables for it.
    pub environment: Vec<(OsString, OsString)>,
    /// Time between two samples.
    pub interval: Duration,
    /// Time between two questions while NVML cannot be had, and the longest time between two attempts to start.
    pub retry: Duration,
    /// How long the helper may take to start.
    pub start_deadline: Duration,
    /// How long the first answer may take: it includes opening all devices, many seconds on a large machine.
    pub first_deadline: Duration,
    /// How long any other answer may take.
    pub deadline: Duration,
}

impl Default for Options {
    /// This program as helper, one sample a second.
    fn default() -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            args: vec![SUBCOMMAND.into()],
            environment: Vec::new(),
            interval: Duration::from_secs(1),
            retry: Duration::from_secs(30),
            start_deadline: Duration::from_secs(5),
            first_deadline: Duration::from_secs(30),
            deadline: Duration::from_secs(5),
        }
    }
}

/// What is known of the devices now.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The last samples, by index; kept when no newer ones come.
    pub devices: Arc<[DeviceSample]>,
    /// When they were taken.
    pub taken: Option<Instant>,
    /// Whether newer ones come.
    pub status: Status,
    /// Helpers that had to be replaced.
    pub replaced: u64,
}

/// Whether samples come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The first answer has not come yet.
    #[default]
    Starting,
    /// Samples come.
    Live,
    /// NVML answers that it cannot.
    Unavailable(Unavailable),
    /// A call into the driver has not returned since then.
    Stuck(Instant),
    /// The helper could not be started, or ended by itself.
    Failed(String),
}

impl Snapshot {
    /// How old the samples are.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.taken?))
    }

    /// Why there are no samples, or no new ones, in words.
    #[must_use]
    pub fn note(&self, now: Instant) -> Option<String> {
        match &self.status {
            Status::Live => None,
            Status::Starting => Some("asking NVML".into()),
            Status::Unavailable(reason) => Some(reason.to_string()),
            Status::Stuck(since) => {
                let seconds = now.saturating_duration_since(*since).as_secs();
                Some(format!("the NVIDIA driver has not answered for {seconds} s"))
            }
            Status::Failed(why) => Some(format!("NVML helper: {why}")),
        }
    }
}

/// The samples of this machine's devices, as long as it lives.
#[derive(Debug)]
pub struct Client {
    snapshots: watch::Receiver<Snapshot>,
    /// Dropped with the client, which tells the thread to end.
    _alive: mpsc::Sender<()>,
}

impl Client {
    /// Starts asking. Fails only when no thread can be had.
    pub fn start(options: Options) -> io::Result<Self> {
        let (publish, snapshots) = watch::channel(Snapshot::default());
        let (alive, gone) = mpsc::channel();
        let keeper = Keeper { options, publish, gone, stuck: Vec::new() };
        thread::Builder::new().name("gtop-nvml".into()).spawn(move || keeper.run())?;
        Ok(Self { snapshots, _alive: alive })
    }

    /// What is known now; never waits.
    #[must_use]
    pub fn latest(&self) -> Snapshot {
        self.snapshots.borrow().clone()
    }

    /// A receiver that wakes at each change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }
}

/// The thread's state.
struct Keeper {
    options: Options,
    publish: watch::Sender<Snapshot>,
    gone: mpsc::Receiver<()>,
    stuck: Vec<Child>,
}

/// Why a helper is of no more use.
enum End {
    /// The client is gone.
    Gone,
    /// It did not answer.
    Stuck(Instant),
    /// It went away, or talked nonsense.
    Failed(String),
}

impl Keeper {
    fn run(mut self) {
        // Signals are for the threads that expect them.
        let _ = SigSet::all().thread_block();
        let mut failures = 0_u32;
        loop {
            self.stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if self.stuck.len() < MAX_STUCK {
                let mut answered = false;
                let end = match Helper::start(&self.options, &self.gone) {
                    Ok(mut helper) => {
                        let end = self.ask(&helper, &mut answered);
                        let _ = helper.child.kill();
                        if let Ok(None) = helper.child.try_wait() {
                            self.stuck.push(helper.child);
                        }
                        end
                    }
                    Err(end) => end,
                };
                failures = if answered { 1 } else { failures.saturating_add(1) };
                let status = match end {
                    End::Gone => return,
                    End::Stuck(since) => Status::Stuck(since),
                    End::Failed(why) => Status::Failed(why),
                };
                self.publish.send_modify(|snapshot| {
                    // A replacement that hangs like its predecessor does not make the wait begin anew.
                    if !matches!((&snapshot.status, &status), (Status::Stuck(_), Status::Stuck(_))) {
                        snapshot.status = status;
                    }
                    snapshot.replaced += 1;
                });
            }
            let pause = self.options.interval.saturating_mul(1 << (failures - 1).min(16));
            if self.is_gone_after(pause.min(self.options.retry)) {
                return;
            }
        }
    }

    /// Asks one helper until it is of no more use.
    fn ask(&self, helper: &Helper, answered: &mut bool) -> End {
        for number in 0.. {
            let asked = Instant::now();
            let deadline = if *answered { self.options.deadline } else { self.options.first_deadline };
            if let Err(error) = helper.requests.send(Request(number)) {
                return End::Failed(error.to_string());
            }
            let devices = loop {
                let left = deadline.saturating_sub(asked.elapsed());
                match helper.answers.try_recv_timeout(left.min(STEP)) {
                    Ok(FromHelper::Answer { request, devices }) if request == number => break devices,
                    Ok(_) => return End::Failed("it answers what it was not asked".into()),
                    Err(TryRecvError::IpcError(error)) => return End::Failed(error.to_string()),
                    Err(TryRecvError::Empty) if self.is_gone_after(Duration::ZERO) => return End::Gone,
                    Err(TryRecvError::Empty) if left.is_zero() => return End::Stuck(asked),
                    Err(TryRecvError::Empty) => {}
                }
            };
            *answered = true;
            let pause = if devices.is_ok() { self.options.interval } else { self.options.retry };
            self.publish.send_modify(|snapshot| match devices {
                Ok(devices) => {
                    snapshot.devices = devices.into();
                    snapshot.taken = Some(Instant::now());
                    snapshot.status = Status::Live;
                }
                Err(reason) => snapshot.status = Status::Unavailable(reason),
            });
            if self.is_gone_after(pause.saturating_sub(asked.elapsed())) {
                return End::Gone;
            }
        }
        End::Gone
    }

    fn is_gone_after(&self, pause: Duration) -> bool {
        is_gone_after(&self.gone, pause)
    }
}

fn is_gone_after(gone: &mpsc::Receiver<()>, pause: Duration) -> bool {
    matches!(gone.recv_timeout(pause), Err(mpsc::RecvTimeoutError::Disconnected))
}

/// A running helper.
struct Helper {
    child: Child,
    requests: IpcSender<Request>,
    answers: IpcReceiver<FromHelper>,
}

/// Whether a private folder with a socket can be made there.
fn bears_a_socket(folder: &Path) -> bool {
    folder.to_str().is_some_and(|path| path.len() <= MAX_TEMP_DIR) && tempfile::tempdir_in(folder).is_ok()
}

impl Helper {
    fn start(options: &Options, gone: &mpsc::Receiver<()>) -> Result<Self, End> {
        let failed = |error: io::Error| End::Failed(error.to_string());
        if !bears_a_socket(&tempfile::env::temp_dir()) {
            // The first to say so decides for the whole process; any folder this short will do.
            let _ = tempfile::env::override_temp_dir(Path::new("/tmp"));
            // What it is asked for next does not come back without a folder.
            tempfile::tempdir().map_err(failed)?;
        }
        let secret = secret().map_err(failed)?;
        let (server, name) = IpcOneShotServer::<FromHelper>::new().map_err(failed)?;
        let mut child = Command::new(&options.program)
            .arg0("gtop")
            .args(&options.args)
            .arg(&name)
            .envs(options.environment.iter().map(|(name, value)| (name, value)))
            .env(SECRET, &secret)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Keys that send signals are not meant for it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;

        // Accepting cannot be given a deadline, so a thread does it.
        let (sender, accepted) = mpsc::channel();
        let accept = move || {
            let _ = sender.send(server.accept());
        };
        let spawned = thread::Builder::new().name("gtop-nvml-accept".into()).spawn(accept);
        let wait = || -> Result<_, End> {
            spawned.map_err(failed)?;
            let asked = Instant::now();
            loop {
                match accepted.recv_timeout(STEP) {
                    Ok(Ok((answers, FromHelper::Hello { secret: shown, requests }))) if shown == secret => {
                        return Ok((answers, requests));
                    }
                    Ok(Ok(_)) => return Err(End::Failed("a stranger connected in its place".into())),
                    Ok(Err(error)) => return Err(End::Failed(error.to_string())),
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Err(End::Failed("a stranger's message could not be read".into()));
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
                if is_gone_after(gone, Duration::ZERO) {
                    return Err(End::Gone);
                }
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(End::Failed(format!("it ended at once ({status})")));
                }
                if asked.elapsed() >= options.start_deadline {
                    return Err(End::Failed("it did not start in time".into()));
                }
            }
        };
        match wait() {
            Ok((answers, requests)) => Ok(Self { child, requests, answers }),
            Err(end) => {
                let _ = child.kill();
                let _ = child.try_wait();
                // Whoever connects lets the accepting thread end.
                drop(IpcSender::<FromHelper>::connect(name));
                Err(end)
            }
        }
    }
}

/// Something nobody else can know.
fn secret() -> io::Result<String> {
    use std::fmt::Write as _;
    use std::io::Read as _;
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
