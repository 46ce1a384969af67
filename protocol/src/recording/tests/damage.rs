//! Recordings that are cut, mixed up, damaged or written on a full disk.

use std::io::{self, Cursor};

use proptest::prelude::*;

use super::super::block::{BLOCK_LEN, BLOCK_MAGIC, BlockHead, CHUNK, HEAD_LEN, MAX_SIDE, Packed, STATE};
use super::super::*;
use super::{blocks, head, read, said, stream, write};
use crate::frame::MAX_BODY;

#[test]
fn a_recording_cut_anywhere_gives_what_came_before() {
    let (bytes, written) = write(&stream(3));
    let mut last = 0;
    for cut in (0..bytes.len()).step_by(7).chain(bytes.len() - 40..bytes.len()) {
        match read(&bytes[..cut], Part::Whole) {
            Ok((back, damage)) => {
                assert!(written.starts_with(&back), "cut at {cut}");
                assert!(back.len() >= last || cut < HEAD_LEN, "cut at {cut}");
                // Without the last bytes of all nothing is missing.
                let said = damage.map_or(back == written, |damage| damage.offset <= cut as u64);
                assert!(said, "cut at {cut}");
                last = back.len();
            }
            Err(OpenError::Foreign) => assert!(cut < 8),
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
    assert_eq!(last, written.len(), "without its index nothing is missing");
}

#[test]
fn chunks_out_of_order_are_put_in_order_and_said() {
    let (bytes, written) = write(&stream(3));
    let blocks = blocks(&bytes);
    let mut mixed = bytes[..blocks[0].start].to_vec();
    for block in [1, 0, 2, 2, 3] {
        mixed.extend_from_slice(&bytes[blocks[block].clone()]);
    }
    let (back, damage) = read(&mixed, Part::Whole).unwrap();
    assert!(written.starts_with(&back) && !back.is_empty());
    assert_eq!(damage.map(|damage| damage.offset as usize), Some(blocks[0].start));
}

#[test]
fn a_missing_chunk_is_said() {
    let (bytes, _) = write(&stream(3));
    let blocks = blocks(&bytes);
    let without = [&bytes[..blocks[1].start], &bytes[blocks[2].start..]].concat();
    let (_, damage) = read(&without, Part::Whole).unwrap();
    let damage = damage.unwrap();
    assert_eq!(damage.what, "chunks are missing before this one");
    assert_eq!(damage.offset as usize, blocks[1].start);
}

#[test]
fn a_chunk_that_unpacks_to_more_than_it_says_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    let mut chunk = Chunk {
        frames: 1,
        side: Packed { len: bomb.len() as u32, raw: MAX_SIDE as u32, check: crc32fast::hash(&bomb) },
        ..Chunk::default()
    };
    let file = |chunk: &Chunk| {
        let summary = chunk.summary();
        let head = BlockHead {
            kind: CHUNK,
            number: 1,
            summary: summary.len() as u32,
            side: bomb.len() as u32,
            ..BlockHead::default()
        };
        let (start, _) = write(&[]);
        let head_len = blocks(&start)[0].start;
        [&start[..head_len], &head.to_bytes(&summary), &summary, &bomb].concat()
    };
    let (entries, damage) = read(&file(&chunk), Part::Side).unwrap();
    assert!(entries.is_empty());
    let recording = Recording::open(Cursor::new(file(&chunk))).unwrap();
    assert_eq!(recording.chunks().len(), 1);
    assert!(damage.is_some());
    chunk.side.raw = u32::MAX;
    let recording = Recording::open(Cursor::new(file(&chunk))).unwrap();
    assert_eq!(recording.damage().unwrap().what, "a chunk says things of itself that cannot be");
    // Nor is more read of it than packing makes of what it holds at most.
    chunk.side.raw = 1;
    let long = BlockHead { kind: CHUNK, side: MAX_SIDE as u32 * 2, ..BlockHead::default() };
    assert_eq!(Chunk::read(&long, 0, &chunk.summary()), None);
}

/// Counts the bytes that are read.
struct Counting<'a>(Cursor<&'a [u8]>, &'a std::cell::Cell<u64>);

impl io::Read for Counting<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(to)?;
        self.1.set(self.1.get() + read as u64);
        Ok(read)
    }
}

impl io::Seek for Counting<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn what_only_looks_like_blocks_is_read_no_more_than_a_few_times() {
    let (start, written) = write(&stream(2));
    let blocks = blocks(&start);
    for (kind, longest) in [(2u32, usize::MAX), (u32::from(CHUNK), 64 << 10), (7, 0)] {
        let mut bytes = start[..blocks[1].start].to_vec();
        let end = bytes.len() + (2 << 20);
        while bytes.len() < end {
            let head = bytes.len();
            let rest = (end - head).saturating_sub(BLOCK_LEN).min(longest) as u32;
            bytes.extend_from_slice(&BLOCK_MAGIC);
            for field in [kind, 1, rest, 0, 0, 0xdead_beef] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
            bytes.resize(head + if longest == 0 { 28 } else { BLOCK_LEN }, 0);
        }
        let read = std::cell::Cell::new(0);
        let mut recording = Recording::open(Counting(Cursor::new(&bytes), &read)).unwrap();
        assert_eq!(recording.chunks().len(), 1, "what came before is there");
        assert!(recording.damage().is_some() && !written.is_empty());
        let first = read.get();
        assert!(first < 6 * bytes.len() as u64, "{first} bytes were read of {}", bytes.len());
        // Nor is it when somebody follows it.
        read.set(0);
        recording.refresh().unwrap();
        assert!(read.get() < 3 * bytes.len() as u64);
    }
}

#[test]
fn an_index_whose_chunks_lie_in_one_another_is_none() {
    let (bytes, written) = write(&stream(3));
    let recording = Recording::open(Cursor::new(&bytes)).unwrap();
    let blocks = blocks(&bytes);
    let at = blocks[blocks.len() - 1].start;
    let mut chunks = recording.chunks().to_vec();
    chunks[0].rows.len += 1;
    let mut entries = Vec::new();
    for chunk in &chunks {
        super::super::block::write_entry(chunk, &mut entries);
    }
    let head = BlockHead { kind: 2, number: 9, summary: entries.len() as u32, ..BlockHead::default() };
    let trailer = [&(at as u64).to_le_bytes()[..], b"gtopidx\n"].concat();
    let crafted = [&bytes[..at], &head.to_bytes(&entries), &entries, &trailer].concat();
    assert!(read(&crafted, Part::Whole).unwrap().0 == written, "the chunks tell where they are");
}

#[test]
fn other_files_and_newer_recordings_are_refused() {
    assert!(matches!(read(b"UTIBUF1\0", Part::Whole), Err(OpenError::Foreign)));
    assert!(matches!(read(b"", Part::Whole), Err(OpenError::Foreign)));
    let (mut bytes, _) = write(&stream(1));
    bytes[8] = 9;
    let error = read(&bytes, Part::Whole).unwrap_err();
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[test]
fn a_damaged_state_block_gives_way_to_the_one_before() {
    let (whole, written) = write(&stream(200));
    let states: Vec<usize> = blocks(&whole)
        .into_iter()
        .filter(|block| whole[block.start + 4] == STATE)
        .map(|block| block.end - 1)
        .collect();
    assert_eq!(states.len(), 3);
    let mut bytes = whole.clone();
    let first = said(&bytes, 190).unwrap().0;
    bytes[states[1]] ^= 1;
    let other = said(&bytes, 190).unwrap();
    assert!(other.0 < first && !other.1.is_empty());
    for at in &states {
        bytes[*at] = !whole[*at];
    }
    assert_eq!(said(&bytes, 190), None);
    assert!(read(&bytes, Part::Whole).unwrap().0 == written, "nothing else needs them");
    // Without the index, too.
    let cut = &whole[..whole.len() - 20];
    assert_eq!(said(cut, 190), said(&whole, 190));
}

#[test]
fn a_recording_cut_at_the_border_of_any_block_says_no_more_than_that_it_breaks_off() {
    let (bytes, written) = write(&stream(3));
    for border in blocks(&bytes).into_iter().map(|block| block.start) {
        let (back, damage) = read(&bytes[..border], Part::Whole).unwrap();
        assert!(written.starts_with(&back));
        let damage = damage.unwrap();
        assert_eq!(damage.offset as usize, border);
        assert!(damage.what.contains("breaks off"), "{damage}");
    }
}

/// Takes so many bytes and is full then.
struct Disk(Vec<u8>, usize);

impl io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1 - self.0.len();
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(&bytes[..room.min(bytes.len())]);
        Ok(room.min(bytes.len()))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_and_what_was_written_reads() {
    let (bytes, written) = write(&stream(3));
    for room in (100..bytes.len()).step_by(501) {
        let mut disk = Disk(Vec::new(), room);
        let done = (|| -> io::Result<()> {
            let mut writer = Writer::begin(&mut disk, &head(), Keep::default(), At::default())?;
            for (ms, (stream, bytes)) in stream(3) {
                let (frame, _) = Frame::split(&bytes).unwrap().unwrap();
                let wall =
                    1_764_000_000_000_000_000 + ms * 1_000_000 - if ms > 1500 { 5_000_000_000 } else { 0 };
                writer.write(&Entry { at: At { wall, steady: ms * 1_000_000 }, stream, frame })?;
            }
            writer.finish().map(|_| ())
        })();
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let (back, damage) = read(&disk.0, Part::Whole).unwrap();
        assert!(written.starts_with(&back) && damage.is_some());
    }
}

#[test]
fn what_was_written_before_a_disk_was_full_becomes_a_whole_recording() {
    let (bytes, written) = write(&stream(5));
    let mut whole = 0;
    for room in (0..bytes.len()).step_by(97) {
        let mut disk = Disk(Vec::new(), room);
        let Ok(mut writer) = Writer::begin(&mut disk, &head(), Keep::default(), At::default()) else {
            continue;
        };
        let entries = stream(5);
        let failed = entries.iter().any(|(ms, (stream, bytes))| {
            let (frame, _) = Frame::split(bytes).unwrap().unwrap();
            let wall =
                1_764_000_000_000_000_000 + ms * 1_000_000 - if *ms > 1500 { 5_000_000_000 } else { 0 };
            writer.write(&Entry { at: At { wall, steady: ms * 1_000_000 }, stream: *stream, frame }).is_err()
        });
        assert!(failed || writer.end().is_err(), "room for {room} of {} bytes", bytes.len());
        let rescued = writer.rescue(|disk, len| {
            disk.0.truncate(len as usize);
            Ok(())
        });
        let (kept, records) = rescued.unwrap();
        assert!(disk.0.len() <= room);
        if kept == 0 {
            assert_eq!(records, 0, "in {room} bytes");
            continue;
        }
        whole += 1;
        assert_eq!(kept, disk.0.len() as u64);
        let recording = Recording::open(Cursor::new(&disk.0)).unwrap();
        let counted: u64 = recording.chunks().iter().map(|chunk| chunk.counts().total()).sum();
        assert_eq!((recording.is_complete(), counted), (true, records), "in {room} bytes");
        let (back, damage) = read(&disk.0, Part::Whole).unwrap();
        assert!(written.starts_with(&back) && !back.is_empty() && damage.is_none(), "in {room} bytes");
    }
    assert!(whole > 10, "{whole}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_lose_no_more_than_their_chunk_and_are_said(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
    ) {
        let (mut bytes, written) = write(&stream(4));
        for (at, bit) in &flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        match read(&bytes, Part::Whole) {
            Ok((back, damage)) => {
                prop_assert!(back == written || damage.is_some());
                let mut rest = written.iter();
                prop_assert!(back.iter().all(|entry| rest.any(|other| other == entry)), "nothing is made up");
            }
            Err(OpenError::Foreign | OpenError::TooNew(_)) => {
                prop_assert!(flips.iter().any(|(at, _)| at.index(bytes.len()) < HEAD_LEN));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, block: bool) {
        let (whole, _) = write(&[]);
        let mut file = whole[..blocks(&whole)[0].start].to_vec();
        if block {
            file.extend_from_slice(&BLOCK_MAGIC);
        }
        file.extend_from_slice(&bytes);
        let _ = read(&file, Part::Whole);
        prop_assert!(BLOCK_LEN + MAX_BODY < MAX_SIDE);
    }
}
