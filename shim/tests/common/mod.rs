//! A host with the shim inside, and a viewer of its socket, for tests.
#![allow(dead_code, reason = "each test uses a part of it")]

use gtop_protocol::control::{Action, Request};
use gtop_protocol::frame::{Frame, FrameKind, HEADER_LEN, Header, RecordSizes, Runs, write_frame};
use gtop_protocol::message::{
    Clock, Goodbye, Hello, HostBuffers, Kinds, Loss, Notice, Outcome, Pool, Reason, Reply, State, StateCode,
    names, pools,
};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset, Other};
use gtop_protocol::{KindSet, Validity, rendezvous};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Eager kernels, copies and memory sets, and a graph of all three, on CUPTI of this version.
pub(crate) fn mixed(version: u32) -> String {
    format!(
        r#"cupti = {version}
[[graph]]
name = "step"
nodes = [
  {{ copy = "d2d", bytes = 65536, ns = 900 }},
  {{ memset = 4096, ns = 700 }},
  {{ kernel = "graph_kernel", ns = 1500, times = 3 }},
]
[[thread]]
steps = [
  {{ kernel = "eager_kernel", ns = 2000, times = 2 }},
  {{ copy = "h2d", bytes = 1024, ns = 800 }},
  {{ launch = "step" }},
]
"#
    )
}

/// Records of one turn of [`mixed`], where its graph is early.
pub(crate) const PER_TURN: u64 = 8;

/// Waits until `done` gives something.
pub(crate) fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn built(folder: &str, name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let profile = program.ancestors().nth(2).unwrap();
    let path = profile.join(folder).join(name);
    assert!(path.exists(), "{} was not built: `cargo test -p gtop-shim` builds it", path.display());
    path
}

/// How to start a host.
pub(crate) struct Setup {
    pub(crate) root: tempfile::TempDir,
    scenario: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Setup {
    /// A host of this scenario (a built-in name or TOML), stepped, with CUPTI beside it.
    pub(crate) fn new(scenario: &str) -> Self {
        let root = tempfile::Builder::new().prefix("gtop-shim").tempdir().unwrap();
        gtop_sim::artefacts::lay_out(root.path()).unwrap();
        let setup = Self {
            root,
            scenario: scenario.into(),
            arguments: vec!["--stepped".into()],
            variables: Vec::new(),
        };
        let cupti = setup.root.path().join("libcupti.so.13");
        setup.variable("GTOP_CUPTI", cupti.to_str().unwrap())
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn real_time(mut self) -> Self {
        self.arguments.retain(|argument| argument != "--stepped");
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The driver is this version, as its file's name says.
    pub(crate) fn driver(self, version: &str) -> Self {
        let (name, file) = ("libcuda.so.1", format!("libcuda.so.{version}"));
        std::fs::rename(self.root.path().join(name), self.root.path().join(&file)).unwrap();
        std::os::unix::fs::symlink(&file, self.root.path().join(name)).unwrap();
        self
    }

    pub(crate) fn start(self) -> Host {
        let scenario = self.root.path().join("scenario.toml");
        let name = if self.scenario.contains('\n') {
            std::fs::write(&scenario, &self.scenario).unwrap();
            scenario.to_str().unwrap().to_owned()
        } else {
            self.scenario.clone()
        };
        let mut child = Command::new(built("examples", "sim-host"))
            .arg("--libs")
            .arg(self.root.path())
            .args(["--scenario", &name])
            .args(&self.arguments)
            .env("CUDA_INJECTION64_PATH", built("deps", "libgtop_shim.so"))
            .env("XDG_RUNTIME_DIR", self.root.path())
            .env("GTOP_LINGER", "0")
            .env("GTOP_LOG", self.root.path().join("log"))
            .envs(self.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut host = Host { child, input, output, root: self.root };
        assert_eq!(host.line(), "mapped");
        let injected = host.line();
        assert!(injected.starts_with("injected 1 "), "{injected}");
        assert_eq!(host.line(), "begun");
        host
    }
}

/// A running host.
pub(crate) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) root: tempfile::TempDir,
}

impl Host {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("the host ended: {errors}\n{}", self.log());
        }
        line.trim_end().to_owned()
    }

    /// What the shim logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line and gives the answer, which must be ok.
    pub(crate) fn say(&mut self, line: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let answer = self.line();
        let text = answer.strip_prefix("ok").unwrap_or_else(|| panic!("{line}: {answer}"));
        text.trim_start().to_owned()
    }

    pub(crate) fn truth(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.say("truth")).unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_of(self.root.path(), self.pid())
    }

    pub(crate) fn viewer(&self) -> Viewer {
        Viewer::connect(&self.socket())
    }

    /// A viewer that watches, once armed.
    pub(crate) fn watcher(&self) -> Viewer {
        let mut viewer = self.viewer();
        let (outcome, text) = viewer.ask(Action::Watch);
        assert_eq!(outcome, Outcome::Done, "{text}\n{}", self.log());
        viewer
    }

    /// Ends the host and gives how it ended. Its children may live on.
    pub(crate) fn end(&mut self, how: &str) -> ExitStatus {
        self.say(&format!("exit {how}"));
        self.child.wait().unwrap()
    }

    /// Ends the host and gives how it ended, its folder, and what it said on standard error.
    pub(crate) fn exit(mut self, how: &str) -> (ExitStatus, tempfile::TempDir, String) {
        let status = self.end(how);
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let root = std::mem::replace(&mut self.root, tempfile::tempdir().unwrap());
        (status, root, errors)
    }

    /// Resident memory, bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The socket of a process, once it is there.
pub(crate) fn socket_of(root: &Path, pid: u32) -> PathBuf {
    let folder = root.join("gtop");
    wait_for("the socket", || {
        let entries = std::fs::read_dir(&folder).ok()?;
        entries.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            rendezvous::parse_file_name(name).is_some_and(|(owner, _)| owner == pid)
                && UnixStream::connect(path).is_ok()
        })
    })
}

/// A connection, and all it was told.
pub(crate) struct Viewer {
    pub(crate) stream: UnixStream,
    next_id: u64,
    sizes: RecordSizes,
    pub(crate) seq: u64,
    /// Frame numbers that were passed over.
    pub(crate) gaps: u64,
    pub(crate) pid: u32,
    pub(crate) cupti: Option<u64>,
    pub(crate) cupti_path: String,
    pub(crate) interface: u8,
    pub(crate) hellos: usize,
    pub(crate) names: HashMap<u32, String>,
    pub(crate) state: Option<StateCode>,
    pub(crate) reason: Option<Reason>,
    pub(crate) detail: String,
    pub(crate) tainted: bool,
    pub(crate) subscribed: bool,
    pub(crate) watchers: u32,
    pub(crate) enabled: KindSet,
    pub(crate) asked: KindSet,
    pub(crate) refused: KindSet,
    pub(crate) by: String,
    pub(crate) clock: Option<Clock>,
    pub(crate) host_buffers: HostBuffers,
    pub(crate) pools: Vec<Pool>,
    pub(crate) loss: Loss,
    pub(crate) losses: usize,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) copies: Vec<Copy>,
    pub(crate) memsets: Vec<Memset>,
    pub(crate) others: Vec<Other>,
    pub(crate) notices: Vec<(String, String)>,
    pub(crate) replies: HashMap<u64, (Outcome, String)>,
    pub(crate) goodbye: Option<String>,
}

impl Viewer {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            next_id: 1,
            sizes: RecordSizes([0; 4]),
            seq: 0,
            gaps: 0,
            pid: 0,
            cupti: None,
            cupti_path: String::new(),
            interface: 0,
            hellos: 0,
            names: HashMap::new(),
            state: None,
            reason: None,
            detail: String::new(),
            tainted: false,
            subscribed: false,
            watchers: 0,
            enabled: KindSet::EMPTY,
            asked: KindSet::EMPTY,
            refused: KindSet::EMPTY,
            by: String::new(),
            clock: None,
            host_buffers: HostBuffers::default(),
            pools: Vec::new(),
            loss: Loss::default(),
            losses: 0,
            kernels: Vec::new(),
            copies: Vec::new(),
            memsets: Vec::new(),
            others: Vec::new(),
            notices: Vec::new(),
            replies: HashMap::new(),
            goodbye: None,
        }
    }

    /// Sends a request; gives its id.
    pub(crate) fn send(&mut self, action: Action<'_>, flags: u8) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut buffer = [0; 2048];
        let request = Request { id, flags, action, by: b"the test" };
        let len = write_frame(&mut buffer, FrameKind::Request, id, |w| request.write(w)).unwrap();
        self.stream.write_all(&buffer[..len]).unwrap();
        id
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(&mut self, action: Action<'_>) -> (Outcome, String) {
        self.ask_with(action, 0)
    }

    pub(crate) fn ask_with(&mut self, action: Action<'_>, flags: u8) -> (Outcome, String) {
        let id = self.send(action, flags);
        self.until("a reply", |viewer| viewer.replies.contains_key(&id));
        self.replies[&id].clone()
    }

    /// Reads frames until `done`.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "waited in vain for {what}; last: {:?} {:?}",
                self.state,
                self.loss
            );
            assert!(self.read_one(), "the stream ended before {what}");
        }
    }

    /// Reads until the end of the stream.
    pub(crate) fn until_end(&mut self) {
        while self.read_one() {}
    }

    /// Reads one frame; `false` at the end of the stream.
    pub(crate) fn read_one(&mut self) -> bool {
        let mut header = [0; HEADER_LEN];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing came for a minute")
            }
            Err(_) => return false,
        }
        let header = Header::read(&header).unwrap();
        let mut body = vec![0; header.len as usize];
        if self.stream.read_exact(&mut body).is_err() {
            return false;
        }
        assert!(header.seq > self.seq, "numbers go up");
        self.gaps += header.seq - self.seq - 1;
        self.seq = header.seq;
        self.take(&Frame { header, body: &body });
        true
    }

    fn take(&mut self, frame: &Frame<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let kind = frame.kind().unwrap();
        assert_eq!(self.hellos == 0, kind == FrameKind::Hello && self.hellos == 0, "a hello comes first");
        match kind {
            FrameKind::Hello => {
                let hello = Hello::read(frame.body).unwrap();
                self.sizes = hello.sizes;
                self.pid = hello.fields.pid;
                self.cupti = hello.fields.cupti_version;
                self.cupti_path = text(hello.fields.cupti_path);
                self.interface = hello.fields.cupti_interface;
                self.hellos += 1;
            }
            FrameKind::Clock => self.clock = Some(Clock::read(frame.body).unwrap()),
            FrameKind::Names => {
                self.names.extend(names::read(frame.body).map(|(id, name)| (id, text(name))));
            }
            FrameKind::Records => {
                let mut runs = Runs::new(frame.body, self.sizes);
                for run in runs.by_ref() {
                    match run.family().unwrap() {
                        Family::Kernel => self.kernels.extend(run.records().map(record::read::<Kernel>)),
                        Family::Copy => self.copies.extend(run.records().map(record::read::<Copy>)),
                        Family::Memset => self.memsets.extend(run.records().map(record::read::<Memset>)),
                        Family::Other => self.others.extend(run.records().map(record::read::<Other>)),
                    }
                }
                assert!(!runs.is_bad());
            }
            FrameKind::Kinds => {
                let kinds = Kinds::read(frame.body).unwrap();
                self.enabled = KindSet(kinds.enabled);
                self.asked = KindSet(kinds.asked);
                self.refused = KindSet(kinds.refused);
                self.by = text(kinds.by);
            }
            FrameKind::State => {
                let state = State::read(frame.body).unwrap();
                self.state = StateCode::from_wire(state.state);
                self.reason = Reason::from_wire(state.reason);
                self.detail = text(state.detail);
                self.tainted = state.tainted == 1;
                self.subscribed = state.subscribed == 1;
                self.watchers = state.watchers;
            }
            FrameKind::HostBuffers => self.host_buffers = HostBuffers::read(frame.body).unwrap(),
            FrameKind::Pools => self.pools = pools::read(frame.body).collect(),
            FrameKind::Loss => {
                self.loss = Loss::read(frame.body).unwrap();
                self.losses += 1;
            }
            FrameKind::Notice => {
                let notice = Notice::read(frame.body).unwrap();
                self.notices.push((text(notice.topic), text(notice.text)));
            }
            FrameKind::Goodbye => self.goodbye = Some(text(Goodbye::read(frame.body).unwrap().reason)),
            FrameKind::Reply => {
                let reply = Reply::read(frame.body).unwrap();
                self.replies.insert(reply.request, (Outcome::from_wire(reply.outcome), text(reply.text)));
            }
            FrameKind::Lifecycle | FrameKind::Observers => {}
            kind => panic!("{kind:?}"),
        }
    }

    /// Records received.
    pub(crate) fn received(&self) -> u64 {
        (self.kernels.len() + self.copies.len() + self.memsets.len() + self.others.len()) as u64
    }

    /// Records that came since this viewer joined, as the shim counts them.
    pub(crate) fn delivered(&self) -> u64 {
        self.loss.walked - self.loss.joined_walked
    }

    /// Whether every record since joining is accounted for, each by a counter of its own.
    pub(crate) fn balances(&self) -> bool {
        let loss = &self.loss;
        loss.walked == loss.framed + loss.queue_full + loss.unknown_kind + loss.discarded
            && loss.offered == self.received() + loss.dropped
            && self.delivered()
                == loss.offered
                    + (loss.queue_full - loss.joined_queue_full)
                    + (loss.unknown_kind - loss.joined_unknown_kind)
    }

    /// Reads until `delivered` records since joining are accounted for.
    pub(crate) fn until_delivered(&mut self, delivered: u64) {
        self.until(&format!("{delivered} records in balance"), |viewer| {
            viewer.losses > 0 && viewer.delivered() >= delivered && viewer.balances()
        });
        assert_eq!(self.delivered(), delivered, "{:?}", self.loss);
    }

    pub(crate) fn valid_kernels(&self) -> usize {
        self.kernels.iter().filter(|kernel| kernel.validity == Validity::Valid as u8).count()
    }

    pub(crate) fn has_notice(&self, topic: &str, part: &str) -> bool {
        self.notices.iter().any(|(t, text)| t == topic && text.contains(part))
    }
}
