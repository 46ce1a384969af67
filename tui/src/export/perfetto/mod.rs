//! Perfetto's own format, for ui.perfetto.dev: a track for each process, device and stream, sub-tracks where records
//! overlap, and counters. Records without believable times are counted in the attributes of the trace, which have no
//! place in time.

mod event;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Write};

use event::Event;
use prost::Message;
use rustc_hash::FxHashMap;
use schema::{
    Attribute, BOOTTIME, CLEARED, COUNTER, Clock, ClockSnapshot, CounterDescriptor, INSTANT, Interned,
    InternedBytes, InternedData, NEEDED, ProcessDescriptor, REALTIME, SLICE_BEGIN, SLICE_END,
    TraceAttributes, TracePacket, TrackDescriptor, TrackEvent, UNIT_COUNT, UNIT_SIZE_BYTES,
};
use zerocopy::byteorder::little_endian::U16;

use super::lanes::{Lanes, Track, device_name};
use super::output::Out;
use super::rows::About;
use super::{Counter, Owner, Process, Record, Row, Sink, TextKey, Unit, text_key};

/// The one sequence of packets of a file.
const SEQUENCE: u32 = 1;
/// Launch configurations that are numbered; others are written in full.
const MAX_LAUNCHES: usize = 1 << 16;

/// The names of arguments; their place is their number, from 1.
const ARGUMENTS: [&str; 8] =
    ["correlation", "graph", "graph node", "launch", "bytes", "mangled", "code", "value"];
const CORRELATION: u64 = 1;
const GRAPH: u64 = 2;
const NODE: u64 = 3;
const LAUNCH: u64 = 4;
const BYTES: u64 = 5;
const MANGLED: u64 = 6;
const CODE: u64 = 7;
const VALUE: u64 = 8;

/// A trace.
pub(super) struct Perfetto<'s> {
    out: Out,
    buffer: Vec<u8>,
    /// Used again for every event.
    event: Event,
    tracks: FxHashMap<Key<'s>, u64>,
    lanes: Lanes<(u32, Track)>,
    names: FxHashMap<TextKey, u64>,
    categories: FxHashMap<TextKey, u64>,
    texts: FxHashMap<TextKey, u64>,
    launches: FxHashMap<Launch, u64>,
    iids: u64,
    /// Records without believable times: of which process, kind, class and name.
    invalid: BTreeMap<(u32, &'static str, &'static str, &'s str), i64>,
}

/// What has a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key<'s> {
    Process(u32),
    Device(u32, u16),
    Lane(u32, Track, usize),
    Counter(Option<u32>, Option<u32>, &'s str, Option<u32>),
}

/// How a kernel was launched: grid, block, registers, shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Launch {
    grid: [u32; 3],
    block: [u16; 3],
    registers: u16,
    shared: [u32; 2],
}

impl Launch {
    fn text(&self) -> String {
        let sides = |sides: [u32; 3]| sides.map(|side| side.to_string()).join("×");
        let (grid, block) = (sides(self.grid), sides(self.block.map(u32::from)));
        let (registers, [fixed, dynamic]) = (self.registers, self.shared);
        format!("grid {grid}, block {block}, {registers} registers, {fixed} + {dynamic} bytes shared")
    }
}

impl<'s> Perfetto<'s> {
    pub(super) fn begin(out: Out, about: About<'s>) -> io::Result<Self> {
        let mut this = Self {
            out,
            buffer: Vec::new(),
            event: Event::default(),
            tracks: FxHashMap::default(),
            lanes: Lanes::default(),
            names: FxHashMap::default(),
            categories: FxHashMap::default(),
            texts: FxHashMap::default(),
            launches: FxHashMap::default(),
            iids: 0,
            invalid: BTreeMap::new(),
        };
        // The trace's own clock counts from the epoch.
        let clock = |id| Clock { clock_id: Some(id), timestamp: Some(about.origin) };
        let names = ARGUMENTS.iter().zip(1..);
        let names =
            names.map(|(name, iid)| Interned { iid: Some(iid), name: Some((*name).to_owned()) }).collect();
        this.put(&TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks: vec![clock(BOOTTIME), clock(REALTIME)] }),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(CLEARED | NEEDED),
            interned_data: Some(InternedData { debug_annotation_names: names, ..InternedData::default() }),
            ..TracePacket::default()
        })?;
        let said = |key: &str, value: &str| Attribute {
            key: Some(key.to_owned()),
            string_value: Some(value.to_owned()),
            long_value: None,
        };
        let mut attribute = vec![said("gtop.version", env!("CARGO_PKG_VERSION"))];
        attribute.extend(about.host.map(|host| said("gtop.host", host)));
        this.attributes(attribute)?;
        Ok(this)
    }

    fn put(&mut self, packet: &TracePacket) -> io::Result<()> {
        put(&mut self.out, &mut self.buffer, packet)
    }

    fn attributes(&mut self, attribute: Vec<Attribute>) -> io::Result<()> {
        let trace_attributes = Some(TraceAttributes { attribute });
        let trusted_packet_sequence_id = Some(SEQUENCE);
        self.put(&TracePacket { trace_attributes, trusted_packet_sequence_id, ..TracePacket::default() })
    }

    /// The track of a key, described when it is new.
    fn track(
        &mut self,
        key: Key<'s>,
        describe: impl FnOnce(&mut Self) -> io::Result<TrackDescriptor>,
    ) -> io::Result<u64> {
        if let Some(uuid) = self.tracks.get(&key) {
            return Ok(*uuid);
        }
        let described = describe(self)?;
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.insert(key, uuid);
        let track_descriptor = Some(TrackDescriptor { uuid: Some(uuid), ..described });
        let trusted_packet_sequence_id = Some(SEQUENCE);
        self.put(&TracePacket { track_descriptor, trusted_packet_sequence_id, ..TracePacket::default() })?;
        Ok(uuid)
    }

    fn process(&mut self, process: &Process) -> io::Result<u64> {
        self.track(Key::Process(process.key), |_| {
            let process_name = Some(process.label());
            let process = ProcessDescriptor { pid: i32::try_from(process.key).ok(), process_name };
            Ok(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() })
        })
    }

    fn lane(&mut self, process: &'s Process, track: Track, lane: usize) -> io::Result<u64> {
        self.track(Key::Lane(process.key, track, lane), |this| {
            let parent = match (lane, track.device()) {
                (1.., _) => this.lane(process, track, 0)?,
                (_, Some(device)) => this.track(Key::Device(process.key, device), |this| {
                    let parent_uuid = Some(this.process(process)?);
                    let name = Some(device_name(device));
                    Ok(TrackDescriptor { parent_uuid, name, ..TrackDescriptor::default() })
                })?,
                _ => this.process(process)?,
            };
            let name = if lane == 0 { track.to_string() } else { format!("{track}, beside it: {lane}") };
            Ok(TrackDescriptor { parent_uuid: Some(parent), name: Some(name), ..TrackDescriptor::default() })
        })
    }

    /// The number of a text that is said once.
    fn intern(
        &mut self,
        text: &str,
        to: fn(&mut Self) -> &mut FxHashMap<TextKey, u64>,
        say: fn(u64, &str) -> InternedData,
    ) -> io::Result<u64> {
        if let Some(iid) = to(self).get(&text_key(text)) {
            return Ok(*iid);
        }
        self.iids += 1;
        let iid = self.iids;
        to(self).insert(text_key(text), iid);
        self.say(say(iid, text))?;
        Ok(iid)
    }

    fn say(&mut self, interned: InternedData) -> io::Result<()> {
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(NEEDED),
            interned_data: Some(interned),
            ..TracePacket::default()
        })
    }

    fn name(&mut self, name: &str) -> io::Result<u64> {
        self.intern(
            name,
            |this| &mut this.names,
            |iid, name| InternedData {
                event_names: vec![Interned { iid: Some(iid), name: Some(name.to_owned()) }],
                ..InternedData::default()
            },
        )
    }

    fn category(&mut self, kind: &'static str) -> io::Result<u64> {
        self.intern(
            kind,
            |this| &mut this.categories,
            |iid, name| InternedData {
                event_categories: vec![Interned { iid: Some(iid), name: Some(name.to_owned()) }],
                ..InternedData::default()
            },
        )
    }

    fn text(&mut self, text: &str) -> io::Result<u64> {
        self.intern(text, |this| &mut this.texts, text_value)
    }

    fn launch(&mut self, launch: Launch, to: &mut Event) -> io::Result<()> {
        if let Some(iid) = self.launches.get(&launch) {
            to.text(LAUNCH, *iid);
        } else if self.launches.len() < MAX_LAUNCHES {
            self.iids += 1;
            self.launches.insert(launch, self.iids);
            self.say(text_value(self.iids, &launch.text()))?;
            to.text(LAUNCH, self.iids);
        } else {
            to.whole_text(LAUNCH, &launch.text());
        }
        Ok(())
    }

    /// The arguments of a record.
    fn annotate(&mut self, row: &Row<'s>, to: &mut Event) -> io::Result<()> {
        match &row.record {
            Record::Kernel(it) => {
                to.number(CORRELATION, it.correlation.get());
                if it.graph.get() != 0 {
                    to.number(GRAPH, it.graph.get().into());
                    to.number(NODE, it.graph_node.get());
                }
                let launch = Launch {
                    grid: [it.grid_x.get(), it.grid_y.get().into(), it.grid_z.get().into()],
                    block: it.block.map(U16::get),
                    registers: it.registers.get(),
                    shared: [it.static_shared.get(), it.dynamic_shared.get()],
                };
                self.launch(launch, to)?;
                if let Some(mangled) = row.mangled.filter(|mangled| Some(*mangled) != row.name) {
                    to.text(MANGLED, self.text(mangled)?);
                }
            }
            Record::Copy(it) => {
                to.number(BYTES, it.bytes.get());
                to.number(CORRELATION, it.correlation.get());
                if it.graph.get() != 0 {
                    to.number(GRAPH, it.graph.get().into());
                    to.number(NODE, it.graph_node.get());
                }
            }
            Record::Memset(it) => {
                to.number(BYTES, it.bytes.get());
                to.number(CORRELATION, it.correlation.get());
                if it.graph.get() != 0 {
                    to.number(GRAPH, it.graph.get().into());
                    to.number(NODE, it.graph_node.get());
                }
            }
            Record::Other(it) => {
                to.number(CODE, it.code.get().into());
                to.number(if row.kind == "memory" { BYTES } else { VALUE }, it.value.get());
                to.number(CORRELATION, it.correlation.get());
            }
        }
        Ok(())
    }
}

fn text_value(iid: u64, text: &str) -> InternedData {
    InternedData {
        debug_annotation_string_values: vec![InternedBytes { iid: Some(iid), str: Some(text.into()) }],
        ..InternedData::default()
    }
}

fn put(out: &mut Out, buffer: &mut Vec<u8>, packet: &TracePacket) -> io::Result<()> {
    buffer.clear();
    // Field 1 of the trace, with a length.
    buffer.push(0x0a);
    packet.encode_length_delimited(buffer).map_err(io::Error::other)?;
    out.write_all(buffer)
}

impl<'s> Sink<'s> for Perfetto<'s> {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        let Some((start, end)) = row.time else {
            let key = (row.process.key, row.kind, row.class_name(), row.name.unwrap_or("unknown"));
            *self.invalid.entry(key).or_default() += 1;
            return Ok(());
        };
        let track = Track::of(row);
        let is_moment = row.kind == "memory" && start == end;
        let lane = if is_moment { 0 } else { self.lanes.place((row.process.key, track), start, end) };
        let uuid = self.lane(row.process, track, lane)?;
        let (name, category) = (self.name(row.name.unwrap_or("unknown"))?, self.category(row.kind)?);
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        event.name(name);
        event.category(category);
        self.annotate(row, &mut event)?;
        if is_moment {
            self.out.write_all(event.packet(INSTANT, uuid, start, SEQUENCE))?;
        } else {
            self.out.write_all(event.packet(SLICE_BEGIN, uuid, start, SEQUENCE))?;
            event.clear();
            self.out.write_all(event.packet(SLICE_END, uuid, end, SEQUENCE))?;
        }
        self.event = event;
        Ok(())
    }

    fn counter(&mut self, counter: &Counter<'s>) -> io::Result<()> {
        let (device, process) = match counter.owner {
            Owner::Device(device) => (Some(device), None),
            Owner::Process(process) => (None, Some(process)),
        };
        let key = Key::Counter(device, process.map(|process| process.key), counter.name, counter.number);
        let uuid = self.track(key, |this| {
            let parent_uuid = process.map(|process| this.process(process)).transpose()?;
            let (unit, unit_name) = match counter.unit {
                Unit::Bytes => (Some(UNIT_SIZE_BYTES), None),
                Unit::Count => (Some(UNIT_COUNT), None),
                Unit::Watts => (None, Some("W".to_owned())),
                Unit::Percent => (None, Some("%".to_owned())),
            };
            let name = Some(counter.title());
            let counter = Some(CounterDescriptor { unit, unit_name });
            Ok(TrackDescriptor { parent_uuid, name, counter, ..TrackDescriptor::default() })
        })?;
        let track_event = Some(TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(uuid),
            double_counter_value: Some(counter.value),
            ..TrackEvent::default()
        });
        let timestamp = Some(counter.at);
        let trusted_packet_sequence_id = Some(SEQUENCE);
        self.put(&TracePacket {
            timestamp,
            track_event,
            trusted_packet_sequence_id,
            ..TracePacket::default()
        })
    }

    fn bytes(&self) -> u64 {
        self.out.bytes()
    }

    fn finish(&mut self) -> io::Result<()> {
        let said = |((pid, kind, class, name), count)| Attribute {
            key: Some(format!("gtop.invalid.{class}.{kind} of process {pid}: {name}")),
            long_value: Some(count),
            string_value: None,
        };
        let attributes: Vec<Attribute> = std::mem::take(&mut self.invalid).into_iter().map(said).collect();
        if !attributes.is_empty() {
            self.attributes(attributes)?;
        }
        self.out.flush()
    }
}
