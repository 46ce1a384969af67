//! What the keys of graphs, captures and findings are filled with.

use std::collections::BTreeMap;

use gtop_protocol::calls::{call_name, result_name};
use gtop_protocol::lifecycle::LAST_DEFAULT_STREAM;
use gtop_protocol::message::Severity;
use gtop_protocol::node_type;

use super::super::graphs::{
    CaptureCause, CopiesSeen, Failed, Finding, Graph, Objects, StreamCapture, StreamCaptures,
};
use crate::model::snapshot::{self as model, Process};

pub(super) fn objects(process: &Process) -> BTreeMap<&'static str, Objects> {
    let rows = process.graphs_view.counted.iter().map(|row| {
        let (created, destroyed, live) = (row.created, row.destroyed, row.live);
        (row.kind, Objects { created, destroyed, live, growth_per_minute: row.growth_per_minute })
    });
    rows.collect()
}

pub(super) fn stream_captures(process: &Process) -> StreamCaptures {
    let (open, ended): (Vec<_>, Vec<_>) =
        process.graphs_view.captures.iter().partition(|capture| capture.ended.is_none());
    let all = |captures: Vec<&model::Capture>| captures.into_iter().map(stream_capture).collect();
    StreamCaptures { open: all(open), ended: all(ended) }
}

fn stream_capture(capture: &model::Capture) -> StreamCapture {
    let handle = |stream: u64| format!("{stream:#x}");
    let code = capture.ended.filter(|_| !capture.abandoned).map(|_| capture.result);
    let unjoined = capture.streams.iter().filter(|(_, joined)| !joined);
    // What its end says of itself is no call that broke it.
    let cause = capture.cause.filter(|cause| !matches!(cause.result, 901 | 904));
    StreamCapture {
        stream: handle(capture.stream),
        context: capture.context,
        thread: capture.thread,
        mode: capture.mode_name(),
        begun: capture.begun.to_string(),
        ended: capture.ended.map(|time| time.to_string()),
        code,
        result: code.map(result_name),
        abandoned: capture.abandoned,
        cause: cause.map(|cause| CaptureCause {
            call: call_name(cause.code),
            code: cause.result,
            result: result_name(cause.result),
            thread: cause.thread,
            time: cause.time.to_string(),
            stream: (cause.stream > LAST_DEFAULT_STREAM).then(|| handle(cause.stream)),
            kernel: capture.after.as_ref().map(|name| name.full.clone()),
        }),
        nodes: capture.nodes,
        unjoined_streams: (!capture.streams_untold)
            .then(|| unjoined.map(|(stream, _)| handle(*stream)).collect()),
        instantiated: capture.instantiated,
        streams: (!capture.streams_untold)
            .then(|| capture.streams.iter().map(|(stream, _)| handle(*stream)).collect()),
        allocated_bytes: capture.allocated,
        memory_step_bytes: capture.memory.map(|step| step.taken),
        memory_kept_bytes: capture.memory.and_then(|step| step.kept),
    }
}

pub(super) fn graph(row: &model::GraphRow) -> Graph {
    // Of a launch whose last record may still come no time is known yet.
    let timed = row.launches > 0 && row.p99_ns > 0;
    let of_type = |nodes: [u32; model::NODE_TYPES]| {
        let named = nodes.into_iter().zip(0..).filter(|(count, _)| *count > 0);
        named.map(|(count, node_type)| (node_type::name(node_type), count)).collect()
    };
    Graph {
        id: row.id,
        device: row.device,
        context: row.context,
        stream: row.stream,
        launches: row.launches,
        p50_ns: timed.then_some(row.p50_ns),
        p99_ns: timed.then_some(row.p99_ns),
        nodes_seen: row.seen_nodes as u64,
        nodes: row.nodes_by_type.map(of_type),
        copies_seen: row
            .copies
            .iter()
            .map(|(direction, nodes)| CopiesSeen { direction, nodes: *nodes })
            .collect(),
        instantiated: row.created.map(|time| time.to_string()),
        uploads: row.uploads,
        alive: row.alive,
        per_second: row.per_second,
        last_launch: row.last.map(|time| time.to_string()),
        thread: row.thread,
        source: row.source,
        captured: row.capture.map(|capture| capture.begun.to_string()),
        allocated_bytes: row.capture.and_then(|capture| capture.allocated),
        node_bytes: row.asks,
    }
}

pub(super) fn failed(failure: &model::Failure) -> Failed<'_> {
    let is_launch = failure.grid != [0; 3] || failure.block != [0; 3];
    Failed {
        call: call_name(failure.code),
        code: failure.result,
        result: result_name(failure.result),
        cause: failure.root.name(),
        limit: failure.limit.as_deref(),
        kernel: failure.name.as_ref().map(|name| name.full.as_str()),
        count: failure.count,
        first: failure.times[0].to_string(),
        last: failure.times[1].to_string(),
        thread: failure.thread,
        grid: is_launch.then_some(failure.grid),
        block: is_launch.then_some(failure.block),
        cluster: (failure.cluster > 0).then_some(failure.cluster),
        bytes: failure.bytes,
    }
}

pub(super) fn finding(finding: &model::Finding) -> Finding<'_> {
    Finding {
        rule: finding.rule,
        severity: match finding.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Alarm => "alarm",
        },
        sentence: &finding.sentence,
        evidence: &finding.evidence,
        next: &finding.next,
        since: (finding.since > 0).then(|| finding.since.to_string()),
    }
}
