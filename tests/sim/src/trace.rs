//! What CUPTI does about a node when it is launched: which take slots, which of those are never collected, and what
//! becomes a record. This is where versions differ, and early graphs from late ones.

use crate::cupti::Cupti;
use crate::layout::kind;
use crate::program::Exec;
use crate::truth::Kind;
use std::sync::atomic::Ordering::Relaxed;

/// What CUPTI does about a node.
#[derive(Clone, Copy, Default)]
pub(crate) struct Trace {
    /// It takes a slot.
    pub(crate) slot: bool,
    /// Its slot is never collected.
    pub(crate) uncovered: bool,
    pub(crate) recorded: bool,
    pub(crate) as_kernel: bool,
    pub(crate) unasked: bool,
}

/// Which kinds were on at a launch.
#[derive(Clone, Copy)]
pub(crate) struct On {
    pub(crate) attached: bool,
    pub(crate) kernel: bool,
    pub(crate) memcpy: bool,
    pub(crate) memset: bool,
    pub(crate) overhead: bool,
    /// Only the serial kind of kernel tracing is on.
    pub(crate) serial: bool,
    /// Graphs are traced whole.
    pub(crate) graph_level: bool,
}

impl On {
    pub(crate) fn at(cupti: &Cupti, time: u64) -> Self {
        let concurrent = cupti.on(kind::KERNEL, time);
        let serial = cupti.on(kind::SERIAL_KERNEL, time);
        Self {
            attached: cupti.attached(time),
            kernel: concurrent || serial,
            memcpy: cupti.on(kind::MEMCPY, time),
            memset: cupti.on(kind::MEMSET, time),
            overhead: cupti.on(kind::OVERHEAD, time),
            serial: serial && !concurrent,
            graph_level: cupti.graph_level.load(Relaxed) != 0,
        }
    }
}

impl Exec {
    /// What CUPTI does about a node that is launched now. It instruments the nodes of an early graph when the
    /// graph is instantiated, so they take slots whatever is on; of late graphs and eager work it sees what is on.
    pub(crate) fn trace(&self, node: usize, on: On, cupti: &Cupti) -> Trace {
        let node = &self.nodes[node];
        let own = match node.kind {
            Kind::Kernel => on.kernel,
            Kind::Memcpy => on.memcpy,
            _ => on.memset,
        };
        match (self.id, node.kind) {
            (0, Kind::Kernel) => Trace { slot: own, recorded: own, ..Trace::default() },
            (0, _) => Trace { recorded: own, ..Trace::default() },
            (_, Kind::Kernel) if self.early => {
                let lingers = self.plain && cupti.version.keeps_recording() && cupti.kernels_were_on();
                Trace { slot: true, recorded: own || lingers, unasked: !own, ..Trace::default() }
            }
            (_, _) if self.early => {
                let unasked = !own && on.kernel && cupti.version.delivers_unasked();
                Trace {
                    slot: true,
                    uncovered: !own && node.on_device && cupti.version.leaks(),
                    recorded: own || unasked,
                    unasked,
                    as_kernel: false,
                }
            }
            (_, Kind::Kernel) => Trace { slot: own, recorded: own, ..Trace::default() },
            (_, _) if node.on_device => {
                Trace { slot: on.kernel, recorded: on.kernel, as_kernel: true, ..Trace::default() }
            }
            (_, _) => Trace { slot: own, recorded: own, ..Trace::default() },
        }
    }
}
