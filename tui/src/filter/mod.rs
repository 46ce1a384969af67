//! The filter: a small language that says what to show, on every pane.
//!
//! ```text
//!  stream=7 dur>10us name~gemm graph!=0      all of these
//!  flash | nvjet                             one or the other
//!  !(memcpy | memset) family=attention       not, and in brackets
//! ```
//!
//! A word alone is looked for in the names and texts. What a condition says nothing about is shown: a kernel's row has
//! no stream, and `stream=7` leaves it alone, which the pane says. Of a row that stands for many records, `dur>10us` asks
//! whether any of them is as wanted.

mod parse;
mod value;

pub use parse::{FilterError, parse};
pub use value::{Op, Test, contains};

/// What can be asked of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// A kernel's name in any of its forms, or what stands for it.
    Name,
    /// Its family: gemm, attention, …
    Family,
    /// `kernel`, `memcpy` or `memset`.
    Kind,
    /// Stream id.
    Stream,
    /// Context id.
    Context,
    /// Device, CUPTI's number.
    Device,
    /// Executable graph id; 0 outside graphs.
    Graph,
    /// Graph node id; 0 outside graphs.
    Node,
    /// Duration of one record, nanoseconds.
    Duration,
    /// Bytes moved, set or used.
    Bytes,
    /// Valid records of a name.
    Calls,
    /// Records of a name in the last second.
    Rate,
    /// Share of all kernel time, 0 to 1.
    Share,
    /// Median duration, nanoseconds.
    Median,
    /// 99th percentile of the duration, nanoseconds.
    Tail,
    /// Longest duration, nanoseconds.
    Longest,
    /// Invalid records of a name.
    Invalid,
    /// Process id.
    Pid,
    /// Process name.
    Process,
    /// A sentence: an event, a line of output.
    Text,
    /// The topic of an event.
    Topic,
}

/// How a field's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Words.
    Text,
    /// Whole numbers, with `k`, `M`, `G`.
    Count,
    /// Times with their unit.
    Time,
    /// Bytes, with `KiB`, `MiB`, `GiB`.
    Bytes,
    /// Shares in percent, or from 0 to 1.
    Share,
}

impl Field {
    /// Every field with its name, its type and what it is, in the order they are explained.
    pub const ALL: [(Self, &'static str, Type, &'static str); 21] = [
        (Self::Name, "name", Type::Text, "kernel name, short, full or mangled"),
        (Self::Family, "family", Type::Text, "gemm, attention, copy, …"),
        (Self::Kind, "kind", Type::Text, "kernel, memcpy, memset"),
        (Self::Stream, "stream", Type::Count, "stream id"),
        (Self::Context, "context", Type::Count, "context id"),
        (Self::Device, "device", Type::Count, "device number"),
        (Self::Graph, "graph", Type::Count, "executable graph id, 0 outside"),
        (Self::Node, "node", Type::Count, "graph node id, 0 outside"),
        (Self::Duration, "dur", Type::Time, "how long one record took"),
        (Self::Bytes, "bytes", Type::Bytes, "bytes moved, set or used"),
        (Self::Calls, "calls", Type::Count, "records of a name"),
        (Self::Rate, "rate", Type::Count, "… in the last second"),
        (Self::Share, "share", Type::Share, "share of GPU time, 5%"),
        (Self::Median, "p50", Type::Time, "median duration"),
        (Self::Tail, "p99", Type::Time, "99th percentile"),
        (Self::Longest, "max", Type::Time, "longest duration"),
        (Self::Invalid, "invalid", Type::Count, "records with bad times"),
        (Self::Pid, "pid", Type::Count, "process id"),
        (Self::Process, "process", Type::Text, "process name"),
        (Self::Text, "text", Type::Text, "an event's sentence, a line of output"),
        (Self::Topic, "topic", Type::Text, "an event's topic"),
    ];

    /// Its name in the language.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(field, ..)| *field == self).map_or("", |(_, name, ..)| name)
    }
}

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text that can be called by several names.
    Text(&'a [&'a str]),
    /// A count, nanoseconds or bytes.
    Number(u64),
    /// Any count between these two: of many records, of which it is asked whether one is as wanted.
    Between(u64, u64),
    /// From 0 to 1.
    Share(f64),
}

/// Something that can be filtered.
pub trait Subject {
    /// The value of a field; `None` when it has none, so that a condition on it says nothing.
    fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T>;

    /// Whether its names and texts contain a word; `None` when it has none.
    fn says(&self, word: &str) -> Option<bool>;
}

/// A filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    text: String,
    root: Option<Node>,
    leaves: Vec<Leaf>,
}

/// How conditions hang together; leaves by their place.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Leaf(usize),
    Not(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
}

/// One condition.
#[derive(Clone, Debug, PartialEq)]
enum Leaf {
    /// A word in any of its texts.
    Word(String),
    /// A test of one field.
    Test(Field, Test),
}

/// What the conditions say of something, apart from how long one record of it took.
#[derive(Clone, Debug)]
pub struct Verdicts(Vec<Option<bool>>);

impl Filter {
    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether everything passes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Whether it asks for this.
    #[must_use]
    pub fn asks_for(&self, field: Field) -> bool {
        self.leaves.iter().any(|leaf| matches!(leaf, Leaf::Test(of, _) if *of == field))
    }

    /// The fields it asks for that this has not: conditions on them say nothing of it.
    pub fn unanswered(&self, subject: &impl Subject) -> Vec<&'static str> {
        let asked = Field::ALL.iter().filter(|(field, ..)| self.asks_for(*field));
        asked
            .filter(|(field, ..)| subject.value(*field, |_| ()).is_none())
            .map(|(_, name, ..)| *name)
            .collect()
    }

    /// Whether something is shown.
    #[must_use]
    pub fn keeps(&self, subject: &impl Subject) -> bool {
        let Some(root) = &self.root else { return true };
        root.holds(&|leaf| self.leaves[leaf].holds(subject)) != Some(false)
    }

    /// What the conditions say of something, to be asked for many records of it.
    #[must_use]
    pub fn verdicts(&self, subject: &impl Subject) -> Verdicts {
        Verdicts(self.leaves.iter().map(|leaf| leaf.holds(subject)).collect())
    }

    /// Whether a record that took so long, of something with these verdicts, is shown.
    #[must_use]
    pub fn keeps_record(&self, verdicts: &Verdicts, ns: u64) -> bool {
        let Some(root) = &self.root else { return true };
        let leaf = |leaf: usize| match &self.leaves[leaf] {
            Leaf::Test(Field::Duration, test) => Some(test.holds(Value::Number(ns))),
            _ => verdicts.0.get(leaf).copied().flatten(),
        };
        root.holds(&leaf) != Some(false)
    }
}

impl Leaf {
    fn holds(&self, subject: &impl Subject) -> Option<bool> {
        match self {
            Self::Word(word) => subject.says(word),
            Self::Test(field, test) => subject.value(*field, |value| test.holds(value)),
        }
    }
}

impl Node {
    /// Whether it holds; `None` when nothing it asks for is known.
    fn holds(&self, leaf: &impl Fn(usize) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Leaf(at) => leaf(*at),
            Self::Not(node) => node.holds(leaf).map(|holds| !holds),
            Self::All(nodes) => join(nodes, leaf, false),
            Self::Any(nodes) => join(nodes, leaf, true),
        }
    }
}

/// `decisive` as soon as one says so, nothing when none says anything.
fn join(nodes: &[Node], leaf: &impl Fn(usize) -> Option<bool>, decisive: bool) -> Option<bool> {
    let mut known = None;
    for node in nodes {
        match node.holds(leaf) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => known = Some(!decisive),
            None => {}
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kernel;

    impl Subject for Kernel {
        fn value<T>(&self, field: Field, look: impl FnOnce(Value<'_>) -> T) -> Option<T> {
            Some(look(match field {
                Field::Name => Value::Text(&["flash_fwd", "void flash::flash_fwd<64>()"]),
                Field::Graph => Value::Number(41),
                Field::Median => Value::Number(58_200),
                Field::Share => Value::Share(0.314),
                Field::Duration => Value::Between(40_000, 90_000),
                _ => return None,
            }))
        }

        fn says(&self, word: &str) -> Option<bool> {
            Some(contains("void flash::flash_fwd<64>()", word))
        }
    }

    fn keeps(text: &str) -> bool {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).keeps(&Kernel)
    }

    #[test]
    fn conditions_are_joined() {
        for (text, shown) in [
            ("", true),
            ("flash", true),
            ("FLASH", true),
            ("gemm", false),
            ("gemm | flash", true),
            ("flash gemm", false),
            ("!gemm flash", true),
            ("!(gemm | flash)", false),
            ("name=flash_fwd", true),
            ("name=flash", false),
            ("name~fl*fwd", true),
            ("name!~gemm", true),
            ("graph=41", true),
            ("graph!=0", true),
            ("p50>10us p50<100us", true),
            ("p50>=58.2us p50<=58.2us", true),
            ("share>30%", true),
            ("share<0.3", false),
            ("\"flash::flash\"", true),
            ("dur>80us", true),
            ("dur>90us", false),
            ("dur<41us", true),
            ("dur=50us", true),
            ("dur=91us", false),
            ("dur!=50us", true),
        ] {
            assert_eq!(keeps(text), shown, "{text}");
        }
    }

    #[test]
    fn what_is_not_said_anything_about_is_shown() {
        assert!(keeps("stream=7") && keeps("!stream=7") && keeps("stream=7 flash"));
        assert!(!keeps("stream=7 gemm"));
        assert_eq!(parse("stream=7 gemm graph=41").unwrap().unanswered(&Kernel), ["stream"]);
        assert!(!keeps("stream=7 | gemm"), "the one side that is known decides");
    }

    #[test]
    fn durations_of_records_are_asked_one_by_one() {
        let filter = parse("flash dur>10us | graph=0").unwrap();
        assert!(filter.asks_for(Field::Duration) && !filter.asks_for(Field::Pid));
        let verdicts = filter.verdicts(&Kernel);
        assert!(filter.keeps_record(&verdicts, 10_001) && !filter.keeps_record(&verdicts, 10_000));
    }

    #[test]
    fn every_field_is_in_the_list_once() {
        let names: std::collections::HashSet<_> = Field::ALL.iter().map(|(field, ..)| field.name()).collect();
        assert_eq!(names.len(), Field::ALL.len());
    }
}
