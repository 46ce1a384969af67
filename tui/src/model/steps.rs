//! Steps: launches of executable graphs that repeat at a steady rhythm, as a server of a language model makes them,
//! one a token. A step lasts from one such launch to the next, with everything that runs in between.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::snapshot::Steps as Row;
use super::time::SECOND;

/// Contexts that are followed.
const MAX_TRACKS: usize = 64;
/// Launches kept of each context; steps are told from these.
const MAX_LAUNCHES: usize = 1 << 14;
/// … and from no more time than this, nanoseconds.
const WINDOW_NS: u64 = 60 * SECOND;
/// How much later than others a record may come, nanoseconds.
const HORIZON_NS: u64 = SECOND / 2;
/// Records that come before all that wait are looked at, and the most that may wait.
const MANY: usize = 1 << 16;
const MOST: usize = 1 << 18;
/// Fewer steps are no rhythm.
const FEWEST: usize = 8;
/// Nothing running for this long is remembered with its time, nanoseconds.
const LONG_IDLE: u64 = 5_000_000;
/// Such times kept of each context.
const MAX_IDLE: usize = 256;
/// Kernels after which those beside graphs are counted anew.
const EAGER: u64 = 20_000;
/// Launches whose records may run among each other's.
const MINGLED: usize = 8;
/// Times without tracing that are remembered: those among the records that wait.
const MAX_BLANKS: usize = 32;

/// The steps of one process.
#[derive(Debug, Default)]
pub(super) struct Steps {
    tracks: Vec<Track>,
    last: usize,
    /// The last times in which kernels were not traced.
    blanks: VecDeque<(u64, u64)>,
}

/// A believable record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u64,
    /// Executable graph; 0 outside graphs.
    pub(super) graph: u32,
    pub(super) is_kernel: bool,
}

/// Kernels beside graphs, in contexts that launch graphs, of the last while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Eager {
    pub(super) kernels: u64,
    pub(super) kernel_ns: u64,
    /// Times in which nothing ran between two of them.
    pub(super) gaps: u64,
    pub(super) gap_ns: u64,
}

/// One context's work in the order of its start.
#[derive(Debug)]
struct Track {
    device: Option<u32>,
    context: u32,
    /// What has come and is not in order yet.
    fresh: Vec<Piece>,
    /// What waits in order, after those that were looked at.
    waiting: Vec<Piece>,
    looked_at: usize,
    newest: u64,
    /// Everything before this was looked at.
    done: u64,
    /// The latest end so far.
    covered: u64,
    launches: VecDeque<Launch>,
    mingled: VecDeque<u64>,
    /// Long times in which nothing ran.
    idle: VecDeque<(u64, u64)>,
    eager: Eager,
    eager_before: Eager,
    after_eager: bool,
    after_blank: bool,
}

/// One launch, and what ran until the next one.
#[derive(Clone, Copy, Debug)]
struct Launch {
    graph: u32,
    start: u64,
    /// The last end of its records.
    end: u64,
    /// From the last end of the launch before to this one's start; `None` for the first, and for the first after a time
    /// without tracing.
    lead: Option<u64>,
    /// Whether it, or what follows up to the next one, was not traced in full.
    cut: bool,
    /// Kernels until the next launch, its own and others.
    kernels: u64,
    /// Time in which nothing ran while it did.
    idle_inside: u64,
    /// Time in which nothing ran between it and the next launch.
    idle_after: u64,
}

impl Steps {
    /// Takes in a record of a context.
    #[inline]
    pub(super) fn add(&mut self, device: Option<u32>, context: u32, piece: Piece) {
        let is = |track: &Track| track.context == context && track.device == device;
        if !self.tracks.get(self.last).is_some_and(is) {
            match self.tracks.iter().position(is) {
                Some(at) => self.last = at,
                // Work before the first launch of a graph belongs to no step.
                None if piece.graph == 0 || self.tracks.len() >= MAX_TRACKS => return,
                None => {
                    self.last = self.tracks.len();
                    self.tracks.push(Track::new(device, context));
                }
            }
        }
        self.tracks[self.last].add(piece, &self.blanks);
    }

    /// Takes in when kernels were not traced, in order: what it is told of may be known.
    pub(super) fn not_traced(&mut self, blanks: impl Iterator<Item = (u64, u64)>) {
        for blank in blanks {
            if self.blanks.back().is_none_or(|last| *last < blank) {
                self.blanks.push_back(blank);
            }
        }
        self.blanks.drain(..self.blanks.len().saturating_sub(MAX_BLANKS));
    }

    /// Looks at the records that no earlier one can come before any more; with `all`, at every one.
    pub(super) fn settle(&mut self, all: bool) {
        self.tracks.iter_mut().for_each(|track| track.settle(all, &self.blanks));
    }

    /// Kernels beside graphs in the context that has most of them.
    pub(super) fn eager(&self) -> Eager {
        let of = |track: &Track| {
            if track.eager.kernels < EAGER / 2 && track.eager_before.kernels > 0 {
                track.eager_before
            } else {
                track.eager
            }
        };
        self.tracks.iter().map(of).max_by_key(|eager| eager.kernels).unwrap_or_default()
    }

    /// Long times in which nothing ran, of the one context that launches graphs; none when there are several.
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        match self.tracks.as_slice() {
            [only] => only.idle.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The steps of each context that has any, at CUPTI's time `now`; those with the most first.
    pub(super) fn rows(&self, now: u64) -> Vec<Row> {
        let mut rows: Vec<Row> = self.tracks.iter().filter_map(|track| track.row(now)).collect();
        rows.sort_by_key(|row| (!row.current, std::cmp::Reverse(row.count)));
        rows
    }
}

impl Track {
    fn new(device: Option<u32>, context: u32) -> Self {
        Self {
            device,
            context,
            fresh: Vec::new(),
            waiting: Vec::new(),
            looked_at: 0,
            newest: 0,
            done: 0,
            covered: 0,
            launches: VecDeque::new(),
            mingled: VecDeque::new(),
            idle: VecDeque::new(),
            eager: Eager::default(),
            eager_before: Eager::default(),
            after_eager: false,
            after_blank: false,
        }
    }

    #[inline]
    fn add(&mut self, piece: Piece, blanks: &VecDeque<(u64, u64)>) {
        // What comes this late is in no step.
        if piece.start < self.done {
            return;
        }
        self.newest = self.newest.max(piece.end);
        self.fresh.push(piece);
        if self.fresh.len() >= MANY {
            self.settle(false, blanks);
        }
    }

    fn settle(&mut self, all: bool, blanks: &VecDeque<(u64, u64)>) {
        self.put_in_order();
        let upto = if all { u64::MAX } else { self.newest.saturating_sub(HORIZON_NS) };
        let ready = self.waiting.partition_point(|piece| piece.start < upto);
        let ready = ready.max(self.waiting.len().saturating_sub(MOST));
        let waiting = std::mem::take(&mut self.waiting);
        for piece in waiting.get(self.looked_at..ready).unwrap_or_default() {
            self.run(piece, blanks);
            self.done = piece.start;
        }
        self.waiting = waiting;
        self.looked_at = self.looked_at.max(ready);
        // Moving what is left to the front costs less the less it is.
        if self.looked_at * 2 >= self.waiting.len() {
            self.waiting.drain(..self.looked_at);
            self.looked_at = 0;
        }
    }

    /// Puts what has come among what waits; most of it comes after all of that.
    fn put_in_order(&mut self) {
        let Some(earliest) = self.fresh.iter().map(|piece| piece.start).min() else { return };
        let from = self.waiting.partition_point(|piece| piece.start <= earliest).max(self.looked_at);
        self.waiting.append(&mut self.fresh);
        self.waiting[from..].sort_by_key(|piece| piece.start);
    }

    /// Takes the next record in the order of starts.
    fn run(&mut self, piece: &Piece, blanks: &VecDeque<(u64, u64)>) {
        let mut idle = if self.covered == 0 { 0 } else { piece.start.saturating_sub(self.covered) };
        if idle > 0 && blanks.iter().any(|(from, to)| *from < piece.start && *to > self.covered) {
            // Whether anything ran meanwhile is not known.
            idle = 0;
            self.after_blank = true;
            if let Some(open) = self.launches.back_mut() {
                open.cut = true;
            }
        }
        if idle >= LONG_IDLE {
            if self.idle.len() >= MAX_IDLE {
                self.idle.pop_front();
            }
            self.idle.push_back((self.covered, piece.start));
        }
        self.count_eager(piece, idle);
        self.covered = self.covered.max(piece.end);
        if let Some(open) = self.launches.back_mut() {
            open.idle_after += idle;
        }
        // Nearly always it is of the launch that came last.
        if piece.graph != 0 && !self.mingled.iter().rev().any(|launch| *launch == piece.correlation) {
            self.launch(piece);
        }
        let Some(open) = self.launches.back_mut() else { return };
        open.kernels += u64::from(piece.is_kernel);
        if piece.graph != 0 {
            open.end = open.end.max(piece.end);
            open.idle_inside += std::mem::take(&mut open.idle_after);
        }
    }

    fn count_eager(&mut self, piece: &Piece, idle: u64) {
        let is_eager = piece.graph == 0 && piece.is_kernel;
        if is_eager {
            if self.eager.kernels >= EAGER {
                self.eager_before = std::mem::take(&mut self.eager);
            }
            self.eager.kernels += 1;
            self.eager.kernel_ns += piece.end - piece.start;
            // Longer than a millisecond is waiting, not launching.
            if self.after_eager && idle < 1_000_000 {
                self.eager.gaps += 1;
                self.eager.gap_ns += idle;
            }
        }
        self.after_eager = is_eager;
    }

    fn launch(&mut self, first: &Piece) {
        if self.mingled.len() >= MINGLED {
            self.mingled.pop_front();
        }
        self.mingled.push_back(first.correlation);
        if self.launches.len() >= MAX_LAUNCHES {
            self.launches.pop_front();
        }
        let cut = std::mem::take(&mut self.after_blank);
        let before = self.launches.back().filter(|_| !cut);
        let lead = before.map(|before| first.start.saturating_sub(before.end));
        self.launches.push_back(Launch {
            graph: first.graph,
            start: first.start,
            end: first.end,
            lead,
            cut,
            kernels: 0,
            idle_inside: 0,
            idle_after: 0,
        });
    }

    fn row(&self, now: u64) -> Option<Row> {
        let last = self.launches.back()?.start;
        let from = self.launches.partition_point(|launch| launch.start + WINDOW_NS < last);
        let launches: Vec<Launch> = self.launches.range(from..).copied().collect();
        let mut row = rhythm(&launches)?;
        (row.device, row.context) = (self.device, self.context);
        let pause = (20 * row.p50_ns).max(2 * SECOND) + HORIZON_NS;
        row.current = now.saturating_sub(last) < pause;
        Some(row)
    }
}

/// The steps among launches, if they have a rhythm.
fn rhythm(launches: &[Launch]) -> Option<Row> {
    let (all, first) = beginnings(launches)?;
    // Graphs that follow each other in turn, each before the first comes again, are the pieces of one step.
    let begins = |graph: &u32| all.contains(graph);
    let order: Vec<&Launch> = launches.iter().filter(|launch| begins(&launch.graph)).collect();
    let differ = |pair: &[&Launch]| pair[0].graph != pair[1].graph || pair[0].cut || pair[1].cut;
    let in_turn = all.len() > 1 && order.windows(2).all(differ);
    let one = vec![first];
    let choices = if in_turn { [&one, &one] } else { [&all, &one] };
    choices.into_iter().find_map(|begins| steady(launches, begins))
}

/// The graphs that may begin a step, and the likeliest: between two steps the host has most to do, so the graphs in
/// which a step begins are those that follow the longest time without a graph.
fn beginnings(launches: &[Launch]) -> Option<(Vec<u32>, u32)> {
    let mut leads: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    for launch in launches {
        leads.entry(launch.graph).or_default().extend(launch.lead);
    }
    leads.retain(|_, leads| leads.len() > 1);
    let leads: Vec<(u32, u64)> =
        leads.into_iter().map(|(graph, mut leads)| (graph, quantile(&mut leads, 0.5))).collect();
    let (first, longest) =
        leads.iter().copied().max_by_key(|(graph, lead)| (*lead, std::cmp::Reverse(*graph)))?;
    let mut all: Vec<u32> = leads
        .into_iter()
        .filter(|(_, lead)| lead.saturating_mul(2) >= longest)
        .map(|(graph, _)| graph)
        .collect();
    all.sort_unstable();
    Some((all, first))
}

/// The steps that begin with these graphs, if at least four of five last within half of the median.
fn steady(launches: &[Launch], begins: &[u32]) -> Option<Row> {
    let at: Vec<usize> = (0..launches.len()).filter(|i| begins.contains(&launches[*i].graph)).collect();
    let whole = |pair: &&[usize]| !launches[pair[0]..pair[1]].iter().any(|launch| launch.cut);
    let pairs = at.windows(2).filter(whole);
    let steps: Vec<Step> = pairs.map(|pair| Step::of(&launches[pair[0]..=pair[1]])).collect();
    if steps.len() < FEWEST {
        return None;
    }
    let median = quantile(&mut steps.iter().map(|step| step.ns).collect::<Vec<_>>(), 0.5);
    let regular = steps.iter().filter(|step| step.ns.abs_diff(median) * 2 <= median).count();
    if regular * 5 < steps.len() * 4 {
        return None;
    }
    // A pause is no step.
    let is_step = |step: &&Step| step.ns <= median.saturating_mul(8);
    let steps: Vec<&Step> = steps.iter().filter(is_step).collect();
    let of =
        |what: fn(&Step) -> u64, q| quantile(&mut steps.iter().map(|step| what(step)).collect::<Vec<_>>(), q);
    let jumps: u64 = steps.windows(2).map(|pair| pair[0].ns.abs_diff(pair[1].ns)).sum();
    Some(Row {
        device: None,
        context: 0,
        current: true,
        count: steps.len() as u64,
        p50_ns: of(|step| step.ns, 0.5),
        p99_ns: of(|step| step.ns, 0.99),
        jitter_ns: jumps / (steps.len() as u64 - 1).max(1),
        kernels: of(|step| step.kernels, 0.5),
        launches: of(|step| step.launches, 0.5),
        idle_inside_ns: of(|step| step.inside, 0.5),
        idle_between_ns: of(|step| step.between, 0.5),
        graphs: begins.to_vec(),
    })
}

/// One step.
#[derive(Clone, Copy, Debug)]
struct Step {
    ns: u64,
    kernels: u64,
    launches: u64,
    inside: u64,
    between: u64,
}

impl Step {
    /// The launches of one step, and the first one of the next.
    fn of(launches: &[Launch]) -> Self {
        let (own, next) = launches.split_at(launches.len() - 1);
        let sum = |what: fn(&Launch) -> u64| own.iter().map(what).sum::<u64>();
        let between = own[own.len() - 1].idle_after;
        Self {
            ns: next[0].start - own[0].start,
            kernels: sum(|launch| launch.kernels),
            launches: own.len() as u64,
            inside: sum(|launch| launch.idle_inside + launch.idle_after) - between,
            between,
        }
    }
}

/// The value below which a share `q` of the values lies; 0 without values.
fn quantile(values: &mut [u64], q: f64) -> u64 {
    let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1)) - 1;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(rank).1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// When a graph is launched, which, and the spans of its kernels from there.
    type Launched<'a> = (u64, u32, &'a [(u64, u64)]);

    /// Feeds launches, each a start, a graph and the spans of its kernels, and what ran outside graphs.
    fn fed(launches: &[Launched<'_>], eager: &[(u64, u64)]) -> Steps {
        let mut pieces = Vec::new();
        for (i, (at, graph, spans)) in launches.iter().enumerate() {
            let piece = |(from, to): &(u64, u64)| Piece {
                start: at + from,
                end: at + to,
                correlation: i as u64 + 1,
                graph: *graph,
                is_kernel: true,
            };
            pieces.extend(spans.iter().map(piece));
        }
        pieces.extend(eager.iter().map(|(start, end)| Piece {
            start: *start,
            end: *end,
            correlation: 0,
            graph: 0,
            is_kernel: true,
        }));
        // Buffers come out of order.
        pieces.sort_by_key(|piece| (piece.start / (10 * MS)) ^ 1);
        pieces.sort_by_key(|piece| piece.graph == 0);
        let mut steps = Steps::default();
        for piece in pieces {
            steps.add(Some(0), 1, piece);
        }
        steps.settle(true);
        steps
    }

    #[test]
    fn one_launch_a_step_has_the_time_from_start_to_start() {
        // 2 ms of graph with 0.2 ms of nothing inside, 0.5 ms of sampling in 1 ms outside.
        let spans: &[(u64, u64)] = &[(0, MS), (MS + MS / 5, 2 * MS)];
        let launches: Vec<_> = (1..101).map(|i| (i * 3 * MS, 41, spans)).collect();
        let eager: Vec<_> =
            (1..101).map(|i| (i * 3 * MS + 2 * MS + MS / 4, i * 3 * MS + 2 * MS + 3 * MS / 4)).collect();
        let rows = fed(&launches, &eager).rows(301 * MS);
        let row = &rows[0];
        assert_eq!((rows.len(), row.device, row.context, row.current), (1, Some(0), 1, true));
        assert_eq!((row.count, row.p50_ns, row.p99_ns, row.jitter_ns), (99, 3 * MS, 3 * MS, 0));
        assert_eq!((row.kernels, row.launches, row.graphs.as_slice()), (3, 1, [41].as_slice()));
        assert_eq!((row.idle_inside_ns, row.idle_between_ns), (MS / 5, MS / 2));
    }

    #[test]
    fn pieces_in_turn_are_one_step_that_begins_after_the_longest_wait() {
        // Watched from the middle of a step on: 30 pieces, one every 0.2 ms, then 0.7 ms of host.
        let launches: Vec<Launched<'_>> = (12..30 * 40)
            .map(|i| {
                (
                    MS + i / 30 * (6 * MS + MS / 2) + i % 30 * (MS / 5),
                    100 + (i % 30) as u32,
                    [(0, 60_000)].as_slice(),
                )
            })
            .collect();
        let rows = fed(&launches, &[]).rows(300 * MS);
        let row = &rows[0];
        assert_eq!((row.p50_ns, row.count, row.launches, row.kernels), (6 * MS + MS / 2, 38, 30, 30));
        assert_eq!(row.graphs, [100]);
        assert_eq!(row.idle_between_ns, MS / 5 + MS / 2 - 60_000);
    }

    #[test]
    fn a_batch_that_shrinks_changes_the_graph_and_is_still_one_step_a_launch() {
        let launches: Vec<Launched<'_>> =
            (1..200).map(|i| (i * 3 * MS, 32 - (i / 20) as u32, [(0, 2 * MS)].as_slice())).collect();
        let rows = fed(&launches, &[]).rows(0);
        assert_eq!((rows[0].count, rows[0].p50_ns, rows[0].launches), (198, 3 * MS, 1));
    }

    #[test]
    fn steps_seen_in_windows_are_those_that_lie_in_one() {
        // Steps of 4 ms, windows of 10 ms in every 100 ms: each holds one or two whole steps and pieces of others.
        let mut steps = Steps::default();
        let windows: Vec<(u64, u64)> = (1..60).map(|i| (i * 103 * MS, i * 103 * MS + 10 * MS)).collect();
        steps.not_traced(windows.windows(2).map(|pair| (pair[0].1, pair[1].0)));
        for step in 1..2_000u64 {
            for kernel in 0..10 {
                let start = step * 4 * MS + kernel * MS / 4;
                let piece =
                    Piece { start, end: start + MS / 8, correlation: step, graph: 41, is_kernel: true };
                let traced = |(from, to): &(u64, u64)| (*from..*to).contains(&start);
                // Only those of which blanks are remembered.
                if windows[windows.len() - MAX_BLANKS..].iter().any(traced) {
                    steps.add(Some(0), 1, piece);
                }
            }
        }
        steps.settle(true);
        assert!(steps.gaps().is_empty(), "a time without tracing is no idleness");
        let row = &steps.rows(6_000 * MS)[0];
        assert_eq!((row.p50_ns, row.p99_ns, row.kernels), (4 * MS, 4 * MS, 10));
        assert!(row.count > MAX_BLANKS as u64 / 2);
    }

    #[test]
    fn draft_launches_are_part_of_the_step() {
        // A draft's graph three times at 0.3 ms each, then the large one, then 0.8 ms of host.
        let mut launches: Vec<Launched<'_>> = Vec::new();
        for i in 1..100 {
            let at = i * 5 * MS;
            launches.push((at, 7, [(0, 3 * MS)].as_slice()));
            launches.extend((0..3).map(|d| (at + 3 * MS + d * MS / 3, 8, [(0, MS / 4)].as_slice())));
        }
        let rows = fed(&launches, &[]).rows(0);
        assert_eq!(
            (rows[0].p50_ns, rows[0].launches, rows[0].graphs.as_slice()),
            (5 * MS, 4, [7].as_slice())
        );
    }

    #[test]
    fn launches_without_rhythm_and_few_launches_are_no_steps() {
        let span: &[(u64, u64)] = &[(0, MS)];
        let wild: Vec<_> = (1..100u64).map(|i| (i * i * i % 1009 * 20 * MS + i, 41, span)).collect();
        assert!(fed(&wild, &[]).rows(0).is_empty());
        let few: Vec<_> = (1..8).map(|i| (i * 3 * MS, 41, span)).collect();
        assert!(fed(&few, &[]).rows(0).is_empty());
        assert!(Steps::default().rows(0).is_empty());
    }

    #[test]
    fn a_rhythm_that_has_stopped_is_not_current_and_a_pause_is_no_step() {
        let span: &[(u64, u64)] = &[(0, MS)];
        let launches: Vec<_> = (1..100).map(|i| (i * 3 * MS + i / 50 * SECOND, 41, span)).collect();
        let steps = fed(&launches, &[]);
        let row = steps.rows(1_300 * MS).remove(0);
        assert_eq!((row.count, row.p99_ns, row.current), (97, 3 * MS, true));
        assert!(!steps.rows(10 * SECOND).remove(0).current);
    }

    #[test]
    fn records_without_end_stay_bounded() {
        let mut steps = Steps::default();
        for i in 0..600_000u64 {
            let piece = Piece { start: 1 + i, end: 2 + i, correlation: i / 4, graph: 5, is_kernel: true };
            steps.add(Some(0), 1, piece);
        }
        let track = &steps.tracks[0];
        assert!(track.waiting.len() <= 2 * (MOST + MANY) && track.launches.len() == MAX_LAUNCHES);
        for context in 0..1_000 {
            steps.add(None, context, Piece { start: 1, end: 2, correlation: 1, graph: 1, is_kernel: true });
        }
        assert_eq!(steps.tracks.len(), MAX_TRACKS);
    }
}
