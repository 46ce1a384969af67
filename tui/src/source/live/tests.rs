//! A shim made of a thread and a script, at a socket that is found as a real one is.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream as Std};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use clap::Parser;

use gtop_protocol::frame::Header;
use gtop_protocol::message::{HelloFields, Loss, Outcome, Reply};
use gtop_protocol::record::{Family, Kernel};
use gtop_protocol::rendezvous;
use gtop_protocol::wire::{Full, Writer};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use tokio::sync::oneshot;
use zerocopy::IntoBytes;

use super::*;
use crate::app::{self, Ask, Request as Asked};
use crate::command::ctl;
use crate::model::snapshot::{Snapshot, SourceKind};
use crate::session::Session;
use crate::system::attach::Target;
use crate::system::nvml;

/// A process has one socket, and these tests are one process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The socket of this process, as a shim in it would have opened it.
struct Shim {
    process: Process,
    endpoint: Endpoint,
    server: JoinHandle<()>,
    _dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Shim {
    /// Serves one connection with each of `scripts`, in turn.
    fn start(scripts: Vec<fn(&mut Peer)>) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let process = Process::read(std::process::id()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = dir.path().join(rendezvous::file_name(process.inner_pid(), process.start_time));
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let endpoint = socket::find(&process).found.unwrap();
        let server = std::thread::spawn(move || {
            for script in scripts {
                script(&mut Peer { stream: listener.accept().unwrap().0, seq: 0 });
            }
        });
        Self { process, endpoint, server, _dir: dir, _turn: turn }
    }

    async fn connect(&self) -> Result<Live, ConnectError> {
        Live::connect(self.process.clone(), &self.endpoint, true, "a test").await
    }

    fn end(self) {
        self.server.join().unwrap();
    }
}

/// The shim's end of a connection.
struct Peer {
    stream: Std,
    seq: u64,
}

impl Peer {
    fn frame(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        self.seq += 1;
        let mut buf = vec![0; 64 << 10];
        let len = write_frame(&mut buf, kind, self.seq, body).unwrap();
        buf.truncate(len);
        buf
    }

    fn send(&mut self, kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) {
        let frame = self.frame(kind, body);
        self.stream.write_all(&frame).unwrap();
    }

    fn hello(&mut self) {
        self.send(FrameKind::Hello, |w| Hello::new(HelloFields { pid: 7, ..Default::default() }).write(w));
    }

    /// Kernels in frames cut into pieces of `piece` bytes.
    fn kernels(&mut self, frames: usize, piece: usize) {
        let kernel = Kernel { start: 5.into(), end: 9.into(), ..Kernel::default() };
        for _ in 0..frames {
            let frame = self.frame(FrameKind::Records, |w| {
                w.u32(Family::Kernel as u32)?;
                w.u32(100)?;
                (0..100).try_for_each(|_| w.bytes(kernel.as_bytes()))
            });
            frame.chunks(piece).for_each(|piece| self.stream.write_all(piece).unwrap());
        }
    }

    fn loss(&mut self, walked: u64) {
        self.send(FrameKind::Loss, |w| Loss { walked, framed: walked, ..Default::default() }.write(w));
    }

    fn goodbye(&mut self) {
        self.send(FrameKind::Goodbye, |w| Goodbye { reason: b"the program ended" }.write(w));
    }

    /// The next request: its id and what is asked.
    fn request(&mut self) -> (u64, String) {
        let mut head = [0; HEADER_LEN];
        self.stream.read_exact(&mut head).unwrap();
        let mut body = vec![0; Header::read(&head).unwrap().len as usize];
        self.stream.read_exact(&mut body).unwrap();
        let request = Request::read(&body).unwrap();
        (
            request.id,
            format!("{:?} {} {}", request.action, request.flags, String::from_utf8_lossy(request.by)),
        )
    }

    fn join(&mut self) {
        self.hello();
        assert_eq!(self.request().1, "Watch 0 a test");
    }
}

fn block_on(work: impl Future<Output = ()>) {
    crate::command::block_on(work).unwrap();
}

/// Everything that comes until the source ends: bytes of frames, and links.
async fn all(live: &mut Live) -> (usize, Vec<String>) {
    let (mut bytes, mut links) = (0, Vec::new());
    loop {
        match live.next().await {
            Input::Frames(frames) => bytes += frames.len(),
            Input::Link(Link::Ended(why)) => {
                links.push(why);
                return (bytes, links);
            }
            Input::Link(Link::Lost { retries, .. }) => links.push(format!("lost {retries}")),
            Input::Link(link) => links.push(format!("{link:?}")),
        }
    }
}

#[test]
fn frames_come_whole_however_they_are_cut() {
    let shim = Shim::start(vec![|peer| {
        peer.join();
        peer.kernels(20, 13);
        peer.kernels(20, 3001);
        peer.goodbye();
    }]);
    block_on(async {
        let mut live = shim.connect().await.unwrap();
        let (mut records, mut seq) = (0, 0);
        while let Input::Frames(bytes) = live.next().await {
            let mut rest = bytes;
            while let Some((frame, tail)) = Frame::split(rest).unwrap() {
                seq += 1;
                assert_eq!(frame.header.seq, seq);
                records += usize::from(frame.kind() == Some(FrameKind::Records)) * 100;
                rest = tail;
            }
            assert!(rest.is_empty());
        }
        assert_eq!(records, 4000);
        shim.end();
    });
}

#[test]
fn a_goodbye_ends_the_source_with_its_reason() {
    let shim = Shim::start(vec![|peer| {
        peer.join();
        peer.goodbye();
    }]);
    block_on(async {
        let mut live = shim.connect().await.unwrap();
        let pid = std::process::id();
        assert_eq!(all(&mut live).await.1, [format!("process {pid}: the program ended")]);
        shim.end();
    });
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let shim = Shim::start(vec![
        |peer| {
            peer.join();
            peer.kernels(1, 1000);
            // Cut in the middle of a frame.
            let half = peer.frame(FrameKind::Notice, |w| w.blob(&[0; 500]));
            peer.stream.write_all(&half[..100]).unwrap();
        },
        |peer| {
            peer.join();
            // A header that no frame can have.
            peer.stream.write_all(&[0xff; 64]).unwrap();
            let _ = peer.stream.read(&mut [0]);
        },
        // Not ours any more, for a moment.
        |peer| peer.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap(),
        |peer| {
            peer.join();
            peer.goodbye();
        },
    ]);
    block_on(async {
        let mut live = shim.connect().await.unwrap();
        let (_, links) = all(&mut live).await;
        assert_eq!(links[..5], ["lost 0", "Up", "lost 0", "lost 1", "Up"]);
        assert_eq!(links.len(), 6);
        shim.end();
    });
}

#[test]
fn what_is_not_ours_is_told_apart() {
    type Script = fn(&mut Peer);
    let cases: [(Script, &str); 5] = [
        (|peer| peer.stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n and more of it").unwrap(), "not gtop's shim"),
        (|peer| peer.send(FrameKind::Clock, |w| w.u64(1)), "not gtop's shim"),
        (|peer| peer.stream.write_all(&[1, 2, 3]).unwrap(), "not gtop's shim"),
        (|_| {}, "hung up"),
        (
            |peer| {
                peer.send(FrameKind::Hello, |w| {
                    Hello { protocol: 9, ..Hello::new(HelloFields::default()) }.write(w)
                });
            },
            "speaks protocol 9",
        ),
    ];
    for (script, text) in cases {
        let shim = Shim::start(vec![script]);
        block_on(async {
            let error = shim.connect().await.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
            shim.end();
        });
    }
}

#[test]
fn a_session_counts_asks_and_comes_to_rest() {
    let shim = Shim::start(vec![|peer| {
        peer.join();
        peer.kernels(30, 4096);
        let (id, asked) = peer.request();
        assert_eq!(asked, "Disable(1) 1 a test");
        let reply = Reply { request: id, outcome: Outcome::Failed as u8, text: b"no\x07" };
        peer.send(FrameKind::Reply, |w| reply.write(w));
        let (id, asked) = peer.request();
        assert_eq!(asked, "Flush 0 a test");
        peer.kernels(3, 100);
        peer.send(FrameKind::Reply, |w| Reply { request: id, ..Default::default() }.write(w));
        peer.loss(3300);
        // The other side hangs up.
        let _ = peer.stream.read(&mut [0]);
    }]);
    block_on(async {
        let live = shim.connect().await.unwrap();
        let session = Session::new(SourceKind::Live, "a test");
        session.watch(live);
        let (answer, answered) = oneshot::channel();
        let pid = std::process::id();
        let ask = Ask::Disable([gtop_protocol::Kind::Kernel].into_iter().collect());
        session.ask(Asked { pid, ask, yes: true, answer });
        let answer = answered.await.unwrap();
        assert_eq!((answer.outcome, answer.text.as_str()), (Outcome::Failed, "no␇"));
        session.come_to_rest(Duration::from_mins(1)).await;
        let snapshot = session.model_mut().snapshot(Moment::now());
        let process = &snapshot.processes[0];
        assert_eq!((process.records.shown, process.records.delivered), (3300, 3300));
        assert_eq!((process.identity.pid, process.identity.inner_pid), (pid, Some(7)));
        assert_eq!(process.link, Link::Up);
        let (answer, gone) = oneshot::channel();
        session.ask(Asked { pid: 1, ask: Ask::Arm, yes: false, answer });
        assert!(gone.await.is_err(), "nobody to ask");
        drop(session);
    });
    shim.end();
}

#[test]
fn a_session_rests_when_a_process_says_nothing_more_though_devices_go_on() {
    let shim = Shim::start(vec![|peer| {
        peer.join();
        let (id, asked) = peer.request();
        assert_eq!(asked, "Flush 0 a test");
        peer.send(FrameKind::Reply, |w| Reply { request: id, ..Default::default() }.write(w));
        // The other side hangs up.
        let _ = peer.stream.read(&mut [0]);
    }]);
    block_on(async {
        let live = shim.connect().await.unwrap();
        let session = Session::new(SourceKind::Live, "a test");
        session.watch(live);
        let (devices, samples) = tokio::sync::watch::channel(nvml::Snapshot::default());
        session.sample_devices(samples);
        tokio::task::spawn_local(async move {
            while devices.send(nvml::Snapshot::default()).is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        // It would take this hour when it did not come to rest.
        session.come_to_rest(Duration::from_hours(1)).await;
        let snapshot = session.model_mut().snapshot(Moment::now());
        assert_eq!(snapshot.processes[0].link, Link::Up);
        drop(session);
    });
    shim.end();
}

#[test]
fn a_socket_that_is_not_listened_at_yet_is_waited_for() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let process = Process::read(std::process::id()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = dir.path().join(rendezvous::file_name(process.inner_pid(), process.start_time));
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let endpoint = socket::find(&process).found.unwrap();
    block_on(async {
        // It is refused before anybody listens, since this is begun first.
        let connected = Live::connect(process, &endpoint, true, "a test");
        let listening = async {
            listen(&socket, Backlog::new(1).unwrap()).unwrap();
            let listener = UnixListener::from(socket);
            std::thread::spawn(move || Peer { stream: listener.accept().unwrap().0, seq: 0 }.join())
        };
        let (connected, served) = tokio::join!(connected, listening);
        connected.unwrap();
        served.join().unwrap();
    });
}

/// An engine that watches this shim's process.
fn engine(shim: &Shim) -> Result<app::Handle, app::AttachError> {
    let endpoint = socket::find(&shim.process).found.unwrap();
    let target = Target { process: shim.process.clone(), reach: Ok(endpoint) };
    let files = app::Files::default();
    app::attach(
        NOBODY,
        vec![target],
        app::Newcomers::default(),
        SourceKind::Live,
        "a test",
        no_devices(),
        files,
    )
}

#[test]
fn the_engine_publishes_answers_and_ends_with_its_handle() {
    let shim = Shim::start(vec![|peer| {
        peer.hello();
        assert_eq!(peer.request().1, "Watch 0 gtop");
        peer.kernels(5, 100);
        let (id, asked) = peer.request();
        assert_eq!(asked, "Mark([104, 105]) 0 gtop");
        let reply = Reply { request: id, outcome: Outcome::NeedsYes as u8, text: b"it would hurt" };
        peer.send(FrameKind::Reply, |w| reply.write(w));
        // The engine hangs up when nobody holds its handle.
        assert_eq!(peer.stream.read(&mut [0]).unwrap(), 0);
    }]);
    let pid = std::process::id();
    let mut handle = engine(&shim).unwrap();
    block_on(async {
        let all = |snapshot: &Arc<Snapshot>| {
            snapshot.processes.first().is_some_and(|process| process.records.shown == 500)
        };
        handle.snapshots.wait_for(all).await.unwrap();
        let (answer, answered) = oneshot::channel();
        let request = Asked { pid, ask: Ask::Mark("hi".into()), yes: false, answer };
        handle.requests.send(request).await.unwrap();
        let answer = answered.await.unwrap();
        assert_eq!((answer.outcome, answer.text.as_str()), (Outcome::NeedsYes, "it would hurt"));
    });
    drop(handle);
    shim.end();
}

#[test]
fn an_engine_with_nobody_to_watch_says_why() {
    let shim = Shim::start(vec![|peer| peer.stream.write_all(b"220 smtp.example ESMTP, ready").unwrap()]);
    let error = engine(&shim).unwrap_err().to_string();
    assert!(error.contains("not gtop's shim") && error.contains(&std::process::id().to_string()), "{error}");
    shim.end();
}

/// A family without members.
const NOBODY: u32 = 0;

/// NVML without a helper worth the name.
fn no_devices() -> nvml::Options {
    nvml::Options { program: "/bin/false".into(), ..nvml::Options::default() }
}

/// A command line with `gtop ctl` alone.
#[derive(Parser)]
struct Ctl {
    #[command(flatten)]
    args: ctl::Args,
}

/// What `gtop ctl` does with these arguments for this process, when whoever is asked says `confirm`: its exit code.
fn ctl(action: &[&str], confirm: bool) -> u8 {
    let pid = std::process::id().to_string();
    let args = ["ctl", "--attach", &pid].into_iter().chain(action.iter().copied());
    let confirm = |asked, consequence: &str| {
        assert_eq!((asked, consequence), (std::process::id(), "as asked"));
        confirm
    };
    let args = Ctl::try_parse_from(args).unwrap().args;
    ctl::carry_out(&args, &confirm).unwrap_or_else(|failure| failure.code)
}

/// Answers one request of `gtop ctl disable kernel memcpy`, which must have these flags.
fn answer(peer: &mut Peer, flags: u8, outcome: Outcome) {
    if peer.seq == 0 {
        peer.hello();
    }
    let (id, asked) = peer.request();
    assert_eq!(asked, format!("Disable(3) {flags} gtop ctl"));
    let reply = Reply { request: id, outcome: outcome as u8, text: b"as asked" };
    peer.send(FrameKind::Reply, |w| reply.write(w));
}

#[test]
fn ctl_asks_without_watching_and_its_exit_code_says_what_came_of_it() {
    type Case = (fn(&mut Peer), &'static [&'static str], bool, u8);
    let cases: [Case; 7] = [
        (|peer| answer(peer, 0, Outcome::Done), &[], false, 0),
        (|peer| answer(peer, 1, Outcome::Done), &["--yes"], false, 0),
        (|peer| answer(peer, 0, Outcome::NeedsYes), &[], false, 1),
        (
            |peer| {
                answer(peer, 0, Outcome::NeedsYes);
                answer(peer, 1, Outcome::Done);
            },
            &[],
            true,
            0,
        ),
        (|peer| answer(peer, 0, Outcome::Refused), &[], false, 1),
        (|peer| answer(peer, 0, Outcome::Failed), &[], false, 1),
        // Hangs up before it answers.
        (Peer::hello, &[], false, 3),
    ];
    for (script, yes, confirm, code) in cases {
        let shim = Shim::start(vec![script]);
        assert_eq!(ctl(&[&["disable", "kernel", "memcpy"], yes].concat(), confirm), code);
        shim.end();
    }
}
