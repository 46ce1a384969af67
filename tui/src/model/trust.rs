//! Which records can be believed: counts by class over windows and since the start, and the first bad one.

use gtop_protocol::{Notes, Validity};
use rustc_hash::FxHashMap;

use super::snapshot::{Believed, EarlierInvalid, FirstInvalid, NoteCounts, ValidityStats, WINDOWS};
use super::time::{Minute, Moment, SECOND, Tenths};

/// How many classes there are.
pub(super) const CLASSES: usize = Validity::ALL.len();

/// Counts of one frame, by class.
pub(super) type ByClass = [u64; CLASSES];

/// After so long with believable records alone the next invalid one begins a new stretch.
const GOOD_STRETCH: u64 = 10 * SECOND;
/// Graphs told apart; further ones are not.
const MAX_GRAPHS: usize = 256;
/// Executable graphs shown, those with the most invalid records.
const SHOWN_GRAPHS: usize = 16;

/// Validity and notes of one process.
#[derive(Debug, Default)]
pub(super) struct Trust {
    total: ByClass,
    ring: Tenths<CLASSES>,
    /// Invalid records that came before.
    pub(super) earlier: Option<EarlierInvalid>,
    first_invalid: Option<FirstInvalid>,
    first_again: Option<FirstInvalid>,
    /// When the last invalid record came, and how many believable ones had come by then.
    last_invalid: Option<(u64, u64)>,
    /// Kernel, memcpy, memset.
    kinds: [Counted; 3],
    graphs: FxHashMap<u32, usize>,
    by_graph: Vec<(u32, Counted)>,
    /// Records of one graph in a row that are not counted yet: all and invalid ones.
    run: (u32, [u64; 2]),
    /// Remarks on believable records.
    pub(super) notes: NoteCounts,
}

/// All and invalid records of something, in all and by second.
#[derive(Clone, Debug, Default)]
struct Counted {
    total: [u64; 2],
    minute: Minute<2>,
}

impl Counted {
    #[inline]
    fn add(&mut self, second: u64, counts: [u64; 2]) {
        self.total = [self.total[0] + counts[0], self.total[1] + counts[1]];
        self.minute.add(second, counts.map(|count| count.min(u64::from(u32::MAX)) as u32));
    }

    fn share(&self, second: u64) -> Believed {
        let windows = WINDOWS.map(|seconds| self.minute.window(second, seconds));
        Believed { total: self.total, windows }
    }
}

impl Trust {
    /// Adds the counts of a run of records of one kind: 0 kernel, 1 memcpy, 2 memset.
    pub(super) fn add(&mut self, at: Moment, kind: usize, counts: &ByClass) {
        self.ring.add(at, counts);
        for (sum, count) in self.total.iter_mut().zip(counts) {
            *sum += count;
        }
        let all = counts.iter().sum();
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.add(at.second(), [all, all - counts[Validity::Valid as usize]]);
        }
    }

    /// Counts records of an executable graph, all and invalid ones, which [`Trust::end_run`] must be told of within the
    /// second.
    pub(super) fn add_graph(&mut self, graph: u32, second: u64, counts: [u64; 2]) {
        if self.run.0 != graph {
            self.end_run(second);
            self.run.0 = graph;
        }
        self.run.1 = [self.run.1[0] + counts[0], self.run.1[1] + counts[1]];
    }

    /// Puts the records of a graph that came in a row where they belong.
    pub(super) fn end_run(&mut self, second: u64) {
        let (graph, counts) = std::mem::take(&mut self.run);
        if graph == 0 || counts[0] == 0 {
            return;
        }
        let room = self.by_graph.len() < MAX_GRAPHS;
        let Some(place) = self.graphs.get(&graph).copied().or_else(|| room.then_some(self.by_graph.len()))
        else {
            return;
        };
        if place == self.by_graph.len() {
            self.by_graph.push((graph, Counted::default()));
            self.graphs.insert(graph, place);
        }
        if let Some((_, counted)) = self.by_graph.get_mut(place) {
            counted.add(second, counts);
        }
    }

    /// The first bad record, if there was any.
    pub(super) const fn first_invalid(&self) -> Option<&FirstInvalid> {
        self.first_invalid.as_ref()
    }

    /// Counts the remarks on a believable record.
    pub(super) fn note(&mut self, notes: Notes) {
        self.notes.overlap += u64::from(notes.has(Notes::OVERLAP));
        self.notes.zero_length += u64::from(notes.has(Notes::ZERO_LENGTH));
        self.notes.out_of_order += u64::from(notes.has(Notes::OUT_OF_ORDER));
        self.notes.unasked_kind += u64::from(notes.has(Notes::UNASKED_KIND));
        self.notes.cut_off += u64::from(notes.has(Notes::CUT_OFF));
    }

    /// Takes note of a bad record; whether it is the first of all or of a stretch, and so to be kept.
    pub(super) fn is_first(&mut self, at: Moment) -> bool {
        let valid = self.total[Validity::Valid as usize];
        let before = self.last_invalid.replace((at.steady, valid));
        before
            .is_none_or(|(last, believed)| at.steady.saturating_sub(last) >= GOOD_STRETCH && valid > believed)
    }

    /// Keeps the first bad record of a stretch.
    pub(super) fn first(&mut self, first: FirstInvalid) {
        if self.first_invalid.is_none() {
            self.first_invalid = Some(first);
        } else {
            self.first_again = Some(first);
        }
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
        let mut graphs: Vec<(u32, Believed)> = self
            .by_graph
            .iter()
            .filter(|(_, counted)| counted.total[1] > 0)
            .map(|(graph, counted)| (*graph, counted.share(at.second())))
            .collect();
        graphs.sort_by_key(|(graph, share)| (std::cmp::Reverse(share.total[1]), *graph));
        graphs.truncate(SHOWN_GRAPHS);
        ValidityStats {
            total: self.total,
            windows,
            rate_total: rate(&self.total),
            rate_windows: windows.each_ref().map(rate),
            earlier: self.earlier,
            first_invalid: self.first_invalid.clone(),
            first_again: self.first_again.clone(),
            history: self.ring.seconds(at),
            kinds: self.kinds.each_ref().map(|kind| kind.share(at.second())),
            graphs,
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
            trust.add(at(second), 0, &counts(100, 0));
        }
        trust.add(at(1090), 2, &counts(3, 97));
        let stats = trust.stats(at(1090), false);
        assert_eq!(stats.rate_windows[0], Some(0.97));
        assert_eq!(stats.windows[1][Validity::Valid as usize], 900 + 3);
        assert_eq!(stats.total[Validity::Valid as usize], 9003);
        assert!(stats.rate_total.is_some_and(|rate| (rate - 97.0 / 9100.0).abs() < 1e-9));
        assert_eq!(stats.kinds[2].windows[0], [100, 97]);
        assert_eq!((stats.kinds[0].total, stats.kinds[1].total), ([9000, 0], [0, 0]));
        assert_eq!(stats.history[58][Validity::Zero as usize..][..1], [0]);
        assert_eq!(stats.history[59][Validity::Zero as usize], 97, "the step is seen");
        let later = trust.stats(at(1200), false);
        assert_eq!((later.rate_windows, later.rate_total.is_some()), ([None; 3], true));
        assert_eq!(trust.stats(at(1090), true).rate_total, None);
    }

    #[test]
    fn a_million_records_whose_last_tenth_is_bad() {
        let mut trust = Trust::default();
        let at = |second: u64| Moment::of_record(second * 1_000_000_000);
        trust.add(at(100), 0, &counts(899_476, 0));
        trust.add(at(190), 0, &counts(327, 100_197));
        let stats = trust.stats(at(190), false);
        let percent = |rate: Option<f64>| format!("{:.2} %", rate.unwrap() * 100.0);
        assert_eq!(
            (percent(stats.rate_total), percent(stats.rate_windows[2])),
            ("10.02 %".into(), "99.67 %".into())
        );
    }

    #[test]
    fn the_first_after_a_good_stretch_is_kept_beside_the_first_of_all() {
        let mut trust = Trust::default();
        let at = |second: u64| Moment::of_record(second * 1_000_000_000);
        let first = |index| FirstInvalid {
            index: Some(index),
            time: 0,
            start: 0,
            end: 0,
            class: Validity::Zero,
            name: String::new(),
        };
        let mut kept = Vec::new();
        for (second, valid) in [(100, 0), (101, 50), (115, 0), (130, 9), (131, 0)] {
            trust.add(at(second), 0, &counts(valid, 1));
            if trust.is_first(at(second)) {
                kept.push(second);
                trust.first(first(second));
            }
        }
        assert_eq!(kept, [100, 130], "one that followed nothing good begins no stretch");
        let stats = trust.stats(at(131), false);
        let index = |first: Option<FirstInvalid>| first.and_then(|first| first.index);
        assert_eq!((index(stats.first_invalid), index(stats.first_again)), (Some(100), Some(130)));
    }

    #[test]
    fn graphs_are_told_apart_and_those_with_bad_records_are_shown() {
        let mut trust = Trust::default();
        for graph in 0..400 {
            for i in 0..4 {
                let invalid = graph % 100 == 17 && i < graph / 100 + 1;
                trust.add_graph(graph, 100, [1, u64::from(invalid)]);
            }
        }
        trust.end_run(100);
        let graphs = trust.stats(Moment::of_record(100 * SECOND), false).graphs;
        let seen: Vec<_> = graphs.iter().map(|(graph, share)| (*graph, share.total)).collect();
        assert_eq!(seen, [(217, [4, 3]), (117, [4, 2]), (17, [4, 1])], "graphs beyond the first 256 are not");
        assert_eq!(graphs[0].1.windows[2], [4, 3]);
    }
}
