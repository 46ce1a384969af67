//! The law of CUPTI's device buffers, and the state of a context's pool that follows from it.
//!
//! Measured on an H200: one device buffer holds 100,000 slots of 32 bytes; every traced node takes one; on a
//! defective version nothing is recycled from the buffer that holds the first uncovered slot on.

/// Slots in one device buffer (`cupti_activity.h`, `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`: 3,200,000 bytes).
pub const SLOTS_PER_BUFFER: u64 = 100_000;
/// Buffers a context may have when nobody set a limit before it was created
/// (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`).
pub const DEFAULT_LIMIT: u64 = 250;
/// Buffers a context allocates at once (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE`).
pub const PREALLOCATED: u64 = 3;
