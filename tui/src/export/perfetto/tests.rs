//! What is written is read again with the same messages; the published schema is asked in the tests of readers.

use std::collections::HashMap;
use std::fs;

use prost::Message;

use super::BYTES;
use super::schema::{COUNTER, INSTANT, SLICE_BEGIN, SLICE_END, TraceOfPackets, TracePacket, TrackDescriptor};
use crate::export::tests::reported::{RATE, rate, reported};
use crate::export::tests::{ROWS, T, Tape, kernel, tape};
use crate::export::{Format, Selection};

fn packets(tape: &mut Tape) -> Vec<TracePacket> {
    let (_, files) = tape.export(Format::Perfetto, &Selection::default(), None);
    TraceOfPackets::decode(fs::read(&files[0]).unwrap().as_slice()).unwrap().packet
}

/// The slices of each track, by start and end.
fn slices(packets: &[TracePacket]) -> HashMap<u64, Vec<(u64, u64)>> {
    let mut slices: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for packet in packets {
        let Some(event) = &packet.track_event else { continue };
        let (at, list) = (packet.timestamp(), slices.entry(event.track_uuid()).or_default());
        match event.r#type() {
            SLICE_BEGIN => list.push((at, 0)),
            SLICE_END => list.last_mut().unwrap().1 = at,
            other => assert!(matches!(other, INSTANT | COUNTER)),
        }
    }
    slices
}

#[test]
fn what_overlaps_goes_to_a_track_beside() {
    let mut tape = Tape::new();
    tape.hello(1, 7, b"x");
    let spans = [(3_000, 6_776), (5_000, 7_000), (7_000, 8_000), (7_500, 7_600), (9_000, 9_000)];
    tape.records(1, 1, 1, &spans.map(|(start, end)| kernel(1, T + start, T + end)));
    let packets = packets(&mut tape);
    let slices = slices(&packets);
    assert_eq!(slices.values().map(Vec::len).sum::<usize>(), spans.len());
    for list in slices.values() {
        assert!(list.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{list:?}");
    }
    let described = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let rows = described.filter(|track| track.counter.is_none() && track.process.is_none());
    let names: Vec<&str> = rows.map(TrackDescriptor::name).collect();
    assert_eq!(names, ["GPU 0", "stream 7, context 1", "stream 7, context 1, beside it: 1"]);
}

#[test]
fn reported_values_are_slices_to_the_nanosecond() {
    let packets = packets(&mut reported());
    let slices = slices(&packets);
    let mut lengths: Vec<u64> = slices.values().flatten().map(|(start, end)| end - start).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [1_376, 2_000, 3_776, 4_030, 6_000, 8_640]);
    for list in slices.values() {
        assert!(list.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{list:?}");
    }
    // The copy alone says how many bytes it moved.
    let events = packets.iter().filter_map(|packet| Some((packet.timestamp(), packet.track_event.as_ref()?)));
    let sizes = events.filter_map(|(start, event)| {
        let size = event.debug_annotations.iter().find(|said| said.name_iid() == BYTES)?;
        Some((start, size.uint_value()))
    });
    let [(start, bytes)] = sizes.collect::<Vec<_>>()[..] else { panic!("one copy") };
    let (_, end) = slices.values().flatten().find(|(from, _)| *from == start).unwrap();
    assert_eq!(rate(bytes, (end - start) as f64), RATE);
}

#[test]
fn records_without_times_are_counted_beside_the_axis() {
    let packets = packets(&mut tape());
    let valid: usize = slices(&packets).values().map(Vec::len).sum();
    assert_eq!(valid as u64, ROWS.0 - ROWS.1);
    assert!(packets.iter().all(|packet| packet.track_event.is_none() || packet.timestamp() >= T));
    let attributes = packets.iter().filter_map(|packet| packet.trace_attributes.as_ref());
    let attributes: Vec<_> = attributes.flat_map(|said| &said.attribute).collect();
    let count: i64 = attributes.iter().map(|said| said.long_value()).sum();
    assert_eq!(count as u64, ROWS.1);
    let keys: Vec<&str> = attributes.iter().map(|said| said.key()).collect();
    assert!(keys.contains(&"gtop.invalid.zero.kernel of process 844: operator\"\"_kg"), "{keys:?}");
}
