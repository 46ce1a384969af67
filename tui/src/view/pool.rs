//! How full CUPTI's pools of device buffers are, in words and as a gauge.

use gtop_protocol::message::PoolState;
use gtop_protocol::{Kind, KindSet};
use jiff::tz::TimeZone;

use super::theme::Role;
use super::units;
use crate::model::snapshot::{Pool, Process};

/// The pool that matters most: the fullest of the worst state.
pub(super) fn worst(process: &Process) -> Option<&Pool> {
    let rank = |pool: &Pool| match pool.state {
        PoolState::Exhausted => 4,
        PoolState::Leaking => 3,
        PoolState::Unknown if pool.in_doubt => 2,
        PoolState::Unknown => 0,
        PoolState::Safe => 1,
    };
    process.pools.iter().max_by(|a, b| rank(a).cmp(&rank(b)).then(share(a).total_cmp(&share(b))))
}

/// Buffers in use: observed where every one of them was, else computed.
pub(super) fn used(pool: &Pool) -> Option<u64> {
    pool.observed.or(pool.computed)
}

/// The share in use, 0 to 1; 0 when it is not known.
pub(super) fn share(pool: &Pool) -> f64 {
    match used(pool) {
        Some(used) if pool.limit > 0 => (used as f64 / pool.limit as f64).min(1.0),
        _ => 0.0,
    }
}

/// `3/250`, with `?` for what is not known.
pub(super) fn fraction(pool: &Pool) -> String {
    let used = used(pool).map_or_else(|| "?".to_owned(), units::count);
    format!("{used}/{}", units::count(pool.limit))
}

/// Both readings side by side, when both can be had; what was observed of a part is said to be that.
pub(super) fn readings(pool: &Pool) -> Option<String> {
    if let Some(seen) = pool.seen {
        return Some(format!("computed; {} seen to come since overhead is on", units::count(seen)));
    }
    let (observed, computed) = (pool.observed?, pool.computed?);
    let apart = observed.abs_diff(computed);
    let agree = if apart <= 1 { "agree".to_owned() } else { format!("{apart} apart") };
    Some(format!("{} observed, {} computed: {agree}", units::count(observed), units::count(computed)))
}

/// Whether it is not known that its buffers do not leak.
pub(super) fn may_leak(pool: &Pool) -> bool {
    pool.in_doubt && pool.state == PoolState::Unknown
}

/// The state in a word, and how much it matters.
pub(super) fn word(pool: &Pool) -> (&'static str, Role) {
    match pool.state {
        PoolState::Safe => ("safe", Role::Good),
        PoolState::Unknown if pool.in_doubt => ("MAY LEAK", Role::Warn),
        PoolState::Unknown => ("unknown", Role::Dim),
        PoolState::Leaking => ("LEAKING", Role::Warn),
        PoolState::Exhausted => ("FULL", Role::BadgeAlarm),
    }
}

/// For the header: `pool 3/250`, with the state when it is not well.
pub(super) fn glance(process: &Process) -> Option<(String, Role)> {
    let pool = worst(process)?;
    let (word, role) = word(pool);
    Some(match pool.state {
        PoolState::Unknown if pool.in_doubt => (format!("pool {} {word}", fraction(pool)), role),
        PoolState::Safe | PoolState::Unknown => (format!("pool {}", fraction(pool)), Role::Plain),
        PoolState::Leaking | PoolState::Exhausted => (format!("pool {} {word}", fraction(pool)), role),
    })
}

/// In how long it is full.
pub(super) fn left(pool: &Pool) -> Option<String> {
    let doubt = may_leak(pool);
    let seconds = pool.exhausts_in.filter(|_| doubt || pool.state == PoolState::Leaking)?;
    Some(format!("full in {}{}", units::age(seconds), if doubt { " at worst" } else { "" }))
}

/// What is happening to a pool that is not well: since when, why, and how long it lasts; or why its state is not known.
pub(super) fn trouble(process: &Process, pool: &Pool, zone: &TimeZone) -> Option<String> {
    let doubt = may_leak(pool);
    if !matches!(pool.state, PoolState::Leaking | PoolState::Exhausted) && !doubt {
        let unknown = (pool.state == PoolState::Unknown).then(|| unknown(process));
        let late = pool.limit_too_late.then(|| too_late(pool));
        let parts: Vec<String> = unknown.into_iter().chain(late).collect();
        return (!parts.is_empty()).then(|| parts.join("; "));
    }
    let since = pool.since.map(|since| format!(" since {}", units::clock(since, zone)));
    let graph = pool.graph.map(|graph| format!(" (graph {graph})"));
    let range = units::range(pool.exhausts_earliest, pool.exhausts_latest);
    let left = left(pool).map(|left| format!(", {left}{range}"));
    let cause = match &pool.cause {
        _ if doubt => {
            Some(": nodes that are not traced, which leak unless they copy from or to the host".to_owned())
        }
        cause => cause.as_ref().map(|cause| format!(": {cause}")),
    };
    let late = pool.limit_too_late.then(|| format!("; {}", too_late(pool)));
    let what = if doubt { "may leak" } else { "leaking" };
    let parts = [Some(what.to_owned()), since, graph, left, cause, late];
    Some(parts.into_iter().flatten().collect())
}

/// Why nobody can tell whether a pool is safe: nodes of graphs whose kind is off yield no record.
fn unknown(process: &Process) -> String {
    let off = KindSet(KindSet::SAFE.0 & !process.kinds.enabled.0);
    let off: Vec<&str> = off.iter().map(Kind::name).collect();
    match (off.as_slice(), process.kinds.enabled.has(Kind::Overhead)) {
        ([], _) => "not known: the shim does not say".to_owned(),
        (off, true) => format!(
            "not known whether it leaks with {} off; overhead shows buffers that come",
            off.join(", ")
        ),
        (off, false) => {
            format!(
                "not known whether it leaks with {} off; overhead on shows buffers that come",
                off.join(", ")
            )
        }
    }
}

fn too_late(pool: &Pool) -> String {
    format!("the limit was asked for after the context was made and has no effect: {} is used", pool.limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_pool_is_named() {
        let pool = |state, computed| Pool { limit: 250, computed, state, ..Pool::default() };
        let process = Process {
            pools: vec![
                pool(PoolState::Safe, Some(240)),
                pool(PoolState::Leaking, Some(30)),
                pool(PoolState::Leaking, Some(31)),
            ],
            ..Process::default()
        };
        assert_eq!(glance(&process), Some(("pool 31/250 LEAKING".to_owned(), Role::Warn)));
        assert_eq!(glance(&Process::default()), None);
        let doubtful = Pool {
            in_doubt: true,
            exhausts_in: Some(40.0),
            exhausts_earliest: Some(33.0),
            seen: Some(2),
            ..pool(PoolState::Unknown, Some(9))
        };
        let words = trouble(&Process::default(), &doubtful, &TimeZone::UTC).unwrap();
        assert!(words.starts_with("may leak, full in 40 s at worst (33 s or more): "), "{words}");
        assert_eq!(readings(&doubtful).as_deref(), Some("computed; 2 seen to come since overhead is on"));
        let process = Process { pools: vec![pool(PoolState::Safe, Some(3)), doubtful], ..Process::default() };
        assert_eq!(glance(&process), Some(("pool 9/250 MAY LEAK".to_owned(), Role::Warn)));
        assert_eq!(fraction(&pool(PoolState::Unknown, None)), "?/250");
    }

    #[test]
    fn why_it_is_not_known_is_said() {
        let mut process = Process::default();
        let unknown = Pool { limit: 250, state: PoolState::Unknown, ..Pool::default() };
        process.kinds.enabled = KindSet::SAFE.without(Kind::Memcpy);
        let words = |process: &Process, pool: &Pool| trouble(process, pool, &TimeZone::UTC);
        assert_eq!(
            words(&process, &unknown).as_deref(),
            Some("not known whether it leaks with memcpy off; overhead on shows buffers that come")
        );
        process.kinds.enabled = KindSet::EMPTY.with(Kind::Kernel).with(Kind::Overhead);
        let said = words(&process, &Pool { limit_too_late: true, ..unknown }).unwrap();
        assert!(
            said.starts_with("not known whether it leaks with memcpy, memset off; overhead shows"),
            "{said}"
        );
        assert!(said.contains("has no effect"), "{said}");
        assert_eq!(words(&process, &Pool { state: PoolState::Safe, ..Pool::default() }), None);
    }
}
