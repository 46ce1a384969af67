//! Executable graphs as rows: what records tell of each, and what callbacks do.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::graphs::{Graphs, Seen};
use super::lifecycle::Lifecycle;
use super::lifecycle::execs::Exec;
use super::snapshot::{Details, GraphRow, LaneKey, NodeRow, UNKNOWN_DEVICE};
use super::work::copied;

/// Rows made for a screen.
const MOST: usize = 1024;
/// Rows whose nodes are listed.
const WITH_NODES: usize = 64;
/// Nodes listed of one graph.
const MAX_NODES: usize = 4096;

/// The rows of executable graphs that are alive or gave records, those launched most first, and behind them those that
/// are destroyed; and how many there are. With `exact` all of them, else as many as somebody may look at.
pub(super) fn rows(
    graphs: &Graphs,
    lifecycle: &Lifecycle,
    details: &Details,
    now: u64,
    exact: bool,
) -> (Vec<GraphRow>, usize) {
    let gone = lifecycle.execs.destroyed();
    // Of all that are alive is known where every event was seen.
    let whole = lifecycle.observers.is_some_and(|seen| seen.is_complete());
    let alive = |id: u32| match lifecycle.execs.by_id(id) {
        Some(_) => Some(true),
        None if whole || gone.contains(&id) => Some(false),
        None => None,
    };
    let key = |launches: u64, id: u32| (alive(id) != Some(false), launches, id);
    let mut ids: Vec<(bool, u64, u32)> = graphs.seen().map(|(id, seen)| key(seen.launches, id)).collect();
    let unseen = lifecycle.execs.alive.values().filter(|exec| graphs.seen_of(exec.id).is_none());
    ids.extend(unseen.map(|exec| key(0, exec.id)));
    let all = ids.len();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    if !exact {
        ids.truncate(MOST);
    }
    let row = |(i, (.., id)): (usize, (bool, u64, u32))| {
        let row = row(id, graphs.seen_of(id), lifecycle.execs.by_id(id), details, i < WITH_NODES, now);
        GraphRow { alive: alive(id), ..row }
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
        capture: exec.and_then(Exec::capture),
        asks: exec.filter(|exec| exec.source_id != 0).and_then(Exec::asks),
        nodes_by_type: exec.filter(|exec| exec.count() > 0).map(Exec::nodes),
        inside: exec.map(|exec| exec.inside.clone().into()).unwrap_or_default(),
        runs: made_of.map(|made_of| made_of.runs.clone().into()),
        edges: made_of.map(|made_of| made_of.edges.clone().into()),
        ..GraphRow::default()
    };
    let Some(seen) = seen else { return row };
    row.launches = seen.launches;
    row.last = Some(seen.last);
    row.per_second = Some(seen.per_second(now));
    row.p50_ns = seen.times.quantile(0.5);
    row.p99_ns = seen.times.quantile(0.99);
    row.seen_nodes = seen.nodes.len();
    let mut by_name: FxHashMap<u32, (u64, u32)> = FxHashMap::default();
    let mut total = 0;
    for (detail, ns) in seen.nodes.values() {
        // Where nothing is drawn there are no details, and a copy bears its name instead.
        let name = details.get(*detail).map(|detail| detail.name_id);
        let Some(name) = name.or_else(|| copied(*detail).map(|_| *detail)) else { continue };
        let entry = by_name.entry(name).or_default();
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
    row.copies = copies(&shares);
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

/// Copies among names with their nodes, by direction.
fn copies(names: &[(u64, u32, u32)]) -> Vec<(&'static str, u32)> {
    let copies = names.iter().filter_map(|(_, count, name)| Some((copied(*name)?, *count)));
    let mut copies: Vec<_> = copies.collect();
    copies.sort_unstable_by_key(|(direction, count)| (std::cmp::Reverse(*count), *direction));
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::place::Piece;
    use crate::model::time::{Moment, SECOND};
    use gtop_protocol::lifecycle::{Event, What};
    use gtop_protocol::message::Observers;

    fn exec(lifecycle: &mut Lifecycle, what: What, id: u32) {
        let event = Event {
            what: what as u8,
            time: (u64::from(id) * 1_000).into(),
            id: id.into(),
            object: (0x1000 + u64::from(id)).into(),
            context: 1.into(),
            ..Event::default()
        };
        lifecycle.apply(&event, 0);
    }

    #[test]
    fn what_is_alive_comes_first_and_nothing_is_cut_where_all_is_asked_for() {
        let mut graphs = Graphs::default();
        let mut lifecycle = Lifecycle::default();
        let lane = LaneKey::Graphs { device: 0, context: 1, stream: 7 };
        for id in 1..=2_000u32 {
            exec(&mut lifecycle, What::ExecCreated, id);
        }
        for (correlation, id) in [3u32, 3, 3, 5, 5, 9, 2_001].into_iter().enumerate() {
            let at = SECOND + correlation as u64;
            let piece = Piece {
                start: at,
                end: at + 1,
                correlation: correlation as u64,
                node: 0,
                detail: 0,
                kernel: 0,
            };
            graphs.add(id, lane, &[piece], Moment::of_record(at));
        }
        exec(&mut lifecycle, What::ExecDestroyed, 3);
        let of = |lifecycle: &Lifecycle, exact: bool| {
            let (rows, all) = rows(&graphs, lifecycle, &Details::default(), 2 * SECOND, exact);
            (rows.into_iter().map(|row| (row.id, row.launches, row.alive)).collect::<Vec<_>>(), all)
        };
        let (all, count) = of(&lifecycle, true);
        assert_eq!((all.len(), count), (2_001, 2_001));
        // Nobody saw everything: what became of the one that was only launched is not known.
        assert_eq!(all[..3], [(5, 2, Some(true)), (2_001, 1, None), (9, 1, Some(true))]);
        assert_eq!(all[2_000], (3, 3, Some(false)), "the one that is gone comes last");
        assert_eq!((of(&lifecycle, false).0.len(), of(&lifecycle, false).1), (MOST, 2_001));
        lifecycle.observers = Some(Observers { whole: 1, ..Observers::default() });
        assert_eq!(of(&lifecycle, true).0[1_999..], [(3, 3, Some(false)), (2_001, 1, Some(false))]);
    }
}
