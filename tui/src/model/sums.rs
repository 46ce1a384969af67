//! What is left of slices that are too old to keep: sums over stretches of time, the longer the older. An hour takes a
//! few hundred kilobytes a lane, however many records there were.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::raster::Raster;
use super::slices::Slice;

/// How long the stretches of each level are, nanoseconds; the last ones last for hours.
const WIDTHS: [u64; 7] =
    [1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000, 1_024_000_000, 4_096_000_000];
/// The most stretches one slice is spread over; a longer one goes to a level of longer stretches.
const MOST: u64 = 64;

/// The sums of one stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Where it begins, CUPTI's nanoseconds.
    pub start: u64,
    /// Time in which something ran, nanoseconds.
    pub busy: u32,
    /// Records that started in it.
    pub count: u32,
    /// The name with the most time, as far as the sums of its parts tell.
    pub name: u32,
    /// Its time, nanoseconds.
    pub name_ns: u32,
    /// The longest record that started in it, nanoseconds.
    pub longest: u32,
    /// Its name.
    pub longest_name: u32,
}

impl Sum {
    pub(super) const BYTES: usize = size_of::<Self>() * WIDTHS.len();

    fn add(&mut self, other: &Self) {
        self.busy = self.busy.saturating_add(other.busy);
        self.count = self.count.saturating_add(other.count);
        if self.name == other.name {
            self.name_ns = self.name_ns.saturating_add(other.name_ns);
        } else if (other.name_ns, other.name) > (self.name_ns, self.name) {
            (self.name, self.name_ns) = (other.name, other.name_ns);
        }
        if other.longest > self.longest {
            (self.longest, self.longest_name) = (other.longest, other.longest_name);
        }
    }
}

/// The sums of a lane, by level; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    levels: [Arc<Vec<Sum>>; WIDTHS.len()],
    /// The latest end of any slice in them: what comes before it is covered already.
    reach: u64,
}

/// The one level-0 stretch that is being summed up.
#[derive(Default)]
struct Open {
    sum: Sum,
    names: FxHashMap<u32, u64>,
}

impl Sums {
    /// Takes in slices ordered by start; `name_of` gives a detail's name. No level keeps more than `most` stretches.
    pub(super) fn fold(&mut self, slices: &[Slice], name_of: impl Fn(u32) -> u32, most: usize) {
        let mut open = Open::default();
        for slice in slices {
            self.fold_one(slice, name_of(slice.detail), &mut open);
        }
        self.close(&mut open);
        self.compact(most.max(4));
    }

    fn fold_one(&mut self, slice: &Slice, name: u32, open: &mut Open) {
        let fresh = slice.start.max(self.reach);
        self.reach = self.reach.max(slice.end);
        let length = slice.end.saturating_sub(slice.start);
        let level = WIDTHS.iter().position(|width| length / width < MOST).unwrap_or(WIDTHS.len() - 1);
        let width = WIDTHS[level];
        let mut start = slice.start / width * width;
        let one = Sum {
            count: 1,
            name,
            longest: u32::try_from(length).unwrap_or(u32::MAX),
            longest_name: name,
            ..Sum::default()
        };
        // Beyond all levels the end of a slice is left out rather than spread over ever more stretches.
        for piece in 0..=MOST {
            let end = start.saturating_add(width).min(slice.end);
            let ns = (end.saturating_sub(slice.start.max(start))) as u32;
            let busy = end.saturating_sub(fresh.max(start)) as u32;
            let sum = match piece {
                0 => Sum { start, busy, name_ns: ns, ..one },
                _ => Sum { start, busy, name, name_ns: ns, ..Sum::default() },
            };
            if level == 0 && piece == 0 {
                if open.sum.start != start || open.names.is_empty() {
                    self.close(open);
                    open.sum = Sum { start, ..Sum::default() };
                }
                open.sum.add(&Sum { name_ns: 0, ..sum });
                *open.names.entry(name).or_default() += u64::from(ns);
            } else {
                self.put(level, &sum);
            }
            start = start.saturating_add(width);
            if start >= slice.end {
                break;
            }
        }
    }

    fn close(&mut self, open: &mut Open) {
        if let Some((name, ns)) = open.names.drain().max_by_key(|(name, ns)| (*ns, std::cmp::Reverse(*name)))
        {
            let sum = Sum { name, name_ns: u32::try_from(ns).unwrap_or(u32::MAX), ..open.sum };
            self.put(0, &sum);
        }
    }

    fn put(&mut self, level: usize, sum: &Sum) {
        let Some(sums) = self.levels.get_mut(level).map(Arc::make_mut) else { return };
        match sums.last_mut() {
            Some(newest) if newest.start == sum.start => newest.add(sum),
            Some(newest) if newest.start > sum.start => {
                match sums.binary_search_by_key(&sum.start, |sum| sum.start) {
                    Ok(at) => sums[at].add(sum),
                    Err(at) => sums.insert(at, *sum),
                }
            }
            _ => sums.push(*sum),
        }
    }

    /// Has the oldest stretches of full levels make room for newer ones, as parts of longer ones.
    fn compact(&mut self, most: usize) {
        for level in 0..WIDTHS.len() {
            if self.levels[level].len() <= most {
                continue;
            }
            let gone = self.levels[level].len() - most * 3 / 4;
            let old: Vec<Sum> = Arc::make_mut(&mut self.levels[level]).drain(..gone).collect();
            let Some(width) = WIDTHS.get(level + 1) else { continue };
            for sum in old {
                self.put(level + 1, &Sum { start: sum.start / width * width, ..sum });
            }
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.is_empty())
    }

    /// Where the first begins and where the last slice in them ends.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        let first = self.levels.iter().filter_map(|level| level.first()).map(|sum| sum.start).min()?;
        Some((first, self.reach))
    }

    /// The sums that touch the time from `from` to `to`, each with the length of its stretch.
    fn touching(&self, from: u64, to: u64) -> impl Iterator<Item = (&Sum, u64)> {
        self.levels.iter().zip(WIDTHS).flat_map(move |(level, width)| {
            let first = level.partition_point(|sum| sum.start.saturating_add(width) <= from);
            level[first..].iter().take_while(move |sum| sum.start < to).map(move |sum| (sum, width))
        })
    }

    /// Time from `from` to `to` in which something ran, nanoseconds, as if evenly over each stretch.
    pub(super) fn covered(&self, from: u64, to: u64) -> u64 {
        let part = |(sum, width): (&Sum, u64)| {
            let overlap = sum.start.saturating_add(width).min(to).saturating_sub(sum.start.max(from));
            (u64::from(sum.busy) as f64 * (overlap as f64 / width as f64)) as u64
        };
        self.touching(from, to).map(part).sum()
    }

    /// The least and the most time from `from` to `to` in which something can have run, nanoseconds: where in a stretch
    /// it ran is not known.
    pub(super) fn bounds(&self, from: u64, to: u64) -> (u64, u64) {
        let part = |(sum, width): (&Sum, u64)| {
            let overlap = sum.start.saturating_add(width).min(to).saturating_sub(sum.start.max(from));
            let busy = u64::from(sum.busy);
            (busy.saturating_sub(width - overlap), busy.min(overlap))
        };
        // Stretches of different lengths may hold the same time.
        let (low, high) = self
            .touching(from, to)
            .map(part)
            .fold((0u64, 0u64), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        (low, high.min(to.saturating_sub(from)))
    }

    /// Lays them onto columns.
    pub(super) fn raster(&self, from: u64, to: u64, raster: &mut Raster) {
        for (sum, width) in self.touching(from, to) {
            raster.add_sum(sum, width);
        }
    }

    /// What all stretches that touch the time from `from` to `to` sum up to, and the length of the longest.
    pub(super) fn total(&self, from: u64, to: u64) -> Option<(Sum, u64)> {
        self.touching(from, to).fold(None, |total, (sum, width)| match total {
            None => Some((*sum, width)),
            Some((mut total, widest)) => {
                total.add(sum);
                Some((total, widest.max(width)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slice(start: u64, length: u64, detail: u32) -> Slice {
        Slice { start, end: start + length, detail, correlation: 0 }
    }

    #[test]
    fn a_stretch_knows_its_busiest_name_and_its_longest_record() {
        let mut sums = Sums::default();
        let list = [
            slice(0, 100, 1),
            slice(200, 300, 2),
            slice(600, 150, 1),
            slice(800, 160, 1),
            slice(1_000_000, 7, 3),
        ];
        sums.fold(&list, |detail| detail, 100);
        let (sum, width) = sums.total(0, 1_000_000).unwrap();
        assert_eq!((sum.busy, sum.count, width), (710, 4, 1_000_000));
        assert_eq!((sum.name, sum.name_ns, sum.longest, sum.longest_name), (1, 410, 300, 2));
        assert_eq!(sums.span(), Some((0, 1_000_007)));
        assert_eq!(sums.total(5_000_000, 6_000_000), None);
    }

    #[test]
    fn an_hour_of_a_million_records_a_second_takes_few_sums() {
        let mut sums = Sums::default();
        // One record stands for the ten thousand of its ten milliseconds: a stretch takes the same room for all.
        for second in 0..3_600u64 {
            let start = |part: u64| second * 1_000_000_000 + part * 10_000_000;
            let list: Vec<Slice> = (0..100).map(|part| slice(start(part), 500_000, 7)).collect();
            sums.fold(&list, |detail| detail, 2048);
        }
        let kept: usize = sums.levels.iter().map(|level| level.len()).sum();
        assert!(kept <= WIDTHS.len() * 2048, "{kept}");
        let (sum, _) = sums.total(0, 3_600_000_000_000).unwrap();
        assert_eq!((sum.count, sum.name), (360_000, 7));
        let covered = sums.covered(0, 3_600_000_000_000);
        assert!(covered.abs_diff(180_000_000_000) < 1_000_000, "{covered}");
    }

    #[test]
    fn a_record_without_end_is_no_endless_work() {
        let mut sums = Sums::default();
        sums.fold(&[slice(0, u64::MAX, 1), slice(u64::MAX - 1, 1, 2)], |detail| detail, 16);
        assert!(!sums.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_whatever_the_order_and_the_room(
            list in prop::collection::vec((0u64..50_000_000, 0u64..9_000_000, 0u32..4), 1..200),
            pieces in 1usize..20,
            most in 4usize..40,
        ) {
            let mut list: Vec<Slice> = list.into_iter().map(|(start, length, detail)| slice(start, length, detail)).collect();
            list.sort_unstable();
            let mut sums = Sums::default();
            for piece in list.chunks(list.len().div_ceil(pieces)) {
                sums.fold(piece, |detail| detail, most);
            }
            let (mut covered, mut upto) = (0, 0);
            for slice in &list {
                covered += slice.end.saturating_sub(slice.start.max(upto));
                upto = upto.max(slice.end);
            }
            let (sum, _) = sums.total(0, u64::MAX).unwrap();
            prop_assert_eq!((sum.count as usize, u64::from(sum.busy)), (list.len(), covered));
            prop_assert_eq!(u64::from(sum.longest), list.iter().map(|slice| slice.end - slice.start).max().unwrap());
            for level in &sums.levels {
                prop_assert!(level.len() <= most && level.windows(2).all(|two| two[0].start < two[1].start));
            }
            prop_assert!(sums.covered(0, 1 << 40).abs_diff(covered) <= list.len() as u64 * 20);
        }
    }
}
