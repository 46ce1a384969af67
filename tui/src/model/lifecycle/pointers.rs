//! The memory that copies and memory sets of captured graphs point to, and what becomes of it. Kernels point to memory by
//! their parameters, which nobody tells.

use std::collections::VecDeque;
use std::sync::Arc;

use gtop_protocol::lifecycle::{Event, What};
use rustc_hash::FxHashMap;

/// Nodes kept of one capture, and captured graphs and executable graphs with such nodes.
const MAX_NODES: usize = 4096;
const MAX_GRAPHS: usize = 1 << 14;
/// Captures that may be open at once.
const MAX_OPEN: usize = 64;
/// Pieces of memory that were freed.
const MAX_FREED: usize = 1024;

/// One end of a copy, or of a memory set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Pointer {
    pub(in super::super) address: u64,
    /// Bytes from there on that the node reads or writes.
    pub(in super::super) bytes: u64,
    /// Callback id of the captured call.
    pub(in super::super) code: u32,
    captured: u64,
}

/// Memory that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Freed {
    pub(in super::super) address: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) code: u32,
    pub(in super::super) thread: u32,
    begin: u64,
    /// When, `CLOCK_REALTIME` nanoseconds.
    pub(in super::super) time: u64,
}

impl Freed {
    fn touches(&self, address: u64, bytes: u64) -> bool {
        address < self.address.saturating_add(self.bytes)
            && self.address < address.saturating_add(bytes.max(1))
    }
}

/// All of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Pointers {
    /// By the thread that captures.
    open: Vec<(u32, Vec<Pointer>)>,
    graphs: FxHashMap<u64, Arc<[Pointer]>>,
    /// By the handle of the executable graph.
    execs: FxHashMap<u64, Arc<[Pointer]>>,
    freed: VecDeque<Freed>,
    unknown: bool,
}

impl Pointers {
    pub(super) fn apply(&mut self, what: What, event: &Event) {
        let (handle, other, thread) = (event.object.get(), event.other.get(), event.thread.get());
        let went_well = event.result.get() == 0;
        match what {
            What::CaptureBegun if went_well => {
                // Of two at once on one thread it is not known whose a node is: neither's.
                let before = self.open.len();
                self.open.retain(|(capturing, _)| *capturing != thread);
                if self.open.len() == before && before < MAX_OPEN {
                    self.open.push((thread, Vec::new()));
                }
            }
            What::NodeMemory => {
                let Some((_, nodes)) = self.open.iter_mut().find(|(capturing, _)| *capturing == thread)
                else {
                    return;
                };
                let (bytes, code, captured) = (event.bytes.get(), event.code.get(), event.time.get());
                for address in [handle, other].into_iter().filter(|address| *address != 0) {
                    if nodes.len() < MAX_NODES {
                        nodes.push(Pointer { address, bytes, code, captured });
                    }
                }
            }
            What::CaptureEnded => {
                let Some(at) = self.open.iter().position(|(capturing, _)| *capturing == thread) else {
                    return;
                };
                let (_, nodes) = self.open.swap_remove(at);
                put(&mut self.graphs, handle, nodes.into());
            }
            // A clone has the nodes of what it was made from, and so has an executable graph that was updated by it.
            What::GraphCloned => {
                let nodes = self.graphs.get(&other).cloned().unwrap_or_default();
                put(&mut self.graphs, handle, nodes);
            }
            What::GraphDestroyed => drop(self.graphs.remove(&handle)),
            What::Instantiated | What::Updated if went_well => {
                let nodes = self.graphs.get(&other).cloned().unwrap_or_default();
                put(&mut self.execs, handle, nodes);
            }
            What::ExecDestroyed => drop(self.execs.remove(&handle)),
            What::Freed => {
                if self.freed.len() >= MAX_FREED {
                    self.freed.pop_front();
                }
                let time = event.time.get();
                self.freed.push_back(Freed {
                    address: handle,
                    bytes: event.bytes.get(),
                    code: event.code.get(),
                    thread,
                    begin: time.saturating_sub(event.ns.get()),
                    time,
                });
            }
            // Given again while the free was still on its way back, it may be told before the free.
            What::Allocated => {
                let (bytes, time) = (event.bytes.get(), event.time.get());
                self.freed.retain(|freed| !(freed.touches(handle, bytes) && freed.begin <= time));
            }
            What::NodesSet => {
                let before = std::mem::take(self);
                *self = Self { unknown: true, freed: before.freed, ..Self::default() };
            }
            _ => {}
        }
    }

    /// Nodes of this executable graph that point to memory that was freed after they were captured and given to nobody
    /// since, with its last free.
    pub(in super::super) fn dangling(&self, exec: u64) -> impl Iterator<Item = (&Pointer, &Freed)> {
        let nodes = self.execs.get(&exec).filter(|_| !self.unknown).map_or(&[][..], |nodes| nodes);
        nodes.iter().filter_map(|node| {
            let freed =
                |freed: &&Freed| freed.touches(node.address, node.bytes) && freed.time > node.captured;
            Some((node, self.freed.iter().rev().find(freed)?))
        })
    }

    /// Whether the shim has given up following what nodes point to.
    pub(in super::super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether any memory is freed that a node was seen to point to.
    pub(in super::super) fn any(&self) -> bool {
        !self.unknown && !self.freed.is_empty()
    }
}

/// Keeps the nodes of a graph; one without any is as good as unknown.
fn put(graphs: &mut FxHashMap<u64, Arc<[Pointer]>>, handle: u64, nodes: Arc<[Pointer]>) {
    if nodes.is_empty() || handle == 0 {
        graphs.remove(&handle);
    } else if graphs.len() < MAX_GRAPHS || graphs.contains_key(&handle) {
        graphs.insert(handle, nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: u64 = 0x90;
    const EXEC: u64 = 0xe0;
    const MEMORY: u64 = 0x7f00_0000_0000;

    fn say(pointers: &mut Pointers, what: What, time: u64, object: u64, other: u64, bytes: u64) {
        let event = Event {
            time: time.into(),
            object: object.into(),
            other: other.into(),
            bytes: bytes.into(),
            thread: 5.into(),
            code: 216.into(),
            ..Event::default()
        };
        pointers.apply(what, &event);
    }

    /// A graph with one memory set, instantiated.
    fn captured() -> Pointers {
        let mut pointers = Pointers::default();
        say(&mut pointers, What::CaptureBegun, 1, 0, 0, 0);
        say(&mut pointers, What::NodeMemory, 2, MEMORY + 256, 0, 64);
        say(&mut pointers, What::CaptureEnded, 3, GRAPH, 0, 0);
        say(&mut pointers, What::Instantiated, 4, EXEC, GRAPH, 0);
        say(&mut pointers, What::GraphDestroyed, 5, GRAPH, 0, 0);
        pointers
    }

    fn dangles(pointers: &Pointers) -> bool {
        pointers.dangling(EXEC).next().is_some()
    }

    #[test]
    fn a_node_dangles_from_the_free_of_its_memory_until_that_is_given_again() {
        let mut pointers = captured();
        say(&mut pointers, What::Freed, 6, MEMORY + 4096, 0, 4096);
        assert!(!dangles(&pointers), "elsewhere");
        say(&mut pointers, What::Freed, 7, MEMORY, 0, 4096);
        let (node, freed) = pointers.dangling(EXEC).next().unwrap();
        assert_eq!((node.address, node.code, freed.address, freed.time), (MEMORY + 256, 216, MEMORY, 7));
        say(&mut pointers, What::Allocated, 8, MEMORY, 0, 512);
        assert!(!dangles(&pointers));
        say(&mut pointers, What::Freed, 9, MEMORY, 0, 512);
        say(&mut pointers, What::ExecDestroyed, 10, EXEC, 0, 0);
        assert!(!dangles(&pointers));
    }

    #[test]
    fn what_was_freed_before_it_was_captured_or_is_set_anew_does_not_dangle() {
        let mut pointers = captured();
        say(&mut pointers, What::Freed, 1, MEMORY, 0, 4096);
        assert!(!dangles(&pointers), "before the capture");
        say(&mut pointers, What::Freed, 6, MEMORY, 0, 4096);
        assert!(dangles(&pointers));
        // Updated by a graph of which nothing is known.
        say(&mut pointers, What::Updated, 7, EXEC, GRAPH + 1, 0);
        assert!(!dangles(&pointers));
        let mut pointers = captured();
        say(&mut pointers, What::Freed, 6, MEMORY, 0, 4096);
        say(&mut pointers, What::NodesSet, 7, EXEC, 0, 0);
        say(&mut pointers, What::Instantiated, 8, EXEC, GRAPH, 0);
        assert!(!dangles(&pointers) && !pointers.any());
    }

    #[test]
    fn memory_given_again_before_its_free_is_told_does_not_dangle() {
        let mut pointers = captured();
        let free = Event {
            time: 100.into(),
            ns: 50.into(),
            object: MEMORY.into(),
            bytes: 4096.into(),
            ..Event::default()
        };
        pointers.apply(What::Freed, &free);
        say(&mut pointers, What::Allocated, 90, MEMORY, 0, 4096);
        assert!(!dangles(&pointers));
    }
}
