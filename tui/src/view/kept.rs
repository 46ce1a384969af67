//! What of the timeline the filter keeps.

use rustc_hash::FxHashMap;

use super::ViewState;
use super::subjects::{OfDetail, OnLane};
use crate::filter::Verdicts;
use crate::model::slices::{Cell, Slice, Slices};
use crate::model::snapshot::{Lane, Process};

/// Records that are looked at for one that is shown: a filter that keeps nothing must not take a look at a whole hour
/// for a key, and at no more than a few for a frame.
const FAR: usize = 200_000;
const NEAR: usize = 2_000;

/// The lanes that are shown, in their order.
pub(crate) fn lanes<'a>(process: &'a Process, state: &ViewState) -> Vec<&'a Lane> {
    process.lanes.iter().filter(|lane| state.filter.keeps(&OnLane(lane.key))).collect()
}

/// Which records of one lane are shown; what the filter says of names is asked once for each.
pub(crate) struct Kept<'a> {
    process: &'a Process,
    state: &'a ViewState,
    pub(crate) lane: &'a Lane,
    slices: &'a Slices,
    known: FxHashMap<u32, Option<Verdicts>>,
}

impl<'a> Kept<'a> {
    pub(crate) fn new(process: &'a Process, state: &'a ViewState, lane: &'a Lane) -> Self {
        Self::of(process, state, lane, &lane.slices)
    }

    /// The same of some of a lane's records.
    pub(crate) fn of(process: &'a Process, state: &'a ViewState, lane: &'a Lane, slices: &'a Slices) -> Self {
        Self { process, state, lane, slices, known: FxHashMap::default() }
    }

    /// Whether a record is shown.
    pub(crate) fn keeps(&mut self, slice: &Slice) -> bool {
        let Self { process, state, lane, known, .. } = self;
        if state.filter.is_empty() {
            return true;
        }
        let verdicts = known.entry(slice.detail).or_insert_with(|| {
            let detail = process.details.get(slice.detail)?;
            Some(state.filter.verdicts(&OfDetail(lane.key, detail, &state.families)))
        });
        let ns = slice.end.saturating_sub(slice.start);
        verdicts.as_ref().is_none_or(|verdicts| state.filter.keeps_record(verdicts, ns))
    }

    /// The records that are shown, laid onto columns.
    pub(crate) fn raster(&mut self, from: u64, to: u64, columns: usize) -> Vec<Cell> {
        let details = &self.process.details;
        let name = |detail| details.get(detail).map_or(u32::MAX, |detail| detail.name_id);
        let slices = self.slices;
        if self.state.filter.is_empty() {
            slices.raster(from, to, columns, name)
        } else {
            slices.raster_where(from, to, columns, name, |slice| self.keeps(slice))
        }
    }

    /// The first record shown that starts after `time`.
    pub(crate) fn after(&mut self, time: u64) -> Option<Slice> {
        self.walk(self.lane.slices.after(time), FAR, |lane, slice| lane.slices.after(slice.start))
    }

    /// The last record shown that starts before `time`.
    pub(crate) fn before(&mut self, time: u64) -> Option<Slice> {
        self.back(time, FAR)
    }

    /// The same among the last few before it: for what is looked up with every frame.
    pub(crate) fn shortly_before(&mut self, time: u64) -> Option<Slice> {
        self.back(time, NEAR)
    }

    fn back(&mut self, time: u64, far: usize) -> Option<Slice> {
        self.walk(self.lane.slices.before(time), far, |lane, slice| lane.slices.before(slice.start))
    }

    fn walk(
        &mut self,
        first: Option<Slice>,
        far: usize,
        next: impl Fn(&Lane, Slice) -> Option<Slice>,
    ) -> Option<Slice> {
        let lane = self.lane;
        std::iter::successors(first, |slice| next(lane, *slice)).take(far).find(|slice| self.keeps(slice))
    }
}
