//! What a shim says, in words and for the screen.

use gtop_protocol::clock::Jump;
use gtop_protocol::cupti::result_name;
use gtop_protocol::message::{self, LeakCause, PoolState, Reason, State};

use crate::model::names::safe;
use crate::model::snapshot::Pool;
use crate::model::time::{Moment, SECOND};

/// What happened to the clocks, as a sentence.
pub(super) fn jump_in_words(jump: &Jump) -> String {
    let seconds = |ns: i64| ns as f64 / SECOND as f64;
    let mut parts = Vec::new();
    if jump.suspended > 0 {
        parts.push(format!("the machine was suspended for {:.1} s", jump.suspended as f64 / SECOND as f64));
    }
    if jump.stepped != 0 {
        parts.push(format!("realtime was set by {:+.1} s", seconds(jump.stepped)));
    }
    if parts.is_empty() {
        parts.push("CUPTI's clock alone".to_owned());
    }
    let session = if jump.cupti == 0 { "CUPTI's did not move" } else { "a new session of work begins" };
    format!("clock jump {:+.1} s: {}; {session}", seconds(jump.cupti), parts.join(" and "))
}

/// The reason of a state with the error behind it, as a sentence.
pub(super) fn reason_in_words(state: &State<'_>) -> Option<String> {
    let reason = match Reason::from_wire(state.reason) {
        Some(reason) => reason.text().unwrap_or_default(),
        None => "a reason this gtop does not know: it is older than the shim",
    };
    let detail = safe(state.detail);
    let error = match state.error {
        0 => String::new(),
        error if detail.contains(result_name(error)) => String::new(),
        error => format!(" ({} {error})", result_name(error)),
    };
    let words = format!("{reason}{error}");
    let parts: Vec<String> = [words, detail].into_iter().filter(|part| !part.trim().is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(": ").trim_start().to_owned())
}

pub(super) fn read_pool(pool: &message::Pool) -> Pool {
    let cause = match pool.cause {
        cause if cause == LeakCause::KindOff as u8 => {
            Some("a kind was off while graphs with such nodes were replayed")
        }
        cause if cause == LeakCause::AllOff as u8 => {
            Some("all kinds were switched off while early graphs existed")
        }
        cause if cause == LeakCause::Observed as u8 => Some("buffers were seen to grow"),
        _ if pool.state == PoolState::Unknown as u8 => {
            Some("kernel, memcpy and memset are not all on, so that nodes of graphs may not show")
        }
        _ => None,
    };
    let seconds = |ns: u64| ns as f64 / SECOND as f64;
    Pool {
        device: (pool.device != u16::MAX).then_some(u32::from(pool.device)),
        context: pool.context,
        limit: pool.limit,
        computed: pool.computed,
        observed: pool.observed,
        state: PoolState::from_wire(pool.state),
        cause: cause.map(str::to_owned),
        slots_used: pool.slots_used,
        slots_total: pool.slots_total,
        exhausts_in: pool.exhausts_in.map(seconds),
        exhausts_earliest: pool.exhausts_earliest.map(seconds),
        exhausts_latest: pool.exhausts_latest.map(seconds),
        since: pool.since,
        graph: (pool.graph != 0).then_some(pool.graph),
        limit_too_late: pool.limit_too_late == 1,
        in_doubt: pool.in_doubt == 1,
        seen: pool.seen,
    }
}

/// Something that may happen many times a second: said when it begins, then no more often than every ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    unsaid: u64,
    last: Option<Moment>,
}

impl Said {
    /// Takes in `count` more; what is to be said now, if anything.
    pub(super) fn due(&mut self, count: u64, at: Moment) -> Option<u64> {
        self.unsaid = self.unsaid.saturating_add(count);
        let waited = |last: Moment| at.steady.saturating_sub(last.steady) >= 10 * SECOND;
        if self.unsaid == 0 || !self.last.is_none_or(waited) {
            return None;
        }
        self.last = Some(at);
        Some(std::mem::take(&mut self.unsaid))
    }
}
