//! What was moved and set: copies by direction, and memory sets.

use std::sync::Arc;

use gtop_protocol::Validity;
use gtop_protocol::record::{Copy, Memset, direction_name};
use zerocopy::byteorder::little_endian::U16;

use super::{Work, class_of, place};
use crate::model::copies::known_direction;
use crate::model::details::Key;
use crate::model::place::{Piece, Place};
use crate::model::snapshot::{KernelName, LaneKey, Unbelieved};
use crate::model::time::Moment;
use crate::model::trust::ByClass;

/// Name ids from here on are the model's own, for copies by direction and for memory sets.
const OWN_NAMES: u32 = 0xffff_ff00;
/// The name id of memory sets.
const MEMSET_NAME: u32 = OWN_NAMES + 0xf0;

/// The direction of copies with this name id.
pub(in super::super) fn copied(name: u32) -> Option<&'static str> {
    let direction = name.checked_sub(OWN_NAMES).filter(|_| name < MEMSET_NAME)?;
    Some(direction_name(direction as u8))
}

impl Work {
    pub(super) fn copy(&mut self, copy: &Copy, classes: &mut ByClass, at: Moment) {
        self.balance.memcpy += 1;
        let (start, end) = (copy.start.get(), copy.end.get());
        let class = class_of(copy.validity, start, end);
        classes[class as usize] += 1;
        if !class.is_valid() {
            let (stream, graph) = (copy.stream.get(), copy.graph.get());
            let what = Unbelieved { name: None, start, end, stream, graph };
            let name = || format!("copy {}", direction_name(copy.direction));
            self.invalid_moved(copy.device, class, what, name, at);
            return;
        }
        let place = place(copy.device, copy.context, copy.stream, copy.graph);
        let mut piece = Piece {
            start,
            end,
            correlation: copy.correlation.get(),
            node: copy.graph_node.get(),
            detail: 0,
            kernel: u32::MAX,
        };
        let direction = known_direction(copy.direction);
        let name = OWN_NAMES + u32::from(direction);
        self.copies.add(direction, copy.bytes.get(), end - start);
        if self.draws {
            let key = moved(copy.bytes.get(), name, &place, &piece);
            piece.detail = self.own_detail(&key, || format!("copy {}", direction_name(direction)));
            self.timeline.add(LaneKey::Copy { device: place.lane_device(), direction }, piece.slice());
        } else {
            // There are no details then, and a graph is to know its copies all the same.
            piece.detail = name;
        }
        self.put(place, piece, copy.notes, at);
    }

    pub(super) fn memset(&mut self, memset: &Memset, classes: &mut ByClass, at: Moment) {
        self.balance.memset += 1;
        let (start, end) = (memset.start.get(), memset.end.get());
        let class = class_of(memset.validity, start, end);
        classes[class as usize] += 1;
        if !class.is_valid() {
            let (stream, graph) = (memset.stream.get(), memset.graph.get());
            let what = Unbelieved { name: None, start, end, stream, graph };
            self.invalid_moved(memset.device, class, what, || "memset".to_owned(), at);
            return;
        }
        let place = place(memset.device, memset.context, memset.stream, memset.graph);
        let mut piece = Piece {
            start,
            end,
            correlation: memset.correlation.get(),
            node: memset.graph_node.get(),
            detail: 0,
            kernel: u32::MAX,
        };
        if self.draws {
            let key = moved(memset.bytes.get(), MEMSET_NAME, &place, &piece);
            piece.detail = self.own_detail(&key, || "memset".to_owned());
            self.timeline.add(LaneKey::Memset { device: place.lane_device() }, piece.slice());
        }
        self.put(place, piece, memset.notes, at);
    }

    /// Takes in a copy or memory set of this class; `name` is what it is called.
    fn invalid_moved(
        &mut self,
        device: U16,
        class: Validity,
        what: Unbelieved,
        name: impl FnOnce() -> String,
        at: Moment,
    ) {
        let Unbelieved { start, end, graph, .. } = what;
        self.first_bad.get_or_insert((class, what));
        self.invalid_in_graph(device, graph, at);
        if self.trust.is_first(at) {
            self.first_invalid(self.index(), class, start, end, name(), at);
        }
    }

    /// The id of a detail whose name is the model's own.
    fn own_detail(&mut self, key: &Key, name: impl Fn() -> String) -> u32 {
        let own_names = &mut self.own_names;
        self.timeline.detail(key, || {
            let make = || Arc::new(KernelName { mangled: name(), full: name(), short: name() });
            Arc::clone(own_names.entry(key.name_id).or_insert_with(make))
        })
    }
}

/// The detail of bytes moved or set.
fn moved(bytes: u64, name_id: u32, place: &Place, piece: &Piece) -> Key {
    // All ones marks kernels.
    let bytes = bytes.min(u64::MAX - 1);
    let moved_on = (place.stream.context, place.stream.stream);
    Key { bytes, name_id, graph: place.graph, graph_node: piece.node, moved_on, ..Key::default() }
}
