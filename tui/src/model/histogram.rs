//! Durations in a histogram of logarithmic buckets: quantiles within one percent, in memory that follows the
//! spread of the values and not their number.

use super::snapshot::Bar;

/// Buckets of one power of two, as a power of two.
const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;

/// A histogram of `u64` values.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    first: usize,
    counts: Vec<u32>,
}

impl Histogram {
    /// Counts `value`. Growing takes bytes out of `budget`; without any left, values beyond the ends are counted
    /// in the outermost buckets.
    #[inline]
    pub(super) fn add(&mut self, value: u64, budget: &mut usize) {
        let index = index(value).wrapping_sub(self.first);
        match self.counts.get_mut(index) {
            Some(count) if *count < u32::MAX => *count += 1,
            _ => self.add_slowly(value, budget),
        }
    }

    #[cold]
    fn add_slowly(&mut self, value: u64, budget: &mut usize) {
        self.make_room(index(value), budget);
        let Some(last) = self.counts.len().checked_sub(1) else { return };
        let at = index(value).saturating_sub(self.first).min(last);
        if self.counts[at] == u32::MAX {
            // Quantiles need proportions only.
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        self.counts[at] += 1;
    }

    /// The counts, each eighth of a power of two together.
    pub(super) fn bars(&self) -> Vec<Bar> {
        const TOGETHER: usize = SUB as usize / 8;
        let mut bars: Vec<Bar> = Vec::new();
        for (i, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let first = (self.first + i) / TOGETHER * TOGETHER;
            let (from, count) = (bucket(first).0, u64::from(*count));
            match bars.last_mut() {
                Some(bar) if bar.from == from => bar.count += count,
                _ => {
                    let (last, width) = bucket(first + TOGETHER - 1);
                    bars.push(Bar { from, to: last.saturating_add(width), count });
                }
            }
        }
        bars
    }

    fn make_room(&mut self, index: usize, budget: &mut usize) {
        // In steps of a quarter of a power of two, so that a new kernel does not allocate for each value.
        const STEP: usize = SUB as usize / 4;
        let (from, to) = (index / STEP * STEP, (index / STEP + 1) * STEP);
        let (from, to) = if self.counts.is_empty() {
            (from, to)
        } else {
            (from.min(self.first), to.max(self.first + self.counts.len()))
        };
        let bytes = (to - from - self.counts.len()) * size_of::<u32>();
        if bytes == 0 || bytes > *budget {
            return;
        }
        *budget -= bytes;
        let mut counts = vec![0; to - from];
        let start = if self.counts.is_empty() { 0 } else { self.first - from };
        counts[start..start + self.counts.len()].copy_from_slice(&self.counts);
        (self.first, self.counts) = (from, counts);
    }

    /// The value below which a share `q` (0 to 1) of all values lies; 0 without values.
    pub(super) fn quantile(&self, q: f64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if seen + count >= rank {
                let (low, width) = bucket(self.first + i);
                let inside = (rank - seen) as f64 - 0.5;
                return low + (inside / count as f64 * width as f64) as u64;
            }
            seen += count;
        }
        0
    }
}

/// The bucket of a value.
#[inline]
const fn index(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = value.ilog2();
    let shift = exponent - SUB_BITS;
    (((shift as u64 + 1) << SUB_BITS) + ((value >> shift) & (SUB - 1))) as usize
}

/// The lowest value of a bucket and how many values it holds.
const fn bucket(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < SUB {
        return (index, 1);
    }
    let shift = (index >> SUB_BITS) - 1;
    ((SUB + (index & (SUB - 1))) << shift, 1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_lies_in_its_bucket(value: u64) {
            let (low, width) = bucket(index(value));
            prop_assert!(low <= value && value - low < width);
            prop_assert!(width == 1 || width * SUB <= low);
        }

        #[test]
        fn quantiles_are_close(mut values in prop::collection::vec(1u64..10_000_000_000, 1..200), q in 0.0f64..1.0) {
            let (mut histogram, mut budget) = (Histogram::default(), usize::MAX);
            for value in &values {
                histogram.add(*value, &mut budget);
            }
            values.sort_unstable();
            let exact = values[((q * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
            prop_assert!(histogram.quantile(q).abs_diff(exact) as f64 <= exact as f64 * 0.016 + 1.0);
        }
    }

    #[test]
    fn bars_hold_every_value_once() {
        let (mut histogram, mut budget) = (Histogram::default(), usize::MAX);
        for value in [0, 7, 8, 100, 101, 140, 1_000_000, u64::MAX] {
            histogram.add(value, &mut budget);
        }
        let bars = histogram.bars();
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 8);
        assert!(bars.iter().zip(bars.iter().skip(1)).all(|(a, b)| a.to <= b.from), "{bars:?}");
        assert_eq!(bars[0], Bar { from: 0, to: 8, count: 2 });
        assert_eq!(bars[2], Bar { from: 96, to: 104, count: 2 });
    }

    #[test]
    fn without_budget_values_are_counted_at_the_ends() {
        let (mut histogram, mut budget) = (Histogram::default(), 64);
        for value in [100, 101, 1_000_000] {
            histogram.add(value, &mut budget);
        }
        assert_eq!(budget, 0);
        assert_eq!(histogram.quantile(0.5), 101);
        assert!((104..=127).contains(&histogram.quantile(1.0)));
        let mut none = Histogram::default();
        none.add(5, &mut budget);
        assert_eq!(none.quantile(0.5), 0);
    }
}
