//! What is known of the watched processes: one writer applies frames, readers take snapshots.

pub mod slices;
pub mod snapshot;
