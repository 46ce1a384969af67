//! Shared helpers of the end-to-end tests.
#![allow(
    clippy::must_use_candidate,
    clippy::missing_panics_doc,
    reason = "helpers of tests panic wherever a test is to fail"
)]

pub mod build;
pub mod fake;
pub mod fuzz;
pub mod gtop;
pub mod host;
pub mod pty;
pub mod stage;
pub mod summary;
pub mod wait;
pub mod waiters;
pub mod witness;
