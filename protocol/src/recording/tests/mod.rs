//! What is written is read again.

mod damage;

use std::io::Cursor;
use std::ops::ControlFlow;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::block::{BLOCK_MAGIC, BlockHead, CHUNK};
use super::*;
use crate::frame::{FrameKind, HEADER_LEN, write_frame};
use crate::message::{Hello, HelloFields, Loss, names};
use crate::record::{Family, Kernel, Memset};
use crate::validity::Validity;
use crate::viewer::{Earlier, Watched};
use crate::wire::{Full, Writer as Fields};

/// What an entry held, to be compared.
type Seen = (u64, u64, u32, u16, u64, Vec<u8>);

fn seen(entry: &Entry<'_>) -> Seen {
    let header = entry.frame.header;
    (entry.at.wall, entry.at.steady, entry.stream, header.kind, header.seq, entry.frame.body.to_vec())
}

/// A frame of a kind, with its header.
fn frame(
    kind: FrameKind,
    seq: u64,
    body: impl FnOnce(&mut Fields<'_>) -> Result<(), Full>,
) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; 64 << 10];
    let len = write_frame(&mut bytes, kind, seq, body).unwrap();
    bytes.truncate(len);
    (1, bytes)
}

fn kernel(at: u64, class: Validity) -> Kernel {
    Kernel {
        start: (at * 1000).into(),
        end: (at * 1000 + 300 + at % 7).into(),
        correlation: (at / 4).into(),
        name: ((at % 3 + 1) as u32).into(),
        context: 1.into(),
        stream: ((at % 2) as u32).into(),
        validity: class as u8,
        ..Kernel::default()
    }
}

fn records(seq: u64, count: u64) -> (u32, Vec<u8>) {
    frame(FrameKind::Records, seq, |w| {
        w.u32(1)?;
        w.u32(count as u32)?;
        for at in 0..count {
            let class = if at % 50 == 49 { Validity::Zero } else { Validity::Valid };
            w.bytes(kernel(seq * 100 + at, class).as_bytes())?;
        }
        w.u32(3)?;
        w.u32(1)?;
        w.bytes(Memset { end: seq.into(), ..Memset::default() }.as_bytes())
    })
}

fn hello(seq: u64) -> (u32, Vec<u8>) {
    frame(FrameKind::Hello, seq, |w| Hello::new(HelloFields { pid: 7, ..HelloFields::default() }).write(w))
}

/// A stream as it may come, of so many seconds.
fn stream(seconds: u64) -> Vec<(u64, (u32, Vec<u8>))> {
    let mut frames = vec![
        (0, frame(FrameKind::Watched, 0, |w| Watched { pid: 7 }.write(w))),
        (0, hello(1)),
        (0, frame(FrameKind::Names, 2, |w| names::write_one(w, 1, b"a \"name\"\n\xff"))),
    ];
    for second in 0..seconds {
        for tenth in 0..5 {
            let seq = 3 + second * 10 + tenth * 2;
            let at = second * 1000 + tenth * 200;
            frames.push((at, records(seq, 40)));
            frames.push((
                at,
                frame(FrameKind::Loss, seq + 1, |w| Loss { walked: seq, ..Loss::default() }.write(w)),
            ));
        }
    }
    frames
}

fn write(frames: &[(u64, (u32, Vec<u8>))]) -> (Vec<u8>, Vec<Seen>) {
    let mut writer = Writer::begin(Vec::new(), &head(), Keep::default(), At::default()).unwrap();
    let mut written = Vec::new();
    for (ms, (stream, bytes)) in frames {
        let (frame, _) = Frame::split(bytes).unwrap().unwrap();
        // Someone sets the clock back on the way.
        let wall = 1_764_000_000_000_000_000 + ms * 1_000_000 - if *ms > 1500 { 5_000_000_000 } else { 0 };
        let entry = Entry { at: At { wall, steady: ms * 1_000_000 }, stream: *stream, frame };
        writer.write(&entry).unwrap();
        written.push(seen(&entry));
    }
    (writer.finish().unwrap(), written)
}

fn head() -> HeadFields<'static> {
    HeadFields { host: b"node-7", gtop_version: b"0.1.0", part: 1, ..HeadFields::default() }
}

/// All that can be read, and what could not.
fn read(bytes: &[u8], part: Part) -> Result<(Vec<Seen>, Option<Damage>), OpenError> {
    let mut recording = Recording::open(Cursor::new(bytes))?;
    let mut decoder = Decoder::default();
    let (mut entries, mut damage) = (Vec::new(), recording.damage());
    for at in 0..recording.chunks().len() {
        let done = recording.load(at, part).and_then(|block| {
            decoder.decode(&block, &mut |entry| {
                entries.push(seen(entry));
                ControlFlow::Continue(())
            })
        });
        if let Err(found) = done {
            damage.get_or_insert(found);
        }
    }
    Ok((entries, damage))
}

#[test]
fn frames_come_back_in_order_and_the_index_tells_what_is_where() {
    let (bytes, written) = write(&stream(4));
    let (back, damage) = read(&bytes, Part::Whole).unwrap();
    assert_eq!((damage, back == written), (None, true));
    let recording = Recording::open(Cursor::new(&bytes)).unwrap();
    assert_eq!((recording.head(), recording.is_complete()), (head(), true));
    let mut counts = Counts::default();
    recording.chunks().iter().for_each(|chunk| counts.add(&chunk.counts()));
    assert_eq!((counts.of(Family::Kernel), counts.of(Family::Memset), counts.total()), (800, 20, 820));
    assert!(recording.chunks().len() >= 4, "a chunk holds a second at most");
    assert_eq!(recording.range(), (0, 3_800_000_000));
    assert_eq!(recording.chunks().iter().map(Chunk::invalid).sum::<u64>(), 0);
    let at = recording.chunk_at(2_000_000_000);
    assert!(recording.chunks()[at].last.steady >= 2_000_000_000);
    assert!(at > 0 && recording.chunks()[at - 1].last.steady < 2_000_000_000);
    assert_eq!(recording.steady(1_764_000_000_000_000_000 + 500_000_000), 500_000_000);
}

#[test]
fn a_side_has_all_frames_and_no_records() {
    let (bytes, written) = write(&stream(2));
    let (side, damage) = read(&bytes, Part::Side).unwrap();
    assert_eq!((side.len(), damage), (written.len(), None));
    for (side, whole) in side.iter().zip(&written) {
        let emptied = whole.3 == FrameKind::Records as u16;
        assert_eq!(side.4, whole.4);
        assert_eq!(side.5, if emptied { &[][..] } else { &whole.5 });
    }
}

#[test]
fn records_take_few_bytes() {
    let mut frames = vec![(0, hello(1))];
    frames.extend((0..200).map(|seq| (seq, records(seq + 2, 200))));
    let (bytes, _) = write(&frames);
    assert!(bytes.len() < 200 * 201, "{} bytes for {} records", bytes.len(), 200 * 201);
}

#[test]
fn a_file_that_grows_is_followed() {
    let (bytes, written) = write(&stream(3));
    let mut recording = Recording::open(Cursor::new(bytes[..bytes.len() / 3].to_vec())).unwrap();
    let before = recording.chunks().len();
    assert!(!recording.is_complete() && !recording.refresh().unwrap());
    recording.replace_source(Cursor::new(bytes));
    assert!(recording.refresh().unwrap() && recording.is_complete());
    assert!(recording.chunks().len() > before && recording.damage().is_none());
    let frames: u32 = recording.chunks().iter().map(|chunk| chunk.frames).sum();
    assert_eq!(frames as usize, written.len());
}

/// The blocks of a file, each with its place.
fn blocks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == BLOCK_MAGIC).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
}

#[test]
fn a_recording_of_nothing_is_whole() {
    let (bytes, _) = write(&[]);
    assert_eq!(read(&bytes, Part::Whole).unwrap(), (Vec::new(), None));
}

#[test]
fn later_parts_stand_alone() {
    let mut writer = Writer::begin(Vec::new(), &head(), Keep::default(), At::default()).unwrap();
    let mut odd = vec![0; 40];
    odd[0..4].copy_from_slice(&20u32.to_le_bytes());
    odd[4..6].copy_from_slice(&999u16.to_le_bytes());
    odd.truncate(HEADER_LEN + 20);
    let mut frames = stream(1);
    frames.insert(2, (0, (1, odd.clone())));
    let write = |writer: &mut Writer<Vec<u8>>, frames: &[(u64, (u32, Vec<u8>))]| {
        for (ms, (stream, bytes)) in frames {
            let (frame, _) = Frame::split(bytes).unwrap().unwrap();
            let at = At { wall: *ms, steady: ms * 1_000_000 };
            writer.write(&Entry { at, stream: *stream, frame }).unwrap();
        }
    };
    write(&mut writer, &frames);
    let one = writer.rotate(Vec::new(), &HeadFields { part: 2, ..head() }, At::default()).unwrap();
    write(&mut writer, &[(2000, records(900, 30))]);
    let two = writer.finish().unwrap();
    assert_eq!(read(&one, Part::Whole).unwrap().1, None);
    let (entries, damage) = read(&two, Part::Whole).unwrap();
    assert_eq!(damage, None);
    let kinds: Vec<u16> = entries.iter().map(|entry| entry.3).collect();
    let known = [FrameKind::Watched, FrameKind::Hello].map(|kind| kind as u16);
    assert_eq!(kinds, [&known[..], &[3, 999, 9, 260, 4]].concat());
    assert_eq!(entries.iter().find(|entry| entry.3 == 999).unwrap().5, &odd[HEADER_LEN..]);
    let earlier = Earlier::read(&entries[5].5).unwrap();
    assert_eq!((earlier.kernel, earlier.memcpy, earlier.memset, earlier.other), (200, 0, 5, 0));
    assert_eq!((earlier.invalid, earlier.kernels), (Some(0), Some(200)));
    assert_eq!(Recording::open(Cursor::new(&two)).unwrap().head().part, 2);
}

#[test]
fn names_outlive_events_and_much_that_is_known_is_said_too() {
    const EVENT: usize = 256 << 10;
    let mut writer = Writer::begin(Vec::new(), &head(), Keep::default(), At::default()).unwrap();
    let mut put = |second: u64, (stream, bytes): (u32, Vec<u8>)| {
        let (frame, _) = Frame::split(&bytes).unwrap().unwrap();
        let at = At { wall: second, steady: second * 1_000_000_000 };
        writer.write(&Entry { at, stream, frame }).unwrap();
    };
    put(0, hello(1));
    put(0, frame(FrameKind::Names, 2, |w| names::write_one(w, 7, b"the first")));
    for second in 1u64..98 {
        let mut body = vec![0; EVENT];
        body[..8].copy_from_slice(&second.to_le_bytes());
        let len = EVENT as u32;
        let header = crate::frame::Header { len, kind: FrameKind::Lifecycle as u16, seq: second + 2 };
        put(second, (1, [&header.to_bytes()[..], &body].concat()));
    }
    put(98, records(101, 10));
    let one = writer.rotate(Vec::new(), &head(), At::default()).unwrap();
    let two = writer.finish().unwrap();
    let names = |seen: &[Seen]| {
        let seen = seen.iter().filter(|entry| entry.3 == FrameKind::Names as u16);
        seen.flat_map(|entry| names::read(&entry.5).map(|(id, name)| (id, name.to_vec())).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let known = [(7, b"the first".to_vec())];
    assert_eq!(names(&read(&two, Part::Whole).unwrap().0), known, "events went, and it stayed");
    let (before, said) = said(&one, 90).unwrap();
    let bytes: usize = said.iter().map(|entry| entry.5.len()).sum();
    assert!(before > 60 && bytes > 4 * EVENT * 4, "{bytes} bytes are said before {before}");
    assert_eq!(names(&said), known);
}

/// What a state block says, and before which chunk it stands.
fn said(bytes: &[u8], before: usize) -> Option<(usize, Vec<Seen>)> {
    let mut recording = Recording::open(Cursor::new(bytes)).unwrap();
    let (first, block) = recording.state(before)?;
    let mut entries = Vec::new();
    let _ = Decoder::default().decode(&block, &mut |entry| {
        entries.push(seen(entry));
        ControlFlow::Continue(())
    });
    Some((first, entries))
}

#[test]
fn what_must_be_known_is_said_again_on_the_way() {
    let mut frames = stream(200);
    frames.insert(30, (frames[29].0, frame(FrameKind::Notice, 0, |w| w.bytes(b"a mark"))));
    let (bytes, written) = write(&frames);
    assert_eq!(said(&bytes, 63), None, "it is short still");
    for before in [64, 100, 180] {
        let (first, entries) = said(&bytes, before).unwrap();
        assert!(first <= before && before - first < 64, "{first} of {before}");
        let recording = Recording::open(Cursor::new(&bytes)).unwrap();
        let (mut counts, passed) = (Counts::default(), &recording.chunks()[..first]);
        for chunk in passed {
            counts.add(&chunk.counts());
        }
        let passed: u32 = passed.iter().map(|chunk| chunk.frames).sum();
        let told = &written[..passed as usize];
        let last = |kind: FrameKind, of: &[Seen]| {
            let found = of.iter().rev().find(|entry| entry.3 == kind as u16);
            found.map(|entry| entry.5.clone())
        };
        for kind in [FrameKind::Watched, FrameKind::Hello, FrameKind::Names, FrameKind::Loss] {
            assert_eq!(last(kind, &entries), last(kind, told), "{kind:?}");
        }
        let earlier = Earlier::read(&last(FrameKind::Earlier, &entries).unwrap()).unwrap();
        assert_eq!((earlier.kernel, earlier.memset), (counts.of(Family::Kernel), counts.of(Family::Memset)));
        let noted = entries.last().unwrap();
        assert_eq!((noted, noted.3), (&written[30], FrameKind::Notice as u16), "and when it was noted");
    }
    let (back, damage) = read(&bytes, Part::Whole).unwrap();
    assert_eq!((damage, back == written), (None, true), "it is no part of the stream");
}

#[test]
fn a_recording_from_before_there_were_state_blocks_is_read() {
    let chunk = Chunk { frames: 3, state: 77, ..Chunk::default() };
    let summary = chunk.summary();
    let head = BlockHead { kind: CHUNK, summary: summary.len() as u32, ..BlockHead::default() };
    let older = &summary[..summary.len() - 8];
    let read = Chunk::read(&BlockHead { summary: older.len() as u32, ..head }, 0, older).unwrap();
    assert_eq!((read.frames, read.state), (3, 0));
    // What a newer one appends is passed over.
    let newer = [&summary[..], &[1; 12]].concat();
    let read = Chunk::read(&BlockHead { summary: newer.len() as u32, ..head }, 0, &newer).unwrap();
    assert_eq!((read.frames, read.state), (3, 77));
}

#[test]
fn blocks_of_a_kind_nobody_knows_are_passed_over() {
    let (bytes, written) = write(&stream(3));
    let blocks = blocks(&bytes);
    let head = BlockHead { kind: 9, number: 2, rows: 5, ..BlockHead::default() };
    let unknown = [&head.to_bytes(&[])[..], b"hello"].concat();
    let at = blocks[1].start;
    let without_index = &bytes[at..blocks[blocks.len() - 1].start];
    let newer = [&bytes[..at], &unknown, without_index].concat();
    let (back, damage) = read(&newer, Part::Whole).unwrap();
    assert!(back == written);
    assert_eq!(damage.unwrap().offset as usize, newer.len(), "only the index is missing");
}

#[test]
fn records_of_any_class_come_back_and_are_counted() {
    let invalid = |seq: u64| {
        frame(FrameKind::Records, seq, |w| {
            w.u32(1)?;
            w.u32(Validity::ALL.len() as u32)?;
            for (at, class) in Validity::ALL.into_iter().enumerate() {
                let times = [(0, 0), (0, 9), (9, 0), (9, 5), (u64::MAX, u64::MAX), (1, u64::MAX)];
                let (start, end) = times[at % times.len()];
                let kernel = Kernel {
                    start: start.into(),
                    end: end.into(),
                    validity: class as u8,
                    ..kernel(1, class)
                };
                w.bytes(kernel.as_bytes())?;
            }
            Ok(())
        })
    };
    let frames: Vec<_> =
        std::iter::once((0, hello(1))).chain((0..5).map(|at| (at, invalid(at + 2)))).collect();
    let (bytes, written) = write(&frames);
    assert!(read(&bytes, Part::Whole).unwrap().0 == written);
    let recording = Recording::open(Cursor::new(&bytes)).unwrap();
    assert_eq!(recording.chunks()[0].classes[..Validity::ALL.len()], [5; Validity::ALL.len()]);
    assert_eq!(recording.chunks()[0].invalid(), 5 * (Validity::ALL.len() as u64 - 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_frames_come_back(
        frames in proptest::collection::vec(
            (0u64..400, 0u32..3, prop_oneof![Just(1u16), Just(3), Just(4), 0u16..300], any::<u64>(),
             proptest::collection::vec(any::<u8>(), 0..200), 0u64..20),
            0..60),
    ) {
        let (mut ms, mut all) = (0, Vec::new());
        for (later, number, kind, seq, body, count) in frames {
            ms += later;
            let (_, bytes) = match (kind, count) {
                (1, _) => hello(seq),
                (4, 1..) => records(seq % 100_000, count),
                _ => {
                    let header = crate::frame::Header { len: body.len() as u32, kind, seq };
                    (0, [&header.to_bytes()[..], &body].concat())
                }
            };
            all.push((ms, (number, bytes)));
        }
        let (bytes, written) = write(&all);
        let (back, damage) = read(&bytes, Part::Whole).unwrap();
        prop_assert_eq!(damage, None);
        prop_assert_eq!(back, written);
    }
}
