//! See `gtop_tests::fuzz::recording`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtop_tests::fuzz::recording(bytes));
