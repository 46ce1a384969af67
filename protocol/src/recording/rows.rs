//! Records as columns. Most of a record repeats what an earlier one said: who launched what, where and how large.
//! That part is kept once, as a template, and a record is the number of its template and a few differences: from
//! the end of the record before it on its stream, from the duration its template had last, and so on.

mod files;

use std::collections::HashMap;
use std::mem::offset_of;

use super::pack::{pack, put_varint, zigzag};
use crate::record::{Copy, Family, Kernel, Memset, Other};
use crate::validity::Validity;
pub(super) use files::Files;

/// The most records in one chunk.
pub(super) const MAX_RECORDS: usize = 1 << 20;
/// The most kinds of tables in one chunk: record families, each in the sizes that different shims send.
const MAX_TABLES: usize = 64;
/// Tables whose memory is used again, and the most records of one of them.
const SPARE: usize = 4;
const SPARE_RECORDS: usize = 1 << 17;

/// How the records of a family are laid out.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// How many `u64` lead a record: start, end and what else changes from one to the next.
    leading: usize,
    /// Where in the rest the lane is told: context and stream, or the thread.
    lane: usize,
    lane_len: usize,
    /// Which of the leading numbers is the correlation id, which goes on from the last one of the lane.
    correlation: usize,
    /// Where in the rest the validity is.
    validity: usize,
}

impl Shape {
    const fn of(family: Family) -> Self {
        let (leading, lane, lane_len, correlation) = match family {
            Family::Kernel => (3, offset_of!(Kernel, context), 8, 2),
            Family::Copy => (4, offset_of!(Copy, context), 8, 3),
            Family::Memset => (4, offset_of!(Memset, context), 8, 3),
            Family::Other => (5, offset_of!(Other, thread), 4, 2),
        };
        let front = leading << 3;
        let (lane, validity) = (lane.saturating_sub(front), family.validity_at().saturating_sub(front));
        Self { leading, lane, lane_len, correlation, validity }
    }

    const fn front(self) -> usize {
        self.leading << 3
    }

    /// Bytes behind the leading numbers in the form this version knows.
    const fn rest(family: Family) -> usize {
        family.size().saturating_sub(Self::of(family).front())
    }

    /// Where the record happened; two places that share a lane only compress less well.
    fn lane_key(self, rest: &[u8]) -> u64 {
        let bytes = rest.get(self.lane..self.lane.saturating_add(self.lane_len)).unwrap_or_default();
        bytes.iter().fold(self.lane_len as u64, |key, byte| key.rotate_left(8) ^ u64::from(*byte))
    }
}

/// Where records happen one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    end: u64,
    correlation: u64,
}

#[derive(Debug, Default)]
struct Lanes {
    lanes: Vec<Lane>,
    by_key: HashMap<u64, usize>,
}

impl Lanes {
    fn clear(&mut self) {
        self.lanes.clear();
        self.by_key.clear();
    }

    fn place(&mut self, key: u64) -> usize {
        let lanes = &mut self.lanes;
        *self.by_key.entry(key).or_insert_with(|| {
            lanes.push(Lane::default());
            lanes.len().saturating_sub(1)
        })
    }
}

/// What is remembered of a template while records come.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// The number of the template that came after it last time.
    next: u32,
    lane: u32,
    duration: u64,
    /// The last values of the leading numbers behind start and end.
    last: [u64; 3],
}

/// How the columns of both sides go on from record to record. Templates have numbers from 1; 0 in the file is the one
/// that was expected, and here what came before the first record.
#[derive(Debug)]
struct Track {
    shape: Shape,
    memory: Vec<Memory>,
    /// The template that came last.
    previous: u32,
}

impl Track {
    const fn new(shape: Shape) -> Self {
        Self { shape, memory: Vec::new(), previous: 0 }
    }

    /// Forgets everything.
    fn begin(&mut self, shape: Shape) {
        self.memory.clear();
        (self.shape, self.previous) = (shape, 0);
    }

    /// Takes note of the next template, whose records come in this lane.
    fn learn(&mut self, lane: u32) {
        if self.memory.is_empty() {
            self.memory.push(Memory::default());
        }
        self.memory.push(Memory { next: 1, lane, ..Memory::default() });
    }

    /// The template that comes next if all goes on as before; 0 when nothing has come.
    fn expected(&self) -> u32 {
        self.memory.get(self.previous as usize).map_or(0, |memory| memory.next)
    }

    /// Takes note of what came.
    fn came(&mut self, number: u32) {
        if let Some(previous) = self.memory.get_mut(self.previous as usize) {
            previous.next = number;
        }
        self.previous = number;
    }
}

/// Notes of one record's place in time for both sides.
fn moved(lane: &mut Lane, start: u64, end: u64) {
    if start != 0 && end >= start {
        lane.end = end;
    }
}

/// The records of one family and size, to be written.
#[derive(Debug)]
struct Table {
    family: Family,
    size: usize,
    track: Track,
    templates: Vec<u8>,
    numbers: HashMap<Box<[u8]>, u32>,
    counts: Vec<u32>,
    codes: Vec<u64>,
    columns: [Vec<u64>; 5],
}

/// Records on their way into columns.
#[derive(Debug, Default)]
pub(super) struct Rows {
    tables: Vec<Table>,
    lanes: Lanes,
    /// Believable start and end over all records.
    pub(super) span: Option<(u64, u64)>,
}

impl Rows {
    /// The table for records of a family and size; `None` when there is no room or no sense in it.
    pub(super) fn table(&mut self, family: Family, size: usize) -> Option<usize> {
        let found = self.tables.iter().position(|table| table.family == family && table.size == size);
        if found.is_some() {
            return found;
        }
        let shape = Shape::of(family);
        if size < shape.front() || self.tables.len() >= MAX_TABLES {
            return None;
        }
        self.tables.push(Table {
            family,
            size,
            track: Track::new(shape),
            templates: Vec::new(),
            numbers: HashMap::new(),
            counts: Vec::new(),
            codes: Vec::new(),
            columns: Default::default(),
        });
        self.tables.len().checked_sub(1)
    }

    /// Takes in one record of a table.
    pub(super) fn push(&mut self, table: usize, record: &[u8]) {
        let Some(table) = self.tables.get_mut(table) else { return };
        let shape = table.track.shape;
        let (front, rest) = record.split_at_checked(shape.front()).unwrap_or((record, &[]));
        let number = table.template(rest, &mut self.lanes);
        table.codes.push(if number == table.track.expected() { 0 } else { u64::from(number) });
        table.track.came(number);
        if let Some(count) = number.checked_sub(1).and_then(|at| table.counts.get_mut(at as usize)) {
            *count = count.saturating_add(1);
        }
        let mut numbers = [0u64; 5];
        for (number, bytes) in numbers.iter_mut().zip(front.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*bytes);
        }
        let [start, end, others @ ..] = numbers;
        let Some(memory) = table.track.memory.get_mut(number as usize) else { return };
        let Some(lane) = self.lanes.lanes.get_mut(memory.lane as usize) else { return };
        let duration = end.wrapping_sub(start);
        let mut differences =
            [zigzag(start.wrapping_sub(lane.end)), zigzag(duration.wrapping_sub(memory.duration)), 0, 0, 0];
        memory.duration = duration;
        moved(lane, start, end);
        let changing = differences.iter_mut().skip(2).zip(others).zip(&mut memory.last);
        for (((to, value), last), column) in changing.zip(2..) {
            let before = if column == shape.correlation { &mut lane.correlation } else { last };
            *to = zigzag(value.wrapping_sub(*before));
            *before = value;
        }
        for (column, difference) in table.columns.iter_mut().zip(differences).take(shape.leading) {
            column.push(difference);
        }
        if rest.get(shape.validity) == Some(&(Validity::Valid as u8)) && start != 0 && end >= start {
            self.span =
                Some(self.span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        }
    }

    /// How many records there are of each class, in wire order; those of no class are counted behind them.
    pub(super) fn classes(&self) -> [u64; Validity::ALL.len() + 1] {
        let mut classes = [0u64; Validity::ALL.len() + 1];
        for table in &self.tables {
            let width = table.width().max(1);
            for (template, count) in table.templates.chunks_exact(width).zip(&table.counts) {
                let class = template.get(table.track.shape.validity).copied().unwrap_or_default();
                let at = usize::from(class).min(Validity::ALL.len());
                if let Some(sum) = classes.get_mut(at) {
                    *sum = sum.saturating_add(u64::from(*count));
                }
            }
        }
        classes
    }

    /// Writes everything and begins anew.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        put_varint(out, self.tables.len() as u64);
        for table in &self.tables {
            table.write(out);
        }
        *self = Self::default();
    }
}

impl Table {
    /// Bytes of a template.
    fn width(&self) -> usize {
        self.size.saturating_sub(self.track.shape.front())
    }

    /// The number of the template with these bytes.
    fn template(&mut self, rest: &[u8], lanes: &mut Lanes) -> u32 {
        let expected = self.track.expected();
        let at = (expected as usize).wrapping_sub(1).saturating_mul(rest.len());
        if self.templates.get(at..at.saturating_add(rest.len())) == Some(rest) && !rest.is_empty() {
            return expected;
        }
        if let Some(number) = self.numbers.get(rest) {
            return *number;
        }
        self.templates.extend_from_slice(rest);
        self.counts.push(0);
        let number = self.counts.len() as u32;
        self.numbers.insert(rest.into(), number);
        self.track.learn(lanes.place(self.track.shape.lane_key(rest)) as u32);
        number
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.family as u8);
        for number in [self.size, self.codes.len(), self.counts.len()] {
            put_varint(out, number as u64);
        }
        let width = self.width();
        for byte in 0..width {
            out.extend(self.templates.iter().skip(byte).step_by(width.max(1)));
        }
        pack(&self.codes, out);
        self.columns.iter().take(self.track.shape.leading).for_each(|column| pack(column, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back(records: &[(Family, Vec<u8>)]) -> Vec<Vec<u8>> {
        let mut rows = Rows::default();
        let tables: Vec<usize> = records
            .iter()
            .map(|(family, record)| {
                let table = rows.table(*family, record.len()).unwrap();
                rows.push(table, record);
                table
            })
            .collect();
        let mut bytes = Vec::new();
        rows.finish(&mut bytes);
        // What was read before is forgotten.
        let mut files = Files::default();
        files.read(&bytes).unwrap();
        let _ = files.take(0, 1, &mut Vec::new());
        files.read(&bytes).unwrap();
        tables
            .into_iter()
            .map(|table| {
                let mut record = Vec::new();
                files.take(table, 1, &mut record).unwrap();
                record
            })
            .collect()
    }

    proptest! {
        #[test]
        fn any_records_come_back(
            records in proptest::collection::vec(
                (0usize..4, 0usize..2, proptest::collection::vec(0u8..4, 96)), 0..80)
        ) {
            let records: Vec<(Family, Vec<u8>)> = records
                .into_iter()
                .map(|(family, longer, mut bytes)| {
                    let family = Family::ALL[family];
                    bytes.truncate(family.size() + longer * 8);
                    // Few different templates, many different numbers.
                    bytes[48..].iter_mut().for_each(|byte| *byte /= 3);
                    (family, bytes)
                })
                .collect();
            let expected: Vec<Vec<u8>> = records.iter().map(|(_, record)| record.clone()).collect();
            prop_assert_eq!(back(&records), expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, count in 0usize..100) {
            let mut files = Files::default();
            if files.read(&bytes).is_some() {
                for table in 0..4 {
                    let _ = files.take(table, count, &mut Vec::new());
                }
            }
        }
    }
}
