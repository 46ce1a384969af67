//! Records of one kind and size that lie one behind the other: what is the same for all is looked at once.

use crate::write::{Sink, Writer};
use core::mem::take;
use gtop_protocol::record::Family;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `CUPTI_ACTIVITY_KIND_INVALID`.
const NO_KIND: u32 = 0;

/// Whole records of one kind and size, at least one, and perhaps others behind them.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    bytes: &'a [u8],
    /// Bytes of each.
    size: usize,
    /// CUPTI's number of their kind.
    kind: u32,
}

impl<'a> Run<'a> {
    /// Records of this many bytes each.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], size: usize) -> Self {
        Self { bytes, size, kind: kind_of(bytes).unwrap_or(NO_KIND) }
    }

    /// CUPTI's number of their kind; none of its kinds where a single record is too short to have one.
    #[inline]
    pub(crate) const fn kind(&self) -> u32 {
        self.kind
    }

    /// Each record's bytes.
    #[inline]
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (run, mut rest) = (*self, self.bytes);
        core::iter::from_fn(move || {
            let (record, behind) = run.split(rest)?;
            rest = behind;
            Some(record)
        })
    }

    /// Gives each record to `fill`, with the place it is to be written to, and says how many there are; `None` where
    /// they are shorter than what is read of them. A record that no frame has room for is given as well, with a place
    /// that nobody reads.
    #[inline]
    pub(super) fn write<Raw, R, S: Sink>(
        &self,
        family: Family,
        out: &mut Writer<'_, S>,
        mut fill: impl FnMut(&Raw, &mut R),
    ) -> Option<u64>
    where
        Raw: FromBytes + KnownLayout + Immutable + Unaligned,
        R: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        if self.size < size_of::<Raw>() {
            return None;
        }
        let (mut all, mut rest) = (0u64, self.bytes);
        loop {
            let mut room = out.room::<R>(family);
            let before = room.len();
            let goes_on = loop {
                let Some((record, behind)) = self.split(rest) else { break false };
                if room.len() < size_of::<R>() {
                    break true;
                }
                let Ok((place, left)) = R::mut_from_prefix(take(&mut room)) else { break false };
                (rest, room) = (behind, left);
                if let Some(raw) = view(record) {
                    fill(raw, place);
                }
            };
            let written = before.wrapping_sub(room.len());
            all = all.wrapping_add(out.wrote::<R>(written));
            if !goes_on || written == 0 {
                return Some(all);
            }
        }
    }

    /// The next record and what lies behind it, if it is whole and of this kind.
    #[inline]
    fn split(&self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        bytes
            .split_at_checked(self.size)
            .filter(|(record, _)| !record.is_empty() && kind_of(record).unwrap_or(NO_KIND) == self.kind)
    }
}

/// What every record begins with, if the bytes are enough for that.
#[inline]
pub(crate) fn kind_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|kind| u32::from_le_bytes(*kind))
}

/// `None` when the bytes end before the record does.
#[inline]
pub(super) fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Option<&T> {
    T::ref_from_prefix(bytes).ok().map(|(view, _)| view)
}
