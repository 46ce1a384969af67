//! A chosen stretch of time in numbers: how busy each lane was, what took the time, and how long nothing ran.

use rustc_hash::FxHashMap;

use super::scale::newest;
use super::spark::sparkline;
use super::{Kept, ViewState, lanes, timeline, units};
use crate::model::slices::Slice;
use crate::model::snapshot::{LaneKey, Process};

/// Records of a lane that are looked at one by one.
const LOOK: usize = 50_000;
/// Names that are listed.
const TOP: usize = 6;
/// The ends of the classes of gaps, nanoseconds, and their names.
const GAPS: [(u64, &str); 6] = [
    (1_000, "1 µs"),
    (10_000, "10 µs"),
    (100_000, "100 µs"),
    (1_000_000, "1 ms"),
    (10_000_000, "10 ms"),
    (u64::MAX, "more"),
];

/// What can be said of a stretch.
#[derive(Debug, Default)]
struct Sums {
    /// Nanoseconds and records by name id.
    names: FxHashMap<u32, (String, u64, u64)>,
    /// When something ran on any lane.
    busy: Vec<(u64, u64)>,
    /// Whether records were left out.
    cut: bool,
}

/// The lines about the chosen stretch, if one is chosen.
pub(crate) fn lines(process: &Process, state: &ViewState) -> Option<Vec<String>> {
    let newest = newest(process);
    let (from, to) = state.timeline.chosen(newest, state.seen.columns)?;
    let length = to.saturating_sub(from).max(1);
    let mut sums = Sums::default();
    let mut on_lanes = Vec::new();
    for lane in lanes(process, state) {
        let mut kept = Kept::new(process, state, lane);
        let cell = kept.raster(from, to, 1).first().copied().unwrap_or_default();
        if cell.count == 0 {
            continue;
        }
        let graphs = matches!(lane.key, LaneKey::Graphs { .. });
        if !graphs {
            sums.add(process, &mut kept, (from, to));
        }
        let what = if graphs { "launch" } else { "record" };
        let busy = units::percent(f64::from(cell.busy));
        let count = units::some(cell.count as usize, what);
        on_lanes.push(format!("{:<18} busy {busy:>8}   {count}", timeline::lane_title(process, lane)));
    }
    let ago = |time: u64| units::told_apart(newest.saturating_sub(time), (length / 10).max(1));
    let mut lines = vec![format!("{} from −{} to −{}", units::duration(length), ago(from), ago(to))];
    let (busy, gaps) = union(std::mem::take(&mut sums.busy), (from, to));
    lines.push(format!(
        "something ran {} ({}), nothing ran {} ({})",
        units::duration(busy),
        units::percent(busy as f64 / length as f64),
        units::duration(length.saturating_sub(busy)),
        units::percent(length.saturating_sub(busy) as f64 / length as f64),
    ));
    lines.push(gap_line(&gaps));
    if sums.cut {
        lines.push(format!("names and gaps are of the first {} of a lane", units::some(LOOK, "record")));
    }
    lines.extend(on_lanes);
    let all: u64 = sums.names.values().map(|(_, ns, _)| ns).sum();
    let mut names: Vec<_> = sums.names.into_values().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    for (name, ns, count) in names.iter().take(TOP) {
        let share = units::percent(*ns as f64 / all.max(1) as f64);
        lines.push(format!("{share:>8}  {:>9}  {count:>7}×  {name}", units::duration(*ns)));
    }
    if names.len() > TOP {
        lines.push(format!("and {}", units::some(names.len() - TOP, "more name")));
    }
    Some(lines)
}

impl Sums {
    fn add(&mut self, process: &Process, kept: &mut Kept<'_>, (from, to): (u64, u64)) {
        let lane = kept.lane;
        let inside: Vec<Slice> = lane.slices.touching(from, to).take(LOOK + 1).copied().collect();
        self.cut |= inside.len() > LOOK;
        for slice in inside.into_iter().take(LOOK).filter(|slice| kept.keeps(slice)) {
            let (start, end) = (slice.start.max(from), slice.end.min(to));
            self.busy.push((start, end));
            if let Some(detail) = process.details.get(slice.detail) {
                let sum =
                    self.names.entry(detail.name_id).or_insert_with(|| (detail.name.short.clone(), 0, 0));
                sum.1 += end.saturating_sub(start);
                sum.2 += 1;
            }
        }
    }
}

/// The time that intervals cover, and the gaps between them and to the ends.
fn union(mut intervals: Vec<(u64, u64)>, (from, to): (u64, u64)) -> (u64, Vec<u64>) {
    intervals.sort_unstable();
    let (mut busy, mut upto, mut gaps) = (0, from, Vec::new());
    for (start, end) in intervals {
        if start > upto {
            gaps.push(start - upto);
        }
        busy += end.saturating_sub(start.max(upto));
        upto = upto.max(end);
    }
    if to > upto {
        gaps.push(to - upto);
    }
    (busy, gaps)
}

/// How many gaps there were, the longest, and how they are spread over powers of ten.
fn gap_line(gaps: &[u64]) -> String {
    let Some(longest) = gaps.iter().max() else { return "no gap".to_owned() };
    let mut counts = [0u64; GAPS.len()];
    for gap in gaps {
        let class = GAPS.iter().position(|(end, _)| gap < end).unwrap_or(GAPS.len() - 1);
        counts[class] += 1;
    }
    let most = counts.iter().max().copied().unwrap_or(1).max(1);
    let bars = sparkline(counts.iter().map(|count| *count as f64), most as f64, GAPS.len());
    let classes: Vec<String> = GAPS
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((end, name), count)| {
            let under = if *end == u64::MAX { "longer".to_owned() } else { format!("<{name}") };
            format!("{under} {count}")
        })
        .collect();
    format!(
        "{}, longest {}   {bars}  {}",
        units::some(gaps.len(), "gap"),
        units::duration(*longest),
        classes.join("  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_counted_by_length() {
        let (busy, gaps) = union(vec![(10, 20), (15, 30), (2_030, 2_040)], (0, 20_000));
        assert_eq!((busy, gaps.as_slice()), (30, [10, 2_000, 17_960].as_slice()));
        let line = gap_line(&gaps);
        assert!(line.starts_with("3 gaps, longest 18.0 µs"), "{line}");
        assert!(line.ends_with("<1 µs 1  <10 µs 1  <100 µs 1"), "{line}");
        assert_eq!(gap_line(&[]), "no gap");
    }

    proptest! {
        #[test]
        fn busy_and_gaps_make_up_the_stretch(list in prop::collection::vec((0u64..900, 0u64..100), 0..50)) {
            let list: Vec<_> = list.into_iter().map(|(start, length)| (start, start + length)).collect();
            let (busy, gaps) = union(list, (0, 1_000));
            prop_assert_eq!(busy + gaps.iter().sum::<u64>(), 1_000);
        }
    }
}
