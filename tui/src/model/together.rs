//! How busy several lanes were together.

use super::slices::Slices;

/// Parts that a stretch is looked at in.
const PARTS: u64 = 512;

/// The least and the most time from `from` to `to` in which something can have run on any of these lanes, nanoseconds.
/// They are near each other where the records are kept, and the same for one lane of them.
#[must_use]
pub fn busy_together(lanes: &[&Slices], from: u64, to: u64) -> (u64, u64) {
    let together = |from: u64, to: u64| {
        let each = lanes.iter().map(|lane| lane.covered_between(from, to));
        let (low, high) = each.fold((0, 0u64), |sum, one| (one.0.max(sum.0), sum.1.saturating_add(one.1)));
        (low, high.min(to - from))
    };
    // Where in its stretch a sum was busy is not known: that time cannot be looked at in parts.
    let kept = lanes.iter().filter_map(|lane| lane.summed_upto()).max().unwrap_or(from).clamp(from, to);
    let part = (to - kept).div_ceil(PARTS).max(1);
    let parts = (0..PARTS).map(|at| kept.saturating_add(at * part)).take_while(|left| *left < to);
    parts
        .map(|left| together(left, left.saturating_add(part).min(to)))
        .fold(if kept > from { together(from, kept) } else { (0, 0) }, |sum, part| {
            (sum.0 + part.0, sum.1 + part.1)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slices::Slice;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_of_any_stretch_holds_however_much_is_forgotten(
            lists in prop::collection::vec(prop::collection::vec((0u64..40_000_000, 0u64..90_000), 0..1200), 1..4),
            forgotten in 0usize..4,
            stretch in (0u64..40_000_000, 1u64..20_000_000),
        ) {
            let (from, to) = (stretch.0, stretch.0 + stretch.1);
            let mut all = Vec::new();
            let mut lanes = Vec::new();
            for list in lists {
                let mut list: Vec<Slice> = list
                    .into_iter()
                    .map(|(start, length)| Slice { start, end: start + length, detail: 0, correlation: 0 })
                    .collect();
                list.sort_unstable();
                let mut lane = Slices::default();
                lane.merge(&list);
                for _ in 0..forgotten {
                    lane.forget_oldest(|detail| detail, 8);
                }
                let one = union(&list, from, to);
                let (low, high) = lane.covered_between(from, to);
                prop_assert!(low <= one && one <= high, "{} {} {}", low, one, high);
                prop_assert!(forgotten > 0 || low == high);
                all.extend(list);
                lanes.push(lane);
            }
            all.sort_unstable();
            let any = union(&all, from, to);
            let (low, high) = busy_together(&lanes.iter().collect::<Vec<_>>(), from, to);
            prop_assert!(low <= any && any <= high, "{} {} {}", low, any, high);
            prop_assert!(low == high || forgotten > 0 || lanes.len() > 1);
        }
    }

    fn union(list: &[Slice], from: u64, to: u64) -> u64 {
        let (mut sum, mut upto) = (0, from);
        for slice in list {
            sum += slice.end.min(to).saturating_sub(slice.start.max(upto));
            upto = upto.max(slice.end);
        }
        sum
    }
}
