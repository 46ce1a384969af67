//! What records and the pools behind them are worth.

use schemars::JsonSchema;
use serde::Serialize;

/// Records by what their timestamps are worth; null where nothing of the process could be seen.
#[derive(Serialize, JsonSchema)]
pub(super) struct Trust<'a> {
    /// Good ones.
    pub(super) valid: Option<u64>,
    /// Both timestamps 0.
    pub(super) zero: Option<u64>,
    /// The start 0.
    pub(super) zero_start: Option<u64>,
    /// The end 0.
    pub(super) zero_end: Option<u64>,
    /// The end before the start.
    pub(super) inverted: Option<u64>,
    /// A value no clock returns.
    pub(super) sentinel: Option<u64>,
    /// The start long before collecting began: another clock.
    pub(super) foreign_clock: Option<u64>,
    /// The end after the moment the record was delivered.
    pub(super) future: Option<u64>,
    /// The start well before the launch's call; null where launches are not recorded.
    pub(super) before_launch: Option<u64>,
    /// Share of bad ones; null without records, and while the process is silent.
    pub(super) rate_total: Option<f64>,
    /// The same over the last ten seconds.
    pub(super) rate_window: Option<f64>,
    /// The first bad one.
    pub(super) first_invalid: Option<FirstInvalid<'a>>,
    /// The first bad one after a good stretch.
    pub(super) first_again: Option<FirstInvalid<'a>>,
    /// By kind.
    pub(super) kinds: Kinds,
    /// By executable graph, those with bad ones only, the most first.
    pub(super) graphs: Vec<OfGraph>,
    /// Of the last seconds, one row a span.
    pub(super) windows: Vec<Window>,
    /// Bad ones that came before what is counted: a recording was jumped into, or goes on from another part.
    pub(super) earlier: Option<Earlier>,
}

/// Records of the last seconds.
#[derive(Serialize, JsonSchema)]
pub(super) struct Window {
    /// How many seconds.
    pub(super) seconds: u64,
    /// All of them.
    pub(super) records: Option<u64>,
    /// Bad ones.
    pub(super) invalid: Option<u64>,
    /// Share of bad ones; null without records, and while the process is silent.
    pub(super) rate: Option<f64>,
}

/// Invalid records that came before what is counted.
#[derive(Serialize, JsonSchema)]
pub(super) struct Earlier {
    /// Since when records are counted.
    pub(super) since: String,
    /// How many came before; null where that is not known.
    pub(super) invalid: Option<u64>,
}

/// Records by kind.
#[derive(Serialize, JsonSchema)]
pub(super) struct Kinds {
    /// Kernels.
    pub(super) kernel: Believed,
    /// Copies.
    pub(super) memcpy: Believed,
    /// Memory sets.
    pub(super) memset: Believed,
}

/// Records, and how many are bad.
#[derive(Serialize, JsonSchema)]
pub(super) struct Believed {
    /// All of them.
    pub(super) records: Option<u64>,
    /// Bad ones.
    pub(super) invalid: Option<u64>,
}

/// Records of one executable graph.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfGraph {
    /// Its id.
    pub(super) graph: u32,
    /// All of them.
    pub(super) records: u64,
    /// Bad ones.
    pub(super) invalid: u64,
}

/// A clock.
#[derive(Serialize, JsonSchema)]
pub(super) struct Clock {
    /// Which one: `realtime`, `monotonic`, `boottime`, or in words.
    pub(super) domain: &'static str,
    /// Error bar of its last comparison with the host's.
    pub(super) error_ns: u64,
    /// Times that it was seen to jump.
    pub(super) jumps: u64,
}

/// A bad record.
#[derive(Serialize, JsonSchema)]
pub(super) struct FirstInvalid<'a> {
    /// Which kernel record it was, from 1; of other records, how many kernel records had come. Null where it is not
    /// known how many came before.
    pub(super) index: Option<u64>,
    /// Its start.
    pub(super) start: String,
    /// Its end.
    pub(super) end: String,
    /// What is wrong with it, by the names of `validity`.
    pub(super) class: &'static str,
    /// Its kernel.
    pub(super) name: &'a str,
    /// When it was received.
    pub(super) time: String,
}

/// Odd records, each counted under every note that it bears.
#[derive(Serialize, JsonSchema)]
pub(super) struct Notes {
    /// Overlap the record before them on their stream.
    pub(super) overlap: Option<u64>,
    /// Start equals end.
    pub(super) zero_length: Option<u64>,
    /// Start before a record of their stream that came earlier.
    pub(super) out_of_order: Option<u64>,
    /// Of a kind that nobody asked for.
    pub(super) unasked_kind: Option<u64>,
    /// Nodes of a graph that end after kernel was switched off: counted, but neither drawn nor summed.
    pub(super) cut_off: Option<u64>,
    /// Far longer than what ran inside of them on their stream: end times that came late.
    pub(super) overlong: Option<u64>,
}

/// The device buffer pool of a context.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfPool<'a> {
    /// Its device; null is not known.
    pub(super) device: Option<u32>,
    /// The context.
    pub(super) context: u32,
    /// Buffers it may have.
    pub(super) limit: u64,
    /// Buffers in use, observed if they are, else computed.
    pub(super) buffers: Option<u64>,
    /// Which: `observed` or `computed`.
    pub(super) source: Option<&'static str>,
    /// `safe`, `leaking`, `exhausted` or `unknown`.
    pub(super) state: &'static str,
    /// Slots within the limit.
    pub(super) slots_total: u64,
    /// Slots that do not come back.
    pub(super) slots_used: u64,
    /// Until none is left at this pace, seconds.
    pub(super) exhausts_in_seconds: Option<f64>,
    /// Buffers that CUPTI told of; null unless overhead is on.
    pub(super) observed: Option<u64>,
    /// Buffers by the law.
    pub(super) computed: Option<u64>,
    /// Why it leaks, or why that is not known.
    pub(super) cause: Option<&'a str>,
    /// Since when.
    pub(super) since: Option<String>,
    /// The executable graph at fault, where that is known.
    pub(super) graph: Option<u32>,
    /// A limit was set once a context existed, and so has no effect.
    pub(super) limit_too_late: bool,
    /// It may leak: what is used is the worst case.
    pub(super) in_doubt: bool,
    /// Buffers seen allocated since overhead records are on, when there were some before.
    pub(super) seen: Option<u64>,
    /// Lower end of the likely range of `exhausts_in_seconds`, by how much the pace wavered so far and how much one was measured
    /// to waver; no bound.
    pub(super) exhausts_in_seconds_low: Option<f64>,
    /// Upper end; null also where the pace may as well be nothing.
    pub(super) exhausts_in_seconds_high: Option<f64>,
}
