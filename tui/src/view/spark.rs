//! Small graphs made of characters: sparklines and bars.

use super::text::{left, right};

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// The last `cells` values, `peak` being the full height. Something is never drawn as nothing.
pub(super) fn sparkline(values: impl DoubleEndedIterator<Item = f64>, peak: f64, cells: usize) -> String {
    let mut bars: Vec<char> = values
        .rev()
        .take(cells)
        .map(|value| {
            let part = if peak > 0.0 { (value / peak).clamp(0.0, 1.0) } else { 0.0 };
            if part > 0.0 { STEPS[((part * 8.0) as usize).min(7)] } else { ' ' }
        })
        .collect();
    bars.reverse();
    right(&bars.into_iter().collect::<String>(), cells)
}

/// A share of 1 as a bar of `cells` cells, exact to an eighth of a cell.
pub(super) fn bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let eighths = eighths.max(usize::from(share > 0.0));
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    left(&bar, cells)
}

/// A share of 1 as a gauge whose empty part is seen. Something in use is never drawn as nothing, and something left
/// never as full.
pub(super) fn gauge(share: f64, cells: usize) -> String {
    let full = ((share * cells as f64).round() as usize).min(cells);
    let full = if share > 0.0 { full.max(1) } else { 0 };
    let full = if share < 1.0 { full.min(cells.saturating_sub(1)) } else { full };
    "█".repeat(full.min(cells)) + &"░".repeat(cells - full.min(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_last_values_against_the_peak() {
        let line = |values: &[f64], peak| sparkline(values.iter().copied(), peak, 8);
        assert_eq!(line(&[], 1.0), "        ");
        assert_eq!(line(&[0.0, 0.1, 0.5, 1.0], 1.0), "     ▁▅█");
        assert_eq!(line(&[f64::NAN; 9], 0.0), "        ");
        assert_eq!(line(&[1.0; 20], 1.0), "████████");
    }

    #[test]
    fn a_bar_is_exact_to_an_eighth_and_never_hides_a_process() {
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(0.0001, 4), "▏   ");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.55, 4), "██▎ ");
        assert_eq!(bar(7.0, 4), "████");
    }

    #[test]
    fn a_gauge_never_rounds_a_little_to_nothing_or_nearly_full_to_full() {
        assert_eq!(gauge(0.0, 4), "░░░░");
        assert_eq!(gauge(0.001, 4), "█░░░");
        assert_eq!(gauge(0.999, 4), "███░");
        assert_eq!(gauge(1.0, 4), "████");
        assert_eq!(gauge(0.5, 0), "");
    }
}
