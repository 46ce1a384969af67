//! Steps: launches of executable graphs that repeat at a steady rhythm, as a server of a language model makes them,
//! one a token. A step lasts from one such launch to the next, with everything that runs in between.

mod rhythm;

use std::collections::VecDeque;

use super::place::{self, Extent, Place};
use super::snapshot::Steps as Row;
use super::streams::StreamKey;
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
/// How many places before the last one are near.
const NEAR: usize = 64;
/// Nothing running for this long is remembered with its time, nanoseconds.
const LONG_IDLE: u64 = 5_000_000;
/// Such times kept of each context.
const MAX_IDLE: usize = 256;
/// Kernels after which those beside graphs are counted anew.
const EAGER: u64 = 20_000;
/// Launches whose records may run among each other's.
const MINGLED: usize = 8;
/// Times without tracing that are remembered: those among the records that wait.
const MAX_BLANKS: usize = 1024;

/// The steps of one process.
#[derive(Debug, Default)]
pub(super) struct Steps {
    tracks: Vec<Track>,
    last: usize,
    /// The last times in which kernels were not traced, in order and without overlap.
    blanks: VecDeque<(u64, u64)>,
}

/// A believable record that waits, in few bytes: half a second of them do.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    /// How long it took, nanoseconds, without what its group says.
    took: u32,
    /// The number of its group.
    of: u32,
}

impl Piece {
    fn end(self, group: &Group) -> u64 {
        self.start + (u64::from(group.longer) << 32 | u64::from(self.took))
    }
}

/// What records in a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// 0 outside graphs.
    correlation: u64,
    /// Executable graph; 0 outside graphs.
    graph: u32,
    /// How much longer each took, in `1 << 32` nanoseconds.
    longer: u32,
    is_kernel: bool,
}

impl Group {
    fn of(piece: &place::Piece, graph: u32) -> Self {
        let correlation = if graph == 0 { 0 } else { piece.correlation };
        Self { correlation, graph, longer: (piece.duration() >> 32) as u32, is_kernel: piece.is_kernel() }
    }
}

/// Kernels beside graphs, in contexts that launch graphs, of the last while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Eager {
    pub(super) kernels: u64,
    pub(super) kernel_ns: u64,
    /// Times in which nothing ran between two of them.
    pub(super) gaps: u64,
    pub(super) gap_ns: u64,
    /// Of these, how many were longer than the kernel that came then, and than [`PROMPT`].
    pub(super) late: u64,
}

/// A kernel that was launched in time begins sooner than this after the one before it, nanoseconds (measured on an H200:
/// 1,344 in the middle of 26,921 gaps of a vLLM server).
const PROMPT: u64 = 3_000;

/// One context's work in the order of its start.
#[derive(Debug)]
struct Track {
    device: Option<u32>,
    context: u32,
    /// What waits in order, after those that were looked at.
    waiting: Vec<Piece>,
    looked_at: usize,
    /// What came behind something that began later and has no place in that order yet.
    late: Vec<Piece>,
    groups: Vec<Group>,
    /// How many have come since records were looked at.
    fresh: usize,
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
    /// Takes in records of a place.
    pub(super) fn add(&mut self, place: &Place, pieces: &[place::Piece], extent: &Extent) {
        let StreamKey { device, context, .. } = place.stream;
        let is = |track: &Track| track.context == context && track.device == device;
        if !self.tracks.get(self.last).is_some_and(is) {
            match self.tracks.iter().position(is) {
                Some(at) => self.last = at,
                // Work before the first launch of a graph belongs to no step.
                None if place.graph == 0 || self.tracks.len() >= MAX_TRACKS => return,
                None => {
                    self.last = self.tracks.len();
                    self.tracks.push(Track::new(device, context));
                }
            }
        }
        self.tracks[self.last].add(place.graph, pieces, extent, &self.blanks);
    }

    /// Takes in when kernels were not traced, or their records were lost, in order: what it is told of may be known.
    pub(super) fn not_traced(&mut self, blanks: impl IntoIterator<Item = (u64, u64)>) {
        for (from, to) in blanks {
            let first = self.blanks.partition_point(|(_, end)| *end <= from);
            let end = self.blanks.partition_point(|(begin, _)| *begin < to).max(first);
            let within = self.blanks.drain(first..end);
            let one = within.fold((from, to), |(from, to), other| (from.min(other.0), to.max(other.1)));
            self.blanks.insert(first, one);
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
            waiting: Vec::new(),
            looked_at: 0,
            late: Vec::new(),
            groups: Vec::new(),
            fresh: 0,
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

    fn add(
        &mut self,
        graph: u32,
        mut pieces: &[place::Piece],
        extent: &Extent,
        blanks: &VecDeque<(u64, u64)>,
    ) {
        let short = extent.longest >> 32 == 0;
        let alike = |a: &place::Piece, b: &place::Piece| {
            (graph == 0 || a.correlation == b.correlation)
                && a.is_kernel() == b.is_kernel()
                && (short || Group::of(a, graph) == Group::of(b, graph))
        };
        while !pieces.is_empty() {
            let (now, later) = pieces.split_at(pieces.len().min(MANY - self.fresh));
            for alike in now.chunk_by(alike) {
                self.add_alike(Group::of(&alike[0], graph), alike, extent.in_order);
            }
            if self.fresh >= MANY {
                self.settle(false, blanks);
            }
            pieces = later;
        }
    }

    /// Takes in records of one group.
    fn add_alike(&mut self, group: Group, alike: &[place::Piece], in_order: bool) {
        if self.groups.last() != Some(&group) {
            self.groups.push(group);
        }
        let of = (self.groups.len() - 1) as u32;
        let short = |piece: &place::Piece| Piece { start: piece.start, took: piece.duration() as u32, of };
        let from = self.waiting.last().map_or(self.done, |last| last.start.max(self.done));
        if in_order && alike[0].start >= from {
            self.waiting.extend(alike.iter().map(short));
            self.newest = alike.iter().map(|piece| piece.end).fold(self.newest, u64::max);
            self.fresh += alike.len();
            return;
        }
        // What comes later than that is in no step.
        let done = self.done;
        for piece in alike.iter().filter(|piece| piece.start >= done) {
            self.newest = self.newest.max(piece.end);
            match self.waiting.last() {
                Some(last) if piece.start < last.start => self.come_late(short(piece)),
                _ => self.waiting.push(short(piece)),
            }
            self.fresh += 1;
        }
    }

    /// Puts a record that began before the last one where it belongs, if that is near; else it waits for that.
    fn come_late(&mut self, piece: Piece) {
        let near = self.waiting.len().saturating_sub(NEAR).max(self.looked_at);
        let place = near + self.waiting[near..].partition_point(|other| other.start <= piece.start);
        if self.late.is_empty() && place > near {
            self.waiting.insert(place, piece);
        } else {
            self.late.push(piece);
        }
    }

    fn settle(&mut self, all: bool, blanks: &VecDeque<(u64, u64)>) {
        self.fresh = 0;
        self.put_in_order();
        let upto = if all { u64::MAX } else { self.newest.saturating_sub(HORIZON_NS) };
        let ready = self.waiting.partition_point(|piece| piece.start < upto);
        let ready = ready.max(self.waiting.len().saturating_sub(MOST));
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = waiting.get(self.looked_at..ready).unwrap_or_default();
        self.done = rest.last().map_or(self.done, |last| last.start);
        while let Some((piece, others)) = rest.split_first() {
            let group = self.groups[piece.of as usize];
            self.run(piece.start, piece.end(&group), &group, blanks);
            rest = self.go_on(piece.of, &group, others, blanks);
        }
        self.waiting = waiting;
        self.looked_at = self.looked_at.max(ready);
        // Moving what is left to the front costs less the less it is.
        if self.looked_at * 2 >= self.waiting.len() {
            self.waiting.drain(..self.looked_at);
            self.looked_at = 0;
            self.number_groups();
        }
    }

    /// Forgets the groups of which nothing waits.
    fn number_groups(&mut self) {
        let (old, mut last) = (std::mem::take(&mut self.groups), None);
        for piece in &mut self.waiting {
            if last != Some(piece.of) {
                self.groups.push(old[piece.of as usize]);
                last = Some(piece.of);
            }
            piece.of = (self.groups.len() - 1) as u32;
        }
    }

    /// Puts what came late among what waits. It came behind all that began at the same time.
    fn put_in_order(&mut self) {
        let Some(earliest) = self.late.iter().map(|piece| piece.start).min() else { return };
        let from = self.waiting.partition_point(|piece| piece.start <= earliest).max(self.looked_at);
        self.waiting.append(&mut self.late);
        self.waiting[from..].sort_by_key(|piece| piece.start);
    }

    /// Takes the next record in the order of starts.
    #[inline]
    fn run(&mut self, start: u64, end: u64, group: &Group, blanks: &VecDeque<(u64, u64)>) {
        let mut idle = if self.covered == 0 { 0 } else { start.saturating_sub(self.covered) };
        let blank = || {
            let at = blanks.partition_point(|(from, _)| *from < start).checked_sub(1)?;
            blanks.get(at)
        };
        if idle > 0 && blank().is_some_and(|(_, to)| *to > self.covered) {
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
            self.idle.push_back((self.covered, start));
        }
        self.count_eager(end - start, group, idle);
        self.covered = self.covered.max(end);
        if let Some(open) = self.launches.back_mut() {
            open.idle_after += idle;
        }
        // Nearly always it is of the launch that came last.
        if group.graph != 0
            && self.mingled.back() != Some(&group.correlation)
            && !self.mingled.contains(&group.correlation)
        {
            self.launch(start, end, group);
        }
        let Some(open) = self.launches.back_mut() else { return };
        open.kernels += u64::from(group.is_kernel);
        if group.graph != 0 {
            open.end = open.end.max(end);
            open.idle_inside += std::mem::take(&mut open.idle_after);
        }
    }

    /// Takes the next records of a launch, those of this group, of which one was taken just now, as far as nothing else
    /// happens; gives the others.
    fn go_on<'a>(
        &mut self,
        of: u32,
        group: &Group,
        pieces: &'a [Piece],
        blanks: &VecDeque<(u64, u64)>,
    ) -> &'a [Piece] {
        let Some(open) = self.launches.back_mut().filter(|_| group.graph != 0 && self.covered != 0) else {
            return pieces;
        };
        let longest = if blanks.is_empty() { LONG_IDLE } else { 1 };
        let (mut covered, mut end, mut taken) = (self.covered, open.end, 0);
        for piece in pieces {
            let idle = piece.start.saturating_sub(covered);
            if piece.of != of || idle >= longest {
                break;
            }
            open.idle_inside += idle;
            end = end.max(piece.end(group));
            covered = covered.max(piece.end(group));
            taken += 1;
        }
        (self.covered, open.end) = (covered, end);
        open.kernels += if group.is_kernel { taken as u64 } else { 0 };
        &pieces[taken..]
    }

    #[inline]
    fn count_eager(&mut self, took: u64, group: &Group, idle: u64) {
        let is_eager = group.graph == 0 && group.is_kernel;
        if is_eager {
            if self.eager.kernels >= EAGER {
                self.eager_before = std::mem::take(&mut self.eager);
            }
            self.eager.kernels += 1;
            self.eager.kernel_ns += took;
            // Longer than a millisecond is waiting, not launching.
            if self.after_eager && idle < 1_000_000 {
                self.eager.gaps += 1;
                self.eager.gap_ns += idle;
                self.eager.late += u64::from(idle > PROMPT.max(took));
            }
        }
        self.after_eager = is_eager;
    }

    fn launch(&mut self, start: u64, end: u64, group: &Group) {
        if self.mingled.len() >= MINGLED {
            self.mingled.pop_front();
        }
        self.mingled.push_back(group.correlation);
        if self.launches.len() >= MAX_LAUNCHES {
            self.launches.pop_front();
        }
        let cut = std::mem::take(&mut self.after_blank);
        let before = self.launches.back().filter(|_| !cut);
        let lead = before.map(|before| start.saturating_sub(before.end));
        self.launches.push_back(Launch {
            graph: group.graph,
            start,
            end,
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
        let mut row = rhythm::rhythm(&launches)?;
        (row.device, row.context) = (self.device, self.context);
        let pause = (20 * row.p50_ns).max(2 * SECOND) + HORIZON_NS;
        row.current = now.saturating_sub(last) < pause;
        Some(row)
    }
}

#[cfg(test)]
mod tests;
