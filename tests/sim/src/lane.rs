//! A thread of the application with the stream it feeds: what it launches, what CUPTI traces of it, and what comes
//! out as records.

use crate::callbacks::{Api, Function, Launch, handle, resource};
use crate::client::{Host, Outgoing};
use crate::cupti::{Context, Cupti, lock};
use crate::layout::{Record, kind};
use crate::pool::{Pool, Sequence, Slot};
use crate::program::{Act, Program};
use crate::scenario::Thread;
use crate::trace::On;
use crate::truth::{Class, Kind};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Work that was launched and whose record has not been made.
struct Pending {
    start: u64,
    end: u64,
    correlation: u32,
    source: Source,
    slot: Option<Sequence>,
    /// Whether a record comes of it.
    recorded: bool,
    unasked: bool,
    /// Whether there was no slot to write its times to.
    timeless: bool,
}

/// Where the rest of a record is.
enum Source {
    Node { exec: u32, node: u32, as_kernel: bool },
    Own(Box<Record>),
}

/// A thread of the application.
pub(crate) struct Lane {
    program: Program,
    context: usize,
    pending: VecDeque<Pending>,
    host: Arc<Mutex<Host>>,
    /// When the stream is free next.
    cursor: u64,
    /// When the last work that was launched ends.
    busy_until: u64,
    act: usize,
    turn: u64,
    turn_began: u64,
    turns: Option<u64>,
    every: u64,
    rate: Option<f64>,
    rate_since: u64,
    kernels: u64,
    jitter: u64,
    noise: u64,
    grid_id: u64,
    address: u64,
    api: Api,
    flushed_at: u64,
}

/// How far behind a thread may fall before it forgets what it missed, as a process that was stopped.
const BEHIND: u64 = 250_000_000;
/// Launch calls return this long before the work starts.
const LAUNCH_NS: u64 = 2_500;
/// Records gathered before they are looked at while the clock is stepped, at most. Fewer where device buffers are
/// small, which would else be full before anything is collected.
const BATCH: usize = 4_096;
/// Records that may wait for what they record to end.
const MOST_PENDING: usize = 1 << 20;

impl Lane {
    pub(crate) fn new(program: Program, thread: &Thread, context: usize, host: Arc<Mutex<Host>>) -> Self {
        Self {
            program,
            context,
            pending: VecDeque::new(),
            host,
            cursor: 0,
            busy_until: 0,
            act: 0,
            turn: 0,
            turn_began: 0,
            turns: thread.turns,
            every: thread.every.0,
            rate: thread.rate,
            rate_since: 0,
            kernels: 0,
            jitter: u64::from(thread.jitter.min(99)),
            noise: 0x9E37_79B9_7F4A_7C15 ^ u64::from(thread.stream),
            grid_id: 0,
            address: 0x7F00_0000_0000,
            api: thread.api,
            flushed_at: 0,
        }
    }

    /// The application begins: its graphs are instantiated, its thread starts at `time`.
    pub(crate) fn begin(&mut self, cupti: &Cupti, time: u64) {
        resource(cupti, resource::STREAM_CREATED, self.context, Some(self.program.stream), None);
        self.program.instantiate_all(cupti, cupti.attached(time));
        self.resume(time);
    }

    /// Starts again at `time` if the stream was free before.
    pub(crate) fn resume(&mut self, time: u64) {
        if self.cursor < time {
            self.cursor = time;
        }
        if self.rate_since == 0 {
            self.rate_since = self.cursor;
        }
    }

    pub(crate) fn finished(&self) -> bool {
        self.turns.is_some_and(|turns| self.turn >= turns)
    }

    /// Does what falls due until `now`, and hands on the records of what has ended.
    pub(crate) fn advance(&mut self, cupti: &Cupti, now: u64) {
        if now.saturating_sub(self.cursor) > BEHIND && !self.finished() {
            let missed = now - BEHIND - self.cursor;
            self.cursor += missed;
            self.rate_since += missed;
        }
        while self.cursor <= now && !self.finished() {
            self.act(cupti);
            if self.pending.len() >= MOST_PENDING {
                break;
            }
        }
        self.collect(cupti, now.saturating_sub(cupti.lag()), now, false);
        let period = cupti.flush_period.load(Relaxed);
        if period > 0 && now.saturating_sub(self.flushed_at) >= period {
            self.flushed_at = now;
            lock(&self.host).flush(cupti);
        }
    }

    /// Runs so many turns, moving a stepped clock along.
    pub(crate) fn run_turns(&mut self, cupti: &Cupti, turns: u64) {
        let last = self.turn + turns;
        let batch =
            cupti.contexts[self.context].pool(|pool| pool.slots() as usize).map_or(BATCH, |n| BATCH.min(n));
        while self.turn < last && !self.finished() {
            self.act(cupti);
            if self.pending.len() >= batch {
                cupti.clock.reach(self.cursor);
                self.collect(cupti, self.cursor, self.cursor, false);
            }
        }
    }

    /// When everything launched has ended, and what the thread waits for has come.
    pub(crate) fn ends(&self) -> u64 {
        self.cursor.max(self.busy_until)
    }

    /// When the GPU has ended everything launched.
    pub(crate) const fn busy_until(&self) -> u64 {
        self.busy_until
    }

    /// Instantiates the graph `name` again. False if the thread has none.
    pub(crate) fn instantiate(&mut self, cupti: &Cupti, name: &str, time: u64) -> bool {
        let graph =
            self.program.recipes.iter().position(
                |recipe| matches!(recipe, crate::program::Recipe::Steps(graph) if graph.name == name),
            );
        graph.is_some_and(|graph| self.program.instantiate(graph, cupti, cupti.attached(time)).is_ok())
    }

    /// Hands on what has ended by `now`, and what has not if forced to; then the buffer.
    pub(crate) fn flush(&mut self, cupti: &Cupti, now: u64, forced: bool) {
        self.collect(cupti, now, now, forced);
        let mut host = lock(&self.host);
        if forced {
            host.give_back(cupti);
        } else {
            host.flush(cupti);
        }
    }

    fn act(&mut self, cupti: &Cupti) {
        let range =
            self.program.turns[self.program.order[self.turn as usize % self.program.order.len()]].clone();
        if self.act == 0 {
            self.pace();
            self.turn_began = self.cursor;
        }
        let act = self.program.acts[range.start + self.act].clone();
        match act {
            Act::Work { graph, nodes, timing } => self.work(cupti, graph, nodes, timing),
            Act::Instantiate { graph } => {
                let early = cupti.attached(self.cursor);
                // Was checked when the program was made.
                let _ = self.program.instantiate(graph, cupti, early);
            }
            Act::Wait(ns) => self.cursor += ns,
            Act::Sync => self.sync(cupti),
            Act::Memory { allocation, bytes } => self.memory(cupti, allocation, bytes),
        }
        self.act += 1;
        if self.act >= range.len() {
            self.act = 0;
            self.turn += 1;
        }
    }

    /// Waits until the next turn may begin.
    fn pace(&mut self) {
        if self.turn > 0 {
            self.cursor = self.cursor.max(self.turn_began + self.every);
        }
        if let Some(rate) = self.rate {
            const CATCH_UP: u64 = 100_000_000;
            let due = self.rate_since + (self.kernels as f64 / rate * 1e9) as u64;
            self.cursor = self.cursor.max(due);
            self.rate_since += self.cursor.saturating_sub(due + CATCH_UP);
        }
    }

    fn work(&mut self, cupti: &Cupti, graph: usize, nodes: Range<usize>, timing: usize) {
        let launched = self.cursor;
        let first = nodes.start;
        let on = On::at(cupti, launched);
        let context = &cupti.contexts[self.context];
        let exec = self.program.current[graph];
        let graph_id = self.program.execs[exec].id;
        let graph_level = on.graph_level && graph_id != 0;
        let mut correlation = if graph_id == 0 { 0 } else { next_correlation(cupti) };
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
                let place = crate::layout::Place { graph: graph_id, ..self.program.place(None) };
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

    fn sync(&mut self, cupti: &Cupti) {
        let (start, end) = (self.cursor, self.cursor + 1_000);
        self.cursor = end;
        cupti.ledger.executed.add(Kind::Sync as usize, 1);
        if cupti.on(kind::SYNC, start) {
            let record = Record::sync(cupti.version, self.program.place(None));
            self.own(cupti, record, start, end, next_correlation(cupti));
        }
    }

    fn memory(&mut self, cupti: &Cupti, allocation: bool, bytes: u64) {
        if allocation {
            self.address += bytes.next_multiple_of(512);
        }
        cupti.ledger.executed.add(Kind::Memory as usize, 1);
        let at = self.cursor;
        if cupti.on(kind::MEMORY2, at) {
            let record =
                Record::memory(cupti.version, self.program.place(None), allocation, self.address, bytes);
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

    /// Makes the records of what has ended by `horizon`; if forced, of everything.
    fn collect(&mut self, cupti: &Cupti, horizon: u64, now: u64, forced: bool) {
        let mut run = (0, 0);
        let context = &cupti.contexts[self.context];
        let host = Arc::clone(&self.host);
        let mut host = lock(&host);
        while let Some(pending) = self.pending.pop_front() {
            if pending.end > horizon && !forced {
                self.pending.push_front(pending);
                break;
            }
            if let Some(slot) = pending.slot {
                if run.0 != slot {
                    context.collect(run);
                    run = (slot, 0);
                }
                run.1 += 1;
            }
            if pending.recorded {
                self.record(cupti, &mut host, pending, now);
            }
        }
        context.collect(run);
    }

    fn record(&mut self, cupti: &Cupti, host: &mut Host, mut pending: Pending, now: u64) {
        let record = match &mut pending.source {
            Source::Node { exec, node, as_kernel } => {
                let node = &mut self.program.execs[*exec as usize].nodes[*node as usize];
                match &mut node.as_kernel {
                    Some(record) if *as_kernel => record,
                    _ => &mut node.record,
                }
            }
            Source::Own(record) => record,
        };
        let kind = Kind::of(record.kind());
        let (mut start, mut end, mut class) = (pending.start, pending.end, Class::Valid);
        if pending.timeless || (pending.start > now && kind.is_some_and(Kind::is_work)) {
            (start, end, class) = (0, 0, Class::Zero);
        } else if pending.end > now && kind.is_some_and(Kind::is_work) {
            // The end still holds what the slot held before.
            (end, class) = (start - 1, Class::Inverted);
        }
        if kind == Some(Kind::Kernel) {
            let index = cupti.kernel_records.fetch_add(1, Relaxed);
            for (_, reused, after) in &cupti.faults.reused {
                if index == *after {
                    reused.overwrite();
                }
            }
            if cupti.faults.withholds(index) {
                cupti.ledger.withheld.add(Kind::Kernel as usize, 1);
                return;
            }
            if class == Class::Valid {
                (start, end, class) = cupti.faults.timestamps(index, start, end);
            }
        }
        self.grid_id += 1;
        record.stamp(start, end, pending.correlation, self.grid_id);
        let unknown = cupti.faults.unknown_every;
        if unknown.is_some_and(|every| self.grid_id.is_multiple_of(every)) {
            let outgoing = Outgoing { record: &Record::unknown(), kind: None, class, unasked: false };
            host.put(cupti, &outgoing);
        }
        host.put(cupti, &Outgoing { record, kind, class, unasked: pending.unasked });
    }

    /// A duration with its share of noise.
    fn varied(&mut self, ns: u64) -> u64 {
        if self.jitter == 0 {
            return ns;
        }
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let percent = 100 - self.jitter + self.noise % (2 * self.jitter + 1);
        (ns * percent / 100).max(1)
    }
}

/// `CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH`.
const BUFFER_FLUSH: u32 = 1 << 16;
/// `CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE`.
const RESOURCE: u32 = 3 << 16;

fn next_correlation(cupti: &Cupti) -> u32 {
    cupti.correlation.fetch_add(1, Relaxed)
}
