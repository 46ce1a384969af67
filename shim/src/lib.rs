//! The library that rides inside a CUDA process: it reads CUPTI's activity records, checks each one and streams
//! them over a Unix socket. It never harms its host: it does not panic, block or allocate without bound.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unreachable,
        clippy::todo,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

// What tests and benches share names the crate from outside.
#[cfg(test)]
extern crate self as gtop_shim;

mod arm;
mod asked;
mod bound;
mod budget;
pub mod buffers;
mod clock;
mod collect;
mod config;
mod control;
mod find;
mod fork;
pub mod frames;
#[cfg(test)]
mod frugal;
mod gate;
mod hello;
mod inject;
pub mod layout;
pub mod learn;
mod log;
pub mod memory;
mod meter;
pub mod names;
mod observe;
pub mod offline;
mod own;
pub mod places;
mod pools;
pub mod queue;
mod quiet;
mod raw;
mod reserve;
mod rest;
mod room;
mod serve;
mod shared;
mod silence;
mod socket;
pub mod streams;
pub mod stride;
mod switch;
mod sys;
mod table;
mod text;
mod viewer;
mod wake;
pub mod walk;
mod world;
pub mod write;

/// The atomics that the queue and the gate are made of; their tests under loom bring others.
mod atomic {
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

#[cfg(not(test))]
#[global_allocator]
static MEMORY: reserve::Reserve = reserve::Reserve::new();
#[cfg(test)]
#[global_allocator]
static MEMORY: frugal::Counting = frugal::Counting::new();

pub use collect::CuptiStep;
pub use config::Config;
pub use inject::{InitializeInjection, start_with};
pub use shared::Resolver;
pub use table::NextRecord;
