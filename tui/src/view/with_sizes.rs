//! No size of the terminal breaks the screen, whatever is on it.

use ratatui::layout::{Rect, Size};

use super::tests::state;
use super::*;
use crate::input::{BINDINGS, Key, press};

/// Every snapshot with something unusual about it.
fn all_snapshots() -> Vec<Snapshot> {
    vec![
        fixture::vllm(),
        fixture::exhausted(),
        fixture::leaking(),
        fixture::doubtful(),
        fixture::busy(),
        fixture::nothing(),
        fixture::no_nvml(),
        fixture::eight(),
        fixture::crowd(0),
        fixture::crowd(8),
        fixture::lost(),
    ]
}

fn assert_inside(seen: &Seen, area: Rect) {
    for (pane, rect) in &seen.panes {
        assert_eq!(rect.intersection(area), *rect, "{pane:?} leaves {area:?}");
    }
    for (i, (pane, rect)) in seen.panes.iter().enumerate() {
        for (other, with) in &seen.panes[i + 1..] {
            assert!(rect.intersection(*with).is_empty(), "{pane:?} overlaps {other:?} in {area:?}");
        }
    }
}

/// Draws every `step`th of all sizes up to 300×100 with up to sixteen devices.
fn sweep(step: usize) {
    const SIZES: usize = 300 * 100;
    let crowds: Vec<Snapshot> = (0..=16)
        .map(|devices| {
            let mut snapshot = fixture::crowd(devices);
            for lane in &mut snapshot.processes[0].lanes {
                lane.slices = crate::model::slices::Slices::default();
            }
            snapshot
        })
        .collect();
    for at in (0..crowds.len() * SIZES).step_by(step) {
        let (width, height) = ((at % 300 + 1) as u16, (at / 300 % 100 + 1) as u16);
        let (_, seen) = render(&crowds[at / SIZES], &state(), Size::new(width, height));
        assert_inside(&seen, Rect::new(0, 0, width, height));
    }
}

#[test]
#[ignore = "half a million frames; takes minutes"]
fn no_size_breaks_the_layout() {
    sweep(1);
}

#[test]
fn no_size_breaks_the_layout_whatever_the_number_of_devices() {
    // A prime, so that every width, every height and every number of devices is among them.
    sweep(251);
    for (width, height) in [(184, 39), (189, 34), (189, 26)] {
        let (_, seen) = render(&fixture::crowd(8), &state(), Size::new(width, height));
        assert_eq!(seen.panes.len(), if height > 30 { 5 } else { 4 });
        assert_inside(&seen, Rect::new(0, 0, width, height));
    }
}

#[test]
fn resizing_at_random_between_frames_breaks_nothing() {
    let snapshots = all_snapshots();
    let sizes = [(0, 0), (1, 1), (132, 39), (172, 18), (40, 10), (300, 100)];
    let all_keys: Vec<&str> = BINDINGS.iter().flat_map(|binding| binding.keys).copied().collect();
    let mut state = state();
    let mut dice = 7_u64;
    let mut roll = |bound: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % bound
    };
    for round in 0..10_000 {
        // Small screens mostly: they are where sums go below nothing.
        let (width, height) = match roll(10) {
            0 => sizes[roll(sizes.len())],
            1 => (roll(300), roll(100)),
            _ => (roll(70), roll(28)),
        };
        let snapshot = &snapshots[(round / 50) % snapshots.len()];
        let (_, seen) = render(snapshot, &state, Size::new(width as u16, height as u16));
        assert_inside(&seen, Rect::new(0, 0, width as u16, height as u16));
        state.seen = seen;
        state.theme = [Theme::DARK, Theme::MONO, Theme::ASCII][roll(3)];
        for key in all_keys[roll(all_keys.len())].split(' ') {
            press(Key::parse(key).unwrap(), &mut state, snapshot);
        }
    }
}
