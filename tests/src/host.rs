//! A simulated CUDA application in a process of its own, told what to do by lines and answering by lines.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use gtop_sim::Truth;

use crate::build;
use crate::stage::Stage;
use crate::wait::{PATIENCE, wait_for};

/// How to start a host: stepped, with the shim, and with CUPTI beside it, unless told otherwise.
#[must_use = "a host runs once it is started"]
pub struct Setup<'a> {
    stage: &'a Stage,
    scenario: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    injected: bool,
    shell: bool,
    prelude: Option<String>,
    user: Option<u32>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(stage: &'a Stage, scenario: &str) -> Self {
        Self {
            stage,
            scenario: scenario.into(),
            arguments: vec!["--stepped".into()],
            variables: vec![
                ("GTOP_CUPTI".into(), utf8(&stage.path().join("libcupti.so.13"))),
                // Tests have no time to wait for the next watcher before the shim rests.
                ("GTOP_LINGER".into(), "0".into()),
            ],
            injected: true,
            shell: false,
            prelude: None,
            user: None,
        }
    }

    /// Adds an argument of the host.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Lets the application work by the clock.
    pub fn real_time(mut self) -> Self {
        self.arguments.retain(|argument| argument != "--stepped");
        self
    }

    /// Sets a variable of its environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Starts it early: CUPTI is called before the application makes its graphs.
    pub fn early(self) -> Self {
        self.variable("GTOP_EARLY", "1")
    }

    /// Leaves the shim out.
    pub fn without_shim(mut self) -> Self {
        self.injected = false;
        self
    }

    /// Starts it below a shell; see [`Host::parent`].
    pub fn under_a_shell(mut self) -> Self {
        self.shell = true;
        self
    }

    /// Has a shell do this before it becomes the host.
    pub fn prelude(mut self, commands: &str) -> Self {
        self.prelude = Some(commands.into());
        self
    }

    /// Starts it as another user, who can reach the stage.
    pub fn user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    fn scenario(&self) -> String {
        if !self.scenario.contains('\n') {
            return self.scenario.clone();
        }
        let mut file = tempfile::Builder::new()
            .prefix("scenario")
            .suffix(".toml")
            .tempfile_in(self.stage.path())
            .expect("a file");
        file.write_all(self.scenario.as_bytes()).expect("the scenario is written");
        utf8(&file.into_temp_path().keep().expect("the file stays"))
    }

    /// The command line that starts it.
    pub fn command(&self) -> Command {
        let mut command = if let Some(prelude) = &self.prelude {
            let mut shell = self.stage.command(Path::new("/bin/sh"));
            shell.args(["-c", &format!("{prelude}\nexec \"$@\""), "sh"]).arg(build::host());
            shell
        } else if self.shell {
            let mut shell = self.stage.command(Path::new("/bin/sh"));
            // Not the last command, so that the shell does not become it.
            shell.args(["-c", "\"$@\"; exit $?", "sh"]).arg(build::host());
            shell
        } else {
            self.stage.command(&build::host())
        };
        command.arg("--libs").arg(self.stage.path()).args(["--scenario", &self.scenario()]);
        command.args(&self.arguments).env("GTOP_LOG", self.stage.path().join("log"));
        if self.injected {
            command.env("CUDA_INJECTION64_PATH", self.stage.shim());
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(uid) = self.user {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Starts it and waits until the application has begun.
    pub fn start(self) -> Host {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the host starts");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let started = child.id();
        let log = self.stage.path().join("log");
        let mut host = Host::new(Some(child), started, Box::new(input), Box::new(output), log);
        host.begin(self.injected);
        if self.shell {
            host.pid = child_of(started);
        }
        host
    }
}

/// The one child of a process.
fn child_of(parent: u32) -> u32 {
    wait_for("the child", || {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

fn utf8(path: &Path) -> String {
    path.to_str().expect("the test's paths are UTF-8").to_owned()
}

/// A shell with hosts below it; it is killed with the test.
pub struct Shell(Child);

impl Shell {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts hosts of these scenarios below one shell, stepped.
pub fn below_one_shell<const N: usize>(stage: &Stage, scenarios: [&str; N]) -> (Shell, Vec<Host>) {
    let mut script = String::new();
    let mut command = Command::new("true");
    let pipe = |at: usize, way: &str| stage.path().join(format!("{way}{at}"));
    for (at, scenario) in scenarios.iter().enumerate() {
        command = Setup::new(stage, scenario).command();
        for way in ["in", "out"] {
            nix::unistd::mkfifo(&pipe(at, way), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        }
        let arguments: Vec<String> = command
            .get_args()
            .map(|argument| format!("'{}'", argument.to_str().expect("the test's arguments are UTF-8")))
            .collect();
        let (host, arguments) = (utf8(&build::host()), arguments.join(" "));
        let (input, output) = (utf8(&pipe(at, "in")), utf8(&pipe(at, "out")));
        writeln!(script, "'{host}' {arguments} <'{input}' >'{output}' &\necho $!").expect("it fits");
    }
    let mut shell = stage.command(Path::new("/bin/sh"));
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    shell.args(["-c", &format!("{script}wait")]).envs(variables).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = shell.spawn().expect("the shell starts");
    let mut pids = BufReader::new(child.stdout.take().expect("piped")).lines();
    let shell = Shell(child);
    let hosts = (0..N).map(|at| {
        let pid = pids.next().and_then(Result::ok).and_then(|line| line.parse().ok()).expect("a process id");
        // Opened for both, which waits for nobody.
        let open = |way| File::options().read(true).write(true).open(pipe(at, way)).expect("the pipe");
        let mut host =
            Host::new(None, pid, Box::new(open("in")), Box::new(open("out")), stage.path().join("log"));
        host.begin(true);
        host
    });
    let hosts = hosts.collect();
    (shell, hosts)
}

/// How a host ended.
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The lines it still said.
    pub lines: Vec<String>,
    /// What it wrote to standard error.
    pub errors: String,
}

/// A running host; it is killed with the test.
pub struct Host {
    /// The process that was started, unless somebody else did it.
    child: Option<Child>,
    pid: u32,
    input: Option<Box<dyn Write + Send>>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    log: PathBuf,
}

impl Host {
    fn new(
        mut child: Option<Child>,
        pid: u32,
        input: Box<dyn Write + Send>,
        output: Box<dyn Read + Send>,
        log: PathBuf,
    ) -> Self {
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        let stderr = child.as_mut().and_then(|child| child.stderr.take());
        let errors = stderr.map(|mut stderr| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = stderr.read_to_string(&mut text);
                text
            })
        });
        Self { child, pid, input: Some(input), lines, errors, log }
    }

    fn begin(&mut self, injected: bool) {
        self.expect("mapped");
        self.expect(if injected { "injected 1 " } else { "not injected" });
        self.expect("begun");
    }

    /// Waits for a line that begins so.
    pub fn expect(&mut self, start: &str) -> String {
        let line = self.line();
        assert!(line.starts_with(start), "the host said `{line}`, not `{start}`\n{}", self.log());
        line
    }

    fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the host says nothing\n{}", self.log()),
            Err(RecvTimeoutError::Disconnected) => {
                let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
                panic!("the host ended: {errors}\n{}", self.log())
            }
        }
    }

    /// Says a line without waiting for an answer.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").and_then(|()| input.flush()).expect("the host listens");
    }

    /// Says a line and gives what follows the `ok` of the answer.
    pub fn say(&mut self, line: &str) -> String {
        self.tell(line);
        let answer = self.line();
        let text = answer.strip_prefix("ok").unwrap_or_else(|| panic!("{line}: {answer}\n{}", self.log()));
        text.trim_start().to_owned()
    }

    /// What really happened.
    pub fn truth(&mut self) -> Truth {
        let text = self.say("truth");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The process that was started: the host, or the shell above it.
    pub fn parent(&self) -> u32 {
        self.child.as_ref().map_or(self.pid, Child::id)
    }

    /// What the shims of this stage logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        entries(&format!("/proc/{}/fd", self.pid))
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        entries(&format!("/proc/{}/task", self.pid))
    }

    /// Resident memory, bytes.
    pub fn resident(&self) -> u64 {
        resident(self.pid)
    }

    /// Ends it, by one of the host's ways, and waits.
    pub fn end(mut self, how: &str) -> Ended {
        self.say(&format!("exit {how}"));
        self.ended()
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let child = self.child.as_mut().expect("a host that was started by the test itself");
        let status = wait_for("the host's end", || child.try_wait().expect("its status"));
        let lines = self.lines.iter().collect();
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        Ended { status, lines, errors }
    }
}

/// Resident memory of a process, bytes.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("VmRSS") << 10
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of its input ends a host that was not started here.
        self.input = None;
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
