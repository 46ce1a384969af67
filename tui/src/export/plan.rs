//! The first pass over a file: who and what is named, which parts of it hold what is wanted, and from when on.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;

use gtop_protocol::frame::{Frame, FrameKind, Run, Runs};
use gtop_protocol::recording::{At, Chunk, Entry, Part, Recording};
use rustc_hash::FxHashMap;

use super::clocks::LATEST;
use super::rows::Stopped;
use super::survey::Survey;
use super::{Glob, Record, lead};
use crate::model::work::class_of;
use crate::source::file;
use crate::source::recording::{self, When};

/// What is exported.
#[derive(Debug)]
pub enum Source {
    /// A recording.
    Recording(Box<Recording<File>>),
    /// A file of raw CUPTI buffers.
    Buffers(PathBuf),
}

/// Which records are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Those that start then or later; of those without a believable start, the ones that came then or later.
    pub from: Option<When>,
    /// Those that start before.
    pub until: Option<When>,
    /// Those whose name fits, in full or as CUPTI gave it.
    pub name: Option<Glob>,
    /// Only some chunks of a recording, enough to tell from.
    pub sample: bool,
}

/// What the first pass found.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Which parts of which chunks are read.
    pub(super) parts: Vec<Option<Part>>,
    /// Invalid records of each stream that came before all that are read, where some did and that is told.
    pub(super) earlier: Option<FxHashMap<u32, u64>>,
    /// Wanted times, nanoseconds, the end excluded: on the steady clock of a recording, of raw buffers since the epoch.
    pub(super) window: Option<(u64, u64)>,
    pub(super) origin: u64,
    /// Records in the chunks that are read, and in all that could be.
    pub(super) records: u64,
    pub(super) total: u64,
}

/// Chunks of a sample.
const SAMPLE: usize = 16;

impl Source {
    pub(super) fn survey(&mut self, survey: &mut Survey, selection: &Selection) -> Result<Plan, Stopped> {
        match self {
            Self::Recording(recording) => {
                survey.host = Some(String::from_utf8_lossy(recording.head().host).into_owned())
                    .filter(|host| !host.is_empty());
                let parts = vec![Some(Part::Side); recording.chunks().len()];
                recording::frames(recording, &parts, &mut |entry| {
                    survey.take(entry);
                    ControlFlow::Continue(())
                })?;
                let mut plan = plan_recording(recording, survey, selection);
                if !selection.sample {
                    let from = plan.window.map(|(from, _)| from);
                    plan.earlier = lead::widen(recording, &mut plan.parts, from);
                    plan.records = whole(recording.chunks(), &plan.parts);
                    plan.total = plan.records;
                }
                Ok(plan)
            }
            Self::Buffers(path) => {
                let (mut first, mut records) = (u64::MAX, 0);
                file::read(path, &mut |bytes| {
                    let Ok(Some((frame, _))) = Frame::split(bytes) else { return };
                    let entry = Entry { at: At::default(), stream: RAW, frame };
                    survey.take(&entry);
                    let sizes = survey.process(RAW).map(|process| process.sizes);
                    if let Some(sizes) = sizes.filter(|_| frame.kind() == Some(FrameKind::Records)) {
                        for run in Runs::new(frame.body, sizes) {
                            records += run.count() as u64;
                            first = first.min(earliest(run).unwrap_or(u64::MAX));
                        }
                    }
                })?;
                let origin = if first == u64::MAX { 0 } else { first };
                let at = |when: Option<When>| when.map(|when| when.wall(origin));
                let window = window(at(selection.from), at(selection.until));
                Ok(Plan { window, origin, records, total: records, ..Plan::default() })
            }
        }
    }

    /// All frames of the parts that are wanted; says what could not be read.
    pub(super) fn frames(
        &mut self,
        parts: &[Option<Part>],
        emit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Option<String>, Stopped> {
        match self {
            Self::Recording(recording) => {
                Ok(recording::frames(recording, parts, emit)?.map(|damage| damage.to_string()))
            }
            Self::Buffers(path) => {
                let mut over = false;
                Ok(file::read(path, &mut |bytes| {
                    if let Ok(Some((frame, _))) = Frame::split(bytes)
                        && !over
                    {
                        over = emit(&Entry { at: At::default(), stream: RAW, frame }).is_break();
                    }
                })?)
            }
        }
    }
}

/// The stream of the one process of a file of raw buffers.
const RAW: u32 = 1;

fn plan_recording(recording: &Recording<File>, survey: &Survey, selection: &Selection) -> Plan {
    let chunks = recording.chunks();
    let [least, most] = survey.offsets.unwrap_or_default();
    let bounds = |when: Option<When>| {
        let steady = when?.of(recording);
        let chunk = chunks.get(recording.chunk_at(steady)).or(chunks.last())?;
        let At { wall, steady: at } = chunk.first;
        Some((
            steady,
            wall.saturating_add(steady.saturating_sub(at)).saturating_sub(at.saturating_sub(steady)),
        ))
    };
    let (from, until) = (bounds(selection.from), bounds(selection.until));
    let mut parts: Vec<Option<Part>> = chunks
        .iter()
        .map(|chunk| {
            // What came before that moment also began before it, by clocks that agree.
            let early = from.is_some_and(|(steady, wall)| {
                chunk.last.steady < steady && chunk.span.is_none_or(|(_, end)| most.wall(end) < wall)
            });
            // What comes later may yet have begun before.
            let late = until.is_some_and(|(steady, wall)| {
                chunk.first.steady >= steady && chunk.span.is_none_or(|(start, _)| least.wall(start) >= wall)
            });
            Some(if early || late { Part::Side } else { Part::Whole })
        })
        .collect();
    for part in parts.iter_mut().rev() {
        if *part == Some(Part::Whole) {
            break;
        }
        *part = None;
    }
    let total = whole(chunks, &parts);
    if selection.sample {
        let wanted = parts.iter_mut().filter(|part| **part == Some(Part::Whole));
        let wanted: Vec<&mut Option<Part>> = wanted.collect();
        let every = wanted.len().div_ceil(SAMPLE).max(1);
        for part in wanted.into_iter().enumerate().filter(|(at, _)| at % every != 0).map(|(_, part)| part) {
            *part = Some(Part::Side);
        }
    }
    let records = whole(chunks, &parts);
    let starts = chunks.iter().filter_map(|chunk| chunk.span.map(|(start, _)| least.wall(start)));
    let came = chunks.first().map_or(0, |chunk| chunk.first.wall);
    // What NVML said was read before it came.
    let origin = starts.chain(survey.sampled).fold(came, u64::min);
    // Behind the moment at which somebody set the clock back there may be times before that one.
    let is_steady = chunks.is_sorted_by_key(|chunk| chunk.first.wall);
    let origin = from.filter(|_| is_steady).map_or(origin, |(_, wall)| origin.max(wall)).min(LATEST);
    let window = window(from.map(|(steady, _)| steady), until.map(|(steady, _)| steady));
    Plan { parts, earlier: None, window, origin, records, total }
}

/// Records in the chunks that are read whole.
fn whole(chunks: &[Chunk], parts: &[Option<Part>]) -> u64 {
    let whole = chunks.iter().zip(parts).filter(|(_, part)| **part == Some(Part::Whole));
    whole.map(|(chunk, _)| chunk.counts().total()).sum()
}

/// The times between these, nanoseconds, the end excluded; `None` where all are.
fn window(from: Option<u64>, until: Option<u64>) -> Option<(u64, u64)> {
    (from.is_some() || until.is_some()).then(|| (from.unwrap_or(0), until.unwrap_or(u64::MAX)))
}

/// The start of the earliest believable record of a run.
fn earliest(run: Run<'_>) -> Option<u64> {
    let family = run.family()?;
    let start = |bytes| {
        let (validity, start, end) = Record::read(family, bytes).times();
        class_of(validity, start, end).is_valid().then_some(start)
    };
    run.records().filter_map(start).min()
}
