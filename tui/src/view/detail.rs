//! What is selected, in full, for the box that Enter opens.

use gtop_protocol::Validity;

use super::scale::{newest, newest_known};
use super::state::{Pane, ViewState};
use super::subjects::Printed;
use super::{
    Group, Kept, Row, findings, graphs, lanes, rows, selected, stretch, timeline, under_cursor, units,
};
use crate::input::Action;
use crate::model::slices::Slice;
use crate::model::snapshot::{Detail, Device, KernelRow, LaneKey, Process, Snapshot, Spot};

/// Title and lines on what is selected in the pane with the keys; `None` when nothing is.
pub(crate) fn detail(state: &ViewState, snapshot: &Snapshot) -> Option<(String, Vec<String>)> {
    let process = state.process(snapshot);
    match state.focus {
        Pane::Kernels => {
            let rows = rows(process?, state);
            let row = rows.get(selected(&rows, state.kernel))?;
            let (title, mut lines) = self::row(state, row);
            if state.group == Group::Kernel {
                lines.extend(last(state, process?, row.stats.id));
            }
            Some((title, lines))
        }
        Pane::Timeline => match stretch::chosen(process?, state) {
            Some(lines) => Some(("Chosen stretch".to_owned(), lines)),
            None => record(state, process?),
        },
        Pane::Graphs => graphs::detail(process?, state),
        Pane::Trust => Some(("Trust".to_owned(), trust(process?))),
        Pane::Memory => {
            let lines: Vec<String> = snapshot.devices.iter().flat_map(device).collect();
            (!lines.is_empty()).then(|| ("Devices".to_owned(), lines))
        }
        Pane::Events => {
            if let Some(finding) = findings::selected(state, process) {
                return Some(findings::detail(finding, state));
            }
            let before = findings::before(state, process);
            let events: Vec<_> = snapshot.events.iter().filter(|event| state.filter.keeps(*event)).collect();
            let last = events.len().checked_sub(1)?;
            let at = state.scroll[Pane::Events as usize].saturating_sub(before);
            let event = events.get(last - at.min(last))?;
            let who = event.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
            let title = format!("{} {}{who}", units::clock(event.time, &state.zone), event.topic);
            Some((title, vec![event.text.clone()]))
        }
        Pane::Output => {
            let output = snapshot.output.as_ref()?;
            let keeps = |line: &&String| state.filter.keeps(&Printed(line));
            let lines: Vec<_> = output.lines.iter().filter(keeps).collect();
            let last = lines.len().checked_sub(1)?;
            let line = lines.get(last - state.scroll[Pane::Output as usize].min(last))?;
            Some((output.path.clone(), vec![(*line).clone()]))
        }
    }
}

/// Title and lines on a row of the kernels.
pub(super) fn row(state: &ViewState, row: &Row<'_>) -> (String, Vec<String>) {
    let title = match state.group {
        Group::Kernel => format!("Kernel {}", row.stats.id),
        Group::Graph => "Graph".to_owned(),
        Group::Template | Group::Family => units::some(row.members, "kernel"),
    };
    let mut lines = kernel(&row.stats);
    if state.group == Group::Kernel {
        lines.insert(2, format!("family {}", state.families.of(&row.stats.name)));
    }
    if let Some((baseline, change)) =
        state.baseline.as_ref().and_then(|baseline| Some((baseline, row.change(baseline)?)))
    {
        let word = if baseline.earlier { "since" } else { "against" };
        lines.push(format!("{word} {}: {} a call", baseline.label, units::change(change)));
    }
    (title, lines)
}

fn kernel(row: &KernelRow) -> Vec<String> {
    let mut lines = vec![
        row.name.full.clone(),
        String::new(),
        format!(
            "calls {}   {}/s   invalid {}",
            units::count(row.calls),
            row.rate().map_or_else(|| "?".to_owned(), units::glance),
            units::count(row.invalid)
        ),
    ];
    if row.calls > 0 {
        lines.push(format!("share {}   total {}", units::percent(row.share), units::duration(row.total_ns)));
        lines.push(format!(
            "min {}   p50 {}   p99 {}   max {}",
            units::duration(row.min_ns),
            units::duration(row.p50_ns),
            units::duration(row.p99_ns),
            units::duration(row.max_ns)
        ));
    }
    if row.overlong > 0 {
        lines.push(format!(
            "suspect: {} ran past others inside of them on their stream; their ends came late",
            units::some(usize::try_from(row.overlong).unwrap_or(usize::MAX), "record")
        ));
    }
    if row.name.mangled != row.name.full {
        lines.extend([String::new(), format!("mangled {}", row.name.mangled)]);
    }
    lines
}

/// The last record of a kernel that is kept, and on which lane.
pub(crate) fn last_of(process: &Process, kernel: u32) -> Option<(LaneKey, Slice)> {
    /// Records of a lane that are looked at.
    const LOOK: usize = 50_000;
    let is_it =
        |slice: &&Slice| process.details.get(slice.detail).is_some_and(|detail| detail.name_id == kernel);
    let streams = process.lanes.iter().filter(|lane| matches!(lane.key, LaneKey::Stream { .. }));
    streams
        .filter_map(|lane| Some((lane.key, *lane.slices.iter().rev().take(LOOK).find(is_it)?)))
        .max_by_key(|(_, slice)| slice.start)
}

/// What there is to say of it.
fn last(state: &ViewState, process: &Process, kernel: u32) -> Vec<String> {
    let known = last_of(process, kernel)
        .and_then(|(lane, slice)| Some((lane, slice, process.details.get(slice.detail)?)));
    let Some((lane, slice, detail)) = known else {
        return vec![String::new(), "no record of it is among those kept last".to_owned()];
    };
    let lane = process.lanes.iter().find(|of| of.key == lane);
    let key = state.keymap.key_of(Action::ShowKernel);
    let mut lines = vec![
        String::new(),
        format!(
            "the last record: {} on {}, {} ago{}",
            units::duration(slice.end - slice.start),
            lane.map_or_else(String::new, |lane| timeline::lane_title(process, lane)),
            units::duration(newest_known(process).saturating_sub(slice.start)),
            key.map_or_else(String::new, |key| format!(" ({key} goes there)")),
        ),
    ];
    lines.extend(launched(detail));
    lines
}

/// How it was launched, or what was moved; and by which graph.
fn launched(detail: &Detail) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(bytes) = detail.bytes {
        lines.push(format!("{} ({bytes} B)", units::bytes(bytes)));
    } else {
        lines.push(format!(
            "grid {}   block {}{}",
            under_cursor::dimensions(detail.grid),
            under_cursor::dimensions(detail.block),
            if detail.cluster == [0; 3] {
                String::new()
            } else {
                format!("   cluster {}", under_cursor::dimensions(detail.cluster))
            }
        ));
        lines.push(format!(
            "registers {} a thread   shared memory {} static, {} dynamic",
            detail.registers,
            units::bytes(u64::from(detail.shared[0])),
            units::bytes(u64::from(detail.shared[1]))
        ));
    }
    lines.push(if detail.graph > 0 {
        format!("executable graph {}   node {}", detail.graph, detail.node_index())
    } else {
        "outside graphs".to_owned()
    });
    lines
}

/// Records with bad times that came in a column, which are on no lane.
fn unbelieved(process: &Process, (from, to): (u64, u64)) -> Option<Vec<String>> {
    let here: Vec<&Spot> = process.invalid_at.iter().filter(|spot| (from..to).contains(&spot.time)).collect();
    let spot = here.first()?;
    let first = spot.first;
    let row = first.name.and_then(|name| process.kernels.iter().find(|row| row.id == name));
    let count: u64 = here.iter().map(|spot| spot.count).sum();
    let class = Validity::from_wire(spot.class).map_or("unknown class", Validity::name);
    Some(vec![
        row.map_or_else(|| "a copy or a memory set".to_owned(), |row| row.name.full.clone()),
        String::new(),
        format!(
            "class {}   start {}   end {}, as CUPTI delivered it",
            class.replace('_', " "),
            first.start,
            first.end
        ),
        format!(
            "stream {}   {}",
            first.stream,
            if first.graph > 0 {
                format!("executable graph {}", first.graph)
            } else {
                "outside graphs".to_owned()
            }
        ),
        format!(
            "the first of {} with bad times that came here; when they ran is not known, so they are on no lane",
            units::some(usize::try_from(count).unwrap_or(usize::MAX), "record")
        ),
    ])
}

pub(super) fn record(state: &ViewState, process: &Process) -> Option<(String, Vec<String>)> {
    let shown = lanes(process, state);
    let lane = *shown.get(state.timeline.lane.min(shown.len().saturating_sub(1)))?;
    let columns = state.seen.columns;
    let window = state.timeline.window(newest(process), columns);
    if let Some(lines) = unbelieved(process, window.column(state.timeline.cursor(columns))) {
        return Some(("a record with bad times".to_owned(), lines));
    }
    let under_cursor::Found::Running(slice, _) = under_cursor::find(
        &mut Kept::new(process, state, lane),
        process,
        window.column(state.timeline.cursor(columns)),
    ) else {
        return None;
    };
    let detail = process.details.get(slice.detail)?;
    let length = slice.end - slice.start;
    let exactly = if length < 1_000 { String::new() } else { format!(" ({} ns)", units::count(length)) };
    let mut lines = vec![
        detail.name.short.clone(),
        String::new(),
        format!("duration {}{exactly}", units::duration(length)),
        format!(
            "start {} ns, {} before the newest record",
            slice.start,
            units::duration(newest_known(process).saturating_sub(slice.start))
        ),
        format!("correlation {} (low 32 bits)   timestamps valid", slice.correlation),
    ];
    lines.extend(launched(detail));
    lines.extend(column(
        process,
        &mut Kept::new(process, state, lane),
        window.column(state.timeline.cursor(columns)),
    ));
    // Names of templates take many lines, so that what is measured comes first.
    if detail.name.full != detail.name.short {
        lines.extend([String::new(), detail.name.full.clone()]);
    }
    Some((timeline::lane_title(process, lane), lines))
}

/// What one column of a lane stands for: how much of it is covered, by how many records, and the longest of them.
fn column(process: &Process, kept: &mut Kept<'_>, (from, to): (u64, u64)) -> Vec<String> {
    /// Records that are looked at.
    const LOOK: usize = 20_000;
    let cell = kept.raster(from, to, 1).first().copied().unwrap_or_default();
    if cell.count < 2 {
        return Vec::new();
    }
    let lane = kept.lane;
    let inside: Vec<_> =
        lane.slices.touching(from, to).take(LOOK).filter(|slice| kept.keeps(slice)).collect();
    let mut names: Vec<u32> =
        inside.iter().filter_map(|slice| Some(process.details.get(slice.detail)?.name_id)).collect();
    names.sort_unstable();
    names.dedup();
    let longest = inside.iter().max_by_key(|slice| slice.end - slice.start);
    let known = longest.and_then(|slice| Some((slice, process.details.get(slice.detail)?)));
    let mut lines = vec![format!(
        "this column of {} is covered {} by {} of {}",
        units::duration(to - from),
        units::percent(f64::from(cell.busy)),
        units::some(cell.count as usize, "record"),
        units::some(names.len(), "name"),
    )];
    if let Some((slice, detail)) = known {
        let length = units::duration(slice.end - slice.start);
        lines.push(format!("the longest of them: {length}  {}", detail.name.short));
    }
    lines
}

fn trust(process: &Process) -> Vec<String> {
    let mut lines: Vec<String> = Validity::ALL
        .into_iter()
        .map(|class| {
            let [_, _, minute] = process.validity.windows;
            format!(
                "{:<14} {:>16} in all   {:>12} in 60 s",
                class.name().replace('_', " "),
                units::count(process.validity.total[class as usize]),
                units::count(minute[class as usize])
            )
        })
        .collect();
    if let Some(first) = &process.validity.first_invalid {
        lines.extend([
            String::new(),
            format!(
                "first invalid: kernel record {} ({})",
                units::maybe_count(first.index),
                first.class.name()
            ),
            format!("start {}   end {}", first.start, first.end),
            first.name.clone(),
        ]);
    }
    if let Some(cupti) = &process.cupti {
        let interface = match cupti.interface {
            0 => "not subscribed to".to_owned(),
            interface => format!("interface v{interface}"),
        };
        lines.extend([
            String::new(),
            format!("CUPTI {} (version {}), {interface}", cupti.version, cupti.version.0),
            cupti.reason.to_owned(),
            cupti.path.clone(),
        ]);
    }
    if let Some(buffers) = &process.host_buffers {
        lines.extend([
            String::new(),
            format!(
                "host buffers of {}: {} out, {} completed, {} reserved, {} discarded",
                units::bytes(buffers.size),
                buffers.outstanding,
                units::count(buffers.completed),
                units::bytes(buffers.bytes),
                buffers.discarded
            ),
        ]);
    }
    lines
}

fn device(device: &Device) -> Vec<String> {
    let maybe = |value: Option<u64>, unit: &str| {
        value.map_or_else(|| format!("? {unit}"), |value| format!("{} {unit}", units::count(value)))
    };
    let kbs = |value: Option<u64>| {
        value.map_or_else(|| "?".to_owned(), |kb| format!("{}/s", units::bytes(kb * 1000)))
    };
    let throttle = if device.throttle.is_empty() { "none".to_owned() } else { device.throttle.join(", ") };
    vec![
        format!("#{} {}   {}", device.index, device.name, device.uuid),
        format!(
            "memory {} used, {} reserved, {} in all",
            device.memory_used.map_or_else(|| "?".to_owned(), units::bytes),
            device.memory_reserved.map_or_else(|| "?".to_owned(), units::bytes),
            device.memory_total.map_or_else(|| "?".to_owned(), units::bytes)
        ),
        format!(
            "busy {}   {}   SM {}   memory {}   {}",
            maybe(device.gpu_percent, "%"),
            device.watts.map_or_else(|| "? W".to_owned(), |watts| format!("{watts:.0} W")),
            maybe(device.sm_mhz, "MHz"),
            maybe(device.memory_mhz, "MHz"),
            maybe(device.celsius, "°C"),
        ),
        format!(
            "clocks held down by: {throttle}   uncorrected ECC errors {}",
            maybe(device.ecc_uncorrected, "")
        ),
        format!(
            "PCIe in {} out {}   NVLink in {} out {}",
            kbs(device.pcie_kbs[0]),
            kbs(device.pcie_kbs[1]),
            kbs(device.nvlink_kbs[0]),
            kbs(device.nvlink_kbs[1])
        ),
        format!("sampled {} ago", units::age(device.age)),
        String::new(),
    ]
}
