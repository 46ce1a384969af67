//! A file's frames as rows and counters: a first pass learns who and what is named, a second one hands rows to a sink.

use std::io;
use std::ops::ControlFlow;

use gtop_protocol::frame::{FrameKind, Runs};
use gtop_protocol::message::{Clock, DeviceSample, Hello, Kinds, Loss, pools};
use gtop_protocol::recording::{At, Entry, MACHINE};
use gtop_protocol::viewer::Earlier;
use gtop_protocol::{Kind, KindSet, Validity};
use rustc_hash::FxHashMap;

use super::clocks::{LATEST, Offset, Steady};
use super::output::Output;
use super::plan::{Selection, Source};
use super::record::{called, is_call};
use super::survey::{Process, Survey, is_believable};
use super::{Counter, Owner, Record, Row, Sink, TextKey, Unit, text_key};
use crate::model::launch::{Launches, Verdict};
use crate::model::time::{Moment, SECOND};
use crate::model::work::{class_of, is_cut_off};
use crate::source::file::Unreadable;
use crate::source::recording::TOO_MANY;

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
    /// Device samples whose times cannot be believed; they have no place.
    pub samples: u64,
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
        earlier: plan.earlier.as_ref(),
        clock: Steady::default(),
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
    let damage = damage.or_else(|| survey.crowded.then(|| TOO_MANY.to_owned()));
    Ok(Done { damage, seen, of: plan.total.max(seen), ..done })
}

fn is_cut_off_kernel(record: &Record) -> bool {
    matches!(record, Record::Kernel(kernel) if is_cut_off(kernel))
}

/// Records between two words on the progress.
const TELL_EVERY: u64 = 10_000;

/// The second pass.
struct Rows<'a, 's> {
    survey: &'s Survey,
    sink: &'a mut (dyn Sink<'s> + 's),
    selection: &'a Selection,
    window: Option<(u64, u64)>,
    /// Invalid records of each stream before those that are read.
    earlier: Option<&'a FxHashMap<u32, u64>>,
    clock: Steady,
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

impl Stream {
    /// The time of what came then, nanoseconds since the epoch.
    const fn now(&self, at: At) -> u64 {
        if at.wall == 0 { self.newest } else { at.wall }
    }
}

impl<'s> Rows<'_, 's> {
    fn entry(&mut self, entry: &Entry<'_>) {
        let (frame, body, at) = (&entry.frame, entry.frame.body, entry.at);
        self.clock.hear(at);
        if entry.stream == MACHINE {
            if frame.kind() == Some(FrameKind::DeviceSample)
                && let Ok(sample) = DeviceSample::read(body)
            {
                if is_believable(&sample, at) {
                    self.sample(&sample);
                } else if self.is_in_window(at.wall) {
                    self.done.samples += 1;
                }
            }
            return;
        }
        let Some(process) = self.survey.process(entry.stream) else { return };
        let invalid = self.earlier.and_then(|earlier| earlier.get(&entry.stream)).copied().unwrap_or(0);
        let first = || Stream { offset: process.offset.unwrap_or_default(), invalid, ..Stream::default() };
        let mut stream = self.streams.remove(&entry.stream).unwrap_or_else(first);
        match frame.kind() {
            Some(FrameKind::Records) => {
                self.give_up(process, &mut stream, Some(at));
                let now = stream.now(at);
                self.beat(process, &mut stream, now);
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
            Some(FrameKind::Hello) => {
                stream.launches_come |= Hello::read(body).is_ok_and(|hello| hello.fields.launches == 1);
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
                    self.count(process, stream.now(at), "lost records", None, Unit::Count, lost as f64);
                }
            }
            Some(FrameKind::Pools) => {
                for pool in pools::read(body) {
                    let (now, context) = (stream.now(at), Some(pool.context));
                    if let Some(buffers) = pool.observed.or(pool.computed) {
                        let name = "device buffers in use, context";
                        self.count(process, now, name, context, Unit::Count, buffers as f64);
                    }
                }
            }
            // What is not here, of a recording that goes on in another file.
            Some(FrameKind::Earlier) if self.earlier.is_none() => {
                if let Ok(Earlier { invalid: Some(invalid), .. }) = Earlier::read(body) {
                    stream.invalid = invalid;
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
        if counter.at <= LATEST && self.is_in_window(counter.at) && self.failed.is_none() {
            self.failed = self.sink.counter(counter).err();
        }
    }

    fn is_in_window(&self, at: u64) -> bool {
        self.window.is_none_or(|(from, until)| (from..until).contains(&self.clock.of(at)))
    }

    /// Tells the rate of invalid records of a second when that is over.
    fn beat(&mut self, process: &'s Process, stream: &mut Stream, now: u64) {
        if now / SECOND == stream.second || now == 0 {
            return;
        }
        let ended = (stream.second + 1).saturating_mul(SECOND);
        stream.second = now / SECOND;
        let [all, bad] = std::mem::take(&mut stream.recent);
        if all > 0 {
            let rate = bad as f64 * 100.0 / all as f64;
            self.count(process, ended, "invalid records", None, Unit::Percent, rate);
            let (name, unit) = ("invalid records since the start", Unit::Count);
            self.count(process, ended, name, None, unit, stream.invalid as f64);
        }
    }

    /// Finds the class of a record as the model does, and emits it; or keeps it until its launch is known.
    fn judge(&mut self, process: &'s Process, stream: &mut Stream, record: Record, at: At) {
        let (validity, start, end) = record.times();
        let class = class_of(validity, start, end);
        if class.is_valid() {
            let moment = Moment { wall: at.wall, steady: at.steady };
            match &record {
                Record::Kernel(kernel) if stream.launches_come && !is_cut_off(kernel) => {
                    match stream.launches.judge(kernel, Some(at.wall), moment) {
                        Verdict::Fine => {}
                        Verdict::TooEarly => {
                            return self.emit(process, stream, record, Validity::BeforeLaunch, at);
                        }
                        Verdict::Waits => return,
                    }
                }
                Record::Other(other) if is_call(other) => {
                    let judged: Vec<_> =
                        stream.launches.call(other.correlation.get(), start, other.thread.get()).collect();
                    for (kernel, came, verdict) in judged {
                        let early = verdict == Verdict::TooEarly;
                        let class = if early { Validity::BeforeLaunch } else { Validity::Valid };
                        let at = At { wall: came.unwrap_or(at.wall), ..at };
                        self.emit(process, stream, Record::Kernel(kernel), class, at);
                    }
                }
                _ => {}
            }
        }
        self.emit(process, stream, record, class, at);
    }

    /// Emits kernels that have waited for their launch for long enough; all of them without a moment.
    fn give_up(&mut self, process: &'s Process, stream: &mut Stream, at: Option<At>) {
        let moment = at.map(|At { wall, steady }| Moment { wall, steady });
        for (kernel, came) in stream.launches.give_up(moment) {
            let at = At { wall: came.unwrap_or_default(), ..at.unwrap_or_default() };
            self.emit(process, stream, Record::Kernel(kernel), Validity::Valid, at);
        }
    }

    /// What is owed at the end.
    fn settle(&mut self) {
        let mut streams = std::mem::take(&mut self.streams);
        for (number, stream) in &mut streams {
            let Some(process) = self.survey.process(*number) else { continue };
            self.give_up(process, stream, None);
            let now = stream.newest.max((stream.second + 1).saturating_mul(SECOND));
            self.beat(process, stream, now);
        }
    }

    fn emit(&mut self, process: &'s Process, stream: &mut Stream, record: Record, class: Validity, at: At) {
        let (start, end) = record.raw();
        let span = stream.offset.span(start, end);
        let class = if class.is_valid() && span.is_none() { Validity::ForeignClock } else { class };
        let time = span.filter(|_| class.is_valid() && !is_cut_off_kernel(&record));
        if let Some((_, end)) = time {
            stream.newest = stream.newest.max(end);
        }
        stream.recent[0] += 1;
        if !class.is_valid() {
            stream.recent[1] += 1;
            stream.invalid += 1;
        }
        let when = time.map_or(stream.now(at), |(start, _)| start);
        if !self.is_in_window(when) || self.failed.is_some() {
            return;
        }
        let (kind, name, mangled) = called(self.survey, process, &record);
        if let Some(glob) = &self.selection.name {
            let name = name.unwrap_or_default();
            let fits = || glob.fits(name) || mangled.is_some_and(|mangled| glob.fits(mangled));
            if !*self.wanted.entry(text_key(name)).or_insert_with(fits) {
                return;
            }
        }
        let arrived = (1..=LATEST).contains(&at.wall).then_some(at.wall);
        let host = self.survey.host.as_deref();
        let row = Row { host, process, kind, name, mangled, class, time, arrived, record };
        self.done.rows += 1;
        self.done.invalid += u64::from(!class.is_valid());
        self.failed = self.sink.row(&row).err();
    }
}
