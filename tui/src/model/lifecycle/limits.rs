//! What devices can do, as the driver told it, and which device, context and stream belong together.

use gtop_protocol::lifecycle::{Event, What};
use rustc_hash::FxHashMap;

/// Devices and contexts kept.
const MAX_DEVICES: usize = 64;
const MAX_CONTEXTS: usize = 4096;
/// Streams kept.
const MAX_STREAMS: usize = 1 << 16;

/// What a device can do; a number is 0 where it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Whether the driver said it, or every device can do that much.
    pub(super) told: bool,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Threads of a block.
    pub(super) threads: u32,
    /// Registers of a block.
    pub(super) registers: u32,
    /// Shared memory of a block that did not opt in to more, bytes, and of one that did.
    pub(super) shared: u32,
    pub(super) shared_opted_in: u32,
    pub(super) multiprocessors: u32,
    /// Of one multiprocessor: threads, blocks and shared memory, bytes.
    pub(super) all_threads: u32,
    pub(super) all_blocks: u32,
    pub(super) all_shared: u32,
    /// Memory, bytes.
    pub(super) memory: u64,
}

/// What every device can do since compute capability 3.0 (CUDA programming guide).
pub(super) const ASSUMED: Limits = Limits {
    told: false,
    grid: [0x7fff_ffff, 65_535, 65_535],
    block: [1024, 1024, 64],
    threads: 1024,
    registers: 0,
    shared: 48 << 10,
    shared_opted_in: 0,
    multiprocessors: 0,
    all_threads: 0,
    all_blocks: 0,
    all_shared: 0,
    memory: 0,
};

impl Limits {
    fn of(event: &Event) -> Self {
        let halves = |both: u64| (both as u32, (both >> 32) as u32);
        let or = |told: u32, assumed: u32| if told == 0 { assumed } else { told };
        let three = |told: [zerocopy::little_endian::U32; 3], assumed: [u32; 3]| {
            [0, 1, 2].map(|i| or(told[i].get(), assumed[i]))
        };
        let (threads, registers) = halves(event.object.get());
        let (shared_opted_in, shared) = halves(event.other.get());
        let (all_threads, all_blocks) = halves(event.node.get());
        let (all_shared, _) = halves(event.stream.get());
        Self {
            told: true,
            grid: three(event.grid, ASSUMED.grid),
            block: three(event.block, ASSUMED.block),
            threads: or(threads, ASSUMED.threads),
            registers,
            shared: or(shared, ASSUMED.shared),
            shared_opted_in,
            multiprocessors: event.count.get(),
            all_threads,
            all_blocks,
            all_shared,
            memory: event.bytes.get(),
        }
    }
}

/// Where a stream belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// To the context with this id.
    Context(u32),
    /// It was destroyed.
    Gone,
}

/// Devices, contexts and streams.
#[derive(Debug, Default)]
pub(super) struct Devices {
    limits: FxHashMap<u32, Limits>,
    /// The device of each context.
    contexts: FxHashMap<u32, u32>,
    streams: FxHashMap<u64, Home>,
}

impl Devices {
    pub(super) fn apply(&mut self, what: What, event: &Event) {
        match what {
            What::DeviceLimits if self.limits.len() < MAX_DEVICES => {
                self.limits.insert(event.id.get(), Limits::of(event));
            }
            What::ContextCreated if self.contexts.len() < MAX_CONTEXTS => {
                self.contexts.insert(event.id.get(), event.device.get().into());
            }
            What::StreamCreated | What::StreamDestroyed => {
                let home = match what {
                    What::StreamCreated => Home::Context(event.context.get()),
                    _ => Home::Gone,
                };
                let stream = event.object.get();
                if self.streams.len() < MAX_STREAMS || self.streams.contains_key(&stream) {
                    self.streams.insert(stream, home);
                }
            }
            _ => {}
        }
    }

    /// What the device of a context can do.
    pub(super) fn limits(&self, context: u32) -> Limits {
        let of_context = self.contexts.get(&context).and_then(|device| self.limits.get(device));
        // With one device it can be no other.
        let only = || if self.limits.len() == 1 { self.limits.values().next() } else { None };
        of_context.or_else(only).copied().unwrap_or(ASSUMED)
    }

    /// Where a stream belongs, if that was seen.
    pub(super) fn home(&self, stream: u64) -> Option<Home> {
        self.streams.get(&stream).copied()
    }
}
