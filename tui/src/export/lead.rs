//! What of a recording is read besides the wanted chunks, so that their records are judged as if all of it were: calls that
//! launched their kernels, kernels that wait for a call, what the second at hand has counted so far.

use std::io::{Read, Seek};
use std::ops::ControlFlow;

use gtop_protocol::frame::FrameKind;
use gtop_protocol::record::Family;
use gtop_protocol::recording::{Block, Chunk, Decoder, Part, Recording};
use gtop_protocol::viewer::Earlier;
use rustc_hash::FxHashMap;

use crate::model::launch::PATIENCE;
use crate::model::time::SECOND;

/// How long before a kernel came its call is looked for. What ran later than that is not said to have run before it.
const CALLS: u64 = 60 * SECOND;
/// How long before a moment something may still be waiting for it: a call, or the end of a second.
const WAITS: u64 = PATIENCE + SECOND;

/// Widens the wanted parts, where times are wanted from a steady one on. Gives the invalid records of each stream that
/// came before what is read, where that is told.
pub(super) fn widen<R: Read + Seek>(
    recording: &mut Recording<R>,
    parts: &mut [Option<Part>],
    from: Option<u64>,
) -> Option<FxHashMap<u32, u64>> {
    let wanted: Vec<bool> = parts.iter().map(|part| *part == Some(Part::Whole)).collect();
    let chunks = recording.chunks();
    let mut next = None;
    for (at, chunk) in chunks.iter().enumerate().rev() {
        let leads = |next: u64| {
            let before = next.saturating_sub(chunk.last.steady);
            before <= WAITS || before <= CALLS && has_calls(chunk)
        };
        let from = from.filter(|from| chunk.last.steady < *from);
        if wanted[at] {
            next = Some(chunk.first.steady);
        } else if next.into_iter().chain(from).min().is_some_and(leads) {
            parts[at] = Some(Part::Whole);
        }
    }
    let mut last = None;
    for (at, chunk) in chunks.iter().enumerate() {
        let follows = |last: u64| chunk.first.steady.saturating_sub(last) <= WAITS && has_calls(chunk);
        if wanted[at] {
            last = Some(chunk.last.steady);
        } else if last.is_some_and(follows) {
            parts[at] = Some(Part::Whole);
        }
    }
    // What comes behind is told the sides of all before it.
    if let Some(last) = parts.iter().rposition(|part| *part == Some(Part::Whole)) {
        parts[..last].iter_mut().for_each(|part| *part = part.or(Some(Part::Side)));
    }
    let first = parts.iter().position(|part| *part == Some(Part::Whole))?;
    let told = recording.state(first);
    let from = told.as_ref().map_or(0, |(from, _)| *from);
    for (chunk, part) in recording.chunks().iter().zip(parts.iter_mut()).take(first).skip(from) {
        if chunk.invalid() > 0 {
            *part = Some(Part::Whole);
        }
    }
    told.map(|(_, block)| invalid(&block))
}

fn has_calls(chunk: &Chunk) -> bool {
    chunk.counts().of(Family::Other) > 0
}

/// The invalid records of each stream that came before a block that says everything again.
fn invalid(block: &Block) -> FxHashMap<u32, u64> {
    let mut invalid = FxHashMap::default();
    // What is damaged of it is not told.
    let _ = Decoder::default().decode(block, &mut |entry| {
        if entry.frame.kind() == Some(FrameKind::Earlier)
            && let Ok(Earlier { invalid: Some(count), .. }) = Earlier::read(entry.frame.body)
        {
            invalid.insert(entry.stream, count);
        }
        ControlFlow::Continue(())
    });
    invalid
}
