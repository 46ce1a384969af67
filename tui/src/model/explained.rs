//! The GPU memory of a process as NVML gives it, explained as far as it can be.

use super::snapshot::{Allocated, DeviceMemory, Pool, Process};

/// Device memory of one device buffer of CUPTI, bytes (measured on an H200).
pub(super) const CUPTI_BUFFER: u64 = 4 << 20;

/// Where the memory of a process went, bytes. What was not asked for or could not be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryAccount {
    /// All of it, from NVML.
    pub used: Option<u64>,
    /// Allocated on devices, where memory records are on, and in none of those below.
    pub device: Option<u64>,
    /// Allocated from memory pools, likewise.
    pub pool: Option<u64>,
    /// Mapped into virtual addresses, likewise; what is mapped twice counts twice.
    pub mapped: Option<u64>,
    /// Managed memory, likewise.
    pub managed: Option<u64>,
    /// Pinned host memory, which is no GPU memory, likewise.
    pub pinned: Option<u64>,
    /// The most that was allocated of those together.
    pub peak: Option<u64>,
    /// Reserved for graphs, by the driver or else by memory records.
    pub graphs_reserved: Option<u64>,
    /// Of that, in use by them, by the driver.
    pub graphs_used: Option<u64>,
    /// Reserved in the default memory pools, and in use there. What is in use is in `pool` too.
    pub pools: Option<[u64; 2]>,
    /// CUPTI's device buffers: the price of tracing.
    pub cupti: Option<u64>,
    /// What remains: contexts, modules, libraries, and what was allocated before anybody looked. `None` without memory
    /// records; negative where managed memory lies on the host.
    pub unexplained: Option<i64>,
}

/// What is told of a process's memory beside NVML.
pub(super) struct Told<'a> {
    pub(super) allocated: Option<Allocated>,
    pub(super) graphs: &'a [DeviceMemory],
    pub(super) pools: &'a [Pool],
}

fn all(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

impl Told<'_> {
    fn account(&self) -> MemoryAccount {
        let sum = |of: fn(&DeviceMemory) -> u64| all(self.graphs.iter().map(of));
        let told = !self.graphs.is_empty();
        let of_records = self.allocated.map(|sums| sums.graphs).filter(|bytes| *bytes > 0);
        let buffers = all(self.pools.iter().filter_map(|pool| pool.observed.or(pool.computed)));
        MemoryAccount {
            device: self.allocated.map(|sums| sums.device),
            managed: self.allocated.map(|sums| sums.managed),
            pinned: self.allocated.map(|sums| sums.pinned),
            peak: self.allocated.map(|sums| sums.peak),
            pool: self.allocated.map(|sums| sums.pool),
            mapped: self.allocated.map(|sums| sums.mapped),
            graphs_reserved: if told { Some(sum(|memory| memory.graph_reserved)) } else { of_records },
            graphs_used: told.then(|| sum(|memory| memory.graph_used)),
            pools: told.then(|| [sum(|memory| memory.pool_reserved), sum(|memory| memory.pool_used)]),
            cupti: (!self.pools.is_empty()).then(|| buffers.saturating_mul(CUPTI_BUFFER)),
            ..MemoryAccount::default()
        }
    }

    /// How much of the memory is accounted for, bytes; `None` without memory records.
    pub(super) fn explained(&self) -> Option<u64> {
        self.allocated.map(|_| self.account().told())
    }
}

impl MemoryAccount {
    /// What its parts make up, of those that are known; bytes.
    #[must_use]
    pub fn told(&self) -> u64 {
        let unused = self.pools.map(|[reserved, used]| reserved.saturating_sub(used));
        let allocated = [self.device, self.pool, self.mapped, self.managed];
        all([self.graphs_reserved, unused, self.cupti].into_iter().chain(allocated).flatten())
    }
}

impl Process {
    /// Where its memory went.
    #[must_use]
    pub fn memory_account(&self) -> MemoryAccount {
        let told = Told { allocated: self.allocated, graphs: &self.graphs_view.memory, pools: &self.pools };
        let account = told.account();
        let used = self.memory();
        let unexplained = used.filter(|_| self.allocated.is_some());
        let unexplained = unexplained.map(|used| used.wrapping_sub(account.told()).cast_signed());
        MemoryAccount { used, unexplained, ..account }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::ProcessMemory;

    #[test]
    fn what_is_not_known_is_not_explained() {
        assert_eq!(Process::default().memory_account(), MemoryAccount::default());
        let row = ProcessMemory { used: Some(1000 << 20), ..ProcessMemory::default() };
        let pool = Pool { computed: Some(3), ..Pool::default() };
        let mut process = Process { gpu_memory: vec![row], pools: vec![pool], ..Process::default() };
        let account = process.memory_account();
        assert_eq!(
            (account.cupti, account.unexplained),
            (Some(12 << 20), None),
            "nobody told of allocations"
        );
        process.allocated = Some(Allocated { device: 600 << 20, ..Allocated::default() });
        let memory =
            DeviceMemory { graph_reserved: 64 << 20, graph_used: 32 << 20, ..DeviceMemory::default() };
        process.graphs_view.memory = vec![memory];
        let account = process.memory_account();
        assert_eq!((account.graphs_reserved, account.graphs_used), (Some(64 << 20), Some(32 << 20)));
        assert_eq!(account.unexplained, Some((1000 - 600 - 64 - 12) << 20));
        // What a pool reserves and nobody uses is in no allocation.
        (process.graphs_view.memory[0].pool_reserved, process.graphs_view.memory[0].pool_used) =
            (128 << 20, 96 << 20);
        assert_eq!(process.memory_account().unexplained, Some((1000 - 600 - 64 - 12 - 32) << 20));
        let sums = [(300, 100), (200, 200)].map(|(pool, mapped)| Allocated {
            device: (600 - pool - mapped) << 20,
            pool: pool << 20,
            mapped: mapped << 20,
            graphs: 64 << 20,
            ..Allocated::default()
        });
        for sums in sums {
            process.allocated = Some(sums);
            let account = process.memory_account();
            assert_eq!(account.unexplained, Some((1000 - 600 - 64 - 12 - 32) << 20), "graphs once");
        }
        process.graphs_view.memory.clear();
        let account = process.memory_account();
        assert_eq!((account.graphs_reserved, account.graphs_used), (Some(64 << 20), None));
        assert_eq!(account.unexplained, Some((1000 - 600 - 64 - 12) << 20));
        process.gpu_memory[0].used = None;
        assert_eq!((process.memory_account().used, process.memory_account().unexplained), (None, None));
    }
}
