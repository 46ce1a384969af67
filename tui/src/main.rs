//! The `gtop` binary.
fn main() {}
