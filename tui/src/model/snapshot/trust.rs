//! What is known of records: their balance, whether they can be believed, what CUPTI keeps them in, how they are sampled.

use std::sync::Arc;

use gtop_protocol::message::{Basis, PoolState, Relief};
use gtop_protocol::{KindSet, Validity};

use crate::model::sampling::Estimate;
use crate::view::units;

/// The balance of records since this viewer joined; `delivered = shown + queue_full + unknown_kind + slow_viewer`
/// when the stream is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Records {
    /// Walked out of CUPTI's buffers.
    pub delivered: u64,
    /// Received here.
    pub shown: u64,
    /// Kernels received.
    pub kernel: u64,
    /// Copies received.
    pub memcpy: u64,
    /// Memory sets received.
    pub memset: u64,
    /// Others received.
    pub other: u64,
    /// CUPTI's own drops.
    pub lost_cupti: u64,
    /// Lost in the shim: its queue was full.
    pub lost_queue_full: u64,
    /// Of kinds the shim does not know.
    pub lost_unknown_kind: u64,
    /// Lost because this viewer was slow.
    pub lost_slow_viewer: u64,
    /// Bytes of CUPTI's buffers that could not be read, behind a record that CUPTI itself does not step over. How many
    /// records they held is not known: they are counted nowhere else.
    pub unread_bytes: u64,
    /// Received in the last second.
    pub per_second: f64,
}

impl Records {
    /// Everything lost, from whatever cause.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_cupti
            .saturating_add(self.lost_queue_full)
            .saturating_add(self.lost_unknown_kind)
            .saturating_add(self.lost_slow_viewer)
    }

    /// Whether everything came that CUPTI gave.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.lost() == 0 && self.unread_bytes == 0
    }

    /// Both sides of the balance, which agree: what the shim counted, and what became of it. Causes that took nothing
    /// are left out.
    #[must_use]
    pub fn sum(&self) -> String {
        let known = self.shown.saturating_add(self.lost()).saturating_sub(self.lost_cupti);
        let part = |count: u64, what: &str| {
            if count == 0 { String::new() } else { format!(" + {} {what}", units::count(count)) }
        };
        format!(
            // The shim says its count a few times a second.
            "{} delivered{} = {} shown{}{}{}{}",
            units::count(self.delivered),
            part(known.saturating_sub(self.delivered), "since that count"),
            units::count(self.shown),
            part(self.lost_queue_full, "queue full"),
            part(self.lost_unknown_kind, "unknown kind"),
            part(self.lost_slow_viewer, "slow viewer"),
            part(self.delivered.saturating_sub(known), "under way"),
        )
    }

    /// The share that was lost of all records there were; `None` without any, and where it is not known how many.
    #[must_use]
    pub fn lost_share(&self) -> Option<f64> {
        let all = self.shown.saturating_add(self.lost());
        (all > 0 && self.unread_bytes == 0).then(|| self.lost() as f64 / all as f64)
    }
}

/// The windows over which rates of invalid records are kept, seconds.
pub const WINDOWS: [u64; 3] = [1, 10, 60];

/// Which records can be believed, counted over all families with timestamps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidityStats {
    /// Records by class since the watch began, indexed by [`Validity`] wire value.
    pub total: [u64; Validity::ALL.len()],
    /// Records by class in the last 1, 10 and 60 s ([`WINDOWS`]).
    pub windows: [[u64; Validity::ALL.len()]; WINDOWS.len()],
    /// Share of invalid records since the watch began; `None` without records or while silent.
    pub rate_total: Option<f64>,
    /// Share of invalid records in each of [`WINDOWS`]; `None` without records or while silent.
    pub rate_windows: [Option<f64>; WINDOWS.len()],
    /// What is known of records that came before these and are not counted here.
    pub earlier: Option<EarlierInvalid>,
    /// The first invalid record of those counted.
    pub first_invalid: Option<FirstInvalid>,
    /// The first invalid record of the present stretch of them, after believable ones for a while.
    pub first_again: Option<FirstInvalid>,
    /// Records by class in each of the last seconds, oldest first.
    pub history: Vec<[u64; Validity::ALL.len()]>,
    /// By kind: kernel, memcpy, memset.
    pub kinds: [Believed; 3],
    /// By executable graph, those with invalid records only, the most first.
    pub graphs: Vec<(u32, Believed)>,
}

/// How many records of one kind, graph or kernel there were, and how many of them were invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Believed {
    /// Since the watch began: all, and the invalid ones.
    pub total: [u64; 2],
    /// In the last 1, 10 and 60 s ([`WINDOWS`]), the second that is being filled besides: all, and the invalid ones.
    pub windows: [[u64; 2]; WINDOWS.len()],
}

impl Believed {
    /// The share of invalid ones; `None` without records.
    #[must_use]
    pub fn rate([all, invalid]: [u64; 2]) -> Option<f64> {
        (all > 0).then(|| invalid as f64 / all as f64)
    }
}

/// Invalid records that came before what is counted: a recording was jumped into, or goes on from another part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierInvalid {
    /// Since when records are counted, `CLOCK_REALTIME` nanoseconds.
    pub since: u64,
    /// How many came before; `None` where that is not known.
    pub count: Option<u64>,
}

/// The first invalid record of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstInvalid {
    /// Which kernel record it was, counted from 1; of other records, how many kernel records had come. `None` where
    /// it is not known how many came before those counted here.
    pub index: Option<u64>,
    /// When it was received, `CLOCK_REALTIME` nanoseconds.
    pub time: u64,
    /// Its start as delivered.
    pub start: u64,
    /// Its end as delivered.
    pub end: u64,
    /// Its class.
    pub class: Validity,
    /// Its kernel's name, demangled, or what it is.
    pub name: String,
}

/// Records with bad times that came together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// How far the timeline was known when they came, CUPTI's nanoseconds: their own times say nothing.
    pub time: u64,
    /// How many.
    pub count: u64,
    /// The class of the first, as [`Validity`] writes it.
    pub class: u8,
    /// The first of them.
    pub first: Unbelieved,
}

/// A record with bad times, as it was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unbelieved {
    /// Its kernel's name id; `None` for copies and memory sets.
    pub name: Option<u32>,
    /// Its start.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The stream it says it ran on.
    pub stream: u32,
    /// The executable graph; 0 outside graphs.
    pub graph: u32,
}

/// Remarks on believable records, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoteCounts {
    /// Overlaps on one stream.
    pub overlap: u64,
    /// Start equals end.
    pub zero_length: u64,
    /// Came after a later one of its stream.
    pub out_of_order: u64,
    /// Of a kind nobody asked for.
    pub unasked_kind: u64,
    /// Far longer than what ran inside of them on their stream: end times that came late.
    pub overlong: u64,
    /// Nodes of graphs that end after kernel was switched off: neither drawn nor summed.
    pub cut_off: u64,
}

/// CUPTI's device buffer pool of one context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Device, CUPTI's number; `None` is unknown.
    pub device: Option<u32>,
    /// Context id.
    pub context: u32,
    /// Buffers allowed.
    pub limit: u64,
    /// Buffers in use by the law.
    pub computed: Option<u64>,
    /// Buffers in use as observed from the first one on.
    pub observed: Option<u64>,
    /// What it is doing.
    pub state: PoolState,
    /// Why it leaks, or why that is not known, in words.
    pub cause: Option<String>,
    /// Slots that will not come back.
    pub slots_used: u64,
    /// Slots the pool holds.
    pub slots_total: u64,
    /// Seconds to exhaustion at the present rate.
    pub exhausts_in: Option<f64>,
    /// The fewest that are likely by how much the rate wavered so far, which is no bound; unknown before that was seen.
    pub exhausts_earliest: Option<f64>,
    /// The most; unknown also where the rate may as well be nothing.
    pub exhausts_latest: Option<f64>,
    /// Since when it leaks, `CLOCK_REALTIME` nanoseconds.
    pub since: Option<u64>,
    /// The executable graph at fault, if known.
    pub graph: Option<u32>,
    /// Whether a limit was asked for too late to have an effect.
    pub limit_too_late: bool,
    /// Whether it is not known if it leaks: what is used and the time left are the worst case then.
    pub in_doubt: bool,
    /// Buffers seen allocated since overhead records are on, when there were some before.
    pub seen: Option<u64>,
}

/// How a process is traced in windows to keep to a price.
#[derive(Clone, Debug, Default)]
pub struct Sampling {
    /// The price, parts per million of the process's time; 0 once it is traced in full again.
    pub budget_ppm: u32,
    /// Windows that are in the estimates.
    pub windows: u64,
    /// Windows the shim has begun, for whomever.
    pub began: u64,
    /// Time in the windows of the estimates, nanoseconds.
    pub covered_ns: u64,
    /// Time they stand for, nanoseconds.
    pub span_ns: u64,
    /// Kinds that are on between windows: those are seen in full.
    pub between: KindSet,
    /// Whether kernels are untraced between windows.
    pub relief: Relief,
    /// What the price is told from.
    pub basis: Basis,
    /// The share of a window's time that tracing takes, 0 to 1.
    pub loss: Option<f64>,
    /// What tracing costs, parts per million of the process's time.
    pub price_ppm: Option<u64>,
    /// The upper end of its 95 % interval, or the worst that was ever measured where nothing is known.
    pub price_high_ppm: Option<u64>,
    /// Length of a window now, nanoseconds.
    pub window_ns: u64,
    /// Mean distance of their beginnings now, nanoseconds.
    pub period_ns: u64,
    /// All kernel calls.
    pub calls: Option<Estimate>,
    /// All kernel time, nanoseconds.
    pub total_ns: Option<Estimate>,
    /// A kernel that ran fewer times than this may have been missed by every window (one in twenty would be).
    pub rare_below: Option<u64>,
    /// The last windows, CUPTI's nanoseconds, oldest first; the end of an open one is 0.
    pub recent: Arc<[(u64, u64)]>,
}
