//! Launches and allocations that failed, grouped by root cause.

use gtop_protocol::lifecycle::Event;

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
            Self::WrongContext => "the context is gone or another one's",
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

/// The most threads of a block and blocks of a grid, on every device since compute capability 3.0.
const MAX_THREADS: u64 = 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
/// Blocks of a cluster that every device with clusters allows, and the most any does.
const PORTABLE_CLUSTER: u32 = 8;
const MAX_CLUSTER: u32 = 16;
/// Shared memory of a block without opting in, bytes.
const DEFAULT_SHARED: u64 = 48 << 10;

impl Failures {
    pub(super) fn kernel(&mut self, event: &Event) {
        let (root, limit) = root_of_launch(event);
        self.add(root, limit, event);
    }

    pub(super) fn graph_launch(&mut self, event: &Event) {
        self.add(root_of_result(event.result.get()), None, event);
    }

    pub(super) fn call(&mut self, event: &Event) {
        if event.result.get() != 0 {
            self.add(root_of_result(event.result.get()), None, event);
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
fn root_of_launch(event: &Event) -> (Root, Option<String>) {
    let grid = event.grid.map(zerocopy::U32::get);
    let block = event.block.map(zerocopy::U32::get);
    let axis = ["x", "y", "z"];
    let result = event.result.get();
    // 1 invalid value, 9 and 701 as the runtime and the driver call a configuration that cannot be.
    if !matches!(result, 1 | 9 | 701 | 912) {
        return (root_of_result(result), None);
    }
    for i in 0..3 {
        if block[i] == 0 || block[i] > MAX_BLOCK[i] {
            return (
                Root::Block,
                Some(format!("block {} is {}, of 1 to {}", axis[i], block[i], MAX_BLOCK[i])),
            );
        }
        if grid[i] == 0 || grid[i] > MAX_GRID[i] {
            return (Root::Grid, Some(format!("grid {} is {}, of 1 to {}", axis[i], grid[i], MAX_GRID[i])));
        }
    }
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    if threads > MAX_THREADS {
        return (Root::Block, Some(format!("{threads} threads a block, of {MAX_THREADS}")));
    }
    let cluster = event.count.get();
    if result == 912 || cluster > PORTABLE_CLUSTER {
        let most = if cluster > MAX_CLUSTER { MAX_CLUSTER } else { PORTABLE_CLUSTER };
        return (
            Root::Cluster,
            Some(format!("{cluster} blocks a cluster, of {most} without opting in to more")),
        );
    }
    if event.bytes.get() > DEFAULT_SHARED {
        let text = format!(
            "{} bytes of dynamic shared memory, of {DEFAULT_SHARED} without opting in",
            event.bytes.get()
        );
        return (Root::SharedMemory, Some(text));
    }
    if result == 701 {
        return (Root::Registers, Some(format!("{threads} threads a block with the registers it needs")));
    }
    (Root::Other, None)
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

    fn launch(
        grid: [u32; 3],
        block: [u32; 3],
        bytes: u64,
        cluster: u32,
        result: u32,
    ) -> (Root, Option<String>) {
        root_of_launch(&Event {
            grid: grid.map(Into::into),
            block: block.map(Into::into),
            bytes: bytes.into(),
            count: cluster.into(),
            result: result.into(),
            ..Event::default()
        })
    }

    #[test]
    fn each_limit_that_is_broken_is_named() {
        let one = [1; 3];
        assert_eq!(launch([1, 65_536, 1], one, 0, 0, 1).0, Root::Grid);
        assert_eq!(launch([0, 1, 1], one, 0, 0, 1).0, Root::Grid);
        assert_eq!(launch(one, [2048, 1, 1], 0, 0, 1).0, Root::Block);
        let (root, limit) = launch(one, [1024, 2, 1], 0, 0, 1);
        assert_eq!((root, limit.as_deref()), (Root::Block, Some("2048 threads a block, of 1024")));
        assert_eq!(launch(one, one, 100 << 10, 0, 1).0, Root::SharedMemory);
        assert_eq!(launch(one, [1024, 1, 1], 0, 0, 701).0, Root::Registers);
        assert_eq!(launch(one, one, 0, 32, 912).0, Root::Cluster);
        assert_eq!(launch(one, one, 0, 0, 720).0, Root::Cooperative);
        assert_eq!(launch(one, one, 0, 0, 2).0, Root::OutOfMemory);
        assert_eq!(launch(one, one, 0, 0, 209).0, Root::InvalidImage);
        assert_eq!(launch(one, one, 0, 0, 201).0, Root::WrongContext);
        assert_eq!(launch(one, one, 0, 0, 700).0, Root::Earlier);
        assert_eq!(launch(one, one, 0, 0, 901).0, Root::Capture);
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
            failures.kernel(&Event { time: i.into(), grid: [1; 3].map(Into::into), ..event });
        }
        assert_eq!(failures.groups.len(), 1);
        assert_eq!((failures.groups[0].count, failures.groups[0].times), (1000, [0, 999]));
        for i in 0..1000u32 {
            failures.kernel(&Event { name: i.into(), ..event });
        }
        assert_eq!(failures.groups.len(), MAX_GROUPS);
    }
}
