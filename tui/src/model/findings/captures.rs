//! Captures that failed, told at the call that broke them, and what memory they left behind.

use gtop_protocol::calls::{call_name, result_name};
use gtop_protocol::message::Severity;

use super::{Facts, change, found};
use crate::model::lifecycle::captures::Capture;
use crate::model::snapshot::Finding;
use crate::model::time::SECOND;
use crate::model::trend::COMES_BACK;
use crate::view::units;

/// What counts as kept, bytes.
const KEPT: i64 = 32 << 20;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let mut groups: Vec<(Key, &Capture, u64)> = Vec::new();
    for capture in facts.lifecycle.captures.ended.iter().filter(|capture| capture.failed()) {
        let key = Key::of(capture);
        match groups.iter().position(|(known, ..)| *known == key) {
            Some(at) => groups[at].2 += 1,
            None if groups.len() < 16 => groups.push((key, capture, 1)),
            None => {}
        }
    }
    let mut findings: Vec<Finding> =
        groups.iter().map(|(_, first, count)| broken(facts, first, *count)).collect();
    findings.extend(kept(facts));
    findings
}

/// Captures that fail alike.
#[derive(PartialEq, Eq)]
struct Key {
    result: u32,
    cause: Option<(u32, u32)>,
}

impl Key {
    fn of(capture: &Capture) -> Self {
        Self { result: capture.result, cause: capture.cause.map(|cause| (cause.code, cause.result)) }
    }
}

fn broken(facts: &Facts<'_>, capture: &Capture, count: u64) -> Finding {
    let mode = capture.mode_name().unwrap_or("unknown");
    let ended = format!("{} ({})", result_name(capture.result), capture.result);
    let unjoined: Vec<u64> =
        capture.streams.iter().filter(|(_, joined)| !joined).map(|(stream, _)| *stream).collect();
    let sentence = match capture.cause {
        Some(cause) if !matches!(cause.result, 901 | 904) => format!(
            "a capture was broken by {}: {} ({}); it surfaced as {ended}",
            call_name(cause.code),
            result_name(cause.result),
            cause.result
        ),
        _ if capture.result == 904 && !unjoined.is_empty() => {
            let streams: Vec<String> = unjoined.iter().map(|stream| stream_name(*stream)).collect();
            format!("a capture ended with unjoined work (904): {} never joined back", streams.join(", "))
        }
        _ => format!("a capture failed: {ended}; gtop saw no call that broke it"),
    };
    let mut finding = found(
        "capture_failed",
        Severity::Alarm,
        capture.begun,
        sentence,
        match capture.result {
            904 => {
                "Record an event on each side stream and make the capturing stream wait for it before the end."
            }
            _ => {
                "Move that call out of the capture: before it, after it, or to a thread in relaxed capture mode \
                 (cuThreadExchangeStreamCaptureMode)."
            }
        },
    );
    if let Some(cause) = capture.cause {
        let after =
            facts.kernel(cause.kernel).map_or_else(String::new, |kernel| format!(", after kernel {kernel}"));
        let from = cause.time.saturating_sub(capture.begun) / 1_000;
        finding = finding.with(format!(
            "thread {}, {} µs into the capture{after}",
            cause.thread,
            units::count(from)
        ));
    }
    finding
        .with(format!(
            "capture on {} by thread {}, {mode} mode, {} nodes so far",
            stream_name(capture.stream),
            capture.thread,
            units::count(capture.nodes.into())
        ))
        .with(format!("{} such captures", units::count(count)))
}

/// Memory that was there before a failed capture and did not come back after it.
fn kept(facts: &Facts<'_>) -> Option<Finding> {
    let trend = facts.memory?;
    let captures = facts.lifecycle.captures.ended.iter().rev();
    let mut settled = captures.filter(|capture| {
        capture.failed() && capture.ended.is_some_and(|ended| facts.now.saturating_sub(ended) >= COMES_BACK)
    });
    let (capture, kept) = settled.find_map(|capture| {
        let kept = trend.step(capture.begun, capture.ended?)?.kept?;
        let still = trend.last()?.wrapping_sub(trend.at(capture.begun)?).cast_signed();
        (kept >= KEPT && still >= kept).then_some((capture, kept))
    })?;
    let finding = found(
        "failed_capture_keeps_memory",
        Severity::Warning,
        capture.begun,
        format!("a failed capture kept its memory: {} not returned", change(kept)),
        "Destroy the private pool of the capture where its failure is handled (PyTorch: a graph object that failed keeps \
         its pool until it is collected).",
    );
    let seconds = COMES_BACK / SECOND;
    Some(finding.with(format!("memory of the process as NVML tells it, {seconds} s after the end")))
}

/// The name of a stream's handle.
pub(super) fn stream_name(stream: u64) -> String {
    match stream {
        0 | 1 => "the legacy default stream".to_owned(),
        2 => "the per-thread default stream".to_owned(),
        other => format!("stream {other:#x}"),
    }
}
