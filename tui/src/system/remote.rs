//! Processes of another machine, whose sockets OpenSSH forwards to a private folder here. Nothing listens on a network
//! for that, and nothing of gtop needs to be installed there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gtop_protocol::rendezvous;
use gtop_protocol::viewer::Halted;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::attach::Target;
use super::process::{Process, family, halted_of, printable};
use super::socket::Endpoint;

/// A connection to another machine, ended when dropped.
#[derive(Debug)]
pub struct Remote {
    way: Way,
    /// Where the forwarded sockets lie; nobody else can enter it.
    folder: TempDir,
}

/// A connection that stands open, for as long as its [`Remote`] lives.
#[derive(Clone, Debug)]
pub struct Way {
    host: String,
    control: PathBuf,
}

/// Why nothing on another machine can be watched.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// That is no host.
    #[error("`{0}` is no host: use HOST or USER@HOST, as for ssh")]
    Host(String),
    /// `ssh` cannot be run.
    #[error("ssh cannot be run: {0}")]
    Ssh(#[from] io::Error),
    /// `ssh` failed.
    #[error("ssh to {0}: {1}")]
    Failed(String, String),
    /// There is no such process there.
    #[error("there is no process {1} on {0}")]
    Gone(String, u32),
    /// None of the processes has a socket.
    #[error(
        "neither process {1} on {0} nor what descends from it has gtop's shim; run `gtop stat --attach {1} --inject` \
         there, or start it with CUDA_INJECTION64_PATH=$(gtop shim)"
    )]
    NoShim(String, u32),
}

/// What each process is: field 22 is its start, field 4 its parent; its user and its numbers come of `status`.
const PROCESSES: &str = "cat /proc/[0-9]*/stat 2>/dev/null; echo; \
                         grep -E '^(Uid|NSpid):' /proc/[0-9]*/status 2>/dev/null; exit 0\n";

impl Remote {
    /// Connects to a host as `ssh` does, asking for what `ssh` asks for.
    pub fn connect(host: &str) -> Result<Self, RemoteError> {
        // What begins with a dash would be an option.
        if host.is_empty()
            || host.starts_with('-')
            || host.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return Err(RemoteError::Host(printable(host.as_bytes())));
        }
        // Short, since a socket's path must be.
        let folder = tempfile::Builder::new().prefix("gtop-ssh-").tempdir()?;
        let way = Way { host: host.to_owned(), control: folder.path().join("control") };
        let remote = Self { way, folder };
        let status = remote.ssh().args(["-M", "-N", "-f", "-o", "ControlPersist=no", "--", host]).status()?;
        if status.success() { Ok(remote) } else { Err(remote.failed("there is no connection")) }
    }

    fn ssh(&self) -> Command {
        self.way.ssh()
    }

    fn failed(&self, why: &str) -> RemoteError {
        RemoteError::Failed(self.way.host.clone(), printable(why.trim().as_bytes()))
    }

    /// Has a shell there run a script; gives what it prints.
    fn run(&self, script: &str) -> Result<String, RemoteError> {
        let mut ssh = self.ssh();
        ssh.args(["-T", "--", &self.way.host, "sh"]);
        let mut child = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(script.as_bytes())?;
        }
        let ran = child.wait_with_output()?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
        } else {
            Err(self.failed(&String::from_utf8_lossy(&ran.stderr)))
        }
    }

    /// The process and its descendants there that have a shim, their sockets forwarded.
    pub fn targets(&self, pid: u32) -> Result<Vec<Target>, RemoteError> {
        let all = processes(&self.run(PROCESSES)?);
        let members = family(&all, pid);
        if members.is_empty() {
            return Err(RemoteError::Gone(self.way.host.clone(), pid));
        }
        let found = self.run(&search(&members))?;
        let mut targets = Vec::new();
        for process in members {
            let Some(path) = socket_of(process, &found) else { continue };
            let local = self.folder.path().join(format!("{}.sock", process.pid));
            let forward = format!("{}:{path}", local.display());
            let ran = self.ssh().args(["-O", "forward", "-L", &forward, "--", &self.way.host]).output()?;
            if !ran.status.success() {
                return Err(self.failed(&String::from_utf8_lossy(&ran.stderr)));
            }
            let shown = PathBuf::from(format!("{}:{path}", self.way.host));
            let endpoint = Endpoint::forwarded(&local, shown, self.way.clone())?;
            targets.push(Target { process: process.clone(), reach: Ok(endpoint) });
        }
        if targets.is_empty() { Err(RemoteError::NoShim(self.way.host.clone(), pid)) } else { Ok(targets) }
    }
}

impl Way {
    fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-o").arg(format!("ControlPath={}", self.control.display()));
        ssh
    }

    /// Looks once a second what keeps a process there from running, until what is returned is dropped.
    pub async fn watch(&self, process: &Process) -> io::Result<Looks> {
        let mut ssh = tokio::process::Command::from(self.ssh());
        ssh.args(["-T", "--", &self.host, "sh"]).kill_on_drop(true);
        let mut ssh = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(mut input), Some(output)) = (ssh.stdin.take(), ssh.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let script = format!(
            "while read -r l < /proc/{}/stat; do printf '%s\\n' \"$l\"; sleep 1; done 2>/dev/null; exit 0\n",
            process.pid
        );
        input.write_all(script.as_bytes()).await?;
        Ok(Looks { _ssh: ssh, output, pid: process.pid, start_time: process.start_time })
    }
}

/// What is seen of a process of another machine.
#[derive(Debug)]
pub struct Looks {
    _ssh: tokio::process::Child,
    output: tokio::process::ChildStdout,
    pid: u32,
    start_time: u64,
}

impl Looks {
    /// What keeps it from running now; `None` once nothing is seen any more. May be cancelled and called again.
    pub async fn next(&mut self) -> Option<Halted> {
        let mut text = [0; 4096];
        loop {
            let read = self.output.read(&mut text).await.ok().filter(|read| *read > 0)?;
            let text = String::from_utf8_lossy(&text[..read]);
            if let Some(halted) = last_in(&text, self.pid, self.start_time) {
                return Some(halted);
            }
        }
    }
}

/// What the last of these lines of `/proc/PID/stat` says of a process; those of another, or not whole, say nothing.
fn last_in(text: &str, pid: u32, start_time: u64) -> Option<Halted> {
    text.lines().rev().find_map(|line| {
        of_stat(line).filter(|seen| (seen.pid, seen.start_time) == (pid, start_time))?;
        Some(halted_of(line.rsplit_once(") ")?.1.chars().next()?))
    })
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self
            .ssh()
            .args(["-O", "exit", "--", &self.way.host])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// What [`PROCESSES`] printed.
fn processes(text: &str) -> Vec<Process> {
    let mut found: HashMap<u32, Process> = HashMap::new();
    for line in text.lines() {
        if let Some(process) = of_stat(line) {
            found.insert(process.pid, process);
            continue;
        }
        // `/proc/PID/status:NAME: values`
        let Some((path, values)) = line.split_once("/status:") else { continue };
        let pid = path.rsplit('/').next().and_then(|pid| pid.parse().ok());
        let Some(process) = pid.and_then(|pid: u32| found.get_mut(&pid)) else { continue };
        let numbers =
            |values: &str| values.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
        if let Some(values) = values.strip_prefix("NSpid:") {
            process.pids = numbers(values);
        } else if let Some(values) = values.strip_prefix("Uid:") {
            process.uid = numbers(values).get(1).copied().unwrap_or_default();
        }
    }
    found.into_values().collect()
}

/// One line of `/proc/PID/stat`; the name may hold anything, brackets and blanks included.
fn of_stat(line: &str) -> Option<Process> {
    let (front, fields) = line.rsplit_once(") ")?;
    let (pid, name) = front.split_once(" (")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        name: printable(name.as_bytes()),
        ..Process::default()
    })
}

/// A script that prints `PID PATH` for each socket of these processes, by a path that leads to it from outside a
/// container.
fn search(members: &[&Process]) -> String {
    let mut script = String::new();
    for process in members {
        let (pid, name) = (process.pid, rendezvous::file_name(process.inner_pid(), process.start_time));
        let _ = writeln!(
            script,
            "grep -o '/.*/{name}$' /proc/{pid}/net/unix 2>/dev/null | while read -r p; do \
             for f in \"/proc/{pid}/root$p\" \"$p\"; do [ -S \"$f\" ] && echo \"{pid} $f\" && break; done; done"
        );
    }
    script.push_str("exit 0\n");
    script
}

/// The socket of a process in what [`search`] printed, if its path is one that can be forwarded.
fn socket_of<'a>(process: &Process, found: &'a str) -> Option<&'a str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@=,".contains(c);
    let paths = found.lines().filter_map(|line| line.split_once(' '));
    let mut own = paths.filter(|(pid, _)| *pid == process.pid.to_string()).map(|(_, path)| path);
    own.find(|path| {
        path.starts_with('/') && path.chars().all(plain) && path.len() <= rendezvous::MAX_SOCKET_PATH
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_whatever_their_names() {
        let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let text = format!(
            "7 (a) b (c) {rest}\n8 (x\x1b[2J) S 7 {}\n\n/proc/7/status:Uid:\t0\t1000\t0\t0\n/proc/7/status:NSpid:\t7\t3\n\
             nonsense\n",
            rest.split_once("S 1 ").unwrap().1
        );
        let mut found = processes(&text);
        found.sort_by_key(|process| process.pid);
        assert_eq!((found[0].pid, found[0].parent, found[0].start_time, found[0].uid), (7, 1, 4711, 1000));
        assert_eq!((found[0].name.as_str(), found[0].inner_pid()), ("a) b (c", 3));
        assert_eq!((found[1].parent, found[1].name.as_str()), (7, "x␛[2J"));
    }

    #[test]
    fn what_keeps_a_process_there_from_running_is_read() {
        let line = |state: &str, start: u64| {
            format!("7 (a) T (b) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {start} 1 1\n")
        };
        let text = line("S", 4711) + &line("T", 4711);
        assert_eq!(last_in(&text, 7, 4711), Some(Halted::Stopped));
        assert_eq!(last_in(&(text.clone() + "7 (a) T (b) R 1"), 7, 4711), Some(Halted::Stopped));
        assert_eq!(last_in(&(text + &line("S", 4711)), 7, 4711), Some(Halted::No));
        assert_eq!(last_in(&line("T", 9), 7, 4711), None, "another process has the pid");
    }

    #[test]
    fn only_plain_paths_are_forwarded() {
        let process = Process { pid: 7, start_time: 9, pids: vec![7, 3], ..Process::default() };
        assert!(search(&[&process]).contains("/.*/3-9.sock$' /proc/7/net/unix"));
        assert_eq!(
            socket_of(&process, "8 /x/3-9.sock\n7 /tmp/gtop-0/3-9.sock\n"),
            Some("/tmp/gtop-0/3-9.sock")
        );
        for evil in ["7 relative\n", "7 /a:b/3-9.sock\n", "7 /a b\n", "7\n", ""] {
            assert_eq!(socket_of(&process, evil), None, "{evil}");
        }
    }

    #[test]
    fn an_option_is_no_host() {
        for host in ["", "-oProxyCommand=x", "a b", "a\n"] {
            assert!(matches!(Remote::connect(host), Err(RemoteError::Host(_))), "{host}");
        }
    }
}
