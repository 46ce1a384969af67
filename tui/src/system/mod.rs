//! What the viewer asks of the machine: the shim's file, NVML, processes.

pub mod embed;
pub mod nvml;
