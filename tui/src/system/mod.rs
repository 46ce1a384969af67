//! What the viewer asks of the machine: the shim's file, NVML, processes.

pub mod attach;
pub mod container;
pub mod demo;
pub mod elf;
pub mod embed;
pub mod family;
pub mod foreground;
pub mod inject;
pub mod launch;
pub mod limits;
pub mod mapped;
pub mod namespace;
pub mod nvml;
mod packages;
pub mod process;
pub mod remote;
pub mod socket;
pub mod tail;
