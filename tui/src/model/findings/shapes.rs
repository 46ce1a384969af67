//! A new executable graph for every new shape, for as long as requests come.

use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::view::units::count;

/// Moments with instantiations after the first launch, a second apart at least, beyond which it is said.
const TOLERATED: usize = 8;
/// It is over when nothing was instantiated for this long.
const OVER: u64 = 120 * SECOND;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(first) = facts.work.graphs.first_launch() else { return Vec::new() };
    let made: Vec<(u64, u32)> = facts.lifecycle.execs.instantiated_since(first).copied().collect();
    judge(&made, facts.now).map_or_else(Vec::new, |(since, moments, a_minute)| {
        let mut sizes: Vec<u32> = made.iter().map(|(_, nodes)| *nodes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let shapes: Vec<String> = sizes.iter().take(12).map(u32::to_string).collect();
        let more = if sizes.len() > 12 { ", …" } else { "" };
        let finding = found(
            "graph_for_every_shape",
            Severity::Warning,
            since,
            format!("graphs are instantiated while requests are served: {} since the first launch, {a_minute:.1} a minute", count(made.len() as u64)),
            "Capture a fixed set of shapes at start and pad to the next one, or update one executable graph.",
        );
        vec![
            finding
                .with(format!("at {moments} different moments"))
                .with(format!("{} different numbers of nodes: {}{more}", sizes.len(), shapes.join(", "))),
        ]
    })
}

/// Since when, at how many moments, and how many a minute; `None` while it is nothing to be said.
pub(super) fn judge(made: &[(u64, u32)], now: u64) -> Option<(u64, usize, f64)> {
    let (mut moments, mut last) = (0, 0u64);
    for (time, _) in made {
        if moments == 0 || time.saturating_sub(last) >= SECOND {
            moments += 1;
        }
        last = *time;
    }
    let since = made.first()?.0;
    let minutes = last.saturating_sub(since) as f64 / (60.0 * SECOND as f64);
    let rate = made.len() as f64 / minutes.max(1.0 / 60.0);
    (moments > TOLERATED && now.saturating_sub(last) < OVER).then_some((since, moments, rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninth_shape_is_one_too_many() {
        let made: Vec<(u64, u32)> = (0..50).map(|i| (i * 12 * SECOND, 30 + i as u32)).collect();
        assert_eq!(judge(&made[..8], 96 * SECOND), None);
        let (since, moments, a_minute) = judge(&made[..9], 97 * SECOND).unwrap();
        assert_eq!((since, moments), (0, 9));
        assert!((5.0..6.0).contains(&a_minute));
        assert_eq!(judge(&made, 50 * 12 * SECOND + OVER), None);
    }

    #[test]
    fn many_at_once_are_a_warm_up() {
        let made: Vec<(u64, u32)> = (0..486).map(|i| (SECOND + i * 1_000_000, 30)).collect();
        assert_eq!(judge(&made, 2 * SECOND), None);
    }
}
