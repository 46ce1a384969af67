//! NVML, asked in a process of its own: a driver call that never returns costs a helper, not the screen.
//!
//! `backend` is what can be sampled, `driver` the real thing; `helper` runs a backend in the child process and
//! `client` keeps such a child, replaces it when it does not answer, and always has the last samples at hand.

mod backend;
mod client;
mod driver;
mod helper;
mod join;
mod records;
mod sample;
mod simulated;

pub use backend::{Backend, Unavailable};
pub use client::{Client, Options, Snapshot, Status};
pub use helper::{SUBCOMMAND, helper_main};
pub use join::{Row, Sum, Watched, join, sum};
pub use sample::{DeviceSample, MigSample, ProcessSample};
pub use simulated::MEMORY;

#[cfg(test)]
mod fake;
