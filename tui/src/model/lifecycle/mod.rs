//! What callbacks told of graphs, captures and launches that failed. Known whole only after an early start; what can
//! be told from records alone is in `graphs`.

pub(super) mod captures;
pub(super) mod counts;
pub(super) mod execs;
pub(super) mod failures;
pub(super) mod graph;
pub(super) mod inside;
pub(super) mod legacy;
pub(super) mod limits;
pub(super) mod pointers;

use std::collections::VecDeque;

use gtop_protocol::lifecycle::{CAPTURE_OPEN, Event, IN_CAPTURE, What};
use gtop_protocol::message::Observers;

use captures::Captures;
use counts::Counts;
use execs::Execs;
use failures::Failures;
use legacy::Legacy;
use limits::Devices;
use pointers::Pointers;

/// Memory of a device as the driver tells it, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// CUPTI's number of the device.
    pub device: u32,
    /// Counted for graphs. What a graph allocated and freed counts until it is trimmed, also once the graph is gone
    /// (measured on an H200, driver 580.159.04: equal to the reserve in every state).
    pub graph_used: u64,
    /// Reserved for graphs.
    pub graph_reserved: u64,
    /// In use in the default pool.
    pub pool_used: u64,
    /// Reserved in the default pool.
    pub pool_reserved: u64,
    /// Since when anything is reserved for graphs, `CLOCK_REALTIME` nanoseconds.
    pub reserved_since: Option<u64>,
}

/// A call that waited long for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) code: u32,
    pub(super) thread: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// A call that waited for the device though it need not have, and others since the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Implicit {
    pub(super) wait: Wait,
    /// How many there were, this one with them, and how long they took together, nanoseconds.
    pub(super) count: u32,
    pub(super) ns: u64,
}

/// Long waits kept.
const MAX_WAITS: usize = 256;

/// Everything callbacks told of one process.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    /// What was counted; `None` until the shim has said.
    pub(super) observers: Option<Observers>,
    pub(super) counts: Counts,
    devices: Devices,
    pub(super) execs: Execs,
    pub(super) captures: Captures,
    pub(super) failures: Failures,
    pub(super) memory: Vec<DeviceMemory>,
    pub(super) waits: Vec<Wait>,
    /// Waits that need not have been, one event a second.
    pub(super) implicit: VecDeque<Implicit>,
    pub(super) pointers: Pointers,
    pub(super) legacy: Legacy,
    /// Modules loaded while a capture was open: how many, and the first.
    pub(super) loads_in_capture: u64,
    pub(super) first_load: Option<Event>,
    /// Modules loaded after graphs were launched, and when the last one was.
    pub(super) late_loads: u64,
    pub(super) last_late: u64,
}

impl Lifecycle {
    /// Takes in one event; `launches` of graphs were seen so far.
    pub(super) fn apply(&mut self, event: &Event, launches: u64) {
        self.execs.launches = launches;
        let Some(what) = What::from_wire(event.what) else { return };
        if event.result.get() != 0 && event.flags & (IN_CAPTURE | CAPTURE_OPEN) != 0 {
            self.captures.failed_call(event);
        }
        self.pointers.apply(what, event);
        self.legacy.apply(what, event);
        match what {
            What::CaptureBegun
            | What::CaptureEnded
            | What::StreamWorks
            | What::StreamMarked
            | What::StreamWaits
            | What::StreamsUntold => {
                self.captures.apply(what, event);
                if what == What::CaptureEnded {
                    self.execs.captured(event.object.get(), self.captures.gave(event));
                }
            }
            What::GraphCreated
            | What::GraphCloned
            | What::GraphDestroyed
            | What::Nodes
            | What::Edges
            | What::NodeRemoved => {
                self.execs.graph(what, event);
                self.captures.graph(what, event);
            }
            What::ExecCreated | What::ExecDestroyed | What::Instantiated | What::Updated | What::Uploaded => {
                self.execs.exec(what, event);
                if what == What::Uploaded {
                    self.failures.call(event, &self.devices);
                }
                if what == What::Instantiated {
                    self.captures.instantiated(event);
                }
            }
            What::LaunchFailed | What::ExecDestroyFailed | What::GraphDestroyFailed => {
                self.execs.misused(what, event);
                if what == What::LaunchFailed {
                    self.failures.graph_launch(event, &self.devices);
                }
            }
            What::KernelFailed => self.failures.kernel(event, &self.devices),
            What::ModuleLoaded if event.flags & CAPTURE_OPEN != 0 => {
                self.loads_in_capture += 1;
                self.first_load.get_or_insert(*event);
            }
            What::ModuleLoaded if launches > 0 => {
                self.late_loads += 1;
                self.last_late = event.time.get();
            }
            What::Call => self.failures.call(event, &self.devices),
            What::LongWait => {
                if self.waits.len() >= MAX_WAITS {
                    self.waits.remove(0);
                }
                self.waits.push(wait(event));
            }
            What::ImplicitWait => {
                if self.implicit.len() >= MAX_WAITS {
                    self.implicit.pop_front();
                }
                let (count, ns) = (event.count.get(), event.bytes.get());
                self.implicit.push_back(Implicit { wait: wait(event), count, ns });
            }
            What::DeviceMemory => self.device_memory(event),
            What::ContextDestroyed => {
                self.captures.apply(what, event);
                self.execs.context_gone(event);
            }
            What::StreamDestroyed => {
                self.captures.apply(what, event);
                self.devices.apply(what, event);
            }
            What::ContextCreated | What::StreamCreated | What::DeviceLimits => {
                self.devices.apply(what, event);
            }
            _ => {}
        }
    }

    /// Takes in what was counted, at a moment.
    pub(super) fn heard(&mut self, observers: Observers, time: u64) {
        self.counts.add(&observers, time);
        self.observers = Some(observers);
    }

    fn device_memory(&mut self, event: &Event) {
        let device = event.id.get();
        let (used, reserved) = (event.object.get(), event.other.get());
        let at = self.memory.iter().position(|memory| memory.device == device);
        let before = at.and_then(|at| self.memory[at].reserved_since);
        let memory = DeviceMemory {
            device,
            graph_used: used,
            graph_reserved: reserved,
            pool_used: event.node.get(),
            pool_reserved: event.bytes.get(),
            reserved_since: (reserved > 0).then(|| before.unwrap_or(event.time.get())),
        };
        match at {
            Some(at) => self.memory[at] = memory,
            None if self.memory.len() < 64 => self.memory.push(memory),
            None => {}
        }
    }
}

fn wait(event: &Event) -> Wait {
    let end = event.time.get();
    let begin = end.saturating_sub(event.ns.get());
    Wait { code: event.code.get(), thread: event.thread.get(), begin, end }
}

#[cfg(test)]
mod tests;
