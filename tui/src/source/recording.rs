//! Recordings as frames: the same ones in the same order as they came, and at the moments at which they came.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use gtop_protocol::frame::{Frame, FrameKind};
use gtop_protocol::message::DeviceSample;
use gtop_protocol::recording::{
    At, Block, Damage, Decoder, Entry, MACHINE, OpenError, Part, Placed, Recording,
};
use gtop_protocol::viewer::{DeviceNote, Halt, Halted, Link as WireLink, LinkState, Watched};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustc_hash::FxHashMap;

use crate::model::names::safe;
use crate::model::snapshot::Link;
use crate::model::time::{Moment, SECOND};
use crate::model::{Conn, Model};

/// Chunks that may be read ahead of what is unpacked.
const AHEAD: usize = 4;
/// Bytes of frames that are handed on together: few enough that they stay near both who unpacks and who takes them.
const BATCH: usize = 256 << 10;
/// Batches that may be unpacked ahead of what is shown: while the next chunk is begun, some must be left.
const BATCHES: usize = 16;

/// Processes of one recording that are told apart: more than anyone watches, and no more than memory holds.
pub const MAX_PROCESSES: usize = 1 << 12;
/// What is said where there are more.
pub const TOO_MANY: &str = "there are too many processes in it: those after the first 4,096 are left out";

/// A time in a recording, as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after its beginning.
    After(Duration),
    /// At a time of day, seconds, on the day it was made.
    Clock(u32),
}

impl When {
    /// `90s`, `2.5m`, `17:31`, `17:31:04`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains(':') {
            return crate::command::duration(text).map(Self::After);
        }
        let wrong = || format!("`{text}` is no time: 90s since the beginning, or 17:31:04 of the day");
        let limits = [24, 60, 60];
        let parts: Vec<&str> = text.split(':').collect();
        if parts.len() > limits.len() {
            return Err(wrong());
        }
        let mut seconds = 0;
        for (at, limit) in limits.into_iter().enumerate() {
            let part = parts.get(at).map_or(Ok(0), |part| part.parse::<u32>());
            let part = part.ok().filter(|part| *part < limit).ok_or_else(wrong)?;
            seconds = seconds * 60 + part;
        }
        Ok(Self::Clock(seconds))
    }

    /// The steady time it stands for in a recording; a time of day in this machine's zone.
    #[must_use]
    pub fn of<R: Read + Seek>(self, recording: &Recording<R>) -> u64 {
        match self {
            Self::After(time) => {
                let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                recording.range().0.saturating_add(ns)
            }
            Self::Clock(seconds) => {
                let began = recording.chunks().first().map_or(0, |chunk| chunk.first.wall);
                recording.steady(time_of_day(began, seconds, &TimeZone::system()))
            }
        }
    }
}

impl When {
    /// The time since the epoch that it stands for in what began at `began`, nanoseconds.
    #[must_use]
    pub fn wall(self, began: u64) -> u64 {
        match self {
            Self::After(time) => began.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            Self::Clock(seconds) => time_of_day(began, seconds, &TimeZone::system()),
        }
    }
}

/// The first moment from `began` on at which a clock on the wall shows this time of day.
fn time_of_day(began: u64, seconds: u32, zone: &TimeZone) -> u64 {
    let Ok(moment) = Timestamp::from_nanosecond(i128::from(began)) else { return began };
    let shown = moment.to_zoned_datetime(zone.clone());
    let text = shown.strftime("%H %M %S").to_string();
    let now = text.split(' ').fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap_or(0));
    let ahead = (u64::from(seconds) + DAY - now) % DAY;
    // What lies nearly a day ahead lies just before the beginning.
    if ahead > DAY - 3600 { began } else { began - began % SECOND + ahead * SECOND }
}

/// Seconds of a day.
const DAY: u64 = 86_400;

/// The moment of a recording's frame.
#[must_use]
pub const fn moment(at: At) -> Moment {
    Moment { wall: at.wall, steady: at.steady }
}

/// Hands the frames of a recording to a model, as a session does with those of sockets.
#[derive(Debug, Default)]
pub struct Feed {
    conns: FxHashMap<u32, Conn>,
}

impl Feed {
    /// Applies one frame.
    pub fn apply(&mut self, model: &mut Model, entry: &Entry<'_>) {
        let (frame, at) = (&entry.frame, moment(entry.at));
        if entry.stream == MACHINE {
            machine(model, frame, at);
            return;
        }
        let known = self.conns.get(&entry.stream).copied();
        if known.is_none() && self.conns.len() >= MAX_PROCESSES {
            model.damaged(TOO_MANY.to_owned());
            return;
        }
        if frame.kind() == Some(FrameKind::Watched)
            && let Ok(watched) = Watched::read(frame.body)
        {
            self.conns.entry(entry.stream).or_insert_with(|| model.add(watched.pid));
            return;
        }
        // The frame that introduces a process may be in a part that is damaged.
        let conn = known.unwrap_or_else(|| *self.conns.entry(entry.stream).or_insert_with(|| model.add(0)));
        if frame.kind() == Some(FrameKind::Link) {
            if let Ok(link) = WireLink::read(frame.body) {
                model.link(conn, read_link(&link), at);
            }
        } else if frame.kind() == Some(FrameKind::Halt) {
            if let Ok(halt) = Halt::read(frame.body) {
                model.halt(conn, Halted::from_wire(halt.cause), at);
            }
        } else {
            model.apply(conn, frame, at);
        }
    }

    /// The processes, by the numbers of their streams.
    pub fn conns(&self) -> impl Iterator<Item = (u32, Conn)> + '_ {
        self.conns.iter().map(|(stream, conn)| (*stream, *conn))
    }
}

fn machine(model: &mut Model, frame: &Frame<'_>, at: Moment) {
    match frame.kind() {
        Some(FrameKind::DeviceSample) => {
            if let Ok(sample) = DeviceSample::read(frame.body) {
                model.device_sample(&sample, at);
            }
        }
        Some(FrameKind::DeviceNote) => {
            if let Ok(note) = DeviceNote::read(frame.body) {
                model.device_note((!note.text.is_empty()).then(|| safe(note.text)));
            }
        }
        _ => {}
    }
}

fn read_link(link: &WireLink<'_>) -> Link {
    match LinkState::from_wire(link.state) {
        LinkState::Connecting => Link::Connecting,
        LinkState::Up => Link::Up,
        LinkState::Lost => Link::Lost { since: link.since, retries: link.retries },
        LinkState::Ended => Link::Ended(safe(link.reason)),
    }
}

/// Opens a recording.
pub fn open(path: &Path) -> Result<Recording<File>, OpenError> {
    Recording::open(File::open(path)?)
}

/// Reads a recording from beginning to end into a model. Gives the moment at which it ends, and what of it could not be
/// used.
pub fn read_into<R: Read + Seek + Send>(
    model: &mut Model,
    mut recording: Recording<R>,
) -> io::Result<(Moment, Option<Damage>)> {
    let (mut feed, mut last) = (Feed::default(), Moment::default());
    let parts = vec![Some(Part::Whole); recording.chunks().len()];
    let damage = frames(&mut recording, &parts, &mut |entry| {
        last = moment(entry.at);
        feed.apply(model, entry);
        ControlFlow::Continue(())
    })?;
    Ok((last, damage))
}

/// Gives the frames of the chunks of which a part is wanted to `emit` until that breaks off: two threads read and
/// unpack ahead of it. Says what could not be used.
pub fn frames<R: Read + Seek + Send>(
    recording: &mut Recording<R>,
    parts: &[Option<Part>],
    emit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
) -> io::Result<Option<Damage>> {
    let (blocks, unread) = sync_channel::<Result<Block, Damage>>(AHEAD);
    let (batches, unpacked) = sync_channel::<Batch>(BATCHES);
    let (empty, emptied) = sync_channel::<Batch>(BATCHES * 2);
    let mut damage = recording.damage();
    thread::scope(|scope| {
        thread::Builder::new().name("gtop-read".into()).spawn_scoped(scope, move || {
            for (at, part) in parts.iter().enumerate() {
                if let Some(part) = part
                    && blocks.send(recording.load(at, *part)).is_err()
                {
                    return;
                }
            }
        })?;
        thread::Builder::new().name("gtop-unpack".into()).spawn_scoped(scope, move || {
            let mut decoder = Decoder::default();
            let (mut bodies, mut marks) = (Vec::new(), Vec::new());
            let hand_on = |bodies: &mut Vec<u8>, marks: &mut Vec<Placed>, damage| {
                let mut next = emptied.try_recv().unwrap_or_default();
                next.clear();
                let (bodies, marks) = (mem::replace(bodies, next.bodies), mem::replace(marks, next.marks));
                match batches.send(Batch { bodies, marks, damage }) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            };
            for block in unread {
                let done = block.and_then(|block| {
                    decoder.decode_into(&block, &mut bodies, &mut |bodies, placed| {
                        marks.push(placed);
                        if bodies.len() < BATCH {
                            ControlFlow::Continue(())
                        } else {
                            hand_on(bodies, &mut marks, None)
                        }
                    })
                });
                if hand_on(&mut bodies, &mut marks, done.err()).is_break() {
                    return;
                }
            }
        })?;
        for mut batch in unpacked {
            if batch.entries().try_for_each(|entry| emit(&entry)).is_break() {
                break;
            }
            if let Some(found) = batch.damage.take() {
                damage.get_or_insert(found);
            }
            let _ = empty.try_send(batch);
        }
        Ok(damage)
    })
}

/// Some frames of one chunk.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bodies: Vec<u8>,
    marks: Vec<Placed>,
    damage: Option<Damage>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.bodies.clear();
        self.marks.clear();
    }

    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let Entry { at, stream, frame } = *entry;
        self.marks.push(Placed { at, stream, header: frame.header, from: self.bodies.len() });
        self.bodies.extend_from_slice(frame.body);
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.marks.len()).filter_map(|number| self.entry(number))
    }

    /// One of the frames.
    pub(super) fn entry(&self, number: usize) -> Option<Entry<'_>> {
        self.marks.get(number)?.entry(&self.bodies)
    }

    /// When one of the frames came.
    pub(super) fn at(&self, number: usize) -> Option<At> {
        self.marks.get(number).map(|placed| placed.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::SourceKind;
    use gtop_protocol::frame::Header;
    use gtop_protocol::recording::{HeadFields, Keep, Writer};
    use std::io::Cursor;

    #[test]
    fn a_chunk_of_many_batches_comes_whole_in_order_and_can_be_left() {
        const FRAMES: u64 = 100;
        let body = |seq: u64| vec![seq as u8; BATCH / 9];
        let mut writer =
            Writer::begin(Vec::new(), &HeadFields::default(), Keep::default(), At::default()).unwrap();
        for seq in 1..=FRAMES {
            let header = Header { len: body(seq).len() as u32, kind: FrameKind::Notice as u16, seq };
            let frame = Frame { header, body: &body(seq) };
            writer.write(&Entry { at: At { wall: seq, steady: seq }, stream: 7, frame }).unwrap();
        }
        let mut recording = Recording::open(Cursor::new(writer.finish().unwrap())).unwrap();
        let parts = vec![Some(Part::Whole); recording.chunks().len()];
        let mut read = |until: u64| {
            let mut seqs = Vec::new();
            let damage = frames(&mut recording, &parts, &mut |entry| {
                let seq = entry.frame.header.seq;
                assert_eq!((entry.at.steady, entry.stream, entry.frame.body), (seq, 7, body(seq).as_slice()));
                seqs.push(seq);
                if seq < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            assert_eq!(damage.unwrap(), None);
            seqs
        };
        assert_eq!(read(u64::MAX), (1..=FRAMES).collect::<Vec<_>>());
        assert_eq!(read(3), [1, 2, 3]);
    }

    #[test]
    fn processes_without_end_are_left_out_and_that_is_said() {
        let mut model = Model::summary(SourceKind::Live, "x");
        let mut feed = Feed::default();
        let header = Header { len: 0, kind: FrameKind::Notice as u16, seq: 1 };
        let mut hear = |streams| {
            for stream in streams {
                let frame = Frame { header, body: &[] };
                feed.apply(&mut model, &Entry { at: At::default(), stream, frame });
            }
            (feed.conns().count(), model.snapshot(Moment::default()).source.damage)
        };
        let most = MAX_PROCESSES as u32;
        assert_eq!(hear(1..=most), (MAX_PROCESSES, None));
        assert_eq!(hear(most..=most + 2), (MAX_PROCESSES, Some(TOO_MANY.to_owned())));
    }

    #[test]
    fn times_are_since_the_beginning_or_of_the_day() {
        assert_eq!(When::parse("90s"), Ok(When::After(Duration::from_secs(90))));
        assert_eq!(When::parse("17:31:04"), Ok(When::Clock(17 * 3600 + 31 * 60 + 4)));
        assert_eq!(When::parse("17:31"), Ok(When::Clock(17 * 3600 + 31 * 60)));
        for bad in ["90", "25:00", "1:2:3:4", "1:60", ":"] {
            assert!(When::parse(bad).is_err(), "{bad}");
        }
        // 1970-01-02 23:59:50.5
        let began = 2 * DAY * SECOND - 9_500_000_000;
        let at = |hours: u32, minutes: u32, seconds: u32| {
            let time = hours * 3600 + minutes * 60 + seconds;
            time_of_day(began, time, &TimeZone::UTC) - began
        };
        assert_eq!(at(23, 59, 55), 4_500_000_000);
        assert_eq!(at(0, 0, 5), 14_500_000_000);
        assert_eq!(at(23, 59, 40), 0, "just before it began");
    }
}
