//! Tracing in windows on the screen: what of a lane was not traced, and numbers that stand for all of the time, with
//! their 95 % intervals.

use gtop_protocol::Kind;
use gtop_protocol::message::Relief;
use ratatui::text::Span;

use super::canvas::{Part, fit};
use super::theme::{Role, Theme};
use super::units;
use crate::model::sampling::{Estimate, ratio};
use crate::model::snapshot::{Lane, LaneKey, Process};

/// What stands for a column in which nothing was traced.
pub(super) const BLANK: &str = "⋅";
/// What stands for a column of which nothing has come, and something may.
pub(super) const AWAITED: &str = "╌";
/// Windows that the numbers of a lane are told from.
const LAST: usize = 30;

/// The windows of what was traced in windows only.
#[derive(Clone, Copy)]
pub(super) struct Sampled<'a> {
    /// Begin and end, in order; the end of an open one is 0. Before the first everything was traced.
    windows: &'a [(u64, u64)],
}

impl<'a> Sampled<'a> {
    /// The windows in which a lane was traced; `None` when it was traced all the time.
    pub(super) fn of(process: &'a Process, lane: LaneKey) -> Option<Self> {
        Self::of_kind(
            process,
            match lane {
                LaneKey::Stream { .. } | LaneKey::Graphs { .. } => Kind::Kernel,
                LaneKey::Copy { .. } => Kind::Memcpy,
                LaneKey::Memset { .. } => Kind::Memset,
            },
        )
    }

    fn of_kind(process: &'a Process, kind: Kind) -> Option<Self> {
        let sampling = process.sampling.as_ref()?;
        let sampled = sampling.relief != Relief::None && !sampling.between.has(kind);
        (sampled && !sampling.recent.is_empty()).then_some(Self { windows: &sampling.recent })
    }

    /// Nanoseconds of the time from `from` to `to` that were traced.
    pub(super) fn seen(&self, from: u64, to: u64) -> u64 {
        let first = self.windows.partition_point(|(_, end)| *end != 0 && *end <= from);
        let before = match self.windows.first() {
            Some((begin, _)) if first == 0 => to.min(*begin).saturating_sub(from),
            _ => 0,
        };
        let inside = self.windows[first..].iter().take_while(|(begin, _)| *begin < to);
        let part = |(begin, end): &(u64, u64)| {
            let end = if *end == 0 { to } else { to.min(*end) };
            end.saturating_sub(from.max(*begin))
        };
        before + inside.map(part).sum::<u64>()
    }

    /// The last whole windows that began before `to`.
    fn last(&self, to: u64) -> &'a [(u64, u64)] {
        let upto = self.windows.partition_point(|(begin, end)| *begin < to && *end != 0);
        &self.windows[upto.saturating_sub(LAST)..upto]
    }

    /// The busy share of a lane, from its last windows before `to`.
    pub(super) fn busy(&self, lane: &Lane, to: u64) -> Option<Estimate> {
        let of = |(begin, end): &(u64, u64)| (lane.slices.covered(*begin, *end) as f64, (end - begin) as f64);
        ratio(&self.last(to).iter().map(of).collect::<Vec<_>>(), 1.0)
    }

    /// Launches a second on a lane of graph launches, from how far apart they are in windows: the first of a window may
    /// have begun before it.
    pub(super) fn launches(&self, lane: &Lane, to: u64) -> Option<Estimate> {
        let of = |(begin, end): &(u64, u64)| {
            let mut starts = lane.slices.touching(*begin, *end).map(|slice| slice.start).skip(1);
            let first = starts.next()?;
            let (count, last) = starts.fold((0, first), |(count, _), start| (count + 1, start));
            Some((f64::from(count), (last - first) as f64 / 1e9))
        };
        ratio(&self.last(to).iter().filter_map(of).collect::<Vec<_>>(), f64::INFINITY)
    }
}

/// A share and half of its interval: `63.2±4.1 %`.
pub(super) fn share(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, low, high }) = estimate else { return "?".to_owned() };
    let half = (high - value).max(value - low) * 100.0;
    match half {
        _ if high < 0.000_5 => units::percent(high),
        half if half < 0.05 => units::percent(value),
        half => format!("{:.1}±{half:.1} %", value * 100.0),
    }
}

/// A number in words and half of its interval as a part of it: `12.4k ±3 %`.
pub(super) fn about(estimate: Estimate, words: impl Fn(f64) -> String) -> String {
    let Estimate { value, low, high } = estimate;
    let half = (high - value).max(value - low) / value.max(f64::MIN_POSITIVE) * 100.0;
    match half {
        half if half < 0.95 => format!("{} ±{half:.1} %", words(value)),
        half if half < 999.5 => format!("{} ±{half:.0} %", words(value)),
        _ => format!("{} ±?", words(value)),
    }
}

/// What the user pays and what is seen for it, in one word for a heading.
pub(super) fn badge(process: &Process) -> Option<String> {
    let sampling = process.sampling.as_ref().filter(|sampling| sampling.budget_ppm > 0)?;
    Some(format!("budget {} %", f64::from(sampling.budget_ppm) / 1e4))
}

/// … and in a line.
pub(super) fn line(theme: Theme, process: &Process, cells: usize) -> Option<Vec<Span<'static>>> {
    let sampling = process.sampling.as_ref().filter(|sampling| sampling.budget_ppm > 0)?;
    let part = |rank, text: String, role| Part::new(rank, vec![theme.span(text, role)]);
    let percent = |ppm: u64| format!("{:.2} %", ppm as f64 / 1e4);
    let mut parts = vec![part(0, badge(process)?, Role::Strong)];
    if sampling.relief == Relief::None {
        parts.push(part(0, "windows save nothing here: full price".to_owned(), Role::Alarm));
    } else {
        let (window, period) = (units::duration(sampling.window_ns), units::duration(sampling.period_ns));
        parts.push(part(1, format!("{window} in {period}"), Role::Plain));
    }
    let price = match (sampling.price_ppm, sampling.price_high_ppm) {
        (Some(price), Some(high)) => format!("costs {}, at most {}", percent(price), percent(high)),
        (None, Some(high)) => format!("costs at most {}", percent(high)),
        _ => String::new(),
    };
    parts.push(part(2, price, Role::Plain));
    if let Some(rare) = sampling.rare_below {
        let rare = units::count(rare);
        parts.push(part(3, format!("kernels of fewer than {rare} calls may be unseen"), Role::Dim));
    }
    Some(fit(parts, "  ", cells).0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::view::fixture;

    fn process(windows: &[(u64, u64)]) -> Process {
        let mut process = fixture::sampled().processes.remove(0);
        if let Some(sampling) = &mut process.sampling {
            sampling.recent = Arc::from(windows);
        }
        process
    }

    #[test]
    fn what_was_traced_is_what_lies_before_the_first_window_and_in_windows() {
        let process = process(&[(100, 110), (200, 220), (300, 0)]);
        let sampled = Sampled::of_kind(&process, Kind::Kernel).unwrap();
        for ((from, to), seen) in [
            ((0, 100), 100),
            ((50, 105), 55),
            ((110, 200), 0),
            ((105, 210), 15),
            ((220, 310), 10),
            ((400, 500), 100),
            ((0, 1_000), 110 + 20 + 700),
        ] {
            assert_eq!(sampled.seen(from, to), seen, "{from} to {to}");
        }
        assert!(Sampled::of_kind(&process, Kind::Memcpy).is_none(), "copies are on between windows");
        assert_eq!(sampled.last(u64::MAX).len(), 2);
        assert_eq!(sampled.last(150), [(100, 110)]);
    }

    #[test]
    fn numbers_have_their_intervals_beside_them() {
        let estimate = Estimate { value: 0.632, low: 0.6, high: 0.673 };
        assert_eq!(share(Some(estimate)), "63.2±4.1 %");
        assert_eq!(
            (share(None).as_str(), share(Some(Estimate { high: 1e-4, ..Estimate::default() })).as_str()),
            ("?", "<0.1 %")
        );
        let narrow = |value| share(Some(Estimate { value, low: value - 1e-4, high: value + 4e-4 }));
        assert_eq!(
            [narrow(0.632), narrow(0.000_3)],
            ["63.2 %", "<0.1 %"],
            "an interval that rounds to nothing"
        );
        let calls = Estimate { value: 12_400.0, low: 12_100.0, high: 12_800.0 };
        assert_eq!(about(calls, units::glance), "12.4k ±3 %");
    }
}
