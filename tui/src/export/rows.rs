//! A file's frames as rows and counters: a first pass learns who and what is named, a second one hands rows to a sink.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use gtop_protocol::frame::{Frame, FrameKind, Run, Runs};
use gtop_protocol::message::{Clock, DeviceSample, Kinds, Loss, pools};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset, Other};
use gtop_protocol::recording::{At, Entry, MACHINE, Part, Recording};
use gtop_protocol::{Kind, KindSet, Validity, calls};
use rustc_hash::FxHashMap;

use super::output::Output;
use super::survey::{Offset, Process, Survey};
use super::{Counter, Glob, Owner, Record, Row, Sink, TextKey, Unit, text_key};
use crate::model::launch::{Launches, Verdict};
use crate::model::time::{Moment, SECOND};
use crate::model::work::class_of;
use crate::source::file::{self, Unreadable};
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

/// What an export came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows handed to the sink.
    pub rows: u64,
    /// … of which have no believable times.
    pub invalid: u64,
    /// Records looked at, and how many there are to look at: fewer are looked at in a sample.
    pub seen: u64,
    /// … and in the whole selection of time.
    pub of: u64,
    /// What could not be read.
    pub damage: Option<String>,
}

/// What a sink is told before the first row.
#[derive(Clone, Copy, Debug)]
pub struct About<'s> {
    /// The machine's name.
    pub host: Option<&'s str>,
    /// A time at or before all others, nanoseconds since the epoch.
    pub origin: u64,
}

/// How far an export is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Records looked at.
    pub seen: u64,
    /// … of so many.
    pub of: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Why an export ended early.
#[derive(Debug)]
pub enum Stopped {
    /// The file cannot be read.
    Unreadable(Unreadable),
    /// What is made cannot be written.
    Unwritable(io::Error),
}

impl From<Unreadable> for Stopped {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Unwritable(error)
    }
}

/// Writes the rows of a file to the output, and tells `progress` now and then.
pub fn export(
    mut source: Source,
    selection: &Selection,
    output: &Output,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Stopped> {
    let mut survey = Survey::default();
    let plan = source.survey(&mut survey, selection)?;
    let mut sink = output.begin(About { host: survey.host.as_deref(), origin: plan.origin })?;
    let mut rows = Rows {
        survey: &survey,
        sink: &mut *sink,
        selection,
        window: plan.window,
        streams: FxHashMap::default(),
        wanted: FxHashMap::default(),
        seen: 0,
        done: Done::default(),
        failed: None,
    };
    let mut told = 0;
    let damage = source.frames(&plan.parts, &mut |entry| {
        rows.entry(entry);
        if rows.seen >= told + TELL_EVERY {
            told = rows.seen;
            progress(Progress { seen: rows.seen, of: plan.records, bytes: rows.sink.bytes() });
        }
        if rows.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    rows.settle();
    let Rows { done, failed, seen, .. } = rows;
    if let Some(error) = failed {
        return Err(error.into());
    }
    sink.finish()?;
    Ok(Done { damage, seen, of: plan.total.max(seen), ..done })
}

/// Records between two words on the progress.
const TELL_EVERY: u64 = 10_000;

/// What the first pass found.
#[derive(Debug, Default)]
struct Plan {
    /// Which parts of which chunks are read.
    parts: Vec<Option<Part>>,
    /// Wanted times, nanoseconds since the epoch, the end excluded.
    window: Option<(u64, u64)>,
    origin: u64,
    /// Records in the chunks that are read, and in all that could be.
    records: u64,
    total: u64,
}

/// Chunks of a sample.
const SAMPLE: usize = 16;

impl Source {
    fn survey(&mut self, survey: &mut Survey, selection: &Selection) -> Result<Plan, Stopped> {
        match self {
            Self::Recording(recording) => {
                survey.host = Some(String::from_utf8_lossy(recording.head().host).into_owned())
                    .filter(|host| !host.is_empty());
                let parts = vec![Some(Part::Side); recording.chunks().len()];
                recording::frames(recording, &parts, &mut |entry| {
                    survey.take(entry);
                    ControlFlow::Continue(())
                })?;
                Ok(plan_recording(recording, survey, selection))
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
                let (from, until) = (at(selection.from), at(selection.until));
                let window = (from.is_some() || until.is_some())
                    .then(|| (from.unwrap_or(0), until.unwrap_or(u64::MAX)));
                Ok(Plan { parts: Vec::new(), window, origin, records, total: records })
            }
        }
    }

    /// All frames of the parts that are wanted; says what could not be read.
    fn frames(
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
    let least = survey.least.unwrap_or_default();
    let bounds = |when: Option<When>| {
        let steady = when?.of(recording);
        let chunk = chunks.get(recording.chunk_at(steady)).or(chunks.last())?;
        let wall = chunk.first.wall.wrapping_add(steady.wrapping_sub(chunk.first.steady));
        Some((steady, wall))
    };
    let (from, until) = (bounds(selection.from), bounds(selection.until));
    let mut parts: Vec<Option<Part>> = chunks
        .iter()
        .map(|chunk| {
            // What came before that moment also began before it.
            let early = from.is_some_and(|(steady, _)| chunk.last.steady < steady);
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
    let count = |parts: &[Option<Part>]| {
        let whole = chunks.iter().zip(parts).filter(|(_, part)| **part == Some(Part::Whole));
        whole.map(|(chunk, _)| chunk.counts().total()).sum()
    };
    let total = count(&parts);
    if selection.sample {
        let whole = parts.iter_mut().filter(|part| **part == Some(Part::Whole));
        let whole: Vec<&mut Option<Part>> = whole.collect();
        let every = whole.len().div_ceil(SAMPLE).max(1);
        for part in whole.into_iter().enumerate().filter(|(at, _)| at % every != 0).map(|(_, part)| part) {
            *part = Some(Part::Side);
        }
    }
    let records = count(&parts);
    let starts = chunks.iter().filter_map(|chunk| chunk.span.map(|(start, _)| least.wall(start)));
    let came = chunks.first().map_or(0, |chunk| chunk.first.wall);
    let origin = starts.min().map_or(came, |start| start.min(came));
    let window = (from.is_some() || until.is_some())
        .then(|| (from.map_or(0, |(_, wall)| wall), until.map_or(u64::MAX, |(_, wall)| wall)));
    let origin = window.map_or(origin, |(from, _)| origin.max(from));
    Plan { parts, window, origin, records, total }
}

/// The start of the earliest believable record of a run.
fn earliest(run: Run<'_>) -> Option<u64> {
    let family = run.family()?;
    let start = |bytes| {
        let (validity, start, end) = times(&Record::read(family, bytes));
        class_of(validity, start, end).is_valid().then_some(start)
    };
    run.records().filter_map(start).min()
}

fn times(record: &Record) -> (u8, u64, u64) {
    match record {
        Record::Kernel(it) => (it.validity, it.start.get(), it.end.get()),
        Record::Copy(it) => (it.validity, it.start.get(), it.end.get()),
        Record::Memset(it) => (it.validity, it.start.get(), it.end.get()),
        Record::Other(it) => (it.validity, it.start.get(), it.end.get()),
    }
}

impl Record {
    fn read(family: Family, bytes: &[u8]) -> Self {
        match family {
            Family::Kernel => Self::Kernel(record::read::<Kernel>(bytes)),
            Family::Copy => Self::Copy(record::read::<Copy>(bytes)),
            Family::Memset => Self::Memset(record::read::<Memset>(bytes)),
            Family::Other => Self::Other(record::read::<Other>(bytes)),
        }
    }

    /// Start and end, CUPTI's nanoseconds, whatever they are worth.
    #[must_use]
    pub fn raw(&self) -> (u64, u64) {
        let (_, start, end) = times(self);
        (start, end)
    }
}

/// The second pass.
struct Rows<'a, 's> {
    survey: &'s Survey,
    sink: &'a mut (dyn Sink<'s> + 's),
    selection: &'a Selection,
    window: Option<(u64, u64)>,
    streams: FxHashMap<u32, Stream>,
    /// Which names fit.
    wanted: FxHashMap<TextKey, bool>,
    seen: u64,
    done: Done,
    failed: Option<io::Error>,
}

/// What is remembered of a stream while its rows come.
#[derive(Default)]
struct Stream {
    offset: Offset,
    launches: Launches,
    launches_come: bool,
    /// The newest believable end, for files that have no other clock.
    newest: u64,
    /// Records and invalid ones of the second that is being counted, and all invalid ones.
    second: u64,
    recent: [u64; 2],
    invalid: u64,
}

impl<'s> Rows<'_, 's> {
    fn entry(&mut self, entry: &Entry<'_>) {
        let (frame, body, at) = (&entry.frame, entry.frame.body, entry.at);
        if entry.stream == MACHINE {
            if frame.kind() == Some(FrameKind::DeviceSample)
                && let Ok(sample) = DeviceSample::read(body)
            {
                self.sample(&sample);
            }
            return;
        }
        let Some(process) = self.survey.process(entry.stream) else { return };
        let first = || Stream { offset: process.offset.unwrap_or_default(), ..Stream::default() };
        let mut stream = self.streams.remove(&entry.stream).unwrap_or_else(first);
        match frame.kind() {
            Some(FrameKind::Records) => {
                self.beat(process, &mut stream, at);
                for run in Runs::new(body, process.sizes) {
                    let Some(family) = run.family() else { continue };
                    self.seen += run.count() as u64;
                    run.records().for_each(|bytes| {
                        self.judge(process, &mut stream, Record::read(family, bytes), at);
                    });
                }
            }
            Some(FrameKind::Clock) => {
                if let Ok(pair) = Clock::read(body) {
                    stream.offset.hear(&pair);
                }
            }
            Some(FrameKind::Kinds) => {
                if let Ok(kinds) = Kinds::read(body) {
                    let calls = KindSet::EMPTY.with(Kind::Runtime).with(Kind::Driver);
                    stream.launches_come = kinds.enabled & calls.0 != 0;
                }
            }
            Some(FrameKind::Loss) => {
                if let Ok(loss) = Loss::read(body) {
                    let lost = (loss.queue_full.saturating_sub(loss.joined_queue_full))
                        .saturating_add(loss.unknown_kind.saturating_sub(loss.joined_unknown_kind))
                        .saturating_add(loss.cupti_dropped.saturating_sub(loss.joined_cupti_dropped))
                        .saturating_add(loss.dropped);
                    self.count(
                        process,
                        at.wall.max(stream.newest),
                        "lost records",
                        None,
                        Unit::Count,
                        lost as f64,
                    );
                }
            }
            Some(FrameKind::Pools) => {
                for pool in pools::read(body) {
                    let (now, context) = (at.wall.max(stream.newest), Some(pool.context));
                    if let Some(buffers) = pool.observed.or(pool.computed) {
                        let name = "device buffers in use, context";
                        self.count(process, now, name, context, Unit::Count, buffers as f64);
                    }
                }
            }
            _ => {}
        }
        self.streams.insert(entry.stream, stream);
    }

    fn sample(&mut self, sample: &DeviceSample<'_>) {
        let mut one = |name, unit, value: Option<f64>| {
            if let Some(value) = value {
                let owner = Owner::Device(sample.index);
                self.counter(&Counter { at: sample.time, owner, name, number: None, unit, value });
            }
        };
        one("memory used", Unit::Bytes, sample.memory_used.map(|bytes| bytes as f64));
        one("power", Unit::Watts, sample.power_mw.map(|mw| mw as f64 / 1000.0));
    }

    fn count(
        &mut self,
        process: &'s Process,
        at: u64,
        name: &'static str,
        number: Option<u32>,
        unit: Unit,
        value: f64,
    ) {
        self.counter(&Counter { at, owner: Owner::Process(process), name, number, unit, value });
    }

    fn counter(&mut self, counter: &Counter<'s>) {
        if self.is_in_window(counter.at) && self.failed.is_none() {
            self.failed = self.sink.counter(counter).err();
        }
    }

    fn is_in_window(&self, at: u64) -> bool {
        self.window.is_none_or(|(from, until)| from <= at && at < until)
    }

    /// Tells the rate of invalid records once a second.
    fn beat(&mut self, process: &'s Process, stream: &mut Stream, at: At) {
        let now = at.wall.max(stream.newest);
        if now / SECOND == stream.second || now == 0 {
            return;
        }
        stream.second = now / SECOND;
        let [all, bad] = std::mem::take(&mut stream.recent);
        if all > 0 {
            let rate = bad as f64 * 100.0 / all as f64;
            self.count(process, now, "invalid records", None, Unit::Percent, rate);
            self.count(
                process,
                now,
                "invalid records since the start",
                None,
                Unit::Count,
                stream.invalid as f64,
            );
        }
    }

    /// Finds the class of a record as the model does, and emits it; or keeps it until its launch is known.
    fn judge(&mut self, process: &'s Process, stream: &mut Stream, record: Record, at: At) {
        let (validity, start, end) = times(&record);
        let class = class_of(validity, start, end);
        if class.is_valid() {
            let moment = Moment { wall: at.wall, steady: at.steady };
            match &record {
                Record::Kernel(kernel) if stream.launches_come => match stream.launches.judge(kernel, moment)
                {
                    Verdict::Fine => {}
                    Verdict::TooEarly => {
                        return self.emit(process, stream, record, Validity::BeforeLaunch, at);
                    }
                    Verdict::Waits => return,
                },
                Record::Other(other) if is_call(other) => {
                    let judged: Vec<_> =
                        stream.launches.call(other.correlation.get(), start, other.thread.get()).collect();
                    for (kernel, verdict) in judged {
                        let early = verdict == Verdict::TooEarly;
                        let class = if early { Validity::BeforeLaunch } else { Validity::Valid };
                        self.emit(process, stream, Record::Kernel(kernel), class, at);
                    }
                }
                _ => {}
            }
        }
        self.emit(process, stream, record, class, at);
    }

    /// Kernels whose launch never came.
    fn settle(&mut self) {
        let mut streams = std::mem::take(&mut self.streams);
        for (number, stream) in &mut streams {
            let Some(process) = self.survey.process(*number) else { continue };
            for kernel in stream.launches.give_up(None) {
                self.emit(process, stream, Record::Kernel(kernel), Validity::Valid, At::default());
            }
            let now = stream.newest.max((stream.second + 1) * SECOND);
            self.beat(process, stream, At { wall: now, steady: 0 });
        }
    }

    fn emit(&mut self, process: &'s Process, stream: &mut Stream, record: Record, class: Validity, at: At) {
        let (start, end) = record.raw();
        let time = class.is_valid().then(|| (stream.offset.wall(start), stream.offset.wall(end)));
        if let Some((_, end)) = time {
            stream.newest = stream.newest.max(end);
        }
        stream.recent[0] += 1;
        if time.is_none() {
            stream.recent[1] += 1;
            stream.invalid += 1;
        }
        let when = time.map_or(if at.wall == 0 { stream.newest } else { at.wall }, |(start, _)| start);
        if !self.is_in_window(when) || self.failed.is_some() {
            return;
        }
        let (kind, name, mangled) = self.called(process, &record);
        if let Some(glob) = &self.selection.name {
            let name = name.unwrap_or_default();
            let fits = || glob.fits(name) || mangled.is_some_and(|mangled| glob.fits(mangled));
            if !*self.wanted.entry(text_key(name)).or_insert_with(fits) {
                return;
            }
        }
        let arrived = (at.wall != 0).then_some(at.wall);
        let host = self.survey.host.as_deref();
        let row = Row { host, process, kind, name, mangled, class, time, arrived, record };
        self.done.rows += 1;
        self.done.invalid += u64::from(time.is_none());
        self.failed = self.sink.row(&row).err();
    }

    fn called(&self, process: &Process, record: &Record) -> (&'static str, Option<&'s str>, Option<&'s str>) {
        match record {
            Record::Kernel(kernel) => {
                let name = self.survey.name(process, kernel.name.get());
                let both = name.map(|name| (name.full.as_str(), name.mangled.as_str()));
                (Kind::Kernel.name(), both.map(|both| both.0), both.map(|both| both.1))
            }
            Record::Copy(copy) => (Kind::Memcpy.name(), Some(copy_name(copy.direction)), None),
            Record::Memset(_) => (Kind::Memset.name(), Some("memset"), None),
            Record::Other(other) => {
                let kind = Kind::from_cupti(other.cupti_kind.get());
                let code = other.code.get();
                let known = calls::CALLS.iter().find(|call| call.code == code).map(|call| call.name);
                let name = match kind {
                    Some(Kind::Driver) => known,
                    Some(Kind::Overhead) => Some("overhead of CUPTI"),
                    Some(Kind::Sync) => Some("synchronisation"),
                    Some(Kind::Memory) => Some("memory"),
                    _ => None,
                };
                (kind.map_or("other", Kind::name), name, None)
            }
        }
    }
}

fn is_call(other: &Other) -> bool {
    matches!(Kind::from_cupti(other.cupti_kind.get()), Some(Kind::Runtime | Kind::Driver))
}

/// The name of a copy by its direction.
const fn copy_name(direction: u8) -> &'static str {
    match direction {
        1 => "copy HtoD",
        2 => "copy DtoH",
        3 => "copy HtoA",
        4 => "copy AtoH",
        5 => "copy AtoA",
        6 => "copy AtoD",
        7 => "copy DtoA",
        8 => "copy DtoD",
        9 => "copy HtoH",
        10 => "copy PtoP",
        _ => "copy",
    }
}
