//! One row: starts its process, joins it, lets it work, and waits until everything that comes has come. Each step has
//! a deadline, and a process that outlasts one is killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gtop_protocol::control::Action;
use gtop_protocol::message::StateCode;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use super::child::{Done, Said};
use super::row::Row;
use super::tally::Tally;
use crate::model::snapshot::Link;
use crate::source::live::{Input, Live};
use crate::system::process::{Process, printable};
use crate::system::socket;

/// How long a socket that is not there yet is waited for between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// What is kept of a process's complaints, bytes.
const COMPLAINT: usize = 300;

/// How a row's process is started.
pub trait Start {
    /// The command, with whatever loads the shim into it. The probe sets what the shim is to do, and has its standard
    /// input and output.
    fn command(&self, row: &Row) -> Command;
}

/// How long each step may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the process is ready: CUDA and CUPTI begin.
    pub ready: Duration,
    /// Until it is joined.
    pub join: Duration,
    /// Until it has worked, and more for each turn.
    pub work: Duration,
    /// … per turn. Traced, one takes a few microseconds.
    pub turn: Duration,
    /// Until all records have come.
    pub rest: Duration,
    /// Until it has ended.
    pub end: Duration,
    /// How long nothing must have come for nothing to be on its way. The shim counts four times a second.
    pub quiet: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            ready: Duration::from_mins(1),
            join: Duration::from_secs(10),
            work: Duration::from_secs(30),
            turn: Duration::from_micros(100),
            rest: Duration::from_secs(10),
            end: Duration::from_secs(10),
            quiet: Duration::from_millis(300),
        }
    }
}

/// What a row gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The row.
    pub row: Row,
    /// The device's name, once the process had opened it.
    pub device: Option<String>,
    /// The CUDA version the driver supports, 13000 for 13.0.
    pub driver: Option<i32>,
    /// What came of it.
    pub tally: Tally,
    /// What it did, or why there is nothing to compare with.
    pub done: Result<Done, NotRun>,
    /// How long the row took.
    pub took: Duration,
}

/// Why a row says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// In words.
    pub why: String,
    /// Whether nothing is wrong but that the machine has no GPU.
    pub no_gpu: bool,
}

impl From<String> for NotRun {
    fn from(why: String) -> Self {
        Self { why, no_gpu: false }
    }
}

impl From<io::Error> for NotRun {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

/// Runs one row. Must be called inside a runtime with timers and I/O.
pub async fn run_row(row: Row, start: &dyn Start, patience: &Patience) -> Ran {
    let began = Instant::now();
    let mut ran = Ran {
        row,
        device: None,
        driver: None,
        tally: Tally::default(),
        done: Err(String::new().into()),
        took: Duration::ZERO,
    };
    ran.done = match Subject::start(&row, start) {
        Ok(mut subject) => {
            let done = subject.run(&mut ran, patience).await;
            subject.end(done.is_err(), patience.end).await;
            done
        }
        Err(error) => Err(format!("its process cannot be started: {error}").into()),
    };
    ran.took = began.elapsed();
    ran
}

/// A row's process.
struct Subject {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    folder: TempDir,
}

impl Subject {
    fn start(row: &Row, start: &dyn Start) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("gtop-probe-").tempdir()?;
        let mut command = start.command(row);
        command
            .env("GTOP_EARLY", "1")
            .env("GTOP_KINDS", row.kinds.to_string())
            .env("GTOP_POOL_LIMIT", row.pool_limit.to_string())
            .env_remove("GTOP_READ_ONLY")
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(complaints(folder.path()))?);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { stdin: child.stdin.take(), lines: BufReader::new(stdout).lines(), child, folder })
    }

    async fn run(&mut self, ran: &mut Ran, patience: &Patience) -> Result<Done, NotRun> {
        let ready = timeout(patience.ready, self.said()).await;
        let Said::Ready { device, driver } = ready.map_err(|_| late("ready", patience.ready))?? else {
            return Err("its process spoke out of turn".to_owned().into());
        };
        ran.device = Some(printable(device.as_bytes()));
        ran.driver = Some(driver);

        let tally = &mut ran.tally;
        let mut live = timeout(patience.join, self.join(tally)).await.map_err(|_| {
            let why = tally.reason.clone().unwrap_or_else(|| format!("its shim is {}", tally.state.name()));
            NotRun::from(format!("it could not be watched within {:?}: {why}", patience.join))
        })??;

        self.tell(b"go\n").await?;
        let limit = patience.work + patience.turn * u32::try_from(ran.row.turns).unwrap_or(u32::MAX);
        let work = async {
            tokio::select! {
                said = self.said() => Ok(said),
                ended = pump(&mut live, tally) => Err(ended),
            }
        };
        let done = match timeout(limit, work).await.map_err(|_| late("done", limit))? {
            Ok(Ok(Said::Done(done))) => done,
            Ok(Ok(_)) => return Err("its process spoke out of turn".to_owned().into()),
            Ok(Err(not_run)) => return Err(not_run),
            Err(_) => return Err(self.gone().await),
        };
        let wanted = done.launched.kernels;
        timeout(patience.rest, rest(&mut live, tally, wanted, patience.quiet))
            .await
            .map_err(|_| NotRun::from(format!("records still came {:?} after its work", patience.rest)))??;
        Ok(done)
    }

    /// The next thing it says.
    async fn said(&mut self) -> Result<Said, NotRun> {
        loop {
            match self.lines.next_line().await? {
                Some(line) => match Said::read(&line) {
                    Some(Said::Failed { why, no_gpu }) => {
                        return Err(NotRun { why: printable(why.as_bytes()), no_gpu });
                    }
                    Some(said) => return Ok(said),
                    None => {}
                },
                None => return Err(self.gone().await),
            }
        }
    }

    /// Why it has ended, with what it complained of last.
    async fn gone(&mut self) -> NotRun {
        let status = match timeout(LOOK * 100, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "its socket or its output closed".to_owned(),
        };
        let complaint = fs::read(complaints(self.folder.path())).unwrap_or_default();
        let last = &complaint[complaint.len().saturating_sub(COMPLAINT)..];
        let last = printable(last.trim_ascii());
        let said = if last.is_empty() { String::new() } else { format!(": {last}") };
        format!("its process ended before its work was done, {status}{said}").into()
    }

    /// Connects to its shim and waits until that streams.
    async fn join(&mut self, tally: &mut Tally) -> Result<Live, NotRun> {
        let pid = self.child.id().ok_or_else(|| "its process has ended".to_owned())?;
        let process = Process::read(pid).map_err(|error| error.to_string())?;
        let endpoint = loop {
            let search = socket::find(&process);
            match (search.found, search.refused) {
                (Some(endpoint), _) => break endpoint,
                (None, Some(refused)) => tally.reason = Some(refused.to_string()),
                (None, None) => {}
            }
            sleep(LOOK).await;
        };
        let live = Live::connect(process, &endpoint, true, "gtop probe").await;
        let mut live = live.map_err(|error| error.to_string())?;
        // Records are counted from the moment of joining, and the shim says when that is.
        while tally.state != StateCode::Armed || tally.watchers == 0 {
            if tally.state == StateCode::Unavailable {
                return Err(tally
                    .reason
                    .clone()
                    .unwrap_or_else(|| "its shim is unavailable".to_owned())
                    .into());
            }
            take(live.next().await, tally)?;
        }
        Ok(live)
    }

    async fn tell(&mut self, line: &[u8]) -> Result<(), NotRun> {
        if let Some(stdin) = &mut self.stdin
            && stdin.write_all(line).await.and(stdin.flush().await).is_err()
        {
            return Err(self.gone().await);
        }
        Ok(())
    }

    /// Lets it go; kills it if it must not stay, or does not go.
    async fn end(mut self, kill: bool, limit: Duration) {
        drop(self.stdin.take());
        if kill || timeout(limit, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
            // One that is stuck in the driver cannot be killed, and is not waited for.
            let _ = timeout(limit, self.child.wait()).await;
        }
    }
}

fn complaints(folder: &Path) -> PathBuf {
    folder.join("stderr")
}

fn late(what: &str, limit: Duration) -> NotRun {
    format!("its process was not {what} within {limit:.0?} and was killed").into()
}

fn take(input: Input<'_>, tally: &mut Tally) -> Result<(), String> {
    match input {
        Input::Frames(bytes) => tally.take(bytes),
        Input::Link(Link::Ended(why)) => return Err(why),
        Input::Link(Link::Lost { .. }) => return Err("the connection to its shim was lost".to_owned()),
        Input::Link(Link::Up | Link::Connecting) => {}
    }
    Ok(())
}

/// Counts what comes until the connection ends, and says why it did.
async fn pump(live: &mut Live, tally: &mut Tally) -> String {
    loop {
        if let Err(ended) = take(live.next().await, tally) {
            return ended;
        }
        tokio::task::yield_now().await;
    }
}

/// Asks for what CUPTI holds until all wanted kernels have come, or no more of them do.
async fn rest(live: &mut Live, tally: &mut Tally, wanted: u64, quiet: Duration) -> Result<(), String> {
    /// CUPTI delivers some records late, so that once nothing came is no proof.
    const TIMES: u32 = 3;
    let mut still = 0;
    while still < TIMES {
        let request = live.request(Action::Flush, 0).await.map_err(|error| error.to_string())?;
        while tally.answered < request {
            take(live.next().await, tally)?;
        }
        let before = tally.records();
        if let Ok(ended) = timeout(quiet, pump(live, tally)).await {
            return Err(ended);
        }
        let all = tally.kernel_records() >= wanted;
        still = if tally.records() != before || !tally.balances() {
            0
        } else if all {
            TIMES
        } else {
            still + 1
        };
    }
    Ok(())
}
