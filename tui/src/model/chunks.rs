//! How a lane keeps its slices: in chunks that are never changed, only replaced, and the older of these in groups, so
//! that a copy of the lane is cheap and a wide look at it need not go through every chunk.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::slices::Slice;

/// Chunks of one group; few in tests, so that small lanes have groups too.
const GROUP: usize = if cfg!(test) { 2 } else { 32 };

/// The chunks of a lane, ordered by start; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// The older ones, [`GROUP`] in each.
    groups: Vec<Arc<Group>>,
    /// The newest ones.
    tail: Vec<Placed>,
}

/// A chunk in its place on the lane, with what a search looks at.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    chunk: Arc<Chunk>,
    /// The start of its first slice.
    pub(super) first: u64,
    /// The start of its last slice.
    pub(super) last: u64,
    /// Its latest end.
    pub(super) end: u64,
    /// The latest end in this chunk and all before it.
    pub(super) reach: u64,
}

impl std::ops::Deref for Placed {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        &self.chunk
    }
}

/// A stretch of a lane.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) slices: Box<[Slice]>,
    /// Time covered by the slices, overlap counted once.
    pub(super) covered: u64,
    /// Time of all slices.
    pub(super) summed: u64,
    /// Time of each name, for screens so wide in time that the whole chunk falls into one column.
    by_name: OnceLock<Box<[(u32, u64)]>>,
}

/// Chunks that follow one another.
#[derive(Debug)]
pub(super) struct Group {
    chunks: Box<[Placed]>,
    /// The start of the first slice and the latest end.
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) count: usize,
    /// Time covered, overlap counted once.
    pub(super) covered: u64,
    by_name: OnceLock<Box<[(u32, u64)]>>,
}

impl Placed {
    pub(super) fn new(slices: &[Slice]) -> Self {
        let (mut covered, mut summed, mut end) = (0, 0u64, 0);
        for slice in slices {
            summed = summed.saturating_add(slice.end.saturating_sub(slice.start));
            covered += slice.end.saturating_sub(slice.start.max(end));
            end = end.max(slice.end);
        }
        let first = slices.first().map_or(u64::MAX, |slice| slice.start);
        let last = slices.last().map_or(0, |slice| slice.start);
        let chunk = Chunk { slices: slices.into(), covered, summed, by_name: OnceLock::new() };
        Self { chunk: Arc::new(chunk), first, last, end, reach: end }
    }

    /// Time covered up to `to` that was not covered up to `upto`, which moves on.
    pub(super) fn covers(&self, upto: &mut u64, to: u64) -> u64 {
        if self.first >= *upto && self.end <= to {
            *upto = (*upto).max(self.end);
            return self.covered;
        }
        let mut sum = 0;
        for slice in &self.slices {
            sum += slice.end.min(to).saturating_sub(slice.start.max(*upto));
            *upto = (*upto).max(slice.end);
        }
        sum
    }

    /// Whether some of its slices overlap.
    pub(super) fn overlaps(&self) -> bool {
        self.summed > self.covered
    }
}

impl Chunk {
    /// Time of each name.
    pub(super) fn by_name(&self, name_of: impl Fn(u32) -> u32) -> &[(u32, u64)] {
        self.by_name.get_or_init(|| {
            sums(self.slices.iter().map(|slice| (name_of(slice.detail), slice.end - slice.start)))
        })
    }
}

impl Group {
    fn new(chunks: impl Iterator<Item = Placed>) -> Self {
        let chunks: Box<[Placed]> = chunks.collect();
        let mut upto = 0;
        Self {
            first: chunks.first().map_or(u64::MAX, |chunk| chunk.first),
            end: chunks.iter().map(|chunk| chunk.end).max().unwrap_or_default(),
            count: chunks.iter().map(|chunk| chunk.slices.len()).sum(),
            covered: chunks.iter().map(|chunk| chunk.covers(&mut upto, u64::MAX)).sum(),
            by_name: OnceLock::new(),
            chunks,
        }
    }

    /// Time of each name.
    pub(super) fn by_name(&self, name_of: impl Fn(u32) -> u32) -> &[(u32, u64)] {
        self.by_name.get_or_init(|| {
            sums(self.chunks.iter().flat_map(|chunk| chunk.by_name(&name_of).iter().copied()))
        })
    }
}

fn sums(times: impl Iterator<Item = (u32, u64)>) -> Box<[(u32, u64)]> {
    let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
    for (name, ns) in times {
        *sums.entry(name).or_default() += ns;
    }
    sums.into_iter().collect()
}

impl Chunks {
    /// How many chunks there are.
    pub(super) fn len(&self) -> usize {
        self.grouped() + self.tail.len()
    }

    fn grouped(&self) -> usize {
        self.groups.len() * GROUP
    }

    pub(super) fn get(&self, at: usize) -> Option<&Placed> {
        match self.groups.get(at / GROUP) {
            Some(group) => group.chunks.get(at % GROUP),
            None => self.tail.get(at - self.grouped()),
        }
    }

    pub(super) fn first(&self) -> Option<&Placed> {
        self.get(0)
    }

    pub(super) fn last(&self) -> Option<&Placed> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The group that begins with this chunk, if one does.
    pub(super) fn group(&self, at: usize) -> Option<&Group> {
        self.groups.get(at / GROUP).filter(|_| at.is_multiple_of(GROUP)).map(Arc::as_ref)
    }

    /// The first chunk after the group that holds this one.
    pub(super) const fn after_group(at: usize) -> usize {
        (at / GROUP + 1) * GROUP
    }

    /// The chunks in a range.
    pub(super) fn range(&self, range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = &Placed> {
        range.filter_map(|at| self.get(at))
    }

    /// All chunks.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Placed> {
        self.groups.iter().flat_map(|group| group.chunks.iter()).chain(&self.tail)
    }

    /// The place of the first chunk of which `before` is false; it must be so of all after it.
    pub(super) fn partition_point(&self, before: impl Fn(&Placed) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(&before) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Has the chunk at a place give way to others; at the end they are added.
    pub(super) fn replace(&mut self, at: usize, with: impl Iterator<Item = Placed>) {
        if at < self.grouped() {
            let loose = self.groups.split_off(at / GROUP);
            let newer = std::mem::take(&mut self.tail);
            self.tail = loose.iter().flat_map(|group| group.chunks.iter().cloned()).chain(newer).collect();
        }
        let at = at - self.grouped();
        self.tail.splice(at..self.tail.len().min(at + 1), with);
    }

    /// Puts things in order after replacements, the first of them at `from`.
    pub(super) fn settle(&mut self, from: usize) {
        let before = from.checked_sub(1).and_then(|at| self.get(at));
        let mut reach = before.map_or(0, |chunk| chunk.reach);
        let from = from.saturating_sub(self.grouped());
        for chunk in self.tail.iter_mut().skip(from) {
            reach = reach.max(chunk.end);
            chunk.reach = reach;
        }
        // As many stay loose, for records that come late.
        while self.tail.len() >= 2 * GROUP {
            self.groups.push(Arc::new(Group::new(self.tail.drain(..GROUP))));
        }
    }

    /// Takes away the oldest ones: a group of them if there is one.
    pub(super) fn take_oldest(&mut self) -> Vec<Placed> {
        if self.groups.is_empty() {
            return self.tail.drain(..1.min(self.tail.len())).collect();
        }
        self.groups.remove(0).chunks.to_vec()
    }
}
