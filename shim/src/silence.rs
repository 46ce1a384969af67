//! Noticing that kernel records stopped although work goes on: CUPTI says nothing when it gives up.

/// How long no kernel record must come, nanoseconds.
const QUIET_NS: u64 = 2_000_000_000;
/// Kernel records a second that count as a rhythm.
const RHYTHM: u64 = 1;

/// What has been counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Kernel records.
    pub(crate) kernels: u64,
    /// Other proof of work: records of copies and memory sets, and launches of graphs that
    /// callbacks told of where one may have no kernels.
    pub(crate) work: u64,
    /// Launch calls of kernels and of graphs with kernels, where those are recorded or callbacks tell of them.
    pub(crate) launches: u64,
}

/// Watches the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    since: u64,
    at_last_kernel: Counts,
    last_kernel: u64,
    last_sign: u64,
    latest: Counts,
    /// Kernel records came in rhythm before they stopped.
    rhythm: bool,
    silent: bool,
}

impl Silence {
    /// Begins to watch at `now`, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) const fn new(now: u64, counts: Counts) -> Self {
        Self {
            since: now,
            at_last_kernel: counts,
            last_kernel: now,
            last_sign: 0,
            latest: counts,
            rhythm: false,
            silent: false,
        }
    }

    /// Takes in the counts at `now`; whether kernels are silent.
    pub(crate) fn look(&mut self, now: u64, counts: Counts) -> bool {
        if counts.kernels > self.latest.kernels {
            let seconds = now.saturating_sub(self.since).div_ceil(1_000_000_000).max(1);
            let seen = counts.kernels.saturating_sub(self.latest.kernels);
            self.rhythm |=
                seen > RHYTHM.saturating_mul(seconds) || now.saturating_sub(self.last_kernel) < 1_000_000_000;
            self.last_kernel = now;
            self.at_last_kernel = counts;
            self.silent = false;
        } else if counts != self.latest {
            self.last_sign = now;
        }
        self.latest = counts;
        // Launches prove work without any rhythm; copies may go on alone where no kernel is due.
        let launched = counts.launches > self.at_last_kernel.launches;
        let worked = self.rhythm && counts.work > self.at_last_kernel.work;
        let quiet = now.saturating_sub(self.last_kernel);
        let recent = now.saturating_sub(self.last_sign) < QUIET_NS / 2;
        self.silent |= quiet >= QUIET_NS && recent && (launched || worked);
        self.silent
    }

    /// Whether kernel records came in rhythm and have stopped at `now`. No sign of silence by itself: a process may be
    /// idle.
    pub(crate) const fn stopped(&self, now: u64) -> bool {
        self.rhythm && now.saturating_sub(self.last_kernel) >= QUIET_NS
    }

    /// Whether no kernel record has come at all since watching began.
    pub(crate) const fn never(&self) -> bool {
        self.last_kernel == self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks every 50 ms from `from` to `to` (ms), adding so many of each per look.
    fn run(silence: &mut Silence, counts: &mut Counts, from: u64, to: u64, step: Counts) -> Option<u64> {
        (from..to).step_by(50).find(|time| {
            counts.kernels += step.kernels;
            counts.work += step.work;
            counts.launches += step.launches;
            silence.look(time * MS, *counts)
        })
    }

    const BOTH: Counts = Counts { kernels: 5, work: 5, launches: 0 };
    const COPIES: Counts = Counts { kernels: 0, work: 5, launches: 0 };
    const LAUNCHES: Counts = Counts { kernels: 0, work: 0, launches: 2 };
    const NOTHING: Counts = Counts { kernels: 0, work: 0, launches: 0 };

    #[test]
    fn copies_that_go_on_alone_after_a_rhythm_are_silence_after_two_seconds() {
        let (mut silence, mut counts) = (Silence::new(0, NOTHING), NOTHING);
        assert_eq!(run(&mut silence, &mut counts, 0, 5000, BOTH), None);
        assert_eq!(run(&mut silence, &mut counts, 5000, 9000, COPIES), Some(6950));
        counts.kernels += 1;
        assert!(!silence.look(9000 * MS, counts), "a kernel record ends it");
    }

    #[test]
    fn a_process_that_does_nothing_is_idle() {
        let (mut silence, mut counts) = (Silence::new(0, NOTHING), NOTHING);
        run(&mut silence, &mut counts, 0, 5000, BOTH);
        assert_eq!(run(&mut silence, &mut counts, 5000, 20_000, NOTHING), None);
        assert_eq!(run(&mut silence, &mut counts, 20_000, 60_000, NOTHING), None);
        assert!(silence.stopped(60_000 * MS) && !silence.never(), "with an exhausted pool that is enough");
    }

    #[test]
    fn copies_without_kernels_before_are_a_loading_program() {
        let (mut silence, mut counts) = (Silence::new(0, NOTHING), NOTHING);
        assert_eq!(run(&mut silence, &mut counts, 0, 20_000, COPIES), None);
    }

    #[test]
    fn launches_without_any_kernel_record_are_silence() {
        let (mut silence, mut counts) = (Silence::new(0, NOTHING), NOTHING);
        assert_eq!(run(&mut silence, &mut counts, 0, 10_000, LAUNCHES), Some(2000));
        assert!(silence.never() && !silence.stopped(2000 * MS));
        assert!(counts.launches < 100, "long before a person has seen a hundred");
    }
}
