//! The columns of a row, in their order: what CSV, NDJSON and Parquet have in common.

use gtop_protocol::record::{NO_DEVICE, direction_name};

use super::{Record, Row};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Text.
    Text,
    /// A number below 2⁵³.
    Number,
    /// Nanoseconds since the epoch: beyond what JSON's numbers hold.
    Stamp,
    /// Any 64 bits.
    Wide,
    /// The same as `start_ns` for tools that know times; left out of text.
    Time,
}

/// The value of one column of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'s> {
    Null,
    Text(&'s str),
    Number(u64),
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) of: Type,
    pub(super) get: for<'s> fn(&Row<'s>) -> Value<'s>,
    /// Appends the values of many rows: a call for them all and not for each.
    pub(super) get_all: for<'s> fn(&[Row<'s>], &mut Vec<Value<'s>>),
}

impl<'s> From<Option<&'s str>> for Value<'s> {
    fn from(text: Option<&'s str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl From<Option<u64>> for Value<'_> {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Value<'_> {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// A field that all families have.
macro_rules! of_all {
    ($row:expr, $field:ident) => {
        match &$row.record {
            Record::Kernel(it) => it.$field.get().into(),
            Record::Copy(it) => it.$field.get().into(),
            Record::Memset(it) => it.$field.get().into(),
            Record::Other(it) => it.$field.get().into(),
        }
    };
}

/// A field of some families; the others have none.
macro_rules! of_some {
    ($row:expr, $it:ident => $($family:ident: $value:expr),+) => {
        match &$row.record {
            $(Record::$family($it) => Value::from($value),)+
            #[allow(unreachable_patterns, reason = "some columns are of all families")]
            _ => Value::Null,
        }
    };
}

fn some(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// A column whose value of a row is this expression.
macro_rules! column {
    ($name:literal, $of:ident, |$row:ident| $value:expr $(,)?) => {
        Column {
            name: $name,
            of: Type::$of,
            get: |$row| $value,
            get_all: |rows, values| {
                values.extend(rows.iter().map(|$row| {
                    let value: Value<'_> = $value;
                    value
                }));
            },
        }
    };
}

/// All columns. Names are a promise.
pub(super) const COLUMNS: &[Column] = &[
    column!("host", Text, |row| row.host.into()),
    column!("pid", Number, |row| row.process.pid.map(u64::from).into()),
    column!("process", Text, |row| row.process.name.as_deref().into()),
    column!("kind", Text, |row| Value::Text(row.kind)),
    column!("name", Text, |row| row.name.into()),
    column!("mangled", Text, |row| row.mangled.into()),
    column!("class", Text, |row| Value::Text(row.class_name())),
    column!("time", Time, |row| row.time.map(|(start, _)| start).into()),
    column!("start_ns", Stamp, |row| row.time.map(|(start, _)| start).into()),
    column!("end_ns", Stamp, |row| row.time.map(|(_, end)| end).into()),
    column!("duration_ns", Number, |row| row.time.map(|(start, end)| end - start).into()),
    column!("device", Number, |row| {
        let device: Value<'_> = of_all!(row, device);
        if device == Value::Number(NO_DEVICE.into()) { Value::Null } else { device }
    }),
    column!("context", Number, |row| of_all!(row, context)),
    column!("stream", Number, |row| of_all!(row, stream)),
    column!("correlation", Number, |row| of_all!(row, correlation)),
    column!("graph", Number, |row| {
        of_some!(row, it => Kernel: some(it.graph.get().into()), Copy: some(it.graph.get().into()),
            Memset: some(it.graph.get().into()))
    }),
    column!("graph_node", Wide, |row| {
        of_some!(row, it => Kernel: some(it.graph_node.get()), Copy: some(it.graph_node.get()),
            Memset: some(it.graph_node.get()))
    }),
    column!("bytes", Number, |row| {
        of_some!(row, it => Copy: it.bytes.get(), Memset: it.bytes.get(),
            Other: (row.kind == "memory").then(|| it.value.get()))
    }),
    column!("direction", Text, |row| match &row.record {
        Record::Copy(copy) => Value::Text(direction_name(copy.direction)),
        _ => Value::Null,
    }),
    column!(
        "peer_device",
        Number,
        |row| of_some!(row, it => Copy: (it.peer_device != NO_DEVICE).then(|| u64::from(it.peer_device.get()))),
    ),
    column!("grid_x", Number, |row| of_some!(row, it => Kernel: it.grid_x.get())),
    column!("grid_y", Number, |row| of_some!(row, it => Kernel: it.grid_y.get())),
    column!("grid_z", Number, |row| of_some!(row, it => Kernel: it.grid_z.get())),
    column!("block_x", Number, |row| of_some!(row, it => Kernel: it.block[0].get())),
    column!("block_y", Number, |row| of_some!(row, it => Kernel: it.block[1].get())),
    column!("block_z", Number, |row| of_some!(row, it => Kernel: it.block[2].get())),
    column!("registers", Number, |row| of_some!(row, it => Kernel: it.registers.get())),
    column!("static_shared", Number, |row| of_some!(row, it => Kernel: it.static_shared.get())),
    column!("dynamic_shared", Number, |row| of_some!(row, it => Kernel: it.dynamic_shared.get())),
    column!("cupti_kind", Number, |row| of_some!(row, it => Other: it.cupti_kind.get())),
    column!("code", Number, |row| of_some!(row, it => Other: it.code.get())),
    column!("thread", Number, |row| of_some!(row, it => Other: it.thread.get())),
    column!("address", Wide, |row| of_some!(row, it => Other: some(it.address.get()))),
    column!("arrived_ns", Stamp, |row| row.arrived.into()),
    // Of records without believable times: what CUPTI said.
    column!("raw_start", Wide, |row| row.time.is_none().then(|| row.record.raw().0).into()),
    column!("raw_end", Wide, |row| row.time.is_none().then(|| row.record.raw().1).into()),
];
