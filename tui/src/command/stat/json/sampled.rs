//! Windows, and what they let one estimate.

use gtop_protocol::message::Relief;
use schemars::JsonSchema;
use serde::Serialize;

use crate::model::sampling::Estimate;
use crate::model::snapshot as model;

/// How a process is traced in windows; estimates stand for `span_seconds`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Sampling {
    /// Windows so far.
    pub(super) windows: u64,
    /// Time that they cover, seconds.
    pub(super) covered_seconds: f64,
    /// Time that they stand for, seconds.
    pub(super) span_seconds: f64,
    /// Length of the last window.
    pub(super) window_ns: u64,
    /// From one window to the next.
    pub(super) period_ns: u64,
    /// Kinds that are on between windows, and so counted in full.
    pub(super) between: Vec<&'static str>,
    /// `full`: nothing is traced between windows; `none`: kernels are, so that windows save nothing.
    pub(super) relief: Option<&'static str>,
    /// `copies`, `calls` or `assumed`: what the price is told from.
    pub(super) basis: &'static str,
    /// The share of a window's time that tracing takes.
    pub(super) loss: Option<f64>,
    /// What the windows cost, percent.
    pub(super) price_percent: Option<f64>,
    /// What they cost at most, 95 % sure, percent.
    pub(super) price_percent_high: Option<f64>,
    /// Calls of kernels there are likely to be in all.
    pub(super) calls: Option<Estimated>,
    /// Time that they are likely to take.
    pub(super) total_ns: Option<Estimated>,
    /// A kernel called less often than this may not have been seen.
    pub(super) rare_below_calls: Option<u64>,
}

/// A value and its 95 % interval.
#[derive(Serialize, JsonSchema)]
pub(super) struct Estimated {
    /// Most likely.
    pub(super) value: f64,
    /// Lower end of the interval.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// What there is likely to be of a kernel in all.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfKernel {
    /// Calls.
    pub(super) calls: Estimated,
    /// Calls a second.
    pub(super) per_second: Estimated,
    /// Time.
    pub(super) total_ns: Estimated,
    /// Share of the time of all kernels.
    pub(super) share: Estimated,
}

/// What there is likely to be of a copy in all.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfCopy {
    /// Calls.
    pub(super) calls: Estimated,
    /// Bytes.
    pub(super) bytes: Estimated,
    /// Time.
    pub(super) total_ns: Estimated,
}

impl From<Estimate> for Estimated {
    fn from(Estimate { value, low, high }: Estimate) -> Self {
        Self { value, low, high }
    }
}

pub(super) fn percent(ppm: u64) -> f64 {
    ppm as f64 / 10_000.0
}

impl Sampling {
    pub(super) fn of(sampling: &model::Sampling) -> Self {
        Self {
            windows: sampling.windows,
            covered_seconds: sampling.covered_ns as f64 / 1e9,
            span_seconds: sampling.span_ns as f64 / 1e9,
            window_ns: sampling.window_ns,
            period_ns: sampling.period_ns,
            between: sampling.between.iter().map(gtop_protocol::Kind::name).collect(),
            relief: match sampling.relief {
                Relief::Unknown => None,
                Relief::Full => Some("full"),
                Relief::None => Some("none"),
            },
            basis: sampling.basis.name(),
            loss: sampling.loss,
            price_percent: sampling.price_ppm.map(percent),
            price_percent_high: sampling.price_high_ppm.map(percent),
            calls: sampling.calls.map(Estimated::from),
            total_ns: sampling.total_ns.map(Estimated::from),
            rare_below_calls: sampling.rare_below,
        }
    }
}
