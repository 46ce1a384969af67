//! Columns on their way back into records.

use std::ops::Range;

use super::{Lanes, MAX_RECORDS, MAX_TABLES, SPARE, SPARE_RECORDS, Shape, Track, moved};
use crate::record::Family;
use crate::recording::pack::{Source, unpack, unzigzag};

/// The records of one family and size, to be read.
#[derive(Debug)]
struct Filed {
    family: Family,
    size: usize,
    track: Track,
    templates: Vec<u8>,
    codes: Vec<u64>,
    columns: [Vec<u64>; 5],
    at: usize,
}

/// Columns on their way back into records. Its memory is used again for the next chunk.
#[derive(Debug, Default)]
pub(in super::super) struct Files {
    tables: Vec<Filed>,
    spare: Vec<Filed>,
    lanes: Lanes,
}

impl Files {
    /// Reads what [`super::Rows::finish`] wrote, instead of what was read before.
    pub(in super::super) fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let mut source = Source(bytes);
        self.tables.truncate(SPARE);
        self.spare.clear();
        let kept = self.tables.drain(..).rev();
        self.spare.extend(kept.filter(|table| table.codes.capacity() <= SPARE_RECORDS));
        self.lanes.clear();
        let mut records = MAX_RECORDS;
        for _ in 0..source.limited(MAX_TABLES)? {
            let family = Family::from_wire(source.byte()?)?;
            let mut table = self.spare.pop().unwrap_or_else(|| Filed::new(family));
            let read = table.read(family, &mut source, &mut records, &mut self.lanes);
            self.tables.push(table);
            read?;
        }
        Some(())
    }

    /// The family and size of a table's records.
    pub(in super::super) fn kind(&self, table: usize) -> Option<(Family, usize)> {
        self.tables.get(table).map(|table| (table.family, table.size))
    }

    /// Appends the next records of a table.
    pub(in super::super) fn take(&mut self, table: usize, count: usize, out: &mut Vec<u8>) -> Option<()> {
        self.tables.get_mut(table)?.take(count, &mut self.lanes, out)
    }
}

impl Filed {
    const fn new(family: Family) -> Self {
        Self {
            family,
            size: 0,
            track: Track::new(Shape::of(family)),
            templates: Vec::new(),
            codes: Vec::new(),
            columns: [const { Vec::new() }; 5],
            at: 0,
        }
    }

    fn read(
        &mut self,
        family: Family,
        source: &mut Source<'_>,
        records: &mut usize,
        lanes: &mut Lanes,
    ) -> Option<()> {
        let shape = Shape::of(family);
        (self.family, self.at) = (family, 0);
        self.size = source.limited(usize::from(u16::MAX)).filter(|size| *size >= shape.front())?;
        let count = source.limited(*records)?;
        *records = records.saturating_sub(count);
        let kinds = source.limited(count)?;
        let width = self.size.saturating_sub(shape.front());
        let planes = source.take(kinds.checked_mul(width)?)?;
        self.templates.clear();
        self.templates.resize(planes.len(), 0);
        for (byte, plane) in planes.chunks_exact(kinds.max(1)).enumerate() {
            let to = self.templates.iter_mut().skip(byte).step_by(width.max(1));
            to.zip(plane).for_each(|(to, from)| *to = *from);
        }
        self.track.begin(shape);
        for kind in 0..kinds {
            let at = kind.wrapping_mul(width);
            let rest = self.templates.get(at..at.wrapping_add(width))?;
            self.track.learn(lanes.place(shape.lane_key(rest)) as u32);
        }
        unpack(source, count, &mut self.codes)?;
        self.columns.iter_mut().take(shape.leading).try_for_each(|column| unpack(source, count, column))
    }

    fn take(&mut self, count: usize, lanes: &mut Lanes, out: &mut Vec<u8>) -> Option<()> {
        let (from, to) = (self.at, self.at.checked_add(count)?);
        if to > self.codes.len() {
            return None;
        }
        self.at = to;
        match self.family {
            Family::Kernel => self.build::<3, 2, { Shape::rest(Family::Kernel) }>(from..to, lanes, out),
            Family::Copy => self.build::<4, 3, { Shape::rest(Family::Copy) }>(from..to, lanes, out),
            Family::Memset => self.build::<4, 3, { Shape::rest(Family::Memset) }>(from..to, lanes, out),
            Family::Other => self.build::<5, 2, { Shape::rest(Family::Other) }>(from..to, lanes, out),
        }
    }

    /// Appends records that so many numbers lead, one of them the correlation id; nearly always so many bytes follow.
    /// Lengths that are known here let all of this stay in registers.
    #[inline(never)]
    fn build<const LEADING: usize, const CORRELATION: usize, const REST: usize>(
        &mut self,
        range: Range<usize>,
        lanes: &mut Lanes,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let Self { size, track, templates, codes, columns, .. } = self;
        let width = size.checked_sub(LEADING << 3)?;
        let mut differences = [[].as_slice(); LEADING];
        for (of, column) in differences.iter_mut().zip(columns) {
            *of = column.get(range.clone())?;
        }
        let codes = codes.get(range)?;
        let begun = out.len();
        out.resize(codes.len().checked_mul(*size)?.checked_add(begun)?, 0);
        let records = out.get_mut(begun..)?.chunks_exact_mut(*size);
        let (mut previous, mut expected) = (track.previous, track.expected());
        for (at, (code, record)) in codes.iter().zip(records).enumerate() {
            let number = if *code == 0 { expected } else { u32::try_from(*code).ok()? };
            if number != expected {
                track.previous = previous;
                track.came(number);
            }
            previous = number;
            let memory = track.memory.get_mut(number as usize)?;
            expected = memory.next;
            let lane = lanes.lanes.get_mut(memory.lane as usize)?;
            let mut numbers = [0u64; LEADING];
            for (number, column) in numbers.iter_mut().zip(&differences) {
                *number = unzigzag(*column.get(at)?);
            }
            let [start, end, others @ ..] = numbers.as_mut_slice() else { return None };
            *start = lane.end.wrapping_add(*start);
            memory.duration = memory.duration.wrapping_add(*end);
            *end = start.wrapping_add(memory.duration);
            moved(lane, *start, *end);
            for ((number, last), column) in others.iter_mut().zip(&mut memory.last).zip(2..) {
                let before = if column == CORRELATION { &mut lane.correlation } else { last };
                *before = before.wrapping_add(*number);
                *number = *before;
            }
            let from = (number as usize).checked_sub(1)?.wrapping_mul(width);
            let template = templates.get(from..from.wrapping_add(width))?;
            let (front, rest) = record.split_at_mut_checked(LEADING << 3)?;
            for (to, number) in front.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
                *to = number.to_le_bytes();
            }
            // What has a length that is known here is copied without a call.
            match (rest.first_chunk_mut::<REST>(), template.first_chunk::<REST>()) {
                (Some(to), Some(template)) if width == REST => *to = *template,
                _ => rest.copy_from_slice(template),
            }
        }
        track.previous = previous;
        Some(())
    }
}
