//! See `gtop_tests::fuzz::bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtop_tests::fuzz::bodies(bytes));
