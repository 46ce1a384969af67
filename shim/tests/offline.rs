//! Recorded buffers of real CUPTI versions through the walk.

use gtop_protocol::frame::{Frame, FrameKind, RecordSizes, Runs};
use gtop_protocol::message::{Goodbye, Hello, Loss, names};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset};
use gtop_protocol::{Notes, Validity};
use gtop_shim::offline::{self, Summary};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true).read_to_end(&mut bytes).unwrap();
    bytes
}

/// What a viewer gets to know from the frames of a file.
#[derive(Default)]
struct Seen {
    hello: Option<u64>,
    names: HashMap<u32, Vec<u8>>,
    kernels: Vec<Kernel>,
    copies: Vec<Copy>,
    memsets: Vec<Memset>,
    others: usize,
    loss: Loss,
    goodbye: String,
    frames: u64,
}

fn read(bytes: &[u8]) -> (Seen, Summary) {
    let mut seen = Seen::default();
    let summary = offline::read(bytes, &mut |frame| {
        let (frame, rest) = Frame::split(frame).unwrap().unwrap();
        assert!(rest.is_empty());
        seen.frames += 1;
        assert_eq!(frame.header.seq, seen.frames);
        match frame.kind().unwrap() {
            FrameKind::Hello => seen.hello = Hello::read(frame.body).unwrap().fields.cupti_version,
            FrameKind::Names => {
                seen.names.extend(names::read(frame.body).map(|(id, name)| (id, name.to_vec())));
            }
            FrameKind::Records => {
                let mut runs = Runs::new(frame.body, RecordSizes::OURS);
                for run in runs.by_ref() {
                    match run.family().unwrap() {
                        Family::Kernel => seen.kernels.extend(run.records().map(record::read::<Kernel>)),
                        Family::Copy => seen.copies.extend(run.records().map(record::read::<Copy>)),
                        Family::Memset => seen.memsets.extend(run.records().map(record::read::<Memset>)),
                        Family::Other => seen.others += run.count(),
                    }
                    let id = seen.kernels.last().map_or(0, |kernel| kernel.name.get());
                    assert!(id == 0 || seen.names.contains_key(&id), "a name comes before its kernel");
                }
                assert!(!runs.is_bad());
            }
            FrameKind::Loss => seen.loss = Loss::read(frame.body).unwrap(),
            FrameKind::Goodbye => {
                seen.goodbye = String::from_utf8(Goodbye::read(frame.body).unwrap().reason.to_vec()).unwrap();
            }
            kind => panic!("{kind:?}"),
        }
    });
    (seen, summary)
}

#[test]
fn every_file_gives_exactly_what_its_readme_says() {
    for (file, version, kernels, copies, memsets) in [
        ("cupti-12.8.90-mixed.cuptibuf.xz", 26, 5_359, 1_118, 1_006),
        ("cupti-13.0.85-mixed.cuptibuf.xz", 130_001, 5_189, 1_081, 973),
        ("cupti-13.4.92-mixed.cuptibuf.xz", 130_401, 4_505, 939, 845),
        ("cupti-13.0.85-vllm-0.24.0.cuptibuf.xz", 130_001, 40_538, 1_361, 277),
    ] {
        let (seen, summary) = read(&fixture(file));
        assert_eq!(summary.damage, None, "{file}");
        assert_eq!((summary.version, seen.hello), (Some(version), Some(u64::from(version))), "{file}");
        let counts = (seen.kernels.len(), seen.copies.len(), seen.memsets.len(), seen.others);
        assert_eq!(counts, (kernels, copies, memsets, 0), "{file}");
        let total = (kernels + copies + memsets) as u64;
        assert_eq!((seen.loss.walked, seen.loss.framed, seen.loss.offered), (total, total, total), "{file}");
        assert_eq!(seen.loss.unknown_bytes, 0, "{file}");
        assert_eq!(seen.goodbye, "end of file");
        let valid = Validity::Valid as u8;
        assert!(
            seen.kernels.iter().all(|kernel| kernel.validity == valid && kernel.name.get() > 0),
            "{file}"
        );
        assert!(seen.copies.iter().all(|copy| copy.validity == valid), "{file}");
        assert!(seen.memsets.iter().all(|memset| memset.validity == valid), "{file}");
        assert!(seen.kernels.iter().all(|kernel| kernel.notes & Notes::UNASKED_KIND == 0), "{file}");
        assert!(seen.kernels.iter().all(|kernel| kernel.grid_x.get() > 0 && kernel.block[0].get() > 0));
        let overlaps = seen.kernels.iter().filter(|kernel| kernel.notes & Notes::OVERLAP != 0).count();
        let disorder = seen.kernels.iter().filter(|kernel| kernel.notes & Notes::OUT_OF_ORDER != 0).count();
        println!("{file}: {} names, {overlaps} overlaps, {disorder} out of order", seen.names.len());
    }
}

#[test]
fn a_file_that_is_none_says_so() {
    for bytes in [b"".as_slice(), b"{}", b"UTIBUF\0\0\x01\0\0\0\0\0\0\0"] {
        let (seen, summary) = read(bytes);
        assert_eq!(summary.damage.map(|damage| damage.offset), Some(0));
        assert_eq!((seen.loss.walked, summary.version), (0, None));
    }
}

#[test]
fn an_unknown_kind_hides_the_rest_of_its_buffer_only() {
    let mut bytes = b"UTIBUF1\0".to_vec();
    bytes.extend(130_001u64.to_le_bytes());
    let memset = {
        let mut record = vec![0u8; 88];
        record[0] = 2;
        record[16..24].copy_from_slice(&10u64.to_le_bytes());
        record[24..32].copy_from_slice(&20u64.to_le_bytes());
        record
    };
    let unknown = [60u8, 0, 0, 0, 1, 2, 3, 4];
    for buffer in [[memset.as_slice(), &unknown, &memset].concat(), memset.clone()] {
        bytes.extend(b"UTIBUF\0\0");
        bytes.extend((buffer.len() as u64).to_le_bytes());
        bytes.extend(buffer);
    }
    bytes.extend(b"UNAMES\0\0");
    bytes.extend(0u64.to_le_bytes());
    let (seen, summary) = read(&bytes);
    assert_eq!((seen.memsets.len(), summary.tally.unknown_bytes), (2, 96));
    assert_eq!(summary.damage.map(|damage| damage.offset), Some(16 + 16 + 88));
}

static MIXED: LazyLock<Vec<u8>> = LazyLock::new(|| fixture("cupti-13.0.85-mixed.cuptibuf.xz"));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_file_cut_anywhere_gives_what_lies_before(cut in 0usize..1_000_000) {
        let whole = MIXED.as_slice();
        let cut = cut % whole.len();
        let (all, _) = read(whole);
        let (seen, summary) = read(&whole[..cut]);
        let damage = summary.damage.expect("a cut file is damaged");
        prop_assert!(damage.offset <= cut as u64);
        prop_assert!(seen.kernels.len() <= all.kernels.len());
        for (cut, whole) in seen.kernels.iter().zip(&all.kernels) {
            prop_assert_eq!((cut.start, cut.end), (whole.start, whole.end));
        }
        prop_assert_eq!(seen.loss.walked, seen.loss.framed);
        prop_assert!(seen.goodbye.contains("damaged at byte"));
    }

    #[test]
    fn flipped_bits_never_panic(flips in proptest::collection::vec((0usize..1_000_000, 0u8..8), 1..40)) {
        let mut bytes = MIXED.clone();
        let len = bytes.len();
        for (at, bit) in flips {
            bytes[at % len] ^= 1 << bit;
        }
        let mut frames = 0u64;
        let summary = offline::read(&bytes, &mut |_| frames += 1);
        prop_assert!(frames >= 1 || summary.damage.is_some());
        let tally = summary.tally;
        prop_assert_eq!(tally.walked, tally.framed + tally.queue_full + tally.unknown_kind);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let mut file = b"UTIBUF1\0\x01\xfb\x01\0\0\0\0\0UTIBUF\0\0".to_vec();
        file.extend((bytes.len() as u64).to_le_bytes());
        file.extend(bytes);
        offline::read(&file, &mut |_| ());
    }
}
