//! What must be said again where a recording goes on in another file, or is cut: the state that frames have told.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::block::Counts;
use super::{At, Entry};
use crate::frame::{Frame, FrameKind, HEADER_LEN, Header, MAX_BODY, RecordSizes, Run, Runs, write_frame};
use crate::message::{DeviceSample, Hello, names};
use crate::record::Family;
use crate::validity::Validity;
use crate::viewer::{Earlier, Link, LinkState};
use crate::wire::Writer;

/// Bytes of frames that add up which are kept for one stream; the oldest give way.
const MAX_KEPT: usize = 24 << 20;
/// Names that are kept for one stream, and their bytes: more than a shim gives.
const MAX_NAMES: usize = 1 << 17;
const MAX_NAME_BYTES: usize = 24 << 20;
/// Bytes of a frame in which names are said again.
const NAMES_FRAME: usize = 64 << 10;
/// Notices that are kept with the time at which they came, and their bytes; the oldest give way.
const MAX_NOTICES: usize = 1000;
const MAX_NOTICE_BYTES: usize = 256 << 10;
/// Devices whose last sample is kept.
const MAX_DEVICES: usize = 256;

/// How a frame is kept.
enum Way {
    /// The last one says everything.
    Last(u64),
    /// Each one adds something.
    All,
    /// It happened, and is over.
    Not,
}

fn way(frame: &Frame<'_>) -> Way {
    let kind = u64::from(frame.header.kind);
    match frame.kind() {
        Some(
            FrameKind::Watched
            | FrameKind::Link
            | FrameKind::Halt
            | FrameKind::DeviceNote
            | FrameKind::Hello
            | FrameKind::Clock
            | FrameKind::Kinds
            | FrameKind::State
            | FrameKind::HostBuffers
            | FrameKind::Pools
            | FrameKind::Observers
            | FrameKind::Loss
            | FrameKind::Sampling,
        ) => Way::Last(kind),
        Some(FrameKind::DeviceSample) => {
            let index = DeviceSample::read(frame.body).map_or(0, |sample| sample.index);
            Way::Last(kind | u64::from(index) << 16)
        }
        Some(
            FrameKind::Records
            | FrameKind::Notice
            | FrameKind::Goodbye
            | FrameKind::Reply
            | FrameKind::RawBuffer
            | FrameKind::Request
            // Names are kept one by one.
            | FrameKind::Names
            | FrameKind::Earlier
            | FrameKind::Closed,
        ) => Way::Not,
        // What nobody here knows may be state.
        Some(FrameKind::Lifecycle) | None => Way::All,
    }
}

/// A frame that is kept.
#[derive(Clone, Debug)]
struct Kept {
    kind: u16,
    body: Box<[u8]>,
}

/// The state of one stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// In the order in which they are said again: a process is introduced before anything is told of it.
    last: BTreeMap<u64, Kept>,
    names: BTreeMap<u32, Box<[u8]>>,
    name_bytes: usize,
    all: Vec<Kept>,
    known: HashSet<u64>,
    bytes: usize,
    counts: Counts,
    /// Kernel records and records with times that cannot be believed, over all connections; `None` where a part did
    /// not say how many came before it.
    kernels: Option<u64>,
    invalid: Option<u64>,
    sizes: Option<RecordSizes>,
}

/// A notice, of which stream and when.
#[derive(Clone, Debug)]
struct Told {
    at: At,
    stream: u32,
    body: Box<[u8]>,
}

/// The state that the frames of a stream have told so far.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    streams: BTreeMap<u32, Stream>,
    notices: VecDeque<Told>,
    notice_bytes: usize,
}

impl Keep {
    /// Takes in a frame.
    pub fn add(&mut self, entry: &Entry<'_>) {
        let frame = &entry.frame;
        if frame.kind() == Some(FrameKind::Notice) {
            self.note(entry);
        }
        let fresh = || Stream { invalid: Some(0), kernels: Some(0), ..Stream::default() };
        let stream = self.streams.entry(entry.stream).or_insert_with(fresh);
        match frame.kind() {
            Some(FrameKind::Hello) => stream.sizes = Hello::read(frame.body).ok().map(|hello| hello.sizes),
            Some(FrameKind::Records) => {
                for run in Runs::new(frame.body, stream.sizes.unwrap_or(RecordSizes([0; 4]))) {
                    if let Some(family) = run.family() {
                        stream.counts.count(family, run.count());
                        let bad = invalid(family, &run);
                        stream.invalid = stream.invalid.map(|sum| sum.saturating_add(bad));
                        let kernels = if family == Family::Kernel { run.count() as u64 } else { 0 };
                        stream.kernels = stream.kernels.map(|sum| sum.saturating_add(kernels));
                    }
                }
            }
            Some(FrameKind::Names) => {
                names::read(frame.body).for_each(|(id, name)| stream.learn(id, name));
            }
            // What goes on here was counted elsewhere.
            Some(FrameKind::Earlier) => {
                if let Ok(earlier) = Earlier::read(frame.body) {
                    let Earlier { kernel, memcpy, memset, other, invalid, kernels } = earlier;
                    stream.counts = Counts([kernel, memcpy, memset, other]);
                    (stream.invalid, stream.kernels) = (invalid, kernels);
                }
            }
            // Counts are of one connection.
            Some(FrameKind::Link)
                if Link::read(frame.body).is_ok_and(|link| {
                    matches!(LinkState::from_wire(link.state), LinkState::Lost | LinkState::Ended)
                }) =>
            {
                stream.counts = Counts::default();
            }
            _ => {}
        }
        let kept = || Kept { kind: frame.header.kind, body: frame.body.into() };
        match way(frame) {
            Way::Last(key) => {
                if stream.last.len() < MAX_DEVICES || stream.last.contains_key(&key) {
                    stream.last.insert(key, kept());
                }
            }
            Way::All => {
                let mut hasher = DefaultHasher::new();
                (frame.header.kind, frame.body).hash(&mut hasher);
                if stream.known.insert(hasher.finish()) {
                    stream.bytes = stream.bytes.saturating_add(frame.body.len());
                    stream.all.push(kept());
                    stream.make_room();
                }
            }
            Way::Not => {}
        }
    }

    /// The sizes of a stream's records, once its hello has come.
    pub(super) fn sizes(&self, stream: u32) -> Option<RecordSizes> {
        self.streams.get(&stream)?.sizes
    }

    /// Says everything again: for each stream its state, and then which records are not here. Sequence numbers are
    /// 0, because nothing was dropped between these.
    pub(super) fn say(&self, at: At, mut emit: impl FnMut(&Entry<'_>)) {
        let mut bytes = [0; 96];
        for (number, stream) in &self.streams {
            let mut one = |kind: u16, body: &[u8]| {
                let len = body.len().min(MAX_BODY) as u32;
                let frame = Frame { header: Header { len, kind, seq: 0 }, body };
                emit(&Entry { at, stream: *number, frame });
            };
            let first = [FrameKind::Watched as u64, FrameKind::Hello as u64];
            let introduced = first.iter().filter_map(|kind| stream.last.get(kind));
            introduced.for_each(|kept| one(kept.kind, &kept.body));
            stream.say_names(|body| one(FrameKind::Names as u16, body));
            stream.all.iter().for_each(|kept| one(kept.kind, &kept.body));
            let others = stream.last.iter().filter(|(key, _)| !first.contains(key));
            others.for_each(|(_, kept)| one(kept.kind, &kept.body));
            let [kernel, memcpy, memset, other] = stream.counts.0;
            let Stream { invalid, kernels, .. } = *stream;
            let earlier = Earlier { kernel, memcpy, memset, other, invalid, kernels };
            if *number != super::MACHINE
                && let Ok(len) = write_frame(&mut bytes, FrameKind::Earlier, 0, |w| earlier.write(w))
                && let Some(body) = bytes.get(HEADER_LEN..len)
            {
                one(FrameKind::Earlier as u16, body);
            }
        }
    }

    /// Says everything again and what was noted, with the times of then: for who jumps over all of it.
    pub(super) fn say_all(&self, at: At, mut emit: impl FnMut(&Entry<'_>)) {
        self.say(at, &mut emit);
        for Told { at, stream, body } in &self.notices {
            let header = Header { len: body.len() as u32, kind: FrameKind::Notice as u16, seq: 0 };
            emit(&Entry { at: *at, stream: *stream, frame: Frame { header, body } });
        }
    }

    fn note(&mut self, entry: &Entry<'_>) {
        let body: Box<[u8]> = entry.frame.body.into();
        self.notice_bytes = self.notice_bytes.saturating_add(body.len());
        self.notices.push_back(Told { at: entry.at, stream: entry.stream, body });
        while self.notices.len() > MAX_NOTICES || self.notice_bytes > MAX_NOTICE_BYTES {
            let Some(oldest) = self.notices.pop_front() else { return };
            self.notice_bytes = self.notice_bytes.saturating_sub(oldest.body.len());
        }
    }

    /// Whether nothing was taken in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// The records of a run with times that cannot be believed, as the shim judged them.
fn invalid(family: Family, run: &Run<'_>) -> u64 {
    // A record of a shim that did not send it yet has none, which is 0.
    let class = |record: &[u8]| record.get(family.validity_at()).copied().unwrap_or_default();
    run.records().filter(|record| class(record) != Validity::Valid as u8).count() as u64
}

impl Stream {
    fn learn(&mut self, id: u32, name: &[u8]) {
        if !self.names.contains_key(&id)
            && (self.names.len() >= MAX_NAMES || self.name_bytes.saturating_add(name.len()) > MAX_NAME_BYTES)
        {
            return;
        }
        let before = self.names.insert(id, name.into()).map_or(0, |before| before.len());
        self.name_bytes = self.name_bytes.saturating_sub(before).saturating_add(name.len());
    }

    /// Says all names, as many as fit into each frame.
    fn say_names(&self, mut emit: impl FnMut(&[u8])) {
        let mut bytes = vec![0; NAMES_FRAME];
        let mut names = self.names.iter().peekable();
        while names.peek().is_some() {
            let mut w = Writer::new(&mut bytes);
            while names.next_if(|(id, name)| names::write_one(&mut w, **id, name).is_ok()).is_some() {}
            let len = w.len();
            // The longest name fits into a frame of its own.
            let Some(body) = bytes.get(..len).filter(|body| !body.is_empty()) else { return };
            emit(body);
        }
    }

    fn make_room(&mut self) {
        if self.bytes <= MAX_KEPT {
            return;
        }
        let mut over = self.bytes.saturating_sub(MAX_KEPT / 2);
        let gone = self.all.iter().take_while(|kept| {
            let goes = over > 0;
            over = over.saturating_sub(kept.body.len());
            goes
        });
        let gone = gone.count();
        self.all.drain(..gone);
        self.bytes = self.all.iter().map(|kept| kept.body.len()).sum();
        // What is said again after this is kept again.
        self.known.clear();
    }
}
