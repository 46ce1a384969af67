//! What stands beside a lane: its name, and how busy it was.

use gtop_protocol::record::direction_name;

use super::super::sampled::{self, Sampled};
use super::super::scale::Window;
use super::super::text::cut_end;
use super::super::untraced::Traced;
use super::super::{Cx, Kept, ViewState, units};
use crate::model::snapshot::{Lane, LaneKey, Process};

/// A lane's name: what is the same for all lanes is left out.
pub(super) fn name(process: &Process, key: LaneKey) -> String {
    let device_of = |key: LaneKey| match key {
        LaneKey::Stream { device, .. }
        | LaneKey::Copy { device, .. }
        | LaneKey::Memset { device }
        | LaneKey::Graphs { device, .. } => device,
    };
    let context_of = |key: LaneKey| match key {
        LaneKey::Stream { context, .. } | LaneKey::Graphs { context, .. } => Some(context),
        LaneKey::Copy { .. } | LaneKey::Memset { .. } => None,
    };
    let device = device_of(key);
    let several_devices = process.lanes.iter().any(|lane| device_of(lane.key) != device);
    let several_contexts =
        |context| process.lanes.iter().filter_map(|lane| context_of(lane.key)).any(|other| other != context);
    let on = if several_devices { format!("#{device} ") } else { String::new() };
    let within = match context_of(key) {
        Some(context) if several_contexts(context) => format!("c{context} "),
        _ => String::new(),
    };
    let what = match key {
        LaneKey::Stream { stream, .. } => format!("s{stream}"),
        LaneKey::Copy { direction, .. } => format!("copy {}", direction_name(direction)),
        LaneKey::Memset { .. } => "memset".to_owned(),
        LaneKey::Graphs { stream, .. } => format!("graphs s{stream}"),
    };
    on + &within + &what
}

/// The name of a lane for a heading.
pub(in super::super) fn title(process: &Process, lane: &Lane) -> String {
    cut_end(&name(process, lane.key), 40)
}

/// Over what the numbers at the right of the lanes are taken: what is shown, or while it is followed at least a
/// second, so that they can be read.
pub(super) fn measured(cx: &Cx<'_>, window: Window, newest: u64) -> (u64, u64) {
    match cx.state.timeline.held {
        Some(_) => (window.left, window.right),
        None => (window.left.min(newest.saturating_sub(1_000_000_000)), newest),
    }
}

/// The busy share of a lane; for graph launches how many there were a second. What was traced in windows is told from
/// them; where records were lost, or came with times that cannot be believed, it is at least what is said.
pub(super) fn at_right(cx: &Cx<'_>, process: &Process, lane: &Lane, (from, to): (u64, u64)) -> String {
    // Not before the lane began or everything was put in, or it would seem idle in the first second.
    let first = lane.slices.span().map_or(0, |(first, _)| first);
    let from = from.max(first).max(if lane.since < to { lane.since } else { 0 });
    let traced = Traced::of(process, lane);
    let (all, seen) = (to.saturating_sub(from), traced.traced(from, to));
    let lost = traced.seen(from, to) < seen;
    let nanoseconds = seen.max(1) as f64;
    let kept = || Kept::new(process, cx.state, lane).raster(from, to, 1).first().copied().unwrap_or_default();
    let graphs = matches!(lane.key, LaneKey::Graphs { .. });
    let filters = !cx.state.filter.is_empty();
    if seen == 0 && all > 0 {
        return "?".to_owned();
    }
    if let Some(sampled) = Sampled::of(process, lane.key).filter(|sampled| sampled.seen(from, to) < all) {
        // The filter does not tell what it would keep of what was not seen.
        return match sampled.launches(lane, to).filter(|_| graphs) {
            _ if filters => "?".to_owned(),
            Some(launches) => sampled::about(launches, |rate| format!("{}/s", units::glance(rate))),
            None if graphs => "?".to_owned(),
            None => sampled::share(sampled.busy(lane, to)),
        };
    }
    let doubtful = lost || is_doubtful(process, lane.key, (from, to));
    let none = (doubtful || filters) && kept().count == 0;
    if doubtful && none {
        return "?".to_owned();
    }
    // Not idle: what ran is not what the filter keeps.
    let known = lane.slices.kept_from().is_none_or(|kept| kept <= from);
    if none && known && lane.slices.covered(from, to) > 0 {
        return "filtered".to_owned();
    }
    let number = if graphs {
        let ran = kept().count;
        let begun = ran.saturating_sub(began_before(process, cx.state, lane, from).into());
        match begun {
            // A rate would be made of less than two.
            0 if ran > 0 && !doubtful => "runs".to_owned(),
            1 if seen < 1_000_000_000 && !doubtful => "once".to_owned(),
            _ => format!("{}/s", units::glance(f64::from(begun) / nanoseconds * 1e9)),
        }
    } else if filters {
        units::percent(f64::from(kept().busy) * all as f64 / nanoseconds)
    } else {
        units::percent(lane.slices.covered(from, to) as f64 / nanoseconds)
    };
    match number.strip_prefix('<') {
        _ if !doubtful => number,
        // Something ran, and how much more is not known.
        Some(_) => ">0 %".to_owned(),
        None => format!("≥{number}"),
    }
}

/// Whether a launch runs on from before `from`.
fn began_before(process: &Process, state: &ViewState, lane: &Lane, from: u64) -> bool {
    let runs = lane.slices.at(from).filter(|launch| launch.start < from);
    runs.is_some_and(|launch| Kept::new(process, state, lane).keeps(&launch))
}

/// Whether records of a lane's kind came in this time whose own times cannot be believed: they ran somewhere.
pub(in super::super) fn is_doubtful(process: &Process, lane: LaneKey, (from, to): (u64, u64)) -> bool {
    let kind = match lane {
        LaneKey::Stream { .. } | LaneKey::Graphs { .. } => 0,
        LaneKey::Copy { .. } => 1,
        LaneKey::Memset { .. } => 2,
    };
    let [_, invalid] = process.validity.kinds[kind].total;
    let mut spots = process.invalid_at.iter().rev().skip_while(|spot| spot.time > to);
    invalid > 0 && spots.next().is_some_and(|spot| spot.time >= from)
}
