//! Loads for a real GPU that say exactly what they launched: the probe's, and those that gtop is measured with.

mod cuda;
mod workload;

pub use cuda::{Device, Failure, Gpu, Graph, Op, survey};
pub use workload::{Counts, Plan, Work, Workload};
