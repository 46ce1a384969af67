//! What a process has allocated, by kind of memory, from memory records. Allocations made before they were switched on
//! are not in it.

use rustc_hash::FxHashMap;

use gtop_protocol::record::Other;

/// Allocations followed at once.
const MAX_LIVE: usize = 1 << 18;
/// Libraries told apart; further ones are unknown.
const MAX_SITES: usize = 256;

/// Values of `CUpti_ActivityMemoryOperationType`.
const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;

/// Bytes allocated now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// On devices, all that is in none of those below.
    pub device: u64,
    /// From memory pools.
    pub pool: u64,
    /// Mapped into virtual addresses; what is mapped twice counts twice.
    pub mapped: u64,
    /// Managed.
    pub managed: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// Reserved for the allocations of graphs.
    pub graphs: u64,
    /// The most of all but the last together.
    pub peak: u64,
    /// Allocations alive.
    pub count: u64,
    /// Frees of what was not seen to be allocated.
    pub unknown_frees: u64,
}

/// What one library has allocated, where CUPTI says who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The path of its file; `None` is unknown.
    pub library: Option<String>,
    /// Bytes on devices and managed.
    pub gpu: u64,
    /// Bytes of pinned host memory.
    pub pinned: u64,
    /// Allocations alive.
    pub count: u64,
}

/// Sorts of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Device,
    Pool,
    Mapped,
    Managed,
    Pinned,
    Graphs,
}

impl Sort {
    /// The sort that a record is of, by `CUpti_ActivityMemoryKind`: 2 pinned, 3 device, 4 array, 5 managed. Mappings and
    /// what graphs reserve come as device memory of no context, the latter without an address (measured on 13.0.85, which
    /// says [`u32::MAX`], and 13.5.25, which says 0).
    fn of(record: &Other) -> Option<Self> {
        let nowhere = matches!(record.context.get(), 0 | u32::MAX);
        match record.thread.get() {
            2 => Some(Self::Pinned),
            3 | 4 if record.pool.get() != 0 => Some(Self::Pool),
            3 if nowhere && record.address.get() == 0 => Some(Self::Graphs),
            3 if nowhere => Some(Self::Mapped),
            3 | 4 => Some(Self::Device),
            5 => Some(Self::Managed),
            _ => None,
        }
    }
}

/// One allocation.
#[derive(Clone, Copy, Debug)]
struct Live {
    sort: Option<Sort>,
    bytes: u64,
    source: u32,
}

/// The allocations of one process.
#[derive(Debug, Default)]
pub(super) struct Account {
    live: FxHashMap<u64, Live>,
    now: Allocated,
    /// By the name id of the library that asked.
    sites: FxHashMap<u32, Site>,
    any: bool,
}

impl Account {
    /// Takes in a memory record.
    pub(super) fn add(&mut self, record: &Other) {
        self.any = true;
        let (address, bytes, sort) = (record.address.get(), record.value.get(), Sort::of(record));
        match record.code.get() {
            // Several may be without an address.
            ALLOCATION if sort == Some(Sort::Graphs) => {
                self.now.graphs = self.now.graphs.saturating_add(bytes);
            }
            RELEASE if sort == Some(Sort::Graphs) => {
                self.now.graphs = self.now.graphs.saturating_sub(bytes);
            }
            ALLOCATION if self.live.len() < MAX_LIVE => {
                let known = self.sites.len() < MAX_SITES || self.sites.contains_key(&record.source.get());
                let source = if known { record.source.get() } else { 0 };
                if let Some(before) = self.live.insert(address, Live { sort, bytes, source }) {
                    // Its free was lost.
                    self.take(before);
                }
                let site = self.sites.entry(source).or_default();
                site.count += 1;
                if let Some(sort) = sort {
                    let sum = self.now.of(sort);
                    *sum = sum.saturating_add(bytes);
                    let sum = site.of(sort);
                    *sum = sum.saturating_add(bytes);
                }
                self.now.count = self.live.len() as u64;
                let Allocated { device, pool, mapped, managed, pinned, .. } = self.now;
                let all = [device, pool, mapped, managed, pinned].into_iter().fold(0, u64::saturating_add);
                self.now.peak = self.now.peak.max(all);
            }
            RELEASE => {
                match self.live.remove(&address) {
                    Some(live) => self.take(live),
                    None => self.now.unknown_frees += 1,
                }
                self.now.count = self.live.len() as u64;
            }
            _ => {}
        }
    }

    fn take(&mut self, Live { sort, bytes, source }: Live) {
        let mut site = self.sites.get_mut(&source);
        if let Some(site) = &mut site {
            site.count = site.count.saturating_sub(1);
        }
        let Some(sort) = sort else { return };
        let sum = self.now.of(sort);
        *sum = sum.saturating_sub(bytes);
        if let Some(site) = site {
            let sum = site.of(sort);
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// The sums, once a record has come.
    pub(super) fn allocated(&self) -> Option<Allocated> {
        self.any.then_some(self.now)
    }

    /// What each library has allocated and not freed, the most GPU memory first; none where no record said who asked.
    /// `name` gives the text of a name id.
    pub(super) fn sites(&self, name: impl Fn(u32) -> Option<String>) -> Vec<Site> {
        if self.sites.keys().all(|source| *source == 0) {
            return Vec::new();
        }
        let alive = self.sites.iter().filter(|(_, site)| site.count > 0);
        let named = |(source, site): (&u32, &Site)| Site { library: name(*source), ..site.clone() };
        let mut sites: Vec<Site> = alive.map(named).collect();
        sites.sort_unstable_by(|a, b| {
            (b.gpu, b.pinned, b.count, &a.library).cmp(&(a.gpu, a.pinned, a.count, &b.library))
        });
        sites
    }
}

impl Allocated {
    const fn of(&mut self, sort: Sort) -> &mut u64 {
        match sort {
            Sort::Device => &mut self.device,
            Sort::Pool => &mut self.pool,
            Sort::Mapped => &mut self.mapped,
            Sort::Managed => &mut self.managed,
            Sort::Pinned => &mut self.pinned,
            Sort::Graphs => &mut self.graphs,
        }
    }
}

impl Site {
    const fn of(&mut self, sort: Sort) -> &mut u64 {
        match sort {
            Sort::Pinned => &mut self.pinned,
            _ => &mut self.gpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: u32, kind: u32, address: u64, bytes: u64) -> Other {
        Other {
            code: code.into(),
            thread: kind.into(),
            address: address.into(),
            value: bytes.into(),
            context: 1.into(),
            ..Other::default()
        }
    }

    #[test]
    fn libraries_are_told_apart_as_far_as_they_are_known() {
        let mut account = Account::default();
        let name = |id: u32| (id != 0).then(|| format!("lib{id}.so"));
        account.add(&record(ALLOCATION, 3, 0x1000, 100));
        assert_eq!(account.sites(name), [], "nobody said who asked");
        let from = |source: u32, record: Other| Other { source: source.into(), ..record };
        account.add(&from(1, record(ALLOCATION, 3, 0x2000, 300)));
        account.add(&from(2, record(ALLOCATION, 5, 0x3000, 200)));
        account.add(&from(2, record(ALLOCATION, 2, 0x4000, 900)));
        let told = |account: &Account| {
            let sites = account.sites(name).into_iter();
            sites.map(|site| (site.library, site.gpu, site.pinned, site.count)).collect::<Vec<_>>()
        };
        let (one, two) = (Some("lib1.so".to_owned()), Some("lib2.so".to_owned()));
        assert_eq!(told(&account), [(one, 300, 0, 1), (two.clone(), 200, 900, 2), (None, 100, 0, 1)]);
        // A free says who frees; what counts is who allocated.
        account.add(&from(2, record(RELEASE, 3, 0x2000, 300)));
        assert_eq!(told(&account), [(two, 200, 900, 2), (None, 100, 0, 1)]);
        for source in 0..10_000 {
            account.add(&from(source, record(ALLOCATION, 3, 0x10_0000 + u64::from(source), 1)));
        }
        assert!(account.sites(name).len() <= MAX_SITES);
        assert_eq!(account.sites(name).iter().map(|site| site.gpu).sum::<u64>(), 10_300);
    }

    #[test]
    fn kinds_are_summed_apart_and_frees_are_matched_by_address() {
        let mut account = Account::default();
        assert_eq!(account.allocated(), None);
        for (i, kind) in [2u32, 3, 3, 5].into_iter().enumerate() {
            account.add(&record(ALLOCATION, kind, 0x1000 + i as u64, 100));
        }
        account.add(&record(RELEASE, 3, 0x1001, 0));
        account.add(&record(RELEASE, 3, 0x9999, 50));
        let now = account.allocated().unwrap();
        assert_eq!((now.pinned, now.device, now.managed, now.peak), (100, 100, 100, 400));
        assert_eq!((now.count, now.unknown_frees), (3, 1));
        // The same address again, its free lost.
        account.add(&record(ALLOCATION, 3, 0x1002, 7));
        assert_eq!(account.allocated().map(|now| now.device), Some(7));
    }

    #[test]
    fn pools_mappings_and_graphs_are_told_apart_from_what_was_allocated_for_itself() {
        // As CUPTI 13.0.85 and 13.5.25 told of them (measured on an H200).
        for nowhere in [u32::MAX, 0] {
            let mut account = Account::default();
            let of_none = |record: Other| Other { context: nowhere.into(), ..record };
            let pooled = |record: Other| Other { pool: 1.into(), ..record };
            account.add(&record(ALLOCATION, 3, 0x7f4b_0a80_0000, 3 << 20));
            account.add(&pooled(record(ALLOCATION, 3, 0x48_ea00_0000, 5 << 20)));
            account.add(&of_none(record(ALLOCATION, 3, 0x8e_d200_0000, 32 << 20)));
            account.add(&of_none(record(ALLOCATION, 3, 0x8e_d400_0000, 32 << 20)));
            account.add(&of_none(record(ALLOCATION, 3, 0, 32 << 20)));
            account.add(&of_none(record(ALLOCATION, 3, 0, 64 << 20)));
            let mib = |account: &Account| {
                let Allocated { device, pool, mapped, graphs, .. } = account.allocated().unwrap();
                [device, pool, mapped, graphs].map(|bytes| bytes >> 20)
            };
            assert_eq!(mib(&account), [3, 5, 64, 96]);
            assert_eq!(account.allocated().map(|now| (now.peak >> 20, now.count)), Some((72, 4)));
            account.add(&of_none(record(RELEASE, 3, 0, 32 << 20)));
            account.add(&of_none(record(RELEASE, 3, 0x8e_d200_0000, 32 << 20)));
            // A free need not say where the memory came from.
            account.add(&record(RELEASE, 3, 0x48_ea00_0000, 5 << 20));
            assert_eq!(mib(&account), [3, 0, 32, 64]);
        }
    }
}
