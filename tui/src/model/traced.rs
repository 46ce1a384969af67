//! When which kinds of GPU work were not traced: nothing is known of that time, least of all that it was idle.

use std::collections::VecDeque;
use std::sync::Arc;

use gtop_protocol::{Kind, KindSet};

use super::snapshot::{Untraced, Why};

/// Stretches that are kept.
const MAX: usize = 256;
/// The kinds that lanes are made of.
const DRAWN: [Kind; 3] = [Kind::Kernel, Kind::Memcpy, Kind::Memset];

/// Stretches whose records were lost that are kept.
const MAX_LOST: usize = 1024;

/// The earliest start and the latest end of some records, CUPTI's nanoseconds.
pub(super) type Span = (u64, u64);

/// The newest stretches without tracing, and those in which records may be missing that were lost.
#[derive(Debug, Default)]
pub(super) struct Traced {
    list: VecDeque<Untraced>,
    lost: VecDeque<Span>,
    /// Frames that were lost: the newest time then, and the span of the frame before them. How far that goes the next
    /// records show.
    losing: Option<(u64, Option<Span>)>,
    /// The span of the last frame of records.
    last: Option<Span>,
    /// The span of the records since the shim last counted.
    since_count: Option<Span>,
    /// Whether its last count had more that never came into a frame.
    uncounted: bool,
    /// Since when kernels have not come although they ran, while that is so.
    silent: Option<u64>,
}

fn hull(a: Span, b: Span) -> Span {
    (a.0.min(b.0), a.1.max(b.1))
}

impl Traced {
    /// These kinds are on from CUPTI's time `now` on.
    pub(super) fn on(&mut self, enabled: KindSet, now: u64) {
        for kind in DRAWN {
            self.set(kind, (!enabled.has(kind)).then_some(Why::Off), now);
        }
    }

    /// The connection is lost at CUPTI's time `now`.
    pub(super) fn away(&mut self, now: u64) {
        for kind in DRAWN {
            self.set(kind, Some(Why::Away), now);
        }
    }

    /// The shim says that kernels run and do not come; `newest` is the end of the last one that did.
    pub(super) fn silent(&mut self, newest: u64) {
        self.silent.get_or_insert(newest);
    }

    /// Since when kernels have not come although they ran, while that is so.
    pub(super) const fn silent_since(&self) -> Option<u64> {
        self.silent
    }

    /// Silence is over at CUPTI's time `until`: nothing is known of kernels from its begin to then.
    pub(super) fn heard(&mut self, until: u64) {
        let Some(from) = self.silent.take().filter(|from| *from < until) else { return };
        self.keep(Untraced { kind: Kind::Kernel, from, to: until, why: Why::Silent });
    }

    /// Frames were lost behind records up to CUPTI's time `newest`; 0 is before all.
    pub(super) fn lose(&mut self, newest: u64) {
        if newest > 0 {
            self.losing.get_or_insert((newest, self.last));
        }
    }

    /// Whether it is not known yet how far that goes.
    pub(super) const fn is_losing(&self) -> bool {
        self.losing.is_some()
    }

    /// The next records are of this time; gives the stretch in which some are missing. Buffers of several streams come
    /// one after the other and overlap: then it is somewhere in the time of the frames before and after.
    pub(super) fn found(&mut self, next: Span) -> Option<Span> {
        let (newest, before) = self.losing.take()?;
        let stretch =
            if next.0 > newest { (newest, next.0) } else { before.map_or(next, |before| hull(before, next)) };
        self.miss(stretch);
        Some(stretch)
    }

    /// A frame of records of this time came.
    pub(super) fn came(&mut self, span: Span) {
        self.last = Some(span);
        self.since_count = Some(self.since_count.map_or(span, |before| hull(before, span)));
    }

    /// The shim has counted; `more` says that it lost more before they came into a frame. Those are of the time of the
    /// records since its last count, or of those that waited and come before its next; gives that stretch.
    pub(super) fn counted(&mut self, more: bool, newest: u64) -> Option<Span> {
        let span = self.since_count.take();
        let missed = more || self.uncounted;
        self.uncounted = more;
        match span {
            Some(span) if missed => {
                self.miss(span);
                Some(span)
            }
            None if more => {
                self.lose(newest);
                None
            }
            _ => None,
        }
    }

    /// Keeps a stretch, one with those that it touches.
    fn miss(&mut self, mut stretch: Span) {
        let first = self.lost.partition_point(|(_, to)| *to < stretch.0);
        let end = self.lost.partition_point(|(from, _)| *from <= stretch.1);
        stretch = self.lost.drain(first..end.max(first)).fold(stretch, hull);
        self.lost.insert(first, stretch);
        if self.lost.len() > MAX_LOST {
            self.lost.pop_front();
        }
    }

    /// The stretches in which records may be missing, in order; none overlap.
    pub(super) fn share_lost(&self) -> Arc<[Span]> {
        self.lost.iter().copied().collect()
    }

    fn set(&mut self, kind: Kind, why: Option<Why>, now: u64) {
        let open = self.list.iter().rposition(|stretch| stretch.kind == kind && stretch.to == u64::MAX);
        match open.and_then(|at| self.list.get_mut(at)) {
            Some(stretch) if Some(stretch.why) == why => return,
            Some(stretch) => stretch.to = now.max(stretch.from),
            None => {}
        }
        if let Some(why) = why {
            self.keep(Untraced { kind, from: now, to: u64::MAX, why });
        }
    }

    fn keep(&mut self, stretch: Untraced) {
        self.list.push_back(stretch);
        if self.list.len() > MAX {
            self.list.pop_front();
        }
    }

    /// What a snapshot holds.
    pub(super) fn share(&self) -> Arc<[Untraced]> {
        self.list.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_not_traced_until_it_is_on() {
        let mut traced = Traced::default();
        let kernel = |traced: &Traced| -> Vec<(u64, u64, Why)> {
            let all = traced.share();
            let of = all.iter().filter(|stretch| stretch.kind == Kind::Kernel);
            of.map(|stretch| (stretch.from, stretch.to, stretch.why)).collect()
        };
        traced.on(KindSet::SAFE, 10);
        assert_eq!(kernel(&traced), []);
        traced.on(KindSet::SAFE.without(Kind::Kernel), 20);
        traced.on(KindSet::SAFE.without(Kind::Kernel), 25);
        assert_eq!(kernel(&traced), [(20, u64::MAX, Why::Off)]);
        traced.away(30);
        traced.on(KindSet::SAFE, 40);
        assert_eq!(kernel(&traced), [(20, 30, Why::Off), (30, 40, Why::Away)]);
        for time in 0..1000 {
            traced.on(if time % 2 == 0 { KindSet::EMPTY } else { KindSet::SAFE }, 100 + time);
        }
        assert_eq!(traced.share().len(), MAX);
    }

    #[test]
    fn a_silence_that_is_over_stays_unknown() {
        let mut traced = Traced::default();
        traced.heard(5);
        traced.silent(10);
        traced.silent(15);
        assert_eq!(traced.share()[..], [], "the view knows what goes on");
        traced.heard(40);
        traced.heard(50);
        let silence = Untraced { kind: Kind::Kernel, from: 10, to: 40, why: Why::Silent };
        assert_eq!(traced.share()[..], [silence]);
        traced.silent(60);
        traced.heard(60);
        assert_eq!(traced.share().len(), 1, "no time passed");
    }

    #[test]
    fn what_was_lost_lies_between_what_came() {
        let mut traced = Traced::default();
        traced.lose(0);
        assert!(!traced.is_losing(), "nothing came yet");
        traced.came((50, 100));
        traced.lose(100);
        traced.lose(120);
        assert_eq!(traced.found((150, 180)), Some((100, 150)), "from the first loss on");
        assert_eq!(traced.found((160, 190)), None);
        for time in 0..2 * MAX_LOST as u64 {
            traced.lose(1_000 + 3 * time);
            traced.found((1_001 + 3 * time, 1_001 + 3 * time));
        }
        let lost = traced.share_lost();
        assert_eq!((lost.len(), lost.last().copied()), (MAX_LOST, Some((7_141, 7_142))));
    }

    #[test]
    fn where_buffers_overlap_it_is_somewhere_in_the_time_of_those_around() {
        let mut traced = Traced::default();
        traced.came((200, 300));
        traced.lose(300);
        assert_eq!(traced.found((180, 260)), Some((180, 300)), "another stream's records came");
        traced.came((180, 260));
        traced.lose(300);
        assert_eq!(traced.found((290, 390)), Some((180, 390)));
        assert_eq!(traced.share_lost()[..], [(180, 390)], "one stretch where they touch");
        traced.came((900, 950));
        traced.lose(950);
        assert_eq!(traced.found((960, 970)), Some((950, 960)));
        traced.last = None;
        traced.lose(970);
        assert_eq!(traced.found((20, 30)), Some((20, 30)), "nothing is known of what came before");
        assert_eq!(traced.share_lost()[..], [(20, 30), (180, 390), (950, 960)]);
        traced.last = Some((25, 955));
        traced.lose(970);
        traced.found((28, 29));
        assert_eq!(traced.share_lost()[..], [(20, 960)]);
    }

    #[test]
    fn what_never_came_into_a_frame_is_of_the_time_around_the_count() {
        let mut traced = Traced::default();
        traced.came((10, 20));
        assert_eq!(traced.counted(false, 20), None);
        traced.came((30, 50));
        traced.came((20, 40));
        assert_eq!(traced.counted(true, 50), Some((20, 50)));
        traced.came((60, 70));
        assert_eq!(traced.counted(false, 70), Some((60, 70)), "they were behind what waited");
        traced.came((80, 90));
        assert_eq!(traced.counted(false, 90), None);
        assert_eq!(traced.counted(true, 90), None);
        assert_eq!(traced.found((120, 130)), Some((90, 120)), "until the next records");
    }
}
