//! Launches of executable graphs, as far as records tell: all records of one launch share its correlation id.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::histogram::Histogram;
use super::place::Piece;
use super::slices::Slice;
use super::snapshot::{GraphTotals, LaneKey};
use super::time::{Moment, SECOND, Seconds};

/// Launches kept to tell late records of a known launch from a new one.
const MAX_LAUNCHES: usize = 1 << 16;
/// Graphs whose last use is kept.
const MAX_GRAPHS: usize = 1 << 16;
/// A graph is live when a record of it came within this many seconds.
const LIVE: u64 = 60;
/// Launches of a graph in one second of which every record is looked at; the others only give their time.
const LOOKED_AT: u32 = 2;
/// Nodes kept of one graph, and of all graphs.
const MAX_NODES: usize = 1 << 14;
const ALL_NODES: usize = 1 << 18;
/// Bytes of histograms of all graphs.
const HISTOGRAMS: usize = 4 << 20;

/// Whole seconds whose launches make the present rate.
const RECENT: u64 = 5;

/// How far records of one launch may lie apart in time; after that its slice is final.
const OPEN_NS: u64 = SECOND;

/// Graph launches of one process.
#[derive(Debug)]
pub(super) struct Graphs {
    /// Launches in the order in which they were first seen, each with its correlation id.
    kept: VecDeque<(u64, Launch)>,
    /// How many came before those.
    gone: u64,
    /// Which one each correlation id is, counted from the first of all.
    known: FxHashMap<u64, u64>,
    /// The one that the last record belonged to: nearly always the next one does too.
    last: Option<(u64, u64)>,
    /// How many of `kept`, from the front, are final.
    closed: usize,
    newest: u64,
    /// By executable graph.
    seen: FxHashMap<u32, Seen>,
    nodes: usize,
    histograms: usize,
}

/// What records tell of one executable graph.
#[derive(Debug)]
pub(super) struct Seen {
    /// The second of its last launch, by the viewer's clock.
    second: u64,
    pub(super) launches: u64,
    /// Start of its first and of its last launch, CUPTI's nanoseconds.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) lane: LaneKey,
    /// Times of its launches, from the first start to the last end of each.
    pub(super) times: Histogram,
    recent: Seconds,
    looked_at: u32,
    /// Launches of which every record was looked at.
    pub(super) whole: u64,
    /// Its nodes that gave records, by index: detail id, and time in all launches looked at, nanoseconds.
    pub(super) nodes: BTreeMap<u32, (u32, u64)>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            gone: 0,
            known: FxHashMap::default(),
            last: None,
            closed: 0,
            newest: 0,
            seen: FxHashMap::default(),
            nodes: 0,
            histograms: HISTOGRAMS,
        }
    }
}

impl Seen {
    /// Launches a second over the last whole seconds before CUPTI's time `now`, or since the first if that is less.
    pub(super) fn per_second(&self, now: u64) -> f64 {
        let this = now / SECOND;
        let from = this.saturating_sub(RECENT);
        let lasted = (this * SECOND).saturating_sub(self.first.max(from * SECOND));
        if lasted >= SECOND / 2 {
            let launches: u64 = self.recent.last(this).iter().rev().take(RECENT as usize).sum();
            return launches as f64 * SECOND as f64 / lasted as f64;
        }
        // It has just begun, unless it is over.
        let lived = self.last.max(now).saturating_sub(self.first);
        let launches = if now.saturating_sub(self.last) > RECENT * SECOND { 0 } else { self.launches };
        if launches > 1 { launches as f64 * SECOND as f64 / lived.max(1) as f64 } else { 0.0 }
    }
}

/// One launch: from the first start to the last end of its records.
#[derive(Clone, Copy, Debug)]
struct Launch {
    lane: LaneKey,
    slice: Slice,
    graph: u32,
    whole: bool,
}

impl Graphs {
    /// Counts believable records, one at least, of one launch of a graph.
    pub(super) fn add(&mut self, graph: u32, lane: LaneKey, pieces: &[Piece], at: Moment) {
        let Some(first) = pieces.first() else { return };
        let number = match self.last {
            Some((correlation, number)) if correlation == first.correlation => number,
            _ => match self.known.get(&first.correlation) {
                Some(number) => *number,
                None => self.begin(graph, lane, first, at),
            },
        };
        self.last = Some((first.correlation, number));
        let Some((_, launch)) = self.kept.get_mut((number - self.gone) as usize) else { return };
        let (mut start, mut end) = (first.start, first.end);
        for piece in pieces {
            start = start.min(piece.start);
            end = end.max(piece.end);
        }
        launch.slice.start = launch.slice.start.min(start);
        launch.slice.end = launch.slice.end.max(end);
        self.newest = self.newest.max(end);
        if launch.whole {
            self.look_at(graph, pieces);
        }
    }

    /// Keeps a launch of which this is the first record; gives its number.
    fn begin(&mut self, graph: u32, lane: LaneKey, first: &Piece, at: Moment) -> u64 {
        let whole = self.launched(graph, lane, first.start, at);
        let number = self.launches();
        self.known.insert(first.correlation, number);
        self.kept.push_back((first.correlation, Launch { lane, slice: first.slice(), graph, whole }));
        number
    }

    /// Counts a launch; gives whether each of its records is to be looked at.
    fn launched(&mut self, graph: u32, lane: LaneKey, start: u64, at: Moment) -> bool {
        if self.seen.len() >= MAX_GRAPHS && !self.seen.contains_key(&graph) {
            return false;
        }
        let seen = self.seen.entry(graph).or_insert_with(|| Seen {
            second: 0,
            launches: 0,
            first: start,
            last: start,
            lane,
            times: Histogram::default(),
            recent: Seconds::default(),
            looked_at: 0,
            whole: 0,
            nodes: BTreeMap::new(),
        });
        seen.launches += 1;
        seen.recent.add(start / SECOND, 1);
        seen.first = seen.first.min(start);
        seen.last = seen.last.max(start);
        if seen.second != at.second() {
            (seen.second, seen.looked_at) = (at.second(), 0);
        }
        seen.looked_at += 1;
        let whole = seen.looked_at <= LOOKED_AT;
        seen.whole += u64::from(whole);
        whole
    }

    #[cold]
    fn look_at(&mut self, graph: u32, pieces: &[Piece]) {
        let Some(seen) = self.seen.get_mut(&graph) else { return };
        for piece in pieces {
            let index = (piece.node & 0xffff_ffff) as u32;
            let known = seen.nodes.contains_key(&index);
            if !known && (seen.nodes.len() >= MAX_NODES || self.nodes >= ALL_NODES) {
                continue;
            }
            self.nodes += usize::from(!known);
            let node = seen.nodes.entry(index).or_default();
            node.0 = piece.detail;
            node.1 += piece.duration();
        }
    }

    /// What records told of executable graphs.
    pub(super) fn seen(&self) -> impl Iterator<Item = (u32, &Seen)> {
        self.seen.iter().map(|(id, seen)| (*id, seen))
    }

    /// When the first launch began, and the last one, CUPTI's nanoseconds.
    pub(super) fn first_launch(&self) -> Option<u64> {
        self.seen.values().map(|seen| seen.first).min()
    }

    pub(super) fn last_launch(&self) -> Option<u64> {
        self.seen.values().map(|seen| seen.last).max()
    }

    /// Launches seen.
    pub(super) fn launches(&self) -> u64 {
        self.gone + self.kept.len() as u64
    }

    /// Whether there are so many that those which are final should go.
    pub(super) fn are_many(&self) -> bool {
        self.kept.len() >= 2 * MAX_LAUNCHES
    }

    /// … of one.
    pub(super) fn seen_of(&self, id: u32) -> Option<&Seen> {
        self.seen.get(&id)
    }

    /// Launches that have become final since the last call, through `emit`.
    pub(super) fn close(&mut self, mut emit: impl FnMut(LaneKey, Slice)) {
        while let Some((_, launch)) = self.kept.get(self.closed) {
            let crowded = self.kept.len() - self.closed > MAX_LAUNCHES / 2;
            if !crowded && launch.slice.end.saturating_add(OPEN_NS) > self.newest {
                break;
            }
            emit(launch.lane, launch.slice);
            if let Some(seen) = self.seen.get_mut(&launch.graph) {
                seen.times.add(launch.slice.end - launch.slice.start, &mut self.histograms);
            }
            self.closed += 1;
        }
        while self.kept.len() > MAX_LAUNCHES && self.closed > 0 {
            if let Some((correlation, _)) = self.kept.pop_front() {
                self.known.remove(&correlation);
                self.closed -= 1;
                self.gone += 1;
            }
        }
        self.last = None;
    }

    /// Launches that may still grow.
    pub(super) fn open(&self) -> impl Iterator<Item = (LaneKey, Slice)> {
        self.kept.iter().skip(self.closed).map(|(_, launch)| (launch.lane, launch.slice))
    }

    /// The totals; launches are unknown as long as no record could have told (`any` is false).
    pub(super) fn totals(&self, at: Moment, any: bool) -> GraphTotals {
        let live = self.seen.values().filter(|seen| at.second().saturating_sub(seen.second) < LIVE).count();
        GraphTotals {
            live: any.then_some(live as u64),
            launches: any.then(|| self.launches()),
            instantiated: None,
            destroyed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneKey = LaneKey::Graphs { device: 0, context: 1, stream: 7 };

    fn add(graphs: &mut Graphs, correlation: u64, start: u64, end: u64) {
        let node = (41 << 32) | (correlation % 3);
        let piece = Piece { start, end, correlation, node, detail: 7, kernel: 0 };
        graphs.add(41, LANE, &[piece], Moment::of_record(end));
    }

    #[test]
    fn a_launch_is_all_its_records_in_whatever_order() {
        let mut graphs = Graphs::default();
        for (start, end) in [(50, 60), (10, 20), (70, 90), (30, 40)] {
            add(&mut graphs, 9, start, end);
        }
        add(&mut graphs, 10, 100, 110);
        let totals = graphs.totals(Moment::of_record(110), true);
        assert_eq!((totals.launches, totals.live, totals.instantiated), (Some(2), Some(1), None));
        let open: Vec<_> = graphs.open().map(|(_, slice)| (slice.start, slice.end)).collect();
        assert_eq!(open, [(10, 90), (100, 110)]);
        let mut closed = Vec::new();
        graphs.close(|_, slice| closed.push(slice));
        assert!(closed.is_empty());
        add(&mut graphs, 11, 3 * SECOND, 3 * SECOND + 1);
        graphs.close(|_, slice| closed.push(slice));
        assert_eq!(closed.iter().map(|slice| slice.end).collect::<Vec<_>>(), [90, 110]);
        let seen = graphs.seen_of(41).unwrap();
        assert_eq!((seen.launches, seen.first, seen.last), (3, 50, 3 * SECOND));
        assert!((78..=82).contains(&seen.times.quantile(0.99)));
        assert_eq!(seen.nodes.get(&0), Some(&(7, 50)), "four records of the launch with this node");
        add(&mut graphs, 9, 65, 66);
        assert_eq!(graphs.totals(Moment::of_record(62 * SECOND), true).launches, Some(3));
        assert_eq!(graphs.totals(Moment::of_record(70 * SECOND), true).live, Some(0));
        assert_eq!(graphs.totals(Moment::default(), false).launches, None);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut graphs = Graphs::default();
        // A hundred a second for a minute, then ten a second, then none.
        let mut correlation = 0;
        let mut launch = |at: u64| {
            correlation += 1;
            add(&mut graphs, correlation, at, at + 1_000);
        };
        (0..6_000).for_each(|i| launch(100 * SECOND + i * SECOND / 100));
        (0..200).for_each(|i| launch(160 * SECOND + i * SECOND / 10));
        let rate = |at: u64| graphs.seen_of(41).map(|seen| seen.per_second(at * SECOND).round());
        assert_eq!((rate(180), rate(181), rate(190)), (Some(10.0), Some(8.0), Some(0.0)));
        let mut graphs = Graphs::default();
        for i in 0..20 {
            let start = 100 * SECOND + i * SECOND / 100;
            add(&mut graphs, i, start, start + 9);
        }
        let young = graphs.seen_of(41).map(|seen| seen.per_second(100 * SECOND + SECOND / 5).round());
        assert_eq!(young, Some(100.0), "it has just begun");
        let over = graphs.seen_of(41).map(|seen| seen.per_second(101 * SECOND - 1).round());
        assert_eq!(over, Some(20.0), "it was launched twenty times in that second");
    }

    #[test]
    fn launches_without_end_stay_bounded() {
        let mut graphs = Graphs::default();
        let mut closed = 0;
        for i in 0..200_000 {
            add(&mut graphs, i, 10 + i, 11 + i);
            if i % 1000 == 0 {
                graphs.close(|_, _| closed += 1);
            }
        }
        assert!(graphs.kept.len() <= MAX_LAUNCHES + 1000 && graphs.known.len() == graphs.kept.len());
        assert!(closed > 100_000);
        assert_eq!(graphs.totals(Moment::default(), true).launches, Some(200_000));
    }
}
