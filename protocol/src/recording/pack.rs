//! Columns of numbers as bytes: variable-length numbers, and byte planes that compress well.

/// Appends a number, seven bits a byte.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A difference that may be negative, small when it is near zero.
pub(super) const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(super) const fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Reads what the functions of this module wrote. `None` everywhere means that the bytes make no sense.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a>(pub(super) &'a [u8]);

impl<'a> Source<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number that must not be larger than `limit`.
    pub(super) fn limited(&mut self, limit: usize) -> Option<usize> {
        usize::try_from(self.varint()?).ok().filter(|value| *value <= limit)
    }
}

/// The value that stands for "too large, see behind the planes" in so many bytes.
const fn marker(width: u32) -> u64 {
    match width {
        0 => 0,
        1..8 => (1u64 << width.wrapping_mul(8)).wrapping_sub(1),
        _ => u64::MAX,
    }
}

/// The fewest bytes that hold a value and are not all ones.
fn width_of(value: u64) -> usize {
    (0..8).find(|width| value < marker(*width) || (*width == 0 && value == 0)).unwrap_or(8) as usize
}

/// Appends values as byte planes, as many as nearly all of them need; the few larger ones follow in full.
pub(super) fn pack(values: &[u64], out: &mut Vec<u8>) {
    let mut needs = [0usize; 9];
    for value in values {
        if let Some(count) = needs.get_mut(width_of(*value)) {
            *count = count.saturating_add(1);
        }
    }
    let (mut width, mut larger) = (8u32, 0usize);
    for (narrower, count) in (0u32..8).rev().zip(needs.iter().rev()) {
        let more = larger.saturating_add(*count);
        // Without a byte there is nothing to mark a larger value with.
        if more > if narrower == 0 { 0 } else { values.len() >> 6 } {
            break;
        }
        (width, larger) = (narrower, more);
    }
    out.push(width as u8);
    put_varint(out, larger as u64);
    let limit = marker(width);
    let fits = |value: u64| if width == 8 || value < limit || width == 0 { value } else { limit };
    for plane in 0..width {
        out.extend(values.iter().map(|value| (fits(*value) >> plane.wrapping_mul(8)) as u8));
    }
    if larger > 0 {
        for plane in 0..8u32 {
            let large = values.iter().filter(|value| **value >= limit);
            out.extend(large.map(|value| (value >> plane.wrapping_mul(8)) as u8));
        }
    }
}

/// Reads `count` values that [`pack`] wrote into `values`.
pub(super) fn unpack(source: &mut Source<'_>, count: usize, values: &mut Vec<u64>) -> Option<()> {
    let width = u32::from(source.byte()?);
    let larger = source.limited(count)?;
    if width > 8 || (larger > 0 && (width == 0 || width == 8)) {
        return None;
    }
    let top = planes(source, count, width, values)?;
    if larger > 0 {
        let mut large = Vec::new();
        planes(source, larger, 8, &mut large)?;
        let mut large = large.into_iter();
        let limit = marker(width);
        // A marker is all ones: where no byte of the last plane is, none needs to be looked for.
        for (bytes, values) in top.chunks(FEW).zip(values.chunks_mut(FEW)) {
            if bytes.iter().fold(0, |most, byte| most.max(*byte)) == u8::MAX {
                for value in values.iter_mut().filter(|value| **value == limit) {
                    *value = large.next()?;
                }
            }
        }
        if large.next().is_some() {
            return None;
        }
    }
    Some(())
}

/// Values in which a marker is looked for at a time.
const FEW: usize = 1 << 4;
/// Values that are put together at a time.
const BLOCK: usize = 1 << 9;

/// Puts so many planes together to `count` values; gives the last plane, that of the highest bytes.
fn planes<'a>(source: &mut Source<'a>, count: usize, width: u32, values: &mut Vec<u64>) -> Option<&'a [u8]> {
    let planes = source.take(count.checked_mul(width as usize)?)?;
    values.clear();
    // No more than needed: what has much room is not kept for the next chunk.
    values.reserve_exact(count);
    if width == 0 {
        values.resize(count, 0);
        return Some(planes);
    }
    let (first, others) = planes.split_at_checked(count)?;
    for (bytes, from) in first.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        values.extend(bytes.iter().map(|byte| u64::from(*byte)));
        let block = values.get_mut(from..)?;
        for (plane, shift) in others.chunks_exact(count).zip((8..u64::BITS).step_by(8)) {
            let bytes = plane.get(from..)?;
            block.iter_mut().zip(bytes).for_each(|(value, byte)| *value |= u64::from(*byte) << shift);
        }
    }
    planes.get(planes.len().checked_sub(count)?..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_take_few_planes_and_large_ones_stand_apart() {
        let mut out = Vec::new();
        pack(&[0; 1000], &mut out);
        assert_eq!(out.len(), 2);
        let mut values = vec![200u64; 1000];
        values[7] = u64::MAX;
        values[8] = 255;
        out.clear();
        pack(&values, &mut out);
        assert_eq!(out.len(), 2 + 1000 + 2 * 8);
        let mut back = Vec::new();
        unpack(&mut Source(&out), 1000, &mut back).unwrap();
        assert_eq!(back, values);
    }

    proptest! {
        #[test]
        fn values_come_back(values in proptest::collection::vec((any::<u64>(), 0u32..64), 0..300)) {
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            let mut out = Vec::new();
            pack(&values, &mut out);
            let (mut source, mut back) = (Source(&out), Vec::new());
            prop_assert_eq!(unpack(&mut source, values.len(), &mut back), Some(()));
            prop_assert_eq!(back, values);
            prop_assert!(source.0.is_empty());
        }

        #[test]
        fn differences_and_numbers_come_back(value: u64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(Source(&out).varint(), Some(value));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, count in 0usize..1000) {
            let _ = unpack(&mut Source(&bytes), count, &mut Vec::new());
            let _ = Source(&bytes).varint();
        }
    }
}
