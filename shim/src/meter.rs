//! What windows cost the process, told from the records that pass: what goes on between windows can be counted only
//! where a kind stays on or CUPTI's own numbering runs on. Where neither does, nothing is claimed.

use crate::budget::{Budget, Measured, RECENT, Step, WORST_LOSS, Window};
use gtop_protocol::frame::{RecordSizes, Runs};
use gtop_protocol::kind::{Kind, KindSet};
use gtop_protocol::message::{Basis, Relief};
use gtop_protocol::record::{self, Family};

/// Stretches inside windows and between them that are remembered.
const STRETCHES: usize = 2 * RECENT;
/// Kernels that begin so long after a window were not launched in it, unless the GPU lags far behind.
const TRAILING_NS: u64 = 200_000_000;
/// Things counted on either side before anything is told from them.
const ENOUGH: f64 = 100.0;
/// Stretches on either side before anything is told from them.
const LEAST_STRETCHES: usize = 4;
/// Calls counted between windows below this share of those inside: the numbering does not run on between them.
const RUNS_ON: f64 = 0.9;

/// Graphs whose launches are told apart, and windows in which the longest step is remembered.
const GRAPHS: usize = 8;
const STEPS: usize = 8;

/// A stretch of CUPTI's time, inside a window or between two.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    begin: u64,
    /// 0 while it lasts.
    end: u64,
    inside: bool,
    copies: u32,
    kernels: u32,
    /// Kernels that began long after its begin.
    late_kernels: u32,
    /// Start and correlation id of the first and the last kernel.
    first: (u64, u64),
    last: (u64, u64),
}

/// Counts what passes.
#[derive(Debug)]
pub(crate) struct Meter {
    stretches: [Stretch; STRETCHES],
    /// Kinds on between windows.
    between: KindSet,
    /// The last launch of some graphs: graph, correlation id, start of its first record. One that is seldom launched
    /// makes room.
    launches: [(u32, u64, u64); GRAPHS],
    /// Begin of a window, whether a graph was launched in it, and the longest step.
    steps: [(u64, bool, u64); STEPS],
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            stretches: [Stretch::default(); STRETCHES],
            between: KindSet::EMPTY,
            launches: [(0, 0, 0); GRAPHS],
            steps: [(0, false, 0); STEPS],
        }
    }
}

impl Meter {
    /// Takes in the windows as they are now, and the kinds left on between them.
    pub(crate) fn windows(&mut self, budget: Option<&Budget>, between: KindSet) {
        let Some(budget) = budget else {
            *self = Self::default();
            return;
        };
        self.between = between;
        for window in budget.recent() {
            self.window(window);
        }
    }

    fn window(&mut self, (begin, end): Window) {
        let newest = self.stretches.last().copied().unwrap_or_default();
        if begin > newest.begin {
            if let Some(last) = self.stretches.last_mut() {
                last.end = begin;
            }
            self.push(Stretch { begin, inside: true, ..Stretch::default() });
        }
        let newest = self.stretches.last().copied().unwrap_or_default();
        if end > 0 && newest.begin == begin {
            if let Some(last) = self.stretches.last_mut() {
                last.end = end;
            }
            self.push(Stretch { begin: end, ..Stretch::default() });
        }
    }

    fn push(&mut self, stretch: Stretch) {
        self.stretches.rotate_left(1);
        if let Some(last) = self.stretches.last_mut() {
            *last = stretch;
        }
    }

    /// Takes in the records of one frame.
    pub(crate) fn take_in(&mut self, body: &[u8]) {
        for run in Runs::new(body, RecordSizes::OURS) {
            match run.family() {
                Some(Family::Kernel) => run.records().for_each(|one| {
                    let record: record::Kernel = record::read(one);
                    self.kernel(record.start.get(), record.correlation.get());
                    if record.graph.get() != 0 {
                        self.launch(record.graph.get(), record.correlation.get(), record.start.get());
                    }
                }),
                Some(Family::Copy) => run.records().for_each(|one| {
                    let record: record::Copy = record::read(one);
                    if let Some(stretch) = self.at(record.start.get()) {
                        stretch.copies = stretch.copies.saturating_add(1);
                    }
                }),
                _ => {}
            }
        }
    }

    fn kernel(&mut self, start: u64, correlation: u64) {
        let Some(stretch) = self.at(start) else { return };
        stretch.kernels = stretch.kernels.saturating_add(1);
        let late = start.saturating_sub(stretch.begin) > TRAILING_NS;
        stretch.late_kernels = stretch.late_kernels.saturating_add(u32::from(late));
        if stretch.first.0 == 0 || start < stretch.first.0 {
            stretch.first = (start, correlation);
        }
        if start >= stretch.last.0 {
            stretch.last = (start, correlation);
        }
    }

    /// Takes in a kernel of a graph: how long it is since the launch before of the same graph, if both lie in one window.
    fn launch(&mut self, graph: u32, correlation: u64, start: u64) {
        let Some(begin) = self.at(start).filter(|stretch| stretch.inside).map(|stretch| stretch.begin) else {
            return;
        };
        if self.steps.last().is_some_and(|(newest, ..)| begin > *newest) {
            self.steps.rotate_left(1);
            if let Some(last) = self.steps.last_mut() {
                *last = (begin, false, 0);
            }
        }
        let oldest =
            self.launches.iter().enumerate().min_by_key(|(_, launch)| launch.2).map_or(0, |(at, _)| at);
        let place = self.launches.iter().position(|launch| launch.0 == graph).unwrap_or(oldest);
        let Some(launch) = self.launches.get_mut(place) else { return };
        let before = *launch;
        if before.0 == graph && before.1 == correlation {
            return;
        }
        *launch = (graph, correlation, start);
        // A launch may have begun before the window did: what begins with it is a step or a part of one.
        let Some(window) = self.steps.iter_mut().find(|(of, ..)| *of == begin) else { return };
        window.1 = true;
        if before.0 == graph && before.2 >= begin {
            window.2 = window.2.max(start.saturating_sub(before.2));
        }
    }

    /// The step of the program, from the last windows: the median of what they show, since a pause is no step.
    fn step(&self) -> Step {
        let mut longest = self.steps.map(|(.., step)| step);
        longest.sort_unstable();
        let unknown = longest.partition_point(|step| *step == 0);
        let middle = unknown.saturating_add(STEPS.saturating_sub(unknown) / 2);
        match longest.get(middle) {
            Some(step) => Step::Takes(*step),
            None if self.steps.iter().filter(|(_, launched, _)| *launched).count() >= 2 => Step::Longer,
            None => Step::None,
        }
    }

    fn at(&mut self, start: u64) -> Option<&mut Stretch> {
        self.stretches.iter_mut().rev().find(|stretch| stretch.begin > 0 && stretch.begin <= start)
    }

    /// What all of it says.
    pub(crate) fn measured(&self) -> Measured {
        // The newest two are not complete: their records are on the way.
        let settled = self.stretches.get(..STRETCHES.saturating_sub(2)).unwrap_or_default();
        let whole = |inside: bool| {
            settled.iter().filter(move |one| one.inside == inside && one.begin > 0 && one.end > one.begin)
        };
        let length = |one: &Stretch| one.end.saturating_sub(one.begin) as f64;
        let relief = relief(whole(true), whole(false));
        let step = self.step();
        let copies = |one: &Stretch| (f64::from(one.copies), length(one));
        if self.between.has(Kind::Memcpy)
            && let Some(loss) = loss(&whole(true).map(copies), &whole(false).map(copies))
        {
            return Measured { loss: Some(loss), basis: Basis::Copies, relief, step };
        }
        let calls = |from: (u64, u64), to: (u64, u64)| {
            let (time, calls) = (to.0.checked_sub(from.0)?, to.1.checked_sub(from.1)?);
            (from.0 > 0 && time > 0).then_some((calls as f64, time as f64))
        };
        let inside = whole(true).filter_map(|one| calls(one.first, one.last));
        let between = settled.windows(3).filter_map(|three| match three {
            [before, blank, after] if before.inside && !blank.inside && after.inside => {
                calls(before.last, after.first)
            }
            _ => None,
        });
        let runs_on = |(here, there): (f64, f64)| there >= here * RUNS_ON;
        if rates(inside.clone(), between.clone()).is_some_and(runs_on)
            && let Some(loss) = loss(&inside, &between)
        {
            return Measured { loss: Some(loss), basis: Basis::Calls, relief, step };
        }
        Measured { relief, step, ..Measured::NOTHING }
    }
}

/// Whether kernels come although their kind is off.
fn relief<'a>(
    inside: impl Iterator<Item = &'a Stretch>,
    between: impl Iterator<Item = &'a Stretch>,
) -> Relief {
    let (mut here, mut there) = ((0.0, 0.0), (0.0, 0.0));
    let mut windows = 0usize;
    for one in inside {
        windows = windows.saturating_add(usize::from(one.kernels > 0));
        here = (here.0 + f64::from(one.kernels), here.1 + one.end.saturating_sub(one.begin) as f64);
    }
    for one in between {
        let time = one.end.saturating_sub(one.begin).saturating_sub(TRAILING_NS);
        there = (there.0 + f64::from(one.late_kernels), there.1 + time as f64);
    }
    if windows < LEAST_STRETCHES || here.1 <= 0.0 || there.1 <= 0.0 {
        return Relief::Unknown;
    }
    if there.0 / there.1 > 0.05 * here.0 / here.1 { Relief::None } else { Relief::Full }
}

/// Counts a unit of time inside windows and between them, if enough was counted.
fn rates(
    inside: impl Iterator<Item = (f64, f64)>,
    between: impl Iterator<Item = (f64, f64)>,
) -> Option<(f64, f64)> {
    let sum = |all: &mut dyn Iterator<Item = (f64, f64)>| {
        all.fold((0usize, 0.0, 0.0), |(n, count, time), (one, length)| {
            (n.saturating_add(1), count + one, time + length)
        })
    };
    let (here, there) = (sum(&mut { inside }), sum(&mut { between }));
    let enough = |(n, count, time): (usize, f64, f64)| n >= LEAST_STRETCHES && count >= ENOUGH && time > 0.0;
    (enough(here) && enough(there)).then(|| (here.1 / here.2, there.1 / there.2))
}

/// The share of a window's time that is lost, and the upper end of its 95 % interval: from counts and lengths of
/// stretches inside windows and between them.
fn loss(
    inside: &(impl Iterator<Item = (f64, f64)> + Clone),
    between: &(impl Iterator<Item = (f64, f64)> + Clone),
) -> Option<(f64, f64)> {
    let (here, there) = rates(inside.clone(), between.clone())?;
    // The spread of a ratio of sums (W. G. Cochran, Sampling Techniques, 1977, section 6.4).
    let spread = |all: &mut dyn Iterator<Item = (f64, f64)>, rate: f64| {
        let (n, squares, time) = all.fold((0.0, 0.0, 0.0), |(n, squares, time), (count, length)| {
            (n + 1.0, squares + (count - rate * length).powi(2), time + length)
        });
        squares * n / (n - 1.0) / (time * time)
    };
    let (a, b) = (spread(&mut inside.clone(), here), spread(&mut between.clone(), there));
    let ratio = here / there;
    let error = ratio * (a / (here * here) + b / (there * there)).sqrt();
    let loss = (1.0 - ratio).clamp(0.0, WORST_LOSS);
    let high = (1.0 - ratio + 1.96 * error).clamp(loss, WORST_LOSS);
    high.is_finite().then_some((loss, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Twenty windows of 25 ms, one in each second. Inside them the process is slower by `loss`.
    struct Process {
        loss: f64,
        copies_a_second: f64,
        kernels_a_second: f64,
        kernels_between: bool,
        numbered_between: bool,
    }

    impl Process {
        fn meter(&self, between: KindSet) -> Meter {
            let mut meter = Meter { between, ..Meter::default() };
            let (mut copies, mut kernels, mut calls) = (0.0, 0.0, 1.0);
            let mut inside = false;
            for step in 0..20_000u64 {
                let at = (1000 + step) * MS;
                let (second, phase) = (step / 1000, step % 1000);
                let begin = (second * 37) % 900;
                if phase == begin {
                    meter.window((at, 0));
                    inside = true;
                }
                if phase == begin + 25 {
                    meter.window((at - 25 * MS, at));
                    inside = false;
                }
                let speed = if inside { 1.0 - self.loss } else { 1.0 };
                copies += self.copies_a_second / 1000.0 * speed;
                while copies >= 1.0 {
                    copies -= 1.0;
                    if (inside || between.has(Kind::Memcpy))
                        && let Some(stretch) = meter.at(at)
                    {
                        stretch.copies += 1;
                    }
                }
                kernels += self.kernels_a_second / 1000.0 * speed;
                while kernels >= 1.0 {
                    kernels -= 1.0;
                    calls += f64::from(u8::from(inside || self.numbered_between));
                    if inside || self.kernels_between {
                        meter.kernel(at, calls as u64);
                    }
                }
            }
            meter
        }
    }

    const SERVER: Process = Process {
        loss: 0.2,
        copies_a_second: 4000.0,
        kernels_a_second: 20_000.0,
        kernels_between: false,
        numbered_between: false,
    };

    fn is_near((loss, high): (f64, f64), within: f64) {
        assert!((loss - 0.2).abs() < within && high >= loss && high < 0.27, "{loss} {high}");
    }

    #[test]
    fn copies_that_are_always_counted_tell_the_loss() {
        let measured = SERVER.meter(KindSet::EMPTY.with(Kind::Memcpy)).measured();
        assert_eq!((measured.basis, measured.relief), (Basis::Copies, Relief::Full));
        is_near(measured.loss.unwrap(), 0.02);
    }

    #[test]
    fn a_numbering_that_runs_on_tells_the_loss() {
        let measured = Process { numbered_between: true, ..SERVER }.meter(KindSet::EMPTY).measured();
        assert_eq!(measured.basis, Basis::Calls);
        // A millisecond's kernels have one start here, which makes windows of 25 ms a little shorter.
        is_near(measured.loss.unwrap(), 0.05);
    }

    #[test]
    fn where_nothing_is_counted_between_nothing_is_claimed() {
        let measured = SERVER.meter(KindSet::EMPTY).measured();
        assert_eq!((measured.loss, measured.basis), (None, Basis::Assumed));
        let idle = Process { copies_a_second: 0.5, ..SERVER };
        assert_eq!(idle.meter(KindSet::EMPTY.with(Kind::Memcpy)).measured().loss, None, "too few copies");
        assert_eq!(Meter::default().measured(), Measured::NOTHING);
    }

    #[test]
    fn the_longest_time_between_launches_of_one_graph_is_the_step() {
        let mut meter = Meter::default();
        // A step of 20 ms: one graph once and another one twice in it, in windows of 50 ms and then of 10 ms.
        let mut run = |first: u64, length: u64| {
            for window in first..first + STEPS as u64 {
                let begin = window * 1_000 * MS;
                meter.window((begin, 0));
                for at in (begin..begin + length).step_by(MS as usize) {
                    let (step, phase) = (at / (20 * MS), at % (20 * MS) / MS);
                    match phase {
                        3..6 => meter.launch(7, step * 4, at),
                        8 | 9 => meter.launch(8, step * 4 + 1, at),
                        11 | 12 => meter.launch(8, step * 4 + 2, at),
                        _ => {}
                    }
                }
                meter.window((begin, begin + length));
            }
            meter.step()
        };
        assert_eq!(run(1, 50 * MS), Step::Takes(20 * MS));
        assert_eq!(run(20, 8 * MS), Step::Longer);
        assert_eq!(Meter::default().step(), Step::None);
    }

    #[test]
    fn kernels_that_come_although_they_are_off_are_no_relief() {
        let early = Process { kernels_between: true, numbered_between: true, ..SERVER };
        assert_eq!(early.meter(KindSet::EMPTY).measured().relief, Relief::None);
    }
}
