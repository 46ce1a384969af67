//! The memory of the process and of its devices over time, as charts.

use super::super::canvas::Canvas;
use super::super::chart::{Chart, Layer, SAMPLED};
use super::super::text::cut_end;
use super::super::theme::Role;
use super::super::{Cx, kind_letter, memory, units};
use crate::model::snapshot::{Device, MemoryOverTime, Process};
use gtop_protocol::Kind;
use ratatui::layout::Rect;

/// The fewest cells and lines of a chart, and from so many lines on there are rather two rows.
const WIDE: usize = 56;
const HIGH: u16 = 8;
const HIGHEST: usize = 36;
/// The least that the scale of changes spans, bytes.
const SPAN: u64 = 16 << 20;

/// Draws as many charts as there is room for.
pub(super) fn draw(cx: &Cx<'_>, process: &Process, area: Rect, canvas: &mut Canvas<'_>) {
    let charts = charts(cx, process);
    // Rather two rows of wide charts than one of very high ones.
    let rows = usize::from(area.height).div_ceil(HIGHEST).clamp(1, charts.len().max(1));
    let beside = (usize::from(area.width) / WIDE).clamp(1, charts.len().div_ceil(rows).max(1));
    let rows = charts.len().div_ceil(beside).min(usize::from(area.height / HIGH));
    if rows == 0 || area.width < WIDE as u16 / 2 {
        return;
    }
    let (wide, high) = (area.width / beside as u16, area.height / rows as u16);
    for (i, chart) in charts.iter().take(rows * beside).enumerate() {
        let (row, column) = ((i / beside) as u16, (i % beside) as u16);
        let gap = u16::from(usize::from(column) + 1 < beside);
        let place = Rect {
            x: area.x + column * wide,
            y: area.y + row * high,
            width: wide.saturating_sub(2 * gap),
            height: high,
        };
        chart.draw(cx, cx.snapshot.time, place, canvas);
    }
}

/// The charts that tell most first: what is accounted for, how it changes, and each device.
fn charts(cx: &Cx<'_>, process: &Process) -> Vec<Chart> {
    let mut charts = Vec::new();
    charts.extend(explained(cx, process));
    charts.extend(change(process));
    let (own, other): (Vec<&Device>, Vec<&Device>) =
        cx.snapshot.devices.iter().partition(|device| over_time(process, device.index).is_some());
    charts.extend(own.into_iter().chain(other).filter_map(|device| of_device(process, device)));
    charts
}

fn over_time(process: &Process, device: u32) -> Option<&MemoryOverTime> {
    process.memory_over_time.iter().find(|of| of.device == device)
}

/// Its memory on all devices over time, by the samples of the first of them.
fn together(process: &Process) -> Vec<(u64, u64)> {
    /// Devices are sampled one after the other, nanoseconds.
    const TOGETHER: u64 = 500_000_000;
    let Some((first, others)) = process.memory_over_time.split_first() else { return Vec::new() };
    let of = |other: &MemoryOverTime, time: u64| {
        let after = other.samples.partition_point(|(at, _)| *at <= time.saturating_add(TOGETHER));
        after.checked_sub(1).map(|at| other.samples[at].1)
    };
    let sum = |&(time, bytes): &(u64, u64)| {
        let sum = others.iter().try_fold(bytes, |sum, other| sum.checked_add(of(other, time)?))?;
        Some((time, sum))
    };
    first.samples.iter().filter_map(sum).collect()
}

fn peak(samples: &[(u64, u64)]) -> u64 {
    samples.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
}

/// What NVML says, and how much of it is accounted for.
fn explained(cx: &Cx<'_>, process: &Process) -> Option<Chart> {
    let all = together(process);
    let explained = process.explained_over_time.to_vec();
    let name = cut_end(&process.identity.name, 20);
    let top = peak(&all).max(peak(&explained));
    if all.is_empty() {
        return None;
    }
    let sum = |sign, role, samples| Layer { sign, role, samples };
    let (title, layers) = if explained.is_empty() {
        let why = if process.kinds.enabled.has(Kind::Memory) {
            "no allocation seen yet".to_owned()
        } else if cx.can_ask() {
            format!("allocations are not recorded (t {})", kind_letter(Kind::Memory))
        } else {
            "allocations were not recorded".to_owned()
        };
        (format!("{name} by NVML  ▒ not told apart: {why}"), vec![sum('▒', Role::Plain, all)])
    } else {
        let title = format!("{name} by NVML  █ accounted for  ▒ not explained");
        (title, vec![sum('█', Role::Good, explained), sum('▒', Role::Plain, all)])
    };
    Some(Chart { title, layers, scale: (0, top.max(1)), words: units::bytes, holds: SAMPLED })
}

/// How its memory changes, on a scale that does not begin at nothing.
fn change(process: &Process) -> Option<Chart> {
    let samples = together(process);
    let (least, most) = (samples.iter().map(|(_, bytes)| *bytes).min()?, peak(&samples));
    let spare = (SPAN.saturating_sub(most - least) / 2).max((most - least) / 8);
    let name = cut_end(&process.identity.name, 20);
    let changed = match most - least {
        0 => "no change".to_owned(),
        bytes => format!("from {} to {}", units::mib(least), units::mib(least.saturating_add(bytes))),
    };
    let title = format!("{name}: {changed}, scale not from 0");
    let layers = vec![Layer { sign: '█', role: Role::Good, samples }];
    Some(Chart {
        title,
        layers,
        scale: (least.saturating_sub(spare), most.saturating_add(spare)),
        words: units::mib,
        holds: SAMPLED,
    })
}

/// What is in use of a device, and how much of it by the process.
fn of_device(process: &Process, device: &Device) -> Option<Chart> {
    let all = device.history.to_vec();
    let top = device.memory_total.unwrap_or_else(|| peak(&all));
    if all.is_empty() {
        return None;
    }
    let name = memory::device_name(device);
    let rest = Layer { sign: '░', role: Role::Dim, samples: all };
    let (title, layers) = match over_time(process, device.index) {
        Some(own) => {
            let own = Layer { sign: '█', role: Role::Good, samples: own.samples.to_vec() };
            let process = cut_end(&process.identity.name, 20);
            (format!("{name}  █ {process}  ░ everything else in use"), vec![own, rest])
        }
        None => (format!("{name}  ░ in use"), vec![rest]),
    };
    Some(Chart { title, layers, scale: (0, top.max(1)), words: units::bytes, holds: SAMPLED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_several_devices_is_added_up_where_all_are_known() {
        const SECOND: u64 = 1_000_000_000;
        let of = |device, samples: &[(u64, u64)]| MemoryOverTime { device, samples: samples.into() };
        let first = of(0, &[(SECOND, 5), (2 * SECOND, 6), (3 * SECOND, 7)]);
        let second = of(1, &[(2 * SECOND + 1_000, 100), (3 * SECOND + 1_000, 200)]);
        let process = Process { memory_over_time: vec![first, second], ..Process::default() };
        assert_eq!(together(&process), [(2 * SECOND, 106), (3 * SECOND, 207)]);
        let chart = change(&process).unwrap();
        assert_eq!(chart.scale, (0, 207 + (SPAN - 101) / 2), "it does not go below nothing");
    }
}
