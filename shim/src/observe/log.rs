//! The I/O thread's log of events: kept for those who join later, bounded, nodes of a graph in runs.

use super::Observe;
use super::compute::WithKernels;
use crate::room;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::lifecycle::{Event, What};

/// Events kept; a server that captures a thousand graphs makes some ten thousand.
const MOST: usize = 1 << 15;

/// The events so far, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Vec<Event>,
    /// Events that are no longer kept.
    forgotten: u64,
    /// Those of them without which the story is not whole.
    missing: u64,
    nodes: Option<Event>,
    edges: Option<Event>,
    with_kernels: WithKernels,
}

impl EventLog {
    /// Takes in what has come, each event seen by `see` as well; gives whether anything did.
    pub(crate) fn take_in(&mut self, observe: &Observe, mut see: impl FnMut(&Event)) -> bool {
        let before = self.end();
        while let Some(event) = observe.pop() {
            see(&event);
            if self.with_kernels.hear(&event) {
                observe.bare.store(true, Relaxed);
            }
            self.add(event);
        }
        self.end() != before
    }

    /// Lets go of runs that may still grow.
    pub(crate) fn settle(&mut self) {
        for run in [self.nodes.take(), self.edges.take()].into_iter().flatten() {
            self.keep(run);
        }
    }

    fn add(&mut self, event: Event) {
        let (run, continues) = match What::from_wire(event.what) {
            Some(What::Nodes) => (&mut self.nodes, nodes_continue as fn(&Event, &Event) -> bool),
            Some(What::Edges) => (&mut self.edges, edges_continue as fn(&Event, &Event) -> bool),
            _ => {
                self.settle();
                return self.keep(event);
            }
        };
        match run {
            Some(run) if continues(run, &event) => {
                run.count = run.count.get().saturating_add(1).into();
                run.bytes = run.bytes.get().saturating_add(event.bytes.get()).into();
            }
            _ => {
                if let Some(done) = run.replace(event) {
                    self.keep(done);
                }
            }
        }
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() >= MOST {
            self.make_room();
        }
        if !room::push(&mut self.events, event) {
            self.forgotten = self.forgotten.saturating_add(1);
            self.missing = self.missing.saturating_add(u64::from(!passes(&event)));
        }
    }

    /// Lets go of most of what passes and leaves nothing behind, if there is some of it, so that waits and failures
    /// without end do not push out which graphs there are; else of the oldest quarter.
    fn make_room(&mut self) {
        let before = self.events.len();
        let passing = self.events.iter().filter(|event| passes(event)).count();
        if passing >= MOST / 16 {
            let mut going = passing.saturating_sub(passing / 4);
            self.events.retain(|event| {
                let goes = going > 0 && passes(event);
                going = going.saturating_sub(usize::from(goes));
                !goes
            });
        } else {
            let oldest = self.events.drain(..(MOST / 4).min(before));
            let missing = oldest.filter(|event| !passes(event)).count();
            self.missing = self.missing.saturating_add(missing as u64);
        }
        let gone = before.saturating_sub(self.events.len());
        self.forgotten = self.forgotten.saturating_add(gone as u64);
    }

    /// How many events there ever were.
    pub(crate) fn end(&self) -> u64 {
        self.forgotten.saturating_add(self.events.len() as u64)
    }

    /// How many are no longer kept of those that are part of the story of what there is.
    pub(crate) const fn missing(&self) -> u64 {
        self.missing
    }

    /// The events from this count on, as far as they are kept, and the count of the first of them.
    pub(crate) fn from(&self, count: u64) -> (u64, &[Event]) {
        let count = count.max(self.forgotten);
        let at = usize::try_from(count.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        (count, self.events.get(at..).unwrap_or_default())
    }
}

/// Whether an event says nothing of what there is from then on.
fn passes(event: &Event) -> bool {
    use What::{
        Call, ImplicitWait, KernelFailed, LaunchFailed, LegacyLaunches, LongWait, StreamMarked, StreamWaits,
        StreamWorks, Uploaded,
    };
    matches!(
        What::from_wire(event.what),
        Some(
            Call | ImplicitWait
                | KernelFailed
                | LaunchFailed
                | LegacyLaunches
                | LongWait
                | StreamMarked
                | StreamWaits
                | StreamWorks
                | Uploaded
        )
    )
}

fn nodes_continue(run: &Event, next: &Event) -> bool {
    let follows = run.node.get().checked_add(u64::from(run.count.get())) == Some(next.node.get());
    let of = |event: &Event| (event.object, event.detail, event.thread, event.code, event.bytes.get() == 0);
    follows && of(run) == of(next)
}

fn edges_continue(run: &Event, next: &Event) -> bool {
    let count = u64::from(run.count.get());
    run.node.get().checked_add(count) == Some(next.node.get())
        && run.other.get().checked_add(count) == Some(next.other.get())
        && (run.object, run.thread) == (next.object, next.thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(graph: u64, node: u64, detail: u32) -> Event {
        Event {
            what: What::Nodes as u8,
            object: graph.into(),
            node: node.into(),
            detail: detail.into(),
            count: 1.into(),
            ..Event::default()
        }
    }

    fn edge(node: u64, other: u64) -> Event {
        Event {
            what: What::Edges as u8,
            node: node.into(),
            other: other.into(),
            count: 1.into(),
            ..Event::default()
        }
    }

    #[test]
    fn a_chain_of_kernels_is_one_run_of_nodes_and_one_of_edges() {
        let mut log = EventLog::default();
        for i in 0..337 {
            log.add(node(9, (41 << 32) + i, 0));
            if i > 0 {
                log.add(edge((41 << 32) + i, (41 << 32) + i - 1));
            }
        }
        log.add(node(9, (41 << 32) + 337, 1));
        log.add(Event { what: What::ExecCreated as u8, ..Event::default() });
        let told: Vec<_> = log.from(0).1.iter().map(|event| (event.what, event.count.get())).collect();
        let (nodes, edges) = (What::Nodes as u8, What::Edges as u8);
        assert_eq!(told, [(nodes, 337), (nodes, 1), (edges, 336), (What::ExecCreated as u8, 0)]);
    }

    #[test]
    fn what_nodes_allocate_is_summed_as_far_as_it_is_known_of_all_of_a_run() {
        let mut log = EventLog::default();
        for (i, bytes) in [(0, 5u64), (1, 6), (2, 0), (3, 7)] {
            log.add(Event { bytes: bytes.into(), ..node(9, (41 << 32) + i, 10) });
        }
        log.settle();
        let told: Vec<_> = log.from(0).1.iter().map(|event| (event.count.get(), event.bytes.get())).collect();
        assert_eq!(told, [(2, 11), (1, 0), (1, 7)]);
    }

    #[test]
    fn the_log_stays_bounded_and_counts_what_it_forgets() {
        let mut log = EventLog::default();
        for i in 0..100_000u64 {
            log.add(Event { time: i.into(), what: What::GraphCreated as u8, ..Event::default() });
        }
        assert_eq!(log.end(), 100_000);
        assert!(log.events.len() <= MOST);
        let (first, events) = log.from(3);
        assert_eq!((first, events[0].time.get()), (log.forgotten, log.forgotten));
        assert_eq!(log.missing(), log.forgotten);
        assert_eq!(log.from(99_999).1.len(), 1);
        // Waits without end let go of waits and of nothing else.
        let graphs = log.events.len();
        let missing = log.missing();
        for i in 0..100_000 {
            let what = if i % 2 == 0 { What::LongWait } else { What::StreamWaits };
            log.add(Event { what: what as u8, ..Event::default() });
        }
        assert_eq!(log.missing(), missing, "the story is as whole as before");
        assert_eq!(log.end(), 200_000);
        let kept = log.events.iter().filter(|event| event.what == What::GraphCreated as u8).count();
        assert_eq!((kept, log.events.len() <= MOST), (graphs, true));
        assert!(log.from(300_000).1.is_empty());
    }
}
