//! What came out of CUPTI and what became of it: the buffers it was lent, and the balance of records.

use super::{Damaged, Field, message};
use crate::wire::{Full, Reader, Writer};

message! {
    /// The buffers lent to CUPTI and what the shim costs the process.
    pub struct HostBuffers {
        /// Bytes of one buffer.
        pub size: u64,
        /// Buffers CUPTI holds now.
        pub outstanding: u64,
        /// Buffers completed since loading.
        pub completed: u64,
        /// Bytes of buffers that were ever lent; they stay the shim's.
        pub bytes: u64,
        /// Times no buffer was left, and CUPTI was refused one or got one whose records are lost.
        pub discarded: u64,
        /// Nanoseconds spent in the completion callback since loading.
        pub callback_ns: u64,
        /// Nanoseconds of CPU used by the shim's own threads since loading.
        pub cpu_ns: u64,
        /// All memory the shim has put to use, bytes.
        pub memory: u64,
        /// Frames waiting for the I/O thread now.
        pub queued_frames: u64,
        /// Buffers copied whole for viewers that ask for such, since loading.
        pub raw_copied: u64,
        /// … not copied because too many copies waited to be sent.
        pub raw_missed: u64,
        /// A watcher hears something of the shim at least this often, milliseconds; 0 is not known.
        pub beat_ms: u64,
    }
}

message! {
    /// One activity buffer as CUPTI completed it, and the names its pointers stand for.
    pub struct RawBuffer<'a> {
        /// What `cuptiGetVersion` said.
        pub version: u32,
        /// Records in it.
        pub records: u64,
        /// … of which have bad timestamps.
        pub invalid: u64,
        /// Its valid part.
        pub bytes: &'a [u8],
        /// The module `raw_names` reads them.
        pub names: &'a [u8],
    }
}

/// The names of a raw buffer: `u64` pointer as it stands in records and `u32` name id, repeated.
pub mod raw_names {
    use super::{Full, Reader, Writer};

    /// Bytes of one name.
    pub const LEN: usize = 12;

    /// Appends one name.
    pub fn write_one(w: &mut Writer<'_>, pointer: u64, id: u32) -> Result<(), Full> {
        w.u64(pointer)?;
        w.u32(id)
    }

    /// The names of a buffer.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u64, u32)> {
        let mut r = Reader::new(bytes);
        core::iter::from_fn(move || {
            if r.rest().len() < LEN {
                return None;
            }
            Some((r.u64(), r.u32()))
        })
    }
}

message! {
    /// The balance of records. At rest `walked = framed + queue_full + unknown_kind + discarded`, and for this
    /// viewer `offered = received + dropped`, each term counted by itself; in records.
    pub struct Loss {
        /// Records walked out of CUPTI's buffers since loading.
        pub walked: u64,
        /// … put into frames that reached the queue.
        pub framed: u64,
        /// … lost because the queue, or the frames, were full.
        pub queue_full: u64,
        /// … of a kind this shim does not know.
        pub unknown_kind: u64,
        /// Bytes that could not be walked: left in buffers behind a record CUPTI itself could not step over, or
        /// written when no buffer was left to lend and CUPTI could not be refused one.
        pub unknown_bytes: u64,
        /// … that came while nobody watched.
        pub discarded: u64,
        /// Records CUPTI says it dropped (`cuptiActivityGetNumDroppedRecords`).
        pub cupti_dropped: u64,
        /// Kernel records walked.
        pub kernel: u64,
        /// Copy records walked.
        pub memcpy: u64,
        /// Memory-set records walked.
        pub memset: u64,
        /// Records of other known kinds walked.
        pub other: u64,
        /// The part of `walked` that is not this viewer's: what was walked before it joined, counted by its place
        /// in the stream, and all that was discarded since. `walked - joined_walked` was delivered to it or is lost.
        pub joined_walked: u64,
        /// The value of `queue_full` when this viewer joined.
        pub joined_queue_full: u64,
        /// The value of `unknown_kind` when this viewer joined.
        pub joined_unknown_kind: u64,
        /// The value of `cupti_dropped` when this viewer joined.
        pub joined_cupti_dropped: u64,
        /// Records offered to this viewer.
        pub offered: u64,
        /// Records of those dropped because this viewer was slow.
        pub dropped: u64,
        /// The value of `unknown_bytes` when this viewer joined.
        pub joined_unknown_bytes: u64,
    }
}
