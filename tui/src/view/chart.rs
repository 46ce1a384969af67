//! Quantities over time as columns that lie one on the other, with their scale at the left and the time below.

use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::text::{cut_end, right, width};
use super::theme::Role;
use super::{Cx, units};
use crate::model::time::SECOND;

/// Cells of the scale.
const SCALE: usize = 12;
/// Quarters of a second that a column may stand for.
const STEPS: [u64; 14] = [1, 2, 4, 8, 20, 40, 60, 120, 240, 480, 1_200, 2_400, 7_200, 14_400];
const QUARTER: u64 = SECOND / 4;
/// More lines make a chart no clearer.
const HIGHEST: usize = 40;
/// For how long a sample of NVML holds, nanoseconds: it is asked once a second.
pub(super) const SAMPLED: u64 = 5 * SECOND;
/// What stands for a time of which there is no sample.
const BLANK: char = '⋅';
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One of the quantities: all that lies below its upper edge and above that of the one before.
pub(super) struct Layer {
    /// What it is drawn with.
    pub(super) sign: char,
    /// How it looks.
    pub(super) role: Role,
    /// Its upper edge over time, by `CLOCK_REALTIME` nanoseconds.
    pub(super) samples: Vec<(u64, u64)>,
}

/// A chart of something over time.
pub(super) struct Chart {
    /// What it shows, with what its signs mean.
    pub(super) title: String,
    /// The quantities, from the bottom up.
    pub(super) layers: Vec<Layer>,
    /// What is at the bottom and at the top.
    pub(super) scale: (u64, u64),
    /// How a number is written.
    pub(super) words: fn(u64) -> String,
    /// For how long a sample holds, nanoseconds, or as long as a column if that is longer.
    pub(super) holds: u64,
}

impl Chart {
    /// Draws a rule with the title, the columns and the axis; `now` is at the right end.
    pub(super) fn draw(&self, cx: &Cx<'_>, now: u64, area: Rect, canvas: &mut Canvas<'_>) {
        let theme = cx.theme();
        let (cells, height) = (usize::from(area.width), usize::from(area.height).min(HIGHEST));
        let title = cut_end(&format!("── {} ", self.title), cells);
        let rule = format!("{title}{}", "─".repeat(cells.saturating_sub(width(&title))));
        canvas.put(area, 0, 0, &rule, theme.style(Role::Dim));
        let (high, columns) = (height.saturating_sub(2), cells.saturating_sub(SCALE + 1));
        if high == 0 || columns == 0 {
            return;
        }
        for (line, number) in self.labels(high) {
            let label = right(&(self.words)(number), SCALE - 1);
            canvas.put(area, 0, 1 + line, &label, theme.style(Role::Dim));
        }
        let step = self.step(now, columns);
        let first = self.first();
        let edges: Vec<Option<Vec<Option<u64>>>> = (0..columns)
            .map(|column| {
                let to = now.saturating_sub((columns - 1 - column) as u64 * step);
                let from = to.saturating_sub(step);
                let held = self.layers.iter().map(|layer| held(&layer.samples, from, to, self.holds));
                // Before the first sample nobody looked.
                first.is_some_and(|first| first <= to).then(|| held.collect())
            })
            .collect();
        for above in 0..high {
            let cell = |edges: &Option<Vec<Option<u64>>>| match edges {
                Some(edges) if edges.iter().any(Option::is_some) => self.cell(edges, above, high),
                Some(_) if above == 0 => Some((BLANK, Role::Dim)),
                _ => None,
            };
            let cells: Vec<(char, Role)> =
                edges.iter().map(|edges| cell(edges).unwrap_or((' ', Role::Plain))).collect();
            let run = |run: &[(char, Role)]| {
                theme.span(run.iter().map(|(sign, _)| *sign).collect::<String>(), run[0].1)
            };
            let spans = cells.chunk_by(|a, b| a.1 == b.1).map(run).collect();
            let plot = Rect {
                x: area.x.saturating_add(SCALE as u16),
                width: area.width.saturating_sub(SCALE as u16),
                ..area
            };
            canvas.spans(plot, high - above, spans);
        }
        let ago = format!("−{}", units::age((columns as u64 * step) as f64 / SECOND as f64));
        canvas.put(area, SCALE, height - 1, &ago, theme.style(Role::Dim));
        canvas.put(area, (SCALE + columns).saturating_sub(3), height - 1, "now", theme.style(Role::Dim));
    }

    /// When the first sample was taken.
    fn first(&self) -> Option<u64> {
        self.layers.iter().filter_map(|layer| layer.samples.first()).map(|(time, _)| *time).min()
    }

    /// Nanoseconds of a column, so that all samples fit if they can.
    fn step(&self, now: u64, columns: usize) -> u64 {
        let span = self.first().map_or(0, |first| now.saturating_sub(first));
        let fits = |step: &&u64| **step * QUARTER * columns as u64 >= span;
        STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]) * QUARTER
    }

    /// Lines with a number beside them, and the numbers: at the upper edge of the line for the top one, at the lower
    /// one for that at the bottom.
    fn labels(&self, high: usize) -> Vec<(usize, u64)> {
        let (low, top) = self.scale;
        let middle = (high >= 5).then(|| (high / 2, low + (top.saturating_sub(low)) / 2));
        let mut labels = vec![(0, top)];
        labels.extend(middle);
        labels.extend((high >= 2).then_some((high - 1, low)));
        labels
    }

    /// What is in the cell that is so many lines above the bottom of `high`.
    fn cell(&self, edges: &[Option<u64>], above: usize, high: usize) -> Option<(char, Role)> {
        let (low, top) = self.scale;
        let span = top.saturating_sub(low).max(1) as f64;
        let lines = |bytes: u64| bytes.saturating_sub(low) as f64 / span * high as f64;
        let known = || self.layers.iter().zip(edges).filter_map(|(layer, edge)| Some((layer, (*edge)?)));
        if let Some((layer, _)) = known().find(|(_, edge)| lines(*edge) >= above as f64 + 0.5) {
            let whole = known().next_back().is_none_or(|(_, edge)| lines(edge) >= (above + 1) as f64);
            if layer.sign != '█' || self.layers.len() > 1 || whole {
                return Some((layer.sign, layer.role));
            }
        }
        // What is something is never drawn as nothing.
        let (layer, edge) = known().rfind(|(_, edge)| *edge > 0)?;
        let part = (lines(edge) - above as f64).clamp(0.0, 1.0);
        let eighths = ((part * 8.0).round() as usize).max(usize::from(above == 0));
        let solid = layer.sign == '█' && self.layers.len() == 1 && eighths > 0;
        match above {
            _ if solid => Some((EIGHTHS[eighths], layer.role)),
            0 => Some((layer.sign, layer.role)),
            _ => None,
        }
    }
}

/// The most that was sampled from `from` to `to`, or what was sampled last before and still holds.
fn held(samples: &[(u64, u64)], from: u64, to: u64, holds: u64) -> Option<u64> {
    let (first, end) =
        (samples.partition_point(|(at, _)| *at <= from), samples.partition_point(|(at, _)| *at <= to));
    let inside = samples.get(first..end)?.iter().map(|(_, bytes)| *bytes).max();
    let before = first.checked_sub(1).and_then(|at| samples.get(at));
    let holds = holds.max(to.saturating_sub(from));
    inside.or_else(|| before.filter(|(at, _)| to.saturating_sub(*at) <= holds).map(|(_, bytes)| *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(layers: &[(char, u64)], scale: (u64, u64)) -> Chart {
        let layer =
            |&(sign, bytes): &(char, u64)| Layer { sign, role: Role::Plain, samples: vec![(SECOND, bytes)] };
        Chart {
            title: String::new(),
            layers: layers.iter().map(layer).collect(),
            scale,
            words: units::count,
            holds: SAMPLED,
        }
    }

    fn column(layers: &[(char, u64)], scale: (u64, u64), high: usize) -> String {
        let chart = chart(layers, scale);
        let edges: Vec<Option<u64>> = layers.iter().map(|(_, bytes)| Some(*bytes)).collect();
        (0..high).map(|above| chart.cell(&edges, above, high).map_or(' ', |(sign, _)| sign)).collect()
    }

    #[test]
    fn layers_lie_one_on_the_other_and_nothing_that_is_something_is_left_out() {
        assert_eq!(column(&[('█', 30), ('░', 50)], (0, 100), 10), "███░░     ");
        assert_eq!(column(&[('█', 50)], (0, 100), 4), "██  ");
        assert_eq!(column(&[('█', 55)], (0, 100), 4), "██▂ ");
        assert_eq!(column(&[('█', 1)], (0, 100_000), 4), "▁   ");
        assert_eq!(column(&[('▒', 1)], (0, 100_000), 4), "▒   ");
        assert_eq!(column(&[('█', 0)], (0, 100), 4), "    ");
        assert_eq!(column(&[('█', 75)], (50, 100), 4), "██  ", "a scale that begins above nothing");
        assert_eq!(column(&[('█', u64::MAX)], (0, 1), 2), "██");
    }

    #[test]
    fn a_sample_holds_for_a_while_and_not_for_ever() {
        let samples = [(10 * SECOND, 5), (11 * SECOND, 9), (30 * SECOND, 7)];
        let at = |second: u64| held(&samples, (second - 1) * SECOND, second * SECOND, SAMPLED);
        assert_eq!(
            [at(9), at(10), at(11), at(15), at(17), at(30)],
            [None, Some(5), Some(9), Some(9), None, Some(7)]
        );
        assert_eq!(held(&samples, 0, 60 * SECOND, SAMPLED), Some(9), "the most of a column");
    }

    #[test]
    fn all_samples_fit_as_long_as_they_can() {
        let chart = chart(&[('█', 1)], (0, 1));
        assert_eq!(chart.step(60 * SECOND, 100), SECOND);
        assert_eq!(chart.step(1_000 * SECOND, 100), 10 * SECOND);
        assert_eq!(chart.step(u64::MAX / 2, 100), 3_600 * SECOND);
        assert_eq!(chart.labels(8), [(0, 1), (4, 0), (7, 0)]);
        assert_eq!(chart.labels(1), [(0, 1)]);
    }
}
