//! What really happened, counted where it happened: the ground truth that a client's numbers are held against.

use crate::layout::kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kinds of records, as clients call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Kernels.
    Kernel,
    /// Copies, between devices too.
    Memcpy,
    /// Memory sets.
    Memset,
    /// CUPTI's own overhead.
    Overhead,
    /// Synchronisation.
    Sync,
    /// Allocations and frees.
    Memory,
    /// Runtime API calls.
    Runtime,
    /// Driver API calls.
    Driver,
    /// Whole graphs.
    GraphTrace,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Kernel,
        Self::Memcpy,
        Self::Memset,
        Self::Overhead,
        Self::Sync,
        Self::Memory,
        Self::Runtime,
        Self::Driver,
        Self::GraphTrace,
    ];

    /// The kind of a record, by the value in its first word.
    pub(crate) const fn of(cupti: u32) -> Option<Self> {
        Some(match cupti {
            kind::KERNEL | kind::SERIAL_KERNEL => Self::Kernel,
            kind::MEMCPY | kind::MEMCPY2 => Self::Memcpy,
            kind::MEMSET => Self::Memset,
            kind::OVERHEAD => Self::Overhead,
            kind::SYNC => Self::Sync,
            kind::MEMORY2 => Self::Memory,
            kind::RUNTIME => Self::Runtime,
            kind::DRIVER => Self::Driver,
            kind::GRAPH_TRACE => Self::GraphTrace,
            _ => return None,
        })
    }

    /// Whether the record is of work on the GPU, whose timestamps have a class.
    #[must_use]
    pub const fn is_work(self) -> bool {
        matches!(self, Self::Kernel | Self::Memcpy | Self::Memset)
    }
}

/// What timestamps were given to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Right ones.
    Valid,
    /// Both 0.
    Zero,
    /// Start 0.
    ZeroStart,
    /// End 0.
    ZeroEnd,
    /// End before start.
    Inverted,
    /// All bits set.
    Sentinel,
    /// 100,000 s early.
    ForeignClock,
    /// An hour late.
    Future,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Valid,
        Self::Zero,
        Self::ZeroStart,
        Self::ZeroEnd,
        Self::Inverted,
        Self::Sentinel,
        Self::ForeignClock,
        Self::Future,
    ];
}

/// Counts by kind, or by class.
#[derive(Debug)]
pub(crate) struct Counts<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Counts<N> {
    pub(crate) fn add(&self, index: usize, count: u64) {
        self.0[index].fetch_add(count, Relaxed);
    }

    fn get(&self, index: usize) -> u64 {
        self.0[index].load(Relaxed)
    }
}

const KINDS: usize = Kind::ALL.len();
const CLASSES: usize = Class::ALL.len();

/// The running counts behind a [`Truth`].
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) executed: Counts<KINDS>,
    pub(crate) expected: Counts<KINDS>,
    pub(crate) delivered: Counts<KINDS>,
    pub(crate) withheld: Counts<KINDS>,
    pub(crate) dropped: Counts<KINDS>,
    pub(crate) classes: Counts<CLASSES>,
    pub(crate) unasked: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) hidden: AtomicU64,
    pub(crate) hidden_bytes: AtomicU64,
    pub(crate) delivered_bytes: AtomicU64,
    pub(crate) requested: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) empty: AtomicU64,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    misuse: Mutex<Vec<String>>,
    crash: Mutex<Option<String>>,
}

impl Ledger {
    pub(crate) fn called(&self, name: &'static str) {
        if let Ok(mut calls) = self.calls.lock() {
            *calls.entry(name).or_default() += 1;
        }
    }

    /// Buffers that CUPTI has.
    pub(crate) fn outstanding(&self) -> u64 {
        self.requested.load(Relaxed).saturating_sub(self.completed.load(Relaxed))
    }

    /// Counts a buffer that never goes back.
    pub(crate) fn withhold(&self, kinds: &[u32]) {
        for (kind, count) in kinds.iter().enumerate() {
            self.withheld.add(kind, u64::from(*count));
        }
    }

    /// Notes a use of CUPTI that the real one forbids. Each text is kept once.
    pub(crate) fn misused(&self, text: &str) {
        if let Ok(mut misuse) = self.misuse.lock()
            && !misuse.iter().any(|known| known == text)
        {
            misuse.push(text.to_owned());
        }
    }

    /// Notes what would have ended the process. The first one stays.
    pub(crate) fn crashed(&self, text: &str) {
        if let Ok(mut crash) = self.crash.lock() {
            crash.get_or_insert_with(|| text.to_owned());
        }
    }

    pub(crate) fn crash(&self) -> Option<String> {
        self.crash.lock().ok().and_then(|crash| crash.clone())
    }

    pub(crate) fn truth(&self, version: u32, device_buffers: Vec<DeviceBuffers>) -> Truth {
        let by_kind = |counts: &Counts<KINDS>| {
            Kind::ALL
                .into_iter()
                .map(|kind| (kind, counts.get(kind as usize)))
                .filter(|(_, n)| *n > 0)
                .collect()
        };
        Truth {
            version,
            executed: by_kind(&self.executed),
            expected: by_kind(&self.expected),
            delivered: by_kind(&self.delivered),
            withheld: by_kind(&self.withheld),
            dropped: by_kind(&self.dropped),
            classes: Class::ALL
                .into_iter()
                .map(|class| (class, self.classes.get(class as usize)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            unasked: self.unasked.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
            hidden: self.hidden.load(Relaxed),
            hidden_bytes: self.hidden_bytes.load(Relaxed),
            delivered_bytes: self.delivered_bytes.load(Relaxed),
            buffers: HostBuffers {
                requested: self.requested.load(Relaxed),
                completed: self.completed.load(Relaxed),
                refused: self.refused.load(Relaxed),
                empty: self.empty.load(Relaxed),
            },
            device_buffers,
            calls: self
                .calls
                .lock()
                .map(|calls| calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect())
                .unwrap_or_default(),
            misuse: self.misuse.lock().map(|misuse| misuse.clone()).unwrap_or_default(),
            crash: self.crash(),
        }
    }
}

/// The ground truth of a simulation at one moment. Where the simulation is at rest and everything was flushed,
/// `expected = delivered + withheld + dropped` for each kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// What `cuptiGetVersion` returned.
    pub version: u32,
    /// What the application ran, watched or not.
    pub executed: BTreeMap<Kind, u64>,
    /// What a sound CUPTI owes the client for what was on when it was launched.
    pub expected: BTreeMap<Kind, u64>,
    /// Records in completed buffers, by kind. Those behind a record of an unknown kind are in `hidden` instead.
    pub delivered: BTreeMap<Kind, u64>,
    /// Records that CUPTI never delivers and does not count: device buffers exhausted, silent, or the host buffer
    /// kept.
    pub withheld: BTreeMap<Kind, u64>,
    /// Records dropped because the client gave no buffer.
    pub dropped: BTreeMap<Kind, u64>,
    /// Delivered kernels, copies and memory sets by the timestamps they were given.
    pub classes: BTreeMap<Class, u64>,
    /// Delivered records of graph nodes whose kind nobody enabled.
    pub unasked: u64,
    /// Records of an unknown kind in completed buffers.
    pub unknown: u64,
    /// Records that lie behind one of an unknown kind, where `cuptiActivityGetNextRecord` does not come.
    pub hidden: u64,
    /// Bytes from the first record of an unknown kind to the end of its buffer, summed.
    pub hidden_bytes: u64,
    /// Valid bytes of all completed buffers.
    pub delivered_bytes: u64,
    /// Host buffers.
    pub buffers: HostBuffers,
    /// Device buffers of each context that CUPTI has seen.
    pub device_buffers: Vec<DeviceBuffers>,
    /// How often each function was called, `cuptiActivityGetNextRecord` apart.
    pub calls: BTreeMap<String, u64>,
    /// Uses of CUPTI that the real one forbids.
    pub misuse: Vec<String>,
    /// What would have ended the process, if anything.
    pub crash: Option<String>,
}

impl Truth {
    /// Executed operations of `kind`.
    #[must_use]
    pub fn executed(&self, kind: Kind) -> u64 {
        self.executed.get(&kind).copied().unwrap_or(0)
    }

    /// Delivered records of `kind`.
    #[must_use]
    pub fn delivered(&self, kind: Kind) -> u64 {
        self.delivered.get(&kind).copied().unwrap_or(0)
    }

    /// Records of `kind` that never come.
    #[must_use]
    pub fn withheld(&self, kind: Kind) -> u64 {
        self.withheld.get(&kind).copied().unwrap_or(0)
    }

    /// Delivered records with timestamps of `class`.
    #[must_use]
    pub fn class(&self, class: Class) -> u64 {
        self.classes.get(&class).copied().unwrap_or(0)
    }

    /// Host buffers that CUPTI holds.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.buffers.requested - self.buffers.completed
    }

    /// MiB of device memory by which the device buffers of all contexts grew.
    #[must_use]
    pub fn growth_mib(&self) -> u64 {
        self.device_buffers.iter().map(|buffers| buffers.growth_mib).sum()
    }
}

/// Host buffers that passed between CUPTI and the client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HostBuffers {
    /// Asked for and given.
    pub requested: u64,
    /// Given back, empty ones included.
    pub completed: u64,
    /// Asked for and not given.
    pub refused: u64,
    /// Given back with nothing in them.
    pub empty: u64,
}

/// The device buffers of one context.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DeviceBuffers {
    /// Id of the context.
    pub context: u32,
    /// Buffers it may have.
    pub limit: u64,
    /// Buffers it has.
    pub allocated: u64,
    /// Buffers in the recycling queue.
    pub queued: u64,
    /// Slots taken since it began.
    pub slots: u64,
    /// Whether no buffer was left when one was wanted last.
    pub exhausted: bool,
    /// MiB by which it grew.
    pub growth_mib: u64,
}
