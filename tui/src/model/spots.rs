//! Where on the timeline records with bad times came, as far as the records around them tell.

use std::collections::VecDeque;
use std::sync::Arc;

use super::snapshot::{Spot, Unbelieved};

/// Spots that are kept.
const MAX: usize = 2048;
/// What comes within this of a spot is counted there, nanoseconds.
const NEAR: u64 = 1_000_000;

/// The newest of them.
#[derive(Debug, Default)]
pub(super) struct Spots {
    list: VecDeque<Spot>,
    /// The shared copy, as long as it is up to date.
    shared: Option<Arc<[Spot]>>,
}

impl Spots {
    /// Counts `count` records, the first of them of this class, that came when the timeline was known up to `time`.
    pub(super) fn add(&mut self, time: u64, count: u64, class: u8, first: Unbelieved) {
        self.shared = None;
        match self.list.back_mut() {
            Some(last) if time.saturating_sub(last.time) < NEAR => last.count += count,
            _ => {
                self.list.push_back(Spot { time, count, class, first });
                if self.list.len() > MAX {
                    self.list.pop_front();
                }
            }
        }
    }

    /// What a snapshot holds.
    pub(super) fn share(&mut self) -> Arc<[Spot]> {
        let list = &self.list;
        Arc::clone(self.shared.get_or_insert_with(|| list.iter().copied().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_one_spot_and_the_oldest_go() {
        let mut spots = Spots::default();
        let first = Unbelieved { stream: 7, ..Unbelieved::default() };
        spots.add(5, 2, 1, first);
        spots.add(NEAR, 3, 2, Unbelieved::default());
        assert_eq!(*spots.share(), [Spot { time: 5, count: 5, class: 1, first }]);
        for i in 1..=3_000 {
            spots.add(i * 2 * NEAR, 1, 1, first);
        }
        let shared = spots.share();
        assert_eq!((shared.len(), shared[MAX - 1].time), (MAX, 6_000 * NEAR));
    }
}
