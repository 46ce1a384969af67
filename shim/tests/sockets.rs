//! Viewers that stop reading, die in the middle of a frame, or talk nonsense.

mod common;

use common::{Host, PER_TURN, Setup, Viewer, mixed, wait_for};
use gtop_protocol::control::{Action, MAX_REQUEST};
use gtop_protocol::frame::{FrameKind, Header, write_frame};
use gtop_protocol::message::Outcome;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Lets the host work until so many records more were walked, as the viewer is told.
fn work(host: &mut Host, viewer: &mut Viewer, turns: u64) {
    let target = viewer.loss.walked + turns * PER_TURN;
    host.say(&format!("turns {turns}"));
    viewer.ask(Action::Flush);
    viewer.until("the work", |viewer| viewer.loss.walked >= target && viewer.balances());
}

#[test]
fn a_viewer_that_stops_reading_loses_its_own_records_and_nobody_elses() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut quick = host.watcher();
    let mut slow = host.watcher();
    // More frames than one viewer may hold back: each flush makes one.
    let rounds = 400u64;
    for _ in 0..rounds {
        host.say("turns 100");
        quick.ask(Action::Flush);
    }
    quick.until_delivered(rounds * 100 * PER_TURN);
    assert_eq!((quick.loss.dropped, quick.loss.queue_full, quick.gaps), (0, 0, 0));
    slow.until_delivered(rounds * 100 * PER_TURN);
    assert!(slow.loss.dropped > 0 && slow.gaps > 0, "{:?}", slow.loss);
    assert!(slow.received() > 0);
    assert!(slow.has_notice("loss", "this viewer is too slow"));
    // After the gap it is a viewer like any other.
    let dropped = slow.loss.dropped;
    host.say("turns 10");
    slow.ask(Action::Flush);
    slow.until_delivered((rounds * 100 + 10) * PER_TURN);
    assert_eq!(slow.loss.dropped, dropped);
}

#[test]
fn a_viewer_may_die_in_the_middle_of_a_frame_a_hundred_times() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut witness = host.watcher();
    for round in 0..100usize {
        let mut victim = host.watcher();
        host.say("turns 200");
        let mut part = vec![0; 1 + round * 37 % 200];
        victim.stream.read_exact(&mut part).unwrap();
        drop(victim);
        witness.ask(Action::Flush);
    }
    witness.until_delivered(100 * 200 * PER_TURN);
    assert_eq!((witness.loss.queue_full, witness.loss.dropped), (0, 0));
    let mut last = host.watcher();
    host.say("turns 10");
    last.ask(Action::Flush);
    last.until_delivered(10 * PER_TURN);
    assert_eq!(last.watchers, 2, "the dead are not counted");
}

/// Sends these bytes; gives whether the connection is still there.
fn survives(host: &Host, bytes: &[u8]) -> bool {
    let mut viewer = host.viewer();
    viewer.stream.write_all(bytes).unwrap();
    // The answer to a good request shows that what came before was passed over.
    let id = 77;
    let mut buffer = [0; 256];
    let request = gtop_protocol::control::Request { id, flags: 0, action: Action::Mark(b"x"), by: b"" };
    let len = write_frame(&mut buffer, FrameKind::Request, 1, |w| request.write(w)).unwrap();
    let _ = viewer.stream.write_all(&buffer[..len]);
    while !viewer.replies.contains_key(&id) {
        if !viewer.read_one() {
            return false;
        }
    }
    true
}

#[test]
fn nonsense_ends_at_most_its_own_connection() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut witness = host.watcher();
    let header = |len: u32, kind: u16| Header { len, kind, seq: 1 }.to_bytes().to_vec();
    assert!(!survives(&host, &header(u32::MAX, 256)), "an absurd length");
    assert!(!survives(&host, &[header(MAX_REQUEST as u32, 256), vec![0; MAX_REQUEST]].concat()), "too long");
    assert!(!survives(&host, &[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), &[b' '; 4096]].concat()));
    assert!(survives(&host, &header(0, 999)), "an unknown frame is skipped");
    assert!(survives(&host, &header(0, 256)), "an empty request is answered");
    assert!(survives(&host, &[header(32, 256), vec![0xff; 32]].concat()), "a damaged one too");
    assert!(survives(&host, &[header(5, 4), vec![1; 5]].concat()), "frames only a shim sends");
    work(&mut host, &mut witness, 10);
}

#[test]
fn requests_of_the_future_and_damaged_ones_are_answered() {
    let host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.viewer();
    let mut buffer = [0; 64];
    let len = write_frame(&mut buffer, FrameKind::Request, 1, |w| {
        w.u64(9)?;
        w.u8(0)?;
        w.u8(200)?;
        w.u32(0)?;
        w.blob(b"")?;
        w.blob(b"")
    })
    .unwrap();
    viewer.stream.write_all(&buffer[..len]).unwrap();
    viewer.until("a reply", |viewer| viewer.replies.contains_key(&9));
    assert_eq!(viewer.replies[&9].0, Outcome::Refused);
    let len = write_frame(&mut buffer, FrameKind::Request, 2, |w| w.u32(1)).unwrap();
    viewer.stream.write_all(&buffer[..len]).unwrap();
    viewer.until("a reply", |viewer| viewer.replies.contains_key(&0));
    assert_eq!(viewer.replies[&0].0, Outcome::Failed);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let host = Setup::new(&mixed(130_001)).start();
    let mut viewer = host.viewer();
    let mut buffer = [0; 256];
    let request =
        gtop_protocol::control::Request { id: 5, flags: 0, action: Action::Mark(b"slowly"), by: b"" };
    let len = write_frame(&mut buffer, FrameKind::Request, 1, |w| request.write(w)).unwrap();
    for byte in &buffer[..len] {
        viewer.stream.write_all(&[*byte]).unwrap();
    }
    viewer.until("the mark", |viewer| viewer.has_notice("mark", "slowly") && viewer.replies.contains_key(&5));
}

#[test]
fn a_flood_of_requests_that_nobody_reads_the_answers_of_fills_nothing() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut witness = host.watcher();
    let before = host.resident();
    let flooder = host.viewer();
    flooder.stream.set_nonblocking(true).unwrap();
    let mut buffer = [0; 1500];
    let request =
        gtop_protocol::control::Request { id: 1, flags: 0, action: Action::Mark(&[b'x'; 1000]), by: b"" };
    let len = write_frame(&mut buffer, FrameKind::Request, 1, |w| request.write(w)).unwrap();
    let mut refused = 0;
    for _ in 0..200_000 {
        if (&flooder.stream).write(&buffer[..len]).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 0, "the shim stops reading");
    witness.notices.clear();
    work(&mut host, &mut witness, 10);
    let grown = host.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "grown by {grown} bytes");
}

#[test]
fn more_connections_than_there_is_room_for_are_closed() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let path = host.socket();
    let mut viewers: Vec<Viewer> = (0..20).map(|_| Viewer::connect(&path)).collect();
    for viewer in &mut viewers {
        viewer.until("a hello", |viewer| viewer.hellos > 0);
    }
    let mut extra = UnixStream::connect(&path).unwrap();
    let mut byte = [0];
    assert_eq!(extra.read(&mut byte).unwrap(), 0, "closed at once");
    viewers.truncate(8);
    let mut viewer = host.watcher();
    host.say("turns 10");
    viewer.ask(Action::Flush);
    viewer.until_delivered(10 * PER_TURN);
}

/// A viewer that asks to watch, and whether it may.
fn tries(host: &Host) -> Option<Viewer> {
    let mut viewer = host.viewer();
    let id = viewer.send(Action::Watch, 0);
    while !viewer.replies.contains_key(&id) && viewer.read_one() {}
    viewer.replies.contains_key(&id).then_some(viewer)
}

#[test]
fn short_requests_have_room_beside_as_many_viewers_as_there_can_be() {
    let host = Setup::new(&mixed(130_001)).start();
    let _watching: Vec<Viewer> = (0..16).map(|_| host.watcher()).collect();
    let mut short = host.viewer();
    let said = short.ask(Action::Mark(b"a word"));
    assert_eq!((said.0, short.watchers), (Outcome::Done, 16));
    let mut late = host.viewer();
    late.send(Action::Watch, 0);
    late.until_end();
    assert_eq!(late.goodbye.as_deref(), Some("its shim serves as many viewers as it can"));
    assert_eq!(short.ask(Action::Mark(b"another")).0, Outcome::Done);
}

#[test]
fn a_viewer_that_reads_nothing_gives_way_and_one_that_reads_does_not() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut reads = host.watcher();
    let idle: Vec<Viewer> = (0..15).map(|_| host.watcher()).collect();
    let newcomers: Vec<Viewer> = (0..15)
        .map(|_| {
            wait_for("a place", || {
                // All the while it reads what there is.
                reads.ask(Action::Mark(b"here"));
                tries(&host)
            })
        })
        .collect();
    for mut viewer in idle {
        viewer.until_end();
    }
    drop(newcomers);
    work(&mut host, &mut reads, 20);
    assert_eq!((reads.gaps, reads.loss.dropped), (0, 0));
}

#[test]
fn sixteen_slow_viewers_leave_room_for_a_quick_one() {
    let mut host = Setup::new(&mixed(130_001)).start();
    let mut quick = host.watcher();
    let slow: Vec<Viewer> = (0..15).map(|_| host.watcher()).collect();
    for _ in 0..300 {
        host.say("turns 20");
        quick.ask(Action::Flush);
    }
    quick.until_delivered(300 * 20 * PER_TURN);
    assert_eq!((quick.loss.dropped, quick.loss.queue_full), (0, 0));
    drop(slow);
    work(&mut host, &mut quick, 20);
    quick.until("alone", |viewer| viewer.watchers == 1);
}
