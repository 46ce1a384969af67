//! Where the GPU memory of the process shown went and how that changed, and which thread launches on which device and
//! context: what the tab of memory says below its rows.

mod over_time;
mod table;

use std::collections::BTreeMap;

use gtop_protocol::Kind;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Part, fit};
use super::state::Pane;
use super::text::{left, right, wrap};
use super::theme::Role;
use super::{Cx, alone, kind_letter, memory, units};
use crate::model::snapshot::{MemoryAccount, Process, Site};

/// Threads with a column of their own.
const THREADS: usize = 8;
/// Cells of such a column.
const COLUMN: usize = 12;
/// From so many rows on the list has a box, which takes so many of them.
const TALL: u16 = 30;
const BOXED: u16 = 8;
/// Libraries that are named.
const SITES: usize = 5;
/// From so many cells on the account is a table and stands beside the rest, and the lines that are then kept for charts.
const ROOMY: usize = 150;
const CHARTS: u16 = 12;

type Section = (&'static str, Vec<Vec<Span<'static>>>);

/// Draws the tab: the rows first, then what they consist of and how that changed as far as there is room.
pub(super) fn draw(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let cells = usize::from(area.width).saturating_sub(2);
    let rest = match cx.process {
        Some(process) if area.height >= TALL && cells >= ROOMY => roomy(cx, process, area, canvas),
        _ => folded(cx, area, canvas),
    };
    if let Some(process) = cx.process {
        let rest = Rect { x: rest.x + 1, width: rest.width.saturating_sub(2), ..rest };
        over_time::draw(cx, process, rest, canvas);
    }
}

/// The account in a few lines; gives what is left.
fn folded(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) -> Rect {
    let cells = usize::from(area.width).saturating_sub(2);
    let mut sections: Vec<Section> = cx.process.map_or_else(Vec::new, |process| {
        vec![
            ("where it went", account(cx, process, cells)),
            ("who launches where", callers(cx, process, cells)),
        ]
    });
    sections.retain(|(_, lines)| !lines.is_empty());
    let rows = (memory::wanted(cx, area.width) as u16).saturating_add(2).min(area.height);
    let mut left = area.height - rows;
    let mut fit = Vec::new();
    for section in sections {
        let height = section.1.len() as u16 + 1;
        if height > left {
            break;
        }
        left -= height;
        fit.push(section);
    }
    // What they consist of stands right below them, and what is left over at the end.
    let least = if area.height >= TALL { BOXED } else { rows };
    let most = (memory::all(cx) as u16).saturating_add(2).max(least);
    let above = if fit.is_empty() { area.height } else { (rows + left).min(most) };
    alone(cx, Pane::Memory, Rect { height: above, ..area }, canvas);
    let below = Rect { y: area.y + above, height: area.height - above, ..area };
    let taken = stack(cx, fit, below, canvas);
    Rect { y: below.y + taken, height: below.height - taken, ..below }
}

/// The account as a table, and beside it who has what of it; gives what is left.
fn roomy(cx: &Cx<'_>, process: &Process, area: Rect, canvas: &mut Canvas<'_>) -> Rect {
    let above = (memory::all(cx) as u16).saturating_add(2).min(area.height / 3);
    alone(cx, Pane::Memory, Rect { height: above, ..area }, canvas);
    let below = Rect { y: area.y + above, height: area.height - above, ..area };
    let half = area.width / 2;
    let (first, second) =
        (Rect { width: half - 1, ..below }, Rect { x: area.x + half, width: area.width - half, ..below });
    let cells = |column: Rect| usize::from(column.width).saturating_sub(2);
    let facts = facts(cx, process).into_iter();
    let facts = facts.map(|text| Part::new(0, vec![cx.theme().span(text, Role::Dim)])).collect();
    let mut account = table::account(cx, process, cells(first));
    account.extend(flow(facts, cells(first)));
    let left = vec![("where it went", account), ("devices", table::devices(cx, cells(first)))];
    let right = vec![
        ("by library", table::sites(cx, process, cells(second))),
        ("what was copied", table::copies(cx, process, cells(second))),
        ("who launches where", callers(cx, process, cells(second))),
    ];
    let most = below.height.saturating_sub(CHARTS);
    let taken = [(left, first), (right, second)].map(|(sections, column)| {
        let sections = sections.into_iter().filter(|(_, lines)| !lines.is_empty()).collect();
        stack(cx, sections, Rect { height: column.height.min(most), ..column }, canvas)
    });
    let taken = (taken[0].max(taken[1]) + 1).min(below.height);
    Rect { y: below.y + taken, height: below.height - taken, ..below }
}

/// Sections one below the other; gives the lines taken. What there is no room for is counted.
fn stack(cx: &Cx<'_>, sections: Vec<Section>, area: Rect, canvas: &mut Canvas<'_>) -> u16 {
    let theme = cx.theme();
    let name = cx.process.map(|process| process.identity.name.as_str()).unwrap_or_default();
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let room = usize::from(area.height);
    let mut row = 0;
    for (title, lines) in sections {
        if row + 2 > room {
            break;
        }
        let title = if title == "devices" { title.to_owned() } else { format!("{name}: {title}") };
        canvas.put(inner, 0, row, &title, theme.style(Role::Strong));
        row += 1;
        let all = lines.len();
        let fits = if all > room - row { room - row - 1 } else { all };
        for spans in lines.into_iter().take(fits) {
            canvas.spans(inner, row, spans);
            row += 1;
        }
        if fits < all {
            let more = format!("… and {}", units::some(all - fits, "more line"));
            canvas.spans(inner, row, vec![theme.span(more, Role::Dim)]);
            row += 1;
        }
    }
    row as u16
}

/// Parts of the memory with the character that stands for each in the bar. Few programs map memory or have pools.
fn parts(account: &MemoryAccount) -> Vec<(char, &'static str, Option<u64>)> {
    let rare = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes > 0);
    let mut parts = vec![('█', "allocated on the device", account.device)];
    if rare(account.pool) {
        parts.push(('▚', "allocated from pools", account.pool));
    }
    if rare(account.mapped) {
        parts.push(('▞', "mapped into virtual addresses", account.mapped));
    }
    parts.extend([
        ('▓', "managed", account.managed),
        ('▒', "reserved for graphs", account.graphs_reserved),
        ('■', "unused in pools", account.pools.map(|[reserved, used]| reserved.saturating_sub(used))),
        ('░', "CUPTI's device buffers", account.cupti),
        ('·', "not explained", account.unexplained.and_then(|bytes| u64::try_from(bytes).ok())),
    ]);
    parts
}

fn account(cx: &Cx<'_>, process: &Process, cells: usize) -> Vec<Vec<Span<'static>>> {
    let theme = cx.theme();
    let account = process.memory_account();
    let Some(used) = account.used else { return sites(cx, process, cells) };
    let parts = parts(&account);
    let mut lines = Vec::new();
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), units::bytes);
    if account.unexplained.is_some() {
        lines.push(vec![theme.span(stacked(&parts, used, cells.min(100)), Role::Good)]);
    }
    let named = parts.iter().map(|(sign, what, bytes)| {
        let role = if bytes.is_some() { Role::Plain } else { Role::Dim };
        Part::new(0, vec![theme.span(format!("{sign} {what} {}", size(*bytes)), role)])
    });
    let total = Part::new(0, vec![theme.span(format!("{} by NVML:", units::bytes(used)), Role::Strong)]);
    lines.extend(flow(std::iter::once(total).chain(named).collect(), cells));
    let of = |[reserved, used]: [u64; 2]| {
        format!("{} reserved, {} in use", units::bytes(reserved), units::bytes(used))
    };
    let mut more = Vec::new();
    let graphs = account.graphs_reserved.zip(account.graphs_used);
    more.extend(graphs.map(|(reserved, used)| format!("graphs: {}", of([reserved, used]))));
    more.extend(account.pools.map(|both| format!("memory pools: {}", of(both))));
    more.extend(account.pinned.map(|bytes| format!("pinned on the host {}", units::bytes(bytes))));
    more.extend(facts(cx, process));
    more.extend(of_device(cx, process));
    let more = more.into_iter().map(|text| Part::new(0, vec![theme.span(text, Role::Dim)]));
    lines.extend(flow(more.collect(), cells));
    lines.extend(sites(cx, process, cells));
    if account.device.is_none() {
        let text = if process.kinds.enabled.has(Kind::Memory) {
            "nothing was allocated or freed since the kind memory is on; what was allocated before stays unexplained"
                .to_owned()
        } else if !cx.can_ask() {
            "allocations are not told apart: the kind memory was off".to_owned()
        } else {
            format!(
                "allocations are not told apart: the kind memory is off (t {} switches it on; what was allocated before \
                 stays unexplained)",
                kind_letter(Kind::Memory)
            )
        };
        lines.extend(wrap(&text, cells).into_iter().map(|line| vec![theme.span(line, Role::Dim)]));
    }
    lines
}

/// How its memory went, in a few words.
fn facts(cx: &Cx<'_>, process: &Process) -> Vec<String> {
    let Some(course) = process.course else { return Vec::new() };
    let mut facts = vec![
        format!("peak {}", units::bytes(course.peak)),
        format!("baseline {}", units::bytes(course.baseline)),
    ];
    facts.extend(course.per_minute.map(|rate| format!("{}/min", units::grown(rate))));
    facts.extend(full_in(cx, process, course.per_minute.filter(|_| course.goes_on)));
    facts
}

/// What NVML says of the device where the process has most: what the driver keeps for itself, and memory errors.
fn of_device(cx: &Cx<'_>, process: &Process) -> Vec<String> {
    let row = process.gpu_memory.iter().max_by_key(|row| row.used);
    let device = row.and_then(|row| cx.snapshot.devices.iter().find(|device| device.index == row.device));
    let Some(device) = device else { return Vec::new() };
    let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    vec![
        format!("the driver reserves {}", known(device.memory_reserved.map(units::bytes))),
        format!("uncorrected ECC errors {}", known(device.ecc_uncorrected.map(units::count))),
    ]
}

/// Which libraries allocated what is allocated.
fn sites(cx: &Cx<'_>, process: &Process, cells: usize) -> Vec<Vec<Span<'static>>> {
    if process.sites.is_empty() {
        return Vec::new();
    }
    let hidden = process.sites.len().saturating_sub(SITES);
    let of = |site: &Site| {
        let file = site.library.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
        let bytes = if site.gpu > 0 {
            units::bytes(site.gpu)
        } else {
            format!("{} pinned", units::bytes(site.pinned))
        };
        format!("{} {bytes} ({})", file.unwrap_or("unknown"), units::count(site.count))
    };
    let shown = process.sites.iter().take(SITES).map(of);
    let more = (hidden > 0).then(|| format!("+{} more", units::count(hidden as u64)));
    let texts = std::iter::once("by library (allocations):".to_owned()).chain(shown).chain(more);
    flow(texts.map(|text| Part::new(0, vec![cx.theme().span(text, Role::Dim)])).collect(), cells)
}

/// When the device is full at this rate.
fn full_in(cx: &Cx<'_>, process: &Process, per_minute: Option<i64>) -> Option<String> {
    let rate = u64::try_from(per_minute?).ok().filter(|rate| *rate >= 1 << 20)?;
    let row = process.gpu_memory.iter().max_by_key(|row| row.used)?;
    let device = cx.snapshot.devices.iter().find(|device| device.index == row.device)?;
    let free = device.memory_total?.checked_sub(device.memory_used?)?;
    Some(format!("device full in {} at this rate", units::age(free as f64 * 60.0 / rate as f64)))
}

/// All parts in one bar; each that is something has at least a cell, which the largest one gives.
fn stacked(parts: &[(char, &str, Option<u64>)], used: u64, cells: usize) -> String {
    let sizes = parts.iter().map(|(_, _, bytes)| bytes.unwrap_or(0));
    let all = sizes.clone().fold(0, u64::saturating_add).max(used).max(1);
    let share = |bytes: u64| (bytes as f64 / all as f64 * cells as f64).round() as usize;
    let mut wide: Vec<usize> = sizes.map(|bytes| share(bytes).max(usize::from(bytes > 0))).collect();
    let over = wide.iter().sum::<usize>().saturating_sub(cells);
    if let Some(largest) = wide.iter_mut().max() {
        *largest = largest.saturating_sub(over);
    }
    let bar = parts.iter().zip(wide).flat_map(|((sign, ..), wide)| std::iter::repeat_n(*sign, wide));
    left(&bar.collect::<String>(), cells)
}

/// Parts one after the other, on as many lines as it takes.
pub(super) fn flow(parts: Vec<Part>, cells: usize) -> Vec<Vec<Span<'static>>> {
    const GAP: &str = "   ";
    let mut lines = Vec::new();
    let mut line: Vec<Part> = Vec::new();
    let mut taken = 0;
    for part in parts {
        let wide = part.width();
        if !line.is_empty() && taken + GAP.len() + wide > cells {
            lines.push(fit(std::mem::take(&mut line), GAP, cells).0);
            taken = 0;
        }
        taken += wide + if line.is_empty() { 0 } else { GAP.len() };
        line.push(part);
    }
    if !line.is_empty() {
        lines.push(fit(line, GAP, cells).0);
    }
    lines
}

/// A heat map of kernels: a row a device and context, a column a thread.
fn callers(cx: &Cx<'_>, process: &Process, cells: usize) -> Vec<Vec<Span<'static>>> {
    let theme = cx.theme();
    let mut contexts: BTreeMap<(Option<u32>, u32), u64> = BTreeMap::new();
    for row in &process.streams {
        *contexts.entry((row.device, row.context)).or_default() += row.records;
    }
    if process.threads.is_empty() {
        let contexts_with_work = contexts.len();
        if contexts_with_work < 2 {
            return Vec::new();
        }
        let keys = [Kind::Runtime, Kind::Driver].map(kind_letter);
        let all: u64 = contexts.values().sum();
        let mut lines: Vec<_> = contexts
            .iter()
            .map(|(&(device, context), &records)| {
                let share = records as f64 / all.max(1) as f64;
                vec![
                    theme.span(place(device, context), Role::Plain),
                    theme.span(format!("{} {}", shade(share), right(&units::percent(share), 8)), Role::Good),
                ]
            })
            .collect();
        let how = if cx.can_ask() {
            format!(" (t {} or t {} switches them on)", keys[0], keys[1])
        } else {
            String::new()
        };
        let text = format!("threads ?  launches are not recorded{how}");
        lines.push(vec![theme.span(text, Role::Dim)]);
        return lines;
    }
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    for row in &process.threads {
        *threads.entry(row.thread).or_default() += row.kernels;
    }
    let all: u64 = threads.values().sum();
    let mut order: Vec<(u32, u64)> = threads.into_iter().collect();
    order.sort_by_key(|&(thread, kernels)| (std::cmp::Reverse(kernels), thread));
    let room = (cells.saturating_sub(HEAD) / COLUMN).clamp(1, THREADS);
    let hidden = order.len().saturating_sub(room);
    order.truncate(room);
    let mut head = vec![theme.span(left("thread", HEAD), Role::Dim)];
    head.extend(order.iter().map(|(thread, _)| theme.span(right(&thread.to_string(), COLUMN), Role::Dim)));
    if hidden > 0 {
        head.push(theme.span(format!(" +{} not shown", units::count(hidden as u64)), Role::Dim));
    }
    let mut lines = vec![head];
    let mut places: Vec<(Option<u32>, u32)> =
        process.threads.iter().map(|row| (row.device, row.context)).collect();
    places.dedup();
    for (device, context) in places {
        let of = |thread: u32| {
            let row = process
                .threads
                .iter()
                .find(|row| (row.device, row.context, row.thread) == (device, context, thread));
            row.map_or(0, |row| row.kernels)
        };
        let mut line = vec![theme.span(left(&place(device, context), HEAD), Role::Plain)];
        line.extend(order.iter().map(|&(thread, _)| {
            let share = of(thread) as f64 / all.max(1) as f64;
            let text = if share > 0.0 {
                format!("{} {}", shade(share), units::percent(share))
            } else {
                "-".to_owned()
            };
            theme.span(right(&text, COLUMN), if share > 0.0 { Role::Good } else { Role::Dim })
        }));
        lines.push(line);
    }
    lines
}

/// Cells of the name of a row.
const HEAD: usize = 22;

fn place(device: Option<u32>, context: u32) -> String {
    let device = device.map_or_else(|| "?".to_owned(), |device| device.to_string());
    left(&format!("GPU {device} context {context}"), HEAD)
}

/// A share of 1 as one shaded cell.
fn shade(share: f64) -> char {
    match share {
        share if share >= 0.75 => '█',
        share if share >= 0.4 => '▓',
        share if share >= 0.1 => '▒',
        _ => '░',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_that_is_something_is_seen_in_the_bar() {
        let parts = [('█', "", Some(900)), ('▓', "", None), ('▒', "", Some(1)), ('·', "", Some(99))];
        assert_eq!(stacked(&parts, 1000, 10), "████████▒·");
        assert_eq!(stacked(&parts, 1000, 20), "█████████████████▒··");
        assert_eq!(stacked(&parts, 2000, 20), "█████████▒·         ");
        assert_eq!(stacked(&[('█', "", Some(0))], 0, 4), "    ");
    }
}
