//! The legacy default stream of each context, and the streams that wait for it and for which it waits.

use std::collections::VecDeque;

use gtop_protocol::lifecycle::{BLOCKING, Event, What};
use rustc_hash::FxHashMap;

/// Streams kept.
const MAX_STREAMS: usize = 1 << 12;
/// Moments with launches that are kept.
const MAX_MOMENTS: usize = 1024;

/// Launches on it, told together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Launches {
    /// When the last of them was, `CLOCK_REALTIME` nanoseconds.
    pub(in super::super) time: u64,
    pub(in super::super) context: u32,
    pub(in super::super) count: u32,
}

/// All of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Legacy {
    /// Streams that block, by handle: context, and CUPTI's id.
    blocking: FxHashMap<u64, (u32, u32)>,
    pub(in super::super) launches: VecDeque<Launches>,
}

impl Legacy {
    pub(super) fn apply(&mut self, what: What, event: &Event) {
        let (handle, context) = (event.object.get(), event.context.get());
        match what {
            What::StreamCreated => {
                self.blocking.remove(&handle);
                if event.detail.get() == BLOCKING && self.blocking.len() < MAX_STREAMS {
                    self.blocking.insert(handle, (context, event.id.get()));
                }
            }
            What::StreamDestroyed => drop(self.blocking.remove(&handle)),
            What::ContextDestroyed => {
                let gone = event.id.get();
                self.blocking.retain(|_, (context, _)| *context != gone);
            }
            What::LegacyLaunches => {
                if self.launches.len() >= MAX_MOMENTS {
                    self.launches.pop_front();
                }
                let (time, count) = (event.time.get(), event.count.get());
                self.launches.push_back(Launches { time, context, count });
            }
            _ => {}
        }
    }

    /// CUPTI's ids of the streams of a context that block, in order.
    pub(in super::super) fn blocking(&self, context: u32) -> Vec<u32> {
        let mut ids: Vec<u32> =
            self.blocking.values().filter(|(of, _)| *of == context).map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }
}
