//! What an application launches, and what CUPTI notes of it at once.

use super::Lane;
use super::collect::{Pending, Source};
use crate::callbacks::{Function, Launch, handle};
use crate::cupti::{Context, Cupti};
use crate::layout::{Place, Record, kind};
use crate::pool::{Pool, Sequence, Slot};
use crate::scenario::MemorySort;
use crate::trace::On;
use crate::truth::Kind;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Launch calls return this long before the work starts.
const LAUNCH_NS: u64 = 2_500;
/// `CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH`.
const BUFFER_FLUSH: u32 = 1 << 16;
/// `CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE`.
const RESOURCE: u32 = 3 << 16;

impl Lane {
    pub(super) fn work(&mut self, cupti: &Cupti, graph: usize, nodes: Range<usize>, timing: usize) {
        let launched = self.cursor;
        let first = nodes.start;
        let on = On::at(cupti, launched);
        let context = &cupti.contexts[self.context];
        let exec = self.program.current[graph];
        let graph_id = self.program.execs[exec].id;
        let graph_level = on.graph_level && graph_id != 0;
        let mut correlation = if graph_id == 0 { 0 } else { next_correlation(cupti) };
        if graph_id != 0 && on.kernel {
            self.last_traced = correlation;
        }
        let mut began = None;
        self.overheads(cupti, context, on);
        context.with_pool(|mut pool| {
            for (i, node) in nodes.enumerate() {
                let timing = self.program.timings[timing + i];
                let start = self.cursor.saturating_add_signed(timing.gap);
                let end = start + self.varied(timing.ns);
                self.cursor = end;
                self.busy_until = self.busy_until.max(end);
                if graph_id == 0 {
                    correlation = next_correlation(cupti);
                }
                began.get_or_insert(start);
                let executed = &self.program.execs[exec];
                let kind = executed.nodes[node].kind;
                cupti.ledger.executed.add(kind as usize, 1);
                self.kernels += u64::from(kind == Kind::Kernel);
                if graph_level || !on.attached {
                    continue;
                }
                let trace = executed.trace(node, on, cupti);
                let counted = if trace.as_kernel { Kind::Kernel } else { kind };
                if trace.recorded && !trace.unasked {
                    cupti.ledger.expected.add(counted as usize, 1);
                }
                let mut pending = Pending {
                    start,
                    end,
                    correlation,
                    source: Source::Node { exec: exec as u32, node: node as u32, as_kernel: trace.as_kernel },
                    slot: None,
                    recorded: trace.recorded,
                    unasked: trace.unasked,
                    timeless: on.serial && graph_id != 0,
                };
                if trace.slot
                    && let Some(pool) = pool.as_deref_mut()
                {
                    match self.take(cupti, context, pool, on, start) {
                        Some(slot) => pending.slot = (!trace.uncovered).then_some(slot),
                        None if graph_id == 0 => pending.timeless = true,
                        None => {
                            if trace.recorded && !trace.unasked {
                                cupti.ledger.withheld.add(counted as usize, 1);
                            }
                            continue;
                        }
                    }
                }
                if pending.recorded || pending.slot.is_some() {
                    self.pending.push_back(pending);
                }
            }
        });
        if let Some(began) = began {
            self.api_calls(cupti, exec, first, correlation, began);
            if graph_level && cupti.on(kind::GRAPH_TRACE, launched) {
                let place = Place { graph: graph_id, ..self.program.place(None) };
                self.own(cupti, Record::graph_trace(cupti.version, place), began, self.cursor, correlation);
            }
        }
    }

    /// Takes a slot; what that costs CUPTI is recorded if overhead is on.
    fn take(
        &mut self,
        cupti: &Cupti,
        context: &Context,
        pool: &mut Pool,
        on: On,
        at: u64,
    ) -> Option<Sequence> {
        let slot = pool.take();
        let (overhead, slot) = match slot {
            Slot::Taken(slot) => return Some(slot),
            Slot::Allocated(slot) => (RESOURCE, Some(slot)),
            Slot::Exhausted if !on.overhead || !context.notes_flush(at) => return None,
            Slot::Exhausted => (BUFFER_FLUSH, None),
        };
        if on.overhead {
            let record = Record::overhead(cupti.version, overhead, context.device, context.id);
            self.own(cupti, record, at, at + 300_000, 0);
        }
        slot
    }

    /// Records what CUPTI owes for the buffers it allocated when the context was set up.
    fn overheads(&mut self, cupti: &Cupti, context: &Context, on: On) {
        for _ in 0..context.owed_overheads() {
            if on.overhead {
                let record = Record::overhead(cupti.version, RESOURCE, context.device, context.id);
                self.own(cupti, record, self.cursor, self.cursor, 0);
            }
        }
    }

    /// The calls by which the application launched a graph, or one eager operation.
    fn api_calls(&mut self, cupti: &Cupti, exec: usize, node: usize, correlation: u32, began: u64) {
        let executed = &self.program.execs[exec];
        let (graph, record) = (executed.id, &executed.nodes[node].record);
        let function = Function::launching(graph, record);
        let name = record.name();
        let launch = Launch {
            what: if graph == 0 { name as usize } else { handle::EXEC + graph as usize },
            symbol: if graph == 0 { name } else { 0 },
            stream: self.program.stream,
            context: self.context,
            correlation,
            function: &function,
            api: self.api,
        };
        launch.call_back(cupti);
        let end = began - LAUNCH_NS;
        for (kind, _, cbid, _) in function.calls(self.api) {
            if cupti.on(kind, began) {
                self.own(cupti, Record::api(cupti.version, kind, cbid), end - LAUNCH_NS, end, correlation);
            }
        }
    }

    pub(super) fn sync(&mut self, cupti: &Cupti) {
        let (start, end) = (self.cursor, self.cursor + 1_000);
        self.cursor = end;
        cupti.ledger.executed.add(Kind::Sync as usize, 1);
        if cupti.on(kind::SYNC, start) {
            let record = Record::sync(cupti.version, self.program.place(None));
            self.own(cupti, record, start, end, next_correlation(cupti));
        }
    }

    pub(super) fn memory(
        &mut self,
        cupti: &Cupti,
        allocation: bool,
        bytes: u64,
        library: u64,
        sort: Option<MemorySort>,
    ) {
        if allocation {
            self.address += bytes.next_multiple_of(512);
        }
        cupti.ledger.executed.add(Kind::Memory as usize, 1);
        let at = self.cursor;
        if cupti.on(kind::MEMORY2, at) {
            let source = if cupti.tracks_sources() { library } else { 0 };
            let mut place = self.program.place(None);
            // A mapping is of no context (measured).
            if sort == Some(MemorySort::Mapping) {
                let none = if cupti.version.0 >= 130_500 { 0 } else { u32::MAX };
                (place.context, place.stream) = (none, none);
            }
            let mut record = Record::memory(cupti.version, place, allocation, [self.address, bytes], source);
            if sort == Some(MemorySort::Pool) {
                record.be_pooled();
            }
            self.own(cupti, record, at, at, next_correlation(cupti));
        }
        if !allocation {
            self.address -= bytes.next_multiple_of(512);
        }
    }

    /// A record that needs no slot.
    fn own(&mut self, cupti: &Cupti, record: Record, start: u64, end: u64, correlation: u32) {
        if let Some(kind) = Kind::of(record.kind()) {
            cupti.ledger.expected.add(kind as usize, 1);
        }
        self.pending.push_back(Pending {
            start,
            end,
            correlation,
            source: Source::Own(Box::new(record)),
            slot: None,
            recorded: true,
            unasked: false,
            timeless: false,
        });
    }
}

fn next_correlation(cupti: &Cupti) -> u32 {
    cupti.correlation.fetch_add(1, Relaxed)
}
