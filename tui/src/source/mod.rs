//! Where frames come from. Behind this, a live process, a demo and a file cannot be told apart.

pub mod file;
pub mod live;
pub mod recording;
pub mod replay;
pub mod sample;
