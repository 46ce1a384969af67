//! What the filter can ask of what is on the screen.

use gtop_protocol::record::direction_name;

use super::family::Families;
use crate::filter::{Field, Subject, Value, contains};
use crate::model::snapshot::{Detail, Event, GraphRow, KernelName, KernelRow, LaneKey, ProcessMemory};

fn name_says(name: &KernelName, word: &str) -> bool {
    contains(&name.full, word) || contains(&name.short, word) || contains(&name.mangled, word)
}

/// A kernel's row.
pub(super) struct Kernel<'a>(pub(super) &'a KernelRow, pub(super) &'a Families);

impl Subject for Kernel<'_> {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        let row = self.0;
        let of_valid = |ns: u64| (row.calls > 0).then_some(Value::Number(ns));
        let value = match field {
            Field::Name => {
                return Some(look(Value::Text(&[&row.name.short, &row.name.full, &row.name.mangled])));
            }
            Field::Family => return Some(look(Value::Text(&[self.1.of(&row.name)]))),
            Field::Kind => return Some(look(Value::Text(&["kernel"]))),
            Field::Calls => Value::Number(row.calls),
            Field::Rate => Value::Number(row.rate()?.round() as u64),
            Field::Share => Value::Share(row.share),
            // Whether any of its records takes so long: the filter asks for each of them elsewhere.
            Field::Duration if row.calls > 0 => Value::Between(row.min_ns, row.max_ns),
            Field::Median => of_valid(row.p50_ns)?,
            Field::Tail => of_valid(row.p99_ns)?,
            Field::Longest => of_valid(row.max_ns)?,
            Field::Invalid => Value::Number(row.invalid),
            _ => return None,
        };
        Some(look(value))
    }

    fn says(&self, word: &str) -> Option<bool> {
        Some(name_says(&self.0.name, word))
    }
}

/// A graph's row among the kernels: nothing but its number and its numbers.
pub(super) struct Graph<'a>(pub(super) &'a KernelRow);

impl Subject for Graph<'_> {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        let value = match field {
            Field::Graph => Value::Number(u64::from(self.0.id)),
            Field::Calls => Value::Number(self.0.calls),
            Field::Share => Value::Share(self.0.share),
            _ => return None,
        };
        Some(look(value))
    }

    fn says(&self, _word: &str) -> Option<bool> {
        None
    }
}

/// An executable graph, with the names that take most of its time.
pub(super) struct Executable<'a>(pub(super) &'a GraphRow, pub(super) &'a Families);

impl Subject for Executable<'_> {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        let row = self.0;
        let of_launches = |ns: u64| (row.launches > 0).then_some(Value::Number(ns));
        let names = || row.shares.iter().map(|(name, ..)| name);
        let value = match field {
            Field::Name | Field::Family if row.shares.is_empty() => return None,
            Field::Name => {
                let names: Vec<&str> =
                    names().flat_map(|name| [name.short.as_str(), &name.full, &name.mangled]).collect();
                return Some(look(Value::Text(&names)));
            }
            Field::Family => {
                let families: Vec<&str> = names().map(|name| self.1.of(name)).collect();
                return Some(look(Value::Text(&families)));
            }
            Field::Kind => return Some(look(Value::Text(&["graph"]))),
            Field::Graph => Value::Number(u64::from(row.id)),
            Field::Device => Value::Number(u64::from(row.device?)),
            Field::Context => Value::Number(u64::from(row.context)),
            Field::Stream => Value::Number(u64::from(row.stream?)),
            Field::Calls => Value::Number(row.launches),
            Field::Rate => Value::Number(row.per_second.unwrap_or(0.0).round() as u64),
            Field::Median | Field::Duration => of_launches(row.p50_ns)?,
            Field::Tail => of_launches(row.p99_ns)?,
            _ => return None,
        };
        Some(look(value))
    }

    fn says(&self, word: &str) -> Option<bool> {
        let names = &self.0.shares;
        (!names.is_empty()).then(|| names.iter().any(|(name, ..)| name_says(name, word)))
    }
}

/// A lane of the timeline, whatever is on it.
pub(super) struct OnLane(pub(super) LaneKey);

impl Subject for OnLane {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        let (device, context, stream, kind) = match self.0 {
            LaneKey::Stream { device, context, stream } => (device, Some(context), Some(stream), "kernel"),
            LaneKey::Graphs { device, context, stream } => (device, Some(context), Some(stream), "graph"),
            LaneKey::Copy { device, .. } => (device, None, None, "memcpy"),
            LaneKey::Memset { device } => (device, None, None, "memset"),
        };
        let value = match field {
            Field::Device => Value::Number(u64::from(device)),
            Field::Context => Value::Number(u64::from(context?)),
            Field::Stream => Value::Number(u64::from(stream?)),
            Field::Kind => return Some(look(Value::Text(&[kind]))),
            _ => return None,
        };
        Some(look(value))
    }

    fn says(&self, _word: &str) -> Option<bool> {
        None
    }
}

/// Records of one kind on a lane, whatever their times.
pub(super) struct OfDetail<'a>(pub(super) LaneKey, pub(super) &'a Detail, pub(super) &'a Families);

impl Subject for OfDetail<'_> {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        let detail = self.1;
        let value = match field {
            Field::Name => match self.0 {
                LaneKey::Copy { direction, .. } => {
                    return Some(look(Value::Text(&[direction_name(direction), &detail.name.full])));
                }
                // A launch is named after its graph, which `graph` asks for.
                LaneKey::Graphs { .. } => return None,
                _ => {
                    let name = &detail.name;
                    return Some(look(Value::Text(&[&name.short, &name.full, &name.mangled])));
                }
            },
            Field::Family => match self.0 {
                LaneKey::Graphs { .. } => return None,
                _ => return Some(look(Value::Text(&[self.2.of(&detail.name)]))),
            },
            Field::Graph => Value::Number(u64::from(detail.graph)),
            Field::Node => Value::Number(u64::from(detail.node_index())),
            Field::Bytes => Value::Number(detail.bytes?),
            // Lanes of copies and sets hold those of all streams.
            Field::Context if detail.moved_on.is_some() => Value::Number(u64::from(detail.moved_on?.0)),
            Field::Stream if detail.moved_on.is_some() => Value::Number(u64::from(detail.moved_on?.1)),
            other => return OnLane(self.0).value(other, look),
        };
        Some(look(value))
    }

    fn says(&self, word: &str) -> Option<bool> {
        match self.0 {
            LaneKey::Graphs { .. } => None,
            _ => Some(name_says(&self.1.name, word)),
        }
    }
}

impl Subject for Event {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        match field {
            Field::Text => Some(look(Value::Text(&[&self.text]))),
            Field::Topic => Some(look(Value::Text(&[&self.topic]))),
            Field::Pid => self.pid.map(|pid| look(Value::Number(u64::from(pid)))),
            _ => None,
        }
    }

    fn says(&self, word: &str) -> Option<bool> {
        Some(contains(&self.text, word) || contains(&self.topic, word))
    }
}

impl Subject for ProcessMemory {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        match field {
            Field::Process => Some(look(Value::Text(&[&self.name]))),
            Field::Pid => Some(look(Value::Number(u64::from(self.pid)))),
            Field::Device => Some(look(Value::Number(u64::from(self.device)))),
            Field::Bytes => self.used.map(|used| look(Value::Number(used))),
            _ => None,
        }
    }

    /// A word is looked for among kernels and sentences; `process~` asks for processes.
    fn says(&self, _word: &str) -> Option<bool> {
        None
    }
}

/// A line of output.
pub(super) struct Printed<'a>(pub(super) &'a str);

impl Subject for Printed<'_> {
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
        (field == Field::Text).then(|| look(Value::Text(&[self.0])))
    }

    fn says(&self, word: &str) -> Option<bool> {
        Some(contains(self.0, word))
    }
}
