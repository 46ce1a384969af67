//! Files of raw buffers, whole and cut anywhere.

use std::io::{Read, Write};
use std::path::Path;

use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};
use lzma_rust2::XzReader;

fn fixture() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cupti-12.8.90-mixed.cuptibuf.xz");
    let mut bytes = Vec::new();
    XzReader::new(std::fs::File::open(path).unwrap(), true).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_file_of_buffers_may_be_cut_anywhere() {
    let stage = Stage::new();
    let whole = fixture();
    let mut before = 0;
    let cuts = [0, 3, 8, 9, 40, 100].into_iter().chain((1..=12).map(|step| whole.len() * step / 12));
    for cut in cuts {
        let mut file = tempfile::Builder::new().suffix(".cuptibuf").tempfile().unwrap();
        file.write_all(&whole[..cut]).unwrap();
        let path = file.path().to_str().unwrap();
        let ran = stage.gtop(&["stat", path, "--json"]);
        if ran.out.is_empty() {
            assert_eq!(before, 0, "cut at {cut}");
            ran.fails(4, &[path]);
            continue;
        }
        let stat = Summary(serde_json::from_str(&ran.out).unwrap());
        assert_balance(&stat["records"]);
        let shown = count(&stat["records"]["shown"]);
        assert!(shown >= before, "cut at {cut}");
        before = shown;
        if cut == whole.len() {
            assert_eq!((ran.code(), ran.err.as_str(), shown), (Some(0), "", 5_359 + 1_118 + 1_006));
        } else {
            ran.fails(4, &["damaged", "what comes before was used"]);
        }
    }
}

#[test]
fn bits_that_flipped_in_a_file_are_survived() {
    let stage = Stage::new();
    let whole = fixture();
    for step in 0..12 {
        let mut bytes = whole.clone();
        let at = (whole.len() / 12 * step + step * 7) % whole.len();
        bytes[at] ^= 1 << (step % 8);
        let mut file = tempfile::Builder::new().suffix(".cuptibuf").tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let ran = stage.gtop(&["stat", file.path().to_str().unwrap(), "--json"]);
        assert!(matches!(ran.code(), Some(0 | 4)), "{at}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{at}: {ran:?}");
        if !ran.out.is_empty() {
            assert_balance(&Summary(serde_json::from_str(&ran.out).unwrap())["records"]);
        }
    }
}
