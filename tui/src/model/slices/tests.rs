//! Slices by time: coverage, names, and what is forgotten.

use super::*;
use proptest::prelude::*;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

fn slice(&(start, end, detail): &(u64, u64, u32)) -> Slice {
    Slice { start, end, detail, correlation: 0 }
}

fn slices(list: &[(u64, u64, u32)]) -> Slices {
    Slices::new(vec![list.iter().map(slice).collect()])
}

#[test]
fn coverage_is_a_union_and_the_longest_name_wins() {
    let cells = slices(&[(0, 50, 1), (25, 75, 2), (100, 200, 3)]).raster(0, 400, 4, |detail| detail);
    assert_eq!(cells.iter().map(|cell| cell.busy).collect::<Vec<_>>(), [0.75, 1.0, 0.0, 0.0]);
    assert_eq!(cells.iter().map(|cell| cell.name).collect::<Vec<_>>(), [Some(1), Some(3), None, None]);
    assert_eq!(cells[0].count, 2);
}

#[test]
fn looking_up_by_time() {
    let lane = slices(&[(10, 20, 1), (30, 40, 2)]);
    assert_eq!(lane.at(15).map(|slice| slice.detail), Some(1));
    assert_eq!(lane.at(25).map(|slice| slice.detail), Some(1));
    assert_eq!(lane.at(5), None);
    assert_eq!(lane.after(10).map(|slice| slice.detail), Some(2));
    assert_eq!(lane.before(30).map(|slice| slice.detail), Some(1));
    assert_eq!(lane.before(10), None);
    assert_eq!(lane.span(), Some((10, 40)));
}

#[test]
fn a_long_slice_is_found_under_short_ones() {
    let lane = slices(&[(0, 100, 1), (10, 20, 2), (30, 40, 3)]);
    assert_eq!(lane.at(35).map(|slice| slice.detail), Some(3));
    assert_eq!(lane.at(50).map(|slice| slice.detail), Some(1));
    assert_eq!(lane.at(200).map(|slice| slice.detail), Some(3));
}

#[test]
fn what_overlaps_lies_in_rows_of_its_own() {
    let lane = slices(&[(0, 50, 1), (25, 75, 2), (60, 80, 3), (70, 90, 4)]);
    let rows = lane.stacked(0, 100, 2).unwrap();
    let details = |row: &Slices| row.iter().map(|slice| slice.detail).collect::<Vec<_>>();
    assert_eq!(rows.iter().map(details).collect::<Vec<_>>(), [vec![1, 3], vec![2, 4]]);
    assert!(slices(&[(0, 50, 1), (50, 75, 2)]).stacked(0, 100, 2).is_none());
    assert!(lane.stacked(0, 100, 0).is_none());
}

#[test]
fn the_oldest_are_forgotten_first() {
    let mut lane = Slices::default();
    let all: Vec<Slice> = (0..2000).map(|i| slice(&(i * 10, i * 10 + 5, 0))).collect();
    lane.merge(&all);
    assert_eq!(lane.oldest(), Some(5110));
    assert_eq!(lane.forget_oldest(|detail| detail, 100), 1024, "a group of two chunks");
    assert_eq!((lane.len(), lane.kept_from()), (976, Some(10_240)));
    assert_eq!(lane.span(), Some((0, 19_995)), "their sums are left");
    assert_eq!(lane.covered(0, 20_000), 10_000 - 1024 * 5 + lane.older.covered(0, 20_000));
    assert_eq!((lane.forget_oldest(|detail| detail, 100), lane.len()), (512, 464));
}

#[test]
fn the_end_of_time_overflows_nothing() {
    const FAR: u64 = 1 << 63;
    let list: Vec<_> = (0..2_000).map(|i| slice(&(FAR - 1_000 + i, FAR - 1_000 + i + 1, 1))).collect();
    let mut lane = Slices::default();
    lane.merge(&list);
    lane.merge(&[slice(&(u64::MAX - 5, u64::MAX, 2))]);
    for forgotten in [false, true] {
        if forgotten {
            lane.forget_oldest(|detail| detail, 16);
        }
        let cells = lane.raster(FAR - 1_000, FAR + 1_000, 20, |detail| detail);
        let busy: f32 = cells.iter().map(|cell| cell.busy).sum();
        // What is forgotten is spread over stretches of a millisecond.
        assert!(busy <= 20.0 && (forgotten || busy > 19.9), "{busy}");
        for (from, to) in [(0, u64::MAX), (FAR, FAR + 1), (u64::MAX - 1, u64::MAX)] {
            let (low, high) = lane.covered_between(from, to);
            assert!(low <= high && high <= to - from, "{low} {high}");
            assert_eq!(lane.raster(from, to, 3, |detail| detail).len(), 3);
            assert!(lane.covered(from, to) <= to - from);
        }
    }
}

/// What [`Slices::raster`] means, column by column.
fn raster_by_definition(list: &[Slice], from: u64, to: u64, columns: u64) -> Vec<Cell> {
    let width = (to - from) / columns;
    let cell = |column| {
        let (left, right) = (from + column * width, from + (column + 1) * width);
        let mut shares = FxHashMap::<u32, u64>::default();
        let (mut busy, mut count, mut upto) = (0, 0, left);
        for slice in list {
            let (start, end) = (slice.start.max(left), slice.end.min(right));
            let instant = slice.start == slice.end && slice.start >= left && slice.start < right;
            if start < end || instant {
                count += 1;
                *shares.entry(slice.detail).or_default() += end - start;
                busy += end.saturating_sub(start.max(upto));
                upto = upto.max(end);
            }
        }
        let name = shares.into_iter().max_by_key(|(name, share)| (*share, Reverse(*name)));
        Cell { busy: busy as f32 / width as f32, name: name.map(|(name, _)| name), count }
    };
    (0..columns).map(cell).collect()
}

proptest! {
    #[test]
    fn any_order_of_arrival_gives_the_same_lane(
        list in prop::collection::vec((0u64..5000, 0u64..300, 0u32..4), 0..1500),
        cuts in prop::collection::vec(1usize..400, 1..20),
        window in (0u64..4000, 1u64..40, 1u64..2000),
    ) {
        let list: Vec<_> = list.iter().map(|(start, length, detail)| slice(&(*start, start + length, *detail))).collect();
        let (mut lane, mut rest, mut cuts) = (Slices::default(), list.as_slice(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            let mut now = now.to_vec();
            now.sort_unstable();
            lane.merge(&now);
            rest = later;
        }
        let mut sorted = list;
        sorted.sort_unstable();
        prop_assert_eq!(lane.len(), sorted.len());
        prop_assert!(lane.iter().eq(sorted.iter()));
        prop_assert_eq!(lane.span().map(|(_, end)| end), sorted.iter().map(|slice| slice.end).max());

        let (from, columns, width) = window;
        let to = from + columns * width;
        let (mut sum, mut upto) = (0, from);
        for slice in &sorted {
            sum += slice.end.min(to).saturating_sub(slice.start.max(upto));
            upto = upto.max(slice.end);
        }
        prop_assert_eq!(lane.covered(from, to), sum);

        let odd: Vec<Slice> = sorted.iter().filter(|slice| slice.detail % 2 == 1).copied().collect();
        let cells = lane.raster_where(from, to, columns as usize, |detail| detail, |slice| slice.detail % 2 == 1);
        for (cell, expected) in cells.iter().zip(raster_by_definition(&odd, from, to, columns)) {
            prop_assert_eq!((cell.name, cell.count), (expected.name, expected.count));
        }
        let cells = lane.raster(from, to, columns as usize, |detail| detail);
        for (cell, expected) in cells.iter().zip(raster_by_definition(&sorted, from, to, columns)) {
            prop_assert_eq!((cell.name, cell.count), (expected.name, expected.count));
            prop_assert!((cell.busy - expected.busy).abs() < 1e-4, "{} {}", cell.busy, expected.busy);
        }
        for time in [from, to] {
            prop_assert_eq!(lane.after(time).map(|slice| slice.start), sorted.iter().find(|slice| slice.start > time).map(|slice| slice.start));
            prop_assert_eq!(lane.before(time), sorted.iter().rev().find(|slice| slice.start < time).copied());
        }
    }
}
