//! Records, events and names on their way from the queues to who watches.

use super::{BATCH, Server};
use crate::collect::Collector;
use crate::frames::FRAMES;
use crate::observe;
use crate::room;
use crate::sys;
use crate::viewer::Viewer;
use gtop_protocol::frame::FrameKind;
use gtop_protocol::message::RawBuffer;

impl Server {
    pub(super) fn has_frames(&self) -> bool {
        let waits = |collector: &&Collector| collector.frames.queued() > 0 || collector.copies.queued() > 0;
        self.shim.collector.get().is_some_and(waits)
    }

    /// Empties the queue into the connections that watch.
    pub(super) fn take_frames(&mut self) {
        let Some(collector) = self.shim.collector.get().copied() else { return };
        // Half of all frames stay free for collecting, however many are slow.
        let most = (FRAMES as usize / 2).checked_div(self.watchers as usize).unwrap_or(0);
        let now = sys::realtime();
        // Few at a time, so that connections are served in between however fast frames come.
        for _ in 0..BATCH {
            let Some(frame) = collector.frames.pop() else { break };
            self.learn_names();
            self.popped = self.popped.saturating_add(frame.records());
            self.pools.take_in(frame.body(), now);
            if self.status.budget.is_some() {
                self.meter.take_in(frame.body());
            }
            for viewer in self.viewers.iter_mut().filter(|viewer| viewer.watching) {
                viewer.offer(&frame, FrameKind::Records, self.named.len(), most);
            }
        }
        self.take_copies(collector, most);
    }

    /// Empties the queue of CUPTI's buffers as they are into the connections that want them.
    fn take_copies(&mut self, collector: &'static Collector, most: usize) {
        let watching = |viewer: &&Viewer| viewer.watching;
        let wanted = self.viewers.iter().filter(watching).map(|viewer| viewer.wanted).max();
        collector.copies.want(wanted.unwrap_or_default());
        for _ in 0..BATCH {
            let Some(frame) = collector.copies.pop() else { break };
            self.learn_names();
            let invalid = RawBuffer::read(frame.body()).map_or(0, |buffer| buffer.invalid);
            for viewer in self.viewers.iter_mut().filter(|viewer| viewer.watching) {
                if viewer.wanted.takes(invalid) {
                    viewer.offer(&frame, FrameKind::RawBuffer, self.named.len(), most);
                }
            }
        }
    }

    /// Takes in what callbacks told.
    pub(super) fn take_events(&mut self) {
        let Some(observe) = observe::current() else { return };
        if self.events.take_in(observe, |event| self.pools.hear(event)) {
            // Events name kernels that no record has named yet.
            self.learn_names();
        }
    }

    /// Lists the names that have become readable. An id can be given out before its name is there, and the names
    /// of later ids may be needed meanwhile, so holes are looked at again.
    fn learn_names(&mut self) {
        let Some(collector) = self.shim.collector.get() else { return };
        let mut whole = true;
        for id in self.names_from..collector.names.end() {
            let (word, bit) = (id as usize / 64, 1u64 << (id % 64));
            let Some(listed) = self.listed.get_mut(word) else { return };
            if *listed & bit == 0 && collector.names.get(id).is_some() && room::push(&mut self.named, id) {
                *listed |= bit;
            }
            whole &= *listed & bit != 0;
            if whole {
                self.names_from = id.saturating_add(1);
            }
        }
    }
}
