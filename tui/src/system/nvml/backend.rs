//! What a sampler of devices must be able to do, and the normal reasons why it cannot.

use serde::{Deserialize, Serialize};

use super::sample::DeviceSample;

/// Something that can be asked for the state of all devices. A call may block for ever: it runs in the helper.
pub trait Backend {
    /// One sample of each device, by index.
    fn sample(&mut self) -> Result<Vec<DeviceSample>, Unavailable>;
}

/// Why nothing is known of the devices. Each is a state a machine can well be in, not a failure of gtop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unavailable {
    /// `libnvidia-ml.so.1` cannot be loaded.
    #[error("no NVML: {0}")]
    NoLibrary(String),
    /// The kernel module is not loaded.
    #[error("the NVIDIA driver is not loaded")]
    NoDriver,
    /// The driver runs and has no device for this process.
    #[error("no NVIDIA GPU is visible here")]
    NoDevice,
    /// This user or container may not ask.
    #[error("no permission to use the NVIDIA driver; in a container, is the GPU passed in?")]
    NoPermission,
    /// Library and kernel module are of different versions: the driver was upgraded under running programs.
    #[error("the NVIDIA library and kernel module differ in version; the machine needs a restart")]
    Mismatch,
    /// A device is no longer on the bus.
    #[error("a GPU has fallen off the bus")]
    Lost,
    /// Whatever else NVML said.
    #[error("NVML: {0}")]
    Other(String),
}
