//! Executable graphs as rows: what records tell of each, and what callbacks do.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::graphs::{Graphs, Seen};
use super::lifecycle::Lifecycle;
use super::lifecycle::execs::Exec;
use super::snapshot::{Details, GraphRow, LaneKey, NodeRow, UNKNOWN_DEVICE};
use super::time::SECOND;

/// Rows made; what is launched most comes first.
const MOST: usize = 1024;
/// Rows whose nodes are listed.
const WITH_NODES: usize = 64;
/// Nodes listed of one graph.
const MAX_NODES: usize = 4096;

/// The rows of all executable graphs that are alive or gave records, those launched most first; and how many there are.
pub(super) fn rows(
    graphs: &Graphs,
    lifecycle: &Lifecycle,
    details: &Details,
    now: u64,
) -> (Vec<GraphRow>, usize) {
    let mut ids: Vec<(u64, u32)> = graphs.seen().map(|(id, seen)| (seen.launches, id)).collect();
    let unseen = lifecycle.execs.alive.values().filter(|exec| graphs.seen_of(exec.id).is_none());
    ids.extend(unseen.map(|exec| (0, exec.id)));
    let all = ids.len();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.truncate(MOST);
    let row = |(i, (_, id)): (usize, (u64, u32))| {
        row(id, graphs.seen_of(id), lifecycle.execs.by_id(id), details, i < WITH_NODES, now)
    };
    (ids.into_iter().enumerate().map(row).collect(), all)
}

fn row(
    id: u32,
    seen: Option<&Seen>,
    exec: Option<&Exec>,
    details: &Details,
    listed: bool,
    now: u64,
) -> GraphRow {
    let (device, context, stream) = match seen.map(|seen| seen.lane) {
        Some(LaneKey::Graphs { device, context, stream }) => {
            ((device != UNKNOWN_DEVICE).then_some(device), context, Some(stream))
        }
        _ => (None, exec.map_or(0, |exec| exec.context), None),
    };
    let made_of = exec.map(|exec| &exec.made_of).filter(|made_of| made_of.count() > 0);
    let mut row = GraphRow {
        id,
        device,
        context,
        stream,
        created: exec.map(|exec| exec.created),
        thread: exec.map(|exec| exec.thread),
        source: exec.map(|exec| exec.source_id).filter(|id| *id != 0),
        updates: exec.map(|exec| (exec.updates, exec.updates_failed)),
        uploads: exec.map(|exec| exec.uploads),
        nodes_by_type: made_of.map(|made_of| made_of.nodes),
        runs: made_of.map(|made_of| made_of.runs.clone().into()),
        edges: made_of.map(|made_of| made_of.edges.clone().into()),
        alive: exec.is_some(),
        ..GraphRow::default()
    };
    let Some(seen) = seen else { return row };
    row.launches = seen.launches;
    row.last = Some(seen.last);
    let lived = seen.last.saturating_sub(seen.first);
    row.per_second = if now.saturating_sub(seen.last) > 5 * SECOND {
        0.0
    } else {
        seen.launches.saturating_sub(1) as f64 * SECOND as f64 / lived.max(1) as f64
    };
    row.p50_ns = seen.times.quantile(0.5);
    row.p99_ns = seen.times.quantile(0.99);
    row.seen_nodes = seen.nodes.len();
    let mut by_name: FxHashMap<u32, (u64, u32)> = FxHashMap::default();
    let mut total = 0;
    for (detail, ns) in seen.nodes.values() {
        let Some(detail) = details.get(*detail) else { continue };
        let entry = by_name.entry(detail.name_id).or_default();
        entry.0 += ns;
        entry.1 += 1;
        total += ns;
    }
    let mut shares: Vec<(u64, u32, u32)> =
        by_name.into_iter().map(|(name, (ns, count))| (ns, count, name)).collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    if listed {
        let nodes = seen.nodes.iter().take(MAX_NODES).filter_map(|(index, (detail, ns))| {
            let detail = details.get(*detail)?;
            Some(NodeRow {
                index: *index,
                name: Arc::clone(&detail.name),
                is_kernel: detail.bytes.is_none(),
                ns: ns / seen.whole.max(1),
            })
        });
        row.nodes = nodes.collect::<Vec<_>>().into();
    }
    let name_of = |id: u32| {
        let of = |(detail, _): &(u32, u64)| details.get(*detail).filter(|detail| detail.name_id == id);
        seen.nodes.values().find_map(of).map(|detail| Arc::clone(&detail.name))
    };
    row.shares = shares
        .into_iter()
        .take(if listed { 8 } else { 1 })
        .filter_map(|(ns, count, id)| Some((name_of(id)?, count, ns as f64 / total.max(1) as f64)))
        .collect();
    row
}
