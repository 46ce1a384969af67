//! What a snapshot holds of a process, and what is found of it.

use std::sync::Arc;

use gtop_protocol::Kind;
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::{Severity, StateCode};

use super::Process;
use super::told::SAME;
use crate::model::events::Events;
use crate::model::findings::{self, Facts};
use crate::model::graph_rows;
use crate::model::snapshot::{self, Capture, Cause, Device, Failure, Finding, GraphsView, Link};
use crate::model::time::{Moment, SECOND, cupti_time};
use crate::model::trend::Trend;

/// Captures shown.
const CAPTURES: usize = 64;
/// Kernel rows are made anew no more often than this; quantiles of thousands of names take a while.
const ROWS_EVERY: u64 = SECOND / 4;
/// … and steps: they are told from thousands of launches.
const STEPS_EVERY: u64 = SECOND;

/// What is made anew only now and then.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    kernels: Arc<[snapshot::KernelRow]>,
    by_graph: Arc<[snapshot::KernelRow]>,
    steps: (Moment, Vec<snapshot::Steps>),
    graphs: GraphsView,
}

impl Process {
    /// What is found of it now.
    pub(in super::super) fn findings(
        &mut self,
        at: Moment,
        exact: bool,
        devices: &[Device],
        events: &mut Events,
    ) -> Arc<[Finding]> {
        if let Some((made, found)) = &self.found
            && !exact
            && at.steady.saturating_sub(made.steady) < SECOND
        {
            return Arc::clone(found);
        }
        let memory = self.memory_trend();
        let facts = Facts {
            now: at.wall,
            work: &self.work,
            lifecycle: &self.lifecycle,
            kinds: &self.kinds,
            verdict: self.cupti.as_ref().map(|cupti| cupti.verdict),
            cure: self.cupti.as_ref().map_or(CuptiVersion(0), |cupti| cupti.version).cure(),
            pools: &self.pools,
            memory: memory.map(|(_, trend)| trend),
            memory_total: memory
                .and_then(|(device, _)| devices.iter().find(|other| other.index == *device)?.memory_total),
            unified: devices.iter().find(|device| device.unified),
        };
        let found: Arc<[Finding]> = findings::all(&facts).into();
        for finding in found.iter().filter(|finding| finding.severity != Severity::Info) {
            if !self.said_rules.contains(&finding.rule) {
                self.said_rules.push(finding.rule);
                // A viewer that comes later has not heard the shim say so.
                let begun = self.pools.iter().filter_map(|pool| pool.since).min();
                let told = |begun: u64| events.tells(self.identity.pid, "pool", begun.saturating_sub(SAME));
                let of_kinds =
                    finding.rule == findings::OF_KINDS && events.tells(self.identity.pid, "kinds", 0);
                if of_kinds || (findings::OF_POOLS.contains(&finding.rule) && begun.is_some_and(told)) {
                    continue;
                }
                events.push(
                    at.wall,
                    finding.severity,
                    Some(self.identity.pid),
                    finding.rule,
                    &finding.sentence,
                );
            }
        }
        self.found = Some((at, Arc::clone(&found)));
        found
    }

    /// The memory over time on the device that holds most of it.
    fn memory_trend(&self) -> Option<(&u32, &Trend)> {
        self.trends.iter().max_by_key(|(_, trend)| trend.last())
    }

    /// Totals of graphs: of callbacks where there were some from the start, else of records.
    fn graph_totals(&self, at: Moment, any: bool) -> snapshot::GraphTotals {
        let totals = self.work.graphs.totals(at, any);
        match self.lifecycle.observers.filter(|seen| seen.whole == 1) {
            Some(seen) => snapshot::GraphTotals {
                live: Some(seen.execs.saturating_sub(seen.execs_destroyed)),
                instantiated: Some(seen.execs),
                destroyed: Some(seen.execs_destroyed),
                ..totals
            },
            None => totals,
        }
    }

    fn graphs_view(&self, details: &snapshot::Details, now: u64, wall: u64, exact: bool) -> GraphsView {
        let (rows, all) = graph_rows::rows(&self.work.graphs, &self.lifecycle, details, now, exact);
        let captures = &self.lifecycle.captures;
        let seen = self.lifecycle.observers.as_ref();
        let kernel = |cause: Cause| self.work.kernels.known(cause.kernel).cloned();
        let of_kernel = |failure: &Failure| Failure {
            name: self.work.kernels.known(failure.kernel).cloned(),
            ..failure.clone()
        };
        let trend = self.memory_trend().map(|(_, trend)| trend);
        let step = |capture: &Capture| trend?.step(capture.begun, capture.ended?);
        let named = |capture: &Capture| Capture {
            after: capture.cause.and_then(kernel),
            memory: Some(capture).filter(|capture| capture.failed()).and_then(step),
            ..capture.clone()
        };
        let skipped = captures.ended.len().saturating_sub(CAPTURES);
        GraphsView {
            observers: self.lifecycle.observers,
            rows: rows.into(),
            all,
            captures: captures.ended.iter().skip(skipped).chain(&captures.open).map(named).collect(),
            open: captures.open.len(),
            failures: self.lifecycle.failures.groups.iter().map(of_kernel).collect(),
            memory: self.lifecycle.memory.clone(),
            samples: self.lifecycle.execs.samples.iter().copied().collect(),
            unfollowed: self.lifecycle.pointers.is_unknown(),
            counted: self.lifecycle.counts.rows(self.lifecycle.observers.as_ref(), wall),
            captures_per_minute: self.lifecycle.counts.captures_per_minute(seen, wall),
            shapes: seen.filter(|seen| seen.is_complete()).map(|_| self.lifecycle.execs.shapes.len()),
        }
    }

    /// What a snapshot holds. With `exact`, nothing is left as it was a moment ago; `live` says that time goes on
    /// although no record comes.
    pub(in super::super) fn share(&mut self, at: Moment, exact: bool, live: bool) -> snapshot::Process {
        let now = cupti_time(self.clock.as_ref(), at.wall);
        // What has ended goes on no more.
        let until = if self.link == Link::Up { now } else { 0 };
        let silent = self.state == StateCode::Silent;
        self.work.settle(at, exact);
        if let Some(since) = self.counted_since {
            self.work.timeline.counted_since(cupti_time(self.clock.as_ref(), since.wall));
        }
        let known = self.known_until(at);
        let (lanes, details) = self.work.lanes(known);
        let rows = match &self.rows {
            Some((made, rows)) if !exact && at.steady.saturating_sub(made.steady) < ROWS_EVERY => {
                rows.clone()
            }
            _ => {
                let recent = self
                    .rows
                    .as_ref()
                    .map(|(_, rows)| &rows.steps)
                    .filter(|(made, _)| !exact && at.steady.saturating_sub(made.steady) < STEPS_EVERY);
                let steps = recent.cloned().unwrap_or_else(|| {
                    self.work.steps.settle(exact);
                    (at, self.work.steps.rows(now.saturating_sub(self.late())))
                });
                let mut kernels = self.work.kernels.rows(at, &self.work.sampling, until);
                let mut by_graph = self.work.kernels.graphs(at, &self.work.sampling, until);
                if !self.knows_rates(at) {
                    kernels.iter_mut().chain(&mut by_graph).for_each(|row| row.per_second = None);
                }
                let mut graphs = self.graphs_view(&details, now, at.wall, exact);
                if self.state == StateCode::Silent || self.is_full() {
                    for row in Arc::make_mut(&mut graphs.rows) {
                        row.per_second = None;
                    }
                }
                let rows = Rows { kernels: kernels.into(), by_graph: by_graph.into(), steps, graphs };
                self.rows = Some((at, rows.clone()));
                rows
            }
        };
        let any = self.work.balance.any() || self.kinds.enabled.has(Kind::Kernel);
        let streams = self.work.streams.rows(&self.work.sampling, until);
        let mut devices: Vec<u32> = streams.iter().filter_map(|row| row.device).collect();
        devices.extend(&self.work.bad_devices);
        devices.sort_unstable();
        devices.dedup();
        snapshot::Process {
            identity: Arc::clone(&self.identity),
            link: self.link.clone(),
            cupti: self.cupti.clone(),
            state: self.state,
            heard: self.heard,
            reason: self.reason.clone(),
            unseen: self.is_unseen(),
            quiet: None,
            since: self.since,
            watchers: self.watchers,
            held: self.held,
            tainted: self.tainted,
            subscribed: self.subscribed,
            sampling: self.work.sampling.share_with(self.work.kernels.exact(&self.work.sampling), until),
            first_call_ns: self.first_call_ns,
            kinds: self.kinds.clone(),
            records: self.work.balance.records(self.work.trust.per_second(at)),
            validity: self.work.trust.stats(at, silent),
            invalid_at: self.work.spots.share(),
            notes: self.work.trust.notes,
            pools: self.pools.clone(),
            host_buffers: self.host_buffers,
            cost: self.costs.whole(),
            cost_lately: self.costs.lately(),
            clock: self.clock,
            clock_jumps: self.jumps,
            devices,
            kernels: rows.kernels,
            by_graph: rows.by_graph,
            steps: rows.steps.1,
            streams,
            copies: self.work.copies.rows(&self.work.sampling, until),
            graphs: self.graph_totals(at, any),
            graphs_view: rows.graphs,
            allocated: self.work.account.allocated(),
            sites: self.work.account.sites(|id| Some(self.work.kernels.known(id)?.mangled.clone())),
            course: self.memory_trend().and_then(|(_, trend)| trend.course()),
            memory_over_time: self
                .trends
                .iter_mut()
                .map(|(device, trend)| snapshot::MemoryOverTime { device: *device, samples: trend.share() })
                .collect(),
            explained_over_time: self.explained.share(),
            findings: Arc::default(),
            latency: self.work.launches.latency(),
            threads: self.work.launches.threads(),
            span: self.work.span,
            until: if live && self.link == Link::Up { known } else { 0 },
            delivered: if live && self.link == Link::Up { self.delivered(at) } else { 0 },
            unheard: self.unheard(at).filter(|_| live),
            halt: self.halted(at),
            untraced: self.traced.share(),
            lost: self.traced.share_lost(),
            lanes,
            details,
            gpu_memory: Vec::new(),
        }
    }
}
