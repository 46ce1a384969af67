//! See `gtop_tests::fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtop_tests::fuzz::stream(bytes));
