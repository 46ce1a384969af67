//! Buffers of a real GPU are walked by the simulated `cuptiActivityGetNextRecord` as by the real one: its strides are
//! CUPTI's.
#![allow(unsafe_code, reason = "the walk is a C function")]

use gtop_sim::{Pace, Scenario, Simulation, resolve};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::ptr::null_mut;

/// The buffers of a `.cuptibuf.xz`, and the version of the CUPTI that filled them.
fn read(file: &Path) -> (u64, Vec<Vec<u8>>) {
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(std::fs::File::open(file).unwrap(), true).read_to_end(&mut bytes).unwrap();
    let (mut version, mut buffers, mut rest) = (0, Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let (head, behind) = rest.split_at(16);
        let number = u64::from_le_bytes(head[8..].try_into().unwrap());
        match &head[..8] {
            b"UTIBUF1\0" => {
                version = number;
                rest = behind;
            }
            b"UTIBUF\0\0" => {
                let (buffer, behind) = behind.split_at(number as usize);
                buffers.push(buffer.to_vec());
                rest = behind;
            }
            _ => break,
        }
    }
    (version, buffers)
}

#[test]
fn every_record_of_every_recording_is_found() {
    let counts = [
        ("cupti-12.8.90-mixed", 26, [5_359, 1_118, 1_006]),
        ("cupti-13.0.85-mixed", 130_001, [5_189, 1_081, 973]),
        ("cupti-13.4.92-mixed", 130_401, [4_505, 939, 845]),
        ("cupti-13.0.85-vllm-0.24.0", 130_001, [40_538, 1_361, 277]),
    ];
    for (name, cupti, expected) in counts {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let (version, buffers) = read(&folder.join(format!("{name}.cuptibuf.xz")));
        assert_eq!(version, cupti);
        let scenario = Scenario::parse(&format!("cupti = {cupti}")).unwrap();
        let _simulation = Simulation::load(&scenario, Pace::Stepped).unwrap();
        let next = resolve(c"cuptiActivityGetNextRecord");
        // SAFETY: the function has this signature in `cupti_activity.h`.
        let next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32 =
            unsafe { std::mem::transmute(next) };
        let mut kinds: BTreeMap<u32, u64> = BTreeMap::new();
        for mut buffer in buffers {
            let mut record = null_mut();
            // SAFETY: the buffer is as long as it says, and records lie inside it.
            unsafe {
                let mut result = 0;
                while result == 0 {
                    result = next(buffer.as_mut_ptr(), buffer.len(), &raw mut record);
                    if result == 0 {
                        *kinds.entry(record.cast::<u32>().read_unaligned()).or_default() += 1;
                    }
                }
                assert_eq!(result, 12, "{name}: the walk ends at the end");
            }
        }
        assert_eq!(kinds, BTreeMap::from([(10, expected[0]), (1, expected[1]), (2, expected[2])]), "{name}");
    }
}
