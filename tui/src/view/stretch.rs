//! A chosen stretch of time in numbers: how busy each lane was, what took the time, and how long nothing ran.

use rustc_hash::FxHashMap;

use super::scale::newest;
use super::spark::sparkline;
use super::untraced::Traced;
use super::{Kept, ViewState, lanes, timeline, units};
use crate::model::slices::{Slice, Slices};
use crate::model::snapshot::{Lane, LaneKey, Process, Spot};
use crate::model::together::busy_together;

/// Records of a chosen stretch that are looked at one by one.
const LOOK: usize = 100_000;
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

/// What records of a stretch sum up to.
#[derive(Debug, Default)]
struct Sums {
    /// Nanoseconds and records by name id.
    names: FxHashMap<u32, (String, u64, u64)>,
    /// When something ran on any lane.
    busy: Vec<(u64, u64)>,
}

/// Why records of a stretch cannot be counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partly {
    /// There are too many.
    Many,
    /// Some are too old to be kept, and summed up.
    Old,
}

/// The lines about the chosen stretch, if one is chosen.
pub(crate) fn chosen(process: &Process, state: &ViewState) -> Option<Vec<String>> {
    let stretch = state.timeline.chosen(newest(process), state.seen.columns)?;
    Some(lines(process, state, stretch, LOOK, TOP))
}

/// The lines about a stretch, of which so many records of a lane are looked at one by one, and so many names are
/// listed.
pub(super) fn lines(
    process: &Process,
    state: &ViewState,
    (from, to): (u64, u64),
    look: usize,
    names_listed: usize,
) -> Vec<String> {
    let newest = newest(process);
    let length = to.saturating_sub(from).max(1);
    let is_graphs = |lane: &Lane| matches!(lane.key, LaneKey::Graphs { .. });
    let shown = lanes(process, state);
    let (mut on_lanes, mut count, mut untraced) = (Vec::new(), 0, 0);
    for lane in &shown {
        let cell = Kept::new(process, state, lane).raster(from, to, 1).first().copied().unwrap_or_default();
        let seen = Traced::of(process, lane).seen(from, to);
        if cell.count == 0 && seen >= length {
            continue;
        }
        if let Some(why) = Traced::of(process, lane).why_blank((from, to)).filter(|_| cell.count == 0) {
            on_lanes.push(format!("{:<18} {why}", timeline::lane_title(process, lane)));
            continue;
        }
        untraced = untraced.max(length.saturating_sub(seen));
        count += if is_graphs(lane) { 0 } else { cell.count as usize };
        let busy = match seen {
            0 => "?".to_owned(),
            _ => units::percent(f64::from(cell.busy) * length as f64 / seen as f64),
        };
        let count = units::some(cell.count as usize, if is_graphs(lane) { "launch" } else { "record" });
        on_lanes.push(format!("{:<18} busy {busy:>8}   {count}", timeline::lane_title(process, lane)));
    }
    if !shown.is_empty() && shown.iter().all(|lane| Traced::of(process, lane).seen(from, to) == 0) {
        untraced = length;
    }
    let worked: Vec<&Lane> = shown.into_iter().filter(|lane| !is_graphs(lane)).collect();
    let old = worked.iter().any(|lane| lane.slices.summed(from, to).is_some());
    let partly = if old { Some(Partly::Old) } else { (count > look).then_some(Partly::Many) };
    let mut sums = Sums::default();
    for lane in &worked {
        sums.add(process, &mut Kept::new(process, state, lane), (from, to), look);
    }
    let ago = |time: u64| units::told_apart(newest.saturating_sub(time), (length / 10).max(1));
    let upto = if to < newest { format!("−{}", ago(to)) } else { "the newest record".to_owned() };
    let mut lines = vec![format!("{} from −{} to {upto}", units::duration(length), ago(from))];
    let (busy, gaps) = union(std::mem::take(&mut sums.busy), (from, to));
    let busy = match partly {
        None => Some((busy, busy)),
        Some(_) if state.filter.is_empty() => {
            let slices: Vec<&Slices> = worked.iter().map(|lane| &lane.slices).collect();
            Some(busy_together(&slices, from, to))
        }
        // The filter cannot ask sums, and not all of so many records.
        Some(_) => None,
    };
    // What was not traced may have run.
    let busy = busy.map(|(low, high)| (low, high.saturating_add(untraced).min(length)));
    lines.push(busy_line(busy, length));
    lines.push(match partly {
        None if untraced > 0 => "gaps ?: not all of this time is known".to_owned(),
        None => gap_line(&gaps),
        Some(Partly::Many) => format!("gaps ?: more than {}", units::some(look, "record")),
        Some(Partly::Old) => "gaps ?: records of this time are too old to be kept, and summed up".to_owned(),
    });
    if untraced > 0 {
        lines.push(format!(
            "not known for {} of it: not traced, lost or still to come, and in no number here",
            units::duration(untraced)
        ));
    }
    let bad = |spot: &&Spot| (from..to).contains(&spot.time);
    let bad: u64 = process.invalid_at.iter().filter(bad).map(|spot| spot.count).sum();
    if bad > 0 {
        let bad = units::some(usize::try_from(bad).unwrap_or(usize::MAX), "record");
        lines.push(format!("{bad} with bad times came in it, in no number here"));
    }
    lines.extend(on_lanes);
    let names = sums.names.len();
    lines.extend(sums.names(names_listed.max(TOP)));
    lines.extend(match partly {
        Some(Partly::Many) => Some(format!("… in the first {} of a lane", units::some(look, "record"))),
        Some(Partly::Old) if names > 0 => Some("… in the records that are kept".to_owned()),
        _ => None,
    });
    lines
}

/// For how long something ran, between the least and the most of it; `None` is not known.
fn busy_line(busy: Option<(u64, u64)>, length: u64) -> String {
    let Some((low, high)) = busy else { return "something ran ?, nothing ran ?".to_owned() };
    let part = |ns: u64| units::percent(ns as f64 / length as f64);
    let both = |low: u64, high: u64| match (units::duration(low), units::duration(high)) {
        (a, b) if a == b && part(low) == part(high) => format!("{a} ({})", part(low)),
        (a, b) => format!("{a} to {b} ({} to {})", part(low), part(high)),
    };
    let idle = |busy: u64| length.saturating_sub(busy);
    format!("something ran {}, nothing ran {}", both(low, high), both(idle(high), idle(low)))
}

impl Sums {
    fn add(&mut self, process: &Process, kept: &mut Kept<'_>, (from, to): (u64, u64), look: usize) {
        let inside: Vec<Slice> = kept.lane.slices.touching(from, to).take(look).copied().collect();
        for slice in inside.into_iter().filter(|slice| kept.keeps(slice)) {
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

    /// The names that took the most time.
    fn names(self, most: usize) -> Vec<String> {
        let all: u64 = self.names.values().map(|(_, ns, _)| ns).sum();
        let mut names: Vec<_> = self.names.into_values().collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let line = |(name, ns, count): &(String, u64, u64)| {
            let share = units::percent(*ns as f64 / all.max(1) as f64);
            format!("{share:>8}  {:>9}  {:>7}×  {name}", units::duration(*ns), units::count(*count))
        };
        let mut lines: Vec<String> = names.iter().take(most).map(line).collect();
        if names.len() > most {
            lines.push(format!("and {}", units::some(names.len() - most, "more name")));
        }
        lines
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
            format!("{under} {}", units::count(count))
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
    use crate::model::snapshot::{Untraced, Why};
    use crate::view::Range;
    use gtop_protocol::Kind;
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

    #[test]
    fn what_is_between_two_numbers_is_said_so() {
        assert_eq!(
            busy_line(Some((250_000, 250_000)), 1_000_000),
            "something ran 250 µs (25.0 %), nothing ran 750 µs (75.0 %)"
        );
        let line = busy_line(Some((250_000, 500_000)), 1_000_000);
        assert_eq!(
            line,
            "something ran 250 µs to 500 µs (25.0 % to 50.0 %), nothing ran 500 µs to 750 µs (50.0 % to 75.0 %)"
        );
        assert!(busy_line(None, 5).contains('?'));
    }

    /// A process with one lane of records that take half of the time.
    fn half(count: u64) -> Process {
        let slices: Vec<Slice> = (0..count)
            .map(|i| Slice { start: 1_000 + i * 2_000, end: 2_000 + i * 2_000, detail: 0, correlation: 0 })
            .collect();
        let key = LaneKey::Stream { device: 0, context: 1, stream: 7 };
        let slices = Slices::new(slices.chunks(Slices::CHUNK).map(Into::into).collect());
        Process { lanes: vec![Lane { key, busy: 0.5, since: 0, slices }], ..Process::default() }
    }

    #[test]
    fn more_records_than_are_looked_at_are_no_idleness() {
        let count = LOOK as u64 + 5_000;
        let process = half(count);
        let mut state = ViewState::default();
        state.timeline.range = Range::Closed((0, count * 2_000));
        let text = chosen(&process, &state).unwrap().join("\n");
        assert!(text.contains("something ran 105 ms (50.0 %), nothing ran 105 ms (50.0 %)"), "{text}");
        assert!(text.contains("gaps ?: more than 100,000 records"), "{text}");
        state.filter = crate::filter::parse("dur>1ns").unwrap();
        let text = chosen(&process, &state).unwrap().join("\n");
        assert!(text.contains("something ran ?, nothing ran ?"), "{text}");
    }

    #[test]
    fn what_was_not_traced_is_neither_busy_nor_idle() {
        let mut process = half(100);
        let copies = LaneKey::Copy { device: 0, direction: 1 };
        process.lanes.push(Lane { key: copies, busy: 0.0, since: 0, slices: Slices::default() });
        let off = |kind, from, to| Untraced { kind, from, to, why: Why::Off };
        process.untraced = [off(Kind::Kernel, 50_000, 100_000), off(Kind::Memcpy, 0, u64::MAX)].into();
        let text = lines(&process, &ViewState::default(), (0, 200_000), LOOK, TOP).join("\n");
        assert!(text.contains("something ran 100 µs to 150 µs (50.0 % to 75.0 %)"), "{text}");
        assert!(text.contains("not known for 50.0 µs of it"), "{text}");
        assert!(text.contains("copy HtoD          not traced: memcpy is off"), "{text}");
        process.untraced = [off(Kind::Kernel, 0, 200_000), off(Kind::Memcpy, 0, u64::MAX)].into();
        process.lanes.remove(0);
        let text = lines(&process, &ViewState::default(), (0, 200_000), LOOK, TOP).join("\n");
        assert!(text.contains("something ran 0 ns to 200 µs (0 % to 100 %)"), "{text}");
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
