//! What records are, apart from their times: each distinct one kept once, the oldest forgotten.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::snapshot::{Detail, Details, KernelName};

/// What tells details apart. The name comes with it but follows from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Key {
    pub(super) graph_node: u64,
    /// Bytes moved or set; `u64::MAX` for kernels.
    pub(super) bytes: u64,
    pub(super) name_id: u32,
    pub(super) graph: u32,
    /// Context and stream of what is moved or set; zeros for kernels, whose lanes tell.
    pub(super) moved_on: (u32, u32),
    pub(super) grid: [u32; 3],
    pub(super) shared: [u32; 2],
    pub(super) block: [u16; 3],
    pub(super) registers: u16,
    pub(super) cluster: [u8; 3],
}

/// Details by id. Ids only go up; every [`Interner::GENERATION`] details a new generation begins, and an old one
/// is forgotten when no slice is left that uses it.
#[derive(Debug, Default)]
pub(super) struct Interner {
    ids: FxHashMap<Key, u32>,
    /// The keys of the present generation, in the order of their ids.
    keys: Vec<Key>,
    /// Which of them came after which the last time: a graph runs its nodes in the same order every time.
    after: Vec<u32>,
    /// The one that came last.
    last: usize,
    /// The id of the first detail of the first chunk.
    first: u32,
    full: Vec<Arc<[Detail]>>,
    open: Vec<Detail>,
    /// The shared copy of `open`, as long as it is up to date.
    shared: Option<Arc<[Detail]>>,
    generation_from: u32,
}

impl Interner {
    /// Details of one generation.
    pub(super) const GENERATION: u32 = 16 * Details::CHUNK as u32;
    /// Bytes one detail takes, here and in the tables of ids and keys.
    pub(super) const BYTES: usize = size_of::<Detail>() + 3 * size_of::<(Key, u32)>();

    /// The id of a detail.
    #[inline]
    pub(super) fn id(&mut self, key: &Key, name: impl FnOnce() -> Arc<KernelName>) -> u32 {
        if let Some(guess) = self.after.get(self.last)
            && self.keys.get(*guess as usize) == Some(key)
        {
            self.last = *guess as usize;
            return self.generation_from + guess;
        }
        self.find(key, name)
    }

    fn find(&mut self, key: &Key, name: impl FnOnce() -> Arc<KernelName>) -> u32 {
        let id = match self.ids.get(key) {
            Some(id) => *id,
            None => self.add(key, name()),
        };
        let at = id - self.generation_from;
        if let Some(after) = self.after.get_mut(self.last) {
            *after = at;
        }
        self.last = at as usize;
        id
    }

    #[cold]
    fn add(&mut self, key: &Key, name: Arc<KernelName>) -> u32 {
        let id = self.next();
        if id - self.generation_from >= Self::GENERATION {
            self.ids.clear();
            self.keys.clear();
            self.after.clear();
            self.generation_from = id;
        }
        self.ids.insert(*key, id);
        self.keys.push(*key);
        self.after.push(0);
        self.open.push(Detail {
            name_id: key.name_id,
            name,
            grid: key.grid,
            block: key.block.map(u32::from),
            cluster: key.cluster.map(u32::from),
            registers: u32::from(key.registers),
            shared: key.shared,
            bytes: (key.bytes != u64::MAX).then_some(key.bytes),
            moved_on: (key.bytes != u64::MAX).then_some(key.moved_on),
            graph: key.graph,
            graph_node: key.graph_node,
        });
        self.shared = None;
        if self.open.len() == Details::CHUNK {
            self.full.push(std::mem::take(&mut self.open).into());
        }
        id
    }

    /// The id the next new detail will have.
    pub(super) const fn next(&self) -> u32 {
        self.first + (self.full.len() * Details::CHUNK + self.open.len()) as u32
    }

    /// The name id of a detail, if it is kept.
    pub(super) fn name_id(&self, id: u32) -> Option<u32> {
        let at = id.checked_sub(self.first)? as usize;
        let detail = match self.full.get(at / Details::CHUNK) {
            Some(chunk) => chunk.get(at % Details::CHUNK),
            None => self.open.get(at.checked_sub(self.full.len() * Details::CHUNK)?),
        };
        detail.map(|detail| detail.name_id)
    }

    /// How many details are kept.
    pub(super) const fn len(&self) -> usize {
        self.full.len() * Details::CHUNK + self.open.len()
    }

    /// Forgets what no slice needs: everything before `needed`, as far as it is not of the present generation.
    pub(super) fn forget_before(&mut self, needed: u32) {
        let upto = needed.min(self.generation_from);
        let chunks = (upto.saturating_sub(self.first) as usize / Details::CHUNK).min(self.full.len());
        self.full.drain(..chunks);
        self.first += (chunks * Details::CHUNK) as u32;
    }

    /// Puts in a name that came after records had used its id.
    pub(super) fn rename(&mut self, name_id: u32, name: &Arc<KernelName>) {
        let is_it = |detail: &Detail| detail.name_id == name_id;
        for chunk in self.full.iter_mut().filter(|chunk| chunk.iter().any(is_it)) {
            let mut details = chunk.to_vec();
            details
                .iter_mut()
                .filter(|detail| is_it(detail))
                .for_each(|detail| detail.name = Arc::clone(name));
            *chunk = details.into();
        }
        for detail in self.open.iter_mut().filter(|detail| is_it(detail)) {
            detail.name = Arc::clone(name);
            self.shared = None;
        }
    }

    /// What a snapshot holds.
    pub(super) fn share(&mut self) -> Details {
        let open = self.shared.get_or_insert_with(|| self.open.clone().into());
        let mut chunks = self.full.clone();
        chunks.push(Arc::clone(open));
        Details::starting_at(self.first, chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: u64) -> Key {
        Key { bytes, name_id: 5, ..Key::default() }
    }

    #[test]
    fn equal_details_share_an_id_and_old_generations_go() {
        let mut interner = Interner::default();
        let name = Arc::<KernelName>::default();
        let total = 3 * Interner::GENERATION;
        for i in 0..total {
            let id = interner.id(&key(u64::from(i)), || Arc::clone(&name));
            assert_eq!(id, i);
            assert_eq!(interner.id(&key(u64::from(i)), || unreachable!()), id);
            assert_eq!(interner.name_id(id), Some(5));
        }
        assert_eq!(interner.len(), total as usize);
        let before = interner.share();
        interner.forget_before(total - 1);
        assert_eq!(interner.len() as u32, Interner::GENERATION);
        let details = interner.share();
        assert_eq!(details.get(0), None);
        assert_eq!(details.get(total - 1).and_then(|detail| detail.bytes), Some(u64::from(total) - 1));
        assert_eq!(before.get(0).and_then(|detail| detail.bytes), Some(0));
        assert_eq!(interner.id(&key(0), || Arc::clone(&name)), total, "forgotten, so it is new again");
    }

    #[test]
    fn a_late_name_reaches_details_already_given_out() {
        let mut interner = Interner::default();
        for i in 0..1500 {
            interner.id(&key(i), Arc::default);
        }
        interner.rename(5, &Arc::new(KernelName { full: "late".into(), ..KernelName::default() }));
        let details = interner.share();
        assert!(
            [0, 1023, 1024, 1499]
                .iter()
                .all(|id| details.get(*id).is_some_and(|detail| detail.name.full == "late"))
        );
    }
}
