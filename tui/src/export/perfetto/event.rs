//! The events of slices, byte by byte: nearly everything in a trace is one. The messages they are stand in `schema`.

use super::schema::NEEDED;

/// The packets of one slice, whose memory is used again.
#[derive(Debug, Default)]
pub(super) struct Event {
    /// Fields of the `TrackEvent`.
    fields: Vec<u8>,
    packet: Vec<u8>,
}

/// What the tag of a field says: its number and how it is written.
const fn tag(field: u32, is_long: bool) -> u64 {
    ((field << 3) | if is_long { 2 } else { 0 }) as u64
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a number.
const fn len(value: u64) -> usize {
    (63 - (value | 1).leading_zeros() as usize) / 7 + 1
}

/// Bytes of a field that is a number.
const fn field_len(field: u32, value: u64) -> usize {
    len(tag(field, false)) + len(value)
}

fn put(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, tag(field, false));
    put_varint(out, value);
}

fn put_long(out: &mut Vec<u8>, field: u32, len: usize) {
    put_varint(out, tag(field, true));
    put_varint(out, len as u64);
}

impl Event {
    /// Forgets all fields.
    pub(super) fn clear(&mut self) {
        self.fields.clear();
    }

    /// `TrackEvent.category_iids`.
    pub(super) fn category(&mut self, iid: u64) {
        put(&mut self.fields, 3, iid);
    }

    /// `TrackEvent.name_iid`.
    pub(super) fn name(&mut self, iid: u64) {
        put(&mut self.fields, 10, iid);
    }

    /// A `DebugAnnotation` with a number.
    pub(super) fn number(&mut self, name: u64, value: u64) {
        self.annotation(name, 3, value);
    }

    /// A `DebugAnnotation` with a text that was said before.
    pub(super) fn text(&mut self, name: u64, iid: u64) {
        self.annotation(name, 17, iid);
    }

    fn annotation(&mut self, name: u64, field: u32, value: u64) {
        put_long(&mut self.fields, 4, field_len(1, name) + field_len(field, value));
        put(&mut self.fields, 1, name);
        put(&mut self.fields, field, value);
    }

    /// A `DebugAnnotation` with a text in full.
    pub(super) fn whole_text(&mut self, name: u64, text: &str) {
        let long = len(tag(6, true)) + len(text.len() as u64) + text.len();
        put_long(&mut self.fields, 4, field_len(1, name) + long);
        put(&mut self.fields, 1, name);
        put_long(&mut self.fields, 6, text.len());
        self.fields.extend_from_slice(text.as_bytes());
    }

    /// The `TracePacket` with these fields as it stands in a trace: which type of event, on which track, when.
    pub(super) fn packet(&mut self, kind: i32, track: u64, at: u64, sequence: u32) -> &[u8] {
        let (kind, sequence, flags) = (kind as u64, u64::from(sequence), u64::from(NEEDED));
        let event = self.fields.len() + field_len(9, kind) + field_len(11, track);
        let packet = field_len(8, at)
            + len(tag(11, true))
            + len(event as u64)
            + event
            + field_len(10, sequence)
            + field_len(13, flags);
        let out = &mut self.packet;
        out.clear();
        put_long(out, 1, packet);
        put(out, 8, at);
        put_long(out, 11, event);
        out.extend_from_slice(&self.fields);
        put(out, 9, kind);
        put(out, 11, track);
        put(out, 10, sequence);
        put(out, 13, flags);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::{DebugAnnotation, TraceAttributes, TraceOfPackets, TrackEvent};
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    #[derive(Clone, Debug)]
    enum Argument {
        Number(u64, u64),
        Text(u64, u64),
        Whole(u64, String),
    }

    fn argument() -> impl Strategy<Value = Argument> {
        prop_oneof![
            (1u64..200, any::<u64>()).prop_map(|(name, value)| Argument::Number(name, value)),
            (1u64..200, 0u64..1 << 40).prop_map(|(name, iid)| Argument::Text(name, iid)),
            (1u64..9, ".{0,200}").prop_map(|(name, text)| Argument::Whole(name, text)),
        ]
    }

    proptest! {
        #[test]
        fn it_is_what_the_messages_say(
            arguments in proptest::collection::vec(argument(), 0..8),
            named in proptest::option::of((0u64..1 << 40, 1u64..9)),
            (kind, track, at) in (1i32..4, any::<u64>(), any::<u64>()),
        ) {
            let mut event = Event::default();
            event.whole_text(1, "left from before");
            event.clear();
            let mut message = TrackEvent { r#type: Some(kind), track_uuid: Some(track), ..TrackEvent::default() };
            for argument in arguments {
                let name = |name| DebugAnnotation { name_iid: Some(name), ..DebugAnnotation::default() };
                message.debug_annotations.push(match argument {
                    Argument::Number(of, value) => {
                        event.number(of, value);
                        DebugAnnotation { uint_value: Some(value), ..name(of) }
                    }
                    Argument::Text(of, iid) => {
                        event.text(of, iid);
                        DebugAnnotation { string_value_iid: Some(iid), ..name(of) }
                    }
                    Argument::Whole(of, text) => {
                        event.whole_text(of, &text);
                        DebugAnnotation { string_value: Some(text), ..name(of) }
                    }
                });
            }
            if let Some((name, category)) = named {
                event.name(name);
                event.category(category);
                message.name_iid = Some(name);
                message.category_iids.push(category);
            }
            let trace = TraceOfPackets::decode(event.packet(kind, track, at, 1)).unwrap();
            prop_assert_eq!(trace.packet.len(), 1);
            let packet = &trace.packet[0];
            prop_assert_eq!(packet.track_event.as_ref(), Some(&message));
            prop_assert_eq!((packet.timestamp, packet.trusted_packet_sequence_id), (Some(at), Some(1)));
            prop_assert_eq!((packet.sequence_flags, &packet.trace_attributes), (Some(NEEDED), &None::<TraceAttributes>));
        }
    }
}
