//! What goes wrong, and how often by now.

use crate::cupti::lock;
use crate::layout::kind;
use crate::names::Reused;
use crate::scenario::Fault;
use crate::truth::Class;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The call that steps from record to record.
pub(crate) const STEP: &str = "cuptiActivityGetNextRecord";

impl Fault {
    /// Whether stepping from record to record fails.
    pub(crate) fn is_of_steps(&self) -> bool {
        matches!(self, Self::Error { call, .. } if call == STEP)
    }
}

/// A call that fails.
struct Failing {
    call: String,
    kind: Option<u32>,
    result: u32,
    /// Calls that still go well.
    before: AtomicU64,
    left: AtomicU64,
}

/// Timestamps that are wrong at certain kernel records.
struct Wrong {
    class: Class,
    at: HashSet<u64>,
    every: Option<u64>,
}

/// The faults of a scenario, made ready.
pub(crate) struct Faults {
    busy: AtomicBool,
    /// Whether the other tool came through v2 and lets others in.
    shares: AtomicBool,
    holder: Mutex<String>,
    busy_until: Option<Instant>,
    failing: Vec<Failing>,
    slow: Vec<(String, Duration)>,
    wrong: Vec<Wrong>,
    silent: Vec<std::ops::Range<u64>>,
    shift: Option<(u64, i64)>,
    /// Kernel records since kernels were enabled last.
    since_enabled: AtomicU64,
    keep: AtomicU64,
    /// A record of an unknown kind goes before every so many.
    pub(crate) unknown_every: Option<u64>,
    /// An empty buffer goes before every so many.
    pub(crate) empty_every: Option<u64>,
    /// Names whose addresses come to hold others, and after how many kernel records.
    pub(crate) reused: Vec<(String, Reused, u64)>,
    pub(crate) first_correlation: u32,
    /// How late the ends of the last launch before kernel goes off are, nanoseconds.
    pub(crate) late_ends: u64,
    /// What CUPTI says it dropped, each time it is asked.
    pub(crate) dropped: u64,
}

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let mut made = Self {
            busy: AtomicBool::new(false),
            shares: AtomicBool::new(false),
            holder: Mutex::new("another tool".into()),
            busy_until: None,
            failing: Vec::new(),
            slow: Vec::new(),
            wrong: Vec::new(),
            silent: Vec::new(),
            shift: None,
            since_enabled: AtomicU64::new(0),
            keep: AtomicU64::new(0),
            unknown_every: None,
            empty_every: None,
            reused: Vec::new(),
            first_correlation: 1,
            late_ends: 0,
            dropped: 0,
        };
        for fault in faults {
            match fault {
                Fault::Busy { lasts } => {
                    made.busy = AtomicBool::new(true);
                    made.busy_until = lasts.map(|span| Instant::now() + Duration::from_nanos(span.0));
                }
                Fault::Error { call, result, kind, times, after } => made.failing.push(Failing {
                    call: call.clone(),
                    kind: *kind,
                    result: *result,
                    before: AtomicU64::new(*after),
                    left: AtomicU64::new(times.unwrap_or(u64::MAX)),
                }),
                Fault::Slow { call, by } => made.slow.push((call.clone(), Duration::from_nanos(by.0))),
                Fault::UnknownKind { every } => made.unknown_every = Some(*every),
                Fault::EmptyBuffer { every } => made.empty_every = Some(*every),
                Fault::Silent { after, count } => {
                    made.silent.push(*after..count.map_or(u64::MAX, |count| after.saturating_add(count)));
                }
                Fault::Shift { first, ns } => made.shift = Some((*first, *ns)),
                Fault::Timestamps { class, at, every } => {
                    made.wrong.push(Wrong { class: *class, at: at.iter().copied().collect(), every: *every });
                }
                Fault::KeepBuffers { count } => made.keep = AtomicU64::new(*count),
                Fault::ReuseName { name, becomes, after } => {
                    made.reused.push((name.clone(), Reused::new(name, becomes), *after));
                }
                Fault::Correlation { start } => made.first_correlation = *start,
                Fault::LateEnds { by } => made.late_ends = by.0,
                Fault::Dropped { count } => made.dropped = *count,
            }
        }
        made
    }

    /// Whether another tool holds CUPTI.
    pub(crate) fn busy(&self) -> bool {
        if self.busy_until.is_some_and(|until| Instant::now() >= until) {
            self.release();
        }
        self.busy.load(Relaxed)
    }

    /// The other tool lets go.
    pub(crate) fn release(&self) {
        self.busy.store(false, Relaxed);
    }

    /// The other tool takes hold.
    pub(crate) fn occupy(&self, name: &str) {
        name.clone_into(&mut lock(&self.holder));
        self.shares.store(false, Relaxed);
        self.busy.store(true, Relaxed);
    }

    /// The other tool takes hold and lets others in.
    pub(crate) fn share(&self, name: &str) {
        self.occupy(name);
        self.shares.store(true, Relaxed);
    }

    /// Whether another tool holds CUPTI and lets others in.
    pub(crate) fn shared(&self) -> bool {
        self.busy() && self.shares.load(Relaxed)
    }

    /// What the other tool calls itself.
    pub(crate) fn holder(&self) -> String {
        lock(&self.holder).clone()
    }

    /// Keeps the caller of a slow call waiting.
    pub(crate) fn slow_down(&self, call: &str) {
        if let Some((_, by)) = self.slow.iter().find(|(slow, _)| slow == call) {
            std::thread::sleep(*by);
        }
    }

    /// What a call returns in place of doing its work.
    pub(crate) fn error(&self, call: &str, kind: Option<u32>) -> Option<u32> {
        let failing = self
            .failing
            .iter()
            .find(|failing| failing.call == call && (failing.kind.is_none() || failing.kind == kind))?;
        if failing.before.fetch_update(Relaxed, Relaxed, |before| before.checked_sub(1)).is_ok() {
            return None;
        }
        let took = failing.left.fetch_update(Relaxed, Relaxed, |left| match left {
            0 => None,
            u64::MAX => Some(u64::MAX),
            _ => Some(left - 1),
        });
        took.is_ok().then_some(failing.result)
    }

    /// Whether the next buffer to be completed is kept for ever.
    pub(crate) fn keeps_buffer(&self) -> bool {
        self.keep.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// A kind was enabled.
    pub(crate) fn enabled(&self, enabled: u32) {
        if enabled == kind::KERNEL {
            self.since_enabled.store(0, Relaxed);
        }
    }

    /// Whether kernel record number `index` never comes.
    pub(crate) fn withholds(&self, index: u64) -> bool {
        self.silent.iter().any(|range| range.contains(&index))
    }

    /// The timestamps of kernel record number `index`, and their class.
    pub(crate) fn timestamps(&self, index: u64, start: u64, end: u64) -> (u64, u64, Class) {
        const HOUR: u64 = 3_600_000_000_000;
        const FOREIGN: u64 = 100_000_000_000_000;
        if let Some((first, ns)) = self.shift
            && self.since_enabled.fetch_add(1, Relaxed) < first
        {
            let class = if ns < 0 { Class::ForeignClock } else { Class::Future };
            return (start.saturating_add_signed(ns), end.saturating_add_signed(ns), class);
        }
        let wrong = self.wrong.iter().find(|wrong| {
            wrong.at.contains(&index) || wrong.every.is_some_and(|every| (index + 1).is_multiple_of(every))
        });
        match wrong.map_or(Class::Valid, |wrong| wrong.class) {
            Class::Valid => (start, end, Class::Valid),
            Class::Zero => (0, 0, Class::Zero),
            Class::ZeroStart => (0, end, Class::ZeroStart),
            Class::ZeroEnd => (start, 0, Class::ZeroEnd),
            Class::Inverted => (end + 1, start, Class::Inverted),
            Class::Sentinel => (u64::MAX, u64::MAX, Class::Sentinel),
            Class::ForeignClock => {
                (start.saturating_sub(FOREIGN), end.saturating_sub(FOREIGN), Class::ForeignClock)
            }
            Class::Future => (start + HOUR, end + HOUR, Class::Future),
        }
    }
}
