//! How long a turn takes, from the host's clock over batches that end with a wait for the GPU.

use std::time::Duration;

use serde_json::{Value, json};

/// Batches kept at most; beyond it every second one is dropped and from then on only every second one is taken.
const KEPT: usize = 1 << 16;

/// The mean time of a turn in each of many batches, microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    kept: Vec<f64>,
    every: u64,
    batches: u64,
    longest: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, batches: 0, longest: 0.0 }
    }
}

impl Times {
    /// Takes a batch of `turns` turns that took `time` together.
    pub(crate) fn add(&mut self, time: Duration, turns: u64) {
        let turn = time.as_secs_f64() * 1e6 / turns.max(1) as f64;
        self.longest = self.longest.max(turn);
        if self.batches.is_multiple_of(self.every) {
            if self.kept.len() == KEPT {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            self.kept.push(turn);
        }
        self.batches += 1;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The `share` quantile (0 to 1) of the batches kept, microseconds; none before the first batch.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }

    /// The statistics; null where there was no batch.
    pub(crate) fn json(&self) -> Value {
        json!({
            "batches": self.batches,
            "median": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "max": (self.batches > 0).then_some(self.longest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut times = Times::default();
        assert_eq!(times.quantile(0.5), None);
        for turn in 1..=100 {
            times.add(Duration::from_micros(turn * 10), 10);
        }
        let near = |share, wanted: f64| (times.quantile(share).unwrap() - wanted).abs() < 1e-6;
        assert!(near(0.5, 50.0) && near(0.99, 99.0) && near(1.0, 100.0) && near(0.0, 1.0));
    }

    #[test]
    fn many_batches_take_bounded_memory_and_stay_spread_over_the_run() {
        let mut times = Times::default();
        let batches = 5 * KEPT as u64;
        for turn in 1..=batches {
            times.add(Duration::from_micros(turn), 1);
        }
        assert!(times.kept.len() <= KEPT);
        let half = times.quantile(0.5).unwrap() / batches as f64;
        assert!((0.45..0.55).contains(&half), "{half}");
    }
}
