//! The records of a real vLLM server as a recording, repeated as often as it takes, without the times in which it had
//! nothing to do.

use std::fs::File;
use std::path::Path;

use gtop_protocol::frame::{Frame, FrameKind, Header, RecordSizes, Runs, write_frame};
use gtop_protocol::message::Loss;
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Writer};

use crate::fixture::{RECORDS, frames};

/// The longest time between two records, nanoseconds: a server that has work takes less.
const LONGEST: u64 = 1_000_000;

/// The times in which nothing runs for longer: when each ends, and how much longer all up to it are.
fn pauses(times: &mut [(u64, u64)]) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let (mut pauses, mut covered, mut longer) = (Vec::new(), times[0].0, 0);
    for (start, end) in times {
        if start.saturating_sub(covered) > LONGEST {
            longer += *start - covered - LONGEST;
            pauses.push((*start, longer));
        }
        covered = covered.max(*end);
    }
    pauses
}

/// Changes the times of the records of a records frame's body.
fn change(body: &mut [u8], mut to: impl FnMut(u64) -> u64) {
    let places: Vec<(usize, usize)> = {
        let from = |run: &[u8]| run.as_ptr() as usize - body.as_ptr() as usize;
        let places = |(at, len, size): (usize, usize, usize)| (at..at + len).step_by(size);
        let runs = Runs::new(body, RecordSizes::OURS);
        let runs = runs.map(|run| (from(run.bytes), run.bytes.len(), run.size));
        runs.flat_map(places).map(|at| (at, at + 8)).collect()
    };
    for (start, end) in places {
        for field in [start, end] {
            let bytes: [u8; 8] = body[field..field + 8].try_into().expect("eight bytes");
            let time = to(u64::from_le_bytes(bytes));
            body[field..field + 8].copy_from_slice(&time.to_le_bytes());
        }
    }
}

/// The bodies of records frames.
fn bodies(frames: &mut [Vec<u8>]) -> impl Iterator<Item = &mut [u8]> {
    frames.iter_mut().filter_map(|bytes| {
        let (frame, _) = Frame::split(bytes).ok()??;
        let from = bytes.len() - frame.header.len as usize;
        (frame.kind() == Some(FrameKind::Records)).then(|| &mut bytes[from..])
    })
}

/// Leaves pauses out; gives how long it all lasts then, nanoseconds.
fn without_pauses(frames: &mut [Vec<u8>]) -> u64 {
    let mut times = Vec::new();
    bodies(frames).for_each(|body| {
        change(body, |time| {
            times.push(time);
            time
        });
    });
    let mut times: Vec<(u64, u64)> = times.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let pauses = pauses(&mut times);
    let squeezed = |time: u64| {
        let before = pauses.partition_point(|(ends, _)| *ends <= time);
        before.checked_sub(1).map_or(time, |pause| time - pauses[pause].1)
    };
    bodies(frames).for_each(|body| change(body, squeezed));
    let last = times.iter().map(|(_, end)| *end).max().expect("there are records");
    squeezed(last) - times[0].0 + LONGEST
}

/// Writes it into a file.
pub(crate) fn record(path: &Path, times: u64) {
    let mut frames = frames();
    let lasts = without_pauses(&mut frames);
    let head = HeadFields { host: b"bench", ..HeadFields::default() };
    let file = File::create(path).expect("a new file");
    let began = At { wall: 1_764_000_000_000_000_000, steady: 0 };
    let mut writer = Writer::begin(file, &head, Keep::default(), began).expect("it begins");
    let (each, mut seq, mut loss) = (lasts / frames.len() as u64, 0, vec![0; 1 << 10]);
    for time in 0..times {
        for (number, bytes) in frames.iter_mut().enumerate() {
            let passed = time * lasts + number as u64 * each;
            let at = At { wall: began.wall + passed, steady: passed };
            let Ok(Some((frame, _))) = Frame::split(bytes) else { continue };
            let (header, is_records) = (frame.header, frame.kind() == Some(FrameKind::Records));
            if !is_records && time > 0 {
                continue;
            }
            if is_records && time > 0 {
                let from = bytes.len() - header.len as usize;
                change(&mut bytes[from..], |time| time + lasts);
            }
            let body = &bytes[bytes.len() - header.len as usize..];
            seq += 1;
            let frame = Frame { header: Header { seq, ..header }, body };
            writer.write(&Entry { at, stream: 1, frame }).expect("it is written");
            // As a shim does four times a second.
            if number % 16 == 0 {
                seq += 1;
                let counts = Loss { walked: time * RECORDS, ..Loss::default() };
                let len =
                    write_frame(&mut loss, FrameKind::Loss, seq, |w| counts.write(w)).expect("there is room");
                let (frame, _) = Frame::split(&loss[..len]).expect("it is a frame").expect("a whole one");
                writer.write(&Entry { at, stream: 1, frame }).expect("it is written");
            }
        }
    }
    writer.finish().expect("it ends");
}
