//! What a process has allocated, by kind of memory, from memory records. Allocations made before they were switched on
//! are not in it.

use rustc_hash::FxHashMap;

use gtop_protocol::record::Other;

/// Allocations followed at once.
const MAX_LIVE: usize = 1 << 18;

/// Values of `CUpti_ActivityMemoryOperationType`.
const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;

/// Bytes allocated now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// On devices.
    pub device: u64,
    /// Managed.
    pub managed: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// The most of the three together.
    pub peak: u64,
    /// Allocations alive.
    pub count: u64,
    /// Frees of what was not seen to be allocated.
    pub unknown_frees: u64,
}

/// The allocations of one process.
#[derive(Debug, Default)]
pub(super) struct Account {
    live: FxHashMap<u64, (u32, u64)>,
    now: Allocated,
    any: bool,
}

impl Account {
    /// Takes in a memory record.
    pub(super) fn add(&mut self, record: &Other) {
        self.any = true;
        let (address, bytes, kind) = (record.address.get(), record.value.get(), record.thread.get());
        match record.code.get() {
            ALLOCATION if self.live.len() < MAX_LIVE => {
                if let Some((kind, bytes)) = self.live.insert(address, (kind, bytes)) {
                    // Its free was lost.
                    self.take(kind, bytes);
                }
                if let Some(sum) = self.of(kind) {
                    *sum = sum.saturating_add(bytes);
                }
                self.now.count = self.live.len() as u64;
                let sums = [self.now.device, self.now.managed, self.now.pinned];
                let all = sums.into_iter().fold(0, u64::saturating_add);
                self.now.peak = self.now.peak.max(all);
            }
            RELEASE => {
                match self.live.remove(&address) {
                    Some((kind, bytes)) => self.take(kind, bytes),
                    None => self.now.unknown_frees += 1,
                }
                self.now.count = self.live.len() as u64;
            }
            _ => {}
        }
    }

    fn take(&mut self, kind: u32, bytes: u64) {
        if let Some(sum) = self.of(kind) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// `CUpti_ActivityMemoryKind`: 2 pinned, 3 device, 4 array, 5 managed.
    const fn of(&mut self, kind: u32) -> Option<&mut u64> {
        match kind {
            2 => Some(&mut self.now.pinned),
            3 | 4 => Some(&mut self.now.device),
            5 => Some(&mut self.now.managed),
            _ => None,
        }
    }

    /// The sums, once a record has come.
    pub(super) fn allocated(&self) -> Option<Allocated> {
        self.any.then_some(self.now)
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
            ..Other::default()
        }
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
}
