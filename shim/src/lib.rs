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
        clippy::todo
    )
)]

pub mod layout;
pub mod memory;
pub mod names;
pub mod offline;
pub mod streams;
pub mod stride;
pub mod walk;
pub mod write;
