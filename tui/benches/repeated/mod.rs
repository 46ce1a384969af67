//! The records of a real vLLM server as a recording, repeated as often as it takes.

use std::fs::File;
use std::path::Path;

use gtop_protocol::frame::{Frame, FrameKind, Header, RecordSizes, Runs, write_frame};
use gtop_protocol::message::Loss;
use gtop_protocol::recording::{At, Entry, HeadFields, Keep, Writer};

use crate::fixture::{RECORDS, frames};

/// How long they last, nanoseconds.
const LASTS: u64 = 400_000_000;

/// Moves the records of a records frame's body so much later.
fn move_by(body: &mut [u8], by: u64) {
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
            let time = u64::from_le_bytes(bytes) + by;
            body[field..field + 8].copy_from_slice(&time.to_le_bytes());
        }
    }
}

/// Writes it into a file.
pub(crate) fn record(path: &Path, times: u64) {
    let mut frames = frames();
    let head = HeadFields { host: b"bench", ..HeadFields::default() };
    let file = File::create(path).expect("a new file");
    let began = At { wall: 1_764_000_000_000_000_000, steady: 0 };
    let mut writer = Writer::begin(file, &head, Keep::default(), began).expect("it begins");
    let (each, mut seq, mut loss) = (LASTS / frames.len() as u64, 0, vec![0; 1 << 10]);
    for time in 0..times {
        for (number, bytes) in frames.iter_mut().enumerate() {
            let passed = time * LASTS + number as u64 * each;
            let at = At { wall: began.wall + passed, steady: passed };
            let Ok(Some((frame, _))) = Frame::split(bytes) else { continue };
            let (header, is_records) = (frame.header, frame.kind() == Some(FrameKind::Records));
            if !is_records && time > 0 {
                continue;
            }
            if is_records && time > 0 {
                let from = bytes.len() - header.len as usize;
                move_by(&mut bytes[from..], LASTS);
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
