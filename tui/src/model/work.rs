//! What the GPU did, record by record: each record is judged once and then counted everywhere it belongs.

mod doubtful;
mod drawn;
mod moved;

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use gtop_protocol::frame::{Run, Runs};
use gtop_protocol::message;
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset, NO_DEVICE, Other};
use gtop_protocol::validity::{Bounds, classify};
use gtop_protocol::viewer::Earlier;
use gtop_protocol::{Kind, Notes, Validity};
use rustc_hash::FxHashMap;
use zerocopy::byteorder::little_endian::{U16, U32};

use super::account::Account;
use super::copies::Copies;
use super::graphs::Graphs;
use super::kernels::{Kernels, Slot};
use super::launch::{Launches, Verdict};
use super::place::{Extent, Piece, Place, Stretch};
use super::records::Balance;
use super::sampling::Sampling;
use super::snapshot::{EarlierInvalid, KernelName, LaneKey, Unbelieved};
use super::spots::Spots;
use super::steps::Steps;
use super::streams::{StreamKey, Streams};
use super::time::Moment;
use super::timeline::Timeline;
use super::trust::{ByClass, CLASSES, Trust};
pub(super) use moved::copied;

/// Devices of records that cannot be believed which are remembered.
const MAX_DEVICES: usize = 64;

/// The kinds as [`Trust::add`] numbers them.
const KERNELS: usize = 0;
const COPIES: usize = 1;
const MEMSETS: usize = 2;
const OTHERS: usize = 3;

/// All statistics of one process's records.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) balance: Balance,
    pub(super) trust: Trust,
    pub(super) kernels: Kernels,
    pub(super) copies: Copies,
    pub(super) streams: Streams,
    pub(super) graphs: Graphs,
    pub(super) steps: Steps,
    pub(super) account: Account,
    pub(super) launches: Launches,
    pub(super) timeline: Timeline,
    /// Where records with bad times came.
    pub(super) spots: Spots,
    /// The earliest and latest believable time of any record.
    pub(super) span: Option<(u64, u64)>,
    pub(super) sampling: Sampling,
    /// Devices of records that cannot be believed, as CUPTI numbers them.
    pub(super) bad_devices: BTreeSet<u32>,
    /// Kernel records that came before those counted here, where that is known.
    before: Option<u64>,
    /// Whether there is a screen to draw: lanes, courses and what else no summary tells of.
    draws: bool,
    launches_come: bool,
    own_names: FxHashMap<u32, Arc<KernelName>>,
    /// The first record with bad times of the run at hand.
    first_bad: Option<(Validity, Unbelieved)>,
    /// Believable records of the frame at hand that are not counted by place yet.
    stretch: Stretch,
}

/// The class of a record. A class of the future is not valid; and what the shim calls valid must at least have
/// the shape of it, because bytes can lie.
#[inline]
pub(crate) fn class_of(wire: u8, start: u64, end: u64) -> Validity {
    match Validity::from_wire(wire) {
        Some(Validity::Valid) => classify(start, end, Bounds::UNKNOWN),
        Some(class) => class,
        None => Validity::Sentinel,
    }
}

/// Whether the end of a kernel is another's: it enters counts and nothing else.
pub(crate) const fn is_cut_off(kernel: &Kernel) -> bool {
    Notes(kernel.notes).has(Notes::CUT_OFF)
}

pub(crate) fn known_device(device: U16) -> Option<u32> {
    (device != NO_DEVICE).then_some(u32::from(device.get()))
}

fn place(device: U16, context: U32, stream: U32, graph: U32) -> Place {
    let stream = StreamKey { device: known_device(device), context: context.get(), stream: stream.get() };
    Place { stream, graph: graph.get() }
}

/// A kernel beside its place.
fn piece(kernel: &Kernel, slot: Slot) -> Piece {
    Piece {
        start: kernel.start.get(),
        end: kernel.end.get(),
        correlation: kernel.correlation.get(),
        node: kernel.graph_node.get(),
        detail: 0,
        kernel: slot as u32,
    }
}

/// The latest end of any believable record.
pub(super) fn newest(runs: Runs<'_>) -> Option<u64> {
    let of_run = |run: Run<'_>| {
        let end = |bytes| {
            let (validity, start, end) = match run.family()? {
                Family::Kernel => {
                    let kernel: Kernel = record::read(bytes);
                    if is_cut_off(&kernel) {
                        return None;
                    }
                    (kernel.validity, kernel.start.get(), kernel.end.get())
                }
                Family::Copy => {
                    let copy: Copy = record::read(bytes);
                    (copy.validity, copy.start.get(), copy.end.get())
                }
                Family::Memset => {
                    let memset: Memset = record::read(bytes);
                    (memset.validity, memset.start.get(), memset.end.get())
                }
                Family::Other => return None,
            };
            class_of(validity, start, end).is_valid().then_some(end)
        };
        run.records().filter_map(end).max()
    };
    runs.filter_map(of_run).max()
}

impl Work {
    /// Statistics whose timeline keeps to about `budget` bytes; those of a summary alone where that is 0.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            balance: Balance::default(),
            trust: Trust::default(),
            kernels: Kernels::default(),
            copies: Copies::default(),
            streams: Streams::default(),
            graphs: Graphs::default(),
            steps: Steps::default(),
            account: Account::default(),
            launches: Launches::default(),
            timeline: Timeline::new(budget),
            spots: Spots::default(),
            span: None,
            sampling: Sampling::default(),
            bad_devices: BTreeSet::new(),
            before: Some(0),
            draws: budget > 0,
            launches_come: false,
            own_names: FxHashMap::default(),
            first_bad: None,
            stretch: Stretch::default(),
        }
    }

    /// Whether launch records are switched on, so that kernels wait for theirs.
    pub(super) const fn set_launches_come(&mut self, come: bool) {
        self.launches_come = come;
    }

    /// Takes in what is known of records that came before what follows and are not here.
    pub(super) fn earlier(&mut self, earlier: &Earlier, at: Moment) {
        self.before = earlier.kernels.map(|kernels| kernels.saturating_sub(self.balance.kernel));
        let known = EarlierInvalid { since: at.wall, count: earlier.invalid };
        self.trust.earlier = (known.count != Some(0)).then_some(known);
    }

    /// The number of the kernel record at hand.
    fn index(&self) -> Option<u64> {
        self.before.map(|before| before.saturating_add(self.balance.kernel))
    }

    /// Takes in how the process is traced in windows.
    pub(super) fn heard_sampling(&mut self, said: &message::Sampling<'_>) {
        let Self { kernels, copies, streams, sampling, .. } = self;
        sampling.heard(said, |sampling, fold| {
            let window = kernels.fold(sampling, fold);
            copies.fold(window);
            streams.fold(window);
        });
        self.steps.not_traced(self.sampling.blanks());
    }

    /// Takes in a kernel's name.
    pub(super) fn learn_name(&mut self, id: u32, name: &[u8]) {
        for slot in self.kernels.learn(id, name) {
            self.timeline.rename(self.kernels.id(slot), self.kernels.name(slot));
        }
    }

    /// Takes in the records of one frame; the timeline is known up to `until`, CUPTI's nanoseconds.
    pub(super) fn records(&mut self, runs: &mut Runs<'_>, at: Moment, until: u64) {
        for run in runs {
            let (mut classes, mut others) = ([0; CLASSES], [0; CLASSES]);
            let kind = match run.family() {
                Some(Family::Kernel) => {
                    match run.in_place().filter(|_| self.only_sums()) {
                        Some(kernels) => self.kernels(kernels, &mut classes, at),
                        None => run.each(|kernel| self.kernel(kernel, &mut classes, at)),
                    }
                    KERNELS
                }
                Some(Family::Copy) => {
                    run.each(|copy| self.copy(copy, &mut classes, at));
                    COPIES
                }
                Some(Family::Memset) => {
                    run.each(|memset| self.memset(memset, &mut classes, at));
                    MEMSETS
                }
                Some(Family::Other) => {
                    // What is counted here are the kernels that waited for their launch.
                    run.each(|other| self.other(other, &mut others, &mut classes, at));
                    KERNELS
                }
                None => continue,
            };
            if let Some((class, first)) = self.first_bad.take() {
                let bad: u64 = classes.iter().skip(1).sum();
                self.spots.add(self.timeline.newest().max(until), bad, class as u8, first);
            }
            self.trust.add(at, kind, &classes);
            if run.family() == Some(Family::Other) {
                self.trust.add(at, OTHERS, &others);
            }
        }
        self.count_stretch(at);
        self.trust.end_run(at.second());
        // A file is read without looking at it in between.
        if self.graphs.are_many() {
            self.close_graphs();
        }
    }

    /// Whether nothing is to be done with a believable kernel but to sum it up.
    const fn only_sums(&self) -> bool {
        !self.draws && !self.launches_come
    }

    /// Takes in kernels that are only summed up.
    fn kernels(&mut self, mut kernels: &[Kernel], classes: &mut ByClass, at: Moment) {
        while let Some((first, others)) = kernels.split_first() {
            self.kernel(first, classes, at);
            kernels = &others[self.alike(first, others, classes)..];
        }
    }

    /// Takes in the believable kernels, from the first on, that ran where this last one did and of which there is nothing
    /// to note; gives how many.
    fn alike(&mut self, last: &Kernel, kernels: &[Kernel], classes: &mut ByClass) -> usize {
        let Self { stretch, kernels: names, .. } = self;
        if !stretch.takes(&place(last.device, last.context, last.stream, last.graph)) {
            return 0;
        }
        let room = stretch.room();
        let pieces = &mut stretch.pieces;
        let before = pieces.len();
        pieces.extend(kernels.iter().take(room).map_while(|kernel| {
            let where_the_last = kernel.device == last.device
                && kernel.context == last.context
                && kernel.stream == last.stream
                && kernel.graph == last.graph;
            let is_plain = kernel.notes == 0
                && class_of(kernel.validity, kernel.start.get(), kernel.end.get()).is_valid();
            let slot = names.seen(kernel.name.get()).filter(|_| is_plain && where_the_last)?;
            Some(piece(kernel, slot))
        }));
        let taken = pieces.len() - before;
        classes[Validity::Valid as usize] += taken as u64;
        self.balance.kernel += taken as u64;
        taken
    }

    #[inline]
    fn kernel(&mut self, kernel: &Kernel, classes: &mut ByClass, at: Moment) {
        self.balance.kernel += 1;
        let class = class_of(kernel.validity, kernel.start.get(), kernel.end.get());
        if !class.is_valid() {
            self.invalid_kernel(kernel, class, self.index(), classes, at);
        } else if is_cut_off(kernel) {
            classes[Validity::Valid as usize] += 1;
            self.cut_off(kernel, at);
        } else {
            let index = self.index();
            let judged = self.launches_come.then(|| self.launches.judge(kernel, index, at));
            match judged.unwrap_or(Verdict::Fine) {
                Verdict::Fine => self.valid_kernel(kernel, classes, at),
                Verdict::TooEarly => {
                    self.invalid_kernel(kernel, Validity::BeforeLaunch, self.index(), classes, at);
                }
                Verdict::Waits => {}
            }
        }
    }

    #[inline]
    fn valid_kernel(&mut self, kernel: &Kernel, classes: &mut ByClass, at: Moment) {
        classes[Validity::Valid as usize] += 1;
        let place = place(kernel.device, kernel.context, kernel.stream, kernel.graph);
        let slot = self.kernels.slot(kernel.name.get());
        let mut piece = piece(kernel, slot);
        if self.draws {
            piece.detail = self.draw_kernel(kernel, slot, &place, &piece);
        }
        self.put(place, piece, kernel.notes, at);
    }

    /// Keeps a believable record until those of its place are counted together.
    #[expect(
        clippy::inline_always,
        reason = "a call costs as much as all the rest: the record goes through memory"
    )]
    #[inline(always)]
    fn put(&mut self, place: Place, piece: Piece, notes: u8, at: Moment) {
        if notes != 0 {
            self.trust.note(Notes(notes));
        }
        if !self.stretch.takes(&place) {
            self.begin_stretch(place, at);
        }
        self.stretch.pieces.push(piece);
    }

    #[inline(never)]
    fn begin_stretch(&mut self, place: Place, at: Moment) {
        self.count_stretch(at);
        self.stretch.place = Some(place);
    }

    /// Counts what has been kept in what goes by place.
    fn count_stretch(&mut self, at: Moment) {
        let Some(place) = self.stretch.place.take() else { return };
        let pieces = mem::take(&mut self.stretch.pieces);
        let extent = Extent::of(&pieces);
        self.widen(extent.start, extent.end);
        let Self { streams, trust, kernels, .. } = self;
        // Where only screens look is counted for them alone.
        if self.draws {
            kernels.add(place.graph, &pieces, at.second());
        } else {
            kernels.sum_up(&pieces);
        }
        streams.add(place.stream, &pieces, &extent, |kernel| {
            trust.notes.overlong += 1;
            kernels.add_overlong(kernel as usize);
        });
        self.trust.add_graph(place.graph, at.second(), [pieces.len() as u64, 0]);
        self.steps.add(&place, &pieces, &extent);
        if place.graph != 0 {
            let StreamKey { context, stream, .. } = place.stream;
            let lane = LaneKey::Graphs { device: place.lane_device(), context, stream };
            for launch in pieces.chunk_by(|a, b| a.correlation == b.correlation) {
                self.graphs.add(place.graph, lane, launch, at);
            }
        }
        // Its memory is used again.
        self.stretch.pieces = pieces;
        self.stretch.pieces.clear();
    }

    fn widen(&mut self, start: u64, end: u64) {
        self.span = Some(self.span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
    }

    /// Counts it in `others`, and in `kernels` those that waited for it.
    fn other(&mut self, other: &Other, others: &mut ByClass, kernels: &mut ByClass, at: Moment) {
        self.balance.other += 1;
        let (start, end) = (other.start.get(), other.end.get());
        let (class, kind) = (class_of(other.validity, start, end), Kind::from_cupti(other.cupti_kind.get()));
        others[class as usize] += 1;
        if !class.is_valid() {
            if self.trust.is_first(at) {
                let name =
                    kind.map_or_else(|| "other record".to_owned(), |kind| format!("{} record", kind.name()));
                self.first_invalid(self.index(), class, start, end, name, at);
            }
            return;
        }
        match kind {
            Some(Kind::Runtime | Kind::Driver) => {
                self.widen(start, end);
                // A launch record that comes says better than the kinds frame that launch records come.
                let judged: Vec<_> =
                    self.launches.call(other.correlation.get(), start, other.thread.get()).collect();
                for (kernel, index, verdict) in judged {
                    match verdict {
                        Verdict::TooEarly => {
                            self.invalid_kernel(&kernel, Validity::BeforeLaunch, index, kernels, at);
                        }
                        _ => self.valid_kernel(&kernel, kernels, at),
                    }
                }
            }
            Some(Kind::Memory) => self.account.add(other),
            Some(Kind::Sync) => {
                self.count_stretch(at);
                let (device, context) = (known_device(other.device), other.context.get());
                self.streams.touch(StreamKey { device, context, stream: other.stream.get() });
            }
            _ => {}
        }
    }

    /// Brings in what was waiting: kernels whose launch record does not come (with `all`, at once), and graph
    /// launches that have ended.
    pub(super) fn settle(&mut self, at: Moment, all: bool) {
        let mut classes = [0; CLASSES];
        for (kernel, _) in self.launches.give_up((!all).then_some(at)) {
            self.valid_kernel(&kernel, &mut classes, at);
        }
        self.count_stretch(at);
        self.trust.add(at, KERNELS, &classes);
        self.trust.end_run(at.second());
        self.close_graphs();
    }
}
