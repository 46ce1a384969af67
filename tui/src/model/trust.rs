//! Which records can be believed: counts by class over windows and since the start, and the first bad one.

use gtop_protocol::{Notes, Validity};

use super::snapshot::{FirstInvalid, NoteCounts, ValidityStats, WINDOWS};
use super::time::{Moment, Tenths};

/// How many classes there are.
pub(super) const CLASSES: usize = Validity::ALL.len();

/// Counts of one frame, by class.
pub(super) type ByClass = [u64; CLASSES];

/// Validity and notes of one process.
#[derive(Debug, Default)]
pub(super) struct Trust {
    total: ByClass,
    ring: Tenths<CLASSES>,
    first_invalid: Option<FirstInvalid>,
    /// Remarks on believable records.
    pub(super) notes: NoteCounts,
}

impl Trust {
    /// Adds the counts of a frame.
    pub(super) fn add(&mut self, at: Moment, counts: &ByClass) {
        self.ring.add(at, counts);
        for (sum, count) in self.total.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    /// The first bad record, if there was any.
    pub(super) const fn first_invalid(&self) -> Option<&FirstInvalid> {
        self.first_invalid.as_ref()
    }

    /// Counts the remarks on a believable record.
    #[inline]
    pub(super) fn note(&mut self, notes: Notes) {
        if notes.0 != 0 {
            self.notes.overlap += u64::from(notes.has(Notes::OVERLAP));
            self.notes.zero_length += u64::from(notes.has(Notes::ZERO_LENGTH));
            self.notes.out_of_order += u64::from(notes.has(Notes::OUT_OF_ORDER));
            self.notes.unasked_kind += u64::from(notes.has(Notes::UNASKED_KIND));
        }
    }

    /// Keeps the first bad record.
    pub(super) fn first(&mut self, first: FirstInvalid) {
        self.first_invalid.get_or_insert(first);
    }

    /// Records of the last second, of whatever class.
    pub(super) fn per_second(&mut self, at: Moment) -> f64 {
        self.ring.window(at, 10).iter().sum::<u64>() as f64
    }

    /// What there is to show. Without records to judge by, rates are unknown; `silent` says that records should
    /// come and do not.
    pub(super) fn stats(&mut self, at: Moment, silent: bool) -> ValidityStats {
        let windows = WINDOWS.map(|seconds| self.ring.window(at, seconds * 10));
        let rate = |counts: &ByClass| if silent { None } else { rate(counts) };
        ValidityStats {
            total: self.total,
            windows,
            rate_total: rate(&self.total),
            rate_windows: windows.each_ref().map(rate),
            first_invalid: self.first_invalid.clone(),
        }
    }
}

/// The share of bad records; `None` when there are no records.
fn rate(counts: &ByClass) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let valid = counts[Validity::Valid as usize];
    (all > 0).then(|| (all - valid) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(valid: u64, zero: u64) -> ByClass {
        let mut counts = [0; CLASSES];
        counts[Validity::Valid as usize] = valid;
        counts[Validity::Zero as usize] = zero;
        counts
    }

    #[test]
    fn windows_show_a_step_that_the_total_hides() {
        let mut trust = Trust::default();
        let at = |second: u64| Moment::of_record(second * 1_000_000_000);
        assert_eq!(trust.stats(at(5), false).rate_total, None);
        for second in 1000..1090 {
            trust.add(at(second), &counts(100, 0));
        }
        trust.add(at(1090), &counts(3, 97));
        let stats = trust.stats(at(1090), false);
        assert_eq!(stats.rate_windows[0], Some(0.97));
        assert_eq!(stats.windows[1][Validity::Valid as usize], 900 + 3);
        assert_eq!(stats.total[Validity::Valid as usize], 9003);
        assert!(stats.rate_total.is_some_and(|rate| (rate - 97.0 / 9100.0).abs() < 1e-9));
        let later = trust.stats(at(1200), false);
        assert_eq!((later.rate_windows, later.rate_total.is_some()), ([None; 3], true));
        assert_eq!(trust.stats(at(1090), true).rate_total, None);
    }
}
