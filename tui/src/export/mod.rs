//! Writing what is seen into files that other programs read.

pub mod raw;
