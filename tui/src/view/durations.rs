//! How long the records of one kernel took: a histogram on a logarithmic axis.

use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::text::cut_middle;
use super::theme::Role;
use super::{Cx, units};
use crate::model::snapshot::{Bar, KernelRow};

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws a rule with the name, the bars, and the axis below them.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, row: &KernelRow, canvas: &mut Canvas<'_>) {
    let theme = cx.theme();
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let name = cut_middle(&row.name.short, cells.saturating_sub(30).max(10), "…");
    let title = format!("── Durations of {name}, {} ", units::some(row.calls as usize, "record"));
    let rule = format!("{title}{}", "─".repeat(cells.saturating_sub(title.chars().count())));
    canvas.put(area, 0, 0, &rule, theme.style(Role::Dim));
    let high = height.saturating_sub(2);
    if row.bars.is_empty() || high == 0 || cells < 20 {
        canvas.put(area, 0, 1, "no believable record", theme.style(Role::Dim));
        return;
    }
    let spread = Spread::new(&row.bars, cells);
    let counts = spread.counts(&row.bars);
    let most = counts.iter().copied().fold(0.0, f64::max);
    let style = theme.kernel(&row.name.full);
    for line in 0..high {
        // From the top: how much of this line each column fills.
        let floor = (high - 1 - line) as f64;
        let text: String = counts
            .iter()
            .map(|count| {
                let filled = (count / most * high as f64 - floor).clamp(0.0, 1.0);
                // One record is never nothing.
                let least = usize::from(*count > 0.0 && line + 1 == high);
                EIGHTHS[((filled * 8.0).round() as usize).max(least)]
            })
            .collect();
        canvas.put(area, 0, 1 + line, &text, style);
    }
    axis(cx, area, row, &spread, canvas);
}

/// Where the quantiles are, as far as there is room for their words.
fn axis(cx: &Cx<'_>, area: Rect, row: &KernelRow, spread: &Spread, canvas: &mut Canvas<'_>) {
    let line = usize::from(area.height) - 1;
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (what, ns) in [("p50", row.p50_ns), ("p99", row.p99_ns), ("min", row.min_ns), ("max", row.max_ns)] {
        let text = format!("↑{what} {}", units::duration(ns));
        let wide = text.chars().count();
        let place = spread.column(ns as f64);
        // Left of its arrow where there is no room right of it.
        let (from, text) = if place + wide <= spread.columns {
            (place, text)
        } else {
            ((place + 1).saturating_sub(wide), format!("{what} {}↑", units::duration(ns)))
        };
        let (begin, end) = (from.saturating_sub(1), from + wide + 1);
        if taken.iter().all(|(other, to)| end <= *other || begin >= *to) {
            canvas.put(area, from, line, &text, cx.theme().style(Role::Dim));
            taken.push((begin, end));
        }
    }
}

/// Times laid onto columns, by their logarithms.
struct Spread {
    from: f64,
    to: f64,
    columns: usize,
}

impl Spread {
    fn new(bars: &[Bar], columns: usize) -> Self {
        let log = |ns: u64| (ns.max(1) as f64).ln();
        let from = bars.first().map_or(0.0, |bar| log(bar.from));
        let to = bars.last().map_or(1.0, |bar| log(bar.to));
        // Durations that hardly differ are not blown up to the whole width: it spans a power of two at least.
        let spare = (std::f64::consts::LN_2 - (to - from)).max(0.0) / 2.0;
        Self { from: from - spare, to: to + spare, columns }
    }

    fn place(&self, ns: f64) -> f64 {
        (ns.max(1.0).ln() - self.from) / (self.to - self.from) * self.columns as f64
    }

    fn column(&self, ns: f64) -> usize {
        (self.place(ns).max(0.0) as usize).min(self.columns.saturating_sub(1))
    }

    /// How many records fall on each column; those of a bar evenly on all of its columns.
    fn counts(&self, bars: &[Bar]) -> Vec<f64> {
        let mut counts = vec![0.0; self.columns];
        for bar in bars {
            let (from, to) = (self.place(bar.from as f64), self.place(bar.to as f64));
            let wide = to - from;
            if wide < 1e-9 {
                counts[self.column(bar.from as f64)] += bar.count as f64;
                continue;
            }
            for (column, count) in counts.iter_mut().enumerate().skip(from.max(0.0) as usize) {
                let (left, right) = (column as f64, column as f64 + 1.0);
                if left >= to {
                    break;
                }
                *count += bar.count as f64 * (to.min(right) - from.max(left)).max(0.0) / wide;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bars_fall_on_their_columns() {
        let bars = [Bar { from: 100, to: 200, count: 8 }, Bar { from: 800, to: 1600, count: 4 }];
        let spread = Spread::new(&bars, 4);
        let counts = spread.counts(&bars);
        for (count, expected) in counts.iter().zip([8.0, 0.0, 0.0, 4.0]) {
            assert!((count - expected).abs() < 1e-6, "{counts:?}");
        }
        assert_eq!((spread.column(100.0), spread.column(1_599.0), spread.column(1e12)), (0, 3, 3));
    }

    #[test]
    fn durations_that_hardly_differ_are_not_blown_up() {
        let bars = [Bar { from: 1_000, to: 1_050, count: 3 }];
        let counts = Spread::new(&bars, 80).counts(&bars);
        let filled = counts.iter().filter(|count| **count > 0.0).count();
        assert!((4..10).contains(&filled), "{counts:?}");
    }

    proptest! {
        #[test]
        fn no_record_is_left_out(bars in prop::collection::vec((0u64..1 << 40, 1u64..1000, 1u64..1000), 1..20), columns in 1usize..200) {
            let mut bars: Vec<Bar> = bars.into_iter().map(|(from, wide, count)| Bar { from, to: from + wide, count }).collect();
            bars.sort_by_key(|bar| bar.from);
            let last = bars.len() - 1;
            let furthest = bars.iter().map(|bar| bar.to).max().unwrap();
            bars[last].to = furthest;
            let sum: f64 = Spread::new(&bars, columns).counts(&bars).iter().sum();
            let all: u64 = bars.iter().map(|bar| bar.count).sum();
            prop_assert!((sum - all as f64).abs() < 1e-3 * all as f64, "{sum} {all}");
        }
    }
}
