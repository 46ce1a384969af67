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
    fn least_used(&mut self, now: u64, watching: bool) -> Option<usize> {
        // This thread may have stood still for long: who has read everything meanwhile is not to blame.
        self.viewers.iter_mut().for_each(|viewer| viewer.look(now, true));
        let unused = |viewer: &Viewer| viewer.unused_since(now).filter(|_| viewer.watching || !watching);
        let all = self.viewers.iter().enumerate();
        let unused = all.filter_map(|(at, viewer)| Some((unused(viewer)?, at)));
        unused.min().map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::Own;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_who_reads_nothing_or_asks_nothing_for_long_is_of_no_use() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let own = Own::new(ours.try_clone().unwrap()).unwrap();
        let mut viewer = Viewer::new(1, own, 0).unwrap();
        assert_eq!((viewer.unused_since(59 * SECOND), viewer.unused_since(61 * SECOND)), (None, Some(0)));
        viewer.asked_at = 50 * SECOND;
        assert_eq!(viewer.unused_since(61 * SECOND), None, "it waits for an answer");

        viewer.watching = true;
        let after = |seconds: u64, viewer: &mut Viewer| {
            viewer.look(seconds * SECOND, true);
            viewer.unused_since(seconds * SECOND)
        };
        assert_eq!(after(100, &mut viewer), None, "there was nothing to read");
        ours.write_all(b"a beat").unwrap();
        assert_eq!((after(101, &mut viewer), after(109, &mut viewer)), (None, None));
        ours.write_all(b"another").unwrap();
        assert_eq!(after(111, &mut viewer), Some(100 * SECOND));
        theirs.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(after(112, &mut viewer), None, "a part is enough");
        assert_eq!(after(123, &mut viewer), Some(112 * SECOND));
        theirs.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(after(9000, &mut viewer), None, "however long nobody looked");
    }
}
