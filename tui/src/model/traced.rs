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

/// The newest stretches without tracing, and those whose records were lost on their way here.
#[derive(Debug, Default)]
pub(super) struct Traced {
    list: VecDeque<Untraced>,
    lost: VecDeque<(u64, u64)>,
    /// The newest time when frames were lost, until the next records show how far that goes.
    lost_after: Option<u64>,
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

    /// Frames were lost behind records up to CUPTI's time `newest`; 0 is before all.
    pub(super) fn lose(&mut self, newest: u64) {
        if newest > 0 {
            self.lost_after.get_or_insert(newest);
        }
    }

    /// Whether it is not known yet how far that goes.
    pub(super) const fn is_losing(&self) -> bool {
        self.lost_after.is_some()
    }

    /// The next records begin here; gives the stretch of which some are missing.
    pub(super) fn found(&mut self, oldest: u64) -> Option<(u64, u64)> {
        let from = self.lost_after.take()?;
        // Records of several streams come one buffer after the other: then it is not known where some are missing.
        if oldest <= from || self.lost.back().is_some_and(|(_, to)| *to > from) {
            return None;
        }
        self.lost.push_back((from, oldest));
        if self.lost.len() > MAX_LOST {
            self.lost.pop_front();
        }
        Some((from, oldest))
    }

    /// The stretches whose records were lost, in order; none overlap.
    pub(super) fn share_lost(&self) -> Arc<[(u64, u64)]> {
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
            self.list.push_back(Untraced { kind, from: now, to: u64::MAX, why });
            if self.list.len() > MAX {
                self.list.pop_front();
            }
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
    fn what_was_lost_lies_between_what_came() {
        let mut traced = Traced::default();
        traced.lose(0);
        assert!(!traced.is_losing(), "nothing came yet");
        traced.lose(100);
        traced.lose(120);
        assert_eq!(traced.found(150), Some((100, 150)), "from the first loss on");
        assert_eq!(traced.found(160), None);
        traced.lose(200);
        assert_eq!(traced.found(190), None, "another stream's records came");
        traced.lose(140);
        assert_eq!(traced.found(300), None, "none overlap");
        for time in 0..2 * MAX_LOST as u64 {
            traced.lose(1_000 + 2 * time);
            traced.found(1_001 + 2 * time);
        }
        let lost = traced.share_lost();
        assert_eq!((lost.len(), lost.last().copied()), (MAX_LOST, Some((5_094, 5_095))));
    }
}
