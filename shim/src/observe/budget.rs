//! How many events of one sort are told in a second: each sort has its own budget, which no other can use up.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Sorts of events that may come without end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Budget {
    /// Calls that break a capture.
    Breaking,
    /// Other calls that fail.
    Failures,
    /// Which streams take part in a capture.
    Streams,
    /// Updates of executable graphs.
    Updates,
    /// Waits, uploads, and calls within captures that go well.
    Others,
}

/// Events of each sort in one second.
const A_SECOND: [u64; Budget::Others as usize + 1] = [200, 200, 2_000, 1_000, 200];

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    /// It is told.
    Told,
    /// It is the first one of its second that is not.
    First,
    /// It is not.
    Further,
}

/// For each sort the second in the upper half, and how many came in it in the lower.
#[derive(Debug)]
pub(super) struct Budgets([AtomicU64; A_SECOND.len()]);

impl Budgets {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; A_SECOND.len()])
    }

    /// Whether another event of this sort is told at `now`, nanoseconds.
    pub(super) fn spend(&self, budget: Budget, now: u64) -> Spent {
        let place = budget as usize;
        let (Some(spent), Some(most)) = (self.0.get(place), A_SECOND.get(place)) else {
            return Spent::Further;
        };
        let second = now.checked_div(1_000_000_000).unwrap_or(0) & 0xffff_ffff;
        let before = spent.load(Relaxed);
        let told = if before >> 32 == second { before & 0xffff_ffff } else { 0 };
        // Two threads at once may tell one more.
        spent.store(second << 32 | told.saturating_add(1).min(0xffff_ffff), Relaxed);
        match told.cmp(most) {
            core::cmp::Ordering::Less => Spent::Told,
            core::cmp::Ordering::Equal => Spent::First,
            core::cmp::Ordering::Greater => Spent::Further,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sort_without_end_leaves_the_others_their_own() {
        let budgets = Budgets::new();
        let spent: Vec<Spent> =
            (0..300).map(|i| budgets.spend(Budget::Failures, 5_000_000_000 + i)).collect();
        assert_eq!(spent.iter().filter(|spent| **spent == Spent::Told).count(), 200);
        assert_eq!(spent.iter().position(|spent| *spent == Spent::First), Some(200));
        assert_eq!(budgets.spend(Budget::Breaking, 5_000_000_000), Spent::Told);
        assert_eq!(budgets.spend(Budget::Failures, 6_000_000_000), Spent::Told);
    }
}
