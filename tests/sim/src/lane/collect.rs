//! Work that has ended becomes records, and its slots go back.

use super::Lane;
use crate::client::{Host, Outgoing};
use crate::cupti::{Cupti, lock};
use crate::layout::{Record, kind as activity};
use crate::pool::Sequence;
use crate::truth::{Class, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Work that was launched and whose record has not been made.
pub(super) struct Pending {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u32,
    pub(super) source: Source,
    pub(super) slot: Option<Sequence>,
    /// Whether a record comes of it.
    pub(super) recorded: bool,
    pub(super) unasked: bool,
    /// Whether there was no slot to write its times to.
    pub(super) timeless: bool,
}

/// Where the rest of a record is.
pub(super) enum Source {
    Node { exec: u32, node: u32, as_kernel: bool },
    Own(Box<Record>),
}

impl Lane {
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

    /// Makes the records of what has ended by `horizon`; if forced, of everything.
    pub(super) fn collect(&mut self, cupti: &Cupti, horizon: u64, now: u64, forced: bool) {
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
            if pending.correlation == self.last_traced && !cupti.is_on(activity::KERNEL) {
                end += cupti.faults.late_ends;
            }
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
}
