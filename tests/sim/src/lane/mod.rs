//! A thread of the application with the stream it feeds: what it launches, what CUPTI traces of it, and what comes
//! out as records.

mod collect;
mod launch;

use crate::callbacks::{Api, resource};
use crate::client::Host;
use crate::cupti::{Cupti, lock};
use crate::program::{Act, Keep, Program, Recipe};
use crate::scenario::Thread;
use collect::Pending;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

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
    /// Whether the cursor was moved to where the turn begins.
    paced: bool,
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
    /// The correlation id of the last launch of a graph that was made while kernel was on.
    last_traced: u32,
}

/// How far behind a thread may fall before it forgets what it missed, as a process that was stopped.
const BEHIND: u64 = 250_000_000;
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
            paced: false,
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
            last_traced: 0,
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
        let missed = now.saturating_sub(BEHIND).saturating_sub(self.due());
        if !self.finished() {
            self.cursor += missed;
            self.rate_since += missed;
        }
        while !self.finished() && self.due() <= now {
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
            self.due();
            self.act(cupti);
            if self.pending.len() >= batch {
                cupti.clock.reach(self.cursor);
                self.collect(cupti, self.cursor, self.cursor, false);
            }
        }
    }

    /// Nanoseconds from `now` until something falls due, none while records wait to be made.
    pub(crate) fn idle(&self, now: u64) -> u64 {
        if self.pending.is_empty() { self.cursor.saturating_sub(now) } else { 0 }
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
        let graph = self
            .program
            .recipes
            .iter()
            .position(|recipe| matches!(recipe, Recipe::Steps(graph) if graph.name == name));
        graph.is_some_and(|graph| {
            self.program.instantiate(graph, cupti, cupti.attached(time), Keep::default()).is_ok()
        })
    }

    fn act(&mut self, cupti: &Cupti) {
        let range =
            self.program.turns[self.program.order[self.turn as usize % self.program.order.len()]].clone();
        let act = self.program.acts[range.start + self.act].clone();
        match act {
            Act::Work { graph, nodes, timing } => self.work(cupti, graph, nodes, timing),
            Act::Instantiate { graph, keep } => {
                let early = cupti.attached(self.cursor);
                // Was checked when the program was made.
                let _ = self.program.instantiate(graph, cupti, early, keep);
            }
            Act::Destroy { graph } => self.program.destroy(graph, cupti),
            Act::Call(mut call) => {
                call.graph = call.of.map_or(call.graph, |graph| self.program.exec_id(graph));
                // What is called back is called back now, however far the thread is behind: what follows is later.
                if cupti.clock.is_real() {
                    self.cursor = self.cursor.max(cupti.clock.now());
                }
                call.call_back(cupti, self.context);
                self.cursor += call.ns;
            }
            Act::Wait(ns) => self.cursor += ns,
            Act::Sync => self.sync(cupti),
            Act::Memory { allocation, bytes, library, sort } => {
                self.memory(cupti, allocation, bytes, library, sort);
            }
        }
        self.paced = false;
        self.act += 1;
        if self.act >= range.len() {
            self.act = 0;
            self.turn += 1;
        }
    }

    /// When the next act is due; the first act of a turn waits until the turn may begin.
    fn due(&mut self) -> u64 {
        if self.act == 0 && !self.paced {
            self.pace();
            self.turn_began = self.cursor;
            self.paced = true;
        }
        self.cursor
    }

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
