//! Kernels by name: calls, times, quantiles and the trend of each.

mod row;

use std::sync::Arc;

use gtop_protocol::message::names;
use rustc_hash::FxHashMap;

use super::names::{Namer, Relabelled};
use super::place::Piece;
use super::sampling::{Fold, Folded, Sampling};
use super::snapshot::{KernelEstimate, KernelName, KernelRow};
use super::time::{Moment, Seconds};
use row::Row;

/// Name ids up to here have a row of their own; the shim stops giving ids long before.
const MAX_ID: u32 = 1 << 17;
/// Bytes of names, as they came: twice what a shim gives in all.
const MAX_NAMES: usize = 32 << 20;
/// Bytes that the histograms of one process may take, by name and by graph.
const HISTOGRAM_BUDGET: usize = 6 << 20;
const GRAPH_BUDGET: usize = 2 << 20;
/// Graphs that have a row of their own; further ones share one.
const MAX_GRAPHS: usize = 1024;

/// The row of a name; dense, in order of appearance.
pub(super) type Slot = usize;

/// All kernel names of a process.
#[derive(Debug)]
pub(super) struct Kernels {
    /// The slot of a name id plus one; 0 is none yet.
    slots: Vec<u32>,
    other: Option<Slot>,
    rows: Vec<Row>,
    by_name: FxHashMap<Arc<[u8]>, Slot>,
    /// Bytes of all names.
    name_bytes: usize,
    namer: Namer,
    /// The slots of the names that were given to the namer, in their order.
    named: Vec<Slot>,
    total_ns: u64,
    seconds: Seconds,
    budget: usize,
    graph_budget: usize,
    /// Rows by executable graph.
    graphs: Vec<Row>,
    by_graph: FxHashMap<u32, Slot>,
    last_graph: Option<(u32, Slot)>,
    /// Names whose validity by time is kept, so far.
    minutes: usize,
}

impl Default for Kernels {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            other: None,
            rows: Vec::new(),
            by_name: FxHashMap::default(),
            name_bytes: 0,
            namer: Namer::default(),
            named: Vec::new(),
            total_ns: 0,
            seconds: Seconds::default(),
            budget: HISTOGRAM_BUDGET,
            graph_budget: GRAPH_BUDGET,
            graphs: Vec::new(),
            by_graph: FxHashMap::default(),
            last_graph: None,
            minutes: 0,
        }
    }
}

impl Kernels {
    /// The slot of a name id.
    #[inline]
    pub(super) fn slot(&mut self, id: u32) -> Slot {
        match self.seen(id) {
            Some(slot) => slot,
            None => self.new_slot(id),
        }
    }

    /// The slot of a name id, if it has one already.
    #[inline]
    pub(super) fn seen(&self, id: u32) -> Option<Slot> {
        (*self.slots.get(id as usize)? as usize).checked_sub(1)
    }

    #[cold]
    fn new_slot(&mut self, id: u32) -> Slot {
        if id >= MAX_ID {
            return match self.other {
                Some(slot) => slot,
                None => *self.other.insert(push(&mut self.rows, names::OTHER, "other kernels")),
            };
        }
        let name = if id == 0 { "unknown".to_owned() } else { format!("kernel #{id}") };
        let slot = push(&mut self.rows, id, &name);
        self.bind(id, slot);
        slot
    }

    fn bind(&mut self, id: u32, slot: Slot) {
        let at = id as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, 0);
        }
        self.slots[at] = slot as u32 + 1;
    }

    /// Takes in a name. Two ids with the same name share a slot. Gives the slots whose names have changed after
    /// records may have used them. One beyond all bounds stays unknown.
    pub(super) fn learn(&mut self, id: u32, raw: &[u8]) -> Vec<Slot> {
        if id == 0 || id >= MAX_ID {
            return Vec::new();
        }
        let bound = self.seen(id);
        if let Some(&slot) = self.by_name.get(raw) {
            if bound.is_none() {
                self.bind(id, slot);
            }
            return Vec::new();
        }
        if self.name_bytes + raw.len() > MAX_NAMES {
            return Vec::new();
        }
        self.name_bytes += raw.len();
        let slot = bound.unwrap_or_else(|| self.new_slot(id));
        self.by_name.insert(raw.into(), slot);
        self.rows[slot].name = Arc::new(self.namer.name(raw));
        self.named.push(slot);
        let mut changed: Vec<Slot> = bound.into_iter().collect();
        for Relabelled { name, from, to } in self.namer.relabelled() {
            let slot = self.named[name];
            let row = &mut self.rows[slot];
            // Its id may have got another name since.
            if row.name.short == from {
                Arc::make_mut(&mut row.name).short = to;
                changed.push(slot);
            }
        }
        changed
    }

    /// The name of a slot.
    pub(super) fn name(&self, slot: Slot) -> &Arc<KernelName> {
        &self.rows[slot].name
    }

    /// The name with this id, if it is known.
    pub(super) fn known(&self, id: u32) -> Option<&Arc<KernelName>> {
        self.rows.get(self.seen(id)?).map(|row| &row.name)
    }

    /// The id under which a slot is shown: the first that was given to its name.
    pub(super) fn id(&self, slot: Slot) -> u32 {
        self.rows[slot].id
    }

    /// Counts the kernels among believable records of an executable graph, or of none where that is 0.
    pub(super) fn add(&mut self, graph: u32, pieces: &[Piece], second: u64) {
        if !pieces.iter().any(Piece::is_kernel) {
            return;
        }
        let before = self.total_ns;
        self.sum_up(pieces);
        self.seconds.add(second, self.total_ns - before);
        let Self { rows, minutes, .. } = self;
        for piece in pieces {
            if let Some(row) = rows.get_mut(piece.kernel as usize) {
                row.lately(piece.duration(), second);
                row.validity(minutes, second, 0);
            }
        }
        if graph != 0 {
            let slot = match self.last_graph {
                Some((last, slot)) if last == graph => slot,
                _ => self.graph_slot(graph),
            };
            let row = &mut self.graphs[slot];
            for piece in pieces.iter().filter(|piece| piece.is_kernel()) {
                row.sums.add(piece.duration(), &mut self.graph_budget);
                row.lately(piece.duration(), second);
            }
        }
    }

    /// Counts the kernels among believable records in sums and quantiles alone.
    pub(super) fn sum_up(&mut self, pieces: &[Piece]) {
        let (rows, mut total_ns) = (self.rows.as_mut_slice(), self.total_ns);
        for piece in pieces {
            if let Some(row) = rows.get_mut(piece.kernel as usize) {
                row.sums.add(piece.duration(), &mut self.budget);
                total_ns = total_ns.saturating_add(piece.duration());
            }
        }
        self.total_ns = total_ns;
    }

    fn graph_slot(&mut self, graph: u32) -> Slot {
        let full = self.graphs.len() >= MAX_GRAPHS;
        let slot = match self.by_graph.get(&graph) {
            Some(slot) => *slot,
            None if full => match self.by_graph.get(&names::OTHER) {
                Some(slot) => *slot,
                None => self.new_graph(names::OTHER, "other graphs"),
            },
            None => self.new_graph(graph, &format!("graph {graph}")),
        };
        self.last_graph = Some((graph, slot));
        slot
    }

    fn new_graph(&mut self, graph: u32, name: &str) -> Slot {
        let slot = push(&mut self.graphs, graph, name);
        self.by_graph.insert(graph, slot);
        slot
    }

    /// Counts a record that cannot be believed.
    pub(super) fn add_invalid(&mut self, slot: Slot, second: u64) {
        self.rows[slot].invalid += 1;
        self.rows[slot].validity(&mut self.minutes, second, 1);
    }

    /// Marks a believable record that cannot have taken as long as it says.
    pub(super) fn add_overlong(&mut self, slot: Slot) {
        if let Some(row) = self.rows.get_mut(slot) {
            row.overlong += 1;
        }
    }

    /// Counts a record whose end is another's for the estimates of windows, as long as its kernel is on average; gives
    /// that length, nanoseconds. Whatever was launched in a window is in these, or they would be too low by a launch.
    pub(super) fn cut_off(&mut self, slot: Slot, graph: u32) -> u64 {
        if self.by_graph.contains_key(&graph) {
            let slot = self.graph_slot(graph);
            self.graphs[slot].cut_off();
        }
        self.rows[slot].cut_off()
    }

    /// Takes what came since the last time into the estimates of windows, or leaves it out as counted in full; gives the
    /// window.
    pub(super) fn fold(&mut self, sampling: &mut Sampling, fold: Fold) -> Option<Folded> {
        let window = match fold {
            Fold::Skip => None,
            Fold::Window(length) => {
                let fresh = |which: usize| move |row: &Row| row.windowed[which].fresh(row.launched()[which]);
                let [calls, time] =
                    [0, 1].map(|which| self.rows.iter().map(fresh(which)).sum::<u64>() as f64);
                let window = Folded { length, time };
                sampling.add(calls, window);
                Some(window)
            }
        };
        for row in self.rows.iter_mut().chain(&mut self.graphs) {
            let [calls, ns] = row.launched();
            row.windowed[0].fold(calls, window);
            row.windowed[1].fold(ns, window);
        }
        window
    }

    /// Calls and time of all kernels that were counted in full.
    pub(super) fn exact(&self, sampling: &Sampling) -> [f64; 2] {
        self.rows
            .iter()
            .map(|row| row.exact(sampling))
            .fold([0.0; 2], |sum, row| [sum[0] + row[0], sum[1] + row[1]])
    }

    /// The rows that have records, by total time, largest first.
    pub(super) fn rows(&self, at: Moment, sampling: &Sampling, now: u64) -> Vec<KernelRow> {
        let exact = self.exact(sampling);
        let estimate = |row: &Row| row.estimate(sampling, exact, now);
        self.show(&self.rows, at, &estimate)
    }

    /// The same by executable graph.
    pub(super) fn graphs(&self, at: Moment, sampling: &Sampling, now: u64) -> Vec<KernelRow> {
        let exact = self.exact(sampling);
        self.show(&self.graphs, at, &|row| row.estimate(sampling, exact, now))
    }

    fn show(
        &self,
        rows: &[Row],
        at: Moment,
        estimate: &dyn Fn(&Row) -> Option<KernelEstimate>,
    ) -> Vec<KernelRow> {
        let second = at.second();
        let all = self.seconds.last(second);
        let any = rows.iter().filter(|row| row.sums.calls + row.invalid > 0);
        let mut rows: Vec<KernelRow> = any
            .map(|row| KernelRow { estimate: estimate(row), ..row.show(second, &all, self.total_ns) })
            .collect();
        rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.mangled.cmp(&b.name.mangled)));
        rows
    }
}

fn push(rows: &mut Vec<Row>, id: u32, name: &str) -> Slot {
    rows.push(Row::new(id, name));
    rows.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(kernels: &mut Kernels, slot: Slot, graph: u32, duration: u64, second: u64) {
        let kernel = slot as u32;
        let piece = Piece { start: 7, end: 7 + duration, correlation: 0, node: 0, detail: 0, kernel };
        kernels.add(graph, &[piece], second);
    }

    #[test]
    fn a_row_has_calls_times_share_and_trend() {
        let mut kernels = Kernels::default();
        assert!(kernels.learn(3, b"gemm").is_empty());
        let (gemm, unknown) = (kernels.slot(3), kernels.slot(0));
        for second in 100..120 {
            add(&mut kernels, gemm, 0, 300, second);
            add(&mut kernels, unknown, 0, 100, second);
        }
        kernels.add_invalid(gemm, 119);
        let rows = kernels.rows(Moment::of_record(120_500_000_000), &Sampling::default(), 0);
        assert_eq!(rows.len(), 2);
        let row = &rows[0];
        assert_eq!((row.id, row.name.full.as_str(), row.calls, row.invalid), (3, "gemm", 20, 1));
        assert_eq!(row.windows, [[2, 1], [11, 1], [21, 1]]);
        assert_eq!((row.total_ns, row.min_ns, row.max_ns), (6000, 300, 300));
        assert_eq!((row.p50_ns, row.p99_ns), (300, 300));
        assert_eq!(
            (row.share, row.per_second, row.trend.as_slice()),
            (0.75, Some(1.0), [0.75; 16].as_slice())
        );
        assert_eq!(rows[1].name.full, "unknown");
    }

    #[test]
    fn what_was_cut_off_counts_for_estimates_alone_and_as_long_as_its_kernel_is_on_average() {
        let mut kernels = Kernels::default();
        let slot = kernels.slot(3);
        for duration in [200, 300, 400] {
            add(&mut kernels, slot, 0, duration, 100);
        }
        assert_eq!(kernels.cut_off(slot, 0), 300);
        let folded = kernels.fold(&mut Sampling::default(), Fold::Window(5000.0)).unwrap();
        assert_eq!((folded.length, folded.time), (5000.0, 1200.0));
        let rows = kernels.rows(Moment::of_record(101_000_000_000), &Sampling::default(), 0);
        assert_eq!((rows[0].calls, rows[0].total_ns, rows[0].max_ns), (3, 900, 400));
    }

    #[test]
    fn a_name_that_comes_late_is_put_in_and_equal_names_are_one_row() {
        let mut kernels = Kernels::default();
        let slot = kernels.slot(7);
        assert_eq!(kernels.name(slot).full, "kernel #7");
        assert_eq!(kernels.learn(7, b"late"), [slot]);
        assert!(kernels.learn(7, b"late").is_empty());
        assert!(kernels.learn(9, b"late").is_empty());
        assert_eq!(kernels.slot(9), slot);
        assert_eq!(kernels.name(slot).full, "late");
    }

    #[test]
    fn a_kernel_is_renamed_when_another_one_would_be_called_the_same() {
        let mut kernels = Kernels::default();
        assert!(kernels.learn(1, b"_ZN1a1kIiEEvv").is_empty());
        let first = kernels.slot(1);
        assert_eq!(kernels.name(first).short, "k<i32>");
        assert_eq!(kernels.learn(2, b"_ZN1b1kIiEEvv"), [first]);
        let (first, second) = (kernels.name(first), kernels.name(kernels.seen(2).unwrap()));
        assert!(first.short.starts_with("k<i32>~") && second.short.starts_with("k<i32>~"));
        assert_ne!(first.short, second.short);
        assert_eq!(first.full, "void a::k<int>()");
    }

    #[test]
    fn kernels_are_counted_by_graph_and_graphs_without_end_share_a_row() {
        let mut kernels = Kernels::default();
        let slot = kernels.slot(3);
        for graph in 1..=2000 {
            add(&mut kernels, slot, graph, 10, 100);
            add(&mut kernels, slot, graph, 30, 100);
        }
        add(&mut kernels, slot, 7, 60, 100);
        let rows = kernels.graphs(Moment::of_record(101_000_000_000), &Sampling::default(), 0);
        assert_eq!(rows.len(), MAX_GRAPHS + 1);
        assert_eq!(
            (rows[0].name.full.as_str(), rows[0].calls),
            ("other graphs", 2 * (2000 - MAX_GRAPHS as u64))
        );
        assert_eq!((rows[1].id, rows[1].calls, rows[1].total_ns), (7, 3, 100));
    }

    #[test]
    fn names_beyond_all_bounds_stay_unknown() {
        let mut kernels = Kernels { name_bytes: MAX_NAMES - 9, ..Kernels::default() };
        for name in [b"first".as_slice(), b"second", b"more"] {
            kernels.learn(1, name);
        }
        let (one, two) = (kernels.slot(1), kernels.slot(2));
        assert_eq!((kernels.name(one).full.as_str(), kernels.by_name.len()), ("more", 2));
        assert_eq!((kernels.learn(2, b"x"), kernels.name(two).full.as_str()), (vec![], "kernel #2"));
    }

    #[test]
    fn ids_beyond_all_bounds_share_one_row() {
        let mut kernels = Kernels::default();
        let slot = kernels.slot(u32::MAX);
        assert_eq!(kernels.slot(MAX_ID), slot);
        assert!(kernels.learn(u32::MAX - 1, b"x").is_empty());
        assert_eq!(kernels.name(slot).full, "other kernels");
        assert_eq!(kernels.rows.len(), 1);
    }
}
