//! What the GPU did, and whose memory it has.

use schemars::JsonSchema;
use serde::Serialize;

use super::sampled::{Estimated, OfCopy, OfKernel};

/// A stream.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the keys are a promise")]
pub(super) struct Stream {
    /// Its device.
    pub(super) device: Option<u32>,
    /// Its context.
    pub(super) context: u32,
    /// Its id for CUPTI.
    pub(super) stream: u32,
    /// Time with work on it.
    pub(super) busy_ns: u64,
    /// From its first record's start to its last one's end.
    pub(super) span_ns: u64,
    /// Records on it.
    pub(super) records: u64,
    /// Where all was seen in windows only: the share of the time that it is likely to be busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) busy_share: Option<Estimated>,
}

/// A kernel.
#[derive(Serialize, JsonSchema)]
pub(super) struct Kernel<'a> {
    /// Its name, demangled.
    pub(super) name: &'a str,
    /// Its name as CUPTI has it.
    pub(super) mangled: &'a str,
    /// Times it ran, of good records.
    pub(super) calls: u64,
    /// Their time.
    pub(super) total_ns: u64,
    /// The shortest.
    pub(super) min_ns: Option<u64>,
    /// The median.
    pub(super) p50_ns: Option<u64>,
    /// The 99th percentile.
    pub(super) p99_ns: Option<u64>,
    /// The longest.
    pub(super) max_ns: Option<u64>,
    /// Share of the time of all kernels.
    pub(super) share: f64,
    /// What there is likely to be in all, where only windows are seen.
    pub(super) estimate: Option<OfKernel>,
    /// Bad records of it, which count in nothing else here.
    pub(super) invalid: u64,
}

/// Copies of one direction.
#[derive(Serialize, JsonSchema)]
pub(super) struct Memcpy {
    /// The direction, such as `HtoD`.
    pub(super) direction: &'static str,
    /// How many, of good records.
    pub(super) calls: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Their time.
    pub(super) total_ns: u64,
    /// Where copies were seen in windows only: what there is likely to be in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) estimate: Option<OfCopy>,
}

/// From a launch's call to its kernel's begin; the clocks differ a little, so that it may be below 0.
#[derive(Serialize, JsonSchema)]
pub(super) struct Latency {
    /// Kernels whose call was found.
    pub(super) joined: u64,
    /// The shortest.
    pub(super) min_ns: i64,
    /// The mean.
    pub(super) mean_ns: i64,
    /// The longest.
    pub(super) max_ns: i64,
    /// Of those joined, kernels that began a little before their call, as clocks that differ make it seem.
    pub(super) slightly_before: u64,
    /// Kernels that began long before their call: invalid, and in no other number here.
    pub(super) well_before: u64,
}

/// Kernels of one thread.
#[derive(Serialize, JsonSchema)]
pub(super) struct Caller {
    /// The device.
    pub(super) device: Option<u32>,
    /// The context.
    pub(super) context: u32,
    /// The thread's id.
    pub(super) thread: u32,
    /// Kernels.
    pub(super) kernels: u64,
}

/// What NVML says the process uses, and what of it is known; null is not known.
#[derive(Serialize, JsonSchema)]
pub(super) struct Account<'a> {
    /// By NVML, all devices together.
    pub(super) used_bytes: Option<u64>,
    /// Allocated on devices, `pool_bytes` and `mapped_bytes` included.
    pub(super) device_bytes: Option<u64>,
    /// Managed.
    pub(super) managed_bytes: Option<u64>,
    /// Pinned on the host.
    pub(super) pinned_host_bytes: Option<u64>,
    /// The most that was allocated on devices, managed and pinned, together.
    pub(super) peak_bytes: Option<u64>,
    /// Reserved for graphs, by the driver or else by memory records.
    pub(super) graphs_reserved_bytes: Option<u64>,
    /// Reserved in the default memory pools; what is in use of it is in `pool_bytes` too.
    pub(super) pools_reserved_bytes: Option<u64>,
    /// CUPTI's device buffers.
    pub(super) cupti_buffer_bytes: Option<u64>,
    /// What is left: contexts, modules, libraries, and what was allocated before anybody looked; negative where managed
    /// memory lies on the host.
    pub(super) unexplained_bytes: Option<i64>,
    /// Allocated from memory pools.
    pub(super) pool_bytes: Option<u64>,
    /// Mapped into virtual addresses; what is mapped twice counts twice.
    pub(super) mapped_bytes: Option<u64>,
    /// By library, where CUPTI says who asked; the most GPU memory first.
    pub(super) sites: Vec<Site<'a>>,
}

/// What one library has allocated.
#[derive(Serialize, JsonSchema)]
pub(super) struct Site<'a> {
    /// Its file; null is unknown.
    pub(super) library: Option<&'a str>,
    /// On the GPU.
    pub(super) gpu_bytes: u64,
    /// Pinned on the host.
    pub(super) pinned_host_bytes: u64,
    /// Allocations.
    pub(super) allocations: u64,
}

/// Steps of one context.
#[derive(Serialize, JsonSchema)]
pub(super) struct Steps<'a> {
    /// Its device.
    pub(super) device: Option<u32>,
    /// The context.
    pub(super) context: u32,
    /// They still go on.
    pub(super) current: bool,
    /// Steps.
    pub(super) count: u64,
    /// Median time from one to the next.
    pub(super) p50_ns: u64,
    /// The 99th percentile.
    pub(super) p99_ns: u64,
    /// Mean difference between one step and the next.
    pub(super) jitter_ns: u64,
    /// Kernels a step.
    pub(super) kernels: u64,
    /// Launches of graphs a step.
    pub(super) launches: u64,
    /// Time a step without work, between its own kernels.
    pub(super) idle_inside_ns: u64,
    /// Time without work before the next one.
    pub(super) idle_between_ns: u64,
    /// The graphs it launches.
    pub(super) graphs: &'a [u32],
}
