//! Who is at the other end, what time it is there, and the names that records point to.

use super::{Damaged, Field, message};
use crate::frame::{MAGIC, PROTOCOL, RecordSizes};
use crate::wire::{Full, Reader, Writer};

message! {
    /// Who is at the other end. Texts are bytes as the system gave them, not checked to be UTF-8.
    pub struct HelloFields<'a> {
        /// Process id in the process's own pid namespace.
        pub pid: u32,
        /// User id.
        pub uid: u32,
        /// Start time, clock ticks after boot (field 22 of `/proc/PID/stat`); tells a reused pid apart.
        pub start_time: u64,
        /// `/proc/PID/comm`.
        pub name: &'a [u8],
        /// The command line, arguments separated by NUL; cut at 4 KiB.
        pub command: &'a [u8],
        /// The path of the process's cgroup.
        pub cgroup: &'a [u8],
        /// Container id found in the cgroup path or mount table, or empty.
        pub container: &'a [u8],
        /// Pod id found in the cgroup path, or empty.
        pub pod: &'a [u8],
        /// MIG device ids from `CUDA_VISIBLE_DEVICES`, separated by NUL, or empty.
        pub mig: &'a [u8],
        /// `NAME=value` of the allowed environment variables that are set, separated by NUL.
        pub environment: &'a [u8],
        /// The shim's version.
        pub shim_version: &'a [u8],
        /// What `cuptiGetVersion` said; unknown before arming.
        pub cupti_version: Option<u64>,
        /// The file the CUPTI in use was mapped from; empty before arming.
        pub cupti_path: &'a [u8],
        /// The CUPTI interface in use: 1 or 2; 0 before arming.
        pub cupti_interface: u8,
        /// Whether the shim refuses control requests (`GTOP_READ_ONLY`): 1 if so.
        pub read_only: u8,
        /// Whether the shim was armed inside `InitializeInjection`: 1 if so.
        pub early: u8,
        /// `/proc/sys/kernel/random/boot_id`.
        pub boot_id: &'a [u8],
        /// Whether launch records come although no kinds are told: 1 for raw buffers that hold some.
        pub launches: u8,
    }
}

/// The first frame of every stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The protocol spoken by the peer.
    pub protocol: u16,
    /// The sizes of its records.
    pub sizes: RecordSizes,
    /// Who it is.
    pub fields: HelloFields<'a>,
}

impl<'a> Hello<'a> {
    /// A hello of this version.
    #[must_use]
    pub const fn new(fields: HelloFields<'a>) -> Self {
        Self { protocol: PROTOCOL, sizes: RecordSizes::OURS, fields }
    }

    /// Writes the body.
    pub fn write(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.bytes(&MAGIC)?;
        w.u16(self.protocol)?;
        w.u8(self.sizes.0.len() as u8)?;
        for size in self.sizes.0 {
            w.u16(size)?;
        }
        self.fields.write(w)
    }

    /// Reads the body; a body that does not begin with [`MAGIC`] is not ours.
    pub fn read(body: &'a [u8]) -> Result<Self, Damaged> {
        let mut r = Reader::new(body);
        if r.bytes(MAGIC.len()) != MAGIC {
            return Err(Damaged);
        }
        let protocol = r.u16();
        let families = r.u8();
        let mut sizes = RecordSizes([0; 4]);
        for i in 0..usize::from(families) {
            let size = r.u16();
            if let Some(slot) = sizes.0.get_mut(i) {
                *slot = size;
            }
        }
        let fields = HelloFields::take(&mut r)?;
        Ok(Self { protocol, sizes, fields })
    }
}

message! {
    /// One bracketed reading of the clocks, in nanoseconds: host, CUPTI, host.
    pub struct Clock {
        /// `CLOCK_REALTIME`, the middle of the two host readings.
        pub realtime: u64,
        /// `CLOCK_MONOTONIC` at the same moment.
        pub monotonic: u64,
        /// `CLOCK_BOOTTIME` at the same moment; differs from monotonic by the time suspended.
        pub boottime: u64,
        /// `cuptiGetTimestamp`.
        pub cupti: u64,
        /// Half the time between the two host readings: the error of the pair.
        pub error: u64,
    }
}

/// The body of a names frame: `u32` id and name, repeated. Ids are never reused within one process.
pub mod names {
    use super::{Full, Reader, Writer};

    /// The longest name kept, in bytes; longer ones are cut. The longest seen in the field have 5,000.
    pub const MAX_NAME: usize = 16 << 10;
    /// The id of "other": given to names beyond the shim's limits.
    pub const OTHER: u32 = u32::MAX;

    /// Appends one name.
    pub fn write_one(w: &mut Writer<'_>, id: u32, name: &[u8]) -> Result<(), Full> {
        let name = name.get(..MAX_NAME).unwrap_or(name);
        if w.room() < name.len().saturating_add(8) {
            return Err(Full);
        }
        w.u32(id)?;
        w.blob(name)
    }

    /// The names of a frame.
    pub fn read(body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
        let mut r = Reader::new(body);
        core::iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let id = r.u32();
            let name = r.blob();
            (!r.is_bad()).then_some((id, name))
        })
    }
}
