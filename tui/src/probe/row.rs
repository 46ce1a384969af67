//! The rows of the probe: what is replayed, which kinds are on, and what the law of device buffers says of it.

use std::fmt;
use std::str::FromStr;

use gtop_protocol::pool::SLOTS_PER_BUFFER;
use gtop_protocol::{Kind, KindSet};

use super::load::{Plan, Workload};

/// What a row's process repeats: a graph of one tiny kernel behind one other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A copy within the device.
    D2d,
    /// A memory set.
    Memset,
    /// A pinned copy to the device.
    H2d,
    /// A pinned copy from the device.
    D2h,
    /// A copy within the device, and one kernel outside the graph each turn.
    D2dEager,
}

impl Load {
    /// Every load, in the order of the table.
    pub const ALL: [Self; 5] = [Self::D2d, Self::Memset, Self::H2d, Self::D2h, Self::D2dEager];

    /// The name on the command line, in the table and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::D2d => "d2d",
            Self::Memset => "memset",
            Self::H2d => "h2d",
            Self::D2h => "d2h",
            Self::D2dEager => "d2d+eager",
        }
    }

    /// What it is on a real GPU.
    #[must_use]
    pub fn plan(self) -> Plan {
        let workload = match self {
            Self::D2d | Self::D2dEager => Workload::D2d,
            Self::Memset => Workload::Memset,
            Self::H2d => Workload::H2d,
            Self::D2h => Workload::D2h,
        };
        workload.plan(None, self == Self::D2dEager)
    }

    /// The kind that has to be on if the graph's other node is not to hold its device buffer for ever on a defective
    /// CUPTI; none for copies from and to the host (measured: they leak nothing).
    #[must_use]
    pub const fn covered_by(self) -> Option<Kind> {
        match self {
            Self::D2d | Self::D2dEager => Some(Kind::Memcpy),
            Self::Memset => Some(Kind::Memset),
            Self::H2d | Self::D2h => None,
        }
    }

    /// Kernels of one turn.
    const fn kernels(self) -> u64 {
        if matches!(self, Self::D2dEager) { 2 } else { 1 }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Load {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|load| load.name() == name).ok_or(())
    }
}

/// One row: a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it repeats.
    pub load: Load,
    /// The activity kinds that are on from before CUDA begins.
    pub kinds: KindSet,
    /// Device buffers its context may have.
    pub pool_limit: u64,
    /// Turns, each one replay of the graph.
    pub turns: u64,
}

impl Row {
    /// Whether a defective CUPTI leaks device buffers over it.
    #[must_use]
    pub fn is_uncovered(&self) -> bool {
        self.load.covered_by().is_some_and(|kind| !self.kinds.has(kind))
    }
}

/// The law of device buffers: from the first uncovered slot on a context has limit × slots of them, and every node
/// takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// Slots in one device buffer.
    pub slots: u64,
}

impl Default for Law {
    fn default() -> Self {
        Self { slots: SLOTS_PER_BUFFER }
    }
}

impl Law {
    /// How many kernels a defective CUPTI records well before it stops, and the kernels that one buffer holds;
    /// `None` where nothing leaks.
    #[must_use]
    pub fn stop(self, row: &Row) -> Option<(u64, u64)> {
        let (kernels, slots) = (row.load.kernels(), row.load.kernels() + 1);
        let of = |buffers: u64| buffers.saturating_mul(self.slots) / slots * kernels;
        row.is_uncovered().then(|| (of(row.pool_limit), of(1)))
    }

    /// A quarter more turns than a pool of this limit holds of a graph with two nodes.
    const fn turns(self, pool_limit: u64) -> u64 {
        pool_limit.saturating_mul(self.slots) / 8 * 5
    }

    fn row(self, load: Load, kinds: KindSet, pool_limit: u64) -> Row {
        Row { load, kinds, pool_limit, turns: self.turns(pool_limit) }
    }
}

const KERNEL: KindSet = KindSet::EMPTY.with(Kind::Kernel);

/// Every load under every set of kinds at a pool limit, and the defect once more at twice the limit.
#[must_use]
pub fn full(pool_limit: u64, law: Law) -> Vec<Row> {
    let sets = [KERNEL, KERNEL.with(Kind::Memcpy), KERNEL.with(Kind::Memset), KindSet::SAFE];
    let mut rows: Vec<Row> =
        Load::ALL.iter().flat_map(|load| sets.map(|kinds| law.row(*load, kinds, pool_limit))).collect();
    rows.push(law.row(Load::D2d, KERNEL, pool_limit.saturating_mul(2)));
    rows
}

/// The rows that decide: the defect by a copy and by a memory set, and the set of kinds that gtop arms with.
#[must_use]
pub fn quick(pool_limit: u64, law: Law) -> Vec<Row> {
    vec![
        law.row(Load::D2d, KERNEL, pool_limit),
        law.row(Load::Memset, KERNEL, pool_limit),
        law.row(Load::D2d, KindSet::SAFE, pool_limit),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_gives_what_was_measured() {
        let law = Law::default();
        let stop = |load, kinds, limit| law.stop(&law.row(load, kinds, limit)).map(|(stop, _)| stop);
        assert_eq!(stop(Load::D2d, KERNEL, 8), Some(400_000));
        assert_eq!(stop(Load::Memset, KERNEL, 8), Some(400_000));
        assert_eq!(stop(Load::D2d, KERNEL, 16), Some(800_000));
        assert_eq!(stop(Load::D2d, KERNEL, 250), Some(12_500_000));
        assert_eq!(stop(Load::D2dEager, KERNEL, 4), Some(266_666));
        assert_eq!(stop(Load::D2d, KERNEL.with(Kind::Memset), 8), Some(400_000), "the kind must match");
        assert_eq!(stop(Load::D2d, KERNEL.with(Kind::Memcpy), 8), None);
        assert_eq!(stop(Load::H2d, KERNEL, 8), None);
    }

    #[test]
    fn every_row_launches_more_than_a_leaking_pool_holds() {
        let law = Law::default();
        for row in full(8, law).into_iter().chain(quick(3, law)) {
            let launched = row.turns * row.load.kernels();
            assert!(law.stop(&row).is_none_or(|(stop, buffer)| stop + buffer / 2 < launched), "{row:?}");
        }
        assert_eq!((full(8, law).len(), full(8, law)[0].turns), (21, 500_000));
        let quick = quick(8, law);
        assert!(quick.iter().all(|row| full(8, law).contains(row)));
    }

    #[test]
    fn loads_have_names() {
        for load in Load::ALL {
            assert_eq!(load.name().parse(), Ok(load));
        }
        assert!("plain".parse::<Load>().is_err());
    }
}
