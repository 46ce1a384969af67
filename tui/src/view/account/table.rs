//! The memory account in rows, where there is room for them: what each part is, by whom, and what moved.

use gtop_protocol::Kind;
use ratatui::text::Span;

use super::super::text::{cut_end, cut_middle, left, right};
use super::super::theme::Role;
use super::super::{Cx, kind_letter, memory, units};
use super::parts;
use crate::model::snapshot::{Device, Process};

/// Cells of a name, and of a number.
const NAME: usize = 26;
const NUMBER: usize = 12;
/// Cells of the name of a device.
const DEVICE: usize = 20;

type Lines = Vec<Vec<Span<'static>>>;

/// Each part of the memory with its share and what is to be said of it.
pub(super) fn account(cx: &Cx<'_>, process: &Process, cells: usize) -> Lines {
    let theme = cx.theme();
    let account = process.memory_account();
    let Some(used) = account.used else {
        return vec![vec![theme.span("?  NVML does not say how much it has", Role::Warn)]];
    };
    let share = |bytes: u64| units::percent(bytes as f64 / used.max(1) as f64);
    let row = |sign: &str, what: &str, bytes: Option<u64>, remark: String| {
        let role = if bytes.is_some() { Role::Plain } else { Role::Dim };
        let size = bytes.map_or_else(|| "?".to_owned(), units::bytes);
        let share = bytes.map_or_else(String::new, share);
        let text = format!("{sign} {}{}{}", left(what, NAME), right(&size, NUMBER), right(&share, 9));
        let remark = cut_end(&remark, cells.saturating_sub(NAME + NUMBER + 14));
        vec![theme.span(text, role), theme.span(format!("   {remark}"), Role::Dim)]
    };
    let mut lines = vec![row(" ", "all of it, by NVML", Some(used), String::new())];
    for (sign, what, bytes) in parts(&account) {
        lines.push(row(&sign.to_string(), what, bytes, remark(cx, process, sign)));
    }
    if let Some(bytes) = account.unexplained.filter(|bytes| *bytes < 0) {
        let text = format!(
            "  {} more is accounted for than NVML says: managed memory may lie on the host",
            units::bytes(bytes.unsigned_abs())
        );
        lines.push(vec![theme.span(cut_end(&text, cells), Role::Dim)]);
    }
    if let Some(bytes) = account.pinned {
        let pinned =
            format!("  {}{}", left("pinned, on the host", NAME), right(&units::bytes(bytes), NUMBER));
        let remark = "no GPU memory, and in no sum here";
        lines.push(vec![
            theme.span(left(&pinned, NAME + NUMBER + 11), Role::Plain),
            theme.span(format!("   {remark}"), Role::Dim),
        ]);
    }
    lines
}

/// How a part is known, or why it is not.
fn remark(cx: &Cx<'_>, process: &Process, sign: char) -> String {
    let account = process.memory_account();
    let early = || match process.graphs_view.observers {
        Some(_) => "the driver was not asked, or did not say".to_owned(),
        None => "told after an early start (--early) alone".to_owned(),
    };
    let off = || {
        if process.kinds.enabled.has(Kind::Memory) {
            "nothing allocated or freed since memory is on".to_owned()
        } else if cx.can_ask() {
            format!("memory is off: t {} switches it on", kind_letter(Kind::Memory))
        } else {
            "the kind memory was off".to_owned()
        }
    };
    match sign {
        '█' => process.allocated.map_or_else(off, |sums| {
            let unknown = match sums.unknown_frees {
                0 => String::new(),
                frees => format!(", {} frees of what came before", units::count(frees)),
            };
            format!("{}{unknown}", units::some(sums.count as usize, "allocation"))
        }),
        '▓' => process.allocated.map_or_else(off, |_| String::new()),
        '▚' => "what memory pools gave out".to_owned(),
        '▞' => "what is mapped twice counts twice".to_owned(),
        '▒' => match (account.graphs_used, account.graphs_reserved) {
            (Some(used), _) => format!("{} of it in use", units::bytes(used)),
            (None, Some(_)) => "as records tell".to_owned(),
            (None, None) => early(),
        },
        '■' => account.pools.map_or_else(early, |[reserved, used]| {
            format!("{} of {} in use", units::bytes(used), units::bytes(reserved))
        }),
        '░' => {
            let limit: u64 = process.pools.iter().map(|pool| pool.limit).sum();
            format!("4 MiB each, at most {}, for tracing", units::count(limit))
        }
        _ if account.unexplained.is_some() => "contexts, modules, code, older memory".to_owned(),
        _ => "not told apart without allocations".to_owned(),
    }
}

/// Which libraries allocated it.
pub(super) fn sites(cx: &Cx<'_>, process: &Process, cells: usize) -> Lines {
    let theme = cx.theme();
    let name_cells = cells.saturating_sub(3 * NUMBER).max(NAME);
    let mut lines: Lines = process
        .sites
        .iter()
        .map(|site| {
            let library = cut_middle(site.library.as_deref().unwrap_or("unknown"), name_cells - 1, "…");
            let numbers = [units::bytes(site.gpu), units::bytes(site.pinned), units::count(site.count)];
            let numbers: String = numbers.iter().map(|number| right(number, NUMBER)).collect();
            vec![theme.span(left(&library, name_cells), Role::Plain), theme.span(numbers, Role::Plain)]
        })
        .collect();
    if lines.is_empty() {
        return lines;
    }
    let heads: String =
        ["on the GPU", "pinned", "allocations"].iter().map(|head| right(head, NUMBER)).collect();
    lines.insert(0, vec![theme.span(format!("{}{heads}", left("library", name_cells)), Role::Dim)]);
    lines
}

/// What was copied, by direction.
pub(super) fn copies(cx: &Cx<'_>, process: &Process, cells: usize) -> Lines {
    let theme = cx.theme();
    if process.copies.is_empty() || cells < 4 * NUMBER + 10 {
        return Vec::new();
    }
    let columns = |name: &str, numbers: [String; 4]| {
        let numbers: String = numbers.iter().map(|number| right(number, NUMBER)).collect();
        format!("{}{numbers}", left(name, 10))
    };
    let head = ["copies", "bytes", "time", "GB/s"].map(str::to_owned);
    let mut lines = vec![vec![theme.span(columns("direction", head), Role::Dim)]];
    for row in &process.copies {
        let rate = row.rate().map_or_else(
            || "?".to_owned(),
            |rate| match rate {
                rate if rate > 0.0 && rate < 0.05 => "<0.1".to_owned(),
                rate => format!("{rate:.1}"),
            },
        );
        let numbers = [units::count(row.calls), units::bytes(row.bytes), units::duration(row.total_ns), rate];
        let traced = if row.estimate.is_some() { "  of what was traced" } else { "" };
        lines.push(vec![
            theme.span(columns(row.direction, numbers), Role::Plain),
            theme.span(traced, Role::Dim),
        ]);
    }
    lines
}

/// What NVML says of each device, in words.
pub(super) fn devices(cx: &Cx<'_>, cells: usize) -> Lines {
    let theme = cx.theme();
    let line = |device: &Device| {
        let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
        let free = device.memory_total.and_then(|total| total.checked_sub(device.memory_used?));
        let mhz = |mhz: Option<u64>| known(mhz.map(|mhz| format!("{} MHz", units::count(mhz))));
        let both = |[one, two]: [Option<u64>; 2]| {
            let rate = |kb: u64| format!("{}/s", units::bytes(kb.saturating_mul(1_000)));
            format!("{} in {} out", known(one.map(rate)), known(two.map(rate)))
        };
        let mut texts = vec![
            format!("free {}", known(free.map(units::bytes))),
            format!("driver {}", known(device.memory_reserved.map(units::bytes))),
            format!("SM {}", mhz(device.sm_mhz)),
            format!("memory {}", mhz(device.memory_mhz)),
        ];
        for (link, kbs) in [("PCIe", device.pcie_kbs), ("NVLink", device.nvlink_kbs)] {
            if kbs != [None; 2] {
                texts.push(format!("{link} {}", both(kbs)));
            }
        }
        texts.push(format!("ECC errors {}", known(device.ecc_uncorrected.map(units::count))));
        if !device.throttle.is_empty() {
            texts.push(format!("held down: {}", device.throttle.join(", ")));
        }
        let text = cut_end(&texts.join("   "), cells.saturating_sub(DEVICE));
        let name = memory::device_name(device);
        vec![theme.span(left(&cut_end(&name, DEVICE - 1), DEVICE), Role::Plain), theme.span(text, Role::Dim)]
    };
    cx.snapshot.devices.iter().map(line).collect()
}
