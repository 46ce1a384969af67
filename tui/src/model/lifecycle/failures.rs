//! Launches and allocations that failed, grouped by root cause.

use std::sync::Arc;

use gtop_protocol::lifecycle::Event;

use super::super::snapshot::KernelName;
use super::limits::{Devices, Home, Limits};
use crate::view::units::count;

/// Groups kept.
const MAX_GROUPS: usize = 256;

/// Why a launch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A dimension of the grid is 0 or beyond what any device allows.
    Grid,
    /// A dimension of the block, or all its threads, are 0 or beyond what any device allows.
    Block,
    /// Too many registers or other resources for so many threads.
    Registers,
    /// More shared memory than the kernel may have.
    SharedMemory,
    /// More blocks than can run at once, which a cooperative launch needs.
    Cooperative,
    /// The cluster.
    Cluster,
    /// No memory.
    OutOfMemory,
    /// The code is not for this device, or damaged.
    InvalidImage,
    /// A context that is gone, or another one's.
    WrongContext,
    /// Something invalid was passed, such as a graph that is gone.
    InvalidHandle,
    /// A capture forbids it.
    Capture,
    /// An error of work that ran before.
    Earlier,
    /// None of these.
    Other,
}

impl Root {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grid => "the grid is beyond the device's limits",
            Self::Block => "the block is beyond the device's limits",
            Self::Registers => "too many registers for so many threads",
            Self::SharedMemory => "more shared memory than the kernel opted in to",
            Self::Cooperative => "the cooperative launch is too large to run at once",
            Self::Cluster => "the cluster is not possible",
            Self::OutOfMemory => "out of memory",
            Self::InvalidImage => "the code is not for this device",
            Self::WrongContext => "what it uses is of another context, or of one that is gone",
            Self::InvalidHandle => "something that is gone or was never there",
            Self::Capture => "a capture forbids it",
            Self::Earlier => "work that ran before had failed",
            Self::Other => "another error",
        }
    }
}

/// Failures with one root cause, of one kernel or call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The root cause.
    pub root: Root,
    /// `CUresult` of the first.
    pub result: u32,
    /// Callback id of the call.
    pub code: u32,
    /// Name id of the kernel; 0 is none.
    pub kernel: u32,
    /// Its name, in a snapshot.
    pub name: Option<Arc<KernelName>>,
    /// How often.
    pub count: u64,
    /// The first and the last time, `CLOCK_REALTIME` nanoseconds.
    pub times: [u64; 2],
    /// Thread of the first.
    pub thread: u32,
    /// Grid of the first.
    pub grid: [u32; 3],
    /// Block of the first.
    pub block: [u32; 3],
    /// Dynamic shared memory of a launch, bytes; or what was asked for.
    pub bytes: u64,
    /// Blocks of the cluster; 0 is none.
    pub cluster: u32,
    /// The limit that was broken, in words, when it can be told.
    pub limit: Option<String>,
}

/// All of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Failures {
    pub(in super::super) groups: Vec<Failure>,
}

/// Blocks of a cluster that every device with clusters allows, and the most any does.
const PORTABLE_CLUSTER: u32 = 8;
const MAX_CLUSTER: u32 = 16;

impl Failures {
    pub(super) fn kernel(&mut self, event: &Event, devices: &Devices) {
        let (root, limit) = root_of_launch(event, devices);
        self.add(root, limit, event);
    }

    pub(super) fn graph_launch(&mut self, event: &Event, devices: &Devices) {
        let result = event.result.get();
        self.add(root_of_result(result), limit_of_result(event, devices), event);
    }

    /// Another call; the kernel launched before it did not fail.
    pub(super) fn call(&mut self, event: &Event, devices: &Devices) {
        let result = event.result.get();
        if result != 0 {
            let event = &Event { name: 0.into(), ..*event };
            self.add(root_of_result(result), limit_of_result(event, devices), event);
        }
    }

    fn add(&mut self, root: Root, limit: Option<String>, event: &Event) {
        let (code, kernel, time) = (event.code.get(), event.name.get(), event.time.get());
        let same =
            |failure: &&mut Failure| (failure.root, failure.code, failure.kernel) == (root, code, kernel);
        if let Some(failure) = self.groups.iter_mut().find(same) {
            failure.count += 1;
            failure.times[1] = time;
            return;
        }
        if self.groups.len() >= MAX_GROUPS {
            return;
        }
        self.groups.push(Failure {
            root,
            result: event.result.get(),
            code,
            kernel,
            name: None,
            count: 1,
            times: [time; 2],
            thread: event.thread.get(),
            grid: event.grid.map(zerocopy::U32::get),
            block: event.block.map(zerocopy::U32::get),
            bytes: event.bytes.get(),
            cluster: event.count.get(),
            limit,
        });
    }
}

/// What of a launch was too much, and the limit.
fn root_of_launch(event: &Event, devices: &Devices) -> (Root, Option<String>) {
    let limits = devices.limits(event.context.get());
    let grid = event.grid.map(zerocopy::U32::get);
    let block = event.block.map(zerocopy::U32::get);
    let threads = volume(block);
    let named = |root: Root, text: String| (root, Some(with_source(text, limits.told)));
    match event.result.get() {
        // 1 invalid value, 9 and 701 as the runtime and the driver call a configuration that cannot be.
        1 | 9 | 701 | 912 => {}
        720 => return (Root::Cooperative, Some(cooperative(event, &limits, threads))),
        400 => return wrong_context(event, devices),
        result => return (root_of_result(result), limit_of_result(event, devices)),
    }
    for (i, axis) in ["x", "y", "z"].into_iter().enumerate() {
        if block[i] == 0 || block[i] > limits.block[i] {
            return named(Root::Block, format!("block {axis} is {}, of 1 to {}", block[i], limits.block[i]));
        }
        if grid[i] == 0 || grid[i] > limits.grid[i] {
            return named(Root::Grid, format!("grid {axis} is {}, of 1 to {}", grid[i], limits.grid[i]));
        }
    }
    if threads > u64::from(limits.threads) {
        return named(Root::Block, format!("{threads} threads a block, of {}", limits.threads));
    }
    let cluster = event.count.get();
    if event.result.get() == 912 || cluster > PORTABLE_CLUSTER {
        let most = if cluster > MAX_CLUSTER { MAX_CLUSTER } else { PORTABLE_CLUSTER };
        let text = format!("{cluster} blocks a cluster, of {most} without opting in to more");
        return (Root::Cluster, Some(text));
    }
    let (shared, opted_in) = (event.bytes.get(), u64::from(limits.shared_opted_in));
    let shared_is_too_much = shared > u64::from(limits.shared);
    // Whatever the shared memory: 701 is of registers, unless no kernel on the device may have so much of it.
    if event.result.get() == 701 && !(opted_in > 0 && shared > opted_in) {
        return (Root::Registers, Some(registers(&limits, threads)));
    }
    if !shared_is_too_much {
        return (Root::Other, None);
    }
    let of = match opted_in {
        0 => format!(
            "of {} without opting in, and as many as the kernel opted in to with it",
            count(limits.shared.into())
        ),
        most if shared > most => {
            format!("of the {} that a kernel may opt in to on this device", count(most))
        }
        most => {
            format!(
                "of {} without opting in, and as many as the kernel opted in to with it, {} at most",
                count(limits.shared.into()),
                count(most)
            )
        }
    };
    named(Root::SharedMemory, format!("{} bytes of dynamic shared memory, {of}", count(shared)))
}

/// All blocks of a grid, or threads of a block.
fn volume(of: [u32; 3]) -> u64 {
    of.into_iter().fold(1, |product, n| product.saturating_mul(u64::from(n)))
}

/// Says so where a limit is not the device's own.
fn with_source(text: String, told: bool) -> String {
    if told { text } else { text + " (assumed: what this device allows is not known)" }
}

fn registers(limits: &Limits, threads: u64) -> String {
    match u64::from(limits.registers).checked_div(threads) {
        Some(each) if each > 0 => format!(
            "{threads} threads a block share {} registers: {each} for each, and the kernel needs more",
            limits.registers
        ),
        _ => format!(
            "{threads} threads a block; how many registers they may share on this device is not known"
        ),
    }
}

/// How many blocks can run at once as far as their threads and their dynamic shared memory say it: registers and static
/// shared memory may allow fewer.
fn cooperative(event: &Event, limits: &Limits, threads: u64) -> String {
    let grid = volume(event.grid.map(zerocopy::U32::get));
    let by_threads = u64::from(limits.all_threads).checked_div(threads);
    let by_shared = u64::from(limits.all_shared).checked_div(event.bytes.get());
    let each = [Some(u64::from(limits.all_blocks)), by_threads, by_shared].into_iter().flatten().min();
    let multiprocessors = u64::from(limits.multiprocessors);
    match each {
        Some(each) if each * multiprocessors > 0 => {
            let most = each * multiprocessors;
            let how = format!("{multiprocessors} multiprocessors with {each} each");
            if grid > most {
                format!("{grid} blocks, of {most} that can run at once: {how}")
            } else {
                format!(
                    "{grid} blocks; threads and dynamic shared memory would allow {most} at once ({how}), registers or \
                     static shared memory do not"
                )
            }
        }
        _ => format!("{grid} blocks at once; how many can run on this device is not known"),
    }
}

/// A handle that is not valid: the stream's, if it is known where that belongs, else it may be the function's too. The
/// launch was to run in the context that is current, or from CUDA 13.0 on in the stream's (NVIDIA/cccl#6986; not
/// measured).
fn wrong_context(event: &Event, devices: &Devices) -> (Root, Option<String>) {
    let (stream, current) = (event.stream.get(), event.context.get());
    match devices.home(stream) {
        Some(Home::Gone) => (Root::InvalidHandle, Some(format!("stream {stream:#x} was destroyed before"))),
        Some(Home::Context(home)) if home != current && home != 0 && current != 0 => {
            let text = format!("stream {stream:#x} is of context {home}, and context {current} is current");
            (Root::WrongContext, Some(text))
        }
        Some(Home::Context(home)) if home != 0 => {
            let text = format!(
                "the function is not of context {home}, as stream {stream:#x} is, or its module is gone"
            );
            (Root::WrongContext, Some(text))
        }
        _ => {
            let text =
                format!("the function is not of context {current}, which is current, or its module is gone");
            (Root::WrongContext, Some(text))
        }
    }
}

/// The limit that a call broke that is no launch of a kernel, or a launch for another reason than its size.
fn limit_of_result(event: &Event, devices: &Devices) -> Option<String> {
    let memory = devices.limits(event.context.get()).memory;
    match (event.result.get(), event.bytes.get()) {
        (2, bytes) if bytes > memory && memory > 0 => {
            Some(format!("{} bytes, of {} that the device has in all", count(bytes), count(memory)))
        }
        (2, _) if memory > 0 => {
            Some(format!("the device has {} bytes in all; others hold the rest", count(memory)))
        }
        _ => None,
    }
}

const fn root_of_result(result: u32) -> Root {
    match result {
        2 => Root::OutOfMemory,
        200 | 209 | 218 | 222 | 300 | 913 => Root::InvalidImage,
        201 | 709 | 3 | 4 => Root::WrongContext,
        1 | 400 => Root::InvalidHandle,
        701 => Root::Registers,
        720 => Root::Cooperative,
        912 => Root::Cluster,
        700 | 702 | 715 | 716 | 717 | 718 | 719 => Root::Earlier,
        900..=908 => Root::Capture,
        _ => Root::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::lifecycle::What;

    fn launch(grid: [u32; 3], block: [u32; 3], bytes: u64, cluster: u32, result: u32) -> Event {
        Event {
            grid: grid.map(Into::into),
            block: block.map(Into::into),
            bytes: bytes.into(),
            count: cluster.into(),
            result: result.into(),
            context: 1.into(),
            stream: 0x70.into(),
            ..Event::default()
        }
    }

    /// An H200 with a context and two streams, one of another context, as the driver tells of them.
    fn h200() -> Devices {
        let mut devices = Devices::default();
        let both = |low: u64, high: u64| (low | high << 32).into();
        devices.apply(What::ContextCreated, &Event { id: 1.into(), device: 0.into(), ..Event::default() });
        let of_device = Event {
            grid: [0x7fff_ffff, 65_535, 65_535].map(Into::into),
            block: [1024, 1024, 64].map(Into::into),
            count: 132.into(),
            object: both(1024, 65_536),
            other: both(232_448, 49_152),
            node: both(2048, 32),
            stream: both(233_472, 65_536),
            bytes: 150_000_000_000.into(),
            ..Event::default()
        };
        devices.apply(What::DeviceLimits, &of_device);
        // Another device, so that only the context says which one it is.
        devices.apply(What::DeviceLimits, &Event { id: 1.into(), ..Event::default() });
        for (stream, context) in [(0x70u64, 1), (0x71, 2), (0x72, 1)] {
            let event = Event { object: stream.into(), context: context.into(), ..Event::default() };
            devices.apply(What::StreamCreated, &event);
        }
        devices.apply(What::StreamDestroyed, &Event { object: 0x72.into(), ..Event::default() });
        devices
    }

    #[test]
    fn each_limit_that_is_broken_is_named() {
        let one = [1; 3];
        let devices = Devices::default();
        let of = |event: Event| root_of_launch(&event, &devices);
        assert_eq!(of(launch([1, 65_536, 1], one, 0, 0, 1)).0, Root::Grid);
        assert_eq!(of(launch([0, 1, 1], one, 0, 0, 1)).0, Root::Grid);
        assert_eq!(of(launch(one, [2048, 1, 1], 0, 0, 1)).0, Root::Block);
        let (root, limit) = of(launch(one, [1024, 2, 1], 0, 0, 1));
        let text = "2048 threads a block, of 1024 (assumed: what this device allows is not known)";
        assert_eq!((root, limit.as_deref()), (Root::Block, Some(text)));
        assert_eq!(of(launch(one, one, 100 << 10, 0, 1)).0, Root::SharedMemory);
        assert_eq!(of(launch(one, [1024, 1, 1], 0, 0, 701)).0, Root::Registers);
        assert_eq!(of(launch(one, [1024, 1, 1], 98_304, 0, 701)).0, Root::Registers);
        assert_eq!(of(launch(one, one, 0, 32, 912)).0, Root::Cluster);
        assert_eq!(of(launch(one, one, 0, 0, 720)).0, Root::Cooperative);
        assert_eq!(of(launch(one, one, 0, 0, 2)).0, Root::OutOfMemory);
        assert_eq!(of(launch(one, one, 0, 0, 209)).0, Root::InvalidImage);
        assert_eq!(of(launch(one, one, 0, 0, 201)).0, Root::WrongContext);
        assert_eq!(of(launch(one, one, 0, 0, 400)).0, Root::WrongContext);
        assert_eq!(of(launch(one, one, 0, 0, 700)).0, Root::Earlier);
        assert_eq!(of(launch(one, one, 0, 0, 901)).0, Root::Capture);
        assert_eq!(of(launch(one, one, 0, 0, 1)), (Root::Other, None));
    }

    #[test]
    fn limits_are_those_of_the_device_of_the_launch() {
        let devices = h200();
        let of = |event: Event| {
            let (root, limit) = root_of_launch(&event, &devices);
            (root, limit.unwrap_or_default())
        };
        let (one, big) = ([1; 3], [1024, 1, 1]);
        let says = |event: Event, root: Root, text: &str| assert_eq!(of(event), (root, text.to_owned()));
        says(launch(one, [1, 1, 65], 0, 0, 1), Root::Block, "block z is 65, of 1 to 64");
        says(
            launch(one, big, 98_304, 0, 701),
            Root::Registers,
            "1024 threads a block share 65536 registers: 64 for each, and the kernel needs more",
        );
        says(
            launch(one, one, 98_304, 0, 1),
            Root::SharedMemory,
            "98,304 bytes of dynamic shared memory, of 49,152 without opting in, and as many as the kernel opted in to with \
             it, 232,448 at most",
        );
        for result in [1, 701] {
            says(
                launch(one, one, 300 << 10, 0, result),
                Root::SharedMemory,
                "307,200 bytes of dynamic shared memory, of the 232,448 that a kernel may opt in to on this device",
            );
        }
        says(
            launch([500, 1, 1], big, 0, 0, 720),
            Root::Cooperative,
            "500 blocks, of 264 that can run at once: 132 multiprocessors with 2 each",
        );
        let (_, text) = of(launch([200, 1, 1], big, 0, 0, 720));
        assert!(text.starts_with("200 blocks; threads and dynamic shared memory would allow 264"), "{text}");
        let (_, text) = of(launch([200, 1, 1], one, 200_000, 0, 720));
        assert!(text.contains("of 132 that can run at once"), "{text}");
        let on = |stream: u64| Event { stream: stream.into(), ..launch(one, one, 0, 0, 400) };
        says(on(0x71), Root::WrongContext, "stream 0x71 is of context 2, and context 1 is current");
        says(on(0x72), Root::InvalidHandle, "stream 0x72 was destroyed before");
        says(
            on(0x70),
            Root::WrongContext,
            "the function is not of context 1, as stream 0x70 is, or its module is gone",
        );
        assert!(of(on(0)).1.starts_with("the function is not of context 1, which is current"));
        let allocate = |bytes: u64| {
            let mut failures = Failures::default();
            failures.call(&Event { name: 9.into(), ..launch([0; 3], [0; 3], bytes, 0, 2) }, &devices);
            let failure = failures.groups.remove(0);
            assert_eq!((failure.root, failure.kernel), (Root::OutOfMemory, 0));
            failure.limit.unwrap()
        };
        assert_eq!(
            allocate(1 << 45),
            "35,184,372,088,832 bytes, of 150,000,000,000 that the device has in all"
        );
        assert_eq!(allocate(1 << 30), "the device has 150,000,000,000 bytes in all; others hold the rest");
        // With two devices, of a context that was not seen to be made nothing is known but what all can do.
        let unseen = Event { context: 9.into(), ..launch(one, big, 0, 0, 701) };
        assert!(of(unseen).1.ends_with("on this device is not known"));
    }

    #[test]
    fn equal_failures_are_one_group() {
        let mut failures = Failures::default();
        let event = Event {
            name: 3.into(),
            block: [2048, 1, 1].map(Into::into),
            result: 1.into(),
            ..Event::default()
        };
        for i in 0..1000u64 {
            let event = Event { time: i.into(), grid: [1; 3].map(Into::into), ..event };
            failures.kernel(&event, &Devices::default());
        }
        assert_eq!(failures.groups.len(), 1);
        assert_eq!((failures.groups[0].count, failures.groups[0].times), (1000, [0, 999]));
        for i in 0..1000u32 {
            failures.kernel(&Event { name: i.into(), ..event }, &Devices::default());
        }
        assert_eq!(failures.groups.len(), MAX_GROUPS);
    }
}
