//! When which kinds of GPU work were not traced: nothing is known of that time, least of all that it was idle.

use std::collections::VecDeque;
use std::sync::Arc;

use gtop_protocol::{Kind, KindSet};

use super::snapshot::{Untraced, Why};

/// Stretches that are kept.
const MAX: usize = 256;
/// The kinds that lanes are made of.
const DRAWN: [Kind; 3] = [Kind::Kernel, Kind::Memcpy, Kind::Memset];

/// The newest stretches without tracing.
#[derive(Debug, Default)]
pub(super) struct Traced {
    list: VecDeque<Untraced>,
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
}
