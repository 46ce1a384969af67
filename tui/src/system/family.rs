//! The shims of a process and its descendants, those that come later included: a server starts its workers when it
//! likes, and a worker opens its socket when it begins to use CUDA.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use gtop_protocol::rendezvous;

use super::attach::Target;
use super::process::{Process, descendants, parents};
use super::socket;

/// Every so many looks the whole family is looked at, not the folders alone: a process may have another environment,
/// and so another folder, than its parent.
const FULL: u32 = 15;
/// So many looks at first are at the whole family: just after its start a process shows no environment yet.
const FIRST: u32 = 3;

/// A family that is watched for new shims.
#[derive(Debug)]
pub struct Family {
    root: u32,
    /// When the root was started; its pid comes to be another process's after its end.
    started: Option<u64>,
    /// Processes whose sockets were handed out, by pid and start time.
    known: HashSet<(u32, u64)>,
    /// Where sockets of the family are likely.
    folders: Vec<PathBuf>,
    seen: BTreeSet<OsString>,
    looks: u32,
    /// Members without the shim that were handed out, and those that were seen once.
    judged: HashSet<(u32, u64)>,
    waiting: HashSet<(u32, u64)>,
}

impl Family {
    /// The family of a process, of which `known` are watched already.
    #[must_use]
    pub fn of<'a>(root: u32, known: impl IntoIterator<Item = &'a Process>) -> Self {
        let known = known.into_iter().map(|process| (process.pid, process.start_time)).collect();
        Self {
            root,
            started: Process::read(root).ok().map(|process| process.start_time),
            known,
            folders: Vec::new(),
            seen: BTreeSet::new(),
            looks: 0,
            judged: HashSet::new(),
            waiting: HashSet::new(),
        }
    }

    /// The process all others descend from.
    #[must_use]
    pub const fn root(&self) -> u32 {
        self.root
    }

    /// Every member's pid by now.
    fn members(&self) -> Vec<u32> {
        let parents = parents();
        // Looked at behind the others: what it is now it was then.
        if self.head().is_none() {
            return Vec::new();
        }
        descendants(&parents, self.root)
    }

    /// The root, unless it has ended.
    fn head(&self) -> Option<Process> {
        Process::read(self.root).ok().filter(|root| Some(root.start_time) == self.started)
    }

    /// These members are known to lack the shim.
    pub fn judged<'a>(&mut self, members: impl IntoIterator<Item = &'a Process>) {
        self.judged.extend(members.into_iter().map(|process| (process.pid, process.start_time)));
    }

    /// Members that have come to use a GPU and lack the shim, each once. One whose driver is about to load it is no
    /// such member, so each is looked at twice.
    pub fn strangers(&mut self) -> Vec<Target> {
        let members = self.members();
        let own = descendants(&parents(), std::process::id());
        let key = |process: &Process| (process.pid, process.start_time);
        let members = members.into_iter().filter(|pid| !own.contains(pid));
        let candidates = members
            .filter_map(|pid| Process::read(pid).ok())
            .filter(|process| !self.known.contains(&key(process)) && !self.judged.contains(&key(process)));
        let lacking: Vec<Target> = candidates.map(Target::of).filter(Target::lacks_the_shim).collect();
        let now = lacking.iter().map(|target| key(&target.process)).collect();
        let before = std::mem::replace(&mut self.waiting, now);
        let found: Vec<Target> =
            lacking.into_iter().filter(|target| before.contains(&key(&target.process))).collect();
        self.judged.extend(found.iter().map(|target| key(&target.process)));
        found
    }

    /// Hands the shim of a process out again.
    pub fn forget(&mut self, pid: u32) {
        self.known.retain(|(known, _)| *known != pid);
        self.seen.clear();
    }

    /// Shims that have come since the last look. Mostly this lists a few folders; it never waits.
    pub fn news(&mut self) -> Vec<Target> {
        let full = self.looks < FIRST || self.looks.is_multiple_of(FULL);
        self.looks = self.looks.saturating_add(1);
        if full && let Some(root) = self.head() {
            self.folders = socket::folders(&root);
        }
        let now = self.sockets();
        if now.is_subset(&self.seen) && !full {
            return Vec::new();
        }
        self.seen = now;
        let members = self.members().into_iter().filter_map(|pid| Process::read(pid).ok());
        let unknown = members.filter(|p| !self.known.contains(&(p.pid, p.start_time)));
        let found: Vec<Target> = unknown
            .filter_map(|process| Some((socket::find(&process).found?, process)))
            .map(|(endpoint, process)| Target { process, reach: Ok(endpoint) })
            .collect();
        self.known.extend(found.iter().map(|target| (target.process.pid, target.process.start_time)));
        found
    }

    /// The names of all sockets in the folders, whoever's.
    fn sockets(&self) -> BTreeSet<OsString> {
        let entries = self.folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names
            .filter(|name| name.to_str().is_some_and(|name| rendezvous::parse_file_name(name).is_some()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// Not a test of its own: a worker that opens a socket when told to.
    #[test]
    fn worker() {
        let Some(dir) = std::env::var_os("GTOP_TEST_WORKER") else { return };
        let own = Process::read(std::process::id()).unwrap();
        std::io::stdin().read_exact(&mut [0]).unwrap();
        let path =
            PathBuf::from(dir).join("gtop").join(rendezvous::file_name(own.inner_pid(), own.start_time));
        let _listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        println!("bound");
        let _ = std::io::stdin().read(&mut [0]);
    }

    #[test]
    fn a_worker_is_seen_when_it_opens_its_socket_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("gtop")).unwrap();
        let mut server = Command::new("sh")
            .args(["-c", "\"$0\" --exact \"$1\" --nocapture; true"])
            .arg(std::env::current_exe().unwrap())
            .arg("system::family::tests::worker")
            .envs([("GTOP_TEST_WORKER", dir.path()), ("XDG_RUNTIME_DIR", dir.path())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while crate::system::process::environment(server.id()).unwrap().is_empty() {
            std::thread::yield_now();
        }
        let mut family = Family::of(server.id(), []);
        for _ in 0..=FIRST {
            assert!(family.news().is_empty());
        }

        std::io::Write::write_all(server.stdin.as_mut().unwrap(), b"x").unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
        lines.by_ref().map_while(Result::ok).find(|line| line.ends_with("bound")).unwrap();
        let found = family.news();
        assert_eq!(found.len(), 1, "the last look was at the folders alone, and so was this one at first");
        assert_eq!(found[0].process.parent, server.id());
        assert!(family.news().is_empty());
        assert!(Family::of(server.id(), [&found[0].process]).news().is_empty());
        let mut other = Family { started: Some(1), ..Family::of(server.id(), []) };
        assert!(other.news().is_empty(), "the pid has become another process's");
        assert_eq!(Family::of(server.id(), []).news().len(), 1);
        drop(server.stdin.take());
        lines.map_while(Result::ok).for_each(drop);
        server.wait().unwrap();
    }
}
