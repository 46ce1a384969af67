//! Parquet: one row a record, typed columns, row groups in the order of time. A group is encoded on a thread of its own
//! while the next one is filled.

mod encode;
#[cfg(test)]
mod tests;
mod texts;

use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use encode::Encoder;
use rustc_hash::FxHashMap;
use texts::Texts;

use super::columns::{COLUMNS, Column, Type, Value};
use super::output::Out;
use super::{Row, Sink, TextKey, text_key};

/// Rows of one group: what DuckDB takes as its own measure, and what is held in memory twice.
#[cfg(not(test))]
const GROUP: usize = 122_880;
#[cfg(test)]
const GROUP: usize = 2_048;
/// Rows that are put into columns at a time.
const BATCH: usize = 256;
/// Bytes of different texts in one group, before it is ended early with the batch that reached them.
const TEXTS: usize = 8 << 20;

/// A Parquet file.
pub(super) struct Parquet<'s> {
    columns: Vec<&'static Column>,
    /// Rows that are not in columns yet, and the values of one column of them.
    batch: Vec<Row<'s>>,
    values: Vec<Value<'s>>,
    /// The numbers of the texts of each column in the group that is being filled.
    ids: Vec<Ids>,
    group: Group,
    rows: usize,
    texts: usize,
    orders: SyncSender<Order>,
    finished: Receiver<io::Result<Encoded>>,
    /// Rows of the group that is being encoded.
    under_way: usize,
    /// Rows and bytes that were written.
    written: (u64, u64),
    spare: Group,
}

/// What the encoding thread is told.
enum Order {
    Encode(Group),
    Finish,
}

/// What it answers: the group, to be filled again, and the bytes of the file.
struct Encoded {
    group: Group,
    bytes: u64,
}

/// The columns of a row group.
type Group = Vec<Filled>;

/// The values of one column of a row group.
#[derive(Debug)]
struct Filled {
    /// 1 where there is a value, 0 where there is none.
    there: Vec<i16>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Texts(Texts),
    Numbers(Vec<i64>),
}

impl Filled {
    fn new(column: &Column) -> Self {
        let is_text = column.of == Type::Text;
        let values = if is_text { Values::Texts(Texts::default()) } else { Values::Numbers(Vec::new()) };
        Self { there: Vec::new(), values }
    }

    fn clear(&mut self) {
        self.there.clear();
        match &mut self.values {
            Values::Texts(texts) => texts.clear(),
            Values::Numbers(numbers) => numbers.clear(),
        }
    }
}

/// Which number a text has.
#[derive(Debug, Default)]
struct Ids {
    last: Option<(TextKey, u32)>,
    all: FxHashMap<TextKey, u32>,
}

impl Ids {
    /// The number of a text, and whether it is a new one.
    fn of(&mut self, text: &str) -> (u32, bool) {
        let key = text_key(text);
        if let Some((_, id)) = self.last.filter(|(last, _)| *last == key) {
            return (id, false);
        }
        let next = self.all.len() as u32;
        let id = *self.all.entry(key).or_insert(next);
        self.last = Some((key, id));
        (id, id == next)
    }

    fn clear(&mut self) {
        self.last = None;
        self.all.clear();
    }
}

impl Parquet<'_> {
    /// Begins a file without the columns that `without` names.
    pub(super) fn begin(out: Out, without: &[&str]) -> io::Result<Self> {
        let columns: Vec<&Column> = COLUMNS.iter().filter(|column| !without.contains(&column.name)).collect();
        let mut encoder = Encoder::begin(out, &columns)?;
        let (orders, ordered) = sync_channel::<Order>(1);
        let (done, finished) = sync_channel(1);
        thread::Builder::new().name("gtop-encode".into()).spawn(move || {
            for order in ordered {
                let result = match order {
                    Order::Encode(mut group) => encoder.encode(&group).map(|()| {
                        group.iter_mut().for_each(Filled::clear);
                        group
                    }),
                    Order::Finish => encoder.finish().map(|()| Group::new()),
                };
                let result = result.map(|group| Encoded { group, bytes: encoder.bytes() });
                if done.send(result).is_err() {
                    return;
                }
            }
        })?;
        let empty = || columns.iter().map(|column| Filled::new(column)).collect();
        let (group, spare) = (empty(), empty());
        let ids = columns.iter().map(|_| Ids::default()).collect();
        Ok(Self {
            columns,
            batch: Vec::with_capacity(BATCH),
            values: Vec::with_capacity(BATCH),
            ids,
            group,
            rows: 0,
            texts: 0,
            orders,
            finished,
            under_way: 0,
            written: (0, 0),
            spare,
        })
    }

    /// Puts the rows that wait into columns.
    fn fill(&mut self) -> io::Result<()> {
        for ((column, filled), ids) in self.columns.iter().zip(&mut self.group).zip(&mut self.ids) {
            self.values.clear();
            (column.get_all)(&self.batch, &mut self.values);
            filled.there.extend(self.values.iter().map(|value| i16::from(*value != Value::Null)));
            match &mut filled.values {
                Values::Texts(texts) => {
                    for value in &self.values {
                        let Value::Text(text) = value else { continue };
                        let (id, is_new) = ids.of(text);
                        texts.ids.push(id);
                        if is_new {
                            texts.add(text);
                            self.texts += text.len();
                        }
                    }
                }
                Values::Numbers(numbers) => {
                    let told = self.values.iter().filter_map(|value| match value {
                        Value::Number(number) => Some(*number),
                        _ => None,
                    });
                    if column.of == Type::Time {
                        numbers.extend(told.map(|ns| (ns / 1000).cast_signed()));
                    } else {
                        numbers.extend(told.map(u64::cast_signed));
                    }
                }
            }
        }
        self.rows += self.batch.len();
        self.batch.clear();
        if self.rows >= GROUP || self.texts >= TEXTS { self.end_group() } else { Ok(()) }
    }

    /// Waits for the group that is being encoded.
    fn settle(&mut self) -> io::Result<()> {
        if self.under_way > 0 {
            self.written.0 += mem::take(&mut self.under_way) as u64;
            let finished = self.answer()?;
            self.spare = finished.group;
        }
        Ok(())
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.orders.send(order).map_err(|_| gone())
    }

    fn answer(&mut self) -> io::Result<Encoded> {
        let finished = self.finished.recv().map_err(|_| gone())??;
        self.written.1 = finished.bytes;
        Ok(finished)
    }

    fn end_group(&mut self) -> io::Result<()> {
        self.settle()?;
        let full = mem::replace(&mut self.group, mem::take(&mut self.spare));
        self.order(Order::Encode(full))?;
        self.under_way = mem::take(&mut self.rows);
        self.texts = 0;
        self.ids.iter_mut().for_each(Ids::clear);
        Ok(())
    }
}

/// The encoding thread ends before it is told to only when something in it is broken.
fn gone() -> io::Error {
    io::Error::other("encoding has ended")
}

impl<'s> Sink<'s> for Parquet<'s> {
    fn row(&mut self, row: &Row<'s>) -> io::Result<()> {
        self.batch.push(row.clone());
        if self.batch.len() >= BATCH.min(GROUP - self.rows) { self.fill() } else { Ok(()) }
    }

    fn bytes(&self) -> u64 {
        let (rows, bytes) = self.written;
        // What waits will be about as large as what was written.
        let each = bytes.checked_div(rows).unwrap_or(30);
        bytes + each * (self.under_way + self.rows + self.batch.len()) as u64
    }

    fn finish(&mut self) -> io::Result<()> {
        self.fill()?;
        if self.rows > 0 {
            self.end_group()?;
        }
        self.settle()?;
        self.order(Order::Finish)?;
        self.answer().map(drop)
    }
}
