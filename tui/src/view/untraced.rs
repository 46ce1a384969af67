//! What of a lane was not traced: between two windows, while its kind was off, while nothing was heard; and what may not
//! have come yet. Nothing is known of such time, and it is not shown as idle.

use gtop_protocol::Kind;
use gtop_protocol::message::{PoolState, StateCode};

use super::sampled::Sampled;
use super::scale::newest_record;
use crate::model::snapshot::{Lane, LaneKey, Pool, Process, Untraced, Why};

/// What was traced of a lane.
pub(crate) struct Traced<'a> {
    kind: Kind,
    stretches: &'a [Untraced],
    lost: &'a [(u64, u64)],
    /// What goes on although no frame tells of it.
    now: Option<Untraced>,
    /// What is behind its newest record and may still come.
    awaited: Option<Untraced>,
    sampled: Option<Sampled<'a>>,
}

impl<'a> Traced<'a> {
    pub(crate) fn of(process: &'a Process, lane: &Lane) -> Self {
        let kind = match lane.key {
            LaneKey::Stream { .. } | LaneKey::Graphs { .. } => Kind::Kernel,
            LaneKey::Copy { .. } => Kind::Memcpy,
            LaneKey::Memset { .. } => Kind::Memset,
        };
        let from = |from, why| Some(Untraced { kind, from, to: u64::MAX, why });
        let now = match process.halt {
            Some(_) => from(newest_record(process), Why::Halted),
            None if process.unheard.is_some() => from(newest_record(process), Why::Unheard),
            None if kind == Kind::Kernel => {
                silent_since(process, lane.key).and_then(|since| from(since, Why::Silent))
            }
            None => None,
        };
        let last = lane.slices.span().map_or(0, |(_, last)| last);
        let from = process.delivered.max(last);
        let awaits = process.delivered > 0;
        let awaited = awaits.then_some(Untraced { kind, from, to: u64::MAX, why: Why::Awaited });
        Self {
            kind,
            stretches: &process.untraced,
            lost: &process.lost,
            now,
            awaited,
            sampled: Sampled::of(process, lane.key),
        }
    }

    /// The stretches that lie in a time.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Untraced> {
        let (first, end) = (
            self.lost.partition_point(|(_, end)| *end <= from),
            self.lost.partition_point(|(start, _)| *start < to),
        );
        let lost = self.lost.get(first..end).unwrap_or_default().iter();
        let lost = lost.map(|(from, to)| Untraced { kind: self.kind, from: *from, to: *to, why: Why::Lost });
        let stretches =
            self.awaited.into_iter().chain(self.stretches.iter().copied()).chain(lost).chain(self.now);
        stretches.filter(move |stretch| stretch.kind == self.kind && stretch.from < to && stretch.to > from)
    }

    /// Nanoseconds of the time from `from` to `to` that were traced, and of which every record came.
    pub(crate) fn seen(&self, from: u64, to: u64) -> u64 {
        self.without(from, to, |_| true)
    }

    /// Nanoseconds of the time from `from` to `to` that were traced, although records may have been lost.
    pub(crate) fn traced(&self, from: u64, to: u64) -> u64 {
        self.without(from, to, |why| why != Why::Lost)
    }

    fn without(&self, from: u64, to: u64, counts: impl Fn(Why) -> bool) -> u64 {
        let stretches = self.within(from, to).filter(|stretch| counts(stretch.why));
        let mut untraced: Vec<(u64, u64)> =
            stretches.map(|stretch| (stretch.from.max(from), stretch.to.min(to))).collect();
        untraced.sort_unstable();
        let (mut off, mut upto) = (0, from);
        for (start, end) in untraced {
            off += end.saturating_sub(start.max(upto));
            upto = upto.max(end);
        }
        let all = to.saturating_sub(from);
        self.sampled.map_or(all, |sampled| sampled.seen(from, to)).min(all - off)
    }

    /// Why nothing of a stretch was traced; `None` when some of it was.
    pub(crate) fn why_blank(&self, (from, to): (u64, u64)) -> Option<&'static str> {
        if to <= from || self.seen(from, to) > 0 {
            return None;
        }
        let between = self.sampled.is_some_and(|sampled| sampled.seen(from, to) == 0);
        let why = self.within(from, to).filter(|stretch| !between || stretch.why != Why::Awaited).last();
        Some(why.map_or("not traced: between two windows", |stretch| match stretch.why {
            Why::Off => match self.kind {
                Kind::Memcpy => "not traced: memcpy is off",
                Kind::Memset => "not traced: memset is off",
                _ => "not traced: kernel is off",
            },
            Why::Away => "not traced: there was no connection",
            Why::Silent => "not known: kernel records do not come",
            Why::Lost => "not known: records were lost, and may be missing here",
            Why::Awaited => "nothing ran, or it is not delivered yet",
            Why::Halted => "not known: the process does not run",
            Why::Unheard => "not known: nothing is heard of the process",
        }))
    }

    /// Whether records of a stretch may be missing that were lost.
    pub(crate) fn has_losses(&self, from: u64, to: u64) -> bool {
        self.within(from, to).any(|stretch| stretch.why == Why::Lost)
    }

    /// Whether all that is to say of a stretch of which nothing was traced is that it may not have come yet.
    pub(crate) fn is_awaited(&self, (from, to): (u64, u64)) -> bool {
        let mut all = self.within(from, to).peekable();
        let traced = self.sampled.is_none_or(|sampled| sampled.seen(from, to) > 0);
        traced && all.peek().is_some() && all.all(|stretch| stretch.why == Why::Awaited)
    }

    /// Whether anything at all of a stretch was not traced; what may still come is no such thing.
    pub(crate) fn has_blanks(&self, from: u64, to: u64) -> bool {
        self.without(from, to, |why| why != Why::Awaited) < to.saturating_sub(from)
    }
}

/// Since when kernels of a lane's context do not come although they run, CUPTI's nanoseconds: since the newest that did,
/// whatever else still comes.
fn silent_since(process: &Process, lane: LaneKey) -> Option<u64> {
    let context = |lane: LaneKey| match lane {
        LaneKey::Stream { context, .. } | LaneKey::Graphs { context, .. } => Some(context),
        LaneKey::Copy { .. } | LaneKey::Memset { .. } => None,
    };
    let newest = |of: &dyn Fn(&Lane) -> bool| {
        let ends = process.lanes.iter().filter(|lane| of(lane)).filter_map(|lane| lane.slices.span());
        ends.map(|(_, last)| last).max().unwrap_or(0)
    };
    if process.state == StateCode::Silent {
        return Some(newest(&|lane| context(lane.key).is_some()));
    }
    let own = context(lane)?;
    let full = |pool: &Pool| pool.context == own && pool.state == PoolState::Exhausted;
    process.pools.iter().any(full).then(|| newest(&|lane| context(lane.key) == Some(own)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slices::{Slice, Slices};
    use crate::model::snapshot::Halt;
    use gtop_protocol::viewer::Halted;

    #[test]
    fn what_is_off_is_no_idleness() {
        let stretch = |kind, from, to, why| Untraced { kind, from, to, why };
        let mut process = Process {
            untraced: [
                stretch(Kind::Kernel, 100, 200, Why::Off),
                stretch(Kind::Memcpy, 0, u64::MAX, Why::Off),
                stretch(Kind::Kernel, 150, 300, Why::Away),
            ]
            .into(),
            ..Process::default()
        };
        let on = |key| Lane { key, busy: 0.0, since: 0, slices: Slices::default() };
        let lane = on(LaneKey::Stream { device: 0, context: 1, stream: 7 });
        let traced = Traced::of(&process, &lane);
        for ((from, to), seen) in [((0, 100), 100), ((50, 150), 50), ((120, 280), 0), ((0, 1_000), 800)] {
            assert_eq!(traced.seen(from, to), seen, "{from} to {to}");
        }
        assert_eq!(traced.why_blank((110, 120)), Some("not traced: kernel is off"));
        assert_eq!(traced.why_blank((250, 260)), Some("not traced: there was no connection"));
        assert_eq!(traced.why_blank((300, 310)), None);
        let set = on(LaneKey::Memset { device: 0 });
        process.state = StateCode::Silent;
        assert!(Traced::of(&process, &lane).why_blank((900, 910)).is_some());
        assert_eq!(Traced::of(&process, &set).why_blank((900, 910)), None);
        process.unheard = Some(14.0);
        process.lost = [(900, 905), (950, 960)].into();
        assert_eq!(Traced::of(&process, &set).seen(940, 970), 0, "nothing is heard");
        let why = |process: &Process| Traced::of(process, &set).why_blank((900, 910));
        assert!(why(&process).is_some_and(|why| why.contains("heard")));
        process.unheard = None;
        process.halt = Some(Halt { cause: Halted::Stopped, seconds: 0.3 });
        assert!(why(&process).is_some_and(|why| why.contains("does not run")));
        process.halt = None;
        process.state = StateCode::Armed;
        process.untraced = [].into();
        let traced = Traced::of(&process, &set);
        assert_eq!((traced.traced(890, 952), traced.traced(900, 905)), (62, 5), "some of it came");
        assert_eq!((traced.seen(890, 952), traced.seen(905, 950), traced.seen(903, 955)), (55, 45, 45));
        assert!(traced.why_blank((901, 903)).is_some_and(|why| why.contains("lost")));
    }
    fn of(process: &Process, key: LaneKey) -> Traced<'_> {
        Traced::of(process, process.lanes.iter().find(|lane| lane.key == key).unwrap())
    }

    #[test]
    fn silence_begins_with_the_newest_kernel_whatever_else_comes() {
        let stream = |context| LaneKey::Stream { device: 0, context, stream: 7 };
        let lane = |key, end| Lane {
            key,
            busy: 0.0,
            since: 0,
            slices: Slices::new(vec![[Slice { start: end - 10, end, detail: 0, correlation: 0 }].into()]),
        };
        let copy = LaneKey::Copy { device: 0, direction: 1 };
        let mut process = Process {
            state: StateCode::Silent,
            lanes: vec![lane(stream(1), 100), lane(stream(2), 300), lane(copy, 2_000)],
            ..Process::default()
        };
        let seen = |process: &Process, key| of(process, key).seen(0, 1_000);
        assert_eq!([stream(1), stream(2), copy].map(|key| seen(&process, key)), [300, 300, 1_000]);
        let why = of(&process, stream(1)).why_blank((900, 910));
        assert_eq!(why, Some("not known: kernel records do not come"));
        // Eager kernels of a context whose pool is full still come, without times.
        process.state = StateCode::Armed;
        process.pools = vec![Pool { context: 1, state: PoolState::Exhausted, ..Pool::default() }];
        assert_eq!([stream(1), stream(2), copy].map(|key| seen(&process, key)), [100, 1_000, 1_000]);
        process.pools[0].state = PoolState::Leaking;
        assert_eq!(seen(&process, stream(1)), 1_000);
    }

    #[test]
    fn what_may_still_come_is_no_idleness() {
        let lane = |stream, end| {
            let slices = vec![Slice { start: 100, end, detail: 0, correlation: 0 }];
            let key = LaneKey::Stream { device: 0, context: 1, stream };
            Lane { key, busy: 0.0, since: 0, slices: Slices::new(vec![slices.into()]) }
        };
        let lanes = vec![lane(7, 1_000), lane(8, 400), lane(9, 900)];
        let process = Process { lanes, delivered: 600, until: 1_000, ..Process::default() };
        let [newest, idle, behind] = [0, 1, 2].map(|i| Traced::of(&process, &process.lanes[i]));
        assert_eq!(newest.seen(0, 1_000), 1_000);
        assert_eq!(
            (idle.seen(0, 1_000), behind.seen(0, 1_000)),
            (600, 900),
            "from what is delivered, or what came"
        );
        assert_eq!(idle.why_blank((450, 550)), None, "it is idle");
        assert!(idle.why_blank((650, 700)).is_some_and(|why| why.contains("not delivered yet")));
        assert!(
            idle.is_awaited((650, 700)) && !idle.is_awaited((450, 550)) && !behind.is_awaited((650, 700))
        );
        assert!(!idle.has_blanks(0, 1_000), "it may still be seen");
        let over = Process { delivered: 0, ..process.clone() };
        assert_eq!(Traced::of(&over, &over.lanes[1]).seen(0, 1_000), 1_000, "nothing more comes");
    }
}
