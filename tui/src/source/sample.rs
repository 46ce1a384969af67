//! The recording that comes with gtop, to be looked at where there is no GPU. It may be any recording of less than a
//! megabyte; this one is three seconds of one that was made of a running server:
//!
//! ```sh
//! gtop record --attach PID -o run.gtop --for 10s
//! gtop record run.gtop -o tui/data/recorded.gtop --from 4s --until 7s
//! ```

use std::io::Cursor;

use gtop_protocol::recording::{OpenError, Recording};

use super::replay::AnyRecording;

/// Its name among the demos.
pub const NAME: &str = "recorded";
/// What it is, in one line.
pub const DESCRIPTION: &str = "A replay, nothing simulated: 3 s of a real vLLM server (0.24.0, H200, CUPTI 13.0.85) that \
                               gtop was attached to while it ran, at a fifth of its speed.";
/// How fast it is played: it is short.
pub const SPEED: f64 = 0.2;

const BYTES: &[u8] = include_bytes!("../../data/recorded.gtop");

/// Opens it.
pub fn open() -> Result<AnyRecording, OpenError> {
    Recording::open(Box::new(Cursor::new(BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::record::Family;
    use gtop_protocol::recording::{Chunk, Counts};

    #[test]
    fn it_is_whole_small_and_of_a_real_server() {
        let recording = open().unwrap();
        assert!(recording.is_complete() && recording.damage().is_none());
        assert!(BYTES.len() < 1 << 20, "{} bytes", BYTES.len());
        let mut counts = Counts::default();
        recording.chunks().iter().for_each(|chunk| counts.add(&chunk.counts()));
        assert!(counts.of(Family::Kernel) > 300_000, "{counts:?}");
        assert_eq!(recording.chunks().iter().map(Chunk::invalid).sum::<u64>(), 0);
    }
}
