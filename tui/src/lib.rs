//! The viewer.
