use std::io::{Cursor, Write};
use std::ops::ControlFlow;

use gtop_protocol::frame::{Frame, write_frame};
use gtop_protocol::message::Loss;
use gtop_protocol::recording::{At, HeadFields, Keep, Recording, Writer};

use super::tape::convert;
use super::*;

use crate::model::time::SECOND;

const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/cupti-13.0.85-vllm-0.24.0.cuptibuf.xz");

/// The vLLM fixture so many times in a row, five seconds apart, as a recording.
fn long(times: u64) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let (bytes, _) = convert(Path::new(FIXTURE)).unwrap();
    let mut whole = Recording::open(Cursor::new(bytes)).unwrap();
    let mut decoder = Decoder::default();
    let mut writer =
        Writer::begin(Vec::new(), &HeadFields::default(), Keep::default(), At::default()).unwrap();
    let mut seq = 0;
    for time in 0..times {
        for chunk in 0..whole.chunks().len() {
            let block = whole.load(chunk, Part::Whole).unwrap();
            let _ = decoder
                .decode(&block, &mut |entry| {
                    let first = [FrameKind::Watched, FrameKind::Hello, FrameKind::Names].map(Some);
                    if time == 0 || !first.contains(&entry.frame.kind()) {
                        let shift = time * 5_000_000_000;
                        let at = At { wall: entry.at.wall + shift, steady: entry.at.steady + shift };
                        let mut frame = entry.frame;
                        if frame.header.seq > 0 {
                            seq += 1;
                            frame.header.seq = seq;
                        }
                        writer.write(&Entry { at, frame, ..*entry }).unwrap();
                    }
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
    }
    file.write_all(&writer.finish().unwrap()).unwrap();
    file
}

fn shown(player: &mut Player) -> (u64, Vec<(String, u64)>) {
    let snapshot = player.snapshot();
    let process = &snapshot.processes[0];
    let kernels = process.kernels.iter().map(|row| (row.name.mangled.clone(), row.calls));
    (process.records.shown, kernels.collect())
}

#[test]
fn raw_buffers_are_played_too() {
    let mut player = Player::open(Path::new(FIXTURE)).unwrap();
    let (first, last) = player.range();
    assert!(last > first && player.recording().is_complete());
    player.advance(last, None);
    assert!(player.is_at_end());
    assert_eq!(shown(&mut player).0, 42_176);
}

#[test]
fn every_way_to_a_moment_shows_the_same() {
    let file = long(3);
    let mut player = Player::open(file.path()).unwrap();
    let (first, last) = player.range();
    let middle = first + (last - first) / 2;
    player.advance(middle, None);
    let there = shown(&mut player);
    assert!(there.0 > 0 && there.0 < 3 * 42_176);
    player.seek(last);
    assert!(player.fill(None));
    assert_eq!(shown(&mut player).0, 3 * 42_176);
    player.seek(middle);
    player.fill(None);
    assert_eq!((shown(&mut player) == there, player.now().steady), (true, middle));
    player.seek(0);
    assert_eq!(player.now().steady, first);
    player.seek(u64::MAX);
    player.fill(None);
    assert_eq!((player.now().steady, player.since()), (last, None));
}

#[test]
fn what_led_to_a_moment_is_filled_in_behind_it() {
    let file = long(4);
    let mut player = Player::open(file.path()).unwrap();
    let (first, last) = player.range();
    player.seek(last);
    let soon = shown(&mut player).0;
    assert!((1..=FIRST.records).contains(&soon) && player.since().is_some() && player.wants_more());
    // In pieces, as between keys; it is played on meanwhile, and back again.
    let mut pieces = 0;
    while player.wants_more() {
        assert_eq!(player.now().steady, last);
        player.fill(Some(Instant::now()));
        pieces += 1;
    }
    assert_eq!((shown(&mut player).0, player.since(), pieces > 1), (4 * 42_176, None, true));
    player.seek(first);
    assert_eq!(shown(&mut player).0, Player::open(file.path()).map(|mut fresh| shown(&mut fresh).0).unwrap());
    player.seek(last);
    assert!(shown(&mut player).0 <= FIRST.records, "the first picture has little");
    player.step(false);
    let there = player.now();
    player.fill(None);
    let mut plain = Player::open(file.path()).unwrap();
    plain.advance(there.steady, None);
    assert!(shown(&mut player) == shown(&mut plain));
}

#[test]
fn steps_go_forth_and_back() {
    let file = long(2);
    let mut player = Player::open(file.path()).unwrap();
    let mut places = vec![];
    while places.len() < 5 && player.step(true) {
        places.push(player.now().steady);
    }
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
    for place in places.iter().rev().skip(1) {
        assert!(player.step(false));
        assert_eq!(player.now().steady, *place);
    }
    player.seek(u64::MAX);
    assert!(!player.step(true));
}

#[test]
fn a_far_jump_counts_anew_and_says_since_when() {
    let file = long(3);
    let mut player = Player::open(file.path()).unwrap();
    player.reach = [Reach { records: 50_000, chunks: 16 }; 2];
    let (first, last) = player.range();
    player.seek(last);
    let since = player.since().expect("not everything was counted");
    assert!(since.steady > first && since.steady < last);
    let snapshot = player.snapshot();
    let records = &snapshot.processes[0].records;
    assert!(records.shown > 0 && records.shown <= 50_000, "{records:?}");
    assert!(snapshot.processes[0].kernels.iter().all(|row| !row.name.mangled.is_empty()));
    let quiet = snapshot.events.iter().all(|event| event.topic != "gap");
    assert!(quiet, "what was jumped over was not dropped: {:?}", snapshot.events);
    player.seek(first);
    assert_eq!(player.since(), None);
}

#[test]
fn what_a_jump_leaves_out_of_a_server_was_not_dropped() {
    let mut player = Player::new(crate::source::sample::open().unwrap(), "sample");
    player.reach = [Reach { records: 50_000, chunks: 16 }; 2];
    player.seek(u64::MAX);
    assert!(player.since().is_some());
    let snapshot = player.snapshot();
    assert!(snapshot.events.iter().all(|event| event.topic != "gap"), "{:?}", snapshot.events);
    assert!(snapshot.processes.iter().all(|process| process.lost.is_empty()));
}

#[test]
fn kernels_are_found() {
    let file = long(2);
    let mut player = Player::open(file.path()).unwrap();
    player.seek(u64::MAX);
    let rarest = shown(&mut player).1.into_iter().min_by_key(|(_, calls)| *calls).unwrap().0;
    player.seek(0);
    let what = Find::Kernel(vec![rarest]);
    let mut found = vec![];
    while player.find(&what) {
        found.push(player.now().steady);
    }
    assert!(!found.is_empty() && found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
    assert!(!player.find(&Find::Invalid) && !player.find(&Find::Mark { ahead: true }));
}

/// A recording of so many seconds with little in it, whose lifetime has everything that is state.
fn sparse(seconds: u64) -> Vec<u8> {
    let (bytes, _) = convert(Path::new(FIXTURE)).unwrap();
    let mut whole = Recording::open(Cursor::new(bytes)).unwrap();
    let (mut first, mut records) = (Vec::new(), Vec::new());
    let mut decoder = Decoder::default();
    let block = whole.load(0, Part::Whole).unwrap();
    let _ = decoder.decode(&block, &mut |entry| {
        let header = entry.frame.header.to_bytes();
        let bytes = [&header[..], entry.frame.body].concat();
        if entry.frame.kind() == Some(FrameKind::Records) { &mut records } else { &mut first }.push(bytes);
        ControlFlow::Continue(())
    });
    records.sort_by_key(Vec::len);
    let mut writer =
        Writer::begin(Vec::new(), &HeadFields::default(), Keep::default(), At::default()).unwrap();
    let mut write = |second: u64, bytes: &[u8], seq: u64| {
        let (mut frame, _) = Frame::split(bytes).unwrap().unwrap();
        frame.header.seq = seq;
        let at = At { wall: second * SECOND, steady: second * SECOND };
        writer.write(&Entry { at, stream: 1, frame }).unwrap();
    };
    for bytes in &first {
        write(0, bytes, 0);
    }
    let mut bytes = vec![0; 1000];
    for second in 1..seconds {
        write(second, &records[0], 2 * second);
        let text = format!("at {second}");
        let mark = Notice { topic: b"mark", text: text.as_bytes(), ..Notice::default() };
        let loss = Loss { walked: second * 10_000, ..Loss::default() };
        let len = if second % 100 == 50 {
            write_frame(&mut bytes, FrameKind::Notice, 1, |w| mark.write(w)).unwrap()
        } else {
            write_frame(&mut bytes, FrameKind::Loss, 1, |w| loss.write(w)).unwrap()
        };
        write(second, &bytes[..len], 2 * second + 1);
    }
    writer.finish().unwrap()
}

#[test]
fn a_far_jump_begins_at_what_is_said_on_the_way_and_shows_the_same() {
    let bytes = sparse(700);
    let open =
        |bytes: &[u8]| Player::new(Recording::open(Box::new(Cursor::new(bytes.to_vec())) as _).unwrap(), "x");
    // The same without what is said again: each such block is damaged.
    let mut without = bytes.clone();
    for at in 0..bytes.len() - 5 {
        if bytes[at..at + 4] == *b"gblk" && bytes[at + 4] == 3 {
            without[at + 24] ^= 1;
        }
    }
    assert!(without != bytes);
    let (mut player, mut plain) = (open(&bytes), open(&without));
    let mut said = 0;
    for second in [650, 120, 699, 20, 330] {
        said += usize::from(player.tape.recording.state(second as usize).is_some());
        assert!(plain.tape.recording.state(second as usize).is_none());
        player.seek(second * SECOND);
        plain.seek(second * SECOND);
        assert_eq!(player.since(), plain.since());
        assert!(shown(&mut player) == shown(&mut plain), "at {second}");
        let (one, other) = (player.snapshot(), plain.snapshot());
        let (one_process, other_process) = (&one.processes[0], &other.processes[0]);
        assert_eq!(one_process.records, other_process.records, "at {second}");
        assert_eq!(one_process.identity, other_process.identity);
        let marks = |snapshot: &Snapshot| {
            let marks = snapshot.events.iter().filter(|event| event.topic == "mark");
            marks.map(|event| (event.time, event.text.clone())).collect::<Vec<_>>()
        };
        assert_eq!(marks(&one), marks(&other), "at {second}");
        assert_eq!(marks(&one).len() as u64, (second + 50) / 100, "at {second}");
    }
    assert_eq!(said, 4);
}
