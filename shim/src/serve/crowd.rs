//! Who is served when more come than there is room for.

use super::Server;
use crate::viewer::Viewer;

/// Connections that may watch at once.
pub(super) const MOST_VIEWERS: usize = 16;
/// Connections at once: short requests have room beside as many viewers as there can be.
pub(super) const MOST_CONNECTIONS: usize = MOST_VIEWERS + 4;

impl Server {
    /// Closes the connection that has been of no use for longest, if there is no room for another one.
    pub(super) fn make_room(&mut self, now: u64) {
        if self.viewers.len() >= MOST_CONNECTIONS
            && let Some(at) = self.least_used(now, false)
        {
            self.viewers.remove(at);
            self.shim.log.line(format_args!("a connection of no use was closed for a new one"));
            self.count_watchers();
        }
    }

    /// Whether one more may watch. Where as many do as may, the one that has read nothing for longest gives way.
    pub(super) fn may_watch(&mut self, now: u64) -> bool {
        if self.viewers.iter().filter(|viewer| viewer.watching).count() < MOST_VIEWERS {
            return true;
        }
        let Some(viewer) = self.least_used(now, true).and_then(|at| self.viewers.get_mut(at)) else {
            return false;
        };
        viewer.dismiss();
        self.shim.log.line(format_args!("a viewer that reads nothing was closed for a new one"));
        true
    }

    /// The connection that has been of no use for longest, of those that have been for too long; of viewers alone, or of
    /// all.
    fn least_used(&self, now: u64, watching: bool) -> Option<usize> {
        let unused = |viewer: &Viewer| viewer.unused_since(now).filter(|_| viewer.watching || !watching);
        let all = self.viewers.iter().enumerate();
        let unused = all.filter_map(|(at, viewer)| Some((unused(viewer)?, at)));
        unused.min().map(|(_, at)| at)
    }
}
