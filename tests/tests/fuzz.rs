//! The fuzz bodies as property tests: any bytes, and bytes that are nearly right.

use gtop_protocol::frame::{FrameKind, write_frame};
use gtop_tests::fuzz;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_stream(bytes: Vec<u8>) {
        fuzz::stream(&bytes);
    }

    #[test]
    fn any_body(bytes: Vec<u8>) {
        fuzz::bodies(&bytes);
    }

    #[test]
    fn any_recording(bytes: Vec<u8>) {
        fuzz::recording(&[b"gtoprec\n\x01\0\0\0\0\0\0\0\0\0\0\0gblk", bytes.as_slice()].concat());
        fuzz::recording(&bytes);
    }

    #[test]
    fn frames_with_any_body_bit_flipped_and_cut(
        bodies in proptest::collection::vec((0u16..14, proptest::collection::vec(any::<u8>(), 0..200)), 0..8),
        flips in proptest::collection::vec((any::<usize>(), 0u8..8), 0..4),
        cut: usize,
    ) {
        let mut stream = Vec::new();
        for (seq, (kind, body)) in bodies.iter().enumerate() {
            let mut frame = [0; 256];
            let kind = FrameKind::from_wire(*kind).unwrap_or(FrameKind::Records);
            let len = write_frame(&mut frame, kind, seq as u64 + 1, |w| w.bytes(body)).unwrap();
            stream.extend_from_slice(&frame[..len]);
        }
        for (at, bit) in flips {
            if let Some(at) = at.checked_rem(stream.len()) {
                stream[at] ^= 1 << bit;
            }
        }
        stream.truncate(stream.len() - cut.checked_rem(stream.len() + 1).unwrap_or(0));
        fuzz::stream(&stream);
    }
}
