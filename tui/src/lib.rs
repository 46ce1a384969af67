//! The viewer: sources feed the model, the model gives snapshots, views draw them.

pub mod app;
pub mod command;
pub mod config;
pub mod doctor;
pub mod export;
pub mod filter;
pub mod input;
pub mod model;
pub mod probe;
pub mod recorder;
pub mod replay;
pub mod session;
pub mod source;
pub mod system;
pub mod terminal;
pub mod view;
