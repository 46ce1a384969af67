//! The recording that comes with gtop, to be looked at where there is no GPU. It may be any recording of less than a
//! megabyte; this one is made again by
//!
//! ```sh
//! gtop record tests/fixtures/cupti-13.0.85-vllm-0.24.0.cuptibuf.xz --from 2.8s -o tui/data/recorded.gtop
//! ```

use std::io::Cursor;

use gtop_protocol::recording::{OpenError, Recording};

use super::replay::AnyRecording;

/// Its name among the demos.
pub const NAME: &str = "recorded";
/// What it is, in one line.
pub const DESCRIPTION: &str = "A replay, nothing simulated: 0.35 s of kernels of a real vLLM server (0.24.0, H200, CUPTI \
                               13.0.85), from CUPTI's buffers, at a tenth of their speed; nothing was sampled of memory.";
/// How fast it is played: it is short.
pub const SPEED: f64 = 0.1;

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
        assert!(counts.of(Family::Kernel) > 30_000, "{counts:?}");
        assert_eq!(recording.chunks().iter().map(Chunk::invalid).sum::<u64>(), 0);
    }
}
